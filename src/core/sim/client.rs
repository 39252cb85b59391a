//! Clients: each has one operation under way at a time, on few keys so that they meet, through
//! whatever member it happens to ask. A write whose answer does not come is of unknown fate.

use bytes::Bytes;
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::node::RequestId;
use crate::store::{
    Compare, CompareResult, CompareTarget, DeleteRange, Op, Operation as Wish, Put, Range,
    RequestOp, Response, Revision, Txn,
};

use super::clock::Micros;
use super::network::HostId;

/// How many keys the clients share.
const KEYS: u32 = 8;
/// The first key after all of them.
const END: &[u8] = b"key!";

/// A client and what it does at the moment.
#[derive(Debug, Default)]
pub(super) struct Client {
    written: u64,
    pub(super) under_way: Option<Operation>,
}

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The server that was asked, and its boot.
    pub(super) host: HostId,
    pub(super) boot: u64,
    pub(super) kind: Kind,
    /// What any machine had applied when it began.
    pub(super) began: Revision,
    /// When it gives up.
    pub(super) deadline: Micros,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Carry this out.
    Write { request: RequestId, wish: Wish },
    /// Read as of now.
    Read { id: u64, range: Range },
}

impl Client {
    /// A write to try next. No two write the same value.
    pub(super) fn next_write(&mut self, number: usize, random: &mut Xoshiro256PlusPlus) -> Wish {
        let key = any_key(random);
        match random.random_range(0..20) {
            0 | 1 => Wish::DeleteRange(DeleteRange {
                key,
                prev_kv: random.random_bool(0.5),
                ..DeleteRange::default()
            }),
            2 => Wish::DeleteRange(DeleteRange {
                prev_kv: random.random_bool(0.5),
                range_end: match Bytes::from(format!("key {}", random.random_range(1..KEYS))) {
                    end if end > key => end,
                    _ => Bytes::from_static(END),
                },
                key,
            }),
            3..=6 => Wish::Txn(self.transaction(number, key, random)),
            _ => Wish::Put(self.put(number, key, random)),
        }
    }

    fn put(&mut self, number: usize, key: Bytes, random: &mut Xoshiro256PlusPlus) -> Put {
        self.written += 1;
        let mut value = format!("client {number} write {}", self.written).into_bytes();
        if random.random_bool(0.2) {
            // Long enough for batches of several sectors, and of zeros, which must not look like
            // sectors that were never written.
            value.resize(value.len() + random.random_range(1..3_000), 0);
        }
        Put {
            key,
            value: Bytes::from(value),
            prev_kv: random.random_bool(0.5),
            ..Put::default()
        }
    }

    /// Compares one key, and on either way writes, deletes and reads several.
    fn transaction(&mut self, number: usize, key: Bytes, random: &mut Xoshiro256PlusPlus) -> Txn {
        let other = Bytes::from(format!("key {}", random.random_range(0..KEYS)));
        let mut success = vec![
            RequestOp::from(Op::Put(self.put(number, key.clone(), random))),
            RequestOp::from(Op::Range(all_keys())),
        ];
        if other != key {
            let second = self.put(number, other.clone(), random);
            success.push(RequestOp::from(Op::Put(second)));
        }
        let failure = match random.random_range(0..3) {
            0 => vec![RequestOp::from(Op::Put(self.put(
                number,
                key.clone(),
                random,
            )))],
            1 => vec![RequestOp::from(Op::DeleteRange(DeleteRange {
                key: other,
                prev_kv: true,
                ..DeleteRange::default()
            }))],
            _ => vec![RequestOp::from(Op::Range(Range {
                key: key.clone(),
                ..Range::default()
            }))],
        };
        let target = [
            CompareTarget::Version,
            CompareTarget::Mod,
            CompareTarget::Value,
        ];
        let result = [
            CompareResult::Greater,
            CompareResult::Less,
            CompareResult::Equal,
            CompareResult::NotEqual,
        ];
        Txn {
            compare: vec![Compare {
                key,
                result: result[random.random_range(0..4)] as i32,
                target: target[random.random_range(0..3)] as i32,
                number: random.random_range(0..4),
                value: Bytes::from(format!("client {}", random.random_range(0..6))),
                ..Compare::default()
            }],
            success,
            failure,
        }
    }
}

/// One of the keys.
pub(super) fn any_key(random: &mut Xoshiro256PlusPlus) -> Bytes {
    Bytes::from(format!("key {}", random.random_range(0..KEYS)))
}

/// All of the keys.
pub(super) fn all_keys() -> Range {
    Range {
        key: Bytes::from_static(b"key "),
        range_end: Bytes::from_static(END),
        ..Range::default()
    }
}

/// One of them, or some.
pub(super) fn any_range(random: &mut Xoshiro256PlusPlus) -> Range {
    match random.random_range(0..4) {
        0 => Range {
            limit: random.random_range(0..4),
            ..all_keys()
        },
        _ => Range {
            key: any_key(random),
            ..Range::default()
        },
    }
}

/// Whether an answer was to a write.
pub(super) fn is_write(response: &Response) -> bool {
    matches!(
        response,
        Response::Put(_) | Response::DeleteRange(_) | Response::Txn(_)
    )
}
