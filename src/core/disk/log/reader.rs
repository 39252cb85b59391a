//! Reads entries back from the segments, concurrently with the writer. Checks every checksum again.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::batch;
use super::index::{BatchRef, Index, OpenSegment};
use super::segment;
use crate::disk::device::{Disk, read_exact};
use crate::disk::error::{Error, REPLACE_MEMBER, Result};
use crate::raft::{Entry, LogShape, Position};

/// Reads entries of the log. Clones share the log's index and may live on other threads.
#[derive(Clone, Debug)]
pub struct LogReader {
    disk: Arc<dyn Disk>,
    index: Arc<RwLock<Index>>,
}

impl LogReader {
    pub(crate) fn new(disk: Arc<dyn Disk>, index: Index) -> Self {
        Self {
            disk,
            index: Arc::new(RwLock::new(index)),
        }
    }

    /// The entries `from..to`: at least one, then as many as fit in `max_bytes` of entry cost.
    ///
    /// # Errors
    /// [`Error::NotInLog`] if the log does not hold all of them (any more),
    /// [`Error::Corrupt`] if a checksum does not match what was written.
    pub fn read(&self, from: u64, to: u64, max_bytes: u64) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0u64;
        let mut next = from;
        while next < to {
            let (reference, segment) = self.locate(next, to)?;
            let batch = self.read_batch(&reference, &segment)?;
            let wanted = next..to.min(reference.last + 1);
            for entry in batch
                .into_iter()
                .filter(|entry| wanted.contains(&entry.index))
            {
                bytes += entry.cost();
                if bytes > max_bytes && !entries.is_empty() {
                    return self.confirmed(entries, from, to);
                }
                next = entry.index + 1;
                entries.push(entry);
            }
        }
        self.confirmed(entries, from, to)
    }

    /// The index of the first entry in the log.
    pub fn first_index(&self) -> u64 {
        self.index().shape.floor() + 1
    }

    /// The index of the last entry in the log, or of the one before it if the log is empty.
    pub fn last_index(&self) -> u64 {
        self.index().shape.last()
    }

    /// Where the log starts and ends, and the term of each index.
    pub fn shape(&self) -> LogShape {
        self.index().shape.clone()
    }

    /// The empty log that goes on after `floor`; this one stays what it is.
    pub(crate) fn after(&self, floor: Position) -> LogReader {
        let shape = LogShape::new(floor.index, floor.term);
        LogReader::new(Arc::clone(&self.disk), Index::new(shape))
    }

    /// The last entry in the log, or the one before it if the log is empty.
    pub fn last(&self) -> Position {
        let index = self.index();
        Position {
            index: index.shape.last(),
            term: index.shape.last_term(),
        }
    }

    /// When the log last grew, in Unix milliseconds, as its last file's time says; `None` where the disk has no times.
    pub fn grown_ms(&self) -> Option<i64> {
        let file = Arc::clone(&self.index().newest()?.file);
        file.modified_ms()
    }

    fn locate(&self, next: u64, to: u64) -> Result<(BatchRef, OpenSegment)> {
        let index = self.index();
        let reference = index.covering(next, next + 1).next().copied();
        reference
            .and_then(|r| Some((r, index.file(r.sequence)?.clone())))
            .ok_or_else(|| not_in_log(&index, next, to))
    }

    fn read_batch(&self, reference: &BatchRef, segment: &OpenSegment) -> Result<Vec<Entry>> {
        let path = || self.disk.describe(&segment::name(reference.sequence));
        let mut bytes = vec![0; reference.length];
        read_exact(&*segment.file, reference.offset, &mut bytes)
            .map_err(|error| Error::io("read", path(), error))?;
        match batch::decode(segment.seed, reference.number, &bytes) {
            Ok(batch) => Ok(batch.entries),
            Err((at, what)) => Err(Error::Corrupt {
                file: path(),
                offset: reference.offset + at as u64,
                what,
                remedy: REPLACE_MEMBER,
            }),
        }
    }

    /// The writer may have replaced a suffix meanwhile; old entries must not be handed out.
    fn confirmed(&self, entries: Vec<Entry>, from: u64, to: u64) -> Result<Vec<Entry>> {
        let index = self.index();
        if entries
            .iter()
            .all(|entry| index.shape.term(entry.index) == Some(entry.term))
        {
            Ok(entries)
        } else {
            Err(not_in_log(&index, from, to))
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        // A panic while the lock is held happens only in tests; the index is plain data.
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_in_log(index: &Index, from: u64, to: u64) -> Error {
    Error::NotInLog {
        from,
        to,
        first: index.shape.floor() + 1,
        last: index.shape.last(),
    }
}
