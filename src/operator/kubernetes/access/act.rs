//! Carries out one step of a user or a role. Decides nothing: what has changed since it was observed is refused by the
//! API server or by the member.

use super::Accesses;
use super::connection::Secrets;
use super::links::Link;
use super::observe::user_name;
use crate::access_plan::{AccessChange, AccessStep, ClusterView, ObservedRole, ObservedUser};
use crate::crd::FINALIZER_ACCESS;
use crate::crd::access::{EtcdRole, EtcdUser, KeyAccess, KeySpan};
use crate::operator::kubernetes::lease;
use crate::operator::kubernetes::objects::set_finalizer;
use crate::operator::members;
use crate::operator::platform::Failure;
use crate::wire::member as proto;
use proto::change_access_request::Change;

impl Accesses {
    pub(super) async fn act_for_role(
        &self,
        role: &EtcdRole,
        observed: &ObservedRole,
        link: &mut Link,
        step: &AccessStep,
    ) -> Result<(), Failure> {
        self.may_act()?;
        let client = &self.shared.client;
        match step {
            AccessStep::Hold => set_finalizer(client, role, FINALIZER_ACCESS, true).await,
            AccessStep::LetGo => set_finalizer(client, role, FINALIZER_ACCESS, false).await,
            // A role has no Secret.
            AccessStep::WriteConnection { .. } => Ok(()),
            AccessStep::Change(change) => {
                let name = &observed.name;
                let revision = revision(&observed.cluster, |held| held.auth_revision)?;
                let wire = of_role(change, name);
                self.change(link, revision, (change, name), wire).await
            }
        }
    }

    pub(super) async fn act_for_user(
        &self,
        user: &EtcdUser,
        (observed, secrets): (&ObservedUser, &Secrets),
        link: &mut Link,
        step: &AccessStep,
    ) -> Result<(), Failure> {
        self.may_act()?;
        let client = &self.shared.client;
        match step {
            AccessStep::Hold => set_finalizer(client, user, FINALIZER_ACCESS, true).await,
            AccessStep::LetGo => set_finalizer(client, user, FINALIZER_ACCESS, false).await,
            AccessStep::WriteConnection {
                new_password,
                new_certificate,
            } => {
                let new = (*new_password, *new_certificate);
                self.write_connection(user, secrets, new).await
            }
            AccessStep::Change(change) => {
                let name = user_name(user);
                let revision = revision(&observed.cluster, |held| held.auth_revision)?;
                let wire = of_user(change, &name, secrets.password());
                self.change(link, revision, (change, &name), wire).await
            }
        }
    }

    /// Whether no other operator may act yet.
    fn may_act(&self) -> Result<(), Failure> {
        match self.shared.leadership.may_act() {
            true => Ok(()),
            false => Err(Failure::Retry(lease::NOT_RENEWED.to_owned())),
        }
    }

    /// One change of the cluster, by the member whose answer it was decided on.
    async fn change(
        &self,
        link: &mut Link,
        auth_revision: u64,
        (change, name): (&AccessChange, &str),
        wire: Option<Change>,
    ) -> Result<(), Failure> {
        let wire = wire.ok_or_else(|| Failure::Changed("the password is gone".into()))?;
        let epoch = self.shared.leadership.epoch();
        let done = link.client()?.change(epoch, auth_revision, wire).await;
        match done {
            Ok(_) => {
                tracing::info!(%name, "{change}");
                Ok(())
            }
            Err(status) => {
                link.forget();
                Err(members::failure(&format!("{change} {name}"), &status))
            }
        }
    }
}

fn revision<H>(cluster: &ClusterView<H>, of: impl Fn(&H) -> u64) -> Result<u64, Failure> {
    match cluster {
        ClusterView::Reached(held) => Ok(of(held)),
        _ => Err(Failure::Changed("the cluster does not answer".into())),
    }
}

/// A change of a role, as it is sent; `None` for one of a user.
fn of_role(change: &AccessChange, role: &str) -> Option<Change> {
    let permission = |span: &KeySpan, kind: KeyAccess| proto::PermissionOfRole {
        role: role.to_owned(),
        permission: Some(proto::AccessPermission {
            kind: match kind {
                KeyAccess::Read => proto::AccessKind::Read,
                KeyAccess::Write => proto::AccessKind::Write,
                KeyAccess::ReadWrite => proto::AccessKind::Readwrite,
            }
            .into(),
            key: span.key.clone().into(),
            range_end: span.end.clone().into(),
        }),
    };
    Some(match change {
        AccessChange::AddRole => Change::AddRole(role.to_owned()),
        AccessChange::DeleteRole => Change::DeleteRole(role.to_owned()),
        AccessChange::GrantPermission(span, kind) => {
            Change::GrantPermission(permission(span, *kind))
        }
        AccessChange::RevokePermission(span) => {
            Change::RevokePermission(permission(span, KeyAccess::Read))
        }
        _ => return None,
    })
}

/// A change of a user, as it is sent; `None` for one of a role, or without the password that it needs.
fn of_user(change: &AccessChange, user: &str, password: Option<&str>) -> Option<Change> {
    let role = |role: &String| proto::RoleOfUser {
        user: user.to_owned(),
        role: role.clone(),
    };
    Some(match change {
        AccessChange::AddUser { no_password: true } => Change::AddUser(proto::AddUser {
            name: user.to_owned(),
            password: String::new(),
            no_password: true,
        }),
        AccessChange::AddUser { no_password: false } => Change::AddUser(proto::AddUser {
            name: user.to_owned(),
            password: password?.to_owned(),
            no_password: false,
        }),
        AccessChange::SetPassword => Change::SetPassword(proto::SetPassword {
            name: user.to_owned(),
            password: password?.to_owned(),
        }),
        AccessChange::DeleteUser => Change::DeleteUser(user.to_owned()),
        AccessChange::GrantRole(name) => Change::GrantRole(role(name)),
        AccessChange::RevokeRole(name) => Change::RevokeRole(role(name)),
        AccessChange::Enable => Change::Enabled(true),
        AccessChange::Disable => Change::Enabled(false),
        _ => return None,
    })
}
