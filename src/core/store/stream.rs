//! The stream of a checkpoint made into another: with the values in it, as it leaves a member, or with places of values in a
//! file, as a member with such files keeps what it receives. With a bounded part of it in memory.
//!
//! Never reads or writes a file itself, and never judges whether the stream is whole: the import does.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::Error;
use super::checkpoint::CHUNK_BYTES;
use super::pieces::{FORMAT, FORMAT_PLACED, Head, Kind, Piece, Pieces, Row, damaged, place};
use super::row_bytes::RowBytes;
use super::value::{ValueFile, sum};

/// A stream with places of values, made into one that has the values: what is sent to other members
/// and read by versions without files of values.
#[derive(Debug)]
pub struct Inline {
    pieces: Pieces,
    files: BTreeMap<u64, Arc<ValueFile>>,
    out: BytesMut,
}

impl Inline {
    /// Begins; `files` are those that the stream may name.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = Arc<ValueFile>>) -> Self {
        let files = files.into_iter().map(|file| (file.number(), file));
        Inline {
            pieces: Pieces::default(),
            files: files.collect(),
            out: BytesMut::new(),
        }
    }

    /// Takes the next chunk of the stream. Reads no value.
    pub fn push(&mut self, chunk: &[u8]) {
        self.pieces.push(chunk);
    }

    /// The next full chunk of the other stream; `None`: another [`push`](Self::push) has to come first.
    ///
    /// # Errors
    /// [`Error::Checkpoint`], [`Error::Value`].
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.out.len() >= CHUNK_BYTES {
                return Ok(Some(self.out.split_to(CHUNK_BYTES).freeze()));
            }
            let Some(piece) = self.pieces.next()? else {
                return Ok(None);
            };
            // A buffer that grows cannot be too small.
            let _ = self.whole(piece)?.encode_length_delimited(&mut self.out);
        }
    }

    /// What is left after the last chunk.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the stream ends within an item.
    pub fn finish(self) -> Result<Option<Bytes>, Error> {
        rest(&self.pieces, self.out)
    }

    fn whole(&self, piece: Piece) -> Result<Piece, Error> {
        let kind = match piece.kind {
            Some(Kind::Head(head)) if head.format == FORMAT_PLACED => Some(Kind::Head(Head {
                format: FORMAT,
                ..head
            })),
            Some(Kind::Row(row)) => Some(Kind::Row(
                match place(&RowBytes::decoded(&row), &self.files)? {
                    None => row,
                    Some(place) => Row {
                        value: place.read()?,
                        file: 0,
                        offset: 0,
                        length: 0,
                        sum: 0,
                        ..row
                    },
                },
            )),
            other => other,
        };
        Ok(Piece { kind })
    }
}

/// A stream that has all its values, made into one that has places of the larger ones in a file.
#[derive(Debug)]
pub struct Outline {
    pieces: Pieces,
    file: u64,
    from: usize,
    out: BytesMut,
}

impl Outline {
    /// Begins; values of at least `from` bytes go to the file of this number.
    #[must_use]
    pub fn new(file: u64, from: usize) -> Self {
        Outline {
            pieces: Pieces::default(),
            file,
            from,
            out: BytesMut::new(),
        }
    }

    /// Takes the next chunk of the stream. Writes no value.
    pub fn push(&mut self, chunk: &[u8]) {
        self.pieces.push(chunk);
    }

    /// The next full chunk of the other stream; `None`: another [`push`](Self::push) has to come first. `put` writes a
    /// value to the file and says where.
    ///
    /// # Errors
    /// [`Error::Checkpoint`], those of `put`.
    pub fn next_chunk<E: From<Error>>(
        &mut self,
        mut put: impl FnMut(&[u8]) -> Result<u64, E>,
    ) -> Result<Option<Bytes>, E> {
        loop {
            if self.out.len() >= CHUNK_BYTES {
                return Ok(Some(self.out.split_to(CHUNK_BYTES).freeze()));
            }
            let Some(piece) = self.pieces.next()? else {
                return Ok(None);
            };
            // A buffer that grows cannot be too small.
            let _ = self
                .placed(piece, &mut put)?
                .encode_length_delimited(&mut self.out);
        }
    }

    /// What is left after the last chunk.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the stream ends within an item.
    pub fn finish(self) -> Result<Option<Bytes>, Error> {
        rest(&self.pieces, self.out)
    }

    fn placed<E: From<Error>>(
        &self,
        piece: Piece,
        put: &mut impl FnMut(&[u8]) -> Result<u64, E>,
    ) -> Result<Piece, E> {
        let kind = match piece.kind {
            Some(Kind::Head(head)) if head.format == FORMAT => Some(Kind::Head(Head {
                format: FORMAT_PLACED,
                ..head
            })),
            // The files that it names are the sender's.
            Some(Kind::Head(head)) if head.format == FORMAT_PLACED => {
                return Err(damaged("it names files of another member").into());
            }
            Some(Kind::Row(row)) if row.file != 0 => {
                return Err(damaged("a row names a file of another member").into());
            }
            Some(Kind::Row(row)) if row.value.len() >= self.from => Some(Kind::Row(Row {
                offset: put(&row.value)?,
                file: self.file,
                // It is a part of an item, which is not longer than this.
                length: u32::try_from(row.value.len()).unwrap_or(u32::MAX),
                sum: sum(&row.value),
                value: Bytes::new(),
                ..row
            })),
            other => other,
        };
        Ok(Piece { kind })
    }
}

fn rest(pieces: &Pieces, out: BytesMut) -> Result<Option<Bytes>, Error> {
    match pieces.is_empty() {
        true => Ok((!out.is_empty()).then(|| out.freeze())),
        false => Err(damaged("it ends early")),
    }
}
