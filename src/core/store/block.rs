//! Revisions that later ones have replaced, as bytes in one piece of memory: up to so many neighbours of the log, each a few
//! dozen bytes where a record of its own takes a hundred and more. Made once and never changed.
//!
//! Never holds a value that is in memory but a short one, and never the only copy of a key's newest revision: one that was
//! replaced by a change which was taken back, or by a store that goes on apart, may be in here beside the record of the tree.

use std::sync::Arc;

use prost::encoding::encode_varint;

use super::Revision;
use super::chunk::CHUNK;
use super::log::LogEntry;
use super::record::Record;
use super::span::Span;
use super::unkeyed::{SHORT, Unkeyed, take, take_bytes};
use super::value::ValueFile;

/// A revision of a longer key is left as it is, so that a block's length is a small number.
pub(super) const LONGEST_KEY: usize = 1 << 20;
/// Keys that are written whole, to which others refer for what they begin with.
const WHOLE: usize = 16;
/// A key that shares so many bytes with one of these need not be another one.
const SHARED: usize = 8;

/// Bytes that most rows take at most.
const USUAL_ROW: usize = 40;

/// Flags of a row, beside those of what it has besides its key.
const SUB: u8 = 2;
/// Its key is that of an earlier row.
const SAME_KEY: u8 = 16;

/// The rows, and the files that they name.
#[derive(Debug)]
pub(super) struct Block {
    /// What the rows are relative to.
    main: Revision,
    frees: u64,
    files: Box<[Named]>,
    /// The length of the longest value that is in the rows themselves, tombstones left out.
    longest: Option<usize>,
    /// Where each row begins.
    starts: Box<[u32]>,
    bytes: Box<[u8]>,
}

/// A file that rows name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) file: Arc<ValueFile>,
    /// Bytes of their values in it.
    pub(super) bytes: u64,
}

/// What a row is made of.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) key: &'a [u8],
    pub(super) revision: Unkeyed,
    pub(super) frees: u64,
}

impl<'a> Line<'a> {
    pub(super) fn of(entry: &'a LogEntry) -> Self {
        Line {
            key: entry.record.key(),
            revision: Unkeyed::of(&entry.record),
            frees: entry.frees,
        }
    }

    /// As an entry of the log, with a record of its own.
    pub(super) fn into_entry(self) -> LogEntry {
        LogEntry {
            record: self.revision.into_replaced(self.key),
            frees: self.frees,
        }
    }
}

/// Whether a block can hold it.
pub(super) fn is_packable(record: &Record) -> bool {
    record.is_superseded()
        && record.key().len() <= LONGEST_KEY
        && record.value.takes_less_than(SHORT)
}

impl Block {
    /// Of revisions in the order of the log, all of them packable.
    pub(super) fn of(lines: &[Line<'_>]) -> Block {
        let mut packing = Packing::of(lines.len());
        if let Some(first) = lines.first() {
            packing.main = first.revision.place.0;
            packing.frees = first.frees;
        }
        lines.iter().for_each(|line| packing.put(line));
        Block {
            main: packing.main,
            frees: packing.frees,
            files: packing.files.into(),
            longest: packing.longest,
            starts: packing.starts.into(),
            bytes: packing.bytes.into(),
        }
    }

    /// The files in which the values of its rows are.
    pub(super) fn files(&self) -> &[Named] {
        &self.files
    }

    /// Whether a value of at least so many bytes is in the rows themselves. One of a tombstone is none.
    pub(super) fn has_value_of(&self, bytes: usize) -> bool {
        self.longest.is_some_and(|longest| longest >= bytes)
    }

    /// The position of a row in the history of the store.
    pub(super) fn place(&self, row: usize) -> (Revision, u32) {
        self.row(row).place
    }

    /// A row as an entry of the log, with a record of its own.
    pub(super) fn entry(&self, number: usize) -> LogEntry {
        let row = self.row(number);
        let (mut rest, mut key) = (row.rest, Vec::new());
        self.key(&row, &mut rest, &mut key);
        LogEntry {
            record: self.revision(&row, rest).into_replaced(&key),
            frees: self.frees.wrapping_add(row.frees),
        }
    }

    /// The keys of all rows.
    pub(super) fn keys(&self) -> Keys {
        let mut keys = Keys::default();
        let mut room = Vec::new();
        for number in 0..self.starts.len() {
            let row = self.row(number);
            room.clear();
            self.key(&row, &mut { row.rest }, &mut room);
            keys.bytes.extend_from_slice(&room);
            keys.ends.push(keys.bytes.len());
        }
        keys
    }

    /// A row; `keys` are those of all rows.
    pub(super) fn line<'a>(&self, number: usize, keys: &'a Keys) -> Line<'a> {
        let row = self.row(number);
        let mut rest = row.rest;
        Self::skip_key(&row, &mut rest);
        Line {
            key: keys.get(number),
            revision: self.revision(&row, rest),
            frees: self.frees.wrapping_add(row.frees),
        }
    }

    /// A row as an entry of the log if its key is in a span, else its revision: no record is made of another key's. `room` is for the key.
    pub(super) fn within(
        &self,
        number: usize,
        span: Span<'_>,
        room: &mut Vec<u8>,
    ) -> Result<LogEntry, Revision> {
        let row = self.row(number);
        let mut rest = row.rest;
        room.clear();
        self.key(&row, &mut rest, room);
        if !span.contains(room) {
            return Err(row.place.0);
        }
        Ok(LogEntry {
            record: self.revision(&row, rest).into_replaced(room),
            frees: self.frees.wrapping_add(row.frees),
        })
    }

    /// A row, if it is at this place.
    pub(super) fn revision_at(&self, number: usize, place: (Revision, u32)) -> Option<Unkeyed> {
        let row = self.row(number);
        if row.place != place {
            return None;
        }
        let mut rest = row.rest;
        Self::skip_key(&row, &mut rest);
        Some(self.revision(&row, rest))
    }

    /// The same as a record, of a known key: it need not be put together.
    pub(super) fn record_at(
        &self,
        number: usize,
        place: (Revision, u32),
        key: &[u8],
    ) -> Option<Record> {
        let revision = self.revision_at(number, place)?;
        Some(revision.into_replaced(key))
    }

    /// What is behind the key of a row.
    fn revision(&self, row: &Row<'_>, mut rest: &[u8]) -> Unkeyed {
        let file = |number: u64| &self.files[number as usize].file;
        Unkeyed::take(row.flags, row.place, &mut rest, file)
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

/// The keys of the rows of a block, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Keys {
    fn get(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[number]]
    }
}

/// The head of a row, and the bytes behind it.
struct Row<'a> {
    flags: u8,
    place: (Revision, u32),
    frees: u64,
    rest: &'a [u8],
}

/// A block that is being made.
#[derive(Default)]
struct Packing<'a> {
    main: Revision,
    frees: u64,
    files: Vec<Named>,
    longest: Option<usize>,
    starts: Vec<u32>,
    bytes: Vec<u8>,
    keys: Known<'a>,
    /// Rows that have their keys whole.
    whole: Vec<(&'a [u8], usize)>,
}

impl<'a> Packing<'a> {
    fn of(rows: usize) -> Self {
        Packing {
            starts: Vec::with_capacity(rows),
            bytes: Vec::with_capacity(rows * USUAL_ROW),
            ..Packing::default()
        }
    }

    fn put(&mut self, line: &Line<'a>) {
        let Line {
            key,
            revision,
            frees,
        } = line;
        let (main, sub) = revision.place;
        let number = self.starts.len();
        let same = self.keys.first_row(key, number);
        let has = |flag: u8, it: bool| if it { flag } else { 0 };
        let flags = revision.flags() | has(SUB, sub != 0) | has(SAME_KEY, same.is_some());
        // What was healed meanwhile is one value and more, but a request is far shorter than this for each of the rows.
        self.starts
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.push(flags);
        self.number(main.wrapping_sub(self.main).cast_unsigned());
        if sub != 0 {
            self.number(sub.into());
        }
        self.number(frees.wrapping_sub(self.frees));
        match same {
            Some(row) => self.number(row as u64),
            None => self.key(key, number),
        }
        let (files, length) = (&mut self.files, revision.length());
        if revision.value.is_ok() && !revision.tombstone {
            self.longest = self.longest.max(Some(length));
        }
        revision.put(&mut self.bytes, |file| number_of(file, length, files));
    }

    fn number(&mut self, number: u64) {
        encode_varint(number, &mut self.bytes);
    }

    fn key(&mut self, key: &'a [u8], number: usize) {
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
}

/// The keys of a block that is being made. By their checksums: most of what packing costs is to find a key among the others.
#[derive(Default)]
struct Known<'a> {
    /// Each key, and the first row that has it.
    rows: Vec<(&'a [u8], usize)>,
    /// How many of these there were up to one, at its key's checksum or the next place that is free, which is 0. Half are taken
    /// at most, of a power of two.
    places: Vec<u32>,
}

impl<'a> Known<'a> {
    /// The first row that has a key; from now on this one, if there is none.
    fn first_row(&mut self, key: &'a [u8], row: usize) -> Option<usize> {
        if self.rows.len() * 2 >= self.places.len() {
            self.grow();
        }
        let mut at = self.place_of(key);
        while let Some(number) = self.places[at].checked_sub(1) {
            let (known, first) = self.rows[number as usize];
            if known == key {
                return Some(first);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.rows.push((key, row));
        self.places[at] = self.rows.len() as u32;
        None
    }

    fn place_of(&self, key: &[u8]) -> usize {
        crc32c::crc32c(key) as usize & (self.places.len() - 1)
    }

    fn grow(&mut self) {
        self.places = vec![0; (self.places.len() * 2).max(2 * CHUNK)];
        for (number, (key, _)) in (1..).zip(&self.rows) {
            let mut at = self.place_of(key);
            while self.places[at] != 0 {
                at = (at + 1) & (self.places.len() - 1);
            }
            self.places[at] = number;
        }
    }
}

/// The number of a file among those of a block, in which a value of so many bytes is.
fn number_of(file: &Arc<ValueFile>, length: usize, files: &mut Vec<Named>) -> u64 {
    let named = |other: &Named| Arc::ptr_eq(&other.file, file);
    let number = files.iter().position(named).unwrap_or_else(|| {
        let file = Arc::clone(file);
        files.push(Named { file, bytes: 0 });
        files.len() - 1
    });
    files[number].bytes += length as u64;
    number as u64
}

/// How many bytes two keys begin with in common.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    let words = words.take_while(|(one, other)| one == other).count() * 8;
    let pairs = one[words..].iter().zip(&other[words..]);
    words + pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More keys than it begins with room for, with the empty one and with those that one another begin with.
    #[test]
    fn first_row_of_a_key_is_known() {
        let keys: Vec<Vec<u8>> = (0..600_usize).map(|it| vec![b'k'; it]).collect();
        let mut known = Known::default();
        for (row, key) in keys.iter().enumerate() {
            assert_eq!(known.first_row(key, row), None);
        }
        for (row, key) in keys.iter().enumerate() {
            assert_eq!(known.first_row(key, 1000 + row), Some(row));
        }
    }

    #[test]
    fn keys_share_what_both_begin_with() {
        let key = b"/registry/pods/kube-system";
        for end in 0..=key.len() {
            assert_eq!(shared(key, &key[..end]), end);
            let mut other = key.to_vec();
            other.insert(end, 0);
            assert_eq!(shared(key, &other), end);
        }
    }
}
