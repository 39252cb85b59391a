//! What is written to a disk: batches of the log and checkpoints, encoded and handed to a disk that keeps them in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quorate_core::disk::{Checkpoints, Disk, DiskFile, DiskLock, Log, LogOptions};
use quorate_core::node::{LogPayload, RequestId};
use quorate_core::raft::{Entry, EntryKind, HardState};

use super::put::{KEYS, Prepared, command, filled, position};

pub(super) fn entries(count: u64) {
    append(count, 1);
}

pub(super) fn batches(count: u64) {
    append(count, 32);
}

fn append(batches: u64, size: u64) {
    let disk = Arc::new(Memory::default());
    let state = HardState {
        term: 1,
        ..HardState::default()
    };
    let options = LogOptions {
        segment_bytes: 32 << 20,
    };
    let log = Log::create(disk, [7; 16], state, position(1), options);
    let mut log = log.expect("memory does not fail");
    let data = Prepared::new(1000, data);
    let mut index = 1;
    for _ in 0..batches {
        let entry = |index| Entry {
            term: 1,
            index,
            kind: EntryKind::Normal.into(),
            data: data.of(index).clone(),
        };
        let entries: Vec<Entry> = (index + 1..=index + size).map(entry).collect();
        index += size;
        log.append(None, &entries).expect("memory does not fail");
    }
}

fn data(counter: u64) -> Bytes {
    let request = RequestId {
        member: 1,
        boot_nonce: 1,
        counter,
    };
    LogPayload::command(Some(request), command(counter))
}

/// Whole checkpoints of a filled store: as many as `keys` take.
pub(super) fn checkpoints(keys: u64) {
    let view = filled().0.publish();
    for number in 0..keys / KEYS {
        let checkpoints = Checkpoints::new(Arc::new(Memory::default()));
        let written = checkpoints.write(position(number + 1), b"", view.export());
        written.expect("memory does not fail");
    }
}

/// Files in memory, never durable, without an error.
#[derive(Debug, Default)]
struct Memory {
    files: Mutex<BTreeMap<String, Arc<File>>>,
}

#[derive(Debug, Default)]
struct File(Mutex<Vec<u8>>);

#[derive(Debug)]
struct Lock;
impl DiskLock for Lock {}

/// One thread, and so no other that could have failed meanwhile.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        let found = held(&self.files).get(name).map(Arc::clone);
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for Memory {
    fn create_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::new(File::default());
        held(&self.files).insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.file(from)?;
        let mut files = held(&self.files);
        files.remove(from);
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = held(&self.files).remove(name);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let files = held(&self.files);
        let inside = files
            .keys()
            .filter_map(|name| name.strip_prefix(directory)?.strip_prefix('/'));
        Ok(inside.map(str::to_owned).collect())
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn DiskLock>> {
        Ok(Box::new(Lock))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn total_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl DiskFile for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = held(&self.0);
        let from = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let size = buffer.len().min(bytes.len() - from);
        buffer[..size].copy_from_slice(&bytes[from..from + size]);
        Ok(size)
    }

    fn write_at(&self, offset: u64, written: &[u8]) -> io::Result<()> {
        let mut bytes = held(&self.0);
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if bytes.len() < from + written.len() {
            bytes.resize(from + written.len(), 0);
        }
        bytes[from..from + written.len()].copy_from_slice(written);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(held(&self.0).len() as u64)
    }
}
