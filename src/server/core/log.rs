//! The log thread: one append and one sync a batch, and everything else that must stay in order
//! with them. Never continues after a failure.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::state::{RuntimeState, Thread};
use super::{ApplyJob, Worker, disk_stop};
use crate::disk::{self, Class, Log, ValueFiles};
use crate::node::{Input, LogPayload, PayloadBody};
use crate::raft::{Entry, Persist, SnapshotMeta};
use crate::store::{Operation, ReadAhead};

/// A job of the log thread.
#[derive(Debug)]
pub(crate) enum LogJob {
    /// Append and sync, then report.
    Write(Persist),
    /// Reset the log to begin after a checkpoint, then let the applier restore it.
    Install(SnapshotMeta),
    /// Remove segments that hold only what lies before an index.
    Drop {
        /// The first index to keep.
        before: u64,
    },
}

/// The log thread's own state.
pub(super) struct Writer {
    pub(super) log: Log,
    pub(super) shared: Arc<RuntimeState>,
    pub(super) jobs: Queue<LogJob>,
    pub(super) apply: Queue<ApplyJob>,
    /// Writes the zeros of the next segment. Separate from the worker that writes checkpoints:
    /// behind a large one the zeros would come too late, and this thread would have to write them.
    pub(super) segments: Worker,
    /// When the next segment was last requested.
    pub(super) asked: Option<Instant>,
    /// When the segments were last measured.
    pub(super) measured: Option<Instant>,
    /// Where values are that entries may read.
    pub(super) values: ValueFiles,
    /// Has them fetched; the thread that reads the log for followers, which mostly has nothing to do.
    pub(super) reader: Worker,
    /// Whether it is at it.
    pub(super) reading: Arc<AtomicBool>,
    /// Ends with this thread.
    pub(super) life: Life,
}

/// Tells whoever prepares the next segment that the log needs none any more.
pub(super) struct Life {
    _held: mpsc::Sender<Infallible>,
    ended: Arc<Mutex<mpsc::Receiver<Infallible>>>,
}

impl Life {
    pub(super) fn new() -> Life {
        let (held, ended) = mpsc::channel();
        Life {
            _held: held,
            ended: Arc::new(Mutex::new(ended)),
        }
    }
}

/// Waits for so long, or until the log's thread has ended.
fn pause(ended: &Mutex<mpsc::Receiver<Infallible>>, pause: Duration) -> ControlFlow<()> {
    let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    match ended.recv_timeout(pause) {
        Err(mpsc::RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
        Err(mpsc::RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
        Ok(never) => match never {},
    }
}

/// While the next segment is made ahead, the disk is the log's own for so many times as long as it was not.
const PAUSES: u32 = 100;
/// Of a slow disk.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Interval between two looks at whether the log has come too close.
const LOOK: Duration = Duration::from_millis(50);
/// Interval until the next attempt after the volume had no room for the next segment.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Interval between two measurements of the segments.
const MEASURE: Duration = Duration::from_secs(1);

impl Writer {
    pub(super) fn run(mut self) {
        while let Some(jobs) = self.jobs.take(Duration::from_secs(1)) {
            self.shared.beat(Thread::Log);
            for job in jobs {
                if let Err(error) = self.run_job(job) {
                    // A failed sync is never retried: it is unknown what reached the disk.
                    self.shared.stop(disk_stop(&error));
                    return;
                }
                self.shared.beat(Thread::Log);
            }
        }
    }

    fn run_job(&mut self, job: LogJob) -> disk::Result<()> {
        match job {
            LogJob::Write(persist) => {
                self.read_ahead(&persist.entries);
                let (began, mut written) = (Instant::now(), None);
                self.log
                    .append_told(persist.hard_state.as_ref(), &persist.entries, &mut || {
                        written = Some(Instant::now())
                    })?;
                // A commit index alone is not written.
                if let Some(written) = written {
                    self.measure(began, written);
                }
                if let Some(last) = persist.entries.last() {
                    self.shared.moments.logged.note(last.index, Instant::now());
                }
                self.shared.report(Input::Persisted(persist.number));
                self.prepare();
            }
            LogJob::Install(meta) => {
                self.log.reset(meta.position())?;
                let _ = self.apply.push_always(0, ApplyJob::Install(meta));
            }
            LogJob::Drop { before } => self.log.drop_before(before)?,
        }
        Ok(())
    }

    /// After a batch that was begun and written then, and is synced. Files are measured every second while something is written.
    fn measure(&mut self, began: Instant, written: Instant) {
        let disk = &self.shared.metrics.disk;
        disk.log_write.observe(written - began);
        disk.log_sync.observe(written.elapsed());
        disk.log_written(self.log.written_bytes());
        let due = |at: Instant| began.saturating_duration_since(at) > MEASURE;
        if self.measured.is_none_or(due) {
            self.measured = Some(began);
            disk.log_measured(self.log.disk_bytes());
        }
    }

    /// The applier must not wait for a disk: what it will read is fetched while the entries wait for their quorum. By
    /// another thread, which may have to wait, and not if that one still does.
    fn read_ahead(&self, entries: &[Entry]) {
        if !self.values.are_there() {
            return;
        }
        let reading: Vec<Operation> = entries.iter().filter_map(reads_values).collect();
        if reading.is_empty() || self.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, done) = (Arc::clone(&self.shared), Arc::clone(&self.reading));
        self.reader.run(move || {
            let mut ahead = ReadAhead::new(Arc::clone(&shared.views.latest().view));
            for operation in &reading {
                ahead.command(operation);
            }
            done.store(false, Ordering::Release);
        });
    }

    /// Has the next segment filled with zeros ahead of its use.
    fn prepare(&mut self) {
        let wanted = self.log.wants_segment();
        let asked = self.asked.is_some_and(|at| at.elapsed() < ASK_AGAIN);
        if asked || !wanted {
            return;
        }
        self.asked = Some(Instant::now());
        let preparer = self.log.preparer();
        let shared = Arc::clone(&self.shared);
        let ended = Arc::clone(&self.life.ended);
        self.segments.run(move || {
            let mut began = Instant::now();
            let mut go_on = |done| {
                let until = Instant::now() + (began.elapsed() * PAUSES).min(LONGEST_PAUSE);
                while preparer.is_ahead(done) && Instant::now() < until {
                    pause(&ended, LOOK)?;
                }
                began = Instant::now();
                pause(&ended, Duration::ZERO)
            };
            match preparer.prepare(&mut go_on) {
                Ok(()) => {}
                // Nothing is lost: the log extends the segment as far as there is room when it
                // needs it.
                Err(error) if error.class() == Class::DiskFull => {
                    tracing::warn!("no room to prepare the log's next segment: {error}");
                }
                Err(error) => shared.stop(disk_stop(&error)),
            }
        });
    }
}

/// The command of an entry, if applying it reads values. What cannot be decoded is found when it is applied.
fn reads_values(entry: &Entry) -> Option<Operation> {
    let payload = LogPayload::of(entry).ok().flatten()?;
    let Some(PayloadBody::Command(command)) = payload.body else {
        return None;
    };
    command.operation.filter(ReadAhead::is_needed_for)
}
