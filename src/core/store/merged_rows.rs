//! The rows of a merged checkpoint: which of them compaction has left, each written once its key is known to need it, and what they
//! add up to. Never knows where a row comes from.

use bytes::{BufMut as _, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use super::pieces::damaged;
use super::record::RECORD_OVERHEAD;
use super::view::View;
use super::written::{Counted, UsedFiles};
use super::{Error, Revision};
use crate::mutants::mutant;

/// Before a row in its item, and before the key in its row.
const ROW: u8 = 3 << 3 | 2;
const KEY: u8 = 1 << 3 | 2;

/// A row, and its bytes without its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) rest: &'a [u8],
    pub(super) place: (Revision, u32),
    pub(super) tombstone: bool,
    /// The number of the file that its value is in; 0: it is here.
    pub(super) file: u64,
    /// Bytes of its value.
    pub(super) length: u64,
}

/// Rows in the order of their keys, and of each key by age.
#[derive(Debug)]
pub(super) struct MergedRows {
    compacted: Revision,
    key: Vec<u8>,
    /// Whether a row of this key was written, and whether the last one deleted it.
    written: Option<bool>,
    /// The last row of this key that is not above the compacted revision.
    held: Option<Held>,
    /// The bytes of that row.
    held_bytes: Vec<u8>,
    files: Counted,
    records: u64,
    bytes: u64,
    /// Keys whose last row is no tombstone.
    keys: u64,
}

/// A line without its bytes.
#[derive(Clone, Copy, Debug)]
struct Held {
    place: (Revision, u32),
    tombstone: bool,
    file: u64,
    length: u64,
}

impl MergedRows {
    /// None yet. Values are in these files only.
    pub(super) fn new(compacted: Revision, files: UsedFiles) -> Self {
        MergedRows {
            compacted,
            key: Vec::new(),
            written: None,
            held: None,
            held_bytes: Vec::new(),
            files: Counted::new(files),
            records: 0,
            bytes: 0,
            keys: 0,
        }
    }

    /// The key of the rows that are being added.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The next rows are of this key.
    pub(super) fn begin(&mut self, key: &[u8], out: &mut BytesMut) -> Result<(), Error> {
        self.end_key(out)?;
        if *self.key >= *key {
            return Err(damaged("its keys are out of order"));
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(())
    }

    /// Adds a row of this key.
    pub(super) fn add(&mut self, line: &Line<'_>, out: &mut BytesMut) -> Result<(), Error> {
        if self.key.is_empty() {
            return Err(damaged("its first row names no key"));
        }
        if line.place.0 > self.compacted {
            self.write_held(out)?;
            return self.write(line, out);
        }
        if mutant!(MergedForgotten) {
            self.write_held(out)?;
        }
        // Of those that are not above it the last one counts.
        self.held = Some(Held {
            place: line.place,
            tombstone: line.tombstone,
            file: line.file,
            length: line.length,
        });
        self.held_bytes.clear();
        self.held_bytes.extend_from_slice(line.rest);
        Ok(())
    }

    /// All were added: they are those of this state. Returns how many were written.
    pub(super) fn end(&mut self, view: &View, out: &mut BytesMut) -> Result<u64, Error> {
        self.end_key(out)?;
        if mutant!(MergedUnproven) {
            return Ok(self.records);
        }
        if self.bytes + view.state.leases.size() != view.db_size() {
            return Err(damaged(
                "with what has changed its size is not that of the state",
            ));
        }
        if self.keys != view.key_count() {
            return Err(damaged(
                "with what has changed it has other keys than the state",
            ));
        }
        Ok(self.records)
    }

    /// The files in which they have their values.
    pub(super) fn into_files(self) -> UsedFiles {
        self.files.used()
    }

    fn end_key(&mut self, out: &mut BytesMut) -> Result<(), Error> {
        self.write_held(out)?;
        self.keys += u64::from(self.written.take() == Some(false));
        Ok(())
    }

    fn write_held(&mut self, out: &mut BytesMut) -> Result<(), Error> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        // What the compacted revision itself superseded is forgotten too, its tombstones are not.
        if held.tombstone && held.place.0 < self.compacted {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.held_bytes);
        let line = Line {
            rest: &bytes,
            place: held.place,
            tombstone: held.tombstone,
            file: held.file,
            length: held.length,
        };
        let written = self.write(&line, out);
        self.held_bytes = bytes;
        written
    }

    fn write(&mut self, line: &Line<'_>, out: &mut BytesMut) -> Result<(), Error> {
        if line.file != 0 && !self.files.add(line.file, line.length) {
            return Err(damaged("it has a value in a file that is not named"));
        }
        self.records += 1;
        self.bytes += self.key.len() as u64 + line.length + RECORD_OVERHEAD;
        let named = self.written.is_none();
        self.written = Some(line.tombstone);
        let key = self.key.len();
        let before = match named {
            true => 1 + encoded_len_varint(key as u64) + key,
            false => 0,
        };
        let row = before + line.rest.len();
        let item = 1 + encoded_len_varint(row as u64) + row;
        encode_varint(item as u64, out);
        out.put_u8(ROW);
        encode_varint(row as u64, out);
        if named {
            out.put_u8(KEY);
            encode_varint(key as u64, out);
            out.extend_from_slice(&self.key);
        }
        out.extend_from_slice(line.rest);
        Ok(())
    }
}
