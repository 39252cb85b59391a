//! Reads all segments at start: checks every byte that was ever synced, cuts a provably torn
//! tail, refuses any other damage. Never writes.

use std::sync::Arc;

use super::batch::{self, Batch, Found};
use super::hard_state_may_follow;
use super::index::{BatchRef, Index};
use super::segment::{self, Head};
use crate::disk::device::{Disk, DiskFile, SECTOR, read_exact};
use crate::disk::directory::LOG;
use crate::disk::error::{Error, MOVE_AWAY, REPLACE_MEMBER, Result};
use crate::mutants::mutant;
use crate::raft::{HardState, LogShape};

/// What the segments hold.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) heads: Vec<Head>,
    pub(crate) index: Index,
    pub(crate) hard_state: HardState,
    /// Number of the batch to write next.
    pub(crate) next_batch: u64,
    /// The batches of the last segment.
    pub(crate) last: Vec<Batch>,
    /// Segments that do not count any more and that a crash left behind.
    pub(crate) void: Vec<Head>,
    /// Whether a torn batch was cut.
    pub(crate) torn: bool,
}

/// Names of the segments in `disk`, by sequence.
pub(crate) fn sequences(disk: &dyn Disk) -> Result<Vec<u64>> {
    let names = disk
        .list(LOG)
        .map_err(|e| Error::io("list", disk.describe(LOG), e))?;
    let mut found = Vec::new();
    for name in names.iter().filter(|name| !name.ends_with(".tmp")) {
        let sequence = segment::sequence(name).ok_or_else(|| Error::Stray {
            file: disk.describe(&format!("{LOG}/{name}")),
            what: "this file is not a log segment",
            remedy: MOVE_AWAY,
        })?;
        found.push(sequence);
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads the whole log of the disk `uuid`. `None` if there is no segment.
pub(crate) fn scan(disk: &Arc<dyn Disk>, uuid: &[u8; 16]) -> Result<Option<Scan>> {
    let mut opened = Vec::new();
    for sequence in sequences(&**disk)? {
        let name = segment::name(sequence);
        let file = disk
            .open(&name)
            .map_err(|e| Error::io("open", disk.describe(&name), e))?;
        let head = segment::read_head(&**disk, &*file, uuid, sequence)?;
        opened.push((head, file));
    }
    // What was dropped, or lies before a reset, is void; a crash may have left it or brought it
    // back.
    let oldest = opened
        .iter()
        .map(|(head, _)| head.oldest)
        .max()
        .unwrap_or(0);
    let start = opened.partition_point(|(head, _)| head.sequence < oldest);
    let void = opened[..start].iter().map(|(head, _)| *head).collect();
    let opened = &opened[start..];
    let Some((first, _)) = opened.first() else {
        return Ok(None);
    };
    let mut scan = Scan {
        heads: Vec::new(),
        index: Index::new(LogShape::new(first.before.index, first.before.term)),
        hard_state: first.hard_state,
        next_batch: first.first_batch,
        last: Vec::new(),
        void,
        torn: false,
    };
    // One for all segments: what is read first costs memory that the kernel has to clear.
    let mut buffer = Vec::new();
    for (at, (head, file)) in opened.iter().enumerate() {
        let next = opened.get(at + 1).map(|(head, _)| head.first_batch);
        let reader = SegmentScan {
            disk: &**disk,
            head,
            file: &**file,
            next,
        };
        reader.run(&mut scan, &mut buffer)?;
        scan.index
            .add_file(head.sequence, head.disk_uuid, Arc::clone(file));
        scan.heads.push(*head);
    }
    Ok(Some(scan))
}

struct SegmentScan<'a> {
    disk: &'a dyn Disk,
    head: &'a Head,
    file: &'a dyn DiskFile,
    /// First batch of the next segment; `None` for the last one.
    next: Option<u64>,
}

impl SegmentScan<'_> {
    fn damaged(&self, offset: usize, what: String) -> Error {
        Error::Corrupt {
            file: self.disk.describe(&self.head.name()),
            offset: offset as u64,
            what,
            remedy: REPLACE_MEMBER,
        }
    }

    fn run(&self, scan: &mut Scan, buffer: &mut Vec<u8>) -> Result<()> {
        self.check_head(scan)?;
        let bytes = self.read_all(buffer)?;
        let mut at = SECTOR;
        while self.next != Some(scan.next_batch) {
            let found = batch::find(
                self.head.seed(),
                scan.next_batch,
                &bytes[at.min(bytes.len())..],
            );
            let (batch, length) = match (found, self.next) {
                (Found::Whole(batch, length), _) => (batch, length),
                (Found::End, None) => break,
                (Found::Torn, None) if mutant!(TornTail) => {
                    return Err(self.damaged(at, "a torn batch".to_owned()));
                }
                (Found::Torn, None) => {
                    scan.torn = true;
                    break;
                }
                (Found::Damaged(offset, what), _) => return Err(self.damaged(at + offset, what)),
                (Found::End | Found::Torn, Some(_)) => {
                    let what = format!("batch {} is missing, later ones exist", scan.next_batch);
                    return Err(self.damaged(at, what));
                }
            };
            self.take(scan, &batch, at, length)?;
            scan.next_batch = scan.next_batch.checked_add(1).ok_or_else(|| {
                self.damaged(
                    at,
                    "the numbers of batches have come to their end".to_owned(),
                )
            })?;
            if self.next.is_none() {
                scan.last.push(batch);
            }
            at += length;
        }
        Ok(())
    }

    /// The head must continue what was read so far.
    fn check_head(&self, scan: &mut Scan) -> Result<()> {
        if self.head.first_batch != scan.next_batch {
            let what = format!(
                "it continues at batch {}, the segment before it ends before {}: a segment is missing",
                self.head.first_batch, scan.next_batch
            );
            return Err(self.damaged(0, what));
        }
        if !hard_state_may_follow(&scan.hard_state, &self.head.hard_state) {
            let what = "the hard state in its head is older than the one before".to_owned();
            return Err(self.damaged(0, what));
        }
        scan.hard_state = self.head.hard_state;
        let before = self.head.before;
        let fits = scan.index.shape.term(before.index) == Some(before.term);
        if !fits && before.index >= scan.index.shape.floor() {
            let what = format!("its head continues entry {before}, which the log does not hold");
            return Err(self.damaged(0, what));
        }
        Ok(())
    }

    /// Reads the whole segment over what the buffer holds.
    fn read_all<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let path = || self.disk.describe(&self.head.name());
        let length = self
            .file
            .length()
            .map_err(|e| Error::io("measure", path(), e))?;
        let length = usize::try_from(length).map_err(|_| {
            self.damaged(
                0,
                "the file is larger than this machine can address".to_owned(),
            )
        })?;
        if !length.is_multiple_of(SECTOR) {
            return Err(self.damaged(length, "the file does not end at a sector".to_owned()));
        }
        if buffer.len() < length {
            *buffer = vec![0; length];
        }
        let bytes = &mut buffer[..length];
        read_exact(self.file, 0, bytes).map_err(|e| Error::io("read", path(), e))?;
        Ok(bytes)
    }

    fn take(&self, scan: &mut Scan, batch: &Batch, at: usize, length: usize) -> Result<()> {
        if let Some(state) = batch.hard_state {
            if !hard_state_may_follow(&scan.hard_state, &state) {
                return Err(self.damaged(at, "the hard state goes back".to_owned()));
            }
            // The head may carry a newer commit index than the copied batch after it.
            let commit = state.commit.max(scan.hard_state.commit);
            scan.hard_state = HardState { commit, ..state };
        }
        let reference = BatchRef::new(self.head.sequence, at, length, batch);
        scan.index
            .append(batch.before, &batch.entries, reference)
            .map_err(|what| self.damaged(at, what))
    }
}
