//! The tracer: decides of each request whether it is sampled, and queues those that are when they have ended.
//!
//! The queue is bounded: what does not fit is counted and dropped. Never waits, and never sends anything itself.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;
use tonic::Code;
use tonic::metadata::MetadataMap;

use super::about::About;
use super::context::{Sampled, Sampler};
use super::stages::Stages;
use crate::server::core::state::random;
use crate::server::metrics::Text;
use crate::server::metrics::client::Method;
use crate::server::process::clock;

/// Calls that may wait to be sent, each with a span for each of its stages.
const QUEUE: usize = 2048;

thread_local! {
    static RANDOM: RefCell<Xoshiro256PlusPlus> =
        RefCell::new(Xoshiro256PlusPlus::seed_from_u64(random()));
}

/// 64 bits for an ID. Not for anything that must not be guessed.
pub(super) fn next_random() -> u64 {
    RANDOM.with(|random| random.borrow_mut().next_u64())
}

/// Decides, and queues.
#[derive(Debug)]
pub(in crate::server) struct Tracer {
    sampler: Sampler,
    queue: mpsc::Sender<Call>,
    counts: Arc<Counts>,
}

/// What has become of spans since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// A request that is sampled.
#[derive(Debug)]
pub(in crate::server) struct Begun {
    sampled: Sampled,
    /// Since 1970.
    at: Duration,
}

impl Begun {
    /// Its trace's ID, in hexadecimal.
    pub(in crate::server) fn trace(&self) -> String {
        self.sampled.trace.hex()
    }
}

/// What is told of a request that has ended.
#[derive(Debug)]
pub(in crate::server) struct Told {
    pub(in crate::server) method: Method,
    pub(in crate::server) code: Code,
    pub(in crate::server) took: Duration,
    pub(in crate::server) about: About,
    pub(in crate::server) from: Option<IpAddr>,
    pub(in crate::server) request: String,
    pub(in crate::server) stages: Stages,
}

/// A sampled request that has ended.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) sampled: Sampled,
    /// When it began, since 1970.
    pub(super) at: Duration,
    pub(super) told: Told,
}

impl Call {
    /// As how many spans it is sent.
    pub(super) fn spans(&self) -> u64 {
        let steps = self.told.stages.steps.iter();
        1 + steps.filter(|step| step.stage.is_wait()).count() as u64
    }
}

impl Tracer {
    /// A tracer, and the calls that it queues.
    pub(super) fn new(sampler: Sampler) -> (Tracer, mpsc::Receiver<Call>, Arc<Counts>) {
        let (queue, calls) = mpsc::channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let tracer = Tracer {
            sampler,
            queue,
            counts: Arc::clone(&counts),
        };
        (tracer, calls, counts)
    }

    /// A request begins; `None`: it is not sampled.
    pub(in crate::server) fn begin(&self, metadata: &MetadataMap) -> Option<Begun> {
        let sampled = self.sampler.judge(metadata, next_random)?;
        Some(Begun {
            sampled,
            at: clock::since_1970(),
        })
    }

    /// It has ended.
    pub(in crate::server) fn end(&self, begun: Begun, told: Told) {
        let call = Call {
            sampled: begun.sampled,
            at: begun.at,
            told,
        };
        if let Err(refused) = self.queue.try_send(call) {
            let (mpsc::error::TrySendError::Full(call) | mpsc::error::TrySendError::Closed(call)) =
                refused;
            self.counts.dropped.fetch_add(call.spans(), Relaxed);
        }
    }

    /// Writes its metrics.
    pub(in crate::server) fn write(&self, text: &mut Text) {
        for (name, help, counter) in [
            (
                "quorate_server_spans_exported_total",
                "Spans that the collector of traces has taken.",
                &self.counts.exported,
            ),
            (
                "quorate_server_spans_dropped_total",
                "Spans that no collector has taken: too many waited, or it refused them.",
                &self.counts.dropped,
            ),
        ] {
            text.single(name, "counter", help, counter.load(Relaxed));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::server::traces::stages::{Stage, Step};

    pub(in crate::server::traces) fn told() -> Told {
        let ms = Duration::from_millis;
        let step = |stage, from, to| Step {
            stage,
            from: ms(from),
            to: ms(to),
        };
        Told {
            method: Method::Put,
            code: Code::Ok,
            took: ms(9),
            about: About::default(),
            from: Some(IpAddr::from([127, 0, 0, 1])),
            request: "a-7".to_owned(),
            stages: Stages {
                steps: vec![
                    step(Stage::Admitted, 0, 1),
                    step(Stage::Queued, 1, 3),
                    step(Stage::Replicated, 3, 8),
                ],
                logged: Some(ms(4)),
            },
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_by_its_spans() {
        let (tracer, mut calls, counts) = Tracer::new(Sampler::per_million(1_000_000));
        let begin = || tracer.begin(&MetadataMap::new()).expect("each is sampled");
        for _ in 0..QUEUE + 5 {
            tracer.end(begin(), told());
        }
        // The span of the call, and those of two waits.
        assert_eq!(counts.dropped.load(Relaxed), 15);
        assert!(calls.try_recv().is_ok());
        tracer.end(begin(), told());
        assert_eq!(counts.dropped.load(Relaxed), 15);
        drop(calls);
        tracer.end(begin(), told());
        assert_eq!(counts.dropped.load(Relaxed), 18);
    }

    #[test]
    fn ids_differ() {
        let (tracer, _calls, _) = Tracer::new(Sampler::per_million(1_000_000));
        let begin = || tracer.begin(&MetadataMap::new()).expect("each is sampled");
        assert_ne!(begin().trace(), begin().trace());
    }
}
