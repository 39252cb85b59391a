//! Writes one file of values from front to end. Never writes where it has written before.

use std::sync::Arc;

use super::{Claim, ValueReader, checksum, foot, head, name};
use crate::disk::append::Appender;
use crate::disk::device::Disk;
use crate::disk::directory::VALUES;
use crate::disk::error::{Error, Result};
use crate::disk::frame;
use crate::mutants::mutant;

/// A file of values in the making. Dropping it unfinished removes it.
#[derive(Debug)]
pub struct ValueWriter {
    claim: Claim,
    out: Appender,
}

impl ValueWriter {
    pub(super) fn new(disk: Arc<dyn Disk>, claim: Claim) -> Result<Self> {
        disk.create_directory(VALUES)
            .map_err(|e| Error::io("create", disk.describe(VALUES), e))?;
        let mut out = Appender::create(disk, name(claim.number()))?;
        out.push(&head(claim.number()));
        Ok(Self { claim, out })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.claim.number()
    }

    /// From here on this many bytes of the volume stay free.
    #[must_use]
    pub fn leaving(mut self, spare: u64) -> Self {
        self.out.leave(spare);
        self
    }

    /// Adds a value and returns its offset, under which it is read.
    ///
    /// # Errors
    /// Any of this room's; the file must then be abandoned.
    pub fn put(&mut self, value: &[u8]) -> Result<u64> {
        let length = u32::try_from(value.len())
            .map_err(|_| Error::Misuse(format!("a value of {} bytes", value.len())))?;
        let offset = self.out.length();
        let sum = checksum(self.number(), offset, value);
        self.out.push(&sum.to_le_bytes());
        self.out.push(&length.to_le_bytes());
        self.out.push(value);
        self.out.step()?;
        Ok(offset)
    }

    /// Ends the file: sync, sync of the directory. From here on it may be referred to.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn finish(mut self) -> Result<ValueReader> {
        self.out.push(&foot(self.number(), self.out.length()));
        self.out.flush()?;
        if !mutant!(ValuesUnsynced) {
            self.out.sync()?;
        }
        frame::sync_directory(&**self.out.disk(), VALUES)?;
        self.out.keep();
        let file = Arc::clone(self.out.file());
        Ok(ValueReader::written(
            self.out.path(),
            self.claim,
            file,
            self.out.length(),
        ))
    }
}
