//! A frozen machine to a checkpoint, with the values that are in memory moved to a file of their own. Never leaves a
//! checkpoint that names a file which is not durable, and never removes a file that a checkpoint names.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prost::Message as _;

use super::{Error, file};
use crate::disk::{CheckpointInfo, Checkpoints, Class, Position, ValueWriter};
use crate::node::Checkpoint;
use crate::store::Export;

/// Bytes of values that one checkpoint takes out of worn files at most.
const MOST_TAKEN: u64 = 256 << 20;
/// More files than this are joined, the smallest first.
const MOST_FILES: usize = 16;
/// Bytes of values between two signs of life.
const ALIVE_EVERY: usize = 1 << 20;

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
        let meta = checkpoint.meta.encode_to_vec();
        let (chunks, files) = match self.to_files() {
            None => (checkpoint.chunks, BTreeSet::new()),
            Some(from) => {
                let files = self.move_values(&checkpoint.chunks, from, &alive);
                let files = files.inspect_err(|error| self.rest(error))?;
                match files.is_empty() {
                    true => (checkpoint.chunks, files),
                    false => (checkpoint.chunks.placed(), files),
                }
            }
        };
        let written = self.write(position, &meta, &files, chunks, alive);
        let written = written.inspect_err(|error| self.rest(error))?;
        self.written.store(number, Ordering::SeqCst);
        self.checkpoints.prune(position)?;
        self.checkpoints.drop_unused_values()?;
        Ok(written)
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

    /// Moves values to a new file, if there are any to move; returns the files that the state needs then.
    fn move_values(
        &self,
        chunks: &Export,
        from: usize,
        alive: &impl Fn(),
    ) -> Result<BTreeSet<u64>, Error> {
        let worn = self.worn().clone();
        let mut writer: Option<ValueWriter> = None;
        let mut bytes = 0;
        let moved = chunks
            .view()
            .move_values(from, (&worn, MOST_TAKEN), |value| {
                bytes += value.len();
                if bytes >= ALIVE_EVERY {
                    bytes = 0;
                    alive();
                }
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(self.checkpoints.values().begin()?),
                };
                Ok::<u64, Error>(writer.put(value)?)
            })?;
        let mut files: BTreeSet<u64> = moved.others().collect();
        *self.worn() = moved.worn(MOST_FILES);
        if let Some(writer) = writer {
            let file = file(writer.finish()?);
            files.insert(file.number());
            moved.settle(&file);
        }
        chunks.view().pack();
        Ok(files)
    }

    /// Nothing that is done under the lock leaves it half done.
    fn worn(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.worn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a full disk nothing is taken out of worn files by the next attempt.
    fn rest(&self, error: &Error) {
        if error.class() == Class::DiskFull {
            self.worn().clear();
        }
    }

    fn write(
        &self,
        position: Position,
        meta: &[u8],
        files: &BTreeSet<u64>,
        mut chunks: Export,
        alive: impl Fn(),
    ) -> Result<CheckpointInfo, Error> {
        let files: Vec<u64> = files.iter().copied().collect();
        let mut writer = self
            .checkpoints
            .begin_with(position, (meta, &files), false)?;
        for chunk in &mut chunks {
            alive();
            writer.chunk(&chunk)?;
        }
        match chunks.failure() {
            Some(damaged) => Err(damaged.clone().into()),
            None => Ok(writer.finish()?),
        }
    }
}
