//! The applier: sole owner of the machine. Applies everything that is given to it at once, publishes once or, if that is short,
//! every few hundred entries, then answers the waiting requests. Never waits for whoever reads a view, and knows nothing of the thread that it runs on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::handle::Published;
use super::short::{Decoded, Lately, MOST_IN_PLACE, may_wait_for};
use super::state::{RuntimeState, Thread, VolumeSpace};
use super::views::Held;
use super::{Worker, disk_stop, open, persist_stop};
use crate::disk::{self, Class, ValueFiles};
use crate::node::{
    Applied, ApplyError, Checkpoint, Input, LogPayload, StateMachine, StopReason, UnknownEntry,
};
use crate::persist::{self, Saver};
use crate::raft::{Entry, SnapshotMeta};
use crate::server::maintenance::compaction_hashes::CompactionHashes;
use crate::server::maintenance::healing::Waited;
use crate::server::process::allocator;
use crate::server::process::clock;
use crate::server::process::exit::Stop;
use crate::store::{DamagedValue, Revision, TOUCHED};

/// Watchers that follow have seen by then what was written before a compaction.
const SEEN: Duration = Duration::from_secs(5);

/// A job of the applier.
#[derive(Debug)]
pub(crate) enum ApplyJob {
    /// Apply these.
    Entries(Vec<Entry>),
    /// Freeze the machine for a checkpoint.
    Checkpoint,
    /// Restore the machine from this checkpoint, which is on disk.
    Install(SnapshotMeta),
    /// This member was removed: answer the request with which it removed itself.
    Part,
}

/// Whether an entry that needs a damaged value waits for it.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Readers wait.
    Never,
    ForHealing,
}

/// The applier's own state.
pub(super) struct Applier {
    pub(super) machine: StateMachine,
    pub(super) shared: Arc<RuntimeState>,
    pub(super) saver: Arc<Saver>,
    pub(super) background: Worker,
    /// Compactions that were applied and not published yet: the compacted revision before and after
    /// each.
    pub(super) compactions: Vec<(Revision, Revision)>,
    /// When the last compaction was applied, if one was since the start.
    pub(super) compacted: Option<Instant>,
    /// All of what was compacted by now has been let go, and what is published has none of it.
    pub(super) let_go: bool,
    /// The last entry that the log held at the start.
    pub(super) logged: u64,
    /// Much was reclaimed that the published state has.
    pub(super) reclaimed: bool,
    /// Whether readers have waited for long.
    pub(super) in_place: Lately,
    /// A job failed: what comes after it is not applied, as that would be another state than the other members'.
    pub(super) stopped: bool,
}

impl Applier {
    /// Publishes what was loaded.
    pub(super) fn begin(&self) {
        publish(&self.shared, &self.machine, None);
    }

    /// Examines so many records for memory to free; says how many are left. Where space is short all that was compacted is
    /// let go, once watchers have seen it: the files of its values cannot be removed before.
    pub(super) fn reclaim(&mut self, number: usize) -> usize {
        let all = !self.let_go
            && self.compacted.is_none_or(|at| at.elapsed() >= SEEN)
            && self.shared.space().is_some_and(VolumeSpace::is_short);
        let left = match all {
            true => self.machine.reclaim_all(number),
            false => self.machine.reclaim(number),
        };
        if all && left == 0 {
            self.let_go = true;
            publish(&self.shared, &self.machine, None);
        }
        self.reclaimed |= left > 0;
        left
    }

    pub(super) fn run_jobs(&mut self, jobs: Vec<ApplyJob>) -> Result<(), Stop> {
        // What is committed in several steps is applied at once.
        let mut waiting = Vec::new();
        for job in jobs {
            match job {
                ApplyJob::Entries(entries) if waiting.is_empty() => waiting = entries,
                ApplyJob::Entries(entries) => waiting.extend(entries),
                ApplyJob::Checkpoint => {
                    self.apply_all(&mut waiting)?;
                    self.checkpoint();
                }
                ApplyJob::Install(meta) => {
                    self.apply_all(&mut waiting)?;
                    self.install(&meta)?;
                }
                ApplyJob::Part => {
                    self.apply_all(&mut waiting)?;
                    let answer = self.machine.part();
                    self.finish(answer.into_iter().collect(), None);
                }
            }
        }
        self.apply_all(&mut waiting)
    }

    /// Applies these, and publishes them: short ones in place as long as nobody reads what was published before.
    fn apply_all(&mut self, waiting: &mut Vec<Entry>) -> Result<(), Stop> {
        let mut left = std::mem::take(waiting).into_iter();
        let mut done = Vec::new();
        loop {
            // A batch that gathered during a pause may take longer than a thread may go without a beat.
            self.shared.beat(Thread::Applier);
            let some = left.by_ref().take(MOST_IN_PLACE).map(|entry| {
                let payload = LogPayload::of(&entry);
                (entry, payload)
            });
            let some: Vec<(Entry, Decoded)> = some.collect();
            if some.is_empty() {
                break;
            }
            let shared = Arc::clone(&self.shared);
            let applied = match self.take_back(&shared, &some, &done) {
                Some(held) => self.apply_in_place(&some, &mut done, held),
                None => self.apply_some(&some, &mut done, Wait::ForHealing),
            };
            applied.map_err(not_applied)?;
        }
        self.finish(done, None);
        Ok(())
    }

    /// Takes the published state back, if readers may wait for these. What was applied by copying is published with the rest of the batch.
    fn take_back<'a>(
        &self,
        shared: &'a RuntimeState,
        some: &[(Entry, Decoded)],
        done: &[Applied],
    ) -> Option<Held<'a>> {
        // What was reclaimed since is in the published state alone, and dropping that would take as long as reclaiming did.
        let may = done.is_empty() && !self.reclaimed && self.in_place.was_short(Instant::now());
        if !may || !may_wait_for(some) {
            return None;
        }
        shared.views.take_back()
    }

    fn apply_in_place(
        &mut self,
        some: &[(Entry, Decoded)],
        done: &mut Vec<Applied>,
        held: Held<'_>,
    ) -> Result<(), ApplyError> {
        let began = Instant::now();
        let mut now = Vec::with_capacity(some.len());
        let applied = self.apply_some(some, &mut now, Wait::Never);
        let left = &some[now.len()..];
        // Also what was applied before an entry that cannot be: readers have no other state, and it is committed.
        self.finish(now, Some(held));
        self.in_place.took(began, began.elapsed());
        match applied {
            // What is short reads no value; if one did, it would wait as any other does.
            Err(ApplyError::Value {
                half_done: false, ..
            }) => self.apply_some(left, done, Wait::ForHealing),
            applied => applied,
        }
    }

    fn apply_some(
        &mut self,
        some: &[(Entry, Decoded)],
        done: &mut Vec<Applied>,
        wait: Wait,
    ) -> Result<(), ApplyError> {
        for together in some.chunks(TOUCHED) {
            let payloads = together.iter().map(|(_, payload)| payload);
            self.machine.touch(payloads.flatten().flatten());
            // The end of one is the beginning of the next: one look at the clock for each.
            let mut began = Instant::now();
            for (entry, payload) in together {
                let payload = payload.as_ref().map_err(UnknownEntry::clone)?;
                let applied = self.apply(entry, payload.as_ref(), wait)?;
                let now = Instant::now();
                let applies = &self.shared.metrics.applies;
                applies.applied(payload.as_ref(), &applied.outcome, now - began);
                began = now;
                done.push(applied);
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        entry: &Entry,
        payload: Option<&LogPayload>,
        wait: Wait,
    ) -> Result<Applied, ApplyError> {
        let before = self.machine.compacted();
        let applied = match wait {
            Wait::Never => self.machine.apply_payload(entry, payload)?,
            Wait::ForHealing => self.apply_patiently(entry, payload)?,
        };
        if self.machine.compacted() > before {
            self.compactions.push((before, self.machine.compacted()));
        }
        // Before the applied entry can be observed.
        self.shared.tokens.learn(&applied, clock::unix_ms());
        Ok(applied)
    }

    /// Applies an entry. One that needs a damaged value waits a while for it to be healed, unless it is half done.
    fn apply_patiently(
        &mut self,
        entry: &Entry,
        payload: Option<&LogPayload>,
    ) -> Result<Applied, ApplyError> {
        let values = self.saver.checkpoints().values();
        let mut patience = Patience::new(values);
        loop {
            let applied = self.machine.apply_payload(entry, payload);
            match &applied {
                Err(ApplyError::Value {
                    value,
                    half_done: false,
                    ..
                }) if patience.sees_healed(value) => self.shared.beat(Thread::Applier),
                _ => return applied,
            }
        }
    }

    /// Publishes what was applied, then answers and reports.
    fn finish(&mut self, done: Vec<Applied>, held: Option<Held<'_>>) {
        if done.is_empty() && held.is_none() {
            return;
        }
        if !self.compactions.is_empty() {
            // Before they can be observed, and before their revisions are reclaimed.
            let compactions = std::mem::take(&mut self.compactions);
            self.compacted = Some(Instant::now());
            self.let_go = false;
            CompactionHashes::begin(
                &self.shared.compaction_hashes,
                &compactions,
                &self.machine.view(),
            );
        }
        self.reclaimed = false;
        // What the log held at the start was counted when it was applied first.
        let new = done.iter().filter(|applied| applied.index > self.logged);
        let outcomes = new.map(|applied| &applied.outcome);
        self.shared.metrics.operations.applied(outcomes);
        let last = done.last().map(|applied| applied.index);
        publish(&self.shared, &self.machine, held);
        if let Some(last) = last {
            self.shared.moments.applied.note(last, Instant::now());
        }
        let (member, nonce) = (self.shared.phase.load().1.member_id, self.shared.boot_nonce);
        // Only proposals that this member made in this start.
        let answers = done.into_iter().filter_map(|applied| {
            let id = applied.request?;
            let own = (id.member, id.boot_nonce) == (member, nonce);
            own.then_some((id.counter, Ok(applied)))
        });
        self.shared.proposals.answer_all(answers.collect());
        self.shared.applied(self.machine.take_report());
    }

    fn checkpoint(&mut self) {
        let checkpoint = self.machine.checkpoint();
        let least = checkpoint.chunks.view().least_bytes();
        let saver = Arc::clone(&self.saver);
        let shared = Arc::clone(&self.shared);
        self.background.run(move || {
            let alive = || shared.beat(Thread::Background);
            let began = Instant::now();
            match save(&saver, checkpoint, alive) {
                Ok(info) => {
                    let disk = &shared.metrics.disk;
                    disk.checkpoint_done(info.bytes, began.elapsed(), clock::unix_ms());
                    shared.report(Input::CheckpointDone(Some(open::info(info))));
                }
                // The previous checkpoint and the log hold all of it. Retried when there is more
                // room.
                Err(error) if error.class() == Class::DiskFull => {
                    tracing::warn!("no room for a checkpoint: {error}");
                    match saver.checkpoints().make_room(least) {
                        Ok(_) => shared.report(Input::CheckpointDone(None)),
                        Err(error) => shared.stop(disk_stop(&error)),
                    }
                }
                Err(error) => shared.stop(persist_stop(&error)),
            }
        });
    }

    fn install(&mut self, meta: &SnapshotMeta) -> Result<(), Stop> {
        self.shared.metrics.installing.store(true, Relaxed);
        let installed = self.restore(meta);
        self.shared.metrics.installing.store(false, Relaxed);
        installed
    }

    fn restore(&mut self, meta: &SnapshotMeta) -> Result<(), Stop> {
        let who = (self.shared.phase.load().1.member_id, self.shared.boot_nonce);
        let position = meta.position();
        let alive = || self.shared.beat(Thread::Applier);
        let checkpoints = self.saver.checkpoints();
        self.machine = open::restore(checkpoints, position, who, alive)?;
        self.saver.goes_on_from(position, &self.machine);
        self.let_go = false;
        alive();
        let pruned = checkpoints.prune(position);
        // Files of values that nothing needs any more go with the next checkpoint: one may be under way.
        pruned.map_err(|error| disk_stop(&error))?;
        if !self.machine.view().auth().is_enabled() {
            self.shared.tokens.clear();
        }
        self.reclaimed = false;
        publish(&self.shared, &self.machine, None);
        self.shared
            .report(Input::Installed(self.machine.take_report()));
        Ok(())
    }
}

/// Writes a checkpoint. One that needs a damaged value, as where values go back from files, waits a while for it to be healed.
fn save(
    saver: &Saver,
    mut checkpoint: Checkpoint,
    alive: impl Fn() + Copy,
) -> Result<disk::CheckpointInfo, persist::Error> {
    let mut patience = Patience::new(saver.checkpoints().values());
    loop {
        let again = checkpoint.again();
        let saved = saver.save(checkpoint, alive);
        allocator::give_back();
        if let Some(why) = saver.take_unmerged() {
            tracing::warn!(
                "a checkpoint is written from memory, as the one before cannot be used: {why}"
            );
        }
        match &saved {
            Err(persist::Error::Value(lost)) if patience.sees_healed(lost) => alive(),
            _ => return saved,
        }
        checkpoint = again;
    }
}

/// Waits for damaged values to be healed.
struct Patience<'a> {
    values: &'a ValueFiles,
    began: Option<Instant>,
    waited: Waited,
}

impl<'a> Patience<'a> {
    fn new(values: &'a ValueFiles) -> Self {
        Patience {
            values,
            began: None,
            waited: Waited::default(),
        }
    }

    /// Waits for this value; false if it was not healed in time.
    fn sees_healed(&mut self, lost: &DamagedValue) -> bool {
        let place = (lost.file, lost.offset);
        let began = *self.began.get_or_insert_with(Instant::now);
        let left = self.waited.left(place, began.elapsed());
        left.is_some_and(|left| self.values.wait_until_healed(place, left))
    }
}

/// What this version does not know is on a healthy disk; a value that cannot be read is not.
fn not_applied(error: ApplyError) -> Stop {
    match error {
        ApplyError::Entry(unknown) => super::raft_task::stop(&StopReason::Entry(unknown)),
        ApplyError::Value { value, .. } => persist_stop(&persist::Error::Value(value)),
    }
}

fn publish(shared: &RuntimeState, machine: &StateMachine, held: Option<Held<'_>>) {
    let published = Published {
        view: machine.view(),
        membership: Arc::clone(machine.membership()),
        applied: machine.index(),
        term: machine.term(),
    };
    shared.publish(published, held);
}
