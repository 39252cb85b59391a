//! Reads one checkpoint in order and checks every frame, the count and the total.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    CheckpointInfo, FLAG_RECEIVED, FORMAT, FORMAT_VALUES, FRAME_CHUNK, FRAME_END, FRAME_HEAD,
    FRAME_META, FRAME_VALUES, HEAD, MAGIC, MAX_CHUNK_BYTES, REMEDY, frame_seed, name,
};
use crate::disk::device::{Disk, DiskFile, read_exact};
use crate::disk::error::{Error, Result};
use crate::disk::frame::{self, Cursor};
use crate::mutants::mutant;
use crate::raft::Position;

/// A checkpoint open for reading, at some chunk.
#[derive(Debug)]
pub struct CheckpointReader {
    path: String,
    file: Arc<dyn DiskFile>,
    info: CheckpointInfo,
    meta: Bytes,
    format: u32,
    files: Vec<u64>,
    at: u64,
    frames: u64,
    chunks: u64,
    bytes: u64,
    total: u32,
    ended: bool,
}

impl CheckpointReader {
    pub(crate) fn open(disk: &Arc<dyn Disk>, position: Position) -> Result<Self> {
        let name = name(position);
        let path = disk.describe(&name);
        let file = disk
            .open(&name)
            .map_err(|e| Error::io("open", path.clone(), e))?;
        let bytes = file
            .length()
            .map_err(|e| Error::io("measure", path.clone(), e))?;
        let info = CheckpointInfo {
            position,
            received: false,
            bytes,
        };
        let mut reader = Self {
            path,
            file,
            info,
            meta: Bytes::new(),
            format: FORMAT,
            files: Vec::new(),
            at: HEAD as u64,
            frames: 0,
            chunks: 0,
            bytes: 0,
            total: 0,
            ended: false,
        };
        reader.head()?;
        match reader.frame()? {
            (FRAME_META, meta) => reader.meta = meta,
            _ => return Err(reader.damaged(HEAD as u64, "it does not begin with its description")),
        }
        if reader.format == FORMAT_VALUES {
            reader.read_files()?;
        }
        Ok(reader)
    }

    fn read_files(&mut self) -> Result<()> {
        let at = self.at;
        let (FRAME_VALUES, numbers) = self.frame()? else {
            return Err(self.damaged(at, "the files of its values are not named"));
        };
        let mut cursor = Cursor(&numbers);
        self.files = std::iter::from_fn(|| cursor.u64()).collect();
        match cursor.0.is_empty() && !self.files.is_empty() {
            true => Ok(()),
            false => Err(self.damaged(at, "the names of the files of its values are short")),
        }
    }

    fn head(&mut self) -> Result<()> {
        let mut head = [0; HEAD];
        self.read(0, &mut head)?;
        if head[..8] != MAGIC {
            return Err(self.damaged(0, "it does not begin with the magic bytes of a checkpoint"));
        }
        let mut cursor = Cursor(&head[8..]);
        let (Some(found), Some(sum)) = (cursor.u32(), cursor.u32()) else {
            return Err(self.damaged(8, "its head is short"));
        };
        let checksum =
            |format: u32| crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), cursor.0);
        if found > FORMAT_VALUES && !frame::rotten(FORMAT_VALUES, sum, checksum) {
            return Err(Error::TooNew {
                file: self.path.clone(),
                found,
                supported: FORMAT_VALUES,
            });
        }
        if checksum(found) != sum {
            return Err(self.damaged(8, "its head does not match its checksum"));
        }
        self.format = found;
        let (Some(index), Some(term), Some(flags)) = (cursor.u64(), cursor.u64(), cursor.u32())
        else {
            return Err(self.damaged(8, "its head is short"));
        };
        if (Position { index, term }) != self.info.position {
            return Err(self.damaged(16, "the file was renamed: its head names another entry"));
        }
        self.info.received = flags & FLAG_RECEIVED != 0;
        Ok(())
    }

    /// What the node wrote in addition to the chunks.
    pub fn meta(&self) -> &Bytes {
        &self.meta
    }

    /// The files of values that it needs, by number.
    pub fn files(&self) -> &[u64] {
        &self.files
    }

    /// What is known of the file.
    pub fn info(&self) -> CheckpointInfo {
        self.info
    }

    /// The next chunk; `None` after the last one, once count and total were found right.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if anything differs from what was written.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        if self.ended {
            return Ok(None);
        }
        let at = self.at;
        match self.frame()? {
            (FRAME_CHUNK, chunk) => {
                self.chunks += 1;
                self.bytes += chunk.len() as u64;
                self.total = crc32c::crc32c_append(self.total, &chunk);
                Ok(Some(chunk))
            }
            (FRAME_END, end) => {
                let mut cursor = Cursor(&end);
                let found = (cursor.u64(), cursor.u64(), cursor.u32());
                if found != (Some(self.chunks), Some(self.bytes), Some(self.total)) {
                    return Err(self.damaged(at, "count or total of its chunks do not match"));
                }
                if self.at != self.info.bytes {
                    return Err(self.damaged(self.at, "bytes follow its end"));
                }
                self.ended = true;
                Ok(None)
            }
            _ => Err(self.damaged(at, "an unknown kind of frame")),
        }
    }

    fn frame(&mut self) -> Result<(u8, Bytes)> {
        let at = self.at;
        let mut head = [0; FRAME_HEAD];
        self.read(at, &mut head)?;
        let mut cursor = Cursor(&head);
        let (Some(kind), Some(length), Some(sum)) = (cursor.u8(), cursor.u32(), cursor.u32())
        else {
            return Err(self.damaged(at, "a frame is short"));
        };
        if length as usize > MAX_CHUNK_BYTES {
            return Err(self.damaged(at, "a frame is longer than any that is written"));
        }
        let mut payload = vec![0; length as usize];
        self.read(at + FRAME_HEAD as u64, &mut payload)?;
        let seed = frame_seed(self.info.position, self.frames, kind, length);
        if crc32c::crc32c_append(seed, &payload) != sum && !mutant!(CheckpointRot) {
            return Err(self.damaged(at, "a frame does not match its checksum"));
        }
        self.frames += 1;
        self.at = at + (FRAME_HEAD + payload.len()) as u64;
        Ok((kind, Bytes::from(payload)))
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        read_exact(&*self.file, at, buffer).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(at, "the file ends early"),
            _ => Error::io("read", self.path.clone(), error),
        })
    }

    fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::Corrupt {
            file: self.path.clone(),
            offset,
            what: what.to_owned(),
            remedy: REMEDY,
        }
    }
}

/// Chunks in order; ends after the first error.
impl Iterator for CheckpointReader {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_chunk().transpose();
        self.ended |= matches!(next, Some(Err(_)));
        next
    }
}
