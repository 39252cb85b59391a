//! Checkpoints: whole states of the machine, each a file of its own that is complete or absent.
//! Two are kept, so that damage to the newest is survivable while the log still reaches back to
//! the older one. One that needs files of values names them. Never interprets what the node puts into the chunks.

mod reader;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::device::Disk;
use super::directory::CHECKPOINTS;
use super::error::{Error, MOVE_AWAY, Result};
use super::frame;
use super::reserve::Reserve;
use super::values::ValueFiles;
use super::{READABLE_SINCE, VALUES_READABLE_SINCE};
use crate::mutants::mutant;
use crate::raft::{LogShape, Position};
pub use reader::CheckpointReader;
pub use writer::CheckpointWriter;

/// The format of a checkpoint that is complete by itself.
pub(crate) const FORMAT: u32 = 1;
/// The format of one that needs files of values, and the newest that this release reads and writes.
pub(crate) const FORMAT_VALUES: u32 = 2;
pub(crate) const MAGIC: [u8; 8] = *b"QUORCHKP";
/// Largest chunk, and largest `meta`, in bytes.
pub const MAX_CHUNK_BYTES: usize = 4 << 20;
/// Magic, format, checksum, index, term, flags.
pub(crate) const HEAD: usize = 8 + 4 + 4 + 8 + 8 + 4;
pub(crate) const FLAG_RECEIVED: u32 = 1;
/// Kind u8, length u32, checksum u32.
pub(crate) const FRAME_HEAD: usize = 1 + 4 + 4;
pub(crate) const FRAME_META: u8 = 1;
pub(crate) const FRAME_CHUNK: u8 = 2;
pub(crate) const FRAME_END: u8 = 3;
/// Behind the description: the numbers of the files of values, each u64.
pub(crate) const FRAME_VALUES: u8 = 4;
/// How many checkpoints are kept.
const KEPT: usize = 2;
/// The remedy for a damaged checkpoint that the log cannot make up for.
pub(crate) const REMEDY: &str = "the older checkpoint and the log do not cover it: remove this member from the cluster and add it again with an empty data directory";

/// A complete checkpoint on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointInfo {
    /// The last entry that the state includes.
    pub position: Position,
    /// Whether it came from a leader. Only then may the log end before it: after a crash between storing the checkpoint
    /// and starting the new log.
    pub received: bool,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// The checkpoints of a data directory.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    disk: Arc<dyn Disk>,
    values: ValueFiles,
}

/// Seed of a frame's checksum: frames cannot be swapped between places or files.
pub(crate) fn frame_seed(position: Position, number: u64, kind: u8, length: u32) -> u32 {
    let mut sum = crc32c::crc32c(&position.index.to_le_bytes());
    sum = crc32c::crc32c_append(sum, &position.term.to_le_bytes());
    sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
    sum = crc32c::crc32c_append(sum, &[kind]);
    crc32c::crc32c_append(sum, &length.to_le_bytes())
}

fn name(position: Position) -> String {
    format!(
        "{CHECKPOINTS}/{:016x}-{:016x}.checkpoint",
        position.index, position.term
    )
}

fn parse_name(file_name: &str) -> Option<Position> {
    let (index, term) = file_name.strip_suffix(".checkpoint")?.split_once('-')?;
    if index.len() != 16 || term.len() != 16 {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Position {
        index: number(index)?,
        term: number(term)?,
    })
}

impl Checkpoints {
    /// The checkpoints in an open data directory.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        let values = ValueFiles::new(Arc::clone(&disk));
        Self { disk, values }
    }

    /// Begins a checkpoint; nothing counts before [`CheckpointWriter::finish`]. `received`: it
    /// comes from a leader, chunk by chunk, in order.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn begin(
        &self,
        position: Position,
        meta: &[u8],
        received: bool,
    ) -> Result<CheckpointWriter> {
        self.begin_with(position, (meta, &[]), received)
    }

    /// Begins a checkpoint that needs these files of values, which have to be durable before it is finished.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn begin_with(
        &self,
        position: Position,
        (meta, files): (&[u8], &[u64]),
        received: bool,
    ) -> Result<CheckpointWriter> {
        CheckpointWriter::new(Arc::clone(&self.disk), position, (meta, files), received)
    }

    /// The files of values of the data directory.
    #[must_use]
    pub fn values(&self) -> &ValueFiles {
        &self.values
    }

    /// The oldest version that can read this data directory, once [`Checkpoints::drop_unused_values`] has looked. Reads
    /// nothing.
    #[must_use]
    pub fn readable_since(&self) -> &'static str {
        match self.values.are_there() {
            false => READABLE_SINCE,
            true => VALUES_READABLE_SINCE,
        }
    }

    /// Removes the files of values that no checkpoint names and that this process has not open. Nothing is removed while a
    /// checkpoint is damaged that could name any.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Sync`], [`Error::Stray`].
    pub fn drop_unused_values(&self) -> Result<()> {
        let closed = self.values.closed()?;
        self.drop_unnamed(&closed)
    }

    /// Removes those of these files that no checkpoint names. They were not open before it is looked which are named: one
    /// that another thread finishes meanwhile, and lets its checkpoint name, is not among them, or is named.
    fn drop_unnamed(&self, closed: &BTreeSet<u64>) -> Result<()> {
        if closed.is_empty() {
            return Ok(());
        }
        let Some(named) = self.named_values(usize::MAX)? else {
            return Ok(());
        };
        let named = mutant!(ValuesOfOlderDropped => BTreeSet::new(), else named);
        let unused: Vec<u64> = closed.difference(&named).copied().collect();
        self.values.remove(&unused)
    }

    /// The files of values that the newest checkpoints name, so many of them; `None` while one is damaged that could name
    /// more.
    fn named_values(&self, newest: usize) -> Result<Option<BTreeSet<u64>>> {
        let mut named = BTreeSet::new();
        for position in self.list()?.into_iter().take(newest) {
            match self.open(position) {
                Ok(reader) => named.extend(reader.files()),
                Err(Error::Corrupt { .. } | Error::TooNew { .. }) => return Ok(None),
                // It was pruned meanwhile.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.values.are_used(&named);
        Ok(Some(named))
    }

    /// Whether the newest checkpoint needs this file of values. Taken for granted where that cannot be found out.
    #[must_use]
    pub fn newest_names(&self, file: u64) -> bool {
        match self.named_values(1) {
            Ok(Some(named)) => named.contains(&file),
            Ok(None) | Err(_) => true,
        }
    }

    /// Bytes that are freed, or take the place of others, without any action: of checkpoints that are being written or
    /// received, of those older than the two that are kept, and of files of values that no checkpoint names.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Stray`].
    pub fn passing_bytes(&self) -> Result<u64> {
        let names = self.disk.list(CHECKPOINTS);
        let names = names.map_err(|e| Error::io("list", self.disk.describe(CHECKPOINTS), e))?;
        let (unfinished, whole): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| name.ends_with(".tmp"));
        // Names sort as the checkpoints do.
        let older = whole.len().saturating_sub(KEPT);
        let mut bytes = 0;
        for name in unfinished.iter().chain(&whole[..older]) {
            // One that is deleted or complete meanwhile uses no further space.
            bytes += frame::length_if_there(&*self.disk, &format!("{CHECKPOINTS}/{name}"))?;
        }
        match self.values.are_there() {
            true => Ok(bytes + self.passing_values()?),
            false => Ok(bytes),
        }
    }

    /// Bytes of the checkpoints that are kept and of the files of values that they name: what two checkpoints of another state
    /// take the place of.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Stray`].
    pub fn kept_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for position in self.list()?.into_iter().take(KEPT) {
            bytes += frame::length_if_there(&*self.disk, &name(position))?;
        }
        if self.values.are_there()
            && let Some(named) = self.named_values(KEPT)?
        {
            bytes += self.values.bytes_of(&named)?;
        }
        Ok(bytes)
    }

    fn passing_values(&self) -> Result<u64> {
        match self.named_values(KEPT)? {
            Some(named) => self.values.bytes_beside(&named),
            None => Ok(0),
        }
    }

    /// Writes a whole checkpoint of the local state. Durable when it returns.
    ///
    /// # Errors
    /// Any of this room's; the unfinished file is removed.
    pub fn write(
        &self,
        position: Position,
        meta: &[u8],
        chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<CheckpointInfo> {
        let mut writer = self.begin(position, meta, false)?;
        for chunk in chunks {
            writer.chunk(chunk.as_ref())?;
        }
        writer.finish()
    }

    /// Opens a checkpoint for reading. It stays readable if it is removed meanwhile.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::TooNew`], [`Error::Io`].
    pub fn open(&self, position: Position) -> Result<CheckpointReader> {
        CheckpointReader::open(&self.disk, position)
    }

    /// Positions of all checkpoints by name, newest first; their contents are not checked.
    ///
    /// # Errors
    /// [`Error::Stray`] for a file that is no checkpoint.
    pub fn list(&self) -> Result<Vec<Position>> {
        let path = |name: &str| self.disk.describe(&format!("{CHECKPOINTS}/{name}"));
        let names = self
            .disk
            .list(CHECKPOINTS)
            .map_err(|e| Error::io("list", path(""), e))?;
        let mut found = Vec::new();
        for name in names.iter().filter(|name| !name.ends_with(".tmp")) {
            found.push(parse_name(name).ok_or_else(|| Error::Stray {
                file: path(name),
                what: "this file is not a checkpoint",
                remedy: MOVE_AWAY,
            })?);
        }
        found.sort_unstable();
        found.reverse();
        Ok(found)
    }

    /// Reads a checkpoint to its end and checks everything.
    ///
    /// # Errors
    /// As [`Checkpoints::open`].
    pub fn verify(&self, position: Position) -> Result<CheckpointInfo> {
        let mut reader = self.open(position)?;
        for file in reader.files() {
            self.values.open(*file)?;
        }
        while reader.next_chunk()?.is_some() {}
        Ok(reader.info())
    }

    /// The checkpoint to start from: the newest whole one. A damaged newer one is passed over
    /// only if the log holds every entry from the chosen one to beyond the damaged one, so that
    /// replay brings back the same state. `None` if there is none at all.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the damaged checkpoint otherwise.
    pub fn select(&self, log: &LogShape) -> Result<Option<CheckpointInfo>> {
        let mut damaged: Option<(Position, Error)> = None;
        for position in self.list()? {
            match (self.verify(position), damaged.take()) {
                (Ok(info), None) => return Ok(Some(info)),
                (Ok(info), Some((newest, error))) => {
                    let covered = log.term(position.index) == Some(position.term)
                        && log.last() >= newest.index;
                    let covered = covered || mutant!(DamagePassedOver);
                    return if covered { Ok(Some(info)) } else { Err(error) };
                }
                (Err(error @ Error::Corrupt { .. }), None) => damaged = Some((position, error)),
                (Err(Error::Corrupt { .. }), first) => damaged = first,
                (Err(error), _) => return Err(error),
            }
        }
        match damaged {
            Some((_, error)) => Err(error),
            None => Ok(None),
        }
    }

    /// Removes what is newer than the checkpoint that was chosen at a start. All of it is damaged,
    /// and the log holds what was in it; left there, it would pass for one of the two that are
    /// kept. Returns what was removed, newest first.
    pub(crate) fn discard_after(&self, chosen: Position) -> Result<Vec<Position>> {
        let mut newer = self.list()?;
        newer.retain(|position| *position > chosen);
        for position in &newer {
            frame::remove_if_there(&*self.disk, &name(*position))?;
        }
        if !newer.is_empty() {
            frame::sync_directory(&*self.disk, CHECKPOINTS)?;
        }
        Ok(newer)
    }

    /// The checkpoints that a member tracks, oldest first. One with a damaged header or description does not count: the
    /// newest, from which a start continues, was verified completely.
    ///
    /// # Errors
    /// [`Error::Stray`], [`Error::TooNew`], [`Error::Io`].
    pub fn known(&self) -> Result<Vec<CheckpointInfo>> {
        let mut known = Vec::new();
        for position in self.list()?.into_iter().rev() {
            match self.open(position) {
                Ok(reader) => known.push(reader.info()),
                Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    /// Keeps the two newest checkpoints up to `newest` (which the caller knows to be complete) and
    /// removes the others. Returns the older of the kept: the log is needed from there on.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Sync`].
    pub fn prune(&self, newest: Position) -> Result<Position> {
        let all = self.list()?;
        let kept: Vec<_> = all
            .iter()
            .filter(|at| **at <= newest)
            .take(KEPT)
            .copied()
            .collect();
        let mut removed = false;
        for position in all.iter().filter(|at| **at < newest && !kept.contains(at)) {
            frame::remove_if_there(&*self.disk, &name(*position))?;
            removed = true;
        }
        if removed {
            frame::sync_directory(&*self.disk, CHECKPOINTS)?;
        }
        Ok(kept.last().copied().unwrap_or(newest))
    }

    /// Gives up the older of the two that are kept, to make room for the next, after which there are
    /// two again. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Sync`].
    pub fn keep_newest(&self) -> Result<bool> {
        let all = self.list()?;
        let older = all.get(1..).unwrap_or_default();
        for position in older {
            frame::remove_if_there(&*self.disk, &name(*position))?;
        }
        if !older.is_empty() {
            frame::sync_directory(&*self.disk, CHECKPOINTS)?;
        }
        Ok(!older.is_empty())
    }

    /// Makes room on a full volume for a checkpoint of at least so many bytes, values in files included: the older checkpoint
    /// is deleted, with the values that only it needs, then the reserve, unless there is too little room without it as well.
    /// Returns whether anything was left to give.
    ///
    /// # Errors
    /// As [`Checkpoints::keep_newest`], [`Checkpoints::drop_unused_values`] and [`Reserve::give_up_for`].
    pub fn make_room(&self, least: u64) -> Result<bool> {
        let older = self.keep_newest()?;
        self.drop_unused_values()?;
        let in_files = match self.values.are_there() {
            true => self.values.bytes_beside(&BTreeSet::new())?,
            false => 0,
        };
        let needed = least.saturating_sub(in_files);
        Ok(Reserve::new(Arc::clone(&self.disk)).give_up_for(needed)? || older)
    }

    /// Syncs the name of a checkpoint again, because an earlier process may have stopped at a failed sync of the
    /// directory. For the moment in which nothing else has the data.
    pub(crate) fn confirm(&self, position: Position) -> Result<()> {
        let (name, aside) = (name(position), format!("{}.tmp", name(position)));
        for (from, to) in [(&name, &aside), (&aside, &name)] {
            self.disk
                .rename(from, to)
                .map_err(|e| Error::io("rename", self.disk.describe(from), e))?;
        }
        frame::sync_directory(&*self.disk, CHECKPOINTS)
    }

    /// Removes all checkpoints of a disk that has never been a member.
    pub(crate) fn clear(&self) -> Result<()> {
        for position in self.list()? {
            frame::remove_if_there(&*self.disk, &name(position))?;
        }
        frame::sync_directory(&*self.disk, CHECKPOINTS)?;
        self.drop_unused_values()
    }
}
