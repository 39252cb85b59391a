//! `--unsafe-no-fsync`: a disk whose syncs do nothing. For tests and throwaway clusters; after a
//! crash of the machine its content is undefined.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, DiskLock, FileDisk};

/// A disk that never syncs.
#[derive(Debug)]
pub(super) struct NoSync(pub(super) FileDisk);

#[derive(Debug)]
struct NoSyncFile(Arc<dyn DiskFile>);

impl Disk for NoSync {
    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.0.create_directory(directory)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(NoSyncFile(self.0.create(name)?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(NoSyncFile(self.0.open(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn DiskLock>> {
        self.0.lock(name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }

    fn total_bytes(&self) -> io::Result<u64> {
        self.0.total_bytes()
    }

    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.0.allocate(name, bytes)
    }

    fn describe(&self, name: &str) -> String {
        self.0.describe(name)
    }
}

impl DiskFile for NoSyncFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
}
