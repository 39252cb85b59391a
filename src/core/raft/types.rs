//! The values of consensus: entries, hard state, configurations and changes of configuration.
//!
//! Everything here that travels or is stored has a protobuf encoding of its own. This file
//! holds no behaviour of the protocol.

use std::collections::BTreeSet;
use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType};

use super::error::Error;

/// The identity of a member of the cluster. Zero is never a member.
pub type MemberId = u64;
/// A term of the Raft paper (§5.1). Zero is "before any election".
pub type Term = u64;
/// A position in the log, counted from one. Zero is "before the first entry".
pub type Index = u64;

/// A place in a log. Both 0 before the first entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct Position {
    /// The index of the entry there.
    #[prost(uint64, tag = "1")]
    pub index: Index,
    /// Its term.
    #[prost(uint64, tag = "2")]
    pub term: Term,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}

/// Bytes that an entry costs in every limit of this room besides its data.
const ENTRY_OVERHEAD: u64 = 24;

/// What an entry's data means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EntryKind {
    /// Data for the state machine. Empty data is the entry a new leader starts its term with.
    Normal = 0,
    /// A change of membership: the data is an encoded [`ConfigurationRecord`].
    Configuration = 1,
}

/// One entry of the replicated log (paper §5.3).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Entry {
    /// The term of the leader that appended it.
    #[prost(uint64, tag = "1")]
    pub term: Term,
    /// Its position in the log.
    #[prost(uint64, tag = "2")]
    pub index: Index,
    /// An [`EntryKind`]. Read it with [`Entry::checked_kind`]: an unknown kind must stop the
    /// server, while prost's own accessor would take it for a normal entry.
    #[prost(enumeration = "EntryKind", tag = "3")]
    pub kind: i32,
    /// The payload.
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
}

impl Entry {
    /// Where it stands.
    pub fn position(&self) -> Position {
        Position {
            index: self.index,
            term: self.term,
        }
    }

    /// An entry for the state machine.
    pub fn normal(term: Term, index: Index, data: impl Into<Bytes>) -> Self {
        Self {
            term,
            index,
            kind: EntryKind::Normal as i32,
            data: data.into(),
        }
    }

    /// An entry that changes the membership and also carries the node's own payload.
    pub fn configuration_change(
        term: Term,
        index: Index,
        change: ConfigurationChange,
        data: Bytes,
    ) -> Self {
        let record = ConfigurationRecord {
            change: Some(change.into()),
            data,
        };
        let data = record.encode_to_vec().into();
        Self {
            term,
            index,
            kind: EntryKind::Configuration as i32,
            data,
        }
    }

    /// The kind, or an error for a kind this version does not know.
    pub fn checked_kind(&self) -> Result<EntryKind, Error> {
        EntryKind::try_from(self.kind).map_err(|_| Error::UnknownEntryKind {
            index: self.index,
            kind: self.kind,
        })
    }

    /// The change of membership and the node's payload of a configuration entry.
    pub fn decode_configuration(&self) -> Result<(ConfigurationChange, Bytes), Error> {
        let broken = || Error::BrokenConfiguration { index: self.index };
        if self.checked_kind()? != EntryKind::Configuration {
            return Err(broken());
        }
        let record = ConfigurationRecord::decode(self.data.clone()).map_err(|_| broken())?;
        let change = record
            .change
            .ok_or_else(broken)?
            .checked()
            .ok_or_else(broken)?;
        Ok((change, record.data))
    }

    /// Bytes that this entry counts for in limits: its data and a fixed overhead.
    pub fn cost(&self) -> u64 {
        self.data.len() as u64 + ENTRY_OVERHEAD
    }
}

/// Persistent state of a member in addition to its log (paper figure 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HardState {
    /// The latest term this member has seen.
    #[prost(uint64, tag = "1")]
    pub term: Term,
    /// The candidate voted for in that term; zero is none.
    #[prost(uint64, tag = "2")]
    pub vote: MemberId,
    /// An index known to be committed when the state was written. It may lag behind the truth
    /// and never exceeds the log it was written with.
    #[prost(uint64, tag = "3")]
    pub commit: Index,
}

/// The voters and learners of the cluster. A learner receives the log and counts for no quorum.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Configuration {
    /// Members whose votes and acknowledgements count.
    pub voters: BTreeSet<MemberId>,
    /// Members that only follow.
    pub learners: BTreeSet<MemberId>,
}

impl Configuration {
    /// A configuration of the given voters and learners.
    pub fn new(
        voters: impl IntoIterator<Item = MemberId>,
        learners: impl IntoIterator<Item = MemberId>,
    ) -> Self {
        Self {
            voters: voters.into_iter().collect(),
            learners: learners.into_iter().collect(),
        }
    }

    /// Whether `id` is a voter or a learner.
    pub fn contains(&self, id: MemberId) -> bool {
        self.voters.contains(&id) || self.learners.contains(&id)
    }

    /// All members, voters and learners, in order.
    pub fn members(&self) -> BTreeSet<MemberId> {
        self.voters.union(&self.learners).copied().collect()
    }

    /// The smallest number of voters that is a majority. One for an empty configuration, so that nothing is ever
    /// decided without a vote.
    pub fn quorum(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The configuration after `change`, or the reason why the change makes no sense here.
    pub fn after(&self, change: ConfigurationChange) -> Result<Self, ChangeRefusal> {
        use ConfigurationChange::{AddLearner, AddVoter, Promote, Remove};
        let mut next = self.clone();
        let id = change.member();
        if id == 0 {
            return Err(ChangeRefusal::ZeroMember);
        }
        match change {
            AddVoter(_) | AddLearner(_) if self.contains(id) => {
                return Err(ChangeRefusal::AlreadyMember(id));
            }
            AddVoter(_) => {
                next.voters.insert(id);
            }
            AddLearner(_) => {
                next.learners.insert(id);
            }
            Promote(_) => {
                if !next.learners.remove(&id) {
                    return Err(ChangeRefusal::NotLearner(id));
                }
                next.voters.insert(id);
            }
            Remove(_) => {
                if !next.voters.remove(&id) && !next.learners.remove(&id) {
                    return Err(ChangeRefusal::NotMember(id));
                }
                if next.voters.is_empty() {
                    return Err(ChangeRefusal::LastVoter(id));
                }
            }
        }
        Ok(next)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |set: &BTreeSet<MemberId>| {
            set.iter()
                .map(|id| format!("{id:x}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        write!(f, "voters=({})", list(&self.voters))?;
        if !self.learners.is_empty() {
            write!(f, " learners=({})", list(&self.learners))?;
        }
        Ok(())
    }
}

/// `message Configuration { repeated uint64 voters = 1; repeated uint64 learners = 2; }`,
/// written by hand because the fields are sets.
impl prost::Message for Configuration {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        let voters: Vec<u64> = self.voters.iter().copied().collect();
        let learners: Vec<u64> = self.learners.iter().copied().collect();
        prost::encoding::uint64::encode_packed(1, &voters, buf);
        prost::encoding::uint64::encode_packed(2, &learners, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        let set = match tag {
            1 => &mut self.voters,
            2 => &mut self.learners,
            _ => return prost::encoding::skip_field(wire_type, tag, buf, ctx),
        };
        let mut values = Vec::new();
        prost::encoding::uint64::merge_repeated(wire_type, &mut values, buf, ctx)?;
        set.extend(values);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        let voters: Vec<u64> = self.voters.iter().copied().collect();
        let learners: Vec<u64> = self.learners.iter().copied().collect();
        prost::encoding::uint64::encoded_len_packed(1, &voters)
            + prost::encoding::uint64::encoded_len_packed(2, &learners)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One change of membership. Only one may be in the log and not yet applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigurationChange {
    /// A new member that votes from the start.
    AddVoter(MemberId),
    /// A new member that only follows.
    AddLearner(MemberId),
    /// A learner becomes a voter.
    Promote(MemberId),
    /// A voter or learner leaves.
    Remove(MemberId),
}

impl ConfigurationChange {
    /// The member that the change is about.
    pub fn member(self) -> MemberId {
        match self {
            Self::AddVoter(id) | Self::AddLearner(id) | Self::Promote(id) | Self::Remove(id) => id,
        }
    }
}

impl fmt::Display for ConfigurationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddVoter(id) => write!(f, "add-voter {id:x}"),
            Self::AddLearner(id) => write!(f, "add-learner {id:x}"),
            Self::Promote(id) => write!(f, "promote {id:x}"),
            Self::Remove(id) => write!(f, "remove {id:x}"),
        }
    }
}

/// Why a change of membership does not fit a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    /// Member identities start at one.
    #[error("member id 0 is not allowed")]
    ZeroMember,
    /// The member to add already exists.
    #[error("{0:x} is a member already")]
    AlreadyMember(MemberId),
    /// Only a learner can be promoted.
    #[error("{0:x} is not a learner")]
    NotLearner(MemberId),
    /// The member to remove is not there.
    #[error("{0:x} is not a member")]
    NotMember(MemberId),
    /// A cluster keeps at least one voter.
    #[error("{0:x} is the last voter")]
    LastVoter(MemberId),
}

/// The kind of change inside a [`ConfigurationRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ChangeKind {
    /// Not a change: a decoder that does not know the kind.
    Unspecified = 0,
    /// See [`ConfigurationChange::AddVoter`].
    AddVoter = 1,
    /// See [`ConfigurationChange::AddLearner`].
    AddLearner = 2,
    /// See [`ConfigurationChange::Promote`].
    Promote = 3,
    /// See [`ConfigurationChange::Remove`].
    Remove = 4,
}

/// A [`ConfigurationChange`] as it is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ChangeRecord {
    /// A [`ChangeKind`].
    #[prost(enumeration = "ChangeKind", tag = "1")]
    pub kind: i32,
    /// The member that the change is about.
    #[prost(uint64, tag = "2")]
    pub member: MemberId,
}

impl ChangeRecord {
    /// The change, unless its kind is unknown.
    pub fn checked(self) -> Option<ConfigurationChange> {
        Some(match ChangeKind::try_from(self.kind).ok()? {
            ChangeKind::Unspecified => return None,
            ChangeKind::AddVoter => ConfigurationChange::AddVoter(self.member),
            ChangeKind::AddLearner => ConfigurationChange::AddLearner(self.member),
            ChangeKind::Promote => ConfigurationChange::Promote(self.member),
            ChangeKind::Remove => ConfigurationChange::Remove(self.member),
        })
    }
}

impl From<ConfigurationChange> for ChangeRecord {
    fn from(change: ConfigurationChange) -> Self {
        let kind = match change {
            ConfigurationChange::AddVoter(_) => ChangeKind::AddVoter,
            ConfigurationChange::AddLearner(_) => ChangeKind::AddLearner,
            ConfigurationChange::Promote(_) => ChangeKind::Promote,
            ConfigurationChange::Remove(_) => ChangeKind::Remove,
        };
        Self {
            kind: kind as i32,
            member: change.member(),
        }
    }
}

/// The data of a configuration entry.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ConfigurationRecord {
    /// What the core needs to know.
    #[prost(message, optional, tag = "1")]
    pub change: Option<ChangeRecord>,
    /// What the node wants to keep with it (names, addresses, a request id).
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// A snapshot's metadata for the core: its position and the members there.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SnapshotMeta {
    /// The last index that the snapshot includes; zero for "no snapshot".
    #[prost(uint64, tag = "1")]
    pub index: Index,
    /// The term of the entry at that index.
    #[prost(uint64, tag = "2")]
    pub term: Term,
    /// The configuration after that index was applied.
    #[prost(message, required, tag = "3")]
    pub configuration: Configuration,
}

impl SnapshotMeta {
    /// Where the log goes on after it.
    pub fn position(&self) -> Position {
        Position {
            index: self.index,
            term: self.term,
        }
    }
}
