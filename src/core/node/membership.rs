//! The replicated membership: members, tombstones, recent changes and the operator's epoch.
//! Applying a change depends on this state and the entry alone; limits that may differ between
//! members are checked before proposing (see `admission`).

use std::collections::BTreeMap;

use crate::mutants::mutant;
use crate::raft::{Configuration, ConfigurationChange, Index, MemberId};

use super::change::{Add, Bind, ChangeBody, Join, MembershipCommand, MembershipError, Update};

/// Number of changes that the membership remembers, newest last.
pub const REMEMBERED_CHANGES: usize = 64;

/// The newest format of entries and of the membership that this version can apply.
pub const FORMAT: u32 = 1;

/// One member.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MemberRecord {
    /// Its ID; never zero, never used again after removal.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// Its name; empty until it has joined, when added through etcd's API.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its peer URLs.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// Its client URLs; empty until it has joined.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// Learners receive the log and do not vote.
    #[prost(bool, tag = "5")]
    pub learner: bool,
    /// The UUID of the one disk that this member may run on; empty until bound. Set once.
    #[prost(string, tag = "6")]
    pub disk_uuid: String,
    /// Whether it has ever joined; etcd's "started" (`member list` shows it).
    #[prost(bool, tag = "7")]
    pub started: bool,
}

/// A member that was removed. Its ID and name are never reused.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Tombstone {
    /// Its ID.
    #[prost(uint64, tag = "1")]
    pub id: MemberId,
    /// Its name when it was removed.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// The kind of a change. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ChangeKind {
    /// A kind that this version does not know.
    Unspecified = 0,
    /// A member of the initial membership.
    Bootstrap = 1,
    /// A voter was added.
    AddVoter = 2,
    /// A learner was added.
    AddLearner = 3,
    /// A learner became a voter.
    Promote = 4,
    /// A member was removed.
    Remove = 5,
    /// A member's peer URLs changed.
    Update = 6,
    /// A member joined: its disk was bound.
    Join = 7,
}

impl ChangeKind {
    /// The name in `quorate.v1`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "Unspecified",
            Self::Bootstrap => "Bootstrap",
            Self::AddVoter => "AddVoter",
            Self::AddLearner => "AddLearner",
            Self::Promote => "Promote",
            Self::Remove => "Remove",
            Self::Update => "Update",
            Self::Join => "Join",
        }
    }
}

/// One change of the membership, as it is remembered.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ChangeRecord {
    /// The index of its entry.
    #[prost(uint64, tag = "1")]
    pub index: Index,
    /// Its kind.
    #[prost(enumeration = "ChangeKind", tag = "2")]
    pub kind: i32,
    /// The member that it changed.
    #[prost(uint64, tag = "3")]
    pub id: MemberId,
    /// That member's name, if it was known.
    #[prost(string, tag = "4")]
    pub name: String,
}

/// The replicated membership.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Membership {
    /// The cluster's ID; zero only in a server that has no state yet.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The UID of the cluster's resource; empty outside an operator.
    #[prost(string, tag = "2")]
    pub cluster_uid: String,
    /// The incarnation of the cluster under that UID; raised only by an explicit recovery.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The members by ID.
    #[prost(btree_map = "uint64, message", tag = "4")]
    pub members: BTreeMap<MemberId, MemberRecord>,
    /// The members that were removed, oldest first.
    #[prost(message, repeated, tag = "5")]
    pub tombstones: Vec<Tombstone>,
    /// The last [`REMEMBERED_CHANGES`] changes, oldest first.
    #[prost(message, repeated, tag = "6")]
    pub changes: Vec<ChangeRecord>,
    /// The index of the last Add, Promote, Remove or Update, with which a caller's precondition is
    /// compared. Joins and binds do not change it, since members cause them by themselves.
    #[prost(uint64, tag = "7")]
    pub configuration_index: Index,
    /// The largest operator epoch seen.
    #[prost(uint64, tag = "8")]
    pub epoch: u64,
    /// The format that every member is able to apply; new meanings of entries wait for it.
    #[prost(uint32, tag = "9")]
    pub format: u32,
    /// The last configuration index that a quorum of its own configuration is known to have
    /// applied, or to apply under any fault; see
    /// [`ConfigurationApplied`](super::ConfigurationApplied). The next change of the configuration
    /// waits for it.
    #[prost(uint64, tag = "10")]
    pub settled_index: Index,
}

impl Membership {
    /// The member with this ID.
    pub fn member(&self, id: MemberId) -> Option<&MemberRecord> {
        self.members.get(&id)
    }

    /// The voters, ordered by ID.
    pub fn voters(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.values().filter(|member| !member.learner)
    }

    /// The learners, ordered by ID.
    pub fn learners(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.values().filter(|member| member.learner)
    }

    /// Whether this ID was removed.
    pub fn is_removed(&self, id: MemberId) -> bool {
        self.tombstones.iter().any(|stone| stone.id == id)
    }

    /// The only disk that this member may run on; `None` when it is not bound (or the member is not
    /// known here): then the pin of an earlier hello decides, or the first hello if there is none.
    pub fn expected_disk(&self, id: MemberId) -> Option<&str> {
        self.member(id)
            .map(|member| member.disk_uuid.as_str())
            .filter(|disk| !disk.is_empty())
    }

    /// The configuration for the consensus core.
    pub fn configuration(&self) -> Configuration {
        Configuration::new(
            self.voters().map(|member| member.id),
            self.learners().map(|member| member.id),
        )
    }

    /// The change of the configuration that an entry makes: `None` for changes that leave the
    /// configuration as it is and are therefore stored in normal entries.
    pub fn configuration_change(command: &MembershipCommand) -> Option<ConfigurationChange> {
        match command.body.as_ref()? {
            ChangeBody::Add(add) if add.learner => Some(ConfigurationChange::AddLearner(add.id)),
            ChangeBody::Add(add) => Some(ConfigurationChange::AddVoter(add.id)),
            ChangeBody::Promote(target) => Some(ConfigurationChange::Promote(target.id)),
            ChangeBody::Remove(target) => Some(ConfigurationChange::Remove(target.id)),
            ChangeBody::Update(_) | ChangeBody::Join(_) | ChangeBody::Bind(_) => None,
        }
    }

    /// Whether the configuration is settled; see [`Membership::settled_index`].
    pub fn is_settled(&self) -> bool {
        self.settled_index >= self.configuration_index
    }

    /// The membership after the entry at `index`, or why the entry changes nothing. Depends on this
    /// state and the entry alone.
    pub fn after(
        &self,
        index: Index,
        command: &MembershipCommand,
    ) -> Result<Self, MembershipError> {
        self.check(command)?;
        let mut next = self.clone();
        if let Some(epoch) = command.epoch {
            next.epoch = epoch;
        }
        match &command.body {
            Some(ChangeBody::Add(add)) => next.add(index, add),
            Some(ChangeBody::Promote(target)) => {
                if let Some(member) = next.members.get_mut(&target.id) {
                    member.learner = false;
                    // Only a learner that follows the log is promoted, so it has started even if
                    // its Join is not applied yet.
                    member.started = true;
                }
                next.remember(index, ChangeKind::Promote, target.id);
                next.configuration_index = index;
            }
            Some(ChangeBody::Remove(target)) => {
                next.remember(index, ChangeKind::Remove, target.id);
                next.configuration_index = index;
                if let Some(member) = next.members.remove(&target.id) {
                    next.tombstones.push(Tombstone {
                        id: member.id,
                        name: member.name,
                    });
                }
            }
            Some(ChangeBody::Update(update)) => {
                if let Some(member) = next.members.get_mut(&update.id) {
                    member.peer_urls.clone_from(&update.peer_urls);
                    member.learner &= !mutant!(UpdatePromotes);
                }
                next.remember(index, ChangeKind::Update, update.id);
                next.configuration_index = index;
            }
            Some(ChangeBody::Join(join)) => next.join(index, join),
            Some(ChangeBody::Bind(bind)) => next.bind(index, bind.id, &bind.disk_uuid),
            None => return Err(MembershipError::Unknown),
        }
        Ok(next)
    }

    /// Whether this state would carry out the entry: the replicated half of the rules.
    pub fn check(&self, command: &MembershipCommand) -> Result<(), MembershipError> {
        self.check_fence(command)?;
        match command.body.as_ref().ok_or(MembershipError::Unknown)? {
            ChangeBody::Add(add) => self.check_add(add),
            ChangeBody::Promote(target) => {
                if !self.known(target.id)?.learner {
                    return Err(MembershipError::NotLearner);
                }
                Ok(())
            }
            ChangeBody::Remove(target) => {
                let member = self.known(target.id)?;
                if !member.learner && self.voters().count() == 1 {
                    return Err(MembershipError::NotEnoughStarted);
                }
                Ok(())
            }
            ChangeBody::Update(Update { id, peer_urls }) => {
                self.known(*id)?;
                self.check_peer_urls(*id, peer_urls)
            }
            ChangeBody::Join(join) => {
                self.known(join.id)?;
                self.check_disk(join.id, &join.disk_uuid)
            }
            ChangeBody::Bind(Bind { id, disk_uuid }) => {
                self.known(*id)?;
                self.check_disk(*id, disk_uuid)
            }
        }
    }

    fn check_fence(&self, command: &MembershipCommand) -> Result<(), MembershipError> {
        mutant!(FenceIgnored => return Ok(()));
        if let Some(epoch) = command.epoch.filter(|epoch| *epoch < self.epoch) {
            return Err(MembershipError::StaleEpoch {
                given: epoch,
                current: self.epoch,
            });
        }
        match command.expected_configuration_index {
            Some(expected) if expected != self.configuration_index => {
                Err(MembershipError::ConfigurationChanged {
                    expected,
                    current: self.configuration_index,
                })
            }
            _ => Ok(()),
        }
    }

    fn known(&self, id: MemberId) -> Result<&MemberRecord, MembershipError> {
        if self.is_removed(id) {
            return Err(MembershipError::Removed);
        }
        self.member(id).ok_or(MembershipError::NotFound)
    }

    fn check_add(&self, add: &Add) -> Result<(), MembershipError> {
        if self.is_removed(add.id) {
            return Err(MembershipError::Removed);
        }
        if add.id == 0 || self.members.contains_key(&add.id) {
            return Err(MembershipError::IdExists);
        }
        self.check_peer_urls(add.id, &add.peer_urls)?;
        let taken = self.members.values().any(|member| member.name == add.name)
            || self.tombstones.iter().any(|stone| stone.name == add.name);
        if !add.name.is_empty() && taken {
            return Err(MembershipError::NameExists);
        }
        self.check_disk(add.id, &add.disk_uuid)
    }

    /// Whether a member may be part of the initial membership.
    pub(super) fn check_new(&self, member: &MemberRecord) -> Result<(), MembershipError> {
        self.check_add(&Add {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: Vec::new(),
            learner: member.learner,
            disk_uuid: member.disk_uuid.clone(),
        })
    }

    fn check_peer_urls(&self, id: MemberId, urls: &[String]) -> Result<(), MembershipError> {
        if urls.is_empty() {
            return Err(MembershipError::NoPeerUrls);
        }
        let mut others = self.members.values().filter(|member| member.id != id);
        if others.any(|member| member.peer_urls.iter().any(|url| urls.contains(url))) {
            return Err(MembershipError::PeerUrlExists);
        }
        Ok(())
    }

    /// A disk is bound once, to one member.
    fn check_disk(&self, id: MemberId, disk: &str) -> Result<(), MembershipError> {
        if disk.is_empty() {
            return Ok(());
        }
        let bound = self.expected_disk(id).filter(|bound| *bound != disk);
        if let Some(bound) = bound.filter(|_| !mutant!(OtherDisk)) {
            return Err(MembershipError::OtherDisk {
                bound: bound.to_owned(),
            });
        }
        let mut others = self.members.values().filter(|member| member.id != id);
        match others.find(|member| member.disk_uuid == disk) {
            Some(owner) => Err(MembershipError::DiskInUse { by: owner.id }),
            None => Ok(()),
        }
    }

    fn add(&mut self, index: Index, add: &Add) {
        let record = MemberRecord {
            id: add.id,
            name: add.name.clone(),
            peer_urls: add.peer_urls.clone(),
            client_urls: add.client_urls.clone(),
            learner: add.learner,
            disk_uuid: add.disk_uuid.clone(),
            started: false,
        };
        self.members.insert(add.id, record);
        let kind = if add.learner {
            ChangeKind::AddLearner
        } else {
            ChangeKind::AddVoter
        };
        self.remember(index, kind, add.id);
        self.configuration_index = index;
    }

    fn join(&mut self, index: Index, join: &Join) {
        self.bind(index, join.id, &join.disk_uuid);
        if let Some(member) = self.members.get_mut(&join.id) {
            if !join.name.is_empty() {
                member.name.clone_from(&join.name);
            }
            member.client_urls.clone_from(&join.client_urls);
            member.started = true;
        }
    }

    fn bind(&mut self, index: Index, id: MemberId, disk: &str) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if !disk.is_empty() && member.disk_uuid.is_empty() {
            disk.clone_into(&mut member.disk_uuid);
            self.remember(index, ChangeKind::Join, id);
        }
    }

    pub(super) fn remember(&mut self, index: Index, kind: ChangeKind, id: MemberId) {
        let name = self.member(id).map(|member| member.name.clone());
        self.changes.push(ChangeRecord {
            index,
            kind: kind.into(),
            id,
            name: name.unwrap_or_default(),
        });
        let surplus = self.changes.len().saturating_sub(REMEMBERED_CHANGES);
        self.changes.drain(..surplus);
    }
}
