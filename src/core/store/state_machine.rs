//! The owner of the state: applies commands one after another and publishes views. Never
//! refuses anything for a reason that is not in the replicated state, never waits for a reader.

use crate::mutants::mutant;
use std::sync::Arc;

use super::follow::check_following;
use super::lease::LeaseInfo;
use super::state::State;
use super::txn::Change;
use super::view::View;
use super::{
    AlarmKind, Command, CompactResponse, Error, LeaseCheckpoint, LeaseCheckpointResponse,
    LeaseExpire, LeaseExpireResponse, LeaseGrant, LeaseGrantResponse, LeaseId, LeaseRevokeResponse,
    MAX_LEASE_TTL, Operation, Position, Response, Revision, SetAlarmResponse,
};

/// The key that a command changes, if it is one; of a transaction the first that it compares.
fn only_key(operation: &Operation) -> Option<&[u8]> {
    match operation {
        Operation::Put(put) => Some(&put.key),
        Operation::DeleteRange(delete) => Some(&delete.key),
        Operation::Txn(txn) => txn.compare.first().map(|compare| &compare.key[..]),
        _ => None,
    }
}

/// The store of a member.
#[derive(Debug, Default)]
pub struct Store {
    pub(super) state: State,
}

impl Store {
    /// An empty store, at revision 1.
    #[must_use]
    pub fn new() -> Self {
        Store::default()
    }

    /// A store that goes on from a published state, apart from the one that published it. O(1): they share what neither
    /// changes.
    #[must_use]
    pub fn continued(view: &View) -> Self {
        let state = State {
            origin: Arc::default(),
            ..view.state.clone()
        };
        Store { state }
    }

    /// The current revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.state.revision
    }

    /// The revision of the last compaction, -1 if there was none.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.state.compacted
    }

    /// Freezes the present state. O(1).
    #[must_use]
    pub fn publish(&self) -> Arc<View> {
        Arc::new(View {
            state: self.state.clone(),
        })
    }

    /// Loads what applying these will look at, for up to [`TOUCHED`](super::TOUCHED) single keys. Changes nothing.
    pub fn touch<'a>(&self, operations: impl Iterator<Item = &'a Operation>) {
        self.state.keys.touch(operations.filter_map(only_key));
    }

    /// Carries out a command of the log. A refused command changes nothing; that it was refused
    /// is the same on every member.
    ///
    /// # Errors
    /// Why it was refused. [`Error::UnknownCommand`] and [`Error::Value`] are no refusals: the first must stop the member, the
    /// second as well, unless the value is healed and the command applied again. It has changed nothing then, unless the
    /// revision is another one: a value was moved to a file, and could not be read there, while a transaction was carried out.
    pub fn apply(&mut self, command: &Command, position: Position) -> Result<Response, Error> {
        let operation = command.operation.as_ref().ok_or(Error::UnknownCommand)?;
        let state = &mut self.state;
        state.alarms.check(operation)?;
        check_following(state.following.as_ref(), operation)?;
        state.permit(operation, command.actor.as_ref())?;
        match operation {
            Operation::Put(put) => {
                state.check_put(put)?;
                let mut change = Change::begin(state);
                let response = change.put(put);
                change.end();
                response.map(Response::Put)
            }
            Operation::DeleteRange(delete) => {
                let mut change = Change::begin(state);
                let response = change.delete_range(delete);
                change.end();
                response.map(Response::DeleteRange)
            }
            Operation::Txn(txn) => state.txn(txn).map(Response::Txn),
            Operation::Compact(compact) => {
                state.compact(compact.revision)?;
                Ok(Response::Compact(CompactResponse {
                    revision: state.revision,
                }))
            }
            Operation::LeaseGrant(grant) => self.grant(grant).map(Response::LeaseGrant),
            Operation::LeaseRevoke(revoke) => {
                if !self.end_lease(revoke.id) {
                    return Err(Error::LeaseNotFound);
                }
                Ok(Response::LeaseRevoke(LeaseRevokeResponse {
                    revision: self.state.revision,
                }))
            }
            Operation::LeaseExpire(expire) => {
                Ok(Response::LeaseExpire(self.expire(expire, position)))
            }
            Operation::SetAlarm(change) => Ok(Response::SetAlarm(SetAlarmResponse {
                alarm: state.alarms.set(change)?,
                revision: state.revision,
            })),
            Operation::LeaseCheckpoint(note) => {
                Ok(Response::LeaseCheckpoint(self.note_leases(note, position)))
            }
            Operation::Auth(command) => state.apply_auth(command).map(Response::Auth),
            Operation::Follow(step) => state.advance(step).map(Response::Follow),
        }
    }

    /// Gives back memory that compactions have made free, for at most `budget` records. Changes
    /// nothing that can be seen, so each member may do it when it likes. Returns 0 when
    /// nothing is left, else an upper bound of it.
    pub fn reclaim(&mut self, budget: usize) -> usize {
        self.state.reclaim(budget, true)
    }

    /// The same of all records, also the newest, which are kept as a rule for readers that miss a few views: where space is
    /// short, since these records keep files of values open. A watcher that is behind by then is told of the compaction, as
    /// etcd tells it.
    pub fn reclaim_all(&mut self, budget: usize) -> usize {
        self.state.reclaim(budget, false)
    }

    fn grant(&mut self, grant: &LeaseGrant) -> Result<LeaseGrantResponse, Error> {
        let LeaseGrant { id, ttl } = *grant;
        if id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if ttl > MAX_LEASE_TTL {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.state.leases.get(id).is_some() {
            return Err(Error::LeaseExists);
        }
        let remaining = 0;
        self.state.leases.grant(LeaseInfo { id, ttl, remaining });
        Ok(LeaseGrantResponse {
            revision: self.state.revision,
            id,
            ttl,
        })
    }

    fn expire(&mut self, expire: &LeaseExpire, position: Position) -> LeaseExpireResponse {
        let mut expired = Vec::new();
        // Under the alarm about corruption no key is deleted: the leases wait.
        let of_term = expire.term == position.term || mutant!(LeaseOldTerm);
        // In a cluster that follows another one, it is that one whose leases expire.
        let held = self.state.alarms.any(AlarmKind::Corrupt) || self.state.following.is_some();
        if of_term && !held {
            for id in &expire.ids {
                if self.end_lease(*id) {
                    expired.push(*id);
                }
            }
        }
        LeaseExpireResponse {
            revision: self.state.revision,
            expired,
        }
    }

    fn note_leases(
        &mut self,
        note: &LeaseCheckpoint,
        position: Position,
    ) -> LeaseCheckpointResponse {
        let mut leases = Vec::new();
        if note.term == position.term {
            for remains in &note.leases {
                if self.state.leases.note(remains) {
                    leases.push(*remains);
                }
            }
        }
        LeaseCheckpointResponse {
            revision: self.state.revision,
            leases,
        }
    }

    /// Deletes the keys of a lease, in key order and one revision, and the lease.
    fn end_lease(&mut self, id: LeaseId) -> bool {
        if self.state.leases.get(id).is_none() {
            return false;
        }
        let keys = self.state.leases.keys(id);
        let mut change = Change::begin(&mut self.state);
        for key in &keys {
            change.delete_key(key);
        }
        change.end();
        self.state.leases.forget(id);
        true
    }
}
