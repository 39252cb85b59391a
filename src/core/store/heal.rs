//! Values that cannot be read from their files, by the places that are known as damaged, and the same revisions of their
//! keys as another member has them: what a value is was agreed on, so any member's is as good. That it is the one which was
//! written here is proved by the checksum that its record has kept.
//!
//! Never asks anybody, never takes the value of another revision or other bytes, and never writes to a file: the next
//! checkpoint does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::mutants::mutant;

use super::checkpoint::kept;
use super::log::Holder;
use super::record::Record;
use super::rows::Row;
use super::span::Span;
use super::value::Healed;
use super::view::View;
use super::{DamagedValue, KeyValue, Revision};

/// A value of a state that cannot be read from its file.
#[derive(Clone, Debug)]
pub struct LostValue {
    record: Record,
    holder: Holder,
    place: (u64, u64),
}

impl View {
    /// The values that this state has at these places, each the number of a file and an offset there; it needs none of
    /// the other places. Examines every record: not for a runtime's thread.
    #[must_use]
    pub fn lost_values(&self, places: &BTreeSet<(u64, u64)>) -> Vec<LostValue> {
        let mut lost = Vec::new();
        self.state.keys.visit(Span::ALL, &mut |entry| {
            for found in kept(entry, self.state.compacted) {
                let (record, holder) = self.state.held(entry, found);
                let place = record.value.place();
                let place = place.map(|place| (place.file.number(), place.offset));
                if let Some(place) = place.filter(|place| places.contains(place)) {
                    lost.push(LostValue {
                        record: Record::clone(&record),
                        holder,
                        place,
                    });
                }
            }
            ControlFlow::Continue(())
        });
        lost
    }

    /// One revision of a key, for a member that has lost its value; `None` if it is not here, or not yet, or no more.
    ///
    /// # Errors
    /// If its value cannot be read here either.
    pub fn row_at(&self, key: &[u8], at: (Revision, u32)) -> Result<Option<Row>, DamagedValue> {
        let Some(entry) = self.state.keys.get(key) else {
            return Ok(None);
        };
        let mut all = entry.records();
        let found = all.find(|found| found.place() == at && !found.tombstone());
        let row = found.map(|found| Row::new(&self.state.seen(entry, found)));
        row.transpose()
    }
}

impl LostValue {
    /// Where it was found damaged: the number of the file, and the offset there.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        self.place
    }

    /// Whose it is, without the value.
    #[must_use]
    pub fn key_value(&self) -> KeyValue {
        let key = Bytes::copy_from_slice(self.record.key());
        self.record.without_value(key)
    }

    /// The revision at which it was written, and its place within that.
    #[must_use]
    pub fn revision(&self) -> (Revision, u32) {
        self.record.place()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.record.value.len()
    }

    /// Takes the value of the same revision of the same key: from here on it is in memory, for readers of every view.
    pub fn heal(&self, row: &Row) -> Healed {
        let own = KeyValue {
            value: row.kv.value.clone(),
            ..self.key_value()
        };
        let same = !row.tombstone && (row.main, row.sub) == self.revision() && row.kv == own;
        if !same && !mutant!(HealsWithAnother) {
            return Healed::Refused;
        }
        // What came with it must not stay in memory for as long as it does.
        let value = Bytes::copy_from_slice(&row.kv.value);
        match &self.holder {
            Holder::Chunk(..) if mutant!(PackedNotHealed) => {
                self.record.value.heal(self.place, value)
            }
            Holder::Record => self.record.value.heal(self.place, value),
            Holder::Chunk(chunk, at) => chunk.heal(*at, self.place, &value),
        }
    }
}
