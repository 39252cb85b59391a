//! Long responses of Range, sent piece by piece.
//!
//! One gRPC message is normally encoded in one step: a list of a million keys would delay every
//! other connection of its thread, and for a client that does not read, all of it would be held in
//! memory. Here only references to keys and values are kept, and a piece is encoded once the client
//! has room for it. On the wire it is the same single message.
//!
//! Used for calls that came in over HTTP: [`mark`] marks them for the service, which passes the
//! response to [`send`] in the response's extensions.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use hyper::body::Frame;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::convert;
use crate::server::scheduling::turns;
use crate::store;
use crate::wire::{etcd, mvccpb};

/// Bytes of a piece: what a thread encodes before other tasks get their turn.
const PIECE: usize = 256 << 10;
/// Keys that are examined before other tasks get their turn.
const KEYS: usize = 1000;
/// The only path with long responses.
const PATH: &str = "/etcdserverpb.KV/Range";

/// Marks a call whose response may be sent in pieces.
#[derive(Clone, Copy, Debug)]
struct Pieces;

/// A response, passed in the extensions of the HTTP response.
#[derive(Clone, Debug)]
struct Long {
    answer: Arc<etcd::RangeResponse>,
    bytes: u32,
}

/// Marks calls whose responses [`send`] can split.
pub(super) fn mark(mut request: http::Request<Body>) -> http::Request<Body> {
    if request.uri().path() == PATH {
        mark_call(request.extensions_mut());
    }
    request
}

/// The same for calls that do not pass [`mark`], and whose responses are made with [`long`].
pub(super) fn mark_call(extensions: &mut http::Extensions) {
    extensions.insert(Pieces);
}

/// Whether the response to this call may be sent in pieces.
pub(super) fn may_be_sent_in_pieces<T>(request: &Request<T>) -> bool {
    request.extensions().get::<Pieces>().is_some()
}

/// The wire format of a response and its encoded size, computed without blocking the thread for
/// long.
pub(super) async fn convert(
    header: Option<etcd::ResponseHeader>,
    response: store::RangeResponse,
) -> (etcd::RangeResponse, usize) {
    let store::RangeResponse {
        kvs, more, count, ..
    } = response;
    let mut answer = etcd::RangeResponse {
        header,
        kvs: Vec::new(),
        more,
        count,
    };
    let mut bytes = answer.encoded_len();
    answer.kvs.reserve_exact(kvs.len());
    for (number, kv) in kvs.into_iter().enumerate() {
        if number > 0 && number % KEYS == 0 {
            turns::pass().await;
        }
        let kv = convert::key_value(kv);
        let length = kv.encoded_len();
        bytes += 1 + prost::length_delimiter_len(length) + length;
        answer.kvs.push(kv);
    }
    (answer, bytes)
}

/// The response of the service: whole if it is small or the call came from within the process,
/// otherwise attached to an empty one, for [`send`].
pub(super) fn answer(
    pieces: bool,
    response: Response<(etcd::RangeResponse, usize)>,
) -> Result<Response<etcd::RangeResponse>, Status> {
    let (metadata, (answer, bytes), mut extensions) = response.into_parts();
    let bytes = u32::try_from(bytes).map_err(|_| {
        Status::resource_exhausted(format!(
            "an answer of {bytes} bytes does not fit into one message: ask for fewer keys at a time"
        ))
    })?;
    if !pieces || bytes as usize <= PIECE {
        return Ok(Response::from_parts(metadata, answer, extensions));
    }
    let answer = Arc::new(answer);
    extensions.insert(Long { answer, bytes });
    let empty = etcd::RangeResponse::default();
    Ok(Response::from_parts(metadata, empty, extensions))
}

/// Replaces the empty response by the long one.
pub(super) fn send(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Long>() {
        None => response,
        Some(long) => response.map(|_empty| Body::new(Sending::new(long))),
    }
}

/// The body of a long response, taken out of the extensions of the service's: it must be the only one that holds it, or
/// all of it would be copied.
pub(super) fn long(extensions: &mut http::Extensions) -> Option<Body> {
    extensions
        .remove::<Long>()
        .map(|long| Body::new(Sending::new(long)))
}

/// What remains to be sent of a response.
struct Sending {
    /// The frame's prefix and the header, then `None`.
    first: Option<Bytes>,
    kvs: std::iter::Peekable<std::vec::IntoIter<mvccpb::KeyValue>>,
    /// `more` and the count.
    last: Option<Bytes>,
    trailers: bool,
    /// The queue for turns: a connection takes as many pieces as its client has room for, which is
    /// megabytes, and many clients that list all keys delayed puts by all of these.
    place: turns::Place,
}

impl Sending {
    fn new(long: Long) -> Sending {
        debug_assert_eq!(Arc::strong_count(&long.answer), 1, "it would be copied");
        let answer = Arc::unwrap_or_clone(long.answer);
        let head = etcd::RangeResponse {
            header: answer.header,
            ..etcd::RangeResponse::default()
        };
        let tail = etcd::RangeResponse {
            more: answer.more,
            count: answer.count,
            ..etcd::RangeResponse::default()
        };
        // gRPC's prefix of a message: not compressed, and its length.
        let mut first = BytesMut::with_capacity(5 + head.encoded_len());
        first.put_u8(0);
        first.put_u32(long.bytes);
        first.put_slice(&head.encode_to_vec());
        Sending {
            first: Some(first.freeze()),
            kvs: answer.kvs.into_iter().peekable(),
            last: Some(tail.encode_to_vec().into()).filter(|tail: &Bytes| !tail.is_empty()),
            trailers: true,
            place: turns::Place::default(),
        }
    }

    /// The next piece. Fields follow in the order of their numbers, so that the pieces together
    /// equal the message encoded in one step.
    fn piece(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.kvs.peek().is_none() {
            return self.last.take();
        }
        let mut piece = BytesMut::with_capacity(PIECE + (16 << 10));
        while piece.len() < PIECE {
            let Some(kv) = self.kvs.next() else { break };
            // A message field: its number and type, its length, its content.
            piece.put_u8(0x12);
            // A growing buffer always has room.
            let _ = kv.encode_length_delimited(&mut piece);
        }
        Some(piece.freeze())
    }
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.kvs.peek().is_some() {
            // The place in the queue is kept while it is not this response's turn.
            ready!(pin!(self.place.pass()).poll(context));
        }
        if let Some(piece) = self.piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if !std::mem::take(&mut self.trailers) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(keys: usize, value: usize) -> store::RangeResponse {
        let kv = |number| store::KeyValue {
            key: format!("key {number:06}").into(),
            value: vec![7; value].into(),
            create_revision: 1,
            mod_revision: 2 + number as i64,
            version: 1,
            lease: 0,
        };
        store::RangeResponse {
            kvs: (0..keys).map(kv).collect(),
            more: true,
            count: keys as i64 + 5,
            ..store::RangeResponse::default()
        }
    }

    fn header() -> Option<etcd::ResponseHeader> {
        Some(etcd::ResponseHeader {
            revision: 77,
            ..etcd::ResponseHeader::default()
        })
    }

    #[tokio::test]
    async fn chunked_encoding_equals_the_whole_message() {
        for (keys, value) in [(4000, 300), (3, 700_000), (1, 300_000)] {
            let (whole, bytes) = convert(header(), response(keys, value)).await;
            let want = whole.encode_to_vec();
            assert_eq!(bytes, want.len());
            let mut carried = answer(true, Response::new((whole, bytes))).expect("fits");
            assert_eq!(*carried.get_ref(), etcd::RangeResponse::default());
            let long = carried.extensions_mut().remove::<Long>();
            let long = long.expect("it is long");
            let mut sending = Sending::new(long);
            let pieces: Vec<Bytes> = std::iter::from_fn(|| sending.piece()).collect();
            assert!(pieces.iter().all(|piece| piece.len() < PIECE + value + 64));
            let sent = pieces.concat();
            assert_eq!(sent[0], 0, "not compressed");
            assert_eq!(sent[1..5], (bytes as u32).to_be_bytes());
            assert!(sent[5..] == want[..], "{keys} keys of {value} bytes");
        }
    }

    #[tokio::test]
    async fn short_responses_are_not_chunked() {
        for (pieces, keys) in [(true, 10), (false, 4000)] {
            let (whole, bytes) = convert(header(), response(keys, 300)).await;
            let carried = answer(pieces, Response::new((whole.clone(), bytes))).expect("fits");
            assert_eq!(*carried.get_ref(), whole);
            assert!(carried.extensions().get::<Long>().is_none());
        }
    }

    #[test]
    fn responses_above_the_message_limit_fail() {
        let whole = (etcd::RangeResponse::default(), 1 << 33);
        let refused = answer(true, Response::new(whole)).expect_err("too long");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }
}
