//! What one process knows of its files of values: which are open, which numbers were used, whether there are any, and where
//! a value could not be read. Never touches the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ValuePlace;
use crate::mutants::mutant;

/// Most places that are known as damaged at a time. Whoever reads one that was forgotten for others finds it out again.
const MOST_DAMAGED: usize = 1024;

/// Shared by all who open or write such files.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How often each file is open.
    open: BTreeMap<u64, usize>,
    /// The newest number that was used.
    newest: u64,
    /// Whether there are files; `None` before anybody looked.
    pub(super) any: Option<bool>,
    /// Where a value could not be read, and why.
    damaged: BTreeMap<ValuePlace, String>,
    /// Of which somebody waits for it to be healed, and how many.
    needed: BTreeMap<ValuePlace, usize>,
}

/// Nothing that is done under the lock leaves it half done.
pub(super) fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// A number that was never used, above all on the disk, whose newest is `listed`.
    pub(super) fn next(&mut self, listed: u64) -> u64 {
        self.newest = self.newest.max(listed) + 1;
        self.newest
    }

    /// This number is taken, whether its file is there or not.
    pub(super) fn used(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    pub(super) fn open_numbers(&self) -> BTreeSet<u64> {
        self.open.keys().copied().collect()
    }

    /// The directory was listed: there are files, or none. One that was begun meanwhile is open.
    pub(super) fn saw(&mut self, any: bool) {
        self.any = Some(any || !self.open.is_empty());
    }

    /// The value at this place could not be read.
    fn note_damage(&mut self, place: ValuePlace, what: &str) {
        self.damaged.entry(place).or_insert_with(|| what.to_owned());
        if self.damaged.len() > MOST_DAMAGED {
            // Never one that somebody just needs.
            let free = |known: &&ValuePlace| **known != place && !self.needed.contains_key(known);
            let other = self.damaged.keys().find(free);
            let other = other.copied();
            other.and_then(|other| self.damaged.remove(&other));
        }
    }

    pub(super) fn is_damaged(&self, place: ValuePlace) -> bool {
        self.damaged.contains_key(&place)
    }

    pub(super) fn damaged(&self) -> BTreeMap<ValuePlace, String> {
        self.damaged.clone()
    }

    /// Somebody waits for the value at this place from now on, or does not any more.
    pub(super) fn needs(&mut self, place: ValuePlace, waits: bool) {
        let waiting = self.needed.entry(place).or_default();
        match waits {
            true => *waiting += 1,
            false => *waiting -= 1,
        }
        self.needed.retain(|_, waiting| *waiting > 0);
    }

    /// Damaged values for which somebody waits.
    pub(super) fn needed(&self) -> BTreeSet<ValuePlace> {
        let needed = self.needed.keys().copied();
        needed.filter(|place| self.is_damaged(*place)).collect()
    }

    /// Nobody reads the value at this place any more.
    pub(super) fn forget(&mut self, place: ValuePlace) {
        self.damaged.remove(&place);
    }

    /// The last who had this file open has closed it.
    fn closed(&mut self, number: u64) {
        self.open.remove(&number);
        // Whoever sends a checkpoint may be the only one who reads a place that it names.
        if mutant!(DamageClosed) {
            self.damaged.retain(|(file, _), _| *file != number);
        }
    }
}

/// A file that is open: it is not removed as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    number: u64,
    known: Arc<Mutex<Known>>,
}

impl Claim {
    pub(super) fn of(known: &Arc<Mutex<Known>>, number: u64) -> Self {
        let mut held = lock(known);
        *held.open.entry(number).or_default() += 1;
        held.used(number);
        held.any = Some(true);
        drop(held);
        Self {
            number,
            known: Arc::clone(known),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The value at this offset could not be read.
    pub(super) fn note_damage(&self, offset: u64, what: &str) {
        lock(&self.known).note_damage((self.number, offset), what);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        match known.open.get_mut(&self.number) {
            Some(times) if *times > 1 => *times -= 1,
            _ => known.closed(self.number),
        }
    }
}
