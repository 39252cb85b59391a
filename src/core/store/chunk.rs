//! A full chunk of the log of revisions. What an entry of it is never changes, how it is held may, for all who share the
//! chunk: what later revisions have replaced is packed, and unpacked again when another member's value heals it.
//!
//! Never reads or writes a file: whoever has written one says where a value is.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Revision;
use super::block::{Block, is_packable};
use super::log::LogEntry;
use super::record::Record;
use super::value::{Healed, ValueFile};
use crate::mutants::mutant;

/// Entries in a chunk.
pub(super) const CHUNK: usize = 128;

/// A full chunk.
#[derive(Debug)]
pub(super) struct Sealed {
    held: Mutex<Arc<Held>>,
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

    pub(super) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.lock())
    }

    /// Packs what can be, if that is at least so much more than before.
    pub(super) fn pack(&self, least: usize) {
        let held = self.held();
        let packable = held
            .entries
            .iter()
            .filter(|entry| is_packable(&entry.record));
        if packable.count() < least {
            return;
        }
        let entries = held.all();
        let numbers = entries.iter().enumerate();
        let packed =
            numbers.filter(|(at, entry)| held.packed >> at & 1 != 0 || is_packable(&entry.record));
        let packed = packed.fold(0, |packed, (at, _)| packed | 1 << at);
        let new = Arc::new(Held::of(entries, packed));
        let mut now = self.held.lock();
        // What was healed or moved meanwhile is packed the next time.
        if Arc::ptr_eq(&now, &held) {
            *now = new;
        }
    }

    /// The values of these entries are in a file from here on, each at an offset and with this sum.
    pub(super) fn settle(&self, entries: &[(usize, u64, u32)], file: &Arc<ValueFile>) {
        self.change(|held| {
            let all = held.all();
            for (at, offset, sum) in entries {
                all[*at].record.value.settle(file, *offset, *sum);
            }
            ((), Some(Held::of(all, held.packed)))
        });
    }

    /// The value of an entry is in memory again, if this is what was written where it was found damaged.
    pub(super) fn heal(&self, at: usize, damaged: (u64, u64), value: &Bytes) -> Healed {
        self.change(|held| {
            let all = held.all();
            let healed = all[at].record.value.heal(damaged, value.clone());
            // Once a checkpoint has written it it is packed again.
            let is_taken = healed == Healed::Taken;
            let new = is_taken.then(|| Held::of(all, held.packed & !(1 << at)));
            (healed, new)
        })
    }

    /// Holds the same entries in another way, if there is one.
    fn change<R>(&self, change: impl FnOnce(&Held) -> (R, Option<Held>)) -> R {
        let mut now = self.held.lock();
        let (result, new) = change(&now);
        let before = new.map(|new| std::mem::replace(&mut *now, Arc::new(new)));
        // What is freed is freed without the lock.
        drop(now);
        drop(before);
        result
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

    /// The record of an entry, which is of this key: the one that is packed has most of it elsewhere in its block.
    pub(super) fn record(&self, at: usize, key: &[u8]) -> Record {
        match (self.row(at), &self.block) {
            (Ok(row), Some(block)) => block.record(row, Some(key)).0,
            (Ok(at) | Err(at), _) => self.entries[at].record.clone(),
        }
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

    fn all(&self) -> Vec<LogEntry> {
        (0..CHUNK).map(|at| self.entry(at)).collect()
    }

    /// The number of the first entry at this place or above.
    pub(super) fn lower_bound(&self, place: (Revision, u32)) -> usize {
        // Most revisions are one entry, and then this is where it is.
        let guess = place.0.saturating_sub(self.place(0).0);
        let guess = usize::try_from(guess).unwrap_or_default();
        if guess < CHUNK && self.place(guess) == place {
            return guess;
        }
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
