//! The log of revisions since the last compaction, in the order they were written. It serves
//! watchers, hashes and checkpoints. Cloning is cheap: full chunks are shared.
//!
//! Uses only the position and size of a record.

use std::sync::Arc;

use super::Revision;
use super::record::Record;

/// Entries in a chunk.
const CHUNK: usize = 128;
/// Chunks in a group.
const GROUP: usize = 128;

/// A record, and how many bytes of the store compaction frees once everything up to and
/// including this entry lies below the compacted revision.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) record: Record,
    pub(super) frees: u64,
}

type Chunk = Arc<Vec<LogEntry>>;

/// Entries in order of their places: groups of full chunks, then full chunks, then the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct RevisionLog {
    groups: Arc<Vec<Arc<Vec<Chunk>>>>,
    chunks: Arc<Vec<Chunk>>,
    tail: Arc<Vec<LogEntry>>,
    /// Entries at the front of the first group or chunk that have been dropped.
    skip: usize,
}

impl RevisionLog {
    /// Adds an entry above all others.
    pub(super) fn push(&mut self, entry: LogEntry) {
        let tail = Arc::make_mut(&mut self.tail);
        tail.push(entry);
        if tail.len() < CHUNK {
            return;
        }
        let full = std::mem::take(&mut self.tail);
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.push(full);
        if chunks.len() == GROUP {
            let full = std::mem::take(&mut self.chunks);
            Arc::make_mut(&mut self.groups).push(full);
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.stored() - self.skip
    }

    fn stored(&self) -> usize {
        (self.groups.len() * GROUP + self.chunks.len()) * CHUNK + self.tail.len()
    }

    /// The entry at a position from the front.
    pub(super) fn get(&self, at: usize) -> Option<&LogEntry> {
        let at = at + self.skip;
        let (chunk, entry) = (at / CHUNK, at % CHUNK);
        let (group, in_group) = (chunk / GROUP, chunk % GROUP);
        if group < self.groups.len() {
            return self.groups[group][in_group].get(entry);
        }
        let chunk = chunk - self.groups.len() * GROUP;
        match self.chunks.get(chunk) {
            Some(chunk) => chunk.get(entry),
            None if chunk == self.chunks.len() => self.tail.get(entry),
            None => None,
        }
    }

    pub(super) fn first(&self) -> Option<&LogEntry> {
        self.get(0)
    }

    /// Position of the first entry whose revision is at least `main`.
    pub(super) fn position(&self, main: Revision) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle) {
                Some(entry) if entry.record.main < main => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The entries from a position on.
    pub(super) fn iter_from(&self, at: usize) -> impl Iterator<Item = &LogEntry> {
        (at..self.len()).map_while(|at| self.get(at))
    }

    /// Drops the first entry.
    pub(super) fn pop_front(&mut self) {
        if self.len() == 0 {
            return;
        }
        self.skip += 1;
        if self.skip == self.stored() {
            *self = RevisionLog::default();
        } else if self.skip == GROUP * CHUNK && !self.groups.is_empty() {
            Arc::make_mut(&mut self.groups).remove(0);
            self.skip = 0;
        } else if self.groups.is_empty() && self.skip == CHUNK {
            // The skipped chunk is the first of the loose ones: the tail is shorter than that.
            Arc::make_mut(&mut self.chunks).remove(0);
            self.skip = 0;
        } else if self.skip.is_multiple_of(CHUNK)
            && let Some(group) = Arc::make_mut(&mut self.groups).first_mut()
        {
            // Lets go of the records at once; the place of the chunk goes with its group.
            Arc::make_mut(group)[self.skip / CHUNK - 1] = Chunk::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(main: Revision) -> LogEntry {
        let record = Record::tombstone(b"k", (main, 0));
        LogEntry { record, frees: 0 }
    }

    #[test]
    fn log_is_a_queue_across_block_borders() {
        let mut log = RevisionLog::default();
        let (mut front, mut back) = (0, 0);
        // Grow by more than shrinking, then drain, so that the front crosses chunks and groups
        // while the back does as well.
        for step in 0..40_000_usize {
            log.push(entry(back as i64));
            back += 1;
            if step % 3 == 0 || step > 20_000 {
                log.pop_front();
                front += 1;
            }
            if step % 251 == 0 {
                assert_eq!(log.len(), back - front);
                let first = log.first().map(|entry| entry.record.main);
                assert_eq!(first, (front < back).then_some(front as i64));
                let middle = (front + back) / 2;
                assert_eq!(log.position(middle as i64), middle - front);
            }
        }
        let left: Vec<i64> = log.iter_from(0).map(|entry| entry.record.main).collect();
        assert_eq!(left, (front as i64..back as i64).collect::<Vec<_>>());
        while log.len() > 0 {
            log.pop_front();
        }
        assert!(log.first().is_none());
    }

    #[test]
    fn clone_keeps_what_the_original_drops() {
        let mut log = RevisionLog::default();
        (0..300).for_each(|main| log.push(entry(main)));
        let frozen = log.clone();
        (0..200).for_each(|_| log.pop_front());
        log.push(entry(300));
        assert_eq!(frozen.len(), 300);
        assert_eq!(frozen.get(0).map(|entry| entry.record.main), Some(0));
        assert_eq!(log.len(), 101);
    }
}
