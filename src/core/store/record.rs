//! One revision of one key, and all revisions of a key. Never decides what is forgotten, only
//! how.

use std::sync::Arc;

use bytes::Bytes;

use super::tree::Item;
use super::value::{Place, Value};
use super::{DamagedValue, Event, EventKind, KeyValue, LeaseId, Revision};

/// Assumed overhead of a record in bytes, in addition to its key and value: a constant of the format, because the
/// logical size of the store is part of its replicated state.
pub(super) const RECORD_OVERHEAD: u64 = 128;

/// Versions in a sealed block of a key's history.
const BLOCK: usize = 32;

/// One revision of one key.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) key: Bytes,
    pub(super) value: Value,
    pub(super) create: Revision,
    pub(super) main: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    pub(super) sub: u32,
    pub(super) tombstone: bool,
}

impl Record {
    /// Its position in the history of the store.
    pub(super) fn place(&self) -> (Revision, u32) {
        (self.main, self.sub)
    }

    /// Its share of the logical size of the store.
    pub(super) fn size(&self) -> u64 {
        self.key.len() as u64 + self.value.len() as u64 + RECORD_OVERHEAD
    }

    /// # Errors
    /// If the value cannot be read.
    #[inline]
    pub(super) fn to_kv(&self) -> Result<KeyValue, DamagedValue> {
        let value = self.value.load()?;
        Ok(self.with(value))
    }

    /// The same if the value is in memory, else the key without it and where it is.
    #[inline]
    pub(super) fn to_kv_here(&self) -> (KeyValue, Option<Place>) {
        match self.value.here() {
            Ok(value) => (self.with(value), None),
            Err(place) => (self.without_value(), Some(place)),
        }
    }

    /// The same, the value left out.
    pub(super) fn without_value(&self) -> KeyValue {
        self.with(Bytes::new())
    }

    #[inline]
    fn with(&self, value: Bytes) -> KeyValue {
        KeyValue {
            key: self.key.clone(),
            create_revision: self.create,
            mod_revision: self.main,
            version: self.version,
            value,
            lease: self.lease,
        }
    }

    /// # Errors
    /// If the value cannot be read.
    pub(super) fn to_event(&self) -> Result<Event, DamagedValue> {
        if self.tombstone {
            let kv = KeyValue {
                key: self.key.clone(),
                mod_revision: self.main,
                ..KeyValue::default()
            };
            return Ok(Event {
                kind: EventKind::Delete,
                kv,
                prev_kv: None,
            });
        }
        Ok(Event {
            kind: EventKind::Put,
            kv: self.to_kv()?,
            prev_kv: None,
        })
    }
}

/// A key with every revision of it that has not been reclaimed. Cloning is O(1).
#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    newest: Arc<Record>,
    older: Option<Arc<Older>>,
}

/// The revisions below the newest one, oldest first, in blocks that clones share.
#[derive(Clone, Debug, Default)]
struct Older {
    sealed: Vec<Arc<Vec<Arc<Record>>>>,
    tail: Vec<Arc<Record>>,
}

impl Item for KeyEntry {
    fn key(&self) -> &[u8] {
        &self.newest.key
    }

    fn live(&self) -> bool {
        !self.newest.tombstone
    }

    fn modified(&self) -> Revision {
        self.newest.main
    }

    fn load(&self) {
        std::hint::black_box(Arc::strong_count(&self.newest));
    }
}

impl KeyEntry {
    pub(super) fn new(first: Arc<Record>) -> Self {
        KeyEntry {
            newest: first,
            older: None,
        }
    }

    pub(super) fn newest(&self) -> &Arc<Record> {
        &self.newest
    }

    /// Adds a revision above all others.
    pub(super) fn push(&mut self, record: Arc<Record>) {
        let last = std::mem::replace(&mut self.newest, record);
        let older = Arc::make_mut(self.older.get_or_insert_default());
        older.tail.push(last);
        if older.tail.len() == BLOCK {
            let full = std::mem::take(&mut older.tail);
            older.sealed.push(Arc::new(full));
        }
    }

    /// The newest revision not above `revision`, a tombstone included.
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<Record>> {
        let fits = |record: &Arc<Record>| record.main <= revision;
        if fits(&self.newest) {
            return Some(&self.newest);
        }
        let older = self.older.as_deref()?;
        if older.tail.first().is_some_and(fits) {
            return older.tail[..older.tail.partition_point(fits)].last();
        }
        let blocks = older
            .sealed
            .partition_point(|block| block.first().is_some_and(fits));
        let block = older.sealed[..blocks].last()?;
        block[..block.partition_point(fits)].last()
    }

    /// The key as a reader at `revision` sees it.
    pub(super) fn live_at(&self, revision: Revision) -> Option<&Arc<Record>> {
        self.at(revision).filter(|record| !record.tombstone)
    }

    /// Drops every revision below `place`, and the one at `place` if `inclusive`, but never
    /// the newest.
    pub(super) fn drop_below(&mut self, place: (Revision, u32), inclusive: bool) {
        let below =
            |record: &Arc<Record>| record.place() < place || (inclusive && record.place() == place);
        let Some(older) = &mut self.older else { return };
        let older = Arc::make_mut(older);
        let gone = older
            .sealed
            .partition_point(|block| block.last().is_some_and(below));
        older.sealed.drain(..gone);
        if let Some(block) = older.sealed.first_mut() {
            let cut = block.partition_point(below);
            if cut > 0 {
                *block = Arc::new(block[cut..].to_vec());
            }
        } else {
            let cut = older.tail.partition_point(below);
            older.tail.drain(..cut);
        }
        if older.sealed.is_empty() && older.tail.is_empty() {
            self.older = None;
        }
    }

    /// Every revision, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        let older = self.older.as_deref();
        let sealed = older.map(|older| &older.sealed[..]).unwrap_or_default();
        let tail = older.map(|older| &older.tail[..]).unwrap_or_default();
        let sealed = sealed.iter().flat_map(|block| block.iter());
        sealed.chain(tail).chain(std::iter::once(&self.newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(main: Revision, sub: u32) -> Arc<Record> {
        Arc::new(Record {
            key: Bytes::from_static(b"k"),
            value: Value::new(Bytes::new()),
            create: 2,
            main,
            version: 1,
            lease: 0,
            sub,
            tombstone: false,
        })
    }

    #[test]
    fn revision_is_found_across_blocks() {
        let mut entry = KeyEntry::new(record(2, 0));
        for main in 2..200 {
            entry.push(record(main * 2, 0));
        }
        assert!(entry.at(1).is_none());
        for revision in 4..400 {
            let seen = entry.at(revision).map(|record| record.main);
            assert_eq!(seen, Some((revision / 2 * 2).min(398)), "at {revision}");
        }
    }

    #[test]
    fn compaction_keeps_the_named_revision() {
        for cut in 0..150 {
            let mut entry = KeyEntry::new(record(2, 0));
            for main in 3..152 {
                entry.push(record(main, 0));
            }
            let shared = entry.clone();
            entry.drop_below((cut + 2, 0), false);
            let left: Vec<Revision> = entry.records().map(|record| record.main).collect();
            assert_eq!(left, (cut + 2..152).collect::<Vec<_>>());
            assert_eq!(shared.records().count(), 150, "a clone is not touched");
        }
    }
}
