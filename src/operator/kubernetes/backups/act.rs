//! Carries out one step of a backup or a schedule.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Backups;
use crate::backup_plan::{BackupStep, JobKind};
use crate::build::{self, BackupOwner, BackupWork};
use crate::crd::backups::{
    EtcdBackup, EtcdBackupSchedule, EtcdBackupScheduleSpec, EtcdBackupSpec, EtcdBackupStoreSpec,
};
use crate::crd::{
    ANNOTATION_GONE, ANNOTATION_VERIFY, APP, LABEL_BACKUP_SCHEDULE, MANAGER, operator_secret_name,
};
use crate::operator::kubernetes::objects::{Object, Owned, apply, create, delete, failure};
use crate::operator::platform::Failure;
use crate::server::operator_api::auth::Key;

/// Names of keys in a Job's Secret, and how they follow from the operator's.
pub(super) type Keys = &'static [(&'static str, fn(&Key) -> Key)];

/// Of a Job that saves or archives.
const OF_SAVES: Keys = &[(build::KEY_OF_MEMBER, Key::for_backups)];
/// Of a Job that gives a member data from a store.
pub(super) const OF_RESTORES: Keys = &[(build::KEY_OF_MEMBER, Key::for_restores)];
/// Of a Job that gives a member the data of another one.
pub(super) const OF_RECOVERIES: Keys = &[
    (build::KEY_OF_MEMBER, Key::for_restores),
    (build::KEY_OF_SURVIVOR, Key::for_backups),
];
/// Of a Job that applies what is written in another cluster.
pub(super) const OF_FOLLOWS: Keys = &[(build::KEY_OF_MEMBER, Key::for_follow)];

/// The name of a backup in the store: that of the resource, and part of its UID, since names are used again.
pub(super) fn id(backup: &EtcdBackup) -> String {
    let uid: String = backup.uid().unwrap_or_default().chars().take(8).collect();
    format!("{}-{uid}", backup.name_any())
}

impl Backups {
    pub(super) async fn act_for_backup(
        &self,
        backup: &EtcdBackup,
        step: &BackupStep,
    ) -> Result<(), Failure> {
        let namespace = backup.namespace().unwrap_or_default();
        let owner = BackupOwner {
            kind: "EtcdBackup",
            name: backup.name_any(),
            uid: backup.uid().unwrap_or_default(),
        };
        let spec = &backup.spec;
        match step {
            BackupStep::CreateJob { kind, attempt } => {
                let id = id(backup);
                let work = match kind {
                    JobKind::Verify => BackupWork::Verify { id },
                    _ => BackupWork::Save {
                        id,
                        rate: spec.rate_mib_per_second,
                    },
                };
                let references = (&*spec.cluster_ref.name, &*spec.store_ref.name);
                let job = self
                    .create_job(&namespace, references, &owner, &work, *attempt)
                    .await?;
                let cluster = (&*namespace, &*spec.cluster_ref.name);
                match kind {
                    JobKind::Save => self.apply_keys(cluster, &owner, &job, OF_SAVES).await,
                    _ => Ok(()),
                }
            }
            BackupStep::ApplyKey { job } => {
                let cluster = (&*namespace, &*spec.cluster_ref.name);
                self.apply_keys_of(cluster, &owner, job, OF_SAVES).await
            }
            BackupStep::DeleteJob { name } => self.delete_named::<Job>(&namespace, name).await,
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn act_for_schedule(
        &self,
        schedule: &EtcdBackupSchedule,
        step: &BackupStep,
    ) -> Result<(), Failure> {
        let namespace = schedule.namespace().unwrap_or_default();
        let spec = &schedule.spec;
        match step {
            BackupStep::CreateJob { kind, attempt } => {
                let owner = owner_of(schedule);
                let work = work_of(spec, *kind);
                let references = (&*spec.cluster_ref.name, &*spec.store_ref.name);
                let job = self
                    .create_job(&namespace, references, &owner, &work, *attempt)
                    .await?;
                let cluster = (&*namespace, &*spec.cluster_ref.name);
                match kind {
                    JobKind::Archive => self.apply_keys(cluster, &owner, &job, OF_SAVES).await,
                    _ => Ok(()),
                }
            }
            BackupStep::DeleteJob { name } => self.delete_named::<Job>(&namespace, name).await,
            BackupStep::ApplyKey { job } => {
                let cluster = (&*namespace, &*spec.cluster_ref.name);
                let owner = owner_of(schedule);
                self.apply_keys_of(cluster, &owner, job, OF_SAVES).await
            }
            BackupStep::CreateBackup { name } => self.create_backup(schedule, name).await,
            BackupStep::RequestVerification { backup } => {
                self.annotate(&namespace, backup, ANNOTATION_VERIFY).await
            }
            BackupStep::MarkGone { backup } => {
                self.annotate(&namespace, backup, ANNOTATION_GONE).await
            }
            BackupStep::DeleteBackup { backup } => {
                self.delete_named::<EtcdBackup>(&namespace, backup).await
            }
        }
    }

    /// `store` is not read for work that needs none.
    pub(super) async fn create_job(
        &self,
        namespace: &str,
        (cluster, store): (&str, &str),
        owner: &BackupOwner,
        work: &BackupWork,
        attempt: u32,
    ) -> Result<Job, Failure> {
        let cluster = self.cluster(namespace, cluster)?;
        let missing = || Failure::Changed(format!("there is no EtcdBackupStore {store} any more"));
        let store = match work {
            BackupWork::Recover { .. } | BackupWork::Seed { .. } | BackupWork::Follow { .. } => {
                EtcdBackupStoreSpec::default()
            }
            _ => self.store(namespace, store).ok_or_else(missing)?.spec,
        };
        let settings = self.shared.settings_of(&cluster);
        let job = build::backup_job(&cluster, &settings, &store, owner, work, attempt);
        tracing::info!(%namespace, job = %job.name_any(), "creates a Job");
        let ours = Owned::Controller(&owner.uid);
        create(&self.shared.client, namespace, &job, ours).await
    }

    /// The same for a Job by its name, if it is there.
    pub(super) async fn apply_keys_of(
        &self,
        cluster: (&str, &str),
        owner: &BackupOwner,
        job: &str,
        keys: Keys,
    ) -> Result<(), Failure> {
        match self.live::<Job>(cluster.0, job).await? {
            Some(job) if job.metadata.deletion_timestamp.is_none() => {
                self.apply_keys(cluster, owner, &job, keys).await
            }
            _ => Ok(()),
        }
    }

    /// The Secret with the keys by which a Job calls members; they follow from the operator's and change with it.
    pub(super) async fn apply_keys(
        &self,
        (namespace, cluster): (&str, &str),
        owner: &BackupOwner,
        job: &Job,
        keys: Keys,
    ) -> Result<(), Failure> {
        let name = operator_secret_name(cluster);
        let found = self.live::<Secret>(namespace, &name).await?;
        let key = found.as_ref().and_then(build::operator_key);
        let key = key.ok_or_else(|| Failure::Changed(format!("the Secret {name} has no key")))?;
        let key = Key::new(&key);
        let derived: Vec<(&str, Key)> = keys.iter().map(|(name, of)| (*name, of(&key))).collect();
        let keys: Vec<(&str, &[u8])> = derived
            .iter()
            .map(|(name, it)| (*name, it.bytes()))
            .collect();
        let (job, uid) = (job.name_any(), job.uid().unwrap_or_default());
        let secret = build::backup_key_secret(namespace, owner, (&job, &uid), &keys);
        let ours = Owned::Controller(&uid);
        apply(&self.shared.client, namespace, &secret, ours)
            .await
            .map(|_| ())
    }

    /// Deletes what has this name now, and nothing that takes it later.
    pub(super) async fn delete_named<K: Object>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        let Some(found) = self.live::<K>(namespace, name).await? else {
            return Ok(());
        };
        let uid = found.uid().unwrap_or_default();
        let deleted = delete::<K>(&self.shared.client, namespace, name, (&uid, None));
        deleted.await.map(|_| ())
    }

    /// Repeated, it finds the one that it has created.
    async fn create_backup(
        &self,
        schedule: &EtcdBackupSchedule,
        name: &str,
    ) -> Result<(), Failure> {
        let namespace = schedule.namespace().unwrap_or_default();
        let spec = EtcdBackupSpec {
            cluster_ref: schedule.spec.cluster_ref.clone(),
            store_ref: schedule.spec.store_ref.clone(),
            rate_mib_per_second: schedule.spec.rate_mib_per_second,
            verify: false,
            deadline_seconds: EtcdBackupSpec::DEADLINE_SECONDS,
        };
        let mut backup = EtcdBackup::new(name, spec);
        let labels = [
            ("app.kubernetes.io/name", APP.to_owned()),
            ("app.kubernetes.io/managed-by", MANAGER.to_owned()),
            (LABEL_BACKUP_SCHEDULE, schedule.name_any()),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value));
        backup.metadata.labels = Some(labels.into());
        let api: Api<EtcdBackup> = Api::namespaced(self.shared.client.clone(), &namespace);
        match api.create(&PostParams::default(), &backup).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(failure("create", name, &error)),
        }
    }

    /// Sets an annotation to the time.
    async fn annotate(&self, namespace: &str, backup: &str, key: &str) -> Result<(), Failure> {
        let now: Timestamp = self.now();
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let change = json!({"metadata": {"annotations": {key: now}}});
        let api: Api<EtcdBackup> = Api::namespaced(self.shared.client.clone(), namespace);
        let (parameters, change) = (PatchParams::default(), Patch::Merge(&change));
        match api.patch(backup, &parameters, &change).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(failure("annotate", backup, &error)),
        }
    }
}

fn owner_of(schedule: &EtcdBackupSchedule) -> BackupOwner {
    BackupOwner {
        kind: "EtcdBackupSchedule",
        name: schedule.name_any(),
        uid: schedule.uid().unwrap_or_default(),
    }
}

/// What a Job of a schedule does: it archives, or applies the retention.
fn work_of(spec: &EtcdBackupScheduleSpec, kind: JobKind) -> BackupWork {
    match (kind, &spec.archive) {
        (JobKind::Archive, Some(archive)) => BackupWork::Archive {
            interval: archive.interval_seconds,
        },
        (_, archive) => BackupWork::Prune {
            retention: spec.retention.clone(),
            time_zone: spec.time_zone.clone(),
            archive_window: archive.as_ref().map(|archive| archive.window_seconds),
        },
    }
}

pub(super) fn unexpected(step: &BackupStep) -> Failure {
    Failure::Refused(format!("{step:?} is no step of this resource"))
}
