//! The state behind the store and its views, and the steps that change it. Never checks a
//! request: its callers have.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::mutants::mutant;
use bytes::Bytes;

use super::alarm::Alarms;
use super::history::{Found, KeyEntry, Seen};
use super::lease::Leases;
use super::log::{Holder, LogEntry, RevisionLog};
use super::pace::Pace;
use super::record::{Details, Record};
use super::span::{End, Span};
use super::staged::Staged;
use super::tree::{Item as _, Reader, Tree};
use super::value::Value;
use super::written::Origin;
use super::{AuthState, DamagedValue, Error, Event, Following, LeaseId, Revision};

/// The newest records are never reclaimed, so that a reader that misses a few views misses no event: this many (few in
/// tests, to reach the limit), as long as they are within the limit in bytes.
const RECENT_RECORDS: usize = if cfg!(test) { 16 } else { 1024 };
const RECENT_BYTES: u64 = 16 << 20;

/// Everything that is replicated. Cloning is O(1).
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Shared with all states that come from it by commands, and with no others.
    pub(super) origin: Arc<Origin>,
    pub(super) keys: Tree<KeyEntry>,
    pub(super) leases: Leases,
    pub(super) alarms: Alarms,
    /// Every record from the last compaction on, and those before it that wait for reclaim.
    pub(super) log: RevisionLog,
    /// Users, roles and permissions; shared with the views.
    pub(super) auth: Arc<AuthState>,
    /// The cluster that is followed, if one is.
    pub(super) following: Option<Following>,
    /// What is here of its next revision.
    pub(super) staged: Staged,
    pub(super) revision: Revision,
    /// -1 before the first compaction, as in etcd.
    pub(super) compacted: Revision,
    /// Logical bytes of all records ever added.
    pub(super) added: u64,
    /// Logical bytes of the records in the log. Not replicated, as what the log holds is not.
    pub(super) logged: u64,
    /// How many of those compactions have freed.
    pub(super) freed: u64,
    /// How many a compaction of everything would have freed.
    pub(super) frees: u64,
    /// Above this revision the log and the superseded records in it are complete, whatever has been compacted. Not
    /// replicated: it is the progress of reclaiming.
    pub(super) floor: Revision,
    /// At this compacted revision so many entries of the log have let go of what they replaced. Not replicated either.
    pub(super) bare: (Revision, usize),
}

impl Default for State {
    fn default() -> Self {
        State {
            origin: Arc::default(),
            keys: Tree::default(),
            leases: Leases::default(),
            alarms: Alarms::default(),
            log: RevisionLog::default(),
            auth: Arc::default(),
            following: None,
            staged: Staged::default(),
            revision: 1,
            compacted: -1,
            added: 0,
            logged: 0,
            freed: 0,
            frees: 0,
            floor: -1,
            bare: (-1, 0),
        }
    }
}

impl State {
    /// Logical bytes: what compaction has not freed, whether reclaimed yet or not.
    pub(super) fn db_size(&self) -> u64 {
        self.added - self.freed + self.leases.size()
    }

    /// The key as it is now, changes of a transaction under way included.
    pub(super) fn current(&self, key: &[u8]) -> Option<&Record> {
        self.keys
            .get(key)
            .map(KeyEntry::newest)
            .filter(|record| !record.tombstone)
    }

    /// The key as a reader at a revision sees it; the revision must not lie below the
    /// compacted one.
    pub(super) fn at(&self, key: &[u8], revision: Revision) -> Option<Seen<'_>> {
        let entry = self.keys.get(key)?;
        let found = entry.live_at(revision)?;
        Some(self.seen(entry, found))
    }

    /// The record of a revision of one of its keys.
    #[inline]
    pub(super) fn seen<'a>(&self, entry: &KeyEntry, found: Found<'a>) -> Seen<'a> {
        match found {
            Found::Record(record) => Seen::Tree(record),
            Found::Mark(_) => self.held(entry, found).0,
        }
    }

    /// The same, and where it is held.
    pub(super) fn held<'a>(&self, entry: &KeyEntry, found: Found<'a>) -> (Seen<'a>, Holder) {
        match found {
            Found::Record(record) => (Seen::Tree(record), Holder::Record),
            Found::Mark(mark) => {
                // A mark goes when what it stands for leaves the log, and is made for what is in it (see `KeyEntry`).
                let found = self
                    .log
                    .find(entry.key(), mark.place)
                    .expect("the log has what a key has a mark of");
                (Seen::Log(found.0), found.1)
            }
        }
    }

    /// Whether a revision can be read while `current` is the newest; 0 and below stand for it.
    pub(super) fn readable(
        &self,
        revision: Revision,
        current: Revision,
    ) -> Result<Revision, Error> {
        if revision > current {
            return Err(Error::FutureRevision { current });
        }
        let revision = if revision <= 0 { current } else { revision };
        if revision < self.compacted {
            return Err(Error::Compacted {
                compacted: self.compacted,
            });
        }
        Ok(revision)
    }

    /// Number of keys of a span at a readable revision.
    pub(super) fn count(&self, span: Span<'_>, revision: Revision) -> u64 {
        self.count_paced(span, revision, &Pace::default())
    }

    /// The same at a pace.
    pub(super) fn count_paced(&self, span: Span<'_>, revision: Revision, pace: &Pace<'_>) -> u64 {
        if span.end == End::Single {
            let entry = self.keys.get(span.from);
            let live = entry.and_then(|entry| entry.live_at(revision));
            return u64::from(live.is_some());
        }
        self.keys.count(span, revision, &|entry, revision| {
            pace.step();
            entry.live_at(revision).is_some()
        })
    }

    /// How many keys a reader may have to examine in addition to those that it gets, or more than `most`.
    pub(super) fn extra_examined(&self, reader: &Reader<'_>, most: u64) -> u64 {
        self.keys.extra_examined(reader, most, &|entry, revision| {
            entry.live_at(revision).is_some()
        })
    }

    /// Visits the records of a span at a readable revision until the callback stops it.
    pub(super) fn visit(
        &self,
        span: Span<'_>,
        revision: Revision,
        visit: &mut impl FnMut(&Record) -> ControlFlow<()>,
    ) {
        self.visit_paced(span, revision, &Pace::default(), visit);
    }

    /// The same at a pace.
    pub(super) fn visit_paced(
        &self,
        span: Span<'_>,
        revision: Revision,
        pace: &Pace<'_>,
        visit: &mut impl FnMut(&Record) -> ControlFlow<()>,
    ) {
        if span.end == End::Single {
            let Some(entry) = self.keys.get(span.from) else {
                return;
            };
            let _ = match entry.live_at(revision) {
                Some(Found::Record(record)) => visit(record),
                Some(found) => visit(&self.seen(entry, found)),
                None => ControlFlow::Continue(()),
            };
            return;
        }
        self.keys.visit(span, &mut |entry| {
            pace.step();
            match entry.live_at(revision) {
                Some(Found::Record(record)) => visit(record),
                Some(found) => visit(&self.seen(entry, found)),
                None => ControlFlow::Continue(()),
            }
        });
    }

    /// Writes a key at a place above all others. `value` must be of exact size; `last` is the
    /// newest record of the key, a tombstone included.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        last: Option<&Record>,
        value: Bytes,
        lease: LeaseId,
        place: (Revision, u32),
    ) {
        let old = last.filter(|last| !last.tombstone);
        let was = old.map(Record::details);
        let details = Details {
            create: was.map_or(place.0, |was| was.create),
            version: was.map_or(0, |was| was.version) + 1,
            lease,
        };
        let record = Record::new(key, Value::new(value), details, place);
        self.append(&record, old.map_or(0, Record::size));
        if let Some(last) = last {
            let logged = self.log.holds(last.place());
            self.keys.modify(key, |entry| entry.push(record, logged));
        } else {
            self.keys.insert(KeyEntry::new(record));
        }
        let old_lease = was.map_or(0, |was| was.lease);
        if old_lease != lease {
            if old_lease != 0 {
                self.leases.detach(old_lease, key);
            }
            if lease != 0 {
                self.leases.attach(lease, key);
            }
        }
    }

    /// Deletes a key that exists, at a place above all others.
    pub(super) fn delete(&mut self, old: &Record, place: (Revision, u32)) {
        let tombstone = Record::tombstone(old.key(), place);
        self.append(&tombstone, old.size() + tombstone.size());
        let logged = self.log.holds(old.place());
        self.keys
            .modify(old.key(), |entry| entry.push(tombstone, logged));
        let Details { lease, .. } = old.details();
        if lease != 0 {
            self.leases.detach(lease, old.key());
        }
    }

    /// Adds a record to the log; `frees` is the space that compaction past it frees.
    pub(super) fn append(&mut self, record: &Record, frees: u64) {
        let size = record.size();
        self.added += size;
        self.logged += size;
        self.frees += frees;
        self.log.push(LogEntry {
            record: record.clone(),
            frees: self.frees,
        });
    }

    /// Forgets, logically, what was superseded before a revision.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted {
                compacted: self.compacted,
            });
        }
        if revision > self.revision {
            return Err(Error::FutureRevision {
                current: self.revision,
            });
        }
        self.compacted = revision;
        let kept = self.log.position(revision);
        // As the last one has left it, where all before this revision has left the log.
        let mut freed = self.freed;
        if let Some(last) = kept.checked_sub(1).and_then(|at| self.log.get(at)) {
            freed = last.frees;
            self.freed = freed;
        }
        // The records superseded at the revision itself are removed as well: after running out of space a client
        // deletes, and then compacts at the revision of the delete. Its tombstones are kept.
        for entry in self.log.iter_from(kept) {
            if entry.record.main > revision {
                break;
            }
            let tombstone = match entry.record.tombstone {
                true => entry.record.size(),
                false => 0,
            };
            self.freed += entry.frees - freed - tombstone;
            freed = entry.frees;
        }
        Ok(())
    }

    /// A record of the log as an event. `prev_kv` is the key just before its revision, as long
    /// as that revision can be read.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub(super) fn event(&self, record: &Record, prev_kv: bool) -> Result<Event, DamagedValue> {
        let mut event = record.to_event()?;
        if prev_kv && record.main > self.compacted {
            let before = self.at(record.key(), before(record));
            event.prev_kv = before.map(|before| before.to_kv()).transpose()?;
        }
        Ok(event)
    }

    /// The same for a watcher that was in step before the last compaction: `prev_kv` is there
    /// as long as it has not been reclaimed.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub(super) fn retained_event(
        &self,
        record: &Record,
        prev_kv: bool,
    ) -> Result<Event, DamagedValue> {
        if record.main <= self.floor {
            return self.event(record, prev_kv);
        }
        let mut event = record.to_event()?;
        if prev_kv {
            let before = self.at(record.key(), before(record));
            event.prev_kv = before.map(|before| before.to_kv()).transpose()?;
        }
        Ok(event)
    }

    /// Whether the log holds everything from a revision on.
    pub(super) fn history_from(&self, revision: Revision) -> bool {
        revision > self.floor || revision >= self.compacted
    }

    /// Gives back the memory of what compaction has forgotten, at most `budget` records' worth
    /// of work, and keeps the newest records if told so, and what those of the compacted revision have replaced: without them a
    /// watcher that is behind sees a gap. Changes nothing else that can be seen. Returns at least what is left to do, 0 if nothing.
    pub(super) fn reclaim(&mut self, budget: usize, keeps_newest: bool) -> usize {
        let waiting = self.log.position(self.compacted);
        for done in 0..waiting {
            let Some(entry) = self.log.first() else { break };
            let size = entry.record.size();
            let recent = self.log.len() <= RECENT_RECORDS && self.logged - size < RECENT_BYTES;
            if recent && keeps_newest {
                return 0;
            }
            if done == budget {
                return waiting - done;
            }
            let record = entry.record;
            self.log.pop_front();
            self.logged -= size;
            self.floor = record.main;
            let gone = self.keys.modify(record.key(), |entry| {
                let inclusive = record.tombstone || mutant!(CompactionTakesLive);
                entry.leaves_log(&record, inclusive);
                record.tombstone && entry.newest().place() == record.place()
            });
            if gone == Some(true) {
                self.keys.remove(record.key());
            }
        }
        if keeps_newest {
            return 0;
        }
        self.log.let_go();
        self.let_go_of_replaced(budget)
    }

    /// What the compacted revision itself has replaced stays with its keys until that revision leaves the log, at the next
    /// compaction. Lets go of it. Nothing below that revision is in the log any more.
    fn let_go_of_replaced(&mut self, budget: usize) -> usize {
        if self.bare.0 != self.compacted {
            self.bare = (self.compacted, 0);
        }
        let end = self.log.position(self.compacted + 1);
        let until = end.min(self.bare.1.saturating_add(budget));
        for at in self.bare.1..until {
            let Some(entry) = self.log.get(at) else { break };
            let (key, place) = (entry.record.key(), entry.record.place());
            let replaced = self.keys.get(key);
            if replaced.is_some_and(|replaced| replaced.has_base_below(place)) {
                self.keys.modify(key, KeyEntry::forget_base);
            }
        }
        self.bare.1 = until;
        end - until
    }
}

/// The revision just before a record.
fn before(record: &Record) -> Revision {
    record.main - i64::from(!mutant!(WrongPrevKv))
}
