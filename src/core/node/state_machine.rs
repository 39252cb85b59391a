//! The state half of a member: store and membership as one unit with the index up to which the log
//! was applied. Owned by the applier, the only one that changes it; readers use immutable views.
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
use crate::store::{self, DamagedValue, Export, Overview, Response, Store, ValueFile, View};

use super::api::{CheckpointInfo, LeaseEvent, Report};
use super::bootstrap::FOUNDING_INDEX;
use super::change::{MembershipCommand, MembershipError};
use super::membership::{FORMAT, MemberRecord, Membership};
use super::payload::{ApplyError, LogPayload, PayloadBody, RequestId, UnknownEntry};

/// The applied state of the log.
#[derive(Debug, Default)]
pub struct StateMachine {
    own: Own,
    store: Store,
    membership: Arc<Membership>,
    index: Index,
    term: Term,
    report: Report,
    /// The request that waits until a removal or promotion is settled. Not replicated: if a restart
    /// or a checkpoint loses it, the client sees an unknown outcome.
    unsettled: Option<RequestId>,
    /// The answer to the request with which this member removed itself; see [`StateMachine::part`].
    parting: Option<Applied>,
}

/// The start whose proposals are reported back.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    member: MemberId,
    boot_nonce: u64,
}

/// The outcome of one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// The request that it answers, if any: its own, or the configuration change that it settles.
    pub request: Option<RequestId>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It only started a leader's term.
    Started,
    /// The store carried out or refused the command.
    Store(Result<Response, store::Error>),
    /// The membership after it, or why it changed nothing.
    Membership(Result<Arc<Membership>, MembershipError>),
}

/// Why a machine cannot be restored from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The checkpoint's metadata cannot be decoded.
    #[error("the description of the checkpoint is damaged: {0}")]
    Meta(String),
    /// It was written by a newer version.
    #[error("the checkpoint is of format {found}, this version knows up to {FORMAT}")]
    Format {
        /// Its format.
        found: u32,
    },
    /// The data cannot be decoded.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl RestoreError {
    /// Whether a newer version wrote the checkpoint, which is then not damaged.
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Format { .. } | Self::Store(store::Error::CheckpointFormat(_))
        )
    }
}

/// The metadata of a checkpoint: everything in it but the store. Kept beside the chunks.
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
    /// Decodes the metadata and checks that this version can restore it.
    ///
    /// # Errors
    /// Damaged metadata, or those of a newer format.
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

    /// The snapshot metadata for the consensus core.
    pub fn snapshot(&self) -> SnapshotMeta {
        SnapshotMeta {
            index: self.index,
            term: self.term,
            configuration: self.membership.configuration(),
        }
    }

    /// For the member's account of checkpoints; `bytes` is the size of the whole checkpoint.
    pub fn info(&self, bytes: u64) -> CheckpointInfo {
        CheckpointInfo {
            index: self.index,
            term: self.term,
            bytes,
        }
    }
}

/// A frozen machine, to be written by another thread while the machine continues.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its metadata; encoded beside the chunks.
    pub meta: CheckpointMeta,
    /// The store's chunks, each at most about 1 MiB. Equal states give equal bytes.
    pub chunks: Export,
}

impl Checkpoint {
    /// The same once more: its chunks are made anew.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            chunks: self.chunks.view().export(),
        }
    }
}

impl StateMachine {
    /// A machine before anything was applied: that of a joiner that waits for its first checkpoint.
    /// [`Report::requests`] lists the proposals of `member` with this `boot_nonce`.
    pub fn new(member: MemberId, boot_nonce: u64) -> Self {
        Self {
            own: Own { member, boot_nonce },
            ..Self::default()
        }
    }

    /// The state that a cluster starts with, as if entry 1 of term 1 had created it. Its checkpoint
    /// has the same bytes on each member.
    ///
    /// # Errors
    /// Members that conflict with each other; see [`Membership::found`].
    pub fn found(
        cluster_id: u64,
        cluster_uid: &str,
        incarnation: u64,
        members: Vec<MemberRecord>,
    ) -> Result<Self, MembershipError> {
        let membership = Membership::found(cluster_id, cluster_uid, incarnation, members)?;
        Ok(Self::founded(membership))
    }

    /// As [`StateMachine::found`], with a membership that already exists.
    pub fn founded(membership: Membership) -> Self {
        Self::restored(membership, Store::default())
    }

    /// The same, with the data of a cluster that was saved: only they are of that cluster.
    pub fn restored(membership: Membership, store: Store) -> Self {
        let mut machine = Self {
            store,
            membership: Arc::new(membership),
            index: FOUNDING_INDEX,
            term: FOUNDING_INDEX,
            ..Self::default()
        };
        machine.report_all();
        machine
    }

    /// A machine that goes on from what another one has published, apart from it: what is applied here changes nothing
    /// there, and answers nobody. O(1).
    pub fn continued(
        view: &View,
        membership: Arc<Membership>,
        (index, term): (Index, Term),
    ) -> Self {
        Self {
            store: Store::continued(view),
            membership,
            index,
            term,
            ..Self::default()
        }
    }

    /// The machine from which a checkpoint was taken.
    ///
    /// # Errors
    /// A damaged checkpoint.
    pub fn restore<C: AsRef<[u8]>>(
        member: MemberId,
        boot_nonce: u64,
        meta: CheckpointMeta,
        chunks: impl IntoIterator<Item = C>,
    ) -> Result<Self, RestoreError> {
        Self::restore_with(member, boot_nonce, meta, [], chunks)
    }

    /// The same of a checkpoint whose values are in these files.
    ///
    /// # Errors
    /// A damaged checkpoint.
    pub fn restore_with<C: AsRef<[u8]>>(
        member: MemberId,
        boot_nonce: u64,
        meta: CheckpointMeta,
        files: impl IntoIterator<Item = Arc<ValueFile>>,
        chunks: impl IntoIterator<Item = C>,
    ) -> Result<Self, RestoreError> {
        let mut machine = Self {
            own: Own { member, boot_nonce },
            store: Store::import_with(files, chunks)?,
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

    /// Freezes the machine. O(1) plus a copy of the membership; the chunks are made on demand.
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
    /// An entry that this version does not know or that is not the next one, or a value that cannot be read: the server
    /// must stop, unless the value is healed, nothing was changed before, and the entry is applied again.
    /// A refusal by the store or the membership is an outcome, not an error.
    pub fn apply(&mut self, entry: &Entry) -> Result<Applied, ApplyError> {
        let payload = LogPayload::of(entry)?;
        self.apply_payload(entry, payload.as_ref())
    }

    /// Loads what applying these will look at, for up to [`TOUCHED`](store::TOUCHED) of them. Changes nothing.
    pub fn touch<'a>(&self, payloads: impl Iterator<Item = &'a LogPayload>) {
        let operations = payloads.filter_map(|payload| match &payload.body {
            Some(PayloadBody::Command(command)) => command.operation.as_ref(),
            _ => None,
        });
        self.store.touch(operations);
    }

    /// The same of an entry whose payload is this.
    ///
    /// # Errors
    /// As [`StateMachine::apply`].
    pub fn apply_payload(
        &mut self,
        entry: &Entry,
        payload: Option<&LogPayload>,
    ) -> Result<Applied, ApplyError> {
        if entry.index != self.index + 1 || entry.term < self.term {
            let why = format!("{} of term {} was the last one", self.index, self.term);
            return Err(unknown(entry, why));
        }
        let mut request = payload.and_then(|payload| payload.request);
        let outcome = match payload.and_then(|payload| payload.body.as_ref()) {
            None => Outcome::Started,
            Some(PayloadBody::Command(command)) => Outcome::Store(self.command(entry, command)?),
            Some(PayloadBody::Membership(command)) => {
                let outcome = self.change_membership(entry, command);
                let waits = Membership::configuration_change(command).is_some_and(must_settle);
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
    ) -> Result<Result<Response, store::Error>, ApplyError> {
        if mutant!(MemberLeaks) && self.own.member % 2 == 1 && entry.index.is_multiple_of(8) {
            return Ok(Err(store::Error::LeaseNotFound));
        }
        let before = self.store.revision();
        let outcome = self.store.apply(command, entry.position());
        match (&outcome, &command.operation) {
            (Err(store::Error::UnknownCommand), _) => {
                return Err(unknown(
                    entry,
                    "its command is of an unknown kind".to_owned(),
                ));
            }
            (Err(store::Error::Value(value)), _) => {
                return Err(ApplyError::Value {
                    index: entry.index,
                    value: value.clone(),
                    half_done: self.store.revision() != before,
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
            (Ok(Response::Follow(step)), _) => self.followed(step),
            _ => {}
        }
        Ok(outcome)
    }

    /// What a step behind another cluster means for the leases.
    fn followed(&mut self, step: &store::FollowResponse) {
        if step.finished {
            let leases = self.store.publish().leases();
            self.report.leases.push(LeaseEvent::Reset(leases));
            return;
        }
        let granted = step.granted.iter();
        let granted = granted.map(|lease| LeaseEvent::Granted(lease.id, lease.ttl));
        self.report.leases.extend(granted);
        let ended = step.ended.iter().map(|id| LeaseEvent::Ended(*id));
        self.report.leases.extend(ended);
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

    /// A removal or promotion is answered once it is settled. A removed member does not receive the
    /// settling entry: its own removal is answered by [`StateMachine::part`].
    fn hold_answer(&mut self, entry: &Entry, request: Option<RequestId>, outcome: &Outcome) {
        let own = request.filter(|id| self.own.made(*id));
        // Applied it is, and must not be proposed again because the answer comes in a later term.
        if !mutant!(HeldUnreported) {
            self.report.requests.extend(own.map(|id| id.counter));
        }
        if !self.membership.is_removed(self.own.member) {
            self.unsettled = request;
        } else if own.is_some() {
            self.parting = Some(Applied {
                index: entry.index,
                term: entry.term,
                request,
                outcome: outcome.clone(),
            });
        }
    }

    /// The answer to the request with which this member removed itself; returned once, at
    /// [`Effect::Removed`](super::Effect::Removed).
    pub fn part(&mut self) -> Option<Applied> {
        self.parting.take()
    }

    /// A configuration is settled: returns the request that waits for that.
    fn settle(&mut self, index: Index) -> Option<RequestId> {
        if index > self.membership.settled_index {
            let membership = Arc::make_mut(&mut self.membership);
            membership.settled_index = index;
            self.report.membership = Some(Arc::clone(&self.membership));
        }
        self.unsettled.take()
    }

    /// What was applied since the last report, for [`Input::Applied`](super::Input::Applied) or
    /// [`Input::Installed`](super::Input::Installed).
    pub fn take_report(&mut self) -> Report {
        let mut report = std::mem::take(&mut self.report);
        report.index = self.index;
        report.term = self.term;
        report
    }

    fn report_all(&mut self) {
        let view = self.store.publish();
        let mut leases = vec![LeaseEvent::Reset(view.leases())];
        if view.following().is_some() {
            leases.push(LeaseEvent::Held);
        }
        self.report = Report {
            membership: Some(Arc::clone(&self.membership)),
            leases,
            ..Report::default()
        };
    }

    /// Freezes the store for readers. O(1); called once a batch.
    pub fn view(&self) -> Arc<View> {
        self.store.publish()
    }

    /// What is small of the store's state.
    pub fn overview(&self) -> Overview {
        self.store.overview()
    }

    /// The revision at which the store was last compacted, -1 if it never was.
    pub fn compacted(&self) -> store::Revision {
        self.store.compacted()
    }

    /// The applied membership.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The applied configuration.
    pub fn configuration(&self) -> Configuration {
        self.membership.configuration()
    }

    /// The applied index; 0 before anything was applied.
    pub fn index(&self) -> Index {
        self.index
    }

    /// The term of the last applied entry.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Frees memory that compactions released; see [`Store::reclaim`].
    pub fn reclaim(&mut self, budget: usize) -> usize {
        self.store.reclaim(budget)
    }

    /// Frees all of that; see [`Store::reclaim_all`].
    pub fn reclaim_all(&mut self, budget: usize) -> usize {
        self.store.reclaim_all(budget)
    }

    /// A hash that is equal for equal machines at the same index, whatever the flags of their
    /// servers. Reads the whole store: for tests and the simulator.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub fn hash(&self) -> Result<u64, DamagedValue> {
        let mut hasher = DefaultHasher::new();
        let mut checkpoint = self.checkpoint();
        checkpoint.meta.encode_to_vec().hash(&mut hasher);
        let chunks: Vec<Bytes> = checkpoint.chunks.by_ref().collect();
        if let Some(damaged) = checkpoint.chunks.failure() {
            return Err(damaged.clone());
        }
        chunks.hash(&mut hasher);
        Ok(hasher.finish())
    }
}

fn unknown(entry: &Entry, why: String) -> ApplyError {
    let index = entry.index;
    UnknownEntry { index, why }.into()
}

/// Whether a change is answered only when it is settled. An addition is not: it takes away nothing
/// that could still be needed, and where a second voter joins a single one it is settled only once
/// the new one has started, which the caller does only after the answer.
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
