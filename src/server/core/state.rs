//! State shared by the handle, the core threads and the peer runtime: the inbox of the raft thread,
//! waiting requests, the published state, and beats.
//!
//! Never blocks a core thread: locks guard plain maps and are held for one insertion. That of the published state is held by the one
//! who applies, and readers wait for it.

// The order of waiting requests is never observed.
#![allow(clippy::disallowed_types)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{mpsc, oneshot, watch};

use super::applier::ApplyJob;
use super::handle::{Health, Latest, Phase, Published, RequestError, Role, Status};
use super::log::LogJob;
use super::queue::{Patient, Queue, TaskQueue};
use super::views::{Held, Views};
use super::wakes::Wakes;
use crate::node::{
    Applied, Input, LeaseTimes, MemberStatus, Membership, ProposalError, Report, RequestId,
    RequestRefusal, StateMachine, TransferFailure,
};
use crate::server::auth::simple::SimpleTokens;
use crate::server::flags::config::Config;
use crate::server::maintenance::compaction_hashes::CompactionHashes;
use crate::server::maintenance::compared::Comparisons;
use crate::server::metrics::CoreMetrics;
use crate::server::process::exit::Stop;
use crate::server::tls::ports::Ports;
use crate::server::traces::moments::Moments;
use crate::store::AlarmKind;
use crate::wire::member::{Archived, Following};

/// Bytes of requests and messages that may be queued for the raft thread.
const INBOX_BYTES: usize = 64 << 20;
/// A core thread without progress for this long fails liveness.
const STUCK: Duration = Duration::from_secs(30);
/// The same for the thread of checkpoints, which has the processor only where others leave it: on a busy machine that may be long, and
/// a restart would not help.
const STUCK_ASIDE: Duration = Duration::from_mins(5);
/// A member whose last linearizable read is older than this is unready.
const STALE: Duration = Duration::from_secs(10);

type ResponseSender<T> = oneshot::Sender<Result<T, RequestError>>;

/// The waiting requests, by number.
#[derive(Debug)]
pub(crate) struct Waiters<T>(Mutex<HashMap<u64, ResponseSender<T>>>);

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters(Mutex::default())
    }
}

impl<T> Waiters<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, ResponseSender<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request for the answer to `number`.
    pub(crate) fn wait(&self, number: u64) -> oneshot::Receiver<Result<T, RequestError>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(number, sender);
        receiver
    }

    /// Answers a request; false if none waited.
    pub(crate) fn answer(&self, number: u64, answer: Result<T, RequestError>) -> bool {
        let waiter = self.lock().remove(&number);
        // The caller may have been dropped in this moment.
        waiter.is_some_and(|waiter| waiter.send(answer).is_ok())
    }

    /// Answers many under one lock.
    pub(crate) fn answer_all(&self, answers: Vec<(u64, Result<T, RequestError>)>) {
        let mut waiters = self.lock();
        let woken: Vec<_> = answers
            .into_iter()
            .filter_map(|(number, answer)| Some((waiters.remove(&number)?, answer)))
            .collect();
        drop(waiters);
        for (waiter, answer) in woken {
            let _ = waiter.send(answer);
        }
    }

    /// Stops waiting; false if the answer has arrived.
    pub(crate) fn forget(&self, number: u64) -> bool {
        self.lock().remove(&number).is_some()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// No further answers: the receivers see their senders dropped.
    fn drop_all(&self) {
        self.lock().clear();
    }
}

/// The beats of one core thread.
#[derive(Debug)]
pub(crate) struct Beat {
    name: &'static str,
    last_ms: AtomicU64,
    active: AtomicBool,
}

/// The core threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Steps the member.
    Raft = 0,
    /// Appends and syncs.
    Log = 1,
    /// Applies and publishes.
    Applier = 2,
    /// Checkpoints.
    Background = 3,
}

const THREADS: [&str; 4] = ["raft", "log", "applier", "background"];

/// The IDs of this server; they change when it joins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// 0 until known.
    pub cluster_id: u64,
    /// 0 until known.
    pub member_id: u64,
}

/// The space of the data directory's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeSpace {
    /// Free bytes, and those in `passing`.
    pub free: u64,
    /// Bytes that are freed, or take the place of others, without any action, though not before the next checkpoint.
    pub passing: u64,
    /// With fewer bytes free, the alarm NOSPACE is raised.
    pub needed: u64,
    /// When it was measured.
    pub at: Instant,
}

impl VolumeSpace {
    /// Whether so little is free that what is there is looked through for what can go.
    pub(crate) fn is_short(self) -> bool {
        self.free.saturating_sub(self.passing) < self.needed.saturating_mul(2)
    }
}

/// A measurement of the volume older than this is not reported: a disk that does not answer may be full by now.
const VOLUME_STALE: Duration = Duration::from_secs(15);

/// The shared state.
#[derive(Debug)]
pub(crate) struct RuntimeState {
    /// `--name`.
    pub name: String,
    /// The timeout of a request.
    pub request_timeout: Duration,
    /// The boot nonce of this start.
    pub boot_nonce: u64,
    /// Inputs for the raft thread, which ends when the queue is closed.
    pub inbox: TaskQueue<Input>,
    /// The queues of the other core threads, once these run.
    pub(super) queues: OnceLock<(Queue<LogJob>, Queue<ApplyJob>)>,
    /// Waiting proposals.
    pub proposals: Waiters<Applied>,
    /// Waiting reads.
    pub reads: Waiters<()>,
    /// Waiting lease requests.
    pub leases: Waiters<Option<LeaseTimes>>,
    /// Waiting leadership transfers.
    pub transfers: Waiters<u64>,
    /// The published state.
    pub views: Views,
    /// What is small of it; wakes whoever follows it.
    pub latest: watch::Sender<Arc<Latest>>,
    /// Wakes the watch streams for which something was published.
    pub wakes: Arc<Wakes>,
    /// The membership of the published state. Changes with the membership alone, so whoever follows that is not woken
    /// for each batch.
    pub membership: watch::Sender<Arc<Membership>>,
    /// The phase and the IDs of the server.
    pub phase: ArcSwap<(Phase, Who)>,
    /// Consensus, as last published by the raft thread; `None` before it runs.
    pub consensus: ArcSwap<Option<MemberStatus>>,
    /// Leader changes seen.
    pub leader_changes: AtomicU64,
    /// Commands whose clients did not receive an outcome, as etcd counts them.
    pub proposals_failed: AtomicU64,
    /// What the server is doing or waiting for, as text.
    pub activity: Mutex<String>,
    /// Why this member may have been removed without knowing it; empty: no sign of that.
    doubt: Mutex<String>,
    /// Set before the server stops or is removed: it is unready from then on.
    pub retired: OnceLock<Instant>,
    /// How often clients were asked to connect elsewhere.
    pub hang_ups: watch::Sender<u64>,
    /// The alarm NOSPACE is being raised.
    pub raising: AtomicBool,
    /// Client requests wait until this member's data has been compared with the others'.
    pub held: AtomicBool,
    /// The measurements of the core threads.
    pub metrics: CoreMetrics,
    /// When what happened to proposals and entries, for the few requests of which that is told.
    pub moments: Moments,
    /// How the ports are secured.
    pub ports: Ports,
    /// Simple tokens; filled by the applier.
    pub tokens: SimpleTokens,
    /// Hashes at the revisions of the last compactions, computed from before them.
    pub compaction_hashes: Arc<CompactionHashes>,
    /// The last measurement of the data directory's volume.
    pub volume: Mutex<Option<VolumeSpace>>,
    /// Bytes of the store that stay in memory with values in files, where that is limited; the largest number before it was
    /// judged.
    pub in_memory: AtomicU64,
    /// Comparisons under the alarm CORRUPT.
    pub comparisons: Mutex<Comparisons>,
    /// What an archiver of the log has told this member since its start.
    pub archived: ArcSwapOption<Archived>,
    /// What whoever follows another cluster last told this member since its start, and when.
    pub following: ArcSwapOption<(Following, Instant)>,
    beats: [Beat; 4],
    last_read_ms: AtomicU64,
    started: Instant,
    counter: AtomicU64,
    unique: AtomicU64,
    stop: OnceLock<mpsc::UnboundedSender<Stop>>,
}

impl RuntimeState {
    /// The state of a server without a phase yet, and the channel for its stop.
    pub(crate) fn new(config: &Config) -> (Arc<RuntimeState>, mpsc::UnboundedReceiver<Stop>) {
        let machine = StateMachine::default();
        let published = Published {
            view: machine.view(),
            membership: Arc::clone(machine.membership()),
            applied: 0,
            term: 0,
        };
        let (stop, stopped) = mpsc::unbounded_channel();
        let beat = |name| Beat {
            name,
            last_ms: AtomicU64::new(0),
            active: AtomicBool::new(false),
        };
        let shared = RuntimeState {
            name: config.name.clone(),
            request_timeout: config.request_timeout(),
            boot_nonce: random(),
            inbox: TaskQueue::for_task(INBOX_BYTES),
            queues: OnceLock::new(),
            proposals: Waiters::default(),
            reads: Waiters::default(),
            leases: Waiters::default(),
            transfers: Waiters::default(),
            wakes: Arc::new(Wakes::new(&published.view)),
            membership: watch::channel(Arc::clone(&published.membership)).0,
            latest: watch::channel(Arc::new(Latest::of(&published))).0,
            views: Views::new(Arc::new(published)),
            phase: ArcSwap::from_pointee((Phase::Standby, Who::default())),
            consensus: ArcSwap::from_pointee(None),
            leader_changes: AtomicU64::new(0),
            proposals_failed: AtomicU64::new(0),
            activity: Mutex::default(),
            doubt: Mutex::default(),
            retired: OnceLock::new(),
            hang_ups: watch::channel(0).0,
            raising: AtomicBool::new(false),
            held: AtomicBool::new(config.maintenance.initial_check),
            metrics: CoreMetrics::default(),
            moments: Moments::default(),
            ports: Ports::default(),
            tokens: SimpleTokens::new(config.auth.token_ttl),
            compaction_hashes: Arc::default(),
            volume: Mutex::default(),
            in_memory: AtomicU64::new(u64::MAX),
            comparisons: Mutex::default(),
            archived: ArcSwapOption::empty(),
            following: ArcSwapOption::empty(),
            beats: THREADS.map(beat),
            last_read_ms: AtomicU64::new(0),
            started: Instant::now(),
            counter: AtomicU64::new(1),
            unique: AtomicU64::new(first_unique()),
            stop: OnceLock::from(stop),
        };
        (Arc::new(shared), stopped)
    }

    /// Monotonic milliseconds since the start of the process, never 0.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// When [that clock](Self::now_ms) shows so many milliseconds.
    pub(crate) fn at_ms(&self, ms: u64) -> Instant {
        self.started + Duration::from_millis(ms.saturating_sub(1))
    }

    /// Stops the server. Only the first reason counts.
    pub(crate) fn stop(&self, stop: Stop) {
        if let Some(sender) = self.stop.get() {
            // The receiver is gone when the server is ending already.
            let _ = sender.send(stop);
        }
    }

    /// What waits for each core thread: its name, items and their bytes.
    pub(crate) fn depths(&self) -> Vec<(&'static str, (usize, usize))> {
        let name = |thread: Thread| THREADS[thread as usize];
        let mut depths = vec![(name(Thread::Raft), self.inbox.depth())];
        if let Some((log, apply)) = self.queues.get() {
            depths.push((name(Thread::Log), log.depth()));
            depths.push((name(Thread::Applier), apply.depth()));
        }
        depths
    }

    /// Records that a thread makes progress.
    pub(crate) fn beat(&self, thread: Thread) {
        let beat = &self.beats[thread as usize];
        beat.last_ms.store(self.now_ms(), Ordering::Relaxed);
        beat.active.store(true, Ordering::Relaxed);
    }

    /// A thread has ended and is no longer expected to beat.
    pub(crate) fn beat_ends(&self, thread: Thread) {
        self.beats[thread as usize]
            .active
            .store(false, Ordering::Relaxed);
    }

    /// A number that was not used in this process.
    pub(crate) fn number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for lease IDs.
    pub(crate) fn unique(&self) -> u64 {
        self.unique.fetch_add(1, Ordering::Relaxed)
    }

    /// The identity of a new proposal.
    pub(crate) fn request(&self) -> RequestId {
        RequestId {
            member: self.phase.load().1.member_id,
            boot_nonce: self.boot_nonce,
            counter: self.number(),
        }
    }

    /// Makes a state the one that readers see. `held`: they wait for it.
    pub(super) fn publish(&self, published: Published, held: Option<Held<'_>>) {
        let membership = Arc::clone(&published.membership);
        let latest = Arc::new(Latest::of(&published));
        let published = Arc::new(published);
        self.wakes.publish(&published.view, || {
            let held = held.unwrap_or_else(|| self.views.hold());
            // Nobody finds an older one beside the view.
            self.latest.send_replace(latest);
            held.give(Arc::clone(&published))
        });
        // After the state: whoever is woken by the membership may look at both.
        if !Arc::ptr_eq(&self.membership.borrow(), &membership) {
            self.membership.send_replace(membership);
        }
    }

    /// The volume of the data directory, if it was measured lately.
    pub(crate) fn space(&self) -> Option<VolumeSpace> {
        let volume = self.volume.lock().unwrap_or_else(PoisonError::into_inner);
        (*volume).filter(|seen| seen.at.elapsed() <= VOLUME_STALE)
    }

    /// Queues an input that must not be lost, such as the answer to an effect.
    pub(crate) fn report(&self, input: Input) {
        // A closed inbox belongs to a raft thread that has ended.
        let _ = self.inbox.push_always(64, input);
    }

    /// Reports what was applied. What nobody acts on but the member's own books may wait for a moment.
    pub(crate) fn applied(&self, report: Report) {
        let routine = report.is_routine();
        let input = Input::Applied(report);
        match routine {
            // Many bytes of requests may wait; this is one for each batch that is published.
            true => drop(self.inbox.push_patient_always(Patient::Report, 64, input)),
            false => self.report(input),
        }
    }

    /// Records that a linearizable read was answered.
    pub(crate) fn read_served(&self) {
        self.last_read_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// How long ago the last linearizable read was answered.
    pub(crate) fn read_age(&self) -> Option<Duration> {
        let last = self.last_read_ms.load(Ordering::Relaxed);
        (last > 0).then(|| Duration::from_millis(self.now_ms().saturating_sub(last)))
    }

    /// Sets what the server is doing or waiting for; logged when it changes.
    pub(crate) fn doing(&self, text: &str) {
        let mut activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        if *activity != text {
            tracing::info!("{text}");
            text.clone_into(&mut activity);
        }
    }

    /// Changes the phase and the IDs.
    pub(crate) fn become_phase(&self, phase: Phase, who: Who) {
        self.phase.store(Arc::new((phase, who)));
    }

    /// Asks the connected clients to connect elsewhere, after their pending requests. Clients that
    /// connect later are served.
    pub(crate) fn hang_up(&self) {
        self.hang_ups.send_modify(|times| *times += 1);
    }

    /// No request is answered from here on.
    pub(crate) fn drop_waiters(&self) {
        self.proposals.drop_all();
        self.reads.drop_all();
        self.leases.drop_all();
        self.transfers.drop_all();
    }

    /// The status for the handle.
    pub(crate) fn status(&self) -> Status {
        let phase = self.phase.load();
        let (phase, who) = (phase.0, &phase.1);
        let consensus = self.consensus.load();
        let latest = Arc::clone(&self.latest.borrow());
        let learner = latest
            .membership
            .member(who.member_id)
            // Before its first checkpoint a joiner is not in its own membership: it serves as a
            // learner. A removed member does not: its phase changes once the others no longer need it.
            .map_or(!latest.membership.is_removed(who.member_id), |member| {
                member.learner
            });
        let mut status = Status {
            phase,
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            role: Role::Follower,
            term: 0,
            leader: 0,
            commit: 0,
            applied: latest.applied,
            last_index: 0,
            last_term: 0,
            leader_changes: self.leader_changes.load(Ordering::Relaxed),
            proposals_failed: self.proposals_failed.load(Ordering::Relaxed),
        };
        if let Some(consensus) = consensus.as_ref() {
            status.role = role(consensus.raft.role, learner);
            status.term = consensus.raft.term;
            status.leader = consensus.raft.leader.unwrap_or(0);
            // The consensus status is refreshed once a tick: what was applied since was committed
            // before.
            status.commit = consensus.raft.commit.max(latest.applied);
            let applied = (latest.applied, latest.term);
            let log = (consensus.raft.last_index, consensus.raft.last_term);
            (status.last_index, status.last_term) = log.max(applied);
        }
        status
    }

    /// The server is about to stop: unready from now on, until a restart.
    pub(crate) fn begin_to_retire(&self) {
        self.retired.get_or_init(Instant::now);
    }

    /// Milliseconds since it began to retire, at least 1; 0 while it does not.
    pub(crate) fn retiring_ms(&self) -> u64 {
        let since = self.retired.get().map(Instant::elapsed);
        since.map_or(0, |age| {
            u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1)
        })
    }

    /// Liveness.
    pub(crate) fn live(&self) -> Health {
        let now = self.now_ms();
        for (thread, beat) in self.beats.iter().enumerate() {
            let aside = thread == Thread::Background as usize;
            let limit = if aside { STUCK_ASIDE } else { STUCK };
            let age = now.saturating_sub(beat.last_ms.load(Ordering::Relaxed));
            if beat.active.load(Ordering::Relaxed) && u128::from(age) > limit.as_millis() {
                let name = beat.name;
                return Health::Not(format!("the {name} thread made no progress for {age} ms"));
            }
        }
        Health::Ok
    }

    /// Readiness.
    pub(crate) fn ready(&self) -> Health {
        let status = self.status();
        match (status.phase, status.role) {
            (Phase::Standby, _) => Health::Not("a standby: not a member yet".to_owned()),
            (Phase::Joining, _) => Health::Not("joining".to_owned()),
            (Phase::Removed, _) => Health::Not("removed from the cluster".to_owned()),
            (Phase::Member, Role::Learner) => Health::Not("a learner".to_owned()),
            (Phase::Member, _) if self.is_removed(status.member_id) => {
                Health::Not("removed from the cluster".to_owned())
            }
            (Phase::Member, _) if self.retired.get().is_some() => {
                Health::Not("about to stop".to_owned())
            }
            (Phase::Member, _) if self.held.load(Ordering::Acquire) => {
                Health::Not("its data is being compared with the other members'".to_owned())
            }
            (Phase::Member, _) if self.is_corrupt(status.member_id) => {
                Health::Not("its data differs from the other members'".to_owned())
            }
            (Phase::Member, _) => match self.read_age() {
                Some(age) if age <= STALE => Health::Ok,
                _ if !self.doubt().is_empty() => Health::Not(self.doubt()),
                Some(age) => Health::Not(format!(
                    "the last linearizable read was {} s ago",
                    age.as_secs()
                )),
                None => Health::Not("no linearizable read yet".to_owned()),
            },
        }
    }

    /// Records why this member may have been removed; empty if there is no sign of that.
    pub(crate) fn doubts(&self, why: String) {
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn doubt(&self) -> String {
        let doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        doubt.clone()
    }

    /// The applied membership has removed this member, which still helps the others to settle.
    fn is_removed(&self, own: u64) -> bool {
        self.latest.borrow().membership.is_removed(own)
    }

    /// The alarm CORRUPT is on for this member, or for no particular one.
    pub(crate) fn is_corrupt(&self, own: u64) -> bool {
        let alarms = self.latest.borrow().overview.alarms();
        let mut corrupt = alarms
            .iter()
            .filter(|alarm| alarm.kind == AlarmKind::Corrupt);
        corrupt.any(|alarm| alarm.member == own || alarm.member == 0)
    }
}

/// etcd's error for a proposal that was not appended.
pub(crate) fn proposal_error(error: ProposalError) -> RequestError {
    match error {
        ProposalError::Overloaded => RequestError::TooManyRequests,
        ProposalError::TooLarge { .. } => RequestError::TooLarge,
        ProposalError::Membership(error) => RequestError::Membership(error),
        ProposalError::NotAMember => RequestError::NotAMember,
        ProposalError::Withdrawn { leaderless: true } => RequestError::NoLeader,
        // It is as final as the one above, but etcd has no text for that.
        ProposalError::Withdrawn { leaderless: false } => RequestError::Timeout,
    }
}

/// etcd's error for a read that is not answered.
pub(crate) fn refusal(refusal: RequestRefusal) -> RequestError {
    match refusal {
        RequestRefusal::Overloaded => RequestError::TooManyRequests,
        RequestRefusal::NotAMember => RequestError::NotAMember,
    }
}

/// etcd's error for a transfer that failed.
pub(crate) fn transfer_error(failure: TransferFailure) -> RequestError {
    use crate::raft::TransferError;
    match failure {
        TransferFailure::Refused(TransferError::NotLeader { .. }) => RequestError::NotLeader,
        TransferFailure::Refused(_) | TransferFailure::NoTarget => RequestError::BadTransferee,
        TransferFailure::TimedOut => RequestError::Timeout,
        TransferFailure::OtherLeader { .. } => RequestError::LeaderChanged,
    }
}

fn role(role: crate::raft::Role, learner: bool) -> Role {
    match role {
        crate::raft::Role::Leader => Role::Leader,
        crate::raft::Role::Candidate | crate::raft::Role::PreCandidate => Role::Candidate,
        crate::raft::Role::Follower if learner => Role::Learner,
        crate::raft::Role::Follower => Role::Follower,
    }
}

/// 64 random bits from the system.
pub(crate) fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1.rotate_left(7) ^ uuid::Uuid::new_v4().as_u64_pair().0
}

/// The first number for lease IDs: random in the high bits, the time in the middle, room to count
/// below.
fn first_unique() -> u64 {
    let ms = crate::server::process::clock::unix_ms();
    (random() << 56) | ((ms & 0xffff_ffff) << 24) | 1
}
