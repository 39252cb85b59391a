//! The rows of one key of a checkpoint, until those of the next one begin: then it is known which one is the newest, and only
//! that one needs a record. Never judges their order: whoever reads them does.

use bytes::Bytes;

use super::Revision;
use super::history::{KeyEntry, Mark};
use super::recents::Recents;
use super::record::Record;
use super::unkeyed::Unkeyed;

/// A key, and what has been read of it.
#[derive(Debug)]
pub(super) struct KeyRows {
    pub(super) key: Bytes,
    /// The last one read, and the size of what it replaced.
    last: Unkeyed,
    before: u64,
    /// The one that a compaction kept, which is not in the log.
    base: Option<Record>,
    /// Those that are in the log.
    marks: Vec<Mark>,
}

impl KeyRows {
    pub(super) fn new(key: Bytes, first: Unkeyed) -> Self {
        KeyRows {
            key,
            last: first,
            before: 0,
            base: None,
            marks: Vec::new(),
        }
    }

    /// The place of the last one read.
    pub(super) fn place(&self) -> (Revision, u32) {
        self.last.place
    }

    /// The next one, above all others. What lies at the compacted revision or above is in the log.
    pub(super) fn push(&mut self, row: Unkeyed, compacted: Revision, recents: &mut Recents) {
        let size = self.last.size(self.key.len());
        let replaces = if self.last.tombstone { 0 } else { size };
        let before = std::mem::replace(&mut self.before, replaces);
        let last = std::mem::replace(&mut self.last, row);
        if last.place.0 >= compacted {
            self.marks.push(Mark {
                place: last.place,
                tombstone: last.tombstone,
            });
            recents.push_replaced(&self.key, last, before);
            return;
        }
        // Of those below it only the last one counts.
        self.base = Some(last.into_replaced(&self.key));
    }

    /// All have been read.
    pub(super) fn end(self, compacted: Revision, recents: &mut Recents) -> KeyEntry {
        let newest = self.last.into_record(&self.key);
        if newest.main >= compacted {
            recents.push(&newest, self.before);
        }
        recents.end_key(&newest);
        KeyEntry::with_older(newest, self.base, &self.marks)
    }
}
