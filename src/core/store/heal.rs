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
use super::history::KeyEntry;
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

    /// Takes the value of the same revision of the same key as another member has it: from here on it is in memory, for readers of
    /// every view. To be asked of the newest view: since the value was asked for, its revision may have been packed, or kept by a
    /// compaction.
    pub fn heal(&self, lost: &LostValue, row: &Row) -> Healed {
        let own = KeyValue {
            value: row.kv.value.clone(),
            ..lost.key_value()
        };
        let same = !row.tombstone && (row.main, row.sub) == lost.revision() && row.kv == own;
        if !same && !mutant!(HealsWithAnother) {
            return Healed::Refused;
        }
        // What came with it must not stay in memory for as long as it does.
        let value = Bytes::copy_from_slice(&row.kv.value);
        let healed = lost.heal_in(&lost.record, &lost.holder, &value);
        let now = self.holders(lost).into_iter();
        let healed = now.fold(healed, |healed, (record, holder)| {
            match (healed, lost.heal_in(&record, &holder, &value)) {
                (Healed::Taken, _) | (_, Healed::Elsewhere) => healed,
                (_, other) => other,
            }
        });
        if healed == Healed::Taken && !mutant!(HealedNotTold) {
            self.state.origin.healed();
        }
        healed
    }

    /// Where its revision is held now: in the log of revisions, in a record of its own, or in both.
    fn holders(&self, lost: &LostValue) -> Vec<(Record, Holder)> {
        let (key, place) = (lost.record.key(), lost.record.place());
        if mutant!(HealedWhereItWas) {
            return Vec::new();
        }
        let entry = self.state.keys.get(key);
        let own = entry.into_iter().flat_map(KeyEntry::own_records);
        let own = own.filter(|record| record.place() == place);
        let own = own.map(|record| (record.clone(), Holder::Record));
        own.chain(self.state.log.find(key, place)).collect()
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
    /// Heals it as it is held here: a record that was made of what is packed is a copy.
    fn heal_in(&self, record: &Record, holder: &Holder, value: &Bytes) -> Healed {
        match holder {
            Holder::Chunk(chunk, at) if !mutant!(PackedNotHealed) => {
                chunk.heal(*at, self.place, value)
            }
            Holder::Record | Holder::Chunk(..) => record.value.heal(self.place, value.clone()),
        }
    }
}
