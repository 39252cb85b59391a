//! The Watch service as seen by a client: order, history, filters, progress notifications and errors.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::wire::etcd::watch_create_request::FilterType;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{self, WatchCreateRequest, WatchResponse};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::fixture::{Server, put};

/// A watch stream with both directions.
struct Stream {
    requests: mpsc::Sender<etcd::WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Stream {
    async fn open(server: &Server) -> Stream {
        let (requests, receiver) = mpsc::channel(16);
        let mut client = server.watch().await;
        let answers = client
            .watch(ReceiverStream::new(receiver))
            .await
            .expect("opens");
        Stream {
            requests,
            answers: answers.into_inner(),
        }
    }

    async fn ask(&self, request: RequestUnion) {
        let request = etcd::WatchRequest {
            request_union: Some(request),
        };
        self.requests.send(request).await.expect("taken");
    }

    async fn next(&mut self) -> WatchResponse {
        let answer = timeout(Duration::from_secs(10), self.answers.message()).await;
        answer
            .expect("in time")
            .expect("well")
            .expect("not the end")
    }

    async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.ask(RequestUnion::CreateRequest(request)).await;
        self.next().await
    }

    /// Asserts that no response arrives for a while.
    async fn quiet(&mut self) {
        let answer = timeout(Duration::from_millis(200), self.answers.message()).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}

fn on(key: &str) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key.to_owned().into(),
        ..Default::default()
    }
}

fn values(answer: &WatchResponse) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    answer
        .events
        .iter()
        .map(|event| {
            let kv = event.kv.as_ref().expect("kv");
            let previous = event
                .prev_kv
                .as_ref()
                .map_or(String::new(), |kv| text(&kv.value));
            let kind = if event.r#type == 0 { "put" } else { "delete" };
            format!(
                "{kind} {}={} was {previous:?} @{}",
                text(&kv.key),
                text(&kv.value),
                kv.mod_revision
            )
        })
        .collect()
}

// Shows Watch.Watch: creation, then history, then new events.
#[tokio::test]
async fn watch_history_precedes_live_events() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    kv.put(put("a", "1")).await.expect("put");
    kv.put(put("a", "2")).await.expect("put");
    let mut stream = Stream::open(&server).await;
    let request = WatchCreateRequest {
        start_revision: 2,
        prev_kv: true,
        ..on("a")
    };
    let created = stream.create(request).await;
    assert!(created.created && !created.canceled && created.watch_id == 0);
    assert!(created.events.is_empty());
    let history = stream.next().await;
    assert_eq!(
        values(&history),
        ["put a=1 was \"\" @2", "put a=2 was \"1\" @3"]
    );
    kv.put(put("b", "other")).await.expect("put");
    kv.delete_range(etcd::DeleteRangeRequest {
        key: "a".into(),
        ..Default::default()
    })
    .await
    .expect("delete");
    let present = stream.next().await;
    assert_eq!(values(&present), ["delete a= was \"2\" @5"]);
    assert_eq!(present.header.expect("header").revision, 5);
    stream
        .ask(RequestUnion::CancelRequest(etcd::WatchCancelRequest {
            watch_id: 0,
        }))
        .await;
    let canceled = stream.next().await;
    assert!(canceled.canceled && !canceled.created && canceled.watch_id == 0);
    kv.put(put("a", "3")).await.expect("put");
    stream.quiet().await;
}

// Shows Watch.Watch: a refused watcher is created, then cancelled.
#[tokio::test]
async fn refusals_come_as_created_and_canceled() {
    let server = Server::start(&[]);
    let mut stream = Stream::open(&server).await;
    let negative = WatchCreateRequest {
        start_revision: -1,
        ..on("a")
    };
    let empty = WatchCreateRequest {
        range_end: "a".into(),
        ..on("b")
    };
    for (request, reason) in [
        (
            negative,
            "etcdserver: mvcc: required revision has been compacted",
        ),
        (empty, "mvcc: watcher range is empty"),
    ] {
        let answer = stream.create(request).await;
        assert!(
            answer.created && answer.canceled && answer.watch_id == -1,
            "{answer:?}"
        );
        assert_eq!(answer.cancel_reason, reason);
    }
    let seven = WatchCreateRequest {
        watch_id: 7,
        ..on("a")
    };
    assert_eq!(stream.create(seven.clone()).await.watch_id, 7);
    let twice = stream.create(seven).await;
    assert_eq!(
        twice.cancel_reason,
        "mvcc: duplicate watch ID provided on the WatchStream"
    );
    assert_eq!(
        stream.create(on("a")).await.watch_id,
        0,
        "IDs of our choice count from 0"
    );
    assert_eq!(stream.create(on("a")).await.watch_id, 1);
}

// Shows Watch.Watch: a compacted start is created, then cancelled.
#[tokio::test]
async fn a_compacted_start_is_created_then_canceled() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for value in ["1", "2", "3"] {
        kv.put(put("a", value)).await.expect("put");
    }
    kv.compact(etcd::CompactionRequest {
        revision: 3,
        physical: false,
    })
    .await
    .expect("compact");
    let mut stream = Stream::open(&server).await;
    let created = stream
        .create(WatchCreateRequest {
            start_revision: 2,
            ..on("a")
        })
        .await;
    assert!(created.created && !created.canceled);
    let canceled = stream.next().await;
    assert!(canceled.canceled && canceled.compact_revision == 3 && canceled.watch_id == 0);
    // The compacted revision itself can still be watched.
    let at = stream
        .create(WatchCreateRequest {
            start_revision: 3,
            ..on("a")
        })
        .await;
    assert!(at.created && !at.canceled);
    assert_eq!(
        values(&stream.next().await),
        ["put a=2 was \"\" @3", "put a=3 was \"\" @4"]
    );
}

// Shows Watch.Watch: with a start in the future, no events until then.
#[tokio::test]
async fn a_start_in_the_future_is_waited_for() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    let mut stream = Stream::open(&server).await;
    let range = WatchCreateRequest {
        start_revision: 4,
        range_end: vec![0].into(),
        ..on("")
    };
    stream.create(range).await;
    stream
        .ask(RequestUnion::ProgressRequest(etcd::WatchProgressRequest {}))
        .await;
    kv.put(put("a", "2")).await.expect("put");
    kv.put(put("a", "3")).await.expect("put");
    stream.quiet().await;
    kv.put(put("a", "4")).await.expect("put");
    assert_eq!(values(&stream.next().await), ["put a=4 was \"\" @4"]);
    stream
        .ask(RequestUnion::ProgressRequest(etcd::WatchProgressRequest {}))
        .await;
    let progress = stream.next().await;
    assert!(progress.events.is_empty() && progress.watch_id == -1 && !progress.created);
    assert_eq!(progress.header.expect("header").revision, 4);
}

// Shows Watch.Watch: filters, progress notifications.
#[tokio::test]
async fn filtered_watchers_get_progress() {
    let server = Server::start(&["--watch-progress-notify-interval=300ms"]);
    let mut kv = server.kv().await;
    let mut stream = Stream::open(&server).await;
    let filters = vec![FilterType::Noput.into()];
    stream
        .create(WatchCreateRequest { filters, ..on("a") })
        .await;
    kv.put(put("a", "1")).await.expect("put");
    stream.quiet().await;
    kv.delete_range(etcd::DeleteRangeRequest {
        key: "a".into(),
        ..Default::default()
    })
    .await
    .expect("delete");
    assert_eq!(values(&stream.next().await), ["delete a= was \"\" @3"]);
    stream
        .create(WatchCreateRequest {
            progress_notify: true,
            ..on("z")
        })
        .await;
    let sign = stream.next().await;
    assert!(sign.watch_id == 1 && sign.events.is_empty() && !sign.created);
    assert_eq!(sign.header.expect("header").revision, 3);
}

// Shows Watch.Watch: a stream that has had nothing to send for long misses nothing, and its progress is true.
#[tokio::test]
async fn an_idle_stream_misses_nothing() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    let mut stream = Stream::open(&server).await;
    stream.create(on("a")).await;
    let future = WatchCreateRequest {
        start_revision: 1_000,
        ..on("a")
    };
    stream.create(future).await;
    // More than is kept after a compaction.
    for _ in 0..1_500 {
        kv.put(put("b", "other")).await.expect("put");
    }
    let compact = etcd::CompactionRequest {
        revision: 1_501,
        physical: true,
    };
    kv.compact(compact).await.expect("compact");
    kv.put(put("b", "other")).await.expect("put");
    let progress = || RequestUnion::ProgressRequest(etcd::WatchProgressRequest {});
    stream.ask(progress()).await;
    let answer = stream.next().await;
    assert!(
        answer.events.is_empty() && answer.watch_id == -1,
        "{answer:?}"
    );
    assert_eq!(answer.header.expect("header").revision, 1_502);
    for round in 1_503..1_603 {
        kv.put(put("a", "1")).await.expect("put");
        stream.ask(progress()).await;
        // Each watcher's event comes before the progress that includes it.
        for _ in 0..2 {
            let events = stream.next().await;
            assert_eq!(values(&events).len(), 1, "{events:?}");
            assert_eq!(events.header.expect("header").revision, round);
        }
        let answer = stream.next().await;
        assert!(
            answer.events.is_empty() && answer.watch_id == -1,
            "{answer:?}"
        );
        assert_eq!(answer.header.expect("header").revision, round);
    }
}

/// A watcher that is created while others write gets all that comes after the revision of its creation.
#[tokio::test]
async fn a_watcher_created_meanwhile_misses_nothing() {
    let server = Server::start(&[]);
    let mut stream = Stream::open(&server).await;
    let mut kv = server.kv().await;
    let writer = tokio::spawn(async move {
        let mut last = 0;
        for _ in 0..1_000 {
            let answer = kv.put(put("a", "1")).await.expect("put").into_inner();
            last = answer.header.expect("header").revision;
        }
        last
    });
    let mut next: BTreeMap<i64, i64> = BTreeMap::new();
    for _ in 0..40 {
        stream.ask(RequestUnion::CreateRequest(on("a"))).await;
        loop {
            let answer = stream.next().await;
            let revision = answer.header.as_ref().expect("header").revision;
            follow(&mut next, &answer);
            if answer.created {
                next.insert(answer.watch_id, revision + 1);
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let last = writer.await.expect("written");
    while next.values().any(|next| *next <= last) {
        let answer = stream.next().await;
        follow(&mut next, &answer);
    }
}

/// Each event is the one of the next revision.
fn follow(next: &mut BTreeMap<i64, i64>, answer: &WatchResponse) {
    for event in &answer.events {
        let next = next.get_mut(&answer.watch_id).expect("known");
        assert_eq!(event.kv.as_ref().expect("kv").mod_revision, *next);
        *next += 1;
    }
}

// Shows Watch.Watch: fragments only if requested.
#[tokio::test]
async fn a_revision_is_split_only_if_requested() {
    let server = Server::start(&["--max-request-bytes=600000"]);
    let mut kv = server.kv().await;
    // Each transaction is below the limit; the events of the whole history are not.
    let operation = |key: &str| etcd::RequestOp {
        request: Some(etcd::request_op::Request::RequestPut(put(
            key,
            &"v".repeat(250_000),
        ))),
    };
    for keys in [["a", "b"], ["c", "d"], ["e", "f"]] {
        let success = keys.iter().map(|key| operation(key)).collect();
        kv.txn(etcd::TxnRequest {
            success,
            ..Default::default()
        })
        .await
        .expect("txn");
    }
    let all = WatchCreateRequest {
        start_revision: 2,
        range_end: vec![0].into(),
        ..on("")
    };
    let mut whole = Stream::open(&server).await;
    whole.create(all.clone()).await;
    let mut events = 0;
    while events < 6 {
        let answer = whole.next().await;
        assert!(!answer.fragment);
        assert_eq!(
            answer.events.len() % 2,
            0,
            "both keys of a revision come together"
        );
        events += answer.events.len();
    }
    let mut split = Stream::open(&server).await;
    split
        .create(WatchCreateRequest {
            fragment: true,
            ..all
        })
        .await;
    let (mut events, mut fragments) = (0, 0);
    while events < 6 {
        let answer = split.next().await;
        events += answer.events.len();
        fragments += usize::from(answer.fragment);
    }
    assert!(fragments > 0);
}
