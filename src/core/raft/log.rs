//! The core's view of the log: its bounds, a bounded cache of its newest entries, and how far it is written, durable,
//! committed, handed out and applied. Does no I/O itself.

use crate::mutants::mutant;
use std::collections::VecDeque;

use super::config::Restored;
use super::error::Error;
use super::ready::PersistMark;
use super::shape::LogShape;
use super::types::{Entry, Index, SnapshotMeta, Term};

/// Entries for which a queue keeps its memory, however few it holds.
const SHORT_QUEUE: usize = 1024;

/// Invariants between calls:
/// `floor <= applied <= handed <= commit <= last`, `durable <= staged <= last`, and the cache
/// holds `first_cached ..= last` with `first_cached <= durable + 1`.
#[derive(Debug)]
pub(super) struct Log {
    shape: LogShape,
    cache: VecDeque<Entry>,
    cache_bytes: u64,
    cache_limit: u64,
    /// The batch that is being written and the last of its entries that still counts.
    writing: Option<(PersistMark, Index)>,
    /// The last index handed out for writing.
    staged: Index,
    /// The last index known to be durable here.
    durable: Index,
    commit: Index,
    /// The last index handed out for applying.
    handed: Index,
    applied: Index,
    /// What was applied an election timeout ago, more or less, and at the last mark.
    applied_before: Index,
    applied_at_mark: Index,
    /// (last index, bytes) of what is handed out and not reported as applied.
    applying: VecDeque<(Index, u64)>,
    applying_bytes: u64,
}

impl Log {
    pub(super) fn restore(restored: Restored, cache_limit: u64) -> Result<Self, Error> {
        let Restored {
            hard_state,
            snapshot,
            log,
            entries,
            applied,
        } = restored;
        let damaged = |reason: String| Err(Error::Restored(reason));
        let shape = match log {
            Some(shape) => shape,
            None => {
                let mut shape = LogShape::new(snapshot.index, snapshot.term);
                for entry in &entries {
                    if entry.index != shape.last() + 1 {
                        return damaged(format!("entry {} follows {}", entry.index, shape.last()));
                    }
                    shape.append(entry)?;
                }
                shape
            }
        };
        match shape.term(snapshot.index) {
            Some(term) if term == snapshot.term => {}
            Some(term) => {
                return damaged(format!(
                    "the log has term {term} at the snapshot's index {}, the snapshot {}",
                    snapshot.index, snapshot.term
                ));
            }
            None => {
                return damaged(format!(
                    "the log holds {}..={} and misses the snapshot's index {}",
                    shape.floor(),
                    shape.last(),
                    snapshot.index
                ));
            }
        }
        let first = entries
            .first()
            .map_or(shape.last() + 1, |entry| entry.index);
        for (entry, index) in entries.iter().zip(first..) {
            if entry.index != index || shape.term(index) != Some(entry.term) {
                return damaged(format!(
                    "entry {} does not fit the log's shape",
                    entry.index
                ));
            }
        }
        if entries
            .last()
            .is_some_and(|entry| entry.index != shape.last())
        {
            return damaged("the entries do not reach the end of the log".to_owned());
        }
        let last = shape.last();
        // A membership change is proposed only after the previous one was applied, so all but the last in a log are
        // committed, whatever the commit index in the hard state.
        let known = shape
            .configurations_after(snapshot.index)
            .nth_back(1)
            .unwrap_or(0);
        let commit = hard_state.commit.max(snapshot.index).max(known);
        let applied = applied.max(snapshot.index);
        if commit.max(applied) > last {
            return Err(Error::LogLost {
                commit: commit.max(applied),
                last,
            });
        }
        let cache_bytes = entries.iter().map(Entry::cost).sum();
        let mut log = Self {
            shape,
            cache: entries.into(),
            cache_bytes,
            cache_limit,
            writing: None,
            staged: last,
            durable: last,
            commit: commit.max(applied),
            handed: applied,
            applied,
            applied_before: applied,
            applied_at_mark: applied,
            applying: VecDeque::new(),
            applying_bytes: 0,
        };
        log.forget(log.durable, cache_limit);
        Ok(log)
    }

    pub(super) fn floor(&self) -> Index {
        self.shape.floor()
    }

    pub(super) fn last(&self) -> Index {
        self.shape.last()
    }

    pub(super) fn last_term(&self) -> Term {
        self.shape.last_term()
    }

    pub(super) fn term(&self, index: Index) -> Option<Term> {
        self.shape.term(index)
    }

    pub(super) fn commit(&self) -> Index {
        self.commit
    }

    pub(super) fn durable(&self) -> Index {
        self.durable
    }

    pub(super) fn applied(&self) -> Index {
        self.applied
    }

    pub(super) fn applying_bytes(&self) -> u64 {
        self.applying_bytes
    }

    /// Whether a candidate's log is at least as up to date as this one (paper §5.4.1).
    pub(super) fn is_up_to_date(&self, last_term: Term, last_index: Index) -> bool {
        mutant!(VoteForOldLog) || (last_term, last_index) >= (self.last_term(), self.last())
    }

    /// The first change of membership that is in the log and not applied.
    pub(super) fn unapplied_configuration(&self) -> Option<Index> {
        self.shape.configurations_after(self.applied).next()
    }

    /// Whether a configuration entry lies at `index`.
    pub(super) fn is_configuration(&self, index: Index) -> bool {
        index > 0 && self.shape.configurations_after(index - 1).next() == Some(index)
    }

    /// Adds an entry at the end.
    pub(super) fn push(&mut self, entry: Entry) -> Result<(), Error> {
        self.shape.append(&entry)?;
        self.cache_bytes += entry.cost();
        self.cache.push_back(entry);
        Ok(())
    }

    /// Appends a leader's entries after `prev` if the log matches there (paper §5.3). Gives
    /// the last index that now matches the leader's log, or `None` if `prev` does not match.
    /// Entries that are here already are left alone: a delayed append must not cut off what
    /// a later one brought.
    pub(super) fn append_after(
        &mut self,
        prev: (Index, Term),
        entries: Vec<Entry>,
    ) -> Result<Option<Index>, Error> {
        if self.term(prev.0) != Some(prev.1) {
            return Ok(None);
        }
        let matched = prev.0 + entries.len() as u64;
        for entry in entries {
            match self.term(entry.index) {
                Some(term) if term == entry.term => continue,
                Some(ours) if entry.index <= self.commit => {
                    let (index, theirs) = (entry.index, entry.term);
                    return Err(Error::Diverged {
                        index,
                        ours,
                        theirs,
                    });
                }
                Some(_) => self.truncate(entry.index),
                None => {}
            }
            self.push(entry)?;
        }
        mutant!(TruncateOnLateAppend => self.truncate(matched + 1));
        Ok(Some(matched))
    }

    /// The largest index at or below `index` whose term is at most `term`, with its term;
    /// where the log no longer reaches that far down, the floor.
    pub(super) fn find_conflict(&self, index: Index, term: Term) -> (Index, Term) {
        let mut index = index.min(self.last());
        while index > self.floor() {
            match self.term(index) {
                Some(ours) if ours > term => index = self.shape.run_start(index) - 1,
                Some(ours) => return (index, ours),
                None => break,
            }
        }
        (index, self.term(index).unwrap_or(0))
    }

    /// Cuts off `from` and what follows. Above the commit index only.
    pub(super) fn truncate(&mut self, from: Index) {
        self.shape.truncate(from);
        while self.cache.back().is_some_and(|entry| entry.index >= from) {
            if let Some(entry) = self.cache.pop_back() {
                self.cache_bytes -= entry.cost();
            }
        }
        self.staged = self.staged.min(from - 1);
        self.durable = self.durable.min(from - 1);
        if let Some((_, last)) = &mut self.writing {
            *last = (*last).min(from - 1);
        }
    }

    /// Moves the commit index forward. One beyond the log means that entries were lost.
    pub(super) fn commit_to(&mut self, index: Index) -> Result<(), Error> {
        if index <= self.commit {
            return Ok(());
        }
        if index > self.last() {
            return Err(Error::LogLost {
                commit: index,
                last: self.last(),
            });
        }
        self.commit = index;
        Ok(())
    }

    /// Whether entries wait to be written.
    pub(super) fn has_unwritten(&self) -> bool {
        self.staged < self.last()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Everything not yet written, as batch `number`.
    pub(super) fn start_writing(&mut self, number: PersistMark) -> Vec<Entry> {
        let entries = self.cached(self.staged + 1, self.last() + 1, u64::MAX);
        self.staged = self.last();
        self.writing = Some((number, self.staged));
        entries
    }

    /// Batch `number` is durable, except for what was cut off since.
    pub(super) fn written(&mut self, number: PersistMark) -> Result<(), Error> {
        match self.writing {
            Some((current, last)) if current == number => {
                self.writing = None;
                self.durable = self.durable.max(last);
                self.forget(self.durable, self.cache_limit);
                Ok(())
            }
            Some((current, _)) => Err(Error::Misuse(format!(
                "batch {number} persisted while {current} is written"
            ))),
            None => Err(Error::Misuse(format!(
                "batch {number} persisted while none is written"
            ))),
        }
    }

    /// Lets go of the oldest entries up to this one until so many bytes are left.
    fn forget(&mut self, through: Index, keep: u64) {
        while self.cache_bytes > keep
            && let Some(entry) = self.cache.pop_front_if(|entry| entry.index <= through)
        {
            self.cache_bytes -= entry.cost();
        }
    }

    /// An election timeout has passed since the last mark.
    pub(super) fn mark_applied(&mut self) {
        self.applied_before = std::mem::replace(&mut self.applied_at_mark, self.applied);
    }

    /// Lets go of the oldest entries until so many bytes are left: of those that were applied by the mark before the last
    /// one, since whoever becomes leader sends the newer ones to others, and that all others have, up to `matched`. The
    /// memory of a queue that was long once goes with them.
    pub(super) fn forget_matched(&mut self, matched: Index, keep: u64) {
        let through = matched.min(self.applied_before).min(self.durable);
        self.forget(through, keep);
        if self.cache.capacity() > SHORT_QUEUE && self.cache.len() < self.cache.capacity() / 4 {
            self.cache.shrink_to(SHORT_QUEUE.max(2 * self.cache.len()));
        }
        debug_assert!(self.first_cached() <= self.durable + 1);
        debug_assert!(self.first_cached() <= self.last() + 1);
    }

    /// The first index that need not be read from disk.
    pub(super) fn first_cached(&self) -> Index {
        self.cache
            .front()
            .map_or(self.last() + 1, |entry| entry.index)
    }

    /// Cached entries of `from .. to`, at least one and else no more than `max_bytes`.
    pub(super) fn cached(&self, from: Index, to: Index, max_bytes: u64) -> Vec<Entry> {
        let first = self.first_cached();
        let to = to.min(self.last() + 1);
        if from < first || from >= to {
            return Vec::new();
        }
        let mut bytes = 0;
        self.cache
            .range((from - first) as usize..(to - first) as usize)
            .enumerate()
            .take_while(|(at, entry)| {
                bytes += entry.cost();
                *at == 0 || bytes <= max_bytes
            })
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// The half-open range of what is committed and durable and not yet handed out.
    pub(super) fn applicable(&self) -> (Index, Index) {
        (self.handed + 1, self.commit.min(self.durable) + 1)
    }

    /// Accounts for entries that are handed out to be applied.
    pub(super) fn hand_out(&mut self, entries: &[Entry]) {
        if let Some(last) = entries.last() {
            let bytes = entries.iter().map(Entry::cost).sum();
            self.handed = last.index;
            self.applying.push_back((last.index, bytes));
            self.applying_bytes += bytes;
        }
    }

    pub(super) fn applied_to(&mut self, index: Index) -> Result<(), Error> {
        if index > self.handed {
            let handed = self.handed;
            return Err(Error::Misuse(format!(
                "{index} applied, handed out only to {handed}"
            )));
        }
        self.applied = self.applied.max(index);
        while let Some((last, bytes)) = self.applying.front().copied() {
            if last > self.applied {
                break;
            }
            self.applying.pop_front();
            self.applying_bytes -= bytes;
        }
        Ok(())
    }

    /// The log on disk starts after `index` now.
    pub(super) fn drop_through(&mut self, index: Index) -> Result<(), Error> {
        if index > self.applied.min(self.durable) {
            let (applied, durable) = (self.applied, self.durable);
            return Err(Error::Misuse(format!(
                "log dropped up to {index}, applied {applied}, durable {durable}"
            )));
        }
        if index > self.floor() {
            self.shape.drop_through(index);
            self.forget(index, 0);
        }
        Ok(())
    }

    /// A snapshot replaces the whole log. `applied` follows once it is installed.
    pub(super) fn replace(&mut self, meta: &SnapshotMeta) {
        self.shape = LogShape::new(meta.index, meta.term);
        self.cache.clear();
        self.cache_bytes = 0;
        // Nothing of the batch under way is part of the new log.
        if let Some((_, last)) = &mut self.writing {
            *last = 0;
        }
        self.staged = meta.index;
        self.durable = meta.index;
        self.commit = meta.index;
        self.handed = meta.index;
        self.applying.clear();
        self.applying_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: u64 = 25;

    /// Entries 1 to 6, of which 1 to 4 are durable, committed and applied.
    fn log() -> Log {
        let mut log = Log::restore(Restored::default(), u64::MAX).expect("an empty log");
        for index in 1..=6 {
            let entry = Entry::normal(1, index, vec![0]);
            assert_eq!(entry.cost(), COST);
            log.push(entry).expect("it follows");
        }
        (log.staged, log.durable, log.commit, log.handed) = (4, 4, 4, 4);
        log.applied_to(4).expect("it was handed out");
        log
    }

    fn left(log: &mut Log, matched: Index, keep: u64) -> Index {
        log.forget_matched(matched, keep);
        log.first_cached()
    }

    #[test]
    fn what_was_just_applied_is_kept() {
        let mut log = log();
        assert_eq!(left(&mut log, Index::MAX, 0), 1);
        log.mark_applied();
        assert_eq!(left(&mut log, Index::MAX, 0), 1, "applied since");
        log.mark_applied();
        assert_eq!(left(&mut log, Index::MAX, 0), 5);
    }

    #[test]
    fn what_others_lack_and_so_many_bytes_are_kept() {
        let mut log = log();
        log.mark_applied();
        log.mark_applied();
        assert_eq!(left(&mut log, 0, 0), 1);
        assert_eq!(left(&mut log, Index::MAX, 6 * COST), 1);
        assert_eq!(left(&mut log, 2, 0), 3);
        assert_eq!(left(&mut log, Index::MAX, 3 * COST), 4);
        assert_eq!(log.cache_bytes, 3 * COST);
        log.durable = 3;
        assert_eq!(left(&mut log, Index::MAX, 0), 4, "not durable");
    }
}
