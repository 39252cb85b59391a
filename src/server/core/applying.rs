//! Who applies: the applier's thread whatever is queued, and the task of consensus at once what is short.
//!
//! Never has the task of consensus wait, neither for the applier's thread nor for a disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::applier::{Applier, ApplyJob};
use super::queue::Queue;
use super::short::{Lately, are_short};
use super::state::{RuntimeState, Thread};
use super::turns::Turns;
use crate::raft::Entry;

/// Records examined for memory to free, between batches.
const RECLAIM: usize = 2_000;

/// The applier with its queue; clones share both.
#[derive(Clone)]
pub(super) struct Applying {
    turns: Turns<Applier, ApplyJob>,
    shared: Arc<RuntimeState>,
    /// Of what the task of consensus applied.
    lately: Lately,
}

impl Applying {
    pub(super) fn new(applier: Applier, jobs: Queue<ApplyJob>, shared: &Arc<RuntimeState>) -> Self {
        applier.begin();
        Applying {
            turns: Turns::new(applier, jobs),
            shared: Arc::clone(shared),
            lately: Lately::default(),
        }
    }

    /// The body of the applier's thread.
    pub(super) fn run(self) {
        let mut left = 0;
        loop {
            let idle = Duration::from_millis(if left > 0 { 1 } else { 1_000 });
            let ran = self.turns.run_next(idle, |applier, jobs| {
                self.shared.beat(Thread::Applier);
                self.run_jobs(applier, jobs)
                    .then(|| applier.reclaim(RECLAIM))
            });
            match ran.flatten() {
                Some(more) => left = more,
                None => return,
            }
        }
    }

    /// Queues a job of so many bytes for the thread.
    pub(super) fn queue(&self, bytes: usize, job: ApplyJob) {
        self.turns.queue(bytes, job);
    }

    /// Whether the task of consensus may apply these itself.
    pub(super) fn are_short(&self, entries: &[Entry]) -> bool {
        self.lately.was_short(Instant::now()) && are_short(entries)
    }

    /// Applies these now, or leaves them to the thread if that is busy.
    pub(super) fn apply_now(&mut self, bytes: usize, entries: Vec<Entry>) {
        let (began, job) = (Instant::now(), ApplyJob::Entries(entries));
        self.turns.run_now(bytes, job, |applier, jobs| {
            self.run_jobs(applier, jobs);
        });
        self.lately.took(began, began.elapsed());
    }

    /// False if the server has to stop, and then nothing is applied any more.
    fn run_jobs(&self, applier: &mut Applier, jobs: Vec<ApplyJob>) -> bool {
        if applier.stopped || jobs.is_empty() {
            return !applier.stopped;
        }
        let began = Instant::now();
        if let Err(stop) = applier.run_jobs(jobs) {
            applier.stopped = true;
            self.shared.stop(stop);
            return false;
        }
        self.shared.metrics.applied(began.elapsed());
        true
    }
}

/// What one step gives the applier.
#[derive(Default)]
pub(super) struct Committed {
    /// What the task applies itself, after the links have sent what the step gave them; nothing was queued after it.
    short: Vec<Entry>,
}

impl Committed {
    /// Whether nothing is left for the task to apply.
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty()
    }

    /// Adds what is committed.
    pub(super) fn add(&mut self, apply: &Applying, entries: Vec<Entry>) {
        if self.short.is_empty() && apply.are_short(&entries) {
            self.short = entries;
        } else {
            self.queue(apply, bytes(&entries), ApplyJob::Entries(entries));
        }
    }

    /// Queues a job behind all that came before it.
    pub(super) fn queue(&mut self, apply: &Applying, bytes_of_job: usize, job: ApplyJob) {
        self.leave(apply);
        apply.queue(bytes_of_job, job);
    }

    /// Leaves what came so far to the applier's thread.
    pub(super) fn leave(&mut self, apply: &Applying) {
        let before = std::mem::take(&mut self.short);
        if !before.is_empty() {
            apply.queue(bytes(&before), ApplyJob::Entries(before));
        }
    }

    /// Applies what is left.
    pub(super) fn apply_now(self, apply: &mut Applying) {
        if !self.short.is_empty() {
            apply.apply_now(bytes(&self.short), self.short);
        }
    }
}

/// What entries take in a queue.
pub(super) fn bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.data.len() + 64).sum()
}
