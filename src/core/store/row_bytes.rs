//! The items of a checkpoint's stream one after the other as bytes, and its rows as they are there: most of a start and of a merge is rows, so
//! these are read without a copy and without counting who shares them. Never reads another kind of item, and never judges a row.

use std::ops::Range;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::pieces::{Row, first_item};
use super::{Error, LeaseId, Revision};

/// The number of a row among the kinds of items.
const ROW: u32 = 3;

/// Bytes of a stream, taken apart into its items.
#[derive(Debug, Default)]
pub(super) struct Items {
    buffer: Vec<u8>,
    /// Where in it the next item begins.
    next: usize,
}

impl Items {
    /// Adds bytes; what was given before is gone.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.next);
        self.next = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// Whether there is nothing behind the last item that was given.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.buffer.len()
    }

    /// Where the next item is, without its length; `None` if it has not come to its end.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, Error> {
        let base = self.next;
        let Some(item) = first_item(&self.buffer[base..])? else {
            return Ok(None);
        };
        self.next = base + item.end;
        Ok(Some(base + item.start..self.next))
    }

    /// An item that was given since the last bytes came.
    pub(super) fn get(&self, item: Range<usize>) -> &[u8] {
        &self.buffer[item]
    }
}

/// A row in the bytes of its item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowBytes<'a> {
    /// Empty: the key of the row before.
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// What it has besides its key.
    pub(super) rest: &'a [u8],
    pub(super) create: Revision,
    pub(super) main: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    pub(super) sub: u32,
    pub(super) tombstone: bool,
    /// As in [`Row`].
    pub(super) file: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) sum: u32,
}

impl<'a> RowBytes<'a> {
    /// Of an item, if it is a row and is as rows are written; others are for the general decoder.
    pub(super) fn of(item: &'a [u8]) -> Option<Self> {
        let mut rest = item;
        let (ROW, WireType::LengthDelimited) = decode_key(&mut rest).ok()? else {
            return None;
        };
        if take(&mut rest)? != rest.len() as u64 {
            return None;
        }
        let mut row = RowBytes {
            rest,
            ..RowBytes::default()
        };
        while !rest.is_empty() {
            row.take_field(&mut rest)?;
        }
        Some(row)
    }

    fn take_field(&mut self, rest: &mut &'a [u8]) -> Option<()> {
        match decode_key(rest).ok()? {
            (1, WireType::LengthDelimited) => {
                self.key = take_bytes(rest)?;
                // It is written first.
                self.rest = rest;
            }
            (2, WireType::LengthDelimited) => self.value = take_bytes(rest)?,
            (3, WireType::Varint) => self.create = take(rest)?.cast_signed(),
            (4, WireType::Varint) => self.main = take(rest)?.cast_signed(),
            (5, WireType::Varint) => self.version = take(rest)?.cast_signed(),
            (6, WireType::Varint) => self.lease = take(rest)?.cast_signed(),
            (7, WireType::Varint) => self.sub = take(rest)? as u32,
            (8, WireType::Varint) => self.tombstone = take(rest)? != 0,
            (9, WireType::Varint) => self.file = take(rest)?,
            (10, WireType::Varint) => self.offset = take(rest)?,
            (11, WireType::Varint) => self.length = take(rest)? as u32,
            (12, WireType::ThirtyTwoBit) => {
                let (sum, behind) = rest.split_first_chunk()?;
                (self.sum, *rest) = (u32::from_le_bytes(*sum), behind);
            }
            // Of another type than it is written: the general decoder refuses it.
            (1..=12, _) => return None,
            (tag, wire) => skip_field(wire, tag, rest, DecodeContext::default()).ok()?,
        }
        Some(())
    }

    /// The same of a row that was decoded in the general way. What it has besides its key is not known.
    pub(super) fn decoded(row: &'a Row) -> Self {
        RowBytes {
            key: &row.key,
            value: &row.value,
            rest: &[],
            create: row.create,
            main: row.main,
            version: row.version,
            lease: row.lease,
            sub: row.sub,
            tombstone: row.tombstone,
            file: row.file,
            offset: row.offset,
            length: row.length,
            sum: row.sum,
        }
    }

    /// Bytes of its value, wherever that is.
    pub(super) fn value_bytes(&self) -> u64 {
        match self.file {
            0 => self.value.len() as u64,
            _ => self.length.into(),
        }
    }
}

/// A number of variable length; most are of one byte.
#[inline]
fn take(rest: &mut &[u8]) -> Option<u64> {
    if let [byte @ ..0x80, behind @ ..] = *rest {
        *rest = behind;
        return Some((*byte).into());
    }
    decode_varint(rest).ok()
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::pieces::{Kind, Piece};
    use super::*;

    fn item(row: Row) -> Vec<u8> {
        let kind = Some(Kind::Row(row));
        Piece { kind }.encode_to_vec()
    }

    /// Every field, and each of them left out: what is read of the bytes is what the general decoder gives.
    #[test]
    fn a_row_is_read_as_the_general_decoder_reads_it() {
        let full = Row {
            key: b"key".as_slice().into(),
            value: b"value".as_slice().into(),
            create: 5,
            main: 1 << 40,
            version: -1,
            lease: 1 << 62,
            sub: 300,
            tombstone: true,
            file: 7,
            offset: 1 << 50,
            length: 70_000,
            sum: u32::MAX,
        };
        let mut rows = vec![full.clone(), Row::default()];
        let without: [fn(&mut Row); 12] = [
            |row| row.key.clear(),
            |row| row.value.clear(),
            |row| row.create = 0,
            |row| row.main = 0,
            |row| row.version = 0,
            |row| row.lease = 0,
            |row| row.sub = 0,
            |row| row.tombstone = false,
            |row| row.file = 0,
            |row| row.offset = 0,
            |row| row.length = 0,
            |row| row.sum = 0,
        ];
        rows.extend(without.map(|less| {
            let mut row = full.clone();
            less(&mut row);
            row
        }));
        for row in rows {
            let bytes = item(row.clone());
            let read = RowBytes::of(&bytes).expect("a row");
            let expected = RowBytes {
                rest: read.rest,
                ..RowBytes::decoded(&row)
            };
            assert_eq!(format!("{read:?}"), format!("{expected:?}"));
            assert!(bytes.ends_with(read.rest), "it ends with its item");
        }
    }

    /// A field of another type than it is written with was skipped, where the general decoder refuses the row.
    #[test]
    fn other_rows_are_left_to_the_general_decoder() {
        // A lease (6) as bytes; a length beyond the end; bytes behind the row.
        let lease: &[u8] = &[0x1a, 3, 0x32, 1, 9];
        assert!(Piece::decode(lease).is_err());
        let long: &[u8] = &[0x1a, 3, 0x0a, 9, b'k'];
        let more: &[u8] = &[0x1a, 2, 0x18, 4, 0];
        for bytes in [lease, long, more] {
            assert!(RowBytes::of(bytes).is_none(), "{bytes:?}");
        }
    }
}
