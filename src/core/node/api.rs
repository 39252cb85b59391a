//! The inputs, effects, reports and errors of a member. The duties of the code that carries out
//! effects are listed in the head of the room.

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

/// What happens to a member. Inputs may come in any order; each is handled at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// `tick_ms` have passed.
    Tick,
    /// A message arrived. It is dropped unless [`Input::PeerDisk`] was given for the sender before.
    Peer {
        /// The sender.
        from: MemberId,
        /// The message.
        message: PeerMessage,
    },
    /// A hello confirmed which disk a member runs on, and it agrees with this server's pins (kept
    /// in its identity file, written first).
    PeerDisk {
        /// The member.
        id: MemberId,
        /// Its disk.
        disk_uuid: String,
    },
    /// Clients' commands, already checked against the limits of the store. Answered by the applier
    /// when it applies the entry with that identity, or by [`Effect::ProposalFailed`]. Not answered
    /// while the fate is unknown: time-outs are the caller's, which then gives [`Input::Cancel`]
    /// and learns from the effect that follows what it may answer.
    Propose(Vec<Proposal>),
    /// A change of the membership; answered as a proposal is.
    ChangeMembership {
        /// The identity under which it is answered.
        request: RequestId,
        /// The change.
        command: MembershipCommand,
    },
    /// Linearizable reads, by the caller's own numbers (never reused). Retried internally until
    /// answered or cancelled.
    Read(Vec<u64>),
    /// Keepalives and TTL queries of leases, by the caller's own numbers. Retried internally until
    /// answered or cancelled.
    Lease(Vec<LeaseCall>),
    /// The callers no longer wait for these. What was appended may still be applied; what had not
    /// left this member is withdrawn and will never be appended.
    Cancel(Vec<Awaited>),
    /// Transfer leadership. Answered by [`Effect::TransferEnded`].
    Transfer {
        /// The caller's own number for it.
        id: u64,
        /// The transferee; `None`: the voter in contact for longest among those in sync.
        to: Option<MemberId>,
    },
    /// The [`Effect::Write`] with this number is durable.
    Persisted(PersistMark),
    /// Entries of [`Effect::Apply`] were applied and their results were published.
    Applied(Report),
    /// The answer to [`Effect::ReadLog`].
    LogRead {
        /// Its ticket.
        ticket: Ticket,
        /// The entries; none if they were dropped meanwhile; or the text of an error, which stops
        /// the member.
        entries: Result<Vec<Entry>, String>,
    },
    /// The checkpoint of [`Effect::TakeCheckpoint`] is durable, or could not be written for a
    /// reason that does not stop the server; it is then retried later.
    CheckpointDone(Option<CheckpointInfo>),
    /// The disk is short of space: take a checkpoint regardless of the policy, so that log and older checkpoints can be
    /// dropped.
    WantCheckpoint,
    /// The newest checkpoint names values that are damaged: take one regardless of the policy, also at the same index.
    RenewCheckpoint,
    /// A peer's checkpoint is complete and durable on this disk, beside this member's own ones.
    SnapshotReceived {
        /// The leader that sent it.
        from: MemberId,
        /// The term that came with it.
        term: Term,
        /// Its index, term and size.
        checkpoint: CheckpointInfo,
        /// The configuration in it.
        meta: SnapshotMeta,
    },
    /// [`Effect::InstallCheckpoint`] is done: log and machine stand at the checkpoint.
    Installed(Report),
    /// [`Effect::SendCheckpoint`] has finished.
    SnapshotSent {
        /// The receiver.
        to: MemberId,
        /// Whether all of it arrived and is durable there.
        ok: bool,
    },
    /// A message to this member was dropped or its link broke.
    Unreachable(MemberId),
    /// No byte of this message was sent, and none will be. Of use where it
    /// [`forwards`](PeerMessage::forwards): what it proposes has certainly left no trace, so it is
    /// proposed again instead of waiting for an answer.
    Unsent {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: PeerMessage,
    },
    /// A server that is no member is no longer connected: others took its place. Ignored for a
    /// member.
    Forget(MemberId),
    /// The connection to this member broke, or cannot be made. This state lasts until the next
    /// [`Input::PeerDisk`].
    Unlinked(MemberId),
    /// This member's process ended: it closed the connection, and its host refuses new ones. Given again after a random
    /// time for as long as they are refused; see [`Raft::report_gone`](crate::raft::Raft::report_gone).
    Gone(MemberId),
    /// A member that started without the right to vote (see [`MemberConfig`](super::MemberConfig))
    /// may vote from now on.
    AllowVotes,
}

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The outcome of a proposal or a change. After it is cancelled there is one more answer:
    /// [`Effect::ProposalFailed`] if it was withdrawn, else [`Effect::FateUnknown`].
    Request(RequestId),
    /// A read, by its number.
    Read(u64),
    /// The answer to a call about a lease, by its number.
    Lease(u64),
}

/// What a member wants its owner to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append to the log and sync, then report [`Input::Persisted`]. There is one at a time.
    Write(Persist),
    /// Send a message. It may be lost; the order to one receiver should be kept.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: PeerMessage,
    },
    /// Apply in order with [`StateMachine::apply`](super::StateMachine::apply), publish, answer
    /// waiting requests, then report [`Input::Applied`]. The entries are durable at this point.
    Apply(Vec<Entry>),
    /// Reset the log to begin after this checkpoint (which is durable already), restore the machine
    /// from it, then report [`Input::Installed`]. Comes after all earlier writes are durable and
    /// all earlier applies are reported; no other follows before that report.
    InstallCheckpoint(SnapshotMeta),
    /// Read entries back from the log, then report [`Input::LogRead`].
    ReadLog(LogRead),
    /// Stream the checkpoint of `index` to a member, together with `term`, then report
    /// [`Input::SnapshotSent`]. There is one at a time.
    SendCheckpoint {
        /// The receiver.
        to: MemberId,
        /// The leader's term, sent with it.
        term: Term,
        /// Which checkpoint: the newest one.
        index: Index,
    },
    /// Let the applier freeze the machine at its applied index, write the checkpoint in the
    /// background, then report [`Input::CheckpointDone`]. There is one at a time. What the machine
    /// has applied is durable, so the checkpoint is never ahead of the log.
    TakeCheckpoint,
    /// Entries below the index and checkpoints older than the two newest may be removed. A hint: it
    /// may be carried out later or in part.
    DropLog {
        /// The first index to keep.
        before: Index,
    },
    /// These reads may be answered from the published state: everything that was committed when
    /// they began has been applied here.
    ReadReady {
        /// The callers' numbers.
        ids: Vec<u64>,
        /// The read index.
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
    /// A cancelled proposal or change had left this member already: it may have been carried out,
    /// or may be later, or never. It may only be answered with an error that clients treat as
    /// indefinite.
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
    /// This member was removed from the cluster for good. From here on it only answers messages.
    /// [`StateMachine::part`](super::StateMachine::part) returns the answer to the request with
    /// which it removed itself.
    Removed {
        /// Whether the others are known to continue without it under any fault. If not, an election
        /// timeout has passed since it learned of its removal, during which it still helped them.
        settled: bool,
    },
    /// Something unexpected but harmless, for the log.
    Notice(String),
    /// Stop the server: continuing could lose or corrupt data. Nothing follows.
    Stop(StopReason),
}

/// Why a proposal was not appended. It is in no log and never will be, so the caller may safely do
/// something else instead.
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
    /// It was cancelled while it still waited at the member that received it, and is in no log.
    #[error("withdrawn: {}", if *.leaderless { "no leader was known" } else { "the leader did not take it" })]
    Withdrawn {
        /// No leader was known at that time; etcd: `no leader`.
        leaderless: bool,
    },
}

/// Why a read or a lease request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestRefusal {
    /// A bounded queue is full.
    #[error("too many requests")]
    Overloaded,
    /// This server is not a member, or not any more.
    #[error("this server is not a member of the cluster")]
    NotAMember,
}

/// Why leadership was not transferred.
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
    /// A member other than the target leads now.
    #[error("another member than the target took over")]
    OtherLeader {
        /// Who.
        leader: MemberId,
    },
}

/// Why a server must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The consensus core found its state inconsistent.
    #[error(transparent)]
    Consensus(#[from] raft::Error),
    /// The log holds an entry that this version cannot apply.
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

/// What the applier reports to the consensus half after a batch, or after restoring a checkpoint.
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

impl Report {
    /// Nothing happened to the membership or to leases: it may wait for a moment unless the member [awaits
    /// it](super::Member::awaits_applied).
    pub fn is_routine(&self) -> bool {
        self.configurations.is_empty() && self.membership.is_none() && self.leases.is_empty()
    }
}

/// What happened to leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The state was restored: these are all the leases.
    Reset(Vec<LeaseInfo>),
    /// Granted with this TTL in seconds.
    Granted(LeaseId, i64),
    /// Revoked or expired.
    Ended(LeaseId),
    /// Its remaining seconds were checkpointed; 0: it has its full TTL again.
    Noted(LeaseId, i64),
    /// None expires until the next [`LeaseEvent::Reset`]: those of another cluster do.
    Held,
}
