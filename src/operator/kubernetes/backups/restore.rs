//! One reconcile of the first data of a new cluster or of a recovered one: observes its Jobs and what they need, plans,
//! carries out one step, and notes for the cluster's own reconcile how it is doing. Writes no status.

use kube::ResourceExt;

use super::act::{Keys, OF_RECOVERIES, OF_RESTORES};
use super::{Backups, PERIOD_MS};
use crate::backup_plan::{
    BackupStep, NamedBackup, ObservedRestore, RestoreFrom, RestoreReport, RestoreTarget,
    StorePlace, plan_restore, store_of_restore,
};
use crate::build::{self, BackupOwner, BackupWork, Recovers};
use crate::crd::{DataSource, EtcdCluster, Restore, identity_secret_name, operator_secret_name};
use crate::operator::admission::admit;
use crate::operator::kubernetes::observe::read_identity_secret;
use crate::operator::kubernetes::recoveries;
use crate::operator::platform::{Failure, Freshness};
use crate::operator::queue::Ended;
use crate::plan::{IdentitySecret, Owner, RestoreFacts};

/// A cluster that does not start empty, as observed.
struct Seen {
    cluster: EtcdCluster,
    incarnation: u64,
    observed: ObservedRestore,
}

impl Seen {
    fn recovery(&self) -> Option<Recovers> {
        Some(Recovers {
            uid: self.observed.recovery.clone()?,
            incarnation: self.incarnation,
        })
    }

    /// The keys of its Jobs.
    fn keys(&self) -> Keys {
        match &self.observed.source {
            Some(DataSource::Survivor(_)) => OF_RECOVERIES,
            Some(DataSource::Stored(_) | DataSource::Followed(_)) | None => OF_RESTORES,
        }
    }
}

impl Backups {
    /// Plans on the caches; a step is planned once more on live Jobs and a live cluster.
    pub(super) async fn reconcile_restore(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Ended, Failure> {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(seen) = self
            .observe_restore(namespace, name, Freshness::Cached)
            .await?
        else {
            self.note_restore(key, None);
            return Ok(Ended::Gone);
        };
        let plan = plan_restore(&seen.observed);
        self.note_restore(key.clone(), plan.report.clone());
        if plan.step.is_none() {
            return Ok(match plan.report {
                None => Ended::Gone,
                Some(_) => Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)),
            });
        }
        let Some(seen) = self
            .observe_restore(namespace, name, Freshness::Live)
            .await?
        else {
            self.note_restore(key, None);
            return Ok(Ended::Gone);
        };
        let mut plan = plan_restore(&seen.observed);
        if let Some(step) = &plan.step {
            let target = plan.target.take();
            let work = target.and_then(|target| JobOfRestore::new(&seen, target));
            let done = self.act_for_restore(&seen.cluster, step, work.as_ref(), seen.keys());
            if let Err(failure) = done.await {
                let report = RestoreReport {
                    message: failure.to_string(),
                    needs_user: matches!(failure, Failure::Refused(_)),
                };
                self.note_restore(key, Some(report));
                return Err(failure);
            }
        }
        self.note_restore(key, plan.report);
        Ok(Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)))
    }

    fn note_restore(&self, cluster: (String, String), report: Option<RestoreReport>) {
        let facts = report.map(|report| RestoreFacts {
            message: report.message,
            needs_user: report.needs_user,
        });
        self.shared.backup_notes.note_restore(cluster, facts);
    }

    /// A cluster that gets its first data or has got them; `None` for any other.
    async fn observe_restore(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Seen>, Failure> {
        let found = match freshness {
            Freshness::Cached => self.cached_cluster(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        let found = found.filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(cluster) = found else {
            return Ok(None);
        };
        let uid = cluster.uid().unwrap_or_default();
        let identity = self.identity(namespace, name, &uid);
        let incarnation = identity.as_ref().map_or(1, |identity| identity.incarnation);
        let begins = self
            .first_data(&cluster, incarnation.max(1), freshness)
            .await?;
        let Some((source, recovery)) = begins else {
            return Ok(None);
        };
        let jobs = self.jobs(namespace, ("cluster", name, &uid), freshness);
        let status = cluster.status.clone().unwrap_or_default();
        let restore = match &source {
            Some(DataSource::Stored(restore)) => Some(restore),
            Some(DataSource::Survivor(_) | DataSource::Followed(_)) | None => None,
        };
        let backup = match restore {
            Some(restore) => self.named_backup(namespace, restore, freshness).await?,
            None => None,
        };
        let store = restore.and_then(|it| self.place(namespace, it, backup.as_ref()));
        let observed = ObservedRestore {
            cluster: admit(&cluster).map_err(|invalid| invalid.to_string()),
            formed: recoveries::is_formed(&status, identity.as_ref()),
            seed: self.seed(namespace, name, identity),
            store,
            backup,
            jobs: jobs.await?,
            source,
            recovery,
            now: self.now(),
        };
        Ok(Some(Seen {
            cluster,
            incarnation,
            observed,
        }))
    }

    /// Where the first data of this incarnation come from, and the UID of the EtcdRecovery that says so; `None`: it
    /// starts empty.
    async fn first_data(
        &self,
        cluster: &EtcdCluster,
        incarnation: u64,
        freshness: Freshness,
    ) -> Result<Option<(Option<DataSource>, Option<String>)>, Failure> {
        if incarnation == 1 {
            let restored = cluster.spec.restore().cloned().map(DataSource::Stored);
            let followed = || cluster.spec.follow().map(DataSource::Followed);
            let source = restored.or_else(followed);
            return Ok(source.map(|source| (Some(source), None)));
        }
        let key = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let recoveries = self.shared.recoveries(&key, freshness).await?;
        let made = recoveries::that_made(&recoveries, cluster.life(), incarnation);
        let carried_out = made.is_none_or(|recovery| recoveries::facts(recovery).recovered);
        if cluster.spec.adopts().is_some() && carried_out {
            // The deleted cluster had recovered: this incarnation was formed long ago.
            return Ok(None);
        }
        let source = made.and_then(|recovery| recovery.spec.source());
        Ok(Some((source, made.and_then(ResourceExt::uid))))
    }

    /// The store that is read.
    fn place(
        &self,
        namespace: &str,
        restore: &Restore,
        backup: Option<&NamedBackup>,
    ) -> Option<StorePlace> {
        let store = store_of_restore(restore, backup)?;
        let found = self.store(namespace, store)?;
        let saved = backup.map(|backup| backup.cluster.as_str());
        let location = saved.map(|saved| build::backup_location(&found.spec, namespace, saved));
        Some(StorePlace {
            name: store.to_owned(),
            location: location.unwrap_or_default(),
        })
    }

    pub(super) fn cached_cluster(&self, namespace: &str, name: &str) -> Option<EtcdCluster> {
        let found = self.shared.caches.clusters.get(namespace, name)?;
        found.0.as_ref().ok().cloned()
    }

    /// What the identity Secret says, if it is this cluster's.
    pub(super) fn identity(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Option<IdentitySecret> {
        let secrets = &self.shared.caches.secrets;
        let identity = secrets.get(namespace, &identity_secret_name(name))?;
        let identity = read_identity_secret(identity.secret(), name, uid);
        (identity.owner == Owner::Ours).then_some(identity)
    }

    /// The member that forms the cluster, once everything is there that a Job needs to reach it.
    fn seed(
        &self,
        namespace: &str,
        name: &str,
        identity: Option<IdentitySecret>,
    ) -> Option<String> {
        let secrets = &self.shared.caches.secrets;
        let key = secrets.get(namespace, &operator_secret_name(name))?;
        build::operator_key(key.secret())?;
        identity
            .filter(|identity| !identity.terminating)
            .map(|identity| identity.seed)
    }

    async fn named_backup(
        &self,
        namespace: &str,
        restore: &Restore,
        freshness: Freshness,
    ) -> Result<Option<NamedBackup>, Failure> {
        let Some(named) = &restore.backup_ref else {
            return Ok(None);
        };
        let found = match freshness {
            Freshness::Cached => self.backup(namespace, &named.name),
            Freshness::Live => self.live(namespace, &named.name).await?,
        };
        Ok(found.map(|backup| NamedBackup {
            cluster: backup.spec.cluster_ref.name,
            store: backup.spec.store_ref.name,
            status: backup.status.unwrap_or_default(),
        }))
    }

    pub(super) async fn act_for_restore(
        &self,
        cluster: &EtcdCluster,
        step: &BackupStep,
        work: Option<&JobOfRestore>,
        keys: Keys,
    ) -> Result<(), Failure> {
        let namespace = cluster.namespace().unwrap_or_default();
        let name = cluster.name_any();
        let owner = BackupOwner {
            kind: "EtcdCluster",
            name: name.clone(),
            uid: cluster.uid().unwrap_or_default(),
        };
        match (step, work) {
            (BackupStep::CreateJob { attempt, .. }, Some(JobOfRestore { store, work })) => {
                let references = (&*name, &**store);
                let job = self
                    .create_job(&namespace, references, &owner, work, *attempt)
                    .await?;
                self.apply_keys((&namespace, &name), &owner, &job, keys)
                    .await
            }
            (BackupStep::ApplyKey { job }, _) => {
                self.apply_keys_of((&namespace, &name), &owner, job, keys)
                    .await
            }
            (BackupStep::DeleteJob { name }, _) => {
                self.delete_named::<k8s_openapi::api::batch::v1::Job>(&namespace, name)
                    .await
            }
            (other, _) => Err(super::act::unexpected(other)),
        }
    }
}

/// What a Job is made for.
pub(super) struct JobOfRestore {
    /// The EtcdBackupStore; empty without one.
    store: String,
    work: BackupWork,
}

impl JobOfRestore {
    fn new(observed: &Seen, target: RestoreTarget) -> Option<Self> {
        let recovery = observed.recovery();
        let seed = target.seed;
        Some(match target.from {
            RestoreFrom::Store { store, path, at } => {
                let work = BackupWork::Restore {
                    path,
                    at,
                    seed,
                    recovery,
                };
                Self { store, work }
            }
            RestoreFrom::Survivor(survivor) => Self::without_store(BackupWork::Recover {
                survivor,
                seed,
                recovery: recovery?,
            }),
            RestoreFrom::Followed(follow) => Self::without_store(BackupWork::Seed { follow, seed }),
        })
    }

    pub(super) fn without_store(work: BackupWork) -> Self {
        Self {
            store: String::new(),
            work,
        }
    }
}
