//! The revisions that a store has written since a moment, in the order of their keys: what a checkpoint adds to the one
//! before. Never knows what compaction has forgotten of older ones.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Revision;
use super::record::Record;
use super::tree::TOGETHER;
use super::view::View;
use super::written::Moment;
use crate::mutants::mutant;

/// Revisions in the order of their keys, and of each key by age.
#[derive(Clone, Debug)]
pub struct Changes {
    all: Arc<Vec<Change>>,
    /// The compacted revision of the state that has them.
    compacted: Revision,
}

#[derive(Clone, Debug)]
struct Change {
    /// What its key has behind what all of them begin with, as far as it fits: most keys are told apart by it, without a look at the record.
    head: u128,
    record: Record,
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
        let records: Vec<Record> = new.map(|entry| entry.record).collect();
        Some(Changes {
            all: Arc::new(in_order(records)),
            compacted: self.compacted(),
        })
    }
}

fn in_order(records: Vec<Record>) -> Vec<Change> {
    let shared = shared_by_all(&records);
    let change = |record: Record| Change {
        head: head(&record.key()[shared..]),
        record,
    };
    let mut all: Vec<Change> = records.into_iter().map(change).collect();
    all.sort_unstable_by(Change::order);
    all
}

/// How many bytes all keys begin with.
fn shared_by_all(records: &[Record]) -> usize {
    let Some((first, others)) = records.split_first() else {
        return 0;
    };
    let first = first.key();
    let shared = |shared: usize, record: &Record| {
        let key = record.key();
        if key.starts_with(&first[..shared]) {
            return shared;
        }
        let pairs = first.iter().zip(key);
        pairs.take_while(|(one, other)| one == other).count()
    };
    others.iter().fold(first.len(), shared)
}

/// The first bytes of a key as a number of the same order. Keys of which one goes on where the other ends may have the same.
fn head(key: &[u8]) -> u128 {
    let mut bytes = [0; size_of::<u128>()];
    let fits = key.len().min(bytes.len());
    bytes[..fits].copy_from_slice(&key[..fits]);
    u128::from_be_bytes(bytes)
}

impl Change {
    fn order(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| {
            let (one, other) = (&self.record, &other.record);
            (one.key(), one.place()).cmp(&(other.key(), other.place()))
        })
    }

    fn has_key_of(&self, other: &Self) -> bool {
        self.head == other.head && self.record.key() == other.record.key()
    }
}

impl Changes {
    /// The one of this number.
    pub(super) fn get(&self, number: usize) -> Option<&Record> {
        self.all.get(number).map(|change| &change.record)
    }

    /// Whoever goes through them is there: loads the next ones, if those before were loaded together.
    pub(super) fn load(&self, number: usize) {
        if number.is_multiple_of(TOGETHER) {
            let next = self.all[number..].iter().take(TOGETHER);
            Record::load_all(next.map(|change| &change.record));
        }
    }

    /// The newest of each key, then the others that compaction has left: neighbours of now come to lie beside each other in a file.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Record> {
        let all = 0..self.all.len();
        let newest = all.clone().filter(|number| self.next(*number).is_none());
        let others = all.filter(|number| {
            let next = self.next(*number);
            // Of those that are not above it the last one counts.
            next.is_some_and(|next| next.main > self.compacted || mutant!(MovesForgotten))
        });
        newest.chain(others).map(|number| &self.all[number].record)
    }

    /// The next one of the same key.
    fn next(&self, number: usize) -> Option<&Record> {
        let next = self.all.get(number + 1)?;
        let same = next.has_key_of(&self.all[number]);
        same.then_some(&next.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that end where others go on, with zeros too, and keys that are told apart only behind what the number has.
    #[test]
    fn order_is_that_of_keys_and_places() {
        let long = |last: &str| format!("a{}{last}", "b".repeat(40)).into_bytes();
        let keys = [
            b"a".to_vec(),
            b"a\0".to_vec(),
            b"a\0\0".to_vec(),
            b"ab".to_vec(),
            long("1"),
            long("0"),
            long("10"),
        ];
        let places = [(9, 0), (4, 1), (4, 0)];
        let all = places.iter().flat_map(|place| {
            let records = keys.iter().map(|key| Record::tombstone(key, *place));
            records.collect::<Vec<_>>()
        });
        let of = |record: &Record| (record.key().to_vec(), record.place());
        let records: Vec<Record> = all.collect();
        let mut expected: Vec<_> = records.iter().map(of).collect();
        expected.sort();
        for left_out in 0..records.len() {
            // What all begin with depends on which are there.
            let some = records[left_out..].to_vec();
            let ordered: Vec<_> = in_order(some.clone())
                .iter()
                .map(|it| of(&it.record))
                .collect();
            let those = |it: &&(Vec<u8>, _)| some.iter().any(|record| of(record) == **it);
            let expected: Vec<_> = expected.iter().filter(those).cloned().collect();
            assert_eq!(ordered, expected);
        }
    }
}
