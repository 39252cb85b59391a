//! A store that follows another cluster: that one's revisions, as its watch gave them, come through the log and get the
//! numbers that they have there. What clients would change is refused meanwhile.
//!
//! Never reads the other cluster: whoever follows it proposes what it wrote. A revision is applied whole, once and in
//! order, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::mutants::mutant;

use super::alarm::Alarms;
use super::check::put_cost;
use super::lease::LeaseInfo;
use super::rows::MOST;
use super::staged::Staged;
use super::state::State;
use super::txn::Change;
use super::view::View;
use super::{
    Auth, AuthCommand, AuthOperation, Error, KeyValue, LeaseId, MAX_LEASE_TTL, Operation, Put,
    Revision, Store,
};

/// Whom a store follows. Part of the replicated state.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Following {
    /// ID of the cluster that is followed; not 0.
    #[prost(uint64, tag = "1")]
    pub source: u64,
    /// When it was to be closed to writes, in Unix milliseconds by the clock of the proposer; 0: not yet.
    #[prost(int64, tag = "2")]
    pub frozen_unix_ms: i64,
    /// The attempt that was to close it, which alone may end the following or open it again; 0: none.
    #[prost(uint64, tag = "3")]
    pub attempt: u64,
}

/// A step behind another cluster. Its parts are applied in the order of its fields, its revisions first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Follow {
    /// ID of that cluster. A step of another one than is followed is refused.
    #[prost(uint64, tag = "1")]
    pub source: u64,
    /// Leases that it has; one that is here already stays as it is.
    #[prost(message, repeated, tag = "2")]
    pub leases: Vec<FollowedLease>,
    /// What it wrote, in order and without a hole. Revisions that are here already are passed over.
    #[prost(message, repeated, tag = "3")]
    pub revisions: Vec<FollowedRevision>,
    /// Leases that it has no more. One that still has keys here stays: they are deleted by a later revision.
    #[prost(int64, repeated, tag = "4")]
    pub ended: Vec<LeaseId>,
    /// The revision at which it was compacted; 0: it says nothing. One that is compacted here already is passed over.
    #[prost(int64, tag = "5")]
    pub compact: Revision,
    /// Its users and roles, if they are known to have changed. They are passed over unless they are newer than those that
    /// are here.
    #[prost(message, optional, tag = "6")]
    pub auth: Option<Auth>,
    /// It is about to be closed to writes. An earlier attempt to do so counts no more.
    #[prost(message, optional, tag = "7")]
    pub close: Option<FollowClose>,
    /// It is about to be opened to writes again, which this attempt had closed it to.
    #[prost(uint64, tag = "8")]
    pub open: u64,
    /// Ends the following.
    #[prost(message, optional, tag = "9")]
    pub finish: Option<FollowFinish>,
    /// Ends the following without the followed cluster, which is lost.
    #[prost(message, optional, tag = "10")]
    pub promote: Option<FollowPromote>,
}

impl Follow {
    /// Whether it does no more than give an attempt up.
    pub(super) fn only_opens(&self) -> bool {
        let Follow { source, open, .. } = *self;
        let alone = Follow {
            source,
            open,
            ..Follow::default()
        };
        open != 0 && *self == alone
    }
}

/// An attempt to leave the followed cluster.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FollowClose {
    /// Its number, which no other attempt has; not 0.
    #[prost(uint64, tag = "1")]
    pub attempt: u64,
    /// When, in Unix milliseconds; not 0.
    #[prost(int64, tag = "2")]
    pub unix_ms: i64,
}

/// Everything that another cluster wrote at one revision.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FollowedRevision {
    /// The revision.
    #[prost(int64, tag = "1")]
    pub revision: Revision,
    /// Its changes, in their order; at least one.
    #[prost(message, repeated, tag = "2")]
    pub events: Vec<FollowedEvent>,
    /// How many of its changes came in parts before this one.
    #[prost(uint64, tag = "3")]
    pub before: u64,
    /// More of it follows. Nothing is changed before the last part is here.
    #[prost(bool, tag = "4")]
    pub more: bool,
}

/// One change of a key there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FollowedEvent {
    /// The key was deleted.
    #[prost(bool, tag = "1")]
    pub deleted: bool,
    /// The key afterwards; of a deleted one, its name alone counts.
    #[prost(message, required, tag = "2")]
    pub kv: KeyValue,
}

/// A lease there.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FollowedLease {
    /// Its ID.
    #[prost(int64, tag = "1")]
    pub id: LeaseId,
    /// Seconds granted.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
}

/// The end: from here on clients write, and every lease lasts its whole time again. Everything is here already: the numbers
/// say what that is.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FollowFinish {
    /// The attempt that closed the other cluster.
    #[prost(uint64, tag = "1")]
    pub attempt: u64,
    /// Its last revision.
    #[prost(int64, tag = "2")]
    pub revision: Revision,
    /// How many leases it has.
    #[prost(uint64, tag = "3")]
    pub leases: u64,
    /// How often its users and roles have changed.
    #[prost(uint64, tag = "4")]
    pub auth_revision: u64,
}

/// An end that leaves behind what the followed cluster wrote and is not here. From here on clients write, and every lease
/// lasts its whole time again.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FollowPromote {
    /// The revision that has to be here at least.
    #[prost(int64, tag = "1")]
    pub revision: Revision,
    /// Seconds for leases that are not here and have keys here: how long they were granted for is lost.
    #[prost(int64, tag = "2")]
    pub lease_ttl: i64,
    /// By so much the revision is raised, and everything before is compacted: a client that has seen a later revision at
    /// the lost cluster is told so, instead of waiting for events that have another content here.
    #[prost(uint64, tag = "3")]
    pub bump: u64,
}

/// Answer to a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowResponse {
    /// The revision that is reached.
    pub revision: Revision,
    /// Leases that were granted by it.
    pub granted: Vec<LeaseInfo>,
    /// Leases that ended by it.
    pub ended: Vec<LeaseId>,
    /// The following has ended: every lease lasts its whole time again.
    pub finished: bool,
}

impl Store {
    /// Begins to follow: nothing but steps of this cluster changes the keys from here on. Alarms are not taken over: they
    /// are about members of that one.
    pub fn follow(&mut self, source: u64) {
        self.state.alarms = Alarms::default();
        self.state.following = Some(Following {
            source,
            ..Following::default()
        });
    }
}

impl View {
    /// Whom this cluster follows, if it follows one.
    #[must_use]
    pub fn following(&self) -> Option<Following> {
        self.state.following
    }
}

/// Refuses what a cluster that follows another one leaves to that one.
pub(super) fn check_following(
    following: Option<&Following>,
    operation: &Operation,
) -> Result<(), Error> {
    if following.is_none() || mutant!(FollowerWrites) {
        return Ok(());
    }
    match operation {
        Operation::Follow(_) | Operation::SetAlarm(_) => Ok(()),
        // Both keep the leases' clocks, and do nothing here.
        Operation::LeaseExpire(_) | Operation::LeaseCheckpoint(_) => Ok(()),
        // A request for a token changes no user.
        Operation::Auth(AuthCommand {
            operation: Some(AuthOperation::Authenticate(_)),
        }) => Ok(()),
        Operation::Put(_)
        | Operation::DeleteRange(_)
        | Operation::Txn(_)
        | Operation::Compact(_)
        | Operation::LeaseGrant(_)
        | Operation::LeaseRevoke(_)
        | Operation::Auth(_) => Err(Error::Following),
    }
}

impl State {
    /// Carries a step out. What comes before the part that is refused stays, on every member alike.
    pub(super) fn advance(&mut self, step: &Follow) -> Result<FollowResponse, Error> {
        let followed = self.following.map(|it| it.source);
        if followed != Some(step.source) {
            return Err(Error::NotFollowed {
                cluster: step.source,
            });
        }
        let mut response = FollowResponse::default();
        // What is refused has granted nothing: whoever counts leases down learns of them with the answer.
        for revision in &step.revisions {
            self.take_revision(revision)?;
        }
        for lease in &step.leases {
            self.take_lease(*lease, &mut response)?;
        }
        for id in &step.ended {
            if self.leases.get(*id).is_some() && self.leases.key_count(*id) == 0 {
                self.leases.forget(*id);
                response.ended.push(*id);
            }
        }
        if step.compact > self.compacted && step.compact > 0 {
            self.compact(step.compact)?;
        }
        if let Some(auth) = step
            .auth
            .as_ref()
            .filter(|it| it.revision > self.auth.revision())
        {
            self.auth = Arc::new(auth.clone().into());
        }
        if let Some(close) = &step.close {
            self.closing((close.attempt, close.unix_ms));
        }
        if step.open != 0 {
            self.check_attempt(step.open)?;
            self.closing((0, 0));
        }
        if let Some(finish) = &step.finish {
            self.finish_following(finish)?;
            response.finished = true;
        }
        if let Some(promote) = step.promote {
            self.promote(promote, &mut response)?;
            response.finished = true;
        }
        response.revision = self.revision;
        Ok(response)
    }

    fn take_lease(
        &mut self,
        lease: FollowedLease,
        response: &mut FollowResponse,
    ) -> Result<(), Error> {
        let FollowedLease { id, ttl } = lease;
        if id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if ttl > MAX_LEASE_TTL {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.leases.get(id).is_none() {
            let remaining = 0;
            let info = LeaseInfo { id, ttl, remaining };
            self.leases.grant(info);
            response.granted.push(info);
        }
        Ok(())
    }

    fn take_revision(&mut self, followed: &FollowedRevision) -> Result<(), Error> {
        let (current, found) = (self.revision, followed.revision);
        if found <= current {
            return Ok(());
        }
        let gap = Error::FollowGap { current, found };
        if found != current + 1 || followed.events.is_empty() {
            return Err(gap);
        }
        if followed.more {
            return match self.staged.push(followed.clone()) {
                true => Ok(()),
                false => Err(gap),
            };
        }
        let events = &self.staged.end(followed).ok_or(gap)?;
        self.check_events(found, events)?;
        let mut change = Change::begin(self);
        for FollowedEvent { deleted, kv } in events {
            match deleted {
                true => change.delete_key(&kv.key),
                false => change.put_key(kv)?,
            }
        }
        change.end();
        Ok(())
    }

    /// Whether the changes lead from what is here to what is there. A key may be changed twice: etcd lets a transaction
    /// put one that an open-ended delete of it covers.
    fn check_events(&self, revision: Revision, events: &[FollowedEvent]) -> Result<(), Error> {
        let mut changed: BTreeMap<&Bytes, Option<(Revision, i64)>> = BTreeMap::new();
        for FollowedEvent { deleted, kv } in events {
            let here = || {
                let it = self.current(&kv.key)?.details();
                Some((it.create, it.version))
            };
            let here = changed.get(&kv.key).copied().unwrap_or_else(here);
            let (create, version) = here.map_or((revision, 1), |(create, last)| (create, last + 1));
            let found = (kv.create_revision, kv.version, kv.mod_revision);
            let fits = match deleted {
                true => here.is_some(),
                false => !kv.key.is_empty() && found == (create, version, revision),
            };
            if !fits && !mutant!(FollowUnchecked) {
                let key = kv.key.clone();
                return Err(Error::Diverged { revision, key });
            }
            changed.insert(&kv.key, (!deleted).then_some((create, version)));
        }
        Ok(())
    }

    fn closing(&mut self, (attempt, frozen_unix_ms): (u64, i64)) {
        if let Some(following) = &mut self.following {
            following.attempt = attempt;
            following.frozen_unix_ms = frozen_unix_ms;
        }
    }

    /// Whether no later attempt has begun, and this one was not given up.
    fn check_attempt(&self, attempt: u64) -> Result<(), Error> {
        match self.following.is_some_and(|it| it.attempt == attempt) {
            true => Ok(()),
            false => Err(Error::FollowSuperseded),
        }
    }

    fn finish_following(&mut self, finish: &FollowFinish) -> Result<(), Error> {
        if !mutant!(FollowAnyAttempt) {
            self.check_attempt(finish.attempt)?;
        }
        let complete = finish.revision == self.revision || mutant!(FollowEndsEarly);
        if !complete {
            return Err(Error::FollowGap {
                current: self.revision,
                found: finish.revision,
            });
        }
        let here = (self.leases.count(), self.auth.revision());
        if here != (finish.leases, finish.auth_revision) {
            return Err(Error::FollowIncomplete);
        }
        self.follows_none();
        Ok(())
    }

    /// A key may be here before its lease, or after the end of it: such a lease gets a time of its own, or nothing would
    /// ever delete the key.
    fn promote(
        &mut self,
        FollowPromote {
            revision,
            lease_ttl,
            bump,
        }: FollowPromote,
        response: &mut FollowResponse,
    ) -> Result<(), Error> {
        if self.revision < revision && !mutant!(FollowPromotesLess) {
            return Err(Error::FollowGap {
                current: self.revision,
                found: revision,
            });
        }
        let raised = i64::try_from(bump)
            .ok()
            .and_then(|bump| self.revision.checked_add(bump))
            .filter(|raised| *raised <= MOST);
        let raised = raised.ok_or(Error::FutureRevision {
            current: self.revision,
        })?;
        for id in self.leases.missing() {
            let ttl = lease_ttl;
            self.take_lease(FollowedLease { id, ttl }, response)?;
        }
        self.follows_none();
        if raised > self.revision && !mutant!(FollowPromotesAsItWas) {
            self.revision = raised;
            self.compact(raised)?;
        }
        Ok(())
    }

    fn follows_none(&mut self) {
        for lease in self.leases.all() {
            self.leases.grant(LeaseInfo {
                remaining: 0,
                ..lease
            });
        }
        self.following = None;
        self.staged = Staged::default();
    }
}

impl Change<'_> {
    /// Writes a key as it was written elsewhere.
    fn put_key(&mut self, kv: &KeyValue) -> Result<(), Error> {
        let put = self.put(&Put {
            key: kv.key.clone(),
            value: kv.value.clone(),
            lease: kv.lease,
            ..Put::default()
        });
        put.map(drop)
    }
}

/// The logical size that a step may add.
pub(super) fn cost(step: &Follow) -> u64 {
    let events = step.revisions.iter().flat_map(|it| &it.events);
    let puts = events.filter(|event| !event.deleted);
    puts.map(|event| put_cost(&event.kv.key, &event.kv.value))
        .sum()
}
