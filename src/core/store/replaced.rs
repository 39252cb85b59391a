//! Revisions of a store that is being rebuilt that are not the newest of their keys, as bytes: some thirty of each, until they are in the
//! log. Never knows their order.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use prost::encoding::encode_varint;

use super::Revision;
use super::record::Record;
use super::unkeyed::{Unkeyed, take, take_bytes};
use super::value::ValueFile;

/// A piece of memory gets no more once it is longer: a revision is far shorter than the rest.
const PIECE: usize = 1 << 20;
const ROOM: usize = 512;

/// Them, and what they name by number.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    pieces: Vec<Vec<u8>>,
    /// The newest revision of each key that has one of them, for its key.
    keys: Vec<Record>,
    /// Whether the key that is being read has one.
    open: bool,
    files: BTreeMap<u64, Arc<ValueFile>>,
}

impl Replaced {
    /// Adds a packable revision of the key that is being read, and gives its position.
    pub(super) fn push(&mut self, revision: &Unkeyed) -> u64 {
        self.open = true;
        let full = |piece: &Vec<u8>| piece.len() > PIECE - ROOM;
        if self.pieces.last().is_none_or(full) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let at = number * PIECE + piece.len();
        piece.push(revision.flags());
        encode_varint(self.keys.len() as u64, piece);
        let files = &mut self.files;
        revision.put(piece, |file| {
            let number = file.number();
            files.entry(number).or_insert_with(|| Arc::clone(file));
            number
        });
        at as u64
    }

    /// All revisions of a key have been added, and this is the newest.
    pub(super) fn end_key(&mut self, newest: &Record) {
        if std::mem::take(&mut self.open) {
            self.keys.push(newest.clone());
        }
    }

    /// Loads revisions and their keys into the processor's caches: each alone would wait for memory twice, and so do all of them together.
    pub(super) fn load(&self, all: impl Iterator<Item = u64> + Clone) {
        for at in all.clone() {
            black_box(self.bytes(at).first());
        }
        for at in all {
            let mut bytes = &self.bytes(at)[1..];
            let key = self.keys[take(&mut bytes) as usize].key();
            black_box(key.first());
        }
    }

    fn bytes(&self, at: u64) -> &[u8] {
        let at = at as usize;
        &self.pieces[at / PIECE][at % PIECE..]
    }

    /// The key of a revision, and the revision itself.
    pub(super) fn get(&self, at: u64, place: (Revision, u32)) -> (&[u8], Unkeyed) {
        let mut bytes = self.bytes(at);
        let [flags] = take_bytes(&mut bytes);
        let key = self.keys[take(&mut bytes) as usize].key();
        let file = |number: u64| &self.files[&number];
        (key, Unkeyed::take(flags, place, &mut bytes, file))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::record::Details;

    /// Each comes back with its key, however many pieces they take.
    #[test]
    fn revisions_are_what_they_were_across_pieces() {
        let revision = |number: u64| Unkeyed {
            place: (number as i64 + 1, 0),
            tombstone: number.is_multiple_of(7),
            details: match number.is_multiple_of(7) {
                true => Details::default(),
                false => Details {
                    create: number as i64 / 2 + 1,
                    version: 1 << (number % 60),
                    lease: if number.is_multiple_of(3) {
                        i64::MIN
                    } else {
                        0
                    },
                },
            },
            value: match number.is_multiple_of(7) {
                true => Ok(Bytes::new()),
                false => Ok(Bytes::from(vec![number as u8; number as usize % 64])),
            },
        };
        let key = |number: u64| format!("key {}", number / 3);
        let count = 60_000;
        let mut replaced = Replaced::default();
        let mut at = Vec::new();
        for number in 0..count {
            at.push(replaced.push(&revision(number)));
            if number % 3 == 2 {
                let newest = Record::tombstone(key(number).as_bytes(), (count as i64 + 1, 0));
                replaced.end_key(&newest);
                // A key without any leaves the others' numbers as they are.
                replaced.end_key(&Record::tombstone(b"none", (1, 0)));
            }
        }
        assert!(replaced.pieces.len() > 2);
        for (number, at) in at.into_iter().enumerate() {
            let expected = revision(number as u64);
            let (found, loaded) = replaced.get(at, expected.place);
            assert_eq!(found, key(number as u64).as_bytes());
            let told = |it: &Unkeyed| (it.place, it.tombstone, it.details, it.value.clone().ok());
            assert_eq!(told(&loaded), told(&expected));
        }
    }
}
