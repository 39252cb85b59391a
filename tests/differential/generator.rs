//! Random parts of requests, from a seed. The key space is small, so that requests affect each other; some parts are
//! invalid.

use bytes::Bytes;
use quorate::wire::etcd::compare::TargetUnion;
use quorate::wire::etcd::request_op::Request;
use quorate::wire::etcd::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random choices from a seed.
pub(crate) struct Generator {
    random: Xoshiro256PlusPlus,
    /// Whether the end of every range is greater than its key.
    pub(crate) ordered: bool,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            ordered: false,
        }
    }

    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.random.next_u64() % sides
    }

    pub(crate) fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).cast_unsigned()) as i64
    }

    /// At most 12 keys: beyond that number etcd's sort is not stable.
    pub(crate) fn key(&mut self) -> Bytes {
        let first = b'a' + self.below(3) as u8;
        match self.below(4) {
            0 => Bytes::from(vec![first]),
            second => Bytes::from(vec![first, b'0' + second as u8]),
        }
    }

    pub(crate) fn span(&mut self) -> (Bytes, Bytes) {
        let key = self.key();
        let end = match self.below(5) {
            0 => Bytes::new(),
            1 => Bytes::from_static(&[0]),
            2 => Bytes::from(vec![key[0] + 1]),
            _ => self.key(),
        };
        if self.ordered && end[..] != [0] && end <= key {
            return (key, Bytes::new());
        }
        (key, end)
    }

    pub(crate) fn put(&mut self) -> PutRequest {
        let kept = self.one_in(8);
        PutRequest {
            key: if self.one_in(60) {
                Bytes::new()
            } else {
                self.key()
            },
            value: if kept {
                Bytes::new()
            } else {
                Bytes::from(self.below(30).to_string())
            },
            lease: if self.one_in(3) {
                self.between(1, 4)
            } else {
                0
            },
            prev_kv: self.one_in(2),
            ignore_value: kept || self.one_in(60),
            ignore_lease: self.one_in(12),
        }
    }

    pub(crate) fn delete(&mut self) -> DeleteRangeRequest {
        let (key, mut range_end) = self.span();
        // In a transaction, an open-ended range would meet the gap in etcd's check for duplicate keys.
        if !self.one_in(4) || range_end[..] == [0] {
            range_end = Bytes::new();
        }
        DeleteRangeRequest {
            key,
            range_end,
            prev_kv: self.one_in(2),
        }
    }

    pub(crate) fn range(&mut self, revision: i64) -> RangeRequest {
        let (key, range_end) = self.span();
        let bound = |generator: &mut Self| {
            if generator.one_in(8) {
                generator.between(1, revision)
            } else {
                0
            }
        };
        RangeRequest {
            key: if self.one_in(60) { Bytes::new() } else { key },
            range_end,
            limit: if self.one_in(2) {
                self.between(-1, 5)
            } else {
                0
            },
            revision: if self.one_in(2) {
                self.between(-1, revision + 1)
            } else {
                0
            },
            sort_order: self.sort(2),
            sort_target: self.sort(4),
            serializable: self.one_in(4),
            keys_only: self.one_in(4),
            count_only: self.one_in(6),
            min_mod_revision: bound(self),
            max_mod_revision: bound(self),
            min_create_revision: bound(self),
            max_create_revision: bound(self),
        }
    }

    /// A sort order or target, rarely one that is not defined.
    pub(crate) fn sort(&mut self, highest: i64) -> i32 {
        let highest = highest + i64::from(self.one_in(40));
        self.between(0, highest) as i32
    }

    pub(crate) fn compare(&mut self, revision: i64) -> Compare {
        let (key, range_end) = self.span();
        let high = if self.one_in(2) { 3 } else { revision };
        let number = self.between(0, high);
        let union = match self.below(7) {
            0 => Some(TargetUnion::Version(number)),
            1 => Some(TargetUnion::CreateRevision(number)),
            2 => Some(TargetUnion::ModRevision(number)),
            3 => Some(TargetUnion::Value(Bytes::from(self.below(30).to_string()))),
            4 => Some(TargetUnion::Lease(number)),
            _ => None,
        };
        let target = match &union {
            Some(TargetUnion::Version(_)) => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
            None => self.below(5) as i32,
        };
        // Sometimes the union has a field that does not fit the target.
        let target = if self.one_in(20) {
            self.below(5) as i32
        } else {
            target
        };
        Compare {
            result: self.below(4) as i32,
            target,
            key,
            range_end: if self.one_in(3) {
                range_end
            } else {
                Bytes::new()
            },
            target_union: union,
        }
    }

    pub(crate) fn txn(&mut self, depth: u32, revision: i64) -> TxnRequest {
        TxnRequest {
            compare: (0..self.below(3)).map(|_| self.compare(revision)).collect(),
            success: self.ops(depth, revision),
            failure: self.ops(depth, revision),
        }
    }

    pub(crate) fn ops(&mut self, depth: u32, revision: i64) -> Vec<RequestOp> {
        let count = self.below(4);
        let op = |generator: &mut Self| match generator.below(if depth > 0 { 8 } else { 6 }) {
            0 | 1 => Request::RequestRange(generator.range(revision)),
            2..=4 => Request::RequestPut(generator.put()),
            5 => Request::RequestDeleteRange(generator.delete()),
            _ => Request::RequestTxn(generator.txn(depth - 1, revision)),
        };
        let empty = self.one_in(100);
        (0..count)
            .map(|_| RequestOp {
                request: if empty { None } else { Some(op(self)) },
            })
            .collect()
    }

    /// A transaction with about as many operations as are allowed, at the top level or nested.
    pub(crate) fn many(&mut self, revision: i64) -> TxnRequest {
        let count = self.between(126, 130);
        let range = |generator: &mut Self| RequestOp {
            request: Some(Request::RequestRange(RangeRequest {
                key: generator.key(),
                count_only: true,
                ..RangeRequest::default()
            })),
        };
        let mut outer = TxnRequest::default();
        match self.below(4) {
            0 => outer.compare = (0..count).map(|_| self.compare(revision)).collect(),
            1 => outer.success = (0..count).map(|_| range(self)).collect(),
            2 => outer.failure = (0..count).map(|_| range(self)).collect(),
            _ => {
                let mut inner = TxnRequest::default();
                let used = self.between(1, 3);
                let left = count - used;
                inner.success = (0..left).map(|_| range(self)).collect();
                let nested = RequestOp {
                    request: Some(Request::RequestTxn(inner)),
                };
                outer.success.push(nested);
                outer.compare = (0..used).map(|_| self.compare(revision)).collect();
            }
        }
        outer
    }
}
