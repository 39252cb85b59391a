//! Watchers: each uses one member while that serves and for a limited time, and then resumes at another one. Some
//! resume from an earlier revision, to receive events again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, watch_create_request,
};
use quorate::wire::mvccpb;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;

use super::client::{Directory, Generator, kv};
use crate::history::{Event, Recorder, Shown, Watch};

/// A stream that is silent for this long is abandoned: progress notifications arrive twice a second.
const SILENCE: Duration = Duration::from_secs(3);

/// The parameters of a watcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) end: String,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev: bool,
    /// The maximum time on one stream, in milliseconds.
    pub(crate) stays: u64,
    /// Whether it requires a leader, as an API server does, so that its stream ends when there is none.
    pub(crate) needs_leader: bool,
    /// The maximum number of revisions that it goes back when it resumes.
    pub(crate) back: u64,
}

/// A running watcher.
pub(crate) struct Watcher {
    interest: Interest,
    generator: Generator,
    directory: Directory,
    recorder: Arc<Recorder>,
    /// It has received all events up to this revision.
    pub(crate) shown: Arc<AtomicI64>,
    enough: Arc<AtomicBool>,
}

struct Stream {
    answers: Streaming<WatchResponse>,
    requests: mpsc::UnboundedSender<WatchRequest>,
}

impl Watcher {
    pub(crate) fn new(
        interest: Interest,
        seed: u64,
        directory: &Directory,
        recorder: &Arc<Recorder>,
        enough: &Arc<AtomicBool>,
    ) -> Watcher {
        Watcher {
            interest,
            generator: Generator::new(seed),
            directory: Arc::clone(directory),
            recorder: Arc::clone(recorder),
            shown: Arc::new(AtomicI64::new(0)),
            enough: Arc::clone(enough),
        }
    }

    /// Watches until stopped.
    pub(crate) async fn run(mut self) {
        let mut next = 1;
        while !self.enough.load(Ordering::Relaxed) {
            let back = i64::try_from(self.generator.below(self.interest.back + 1)).expect("small");
            let start = (next - back).max(1);
            if let Some((member, stream)) = self.open(start).await {
                let mut watch = Watch {
                    watcher: self.interest.name.clone(),
                    member,
                    key: self.interest.key.clone(),
                    end: self.interest.end.clone(),
                    start,
                    no_put: self.interest.no_put,
                    no_delete: self.interest.no_delete,
                    prev: self.interest.prev,
                    shown: Vec::new(),
                };
                let reached = self.sit(stream, &mut watch).await;
                self.recorder.watch(watch);
                next = next.max(reached + 1);
            } else {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn open(&mut self, start: i64) -> Option<(String, Stream)> {
        let place = self.generator.place(&self.directory)?;
        let endpoint = Endpoint::from_shared(place.url).expect("a URL");
        let endpoint = endpoint.connect_timeout(SILENCE);
        let dial = endpoint.connect();
        let channel = timeout(SILENCE, dial).await.ok()?.ok()?;
        let (requests, receiver) = mpsc::unbounded_channel();
        let Interest { key, end, .. } = &self.interest;
        // An empty key stands for the smallest key.
        let key = if key.is_empty() { "\0" } else { key };
        let filters = [
            (
                self.interest.no_put,
                watch_create_request::FilterType::Noput,
            ),
            (
                self.interest.no_delete,
                watch_create_request::FilterType::Nodelete,
            ),
        ];
        let create = WatchCreateRequest {
            key: key.to_owned().into(),
            range_end: end.clone().into(),
            start_revision: start,
            progress_notify: true,
            prev_kv: self.interest.prev,
            filters: filters
                .iter()
                .filter_map(|(on, filter)| on.then_some((*filter).into()))
                .collect(),
            ..WatchCreateRequest::default()
        };
        let union = RequestUnion::CreateRequest(create);
        let _ = requests.send(WatchRequest {
            request_union: Some(union),
        });
        let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        let mut request = tonic::Request::new(UnboundedReceiverStream::new(receiver));
        if self.interest.needs_leader {
            let wanted = MetadataValue::from_static("true");
            request.metadata_mut().insert("hasleader", wanted);
        }
        let opened = client.watch(request);
        let mut answers = timeout(SILENCE, opened).await.ok()?.ok()?.into_inner();
        let created = timeout(SILENCE, answers.message()).await.ok()?.ok()??;
        (created.created && !created.canceled).then_some((place.name, Stream { answers, requests }))
    }

    /// Reads the stream; returns the revision that it reached.
    async fn sit(&mut self, mut stream: Stream, watch: &mut Watch) -> i64 {
        let mut reached = watch.start - 1;
        let until =
            Instant::now() + Duration::from_millis(self.generator.below(self.interest.stays));
        while !self.enough.load(Ordering::Relaxed) && Instant::now() < until {
            if self.generator.one_in(50) {
                let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
                let _ = stream.requests.send(WatchRequest {
                    request_union: Some(progress),
                });
            }
            let Ok(Ok(Some(answer))) = timeout(SILENCE, stream.answers.message()).await else {
                break;
            };
            let shown = self.read(&answer);
            let ends = answer.canceled;
            if let Some(last) = shown.events.last() {
                reached = reached.max(last.kv.modified);
            }
            if shown.bookmark {
                reached = reached.max(shown.revision);
            }
            if shown.compacted > 0 {
                // Compacted revisions cannot be watched; the first revision that is left can.
                reached = reached.max(shown.compacted - 1);
            }
            watch.shown.push(shown);
            self.shown.fetch_max(reached, Ordering::Relaxed);
            if ends {
                break;
            }
        }
        reached
    }

    fn read(&self, answer: &WatchResponse) -> Shown {
        let event = |event: &mvccpb::Event| Event {
            deleted: event.r#type == i32::from(mvccpb::event::EventType::Delete),
            kv: event.kv.as_ref().map(kv).unwrap_or_default(),
            prev: event.prev_kv.as_ref().map(kv),
        };
        Shown {
            at: self.recorder.now(),
            revision: answer.header.as_ref().map_or(0, |header| header.revision),
            events: answer.events.iter().map(event).collect(),
            bookmark: answer.events.is_empty() && !answer.canceled && !answer.created,
            compacted: answer.compact_revision,
        }
    }
}
