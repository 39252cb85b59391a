//! Who may do what. One function for each kind of request, all on one frozen state, so that the same state is checked
//! and read or written.

use bytes::Bytes;

use super::{Actor, AuthError, AuthOperation, AuthState, Role, User};
use crate::mutants::mutant;
use crate::store::state::State;
use crate::store::view::View;
use crate::store::{DeleteRange, LeaseId, Op, Operation, Put, Range, RequestOp, Txn};

impl AuthState {
    /// Whether someone is known, if anyone has to be.
    ///
    /// # Errors
    /// [`AuthError::UserEmpty`].
    pub fn require_user(&self, actor: Option<&Actor>) -> Result<(), AuthError> {
        if self.enabled && actor.is_none() {
            return Err(AuthError::UserEmpty);
        }
        Ok(())
    }

    /// Whether the actor may do what only an administrator may. Any auth revision will do, as
    /// in etcd: nothing but the user's roles counts, and those are the present ones.
    ///
    /// # Errors
    /// [`AuthError::UserEmpty`], [`AuthError::UserNotFound`], [`AuthError::PermissionDenied`].
    pub fn require_admin(&self, actor: Option<&Actor>) -> Result<(), AuthError> {
        if !self.enabled {
            return Ok(());
        }
        let actor = actor.filter(|actor| !actor.user.is_empty());
        let actor = actor.ok_or(AuthError::UserEmpty)?;
        let user = self.user(&actor.user).ok_or(AuthError::UserNotFound)?;
        if user.is_root() {
            Ok(())
        } else {
            Err(AuthError::PermissionDenied)
        }
    }

    /// Whether the actor may read a span of keys, or watch it.
    ///
    /// # Errors
    /// [`AuthError::UserEmpty`], [`AuthError::OldRevision`], [`AuthError::PermissionDenied`].
    pub fn require_read(
        &self,
        actor: Option<&Actor>,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), AuthError> {
        self.require(actor, Access::Read, key, range_end)
    }

    /// Whether the actor may write a span of keys.
    ///
    /// # Errors
    /// As [`AuthState::require_read`].
    pub fn require_write(
        &self,
        actor: Option<&Actor>,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), AuthError> {
        self.require(actor, Access::Write, key, range_end)
    }

    /// A user as the actor may see it: an administrator sees all, anyone sees themselves.
    ///
    /// # Errors
    /// Those of [`AuthState::require_admin`], and [`AuthError::UserNotFound`].
    pub fn show_user(&self, actor: Option<&Actor>, name: &str) -> Result<&User, AuthError> {
        // To etcd, whoever gives no name is the user without one.
        let own = actor.map_or("", |actor| actor.user.as_str()) == name;
        match self.require_admin(actor) {
            Err(error) if !own => Err(error),
            _ => self.user(name).ok_or(AuthError::UserNotFound),
        }
    }

    /// A role as the actor may see it: an administrator sees all, anyone sees their own.
    ///
    /// # Errors
    /// Those of [`AuthState::require_admin`], and [`AuthError::RoleNotFound`].
    pub fn show_role(&self, actor: Option<&Actor>, name: &str) -> Result<&Role, AuthError> {
        let user = actor.and_then(|actor| self.user(&actor.user));
        let own = user.is_some_and(|user| user.roles.iter().any(|role| role == name));
        match self.require_admin(actor) {
            Err(error) if !own => Err(error),
            _ => self.role(name).ok_or(AuthError::RoleNotFound),
        }
    }

    fn require(
        &self,
        actor: Option<&Actor>,
        access: Access,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), AuthError> {
        if !self.enabled {
            return Ok(());
        }
        let actor = actor.filter(|actor| actor.revision != 0);
        let actor = actor.ok_or(AuthError::UserEmpty)?;
        if actor.revision < self.revision && !mutant!(AuthOldRevision) {
            return Err(AuthError::OldRevision);
        }
        let user = self.user(&actor.user).ok_or(AuthError::PermissionDenied)?;
        if user.is_root() {
            return Ok(());
        }
        let spans = self
            .permitted
            .get(&actor.user)
            .map(|permitted| match access {
                Access::Read => &permitted.read,
                Access::Write => &permitted.write,
            });
        match spans {
            Some(spans) if spans.cover(key, range_end) => Ok(()),
            _ => Err(AuthError::PermissionDenied),
        }
    }
}

#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
}

impl State {
    /// Whether an operation is permitted for its actor. Servers also grant and revoke leases and compact history;
    /// whether a client may is checked before proposing, as in etcd, so those pass here. Only a revocation by a client
    /// is checked.
    pub(in crate::store) fn permit(
        &self,
        operation: &Operation,
        actor: Option<&Actor>,
    ) -> Result<(), AuthError> {
        if !self.auth.enabled {
            return Ok(());
        }
        match operation {
            Operation::Put(put) => self.permit_put(actor, put),
            Operation::DeleteRange(delete) => self.permit_delete(actor, delete),
            Operation::Txn(txn) => self.permit_txn(actor, txn),
            Operation::LeaseRevoke(revoke) => self.permit_lease_write(actor, revoke.id),
            Operation::Auth(command) => match &command.operation {
                // A request for a token has none yet.
                None | Some(AuthOperation::Authenticate(_)) => Ok(()),
                Some(_) => self.auth.require_admin(actor),
            },
            _ => Ok(()),
        }
    }

    fn permit_put(&self, actor: Option<&Actor>, put: &Put) -> Result<(), AuthError> {
        self.auth.require_write(actor, &put.key, &[])?;
        mutant!(PutRightsUnchecked => return Ok(()));
        // A user who attaches a key to a lease can have its other keys deleted by revoking it.
        self.permit_lease_write(actor, put.lease)?;
        if put.prev_kv {
            self.auth.require_read(actor, &put.key, &[])?;
        }
        Ok(())
    }

    fn permit_delete(&self, actor: Option<&Actor>, delete: &DeleteRange) -> Result<(), AuthError> {
        let DeleteRange { key, range_end, .. } = delete;
        self.auth.require_write(actor, key, range_end)?;
        if delete.prev_kv {
            self.auth.require_read(actor, key, range_end)?;
        }
        Ok(())
    }

    /// All branches count, whichever will be taken, and every nested transaction: an answer reveals the result of the
    /// compares.
    fn permit_txn(&self, actor: Option<&Actor>, txn: &Txn) -> Result<(), AuthError> {
        for compare in &txn.compare {
            let (key, end) = (&compare.key, &compare.range_end);
            self.auth.require_read(actor, key, end)?;
        }
        for RequestOp { op } in txn.success.iter().chain(&txn.failure) {
            match op {
                Some(Op::Range(Range { key, range_end, .. })) => {
                    self.auth.require_read(actor, key, range_end)?;
                }
                Some(Op::Put(put)) => self.permit_put(actor, put)?,
                Some(Op::DeleteRange(delete)) => self.permit_delete(actor, delete)?,
                Some(Op::Txn(_)) if mutant!(NestedTxnUnchecked) => {}
                Some(Op::Txn(nested)) => self.permit_txn(actor, nested)?,
                None => {}
            }
        }
        Ok(())
    }

    fn permit_lease_write(&self, actor: Option<&Actor>, id: LeaseId) -> Result<(), AuthError> {
        if id == 0 || self.auth.require_admin(actor).is_ok() {
            return Ok(());
        }
        let keys = self.leases.keys(id);
        keys.iter()
            .try_for_each(|key| self.auth.require_write(actor, key, &[]))
    }

    fn permit_lease_read(&self, actor: Option<&Actor>, keys: &[Bytes]) -> Result<(), AuthError> {
        if self.auth.require_admin(actor).is_ok() {
            return Ok(());
        }
        keys.iter()
            .try_for_each(|key| self.auth.require_read(actor, key, &[]))
    }
}

impl View {
    /// Users, roles, and whether they count.
    #[must_use]
    pub fn auth(&self) -> &AuthState {
        &self.state.auth
    }

    /// Whether the actor may carry out a transaction.
    ///
    /// # Errors
    /// As [`AuthState::require_read`].
    pub fn permit_txn(&self, actor: Option<&Actor>, txn: &Txn) -> Result<(), AuthError> {
        if !self.state.auth.enabled {
            return Ok(());
        }
        self.state.permit_txn(actor, txn)
    }

    /// Whether the actor may keep a lease alive, and with it every key that is attached to it.
    ///
    /// # Errors
    /// [`AuthError::UserEmpty`], and those of [`AuthState::require_write`] for each key.
    pub fn permit_renewal(&self, actor: Option<&Actor>, id: LeaseId) -> Result<(), AuthError> {
        if !self.state.auth.enabled {
            return Ok(());
        }
        self.state.auth.require_user(actor)?;
        self.state.permit_lease_write(actor, id)
    }

    /// Whether the actor may see which keys are attached to a lease.
    ///
    /// # Errors
    /// [`AuthError::UserEmpty`], and those of [`AuthState::require_read`] for each key.
    pub fn permit_lease_keys(&self, actor: Option<&Actor>, id: LeaseId) -> Result<(), AuthError> {
        if !self.state.auth.enabled {
            return Ok(());
        }
        self.state.auth.require_user(actor)?;
        let keys = self.state.leases.keys(id);
        self.state.permit_lease_read(actor, &keys)
    }

    /// Whether the actor may list leases: as in etcd, only if it may read every key that is attached to any.
    ///
    /// # Errors
    /// As [`View::permit_lease_keys`].
    pub fn permit_leases(&self, actor: Option<&Actor>) -> Result<(), AuthError> {
        if !self.state.auth.enabled {
            return Ok(());
        }
        self.state.auth.require_user(actor)?;
        self.state
            .permit_lease_read(actor, &self.state.leases.attached())
    }
}
