//! Input from clients and peers: frames of links, gRPC messages, JSON of the gateway.

use quorate::server::decoders::{self, Request};
use quorate::store::{Limits, Operation, Position, Put, Store, check, check_range};

use super::choice;

/// Frames of a link; the first byte selects whether they are complete, or bodies that get a valid header.
pub(crate) fn frames(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    if mode & 1 == 0 {
        let _ = decoders::frames(mode >> 1, bytes);
        return;
    }
    let mut stream = Vec::with_capacity(bytes.len() + 8);
    stream.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    stream.extend_from_slice(&crc32c::crc32c(bytes).to_be_bytes());
    stream.extend_from_slice(bytes);
    let _ = decoders::frames(mode >> 1, &stream);
}

/// A connection of our own HTTP/2: what comes at once begins no other requests than what comes in pieces, between which
/// those that the client resets right away have begun as well.
pub(crate) fn http2(bytes: &[u8]) {
    let Some((piece, bytes)) = choice(bytes) else {
        return;
    };
    let whole = decoders::http2(bytes.len(), bytes);
    let pieces = decoders::http2(piece.into(), bytes);
    assert!(
        whole.iter().all(|stream| pieces.contains(stream)),
        "{whole:?} are begun at once, and {pieces:?} in pieces"
    );
}

/// Requests of clients: decoded, converted, validated, and executed if they are valid.
pub(crate) fn requests(bytes: &[u8]) {
    let Some((kind, body)) = choice(bytes) else {
        return;
    };
    let mut store = Store::new();
    for (number, key) in (1..).zip(["a", "ab", "b"]) {
        let put = Operation::Put(Put {
            key: key.into(),
            value: "value".into(),
            ..Put::default()
        });
        store.apply(&put.into(), at(number)).unwrap();
    }
    let overview = store.overview();
    match decoders::request(kind, body) {
        Some(Request::Read(range)) if check_range(&range).is_ok() => {
            let _ = store.publish().range(&range);
        }
        Some(Request::Propose(command))
            if check(&command, &Limits::default(), &overview).is_ok() =>
        {
            let _ = store.apply(&command, at(4));
            let _ = store.publish().hash_kv(0);
        }
        _ => {}
    }
}

fn at(index: u64) -> Position {
    Position { index, term: 1 }
}

/// JSON of the gateway: the decoded message, encoded as JSON, decodes to the same message.
pub(crate) fn json(bytes: &[u8]) {
    let Some((route, text)) = choice(bytes) else {
        return;
    };
    let Some((message, text)) = decoders::json(route, text) else {
        return;
    };
    let again = decoders::json(route, &text).map(|(message, _)| message);
    assert_eq!(again, Some(message), "{}", String::from_utf8_lossy(&text));
}

/// A sequence of JSON objects, as in a websocket or a streamed body: however it is split into pieces, it yields the
/// same messages.
pub(crate) fn stream(bytes: &[u8]) {
    let Some((route, bytes)) = choice(bytes) else {
        return;
    };
    let Some((piece, text)) = choice(bytes) else {
        return;
    };
    let whole = decoders::json_stream(route, text.len(), text);
    let pieces = decoders::json_stream(route, piece.into(), text);
    assert_eq!(whole, pieces);
}
