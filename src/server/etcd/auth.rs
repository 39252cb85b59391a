//! The Auth service. Changes go through the log, which checks their caller when they are applied;
//! reads are answered from a state that includes everything committed before.

use std::time::Instant;

use bytes::Bytes;
use tonic::{Code, Request, Response, Status};

use super::call::{Learner, Services};
use super::caller::{Caller, permitted};
use super::convert::auth_error;
use super::kv::mismatched;
use crate::server::auth::{Issuer, password, simple};
use crate::server::listen::quiet::Quiet;
use crate::server::metrics::client::Method;
use crate::server::process::clock;
use crate::server::scheduling::aside::Who;
use crate::server::scheduling::hosts::Host;
use crate::store::{self, Actor, AuthError, AuthOperation, Operation, RoleName, UserRole};
use crate::wire::error::EtcdError;
use crate::wire::etcd::{self, auth_server::Auth};
use crate::wire::{authpb, etcd::ResponseHeader};

/// A client that guesses passwords may send any number.
static WRONG: Quiet = Quiet::new();

/// A call that changes users, roles or permissions: its name, its messages, its operation.
macro_rules! change {
    ($self:ident, $method:ident, $request:ident, $answer:ident, $body:expr) => {{
        let work = |request| async move {
            let operation: AuthOperation = $body($self, request).await?;
            let header = $self.manage(operation).await?;
            Ok(etcd::$answer { header })
        };
        $self
            .unary(Method::$method, Learner::Refused, $request, work)
            .await
    }};
}

#[tonic::async_trait]
impl Auth for Services {
    async fn auth_enable(
        &self,
        request: Request<etcd::AuthEnableRequest>,
    ) -> Result<Response<etcd::AuthEnableResponse>, Status> {
        change!(self, AuthEnable, request, AuthEnableResponse, enable)
    }

    async fn auth_disable(
        &self,
        request: Request<etcd::AuthDisableRequest>,
    ) -> Result<Response<etcd::AuthDisableResponse>, Status> {
        change!(self, AuthDisable, request, AuthDisableResponse, disable)
    }

    async fn auth_status(
        &self,
        request: Request<etcd::AuthStatusRequest>,
    ) -> Result<Response<etcd::AuthStatusResponse>, Status> {
        self.unary(Method::AuthStatus, Learner::Refused, request, |_| async {
            let state = self.state(false).await?;
            // Any client may ask, but not with an invalid token.
            self.actor().await?;
            Ok(etcd::AuthStatusResponse {
                header: self.header(state.view.revision()),
                enabled: state.view.auth().is_enabled(),
                auth_revision: state.view.auth().revision(),
            })
        })
        .await
    }

    async fn authenticate(
        &self,
        request: Request<etcd::AuthenticateRequest>,
    ) -> Result<Response<etcd::AuthenticateResponse>, Status> {
        let work = |request| self.give_token(request);
        self.unary(Method::Authenticate, Learner::Refused, request, work)
            .await
    }

    async fn user_add(
        &self,
        request: Request<etcd::AuthUserAddRequest>,
    ) -> Result<Response<etcd::AuthUserAddResponse>, Status> {
        change!(self, UserAdd, request, AuthUserAddResponse, user_add)
    }

    async fn user_get(
        &self,
        request: Request<etcd::AuthUserGetRequest>,
    ) -> Result<Response<etcd::AuthUserGetResponse>, Status> {
        self.unary(
            Method::UserGet,
            Learner::Refused,
            request,
            |request| async move {
                let state = self.state(false).await?;
                let actor = self.actor().await?;
                let user = state.view.auth().show_user(actor.as_ref(), &request.name);
                Ok(etcd::AuthUserGetResponse {
                    header: self.header(state.view.revision()),
                    roles: user.map_err(refused)?.roles.clone(),
                })
            },
        )
        .await
    }

    async fn user_list(
        &self,
        request: Request<etcd::AuthUserListRequest>,
    ) -> Result<Response<etcd::AuthUserListResponse>, Status> {
        self.unary(Method::UserList, Learner::Refused, request, |_| async {
            let state = self.state(false).await?;
            let actor = self.actor().await?;
            let auth = state.view.auth();
            permitted(auth.require_admin(actor.as_ref()))?;
            Ok(etcd::AuthUserListResponse {
                header: self.header(state.view.revision()),
                users: auth.users().map(|user| user.name.clone()).collect(),
            })
        })
        .await
    }

    async fn user_delete(
        &self,
        request: Request<etcd::AuthUserDeleteRequest>,
    ) -> Result<Response<etcd::AuthUserDeleteResponse>, Status> {
        change!(
            self,
            UserDelete,
            request,
            AuthUserDeleteResponse,
            user_delete
        )
    }

    async fn user_change_password(
        &self,
        request: Request<etcd::AuthUserChangePasswordRequest>,
    ) -> Result<Response<etcd::AuthUserChangePasswordResponse>, Status> {
        change!(
            self,
            UserChangePassword,
            request,
            AuthUserChangePasswordResponse,
            change_password
        )
    }

    async fn user_grant_role(
        &self,
        request: Request<etcd::AuthUserGrantRoleRequest>,
    ) -> Result<Response<etcd::AuthUserGrantRoleResponse>, Status> {
        change!(
            self,
            UserGrantRole,
            request,
            AuthUserGrantRoleResponse,
            grant_role
        )
    }

    async fn user_revoke_role(
        &self,
        request: Request<etcd::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<etcd::AuthUserRevokeRoleResponse>, Status> {
        change!(
            self,
            UserRevokeRole,
            request,
            AuthUserRevokeRoleResponse,
            revoke_role
        )
    }

    async fn role_add(
        &self,
        request: Request<etcd::AuthRoleAddRequest>,
    ) -> Result<Response<etcd::AuthRoleAddResponse>, Status> {
        change!(self, RoleAdd, request, AuthRoleAddResponse, role_add)
    }

    async fn role_get(
        &self,
        request: Request<etcd::AuthRoleGetRequest>,
    ) -> Result<Response<etcd::AuthRoleGetResponse>, Status> {
        self.unary(
            Method::RoleGet,
            Learner::Refused,
            request,
            |request| async move {
                let state = self.state(false).await?;
                let actor = self.actor().await?;
                let role = state.view.auth().show_role(actor.as_ref(), &request.role);
                Ok(etcd::AuthRoleGetResponse {
                    header: self.header(state.view.revision()),
                    perm: permissions(role.map_err(refused)?),
                })
            },
        )
        .await
    }

    async fn role_list(
        &self,
        request: Request<etcd::AuthRoleListRequest>,
    ) -> Result<Response<etcd::AuthRoleListResponse>, Status> {
        self.unary(Method::RoleList, Learner::Refused, request, |_| async {
            let state = self.state(false).await?;
            let actor = self.actor().await?;
            let auth = state.view.auth();
            permitted(auth.require_admin(actor.as_ref()))?;
            Ok(etcd::AuthRoleListResponse {
                header: self.header(state.view.revision()),
                roles: auth.roles().map(|role| role.name.clone()).collect(),
            })
        })
        .await
    }

    async fn role_delete(
        &self,
        request: Request<etcd::AuthRoleDeleteRequest>,
    ) -> Result<Response<etcd::AuthRoleDeleteResponse>, Status> {
        change!(
            self,
            RoleDelete,
            request,
            AuthRoleDeleteResponse,
            role_delete
        )
    }

    async fn role_grant_permission(
        &self,
        request: Request<etcd::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<etcd::AuthRoleGrantPermissionResponse>, Status> {
        change!(
            self,
            RoleGrantPermission,
            request,
            AuthRoleGrantPermissionResponse,
            grant_permission
        )
    }

    async fn role_revoke_permission(
        &self,
        request: Request<etcd::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<etcd::AuthRoleRevokePermissionResponse>, Status> {
        change!(
            self,
            RoleRevokePermission,
            request,
            AuthRoleRevokePermissionResponse,
            revoke_permission
        )
    }
}

type Built = Result<AuthOperation, Status>;

async fn enable(_: &Services, _: etcd::AuthEnableRequest) -> Built {
    Ok(AuthOperation::Enable(store::AuthEnable {}))
}

async fn disable(_: &Services, _: etcd::AuthDisableRequest) -> Built {
    Ok(AuthOperation::Disable(store::AuthDisable {}))
}

async fn user_add(services: &Services, request: etcd::AuthUserAddRequest) -> Built {
    let no_password = request.options.is_some_and(|options| options.no_password);
    let password = match no_password {
        true => Bytes::new(),
        false => services.hash(request.password).await?,
    };
    Ok(AuthOperation::UserAdd(store::UserAdd {
        name: request.name,
        password,
        no_password,
    }))
}

async fn user_delete(_: &Services, request: etcd::AuthUserDeleteRequest) -> Built {
    let name = request.name;
    Ok(AuthOperation::UserDelete(store::UserDelete { name }))
}

/// As in etcd, a hash sent instead of a password is stored as it is.
async fn change_password(
    services: &Services,
    request: etcd::AuthUserChangePasswordRequest,
) -> Built {
    use base64::Engine as _;
    let password = match request.password.is_empty() {
        false => services.hash(request.password).await?,
        true => base64::engine::general_purpose::STANDARD
            .decode(request.hashed_password)
            .map_err(|_| no_password_user())?
            .into(),
    };
    let name = request.name;
    let change = store::UserChangePassword { name, password };
    Ok(AuthOperation::UserChangePassword(change))
}

async fn grant_role(_: &Services, request: etcd::AuthUserGrantRoleRequest) -> Built {
    let etcd::AuthUserGrantRoleRequest { user, role } = request;
    Ok(AuthOperation::UserGrantRole(UserRole { user, role }))
}

async fn revoke_role(_: &Services, request: etcd::AuthUserRevokeRoleRequest) -> Built {
    let (user, role) = (request.name, request.role);
    Ok(AuthOperation::UserRevokeRole(UserRole { user, role }))
}

async fn role_add(_: &Services, request: etcd::AuthRoleAddRequest) -> Built {
    let name = request.name;
    Ok(AuthOperation::RoleAdd(RoleName { name }))
}

async fn role_delete(_: &Services, request: etcd::AuthRoleDeleteRequest) -> Built {
    let name = request.role;
    Ok(AuthOperation::RoleDelete(RoleName { name }))
}

async fn grant_permission(_: &Services, request: etcd::AuthRoleGrantPermissionRequest) -> Built {
    let permission = request.perm.map(|given| store::Permission {
        kind: given.perm_type,
        key: given.key,
        range_end: given.range_end,
    });
    let role = request.name;
    let grant = store::RoleGrantPermission { role, permission };
    Ok(AuthOperation::RoleGrantPermission(grant))
}

async fn revoke_permission(_: &Services, request: etcd::AuthRoleRevokePermissionRequest) -> Built {
    let revoked = store::RoleRevokePermission {
        role: request.role,
        key: request.key,
        range_end: request.range_end,
    };
    Ok(AuthOperation::RoleRevokePermission(revoked))
}

impl Services {
    /// Proposes a change and returns the header of its response.
    async fn manage(&self, operation: AuthOperation) -> Result<Option<ResponseHeader>, Status> {
        match self.propose(Operation::Auth(operation.into())).await? {
            store::Response::Auth(response) => Ok(self.header(response.revision)),
            other => Err(mismatched(&other)),
        }
    }

    /// The hash of a password, for callers that may set one: hashing is expensive, so it is not
    /// done for others.
    async fn hash(&self, password: String) -> Result<Bytes, Status> {
        if password.len() > password::LONGEST {
            return Err(Status::unknown("bcrypt: password length exceeds 72 bytes"));
        }
        self.state(false).await?;
        self.require_admin().await?;
        let hash = self.shared.passwords.hash(from().into(), password).await?;
        hash.ok_or_else(|| Status::internal("etcdserver: no randomness for a password's hash"))
    }

    /// Exchanges a password for a token. The entry contains the auth revision at which the password
    /// was correct; if that has changed meanwhile, the password is checked again.
    async fn give_token(
        &self,
        request: etcd::AuthenticateRequest,
    ) -> Result<etcd::AuthenticateResponse, Status> {
        loop {
            self.state(false).await?;
            let revision = self.check_password(&request).await?;
            let token_prefix = match &self.shared.issuer {
                Issuer::Simple => simple::letters()
                    .ok_or_else(|| Status::internal("etcdserver: no randomness for a token"))?,
                Issuer::Jwt(_) => String::new(),
                Issuer::None => return Err(EtcdError::AuthFailed.into()),
            };
            let operation = AuthOperation::Authenticate(store::Authenticate {
                user: request.name.clone(),
                revision,
                token_prefix: token_prefix.clone(),
                issued_ms: clock::unix_ms(),
            });
            // A client that asks for a token may still send an old one.
            let anonymous = Caller::default();
            let given = self.propose_for(&anonymous, Operation::Auth(operation.into()));
            let (response, index) = match given.await {
                Err(error) if error.message() == EtcdError::AuthOldRevision.text() => continue,
                given => given?,
            };
            let token = match &self.shared.issuer {
                Issuer::Jwt(jwt) => {
                    let actor = Actor {
                        user: request.name,
                        revision,
                    };
                    jwt.sign(&actor, clock::since_1970())
                        .ok_or_else(verify_only)?
                }
                _ => format!("{token_prefix}.{index}"),
            };
            return Ok(etcd::AuthenticateResponse {
                header: self.header(response.revision()),
                token,
            });
        }
    }

    /// The auth revision at which the password was correct.
    async fn check_password(&self, request: &etcd::AuthenticateRequest) -> Result<u64, Status> {
        let latest = self.shared.member.latest();
        let auth = latest.overview.auth();
        if !auth.is_enabled() {
            return Err(EtcdError::AuthNotEnabled.into());
        }
        let user = auth.user(&request.name).ok_or(EtcdError::AuthFailed)?;
        if user.has_no_password() {
            return Err(no_password_user());
        }
        let (hash, revision) = (user.password.clone(), auth.revision());
        let password = request.password.clone();
        drop(latest);
        // By host, and within it by user: attempts at one user's password delay neither other users
        // nor the same user on other hosts.
        let who = Who {
            host: from(),
            name: request.name.clone(),
        };
        let passwords = &self.shared.passwords;
        if passwords.matches(who, password, hash).await? {
            Ok(revision)
        } else {
            if let Some(left_out) = WRONG.line(Instant::now()) {
                let user = &request.name;
                tracing::warn!(user, left_out, "a wrong password was given");
            }
            Err(EtcdError::AuthFailed.into())
        }
    }
}

/// The host of the caller, as the key of its turns.
fn from() -> Option<Host> {
    Caller::current().host()
}

fn refused(error: AuthError) -> Status {
    auth_error(error).into()
}

/// etcd has no code for this one.
fn no_password_user() -> Status {
    Status::new(
        Code::Unknown,
        "auth: authentication failed, password was given for no password user",
    )
}

fn verify_only() -> Status {
    Status::new(
        Code::Unknown,
        "auth: token signing attempted with verify-only key",
    )
}

/// The role `root` is shown with all permissions, whatever it was granted.
fn permissions(role: &store::Role) -> Vec<authpb::Permission> {
    if role.name == store::ROOT_ROLE {
        return vec![authpb::Permission {
            perm_type: authpb::permission::Type::Readwrite.into(),
            key: Bytes::new(),
            range_end: Bytes::from_static(b"\0"),
        }];
    }
    let shown = role.permissions.iter().map(|known| authpb::Permission {
        perm_type: known.kind,
        key: known.key.clone(),
        range_end: known.range_end.clone(),
    });
    shown.collect()
}
