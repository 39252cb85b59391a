//! What reads the bytes of clients and peers, as functions of bytes, for the tests that
//! damage them. Not part of the crate's interface; never opens a socket.

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use prost::Message;

use super::etcd::convert;
use super::link::frame::{self, FRAME_LIMIT, HELLO_LIMIT};
use super::link::hello::{
    Answer, CheckpointDone, CheckpointHead, CheckpointPart, Hello, Question, Reply,
};
use super::{gateway, gateway_routes};
use crate::node::PeerMessage;
use crate::store::{Command, LeaseGrant, Operation, Range};
use crate::wire::etcd;

/// Reads frames until they end or one is refused, each as the message that a peer would expect,
/// and each again from its own encoding. Returns how many were read.
#[must_use]
pub fn frames(expected: u8, bytes: &[u8]) -> usize {
    match expected % 8 {
        0 => frames_of::<Hello>(bytes, HELLO_LIMIT),
        1 => frames_of::<Reply>(bytes, HELLO_LIMIT),
        2 => frames_of::<Question>(bytes, HELLO_LIMIT),
        3 => frames_of::<Answer>(bytes, FRAME_LIMIT),
        4 => frames_of::<CheckpointHead>(bytes, FRAME_LIMIT),
        5 => frames_of::<CheckpointPart>(bytes, FRAME_LIMIT),
        6 => frames_of::<CheckpointDone>(bytes, HELLO_LIMIT),
        _ => frames_of::<PeerMessage>(bytes, FRAME_LIMIT),
    }
}

fn frames_of<M: Message + Default + PartialEq>(mut bytes: &[u8], limit: usize) -> usize {
    let mut count = 0;
    // Bytes in memory are always ready.
    while let Some(Ok(Some(message))) = frame::read::<M>(&mut bytes, limit).now_or_never() {
        let mut again = BytesMut::new();
        frame::encode(&message, &mut again);
        let read = frame::read::<M>(&mut &again[..], FRAME_LIMIT).now_or_never();
        assert!(
            matches!(read, Some(Ok(Some(read))) if read == message),
            "a frame must be read as it was written"
        );
        count += 1;
    }
    count
}

/// What a request of a client becomes.
#[derive(Debug)]
pub enum Request {
    /// A question to the store.
    Read(Range),
    /// A proposal.
    Propose(Command),
}

/// Reads a request of a client, by the number of its kind; `None` for what is refused before it is
/// looked at, or becomes neither.
#[must_use]
pub fn request(kind: u8, body: &[u8]) -> Option<Request> {
    let body = Bytes::copy_from_slice(body);
    let operation = match kind % 6 {
        0 => Operation::Put(convert::put(same(body)?)),
        1 => Operation::DeleteRange(convert::delete_range(same(body)?)),
        2 => Operation::Txn(convert::txn(same(body)?)),
        3 => return Some(Request::Read(convert::range(same(body)?))),
        4 => {
            let etcd::LeaseGrantRequest { ttl, id } = same(body)?;
            Operation::LeaseGrant(LeaseGrant { id, ttl })
        }
        _ => {
            same::<etcd::WatchRequest>(body)?;
            return None;
        }
    };
    Some(Request::Propose(Command::from(operation)))
}

/// A message, if it can be read; what is written of it is read as the same.
fn same<M: Message + Default + PartialEq>(body: Bytes) -> Option<M> {
    let message = M::decode(body).ok()?;
    let again = M::decode(Bytes::from(message.encode_to_vec()));
    assert!(
        again.as_ref() == Ok(&message),
        "a message must be read as it was written"
    );
    Some(message)
}

/// JSON of the gateway's route with this number to a message and back. Returns the message and
/// its JSON.
#[must_use]
pub fn json(route: u8, text: &[u8]) -> Option<(Bytes, Bytes)> {
    let (_, method) = gateway_routes::ROUTES[usize::from(route) % gateway_routes::ROUTES.len()];
    gateway::there_and_back(method, Bytes::copy_from_slice(text))
}
