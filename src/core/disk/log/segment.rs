//! Segment files: filled with zeros before use, then given a header and a name. Never writes a byte
//! of a segment twice once it is synced.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::device::{Disk, DiskFile, SECTOR, read_exact};
use crate::disk::directory::LOG;
use crate::disk::error::{Error, REPLACE_MEMBER, Result};
use crate::disk::frame::{self, Cursor};
use crate::disk::reserve::Reserve;
use crate::mutants::mutant;
use crate::raft::{HardState, Position};

/// Newest segment format that this release reads and writes.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"QUORSEGM";
/// Bytes of a head that its checksum covers, after magic, format and checksum.
pub(super) const FIELDS: usize = 8 + 16 + 8 * 7;
/// Bytes of zeros between syncs where the log waits for the segment.
const WAITED_FOR: u64 = 8 << 20;
/// The same ahead of use: the log's own syncs wait for these on the same disk, so each is to be short.
const AHEAD: u64 = 1 << 20;
/// The share of a segment that is used, in parts of [`WHOLE`], from which on the next one is wanted.
const WANTED: u64 = WHOLE / 4;
const WHOLE: u64 = 1 << 10;
static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];

/// The first sector of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) sequence: u64,
    pub(crate) disk_uuid: [u8; 16],
    /// Number of the first batch. Batches of earlier segments from this number on are void.
    pub(crate) first_batch: u64,
    /// Hard state before the first record.
    pub(crate) hard_state: HardState,
    /// Entry before the first record.
    pub(crate) before: Position,
    /// Sequence of the oldest segment that counted when this one began. Earlier ones are void:
    /// dropped, or replaced by an installed snapshot. A name whose removal never reached the disk
    /// may come back, and must not look like a log with a gap.
    pub(crate) oldest: u64,
}

impl Head {
    pub(crate) fn name(&self) -> String {
        name(self.sequence)
    }

    /// Seed of all checksums in the segment.
    pub(crate) fn seed(&self) -> u32 {
        seed(&self.disk_uuid, self.sequence)
    }

    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(FIELDS);
        fields.extend_from_slice(&self.sequence.to_le_bytes());
        fields.extend_from_slice(&self.disk_uuid);
        let state = &self.hard_state;
        let numbers = [
            self.first_batch,
            state.term,
            state.vote,
            state.commit,
            self.before.index,
            self.before.term,
            self.oldest,
        ];
        for number in numbers {
            fields.extend_from_slice(&number.to_le_bytes());
        }
        let mut sector = Vec::with_capacity(SECTOR);
        sector.extend_from_slice(&MAGIC);
        sector.extend_from_slice(&FORMAT.to_le_bytes());
        sector.extend_from_slice(&checksum(FORMAT, &fields).to_le_bytes());
        sector.extend_from_slice(&fields);
        sector.resize(SECTOR, 0);
        sector
    }
}

pub(super) fn checksum(format: u32, fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), fields)
}

/// Seed of all checksums in a segment of a disk.
pub(crate) fn seed(disk_uuid: &[u8; 16], sequence: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(disk_uuid), &sequence.to_le_bytes())
}

/// File name of a segment.
pub(crate) fn name(sequence: u64) -> String {
    format!("{LOG}/{sequence:016x}.log")
}

/// The sequence in a segment's file name (without directory).
pub(crate) fn sequence(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".log")?;
    if digits.len() == 16 {
        u64::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// Reads and checks the head of a segment.
pub(crate) fn read_head(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    disk_uuid: &[u8; 16],
    wanted: u64,
) -> Result<Head> {
    let path = || disk.describe(&name(wanted));
    let damaged = |what: &str| Error::Corrupt {
        file: path(),
        offset: 0,
        what: what.to_owned(),
        remedy: REPLACE_MEMBER,
    };
    let mut sector = [0; SECTOR];
    read_exact(file, 0, &mut sector).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("the file is shorter than its head"),
        _ => Error::io("read", path(), error),
    })?;
    if sector[..8] != MAGIC {
        return Err(damaged(
            "the file does not begin with the magic bytes of a log segment",
        ));
    }
    let mut cursor = Cursor(&sector[8..16 + FIELDS]);
    let (Some(found), Some(sum)) = (cursor.u32(), cursor.u32()) else {
        return Err(damaged("the head is short"));
    };
    if found > FORMAT && !frame::rotten(FORMAT, sum, |format| checksum(format, cursor.0)) {
        return Err(Error::TooNew {
            file: path(),
            found,
            supported: FORMAT,
        });
    }
    if checksum(found, cursor.0) != sum {
        return Err(damaged("the head does not match its checksum"));
    }
    let head = parse_fields(cursor).ok_or_else(|| damaged("the head is short"))?;
    // Found by the fuzzer (tests/fuzz/corpus/log/found-floor-at-its-end): a log that begins behind
    // the last possible entry has no first index.
    if head.before.index == u64::MAX {
        return Err(damaged(
            "the entry that it continues is the last possible one",
        ));
    }
    if head.disk_uuid != *disk_uuid {
        return Err(Error::Foreign {
            file: path(),
            what: "this segment was written on another disk".to_owned(),
            remedy: "never mix the files of two data directories: restore this directory as a whole, or remove the member and add it again with an empty one",
        });
    }
    if head.sequence != wanted {
        return Err(damaged(
            "the file was renamed: its head carries another sequence",
        ));
    }
    Ok(head)
}

fn parse_fields(mut cursor: Cursor<'_>) -> Option<Head> {
    Some(Head {
        sequence: cursor.u64()?,
        disk_uuid: cursor.take(16)?.try_into().ok()?,
        first_batch: cursor.u64()?,
        hard_state: HardState {
            term: cursor.u64()?,
            vote: cursor.u64()?,
            commit: cursor.u64()?,
        },
        before: Position {
            index: cursor.u64()?,
            term: cursor.u64()?,
        },
        oldest: cursor.u64()?,
    })
}

/// A file of zeros that waits to become a segment.
#[derive(Debug)]
struct Blank {
    name: String,
    file: Arc<dyn DiskFile>,
    length: u64,
}

#[derive(Debug)]
struct Slot {
    blank: Option<Blank>,
    made: u64,
}

/// Writes zeros before use. Clones share one slot: a background thread prepares, the log takes.
#[derive(Clone, Debug)]
pub struct Preparer {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    slot: Arc<Mutex<Slot>>,
    /// The share of its segment that the log has used.
    used: Arc<AtomicU64>,
}

impl Preparer {
    pub(crate) fn new(disk: Arc<dyn Disk>, segment_bytes: u64) -> Self {
        let slot = Arc::new(Mutex::new(Slot {
            blank: None,
            made: 0,
        }));
        Self {
            disk,
            segment_bytes,
            slot,
            used: Arc::default(),
        }
    }

    /// Writes and syncs the next segment's zeros, if none waits. Slow (64 MiB by default):
    /// call it from a background thread, once after each [`crate::disk::Log::wants_segment`]. Calls `go_on` with the
    /// bytes that are synced after each MiB but the last: to leave the disk to the log for a while if this [is
    /// ahead](Self::is_ahead), or to end it.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Sync`]. A full disk is not fatal here: the log
    /// goes on in the current segment and tries again itself at its end.
    pub fn prepare(&self, go_on: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        // As much again stays free: a checkpoint, which makes space, needs it more.
        if !self.has_room(2 * self.segment_bytes) {
            return Err(Error::Full {
                file: self.disk.describe(LOG),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        let blank = self.create(self.segment_bytes)?;
        if self.fill(&blank, AHEAD, go_on)?.is_break() {
            return frame::remove_if_there(&*self.disk, &blank.name);
        }
        let surplus = {
            let mut slot = self.slot();
            if slot.blank.is_none() {
                slot.blank = Some(blank);
                None
            } else {
                Some(blank)
            }
        };
        match surplus {
            Some(blank) => frame::remove_if_there(&*self.disk, &blank.name),
            None => Ok(()),
        }
    }

    /// Whether a prepared segment waits.
    pub fn is_ready(&self) -> bool {
        self.slot().blank.is_some()
    }

    /// Whether so many bytes of zeros are enough for now: all are to be there when the log has used three quarters of
    /// its segment.
    pub fn is_ahead(&self, done: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let due = used.saturating_sub(WANTED) * 2;
        done.saturating_mul(WHOLE) >= self.segment_bytes.saturating_mul(due)
    }

    /// Whether the log, whose segment has so many bytes and is used up to an offset, should ask for the next one.
    pub(super) fn is_wanted(&self, offset: u64, length: u64) -> bool {
        let used = offset.saturating_mul(WHOLE) / length.max(1);
        self.used.store(used, Ordering::Relaxed);
        used > WANTED && !self.is_ready()
    }

    /// Whether so much is free, as far as is known.
    fn has_room(&self, bytes: u64) -> bool {
        self.disk.free_bytes().map_or(true, |free| free >= bytes)
    }

    /// A file of zeros of at least `bytes`: the prepared one, or a new one. If there is no space for a whole segment it
    /// is a small one, and finally the reserve is given up for it: as long as there is any space, the log continues, so
    /// that space can be freed.
    fn take(&self, bytes: u64) -> Result<Blank> {
        let waiting = {
            let mut slot = self.slot();
            if slot
                .blank
                .as_ref()
                .is_some_and(|blank| blank.length >= bytes)
            {
                slot.blank.take()
            } else {
                None
            }
        };
        match waiting {
            Some(blank) => Ok(blank),
            None => self.blank_that_fits(bytes),
        }
    }

    fn blank_that_fits(&self, bytes: u64) -> Result<Blank> {
        let small = bytes + self.segment_bytes / 16;
        // A full disk is detected without writing until it is full; and if little space is left, the log does not wait
        // until a whole segment is filled with zeros, nor uses space that others need more.
        let whole = self.segment_bytes.max(bytes);
        for (length, room) in [(whole, whole.max(2 * self.segment_bytes)), (small, small)] {
            if !self.has_room(room) {
                continue;
            }
            match self.blank(length) {
                Err(Error::Full { .. }) => {}
                done => return done,
            }
        }
        if Reserve::new(Arc::clone(&self.disk)).give_up()? {
            match self.blank(small) {
                Err(Error::Full { .. }) => {}
                done => return done,
            }
        }
        self.blank(bytes)
    }

    /// A file of zeros that the log waits for.
    fn blank(&self, length: u64) -> Result<Blank> {
        let blank = self.create(length)?;
        let _ = self.fill(&blank, WAITED_FOR, &mut |_| ControlFlow::Continue(()))?;
        Ok(blank)
    }

    fn create(&self, length: u64) -> Result<Blank> {
        let name = {
            let mut slot = self.slot();
            slot.made += 1;
            format!("{LOG}/blank-{}.tmp", slot.made)
        };
        let file = self
            .disk
            .create(&name)
            .map_err(|e| Error::io("create", self.disk.describe(&name), e))?;
        let length = length.next_multiple_of(SECTOR as u64);
        Ok(Blank { name, file, length })
    }

    /// Writes the zeros of a file, and syncs them now and then and at the end, unless `go_on` ends it in between.
    fn fill(
        &self,
        blank: &Blank,
        sync_every: u64,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let path = || self.disk.describe(&blank.name);
        let (file, length) = (&blank.file, blank.length);
        let mut at = 0;
        while at < length {
            let n = (length - at).min(ZEROS.len() as u64);
            let zeros = &ZEROS[..usize::try_from(n).unwrap_or(ZEROS.len())];
            if let Err(error) = file.write_at(at, zeros) {
                // Give the space back; the error to report is the first one.
                let _ = self.disk.remove(&blank.name);
                return Err(Error::io("write", path(), error));
            }
            at += n;
            if at % sync_every != 0 && at < length {
                continue;
            }
            file.sync().map_err(|source| Error::Sync {
                file: path(),
                source,
            })?;
            if at < length && go_on(at).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Slot> {
        // The slot is plain data: a panic elsewhere leaves it usable.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a segment with this head and first batch, durable under its name. Returns the file
    /// and its length.
    pub(crate) fn segment(
        &self,
        head: &Head,
        batch: &[u8],
        written: &mut dyn FnMut(),
    ) -> Result<(Arc<dyn DiskFile>, u64)> {
        let mut bytes = head.encode();
        bytes.extend_from_slice(batch);
        let blank = self.take(bytes.len() as u64)?;
        let path = || self.disk.describe(&blank.name);
        blank
            .file
            .write_at(0, &bytes)
            .map_err(|e| Error::io("write", path(), e))?;
        written();
        if !mutant!(SegmentUnsynced) {
            blank.file.sync().map_err(|source| Error::Sync {
                file: path(),
                source,
            })?;
        }
        self.disk
            .rename(&blank.name, &head.name())
            .map_err(|e| Error::io("rename", path(), e))?;
        if !mutant!(NameUnsynced) {
            frame::sync_directory(&*self.disk, LOG)?;
        }
        Ok((blank.file, blank.length))
    }
}
