//! The Raft log on disk: numbered segments of checksummed batches.
//!
//! Invariants:
//! - A batch is durable when [`Log::append`] returns `Ok`; only then may it be acknowledged.
//! - Batch N+1 is written only after the sync of batch N succeeded. So only the last batch can be
//!   torn, and damage before a later batch is always an error.
//! - Synced bytes are never written again. A suffix is replaced by appending at a lower index.
//! - A segment gets its name only after its head and its first batch are synced.
//! - After a failed sync a restarted process may read pages, and names, that never reached the
//!   disk. So [`Log::open`] writes the last segment's batches again, into a new segment, before
//!   anything is acknowledged; earlier segments were synced, or no later one would exist.
//! - After any error of a write or sync the log refuses everything until it is opened again.

mod batch;
mod index;
mod reader;
mod scan;
mod segment;
#[cfg(test)]
pub(super) use segment::FORMAT as SEGMENT_FORMAT;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::device::{Disk, DiskFile, SECTOR};
use super::directory::LOG;
use super::error::{Error, REPLACE_MEMBER, Result};
use super::frame;
use crate::mutants::mutant;
use crate::raft::{Entry, HardState, LogShape, Position};
use batch::Batch;
use index::{BatchRef, Index};
pub use reader::LogReader;
use scan::Scan;
use segment::Head;
pub use segment::Preparer;

/// Largest encoded batch, in bytes.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Sizes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment, zero-written ahead of use. A larger batch gets a larger segment.
    pub segment_bytes: u64,
}

impl LogOptions {
    /// What fits a volume of so many bytes: on a small one, segments of 64 MiB would take up most
    /// of it.
    pub fn for_volume(bytes: u64) -> Self {
        let most = Self::default().segment_bytes;
        let segment_bytes = (bytes / 16).clamp(4 << 20, most);
        Self {
            segment_bytes: segment_bytes.next_multiple_of(SECTOR as u64),
        }
    }

    /// How much to keep in reserve: a start writes the last segment again before it removes the old one, and then needs
    /// a little for operations that free space.
    pub fn reserve_bytes(&self) -> u64 {
        self.segment_bytes + self.segment_bytes / 4
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
        }
    }
}

/// The log of a member, open for appending. One value owns it; readers are [`LogReader`]s.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    uuid: [u8; 16],
    reader: LogReader,
    preparer: Preparer,
    /// Heads of all live segments, in order; the last one is being written.
    heads: Vec<Head>,
    active: Active,
    hard_state: HardState,
    next_batch: u64,
    written_bytes: u64,
    torn: bool,
    failed: Option<String>,
}

#[derive(Debug)]
struct Active {
    file: Arc<dyn DiskFile>,
    sequence: u64,
    offset: u64,
    length: u64,
}

/// Bytes that the log uses on a disk.
///
/// # Errors
/// [`Error::Io`], [`Error::Stray`].
pub fn log_bytes(disk: &dyn Disk) -> Result<u64> {
    let mut bytes = 0;
    for sequence in scan::sequences(disk)? {
        let name = segment::name(sequence);
        // One that was dropped meanwhile uses no space.
        let Ok(file) = disk.open(&name) else { continue };
        let length = file.length();
        bytes += length.map_err(|e| Error::io("measure", disk.describe(&name), e))?;
    }
    Ok(bytes)
}

/// Reads the log of the disk `uuid` and changes nothing: what a torn write has left at its end does not count. `None` if
/// there is no segment.
///
/// # Errors
/// As [`Log::open`].
pub(crate) fn read(
    disk: &Arc<dyn Disk>,
    uuid: &[u8; 16],
) -> Result<Option<(LogReader, HardState)>> {
    let scan = scan::scan(disk, uuid)?;
    Ok(scan.map(|scan| {
        (
            LogReader::new(Arc::clone(disk), scan.index),
            scan.hard_state,
        )
    }))
}

/// Whether `new` may be written after `old`: terms never go back, and a vote stays for its term.
fn hard_state_may_follow(old: &HardState, new: &HardState) -> bool {
    new.term > old.term || (new.term == old.term && (old.vote == 0 || new.vote == old.vote))
}

impl Log {
    /// Creates the log of a new member, which continues after `floor` (the checkpoint it starts from). Durable when it
    /// returns. Files of an earlier, unfinished attempt are removed: the caller knows from the identity file that this
    /// disk has never been a member.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn create(
        disk: Arc<dyn Disk>,
        uuid: [u8; 16],
        hard_state: HardState,
        floor: Position,
        options: LogOptions,
    ) -> Result<Self> {
        for sequence in scan::sequences(&*disk)? {
            frame::remove_if_there(&*disk, &segment::name(sequence))?;
        }
        frame::sync_directory(&*disk, LOG)?;
        let preparer = Preparer::new(Arc::clone(&disk), options.segment_bytes);
        let scan = Scan {
            heads: Vec::new(),
            index: Index::new(LogShape::new(floor.index, floor.term)),
            hard_state,
            next_batch: 1,
            last: Vec::new(),
            void: Vec::new(),
            torn: false,
        };
        Self::start(disk, uuid, preparer, scan)
    }

    /// Opens the log of the disk `uuid`: checks every batch, cuts a torn tail, and writes the
    /// batches of the last segment again into a new one. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for any damage that a torn write does not explain, or if there is no
    /// log at all; [`Error::Foreign`] for segments of another disk; [`Error::TooNew`].
    pub fn open(disk: Arc<dyn Disk>, uuid: [u8; 16], options: LogOptions) -> Result<Self> {
        let Some(scan) = scan::scan(&disk, &uuid)? else {
            return Err(Error::Corrupt {
                file: disk.describe(LOG),
                offset: 0,
                what: "the log is gone: there is no segment, but this disk has been a member"
                    .to_owned(),
                remedy: REPLACE_MEMBER,
            });
        };
        let preparer = Preparer::new(Arc::clone(&disk), options.segment_bytes);
        Self::start(disk, uuid, preparer, scan)
    }

    /// Begins a new segment with the batches of the last one and removes what it replaces.
    fn start(disk: Arc<dyn Disk>, uuid: [u8; 16], preparer: Preparer, scan: Scan) -> Result<Self> {
        let Scan {
            mut heads,
            mut index,
            hard_state,
            next_batch,
            last,
            void,
            torn,
        } = scan;
        let end = Position {
            index: index.shape.last(),
            term: index.shape.last_term(),
        };
        let old = heads.pop();
        let sequence = old.map_or(1, |old| old.sequence + 1);
        let head = Head {
            sequence,
            disk_uuid: uuid,
            first_batch: old.map_or(next_batch, |old| old.first_batch),
            hard_state: old.map_or(hard_state, |old| old.hard_state),
            before: old.map_or(end, |old| old.before),
            oldest: heads.first().map_or(sequence, |head| head.sequence),
        };
        let mut bytes = Vec::with_capacity(last.iter().map(batch::size).sum());
        let mut moved = Vec::new();
        for batch in &last {
            let encoded = batch::encode(head.seed(), batch);
            moved.push(BatchRef::new(
                head.sequence,
                SECTOR + bytes.len(),
                encoded.len(),
                batch,
            ));
            bytes.extend_from_slice(&encoded);
        }
        let (file, length) = preparer.segment(&head, &bytes, &mut || {})?;
        // A start writes nothing new.
        let grown = old.and_then(|old| index.file(old.sequence)?.file.modified_ms());
        if let Some(grown) = grown {
            file.set_modified_ms(grown);
        }
        index.add_file(head.sequence, uuid, Arc::clone(&file));
        moved
            .into_iter()
            .for_each(|reference| index.moved(reference));
        for replaced in void.iter().chain(&old) {
            frame::remove_if_there(&*disk, &replaced.name())?;
            index.forget_file(replaced.sequence);
        }
        frame::sync_directory(&*disk, LOG)?;
        let offset = (SECTOR + bytes.len()) as u64;
        let active = Active {
            file,
            sequence: head.sequence,
            offset,
            length,
        };
        heads.push(head);
        let reader = LogReader::new(Arc::clone(&disk), index);
        Ok(Self {
            disk,
            uuid,
            reader,
            preparer,
            heads,
            active,
            hard_state,
            next_batch,
            written_bytes: 0,
            torn,
            failed: None,
        })
    }

    /// Writes and syncs one batch. Entries at or below the end of the log replace what is there
    /// from the first of them on. A hard state that differs from the stored one only in its
    /// commit index is kept for the next batch: it is a hint, not worth a sync.
    ///
    /// # Errors
    /// [`Error::Misuse`] (nothing was written) if the entries leave a gap, the hard state goes
    /// back or a vote changes within a term. Any other error is final for this value.
    pub fn append(&mut self, hard_state: Option<&HardState>, entries: &[Entry]) -> Result<()> {
        self.append_told(hard_state, entries, &mut || {})
    }

    /// As [`append`](Self::append); calls `written` between the write and the sync of the batch, for whoever has a clock,
    /// and not if nothing is to be written.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_told(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
        written: &mut dyn FnMut(),
    ) -> Result<()> {
        self.check_usable()?;
        let state = hard_state.copied().unwrap_or(self.hard_state);
        let before = self.check_batch(&state, entries)?;
        let durable = (self.hard_state.term, self.hard_state.vote);
        if entries.is_empty() && (state.term, state.vote) == durable {
            self.hard_state.commit = self.hard_state.commit.max(state.commit);
            return Ok(());
        }
        let batch = Batch {
            number: self.next_batch,
            before,
            hard_state: hard_state.copied(),
            entries: entries.to_vec(),
        };
        let done = self.write(&batch, state, written);
        self.remember(done)
    }

    fn write(&mut self, batch: &Batch, state: HardState, written: &mut dyn FnMut()) -> Result<()> {
        let seed = segment::seed(&self.uuid, self.active.sequence);
        let bytes = batch::encode(seed, batch);
        if bytes.len() > MAX_BATCH_BYTES {
            return Err(Error::Misuse(format!(
                "a batch of {} bytes is too large",
                bytes.len()
            )));
        }
        let length = bytes.len() as u64;
        let reference = if self.active.offset + length > self.active.length {
            self.roll(batch, false, written)?
        } else {
            let offset = self.active.offset;
            let path = || self.disk.describe(&segment::name(self.active.sequence));
            let file = &self.active.file;
            // Its time is that of the last entry.
            let kept = batch.entries.is_empty().then(|| file.modified_ms());
            file.write_at(offset, &bytes)
                .map_err(|e| Error::io("write", path(), e))?;
            written();
            let synced = file.sync().map_err(|source| Error::Sync {
                file: path(),
                source,
            });
            if !mutant!(FsyncIgnored) {
                synced?;
            }
            if let Some(grown) = kept.flatten() {
                file.set_modified_ms(grown);
            }
            self.active.offset += length;
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            BatchRef::new(self.active.sequence, offset, bytes.len(), batch)
        };
        self.hard_state = state;
        self.next_batch += 1;
        self.written_bytes += length;
        self.reader
            .index_mut()
            .append(batch.before, &batch.entries, reference)
            .map_err(Error::Misuse)
    }

    /// Goes on in a new segment that begins with `batch` (or with nothing, at a reset).
    fn roll(&mut self, batch: &Batch, reset: bool, written: &mut dyn FnMut()) -> Result<BatchRef> {
        let sequence = self.active.sequence + 1;
        let oldest = match self.heads.first() {
            Some(head) if !reset => head.sequence,
            _ => sequence,
        };
        let head = Head {
            sequence,
            disk_uuid: self.uuid,
            first_batch: batch.number,
            hard_state: self.hard_state,
            before: batch.before,
            oldest,
        };
        let bytes = if reset {
            Vec::new()
        } else {
            batch::encode(head.seed(), batch)
        };
        let (file, length) = self.preparer.segment(&head, &bytes, written)?;
        let grown = self.active.file.modified_ms();
        if let Some(grown) = grown.filter(|_| batch.entries.is_empty() && !reset) {
            file.set_modified_ms(grown);
        }
        self.reader
            .index_mut()
            .add_file(head.sequence, self.uuid, Arc::clone(&file));
        let offset = (SECTOR + bytes.len()) as u64;
        self.active = Active {
            file,
            sequence: head.sequence,
            offset,
            length,
        };
        self.heads.push(head);
        Ok(BatchRef::new(head.sequence, SECTOR, bytes.len(), batch))
    }

    /// Empties the log after a snapshot was installed: it goes on after `floor`. Durable when it
    /// returns; the checkpoint at `floor` must be durable before.
    ///
    /// # Errors
    /// Any error is final for this value.
    pub fn reset(&mut self, floor: Position) -> Result<()> {
        self.check_usable()?;
        let done = self.write_reset(floor);
        self.remember(done)
    }

    fn write_reset(&mut self, floor: Position) -> Result<()> {
        let batch = Batch {
            number: self.next_batch,
            before: floor,
            ..Batch::default()
        };
        self.reader.index_mut().reset(floor);
        self.roll(&batch, true, &mut || {})?;
        while self.heads.len() > 1 {
            frame::remove_if_there(&*self.disk, &self.heads[0].name())?;
            self.heads.remove(0);
        }
        frame::sync_directory(&*self.disk, LOG)
    }

    /// Removes segments that hold only entries before `index`. Entries from `index` on stay;
    /// some before it may stay, too. `index` must not be above what is committed.
    ///
    /// # Errors
    /// Any error is final for this value.
    pub fn drop_before(&mut self, index: u64) -> Result<()> {
        self.check_usable()?;
        let index = index + u64::from(mutant!(DropTooMuch));
        while self.heads.len() > 1 && self.heads[1].before.index < index {
            let (old, floor) = (self.heads[0], self.heads[1].before.index);
            // One at a time, oldest first: a crash must not leave a hole.
            let done = frame::remove_if_there(&*self.disk, &old.name())
                .and_then(|()| frame::sync_directory(&*self.disk, LOG));
            self.remember(done)?;
            self.heads.remove(0);
            self.reader.index_mut().drop_file(old.sequence, floor);
        }
        Ok(())
    }

    /// As [`LogReader::read`].
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub fn read(&self, from: u64, to: u64, max_bytes: u64) -> Result<Vec<Entry>> {
        self.reader.read(from, to, max_bytes)
    }

    /// A reader for other threads.
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// What writes the zeros of the next segment; for a background thread.
    pub fn preparer(&self) -> Preparer {
        self.preparer.clone()
    }

    /// Whether the next segment should be prepared now: this one is more than a quarter full and none waits. To be
    /// asked after each append: what is being prepared keeps pace with it.
    pub fn wants_segment(&self) -> bool {
        let Active { offset, length, .. } = self.active;
        self.preparer.is_wanted(offset, length)
    }

    /// The hard state as stored; its commit index may be newer than the stored one.
    pub fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Where the log starts and ends, and the term of each index.
    pub fn shape(&self) -> LogShape {
        self.reader.index().shape.clone()
    }

    /// The newest entries, without a gap up to the end, within `max_bytes` of entry cost.
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub fn tail(&self, after: u64, max_bytes: u64) -> Result<Vec<Entry>> {
        let index = self.reader.index();
        let from = after.max(index.shape.floor()).saturating_add(1);
        let batches = index.covering(from, u64::MAX);
        let batches: Vec<_> = batches.map(|batch| (batch.first, batch.last)).collect();
        drop(index);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        // From the end: what does not fit is not read, but for the rest of one batch.
        for (first, last) in batches.into_iter().rev() {
            let mut entries = self.read(first.max(from), last + 1, u64::MAX)?;
            let fitting = entries.iter().rev().take_while(|entry| {
                bytes += entry.cost();
                bytes <= max_bytes
            });
            let skip = entries.len() - fitting.count();
            parts.push(entries.split_off(skip));
            if skip > 0 {
                break;
            }
        }
        Ok(parts.into_iter().rev().flatten().collect())
    }

    /// Bytes of all live segments, zeros included.
    pub fn disk_bytes(&self) -> u64 {
        let index = self.reader.index();
        let files = self
            .heads
            .iter()
            .filter_map(|head| index.file(head.sequence));
        files
            .map(|segment| segment.file.length().unwrap_or(0))
            .sum()
    }

    /// Bytes of the batches that were appended since it was opened.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether opening found a torn batch and cut it.
    pub fn was_torn(&self) -> bool {
        self.torn
    }

    /// The segments' sequences and the entry before the first record of each, for inspection.
    pub fn segments(&self) -> Vec<(u64, Position)> {
        self.heads
            .iter()
            .map(|head| (head.sequence, head.before))
            .collect()
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(first) => Err(Error::Failed {
                first: first.clone(),
            }),
        }
    }

    fn remember(&mut self, done: Result<()>) -> Result<()> {
        if let Err(error) = &done {
            self.failed = Some(error.to_string());
        }
        done
    }

    /// Checks a batch against the log; returns the entry before its first one.
    fn check_batch(&self, state: &HardState, entries: &[Entry]) -> Result<Position> {
        if !hard_state_may_follow(&self.hard_state, state) {
            return Err(Error::Misuse(format!(
                "hard state {state:?} would go back from {:?}",
                self.hard_state
            )));
        }
        let index = self.reader.index();
        let shape = &index.shape;
        let end = Position {
            index: shape.last(),
            term: shape.last_term(),
        };
        let Some(first) = entries.first() else {
            return Ok(end);
        };
        let before = first.index.wrapping_sub(1);
        let mut term = shape.term(before).ok_or_else(|| {
            let (from, to) = (shape.floor() + 1, shape.last());
            Error::Misuse(format!(
                "entry {} does not fit a log of {from} to {to}",
                first.index
            ))
        })?;
        let position = Position {
            index: before,
            term,
        };
        for (entry, wanted) in entries.iter().zip(first.index..) {
            if entry.index != wanted || entry.term < term || entry.term > state.term {
                return Err(Error::Misuse(format!(
                    "entry {} of term {} where index {wanted}, terms {term} to {} fit",
                    entry.index, entry.term, state.term
                )));
            }
            term = entry.term;
        }
        Ok(position)
    }
}
