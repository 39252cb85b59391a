//! Fan-out: many watchers of one key, one writer. Measures from just before a put is sent to
//! each event's arrival; an event that never arrives is a failure.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::SeedableRng as _;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::Error;
use super::load::{ANSWER_BYTES, Load, Schedule, start};
use super::summary::{Summary, Tally};
use super::work::{Generator, text};
use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::watch_client::WatchClient;
use crate::wire::etcd::{
    PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request,
};

/// Bytes at the start of a value with the time at which it was sent.
const STAMP: usize = 8;

/// Watchers and one writer.
#[derive(Clone, Debug)]
pub(super) struct FanOut {
    pub(super) watchers: usize,
    pub(super) streams: usize,
    /// Streams beside them that get nothing: each watches a key of its own.
    pub(super) idle: usize,
    pub(super) load: Load,
}

/// A stream and how many watchers it carries.
struct Stream {
    watchers: usize,
    incoming: Streaming<WatchResponse>,
    /// Kept open: the server closes a stream when its client has closed the sending side.
    _outgoing: mpsc::UnboundedSender<WatchRequest>,
}

/// What is measured while events arrive.
#[derive(Default)]
struct Measurements {
    tally: RefCell<Tally>,
    events: Cell<u64>,
    last: Cell<Duration>,
    /// Measured puts that were acknowledged, and when the first of them was sent.
    sent: Cell<u64>,
    first: Cell<Option<Duration>>,
}

impl FanOut {
    /// Creates the watchers, writes, and waits until every event has arrived.
    pub(super) fn run(self) -> Result<Summary, Error> {
        self.run_after(|| {})
    }

    /// The same; `created` is called between the creation and the first write.
    pub(super) fn run_after(self, created: impl FnOnce()) -> Result<Summary, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, self.measure(created))
    }

    async fn measure(self, created: impl FnOnce()) -> Result<Summary, Error> {
        let key = self.load.work.keys.key(0);
        let mut channels = Vec::new();
        for connection in 0..self.load.connections {
            channels.push(self.load.connect(connection).await?);
        }
        let streams = self.streams.min(self.watchers);
        let mut open = Vec::new();
        for stream in 0..streams {
            let watchers = (stream..self.watchers).step_by(streams).count();
            let channel = channels[stream % channels.len()].clone();
            let created = create(channel, &key, watchers);
            let created = tokio::time::timeout(self.load.timeout, created).await;
            open.push(created.map_err(|_| Error::Watch("no answer in time".to_owned()))??);
        }
        let mut idle = Vec::new();
        for stream in 0..self.idle {
            let channel = channels[stream % channels.len()].clone();
            let key = Bytes::from([&key[..], format!("/idle/{stream}").as_bytes()].concat());
            idle.push(create(channel, &key, 1).await?);
        }
        created();
        let (measurements, begun) = (Rc::new(Measurements::default()), Instant::now());
        let mut readers = Vec::new();
        for stream in open {
            readers.push(tokio::task::spawn_local(read(
                stream,
                begun,
                self.load.warm_up,
                Rc::clone(&measurements),
            )));
        }
        // A writer on a separate connection: it must not wait behind its own events.
        let kv = KvClient::new(self.load.connect(0).await?);
        write(&self.load, kv, key, begun, &measurements).await;
        let wanted = measurements.sent.get() * self.watchers as u64;
        let quiet = async {
            while measurements.events.get() < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let missed = match tokio::time::timeout(self.load.timeout, quiet).await {
            Ok(()) => 0,
            Err(_) => wanted - measurements.events.get(),
        };
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        let mut tally = measurements.tally.take();
        if missed > 0 {
            tally.fail("an event did not arrive".to_owned(), missed);
        }
        Ok(Summary {
            what: format!(
                "watch: {} watchers of one key on {streams} streams and {} connections, {} puts, {} idle streams",
                self.watchers,
                self.load.connections,
                measurements.sent.get(),
                idle.len()
            ),
            unit: "events",
            elapsed: measurements
                .last
                .get()
                .saturating_sub(measurements.first.get().unwrap_or_default()),
            tally,
        })
    }
}

/// One stream with its watchers, once the server has confirmed each.
async fn create(channel: Channel, key: &Bytes, watchers: usize) -> Result<Stream, Error> {
    let (outgoing, requests) = mpsc::unbounded_channel();
    for _ in 0..watchers {
        let create = WatchCreateRequest {
            key: key.clone(),
            ..WatchCreateRequest::default()
        };
        // The receiver is in this function.
        let _ = outgoing.send(WatchRequest {
            request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
        });
    }
    let mut client = WatchClient::new(channel).max_decoding_message_size(ANSWER_BYTES);
    let failed = |status: tonic::Status| Error::Watch(text(&status));
    let answer = client.watch(UnboundedReceiverStream::new(requests)).await;
    let mut incoming = answer.map_err(failed)?.into_inner();
    let mut created = 0;
    while created < watchers {
        let response = incoming.message().await.map_err(failed)?;
        let response = response.ok_or_else(|| Error::Watch("the stream ended".to_owned()))?;
        if response.canceled {
            return Err(Error::Watch(response.cancel_reason));
        }
        created += usize::from(response.created);
    }
    Ok(Stream {
        watchers,
        incoming,
        _outgoing: outgoing,
    })
}

async fn read(
    mut stream: Stream,
    begun: Instant,
    warm_up: Duration,
    measurements: Rc<Measurements>,
) {
    loop {
        let failure = match stream.incoming.message().await {
            Ok(Some(response)) if response.canceled => response.cancel_reason,
            Ok(Some(response)) => {
                count(&response, begun, warm_up, &measurements);
                continue;
            }
            Ok(None) => "the stream ended".to_owned(),
            Err(status) => text(&status),
        };
        let watchers = stream.watchers as u64;
        measurements.tally.borrow_mut().fail(failure, watchers);
        return;
    }
}

fn count(response: &WatchResponse, begun: Instant, warm_up: Duration, measurements: &Measurements) {
    let now = begun.elapsed();
    let stamps = response.events.iter().filter_map(|event| {
        let head = event.kv.as_ref()?.value.get(..STAMP)?;
        Some(Duration::from_nanos(u64::from_be_bytes(
            head.try_into().ok()?,
        )))
    });
    for sent in stamps.filter(|sent| *sent >= warm_up) {
        measurements
            .tally
            .borrow_mut()
            .record(now.saturating_sub(sent), Ok(()));
        measurements.events.set(measurements.events.get() + 1);
        measurements.last.set(now);
    }
}

/// One put after the other, each with the time of its sending.
async fn write(
    load: &Load,
    mut kv: KvClient<Channel>,
    key: Bytes,
    begun: Instant,
    measurements: &Measurements,
) {
    let schedule = Schedule::new(load);
    let mut generator = Generator::seed_from_u64(load.seed);
    let size = load.work.value.len().max(STAMP);
    while let Some(ticket) = schedule.next(begun.elapsed()) {
        start(begun, ticket.due).await;
        let mut value = vec![0; size];
        rand::Rng::fill_bytes(&mut generator, &mut value);
        let mut sent = begun.elapsed();
        if ticket.measured {
            // A request that is due right at the end of the warm-up counts.
            sent = sent.max(load.warm_up);
        }
        let nanos = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
        value[..STAMP].copy_from_slice(&nanos.to_be_bytes());
        let put = PutRequest {
            key: key.clone(),
            value: value.into(),
            ..PutRequest::default()
        };
        let answer = tokio::time::timeout(load.timeout, kv.put(put)).await;
        let outcome = answer.map_or_else(
            |_| Err("no answer to a put in time".to_owned()),
            |answer| answer.map(drop).map_err(|status| text(&status)),
        );
        match outcome {
            Ok(()) if sent >= load.warm_up => {
                measurements.sent.set(measurements.sent.get() + 1);
                measurements
                    .first
                    .set(Some(measurements.first.get().unwrap_or(sent)));
            }
            Ok(()) => {}
            Err(text) => measurements.tally.borrow_mut().fail(text, 1),
        }
    }
}
