//! A connection's task, with a client at the other end of a pipe that speaks in frames.

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::frame::{self, HEAD, Head, Kind};
use super::*;

const SETTINGS: Settings = Settings {
    streams: 100,
    stream_window: 1 << 16,
    connection_window: 1 << 16,
    headers: 1 << 14,
    keepalive: None,
};
/// `:method: POST`, `:scheme: http`, and the beginning of a `:path` of two bytes.
const REQUEST: [u8; 4] = [0x83, 0x86, 0x04, 0x02];
const WHOLE: u8 = frame::END_HEADERS | frame::END_STREAM;
/// Bytes of a long answer.
const LONG: usize = 1 << 20;

/// Answers by path: `/l` at length, `/e` with what it is asked, `/n` never, `/p` with a panic. Briefly if `brief`.
struct Answers {
    brief: bool,
}

impl Handler for Answers {
    type Body = BoxBody<Bytes, io::Error>;
    type Answer = BoxFuture<'static, Response<Self::Body>>;

    fn is_brief(&self, _: &Parts) -> bool {
        self.brief
    }

    fn answer(&mut self, request: Request<RequestBody>) -> Self::Answer {
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            Response::new(match path.as_str() {
                "/l" => {
                    let piece = Bytes::from(vec![7; 1 << 14]);
                    let pieces = vec![piece; LONG >> 14].into_iter();
                    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
                    BoxBody::new(StreamBody::new(futures::stream::iter(frames)))
                }
                "/e" => request.into_body().boxed(),
                "/n" => std::future::pending().await,
                "/p" => panic!("a service that fails"),
                _ => BoxBody::new(Empty::new().map_err(|never| match never {})),
            })
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }
}

struct Client {
    pipe: DuplexStream,
    served: JoinHandle<Result<(), Http2Error>>,
}

impl Client {
    async fn connect(brief: bool) -> Client {
        let (pipe, other) = duplex(1 << 12);
        let mut connection = Http2::new(other, SETTINGS, Answers { brief });
        let served = tokio::spawn(async move { connection.run().await });
        let mut client = Client { pipe, served };
        client.send(Kind::Settings, 0, 0, &[]).await;
        client
    }

    async fn send(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        let mut out = BytesMut::new();
        frame::put_head(&mut out, payload.len(), kind, flags, stream);
        out.extend_from_slice(payload);
        self.pipe.write_all(&out).await.expect("sent");
    }

    async fn ask(&mut self, stream: u32, flags: u8, path: &str) {
        let block = [&REQUEST[..], path.as_bytes()].concat();
        self.send(Kind::Headers, flags, stream, &block).await;
    }

    /// The next frame that belongs to a stream.
    async fn next(&mut self) -> (Head, Vec<u8>) {
        let mut head = [0; HEAD];
        loop {
            let read = timeout(Duration::from_secs(20), self.pipe.read_exact(&mut head));
            read.await.expect("in time").expect("a frame");
            let head = Head::read(&head);
            let mut payload = vec![0; head.length];
            self.pipe
                .read_exact(&mut payload)
                .await
                .expect("its payload");
            if head.stream > 0 && head.kind != Kind::WindowUpdate {
                return (head, payload);
            }
        }
    }

    /// The data of a whole answer.
    async fn answer(&mut self, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (head, payload) = self.next().await;
            assert_eq!(head.stream, stream);
            if head.kind == Kind::Data {
                let came = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
                all.extend(payload);
                if came != [0; 4] {
                    self.send(Kind::WindowUpdate, 0, 0, &came).await;
                }
                if came != [0; 4] && !head.has(frame::END_STREAM) {
                    self.send(Kind::WindowUpdate, 0, stream, &came).await;
                }
            }
            if head.has(frame::END_STREAM) {
                return all;
            }
        }
    }
}

/// An answer of which more is always ready stopped at 128 KiB: nobody told the connection's task that there was something
/// to send. A backup of more than that never ended.
#[tokio::test]
async fn long_answer_comes_whole() {
    for brief in [false, true] {
        let mut client = Client::connect(brief).await;
        client.ask(1, WHOLE, "/l").await;
        assert_eq!(client.answer(1).await.len(), LONG);
        client.ask(3, WHOLE, "/x").await;
        assert_eq!(client.answer(3).await, b"");
    }
}

#[tokio::test]
async fn request_is_read_while_it_comes() {
    for brief in [false, true] {
        let mut client = Client::connect(brief).await;
        client.ask(1, frame::END_HEADERS, "/e").await;
        let (head, _) = client.next().await;
        assert_eq!(head.kind, Kind::Headers, "it is answered before its end");
        // More than the window in all, which is given back as it is read.
        for number in 0..40 {
            client.send(Kind::Data, 0, 1, &vec![number; 1 << 12]).await;
            let (head, payload) = client.next().await;
            assert_eq!((head.kind, payload), (Kind::Data, vec![number; 1 << 12]));
            let came = (1_u32 << 12).to_be_bytes();
            client.send(Kind::WindowUpdate, 0, 0, &came).await;
            client.send(Kind::WindowUpdate, 0, 1, &came).await;
        }
        client.send(Kind::Data, frame::END_STREAM, 1, &[]).await;
        let (head, _) = client.next().await;
        assert!(head.has(frame::END_STREAM));
    }
}

#[tokio::test]
async fn client_that_leaves_ends_the_connection() {
    for brief in [false, true] {
        let mut client = Client::connect(brief).await;
        client.ask(1, WHOLE, "/n").await;
        client.ask(3, WHOLE, "/x").await;
        let (head, _) = client.next().await;
        assert_eq!(head.stream, 3);
        let Client { pipe, served } = client;
        drop(pipe);
        let ended = timeout(Duration::from_secs(20), served).await;
        let _ = ended.expect("in time").expect("without a panic");
    }
}

#[tokio::test]
async fn task_that_fails_resets_its_stream() {
    let mut client = Client::connect(false).await;
    client.ask(1, WHOLE, "/p").await;
    let (head, _) = client.next().await;
    assert_eq!((head.kind, head.stream), (Kind::Reset, 1));
}

#[tokio::test]
async fn silent_client_is_asked_and_then_left() {
    let (mut pipe, other) = duplex(1 << 12);
    let settings = Settings {
        keepalive: Some((Duration::from_millis(200), Duration::from_millis(100))),
        ..SETTINGS
    };
    let begun = Instant::now();
    let mut connection = Http2::new(other, settings, Answers { brief: false });
    let served = connection.run().await;
    assert!(matches!(served, Err(Http2Error::Silent)), "{served:?}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let mut sent = vec![0; 4096];
    let length = pipe.read(&mut sent).await.expect("frames");
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0];
    assert!(sent[..length].windows(ping.len()).any(|it| it == ping));
}

#[tokio::test]
async fn damaged_request_is_told_why() {
    let mut client = Client::connect(false).await;
    client.send(Kind::Data, 0, 1, b"of no stream").await;
    let error = client.served.await.expect("without a panic");
    let text = error.expect_err("an error").to_string();
    assert_eq!(text, "HTTP/2: a frame of a stream not begun");
    let mut sent = Vec::new();
    client.pipe.read_to_end(&mut sent).await.expect("frames");
    let text = b"a frame of a stream not begun";
    assert!(sent.windows(text.len()).any(|it| it == text));
}
