//! Backups: one reconcile of an `EtcdBackup`, an `EtcdBackupSchedule`, what a cluster is restored from or follows, or its
//! deletion observes it with its Jobs, plans (`crate::backup_plan`), and carries out one step. Apart from the reconciles of
//! clusters, which never wait for it: its caches are its own, and an API server without these resources only leaves it
//! without work.

mod act;
pub(super) mod deletion;
mod facts;
mod follow;
mod observe;
mod restore;
pub(super) mod source;
mod status;
pub(crate) mod triggers;

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use tokio::sync::mpsc;

use super::cache::{Cache, Namespaces};
use super::context::Context;
use super::workers::{self, Key};
use crate::backup_plan::{
    BackupFacts, BackupStep, JobFacts, JobState, StoreFinding, last_backups, plan_backup,
    plan_schedule,
};
use crate::crd::LABEL_BACKUP_OWNER;
use crate::crd::backups::{
    ArchivePhase, ArchiveStatus, EtcdBackup, EtcdBackupSchedule, EtcdBackupScheduleStatus,
    EtcdBackupStatus, EtcdBackupStore, LastBackup,
};
use crate::operator::metrics::{BackupFigures, Controller};
use crate::operator::platform::{Failure, Freshness};
use crate::operator::queue::Ended;
use triggers::owner_of;

/// Reconciles at the same time, beside those of clusters.
const CONCURRENCY: usize = 4;
/// At least this often, in milliseconds: changes without events.
const PERIOD_MS: u64 = 300_000;

/// A backup that may be unreadable.
type Guarded = DeserializeGuard<EtcdBackup>;

/// What is watched.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) stores: Cache<DeserializeGuard<EtcdBackupStore>>,
    pub(crate) backups: Cache<DeserializeGuard<EtcdBackup>>,
    pub(crate) schedules: Cache<DeserializeGuard<EtcdBackupSchedule>>,
    pub(crate) jobs: Cache<Job>,
    pub(crate) pods: Cache<Pod>,
}

/// What all reconciles share.
pub(crate) struct Backups {
    shared: Arc<Context>,
    caches: Caches,
}

/// Runs reconciles for as long as this operator acts. `reader` follows, `shared` changes.
pub(super) async fn run(reader: Client, namespaces: Namespaces, shared: Arc<Context>) {
    let (trigger, triggers) = mpsc::unbounded_channel();
    let caches = watch(&reader, &namespaces, &trigger);
    caches.ready().await;
    tracing::info!("the caches of backups are filled");
    if let Some(feed) = shared.feed.get() {
        feed.backups_in(caches.backups.clone());
    }
    let backups = Arc::new(Backups::new(shared, caches, trigger));
    let reconciling = move |key: Key| {
        let backups = backups.clone();
        async move {
            let started = Instant::now();
            let ended = Box::pin(backups.reconcile(&key)).await;
            let (failed, seconds) = (ended == Ended::Failed, started.elapsed().as_secs_f64());
            let metrics = &backups.shared.metrics;
            metrics.reconciled(Controller::Backup, failed, seconds);
            ended
        }
    };
    // No member is asked here.
    let told = mpsc::unbounded_channel().1;
    workers::run(
        (triggers, told),
        CONCURRENCY,
        std::future::pending(),
        reconciling,
    )
    .await;
}

fn watch(client: &Client, namespaces: &Namespaces, trigger: &mpsc::UnboundedSender<Key>) -> Caches {
    let everything = watcher::Config::default();
    let ours = watcher::Config::default().labels(LABEL_BACKUP_OWNER);
    let send = || {
        let trigger = trigger.clone();
        move |key: Key| {
            let _ = trigger.send(key);
        }
    };
    let (store, backup, schedule, job, pod) = (send(), send(), send(), send(), send());
    Caches {
        stores: Cache::namespaced_as_allowed(client, namespaces, &everything, move |object| {
            let key = triggers::of("store", kube::Resource::meta(object));
            key.into_iter().for_each(&store);
        }),
        backups: Cache::namespaced_as_allowed(
            client,
            namespaces,
            &everything,
            move |object: &Guarded| triggers::of_backup(object).for_each(&backup),
        ),
        schedules: Cache::namespaced_as_allowed(client, namespaces, &everything, move |object| {
            let key = triggers::of("schedule", kube::Resource::meta(object));
            key.into_iter().for_each(&schedule);
        }),
        jobs: Cache::namespaced_as_allowed(client, namespaces, &ours, move |object: &Job| {
            owner_of(&object.metadata).into_iter().for_each(&job);
        }),
        pods: Cache::namespaced_as_allowed(client, namespaces, &ours, move |object: &Pod| {
            owner_of(&object.metadata).into_iter().for_each(&pod);
        }),
    }
}

/// A schedule whose step fails is not Ready.
fn with_failure(
    mut status: EtcdBackupScheduleStatus,
    text: &str,
    now: Timestamp,
) -> EtcdBackupScheduleStatus {
    status.message = Some(text.to_owned());
    for condition in &mut status.conditions {
        if condition.status != "False" {
            condition.status = "False".to_owned();
            condition.last_transition_time = Time(now);
        }
        condition.reason = "StepFailed".to_owned();
        condition.message = text.to_owned();
    }
    status
}

/// `stored`: the status as it is read, which says also whether the last step failed.
fn figures(status: &EtcdBackupScheduleStatus, stored: &EtcdBackupScheduleStatus) -> BackupFigures {
    let mut conditions = stored.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let taken = |last: &Option<LastBackup>| last.as_ref().map(|last| last.time.0.as_second());
    let ready = ready.and_then(|ready| match ready.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    });
    // A schedule that is suspended, or whose cluster hibernates, is not behind.
    let wanted =
        |archive: &&ArchiveStatus| archive.phase == ArchivePhase::Archiving || ready == Some(false);
    BackupFigures {
        ready,
        last_success: taken(&status.last_success),
        last_verified: taken(&status.last_verified),
        recovery_seconds: status.recovery_seconds,
        archived: status
            .archive
            .as_ref()
            .filter(wanted)
            .and_then(|archive| archive.through.as_ref())
            .map(|through| through.0.as_second()),
    }
}

impl Caches {
    async fn ready(&self) {
        self.stores.ready().await;
        self.backups.ready().await;
        self.schedules.ready().await;
        self.jobs.ready().await;
        self.pods.ready().await;
    }
}

impl Backups {
    /// `asked`: to the queue, for what the reconciles of clusters ask.
    pub(crate) fn new(
        shared: Arc<Context>,
        caches: Caches,
        asked: mpsc::UnboundedSender<Key>,
    ) -> Self {
        shared.backup_notes.ask_at(asked);
        Self { shared, caches }
    }

    /// One reconcile of what the key names: a kind and a name.
    pub(crate) async fn reconcile(&self, key: &Key) -> Ended {
        let (namespace, name) = key;
        let (kind, name) = name.split_once('/').unwrap_or_default();
        let done = match kind {
            "backup" => Box::pin(self.reconcile_backup(namespace, name)).await,
            "schedule" => Box::pin(self.reconcile_schedule(namespace, name)).await,
            "backups-of" => {
                self.note_backups(namespace, name);
                // A backup may vanish without an event.
                Ok(match self.cached_cluster(namespace, name) {
                    Some(_) => Ended::After(PERIOD_MS),
                    None => Ended::Gone,
                })
            }
            "deletion" => Box::pin(self.reconcile_deletion(namespace, name)).await,
            "cluster" => Box::pin(self.reconcile_cluster(namespace, name)).await,
            _ => self.reconcile_store(namespace, name).await,
        };
        done.unwrap_or_else(|failure| {
            tracing::warn!(%namespace, %kind, %name, %failure, "a backup's step was not carried out");
            Ended::Failed
        })
    }

    /// Plans on the caches; what is written is planned once more on live objects.
    async fn reconcile_backup(&self, namespace: &str, name: &str) -> Result<Ended, Failure> {
        let cached = self
            .observe_backup(namespace, name, Freshness::Cached)
            .await?;
        let Some((_, cached)) = cached else {
            return Ok(Ended::Gone);
        };
        let plan = plan_backup(&cached);
        if plan.status == cached.status && plan.step.is_none() {
            return Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)));
        }
        let live = self
            .observe_backup(namespace, name, Freshness::Live)
            .await?;
        let Some((resource, live)) = live else {
            return Ok(Ended::Gone);
        };
        let plan = plan_backup(&live);
        self.write_findings(namespace, &live.spec.store_ref.name, &live.jobs)
            .await?;
        let mut before = live.status;
        // What a Job reported is in the status before the Job is deleted.
        if matches!(plan.step, Some(BackupStep::DeleteJob { .. })) {
            let recorded = EtcdBackupStatus {
                message: before.message.clone(),
                ..plan.status.clone()
            };
            self.write_backup(&resource, &before, &recorded).await?;
            before = recorded;
        }
        let Some(step) = &plan.step else {
            self.write_backup(&resource, &before, &plan.status).await?;
            return Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)));
        };
        match self.act_for_backup(&resource, step).await {
            Ok(()) => {
                self.write_backup(&resource, &before, &plan.status).await?;
                Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)))
            }
            Err(failure) => {
                // The same text each time: a step that goes on failing writes nothing more.
                let told = EtcdBackupStatus {
                    message: Some(failure.to_string()),
                    ..plan.status
                };
                self.write_backup(&resource, &before, &told).await?;
                Err(failure)
            }
        }
    }

    async fn reconcile_schedule(&self, namespace: &str, name: &str) -> Result<Ended, Failure> {
        let cached = self
            .observe_schedule(namespace, name, Freshness::Cached)
            .await?;
        let metrics = &self.shared.metrics;
        let Some((_, cached)) = cached else {
            metrics.backups((namespace, name), BackupFigures::default());
            return Ok(Ended::Gone);
        };
        let plan = plan_schedule(&cached);
        metrics.backups((namespace, name), figures(&plan.status, &cached.status));
        if plan.status == cached.status && plan.step.is_none() {
            return Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)));
        }
        let live = self
            .observe_schedule(namespace, name, Freshness::Live)
            .await?;
        let Some((resource, live)) = live else {
            return Ok(Ended::Gone);
        };
        let plan = plan_schedule(&live);
        self.write_findings(namespace, &live.spec.store_ref.name, &live.jobs)
            .await?;
        // What a Job reported is in the status before the Job is deleted; a backup exists before it is.
        let mut before = live.status;
        if matches!(plan.step, Some(BackupStep::DeleteJob { .. })) {
            let recorded = EtcdBackupScheduleStatus {
                message: before.message.clone(),
                conditions: before.conditions.clone(),
                ..plan.status.clone()
            };
            self.write_schedule(&resource, &before, &recorded).await?;
            before = recorded;
        }
        if let Some(step) = &plan.step
            && let Err(failure) = self.act_for_schedule(&resource, step).await
        {
            // Without what the step would have made true.
            let text = failure.to_string();
            let told = with_failure(before.clone(), &text, live.now);
            self.write_schedule(&resource, &before, &told).await?;
            return Err(failure);
        }
        self.write_schedule(&resource, &before, &plan.status)
            .await?;
        Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)))
    }

    /// Notes which backups a cluster has, for its own status; those of an earlier one of its name are not its own.
    fn note_backups(&self, namespace: &str, cluster: &str) {
        let now = self.now();
        let id = self
            .cached_cluster(namespace, cluster)
            .and_then(|cluster| cluster.status?.cluster_id);
        let lives = |guard: &Guarded| kube::Resource::meta(guard).deletion_timestamp.is_none();
        let guards = self.caches.backups.in_namespace(namespace, lives);
        let all = guards.iter().filter_map(|guard| guard.0.as_ref().ok());
        let ours = all.filter(|backup| {
            let saved = backup.status.as_ref().and_then(|it| it.cluster_id.as_ref());
            backup.spec.cluster_ref.name == cluster && saved.is_some() && saved == id.as_ref()
        });
        let facts: Vec<BackupFacts> = ours.map(|backup| facts::backup(backup, "", now)).collect();
        let key = (namespace.to_owned(), cluster.to_owned());
        self.shared
            .backup_notes
            .note_backups(key, last_backups(&facts));
    }

    /// What Jobs found out about a store, before they are deleted.
    async fn write_findings(
        &self,
        namespace: &str,
        store: &str,
        jobs: &[JobFacts],
    ) -> Result<(), Failure> {
        let mut jobs: Vec<&JobFacts> = jobs.iter().collect();
        jobs.sort_by_key(|job| job.created);
        for job in jobs {
            if let JobState::Ended {
                at,
                result: Some(result),
                ..
            } = &job.state
            {
                let (at, result) = (*at, result.clone());
                let finding = StoreFinding { at, result };
                self.write_finding(namespace, store, &finding).await?;
            }
        }
        Ok(())
    }

    async fn reconcile_store(&self, namespace: &str, name: &str) -> Result<Ended, Failure> {
        match self.store(namespace, name) {
            None => Ok(Ended::Gone),
            Some(store) => {
                self.write_url(&store).await?;
                Ok(Ended::After(PERIOD_MS))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule that was suspended, or whose cluster hibernated, was said to be behind for as long as that lasted.
    #[test]
    fn an_archive_that_is_not_wanted_now_is_not_behind() {
        let figures_of = |phase: &str, ready: &str| {
            let status = serde_json::json!({
                "archive": {"phase": phase, "through": "2026-03-01T00:00:00Z"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "AsPlanned", "message": "",
                    "lastTransitionTime": "2026-03-01T00:00:00Z"}],
            });
            let status: EtcdBackupScheduleStatus =
                serde_json::from_value(status).expect("a status");
            figures(&status, &status)
        };
        assert_eq!(figures_of("Pending", "True").archived, None);
        assert!(figures_of("Archiving", "True").archived.is_some());
        assert!(figures_of("Pending", "False").archived.is_some());
        assert_eq!(figures_of("Pending", "False").ready, Some(false));
    }
}
