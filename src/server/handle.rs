//! `MemberHandle`: what client services may ask of the member that this process runs.
//!
//! Cheap to clone, async, and free of sockets and disks: each call hands a message to the
//! core threads and waits for its answer. It never steps Raft or touches the store itself.

use std::sync::Arc;

use tokio::sync::watch;

use super::pending::{
    Command, LeaseTimes, Membership, MembershipError, Response, StoreError, View,
};

/// Why a request was not carried out. Client services map each to etcd's code and text.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// No leader is known; etcd: `no leader`.
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

/// What readers may see, published together once a batch, after it was applied.
#[derive(Debug, Clone)]
pub struct Published {
    /// The store at this point. Readers on it never block the applier.
    pub view: Arc<View>,
    /// The replicated membership at this point.
    pub membership: Arc<Membership>,
    /// The last applied index.
    pub applied: u64,
    /// The term of the last applied entry.
    pub term: u64,
}

/// What a carried-out proposal gave.
#[derive(Debug, Clone)]
pub struct Proposed {
    /// The store's answer.
    pub response: Response,
    /// The log index of the entry.
    pub index: u64,
    /// Its term: the `raft_term` of etcd's response header.
    pub term: u64,
}

/// A change of the membership, as etcd's Cluster service and `quorate.v1` ask for it.
#[derive(Debug, Clone, PartialEq)]
pub enum MembershipRequest {
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
}

/// What the caller of a membership change knew; a change on stale knowledge is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fence {
    /// The configuration index that the caller decided on.
    pub configuration_index: Option<u64>,
    /// The caller's epoch (the operator's Lease); an older one than already seen is refused.
    pub epoch: Option<u64>,
}

/// What this server is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
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
pub enum Role {
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
#[derive(Debug, Clone)]
pub struct Status {
    /// What this server is at the moment.
    pub phase: Phase,
    /// `--name`.
    pub name: String,
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
    /// Proposals that wait for an answer, and those that failed, for etcd's metrics.
    pub proposals_pending: u64,
    /// Proposals that failed since start.
    pub proposals_failed: u64,
}

/// Shared counters and clocks, read by `/metrics` and the health endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All good.
    Ok,
    /// Not good, and why, in words.
    Not(String),
}

/// What client services may ask of the member that this process runs.
#[derive(Clone)]
pub struct MemberHandle {
    shared: Arc<super::pending::Shared>,
}

impl MemberHandle {
    /// Replicates and applies a command. The caller has checked it (`store::check`). Followers
    /// forward. Times out as etcd does: 5 s and two election timeouts.
    pub async fn propose(&self, command: Command) -> Result<Proposed, RequestError> {
        self.shared.propose(command).await
    }

    /// Waits until this member has applied everything that was committed when the call began,
    /// then gives what to read.
    pub async fn linearizable(&self) -> Result<Arc<Published>, RequestError> {
        self.shared.linearizable().await
    }

    /// What this member has applied: serializable reads. Never blocks.
    pub fn published(&self) -> Arc<Published> {
        self.subscribe().borrow().clone()
    }

    /// The latest published state and a wake-up whenever there is a newer one. Watchers keep
    /// the revision that they have seen and read what is new from the view's own history, so
    /// a slow one slows nobody.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        self.shared.subscribe()
    }

    /// Changes the membership; gives the membership after it and the member it was about.
    pub async fn change_membership(
        &self,
        request: MembershipRequest,
        fence: Fence,
    ) -> Result<(u64, Arc<Membership>), RequestError> {
        self.shared.change_membership(request, fence).await
    }

    /// Hands leadership to a voter (0: the one furthest ahead) and waits until it leads. Only
    /// the leader accepts.
    pub async fn move_leader(&self, to: u64) -> Result<u64, RequestError> {
        self.shared.move_leader(to).await
    }

    /// Renews a lease through the leader; gives its TTL in seconds, or `None` when there is no
    /// such lease.
    pub async fn lease_keepalive(&self, id: i64) -> Result<Option<i64>, RequestError> {
        self.shared.lease_keepalive(id).await
    }

    /// What remains of a lease, as its leader knows it, or `None` when there is no such lease.
    pub async fn lease_times(&self, id: i64) -> Result<Option<LeaseTimes>, RequestError> {
        self.shared.lease_times(id).await
    }

    /// Consensus as this member sees it.
    pub fn status(&self) -> Arc<Status> {
        self.shared.status()
    }

    /// Liveness: each core thread has made progress within 30 s.
    pub fn live(&self) -> Health {
        self.shared.live()
    }

    /// Readiness: a voter whose last linearizable read succeeded at most 10 s ago, and not
    /// stopping, retired or corrupt.
    pub fn ready(&self) -> Health {
        self.shared.ready()
    }

    /// A number that no other call of this process or of an earlier one on this disk gives:
    /// for lease IDs that the server chooses.
    pub fn unique(&self) -> u64 {
        self.shared.unique()
    }
}
