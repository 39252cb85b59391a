//! When to take a checkpoint and how much of the log to keep.
//!
//! Two checkpoints and the log from the older one are kept. Older log is kept for a while, capped
//! in bytes, for a checkpoint that is being sent and for members that were active lately.

use std::collections::VecDeque;

use crate::mutants::mutant;
use crate::node::api::CheckpointInfo;
use crate::raft::{Entry, Index};

/// Bytes of log between two marks.
const MARK_BYTES: u64 = 64 << 10;

/// When a checkpoint is due and how much log is kept for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// Due when the log since the last one exceeds this many bytes, or half the size of the last
    /// checkpoint if that is more.
    pub log_bytes: u64,
    /// Not due before this many entries (`--snapshot-count`).
    pub entries: u64,
    /// Due beyond this many bytes however few the entries are.
    pub most_log_bytes: u64,
    /// Due as well so many milliseconds after the last one, or the start, ...
    pub old_ms: u64,
    /// ... if the log since it exceeds this many bytes, or a sixteenth of the last checkpoint if that is more: a start reads
    /// them again, and until then they are in memory.
    pub old_log_bytes: u64,
    /// While a checkpoint is being written, no more is applied than this many bytes of log.
    pub behind_bytes: u64,
    /// The most bytes of log kept for others beyond the older checkpoint.
    pub hold_bytes: u64,
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self {
            log_bytes: 64 << 20,
            entries: 10_000,
            most_log_bytes: u64::MAX,
            old_ms: 10 * 60 * 1000,
            old_log_bytes: 4 << 20,
            behind_bytes: u64::MAX,
            hold_bytes: 256 << 20,
        }
    }
}

/// The account of checkpoints and log.
#[derive(Debug)]
pub(super) struct Retention {
    policy: CheckpointPolicy,
    older: CheckpointInfo,
    newest: CheckpointInfo,
    /// The last index counted, and bytes up to there since this member started.
    last: Index,
    bytes: u64,
    /// (index, bytes up to and including it), ascending.
    marks: VecDeque<(Index, u64)>,
    /// While a checkpoint is being written: the bytes that were counted when it began.
    taking: Option<u64>,
    /// When the last one began, or this member started.
    began: Option<u64>,
    not_before: u64,
    /// The index of the checkpoint that is being sent to another member.
    sending: Option<Index>,
    /// The first index that [`Retention::droppable`] has not released yet.
    keeps_from: Index,
}

impl Retention {
    /// From the checkpoints on disk, oldest first, and the first index that the log has.
    pub(super) fn new(
        policy: CheckpointPolicy,
        checkpoints: &[CheckpointInfo],
        keeps_from: Index,
    ) -> Self {
        let newest = checkpoints.last().copied().unwrap_or_default();
        let before = checkpoints.len().checked_sub(2);
        let older = before.and_then(|at| checkpoints.get(at)).copied();
        Self {
            policy,
            older: older.unwrap_or(newest),
            newest,
            last: newest.index,
            bytes: 0,
            marks: VecDeque::new(),
            taking: None,
            began: None,
            not_before: 0,
            sending: None,
            keeps_from,
        }
    }

    /// The newest durable checkpoint; index 0 when there is none.
    pub(super) fn newest(&self) -> CheckpointInfo {
        self.newest
    }

    /// Committed entries are handed to the machine.
    pub(super) fn note(&mut self, entries: &[Entry]) {
        let counted = self.last;
        for entry in entries.iter().filter(|entry| entry.index > counted) {
            self.last = entry.index;
            self.bytes += entry.cost();
            let marked = self.marks.back().map_or(0, |(_, bytes)| *bytes);
            if self.bytes >= marked + MARK_BYTES {
                self.marks.push_back((entry.index, self.bytes));
            }
        }
    }

    /// Bytes of counted log up to and including an index; rounded down to a mark.
    fn bytes_at(&self, index: Index) -> u64 {
        if index >= self.last {
            return self.bytes;
        }
        let after = self.marks.partition_point(|(at, _)| *at <= index);
        let mark = after.checked_sub(1).and_then(|at| self.marks.get(at));
        mark.map_or(0, |(_, bytes)| *bytes)
    }

    /// Whether a checkpoint is to be taken now; then false until that one is done.
    pub(super) fn due(&mut self, now: u64, applied: Index) -> bool {
        let log = self.bytes - self.bytes_at(self.newest.index);
        let entries = applied.saturating_sub(self.newest.index);
        let enough = log > self.policy.log_bytes.max(self.newest.bytes / 2);
        let many = entries >= self.policy.entries.max(1) || log > self.policy.most_log_bytes;
        let age = now.saturating_sub(*self.began.get_or_insert(now));
        // Of a large state not so soon: it is written again for the little that is new.
        let worthwhile = self.policy.old_log_bytes.max(self.newest.bytes / 16);
        let old = age >= self.policy.old_ms && log > worthwhile;
        (enough && many || old) && self.take(now)
    }

    /// Begins a checkpoint regardless of the policy; false if one is being taken.
    pub(super) fn take(&mut self, now: u64) -> bool {
        if self.taking.is_some() || now < self.not_before {
            return false;
        }
        self.taking = Some(self.bytes);
        self.began = Some(now);
        true
    }

    /// Whether the machine may go further ahead of the checkpoint that is being written, if there is one: what it
    /// applies meanwhile stays in memory until the next one.
    pub(super) fn may_apply(&self) -> bool {
        let began = self.taking.unwrap_or(self.bytes);
        let behind = self.bytes - began;
        behind <= self.policy.behind_bytes || mutant!(CheckpointOutrun)
    }

    /// A checkpoint is durable, or failed: then it is retried after `retry` milliseconds.
    pub(super) fn done(&mut self, now: u64, retry: u64, info: Option<CheckpointInfo>) {
        self.taking = None;
        match info {
            Some(info) if info.index > self.newest.index => {
                self.older = self.newest;
                self.newest = info;
                if self.older.index == 0 {
                    self.older = info;
                }
            }
            Some(_) => {}
            None => self.not_before = now.saturating_add(retry),
        }
    }

    /// Log and machine were reset to a received checkpoint.
    pub(super) fn installed(&mut self, info: CheckpointInfo) {
        self.older = info;
        self.newest = info;
        self.began = None;
        self.last = self.last.max(info.index);
        self.keeps_from = info.index + 1;
        self.marks.clear();
    }

    /// A checkpoint is being sent to another member, or no longer is.
    pub(super) fn sending(&mut self, index: Option<Index>) {
        self.sending = index;
    }

    /// The index of the checkpoint that is being sent, if any.
    pub(super) fn sent(&self) -> Option<Index> {
        self.sending
    }

    /// The first index to keep, if more may be dropped than before. `needed` is the first index
    /// that an active member still lacks.
    pub(super) fn droppable(&mut self, needed: Option<Index>) -> Option<Index> {
        let must = mutant!(DropsOlderLog => self.newest.index + 1, else self.older.index + 1);
        let held = [needed, self.sending.map(|index| index + 1)];
        let held = held.into_iter().flatten().min();
        let mut from = held.map_or(must, |index| index.min(must));
        if from < must {
            // Above the cap, log is released mark by mark.
            let until = self.bytes_at(self.older.index);
            let floor = until.saturating_sub(self.policy.hold_bytes);
            let mut marks = self.marks.iter().filter(|(_, bytes)| *bytes >= floor);
            let capped = marks.next().map_or(must, |(index, _)| *index + 1);
            if until - self.bytes_at(from.saturating_sub(1)) > self.policy.hold_bytes {
                from = from.max(capped.min(must));
            }
        }
        if from <= self.keeps_from {
            return None;
        }
        self.keeps_from = from;
        let dropped = from - 1;
        while self.marks.get(1).is_some_and(|(index, _)| *index < dropped) {
            self.marks.pop_front();
        }
        Some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const POLICY: CheckpointPolicy = CheckpointPolicy {
        log_bytes: 1 << 20,
        entries: 4,
        most_log_bytes: 8 << 20,
        old_ms: 60_000,
        old_log_bytes: 256 << 10,
        behind_bytes: 512 << 10,
        hold_bytes: 2 << 20,
    };

    fn info(index: Index) -> CheckpointInfo {
        CheckpointInfo {
            index,
            term: 1,
            bytes: 0,
        }
    }

    /// Entries of about 128 KiB each.
    fn entries(from: Index, to: Index) -> Vec<Entry> {
        let data = Bytes::from(vec![0; 128 << 10]);
        (from..=to)
            .map(|index| Entry::normal(1, index, data.clone()))
            .collect()
    }

    #[test]
    fn checkpoint_is_due_by_bytes_and_entries() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        retention.note(&entries(2, 9));
        assert!(retention.due(0, 9));
        assert!(!retention.due(0, 9), "due only once");
        retention.done(0, 1000, Some(info(9)));
        assert!(!retention.due(0, 9));
        let huge = Entry::normal(1, 10, Bytes::from(vec![0; 4 << 20]));
        retention.note(&[huge]);
        assert!(
            !retention.due(0, 10),
            "one entry alone is below the lower bound"
        );
        let huger = Entry::normal(1, 11, Bytes::from(vec![0; 5 << 20]));
        retention.note(&[huger]);
        assert!(retention.due(0, 11), "so many bytes are enough");
    }

    #[test]
    fn half_of_a_large_checkpoint_raises_the_bound() {
        let large = CheckpointInfo {
            bytes: 4 << 20,
            ..info(1)
        };
        let mut retention = Retention::new(POLICY, &[large], 2);
        retention.note(&entries(2, 13));
        assert!(!retention.due(0, 13), "1.5 MiB of log, 2 MiB are needed");
        retention.note(&entries(14, 18));
        assert!(retention.due(0, 18));
    }

    /// After many writes up to 64 MiB of log stayed in memory for as long as nothing more was written, and each start read
    /// them again.
    #[test]
    fn old_checkpoint_is_followed_by_another() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        assert!(!retention.due(5_000, 1), "it has just started");
        retention.note(&entries(2, 5));
        assert!(!retention.due(64_999, 5));
        assert!(retention.due(65_000, 5), "a minute after the start");
        retention.done(66_000, 1000, Some(info(5)));
        retention.note(&entries(6, 6));
        assert!(!retention.due(500_000, 6), "that little is read quickly");
        retention.note(&entries(7, 9));
        assert!(retention.due(500_000, 9));
        let large = CheckpointInfo {
            bytes: 64 << 20,
            ..info(9)
        };
        retention.done(500_000, 1000, Some(large));
        retention.note(&entries(10, 30));
        assert!(!retention.due(900_000, 30), "2.6 MiB, and 4 are needed");
        retention.note(&entries(31, 43));
        assert!(retention.due(900_000, 43));
    }

    #[test]
    fn failed_checkpoint_is_retried_later() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        retention.note(&entries(2, 20));
        assert!(retention.due(0, 20));
        retention.done(100, 1000, None);
        assert!(!retention.due(500, 20));
        assert!(retention.due(1100, 20));
    }

    /// Without a bound, a disk that is slower than those who write let 881 of 1,024 MiB fill with values that no
    /// checkpoint had moved to a file yet.
    #[test]
    fn machine_waits_for_a_checkpoint_that_is_far_behind() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        retention.note(&entries(2, 20));
        assert!(retention.may_apply(), "none is being written");
        assert!(retention.due(0, 20));
        assert!(retention.may_apply());
        retention.note(&entries(21, 24));
        assert!(!retention.may_apply(), "half a MiB since it began");
        retention.done(0, 1000, None);
        assert!(retention.may_apply(), "it failed, and nothing waits for it");
        assert!(retention.due(1000, 24));
        retention.note(&entries(25, 28));
        assert!(!retention.may_apply());
        retention.done(1000, 1000, Some(info(24)));
        assert!(retention.may_apply());
    }

    #[test]
    fn log_since_the_older_checkpoint_stays() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        retention.note(&entries(2, 40));
        assert_eq!(retention.droppable(None), None);
        retention.done(0, 1000, Some(info(20)));
        assert_eq!(
            retention.droppable(None),
            None,
            "the older one is the first"
        );
        retention.done(0, 1000, Some(info(40)));
        assert_eq!(retention.droppable(None), Some(21));
        assert_eq!(retention.droppable(None), None, "released only once");
    }

    #[test]
    fn log_is_held_for_others_up_to_the_cap() {
        let mut retention = Retention::new(POLICY, &[info(1)], 2);
        retention.note(&entries(2, 60));
        retention.done(0, 1000, Some(info(20)));
        retention.done(0, 1000, Some(info(30)));
        assert_eq!(retention.droppable(Some(12)), Some(12), "1 MiB is held");
        retention.done(0, 1000, Some(info(60)));
        let from = retention.droppable(Some(12)).unwrap();
        assert!(
            (13..=17).contains(&from),
            "2 MiB of log before 30 are held, not {from}"
        );
        retention.sending(Some(28));
        assert_eq!(retention.droppable(Some(29)), Some(29));
        retention.sending(None);
        assert_eq!(
            retention.droppable(Some(40)),
            Some(31),
            "never beyond the older one"
        );
    }
}
