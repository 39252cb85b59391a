//! What is observed of a user or a role: the resource, those that stand for the same, its Secrets, and what a member of
//! the cluster says. Changes nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::Accesses;
use super::connection::Secrets;
use super::links::{Answer, Link, Question, Unreachable};
use super::triggers::name_of;
use crate::access_plan::{
    ClusterView, HeldRole, HeldUser, ObservedRole, ObservedUser, ResourceFacts,
};
use crate::crd::access::{DeletionPolicy, EtcdRole, EtcdUser, KeyAccess, KeySpan};
use crate::crd::{ClientAuth, EtcdCluster, FINALIZER_ACCESS, ValidatedCluster};
use crate::operator::kubernetes::workers::Key;
use crate::operator::platform::Failure;
use crate::wire::member as proto;

impl Accesses {
    pub(super) async fn observe_role(
        &self,
        role: &EtcdRole,
        link: &mut Link,
    ) -> Result<ObservedRole, Failure> {
        let name = name_of(role);
        let about = self.about(role, role.spec.deletion_policy, self.role_before(role));
        let question = Question {
            roles: vec![name.clone()],
            ..Question::default()
        };
        let key = key_of(role, &role.spec.cluster_ref.name);
        let held = |answer: &Answer| held_role(&answer.shown);
        let (cluster, _) = self.look(&key, link, (&about, &question), held).await?;
        Ok(ObservedRole {
            about,
            spec: role.spec.clone(),
            status: role.status.clone().unwrap_or_default(),
            name,
            cluster,
        })
    }

    pub(super) async fn observe_user(
        &self,
        user: &EtcdUser,
        link: &mut Link,
    ) -> Result<(ObservedUser, Secrets), Failure> {
        let name = user_name(user);
        let about = self.about(user, user.spec.deletion_policy, self.user_before(user));
        // Nothing that is wrong with a Secret holds a deletion up.
        let mut secrets = match about.deleting {
            true => Secrets::unread(),
            false => self.read_secrets(user).await?,
        };
        let question = Question {
            users: vec![name.clone()],
            roles: user.spec.roles.clone(),
            password: secrets.password().map(str::to_owned),
        };
        let key = key_of(user, &user.spec.cluster_ref.name);
        let looked = self
            .look(&key, link, (&about, &question), held_user)
            .await?;
        let (view, cluster) = looked;
        let issues = issues(cluster.as_ref());
        let connection = match cluster {
            Some(cluster) if !about.deleting => {
                let certificates = issues.is_ok();
                self.connection_facts(user, (cluster, certificates), &mut secrets)
                    .await?
            }
            _ => secrets.unknown_connection(),
        };
        let observed = ObservedUser {
            about,
            spec: user.spec.clone(),
            status: user.status.clone().unwrap_or_default(),
            secret: secret_name(user),
            name,
            issues: issues.and_then(|()| secrets.signs_long_enough(self.now())),
            password: secrets.password_facts(&user.spec),
            connection,
            cluster: view,
        };
        Ok((observed, secrets))
    }

    /// The cluster, as far as the resource has to do with it.
    async fn look<H>(
        &self,
        key: &Key,
        link: &mut Link,
        (about, question): (&ResourceFacts, &Question),
        held: impl Fn(&Answer) -> H,
    ) -> Result<(ClusterView<H>, Option<ValidatedCluster>), Failure> {
        let lets_go = about.deleting && (about.retain || about.rival.is_some());
        if lets_go {
            return Ok((ClusterView::Gone, None));
        }
        if self.is_gone(key).await? {
            *link = Link::default();
            return Ok((ClusterView::Gone, None));
        }
        let answer = self.ask(key, link, question).await?;
        if let Ok((_, answer)) = &answer
            && let Err(status) = &answer.password
        {
            let why = format!("cannot compare the password: {}", status.message());
            return Err(Failure::Retry(why));
        }
        let view = match answer {
            Err(Unreachable(why)) => (ClusterView::Unreachable(why), None),
            Ok((_, answer)) if answer.shown.following => {
                let why = "the cluster follows another one, and has its users and roles until it takes over";
                (ClusterView::Unreachable(why.to_owned()), None)
            }
            Ok((cluster, answer)) => (ClusterView::Reached(held(&answer)), Some(cluster)),
        };
        Ok(view)
    }

    /// Whether there is no such cluster, or it goes. A cache may be behind.
    async fn is_gone(&self, key: &Key) -> Result<bool, Failure> {
        if self
            .shared
            .caches
            .clusters
            .get(&key.0, &key.1)
            .is_some_and(|cluster| Resource::meta(&*cluster).deletion_timestamp.is_none())
        {
            return Ok(false);
        }
        let live = self.live::<EtcdCluster>(&key.0, &key.1).await?;
        Ok(live.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()))
    }

    fn about(
        &self,
        resource: &impl Resource<DynamicType = ()>,
        policy: DeletionPolicy,
        rival: Option<String>,
    ) -> ResourceFacts {
        let meta = resource.meta();
        let held = meta.finalizers.iter().flatten();
        ResourceFacts {
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            held: held.into_iter().any(|it| it == FINALIZER_ACCESS),
            retain: policy == DeletionPolicy::Retain,
            rival,
            now: self.now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let ms = i64::try_from(self.shared.outside.clock.unix_ms()).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }

    /// The oldest of the others that are about the same user of the same cluster, if it is older.
    fn user_before(&self, user: &EtcdUser) -> Option<String> {
        let namespace = user.namespace().unwrap_or_default();
        let guards = self.caches.users.in_namespace(&namespace, |_| true);
        let all = guards.iter().filter_map(|guard| guard.0.as_ref().ok());
        before(user, all, |user| {
            (user.spec.cluster_ref.name.clone(), user_name(user))
        })
    }

    /// The same of a role.
    fn role_before(&self, role: &EtcdRole) -> Option<String> {
        let namespace = role.namespace().unwrap_or_default();
        let guards = self.caches.roles.in_namespace(&namespace, |_| true);
        let all = guards.iter().filter_map(|guard| guard.0.as_ref().ok());
        before(role, all, |role| {
            (role.spec.cluster_ref.name.clone(), name_of(role))
        })
    }
}

fn before<'a, K: Resource<DynamicType = ()> + 'a>(
    own: &K,
    all: impl Iterator<Item = &'a K>,
    about: impl Fn(&K) -> (String, String),
) -> Option<String> {
    let age = |one: &K| {
        (
            one.meta().creation_timestamp.as_ref().map(|at| at.0),
            one.name_any(),
        )
    };
    let older = all.filter(|other| {
        other.uid() != own.uid() && about(other) == about(own) && age(other) < age(own)
    });
    older
        .min_by_key(|other| age(other))
        .map(ResourceExt::name_any)
}

/// Name of a user in its cluster.
pub(super) fn user_name(user: &EtcdUser) -> String {
    let name = user.spec.user_name.clone();
    name.unwrap_or_else(|| user.name_any())
}

/// Name of a user's connection Secret.
pub(super) fn secret_name(user: &EtcdUser) -> String {
    let asked = user.spec.connection.as_ref();
    let asked = asked.and_then(|asked| asked.secret_name.clone());
    asked.unwrap_or_else(|| format!("{}-connection", user.name_any()))
}

fn key_of(resource: &impl Resource<DynamicType = ()>, cluster: &str) -> Key {
    let namespace = resource.meta().namespace.clone().unwrap_or_default();
    (namespace, cluster.to_owned())
}

fn held_role(shown: &proto::ShowAccessResponse) -> HeldRole {
    let permissions = |role: &proto::AccessRole| {
        let all = role.permissions.iter();
        all.map(|one| (span(one), kind(one.kind()))).collect()
    };
    HeldRole {
        auth_revision: shown.auth_revision,
        permissions: shown.roles.first().map(permissions),
    }
}

fn span(one: &proto::AccessPermission) -> KeySpan {
    KeySpan {
        key: one.key.to_vec(),
        end: one.range_end.to_vec(),
    }
}

fn kind(kind: proto::AccessKind) -> KeyAccess {
    match kind {
        proto::AccessKind::Read => KeyAccess::Read,
        proto::AccessKind::Write => KeyAccess::Write,
        proto::AccessKind::Readwrite => KeyAccess::ReadWrite,
    }
}

fn held_user(answer: &Answer) -> HeldUser {
    let shown = &answer.shown;
    let user = shown.users.first();
    let roles = |user: &proto::AccessUser| user.roles.iter().cloned().collect();
    let known: BTreeSet<String> = shown.roles.iter().map(|role| role.name.clone()).collect();
    HeldUser {
        auth_revision: shown.auth_revision,
        enabled: shown.enabled,
        user: user.map(|user| (user.no_password, roles(user))),
        known_roles: known,
        password_is_right: answer.password.as_ref().is_ok_and(|right| *right),
    }
}

/// Whether the operator issues certificates for clients of this cluster, and members ask for them.
fn issues(cluster: Option<&ValidatedCluster>) -> Result<(), String> {
    let Some(cluster) = cluster else {
        return Ok(());
    };
    let Some(tls) = &cluster.spec.tls else {
        return Err(
            "this cluster has no TLS, and knows nobody by a certificate: give spec.password instead of spec.certificate, or the EtcdCluster spec.tls".into(),
        );
    };
    if tls.client_auth == ClientAuth::None {
        return Err(
            "members of this cluster ask clients for no certificate (tls.clientAuth: None): give spec.password instead of spec.certificate".into(),
        );
    }
    if tls.client.source.is_signed_by_operator() {
        return Ok(());
    }
    Err(
        "certificates of this cluster's client port are not issued by the operator: take spec.certificate out, and have your CA sign one with the user as its common name".into(),
    )
}
