//! The messages between members, as values with a protobuf encoding. Interprets nothing.

use bytes::Bytes;

use crate::mutants::mutant;
use crate::raft::{Index, Message, Position, Term};
use crate::store::LeaseId;

use super::api::ProposalError;
use super::change::{MembershipCommand, MembershipErrorRecord};
use super::payload::RequestId;

/// One message from a member to another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerMessage {
    /// Its content. `None` when a newer version sent an unknown kind: it is ignored.
    #[prost(oneof = "PeerBody", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub body: Option<PeerBody>,
    /// The sender takes [`ForwardInTerm`] when it leads. False in the messages of 0.1.0.
    #[prost(bool, tag = "15")]
    pub takes_terms: bool,
}

impl From<PeerBody> for PeerMessage {
    fn from(body: PeerBody) -> Self {
        Self {
            body: Some(body),
            takes_terms: true,
        }
    }
}

impl PeerMessage {
    /// Whether it asks its receiver to append something.
    pub fn forwards(&self) -> bool {
        use PeerBody::{Change, Forward, InTerm};
        matches!(self.body, Some(Forward(_) | Change(_) | InTerm(_)))
    }

    /// The proposals and changes in it, and the term for which alone they are.
    pub(super) fn proposed(&self) -> (Option<Term>, Vec<RequestId>) {
        let of = |proposals: &[Proposal]| proposals.iter().map(|it| it.request).collect();
        match &self.body {
            Some(PeerBody::Forward(forward)) => (None, of(&forward.proposals)),
            Some(PeerBody::Change(change)) => (None, vec![change.request]),
            Some(PeerBody::InTerm(forward)) => {
                let mut requests: Vec<RequestId> = of(&forward.proposals);
                requests.extend(forward.changes.iter().map(|change| change.request));
                let term = mutant!(UnsentInNoTerm => None, else Some(forward.term));
                (term, requests)
            }
            _ => (None, Vec::new()),
        }
    }

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
            Some(PeerBody::InTerm(_)) => "ForwardInTerm",
        }
    }
}

/// The kinds of messages.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PeerBody {
    /// A message of the consensus core.
    #[prost(message, tag = "1")]
    Raft(Message),
    /// To a leader that does not take [`ForwardInTerm`]: append these proposals.
    #[prost(message, tag = "2")]
    Forward(Forward),
    /// To such a leader: check and append this membership change.
    #[prost(message, tag = "3")]
    Change(ForwardChange),
    /// To the origin: the outcomes of its proposals.
    #[prost(message, tag = "4")]
    ForwardedOutcomes(ForwardedOutcomes),
    /// To the leader: keepalives and TTL queries of leases.
    #[prost(message, tag = "5")]
    LeaseCalls(LeaseCalls),
    /// From the leader: the answers to them.
    #[prost(message, tag = "6")]
    LeaseAnswers(LeaseAnswers),
    /// To a server whose ID was removed.
    #[prost(message, tag = "7")]
    Removed(RemovedNotice),
    /// To the leader of a term: append these in that term or never.
    #[prost(message, tag = "8")]
    InTerm(ForwardInTerm),
}

impl PeerBody {
    /// Proposals for a leader: of this term, or, without one, of whichever it leads in.
    pub(super) fn forward(term: Option<Term>, proposals: Vec<Proposal>) -> Self {
        match term {
            None => Self::Forward(Forward { proposals }),
            Some(term) => Self::InTerm(ForwardInTerm {
                term,
                proposals,
                changes: Vec::new(),
            }),
        }
    }

    /// A membership change for a leader, as [`PeerBody::forward`].
    pub(super) fn forward_change(term: Option<Term>, change: ForwardChange) -> Self {
        match term {
            None => Self::Change(change),
            Some(term) => Self::InTerm(ForwardInTerm {
                term,
                proposals: Vec::new(),
                changes: vec![change],
            }),
        }
    }
}

/// A forwarded proposal: an identity and the encoded data of its entry.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Proposal {
    /// Its identity.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// A [`LogPayload`](super::LogPayload) of the store with the same identity.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// Proposals for the leader. Their identities contain their origins.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Forward {
    /// In the order in which they should be appended.
    #[prost(message, repeated, tag = "1")]
    pub proposals: Vec<Proposal>,
}

/// A membership change for the leader.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardChange {
    /// Its identity.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// The change.
    #[prost(message, required, tag = "2")]
    pub command: MembershipCommand,
}

/// Proposals and changes for the leader of a term. In another term they are refused, so a member that has applied an
/// entry of a later term knows for each whether it will ever be committed. A kind of its own, since versions that do
/// not know the term would append them in any: they ignore it.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardInTerm {
    /// The term.
    #[prost(uint64, tag = "1")]
    pub term: Term,
    /// In the order in which they should be appended.
    #[prost(message, repeated, tag = "2")]
    pub proposals: Vec<Proposal>,
    /// To be checked and appended.
    #[prost(message, repeated, tag = "3")]
    pub changes: Vec<ForwardChange>,
}

/// The outcomes of proposals.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardedOutcomes {
    /// One each.
    #[prost(message, repeated, tag = "1")]
    pub fates: Vec<ForwardedOutcome>,
}

/// The outcome of one proposal.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ForwardedOutcome {
    /// The proposal.
    #[prost(message, required, tag = "1")]
    pub request: RequestId,
    /// The outcome; an unknown kind leaves it open.
    #[prost(oneof = "ForwardedOutcomeKind", tags = "2, 3, 4")]
    pub kind: Option<ForwardedOutcomeKind>,
    /// The term of the [`ForwardInTerm`] that it answers; 0 for another forward.
    #[prost(uint64, tag = "5")]
    pub term: Term,
}

impl ForwardedOutcome {
    /// It was not appended: retry.
    pub(super) fn try_again(request: RequestId, term: Option<Term>) -> Self {
        Self::new(request, term, ForwardedOutcomeKind::TryAgain(TryAgain {}))
    }

    /// The outcome of a proposal that was forwarded for this term, or for any.
    pub fn new(request: RequestId, term: Option<Term>, kind: ForwardedOutcomeKind) -> Self {
        Self {
            request,
            kind: Some(kind),
            term: term.unwrap_or_default(),
        }
    }
}

/// The kinds of outcomes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum ForwardedOutcomeKind {
    /// It is in the leader's log. If an entry of another term is committed there, it is lost.
    #[prost(message, tag = "2")]
    Appended(Position),
    /// It was not appended because the receiver does not lead, or not in that term: retry.
    #[prost(message, tag = "3")]
    TryAgain(TryAgain),
    /// It was not appended and will not be.
    #[prost(message, tag = "4")]
    Refused(RefusalRecord),
}

/// The receiver does not lead, or not in that term.
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
            // The member that received it from its client sends this only to that client, not to
            // other members. A member that receives it nevertheless may retry later.
            ProposalError::Withdrawn { .. } => Self {
                code: 1,
                ..Self::default()
            },
        }
    }
}

impl From<RefusalRecord> for ProposalError {
    /// An unknown code of a newer version counts as an overload: the proposal may be retried later.
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

/// Keepalives and TTL queries of leases. Repeating one is harmless.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseCalls {
    /// One each.
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<LeaseCall>,
}

/// A keepalive or a TTL query of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct LeaseCall {
    /// The caller's own number for it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The lease.
    #[prost(int64, tag = "2")]
    pub lease: LeaseId,
    /// Renew it; otherwise only return the remaining TTL.
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
    /// The granted TTL.
    #[prost(int64, tag = "1")]
    pub granted: i64,
    /// The remaining TTL, rounded down.
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
