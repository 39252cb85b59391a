//! What one process knows of its files of values: which are open, which numbers were used, whether there are any. Never
//! touches the disk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all who open or write such files.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How often each file is open.
    open: BTreeMap<u64, usize>,
    /// The newest number that was used.
    newest: u64,
    /// Whether there are files; `None` before anybody looked.
    pub(super) any: Option<bool>,
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

    /// The directory was listed: there are files, or none. One that was begun meanwhile is open.
    pub(super) fn saw(&mut self, any: bool) {
        self.any = Some(any || !self.open.is_empty());
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
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        match known.open.get_mut(&self.number) {
            Some(times) if *times > 1 => *times -= 1,
            _ => drop(known.open.remove(&self.number)),
        }
    }
}
