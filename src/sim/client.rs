//! Clients: each has one operation under way at a time, on few keys so that they meet, through
//! whatever member it happens to ask. A write whose answer does not come is of unknown fate.

use bytes::Bytes;
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::node::RequestId;
use crate::store::{
    self, Command, Compare, CompareResult, CompareTarget, DeleteRange, Op, Put, RequestOp,
    Response, Txn,
};

use super::clock::Micros;
use super::network::HostId;

/// How many keys the clients share.
const KEYS: u32 = 8;

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
    /// What had been seen when it began.
    pub(super) seen: i64,
    /// When it gives up.
    pub(super) deadline: Micros,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Make `key` this value, or delete it.
    Write {
        request: RequestId,
        key: Bytes,
        value: Option<Bytes>,
    },
    /// Read `key`.
    Read { id: u64, key: Bytes },
}

impl Client {
    /// A write to try next: the key, the value or `None` to delete, and the command.
    pub(super) fn next_write(
        &mut self,
        number: usize,
        random: &mut Xoshiro256PlusPlus,
    ) -> (Bytes, Option<Bytes>, Command) {
        self.written += 1;
        let key = any_key(random);
        let mut value = format!("client {number} write {}", self.written).into_bytes();
        if random.random_bool(0.2) {
            // Long enough for batches of several sectors, and of zeros, which must not look like
            // sectors that were never written.
            value.resize(value.len() + random.random_range(0..3_000), 0);
        }
        let value = Bytes::from(value);
        match random.random_range(0..10) {
            0 => (key.clone(), None, delete(key)),
            1 | 2 => (key.clone(), Some(value.clone()), transaction(key, value)),
            _ => (key.clone(), Some(value.clone()), put(key, value)),
        }
    }
}

/// One of the keys.
pub(super) fn any_key(random: &mut Xoshiro256PlusPlus) -> Bytes {
    Bytes::from(format!("key {}", random.random_range(0..KEYS)))
}

/// The revision at which a write took effect; `None` if it changed nothing (a delete that found
/// nothing).
pub(super) fn effective_revision(response: &Response) -> Option<i64> {
    match response {
        Response::DeleteRange(delete) if delete.deleted == 0 => None,
        other => Some(other.revision()),
    }
}

fn put(key: Bytes, value: Bytes) -> Command {
    Command::from(store::Operation::Put(Put {
        key,
        value,
        ..Put::default()
    }))
}

fn delete(key: Bytes) -> Command {
    Command::from(store::Operation::DeleteRange(DeleteRange {
        key,
        ..DeleteRange::default()
    }))
}

/// Both branches write the value: which of them ran depends on replicated state alone.
fn transaction(key: Bytes, value: Bytes) -> Command {
    let write = |value: Bytes| RequestOp {
        op: Some(Op::Put(Put {
            key: key.clone(),
            value,
            ..Put::default()
        })),
    };
    Command::from(store::Operation::Txn(Txn {
        compare: vec![Compare {
            key: key.clone(),
            result: CompareResult::Greater as i32,
            target: CompareTarget::Version as i32,
            number: 1,
            ..Compare::default()
        }],
        success: vec![write(value.clone())],
        failure: vec![write(value)],
    }))
}
