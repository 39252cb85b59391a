//! `quorate.v1.Access` on the peer port: users, roles and permissions as an operator keeps them. Every call was
//! authenticated before it arrives here. Never gives a token, shows a password's hash, or enables authentication
//! without a user root, which the store refuses.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::MemberRuntime;
use super::epochs::Epochs;
use crate::server::auth::password::{self, Passwords};
use crate::server::core::handle::{Latest, Published, RequestError};
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::server::scheduling::aside::Who;
use crate::store::{
    self, Actor, AuthDisable, AuthEnable, AuthError, AuthOperation, Error as StoreError, Operation,
    Permission, ROOT_USER, RoleGrantPermission, RoleName, RoleRevokePermission, UserAdd,
    UserChangePassword, UserDelete, UserRole,
};
use crate::wire::member as proto;
use crate::wire::member::access_server::{Access, AccessServer};
use proto::change_access_request::Change;

/// The service, for callers with the operator's key.
pub(super) fn service(
    local: Arc<MemberRuntime>,
    epochs: Arc<Epochs>,
    verifier: &Verifier,
) -> Verified<AccessServer<Service>> {
    let cost = local.config.auth.bcrypt_cost;
    let service = AccessServer::new(Service {
        local,
        epochs,
        // Apart from those of clients, who may be many.
        passwords: Passwords::new(cost, 1, password::PATIENCE),
    });
    Verified::new(service, verifier.clone())
}

pub(super) struct Service {
    local: Arc<MemberRuntime>,
    epochs: Arc<Epochs>,
    passwords: Passwords,
}

#[tonic::async_trait]
impl Access for Service {
    async fn show(
        &self,
        request: Request<proto::ShowAccessRequest>,
    ) -> Result<Response<proto::ShowAccessResponse>, Status> {
        let asked = request.into_inner();
        let published = self.settled().await?;
        let auth = published.view.auth();
        let users = asked.users.iter().filter_map(|name| auth.user(name));
        let roles = asked.roles.iter().filter_map(|name| auth.role(name));
        Ok(Response::new(proto::ShowAccessResponse {
            auth_revision: auth.revision(),
            enabled: auth.is_enabled(),
            users: users.map(shown_user).collect(),
            roles: roles.map(shown_role).collect(),
            following: published.view.overview().following().is_some(),
        }))
    }

    async fn check_password(
        &self,
        request: Request<proto::CheckPasswordRequest>,
    ) -> Result<Response<proto::CheckPasswordResponse>, Status> {
        let asked = request.into_inner();
        let published = self.settled().await?;
        let auth = published.view.auth();
        let hash = auth
            .user(&asked.user)
            .filter(|user| !user.has_no_password())
            .map(|user| user.password.clone());
        let auth_revision = auth.revision();
        drop(published);
        let right = match hash {
            None => false,
            Some(hash) => {
                let who = who(&asked.user);
                self.passwords.matches(who, asked.password, hash).await?
            }
        };
        Ok(Response::new(proto::CheckPasswordResponse {
            right,
            auth_revision,
        }))
    }

    async fn change(
        &self,
        request: Request<proto::ChangeAccessRequest>,
    ) -> Result<Response<proto::ChangeAccessResponse>, Status> {
        let request = request.into_inner();
        self.epochs.heard(request.epoch)?;
        let change = request.change.ok_or_else(|| {
            Status::invalid_argument("no change is given, or one of a newer kind")
        })?;
        let operation = self.operation(change).await?;
        // Last: a password takes a while to hash.
        self.is_current(request.auth_revision).await?;
        let auth_revision = self.propose(operation).await?;
        Ok(Response::new(proto::ChangeAccessResponse { auth_revision }))
    }
}

impl Service {
    async fn settled(&self) -> Result<Arc<Published>, Status> {
        let settled = self.local.handle.linearizable().await;
        settled.map_err(|error| status(&error))
    }

    /// Whether users and roles are still those on which the caller decided.
    async fn is_current(&self, expected: u64) -> Result<(), Status> {
        let current = self.settled().await?.view.auth().revision();
        if current == expected {
            return Ok(());
        }
        Err(Status::aborted(format!(
            "users or roles have changed since: the auth revision is {current}, not {expected}"
        )))
    }

    async fn propose(&self, operation: AuthOperation) -> Result<u64, Status> {
        let handle = &self.local.handle;
        let mut command = store::Command::from(Operation::Auth(operation.into()));
        let latest = handle.latest();
        command.actor = actor(&latest);
        let limits = store::Limits::default();
        store::check(&command, &limits, &latest.overview).map_err(|error| status(&error.into()))?;
        drop(latest);
        match handle.propose(command).await {
            Ok((store::Response::Auth(response), _)) => Ok(response.auth_revision),
            Ok(_) => Err(Status::internal(
                "the answer is not that of a change of users",
            )),
            Err(error) => Err(status(&error)),
        }
    }

    async fn operation(&self, change: Change) -> Result<AuthOperation, Status> {
        Ok(match change {
            Change::AddUser(user) => AuthOperation::UserAdd(UserAdd {
                password: match user.no_password {
                    true => Bytes::new(),
                    false => self.hash(&user.name, user.password).await?,
                },
                name: user.name,
                no_password: user.no_password,
            }),
            Change::DeleteUser(name) => AuthOperation::UserDelete(UserDelete { name }),
            Change::SetPassword(set) => AuthOperation::UserChangePassword(UserChangePassword {
                password: self.hash(&set.name, set.password).await?,
                name: set.name,
            }),
            Change::GrantRole(given) => AuthOperation::UserGrantRole(role_of_user(given)),
            Change::RevokeRole(taken) => AuthOperation::UserRevokeRole(role_of_user(taken)),
            Change::AddRole(name) => AuthOperation::RoleAdd(RoleName { name }),
            Change::DeleteRole(name) => AuthOperation::RoleDelete(RoleName { name }),
            Change::GrantPermission(given) => {
                AuthOperation::RoleGrantPermission(RoleGrantPermission {
                    role: given.role,
                    permission: given.permission.map(permission),
                })
            }
            Change::RevokePermission(taken) => {
                let permission = taken.permission.unwrap_or_default();
                AuthOperation::RoleRevokePermission(RoleRevokePermission {
                    role: taken.role,
                    key: permission.key,
                    range_end: permission.range_end,
                })
            }
            Change::Enabled(true) => AuthOperation::Enable(AuthEnable {}),
            Change::Enabled(false) => AuthOperation::Disable(AuthDisable {}),
        })
    }

    async fn hash(&self, user: &str, password: String) -> Result<Bytes, Status> {
        if password.is_empty() || password.len() > password::LONGEST {
            return Err(Status::invalid_argument(format!(
                "a password has 1 to {} bytes, and this one has {}",
                password::LONGEST,
                password.len()
            )));
        }
        let hash = self.passwords.hash(who(user), password).await?;
        hash.ok_or_else(|| Status::internal("no randomness for a password's hash"))
    }
}

/// For whom a change is proposed: while authentication is enabled there is a user root with the role root, which the
/// store lets nobody take away.
fn actor(latest: &Latest) -> Option<Actor> {
    let auth = latest.overview.auth();
    auth.is_enabled().then(|| Actor {
        user: ROOT_USER.to_owned(),
        revision: auth.revision(),
    })
}

fn who(user: &str) -> Who {
    Who {
        host: None,
        name: user.to_owned(),
    }
}

fn shown_user(user: &store::User) -> proto::AccessUser {
    proto::AccessUser {
        name: user.name.clone(),
        no_password: user.has_no_password(),
        roles: user.roles.clone(),
    }
}

fn shown_role(role: &store::Role) -> proto::AccessRole {
    let permissions = role.permissions.iter();
    let permissions = permissions.map(|one| proto::AccessPermission {
        kind: one.kind,
        key: one.key.clone(),
        range_end: one.range_end.clone(),
    });
    proto::AccessRole {
        name: role.name.clone(),
        permissions: permissions.collect(),
    }
}

fn role_of_user(given: proto::RoleOfUser) -> UserRole {
    UserRole {
        user: given.user,
        role: given.role,
    }
}

fn permission(given: proto::AccessPermission) -> Permission {
    Permission {
        kind: given.kind,
        key: given.key,
        range_end: given.range_end,
    }
}

/// INVALID_ARGUMENT for what is refused whenever it is asked, ABORTED for what another look settles.
fn status(error: &RequestError) -> Status {
    let text = error.to_string();
    match error {
        RequestError::Store(StoreError::Auth(refused)) => match refused {
            AuthError::InvalidManagement
            | AuthError::RootUserNotExist
            | AuthError::RootRoleNotExist
            | AuthError::UserEmpty
            | AuthError::RoleEmpty
            | AuthError::PermissionNotGiven => Status::invalid_argument(text),
            _ => Status::aborted(text),
        },
        RequestError::Store(StoreError::NoSpace) => Status::resource_exhausted(text),
        RequestError::Store(StoreError::Corrupt) => Status::unavailable(text),
        RequestError::Store(_) | RequestError::NotAMember => Status::failed_precondition(text),
        _ => Status::unavailable(text),
    }
}
