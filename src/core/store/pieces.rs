//! The items of a checkpoint's stream, which is a sequence of them, each with its length before it: a head, the leases, users
//! and roles, the records by key and age, an end with totals. A chunk may end anywhere.
//!
//! Never judges their order: the import does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message as _;

use super::row_bytes::RowBytes;
use super::value::Place;
use super::{Auth, Error, FollowedRevision, Following, LeaseId, Revision, SetAlarm, ValueFile};

/// Longer than any item: a request is shorter than half of this.
const MOST_ITEM: usize = 1 << 32;
/// The format of a stream that has every value in it.
pub(super) const FORMAT: u32 = 1;
/// The format of one in which values are named by their places in files.
pub(super) const FORMAT_PLACED: u32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Piece {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 20, 40, 42, 43")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Head(Head),
    #[prost(message, tag = "2")]
    Lease(Lease),
    #[prost(message, tag = "3")]
    Row(Row),
    #[prost(message, tag = "4")]
    Tail(Tail),
    #[prost(message, tag = "40")]
    Alarm(SetAlarm),
    /// Absent in checkpoints of versions without users, and if there never was one.
    #[prost(message, tag = "20")]
    Auth(Auth),
    /// The cluster that is followed. Absent if none is.
    #[prost(message, tag = "42")]
    Following(Following),
    /// A part of its next revision, which is not whole yet.
    #[prost(message, tag = "43")]
    Staged(FollowedRevision),
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(uint32, tag = "1")]
    pub(super) format: u32,
    #[prost(int64, tag = "2")]
    pub(super) revision: Revision,
    #[prost(int64, tag = "3")]
    pub(super) compacted: Revision,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Lease {
    #[prost(int64, tag = "1")]
    pub(super) id: LeaseId,
    #[prost(int64, tag = "2")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "3")]
    pub(super) remaining: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Row {
    /// Empty: the key of the row before.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) create: Revision,
    #[prost(int64, tag = "4")]
    pub(super) main: Revision,
    #[prost(int64, tag = "5")]
    pub(super) version: i64,
    #[prost(int64, tag = "6")]
    pub(super) lease: LeaseId,
    #[prost(uint32, tag = "7")]
    pub(super) sub: u32,
    #[prost(bool, tag = "8")]
    pub(super) tombstone: bool,
    /// The number of the file that the value is in; 0: it is here.
    #[prost(uint64, tag = "9")]
    pub(super) file: u64,
    #[prost(uint64, tag = "10")]
    pub(super) offset: u64,
    #[prost(uint32, tag = "11")]
    pub(super) length: u32,
    /// The checksum of the value that is there.
    #[prost(fixed32, tag = "12")]
    pub(super) sum: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Tail {
    #[prost(uint64, tag = "1")]
    pub(super) records: u64,
    #[prost(uint64, tag = "2")]
    pub(super) leases: u64,
    #[prost(uint64, tag = "3")]
    pub(super) db_size: u64,
    #[prost(uint64, tag = "40")]
    pub(super) alarms: u64,
}

/// Bytes of a stream, taken apart into its items.
#[derive(Debug, Default)]
pub(super) struct Pieces(BytesMut);

impl Pieces {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.0.extend_from_slice(chunk);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next piece off the buffer, if it is complete.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Error> {
        let Some(Range { start, end }) = first_item(&self.0)? else {
            return Ok(None);
        };
        self.0.advance(start);
        // Keys and values are parts of the buffer until they are copied to where they stay.
        let bytes = self.0.split_to(end - start).freeze();
        Piece::decode(bytes)
            .map(Some)
            .map_err(|error| damaged(&error.to_string()))
    }
}

/// Where the first item of these bytes is, without its length; `None` if not all of it is there.
pub(super) fn first_item(bytes: &[u8]) -> Result<Option<Range<usize>>, Error> {
    let mut rest = bytes;
    let length = match prost::decode_length_delimiter(&mut rest) {
        Ok(length) => length,
        Err(_) if bytes.len() < 10 => return Ok(None),
        Err(error) => return Err(damaged(&error.to_string())),
    };
    if length > MOST_ITEM {
        return Err(damaged("an item is longer than any that is written"));
    }
    let start = bytes.len() - rest.len();
    Ok((rest.len() >= length).then_some(start..start + length))
}

/// Where the value of a row is, if it is in a file.
pub(super) fn place(
    row: &RowBytes<'_>,
    files: &BTreeMap<u64, Arc<ValueFile>>,
) -> Result<Option<Place>, Error> {
    if row.file == 0 {
        return Ok(None);
    }
    let file = files
        .get(&row.file)
        .ok_or_else(|| damaged("a row names a file of values that is not there"))?;
    let end = row.offset.checked_add(row.length.into());
    if row.tombstone || !row.value.is_empty() || end.is_none_or(|end| end > file.length()) {
        return Err(damaged(
            "the place of a value contradicts its row or its file",
        ));
    }
    Ok(Some(Place {
        file: Arc::clone(file),
        offset: row.offset,
        length: row.length,
        sum: row.sum,
    }))
}

pub(super) fn damaged(text: &str) -> Error {
    Error::Checkpoint(text.to_owned())
}
