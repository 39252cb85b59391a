//! Drives requests: a few threads, each with connections and clients of its own. Never repeats a
//! request, and never measures one that began before the warm-up was over.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use tokio::task::LocalSet;
use tonic::transport::{Channel, Endpoint};

use super::Error;
use super::summary::{Summary, Tally};
use super::work::{Generator, Mode, Work};
use crate::wire::etcd::kv_client::KvClient;

/// How long a client waits after a failed request: otherwise a dead endpoint would cause a busy loop.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Maximum response size of a client in bytes: a list may be long.
pub(super) const ANSWER_BYTES: usize = 256 << 20;

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// As soon as a client is free.
    Closed,
    /// At this total rate per second, whether a client is free or not.
    Rate(f64),
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) endpoints: Vec<String>,
    pub(super) connections: usize,
    pub(super) clients: usize,
    pub(super) threads: usize,
    pub(super) total: Option<u64>,
    pub(super) seconds: Option<Duration>,
    pub(super) warm_up: Duration,
    pub(super) pace: Pace,
    pub(super) timeout: Duration,
    pub(super) work: Work,
    pub(super) seed: u64,
}

/// A request that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// Counts from 0 in the warm-up, and again from 0 in the measured phase.
    pub(super) number: u64,
    /// Whether it counts.
    pub(super) measured: bool,
    /// When it is due; at once if `None`.
    pub(super) due: Option<Duration>,
}

/// Hands out the requests of a load. Times are since the beginning.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    total: u64,
    warm_up: Duration,
    end: Option<Duration>,
    warming: AtomicU64,
    given: AtomicU64,
}

impl Schedule {
    pub(super) fn new(load: &Load) -> Schedule {
        Schedule {
            pace: load.pace,
            total: load.total.unwrap_or(u64::MAX),
            warm_up: load.warm_up,
            end: load.seconds.map(|seconds| load.warm_up + seconds),
            warming: AtomicU64::new(0),
            given: AtomicU64::new(0),
        }
    }

    /// The next request; `None` once there is no more.
    pub(super) fn next(&self, now: Duration) -> Option<Ticket> {
        match self.pace {
            Pace::Closed if now < self.warm_up => Some(Ticket {
                number: self.warming.fetch_add(1, Ordering::Relaxed),
                measured: false,
                due: None,
            }),
            Pace::Closed => {
                if self.end.is_some_and(|end| now >= end) {
                    return None;
                }
                let number = self.given.fetch_add(1, Ordering::Relaxed);
                (number < self.total).then_some(Ticket {
                    number,
                    measured: true,
                    due: None,
                })
            }
            Pace::Rate(rate) => {
                let slot = self.given.fetch_add(1, Ordering::Relaxed);
                let due = Duration::from_secs_f64(slot as f64 / rate);
                // The first slot that is due after the warm-up.
                let warm = (self.warm_up.as_secs_f64() * rate).ceil() as u64;
                let measured = slot >= warm;
                let number = if measured { slot - warm } else { slot };
                let over = self.end.is_some_and(|end| due >= end);
                let done = over || (measured && number >= self.total);
                (!done).then_some(Ticket {
                    number,
                    measured,
                    due: Some(due),
                })
            }
        }
    }
}

/// What the threads share.
struct Common {
    load: Load,
    schedule: Schedule,
    ready: Barrier,
    begun: OnceLock<Instant>,
}

/// What one thread measured.
#[derive(Default)]
struct Measured {
    tally: Tally,
    /// When the last measured answer came, since the beginning.
    last: Duration,
}

impl Load {
    /// Connects, warms up, measures.
    pub(super) fn run(self) -> Result<Summary, Error> {
        let threads = self.threads.min(self.connections).max(1);
        let what = self.words();
        let common = Arc::new(Common {
            schedule: Schedule::new(&self),
            ready: Barrier::new(threads),
            begun: OnceLock::new(),
            load: self,
        });
        let mut running = Vec::new();
        for thread in 0..threads {
            let common = Arc::clone(&common);
            let builder = std::thread::Builder::new().name(format!("load-{thread}"));
            running.push(builder.spawn(move || drive(&common, thread, threads))?);
        }
        let mut all = Measured::default();
        for thread in running {
            let measured = thread
                .join()
                .map_err(|_| std::io::Error::other("a thread panicked"))??;
            all.last = all.last.max(measured.last);
            all.tally.add(measured.tally);
        }
        Ok(Summary {
            what,
            unit: "answers",
            elapsed: all.last.saturating_sub(common.load.warm_up),
            tally: all.tally,
        })
    }

    fn words(&self) -> String {
        let what = match self.work.mode {
            Mode::Put { .. } => "put",
            Mode::Get { .. } => "get",
            Mode::List { .. } => "list",
            Mode::Mixed { .. } => "mixed puts and gets",
            Mode::Fill { .. } => "fill",
        };
        let pace = match self.pace {
            Pace::Closed => "closed loop".to_owned(),
            Pace::Rate(rate) => format!("{rate:.0} a second"),
        };
        format!(
            "{what}: {} clients on {} connections, {pace}",
            self.clients, self.connections
        )
    }

    /// Connects to the endpoint of a connection.
    pub(super) async fn connect(&self, connection: usize) -> Result<Channel, Error> {
        let endpoint = &self.endpoints[connection % self.endpoints.len()];
        let failed = |error: tonic::transport::Error| Error::Connect {
            endpoint: endpoint.clone(),
            reason: crate::cli::chain(&error),
        };
        let channel = Endpoint::from_shared(endpoint.clone())
            .map_err(failed)?
            .tcp_nodelay(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .connect_timeout(self.timeout)
            .connect()
            .await
            .map_err(failed)?;
        Ok(channel)
    }
}

/// One thread: its share of the connections, and the clients on them.
fn drive(common: &Arc<Common>, thread: usize, threads: usize) -> Result<Measured, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let load = &common.load;
    let connected = runtime.map_err(Error::from).and_then(|runtime| {
        let own = (thread..load.connections).step_by(threads);
        let channels = runtime.block_on(async {
            let mut channels = Vec::new();
            for connection in own {
                channels.push((connection, load.connect(connection).await?));
            }
            Ok::<_, Error>(channels)
        })?;
        Ok((runtime, channels))
    });
    // Every thread must reach this point, or the others would wait forever.
    common.ready.wait();
    let (runtime, channels) = connected?;
    let begun = *common.begun.get_or_init(Instant::now);
    let measured = Rc::new(RefCell::new(Measured::default()));
    let clients = LocalSet::new();
    for (connection, channel) in channels {
        for client in (connection..load.clients).step_by(load.connections) {
            let kv = KvClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES);
            let measured = Rc::clone(&measured);
            clients.spawn_local(ask_on(Arc::clone(common), client, kv, begun, measured));
        }
    }
    runtime.block_on(clients);
    Ok(measured.take())
}

/// One client: a request at a time until there are no more.
async fn ask_on(
    common: Arc<Common>,
    client: usize,
    mut kv: KvClient<Channel>,
    begun: Instant,
    measured: Rc<RefCell<Measured>>,
) {
    let load = &common.load;
    let mut generator = Generator::seed_from_u64(load.seed ^ (client as u64) << 20);
    while let Some(ticket) = common.schedule.next(begun.elapsed()) {
        let from = start(begun, ticket.due).await;
        let asked = load.work.ask(&mut kv, ticket.number, &mut generator);
        let outcome = tokio::time::timeout(load.timeout, asked)
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let ended = begun.elapsed();
        let failed = outcome.is_err();
        if ticket.measured {
            let mut measured = measured.borrow_mut();
            measured.tally.record(ended.saturating_sub(from), outcome);
            measured.last = measured.last.max(ended);
        }
        if failed {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

/// Waits until a request is due, and returns the start of its measurement: when it was due if that has passed,
/// otherwise now, so that the timer's coarseness is not the server's.
pub(super) async fn start(begun: Instant, due: Option<Duration>) -> Duration {
    let now = begun.elapsed();
    match due {
        Some(due) if due > now => {
            tokio::time::sleep(due - now).await;
            begun.elapsed()
        }
        Some(due) => due,
        None => now,
    }
}
