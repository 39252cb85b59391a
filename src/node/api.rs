//! What goes into a member and what comes out: inputs, effects, reports, errors. The duties of
//! whoever carries out effects stand at the head of the room.

use std::sync::Arc;

use crate::raft::{
    self, ConfigurationChange, Entry, Index, LogRead, MemberId, Persist, PersistMark, RoleChange,
    SnapshotMeta, Term, Ticket, TransferError,
};
use crate::store::{LeaseId, LeaseInfo};

use super::change::{MembershipCommand, MembershipError};
use super::membership::Membership;
use super::payload::{RequestId, UnknownEntry};
use super::peer::{LeaseCall, LeaseTimes, PeerMessage, Proposal};

/// What happens to a member. Any order is allowed; each is handled at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// `tick_ms` have passed.
    Tick,
    /// A message came. It is dropped unless [`Input::PeerDisk`] has said which disk speaks.
    Peer {
        /// The sender.
        from: MemberId,
        /// What it says.
        message: PeerMessage,
    },
    /// A hello told which disk a member speaks from, and this server's pins (kept in its
    /// identity file, written first) agree.
    PeerDisk {
        /// The member.
        id: MemberId,
        /// Its disk.
        disk_uuid: String,
    },
    /// Clients' commands, checked by the store's limits already. Answered by whoever applies
    /// an entry of that identity, or by [`Effect::ProposalFailed`]. Never answered when its
    /// fate stays unknown: time-outs are the caller's, who then says [`Input::Cancel`] and is
    /// told what may be said of it.
    Propose(Vec<Proposal>),
    /// A change of the membership; answered as a proposal is.
    ChangeMembership {
        /// Who waits for it.
        request: RequestId,
        /// The change.
        command: MembershipCommand,
    },
    /// Linearizable reads, by the caller's own numbers (never used twice). Retried inside until
    /// answered or cancelled.
    Read(Vec<u64>),
    /// Keepalives and questions about leases, by the caller's own numbers. Retried inside
    /// until answered or cancelled.
    Lease(Vec<LeaseCall>),
    /// Nobody waits for these any more. What was appended may still be applied; what had not left
    /// this member is withdrawn and never will be.
    Cancel(Vec<Awaited>),
    /// Hand leadership over. Answered by [`Effect::TransferEnded`].
    Transfer {
        /// The caller's own number for it.
        id: u64,
        /// To whom; `None`: the voter in contact for longest among those in sync.
        to: Option<MemberId>,
    },
    /// [`Effect::Write`] of this number is durable.
    Persisted(PersistMark),
    /// Entries of [`Effect::Apply`] were applied and their results published.
    Applied(Report),
    /// The answer to [`Effect::ReadLog`].
    LogRead {
        /// Its ticket.
        ticket: Ticket,
        /// The entries; none if they were dropped meanwhile; or what went wrong, in words, which
        /// stops the member.
        entries: Result<Vec<Entry>, String>,
    },
    /// The checkpoint of [`Effect::TakeCheckpoint`] is durable, or could not be written for a
    /// reason that is no reason to stop; then it is tried again later.
    CheckpointDone(Option<CheckpointInfo>),
    /// Space is short on the disk: take a checkpoint whatever the policy says, so that log can go.
    WantCheckpoint,
    /// A peer's checkpoint lies complete and durable on this disk, beside the own ones.
    SnapshotReceived {
        /// The leader that sent it.
        from: MemberId,
        /// The term it sent along.
        term: Term,
        /// What it holds.
        checkpoint: CheckpointInfo,
        /// The configuration in it.
        meta: SnapshotMeta,
    },
    /// [`Effect::InstallCheckpoint`] is done: log and machine stand at the checkpoint.
    Installed(Report),
    /// [`Effect::SendCheckpoint`] ended.
    SnapshotSent {
        /// The receiver.
        to: MemberId,
        /// Whether all of it arrived and is durable there.
        ok: bool,
    },
    /// A message to this member was dropped or its link broke.
    Unreachable(MemberId),
    /// A server that is no member is not heard any more: others took its place. Nothing to a member.
    Forget(MemberId),
    /// The connection to this member broke, or cannot be made. It lasts until the next
    /// [`Input::PeerDisk`].
    Unlinked(MemberId),
    /// A member that was told not to vote at first (see
    /// [`MemberConfig::voting`](super::MemberConfig)) may do so from now on.
    AllowVotes,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// What becomes of a proposal or a change. When it is cancelled it is answered once more: by
    /// [`Effect::ProposalFailed`] if it was withdrawn, else by [`Effect::FateUnknown`].
    Request(RequestId),
    /// A read, by its number.
    Read(u64),
    /// The answer to a call about a lease, by its number.
    Lease(u64),
}

/// What a member wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append to the log and make durable, then say [`Input::Persisted`]. One at a time.
    Write(Persist),
    /// Send. May be lost; the order to one receiver should be kept.
    Send {
        /// The receiver.
        to: MemberId,
        /// What to say.
        message: PeerMessage,
    },
    /// Apply in order with [`StateMachine::apply`](super::StateMachine::apply), publish, answer waiters,
    /// then say [`Input::Applied`]. The entries are durable here.
    Apply(Vec<Entry>),
    /// Reset the log to begin after this checkpoint (which is durable already), restore the
    /// machine from it, then say [`Input::Installed`]. Comes after all earlier writes are
    /// durable and all earlier applies reported; none follows before the answer.
    InstallCheckpoint(SnapshotMeta),
    /// Read entries back from the log, then say [`Input::LogRead`].
    ReadLog(LogRead),
    /// Stream the checkpoint of `index` to a member, with `term` beside it, then say
    /// [`Input::SnapshotSent`]. One at a time.
    SendCheckpoint {
        /// The receiver.
        to: MemberId,
        /// The leader's term, to travel along.
        term: Term,
        /// Which checkpoint: the newest one.
        index: Index,
    },
    /// Let the applier freeze the machine where it stands, write the checkpoint in the
    /// background, then say [`Input::CheckpointDone`]. One at a time. What the machine has
    /// applied is durable, so the checkpoint never runs ahead of the log.
    TakeCheckpoint,
    /// Entries of smaller index and checkpoints older than the two newest may go. A hint:
    /// may be carried out later or in part.
    DropLog {
        /// The first index to keep.
        before: Index,
    },
    /// These reads may be answered from what is published now: everything that was committed
    /// when they began has been applied here.
    ReadReady {
        /// The callers' numbers.
        ids: Vec<u64>,
        /// The index that was waited for.
        index: Index,
    },
    /// These reads will not be answered.
    ReadFailed {
        /// The callers' numbers.
        ids: Vec<u64>,
        /// Why.
        reason: RequestRefusal,
    },
    /// A proposal or change was not appended and will not be.
    ProposalFailed {
        /// Which.
        request: RequestId,
        /// Why.
        error: ProposalError,
    },
    /// A proposal or change that was cancelled had left this member before: it may have been
    /// carried out, may be yet, or never. Only an error that clients take for indefinite may be
    /// given for it.
    FateUnknown {
        /// Which.
        request: RequestId,
    },
    /// The answer to a call about a lease.
    LeaseAnswer {
        /// The caller's number.
        id: u64,
        /// `Ok(None)`: there is no such lease.
        answer: Result<Option<LeaseTimes>, RequestRefusal>,
    },
    /// The answer to [`Input::Transfer`].
    TransferEnded {
        /// The caller's number.
        id: u64,
        /// The new leader, or why there is none.
        result: Result<MemberId, TransferFailure>,
    },
    /// Role, term or leader changed.
    Role(RoleChange),
    /// This member was removed from the cluster for good. It only answers messages from here on.
    /// [`StateMachine::part`](super::StateMachine::part) gives the answer to whoever asked it to remove
    /// itself.
    Removed {
        /// The others are known to go on without it whatever happens to them. If not, an election
        /// timeout has passed since it learned of its removal, in which they had its help.
        settled: bool,
    },
    /// Something odd that harms nothing, for the log.
    Notice(String),
    /// Stop the server: going on could lose or corrupt data. Nothing follows.
    Stop(StopReason),
}

/// Why a proposal was not appended. It has left no trace, and never will: whoever is told so may
/// do something else instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProposalError {
    /// A bounded queue is full, or apply is too far behind; etcd: `too many requests`.
    #[error("too many requests")]
    Overloaded,
    /// etcd: `request is too large`.
    #[error("an entry of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Bytes asked for.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The membership refuses the change.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// This server is not a member, or not any more.
    #[error("this server is not a member of the cluster")]
    NotAMember,
    /// It was cancelled while it still waited at the member that took it in, and is in no log.
    #[error("withdrawn: {}", if *.leaderless { "nobody led" } else { "the leader did not take it" })]
    Withdrawn {
        /// Nobody was known to lead then; etcd: `no leader`.
        leaderless: bool,
    },
}

/// Why a read or a call about a lease is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestRefusal {
    /// A bounded queue is full.
    #[error("too many requests")]
    Overloaded,
    /// This server is not a member, or not any more.
    #[error("this server is not a member of the cluster")]
    NotAMember,
}

/// Why leadership was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferFailure {
    /// Refused at once; etcd: `not leader`, `bad leader transferee`.
    #[error(transparent)]
    Refused(#[from] TransferError),
    /// No voter other than the leader is in sync.
    #[error("no other voter is in sync")]
    NoTarget,
    /// The target did not take over within an election timeout.
    #[error("the target did not take over in time")]
    TimedOut,
    /// Another member than the target leads now.
    #[error("another member than the target took over")]
    OtherLeader {
        /// Who.
        leader: MemberId,
    },
}

/// Why a server must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The consensus core found its state untrustworthy.
    #[error(transparent)]
    Consensus(#[from] raft::Error),
    /// The log holds what this version cannot apply.
    #[error(transparent)]
    Entry(#[from] UnknownEntry),
    /// The log could not be read.
    #[error("the log could not be read: {0}")]
    Log(String),
}

/// A durable checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// The last index in it.
    pub index: Index,
    /// The term there.
    pub term: Term,
    /// Its size on disk.
    pub bytes: u64,
}

/// What an applier tells the consensus half after a batch, or after restoring a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The last applied index.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// Counters of this member's own proposals (of this start) that were applied.
    pub requests: Vec<u64>,
    /// Configuration entries in the batch: their index, and the change unless it was refused.
    pub configurations: Vec<(Index, Option<ConfigurationChange>)>,
    /// The membership, where it changed.
    pub membership: Option<Arc<Membership>>,
    /// What happened to leases, in order.
    pub leases: Vec<LeaseEvent>,
}

/// What happened to leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The state was restored: these are all leases there are.
    Reset(Vec<LeaseInfo>),
    /// Granted for so many seconds.
    Granted(LeaseId, i64),
    /// Revoked or expired.
    Ended(LeaseId),
    /// Its remaining seconds were noted; 0: it has its whole time to live again.
    Noted(LeaseId, i64),
}
