//! The state half of a member: store and membership as one unit with the index up to which the
//! log was applied. Lives with the applier, which alone changes it; readers see frozen views.
//!
//! Apply depends on the entry and the state alone, so machines that were fed the same log are
//! equal whatever their servers' flags are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use crate::mutants::mutant;
use crate::raft::{
    Configuration, ConfigurationChange, Entry, EntryKind, Index, MemberId, SnapshotMeta, Term,
};
use crate::store::{self, Export, Response, Store, View};

use super::api::{CheckpointInfo, LeaseEvent, Report};
use super::bootstrap::FOUNDING_INDEX;
use super::change::{MembershipCommand, MembershipError};
use super::membership::{FORMAT, MemberRecord, Membership};
use super::payload::{LogPayload, PayloadBody, RequestId, UnknownEntry};

/// Everything that the log has brought about.
#[derive(Debug, Default)]
pub struct StateMachine {
    own: Own,
    store: Store,
    membership: Arc<Membership>,
    index: Index,
    term: Term,
    report: Report,
    /// Who waits for a removal or promotion that is not settled yet. Not replicated: one
    /// that is lost by a restart or a checkpoint is of unknown fate to who waits.
    unsettled: Option<RequestId>,
    /// The answer to whoever asked this member to remove itself; see [`StateMachine::part`].
    parting: Option<Applied>,
}

/// Whose proposals are reported back.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    member: MemberId,
    boot_nonce: u64,
}

/// What came of one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// Who has an answer by it, if anyone: whoever proposed it, or the change of the
    /// configuration that it settles.
    pub request: Option<RequestId>,
    /// What it gave.
    pub outcome: Outcome,
}

/// What an entry gave.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It only started a leader's term.
    Started,
    /// The store carried it out or refused it.
    Store(Result<Response, store::Error>),
    /// The membership after it, or why it changed nothing.
    Membership(Result<Arc<Membership>, MembershipError>),
}

/// Why a machine cannot be restored from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The description of the checkpoint cannot be read.
    #[error("the description of the checkpoint is damaged: {0}")]
    Meta(String),
    /// A newer version wrote it.
    #[error("the checkpoint is of format {found}, this version knows up to {FORMAT}")]
    Format {
        /// Its format.
        found: u32,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl RestoreError {
    /// Whether a newer version wrote the checkpoint: nothing is wrong with it.
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Format { .. } | Self::Store(store::Error::CheckpointFormat(_))
        )
    }
}

/// The description of a checkpoint: everything in it but the store. Kept beside the chunks.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CheckpointMeta {
    /// [`FORMAT`] of the writer.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The last index in it.
    #[prost(uint64, tag = "2")]
    pub index: Index,
    /// The term there.
    #[prost(uint64, tag = "3")]
    pub term: Term,
    /// The membership there.
    #[prost(message, required, tag = "4")]
    pub membership: Membership,
}

impl CheckpointMeta {
    /// Reads a description and checks that this version can restore it.
    ///
    /// # Errors
    /// A damaged description or one of a newer format.
    pub fn read(bytes: &[u8]) -> Result<Self, RestoreError> {
        let damaged = |why: String| RestoreError::Meta(why);
        let meta = Self::decode(bytes).map_err(|e| damaged(e.to_string()))?;
        if meta.format > FORMAT {
            return Err(RestoreError::Format { found: meta.format });
        }
        if meta.format == 0 || meta.index == 0 || meta.term == 0 {
            return Err(damaged("it has no format, index or term".to_owned()));
        }
        if meta.membership.voters().next().is_none() {
            return Err(damaged("its membership has no voter".to_owned()));
        }
        Ok(meta)
    }

    /// What the consensus core needs to know of it.
    pub fn snapshot(&self) -> SnapshotMeta {
        SnapshotMeta {
            index: self.index,
            term: self.term,
            configuration: self.membership.configuration(),
        }
    }

    /// As the member keeps account of it; `bytes` is the size of the whole checkpoint.
    pub fn info(&self, bytes: u64) -> CheckpointInfo {
        CheckpointInfo {
            index: self.index,
            term: self.term,
            bytes,
        }
    }
}

/// A frozen machine, to be written by another thread while the machine goes on.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its description; encode it beside the chunks.
    pub meta: CheckpointMeta,
    /// The store's chunks, each at most about 1 MiB. The same state gives the same bytes.
    pub chunks: Export,
}

impl StateMachine {
    /// A machine before anything was applied: of a joiner that waits for its first checkpoint.
    /// `member` and `boot_nonce` say whose proposals [`Report::requests`] lists.
    pub fn new(member: MemberId, boot_nonce: u64) -> Self {
        Self {
            own: Own { member, boot_nonce },
            ..Self::default()
        }
    }

    /// The state that a cluster starts with, as if entry 1 of term 1 had brought it. Its
    /// checkpoint is the same bytes on each member.
    ///
    /// # Errors
    /// Members that cannot be together; see [`Membership::found`].
    pub fn found(
        cluster_id: u64,
        cluster_uid: &str,
        incarnation: u64,
        members: Vec<MemberRecord>,
    ) -> Result<Self, MembershipError> {
        let membership = Membership::found(cluster_id, cluster_uid, incarnation, members)?;
        Ok(Self::founded(membership))
    }

    /// As [`StateMachine::found`], with a membership that is made already.
    pub fn founded(membership: Membership) -> Self {
        let mut machine = Self {
            membership: Arc::new(membership),
            index: FOUNDING_INDEX,
            term: FOUNDING_INDEX,
            ..Self::default()
        };
        machine.report_all();
        machine
    }

    /// The machine that a checkpoint was taken of.
    ///
    /// # Errors
    /// A damaged checkpoint.
    pub fn restore<C: AsRef<[u8]>>(
        member: MemberId,
        boot_nonce: u64,
        meta: CheckpointMeta,
        chunks: impl IntoIterator<Item = C>,
    ) -> Result<Self, RestoreError> {
        let mut machine = Self {
            own: Own { member, boot_nonce },
            store: Store::import(chunks)?,
            membership: Arc::new(meta.membership),
            index: meta.index,
            term: meta.term,
            report: Report::default(),
            unsettled: None,
            parting: None,
        };
        machine.report_all();
        Ok(machine)
    }

    /// Freezes the machine. O(1) beside a copy of the membership; the chunks are made as they
    /// are asked for.
    pub fn checkpoint(&self) -> Checkpoint {
        let index = if mutant!(ApplyTwice) && self.index > FOUNDING_INDEX {
            self.index - 1
        } else {
            self.index + u64::from(mutant!(IndexAhead))
        };
        Checkpoint {
            meta: CheckpointMeta {
                format: FORMAT,
                index,
                term: self.term,
                membership: Membership::clone(&self.membership),
            },
            chunks: self.store.publish().export(),
        }
    }

    /// Applies the next entry.
    ///
    /// # Errors
    /// An entry that this version does not know or that is not the next one: the server must
    /// stop. A refusal by the store or the membership is an outcome, not an error.
    pub fn apply(&mut self, entry: &Entry) -> Result<Applied, UnknownEntry> {
        if entry.index != self.index + 1 || entry.term < self.term {
            return Err(UnknownEntry {
                index: entry.index,
                why: format!("{} of term {} was the last one", self.index, self.term),
            });
        }
        let payload = LogPayload::of(entry)?;
        let mut request = payload.as_ref().and_then(|payload| payload.request);
        let outcome = match payload.and_then(|payload| payload.body) {
            None => Outcome::Started,
            Some(PayloadBody::Command(command)) => Outcome::Store(self.command(entry, &command)?),
            Some(PayloadBody::Membership(command)) => {
                let outcome = self.change_membership(entry, &command);
                let waits = Membership::configuration_change(&command).is_some_and(must_settle);
                let outcome = Outcome::Membership(outcome);
                if waits && matches!(outcome, Outcome::Membership(Ok(_))) {
                    self.hold_answer(entry, request.take(), &outcome);
                }
                outcome
            }
            Some(PayloadBody::ConfigurationApplied(settle)) => {
                request = self.settle(settle.configuration_index);
                Outcome::Membership(Ok(Arc::clone(&self.membership)))
            }
        };
        self.index = entry.index;
        self.term = entry.term;
        if let Some(id) = request.filter(|id| self.own.made(*id)) {
            self.report.requests.push(id.counter);
        }
        Ok(Applied {
            index: entry.index,
            term: entry.term,
            request,
            outcome,
        })
    }

    fn command(
        &mut self,
        entry: &Entry,
        command: &store::Command,
    ) -> Result<Result<Response, store::Error>, UnknownEntry> {
        if mutant!(MemberLeaks) && self.own.member % 2 == 1 && entry.index.is_multiple_of(8) {
            return Ok(Err(store::Error::LeaseNotFound));
        }
        let outcome = self.store.apply(command, entry.position());
        match (&outcome, &command.operation) {
            (Err(store::Error::UnknownCommand), _) => {
                return Err(UnknownEntry {
                    index: entry.index,
                    why: "its command is of an unknown kind".to_owned(),
                });
            }
            (Ok(Response::LeaseGrant(grant)), _) => {
                let event = LeaseEvent::Granted(grant.id, grant.ttl);
                self.report.leases.push(event);
            }
            (Ok(Response::LeaseRevoke(_)), Some(store::Operation::LeaseRevoke(revoke))) => {
                self.report.leases.push(LeaseEvent::Ended(revoke.id));
            }
            (Ok(Response::LeaseExpire(expire)), _) => {
                let ended = expire.expired.iter().map(|id| LeaseEvent::Ended(*id));
                self.report.leases.extend(ended);
            }
            (Ok(Response::LeaseCheckpoint(note)), _) => {
                let noted = note.leases.iter();
                let noted = noted.map(|lease| LeaseEvent::Noted(lease.id, lease.remaining));
                self.report.leases.extend(noted);
            }
            _ => {}
        }
        Ok(outcome)
    }

    fn change_membership(
        &mut self,
        entry: &Entry,
        command: &MembershipCommand,
    ) -> Result<Arc<Membership>, MembershipError> {
        let outcome = self.membership.after(entry.index, command).map(Arc::new);
        if entry.kind == EntryKind::Configuration as i32 {
            let change = Membership::configuration_change(command);
            let change = change.filter(|_| outcome.is_ok());
            self.report.configurations.push((entry.index, change));
        }
        if let Ok(membership) = &outcome {
            self.membership = Arc::clone(membership);
            self.report.membership = Some(Arc::clone(membership));
        }
        outcome
    }

    /// A removal or promotion is answered once it is settled. The settling entry does not come to
    /// a member that was removed: its own removal is answered when it has parted.
    fn hold_answer(&mut self, entry: &Entry, request: Option<RequestId>, outcome: &Outcome) {
        if !self.membership.is_removed(self.own.member) {
            self.unsettled = request;
        } else if let Some(id) = request.filter(|id| self.own.made(*id)) {
            self.report.requests.push(id.counter);
            self.parting = Some(Applied {
                index: entry.index,
                term: entry.term,
                request,
                outcome: outcome.clone(),
            });
        }
    }

    /// The answer to whoever asked this member to remove itself, once, at
    /// [`Effect::Removed`](super::Effect::Removed).
    pub fn part(&mut self) -> Option<Applied> {
        self.parting.take()
    }

    /// A configuration is settled: whoever waits for it has its answer.
    fn settle(&mut self, index: Index) -> Option<RequestId> {
        if index > self.membership.settled_index {
            let membership = Arc::make_mut(&mut self.membership);
            membership.settled_index = index;
            self.report.membership = Some(Arc::clone(&self.membership));
        }
        self.unsettled.take()
    }

    /// What happened since the last report, for [`Input::Applied`](super::Input::Applied) or
    /// [`Input::Installed`](super::Input::Installed).
    pub fn take_report(&mut self) -> Report {
        let mut report = std::mem::take(&mut self.report);
        report.index = self.index;
        report.term = self.term;
        report
    }

    fn report_all(&mut self) {
        let leases = self.store.publish().leases();
        self.report = Report {
            membership: Some(Arc::clone(&self.membership)),
            leases: vec![LeaseEvent::Reset(leases)],
            ..Report::default()
        };
    }

    /// Freezes the store for readers. O(1); once a batch.
    pub fn view(&self) -> Arc<View> {
        self.store.publish()
    }

    /// The revision at which the store was last compacted, -1 if it never was.
    pub fn compacted(&self) -> store::Revision {
        self.store.compacted()
    }

    /// The membership as applied.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The configuration as applied.
    pub fn configuration(&self) -> Configuration {
        self.membership.configuration()
    }

    /// The last applied index; 0 before anything was.
    pub fn index(&self) -> Index {
        self.index
    }

    /// The term of the last applied entry.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Gives back memory that compactions made free; see [`Store::reclaim`].
    pub fn reclaim(&mut self, budget: usize) -> usize {
        self.store.reclaim(budget)
    }

    /// A number that is equal for equal machines at the same index, whatever the flags of their
    /// servers. Reads the whole store: for tests and the simulator.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let checkpoint = self.checkpoint();
        checkpoint.meta.encode_to_vec().hash(&mut hasher);
        let chunks: Vec<Bytes> = checkpoint.chunks.collect();
        chunks.hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether a change is answered only when it is settled. An addition is not: it takes nothing away
/// that somebody could still count on, and where a second voter joins a first one it is settled
/// only once the new one has started, which nobody does before the answer is there.
fn must_settle(change: ConfigurationChange) -> bool {
    match change {
        ConfigurationChange::AddVoter(_) | ConfigurationChange::AddLearner(_) => {
            mutant!(AdditionWaits)
        }
        ConfigurationChange::Promote(_) | ConfigurationChange::Remove(_) => true,
    }
}

impl Own {
    fn made(self, id: RequestId) -> bool {
        (id.member, id.boot_nonce) == (self.member, self.boot_nonce)
    }
}
