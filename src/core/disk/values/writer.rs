//! Writes one file of values from front to end. Never writes where it has written before.

use std::sync::Arc;

use super::{VALUE_HEAD, ValueReader, checksum, head, name};
use crate::disk::device::{Disk, DiskFile};
use crate::disk::directory::VALUES;
use crate::disk::error::{Error, Result};
use crate::disk::frame;
use crate::mutants::mutant;

/// Written in pieces of this size.
const BUFFER: usize = 1 << 20;
/// Maximum bytes between syncs, so that no sync delays the log's for long.
const SYNC_EVERY: u64 = 8 << 20;

/// A file of values in the making. Dropping it unfinished removes it.
#[derive(Debug)]
pub struct ValueWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    number: u64,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    finished: bool,
}

impl ValueWriter {
    pub(super) fn new(disk: Arc<dyn Disk>, number: u64) -> Result<Self> {
        let name = name(number);
        let path = || disk.describe(&name);
        disk.create_directory(VALUES)
            .map_err(|e| Error::io("create", disk.describe(VALUES), e))?;
        let file = disk
            .create(&name)
            .map_err(|e| Error::io("create", path(), e))?;
        let mut buffer = Vec::with_capacity(BUFFER);
        buffer.extend_from_slice(&head(number));
        Ok(Self {
            disk,
            file,
            number,
            buffer,
            written: 0,
            synced: 0,
            finished: false,
        })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Adds a value and returns its offset, under which it is read.
    ///
    /// # Errors
    /// Any of this room's; the file must then be abandoned.
    pub fn put(&mut self, value: &[u8]) -> Result<u64> {
        let length = u32::try_from(value.len())
            .map_err(|_| Error::Misuse(format!("a value of {} bytes", value.len())))?;
        let offset = self.written + self.buffer.len() as u64;
        let sum = checksum(self.number, offset, value);
        self.buffer.extend_from_slice(&sum.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(value);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
            if self.written - self.synced >= SYNC_EVERY {
                self.sync()?;
            }
        }
        debug_assert!(offset >= VALUE_HEAD as u64);
        Ok(offset)
    }

    /// Ends the file: sync, sync of the directory. From here on it may be referred to.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn finish(mut self) -> Result<ValueReader> {
        self.flush()?;
        if !mutant!(ValuesUnsynced) {
            self.sync()?;
        }
        frame::sync_directory(&*self.disk, VALUES)?;
        self.finished = true;
        let path = self.disk.describe(&name(self.number));
        Ok(ValueReader::written(
            path,
            self.number,
            Arc::clone(&self.file),
            self.written,
        ))
    }

    fn flush(&mut self) -> Result<()> {
        let path = || self.disk.describe(&name(self.number));
        self.file
            .write_at(self.written, &self.buffer)
            .map_err(|e| Error::io("write", path(), e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let path = || self.disk.describe(&name(self.number));
        self.file.sync().map_err(|source| Error::Sync {
            file: path(),
            source,
        })?;
        self.synced = self.written;
        Ok(())
    }
}

impl Drop for ValueWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What stays behind is removed at the next start: no checkpoint names it.
            let _ = self.disk.remove(&name(self.number));
        }
    }
}
