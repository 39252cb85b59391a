//! The caller of a request and the permission that its method needs: tokens and certificates become
//! a user with an auth revision, which the store's rules check.
//!
//! Closed by default: a method without a rule does not compile, and code outside a call has no
//! user, which is refused while authentication is enabled.

use std::sync::Arc;

use http::Extensions;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::call::Services;
use super::convert::auth_error;
use crate::server::auth::certificate::CommonName;
use crate::server::auth::{Issuer, simple};
use crate::server::listen::serving::From;
use crate::server::metrics::client::Method;
use crate::server::process::clock;
use crate::server::scheduling::hosts::Host;
use crate::server::scheduling::turns;
use crate::store::{Actor, AuthError};
use crate::wire::error::EtcdError;

tokio::task_local! {
    /// The caller of the unary call that the task carries out.
    static CALLER: Caller;
}

/// The credentials of a request, not checked yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    token: Option<Arc<str>>,
    certificate: Option<CommonName>,
    from: Option<From>,
}

impl Caller {
    /// Reads the credentials of a request. etcd's own clients send `token`, gateways
    /// `authorization`.
    pub(super) fn of(metadata: &MetadataMap, extensions: &Extensions) -> Caller {
        let token = metadata
            .get("token")
            .or_else(|| metadata.get("authorization"))
            // A token that is no text is invalid.
            .map(|token| token.to_str().unwrap_or_default());
        let token = token.map(|token| token.strip_prefix("Bearer ").unwrap_or(token).into());
        // Through a gateway, the certificate is the gateway's own.
        let proxied = metadata.contains_key("grpcgateway-accept");
        Caller {
            token,
            certificate: extensions.get().filter(|_| !proxied).cloned(),
            from: extensions.get().copied(),
        }
    }

    /// Carries out a call as this caller.
    pub(super) async fn scope<F: Future>(self, call: F) -> F::Output {
        CALLER.scope(self, call).await
    }

    /// The host from which it calls; `None` for a Unix socket.
    pub(super) fn host(&self) -> Option<Host> {
        self.from.map(|from| Host::of(from.0))
    }

    pub(super) fn current() -> Caller {
        CALLER.try_with(Caller::clone).unwrap_or_default()
    }
}

/// The permission that a method needs before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// None here: what the call reads and writes is checked where that happens.
    Nothing,
    /// An authenticated user.
    User,
    /// The role `root`.
    Admin,
}

/// As in etcd. Changes of users and roles are checked when they are applied, and the permission for
/// alarms depends on the action.
fn needs(method: Method) -> Needs {
    use Method::*;
    match method {
        LeaseGrant | LeaseRevoke | LeaseTimeToLive | MemberList | Alarm | Status => Needs::User,
        Compact | MemberAdd | MemberRemove | MemberUpdate | MemberPromote | Defragment | Hash
        | HashKv | Snapshot | MoveLeader | Downgrade => Needs::Admin,
        Range | RangeStream | Put | DeleteRange | Txn | Watch | LeaseKeepAlive | LeaseLeases
        | HealthCheck | HealthWatch | AuthEnable | AuthDisable | AuthStatus | Authenticate
        | UserAdd | UserGet | UserList | UserDelete | UserChangePassword | UserGrantRole
        | UserRevokeRole | RoleAdd | RoleGet | RoleList | RoleDelete | RoleGrantPermission
        | RoleRevokePermission => Needs::Nothing,
        // Made of calls that are checked one by one.
        Campaign | Proclaim | Leader | Observe | Resign | Lock | Unlock => Needs::Nothing,
    }
}

impl Services {
    /// Refuses a caller that may not call this method at all.
    pub(super) async fn authorize(&self, method: Method, caller: &Caller) -> Result<(), Status> {
        let needs = needs(method);
        if needs == Needs::Nothing || !self.shared.member.latest().overview.auth().is_enabled() {
            return Ok(());
        }
        let actor = self.actor_of(caller).await?;
        let latest = self.shared.member.latest();
        permitted(match needs {
            Needs::Admin => latest.overview.auth().require_admin(actor.as_ref()),
            _ => latest.overview.auth().require_user(actor.as_ref()),
        })
    }

    /// Refuses the caller of the present call unless it has the role `root`.
    pub(super) async fn require_admin(&self) -> Result<(), Status> {
        let actor = self.actor().await?;
        let latest = self.shared.member.latest();
        permitted(latest.overview.auth().require_admin(actor.as_ref()))
    }

    /// The user of the present unary call; `None` while authentication is disabled, or if the
    /// request has no credentials.
    pub(super) async fn actor(&self) -> Result<Option<Actor>, Status> {
        self.actor_of(&Caller::current()).await
    }

    /// The user of a caller.
    pub(super) async fn actor_of(&self, caller: &Caller) -> Result<Option<Actor>, Status> {
        let shared = &self.shared;
        if !shared.member.latest().overview.auth().is_enabled() {
            return Ok(None);
        }
        let user = match (&caller.token, &caller.certificate) {
            (Some(token), _) => match &shared.issuer {
                Issuer::None => None,
                Issuer::Simple => self.holder(token).await,
                Issuer::Jwt(jwt) => {
                    return match jwt.check(token, clock::since_1970()) {
                        Some(actor) => Ok(Some(actor)),
                        None => Err(EtcdError::InvalidAuthToken.into()),
                    };
                }
            }
            .ok_or(EtcdError::InvalidAuthToken)?,
            (None, Some(name)) if shared.certificate_names => name.0.to_string(),
            _ => return Ok(None),
        };
        let revision = shared.member.latest().overview.auth().revision();
        Ok(Some(Actor { user, revision }))
    }

    /// The user of a simple token. Another member may have issued it a moment ago: the client
    /// received it after its entry was committed, so a member that has applied everything committed
    /// by now knows it, or it was never issued. Waiting for the entry itself would mean waiting for
    /// any index that a client makes up.
    async fn holder(&self, token: &str) -> Option<String> {
        let member = &self.shared.member;
        let index = simple::index(token)?;
        if member.latest().applied < index {
            // Any client can make up a token: one lookup per round of the thread.
            turns::pass().await;
            let committed = member.linearizable();
            let committed = tokio::time::timeout(self.shared.timeout / 2, committed).await;
            committed.ok()?.ok()?;
        }
        member.tokens().user(token)
    }
}

/// The store's decision as a gRPC status.
pub(super) fn permitted(judgement: Result<(), AuthError>) -> Result<(), Status> {
    judgement.map_err(|error| auth_error(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(headers: &[(&'static str, &'static str)]) -> Option<String> {
        let mut metadata = MetadataMap::new();
        for (name, value) in headers {
            metadata.insert(*name, value.parse().expect("a value"));
        }
        let caller = Caller::of(&metadata, &Extensions::new());
        caller.token.map(|token| token.to_string())
    }

    #[test]
    fn token_is_read_from_either_header() {
        assert_eq!(token(&[]), None);
        assert_eq!(token(&[("token", "t")]).as_deref(), Some("t"));
        assert_eq!(token(&[("authorization", "a")]).as_deref(), Some("a"));
        assert_eq!(
            token(&[("authorization", "Bearer a")]).as_deref(),
            Some("a")
        );
        let both = [("authorization", "a"), ("token", "t")];
        assert_eq!(token(&both).as_deref(), Some("t"));
    }

    #[test]
    fn gateway_certificate_names_no_user() {
        let mut extensions = Extensions::new();
        extensions.insert(CommonName("alice".into()));
        let mut metadata = MetadataMap::new();
        let caller = Caller::of(&metadata, &extensions);
        assert_eq!(caller.certificate, Some(CommonName("alice".into())));
        metadata.insert(
            "grpcgateway-accept",
            "application/json".parse().expect("a value"),
        );
        assert_eq!(Caller::of(&metadata, &extensions).certificate, None);
    }

    #[tokio::test]
    async fn only_the_call_knows_its_caller() {
        assert!(Caller::current().token.is_none());
        let caller = Caller {
            token: Some("t".into()),
            ..Caller::default()
        };
        let inside = caller.scope(async { Caller::current().token }).await;
        assert_eq!(inside.as_deref(), Some("t"));
        assert!(Caller::current().token.is_none());
    }

    /// CVE-2026-33413: methods that only an administrator may call, and those that reveal the
    /// cluster.
    #[test]
    fn sensitive_maintenance_calls_need_admin() {
        for method in [Method::Snapshot, Method::HashKv, Method::MoveLeader] {
            assert_eq!(needs(method), Needs::Admin);
        }
        for method in [Method::Status, Method::Alarm, Method::MemberList] {
            assert_eq!(needs(method), Needs::User);
        }
    }
}
