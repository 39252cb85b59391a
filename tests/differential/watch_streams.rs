//! One watch stream with all its watchers, and the responses that they received.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use quorate::wire::mvccpb::{Event, KeyValue};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::process::PATIENCE;
use crate::server::Wire;

/// How long to wait for a progress notification before requesting it again: the server sends it only when all watchers
/// of the stream are synced.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The watch ID of responses that belong to no watcher.
const NO_WATCHER: i64 = -1;

#[derive(Debug)]
pub(crate) struct WatchStreams {
    requests: mpsc::UnboundedSender<WatchRequest>,
    responses: mpsc::UnboundedReceiver<WatchResponse>,
    /// The responses that each watcher received, as text.
    pub(crate) seen: BTreeMap<i64, Vec<String>>,
    created: usize,
    /// The revision of the newest progress notification.
    progress: i64,
    /// Watchers that were cancelled because of a compaction.
    compacted: BTreeSet<i64>,
    /// The newest revision that each watcher received, and whether further fragments of it follow.
    last: BTreeMap<i64, (i64, bool)>,
    /// Responses that announced further fragments.
    pub(crate) fragments: u64,
}

impl WatchStreams {
    pub(crate) async fn new(mut client: WatchClient<Wire>) -> WatchStreams {
        let (requests, queue) = mpsc::unbounded_channel();
        // etcd opens a stream with its first response, so a first request is needed.
        let create = WatchCreateRequest {
            key: Bytes::from_static(b"a"),
            ..WatchCreateRequest::default()
        };
        let first = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        requests.send(first).expect("an open stream");
        let stream = client.watch(UnboundedReceiverStream::new(queue)).await;
        let mut stream = stream.expect("a stream").into_inner();
        let (sender, responses) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(response)) = stream.message().await {
                if sender.send(response).is_err() {
                    return;
                }
            }
        });
        let mut watch_streams = WatchStreams {
            requests,
            responses,
            seen: BTreeMap::new(),
            created: 0,
            progress: 0,
            compacted: BTreeSet::new(),
            last: BTreeMap::new(),
            fragments: 0,
        };
        watch_streams.until_created(1).await;
        watch_streams
    }

    fn send(&mut self, union: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(union),
        };
        self.requests.send(request).expect("an open stream");
    }

    async fn until_created(&mut self, count: usize) {
        while self.created < count {
            let next = tokio::time::timeout(PATIENCE, self.responses.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("a watcher is not created: {:?}", self.last));
            self.take(next.expect("an open stream"));
        }
    }

    /// Creates a watcher, and returns the response.
    pub(crate) async fn create(&mut self, request: &WatchCreateRequest) -> String {
        let before = self.created;
        self.send(RequestUnion::CreateRequest(request.clone()));
        self.until_created(before + 1).await;
        format!("{} watchers", self.seen.len())
    }

    fn send_cancel(&mut self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
    }

    /// Cancels a watcher and waits for the response; returns at once if there is no such watcher.
    pub(crate) async fn cancel(&mut self, id: i64) {
        self.send_cancel(id);
        let alive = |watch_streams: &WatchStreams| {
            let last = watch_streams.seen.get(&id).and_then(|seen| seen.last());
            last.is_some_and(|last| !last.starts_with("canceled"))
        };
        while alive(self) {
            let next = tokio::time::timeout(PATIENCE, self.responses.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("watcher {id} is not cancelled"));
            self.take(next.expect("an open stream"));
        }
    }

    /// Waits until every watcher has received all events up to a revision.
    pub(crate) async fn settle(&mut self, revision: i64) {
        let start = tokio::time::Instant::now();
        self.progress = 0;
        while self.progress < revision {
            let waited = start.elapsed() < PATIENCE;
            assert!(waited, "no progress to {revision}: {:?}", self.last);
            self.send(RequestUnion::ProgressRequest(WatchProgressRequest {}));
            while let Ok(next) = tokio::time::timeout(ASK_AGAIN, self.responses.recv()).await {
                self.take(next.expect("an open stream"));
                if self.progress >= revision {
                    return;
                }
            }
        }
    }

    fn take(&mut self, response: WatchResponse) {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let id = response.watch_id;
        if id == NO_WATCHER && !response.created && !response.canceled {
            self.progress = self.progress.max(revision);
            return;
        }
        if self.compacted.contains(&id) {
            return;
        }
        let seen = self.seen.entry(id).or_default();
        if response.created {
            self.created += 1;
            seen.push(format!("created at {revision}"));
        }
        if let (Some(first), Some(last)) = (response.events.first(), response.events.last()) {
            let of = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            if let Some((before, more)) = self.last.get(&id)
                && (*before > of(first) || (*before == of(first) && !more))
            {
                seen.push(format!("again or split: {before}"));
            }
            self.last.insert(id, (of(last), response.fragment));
        }
        self.fragments += u64::from(response.fragment);
        seen.extend(response.events.iter().map(text));
        if response.canceled {
            let (compacted, reason) = (response.compact_revision, &response.cancel_reason);
            seen.push(format!("canceled {compacted} {reason}"));
            if compacted > 0 {
                self.compacted.insert(id);
                // In etcd such a watcher delays progress notifications until it is cancelled.
                self.send_cancel(id);
            }
        }
    }
}

fn text(event: &Event) -> String {
    let mut text = if event.r#type == 0 { "put" } else { "delete" }.to_owned();
    for kv in [&event.kv, &event.prev_kv].into_iter().flatten() {
        text.push_str(" | ");
        text.push_str(&short(kv));
    }
    text
}

fn short(kv: &KeyValue) -> String {
    let mut text = format!(
        "{:?} {} {} {} {} ",
        kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.lease
    );
    let _ = match kv.value.len() {
        0..100 => write!(text, "{:?}", kv.value),
        long => write!(text, "{long} bytes"),
    };
    text
}
