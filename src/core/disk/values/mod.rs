//! Files of values: what checkpoints have moved out of memory, each value with a checksum that covers its file, its
//! place and its length. A file is written once, by one checkpoint, and named by those that need it.
//!
//! Never decides which values are moved, and never removes a file that a checkpoint names.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

pub use reader::ValueReader;
pub use writer::ValueWriter;

use super::device::Disk;
use super::directory::VALUES;
use super::error::{Error, MOVE_AWAY, Result};
use super::frame;

/// Newest format of these files that this release reads and writes.
pub(crate) const FORMAT: u32 = 1;
pub(crate) const MAGIC: [u8; 8] = *b"QUORVALS";
/// Magic, format, number, checksum of both.
pub(crate) const HEAD: usize = 8 + 4 + 8 + 4;
/// Checksum and length, before each value.
pub(crate) const VALUE_HEAD: usize = 4 + 4;

/// The files of values of a data directory.
#[derive(Clone, Debug)]
pub struct ValueFiles {
    disk: Arc<dyn Disk>,
}

fn name(number: u64) -> String {
    format!("{VALUES}/{number:016x}.values")
}

fn parse_name(file_name: &str) -> Option<u64> {
    let number = file_name.strip_suffix(".values")?;
    (number.len() == 16).then(|| u64::from_str_radix(number, 16).ok())?
}

fn head(number: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..20].copy_from_slice(&number.to_le_bytes());
    let sum = crc32c::crc32c(&head[8..20]);
    head[20..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The checksum of a value: one that is read from another place, or from another file, does not match.
fn checksum(number: u64, offset: u64, value: &[u8]) -> u32 {
    let mut seed = [0; 20];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed[8..16].copy_from_slice(&offset.to_le_bytes());
    seed[16..].copy_from_slice(&(value.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&seed), value)
}

impl ValueFiles {
    /// Those of an open data directory.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// The numbers of all files, in order.
    ///
    /// # Errors
    /// [`Error::Stray`] for a file that is none of them, [`Error::Io`].
    pub fn list(&self) -> Result<Vec<u64>> {
        let names = match self.disk.list(VALUES) {
            // There is no directory before the first of them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(|e| Error::io("list", self.disk.describe(VALUES), e))?,
        };
        let number = |name: &String| {
            parse_name(name).ok_or_else(|| Error::Stray {
                file: self.disk.describe(&format!("{VALUES}/{name}")),
                what: "this file is not one of values",
                remedy: MOVE_AWAY,
            })
        };
        names.iter().map(number).collect()
    }

    /// Begins the next file; nothing may refer to it before [`ValueWriter::finish`]. `after`: no number up to this one
    /// is used again.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn begin(&self, after: u64) -> Result<ValueWriter> {
        let newest = self.list()?.last().copied().unwrap_or(0);
        ValueWriter::new(Arc::clone(&self.disk), newest.max(after) + 1)
    }

    /// Opens a file for reading. It stays readable if it is removed meanwhile.
    ///
    /// # Errors
    /// [`Error::Corrupt`] also if it is missing: whoever asks has a checkpoint that names it.
    pub fn open(&self, number: u64) -> Result<ValueReader> {
        ValueReader::open(&self.disk, number)
    }

    /// Removes the files that are not among these; returns whether any is left.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Sync`], [`Error::Stray`].
    pub fn keep_only(&self, kept: &BTreeSet<u64>) -> Result<bool> {
        let all = self.list()?;
        let (left, gone): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|it| kept.contains(it));
        for number in &gone {
            frame::remove_if_there(&*self.disk, &name(*number))?;
        }
        if !gone.is_empty() {
            frame::sync_directory(&*self.disk, VALUES)?;
        }
        Ok(!left.is_empty())
    }
}
