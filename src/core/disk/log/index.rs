//! Where in the segments each live entry lies: one reference a batch, in memory. Never holds
//! entries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::batch::Batch;
use super::segment;
use crate::disk::device::DiskFile;
use crate::raft::{Entry, LogShape, Position};

/// One batch on disk and the entries of it that are still part of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BatchRef {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) sequence: u64,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

impl BatchRef {
    pub(crate) fn new(sequence: u64, offset: usize, length: usize, batch: &Batch) -> Self {
        Self {
            first: batch.entries.first().map_or(0, |entry| entry.index),
            last: batch.entries.last().map_or(0, |entry| entry.index),
            sequence,
            number: batch.number,
            offset: offset as u64,
            length,
        }
    }
}

/// An open segment.
#[derive(Clone, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) seed: u32,
}

/// The live log.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) shape: LogShape,
    /// Ascending in `first`, without overlap.
    batches: VecDeque<BatchRef>,
    files: BTreeMap<u64, OpenSegment>,
}

impl Index {
    pub(crate) fn new(shape: LogShape) -> Self {
        Self {
            shape,
            batches: VecDeque::new(),
            files: BTreeMap::new(),
        }
    }

    pub(crate) fn add_file(&mut self, sequence: u64, uuid: [u8; 16], file: Arc<dyn DiskFile>) {
        let seed = segment::seed(&uuid, sequence);
        self.files.insert(sequence, OpenSegment { file, seed });
    }

    /// Notes a batch: its entries replace what the log holds from its first entry on.
    pub(crate) fn append(
        &mut self,
        before: Position,
        entries: &[Entry],
        reference: BatchRef,
    ) -> Result<(), String> {
        let Some(first) = entries.first() else {
            return Ok(());
        };
        if before.index.checked_add(1) != Some(first.index) {
            return Err(format!("entry {} does not follow {before}", first.index));
        }
        if let Some(gap) = entries
            .windows(2)
            .find(|pair| pair[0].index.checked_add(1) != Some(pair[1].index))
        {
            let (one, other) = (gap[0].index, gap[1].index);
            return Err(format!("entry {other} does not follow entry {one}"));
        }
        if before.index < self.shape.floor() {
            // What was dropped with older segments ended later than the log does now.
            self.shape = LogShape::new(before.index, before.term);
            self.batches.clear();
        }
        if self.shape.term(before.index) != Some(before.term) {
            return Err(format!(
                "the batch continues entry {before}, which the log does not hold"
            ));
        }
        self.truncate(first.index);
        for entry in entries {
            self.shape
                .append(entry)
                .map_err(|error| error.to_string())?;
        }
        self.batches.push_back(reference);
        Ok(())
    }

    fn truncate(&mut self, from: u64) {
        while self.batches.back().is_some_and(|batch| batch.first >= from) {
            self.batches.pop_back();
        }
        if let Some(batch) = self.batches.back_mut() {
            batch.last = batch.last.min(from - 1);
        }
        self.shape.truncate(from);
    }

    /// Empties the log; it goes on after `floor`.
    pub(crate) fn reset(&mut self, floor: Position) {
        self.shape = LogShape::new(floor.index, floor.term);
        self.batches.clear();
        self.files.clear();
    }

    /// Notes that a batch was copied to another place; live entries stay what they were.
    pub(crate) fn moved(&mut self, to: BatchRef) {
        if let Some(batch) = self
            .batches
            .iter_mut()
            .rev()
            .find(|b| b.number == to.number)
        {
            *batch = BatchRef {
                first: batch.first,
                last: batch.last,
                ..to
            };
        }
    }

    /// Drops a segment whose batches were copied.
    pub(crate) fn forget_file(&mut self, sequence: u64) {
        self.files.remove(&sequence);
    }

    /// Forgets a removed segment and the entries up to `floor`.
    pub(crate) fn drop_file(&mut self, sequence: u64, floor: u64) {
        self.files.remove(&sequence);
        self.batches.retain(|batch| batch.sequence != sequence);
        if floor > self.shape.floor() {
            self.shape.drop_through(floor);
        }
    }

    pub(crate) fn file(&self, sequence: u64) -> Option<&OpenSegment> {
        self.files.get(&sequence)
    }

    pub(crate) fn newest(&self) -> Option<&OpenSegment> {
        self.files.values().next_back()
    }

    /// References of the batches that hold entries of `from..to`, in order.
    pub(crate) fn covering(&self, from: u64, to: u64) -> impl Iterator<Item = &BatchRef> {
        let start = self.batches.partition_point(|batch| batch.last < from);
        self.batches
            .range(start..)
            .take_while(move |batch| batch.first < to)
    }
}
