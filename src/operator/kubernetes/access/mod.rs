//! Users and roles of clusters: one reconcile of an `EtcdUser` or an `EtcdRole` observes it and asks a member of its
//! cluster, plans (`crate::access_plan`), and carries out one step, by calls of `quorate.v1.Access` that are not subject
//! to etcd's own permissions. Apart from the reconciles of clusters, which never wait for it: its caches are its own, and
//! an API server without these resources only leaves it without work.

mod act;
mod client_signer;
mod connection;
#[cfg(test)]
mod converges_test;
mod links;
mod observe;
mod status;
mod triggers;
mod unreadable;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;

use super::cache::{Cache, Namespaces};
use super::context::Context;
use super::objects::{Object, failure};
use super::workers::{self, Key};
use crate::access_plan::{AccessStep, plan_role, plan_user};
use crate::crd::READY;
use crate::crd::access::{EtcdRole, EtcdUser};
use crate::operator::metrics::Controller;
use crate::operator::platform::Failure;
use crate::operator::queue::Ended;
use links::Links;

/// Reconciles at the same time, beside those of clusters.
const CONCURRENCY: usize = 4;
/// What metrics call them.
const USER: &str = "EtcdUser";
const ROLE: &str = "EtcdRole";
/// Another reconcile is about the same cluster.
const BUSY_MS: u64 = 500;
/// After a step: there may be a further one.
const NEXT_MS: u64 = 10;

/// What is watched.
#[derive(Clone)]
struct Caches {
    users: Cache<DeserializeGuard<EtcdUser>>,
    roles: Cache<DeserializeGuard<EtcdRole>>,
}

/// What all reconciles share.
struct Accesses {
    shared: Arc<Context>,
    caches: Caches,
    links: Links,
}

/// Runs reconciles for as long as this operator acts. `reader` follows, `shared` changes.
pub(super) async fn run(reader: Client, namespaces: Namespaces, shared: Arc<Context>) {
    let (trigger, triggers) = mpsc::unbounded_channel();
    let caches = watch(&reader, &namespaces, &trigger);
    caches.users.ready().await;
    caches.roles.ready().await;
    tracing::info!("the caches of users and roles are filled");
    let accesses = Arc::new(Accesses {
        shared,
        caches,
        links: Links::default(),
    });
    let reconciling = move |key: Key| {
        let accesses = accesses.clone();
        async move {
            let started = Instant::now();
            let ended = Box::pin(accesses.reconcile(&key)).await;
            let (failed, seconds) = (ended == Ended::Failed, started.elapsed().as_secs_f64());
            let metrics = &accesses.shared.metrics;
            metrics.reconciled(Controller::Access, failed, seconds);
            ended
        }
    };
    // No member tells of a change here.
    let told = mpsc::unbounded_channel().1;
    let work = (triggers, told);
    workers::run(work, CONCURRENCY, std::future::pending(), reconciling).await;
}

fn watch(client: &Client, namespaces: &Namespaces, trigger: &mpsc::UnboundedSender<Key>) -> Caches {
    let everything = watcher::Config::default();
    let (of_user, of_role) = (trigger.clone(), trigger.clone());
    let users: Cache<DeserializeGuard<EtcdUser>> =
        Cache::namespaced_where_served(client, namespaces, &everything, move |user| {
            let key = triggers::of("user", Resource::meta(user));
            key.into_iter().for_each(|key| drop(of_user.send(key)));
        });
    let known = users.clone();
    let roles = Cache::namespaced_where_served(client, namespaces, &everything, move |role| {
        let keys = triggers::of_role(role, &known);
        keys.for_each(|key| drop(of_role.send(key)));
    });
    Caches { users, roles }
}

impl Accesses {
    async fn reconcile(&self, key: &Key) -> Ended {
        let (namespace, name) = key;
        let (kind, name) = name.split_once('/').unwrap_or_default();
        let done = match kind {
            "user" => Box::pin(self.reconcile_user(key, name)).await,
            _ => Box::pin(self.reconcile_role(key, name)).await,
        };
        done.unwrap_or_else(|failure| {
            tracing::warn!(%namespace, %kind, %name, %failure, "a step of a user or a role was not carried out");
            Ended::Failed
        })
    }

    /// Plans on the cached resource; what is written is planned once more on the live one.
    async fn reconcile_role(&self, key: &Key, name: &str) -> Result<Ended, Failure> {
        let Some(cached) = self.caches.roles.get(&key.0, name) else {
            self.tell(ROLE, (&key.0, name), None);
            return Ok(Ended::Gone);
        };
        let Ok(cached) = cached.0.as_ref().cloned() else {
            self.tell(ROLE, (&key.0, name), Some(false));
            return self.tell_unreadable::<EtcdRole>((&key.0, name)).await;
        };
        let Some(mut link) = self.links.of(&key.0, &cached.spec.cluster_ref.name) else {
            return Ok(Ended::After(BUSY_MS));
        };
        let observed = match self.observe_role(&cached, &mut link).await {
            Ok(observed) => observed,
            Err(failure) => return self.role_is_unseen(&cached, failure).await,
        };
        let plan = plan_role(&observed);
        self.tell(ROLE, (&key.0, name), is_ready(&plan.status.conditions));
        if plan.step.is_none() && plan.status == observed.status {
            return Ok(Ended::After(plan.again_ms));
        }
        let Some(role) = self.live::<EtcdRole>(&key.0, name).await? else {
            return Ok(Ended::Gone);
        };
        let observed = self.observe_role(&role, &mut link).await?;
        let plan = plan_role(&observed);
        let acted = match &plan.step {
            None => Ok(()),
            Some(step) => self.act_for_role(&role, &observed, &mut link, step).await,
        };
        let status = (&observed.status, plan.status);
        self.write_role(&role, status, acted.as_ref().err()).await?;
        acted?;
        Ok(Ended::After(next(plan.step.as_ref(), plan.again_ms)))
    }

    /// The same of a user, whose Secrets are in no cache.
    async fn reconcile_user(&self, key: &Key, name: &str) -> Result<Ended, Failure> {
        let Some(cached) = self.caches.users.get(&key.0, name) else {
            self.tell(USER, (&key.0, name), None);
            return Ok(Ended::Gone);
        };
        let Ok(cached) = cached.0.as_ref().cloned() else {
            self.tell(USER, (&key.0, name), Some(false));
            return self.tell_unreadable::<EtcdUser>((&key.0, name)).await;
        };
        let Some(mut link) = self.links.of(&key.0, &cached.spec.cluster_ref.name) else {
            return Ok(Ended::After(BUSY_MS));
        };
        let (observed, _) = match self.observe_user(&cached, &mut link).await {
            Ok(seen) => seen,
            Err(failure) => return self.user_is_unseen(&cached, failure).await,
        };
        let plan = plan_user(&observed);
        self.tell(USER, (&key.0, name), is_ready(&plan.status.conditions));
        if plan.step.is_none() && plan.status == observed.status {
            return Ok(Ended::After(plan.again_ms));
        }
        let Some(user) = self.live::<EtcdUser>(&key.0, name).await? else {
            return Ok(Ended::Gone);
        };
        let (observed, secrets) = self.observe_user(&user, &mut link).await?;
        let plan = plan_user(&observed);
        let acted = match &plan.step {
            None => Ok(()),
            Some(step) => {
                let seen = (&observed, &secrets);
                self.act_for_user(&user, seen, &mut link, step).await
            }
        };
        let status = (&observed.status, plan.status);
        self.write_user(&user, status, acted.as_ref().err()).await?;
        acted?;
        Ok(Ended::After(next(plan.step.as_ref(), plan.again_ms)))
    }

    /// For the metrics: whether one is Ready; nothing of one that is gone, and one that cannot be read is not.
    fn tell(&self, kind: &'static str, of: (&str, &str), ready: Option<bool>) {
        self.shared.metrics.access(kind, of, ready);
    }

    async fn live<K: Object>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failure> {
        let api: Api<K> = Api::namespaced(self.shared.client.clone(), namespace);
        let found = api.get_opt(name).await;
        found.map_err(|error| failure("read", name, &error))
    }
}

/// Whether conditions say so; `None`: they say nothing of it.
fn is_ready(conditions: &[Condition]) -> Option<bool> {
    let ready = conditions.iter().find(|one| one.type_ == READY)?;
    match ready.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// When to come back: after a step at once, for there may be a further one.
fn next(step: Option<&AccessStep>, again_ms: u64) -> u64 {
    match step {
        Some(_) => NEXT_MS,
        None => again_ms,
    }
}
