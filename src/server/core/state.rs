//! What the handle, the core threads and the peer runtime share: the inbox of the raft thread,
//! whoever waits for an answer, what is published, and signs of life.
//!
//! Never blocks a core thread: locks guard plain maps for the length of an insertion.

// Nobody sees the order of those who wait.
#![allow(clippy::disallowed_types)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};

use super::handle::{Health, Phase, Published, RequestError, Role, Status};
use super::queue::Queue;
use crate::node::{
    Applied, Input, LeaseTimes, MemberStatus, ProposalError, RequestId, RequestRefusal,
    StateMachine, TransferFailure,
};
use crate::server::auth::simple::SimpleTokens;
use crate::server::flags::config::Config;
use crate::server::maintenance::compaction_hashes::CompactionHashes;
use crate::server::maintenance::compared::Comparisons;
use crate::server::metrics::CoreMetrics;
use crate::server::process::exit::Stop;
use crate::server::tls::ports::Ports;
use crate::store::AlarmKind;

/// Bytes of requests and messages that may wait for the raft thread.
const INBOX_BYTES: usize = 64 << 20;
/// A core thread without progress for this long fails liveness.
const STUCK: Duration = Duration::from_secs(30);
/// A linearizable read this long ago makes a member unready.
const STALE: Duration = Duration::from_secs(10);

type Answer<T> = oneshot::Sender<Result<T, RequestError>>;

/// Whoever waits, by the number of what they wait for.
#[derive(Debug)]
pub(crate) struct Waiters<T>(Mutex<HashMap<u64, Answer<T>>>);

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters(Mutex::default())
    }
}

impl<T> Waiters<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Answer<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for the answer to `number`.
    pub(crate) fn wait(&self, number: u64) -> oneshot::Receiver<Result<T, RequestError>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(number, sender);
        receiver
    }

    /// Answers; false when nobody waited.
    pub(crate) fn answer(&self, number: u64, answer: Result<T, RequestError>) -> bool {
        let waiter = self.lock().remove(&number);
        // The waiter may have gone in this very moment.
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

    /// Gives up waiting; false when the answer had come.
    pub(crate) fn forget(&self, number: u64) -> bool {
        self.lock().remove(&number).is_some()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nobody will be answered any more: their receivers see the sender dropped.
    fn drop_all(&self) {
        self.lock().clear();
    }
}

/// Signs of life of one core thread.
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

/// Who this server is; changes when it joins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// 0 until known.
    pub cluster_id: u64,
    /// 0 until known.
    pub member_id: u64,
}

/// The volume of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeSpace {
    /// Bytes that nobody uses.
    pub free: u64,
    /// With fewer free the alarm NOSPACE is raised.
    pub needed: u64,
    /// When it was looked at.
    pub at: Instant,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct RuntimeState {
    /// `--name`.
    pub name: String,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// The random number of this start.
    pub boot_nonce: u64,
    /// What waits for the raft thread, which ends when it is closed.
    pub inbox: Queue<Input>,
    /// Whoever proposed.
    pub proposals: Waiters<Applied>,
    /// Whoever reads.
    pub reads: Waiters<()>,
    /// Whoever asked about a lease.
    pub leases: Waiters<Option<LeaseTimes>>,
    /// Whoever moves leadership.
    pub transfers: Waiters<u64>,
    /// The published state.
    pub published: watch::Sender<Arc<Published>>,
    /// What the server is.
    pub phase: ArcSwap<(Phase, Who)>,
    /// Consensus, as the raft thread last said; `None` before it runs.
    pub consensus: ArcSwap<Option<MemberStatus>>,
    /// Leader changes seen.
    pub leader_changes: AtomicU64,
    /// Commands whose clients were not told what became of them, as etcd counts them.
    pub proposals_failed: AtomicU64,
    /// What the server does or waits for, in words.
    pub activity: Mutex<String>,
    /// Why this member may have been removed without knowing it; empty: there is no sign of that.
    doubt: Mutex<String>,
    /// Set once the server is about to go: it is unready from then on.
    pub retired: OnceLock<Instant>,
    /// How often clients were asked to connect elsewhere.
    pub hang_ups: watch::Sender<u64>,
    /// The alarm NOSPACE is being raised.
    pub raising: AtomicBool,
    /// Clients wait until this member's data has been compared with the others'.
    pub held: AtomicBool,
    /// What the core threads measure.
    pub metrics: CoreMetrics,
    /// How the ports are secured.
    pub ports: Ports,
    /// Simple tokens; the applier brings them.
    pub tokens: SimpleTokens,
    /// Hashes at the revisions of the last compactions, from before them.
    pub compaction_hashes: Arc<CompactionHashes>,
    /// What the last look at the data directory's volume found.
    pub volume: Mutex<Option<VolumeSpace>>,
    /// Comparisons under the alarm CORRUPT.
    pub comparisons: Mutex<Comparisons>,
    beats: [Beat; 4],
    last_read_ms: AtomicU64,
    started: Instant,
    counter: AtomicU64,
    unique: AtomicU64,
    stop: OnceLock<mpsc::UnboundedSender<Stop>>,
}

impl RuntimeState {
    /// The state of a server that is nothing yet, and where its reason to stop will come.
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
            inbox: Queue::new(INBOX_BYTES),
            proposals: Waiters::default(),
            reads: Waiters::default(),
            leases: Waiters::default(),
            transfers: Waiters::default(),
            published: watch::channel(Arc::new(published)).0,
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
            ports: Ports::default(),
            tokens: SimpleTokens::new(config.auth.token_ttl),
            compaction_hashes: Arc::default(),
            volume: Mutex::default(),
            comparisons: Mutex::default(),
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

    /// Ends the server. The first reason counts.
    pub(crate) fn stop(&self, stop: Stop) {
        if let Some(sender) = self.stop.get() {
            // Nobody listens any more when the server ends already.
            let _ = sender.send(stop);
        }
    }

    /// A thread shows that it makes progress.
    pub(crate) fn beat(&self, thread: Thread) {
        let beat = &self.beats[thread as usize];
        beat.last_ms.store(self.now_ms(), Ordering::Relaxed);
        beat.active.store(true, Ordering::Relaxed);
    }

    /// A thread has ended and is not waited for.
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

    /// Gives the raft thread what it asked for, or what must not be lost.
    pub(crate) fn report(&self, input: Input) {
        // A closed inbox belongs to a raft thread that has ended.
        let _ = self.inbox.push_always(64, input);
    }

    /// A linearizable read was answered.
    pub(crate) fn read_served(&self) {
        self.last_read_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// How long ago the last linearizable read was answered.
    pub(crate) fn read_age(&self) -> Option<Duration> {
        let last = self.last_read_ms.load(Ordering::Relaxed);
        (last > 0).then(|| Duration::from_millis(self.now_ms().saturating_sub(last)))
    }

    /// Says what the server does or waits for; logged when it changes.
    pub(crate) fn doing(&self, text: &str) {
        let mut activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        if *activity != text {
            tracing::info!("{text}");
            text.clone_into(&mut activity);
        }
    }

    /// Changes what the server is.
    pub(crate) fn become_phase(&self, phase: Phase, who: Who) {
        self.phase.store(Arc::new((phase, who)));
    }

    /// Asks the clients that are connected now to go elsewhere, after what is in flight. Whoever
    /// connects later is served.
    pub(crate) fn hang_up(&self) {
        self.hang_ups.send_modify(|times| *times += 1);
    }

    /// Nobody is answered from here on.
    pub(crate) fn drop_waiters(&self) {
        self.proposals.drop_all();
        self.reads.drop_all();
        self.leases.drop_all();
        self.transfers.drop_all();
    }

    /// What the handle shows.
    pub(crate) fn status(&self) -> Status {
        let phase = self.phase.load();
        let (phase, who) = (phase.0, &phase.1);
        let consensus = self.consensus.load();
        let published = Arc::clone(&self.published.borrow());
        let learner = published
            .membership
            .member(who.member_id)
            // Before its first checkpoint a joiner does not know itself: it serves as a learner.
            // One that was removed is none; it says so once the others need it no longer.
            .map_or(!published.membership.is_removed(who.member_id), |member| {
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
            applied: published.applied,
            last_index: 0,
            leader_changes: self.leader_changes.load(Ordering::Relaxed),
            proposals_failed: self.proposals_failed.load(Ordering::Relaxed),
        };
        if let Some(consensus) = consensus.as_ref() {
            status.role = role(consensus.raft.role, learner);
            status.term = consensus.raft.term;
            status.leader = consensus.raft.leader.unwrap_or(0);
            // Consensus is looked at once a tick: what was applied since was committed before.
            status.commit = consensus.raft.commit.max(published.applied);
            status.last_index = consensus.raft.last_index.max(published.applied);
        }
        status
    }

    /// The server is about to go: unready from now on, which has no way back but a restart.
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
        for beat in &self.beats {
            let age = now.saturating_sub(beat.last_ms.load(Ordering::Relaxed));
            if beat.active.load(Ordering::Relaxed) && u128::from(age) > STUCK.as_millis() {
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

    /// Says why this member may have been removed, or that nothing speaks for that.
    pub(crate) fn doubts(&self, why: String) {
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn doubt(&self) -> String {
        let doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        doubt.clone()
    }

    /// The cluster has removed this member, which still helps the others to settle.
    fn is_removed(&self, own: u64) -> bool {
        self.published.borrow().membership.is_removed(own)
    }

    /// The alarm about corruption is on and names this member, or nobody.
    fn is_corrupt(&self, own: u64) -> bool {
        let alarms = self.published.borrow().view.alarms();
        let mut corrupt = alarms
            .iter()
            .filter(|alarm| alarm.kind == AlarmKind::Corrupt);
        corrupt.any(|alarm| alarm.member == own || alarm.member == 0)
    }
}

/// etcd's words for a proposal that was not appended.
pub(crate) fn proposal_error(error: ProposalError) -> RequestError {
    match error {
        ProposalError::Overloaded => RequestError::TooManyRequests,
        ProposalError::TooLarge { .. } => RequestError::TooLarge,
        ProposalError::Membership(error) => RequestError::Membership(error),
        ProposalError::NotAMember => RequestError::NotAMember,
        ProposalError::Withdrawn { leaderless: true } => RequestError::NoLeader,
        // It is as dead as the one above, but etcd has no text that says so.
        ProposalError::Withdrawn { leaderless: false } => RequestError::Timeout,
    }
}

/// etcd's words for a read that is not answered.
pub(crate) fn refusal(refusal: RequestRefusal) -> RequestError {
    match refusal {
        RequestRefusal::Overloaded => RequestError::TooManyRequests,
        RequestRefusal::NotAMember => RequestError::NotAMember,
    }
}

/// etcd's words for leadership that stayed.
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

/// Where numbers for leases begin: random above, the time in the middle, room to count below.
fn first_unique() -> u64 {
    let ms = crate::server::process::clock::unix_ms();
    (random() << 56) | ((ms & 0xffff_ffff) << 24) | 1
}
