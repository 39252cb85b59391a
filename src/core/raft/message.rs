//! The messages between members, as values with a protobuf encoding. Interprets none of them.

use super::types::{Entry, Index, MemberId, SnapshotMeta, Term};

/// One message from a member to another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The sender.
    #[prost(uint64, tag = "1")]
    pub from: MemberId,
    /// The receiver.
    #[prost(uint64, tag = "2")]
    pub to: MemberId,
    /// The sender's term; in a pre-vote the term it would campaign in, and in a granted
    /// pre-vote reply that same term again.
    #[prost(uint64, tag = "3")]
    pub term: Term,
    /// Its content. Absent when a newer version sent an unknown kind.
    #[prost(
        oneof = "Body",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21"
    )]
    pub body: Option<Body>,
}

impl Message {
    /// A message to put on the wire or to step.
    pub fn new(from: MemberId, to: MemberId, term: Term, body: Body) -> Self {
        Self {
            from,
            to,
            term,
            body: Some(body),
        }
    }

    /// What the receiver of a snapshot steps once all of it is on its disk. `from` and `term`
    /// are the sender's, as they came with the snapshot (see [`super::SnapshotSend`]).
    pub fn install_snapshot(from: MemberId, to: MemberId, term: Term, meta: SnapshotMeta) -> Self {
        Self::new(from, to, term, Body::InstallSnapshot(meta))
    }
}

/// The content of a message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// A pre-vote request: it changes no state (thesis §9.6).
    #[prost(message, tag = "10")]
    PreVote(VoteRequest),
    /// The answer to a pre-vote.
    #[prost(message, tag = "11")]
    PreVoteReply(VoteReply),
    /// RequestVote (paper §5.2).
    #[prost(message, tag = "12")]
    Vote(VoteRequest),
    /// The answer to a vote request.
    #[prost(message, tag = "13")]
    VoteReply(VoteReply),
    /// AppendEntries with a position to check (paper §5.3).
    #[prost(message, tag = "14")]
    Append(Append),
    /// The answer to an append or to an installed snapshot.
    #[prost(message, tag = "15")]
    AppendReply(AppendReply),
    /// I am still the leader.
    #[prost(message, tag = "16")]
    Heartbeat(Heartbeat),
    /// The answer to a heartbeat.
    #[prost(message, tag = "17")]
    HeartbeatReply(HeartbeatReply),
    /// A snapshot lies complete on the receiver's disk. Stepped by the receiver itself.
    #[prost(message, tag = "18")]
    InstallSnapshot(SnapshotMeta),
    /// Campaign now, without waiting (thesis §3.10).
    #[prost(message, tag = "19")]
    TimeoutNow(TimeoutNow),
    /// A follower asks the leader from which index it may read (thesis §6.4).
    #[prost(message, tag = "20")]
    ReadIndex(ReadIndex),
    /// The leader's answer, after a quorum has confirmed that it leads.
    #[prost(message, tag = "21")]
    ReadIndexReply(ReadIndexReply),
}

impl Body {
    /// The name of the kind, for traces and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PreVote(_) => "PreVote",
            Self::PreVoteReply(_) => "PreVoteReply",
            Self::Vote(_) => "Vote",
            Self::VoteReply(_) => "VoteReply",
            Self::Append(_) => "Append",
            Self::AppendReply(_) => "AppendReply",
            Self::Heartbeat(_) => "Heartbeat",
            Self::HeartbeatReply(_) => "HeartbeatReply",
            Self::InstallSnapshot(_) => "InstallSnapshot",
            Self::TimeoutNow(_) => "TimeoutNow",
            Self::ReadIndex(_) => "ReadIndex",
            Self::ReadIndexReply(_) => "ReadIndexReply",
        }
    }

    /// Whether it responds to a leader or a candidate, which send requests only to members. (A follower's read is
    /// answered by its leader, which may have removed itself and still lead for a moment.)
    pub(super) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::VoteReply(_)
                | Self::PreVoteReply(_)
                | Self::AppendReply(_)
                | Self::HeartbeatReply(_)
        )
    }
}

/// A request for a vote, or for a promise of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct VoteRequest {
    /// The last index of the candidate's log.
    #[prost(uint64, tag = "1")]
    pub last_index: Index,
    /// The term of the entry there.
    #[prost(uint64, tag = "2")]
    pub last_term: Term,
    /// The leader asked for this campaign, so its lease does not protect it.
    #[prost(bool, tag = "3")]
    pub transfer: bool,
}

/// The answer to a vote request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct VoteReply {
    /// Whether the vote is granted.
    #[prost(bool, tag = "1")]
    pub granted: bool,
    /// With a refusal: an index that is committed, at most the candidate's last one. If the candidate has the same
    /// entry there, that one is committed, too; possibly it can then do without the vote. Zero for none.
    #[prost(uint64, tag = "2")]
    pub commit: Index,
    /// The term of the entry at `commit`.
    #[prost(uint64, tag = "3")]
    pub commit_term: Term,
}

/// Entries to append after a known position.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Append {
    /// The index before the first entry.
    #[prost(uint64, tag = "1")]
    pub prev_index: Index,
    /// The term of the entry there.
    #[prost(uint64, tag = "2")]
    pub prev_term: Term,
    /// The leader's commit index.
    #[prost(uint64, tag = "3")]
    pub commit: Index,
    /// The entries, possibly none.
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<Entry>,
}

/// The answer to an append.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct AppendReply {
    /// Accepted: the log matches the leader's up to here and is durable. Rejected: the
    /// `prev_index` that did not match.
    #[prost(uint64, tag = "1")]
    pub index: Index,
    /// Whether the append was rejected.
    #[prost(bool, tag = "2")]
    pub reject: bool,
    /// Rejected: the last index at which the logs may still match.
    #[prost(uint64, tag = "3")]
    pub hint_index: Index,
    /// Rejected: the term of the follower's entry at `hint_index`.
    #[prost(uint64, tag = "4")]
    pub hint_term: Term,
}

/// A sign of life from the leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Heartbeat {
    /// The leader's commit index, or what the receiver is known to have, if that is less.
    #[prost(uint64, tag = "1")]
    pub commit: Index,
    /// The newest read that waits for this round, to be sent back.
    #[prost(message, optional, tag = "2")]
    pub read: Option<ReadId>,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HeartbeatReply {
    /// The `read` of the heartbeat.
    #[prost(message, optional, tag = "1")]
    pub read: Option<ReadId>,
    /// The last index that the sender has applied.
    #[prost(uint64, tag = "2")]
    pub applied: Index,
}

/// The order to campaign at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct TimeoutNow {}

/// A read's identity on the wire. Never used twice: the nonce is new at each start of a
/// member and the counter only grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct ReadId {
    /// The boot nonce of the member that made the identity.
    #[prost(uint64, tag = "1")]
    pub nonce: u64,
    /// Its count of reads since that start.
    #[prost(uint64, tag = "2")]
    pub counter: u64,
}

/// A follower's question for a read index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ReadIndex {
    /// The follower's identity for the read.
    #[prost(message, required, tag = "1")]
    pub id: ReadId,
}

/// The leader's answer to a [`ReadIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ReadIndexReply {
    /// The identity in the question.
    #[prost(message, required, tag = "1")]
    pub id: ReadId,
    /// A state machine that has applied this index may answer.
    #[prost(uint64, tag = "2")]
    pub index: Index,
}
