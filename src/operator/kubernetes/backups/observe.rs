//! What is observed of a backup and of a schedule, from the caches or live.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

use super::triggers::owner_of;
use super::{Backups, facts};
use crate::backup_plan::{BackupFacts, ClusterFacts, JobFacts, ObservedBackup, ObservedSchedule};
use crate::build;
use crate::crd::backups::{EtcdBackup, EtcdBackupSchedule, EtcdBackupStore};
use crate::crd::{
    LABEL_BACKUP_OWNER, LABEL_BACKUP_OWNER_KIND, ValidatedCluster, operator_secret_name,
};
use crate::operator::admission::admit;
use crate::operator::kubernetes::cache::Cache;
use crate::operator::kubernetes::objects::{Object, failure};
use crate::operator::kubernetes::pruned::Prune;
use crate::operator::platform::{Failure, Freshness};

impl Backups {
    /// A backup with its facts; `None` if there is none.
    pub(super) async fn observe_backup(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<(EtcdBackup, ObservedBackup)>, Failure> {
        let found = match freshness {
            Freshness::Cached => self.backup(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        let Some(backup) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let store = self.store(namespace, &backup.spec.store_ref.name);
        let observed = ObservedBackup {
            spec: backup.spec.clone(),
            status: backup.status.clone().unwrap_or_default(),
            created: facts::created(&backup),
            verification_requested: facts::verification_requested(&backup, self.now()),
            gone: facts::gone(&backup),
            id: super::act::id(&backup),
            cluster: self.cluster_facts(namespace, &backup.spec.cluster_ref.name),
            store: store.map(|store| {
                build::backup_location(&store.spec, namespace, &backup.spec.cluster_ref.name)
            }),
            jobs: {
                let uid = backup.uid().unwrap_or_default();
                self.jobs(namespace, ("backup", name, &uid), freshness)
                    .await?
            },
            now: self.now(),
        };
        Ok(Some((backup, observed)))
    }

    /// A schedule with its facts; `None` if there is none.
    pub(super) async fn observe_schedule(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<(EtcdBackupSchedule, ObservedSchedule)>, Failure> {
        let found = match freshness {
            Freshness::Cached => self.schedule(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        let Some(schedule) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let spec = &schedule.spec;
        let observed = ObservedSchedule {
            name: name.to_owned(),
            uid: schedule.uid().unwrap_or_default(),
            generation: schedule.metadata.generation,
            spec: spec.clone(),
            status: schedule.status.clone().unwrap_or_default(),
            created: facts::created(&schedule),
            zone: match spec.time_zone.as_str() {
                "UTC" => Some(TimeZone::UTC),
                name => TimeZone::get(name).ok(),
            },
            cluster: self.cluster_facts(namespace, &spec.cluster_ref.name),
            store: self.store(namespace, &spec.store_ref.name).map(|store| {
                build::backup_location(&store.spec, namespace, &spec.cluster_ref.name)
            }),
            rival: self.rival(namespace, &schedule),
            archiver: self.archiver(namespace, &schedule),
            backups: self.backups_of(namespace, &schedule, freshness).await?,
            jobs: {
                let uid = schedule.uid().unwrap_or_default();
                self.jobs(namespace, ("schedule", name, &uid), freshness)
                    .await?
            },
            now: self.now(),
        };
        Ok(Some((schedule, observed)))
    }

    /// The backups of a schedule's cluster in its store.
    async fn backups_of(
        &self,
        namespace: &str,
        schedule: &EtcdBackupSchedule,
        freshness: Freshness,
    ) -> Result<Vec<BackupFacts>, Failure> {
        let all: Vec<EtcdBackup> = match freshness {
            Freshness::Cached => {
                let guards = self.caches.backups.in_namespace(namespace, |_| true);
                guards
                    .iter()
                    .filter_map(|it| it.0.as_ref().ok().cloned())
                    .collect()
            }
            Freshness::Live => self.live_list(namespace, &ListParams::default()).await?,
        };
        let spec = &schedule.spec;
        let concerned = all.iter().filter(|backup| {
            backup.spec.cluster_ref == spec.cluster_ref
                && backup.spec.store_ref == spec.store_ref
                && backup.metadata.deletion_timestamp.is_none()
        });
        let name = schedule.name_any();
        let now = self.now();
        Ok(concerned
            .map(|backup| facts::backup(backup, &name, now))
            .collect())
    }

    /// Another schedule of the same cluster and store, whose retention would delete the backups of this one.
    fn rival(&self, namespace: &str, schedule: &EtcdBackupSchedule) -> Option<String> {
        let place = |schedule: &EtcdBackupSchedule| {
            let store = self.store(namespace, &schedule.spec.store_ref.name)?;
            let cluster = &schedule.spec.cluster_ref.name;
            Some(build::backup_location(&store.spec, namespace, cluster))
        };
        let own = place(schedule)?;
        let others = self.other_schedules(namespace, schedule);
        let rival = others
            .iter()
            .find(|other| place(other).as_ref() == Some(&own));
        rival.map(ResourceExt::name_any)
    }

    /// The oldest other schedule that archives the same cluster, if it is older: a member is told of one archive.
    fn archiver(&self, namespace: &str, schedule: &EtcdBackupSchedule) -> Option<String> {
        let age = |schedule: &EtcdBackupSchedule| (facts::created(schedule), schedule.name_any());
        let others = self.other_schedules(namespace, schedule);
        let older = others.iter().filter(|other| {
            let archives = other.spec.archive.is_some() && !other.spec.suspend;
            archives
                && other.spec.cluster_ref == schedule.spec.cluster_ref
                && age(other) < age(schedule)
        });
        older
            .min_by_key(|other| age(other))
            .map(ResourceExt::name_any)
    }

    /// The readable schedules of a namespace but this one, and none that is being deleted.
    fn other_schedules(
        &self,
        namespace: &str,
        schedule: &EtcdBackupSchedule,
    ) -> Vec<EtcdBackupSchedule> {
        let name = schedule.name_any();
        let guards = self.caches.schedules.in_namespace(namespace, |_| true);
        let all = guards.iter().filter_map(|guard| guard.0.as_ref().ok());
        let others = all.filter(|other| {
            other.name_any() != name && other.metadata.deletion_timestamp.is_none()
        });
        others.cloned().collect()
    }

    pub(super) async fn jobs(
        &self,
        namespace: &str,
        (kind, name, uid): (&str, &str, &str),
        freshness: Freshness,
    ) -> Result<Vec<JobFacts>, Failure> {
        let jobs: Vec<Arc<Job>> = match freshness {
            Freshness::Cached => cached_of_owner(&self.caches.jobs, namespace, (kind, name)),
            Freshness::Live => {
                let jobs: Vec<Job> = self.live_list(namespace, &of_owner(kind, name)).await?;
                jobs.into_iter().map(Arc::new).collect()
            }
        };
        let pods = self.pods_of_jobs(namespace, (kind, name), freshness);
        let pods = pods.await?;
        let now = self.now();
        let facts = jobs
            .iter()
            .filter_map(|job| facts::job(job, uid, &pods, now));
        Ok(facts.collect())
    }

    /// The pods of all its Jobs, also of those that are gone.
    async fn pods_of_jobs(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
        freshness: Freshness,
    ) -> Result<Vec<Arc<Pod>>, Failure> {
        match freshness {
            Freshness::Cached => Ok(cached_of_owner(&self.caches.pods, namespace, (kind, name))),
            Freshness::Live => {
                let pods: Vec<Pod> = self.live_list(namespace, &of_owner(kind, name)).await?;
                Ok(pods.into_iter().map(Arc::new).collect())
            }
        }
    }

    /// Whether a process of this cluster runs that may close the one that it follows.
    pub(super) async fn may_close(
        &self,
        namespace: &str,
        cluster: &str,
        freshness: Freshness,
    ) -> Result<bool, Failure> {
        let pods = self.pods_of_jobs(namespace, ("cluster", cluster), freshness);
        Ok(facts::may_close(&pods.await?, self.now()))
    }

    pub(super) async fn live<K: Object>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, Failure> {
        let api: Api<K> = Api::namespaced(self.shared.client.clone(), namespace);
        let found = api.get_opt(name).await;
        found.map_err(|error| failure("read", name, &error))
    }

    async fn live_list<K: Object>(
        &self,
        namespace: &str,
        parameters: &ListParams,
    ) -> Result<Vec<K>, Failure> {
        let api: Api<K> = Api::namespaced(self.shared.client.clone(), namespace);
        let found = api.list(parameters).await;
        let found = found.map_err(|error| failure("list", &K::plural(&()), &error))?;
        Ok(found.items)
    }

    pub(super) fn backup(&self, namespace: &str, name: &str) -> Option<EtcdBackup> {
        let found = self.caches.backups.get(namespace, name)?;
        found.0.as_ref().ok().cloned()
    }

    fn schedule(&self, namespace: &str, name: &str) -> Option<EtcdBackupSchedule> {
        let found = self.caches.schedules.get(namespace, name)?;
        found.0.as_ref().ok().cloned()
    }

    /// From the cache: what a Job is created with decides nothing about data.
    pub(super) fn store(&self, namespace: &str, name: &str) -> Option<EtcdBackupStore> {
        let found = self.caches.stores.get(namespace, name)?;
        found.0.as_ref().ok().cloned()
    }

    pub(super) fn now(&self) -> Timestamp {
        let ms = i64::try_from(self.shared.outside.clock.unix_ms()).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }

    fn cluster_facts(&self, namespace: &str, name: &str) -> Option<ClusterFacts> {
        let found = self.shared.caches.clusters.get(namespace, name)?;
        let resource = found.0.as_ref().ok()?;
        let secret = operator_secret_name(name);
        let key = self.shared.caches.secrets.get(namespace, &secret);
        let admitted = admit(resource);
        // In the middle of a change, members and Jobs are of two versions.
        let status = resource.status.as_ref().filter(|status| {
            status.updated_replicas == Some(resource.spec.replicas)
                && status.observed_generation == resource.metadata.generation
        });
        Some(ClusterFacts {
            version: status.and_then(|status| status.version.clone()),
            invalid: admitted.err().map(|error| error.to_string()),
            hibernated: resource.spec.replicas == 0,
            follows: facts::follows(resource),
            standby: resource.spec.replica_of.is_some(),
            own_since: facts::own_since(resource),
            archived: resource.status.as_ref().and_then(facts::archived),
            has_key: key.is_some_and(|key| build::operator_key(key.secret()).is_some()),
        })
    }

    /// The cluster that a Job is built for.
    pub(super) fn cluster(&self, namespace: &str, name: &str) -> Result<ValidatedCluster, Failure> {
        let missing = || Failure::Changed(format!("there is no EtcdCluster {name} any more"));
        let found = self.shared.caches.clusters.get(namespace, name);
        let found = found.ok_or_else(missing)?;
        let resource = found.0.as_ref().map_err(|_| missing())?;
        admit(resource).map_err(|error| Failure::Changed(error.to_string()))
    }
}

/// What the Jobs and pods of a resource are listed by.
fn of_owner(kind: &str, name: &str) -> ListParams {
    let labels = format!("{LABEL_BACKUP_OWNER_KIND}={kind},{LABEL_BACKUP_OWNER}={name}");
    ListParams::default().labels(&labels)
}

/// The same of a cache; none of what the API server refuses to show.
fn cached_of_owner<K>(cache: &Cache<K>, namespace: &str, (kind, name): (&str, &str)) -> Vec<Arc<K>>
where
    K: Prune + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    if cache.is_denied() {
        return Vec::new();
    }
    let key = (namespace.to_owned(), format!("{kind}/{name}"));
    let mut found = cache.of_any(namespace, &[(LABEL_BACKUP_OWNER, name)]);
    found.retain(|object| owner_of(object.meta()).as_ref() == Some(&key));
    found
}
