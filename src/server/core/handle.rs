//! `MemberHandle`: what client services may ask of the member that this process runs.
//!
//! Cheap to clone, async, and free of sockets and disks: each call hands a message to the
//! core threads and waits for its answer. It never steps Raft or touches the store itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::queue::{Oldest, Refused};
use super::state::{RuntimeState, Who};
use crate::node::{
    Add, Applied, Awaited, ChangeBody, Input, Join, LeaseCall, LeaseTimes, LogPayload, Membership,
    MembershipCommand, MembershipError, Outcome, Proposal, RequestId, Target, Update, member_id,
};
use crate::raft::{Index, Term};
use crate::server::auth::simple::SimpleTokens;
use crate::server::metrics::CoreMetrics;
use crate::server::tls::ports::Ports;
use crate::store::{
    Alarm, AlarmKind, Command, Error as StoreError, KeyHash, Operation, Response, Revision,
    SetAlarm, View,
};

/// How long a call whose time is over waits for the raft thread's word on what became of it.
pub(crate) const VERDICT: Duration = Duration::from_secs(1);

/// Why a request was not carried out. Client services map each to etcd's code and text.
/// `RequestError::is_final`, which the tests ask, says which of them a client may take for "it never happened".
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum RequestError {
    /// No leader is known. Said of a proposal only if it had not left this member and was taken
    /// out of its queue; etcd: `no leader`.
    #[error("no leader")]
    NoLeader,
    /// The proposal died with its term, or its fate is unknown; etcd: `leader changed`.
    #[error("leader changed")]
    LeaderChanged,
    /// This member does not lead and the request is for leaders only; etcd: `not leader`.
    #[error("not leader")]
    NotLeader,
    /// A bounded queue is full; etcd: `too many requests`.
    #[error("too many requests")]
    TooManyRequests,
    /// No answer within the request's time; etcd: `request timed out`.
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
    /// Leadership cannot go there; etcd: `bad leader transferee`.
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
    /// Whether a write that was refused so is in no log and never will be, or changed nothing
    /// when it was applied. After any other error it may have happened, or may happen yet: those
    /// are the texts that etcd's clients take for indefinite. The table of all texts, in
    /// `docs/failure-modes.md`, is compared with this one.
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

/// etcd's words for what the raft thread's inbox does not take.
impl From<Refused> for RequestError {
    fn from(refused: Refused) -> RequestError {
        match refused {
            Refused::Full => RequestError::TooManyRequests,
            Refused::Closed => RequestError::Stopped,
        }
    }
}

/// Why NOSPACE is raised.
pub(crate) const QUOTA_IS_USED_UP: &str = "the quota is used up; compact, delete what is not \
                                           needed or raise --quota-backend-bytes";

/// What readers may see, published together once a batch, after it was applied.
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

/// A change of the membership, as etcd's Cluster service and `quorate.v1` ask for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MembershipRequest {
    /// Adds a voter (etcd's `member add`) or a learner. The ID is chosen here.
    Add {
        /// Empty in etcd's API; the joining server's own name then comes with `Join`.
        name: String,
        /// Where the new member's peer port is.
        peer_urls: Vec<String>,
        /// Learners do not vote.
        learner: bool,
        /// The standby's disk, when it is known already.
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
    /// What a member says of itself when it starts: its disk, its name, its client URLs.
    Join {
        /// The member.
        id: u64,
        /// Its disk; bound once.
        disk_uuid: String,
        /// Its name.
        name: String,
        /// Where clients reach it.
        client_urls: Vec<String>,
    },
}

/// What the caller of a membership change knew; a change on stale knowledge is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The configuration index that the caller decided on.
    pub configuration_index: Option<u64>,
    /// The caller's epoch (the operator's Lease); an older one than already seen is refused.
    pub epoch: Option<u64>,
}

/// What this server is at the moment.
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

/// The part this member plays in consensus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks for votes (or pre-votes).
    Candidate,
    /// Leads.
    Leader,
    /// Receives the log and does not vote.
    Learner,
}

/// A member's own view of consensus, refreshed at each tick and each change of role.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// What this server is at the moment.
    pub phase: Phase,
    /// 0 until a member.
    pub cluster_id: u64,
    /// 0 until a member.
    pub member_id: u64,
    /// The part this member plays.
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
    /// Leader changes seen since start, for etcd's metric.
    pub leader_changes: u64,
    /// Proposals that failed since start, for etcd's metric.
    pub proposals_failed: u64,
}

/// Shared counters and clocks, read by `/metrics` and the health endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// All good.
    Ok,
    /// Not good, and why, in words.
    Not(String),
}

/// What client services may ask of the member that this process runs.
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

    /// Replicates and applies a command, and gives the store's answer and the index of its entry.
    /// The caller has checked it (`store::check`). Followers
    /// forward. Times out as etcd does: 5 s and two election timeouts. Those that no leader took
    /// in that time are withdrawn, and refused with [`RequestError::NoLeader`].
    pub(crate) async fn propose(
        &self,
        command: Command,
    ) -> Result<(Response, Index), RequestError> {
        self.member()?;
        let request = self.shared.request();
        let data = LogPayload::command(Some(request), command);
        let bytes = data.len() + 64;
        let input = Input::Propose(vec![Proposal { request, data }]);
        // etcd counts commands alone, and those of them that ended without a word of the state.
        let mut failed = Failed(Some(&self.shared.proposals_failed));
        let result = self.carry(request, bytes, input).await;
        if !matches!(
            result,
            Err(RequestError::NoLeader | RequestError::Timeout | RequestError::LeaderChanged)
        ) {
            failed.0 = None;
        }
        let applied = result?;
        match applied.outcome {
            Outcome::Store(answer) => Ok((answer?, applied.index)),
            // The entry of this identity is the one proposed, so this cannot be.
            Outcome::Started | Outcome::Membership(_) => Err(RequestError::LeaderChanged),
        }
    }

    /// Raises an alarm or switches it off, on every member; gives the alarm that is on or was.
    pub(crate) async fn set_alarm(&self, change: SetAlarm) -> Result<Option<Alarm>, RequestError> {
        match self.propose(Operation::SetAlarm(change).into()).await? {
            (Response::SetAlarm(answer), _) => Ok(answer.alarm),
            // The entry of this identity is the one proposed, so this cannot be.
            _ => Err(RequestError::LeaderChanged),
        }
    }

    /// Raises NOSPACE in the name of this member, unless it is on or about to be. A failure is
    /// logged: whoever finds no space next tries again. `why` is for the log: what is used up.
    pub(crate) async fn raise_no_space(&self, why: &str) -> bool {
        let alarm = Alarm {
            kind: AlarmKind::NoSpace,
            member: self.status().member_id,
        };
        let raising = &self.shared.raising;
        if self.published().view.alarms().contains(&alarm) {
            return true;
        }
        if raising.swap(true, Ordering::AcqRel) {
            return false;
        }
        // Also when the caller goes away meanwhile.
        let _end = Raised(raising);
        let change = SetAlarm {
            kind: alarm.kind.into(),
            member: alarm.member,
            on: true,
        };
        let size = self.published().view.db_size();
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

    /// Waits until this member has applied everything that was committed when the call began,
    /// then gives what to read.
    pub(crate) async fn linearizable(&self) -> Result<Arc<Published>, RequestError> {
        self.member()?;
        let number = self.shared.number();
        let answer = self.shared.reads.wait(number);
        let mut waiting = Waiting::new(&self.shared, Awaited::Read(number));
        self.shared.inbox.push(64, Input::Read(vec![number]))?;
        self.within(answer, &mut waiting).await?;
        self.shared.read_served();
        Ok(self.published())
    }

    /// As [`MemberHandle::linearizable`], for who acts on the membership: not before its last change is
    /// settled. A removal that one member knows of could still need the removed one's vote, and
    /// whoever sees it in a list may delete that member's disk.
    pub(crate) async fn settled(&self) -> Result<Arc<Published>, RequestError> {
        let mut published = self.shared.published.subscribe();
        let mut now = self.linearizable().await?;
        let settled = async {
            while !now.membership.is_settled() {
                if published.changed().await.is_err() {
                    return Err(RequestError::Stopped);
                }
                now = published.borrow_and_update().clone();
            }
            Ok(now)
        };
        let timed = tokio::time::timeout(self.shared.request_timeout, settled).await;
        timed.map_err(|_| RequestError::Timeout)?
    }

    /// What this member has applied: serializable reads. Never blocks.
    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.shared.published.borrow())
    }

    /// The hash at the revision of a compaction as it was before that; nothing at any other
    /// revision. Waits where it is being made.
    pub(crate) async fn hash_before_compaction(&self, revision: Revision) -> Option<KeyHash> {
        self.shared.compaction_hashes.at(revision).await
    }

    /// The latest published state and a wake-up whenever there is a newer one. Watchers keep
    /// the revision that they have seen and read what is new from the view's own history, so
    /// a slow one slows nobody.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        self.shared.published.subscribe()
    }

    /// Rises when clients that are connected are to finish and connect elsewhere.
    pub(crate) fn hang_ups(&self) -> watch::Receiver<u64> {
        self.shared.hang_ups.subscribe()
    }

    /// Changes the membership; gives the membership after it and the member it was about.
    pub(crate) async fn change_membership(
        &self,
        request: MembershipRequest,
        fence: Fence,
    ) -> Result<(u64, Arc<Membership>), RequestError> {
        self.member()?;
        let (id, body) = change_body(request);
        let command = MembershipCommand {
            body: Some(body),
            expected_configuration_index: fence.configuration_index,
            epoch: fence.epoch,
        };
        let request = self.shared.request();
        let input = Input::ChangeMembership { request, command };
        match self.carry(request, 1024, input).await?.outcome {
            Outcome::Membership(membership) => Ok((id, membership?)),
            // As above: the entry of this identity is the one proposed.
            Outcome::Started | Outcome::Store(_) => Err(RequestError::LeaderChanged),
        }
    }

    /// Hands leadership to a voter (0: the one furthest ahead) and waits until it leads. Only
    /// the leader accepts.
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

    /// Renews a lease through the leader; gives its TTL in seconds, or `None` when there is no
    /// such lease.
    pub(crate) async fn lease_keepalive(&self, id: i64) -> Result<Option<i64>, RequestError> {
        let times = self.lease(id, true).await?;
        Ok(times.map(|times| times.granted))
    }

    /// What remains of a lease, as its leader knows it, or `None` when there is no such lease.
    pub(crate) async fn lease_times(&self, id: i64) -> Result<Option<LeaseTimes>, RequestError> {
        self.lease(id, false).await
    }

    async fn lease(&self, lease: i64, renew: bool) -> Result<Option<LeaseTimes>, RequestError> {
        self.member()?;
        let id = self.shared.number();
        let answer = self.shared.leases.wait(id);
        let mut waiting = Waiting::new(&self.shared, Awaited::Lease(id));
        let call = LeaseCall { id, lease, renew };
        self.shared.inbox.push(64, Input::Lease(vec![call]))?;
        match self.within(answer, &mut waiting).await {
            // etcd waits for a leader to ask, and tells so. Asking twice does no harm.
            Err(RequestError::Timeout) if self.status().leader == 0 => Err(RequestError::NoLeader),
            result => result,
        }
    }

    /// Who this member is, and its term: what every answer says.
    pub(crate) fn who(&self) -> (Who, Term) {
        let consensus = self.shared.consensus.load();
        let term = consensus.as_ref().as_ref().map_or(0, |it| it.raft.term);
        (self.shared.phase.load().1.clone(), term)
    }

    /// Consensus as this member sees it. Asked by each request: costs next to nothing.
    pub(crate) fn status(&self) -> Status {
        self.shared.status()
    }

    /// Proposals that wait for an answer, for etcd's metric.
    pub(crate) fn proposals_pending(&self) -> u64 {
        self.shared.proposals.len() as u64
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

    /// Clients wait until this member's data has been compared with the others'.
    pub(crate) fn held(&self) -> bool {
        self.shared.held.load(Ordering::Acquire)
    }

    /// A number that no other call of this process or of an earlier one on this disk gives:
    /// for lease IDs that the server chooses.
    pub(crate) fn unique(&self) -> u64 {
        self.shared.unique()
    }

    /// Since when Raft's thread has left alone what was asked of it.
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

    /// Waits for what becomes of a proposal. When its time is over it is withdrawn, and the raft
    /// thread says whether it had left this member: only it can tell. That nobody leads now says
    /// nothing of a proposal that a leader took in a moment ago.
    async fn carry(
        &self,
        request: RequestId,
        bytes: usize,
        input: Input,
    ) -> Result<Applied, RequestError> {
        let mut answer = self.shared.proposals.wait(request.counter);
        let mut waiting = Waiting::new(&self.shared, Awaited::Request(request));
        self.shared.inbox.push(bytes, input)?;
        let mut result = self.timed(&mut answer).await;
        if result.is_none() {
            waiting.cancel();
            let verdict = tokio::time::timeout(VERDICT, answer).await;
            result = verdict.ok().map(answered);
        }
        waiting.answered = result.is_some();
        result.unwrap_or(Err(RequestError::Timeout))
    }

    /// Waits for the answer to a question that does no harm if it is answered to nobody.
    async fn within<T>(
        &self,
        answer: oneshot::Receiver<Result<T, RequestError>>,
        waiting: &mut Waiting<'_>,
    ) -> Result<T, RequestError> {
        let result = self.timed(answer).await;
        waiting.answered = result.is_some();
        result.unwrap_or(Err(RequestError::Timeout))
    }

    /// The answer, or `None` when the time for it is over.
    async fn timed<T>(
        &self,
        answer: impl Future<Output = Result<Result<T, RequestError>, oneshot::error::RecvError>>,
    ) -> Option<Result<T, RequestError>> {
        let timed = tokio::time::timeout(self.shared.request_timeout, answer).await;
        timed.ok().map(answered)
    }
}

/// What came through the channel of somebody who waits. It is dropped when the server ends.
fn answered<T>(
    received: Result<Result<T, RequestError>, oneshot::error::RecvError>,
) -> Result<T, RequestError> {
    received.unwrap_or(Err(RequestError::Stopped))
}

/// Counts a proposal that failed when it is dropped, also where its caller went away.
struct Failed<'a>(Option<&'a AtomicU64>);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        if let Some(failed) = self.0 {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The alarm is not being raised any more.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Tells the raft thread when a caller goes away before its answer has come, whether its own time
/// or its client's is over: nothing may wait there for nobody.
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
        // A closed inbox has forgotten everything.
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

/// The member that a change is about, and the change as the log carries it.
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
