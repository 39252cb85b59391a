//! The revisions that a store has written since a moment, in the order of their keys: what a checkpoint adds to the one
//! before. Never knows what compaction has forgotten of older ones.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Revision;
use super::record::Record;
use super::view::View;
use super::written::Moment;
use crate::mutants::mutant;

/// Revisions in the order of their keys, and of each key by age.
#[derive(Clone, Debug)]
pub struct Changes {
    records: Arc<Vec<Record>>,
    /// The compacted revision of the state that has them.
    compacted: Revision,
}

impl View {
    /// What this state has that it had not at a moment; `None` if that was not a moment of it, if a value was healed since, or if
    /// the log of revisions does not reach so far back.
    #[must_use]
    pub fn changes_since(&self, before: &Moment) -> Option<Changes> {
        let complete = self.state.floor <= before.revision || mutant!(MergedWithoutLog);
        if !self.moment().follows(before) || !complete {
            return None;
        }
        let log = &self.state.log;
        let new = log.iter_from(log.position(before.revision + 1));
        let mut records: Vec<Record> = new.map(|entry| entry.record).collect();
        records.sort_unstable_by(order);
        Some(Changes {
            records: Arc::new(records),
            compacted: self.compacted(),
        })
    }
}

fn order(one: &Record, other: &Record) -> Ordering {
    (one.key(), one.place()).cmp(&(other.key(), other.place()))
}

impl Changes {
    /// The one of this number.
    pub(super) fn get(&self, number: usize) -> Option<&Record> {
        self.records.get(number)
    }

    /// The newest of each key, then the others that compaction has left: neighbours of now come to lie beside each other in a file.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Record> {
        let all = 0..self.records.len();
        let newest = all.clone().filter(|number| self.next(*number).is_none());
        let others = all.filter(|number| {
            let next = self.next(*number);
            // Of those that are not above it the last one counts.
            next.is_some_and(|next| next.main > self.compacted || mutant!(MovesForgotten))
        });
        newest.chain(others).map(|number| &self.records[number])
    }

    /// The next one of the same key.
    fn next(&self, number: usize) -> Option<&Record> {
        let next = self.records.get(number + 1)?;
        (next.key() == self.records[number].key()).then_some(next)
    }
}
