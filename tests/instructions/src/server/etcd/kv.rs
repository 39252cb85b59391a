//! The way of KV's calls between a connection and the store, without the connection: a message with gRPC's prefix is put
//! together, decoded, converted and checked, and the answer is converted and encoded. The server's own files do it; what
//! they are called by (`direct.rs`, `kv.rs`) is not counted, since it needs a connection.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use quorate_core::node::{LogPayload, RequestId};
use quorate_core::store::{self, Limits, Operation, PutResponse, View};

use super::convert;
use super::framing::{HEAD, Pieces, encoded, framed, is_one_message, may_become_one};
use crate::cases::put::{Prepared, filled, key, put};
use crate::wire::etcd;

/// The largest message, as the server's with its default flags.
const LIMIT: usize = 2 << 20;
/// Requests that are taken in turn.
const SOME: u64 = 1000;

pub(crate) fn ranges(count: u64) {
    let came = Prepared::new(SOME, |number| {
        let asked = etcd::RangeRequest {
            key: key(number),
            ..etcd::RangeRequest::default()
        };
        framed(&asked.encode_to_vec())
    });
    read(&came, count);
}

pub(crate) fn lists(count: u64) {
    let asked = etcd::RangeRequest {
        key: Bytes::from_static(b"/registry/pods/"),
        range_end: Bytes::from_static(b"/registry/pods0"),
        limit: 500,
        ..etcd::RangeRequest::default()
    };
    let came = Prepared::new(1, |_| framed(&asked.encode_to_vec()));
    read(&came, count);
}

fn read(came: &Prepared<Bytes>, count: u64) {
    let view = filled().0.publish();
    for number in 0..count {
        black_box(range(&view, came.of(number).clone()));
    }
}

fn range(view: &Arc<View>, came: Bytes) -> Bytes {
    let range = convert::range(decoded(came));
    store::check_range(&range).expect("it is a range");
    let found = view.range(&range).expect("it can be read");
    let header = header(found.revision);
    let answer = etcd::RangeResponse {
        header,
        ..convert::range_response(found)
    };
    encoded(&answer).expect("it fits into a message")
}

pub(crate) fn puts(count: u64) {
    let overview = filled().0.overview();
    let limits = Limits {
        max_txn_ops: 128,
        quota_bytes: 2 << 30,
    };
    let came = Prepared::new(SOME, |number| {
        let put = put(number);
        let asked = etcd::PutRequest {
            key: put.key,
            value: put.value,
            ..etcd::PutRequest::default()
        };
        framed(&asked.encode_to_vec())
    });
    for number in 0..count {
        let put = convert::put(decoded(came.of(number).clone()));
        let command = Operation::Put(put).into();
        store::check(&command, &limits, &overview).expect("it may be written");
        let request = RequestId {
            member: 1,
            boot_nonce: 1,
            counter: number,
        };
        black_box(LogPayload::command(Some(request), command));
        let revision = 2 + number as i64;
        let answer = etcd::PutResponse {
            header: header(revision),
            ..convert::put_response(PutResponse {
                revision,
                prev_kv: None,
            })
        };
        black_box(encoded(&answer));
    }
}

fn decoded<T: Message + Default>(came: Bytes) -> T {
    let mut pieces = Pieces::default();
    pieces.push(came);
    assert!(may_become_one(pieces.head(), LIMIT) && pieces.len() <= HEAD + LIMIT);
    let came = pieces.into_bytes();
    assert!(is_one_message(&came));
    T::decode(came.slice(HEAD..)).expect("it was encoded before")
}

fn header(revision: i64) -> Option<etcd::ResponseHeader> {
    Some(etcd::ResponseHeader {
        cluster_id: 7,
        member_id: 1,
        revision,
        raft_term: 1,
    })
}
