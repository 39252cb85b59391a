//! What members say to each other, as values with a protobuf encoding. Interprets nothing.

use bytes::Bytes;

use crate::raft::{Index, Message, Position};
use crate::store::LeaseId;

use super::api::ProposalError;
use super::change::{MembershipCommand, MembershipErrorRecord};
use super::payload::RequestId;

/// One message from a member to another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerMessage {
    /// What it says. `None` when a newer version sent something unknown: it is passed over.
    #[prost(oneof = "PeerBody", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub body: Option<PeerBody>,
}

impl From<PeerBody> for PeerMessage {
    fn from(body: PeerBody) -> Self {
        Self { body: Some(body) }
    }
}

impl PeerMessage {
    /// A short name for traces and metrics.
    pub fn name(&self) -> &'static str {
        match &self.body {
            None => "Unknown",
            Some(PeerBody::Raft(message)) => message.body.as_ref().map_or("Unknown", |b| b.name()),
            Some(PeerBody::Forward(_)) => "Forward",
            Some(PeerBody::Change(_)) => "Change",
            Some(PeerBody::ForwardedOutcomes(_)) => "ForwardedOutcomes",
            Some(PeerBody::LeaseCalls(_)) => "LeaseCalls",
            Some(PeerBody::LeaseAnswers(_)) => "LeaseAnswers",
            Some(PeerBody::Removed(_)) => "Removed",
        }
    }
}

/// The kinds of messages.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PeerBody {
    /// Of the consensus core.
    #[prost(message, tag = "1")]
    Raft(Message),
    /// To the leader: append these.
    #[prost(message, tag = "2")]
    Forward(Forward),
    /// To the leader: check and append this change of the membership.
    #[prost(message, tag = "3")]
    Change(ForwardChange),
    /// To the origin: what became of its proposals.
    #[prost(message, tag = "4")]
    ForwardedOutcomes(ForwardedOutcomes),
    /// To the leader: keepalives and questions about leases.
    #[prost(message, tag = "5")]
    LeaseCalls(LeaseCalls),
    /// From the leader, in answer.
    #[prost(message, tag = "6")]
    LeaseAnswers(LeaseAnswers),
    /// To one whose ID was removed.
    #[prost(message, tag = "7")]
    Removed(RemovedNotice),
}

/// A proposal on its way: an identity and the encoded data of its entry.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Proposal {
    /// Who waits for it.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// A [`LogPayload`](super::LogPayload) for the store that carries the same identity.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// Proposals for the leader. Their origins are in their identities.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Forward {
    /// In the order in which they should be appended.
    #[prost(message, repeated, tag = "1")]
    pub proposals: Vec<Proposal>,
}

/// A change of the membership for the leader.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardChange {
    /// Who waits for it.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// The change.
    #[prost(message, required, tag = "2")]
    pub command: MembershipCommand,
}

/// What became of proposals.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardedOutcomes {
    /// One each.
    #[prost(message, repeated, tag = "1")]
    pub fates: Vec<ForwardedOutcome>,
}

/// What became of one proposal.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardedOutcome {
    /// The proposal.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// What became of it; an unknown kind leaves its fate unknown.
    #[prost(oneof = "ForwardedOutcomeKind", tags = "2, 3, 4")]
    pub kind: Option<ForwardedOutcomeKind>,
}

/// The kinds of fates.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum ForwardedOutcomeKind {
    /// It is in the leader's log. Should another term's entry be committed there, it is dead.
    #[prost(message, tag = "2")]
    Appended(Position),
    /// It was not appended, for the one asked does not lead: try again.
    #[prost(message, tag = "3")]
    TryAgain(TryAgain),
    /// It was not appended and will not be.
    #[prost(message, tag = "4")]
    Refused(RefusalRecord),
}

/// The one asked does not lead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct TryAgain {}

/// A [`ProposalError`] on the wire.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct RefusalRecord {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(uint64, tag = "2")]
    size: u64,
    #[prost(uint64, tag = "3")]
    limit: u64,
    #[prost(message, optional, tag = "4")]
    membership: Option<MembershipErrorRecord>,
}

impl From<&ProposalError> for RefusalRecord {
    fn from(error: &ProposalError) -> Self {
        match error {
            ProposalError::Overloaded => Self {
                code: 1,
                ..Self::default()
            },
            ProposalError::TooLarge { size, limit } => Self {
                code: 2,
                size: *size,
                limit: *limit,
                membership: None,
            },
            ProposalError::Membership(error) => Self {
                code: 3,
                membership: Some(error.into()),
                ..Self::default()
            },
            ProposalError::NotAMember => Self {
                code: 4,
                ..Self::default()
            },
            // Said by the member that took it in, to its own client alone: not one of those
            // that travel. Whoever received it all the same may try again later.
            ProposalError::Withdrawn { .. } => Self {
                code: 1,
                ..Self::default()
            },
        }
    }
}

impl From<RefusalRecord> for ProposalError {
    /// An unknown code of a newer version counts as an overload: it may be tried again later.
    fn from(record: RefusalRecord) -> Self {
        match (record.code, record.membership) {
            (2, _) => Self::TooLarge {
                size: record.size,
                limit: record.limit,
            },
            (3, Some(error)) => Self::Membership(error.into()),
            (4, _) => Self::NotAMember,
            _ => Self::Overloaded,
        }
    }
}

/// Keepalives and questions about leases. Repeating one is harmless.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseCalls {
    /// One each.
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<LeaseCall>,
}

/// A keepalive or a question about a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseCall {
    /// The caller's own number for it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub lease: LeaseId,
    /// Renew it; else only tell what remains.
    #[prost(bool, tag = "3")]
    pub renew: bool,
}

/// Answers of the leader.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseAnswers {
    /// One each.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<LeaseAnswerRecord>,
}

/// The answer to a [`LeaseCall`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseAnswerRecord {
    /// The call's number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Absent when there is no such lease.
    #[prost(message, optional, tag = "2")]
    pub times: Option<LeaseTimes>,
}

/// A lease's times, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseTimes {
    /// The time to live that was granted.
    #[prost(int64, tag = "1")]
    pub granted: i64,
    /// What remains of it, rounded down.
    #[prost(int64, tag = "2")]
    pub remaining: i64,
}

/// The receiver's ID was removed from the cluster for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct RemovedNotice {
    /// The configuration index of the sender.
    #[prost(uint64, tag = "1")]
    pub configuration_index: Index,
}
