//! Many watchers, and watchers whose client does not read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{WatchCreateRequest, WatchRequest, WatchResponse};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::bystander::Bystanders;
use super::fixture::{PATIENCE, Server, figure, put, size};

/// The longest acceptable round of a bystander, for a debug build on a busy machine.
const STALL: Duration = Duration::from_secs(5);

/// A watch stream with several watchers of one key.
struct Stream {
    answers: Streaming<WatchResponse>,
    _requests: mpsc::UnboundedSender<WatchRequest>,
}

impl Stream {
    async fn open(server: &Server, key: &str, watchers: usize) -> Stream {
        let (requests, receiver) = mpsc::unbounded_channel();
        for _ in 0..watchers {
            let create = WatchCreateRequest {
                key: key.to_owned().into(),
                ..WatchCreateRequest::default()
            };
            let request = WatchRequest {
                request_union: Some(RequestUnion::CreateRequest(create)),
            };
            requests.send(request).expect("taken");
        }
        let client = WatchClient::new(server.channel().await);
        let mut client = client.max_decoding_message_size(usize::MAX);
        let stream = client.watch(UnboundedReceiverStream::new(receiver)).await;
        let mut stream = Stream {
            answers: stream.expect("opens").into_inner(),
            _requests: requests,
        };
        for _ in 0..watchers {
            assert!(stream.next().await.created);
        }
        stream
    }

    async fn next(&mut self) -> WatchResponse {
        let answer = timeout(PATIENCE, self.answers.message()).await;
        let answer = answer.expect("in time").expect("well");
        answer.expect("not the end")
    }

    /// Reads until each watcher has received this many events, and checks that the revisions of each increase.
    async fn events(&mut self, watchers: usize, each: usize) {
        let mut seen: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
        let mut left = watchers * each;
        while left > 0 {
            let answer = self.next().await;
            assert!(!answer.canceled, "{answer:?}");
            let (count, last) = seen.entry(answer.watch_id).or_default();
            for event in &answer.events {
                let revision = event.kv.as_ref().expect("a key").mod_revision;
                assert!(revision > *last, "{revision} after {last}");
                *last = revision;
                *count += 1;
                left -= 1;
            }
        }
        assert_eq!(seen.len(), watchers);
        assert!(seen.values().all(|(count, _)| *count == each));
    }
}

/// Ten thousand watchers of one key, on a hundred streams, all receive every put, and other clients are served
/// meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watchers_of_one_key() {
    const STREAMS: usize = 100;
    const PUTS: usize = 10;
    let home = tempfile::tempdir().expect("folder");
    let server = Server::alone(home.path()).await;
    let watchers = size("OPERATION_WATCHERS", 10_000) / STREAMS;
    let before = server.resident_mib();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(Stream::open(&server, "watched", watchers).await);
    }
    let grown = server.resident_mib() - before;
    let bystanders = Bystanders::start(&server).await;
    let begun = Instant::now();
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { stream.events(watchers, PUTS).await }))
        .collect();
    let mut kv = server.kv().await;
    for _ in 0..PUTS {
        kv.put(put("watched", vec![1; 100])).await.expect("put");
    }
    for reader in readers {
        reader.await.expect("every event");
    }
    let took = begun.elapsed();
    let (rounds, longest) = bystanders.stop().await;
    let all = watchers * STREAMS;
    figure(&format!(
        "{all} watchers: {:.2} KiB each with their streams, {} events in {} ms; {rounds} rounds of \
         others meanwhile, the longest {} ms",
        grown * 1024.0 / all as f64,
        all * PUTS,
        took.as_millis(),
        longest.as_millis()
    ));
    assert!(
        grown * 1024.0 / (all as f64) < 8.0,
        "{grown} MiB for {all} watchers"
    );
    assert!(longest < STALL, "a bystander waited {longest:?}");
}

/// A client with a thousand watchers stops reading while its key changes a thousand times. The server does not store a
/// million events for it; once the client reads again, no event is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_stops_reading() {
    const WATCHERS: usize = 1_000;
    const PUTS: usize = 600;
    let home = tempfile::tempdir().expect("folder");
    let server = Server::alone(home.path()).await;
    let mut stream = Stream::open(&server, "watched", WATCHERS).await;
    let before = server.resident_mib();
    let mut kv = server.kv().await;
    for _ in 0..PUTS {
        kv.put(put("watched", vec![1; 16])).await.expect("put");
    }
    let paused = server.resident_mib() - before;
    let bystanders = Bystanders::start(&server).await;
    let (done, mut look) = mpsc::channel::<()>(1);
    let begun = Instant::now();
    let reader = tokio::spawn(async move {
        stream.events(WATCHERS, PUTS).await;
        drop(done);
    });
    // The peak memory while the stream catches up.
    let mut most = paused;
    while timeout(Duration::from_millis(20), look.recv())
        .await
        .is_err()
    {
        most = most.max(server.resident_mib() - before);
    }
    reader.await.expect("every event");
    let (rounds, longest) = bystanders.stop().await;
    figure(&format!(
        "{WATCHERS} watchers of one client that paused for {PUTS} puts: {paused:.0} MiB meanwhile, \
         {most:.0} MiB at most while it caught up in {} ms; {rounds} rounds of others, the longest \
         {} ms",
        begun.elapsed().as_millis(),
        longest.as_millis()
    ));
    assert!(most < 64.0, "{most} MiB");
    assert!(longest < STALL, "a bystander waited {longest:?}");
}
