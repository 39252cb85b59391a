//! Revisions that later ones have replaced, as bytes in one piece of memory: up to so many neighbours of the log, each a few
//! dozen bytes where a record of its own takes a hundred and more. Made once and never changed.
//!
//! Never holds a value that is in memory but a short one, and never the only copy of a key's newest revision: one that was
//! replaced by a change which was taken back, or by a store that goes on apart, may be in here beside the record of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};

use super::Revision;
use super::log::LogEntry;
use super::record::{Details, Record};
use super::value::{Place, Value, ValueFile};
use crate::mutants::mutant;

/// A value of less than so many bytes is packed with its revision; longer ones have to be in a file.
const SHORT: usize = 64;
/// A revision of a longer key is left as it is, so that a block's length is a small number.
const LONGEST_KEY: usize = 1 << 20;
/// Keys that are written whole, to which others refer for what they begin with.
const WHOLE: usize = 16;
/// A key that shares so many bytes with one of these need not be another one.
const SHARED: usize = 8;

const TOMBSTONE: u8 = 1;
const SUB: u8 = 2;
const LEASE: u8 = 4;
const FILE: u8 = 8;
/// Its key is that of an earlier row.
const SAME_KEY: u8 = 16;

/// The rows, and the files that they name.
#[derive(Debug)]
pub(super) struct Block {
    /// What the rows are relative to.
    main: Revision,
    frees: u64,
    files: Box<[Arc<ValueFile>]>,
    /// Where each row begins.
    starts: Box<[u32]>,
    bytes: Box<[u8]>,
}

/// Whether a block can hold it.
pub(super) fn is_packable(record: &Record) -> bool {
    record.is_superseded()
        && record.key().len() <= LONGEST_KEY
        && record.value.takes_less_than(SHORT)
}

impl Block {
    /// Of entries in the order of the log, all of them packable.
    pub(super) fn of(entries: &[LogEntry]) -> Block {
        let mut packing = Packing::default();
        if let Some(first) = entries.first() {
            packing.main = first.record.main;
            packing.frees = first.frees;
        }
        entries.iter().for_each(|entry| packing.put(entry));
        Block {
            main: packing.main,
            frees: packing.frees,
            files: packing.files.into(),
            starts: packing.starts.into(),
            bytes: packing.bytes.into(),
        }
    }

    /// The position of a row in the history of the store.
    pub(super) fn place(&self, row: usize) -> (Revision, u32) {
        self.row(row).place
    }

    /// A row as an entry of the log, with a record of its own.
    pub(super) fn entry(&self, number: usize) -> LogEntry {
        let (record, frees) = self.record(number, None);
        LogEntry { record, frees }
    }

    /// The same, of which the key may be known: then it need not be put together.
    pub(super) fn record(&self, number: usize, known: Option<&[u8]>) -> (Record, u64) {
        let row = self.row(number);
        let mut rest = row.rest;
        let mut own = Vec::new();
        let key = match known {
            Some(key) => {
                Self::skip_key(&row, &mut rest);
                key
            }
            None => {
                self.key(&row, &mut rest, &mut own);
                &own
            }
        };
        let frees = self.frees.wrapping_add(row.frees);
        if row.flags & TOMBSTONE != 0 {
            let record = Record::tombstone(key, row.place);
            record.supersede();
            return (record, frees);
        }
        let version = take(&mut rest).cast_signed();
        let create = row.place.0.wrapping_sub(take(&mut rest).cast_signed());
        let lease = match row.flags & LEASE {
            0 => 0,
            _ => i64::from_le_bytes(take_bytes(&mut rest)),
        };
        let value = match row.flags & FILE {
            0 => {
                let length = take(&mut rest) as usize;
                Value::new(Bytes::copy_from_slice(&rest[..length]))
            }
            _ => Value::placed(Place {
                file: Arc::clone(&self.files[take(&mut rest) as usize]),
                offset: take(&mut rest),
                length: take(&mut rest) as u32,
                sum: u32::from_le_bytes(take_bytes(&mut rest)),
            }),
        };
        let details = Details {
            create,
            version,
            lease: mutant!(PackedLeaseLost => 0, else lease),
        };
        let record = Record::new(key, value, details, row.place);
        record.supersede();
        (record, frees)
    }

    /// What each row begins with.
    fn row(&self, number: usize) -> Row<'_> {
        let mut rest = &self.bytes[self.starts[number] as usize..];
        let [flags] = take_bytes(&mut rest);
        let main = self.main + take(&mut rest).cast_signed();
        let sub = match flags & SUB {
            0 => 0,
            _ => take(&mut rest) as u32,
        };
        Row {
            flags,
            place: (main, sub),
            frees: take(&mut rest),
            rest,
        }
    }

    /// Leaves `rest` behind the key of a row.
    fn skip_key(row: &Row<'_>, rest: &mut &[u8]) {
        let first = take(rest);
        if row.flags & SAME_KEY != 0 {
            return;
        }
        if first > 0 {
            take(rest);
        }
        let length = take(rest) as usize;
        *rest = &rest[length..];
    }

    /// Puts the key of a row together, and leaves `rest` behind it.
    fn key(&self, row: &Row<'_>, rest: &mut &[u8], key: &mut Vec<u8>) {
        if row.flags & SAME_KEY != 0 {
            let other = self.row(take(rest) as usize);
            return self.key(&other, &mut { other.rest }, key);
        }
        let shared = take(rest) as usize;
        if shared > 0 {
            // It is whole, so its own key follows at once.
            let whole = self.row(take(rest) as usize);
            self.key(&whole, &mut { whole.rest }, key);
            key.truncate(shared);
        }
        let length = take(rest) as usize;
        let (own, behind) = rest.split_at(length);
        key.extend_from_slice(own);
        *rest = behind;
    }
}

/// The head of a row, and the bytes behind it.
struct Row<'a> {
    flags: u8,
    place: (Revision, u32),
    frees: u64,
    rest: &'a [u8],
}

/// A number. Whatever is read was written by [`Packing`].
fn take(bytes: &mut &[u8]) -> u64 {
    decode_varint(bytes).unwrap_or_default()
}

fn take_bytes<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = bytes.split_at(N);
    *bytes = rest;
    let mut array = [0; N];
    array.copy_from_slice(taken);
    array
}

/// A block that is being made.
#[derive(Default)]
struct Packing<'a> {
    main: Revision,
    frees: u64,
    files: Vec<Arc<ValueFile>>,
    starts: Vec<u32>,
    bytes: Vec<u8>,
    /// Each key, and the first row that has it.
    keys: BTreeMap<&'a [u8], usize>,
    /// Rows that have their keys whole.
    whole: Vec<(&'a [u8], usize)>,
}

impl<'a> Packing<'a> {
    fn put(&mut self, entry: &'a LogEntry) {
        let record = &entry.record;
        let details = record.details();
        // Looked at once: it may move meanwhile, and what was healed may be long.
        let value = record.value.here();
        let number = self.starts.len();
        let same = self.keys.get(record.key()).copied();
        let has = |flag: u8, it: bool| if it { flag } else { 0 };
        let flags = has(TOMBSTONE, record.tombstone)
            | has(SUB, record.sub != 0)
            | has(LEASE, details.lease != 0)
            | has(FILE, value.is_err())
            | has(SAME_KEY, same.is_some());
        // What was healed meanwhile is one value and more, but a request is far shorter than this for each of the rows.
        self.starts
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.push(flags);
        self.number(record.main.wrapping_sub(self.main).cast_unsigned());
        if record.sub != 0 {
            self.number(record.sub.into());
        }
        self.number(entry.frees.wrapping_sub(self.frees));
        match same {
            Some(row) => self.number(row as u64),
            None => self.key(record.key(), number),
        }
        if record.tombstone {
            return;
        }
        self.number(details.version.cast_unsigned());
        self.number(record.main.wrapping_sub(details.create).cast_unsigned());
        if details.lease != 0 {
            self.bytes.extend_from_slice(&details.lease.to_le_bytes());
        }
        match value {
            Err(place) => self.place(&place),
            Ok(value) => {
                self.number(value.len() as u64);
                self.bytes.extend_from_slice(&value);
            }
        }
    }

    fn number(&mut self, number: u64) {
        encode_varint(number, &mut self.bytes);
    }

    fn key(&mut self, key: &'a [u8], number: usize) {
        self.keys.insert(key, number);
        let shared = |(whole, row): &(&[u8], usize)| (shared(whole, key), *row);
        let (shared, row) = self.whole.iter().map(shared).max().unwrap_or_default();
        if shared < SHARED && self.whole.len() < WHOLE || shared == 0 {
            self.whole.push((key, number));
            self.number(0);
            self.number(key.len() as u64);
            self.bytes.extend_from_slice(key);
            return;
        }
        self.number(shared as u64);
        self.number(row as u64);
        self.number((key.len() - shared) as u64);
        self.bytes.extend_from_slice(&key[shared..]);
    }

    fn place(&mut self, place: &Place) {
        let named = |file: &Arc<ValueFile>| Arc::ptr_eq(file, &place.file);
        let file = self.files.iter().position(named).unwrap_or_else(|| {
            self.files.push(Arc::clone(&place.file));
            self.files.len() - 1
        });
        self.number(file as u64);
        self.number(place.offset);
        self.number(place.length.into());
        self.bytes.extend_from_slice(&place.sum.to_le_bytes());
    }
}

/// How many bytes two keys begin with in common.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}
