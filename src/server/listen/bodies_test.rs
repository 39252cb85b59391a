//! Bodies that arrive slowly, in pieces, or not at all.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{Bodies, Message, Metered, WHOLE_WITHIN, ended};
use crate::server::scheduling::hosts::Host;

const PUT: &str = "/etcdserverpb.KV/Put";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

type Pieces = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

struct Sending(mpsc::Sender<Result<Frame<Bytes>, Infallible>>);

impl Sending {
    async fn send(&self, data: &[u8]) {
        let frame = Frame::data(Bytes::copy_from_slice(data));
        self.0.send(Ok(frame)).await.expect("taken");
    }
}

fn body(bodies: &Arc<Bodies>, path: &str, grpc: bool) -> (Sending, Metered<Pieces>) {
    body_from(bodies, path, grpc, None)
}

fn host(last: u8) -> Option<Host> {
    Some(Host::of([10, 0, 0, last].into()))
}

fn body_from(
    bodies: &Arc<Bodies>,
    path: &str,
    grpc: bool,
    from: Option<Host>,
) -> (Sending, Metered<Pieces>) {
    let mut headers = HeaderMap::new();
    if grpc {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
    }
    let (sender, receiver) = mpsc::channel(100);
    let body = StreamBody::new(ReceiverStream::new(receiver));
    (Sending(sender), bodies.meter(path, &headers, from, body))
}

fn json(bodies: &Arc<Bodies>, endless: bool) -> (Sending, Metered<Pieces>) {
    let (sender, receiver) = mpsc::channel(100);
    let body = StreamBody::new(ReceiverStream::new(receiver));
    (Sending(sender), bodies.meter_json(endless, None, body))
}

/// How the body ends: with all its bytes, or with an error.
async fn read(mut body: Metered<Pieces>) -> Result<usize, Code> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => length += frame.into_data().expect("data").len(),
            Err(error) => return Err(ended(&*error).expect("a status").code()),
        }
    }
    Ok(length)
}

#[test]
fn only_incomplete_bodies_wait() {
    let whole = [
        &[0, 0, 0, 0, 3][..],
        b"abc",
        &[0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 1],
        b"d",
    ]
    .concat();
    for size in 1..=whole.len() {
        let mut message = Message::default();
        let mut waits = 0;
        for piece in whole.chunks(size) {
            waits = message.take(piece);
            assert!(waits < 8, "{size}");
        }
        assert_eq!(waits, 0, "{size}");
    }
    assert_eq!(Message::default().take(&whole[..7]), 7);
    assert_eq!(Message::default().take(&whole[..8]), 0);
}

/// The time of a call began when its message was complete, so a message that was never completed
/// held its stream and its bytes for as long as the client liked.
#[tokio::test]
async fn trickling_body_ends_in_time() {
    let within = Duration::from_millis(200);
    let bodies = Bodies::new(1 << 20, within);
    for path in ["gRPC", "JSON"] {
        let (sending, metered) = match path {
            "gRPC" => body(&bodies, PUT, true),
            _ => json(&bodies, false),
        };
        let began = tokio::time::Instant::now();
        let trickle = tokio::spawn(async move {
            let frame = |data: &'static [u8]| Ok(Frame::data(Bytes::from_static(data)));
            let mut next = frame(&[0, 0, 0, 200, 0]);
            while sending.0.send(next).await.is_ok() {
                next = frame(b"x");
                tokio::time::sleep(within / 10).await;
            }
        });
        assert_eq!(read(metered).await, Err(Code::Unavailable), "{path}");
        assert!(began.elapsed() >= within, "{path}");
        trickle.await.expect("ends");
    }
    let (nothing, metered) = body(&bodies, PUT, true);
    assert_eq!(
        read(metered).await,
        Err(Code::Unavailable),
        "not even a length"
    );
    drop(nothing);
    assert_eq!(bodies.late.load(Relaxed), 3);
    assert_eq!(bodies.held(), 0);
}

#[tokio::test]
async fn stream_timeout_is_within_a_message() {
    let bodies = Bodies::new(1 << 20, WHOLE_WITHIN);
    let (_sending, mut watch) = body(&bodies, WATCH, true);
    assert_eq!(watch.until, None);
    assert!(watch.count(&[0, 0, 0]));
    let first = watch.until.expect("it has begun");
    assert!(watch.count(&[0, 2, 7]));
    assert_eq!(
        watch.until,
        Some(first),
        "what comes of it gives it no more time"
    );
    std::thread::yield_now();
    assert!(watch.count(&[7, 0, 0]));
    let second = watch.until.expect("the next has begun");
    assert!(second > first, "with time of its own");
    assert!(watch.count(&[0, 0, 1, 7]));
    assert_eq!(watch.until, None);
    let (_sending, put) = body(&bodies, PUT, true);
    assert!(
        put.until.is_some(),
        "a call of one message begins with its head"
    );
}

#[tokio::test]
async fn refuses_too_many_incomplete_bodies() {
    let bodies = Bodies::new(2000, WHOLE_WITHIN);
    let mut holding = Vec::new();
    for _ in 0..3 {
        let (sending, mut metered) = body(&bodies, PUT, true);
        sending
            .send(&[&[0, 0, 0, 4, 0][..], &[7; 295]].concat())
            .await;
        metered.frame().await.expect("more").expect("well");
        holding.push((sending, metered));
    }
    assert_eq!(bodies.held(), 900);
    let (sending, metered) = body(&bodies, PUT, true);
    sending
        .send(&[&[0, 0, 0, 4, 0][..], &[7; 200]].concat())
        .await;
    assert_eq!(read(metered).await, Err(Code::ResourceExhausted));
    let (sending, metered) = body(&bodies, PUT, true);
    sending
        .send(&[&[0, 0, 0, 4, 0][..], &[7; 1024]].concat())
        .await;
    drop(sending);
    assert_eq!(read(metered).await, Ok(1029), "it is whole");
    drop(holding);
    assert_eq!(bodies.held(), 0);
    assert_eq!(bodies.refused.load(Relaxed), 1);
    // A single one is accepted whatever its size: the service has a limit for that.
    let (sending, metered) = body(&bodies, PUT, true);
    sending
        .send(&[&[0, 0, 1, 0, 0][..], &[7; 40_000]].concat())
        .await;
    sending.send(&[7; 25_536]).await;
    drop(sending);
    assert_eq!(read(metered).await, Ok(65_541));
}

/// All bytes ever received on a JSON stream counted for as long as it was open: because of one
/// watch through the gateway, idle since its first line, larger writes of all other clients were
/// refused.
#[tokio::test]
async fn consumed_json_no_longer_counts() {
    let bodies = Bodies::new(1000, WHOLE_WITHIN);
    let (sending, mut watch) = json(&bodies, true);
    assert_eq!(watch.until, None, "it may be silent");
    sending.send(&[b'x'; 900]).await;
    watch.frame().await.expect("more").expect("well");
    assert_eq!(bodies.held(), 900);
    let began = watch.until.expect("a value has begun");
    watch.keeps(10);
    assert!(bodies.held() == 10 && watch.until >= Some(began));
    watch.keeps(0);
    assert_eq!((bodies.held(), watch.until), (0, None));
    let (put, metered) = body(&bodies, PUT, true);
    put.send(&[&[0, 0, 0, 4, 0][..], &[7; 400]].concat()).await;
    put.send(&[7; 624]).await;
    drop(put);
    assert_eq!(read(metered).await, Ok(1029), "others have their room");
    // Paths that the gateway meters are not metered twice, whichever prefix is used.
    for path in [
        "/v3/watch",
        "/v3beta/watch",
        "/v3beta/lease/keepalive",
        "/v3/kv/put",
    ] {
        let (sending, mut metered) = body(&bodies, path, false);
        sending.send(&[b'x'; 900]).await;
        metered.frame().await.expect("more").expect("well");
        assert_eq!((bodies.held(), metered.until), (0, None), "{path}");
    }
}

/// One host could fill all the room for incomplete messages, so that no other could send more than
/// fits into one frame.
#[tokio::test]
async fn one_host_fills_no_more_than_half() {
    let bodies = Bodies::new(8000, WHOLE_WITHIN);
    let mut holding = Vec::new();
    let mut hold = async |last: u8| {
        let (sending, mut metered) = body_from(&bodies, PUT, true, host(last));
        sending
            .send(&[&[0, 0, 0, 8, 0][..], &[7; 995]].concat())
            .await;
        let taken = metered.frame().await.expect("more").is_ok();
        if taken {
            holding.push((sending, metered));
        }
        taken
    };
    let mut greedy = 0;
    while hold(1).await {
        greedy += 1;
    }
    assert_eq!(greedy, 4);
    assert!(hold(2).await && hold(2).await, "half of what is left");
    assert!(!hold(2).await && !hold(1).await);
    assert!(hold(3).await, "and still another one");
    assert_eq!(bodies.held(), 7000);
    assert_eq!(bodies.refused.load(Relaxed), 3);
    holding.clear();
    assert_eq!(bodies.held(), 0);
    assert!(bodies.lock().hosts.is_empty());
}

/// The reader of a websocket receives only complete messages, and reports how many bytes wait.
#[tokio::test]
async fn websocket_messages_obey_the_body_limits() {
    let within = Duration::from_millis(200);
    let bodies = Bodies::new(1000, within);
    let waits = |meter: &mut Metered<()>, bytes| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        meter.waits_with(bytes, &mut context)
    };
    let (mut one, mut other) = (bodies.meter_messages(None), bodies.meter_messages(None));
    assert!(waits(&mut one, 600) && waits(&mut other, 0));
    assert_eq!(bodies.held(), 600);
    assert!(!waits(&mut other, 700), "there is not as much");
    drop(other);
    assert!(waits(&mut one, 0), "it is whole");
    assert!(waits(&mut one, 5) && waits(&mut one, 6));
    let mut late = bodies.meter_messages(None);
    assert!(waits(&mut late, 1));
    tokio::time::sleep(within * 2).await;
    assert!(!waits(&mut late, 2), "since the first of it came");
    assert!(waits(&mut one, 0), "a whole one is never late");
    drop((one, late));
    assert_eq!(bodies.held(), 0);
    let counts = (bodies.refused.load(Relaxed), bodies.late.load(Relaxed));
    assert_eq!(counts, (1, 1));
}
