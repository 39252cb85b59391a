//! Random requests from a seed, over few keys so that they meet.

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::store::*;

pub(super) struct Generator(Xoshiro256PlusPlus);

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Generator(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `sides`.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1).cast_unsigned()) as i64
    }

    pub(super) fn key(&mut self) -> Bytes {
        let mut key = vec![b'a' + self.below(6) as u8];
        if !self.one_in(3) {
            key.push(b'a' + self.below(12) as u8);
        }
        Bytes::from(key)
    }

    /// A key and a range end of every kind, inverted ones included.
    pub(super) fn span(&mut self) -> (Bytes, Bytes) {
        let key = self.key();
        let end = match self.below(5) {
            0 => Bytes::new(),
            1 => Bytes::from_static(&[0]),
            2 => Bytes::from(vec![key[0] + 1]),
            _ => self.key(),
        };
        (key, end)
    }

    pub(super) fn lease(&mut self) -> LeaseId {
        if self.one_in(3) {
            self.between(1, 6)
        } else {
            0
        }
    }

    pub(super) fn put(&mut self) -> Put {
        let ignore_value = self.one_in(8);
        let ignore_lease = self.one_in(8);
        let length = if ignore_value { 0 } else { self.below(12) };
        Put {
            key: self.key(),
            value: (0..length)
                .map(|_| b'0' + self.below(3) as u8)
                .collect::<Vec<u8>>()
                .into(),
            lease: if ignore_lease { 0 } else { self.lease() },
            prev_kv: self.one_in(2),
            ignore_value,
            ignore_lease,
        }
    }

    pub(super) fn delete(&mut self) -> DeleteRange {
        let (key, mut range_end) = self.span();
        if !self.one_in(4) {
            range_end = Bytes::new();
        }
        DeleteRange {
            key,
            range_end,
            prev_kv: self.one_in(2),
        }
    }

    pub(super) fn range(&mut self, low: Revision, high: Revision) -> Range {
        let (key, range_end) = self.span();
        let bound = |generator: &mut Self| {
            if generator.one_in(6) {
                generator.between(low, high)
            } else {
                0
            }
        };
        Range {
            key,
            range_end,
            limit: if self.one_in(2) {
                self.between(-1, 6)
            } else {
                0
            },
            revision: if self.one_in(2) {
                self.between(low - 2, high + 1)
            } else {
                0
            },
            sort_order: self.below(3) as i32,
            sort_target: self.below(5) as i32,
            keys_only: self.one_in(4),
            count_only: self.one_in(6),
            min_mod_revision: bound(self),
            max_mod_revision: bound(self),
            min_create_revision: bound(self),
            max_create_revision: bound(self),
        }
    }

    fn compare(&mut self, high: Revision) -> Compare {
        let (key, range_end) = self.span();
        let number = match self.below(3) {
            0 => 0,
            1 => self.between(0, 4),
            _ => self.between(1, high + 1),
        };
        Compare {
            result: self.below(5) as i32,
            target: self.below(6) as i32,
            key,
            range_end: if self.one_in(3) {
                range_end
            } else {
                Bytes::new()
            },
            value: Bytes::from_static(b"1"),
            number,
        }
    }

    pub(super) fn txn(&mut self, depth: u32, low: Revision, high: Revision) -> Txn {
        let compare = (0..self.below(3)).map(|_| self.compare(high)).collect();
        let success = self.ops(depth, low, high);
        let failure = self.ops(depth, low, high);
        Txn {
            compare,
            success,
            failure,
        }
    }

    fn ops(&mut self, depth: u32, low: Revision, high: Revision) -> Vec<RequestOp> {
        let count = self.below(4);
        let op = |generator: &mut Self| match generator.below(if depth > 0 { 8 } else { 6 }) {
            0 | 1 => Op::Range(generator.range(low, high)),
            2..=4 => Op::Put(generator.put()),
            5 => Op::DeleteRange(generator.delete()),
            _ => Op::Txn(generator.txn(depth - 1, low, high)),
        };
        (0..count).map(|_| RequestOp::from(op(self))).collect()
    }
}
