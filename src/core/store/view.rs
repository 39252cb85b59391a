//! A frozen state of the store that any thread may read for as long as it likes. Never changes,
//! and never makes the owner of the store wait.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::checkpoint::base;
use super::lease::LeaseInfo;
use super::log::revision_of;
use super::pace::Pace;
use super::range::shown;
use super::record::{RECORD_OVERHEAD, Record};
use super::span::{End, Span};
use super::state::State;
use super::tree::Reader;
use super::{
    Alarm, AlarmKind, Counted, DamagedValue, Error, Event, KeyHash, LeaseId, Range, RangeResponse,
    Revision, Txn, TxnResponse, hash,
};

/// So many more entries of a chunk of the log are packed at once: all of it is put together anew for them.
const PACKED: usize = 16;

/// A published state. Keep an `Arc` of it only while it is read: it pins its part of memory.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) state: State,
}

impl View {
    /// The current revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.state.revision
    }

    /// The revision of the last compaction; -1 if there was none (as etcd reports it).
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.state.compacted
    }

    /// Logical size in bytes: equal on every member at one revision, and less right after a
    /// compaction.
    #[must_use]
    pub fn db_size(&self) -> u64 {
        self.state.db_size()
    }

    /// Bytes that a checkpoint takes at least, with its values: of keys and values, without what is assumed for each record.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        let records = self.state.keys.len() + self.state.log.len() as u64;
        self.db_size().saturating_sub(RECORD_OVERHEAD * records)
    }

    /// Bytes of the values of at least `from` bytes, wherever they are, as [`View::db_size`] counts them. Examines every
    /// record: not for a runtime's thread.
    #[must_use]
    pub fn bytes_of_values(&self, from: usize, pace: &Pace<'_>) -> u64 {
        let state = &self.state;
        let mut bytes = 0;
        let mut add = |record: &Record| {
            pace.step();
            let length = record.value.len();
            bytes += if length >= from { length as u64 } else { 0 };
        };
        // What was written since the compaction is in the log, in which neighbours are read together.
        let since = state.compacted.saturating_add(1);
        let log = state.log.iter_from(state.log.position(since));
        log.for_each(|entry| add(&entry.record));
        state.keys.visit(Span::ALL, &mut |entry| {
            if let Some(found) = base(entry, state.compacted) {
                add(&state.seen(entry, found));
            }
            ControlFlow::Continue(())
        });
        bytes
    }

    /// Packs what later revisions have replaced and whose values are in files, for all who share it. Looks at every record that is
    /// not packed yet: not for a runtime's thread. To be called by one thread at a time, which moves values as well.
    pub fn pack(&self) {
        self.state.log.pack(PACKED);
    }

    /// Number of keys.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.state.count(Span::ALL, self.state.revision)
    }

    /// Reads a range. Takes a checked request ([`check_range`](super::check_range)).
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::FutureRevision`], [`Error::InvalidSortOption`], [`Error::Value`].
    pub fn range(&self, range: &Range) -> Result<RangeResponse, Error> {
        self.state.range(range, self.state.revision)
    }

    /// The same, of a range that may be long, counted or not: not for a runtime's thread.
    ///
    /// # Errors
    /// As [`View::range`].
    pub fn range_paced(
        &self,
        range: &Range,
        counted: Counted,
        pace: &Pace<'_>,
    ) -> Result<RangeResponse, Error> {
        let current = self.state.revision;
        self.state.range_with(range, current, counted, pace)
    }

    /// The same without the count of the range, which is 0: for pieces of a range behind the first.
    ///
    /// # Errors
    /// As [`View::range`].
    pub fn range_uncounted(&self, range: &Range) -> Result<RangeResponse, Error> {
        self.state
            .range_with(range, self.state.revision, Counted::No, &Pace::default())
    }

    /// How many keys a range may have to examine in addition to those of its answer: deleted ones, up to its limit, and
    /// for a counted range at an older revision those that have changed since. A number above `most` only means more
    /// than that. Takes no time in proportion to any of them.
    #[must_use]
    pub fn extra_examined(&self, range: &Range, counted: Counted, most: u64) -> u64 {
        let span = Span::new(&range.key, &range.range_end);
        let readable = self.state.readable(range.revision, self.state.revision);
        match (readable, shown(range)) {
            (Ok(revision), Ok(shown)) if span.end != End::Single => {
                let reader = Reader {
                    span,
                    revision,
                    shown,
                    counts: counted == Counted::Yes,
                };
                self.state.extra_examined(&reader, most)
            }
            // One key is found, and what cannot be read is refused.
            _ => 0,
        }
    }

    /// How many leases there are.
    #[must_use]
    pub fn lease_count(&self) -> u64 {
        self.state.leases.count()
    }

    /// How many keys are attached to a lease.
    #[must_use]
    pub fn lease_key_count(&self, id: LeaseId) -> u64 {
        self.state.leases.key_count(id)
    }

    /// Answers a transaction that only reads. Takes a checked one
    /// ([`check_txn`](super::check_txn)).
    ///
    /// # Errors
    /// [`Error::NotReadOnly`], and what a range refuses.
    pub fn txn(&self, txn: &Txn) -> Result<TxnResponse, Error> {
        self.state.read_txn(txn, &Pace::default())
    }

    /// The same, of a transaction that reads much: not for a runtime's thread.
    ///
    /// # Errors
    /// As [`View::txn`].
    pub fn txn_paced(&self, txn: &Txn, pace: &Pace<'_>) -> Result<TxnResponse, Error> {
        self.state.read_txn(txn, pace)
    }

    /// The hash that etcd's `HashKV` gives for the same history, at a revision (0: the current
    /// one). Takes time proportional to the number of keys: not for a runtime's thread.
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::FutureRevision`], [`Error::Value`].
    pub fn hash_kv(&self, revision: Revision) -> Result<KeyHash, Error> {
        self.hash_kv_paced(revision, &Pace::default())
    }

    /// The same, giving way to others.
    ///
    /// # Errors
    /// As [`View::hash_kv`].
    pub fn hash_kv_paced(&self, revision: Revision, pace: &Pace<'_>) -> Result<KeyHash, Error> {
        hash::hash_kv(&self.state, revision, pace)
    }

    /// The hash at the revision of a compaction as it was before that, which took the store from
    /// being compacted at `from` (-1: never) to `at`. The view must be one taken after it and
    /// before anything of it was reclaimed. Takes time as [`View::hash_kv`] does.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub fn hash_before_compaction(
        &self,
        from: Revision,
        at: Revision,
        pace: &Pace<'_>,
    ) -> Result<KeyHash, DamagedValue> {
        hash::hash_between(&self.state, from, at, pace)
    }

    /// The events of `from..=to` that touch a span (`range_end` as in a range request), oldest
    /// first, with the keys as they were before if `prev_kv`.
    ///
    /// # Errors
    /// [`Error::Compacted`] if `from` lies below the compacted revision; [`Error::Value`].
    pub fn events(
        &self,
        from: Revision,
        to: Revision,
        key: &[u8],
        range_end: &[u8],
        prev_kv: bool,
    ) -> Result<Vec<Event>, Error> {
        if from < self.state.compacted {
            return Err(Error::Compacted {
                compacted: self.state.compacted,
            });
        }
        let span = Span::new(key, range_end);
        let entries = self.state.log.iter_from(self.state.log.position(from));
        let inside = entries
            .within(span)
            .take_while(|entry| revision_of(entry) <= to)
            .flatten();
        let events = inside.map(|entry| self.state.event(&entry.record, prev_kv));
        Ok(events.collect::<Result<_, _>>()?)
    }

    /// A lease.
    #[must_use]
    pub fn lease(&self, id: LeaseId) -> Option<LeaseInfo> {
        self.state.leases.get(id)
    }

    /// All leases, by ID.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseInfo> {
        self.state.leases.all()
    }

    /// The alarms that are on, by kind and then by member.
    #[must_use]
    pub fn alarms(&self) -> Vec<Alarm> {
        self.state.alarms.all()
    }

    /// Whether an alarm of this kind is on, of whatever member.
    #[must_use]
    pub fn alarmed(&self, kind: AlarmKind) -> bool {
        self.state.alarms.any(kind)
    }

    /// The keys attached to a lease, in key order.
    #[must_use]
    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.state.leases.keys(id)
    }
}
