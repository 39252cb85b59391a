//! Writes one checkpoint into a temporary file and names it once it is whole and synced.

use std::sync::Arc;

use super::{
    CheckpointInfo, FLAG_RECEIVED, FORMAT, FORMAT_VALUES, FRAME_CHUNK, FRAME_END, FRAME_META,
    FRAME_VALUES, MAGIC, MAX_CHUNK_BYTES, frame_seed, name,
};
use crate::disk::append::Appender;
use crate::disk::device::Disk;
use crate::disk::directory::CHECKPOINTS;
use crate::disk::error::{Error, Result};
use crate::disk::frame;
use crate::mutants::mutant;
use crate::raft::Position;

/// A checkpoint in the making. Dropping it unfinished removes it.
#[derive(Debug)]
pub struct CheckpointWriter {
    out: Appender,
    position: Position,
    received: bool,
    frames: u64,
    chunks: u64,
    bytes: u64,
    total: u32,
}

impl CheckpointWriter {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        position: Position,
        (meta, files): (&[u8], &[u64]),
        received: bool,
    ) -> Result<Self> {
        let origin = if received { "received" } else { "local" };
        let (index, term) = (position.index, position.term);
        let temporary = format!("{CHECKPOINTS}/{index:016x}-{term:016x}-{origin}.tmp");
        frame::remove_if_there(&*disk, &temporary)?;
        let mut writer = Self {
            out: Appender::create(disk, temporary)?,
            position,
            received,
            frames: 0,
            chunks: 0,
            bytes: 0,
            total: 0,
        };
        writer.head(match files {
            [] => FORMAT,
            _ => FORMAT_VALUES,
        });
        writer.frame(FRAME_META, meta)?;
        if !files.is_empty() {
            let numbers: Vec<u8> = files.iter().flat_map(|it| it.to_le_bytes()).collect();
            writer.frame(FRAME_VALUES, &numbers)?;
        }
        Ok(writer)
    }

    /// From here on this many bytes of the volume stay free: the sender determines the size, and must not use the space
    /// that the log needs meanwhile.
    #[must_use]
    pub fn leaving(mut self, spare: u64) -> Self {
        self.out.leave(spare);
        self
    }

    fn head(&mut self, format: u32) {
        let mut fields = Vec::with_capacity(20);
        fields.extend_from_slice(&self.position.index.to_le_bytes());
        fields.extend_from_slice(&self.position.term.to_le_bytes());
        let flags = if self.received { FLAG_RECEIVED } else { 0 };
        fields.extend_from_slice(&flags.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), &fields);
        self.out.push(&MAGIC);
        self.out.push(&format.to_le_bytes());
        self.out.push(&sum.to_le_bytes());
        self.out.push(&fields);
    }

    /// Adds the next chunk, at most [`MAX_CHUNK_BYTES`].
    ///
    /// # Errors
    /// Any of this room's; the checkpoint must then be abandoned.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<()> {
        self.frame(FRAME_CHUNK, chunk)?;
        self.chunks += 1;
        self.bytes += chunk.len() as u64;
        self.total = crc32c::crc32c_append(self.total, chunk);
        Ok(())
    }

    /// How many chunks were added.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Ends the checkpoint: sync, rename, sync of the directory. From here on it counts.
    ///
    /// # Errors
    /// Any of this room's.
    pub fn finish(mut self) -> Result<CheckpointInfo> {
        let mut end = Vec::with_capacity(20);
        end.extend_from_slice(&self.chunks.to_le_bytes());
        end.extend_from_slice(&self.bytes.to_le_bytes());
        end.extend_from_slice(&self.total.to_le_bytes());
        self.frame(FRAME_END, &end)?;
        self.out.flush()?;
        if !mutant!(RenameBeforeSync) {
            self.out.sync()?;
        }
        let disk = Arc::clone(self.out.disk());
        disk.rename(self.out.name(), &name(self.position))
            .map_err(|e| Error::io("rename", self.out.path(), e))?;
        self.out.keep();
        frame::sync_directory(&*disk, CHECKPOINTS)?;
        mutant!(RenameBeforeSync => self.out.sync()?);
        Ok(CheckpointInfo {
            position: self.position,
            received: self.received,
            bytes: self.out.length(),
        })
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        if payload.len() > MAX_CHUNK_BYTES {
            return Err(Error::Misuse(format!(
                "a chunk of {} bytes is above {MAX_CHUNK_BYTES}",
                payload.len()
            )));
        }
        let length = payload.len() as u32;
        let seed = frame_seed(self.position, self.frames, kind, length);
        self.frames += 1;
        self.out.push(&[kind]);
        self.out.push(&length.to_le_bytes());
        let sum = crc32c::crc32c_append(seed, payload);
        self.out.push(&sum.to_le_bytes());
        self.out.push(payload);
        self.out.step()
    }
}
