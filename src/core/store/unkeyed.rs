//! A revision of a key without the key: what is read of a checkpoint, or of a block, before anyone needs a record of it; and its
//! bytes. Never knows the key, nor other revisions of it.

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};

use super::Revision;
use super::record::{Details, RECORD_OVERHEAD, Record};
use super::value::{Place, Value, ValueFile};
use crate::mutants::mutant;

/// A value of less than so many bytes is packed with its revision; longer ones have to be in a file.
pub(super) const SHORT: usize = 64;

/// Flags that say what its bytes have.
const TOMBSTONE: u8 = 1;
const LEASE: u8 = 4;
const FILE: u8 = 8;

/// What a record has besides its key.
#[derive(Clone, Debug)]
pub(super) struct Unkeyed {
    /// Its position in the history of the store.
    pub(super) place: (Revision, u32),
    pub(super) tombstone: bool,
    /// Nothing for a tombstone.
    pub(super) details: Details,
    /// The value itself if it is in memory, else where it is. Empty for a tombstone.
    pub(super) value: Result<Bytes, Place>,
}

impl Unkeyed {
    /// What a record has now: its value may move later.
    pub(super) fn of(record: &Record) -> Self {
        Unkeyed {
            place: record.place(),
            tombstone: record.tombstone,
            details: record.details(),
            value: record.value.here(),
        }
    }

    /// A record of its own, of this key.
    pub(super) fn into_record(self, key: &[u8]) -> Record {
        if self.tombstone {
            return Record::tombstone(key, self.place);
        }
        let value = match self.value {
            Ok(value) => Value::new(value),
            Err(place) => Value::placed(place),
        };
        Record::new(key, value, self.details, self.place)
    }

    /// The same of one that is not the newest of its key.
    pub(super) fn into_replaced(self, key: &[u8]) -> Record {
        let record = self.into_record(key);
        record.supersede();
        record
    }

    /// The length of its value, in bytes.
    pub(super) fn length(&self) -> usize {
        match &self.value {
            Ok(value) => value.len(),
            Err(place) => place.length as usize,
        }
    }

    /// Its share of the logical size of the store, with a key of so many bytes.
    pub(super) fn size(&self, key: usize) -> u64 {
        key as u64 + self.length() as u64 + RECORD_OVERHEAD
    }

    /// Whether little of its value is in memory.
    pub(super) fn is_packable(&self) -> bool {
        self.value
            .as_ref()
            .map_or(true, |value| value.len() < SHORT)
    }

    /// What its bytes have.
    pub(super) fn flags(&self) -> u8 {
        let has = |flag: u8, it: bool| if it { flag } else { 0 };
        has(TOMBSTONE, self.tombstone)
            | has(LEASE, self.details.lease != 0)
            | has(FILE, self.value.is_err())
    }

    /// Puts what its flags and its place do not say. `file` gives the number of a file among those that whoever reads it knows.
    pub(super) fn put(&self, bytes: &mut Vec<u8>, file: impl FnOnce(&Arc<ValueFile>) -> u64) {
        if self.tombstone {
            return;
        }
        let Details {
            create,
            version,
            lease,
        } = self.details;
        encode_varint(version.cast_unsigned(), bytes);
        encode_varint(self.place.0.wrapping_sub(create).cast_unsigned(), bytes);
        if lease != 0 {
            bytes.extend_from_slice(&lease.to_le_bytes());
        }
        match &self.value {
            Ok(value) => {
                encode_varint(value.len() as u64, bytes);
                bytes.extend_from_slice(value);
            }
            Err(place) => {
                encode_varint(file(&place.file), bytes);
                encode_varint(place.offset, bytes);
                encode_varint(place.length.into(), bytes);
                bytes.extend_from_slice(&place.sum.to_le_bytes());
            }
        }
    }

    /// What was put with these flags. `file` gives the file of a number.
    pub(super) fn take<'a>(
        flags: u8,
        place: (Revision, u32),
        bytes: &mut &[u8],
        file: impl FnOnce(u64) -> &'a Arc<ValueFile>,
    ) -> Self {
        if flags & TOMBSTONE != 0 {
            return Unkeyed {
                place,
                tombstone: true,
                details: Details::default(),
                value: Ok(Bytes::new()),
            };
        }
        let version = take(bytes).cast_signed();
        let create = place.0.wrapping_sub(take(bytes).cast_signed());
        let lease = match flags & LEASE {
            0 => 0,
            _ => i64::from_le_bytes(take_bytes(bytes)),
        };
        let value = match flags & FILE {
            0 => {
                let length = take(bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                *bytes = rest;
                Ok(Bytes::copy_from_slice(value))
            }
            _ => Err(Place {
                file: Arc::clone(file(take(bytes))),
                offset: take(bytes),
                length: take(bytes) as u32,
                sum: u32::from_le_bytes(take_bytes(bytes)),
            }),
        };
        Unkeyed {
            place,
            tombstone: false,
            details: Details {
                create,
                version,
                lease: mutant!(PackedLeaseLost => 0, else lease),
            },
            value,
        }
    }
}

/// A number. Whatever is read was written by this process.
pub(super) fn take(bytes: &mut &[u8]) -> u64 {
    decode_varint(bytes).unwrap_or_default()
}

/// So many bytes.
pub(super) fn take_bytes<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = bytes.split_at(N);
    *bytes = rest;
    let mut array = [0; N];
    array.copy_from_slice(taken);
    array
}
