//! Files of values: what checkpoints have moved out of memory, each value with a checksum that covers its file, its
//! place and its length. A file is written once, by one checkpoint, and named by those that need it.
//!
//! Never decides which values are moved, and never removes a file that a checkpoint names or that this process has open.

mod known;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use known::{Claim, Known};
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

/// Behind the last value: length of all before it, checksum of that and the number. A file without it was not finished.
pub(crate) const FOOT: usize = 8 + 4;

/// Where a value is: the number of its file, and its offset there in bytes.
pub type ValuePlace = (u64, u64);

/// The files of values of a data directory. Clones share what is known of them.
#[derive(Clone, Debug)]
pub struct ValueFiles {
    disk: Arc<dyn Disk>,
    known: Arc<Mutex<Known>>,
    /// A place was forgotten.
    healed: Arc<Condvar>,
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

fn foot(number: u64, length: u64) -> [u8; FOOT] {
    let mut foot = [0; FOOT];
    foot[..8].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &foot[..8]);
    foot[8..].copy_from_slice(&sum.to_le_bytes());
    foot
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
        Self {
            disk,
            known: Arc::default(),
            healed: Arc::default(),
        }
    }

    /// Whether there are any, as far as this process has looked or written. Reads nothing.
    #[must_use]
    pub fn are_there(&self) -> bool {
        known::lock(&self.known).any == Some(true)
    }

    /// Where readers of this process could not read a value, and why: some places if there are many. They are known until
    /// somebody [forgets](Self::forget) them.
    #[must_use]
    pub fn damaged(&self) -> BTreeMap<ValuePlace, String> {
        known::lock(&self.known).damaged()
    }

    /// The value at this place is read from elsewhere now, or needed no more.
    pub fn forget(&self, place: ValuePlace) {
        known::lock(&self.known).forget(place);
        self.healed.notify_all();
    }

    /// Waits until the value at this place is not known as damaged any more; false if it still is after so long.
    #[must_use]
    pub fn wait_until_healed(&self, place: ValuePlace, most: Duration) -> bool {
        let mut known = known::lock(&self.known);
        known.needs(place, true);
        let damaged = |known: &mut Known| known.is_damaged(place);
        let waited = self.healed.wait_timeout_while(known, most, damaged);
        let (mut known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.needs(place, false);
        !known.is_damaged(place)
    }

    /// The damaged values for which somebody waits.
    #[must_use]
    pub fn needed(&self) -> BTreeSet<ValuePlace> {
        known::lock(&self.known).needed()
    }

    /// The files that this process has open.
    #[must_use]
    pub fn open_numbers(&self) -> BTreeSet<u64> {
        known::lock(&self.known).open_numbers()
    }

    /// The files that this process has not open: what it has open belongs to a value in memory, to a reader, or to a
    /// checkpoint in the making. Does not look if it is known that there is none.
    ///
    /// # Errors
    /// As [`ValueFiles::list`].
    pub(in crate::disk) fn closed(&self) -> Result<BTreeSet<u64>> {
        if known::lock(&self.known).any == Some(false) {
            return Ok(BTreeSet::new());
        }
        // Before it is known which are open: one that is begun from here on is not in the list.
        let all = self.list()?;
        let mut known = known::lock(&self.known);
        known.saw(!all.is_empty());
        Ok(all.into_iter().filter(|it| !known.is_open(*it)).collect())
    }

    /// Checkpoints name these numbers, whether the files are there or not.
    pub(in crate::disk) fn are_used(&self, named: &BTreeSet<u64>) {
        known::lock(&self.known).used(named.last().copied().unwrap_or(0));
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

    /// Begins the next file; nothing may refer to it before [`ValueWriter::finish`]. No number is used twice by one
    /// process, nor one that a checkpoint names.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn begin(&self) -> Result<ValueWriter> {
        let newest = self.list()?.last().copied().unwrap_or(0);
        let number = known::lock(&self.known).next(newest);
        ValueWriter::new(Arc::clone(&self.disk), Claim::of(&self.known, number))
    }

    /// Opens a file for reading. It stays readable if it is removed meanwhile.
    ///
    /// # Errors
    /// [`Error::Corrupt`] also if it is missing: whoever asks has a checkpoint that names it.
    pub fn open(&self, number: u64) -> Result<ValueReader> {
        ValueReader::open(&self.disk, Claim::of(&self.known, number))
    }

    /// Removes these files, of which the caller knows that nothing needs them.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Sync`], [`Error::Stray`].
    pub(in crate::disk) fn remove(&self, unused: &[u64]) -> Result<()> {
        if unused.is_empty() {
            return Ok(());
        }
        for number in unused {
            frame::remove_if_there(&*self.disk, &name(*number))?;
        }
        frame::sync_directory(&*self.disk, VALUES)?;
        let left = !self.list()?.is_empty();
        known::lock(&self.known).saw(left);
        Ok(())
    }

    /// Bytes of these files.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn bytes_of(&self, numbers: &BTreeSet<u64>) -> Result<u64> {
        let lengths = numbers.iter().map(|number| {
            // One that is removed meanwhile uses no further space.
            frame::length_if_there(&*self.disk, &name(*number))
        });
        lengths.sum()
    }

    /// Bytes of the files that are not among these: of those that are being written, or that the next checkpoint removes.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Stray`].
    pub fn bytes_beside(&self, named: &BTreeSet<u64>) -> Result<u64> {
        let mut bytes = 0;
        for number in self.list()?.into_iter().filter(|it| !named.contains(it)) {
            // One that is removed meanwhile uses no further space.
            bytes += frame::length_if_there(&*self.disk, &name(number))?;
        }
        Ok(bytes)
    }
}
