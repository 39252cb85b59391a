//! The rows of the checkpoint before, one after the other, each as it was written. Only what a merge needs is read of a row: whatever
//! else is in it was checked when it was written, and has the checksum of its chunk. Never judges the order of rows.

use std::fmt::{self, Debug, Formatter};
use std::ops::Range;

use bytes::Bytes;
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::pieces::{Kind, Piece, damaged, first_item};
use super::{Error, Revision};

/// The number of a row among the kinds of items.
const ROW: u32 = 3;

/// The rows, and where it is in them.
pub(super) struct Earlier<'a> {
    chunks: Box<dyn Iterator<Item = Result<Bytes, String>> + 'a>,
    /// What is left of the chunks that were read.
    buffer: Vec<u8>,
    /// Where in it the next item begins.
    next: usize,
    row: Option<Fields>,
    /// The key of that row.
    key: Vec<u8>,
    /// How many rows were passed.
    passed: u64,
    ended: bool,
}

/// What is known of a row, and where its bytes are.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// What it has besides its key.
    rest: Range<usize>,
    key: Range<usize>,
    /// Whether it names its key: the row before is of another one.
    pub(super) named: bool,
    pub(super) place: (Revision, u32),
    pub(super) tombstone: bool,
    /// The number of the file that its value is in; 0: it is here.
    pub(super) file: u64,
    /// Bytes of its value.
    pub(super) length: u64,
}

impl Debug for Earlier<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Earlier").finish_non_exhaustive()
    }
}

impl<'a> Earlier<'a> {
    /// At the first row of these chunks.
    pub(super) fn new<E: ToString>(
        chunks: impl Iterator<Item = Result<Bytes, E>> + 'a,
    ) -> Result<Self, Error> {
        let mut earlier = Earlier {
            chunks: Box::new(chunks.map(|chunk| chunk.map_err(|error| error.to_string()))),
            buffer: Vec::new(),
            next: 0,
            row: None,
            key: Vec::new(),
            passed: 0,
            ended: false,
        };
        earlier.find_row()?;
        Ok(earlier)
    }

    /// The row that it is at; `None` at the end.
    pub(super) fn row(&self) -> Option<&Fields> {
        self.row.as_ref()
    }

    /// The key of that row.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// What that row has besides its key.
    pub(super) fn rest(&self) -> &[u8] {
        self.row
            .as_ref()
            .map_or(&[], |row| &self.buffer[row.rest.clone()])
    }

    /// Goes to the next row.
    pub(super) fn pass(&mut self) -> Result<(), Error> {
        self.passed += 1;
        self.find_row()
    }

    fn find_row(&mut self) -> Result<(), Error> {
        self.row = None;
        while self.row.is_none() && !self.ended {
            let Some(body) = self.next_item()? else {
                self.read_chunk()?;
                continue;
            };
            match Fields::of(&self.buffer, &body) {
                Some(row) => self.take_row(row)?,
                None => self.take_other(&body)?,
            }
        }
        Ok(())
    }

    /// Where the next item is, without its length; `None` if it has not been read to its end.
    fn next_item(&mut self) -> Result<Option<Range<usize>>, Error> {
        let base = self.next;
        let Some(item) = first_item(&self.buffer[base..])? else {
            return Ok(None);
        };
        self.next = base + item.end;
        Ok(Some(base + item.start..self.next))
    }

    fn read_chunk(&mut self) -> Result<(), Error> {
        let chunk = self.chunks.next();
        let chunk = chunk.ok_or_else(|| damaged("it ends early"))?;
        let chunk = chunk.map_err(|error| damaged(&error))?;
        self.buffer.drain(..self.next);
        self.next = 0;
        self.buffer.extend_from_slice(&chunk);
        Ok(())
    }

    fn take_row(&mut self, row: Fields) -> Result<(), Error> {
        if row.named {
            self.key.clear();
            self.key.extend_from_slice(&self.buffer[row.key.clone()]);
        } else if self.key.is_empty() {
            return Err(damaged("its first row names no key"));
        }
        self.row = Some(row);
        Ok(())
    }

    /// What is no row is written anew; the last of it has the number of rows.
    fn take_other(&mut self, body: &Range<usize>) -> Result<(), Error> {
        let piece = Piece::decode(&self.buffer[body.clone()]);
        let piece = piece.map_err(|error| damaged(&error.to_string()))?;
        let Some(Kind::Tail(tail)) = piece.kind else {
            return Ok(());
        };
        // What follows the last chunk is checked by whoever reads them.
        let more = self.chunks.next().transpose();
        let more = more.map_err(|error| damaged(&error))?;
        if more.is_some() || self.next < self.buffer.len() {
            return Err(damaged("there is more after its end"));
        }
        if tail.records != self.passed {
            return Err(damaged("the number of its records is wrong"));
        }
        self.ended = true;
        Ok(())
    }
}

impl Fields {
    /// Of an item, if it is a row.
    fn of(buffer: &[u8], body: &Range<usize>) -> Option<Self> {
        let item = &buffer[body.clone()];
        let mut rest = item;
        let (ROW, WireType::LengthDelimited) = decode_key(&mut rest).ok()? else {
            return None;
        };
        let length = decode_varint(&mut rest).ok()?;
        if rest.len() as u64 != length {
            return None;
        }
        let mut row = Fields {
            rest: body.end - rest.len()..body.end,
            ..Fields::default()
        };
        while !rest.is_empty() {
            let (tag, wire) = decode_key(&mut rest).ok()?;
            match (tag, wire) {
                (1 | 2, WireType::LengthDelimited) => {
                    let length = decode_varint(&mut rest).ok()? as usize;
                    let from = body.end - rest.len();
                    rest = rest.get(length..)?;
                    if tag == 1 {
                        row.named = true;
                        row.key = from..from + length;
                        // It is the first one.
                        row.rest.start = from + length;
                    } else {
                        row.length = length as u64;
                    }
                }
                (4, WireType::Varint) => {
                    row.place.0 = decode_varint(&mut rest).ok()?.cast_signed();
                }
                (7, WireType::Varint) => row.place.1 = decode_varint(&mut rest).ok()? as u32,
                (8, WireType::Varint) => row.tombstone = decode_varint(&mut rest).ok()? != 0,
                (9, WireType::Varint) => row.file = decode_varint(&mut rest).ok()?,
                (11, WireType::Varint) => row.length = decode_varint(&mut rest).ok()?,
                _ => skip_field(wire, tag, &mut rest, DecodeContext::default()).ok()?,
            }
        }
        Some(row)
    }
}
