//! The core threads of a member: they carry out the node's effects and report back.
//!
//! | thread | owns | does |
//! |---|---|---|
//! | raft | the `Member` | steps it, and runs the links between members; never blocks on disk or clients |
//! | log | the `Log` | appends and syncs |
//! | applier | the `StateMachine` | applies, publishes once a batch or every 256 short entries, answers |
//! | background | - | checkpoints, dropping what is old, at low priority |
//! | segments | - | zeros for the next segment of the log |
//! | reader | - | reads entries back from the log |
//!
//! Each ends when its queue is closed; any failure of the disk ends the server.

pub(super) mod handle;
pub(in crate::server) mod latch;
pub(in crate::server) mod queue;
pub(in crate::server) mod spool;
pub(in crate::server) mod state;
pub(in crate::server) mod tail;
pub(in crate::server) mod views;
pub(in crate::server) mod wakes;

mod applier;
mod applying;
mod log;
pub(crate) mod open;
mod raft_task;
pub(in crate::server) mod raft_thread;
mod short;
mod spacing;
mod turns;
mod worker;

pub(crate) use applier::ApplyJob;
pub(crate) use log::LogJob;
pub(crate) use worker::Worker;

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::runtime::Handle;

use self::queue::Queue;
use self::short::{LONG_IN_PLACE, Lately};
use self::state::{RuntimeState, Thread};
use crate::disk::{self, Log};
use crate::node::{Member, StateMachine};
use crate::persist::{self, Saver};
use crate::server::member_runtime::Transport;
use crate::server::process::exit::{self, Stop};
use crate::server::process::host_facts;

/// Bytes of committed entries that may wait for the applier; the node holds back far earlier.
const APPLY_BYTES: usize = 256 << 20;
/// Bytes of writes that may wait; there is one at a time.
const LOG_BYTES: usize = 256 << 20;

/// The state from which the threads start.
pub(crate) struct Parts {
    /// The consensus half.
    pub member: Member,
    /// The state half.
    pub machine: StateMachine,
    /// The log.
    pub log: Log,
    /// Writes the checkpoints.
    pub saver: Arc<Saver>,
    /// Milliseconds per tick.
    pub tick_ms: u64,
    /// Ticks to hand over at once.
    pub first_ticks: u32,
}

/// The running threads.
pub(crate) struct Core {
    shared: Arc<RuntimeState>,
    apply: Queue<ApplyJob>,
    log: Queue<LogJob>,
    background: Worker,
    segments: Worker,
    reader: Worker,
    /// Ends when the task of consensus has.
    consensus: mpsc::Receiver<()>,
    threads: Vec<(Thread, JoinHandle<()>)>,
}

impl Core {
    /// Starts the threads, and the task of consensus on the `raft` thread.
    pub(crate) fn start(
        parts: Parts,
        shared: &Arc<RuntimeState>,
        outside: Transport,
        raft: &Handle,
    ) -> Result<Core, Stop> {
        let apply = Queue::new(APPLY_BYTES);
        let log = Queue::new(LOG_BYTES);
        // A server has core threads once.
        let _ = shared.queues.set((log.clone(), apply.clone()));
        let failed = |error| Stop {
            code: exit::OTHER,
            class: "io",
            message: format!("cannot start a thread: {error}"),
        };
        let background =
            Worker::start("background", Some((shared, Thread::Background))).map_err(failed)?;
        // Requests come first: a checkpoint of a million keys is most of a second's work, on each member at about the same
        // time.
        background.run(host_facts::step_back);
        let segments = Worker::start("segments", None).map_err(failed)?;
        let reader = Worker::start("log-reader", None).map_err(failed)?;
        let values = parts.saver.checkpoints().values().clone();
        let applier = applier::Applier {
            machine: parts.machine,
            shared: Arc::clone(shared),
            saver: parts.saver,
            background: background.clone(),
            compactions: Vec::new(),
            compacted: None,
            let_go: false,
            logged: parts.log.reader().last_index(),
            reclaimed: false,
            in_place: Lately::with(LONG_IN_PLACE),
            stopped: false,
        };
        let applying = applying::Applying::new(applier, apply.clone(), shared);
        let log_reader = parts.log.reader();
        let writer = log::Writer {
            segments: segments.clone(),
            asked: None,
            measured: None,
            values,
            reader: reader.clone(),
            reading: Arc::default(),
            life: log::Life::new(),
            log: parts.log,
            shared: Arc::clone(shared),
            jobs: log.clone(),
            apply: apply.clone(),
        };
        let task = raft_task::RaftTask {
            member: parts.member,
            shared: Arc::clone(shared),
            outside,
            apply: applying.clone(),
            log: log.clone(),
            log_reader,
            reader: reader.clone(),
            tick_ms: parts.tick_ms,
            first_ticks: parts.first_ticks,
            spacing: spacing::Spacing::default(),
        };
        let (ends, consensus) = mpsc::channel();
        let watch = OnPanic(Arc::clone(shared), "raft".to_owned());
        raft.spawn(async move {
            let _watched = (watch, ends);
            task.run().await;
        });
        let threads = vec![
            (
                Thread::Log,
                spawn("log", shared, move || writer.run()).map_err(failed)?,
            ),
            (
                Thread::Applier,
                spawn("applier", shared, move || applying.run()).map_err(failed)?,
            ),
        ];
        Ok(Core {
            shared: Arc::clone(shared),
            apply,
            log,
            background,
            segments,
            reader,
            consensus,
            threads,
        })
    }

    /// Ends the threads one after the other; everything written is durable.
    pub(crate) fn shutdown(self) {
        // Consensus ends first: then the others receive nothing new.
        self.shared.inbox.close();
        // Nothing is sent: the other end is dropped with the task.
        let _ = self.consensus.recv();
        self.shared.beat_ends(Thread::Raft);
        for (thread, handle) in self.threads {
            match thread {
                Thread::Log => self.log.close(),
                Thread::Applier => self.apply.close(),
                Thread::Raft | Thread::Background => {}
            }
            if handle.join().is_err() {
                tracing::error!(?thread, "a core thread had panicked");
            }
            self.shared.beat_ends(thread);
        }
        self.reader.close();
        self.segments.close();
        self.background.close();
        self.shared.beat_ends(Thread::Background);
        self.shared.drop_waiters();
    }
}

/// Ends the server if the thread panics that drops it.
struct OnPanic(Arc<RuntimeState>, String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stop {
                code: exit::OTHER,
                class: "panic",
                message: format!("the {} thread panicked", self.1),
            });
        }
    }
}

/// Starts a core thread; if it panics (possible where panics do not abort), the server ends.
fn spawn(
    name: &str,
    shared: &Arc<RuntimeState>,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let watch = OnPanic(Arc::clone(shared), name.to_owned());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _watch = watch;
            body();
        })
}

/// The stop of the server after a checkpoint could not be written or restored.
pub(crate) fn persist_stop(error: &persist::Error) -> Stop {
    match error {
        persist::Error::Disk(error) => disk_stop(error),
        error => Stop {
            code: error.class().exit_code(),
            class: error.class().name(),
            message: error.to_string(),
        },
    }
}

/// The stop of the server after a disk failure.
pub(crate) fn disk_stop(error: &disk::Error) -> Stop {
    let class = error.class();
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Stop {
        code: class.exit_code(),
        class: class.name(),
        message,
    }
}
