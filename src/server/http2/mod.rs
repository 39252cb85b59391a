//! HTTP/2 for clients (RFC 9113): what gRPC's unary calls need, in as few steps as they allow. Behind the feature gate
//! `OwnHTTP2`; without it the library that serves HTTP/1, hyper, does it.
//!
//! - `frame`: the bytes of frames. `hpack`: the bytes of header blocks. Both without a state of a connection but the
//!   decoder's table.
//! - `head`, `blocks`: requests' heads, and responses' heads and trailers.
//! - `connection`, `stream`, `sending`, `output`: a connection's state, pure; what comes, and what goes.
//! - `exchange`: one request and its response. `drive`: the task that reads and writes.
//!
//! Has no client side, no server push, no priorities (a client may send them) and no upgrade from HTTP/1: that one, and
//! HTTP/1 itself, stay with hyper. Never looks into a body.
//!
//! Why, and what it saves: docs/decisions/070-our-own-http2.md

mod blocks;
mod connection;
mod drive;
mod exchange;
mod frame;
mod head;
mod hpack;
mod output;
mod sending;
mod stream;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use connection::{Connection, Limits};
use stream::End;

pub(in crate::server) use drive::{Handler, Http2, Settings};
pub(in crate::server) use exchange::RequestBody;
pub(in crate::server) use frame::PREFACE;

/// A connection without a socket: takes what a client sends after its preface, in pieces of so many bytes, and then
/// answers the requests that began. Returns their streams. For the tests that damage the input.
pub(in crate::server) fn answered(piece: usize, bytes: &[u8]) -> Vec<u32> {
    let mut connection = Connection::new(Limits {
        streams: 100,
        stream_window: 1 << 16,
        connection_window: 1 << 17,
        headers: 1 << 14,
    });
    let mut streams = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let received = connection.receive(piece);
        streams.extend(connection.opened().iter().map(|it| it.stream));
        if received.is_err() {
            break;
        }
    }
    for id in &streams {
        let begun = connection.respond(*id, StatusCode::OK, &HeaderMap::new(), false);
        if begun.is_ok() {
            connection.send(*id, Bytes::from_static(b"answer"));
            connection.finish(*id, End::Data);
        }
    }
    connection.pump();
    streams
}
