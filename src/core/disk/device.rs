//! The few file operations that this room needs. Everything above them runs unchanged on
//! [`crate::disk::FileDisk`] and on the crash-testing double. Never interprets a byte.
//!
//! Names are relative to the data directory and use `/`.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// Smallest unit that a disk writes as a whole, in bytes. Real disks write 512 or 4096; what
/// holds for the smaller unit holds for the larger.
pub const SECTOR: usize = 512;

/// A data directory's file operations. Implementations are shared between threads.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a directory and its parents; succeeds if it exists. The new name is durable.
    fn create_directory(&self, directory: &str) -> io::Result<()>;
    /// Creates a new, empty file for reading and writing; fails with `AlreadyExists`.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing; fails with `NotFound`.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames within the data directory, replacing `to`. Durable after [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names of the files and directories directly in `directory` ("" is the root), sorted.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;
    /// Makes names created, renamed and removed in `directory` durable.
    fn sync_directory(&self, directory: &str) -> io::Result<()>;
    /// Takes an exclusive lock, held until the value is dropped; `WouldBlock` if another
    /// process has it.
    fn lock(&self, name: &str) -> io::Result<Box<dyn DiskLock>>;
    /// Bytes free on the volume for this process.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Bytes of the volume, used or not.
    fn total_bytes(&self) -> io::Result<u64>;
    /// Creates a file that uses `bytes` of the volume; its content does not matter.
    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let file = self.create(name)?;
        let mut at = 0;
        while at < bytes {
            let n = (bytes - at).min(ZEROS.len() as u64);
            file.write_at(at, &ZEROS[..usize::try_from(n).unwrap_or(ZEROS.len())])?;
            at += n;
        }
        Ok(())
    }
    /// The name as an operator would type it, for messages.
    fn describe(&self, name: &str) -> String;
}

/// An open file with positioned reads and writes.
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, growing the file if needed. Not durable yet.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written durable (`fdatasync`). After an error nothing is known.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// These bytes are read soon: the disk may fetch them meanwhile. Does not wait, and changes nothing else.
    fn read_ahead(&self, _offset: u64, _length: u64) {}
    /// When it was last written, in Unix milliseconds, where the disk knows.
    fn modified_ms(&self) -> Option<i64> {
        None
    }
    /// Sets that time, as far as the disk can: nothing may depend on it.
    fn set_modified_ms(&self, _ms: i64) {}
}

/// An exclusive lock; dropping it releases it.
pub trait DiskLock: Debug + Send + Sync + 'static {}

/// Reads exactly `buffer.len()` bytes at `offset`, or fails with `UnexpectedEof`.
pub(crate) fn read_exact(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(offset + done as u64, &mut buffer[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}
