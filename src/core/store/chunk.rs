//! A full chunk of the log of revisions. What an entry of it is never changes, how it is held may, for all who share the
//! chunk: what later revisions have replaced is packed, and unpacked again when another member's value heals it.
//!
//! Never reads or writes a file: whoever has written one says where a value is.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Revision;
use super::block::{Block, Line, is_packable};
use super::log::LogEntry;
use super::record::Record;
use super::span::Span;
use super::unkeyed::Unkeyed;
use super::value::{Healed, ValueFile};
use crate::mutants::mutant;

/// Entries in a chunk.
pub(super) const CHUNK: usize = 128;

/// A full chunk.
#[derive(Debug)]
pub(super) struct Sealed {
    held: Mutex<Arc<Held>>,
}

/// An entry of a chunk that is loaded.
#[derive(Debug)]
pub(super) enum Loaded<'a> {
    Entry(LogEntry),
    Line(Line<'a>),
}

/// How its entries are held.
#[derive(Debug)]
pub(super) struct Held {
    /// A bit for each entry that is packed.
    packed: u128,
    block: Option<Block>,
    /// The others, in order.
    entries: Box<[LogEntry]>,
}

impl Sealed {
    /// Of at least one entry.
    pub(super) fn of(entries: Vec<LogEntry>) -> Self {
        let held = Held {
            packed: 0,
            block: None,
            entries: entries.into(),
        };
        Sealed {
            held: Mutex::new(Arc::new(held)),
        }
    }

    /// The same, some of which have never been held in another way than packed.
    pub(super) fn loaded(entries: Vec<Loaded<'_>>) -> Self {
        let (mut packed, mut lines, mut others) = (0, Vec::new(), Vec::new());
        for (at, entry) in entries.into_iter().enumerate() {
            match entry {
                Loaded::Line(line) => {
                    packed |= 1 << at;
                    lines.push(line);
                }
                Loaded::Entry(entry) => others.push(entry),
            }
        }
        let held = Held {
            packed,
            block: (packed != 0).then(|| Block::of(&lines)),
            entries: others.into(),
        };
        Sealed {
            held: Mutex::new(Arc::new(held)),
        }
    }

    pub(super) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.lock())
    }

    /// Packs what can be, if that is at least so much more than before.
    pub(super) fn pack(&self, least: usize) {
        let held = self.held();
        held.entries.iter().for_each(|entry| entry.record.load());
        let packable = held
            .entries
            .iter()
            .filter(|entry| is_packable(&entry.record));
        if packable.count() < least {
            return;
        }
        // What was healed or moved meanwhile is packed the next time.
        self.exchange(&held, held.packed_further());
    }

    /// The values of these entries are in a file from here on, each at an offset and with this sum.
    pub(super) fn settle(&self, entries: &[(usize, u64, u32)], file: &Arc<ValueFile>) {
        self.change(|held| {
            let all = held.all();
            for (at, offset, sum) in entries {
                all[*at].record.value.settle(file, *offset, *sum);
            }
            Some(Held::of(all, held.packed))
        });
    }

    /// The value of an entry is in memory again, if this is what was written where it was found damaged.
    pub(super) fn heal(&self, at: usize, damaged: (u64, u64), value: &Bytes) -> Healed {
        let mut healed = Healed::Elsewhere;
        self.change(|held| {
            let all = held.all();
            let now = all[at].record.value.heal(damaged, value.clone());
            // A record that is not packed has it since the first attempt.
            if healed != Healed::Taken {
                healed = now;
            }
            // Once a checkpoint has written it it can be packed again.
            let taken = now == Healed::Taken;
            // One that has its own record may be healed there while another thread packs what it had before: that one must fail.
            let here = held.packed >> at & 1 == 0 && all[at].record.value.place().is_none();
            (taken || here).then(|| Held::of(all, held.packed & !(1 << at)))
        });
        healed
    }

    /// Holds the same entries in another way, if there is one. That is put together without the lock, for which readers wait, and
    /// anew if another thread was faster.
    fn change(&self, mut change: impl FnMut(&Held) -> Option<Held>) {
        loop {
            let before = self.held();
            let Some(new) = change(&before) else { return };
            if self.exchange(&before, new) {
                return;
            }
        }
    }

    /// Holds them in this way, if it holds them as before.
    fn exchange(&self, before: &Arc<Held>, new: Held) -> bool {
        let new = Arc::new(new);
        let mut now = self.held.lock();
        let same = Arc::ptr_eq(&now, before);
        if same {
            // Nothing is freed under the lock: whoever calls has it as well.
            *now = new;
        }
        same
    }
}

impl Held {
    /// All entries of a chunk, these of them packed.
    fn of(all: Vec<LogEntry>, packed: u128) -> Self {
        let (mut inside, mut entries) = (Vec::new(), Vec::new());
        for (at, entry) in all.into_iter().enumerate() {
            match packed >> at & 1 {
                0 => entries.push(entry),
                _ => inside.push(entry),
            }
        }
        let lines: Vec<Line<'_>> = inside.iter().map(Line::of).collect();
        Held {
            packed,
            block: (packed != 0).then(|| Block::of(&lines)),
            entries: entries.into(),
        }
    }

    /// The same entries, with whatever can be packed. What is packed is put together anew without records of its own.
    fn packed_further(&self) -> Held {
        let keys = self.block.as_ref().map(Block::keys).unwrap_or_default();
        let (mut packed, mut entries) = (0, Vec::with_capacity(self.entries.len()));
        let mut inside = Vec::with_capacity(CHUNK);
        for at in 0..CHUNK {
            match (self.row(at), &self.block) {
                (Ok(row), Some(block)) => inside.push(block.line(row, &keys)),
                (Ok(other) | Err(other), _) => {
                    let entry = &self.entries[other];
                    if !is_packable(&entry.record) {
                        entries.push(entry.clone());
                        continue;
                    }
                    inside.push(Line::of(entry));
                }
            }
            packed |= 1 << at;
        }
        Held {
            packed,
            block: (packed != 0).then(|| Block::of(&inside)),
            entries: entries.into(),
        }
    }

    /// How many of the entries before this one are packed, if it is as well.
    fn row(&self, at: usize) -> Result<usize, usize> {
        let before = (self.packed & ((1 << at) - 1)).count_ones() as usize;
        match self.packed >> at & 1 {
            0 => Err(at - before),
            _ => Ok(before - usize::from(mutant!(PackedRowOff) && before > 0)),
        }
    }

    pub(super) fn entry(&self, at: usize) -> LogEntry {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.entry(row),
            // There is a block if anything is packed.
            (Ok(at) | Err(at), _) => self.entries[at].clone(),
        }
    }

    /// An entry if its key is in a span, else its revision.
    pub(super) fn within(
        &self,
        at: usize,
        span: Span<'_>,
        room: &mut Vec<u8>,
    ) -> Result<LogEntry, Revision> {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.within(row, span, room),
            (Ok(at) | Err(at), _) => self.entries[at].within(span),
        }
    }

    /// The record of this key at a place and its number, if there is one. `first` is the place of the first entry.
    pub(super) fn find(
        &self,
        key: &[u8],
        place: (Revision, u32),
        first: (Revision, u32),
    ) -> Option<(usize, Record)> {
        let guess = guess(place, first);
        if guess < CHUNK
            && let Some(record) = self.record_at(guess, place, key)
        {
            return Some((guess, record));
        }
        let at = self.bisect(place);
        let record = (at < CHUNK).then(|| self.record_at(at, place, key))?;
        record.map(|record| (at, record))
    }

    /// The revision at a place, if there is one. `first` is the place of the first entry.
    pub(super) fn revision(
        &self,
        place: (Revision, u32),
        first: (Revision, u32),
    ) -> Option<Unkeyed> {
        let guess = guess(place, first);
        let guessed = (guess < CHUNK).then(|| self.revision_at(guess, place));
        guessed.flatten().or_else(|| {
            let at = self.bisect(place);
            (at < CHUNK).then(|| self.revision_at(at, place)).flatten()
        })
    }

    fn revision_at(&self, at: usize, place: (Revision, u32)) -> Option<Unkeyed> {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.revision_at(row, place),
            (Ok(at) | Err(at), _) => {
                let record = &self.entries[at].record;
                (record.place() == place).then(|| Unkeyed::of(record))
            }
        }
    }

    /// The record of an entry, which is of this key, if it is at this place.
    fn record_at(&self, at: usize, place: (Revision, u32), key: &[u8]) -> Option<Record> {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.record_at(row, place, key),
            (Ok(at) | Err(at), _) => {
                let record = &self.entries[at].record;
                (record.place() == place).then(|| record.clone())
            }
        }
    }

    /// What is packed, if anything is.
    pub(super) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// The entries that are not packed, and their numbers.
    pub(super) fn unpacked(&self) -> impl Iterator<Item = (usize, &LogEntry)> {
        let numbers = (0..CHUNK).filter(|at| self.packed >> at & 1 == 0);
        numbers.zip(&self.entries)
    }

    pub(super) fn place(&self, at: usize) -> (Revision, u32) {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.place(row),
            (Ok(at) | Err(at), _) => self.entries[at].record.place(),
        }
    }

    /// How many are packed.
    #[cfg(test)]
    pub(super) fn packed(&self) -> u32 {
        self.packed.count_ones()
    }

    /// Every entry, in order.
    pub(super) fn all(&self) -> Vec<LogEntry> {
        (0..CHUNK).map(|at| self.entry(at)).collect()
    }

    /// The number of the first entry at this place or above. `first` is the place of the first entry.
    pub(super) fn lower_bound(&self, place: (Revision, u32), first: (Revision, u32)) -> usize {
        let guess = guess(place, first);
        if guess < CHUNK && self.place(guess) == place {
            return guess;
        }
        self.bisect(place)
    }

    fn bisect(&self, place: (Revision, u32)) -> usize {
        let (mut low, mut high) = (0, CHUNK);
        while low < high {
            let middle = (low + high) / 2;
            match self.place(middle) < place {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// Most revisions are one entry, and then this is the number of that at a place.
fn guess(place: (Revision, u32), first: (Revision, u32)) -> usize {
    usize::try_from(place.0.saturating_sub(first.0)).unwrap_or(CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Details;
    use crate::store::value::{Place, ReadFailure, Value, ValueBytes, sum};

    /// A chunk was put together under its lock, which its readers wait for.
    #[test]
    fn entries_are_read_and_packed_while_they_are_held_in_another_way() {
        let entry = |main| {
            let record = Record::tombstone(b"k", (main, 0));
            record.supersede();
            LogEntry { record, frees: 0 }
        };
        let sealed = Sealed::of((1..=CHUNK as i64).map(entry).collect());
        let mut attempts = 0;
        sealed.change(|held| {
            attempts += 1;
            assert_eq!(sealed.held().place(7), (8, 0));
            // As the thread that writes checkpoints, while another one heals.
            sealed.pack(1);
            Some(Held::of(held.all(), held.packed & !1))
        });
        assert_eq!(attempts, 2, "it began anew with what was packed");
        assert_eq!(sealed.held().packed(), CHUNK as u32 - 1);
    }

    #[derive(Debug)]
    struct Unread;

    impl ValueBytes for Unread {
        fn read(&self, _: u64, _: u32) -> Result<Bytes, ReadFailure> {
            unreachable!("nobody reads it")
        }

        fn read_many(
            &self,
            _: &[(u64, u32)],
            _: &mut dyn FnMut(usize, Bytes),
        ) -> Result<(), (u64, ReadFailure)> {
            unreachable!("nobody reads it")
        }

        fn read_ahead(&self, _: u64, _: u32) {}

        fn length(&self) -> u64 {
            1 << 20
        }
    }

    /// A record was healed while the thread that writes checkpoints packed the chunk: the row had the damaged place again, which the
    /// next checkpoint named, although the answer had been that the value was in memory.
    #[test]
    fn value_that_was_healed_in_its_record_is_not_packed_as_it_was() {
        let (file, value) = (ValueFile::new(7, Unread), Bytes::from(vec![9; 100]));
        let entry = |main| {
            let place = Place {
                file: Arc::clone(&file),
                offset: main as u64 * 100,
                length: 100,
                sum: sum(&value),
            };
            let details = Details {
                create: main,
                version: 1,
                lease: 0,
            };
            let record = Record::new(b"k", Value::placed(place), details, (main, 0));
            record.supersede();
            LogEntry { record, frees: 0 }
        };
        let sealed = Sealed::of((1..=CHUNK as i64).map(entry).collect());
        let before = sealed.held();
        let packed = Held::of(before.all(), u128::MAX);
        let own = &before.entries[4].record;
        assert_eq!(own.value.heal((7, 500), value.clone()), Healed::Taken);
        assert_eq!(sealed.heal(4, (7, 500), &value), Healed::Elsewhere);
        assert!(
            !sealed.exchange(&before, packed),
            "it has the damaged place"
        );
        sealed.pack(1);
        let held = sealed.held();
        assert_eq!(held.packed(), CHUNK as u32 - 1);
        assert_eq!(held.entry(4).record.value.load(), Ok(value));
    }
}
