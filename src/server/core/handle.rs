//! `MemberHandle`: the interface of client services to the member that this process runs.
//!
//! Cheap to clone, async, and free of sockets and disks: each call sends a message to the core
//! threads and waits for the answer. It never steps Raft or touches the store itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::queue::{Oldest, Patient, Refused};
use super::state::{RuntimeState, VolumeSpace, Who};
use super::wakes::StreamWatchers;
use crate::node::{
    Add, Applied, Awaited, ChangeBody, Input, Join, LeaseCall, LeaseTimes, LogPayload, Membership,
    MembershipCommand, MembershipError, Outcome, Proposal, RequestId, Target, Update, member_id,
};
use crate::raft::{Index, Term};
use crate::server::auth::simple::SimpleTokens;
use crate::server::metrics::CoreMetrics;
use crate::server::scheduling::within::within;
use crate::server::tls::ports::Ports;
use crate::server::traces::marks::{self, Wait};
use crate::server::traces::moments::Moments;
use crate::store::{
    Alarm, AlarmKind, Command, Error as StoreError, KeyHash, Operation, Overview, Response,
    Revision, SetAlarm, View,
};

/// How long a call that has timed out waits for the raft thread to report whether its proposal was
/// withdrawn.
pub(crate) const VERDICT: Duration = Duration::from_secs(1);

/// Why a request was not carried out. Client services map each to etcd's code and text.
/// `RequestError::is_final` (for the tests) returns whether a client may conclude that it never
/// happened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum RequestError {
    /// No leader is known. Returned for a proposal only if it had not left this member and was
    /// taken out of its queue; etcd: `no leader`.
    #[error("no leader")]
    NoLeader,
    /// The proposal was lost with its term, or its outcome is unknown; etcd: `leader changed`.
    #[error("leader changed")]
    LeaderChanged,
    /// This member does not lead and only the leader serves the request; etcd: `not leader`.
    #[error("not leader")]
    NotLeader,
    /// A bounded queue is full; etcd: `too many requests`.
    #[error("too many requests")]
    TooManyRequests,
    /// No answer within the request timeout; etcd: `request timed out`.
    #[error("request timed out")]
    Timeout,
    /// The server is stopping or stopped; etcd: `server stopped`.
    #[error("server stopped")]
    Stopped,
    /// This server is a standby, is joining, or was removed: it has no state to serve.
    #[error("this server is not a member of a cluster yet")]
    NotAMember,
    /// The proposal is larger than `--max-request-bytes`; etcd: `request is too large`.
    #[error("request is too large")]
    TooLarge,
    /// The member cannot become leader; etcd: `bad leader transferee`.
    #[error("bad leader transferee")]
    BadTransferee,
    /// The store refuses the command.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The membership refuses the change.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}

impl RequestError {
    /// The same without names and numbers, for a label: etcd's words where it has some.
    pub(crate) fn brief(&self) -> &'static str {
        match self {
            RequestError::NoLeader => "no leader",
            RequestError::LeaderChanged => "leader changed",
            RequestError::NotLeader => "not leader",
            RequestError::TooManyRequests => "too many requests",
            RequestError::Timeout => "request timed out",
            RequestError::Stopped => "server stopped",
            RequestError::NotAMember => "not a member",
            RequestError::TooLarge => "request is too large",
            RequestError::BadTransferee => "bad leader transferee",
            RequestError::Store(_) => "refused by the store",
            RequestError::Membership(error) => match error {
                MembershipError::Removed | MembershipError::NotFound => "member not found",
                MembershipError::NotLearner => "can only promote a learner member",
                MembershipError::LearnerNotReady { .. } => {
                    "can only promote a learner member which is in sync with leader"
                }
                MembershipError::Unhealthy => "unhealthy cluster",
                MembershipError::NotEnoughStarted => "not enough started members",
                MembershipError::ConfigurationChanged { .. } => "the membership has changed",
                MembershipError::StaleEpoch { .. } => "a newer operator has called",
                _ => "refused by the membership",
            },
        }
    }

    /// Whether a write with this error is in no log and never will be, or changed nothing when it
    /// was applied. After any other error it may have happened, or may happen later: those are the
    /// errors that etcd's clients treat as indefinite. The table of all texts in
    /// `docs/failure-modes.md` is compared with this one.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_final(&self) -> bool {
        match self {
            RequestError::NoLeader
            | RequestError::NotLeader
            | RequestError::TooManyRequests
            | RequestError::NotAMember
            | RequestError::TooLarge
            | RequestError::BadTransferee
            | RequestError::Store(_)
            | RequestError::Membership(_) => true,
            RequestError::LeaderChanged | RequestError::Timeout | RequestError::Stopped => false,
        }
    }
}

/// etcd's errors for what the raft thread's inbox refuses.
impl From<Refused> for RequestError {
    fn from(refused: Refused) -> RequestError {
        match refused {
            Refused::Full => RequestError::TooManyRequests,
            Refused::Closed => RequestError::Stopped,
        }
    }
}

/// Reason for NOSPACE, for the log.
pub(crate) const QUOTA_IS_USED_UP: &str = "the quota is used up; compact, delete what is not \
                                           needed or raise --quota-backend-bytes";

/// The state that readers see, published once a batch, after it was applied.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// The store at this point. Readers on it never block the applier.
    pub view: Arc<View>,
    /// The replicated membership at this point.
    pub membership: Arc<Membership>,
    /// The last applied index.
    pub applied: u64,
    /// The term of the last applied entry.
    pub term: u64,
}

/// What is small of the published state. Whoever needs no more asks for this: it keeps no view.
#[derive(Debug, Clone)]
pub(crate) struct Latest {
    /// What is small of the store.
    pub overview: Overview,
    /// The replicated membership at this point.
    pub membership: Arc<Membership>,
    /// The last applied index.
    pub applied: u64,
    /// The term of the last applied entry.
    pub term: u64,
}

impl Latest {
    /// What is small of this state.
    pub(super) fn of(published: &Published) -> Latest {
        Latest {
            overview: published.view.overview(),
            membership: Arc::clone(&published.membership),
            applied: published.applied,
            term: published.term,
        }
    }
}

/// A membership change, as requested through etcd's Cluster service or `quorate.v1`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MembershipRequest {
    /// Adds a voter (etcd's `member add`) or a learner. The ID is chosen here.
    Add {
        /// Empty in etcd's API; the joining server's own name is then set by `Join`.
        name: String,
        /// The peer URLs of the new member.
        peer_urls: Vec<String>,
        /// Learners do not vote.
        learner: bool,
        /// The standby's disk, if it is known already.
        disk_uuid: Option<String>,
    },
    /// Makes a learner a voter, if it is in sync with the leader.
    Promote {
        /// The learner.
        id: u64,
    },
    /// Removes a member; its ID is never used again.
    Remove {
        /// The member.
        id: u64,
    },
    /// Sets a member's peer URLs.
    Update {
        /// The member.
        id: u64,
        /// Its new peer URLs.
        peer_urls: Vec<String>,
    },
    /// What a member publishes about itself when it starts: its disk, its name, its client URLs.
    Join {
        /// The member.
        id: u64,
        /// Its disk; bound once.
        disk_uuid: String,
        /// Its name.
        name: String,
        /// Its client URLs.
        client_urls: Vec<String>,
    },
}

/// The preconditions of a membership change; a change based on outdated knowledge is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The configuration index that the caller decided on.
    pub configuration_index: Option<u64>,
    /// The caller's epoch (of the operator's Lease); refused if a newer one was seen.
    pub epoch: Option<u64>,
}

/// The phase of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An empty disk that waits for `Bootstrap` or for being added as a learner.
    Standby,
    /// It knows its cluster and has not received the cluster's state yet.
    Joining,
    /// A member.
    Member,
    /// Removed from its cluster for good.
    Removed,
}

/// The role of this member in consensus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Requests votes (or pre-votes).
    Candidate,
    /// Leads.
    Leader,
    /// Receives the log and does not vote.
    Learner,
}

/// A member's own view of consensus, refreshed at each tick and each change of role.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// The phase of this server.
    pub phase: Phase,
    /// 0 until a member.
    pub cluster_id: u64,
    /// 0 until a member.
    pub member_id: u64,
    /// The role of this member.
    pub role: Role,
    /// The current term.
    pub term: u64,
    /// 0 when no leader is known.
    pub leader: u64,
    /// The commit index.
    pub commit: u64,
    /// The applied index.
    pub applied: u64,
    /// The last index in the log (etcd's `raftIndex` is the commit index).
    pub last_index: u64,
    /// The term of the entry there.
    pub last_term: u64,
    /// Leader changes seen since start, for etcd's metric.
    pub leader_changes: u64,
    /// Proposals that failed since start, for etcd's metric.
    pub proposals_failed: u64,
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// Healthy.
    Ok,
    /// Not healthy, with the reason as text.
    Not(String),
}

/// The interface of client services to the member that this process runs.
#[derive(Clone)]
pub(crate) struct MemberHandle {
    shared: Arc<RuntimeState>,
}

impl MemberHandle {
    pub(crate) fn new(shared: Arc<RuntimeState>) -> MemberHandle {
        MemberHandle { shared }
    }

    /// How the ports are secured.
    pub(crate) fn ports(&self) -> &Ports {
        &self.shared.ports
    }

    /// Replicates and applies a command; returns the store's response and the index of its entry.
    /// The caller has checked it (`store::check`). Followers forward. Times out as in etcd, after 5
    /// s and two election timeouts. A proposal that no leader received in that time is withdrawn
    /// and refused with [`RequestError::NoLeader`].
    pub(crate) async fn propose(
        &self,
        command: Command,
    ) -> Result<(Response, Index), RequestError> {
        self.member()?;
        if let Some(operation) = &command.operation {
            self.latest().overview.check_following(operation)?;
        }
        let request = self.shared.request();
        let data = LogPayload::command(Some(request), command);
        let bytes = data.len() + 64;
        let input = Input::Propose(vec![Proposal { request, data }]);
        let number = request.counter;
        marks::note(|marks| marks.begin(Wait::Proposal, number, Instant::now()));
        // etcd counts commands alone, and only those that ended before they were applied.
        let mut failed = Failed(Some(&self.shared.proposals_failed));
        let result = self.carry(request, bytes, input).await;
        if !matches!(
            result,
            Err(RequestError::NoLeader | RequestError::Timeout | RequestError::LeaderChanged)
        ) {
            failed.0 = None;
        }
        let applied = result?;
        marks::note(|marks| marks.applied(applied.index, Instant::now()));
        match applied.outcome {
            Outcome::Store(answer) => Ok((answer?, applied.index)),
            // The entry with this identity is the proposed one, so this cannot happen.
            Outcome::Started | Outcome::Membership(_) => Err(RequestError::LeaderChanged),
        }
    }

    /// Raises or disarms an alarm on every member; returns the alarm that is or was on.
    pub(crate) async fn set_alarm(&self, change: SetAlarm) -> Result<Option<Alarm>, RequestError> {
        match self.propose(Operation::SetAlarm(change).into()).await? {
            (Response::SetAlarm(answer), _) => Ok(answer.alarm),
            // The entry with this identity is the proposed one, so this cannot happen.
            _ => Err(RequestError::LeaderChanged),
        }
    }

    /// Raises NOSPACE for this member, unless it is on or about to be. A failure is logged, and the
    /// next request that finds no space tries again. `why` is for the log: which resource is used
    /// up.
    pub(crate) async fn raise_no_space(&self, why: &str) -> bool {
        let alarm = Alarm {
            kind: AlarmKind::NoSpace,
            member: self.status().member_id,
        };
        let raising = &self.shared.raising;
        if self.latest().overview.alarms().contains(&alarm) {
            return true;
        }
        if raising.swap(true, Ordering::AcqRel) {
            return false;
        }
        // Also if the caller is dropped meanwhile.
        let _end = Raised(raising);
        let change = SetAlarm {
            kind: alarm.kind.into(),
            member: alarm.member,
            on: true,
        };
        let size = self.latest().overview.db_size();
        match self.set_alarm(change).await {
            Ok(_) => {
                let then = "raised the alarm NOSPACE; then switch the alarm off";
                tracing::error!(size, "{why}: {then}");
                true
            }
            Err(error) => {
                tracing::warn!(size, "cannot raise the alarm NOSPACE yet: {error}");
                false
            }
        }
    }

    /// Waits until this member has applied everything that was committed when the call began, then
    /// returns the published state.
    pub(crate) async fn linearizable(&self) -> Result<Arc<Published>, RequestError> {
        self.member()?;
        let number = self.shared.number();
        let answer = self.shared.reads.wait(number);
        let mut waiting = Waiting::new(&self.shared, Awaited::Read(number));
        let read = Input::Read(vec![number]);
        let began = Instant::now();
        marks::note(|marks| marks.begin(Wait::ReadIndex, number, began));
        let pushed = self.shared.inbox.push_patient(Patient::Read, 64, read);
        let answered = match pushed {
            Ok(()) => self.within(answer, &mut waiting).await,
            Err(error) => Err(error.into()),
        };
        let ended = Instant::now();
        marks::note(|marks| marks.end(ended));
        self.measure_read(ended - began, answered.as_ref().err());
        answered?;
        self.shared.read_served();
        Ok(self.published())
    }

    fn measure_read(&self, took: Duration, error: Option<&RequestError>) {
        let metrics = &self.shared.metrics;
        match error {
            None => metrics.read_index.observe(took),
            Some(error) => {
                metrics.read_indexes_failed.fetch_add(1, Ordering::Relaxed);
                let slow = u64::from(matches!(error, RequestError::Timeout));
                metrics.slow_read_indexes.fetch_add(slow, Ordering::Relaxed);
            }
        }
    }

    /// As [`MemberHandle::linearizable`], for callers that act on the membership: waits until its
    /// last change is settled. While only one member knows of a removal, the others could still
    /// need the removed member's vote, and a caller that sees the new list may delete that member's
    /// disk.
    pub(crate) async fn settled(&self) -> Result<Arc<Published>, RequestError> {
        let mut latest = self.shared.latest.subscribe();
        drop(self.linearizable().await?);
        let settled = async {
            loop {
                let settled = latest.wait_for(|latest| latest.membership.is_settled());
                settled.await.map_err(|_| RequestError::Stopped)?;
                // It may be a newer one, of which the same has to be true.
                let now = self.published();
                if now.membership.is_settled() {
                    return Ok(now);
                }
            }
        };
        let timed = tokio::time::timeout(self.shared.request_timeout, settled).await;
        timed.map_err(|_| RequestError::Timeout)?
    }

    /// The state that this member has applied, for serializable reads. Waits for a short batch at most.
    pub(crate) fn published(&self) -> Arc<Published> {
        self.shared.views.latest()
    }

    /// What is small of it. Never waits.
    pub(crate) fn latest(&self) -> Arc<Latest> {
        Arc::clone(&self.shared.latest.borrow())
    }

    /// The hash at the revision of a compaction, computed from before it; `None` at any other
    /// revision. Waits while it is being computed.
    pub(crate) async fn hash_before_compaction(&self, revision: Revision) -> Option<KeyHash> {
        self.shared.compaction_hashes.at(revision).await
    }

    /// What is small of the published state, and a wake-up whenever there is a newer one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Latest>> {
        self.shared.latest.subscribe()
    }

    /// The watchers of a new watch stream, which is woken only for what they watch. They keep the revision that they have
    /// seen and read newer events from the view's own history, so a slow watcher delays no other.
    pub(crate) fn watchers(&self) -> StreamWatchers {
        let view = &self.published().view;
        StreamWatchers::new(&self.shared.wakes, self.shared.number(), view)
    }

    /// Increases when connected clients should finish and connect elsewhere.
    pub(crate) fn hang_ups(&self) -> watch::Receiver<u64> {
        self.shared.hang_ups.subscribe()
    }

    /// Changes the membership; returns the new membership and the member that was changed.
    pub(crate) async fn change_membership(
        &self,
        request: MembershipRequest,
        fence: Fence,
    ) -> Result<(u64, Arc<Membership>), RequestError> {
        self.member()?;
        let promotes = matches!(request, MembershipRequest::Promote { .. });
        let (id, body) = change_body(request);
        let command = MembershipCommand {
            body: Some(body),
            expected_configuration_index: fence.configuration_index,
            epoch: fence.epoch,
        };
        let changed = self.carry_change(command).await;
        if promotes {
            let outcome = changed.as_ref().map(drop).map_err(RequestError::brief);
            self.metrics().promotions.ended(outcome);
        }
        Ok((id, changed?))
    }

    async fn carry_change(
        &self,
        command: MembershipCommand,
    ) -> Result<Arc<Membership>, RequestError> {
        let request = self.shared.request();
        let input = Input::ChangeMembership { request, command };
        match self.carry(request, 1024, input).await?.outcome {
            Outcome::Membership(membership) => Ok(membership?),
            // As above: the entry with this identity is the proposed one.
            Outcome::Started | Outcome::Store(_) => Err(RequestError::LeaderChanged),
        }
    }

    /// Transfers leadership to a voter (0: the one with the highest match index) and waits until it
    /// leads. Only the leader accepts.
    pub(crate) async fn move_leader(&self, to: u64) -> Result<u64, RequestError> {
        self.member()?;
        let id = self.shared.number();
        let answer = self.shared.transfers.wait(id);
        let to = (to != 0).then_some(to);
        let input = Input::Transfer { id, to };
        self.shared.inbox.push(64, input)?;
        let result = self.timed(answer).await;
        self.shared.transfers.forget(id);
        result.unwrap_or(Err(RequestError::Timeout))
    }

    /// Renews a lease through the leader; returns its TTL in seconds, or `None` when there is no
    /// such lease.
    pub(crate) async fn lease_keepalive(&self, id: i64) -> Result<Option<i64>, RequestError> {
        let times = self.lease(id, true).await?;
        (self.metrics().renewals).fetch_add(times.is_some().into(), Ordering::Relaxed);
        Ok(times.map(|times| times.granted))
    }

    /// The remaining TTL of a lease from the leader, or `None` when there is no such lease.
    pub(crate) async fn lease_times(&self, id: i64) -> Result<Option<LeaseTimes>, RequestError> {
        self.lease(id, false).await
    }

    async fn lease(&self, lease: i64, renew: bool) -> Result<Option<LeaseTimes>, RequestError> {
        self.member()?;
        let id = self.shared.number();
        let answer = self.shared.leases.wait(id);
        let mut waiting = Waiting::new(&self.shared, Awaited::Lease(id));
        let call = LeaseCall { id, lease, renew };
        marks::note(|marks| marks.begin(Wait::Lease, 0, Instant::now()));
        self.shared.inbox.push(64, Input::Lease(vec![call]))?;
        let result = self.within(answer, &mut waiting).await;
        marks::note(|marks| marks.end(Instant::now()));
        match result {
            // etcd waits for a leader here and returns this error without one. A repeated query is
            // harmless.
            Err(RequestError::Timeout) if self.status().leader == 0 => Err(RequestError::NoLeader),
            result => result,
        }
    }

    /// This member's IDs and its term, for the header of every response.
    pub(crate) fn who(&self) -> (Who, Term) {
        let consensus = self.shared.consensus.load();
        let term = consensus.as_ref().as_ref().map_or(0, |it| it.raft.term);
        (self.shared.phase.load().1.clone(), term)
    }

    /// Consensus as this member sees it. Called for each request, so it has to be cheap.
    pub(crate) fn status(&self) -> Status {
        self.shared.status()
    }

    /// Proposals that wait for an answer, for etcd's metric.
    pub(crate) fn proposals_pending(&self) -> u64 {
        self.shared.proposals.len() as u64
    }

    /// What an archiver of the log has told this member since its start: the last index that is stored, and the Unix
    /// milliseconds of which the archive is, 0 if that is not known.
    pub(crate) fn archived(&self) -> Option<(u64, i64)> {
        let archived = self.shared.archived.load();
        archived.as_ref().map(|it| (it.index, it.as_of_unix_ms))
    }

    /// The volume of the data directory, if it was measured lately.
    pub(crate) fn volume(&self) -> Option<VolumeSpace> {
        self.shared.space()
    }

    /// What waits for each core thread: its name, items and their bytes.
    pub(crate) fn depths(&self) -> Vec<(&'static str, (usize, usize))> {
        self.shared.depths()
    }

    /// What the core threads measure.
    pub(crate) fn metrics(&self) -> &CoreMetrics {
        &self.shared.metrics
    }

    /// Liveness: each core thread has made progress within 30 s.
    pub(crate) fn live(&self) -> Health {
        self.shared.live()
    }

    /// Readiness: a voter whose last linearizable read succeeded at most 10 s ago, and not
    /// stopping, retired or corrupt.
    pub(crate) fn ready(&self) -> Health {
        self.shared.ready()
    }

    /// Client requests wait until this member's data has been compared with the others'.
    pub(crate) fn held(&self) -> bool {
        self.shared.held.load(Ordering::Acquire)
    }

    /// A number that no other call of this process or of an earlier one on this disk returns, for
    /// lease IDs that the server chooses.
    pub(crate) fn unique(&self) -> u64 {
        self.shared.unique()
    }

    /// When what happened to proposals and entries.
    pub(crate) fn moments(&self) -> &Moments {
        &self.shared.moments
    }

    /// The identity of a request in lines and spans: of this start of the server, and its number, which is that of its
    /// proposal if it has one; a new one for 0.
    pub(crate) fn request_id(&self, number: u64) -> String {
        let number = match number {
            0 => self.shared.number(),
            number => number,
        };
        format!("{:016x}-{number}", self.shared.boot_nonce)
    }

    /// Since when the raft thread has not taken its oldest queued input.
    pub(crate) fn inbox(&self) -> Oldest {
        self.shared.inbox.oldest()
    }

    /// The simple tokens that this member knows.
    pub(crate) fn tokens(&self) -> &SimpleTokens {
        &self.shared.tokens
    }

    fn member(&self) -> Result<(), RequestError> {
        match self.shared.phase.load().0 {
            Phase::Member => Ok(()),
            _ => Err(RequestError::NotAMember),
        }
    }

    /// Waits for the outcome of a proposal. On a timeout the proposal is withdrawn, and the raft
    /// thread reports whether it had left this member, which only that thread knows. Whether there
    /// is a leader now does not decide it: an earlier leader may have received the proposal.
    async fn carry(
        &self,
        request: RequestId,
        bytes: usize,
        input: Input,
    ) -> Result<Applied, RequestError> {
        let mut answer = self.shared.proposals.wait(request.counter);
        let mut waiting = Waiting::new(&self.shared, Awaited::Request(request));
        match &input {
            Input::Propose(_) => {
                let inbox = &self.shared.inbox;
                inbox.push_patient(Patient::Proposal, bytes, input)?;
            }
            _ => self.shared.inbox.push(bytes, input)?,
        }
        let mut result = self.timed(&mut answer).await;
        if result.is_none() {
            waiting.cancel();
            let verdict = tokio::time::timeout(VERDICT, answer).await;
            result = verdict.ok().map(answered);
        }
        waiting.answered = result.is_some();
        result.unwrap_or(Err(RequestError::Timeout))
    }

    /// Waits for the answer to a query, which has no effect if its caller is gone.
    async fn within<T>(
        &self,
        answer: oneshot::Receiver<Result<T, RequestError>>,
        waiting: &mut Waiting<'_>,
    ) -> Result<T, RequestError> {
        let result = self.timed(answer).await;
        waiting.answered = result.is_some();
        result.unwrap_or(Err(RequestError::Timeout))
    }

    /// The answer, or `None` on a timeout.
    async fn timed<T>(
        &self,
        answer: impl Future<Output = Result<Result<T, RequestError>, oneshot::error::RecvError>>,
    ) -> Option<Result<T, RequestError>> {
        let timed = within(self.shared.request_timeout, answer).await;
        timed.ok().map(answered)
    }
}

/// The answer received over the channel, which is dropped when the server ends.
fn answered<T>(
    received: Result<Result<T, RequestError>, oneshot::error::RecvError>,
) -> Result<T, RequestError> {
    received.unwrap_or(Err(RequestError::Stopped))
}

/// Counts a failed proposal when it is dropped, also if its caller was dropped.
struct Failed<'a>(Option<&'a AtomicU64>);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        if let Some(failed) = self.0 {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Marks the alarm as no longer being raised.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Cancels the request at the raft thread if the caller is dropped before the answer arrives,
/// whether on its own timeout or its client's, so that nothing is kept there without a caller.
struct Waiting<'a> {
    shared: &'a RuntimeState,
    what: Awaited,
    answered: bool,
}

impl<'a> Waiting<'a> {
    fn new(shared: &'a RuntimeState, what: Awaited) -> Waiting<'a> {
        Waiting {
            shared,
            what,
            answered: false,
        }
    }

    fn cancel(&self) {
        let cancel = Input::Cancel(vec![self.what]);
        // A closed inbox holds nothing to cancel.
        let _ = self.shared.inbox.push_always(16, cancel);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let waited = match self.what {
            Awaited::Request(request) => self.shared.proposals.forget(request.counter),
            Awaited::Read(number) => self.shared.reads.forget(number),
            Awaited::Lease(number) => self.shared.leases.forget(number),
        };
        if waited {
            self.cancel();
        }
    }
}

/// The member that a change refers to, and the change as stored in the log.
fn change_body(request: MembershipRequest) -> (u64, ChangeBody) {
    match request {
        MembershipRequest::Add {
            name,
            peer_urls,
            learner,
            disk_uuid,
        } => {
            let seconds = crate::server::process::clock::since_1970().as_secs();
            let id = member_id(&peer_urls, "", Some(seconds));
            let add = Add {
                id,
                name,
                peer_urls,
                client_urls: Vec::new(),
                learner,
                disk_uuid: disk_uuid.unwrap_or_default(),
            };
            (id, ChangeBody::Add(add))
        }
        MembershipRequest::Promote { id } => (id, ChangeBody::Promote(Target { id })),
        MembershipRequest::Remove { id } => (id, ChangeBody::Remove(Target { id })),
        MembershipRequest::Update { id, peer_urls } => {
            (id, ChangeBody::Update(Update { id, peer_urls }))
        }
        MembershipRequest::Join {
            id,
            disk_uuid,
            name,
            client_urls,
        } => {
            let join = Join {
                id,
                disk_uuid,
                name,
                client_urls,
            };
            (id, ChangeBody::Join(join))
        }
    }
}
