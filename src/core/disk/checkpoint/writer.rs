//! Writes one checkpoint into a temporary file and names it once it is whole and synced.

use std::sync::Arc;

use super::{
    CheckpointInfo, FLAG_RECEIVED, FORMAT, FORMAT_VALUES, FRAME_CHUNK, FRAME_END, FRAME_META,
    FRAME_VALUES, MAGIC, MAX_CHUNK_BYTES, frame_seed, name,
};
use crate::disk::device::{Disk, DiskFile};
use crate::disk::directory::CHECKPOINTS;
use crate::disk::error::{Error, Result};
use crate::disk::frame;
use crate::mutants::mutant;
use crate::raft::Position;

/// Written in pieces of this size.
const BUFFER: usize = 1 << 20;
/// Maximum bytes between syncs, so that no sync delays the log's for long.
const SYNC_EVERY: u64 = 8 << 20;

/// A checkpoint in the making. Dropping it unfinished removes it.
#[derive(Debug)]
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    temporary: String,
    position: Position,
    received: bool,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    frames: u64,
    chunks: u64,
    bytes: u64,
    total: u32,
    spare: u64,
    finished: bool,
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
        let file = disk
            .create(&temporary)
            .map_err(|e| Error::io("create", disk.describe(&temporary), e))?;
        let mut writer = Self {
            disk,
            file,
            temporary,
            position,
            received,
            buffer: Vec::with_capacity(BUFFER),
            written: 0,
            synced: 0,
            frames: 0,
            chunks: 0,
            bytes: 0,
            total: 0,
            spare: 0,
            finished: false,
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
        self.spare = spare;
        self
    }

    fn head(&mut self, format: u32) {
        let mut fields = Vec::with_capacity(20);
        fields.extend_from_slice(&self.position.index.to_le_bytes());
        fields.extend_from_slice(&self.position.term.to_le_bytes());
        let flags = if self.received { FLAG_RECEIVED } else { 0 };
        fields.extend_from_slice(&flags.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), &fields);
        self.buffer.extend_from_slice(&MAGIC);
        self.buffer.extend_from_slice(&format.to_le_bytes());
        self.buffer.extend_from_slice(&sum.to_le_bytes());
        self.buffer.extend_from_slice(&fields);
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
        self.flush()?;
        if !mutant!(RenameBeforeSync) {
            self.sync()?;
        }
        let path = || self.disk.describe(&self.temporary);
        self.disk
            .rename(&self.temporary, &name(self.position))
            .map_err(|e| Error::io("rename", path(), e))?;
        self.finished = true;
        frame::sync_directory(&*self.disk, CHECKPOINTS)?;
        mutant!(RenameBeforeSync => self.sync()?);
        Ok(CheckpointInfo {
            position: self.position,
            received: self.received,
            bytes: self.written,
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
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer
            .extend_from_slice(&crc32c::crc32c_append(seed, payload).to_le_bytes());
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
            if self.written - self.synced >= SYNC_EVERY {
                self.sync()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let path = || self.disk.describe(&self.temporary);
        if self.spare > 0 {
            let free = self.disk.free_bytes();
            let free = free.map_err(|e| Error::io("measure the volume of", path(), e))?;
            if free < self.spare.saturating_add(self.buffer.len() as u64) {
                return Err(Error::NoRoom {
                    file: path(),
                    written: self.written,
                    spare: self.spare,
                });
            }
        }
        self.file
            .write_at(self.written, &self.buffer)
            .map_err(|e| Error::io("write", path(), e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let path = || self.disk.describe(&self.temporary);
        self.file.sync().map_err(|source| Error::Sync {
            file: path(),
            source,
        })?;
        self.synced = self.written;
        Ok(())
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What stays behind is removed at the next start.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}
