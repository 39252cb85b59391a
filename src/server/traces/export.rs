//! The thread that sends sampled calls to the collector of traces, in batches, by OTLP over gRPC without TLS as etcd does.
//!
//! A collector that is away is asked again, less and less often, with the batch that it did not take; meanwhile the queue
//! fills, and what does not fit is counted. Never keeps more than the queue and one batch, and never keeps the server
//! from ending: what can be sent at once is sent, for two seconds at most.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc as threads};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::context::Sampler;
use super::otlp;
use super::tracer::{Call, Counts, Tracer, next_random};
use crate::server::flags::tracing::Tracing;
use crate::server::listen::quiet::printable;
use crate::server::process::host_facts;

/// Calls of one batch.
const BATCH: usize = 256;
/// How long the first call of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// Time for a batch to be taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Pauses after a failure: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time to connect, and between two signs of life of a connection that is in use: together less than [`TAKEN_WITHIN`].
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_secs(3);
/// After this a batch that is not taken makes way for later ones: it may be the batch that is at fault.
const KEPT: Duration = Duration::from_secs(300);
/// In the details of an answer that says when to come again.
const RETRY: &[u8] = b"google.rpc.RetryInfo";
/// From one warning about a collector that is away to the next.
const WARN_AGAIN: Duration = Duration::from_secs(60);
/// Time for what is left when the server ends.
const FLUSH: Duration = Duration::from_secs(2);

/// The running thread.
pub(in crate::server) struct Exporter {
    stop: watch::Sender<bool>,
    /// Ends when the thread has.
    ended: threads::Receiver<Infallible>,
}

impl Exporter {
    /// Starts the thread; what the tracer samples goes to the collector of these settings.
    pub(in crate::server) fn start(tracing: &Tracing) -> io::Result<(Arc<Tracer>, Exporter)> {
        let address = format!("http://{}", tracing.address);
        // A host that ends without a word would otherwise be believed to be there for a quarter of an hour.
        let endpoint = Endpoint::from_shared(address)
            .map_err(io::Error::other)?
            .connect_timeout(CONNECTED_WITHIN)
            .http2_keep_alive_interval(ASKED_EVERY)
            .keep_alive_timeout(ASKED_EVERY);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (tracer, calls, counts) = Tracer::new(Sampler::per_million(tracing.per_million));
        let (stop, stopped) = watch::channel(false);
        let (alive, ended) = threads::channel();
        let tracing = tracing.clone();
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || {
                host_facts::step_back();
                runtime.block_on(async {
                    let client = TraceServiceClient::new(endpoint.connect_lazy());
                    let sending = Sending {
                        tracing,
                        client,
                        calls,
                        counts,
                        gathered: Vec::new(),
                        batch: None,
                        away: None,
                        known_dropped: 0,
                        warned: None,
                    };
                    sending.run(stopped).await;
                });
                // A name may still be being resolved.
                runtime.shutdown_background();
                drop(alive);
            })?;
        Ok((Arc::new(tracer), Exporter { stop, ended }))
    }

    /// Ends the thread; waits for it as long as it may take at most.
    pub(in crate::server) fn shutdown(self) {
        // An error means that it has ended.
        let _ = self.stop.send(true);
        let _ = self.ended.recv_timeout(FLUSH + FLUSH / 10);
    }
}

/// Waits until the thread is to stop.
async fn stops(stop: &mut watch::Receiver<bool>) {
    // An error means that the owner is gone, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What is to be sent, until it was taken.
struct Batch {
    request: ExportTraceServiceRequest,
    spans: u64,
    formed: Instant,
}

/// The thread's own state.
struct Sending {
    tracing: Tracing,
    client: TraceServiceClient<Channel>,
    calls: mpsc::Receiver<Call>,
    counts: Arc<Counts>,
    gathered: Vec<Call>,
    batch: Option<Batch>,
    /// The collector does not take what it is sent, and is asked again after this pause.
    away: Option<Duration>,
    /// The spans that had been dropped when it last took some.
    known_dropped: u64,
    /// When the log last said that something is wrong with it.
    warned: Option<Instant>,
}

impl Sending {
    /// Sends until it is to stop, and then what is left.
    async fn run(mut self, stop: watch::Receiver<bool>) {
        let mut over = stop.clone();
        let over = async {
            stops(&mut over).await;
            tokio::time::sleep(FLUSH).await;
        };
        // What was begun to be sent is not given up: sent once more, the collector would have it twice.
        tokio::select! {
            () = self.go_on(stop) => {}
            () = over => {}
        }
        self.give_up();
    }

    /// Sends batch after batch, and once it is to stop what is left, unless the collector does not take it.
    async fn go_on(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                () = stops(&mut stop) => break,
                more = self.gather() => if !more {
                    break;
                },
            }
            self.form();
            while self.batch.is_some() {
                self.send().await;
                let Some(pause) = self.away else {
                    continue;
                };
                tokio::select! {
                    biased;
                    () = stops(&mut stop) => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
        self.flush().await;
    }

    /// Waits for calls; false if there will be none.
    async fn gather(&mut self) -> bool {
        if self.calls.recv_many(&mut self.gathered, BATCH).await == 0 {
            return false;
        }
        let more = async {
            while self.gathered.len() < BATCH {
                let room = BATCH - self.gathered.len();
                if self.calls.recv_many(&mut self.gathered, room).await == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(GATHER, more).await;
        true
    }

    /// Makes a batch of what was gathered.
    fn form(&mut self) {
        if self.gathered.is_empty() || self.batch.is_some() {
            return;
        }
        let calls = std::mem::take(&mut self.gathered);
        self.batch = Some(Batch {
            request: otlp::request(&self.tracing, &calls, &mut next_random),
            spans: calls.iter().map(Call::spans).sum(),
            formed: Instant::now(),
        });
    }

    /// Sends the batch. It is kept if it may be taken later.
    async fn send(&mut self) {
        let Some(batch) = &self.batch else {
            return;
        };
        let mut request = Request::new(batch.request.clone());
        self.tracing.headers.add_to(request.metadata_mut());
        let sent = self.client.export(request);
        let sent = tokio::time::timeout(TAKEN_WITHIN, sent).await;
        let late = || Status::deadline_exceeded("no answer in time");
        match sent.unwrap_or_else(|_| Err(late())) {
            Ok(answer) => {
                let partly = answer.into_inner().partial_success.unwrap_or_default();
                self.taken(
                    u64::try_from(partly.rejected_spans).unwrap_or(0),
                    &partly.error_message,
                );
            }
            Err(error) if may_be_taken_later(&error) => self.not_taken(&error),
            Err(error) => {
                let all = batch.spans;
                self.taken(all, error.message());
            }
        }
    }

    /// The collector has taken the batch but for so many spans.
    fn taken(&mut self, refused: u64, why: &str) {
        let spans = self.batch.take().map_or(0, |batch| batch.spans);
        let refused = refused.min(spans);
        self.counts.exported.fetch_add(spans - refused, Relaxed);
        self.counts.dropped.fetch_add(refused, Relaxed);
        if self.away.take().is_some() {
            tracing::info!(
                address = self.tracing.address,
                "the collector of traces takes spans again"
            );
        }
        let dropped = self.counts.dropped.load(Relaxed);
        let slowly = dropped > self.known_dropped && refused == 0;
        self.known_dropped = dropped;
        if slowly {
            self.warn("takes spans too slowly");
        }
        if refused > 0 {
            self.warn(&format!("refuses {refused} spans: {}", printable(why, 200)));
        }
    }

    /// It may take the batch later; each time it is given twice as long.
    fn not_taken(&mut self, error: &Status) {
        let pause = self
            .away
            .map_or(PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.away = Some(pause);
        let is_old = |batch: &mut Batch| batch.formed.elapsed() >= KEPT;
        if let Some(batch) = self.batch.take_if(is_old) {
            self.counts.dropped.fetch_add(batch.spans, Relaxed);
        }
        let why = printable(error.message(), 200);
        self.warn(&format!("does not take spans: {:?}, {why}", error.code()));
    }

    /// Warns, unless that was done lately.
    fn warn(&mut self, what: &str) {
        let now = Instant::now();
        let lately = |at: Instant| now.saturating_duration_since(at) < WARN_AGAIN;
        if self.warned.is_some_and(lately) {
            return;
        }
        self.warned = Some(now);
        let dropped = self.counts.dropped.load(Relaxed);
        let address = &self.tracing.address;
        tracing::warn!(
            address,
            dropped,
            "the collector of traces {what}; requests go on"
        );
    }

    /// Sends what is left, unless the collector does not take it.
    async fn flush(&mut self) {
        loop {
            self.form();
            while self.batch.is_some() {
                self.send().await;
                if self.away.is_some() {
                    return;
                }
            }
            while self.gathered.len() < BATCH
                && let Ok(call) = self.calls.try_recv()
            {
                self.gathered.push(call);
            }
            if self.gathered.is_empty() {
                return;
            }
        }
    }

    /// Counts what was not sent.
    fn give_up(mut self) {
        while let Ok(call) = self.calls.try_recv() {
            self.gathered.push(call);
        }
        let gathered: u64 = self.gathered.iter().map(Call::spans).sum();
        let spans = gathered + self.batch.map_or(0, |batch| batch.spans);
        if spans > 0 {
            self.counts.dropped.fetch_add(spans, Relaxed);
            tracing::warn!(spans, "spans were left that no collector has taken");
        }
    }
}

/// Whether OTLP lets a client send the same once more.
fn may_be_taken_later(error: &Status) -> bool {
    match error.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Too much at once, unless the collector says when to come again.
        Code::ResourceExhausted => {
            let details = error.details();
            details.windows(RETRY.len()).any(|part| part == RETRY)
        }
        // The connection ended before the answer, as tonic says it; a collector's own answer has no source.
        Code::Unknown => std::error::Error::source(error).is_some(),
        _ => false,
    }
}
