//! What a client may send as the body of a call. KV's calls are answered without the router; whatever is not one whole
//! message has to end as on the way through it, which Compact, which nothing shortens, shows beside them.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use prost::Message as _;
use quorate::wire::etcd;
use tonic::transport::Channel;
use tower::{Service as _, ServiceExt as _};

use super::fixture::{Server, put};

const RANGE: &str = "/etcdserverpb.KV/Range";
const COMPACT: &str = "/etcdserverpb.KV/Compact";

/// The end of a call: the code and text of its status, and its message.
#[derive(Debug, PartialEq)]
struct End {
    code: String,
    text: String,
    message: Bytes,
}

async fn call(
    channel: &mut Channel,
    path: &str,
    header: (&'static str, &'static str),
    frames: Vec<Frame<Bytes>>,
) -> End {
    let frames = futures::stream::iter(frames.into_iter().map(Ok));
    exchange(channel, path, header, frames).await
}

/// The same with a stream of frames, which need not end.
async fn exchange(
    channel: &mut Channel,
    path: &str,
    header: (&'static str, &'static str),
    frames: impl Stream<Item = Result<Frame<Bytes>, tonic::Status>> + Send + 'static,
) -> End {
    let body = StreamBody::new(frames);
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(header.0, header.1)
        .body(tonic::body::Body::new(body))
        .expect("a request");
    let ready = channel.ready().await.expect("connected");
    let (parts, body) = ready.call(request).await.expect("answered").into_parts();
    let body = body.collect().await.expect("whole");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let field = |name: &str| {
        let of = |headers: &HeaderMap| headers.get(name).cloned();
        let value = of(&parts.headers).or_else(|| of(&trailers));
        value.map_or_else(String::new, |value| {
            value.to_str().expect("text").to_owned()
        })
    };
    End {
        code: field("grpc-status"),
        text: field("grpc-message"),
        message: body.to_bytes(),
    }
}

fn message(flag: u8, length: usize, content: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(flag);
    framed.put_u32(length as u32);
    framed.put_slice(content);
    framed.freeze()
}

fn data(pieces: &[&[u8]]) -> Vec<Frame<Bytes>> {
    let piece = |piece: &&[u8]| Frame::data(Bytes::copy_from_slice(piece));
    pieces.iter().map(piece).collect()
}

// Shows KV.Range: a request in pieces.
#[tokio::test]
async fn message_may_come_in_any_pieces() {
    let server = Server::start(&[]);
    server.kv().await.put(put("k", "v")).await.expect("written");
    let mut channel = server.channel().await;
    let none = ("x-nothing", "0");
    let range = etcd::RangeRequest {
        key: "k".into(),
        ..Default::default()
    };
    let range = range.encode_to_vec();
    let whole = message(0, range.len(), &range);
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    let mut ends_with_trailers = data(&[&whole]);
    ends_with_trailers.push(Frame::trailers(HeaderMap::new()));
    for frames in [
        data(&[&whole]),
        data(&bytes),
        data(&[&whole[..3], &whole[3..], b""]),
        ends_with_trailers,
    ] {
        let end = call(&mut channel, RANGE, none, frames).await;
        assert_eq!((end.code.as_str(), end.text.as_str()), ("0", ""), "{end:?}");
        let answer = etcd::RangeResponse::decode(&end.message[5..]).expect("an answer");
        assert_eq!(answer.kvs[0].value, "v");
    }
}

#[tokio::test]
async fn what_is_not_one_message_ends_as_through_the_router() {
    let server = Server::start(&["--max-request-bytes=10000"]);
    let mut channel = server.channel().await;
    let none = ("x-nothing", "0");
    let gzip = ("grpc-encoding", "gzip");
    let empty = message(0, 0, b"");
    let large = message(0, 700_000, &vec![7; 700_000]);
    let cases: [(&str, _, &[&[u8]]); 10] = [
        ("nothing", none, &[]),
        ("half of a prefix", none, &[&[0, 0, 0]]),
        ("a message cut short", none, &[&message(0, 9, b"123")]),
        ("no protobuf", none, &[&message(0, 3, &[0xff; 3])]),
        ("compressed", none, &[&message(1, 2, b"zz")]),
        ("an unknown flag", none, &[&message(7, 2, b"zz")]),
        ("a compression", gzip, &[&message(1, 2, b"zz")]),
        ("too large", none, &[&large]),
        ("a large length", none, &[&message(0, 1 << 30, b"123")]),
        ("two messages", none, &[&empty, &message(0, 3, &[0xff; 3])]),
    ];
    for (what, header, pieces) in cases {
        let through = call(&mut channel, COMPACT, header, data(pieces)).await;
        let direct = call(&mut channel, RANGE, header, data(pieces)).await;
        assert_ne!(through.code, "0", "{what}: {through:?}");
        // A message of protobuf's is named in its error.
        let text = |end: &End| end.text.replace("CompactionRequest", "RangeRequest");
        assert_eq!(
            (&direct.code, text(&direct)),
            (&through.code, text(&through)),
            "{what}"
        );
    }
}

/// What its head shows to be no message that is taken was refused once all of it had come, or never.
#[tokio::test]
async fn refusals_do_not_wait_for_the_end() {
    let server = Server::start(&["--max-request-bytes=10000"]);
    let mut channel = server.channel().await;
    for head in [
        message(0, 1 << 30, b"123"),
        message(1, 9, b"z"),
        message(7, 9, b"z"),
    ] {
        for path in [COMPACT, RANGE] {
            let begun = futures::stream::iter(data(&[&head]).into_iter().map(Ok));
            let frames = begun.chain(futures::stream::pending());
            let call = exchange(&mut channel, path, ("x-nothing", "0"), frames);
            let end = tokio::time::timeout(Duration::from_secs(10), call).await;
            let end = end.unwrap_or_else(|_| panic!("{path} waits for the rest of {head:?}"));
            assert_ne!(end.code, "0", "{path}: {end:?}");
        }
    }
}
