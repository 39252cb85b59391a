//! The decoders of what clients and peers send, as functions of bytes, for the tests that damage
//! the input. Not part of the crate's interface; never opens a socket.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use prost::Message;

use super::auth::jwt::{self, Jwt};
use super::auth::settings::JwtSettings;
use super::auth::simple;
use super::etcd::convert;
use super::gateway::{self, routes};
use super::link::frame::{self, FRAME_LIMIT, HELLO_LIMIT};
use super::link::hello::{
    CheckpointDone, CheckpointHead, CheckpointPart, Hello, PeerRequest, PeerResponse, Reply,
};
use super::operator_api::auth;
use crate::node::PeerMessage;
use crate::store::{Command, LeaseGrant, Operation, Range};
use crate::wire::etcd;

/// Reads frames until they end or one is refused, each as the message that a peer would expect, and
/// each again from its own encoding. Returns how many were read.
#[must_use]
pub fn frames(expected: u8, bytes: &[u8]) -> usize {
    match expected % 8 {
        0 => frames_of::<Hello>(bytes, HELLO_LIMIT),
        1 => frames_of::<Reply>(bytes, HELLO_LIMIT),
        2 => frames_of::<PeerRequest>(bytes, HELLO_LIMIT),
        3 => frames_of::<PeerResponse>(bytes, FRAME_LIMIT),
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

/// Takes what a client sends on a connection of our own HTTP/2 after its preface, in pieces of so many bytes, and
/// answers its requests. Returns their streams.
#[must_use]
pub fn http2(piece: usize, bytes: &[u8]) -> Vec<u32> {
    super::http2::answered(piece, bytes)
}

/// The result of decoding a client's request.
#[derive(Debug)]
pub enum Request {
    /// A read of the store.
    Read(Range),
    /// A proposal.
    Propose(Command),
}

/// Decodes a client's request, by the number of its kind; `None` if it is refused before decoding,
/// or is neither a read nor a proposal.
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

/// A message, if it can be decoded; its encoding must decode to the same message.
fn same<M: Message + Default + PartialEq>(body: Bytes) -> Option<M> {
    let message = M::decode(body).ok()?;
    let again = M::decode(Bytes::from(message.encode_to_vec()));
    assert!(
        again.as_ref() == Ok(&message),
        "a message must be read as it was written"
    );
    Some(message)
}

/// Converts JSON of the gateway's route with this number to a message and back. Returns the message
/// and its JSON.
#[must_use]
pub fn json(route: u8, text: &[u8]) -> Option<(Bytes, Bytes)> {
    let (_, method) = routes::ROUTES[usize::from(route) % routes::ROUTES.len()];
    gateway::there_and_back(method, Bytes::copy_from_slice(text))
}

/// Converts consecutive JSON objects, cut into pieces of so many bytes, to messages of the
/// gateway's route with this number, up to the first invalid one.
#[must_use]
pub fn json_stream(route: u8, piece: usize, text: &[u8]) -> Vec<Bytes> {
    let (_, method) = routes::ROUTES[usize::from(route) % routes::ROUTES.len()];
    let pieces = text.chunks(piece.max(1)).map(Bytes::copy_from_slice);
    // Pieces in memory are always ready.
    let messages = gateway::messages(method, pieces.collect()).now_or_never();
    messages.unwrap_or_default()
}

/// The user of this token, at a server that signs with a shared secret; with `sealed` the text is a
/// header, a line end and claims, which get a valid signature.
#[must_use]
pub fn token(sealed: bool, text: &str) -> Option<String> {
    let jwt = Jwt::of(&settings("HS256"), Some(b"a shared secret"), None).ok()?;
    let token = match text.split_once('\n') {
        Some((head, claims)) if sealed => jwt.sealed(head.as_bytes(), claims.as_bytes())?,
        _ => text.to_owned(),
    };
    let _ = simple::index(&token);
    let now = Duration::from_secs(1_000_000);
    let actor = jwt.check(&token, now)?;
    // A token signed again for that user must be valid for the same user.
    let again = jwt.check(&jwt.sign(&actor, now)?, now);
    assert!(
        again.as_ref() == Some(&actor),
        "a token must be read as it was written"
    );
    Some(actor.user)
}

/// Whether a file holds a key of the method with this number, private or public; if it does, it
/// must sign, or verify a token.
#[must_use]
pub fn key(method: u8, private: bool, file: &[u8]) -> bool {
    let settings = settings(jwt::METHODS[usize::from(method) % jwt::METHODS.len()]);
    let (ours, theirs) = if private {
        (Some(file), None)
    } else {
        (None, Some(file))
    };
    let Ok(jwt) = Jwt::of(&settings, ours, theirs) else {
        return false;
    };
    let head = format!("{{\"alg\":\"{}\"}}", settings.method);
    let token = jwt.sealed(head.as_bytes(), b"{}");
    let _ = jwt.check(&token.unwrap_or_default(), Duration::ZERO);
    true
}

fn settings(method: &str) -> JwtSettings {
    JwtSettings {
        method: method.to_owned(),
        public_key: None,
        private_key: None,
        ttl: Duration::from_secs(300),
    }
}

/// Why the proof of an operator's call is invalid, if it is: its time, nonce and proof are lines,
/// and the rest is the call. With `sealed` the proof is computed to be valid.
#[must_use]
pub fn proof(sealed: bool, text: &str) -> Option<&'static str> {
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let parts = [next(), next(), next()];
    auth::judge(sealed, parts, next().as_bytes()).err()
}
