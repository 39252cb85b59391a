//! A member's machine as checkpoints and files of values, and back: what the server and the simulation do alike with
//! the rooms `node`, `store` and `disk`. Decides which values go to files, and which files are written again.
//!
//! Never starts a thread, never applies an entry, and never sends anything.

mod place;
mod receive;
mod restore;
mod save;
mod saving;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{self, CheckpointReader, Checkpoints, Class, Position, ValueReader};
use crate::node::RestoreError;
use crate::store::{self, DamagedValue, ReadFailure, ValueBytes, ValueFile};

pub use place::PlacedValues;
pub use receive::ReceivedCheckpoint;
pub use restore::restore;
pub use save::{Saver, ValuesTo};
pub use send::WholeCheckpoint;

/// Why a checkpoint cannot be written, read or sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// A value in a file.
    #[error("a value cannot be read: {0}")]
    Value(#[from] DamagedValue),
    /// The checkpoint cannot be restored.
    #[error("the checkpoint at {position}: {source}{remedy}")]
    Restore {
        /// The last entry in it.
        position: Position,
        /// Why.
        source: RestoreError,
        /// What to do about it; begins with a separator, or is empty.
        remedy: &'static str,
    },
}

impl Error {
    /// The class of this error: by its exit code an operator decides over the disk.
    pub fn class(&self) -> Class {
        match self {
            Self::Disk(error) => error.class(),
            Self::Restore { source, .. } if source.is_newer() => Class::TooNew,
            Self::Value(value) if value.io => Class::Io,
            Self::Value(_) | Self::Restore { .. } => Class::Corrupt,
        }
    }

    fn of_restore(position: Position, source: RestoreError) -> Self {
        let remedy = match source.is_newer() {
            true => "; run the version that wrote it",
            false => "",
        };
        Self::Restore {
            position,
            source,
            remedy,
        }
    }

    fn of_store(position: Position, error: store::Error) -> Self {
        match error {
            store::Error::Value(damaged) => Self::Value(damaged),
            error => Self::of_restore(position, error.into()),
        }
    }
}

/// The files of values that a checkpoint names, open.
fn files(
    checkpoints: &Checkpoints,
    reader: &CheckpointReader,
) -> disk::Result<Vec<Arc<ValueFile>>> {
    let values = checkpoints.values();
    let open = |number: &u64| values.open(*number).map(file);
    reader.files().iter().map(open).collect()
}

/// An error with the system's own words.
fn in_full(error: &disk::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn file(reader: ValueReader) -> Arc<ValueFile> {
    ValueFile::new(reader.number(), Readable(reader))
}

/// A file of the disk, as the store reads it.
#[derive(Debug)]
struct Readable(ValueReader);

impl ValueBytes for Readable {
    fn read(&self, offset: u64, length: u32) -> Result<Bytes, ReadFailure> {
        self.0.read(offset, length).map_err(failure)
    }

    fn read_many(
        &self,
        places: &[(u64, u32)],
        each: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), (u64, ReadFailure)> {
        let read = self.0.read_many(places, each);
        read.map_err(|(offset, error)| (offset, failure(error)))
    }

    fn read_ahead(&self, offset: u64, length: u32) {
        self.0.read_ahead(offset, length);
    }

    fn length(&self) -> u64 {
        self.0.length()
    }
}

fn failure(error: disk::Error) -> ReadFailure {
    match error.class() {
        Class::Corrupt => ReadFailure::Damaged(error.to_string()),
        _ => ReadFailure::Io(in_full(&error)),
    }
}
