//! Membership changes as they are encoded in the log and on the wire, and why one is refused.
//! Decides nothing: `membership` holds the replicated rules, `admission` those of the leader.

use crate::raft::{Index, MemberId};

/// A change with the caller's preconditions. Sent to the leader and stored in the log.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MembershipCommand {
    /// What to change. `None` is a kind that this version does not know.
    #[prost(oneof = "ChangeBody", tags = "1, 2, 3, 4, 5, 6")]
    pub body: Option<ChangeBody>,
    /// Refused unless the membership's configuration index is this one.
    #[prost(uint64, optional, tag = "7")]
    pub expected_configuration_index: Option<Index>,
    /// The caller's epoch; refused if the cluster has seen a larger one.
    #[prost(uint64, optional, tag = "8")]
    pub epoch: Option<u64>,
}

impl From<ChangeBody> for MembershipCommand {
    fn from(body: ChangeBody) -> Self {
        Self {
            body: Some(body),
            expected_configuration_index: None,
            epoch: None,
        }
    }
}

/// The kinds of changes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum ChangeBody {
    /// Adds a member.
    #[prost(message, tag = "1")]
    Add(Add),
    /// Makes a learner a voter.
    #[prost(message, tag = "2")]
    Promote(Target),
    /// Removes a member for good.
    #[prost(message, tag = "3")]
    Remove(Target),
    /// Sets peer URLs.
    #[prost(message, tag = "4")]
    Update(Update),
    /// A server takes the place that was added for it: binds its disk, and publishes its name and
    /// URLs.
    #[prost(message, tag = "5")]
    Join(Join),
    /// The leader binds the disk that a member runs on.
    #[prost(message, tag = "6")]
    Bind(Bind),
}

/// Adds a member. The proposer chooses the ID (see [`member_id`](super::member_id)).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Add {
    /// Its ID; not zero, never used before.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// Its name; may be empty. If given, no member has or had it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// At least one; no other member has any of them.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// May be empty.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// Add as a learner.
    #[prost(bool, tag = "5")]
    pub learner: bool,
    /// The disk of the server that waits to join, if known; else empty.
    #[prost(string, tag = "6")]
    pub disk_uuid: String,
}

/// The member that a change refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Target {
    /// Its ID.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
}

/// Sets a member's peer URLs.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Update {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// At least one.
    #[prost(string, repeated, tag = "2")]
    pub peer_urls: Vec<String>,
}

/// What a member publishes about itself when it starts. Repeating it is harmless.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Join {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// Its disk; refused if another one is bound. Empty leaves the binding unchanged.
    #[prost(string, tag = "2")]
    pub disk_uuid: String,
    /// Its name; empty leaves the name unchanged.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its client URLs.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
}

/// Binds a disk.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Bind {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// The disk; refused if another one is bound.
    #[prost(string, tag = "2")]
    pub disk_uuid: String,
}

/// Why a membership change is refused. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MembershipError {
    /// etcd: `member ID already exist`.
    #[error("a member of this ID exists already")]
    IdExists,
    /// The ID was removed and is never reused; etcd answers `member not found`.
    #[error("the member was removed for good")]
    Removed,
    /// etcd: `member not found`.
    #[error("there is no member of this ID")]
    NotFound,
    /// etcd: `Peer URLs already exists`.
    #[error("another member has one of these peer URLs")]
    PeerUrlExists,
    /// etcd: `given member URLs are invalid`.
    #[error("a member needs at least one peer URL")]
    NoPeerUrls,
    /// A name is never reused.
    #[error("a member has or had this name; names are never given again")]
    NameExists,
    /// etcd: `can only promote a learner member`.
    #[error("the member is not a learner")]
    NotLearner,
    /// etcd: `can only promote a learner member which is in sync with leader`.
    #[error("the learner is not in sync with the leader: {why}")]
    LearnerNotReady {
        /// What is missing, as text.
        why: String,
    },
    /// etcd: `too many learner members in cluster`.
    #[error("the cluster has as many learners as are allowed at a time")]
    TooManyLearners,
    /// etcd: `re-configuration failed due to not enough started members`.
    #[error("the change would leave fewer started voters than a quorum")]
    NotEnoughStarted,
    /// etcd: `unhealthy cluster`.
    #[error("too few voters are in contact with the leader for this change")]
    Unhealthy,
    /// The membership is not the one on which the caller decided.
    #[error("the configuration index is {current}, the caller expected {expected}")]
    ConfigurationChanged {
        /// What the caller expected.
        expected: Index,
        /// The present index.
        current: Index,
    },
    /// A newer operator has made a call already.
    #[error("epoch {given} is older than {current}, which the cluster has seen")]
    StaleEpoch {
        /// The caller's epoch.
        given: u64,
        /// The cluster's epoch.
        current: u64,
    },
    /// The member is bound to another disk.
    #[error(
        "the member is bound to disk {bound}: its data directory was lost or exchanged; remove \
         the member and add a new one"
    )]
    OtherDisk {
        /// The disk it is bound to.
        bound: String,
    },
    /// A disk belongs to one member only.
    #[error("the disk is bound to member {by:x} already")]
    DiskInUse {
        /// The member that it is bound to.
        by: MemberId,
    },
    /// A kind of change that the leader does not know: members run different versions.
    #[error("the change is of a kind that this version does not know")]
    Unknown,
}

/// A [`MembershipError`] on the wire.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(super) struct MembershipErrorRecord {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(uint64, tag = "2")]
    first: u64,
    #[prost(uint64, tag = "3")]
    second: u64,
    #[prost(string, tag = "4")]
    text: String,
}

impl From<&MembershipError> for MembershipErrorRecord {
    fn from(error: &MembershipError) -> Self {
        use MembershipError as E;
        let (code, first, second, text) = match error {
            E::IdExists => (1, 0, 0, String::new()),
            E::Removed => (2, 0, 0, String::new()),
            E::NotFound => (3, 0, 0, String::new()),
            E::PeerUrlExists => (4, 0, 0, String::new()),
            E::NoPeerUrls => (5, 0, 0, String::new()),
            E::NameExists => (6, 0, 0, String::new()),
            E::NotLearner => (7, 0, 0, String::new()),
            E::LearnerNotReady { why } => (8, 0, 0, why.clone()),
            E::TooManyLearners => (9, 0, 0, String::new()),
            E::NotEnoughStarted => (10, 0, 0, String::new()),
            E::Unhealthy => (11, 0, 0, String::new()),
            E::ConfigurationChanged { expected, current } => {
                (12, *expected, *current, String::new())
            }
            E::StaleEpoch { given, current } => (13, *given, *current, String::new()),
            E::OtherDisk { bound } => (14, 0, 0, bound.clone()),
            E::DiskInUse { by } => (15, *by, 0, String::new()),
            E::Unknown => (16, 0, 0, String::new()),
        };
        Self {
            code,
            first,
            second,
            text,
        }
    }
}

impl From<MembershipErrorRecord> for MembershipError {
    fn from(record: MembershipErrorRecord) -> Self {
        let (first, second, text) = (record.first, record.second, record.text);
        match record.code {
            1 => Self::IdExists,
            2 => Self::Removed,
            3 => Self::NotFound,
            4 => Self::PeerUrlExists,
            5 => Self::NoPeerUrls,
            6 => Self::NameExists,
            7 => Self::NotLearner,
            8 => Self::LearnerNotReady { why: text },
            9 => Self::TooManyLearners,
            10 => Self::NotEnoughStarted,
            11 => Self::Unhealthy,
            12 => Self::ConfigurationChanged {
                expected: first,
                current: second,
            },
            13 => Self::StaleEpoch {
                given: first,
                current: second,
            },
            14 => Self::OtherDisk { bound: text },
            15 => Self::DiskInUse { by: first },
            _ => Self::Unknown,
        }
    }
}
