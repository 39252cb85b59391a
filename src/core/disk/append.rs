//! A file that is written once, from front to end, through a buffer, and synced as it grows. Never writes where it has
//! written before, and leaves nothing behind unless it is kept.

use std::sync::Arc;

use super::device::{Disk, DiskFile};
use super::error::{Error, Result};

/// Written in pieces of this size.
const BUFFER: usize = 1 << 20;
/// Maximum bytes between syncs, so that no sync delays the log's for long.
const SYNC_EVERY: u64 = 8 << 20;

/// A file in the making. Dropping it removes it, unless it is kept.
#[derive(Debug)]
pub(super) struct Appender {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    name: String,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    spare: u64,
    kept: bool,
}

impl Appender {
    pub(super) fn create(disk: Arc<dyn Disk>, name: String) -> Result<Self> {
        let file = disk
            .create(&name)
            .map_err(|e| Error::io("create", disk.describe(&name), e))?;
        Ok(Self {
            disk,
            file,
            name,
            buffer: Vec::with_capacity(BUFFER),
            written: 0,
            synced: 0,
            spare: 0,
            kept: false,
        })
    }

    /// From here on so many bytes of the volume stay free.
    pub(super) fn leave(&mut self, spare: u64) {
        self.spare = spare;
    }

    /// Bytes so far: where the next one comes to lie.
    pub(super) fn length(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds bytes, which may stay in memory until [`Appender::step`].
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes what was added, and syncs, once there is enough of it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Sync`], [`Error::NoRoom`].
    pub(super) fn step(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER {
            return Ok(());
        }
        self.flush()?;
        if self.written - self.synced >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes everything that was added.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoRoom`].
    pub(super) fn flush(&mut self) -> Result<()> {
        self.check_room()?;
        self.file
            .write_at(self.written, &self.buffer)
            .map_err(|e| Error::io("write", self.path(), e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// [`Error::Sync`].
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|source| Error::Sync {
            file: self.path(),
            source,
        })?;
        self.synced = self.written;
        Ok(())
    }

    /// It stays when this is dropped.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> String {
        self.disk.describe(&self.name)
    }

    fn check_room(&self) -> Result<()> {
        if self.spare == 0 {
            return Ok(());
        }
        let free = self.disk.free_bytes();
        let free = free.map_err(|e| Error::io("measure the volume of", self.path(), e))?;
        if free < self.spare.saturating_add(self.buffer.len() as u64) {
            return Err(Error::NoRoom {
                file: self.path(),
                written: self.written,
                spare: self.spare,
            });
        }
        Ok(())
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if !self.kept {
            // What stays behind is removed at the next start: nothing names it.
            let _ = self.disk.remove(&self.name);
        }
    }
}
