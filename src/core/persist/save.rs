//! A frozen machine to a checkpoint, with the values that are in memory moved to a file of their own. Never leaves a
//! checkpoint that names a file which is not durable, and never removes a file that a checkpoint names.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;

use super::Error;
use super::saving::{Last, Saving, Unmerged};
use crate::disk::{CheckpointInfo, Checkpoints, Class, Position};
use crate::node::{Checkpoint, StateMachine};
use crate::store::{Export, Written};

/// More files than this are joined, the smallest first.
const MOST_FILES: usize = 16;

/// Where checkpoints have values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesTo {
    /// In themselves: a start reads them into memory, and every release can.
    Memory,
    /// Those of at least so many bytes in files of their own.
    Files(usize),
    /// The same, once that is allowed. Where a start finds such files, it is.
    FilesOnceAllowed(usize),
}

/// Writes the checkpoints of one member.
#[derive(Debug)]
pub struct Saver {
    checkpoints: Checkpoints,
    /// Values of at least so many bytes go to files of their own; `None`: none does.
    to_files: Option<usize>,
    /// They may.
    allowed: AtomicBool,
    /// Files that the next checkpoint empties.
    worn: Mutex<BTreeSet<u64>>,
    /// The last checkpoint with its values in files, until the next one is begun.
    last: Mutex<Option<Last>>,
    /// The next one is written from the state alone.
    anew: AtomicBool,
    /// Why the last one could not be used.
    unmerged: Mutex<Option<String>>,
    /// How many were made of the one before.
    #[cfg(test)]
    merged: AtomicU64,
    /// How often it began to write one.
    begun: AtomicU64,
    /// The last of those that was written.
    written: AtomicU64,
}

impl Saver {
    /// For these checkpoints.
    #[must_use]
    pub fn new(checkpoints: Checkpoints, values: ValuesTo) -> Self {
        let (to_files, allowed) = match values {
            ValuesTo::Memory => (None, false),
            ValuesTo::Files(from) => (Some(from), true),
            ValuesTo::FilesOnceAllowed(from) => (Some(from), false),
        };
        Self {
            checkpoints,
            to_files,
            allowed: AtomicBool::new(allowed),
            worn: Mutex::default(),
            last: Mutex::default(),
            anew: AtomicBool::new(false),
            unmerged: Mutex::default(),
            #[cfg(test)]
            merged: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// The checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Values of at least so many bytes go to files; `None`: none does.
    #[must_use]
    pub fn to_files(&self) -> Option<usize> {
        let allowed = self.allowed.load(Ordering::Relaxed);
        self.to_files.filter(|_| allowed)
    }

    /// From the next checkpoint on values go to files, if they are to, or not yet.
    pub fn allow_files(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Relaxed);
    }

    /// The number of the checkpoint that it began to write last. Where values are is looked at behind that: one that is
    /// healed now is in every checkpoint of a larger number.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// The number of the last checkpoint that was written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Writes a frozen machine as a checkpoint, over one of the same index if there is one, and removes the checkpoints,
    /// and the files of values, that are no longer kept. Durable when it returns. From then on moved values are read from their file.
    ///
    /// # Errors
    /// Those of the disk; a value in a file that cannot be read.
    pub fn save(&self, checkpoint: Checkpoint, alive: impl Fn()) -> Result<CheckpointInfo, Error> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let position = Position {
            index: checkpoint.meta.index,
            term: checkpoint.meta.term,
        };
        let view = Arc::clone(checkpoint.chunks.view());
        let saving = Saving {
            checkpoints: &self.checkpoints,
            position,
            meta: &checkpoint.meta.encode_to_vec(),
            moment: view.moment(),
            view,
            worn: locked(&self.worn).clone(),
            alive,
        };
        // If this one fails its values may have moved, and the next one knows nothing of it.
        let last = locked(&self.last).take();
        let last = last.filter(|_| !self.anew.swap(false, Ordering::SeqCst));
        let from = self.to_files();
        let saved = self.save_as(&saving, (last, from), checkpoint.chunks);
        let (info, written) = saved.inspect_err(|error| self.rest(error))?;
        *locked(&self.worn) = written.worn(MOST_FILES);
        // Values that are in the checkpoint itself may be in files next time.
        *locked(&self.last) = from.map(|_| Last { position, written });
        self.written.store(number, Ordering::SeqCst);
        self.checkpoints.prune(position)?;
        self.checkpoints.drop_unused_values()?;
        Ok(info)
    }

    /// Of the one before if that is possible, else of the state alone.
    fn save_as(
        &self,
        saving: &Saving<'_, impl Fn()>,
        (last, from): (Option<Last>, Option<usize>),
        chunks: Export,
    ) -> Result<(CheckpointInfo, Written), Error> {
        let Some(from) = from else {
            return saving.whole(chunks);
        };
        let last = last.filter(|last| !self.has_left(&last.written));
        let merged = last.map_or(Ok(None), |last| saving.merged(from, &last));
        match merged {
            Ok(Some(saved)) => {
                #[cfg(test)]
                self.merged.fetch_add(1, Ordering::SeqCst);
                return Ok(saved);
            }
            Ok(None) => {}
            Err(Unmerged::Failed(error)) => return Err(error),
            Err(Unmerged::Before(why)) => *locked(&self.unmerged) = Some(why),
        }
        saving.alone(from, chunks)
    }

    /// Whether this process has files of values open that a checkpoint does not name: records may refer to them still.
    fn has_left(&self, last: &Written) -> bool {
        let mut open = self.checkpoints.values().open_numbers();
        for named in last.files.numbers() {
            open.remove(&named);
        }
        !open.is_empty()
    }

    /// The last checkpoint has a place of a value that the state has not: the next one, or the one behind it if one is being written, is
    /// written from the state alone.
    pub fn write_anew(&self) {
        self.anew.store(true, Ordering::SeqCst);
    }

    /// The files that the next checkpoint empties.
    #[cfg(test)]
    pub(super) fn worn(&self) -> BTreeSet<u64> {
        locked(&self.worn).clone()
    }

    #[cfg(test)]
    pub(super) fn merged(&self) -> u64 {
        self.merged.load(Ordering::SeqCst)
    }

    /// Why a checkpoint was written from the state alone although it should have been made of the one before, if one was since this
    /// was asked for: whoever has a log says so.
    #[must_use]
    pub fn take_unmerged(&self) -> Option<String> {
        locked(&self.unmerged).take()
    }

    /// A machine was restored from the checkpoint at this position: the next one of it can be made of that one.
    pub fn goes_on_from(&self, position: Position, machine: &StateMachine) {
        let imported = self
            .to_files()
            .and_then(|from| machine.view().imported(from));
        *locked(&self.last) = imported.map(|written| Last { position, written });
    }

    /// Removes the files of values that no checkpoint names: what an earlier process left unfinished. To be called at a
    /// start.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn drop_unused(&self) -> Result<(), Error> {
        self.checkpoints.drop_unused_values()?;
        if self.checkpoints.values().are_there() {
            self.allow_files(true);
        }
        Ok(())
    }

    /// On a full disk nothing is taken out of worn files by the next attempt.
    fn rest(&self, error: &Error) {
        if error.class() == Class::DiskFull {
            locked(&self.worn).clear();
        }
    }
}

/// Nothing that is done under one of the locks leaves it half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
