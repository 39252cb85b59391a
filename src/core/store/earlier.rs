//! The rows of the checkpoint before, one after the other, each as it was written. Only what a merge needs is read of a row: whatever
//! else is in it was checked when it was written, and has the checksum of its chunk. Never judges the order of rows.

use std::fmt::{self, Debug, Formatter};
use std::ops::Range;

use bytes::Bytes;
use prost::Message as _;

use super::merged_rows::Line;
use super::pieces::{Kind, Piece, damaged};
use super::row_bytes::{Items, RowBytes};
use super::{Error, Revision};

/// The rows, and where it is in them.
pub(super) struct Earlier<'a> {
    chunks: Box<dyn Iterator<Item = Result<Bytes, String>> + 'a>,
    items: Items,
    row: Option<Fields>,
    /// The key of that row.
    key: Vec<u8>,
    /// How many rows were passed.
    passed: u64,
    ended: bool,
}

/// What is known of a row, and where its bytes are.
#[derive(Debug)]
pub(super) struct Fields {
    /// What it has besides its key.
    rest: Range<usize>,
    /// Whether it names its key: the row before is of another one.
    pub(super) named: bool,
    pub(super) place: (Revision, u32),
    tombstone: bool,
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
            items: Items::default(),
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
        let row = self.row.as_ref();
        row.map_or(&[], |row| self.items.get(row.rest.clone()))
    }

    /// Goes to the next row.
    pub(super) fn pass(&mut self) -> Result<(), Error> {
        self.passed += 1;
        self.find_row()
    }

    fn find_row(&mut self) -> Result<(), Error> {
        self.row = None;
        while self.row.is_none() && !self.ended {
            let Some(item) = self.items.next()? else {
                let chunk = self.chunks.next();
                let chunk = chunk.ok_or_else(|| damaged("it ends early"))?;
                self.items.push(&chunk.map_err(|error| damaged(&error))?);
                continue;
            };
            match RowBytes::of(self.items.get(item.clone())) {
                Some(row) => {
                    if !row.key.is_empty() {
                        self.key.clear();
                        self.key.extend_from_slice(row.key);
                    } else if self.key.is_empty() {
                        return Err(damaged("its first row names no key"));
                    }
                    self.row = Some(Fields::of(&row, item.end));
                }
                None => self.take_other(item)?,
            }
        }
        Ok(())
    }

    /// What is no row is written anew; the last of it has the number of rows.
    fn take_other(&mut self, item: Range<usize>) -> Result<(), Error> {
        let piece = Piece::decode(self.items.get(item));
        let piece = piece.map_err(|error| damaged(&error.to_string()))?;
        let tail = match piece.kind {
            Some(Kind::Tail(tail)) => tail,
            Some(Kind::Row(_)) => return Err(damaged("a row is not as rows are written")),
            _ => return Ok(()),
        };
        // What follows the last chunk is checked by whoever reads them.
        let more = self.chunks.next().transpose();
        let more = more.map_err(|error| damaged(&error))?;
        if more.is_some() || !self.items.is_empty() {
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
    /// Of a row whose item ends there.
    fn of(row: &RowBytes<'_>, end: usize) -> Self {
        Fields {
            rest: end - row.rest.len()..end,
            named: !row.key.is_empty(),
            place: (row.main, row.sub),
            tombstone: row.tombstone,
            file: row.file,
            length: row.value_bytes(),
        }
    }

    /// The same as a line.
    pub(super) fn line<'a>(&self, rest: &'a [u8]) -> Line<'a> {
        Line {
            rest,
            place: self.place,
            tombstone: self.tombstone,
            file: self.file,
            length: self.length,
        }
    }
}
