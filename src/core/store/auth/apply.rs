//! Carrying out commands about users, roles and permissions: etcd's rules, in etcd's order of
//! checks. A refused command changes nothing.

use std::sync::Arc;

use super::{
    AuthCommand, AuthError, AuthOperation, AuthResponse, AuthState, Authenticate, Permission,
    ROOT_ROLE, ROOT_USER, Role, RoleGrantPermission, RoleRevokePermission, TokenChange, User,
    UserAdd, UserChangePassword, UserOptions,
};
use crate::store::Error;
use crate::store::state::State;

impl State {
    /// Carries out a command that its actor may give.
    pub(in crate::store) fn apply_auth(
        &mut self,
        command: &AuthCommand,
    ) -> Result<AuthResponse, Error> {
        let operation = command.operation.as_ref().ok_or(Error::UnknownCommand)?;
        let tokens = match operation {
            // Changes nothing and is common: views keep sharing the state.
            AuthOperation::Authenticate(request) => self.auth.authenticate(request),
            operation => Arc::make_mut(&mut self.auth).apply(operation),
        }?;
        Ok(AuthResponse {
            revision: self.revision,
            auth_revision: self.auth.revision,
            tokens,
        })
    }
}

impl AuthState {
    fn apply(&mut self, operation: &AuthOperation) -> Result<TokenChange, AuthError> {
        match operation {
            AuthOperation::Enable(_) => self.enable(),
            AuthOperation::Disable(_) => Ok(self.disable()),
            AuthOperation::Authenticate(request) => self.authenticate(request),
            AuthOperation::UserAdd(request) => self.user_add(request),
            AuthOperation::UserDelete(request) => self.user_delete(&request.name),
            AuthOperation::UserChangePassword(request) => self.change_password(request),
            AuthOperation::UserGrantRole(request) => self.grant_role(&request.user, &request.role),
            AuthOperation::UserRevokeRole(request) => {
                self.revoke_role(&request.user, &request.role)
            }
            AuthOperation::RoleAdd(request) => self.role_add(&request.name),
            AuthOperation::RoleDelete(request) => self.role_delete(&request.name),
            AuthOperation::RoleGrantPermission(request) => self.grant_permission(request),
            AuthOperation::RoleRevokePermission(request) => self.revoke_permission(request),
        }
    }

    /// Enabling is no change of users or permissions: the auth revision stays.
    fn enable(&mut self) -> Result<TokenChange, AuthError> {
        if !self.enabled {
            let root = self.user(ROOT_USER).ok_or(AuthError::RootUserNotExist)?;
            if !root.is_root() {
                return Err(AuthError::RootRoleNotExist);
            }
            self.enabled = true;
        }
        Ok(TokenChange::None)
    }

    fn disable(&mut self) -> TokenChange {
        if !self.enabled {
            return TokenChange::None;
        }
        self.enabled = false;
        self.revision += 1;
        TokenChange::AllRevoked
    }

    fn authenticate(&self, request: &Authenticate) -> Result<TokenChange, AuthError> {
        if !self.enabled {
            return Err(AuthError::NotEnabled);
        }
        let user = self.user(&request.user).ok_or(AuthError::AuthFailed)?;
        if user.has_no_password() {
            return Err(AuthError::AuthFailed);
        }
        if request.revision != self.revision {
            return Err(AuthError::OldRevision);
        }
        if request.token_prefix.is_empty() {
            return Ok(TokenChange::None);
        }
        Ok(TokenChange::Issued {
            user: request.user.clone(),
            prefix: request.token_prefix.clone(),
            issued_ms: request.issued_ms,
        })
    }

    fn user_add(&mut self, request: &UserAdd) -> Result<TokenChange, AuthError> {
        if request.name.is_empty() {
            return Err(AuthError::UserEmpty);
        }
        if self.users.contains_key(&request.name) {
            return Err(AuthError::UserExists);
        }
        let no_password = request.no_password;
        let user = User {
            name: request.name.clone(),
            password: request.password.clone(),
            roles: Vec::new(),
            options: Some(UserOptions { no_password }),
        };
        self.users.insert(request.name.clone(), user);
        self.changed();
        Ok(TokenChange::None)
    }

    fn user_delete(&mut self, name: &str) -> Result<TokenChange, AuthError> {
        if self.enabled && name == ROOT_USER {
            return Err(AuthError::InvalidManagement);
        }
        self.users.remove(name).ok_or(AuthError::UserNotFound)?;
        self.changed();
        Ok(TokenChange::Revoked {
            user: name.to_owned(),
        })
    }

    fn change_password(&mut self, request: &UserChangePassword) -> Result<TokenChange, AuthError> {
        let user = self.user_mut(&request.name)?;
        user.password = if user.has_no_password() {
            bytes::Bytes::new()
        } else {
            request.password.clone()
        };
        self.changed();
        Ok(TokenChange::Revoked {
            user: request.name.clone(),
        })
    }

    /// The role `root` need not exist to be granted.
    fn grant_role(&mut self, name: &str, role: &str) -> Result<TokenChange, AuthError> {
        let known = role == ROOT_ROLE || self.roles.contains_key(role);
        let user = self.user_mut(name)?;
        if !known {
            return Err(AuthError::RoleNotFound);
        }
        if let Err(at) = user.roles.binary_search_by(|known| (**known).cmp(role)) {
            user.roles.insert(at, role.to_owned());
            self.changed();
        }
        Ok(TokenChange::None)
    }

    fn revoke_role(&mut self, name: &str, role: &str) -> Result<TokenChange, AuthError> {
        if self.enabled && name == ROOT_USER && role == ROOT_ROLE {
            return Err(AuthError::InvalidManagement);
        }
        let user = self.user_mut(name)?;
        if !take_role(user, role) {
            return Err(AuthError::RoleNotGranted);
        }
        self.changed();
        Ok(TokenChange::None)
    }

    fn role_add(&mut self, name: &str) -> Result<TokenChange, AuthError> {
        if name.is_empty() {
            return Err(AuthError::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(AuthError::RoleExists);
        }
        let role = Role {
            name: name.to_owned(),
            permissions: Vec::new(),
        };
        self.roles.insert(name.to_owned(), role);
        self.changed();
        Ok(TokenChange::None)
    }

    fn role_delete(&mut self, name: &str) -> Result<TokenChange, AuthError> {
        if self.enabled && name == ROOT_ROLE {
            return Err(AuthError::InvalidManagement);
        }
        self.roles.remove(name).ok_or(AuthError::RoleNotFound)?;
        for user in self.users.values_mut() {
            take_role(user, name);
        }
        self.changed();
        Ok(TokenChange::None)
    }

    /// As in etcd, only the first permission with the same first key determines whether its kind is changed or another
    /// permission is added.
    fn grant_permission(
        &mut self,
        request: &RoleGrantPermission,
    ) -> Result<TokenChange, AuthError> {
        let given = request
            .permission
            .as_ref()
            .ok_or(AuthError::PermissionNotGiven)?;
        if !is_span(given) {
            return Err(AuthError::InvalidManagement);
        }
        let permissions = &mut self.role_mut(&request.role)?.permissions;
        let at = permissions.partition_point(|known| known.key < given.key);
        match permissions.get_mut(at) {
            Some(known) if known.key == given.key && known.range_end == given.range_end => {
                known.kind = given.kind;
            }
            _ => {
                let behind = permissions.partition_point(|known| known.key <= given.key);
                permissions.insert(behind, given.clone());
            }
        }
        self.changed();
        Ok(TokenChange::None)
    }

    fn revoke_permission(
        &mut self,
        request: &RoleRevokePermission,
    ) -> Result<TokenChange, AuthError> {
        let permissions = &mut self.role_mut(&request.role)?.permissions;
        let before = permissions.len();
        permissions
            .retain(|known| known.key != request.key || known.range_end != request.range_end);
        if permissions.len() == before {
            return Err(AuthError::PermissionNotGranted);
        }
        self.changed();
        Ok(TokenChange::None)
    }

    fn changed(&mut self) {
        self.revision += 1;
        self.merge_permissions();
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User, AuthError> {
        self.users.get_mut(name).ok_or(AuthError::UserNotFound)
    }

    fn role_mut(&mut self, name: &str) -> Result<&mut Role, AuthError> {
        self.roles.get_mut(name).ok_or(AuthError::RoleNotFound)
    }
}

/// Takes a role from a user; false if the user had it not.
fn take_role(user: &mut User, role: &str) -> bool {
    let before = user.roles.len();
    user.roles.retain(|known| known != role);
    user.roles.len() < before
}

/// Whether a permission names a span that can hold a key.
fn is_span(permission: &Permission) -> bool {
    let (key, end) = (&permission.key[..], &permission.range_end[..]);
    !key.is_empty() && (end.is_empty() || key < end || *end == [0])
}
