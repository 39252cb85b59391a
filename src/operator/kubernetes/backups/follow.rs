//! One reconcile of a formed cluster that follows another one: observes its Jobs, what they need and how far the cluster is,
//! plans, carries out one step, and notes for the cluster's own reconcile how it is doing. Writes no status, and reads no
//! more of the user's Secrets than which version they have.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use super::act::OF_FOLLOWS;
use super::restore::JobOfRestore;
use super::source::is_source_waived;
use super::{Backups, PERIOD_MS};
use crate::backup_plan::{
    BackupStep, FollowReport, Followed, ObservedFollow, made_from, plan_follow,
};
use crate::build::{self, BackupWork};
use crate::crd::{
    EtcdCluster, FINALIZER_SOURCE, FollowPhase, FollowedCluster, Until, operator_secret_name,
};
use crate::operator::admission::admit;
use crate::operator::kubernetes::objects::failure;
use crate::operator::kubernetes::recoveries;
use crate::operator::platform::{Failure, Freshness};
use crate::operator::queue::Ended;
use crate::plan::{CutOverFacts, FollowFacts};

impl Backups {
    /// The Jobs of a cluster: for its first data, and once it is formed for what it follows.
    pub(super) async fn reconcile_cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Ended, Failure> {
        let cluster = self.cached_cluster(namespace, name);
        match cluster.is_some_and(|cluster| self.has_begun_to_follow(&cluster)) {
            true => Box::pin(self.reconcile_follow(namespace, name)).await,
            false => Box::pin(self.reconcile_restore(namespace, name)).await,
        }
    }

    /// Whether it was formed as a cluster that follows another one. A recovered one follows none.
    fn has_begun_to_follow(&self, cluster: &EtcdCluster) -> bool {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let uid = cluster.uid().unwrap_or_default();
        let identity = self.identity(&namespace, &name, &uid);
        let status = cluster.status.clone().unwrap_or_default();
        let of_identity = identity.as_ref().map(|identity| identity.incarnation);
        let first = of_identity.unwrap_or(1) <= 1 && status.incarnation.unwrap_or(1) <= 1;
        let asked = cluster.spec.follow().is_some() && first;
        asked && recoveries::is_formed(&status, identity.as_ref())
    }

    /// Plans on the caches; a step is planned once more on live Jobs and a live cluster.
    async fn reconcile_follow(&self, namespace: &str, name: &str) -> Result<Ended, Failure> {
        let key = (namespace.to_owned(), name.to_owned());
        let cached = self.observe_follow(namespace, name, Freshness::Cached);
        let Some((_, cached)) = cached.await? else {
            return Ok(Ended::Gone);
        };
        let plan = plan_follow(&cached);
        self.shared.backup_notes.note_restore(key.clone(), None);
        let rests = plan.step.is_none() && !self.settles(&key, &cached, &plan.report);
        self.note_follow(key.clone(), plan.report, Freshness::Cached);
        if rests {
            return Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)));
        }
        let live = self.observe_follow(namespace, name, Freshness::Live);
        let Some((cluster, live)) = live.await? else {
            return Ok(Ended::Gone);
        };
        let plan = plan_follow(&live);
        // Before the step: a Job that is created may close the followed cluster from then on.
        self.note_follow(key.clone(), plan.report.clone(), Freshness::Live);
        if let Some(step) = &plan.step
            && let Err(failure) = self.act_for_follow(&cluster, step, &live, plan.until).await
        {
            let report = FollowReport {
                message: failure.to_string(),
                needs_user: matches!(failure, Failure::Refused(_)),
                ..plan.report
            };
            self.note_follow(key, report, Freshness::Live);
            return Err(failure);
        }
        Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)))
    }

    /// Whether it has to be seen that no Job is left that may close the followed cluster: a cache may lack a new one.
    fn settles(
        &self,
        key: &(String, String),
        observed: &ObservedFollow,
        report: &FollowReport,
    ) -> bool {
        let cluster = observed.cluster.as_ref();
        let stops = observed.deleting || cluster.is_ok_and(|cluster| cluster.target() == 0);
        stops && !report.may_close && !self.shared.backup_notes.is_quiet(key)
    }

    fn note_follow(&self, cluster: (String, String), report: FollowReport, seen: Freshness) {
        let now_ms = self.shared.outside.clock.unix_ms();
        let facts = FollowFacts {
            message: report.message,
            needs_user: report.needs_user,
            failure: report.failure,
            cut_over: report.followed.as_ref().map(cut_over),
            quiet_since_ms: (seen == Freshness::Live).then_some(now_ms),
            cutover_after_ms: report
                .cutover_after
                .and_then(|at| u64::try_from(at.as_millisecond()).ok()),
        };
        let notes = &self.shared.backup_notes;
        notes.note_follow(cluster, facts, report.may_close);
    }

    /// A cluster that follows another one or has done so; `None` for any other.
    async fn observe_follow(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<(EtcdCluster, ObservedFollow)>, Failure> {
        let found = match freshness {
            Freshness::Cached => self.cached_cluster(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        // One that is to go stays until the followed cluster is open.
        let found = found.filter(|it| {
            let held = it.finalizers().iter().any(|it| it == FINALIZER_SOURCE);
            it.metadata.deletion_timestamp.is_none() || held
        });
        let Some(cluster) = found.filter(|it| self.has_begun_to_follow(it)) else {
            return Ok(None);
        };
        let Some(follow) = cluster.spec.follow() else {
            return Ok(None);
        };
        let uid = cluster.uid().unwrap_or_default();
        let status = cluster.status.as_ref().and_then(|it| it.follow.as_ref());
        let phase = status.map(|status| status.phase);
        let secret = operator_secret_name(name);
        let key = self.shared.caches.secrets.get(namespace, &secret);
        let observed = ObservedFollow {
            cluster: admit(&cluster).map_err(|invalid| invalid.to_string()),
            phase,
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            waived: is_source_waived(&cluster.metadata),
            closing: self.may_close(namespace, name, freshness).await?,
            recorded: status.is_some_and(|it| it.write_gap_milliseconds.is_some()),
            revision: status.and_then(|it| it.revision),
            has_key: key.is_some_and(|key| build::operator_key(key.secret()).is_some()),
            secrets: match phase {
                Some(FollowPhase::Following | FollowPhase::Frozen) => {
                    self.versions(namespace, &follow).await?
                }
                _ => Vec::new(),
            },
            jobs: self
                .jobs(namespace, ("cluster", name, &uid), freshness)
                .await?,
            now: self.now(),
        };
        Ok(Some((cluster, observed)))
    }

    /// The versions of the user's Secrets, without what is in them.
    async fn versions(
        &self,
        namespace: &str,
        follow: &FollowedCluster,
    ) -> Result<Vec<(String, Option<String>)>, Failure> {
        let tls = follow.tls.as_ref().map(|tls| &tls.secret_ref.name);
        let user = follow.user.as_ref().map(|user| &user.secret_ref.name);
        let api: Api<Secret> = Api::namespaced(self.shared.client.clone(), namespace);
        let mut all = Vec::new();
        for name in tls.into_iter().chain(user) {
            let found = api.get_metadata_opt(name).await;
            let found = found.map_err(|error| failure("read", name, &error))?;
            all.push((name.clone(), found.and_then(|it| it.resource_version())));
        }
        Ok(all)
    }

    async fn act_for_follow(
        &self,
        cluster: &EtcdCluster,
        step: &BackupStep,
        observed: &ObservedFollow,
        until: Until,
    ) -> Result<(), Failure> {
        let work = cluster.spec.follow().map(|follow| {
            let follow = FollowedCluster { until, ..follow };
            let made_from = made_from(&follow, &observed.secrets);
            JobOfRestore::without_store(BackupWork::Follow { follow, made_from })
        });
        self.act_for_restore(cluster, step, work.as_ref(), OF_FOLLOWS)
            .await
    }
}

fn cut_over(followed: &Followed) -> CutOverFacts {
    let ms = |value: i64| u64::try_from(value).unwrap_or(0);
    CutOverFacts {
        revision: followed.revision,
        frozen_ms: ms(followed.frozen_unix_ms),
        writable_ms: ms(followed.writable_unix_ms),
    }
}
