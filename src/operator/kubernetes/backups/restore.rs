//! One reconcile of the restore of a new cluster: observes its Jobs and what they need, plans, carries out one step, and
//! notes for the cluster's own reconcile how it is doing. Writes no status.

use kube::ResourceExt;

use super::{Backups, PERIOD_MS};
use crate::backup_plan::{
    BackupStep, NamedBackup, ObservedRestore, RestoreReport, RestoreTarget, StorePlace,
    plan_restore, store_of_restore,
};
use crate::build::{self, BackupOwner, BackupWork};
use crate::crd::{EtcdCluster, Restore, identity_secret_name, operator_secret_name};
use crate::operator::admission::admit;
use crate::operator::kubernetes::observe::read_identity_secret;
use crate::operator::platform::{Failure, Freshness};
use crate::operator::queue::Ended;
use crate::plan::{Owner, RestoreFacts};
use crate::server::operator_api::auth::Key;

impl Backups {
    /// Plans on the caches; a step is planned once more on live Jobs and a live cluster.
    pub(super) async fn reconcile_restore(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Ended, Failure> {
        let key = (namespace.to_owned(), name.to_owned());
        let Some((_, observed)) = self
            .observe_restore(namespace, name, Freshness::Cached)
            .await?
        else {
            self.note_restore(key, None);
            return Ok(Ended::Gone);
        };
        let plan = plan_restore(&observed);
        self.note_restore(key.clone(), plan.report.clone());
        if plan.step.is_none() {
            return Ok(match plan.report {
                None => Ended::Gone,
                Some(_) => Ended::After(plan.again_ms.unwrap_or(PERIOD_MS)),
            });
        }
        let Some((cluster, observed)) = self
            .observe_restore(namespace, name, Freshness::Live)
            .await?
        else {
            self.note_restore(key, None);
            return Ok(Ended::Gone);
        };
        let plan = plan_restore(&observed);
        if let Some(step) = &plan.step {
            let done = self.act_for_restore(&cluster, step, plan.target.as_ref());
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

    /// A cluster that is to be restored or was; `None` for any other.
    async fn observe_restore(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<(EtcdCluster, ObservedRestore)>, Failure> {
        let found = match freshness {
            Freshness::Cached => self.cached_cluster(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        let found = found.filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(cluster) = found else {
            return Ok(None);
        };
        let Some(restore) = cluster.spec.bootstrap.as_ref().map(|it| it.restore.clone()) else {
            return Ok(None);
        };
        let uid = cluster.uid().unwrap_or_default();
        let jobs = self.jobs(namespace, ("cluster", name, &uid), freshness);
        let status = cluster.status.as_ref();
        let backup = self.named_backup(namespace, &restore, freshness).await?;
        let observed = ObservedRestore {
            cluster: admit(&cluster).map_err(|invalid| invalid.to_string()),
            formed: status.is_some_and(|status| status.cluster_id.is_some()),
            seed: self.seed(namespace, name, &uid),
            store: store_of_restore(&restore, backup.as_ref()).and_then(|store| {
                let found = self.store(namespace, store)?;
                let saved = backup.as_ref().map(|backup| backup.cluster.as_str());
                let location =
                    saved.map(|saved| build::backup_location(&found.spec, namespace, saved));
                Some(StorePlace {
                    name: store.to_owned(),
                    location: location.unwrap_or_default(),
                })
            }),
            backup,
            jobs: jobs.await?,
            restore,
            now: self.now(),
        };
        Ok(Some((cluster, observed)))
    }

    pub(super) fn cached_cluster(&self, namespace: &str, name: &str) -> Option<EtcdCluster> {
        let found = self.shared.caches.clusters.get(namespace, name)?;
        found.0.as_ref().ok().cloned()
    }

    /// The member that forms the cluster, once everything is there that a Job needs to reach it.
    fn seed(&self, namespace: &str, name: &str, uid: &str) -> Option<String> {
        let secrets = &self.shared.caches.secrets;
        let key = secrets.get(namespace, &operator_secret_name(name))?;
        build::operator_key(&key)?;
        let identity = secrets.get(namespace, &identity_secret_name(name))?;
        let identity = read_identity_secret(&identity, name, uid);
        (identity.owner == Owner::Ours && !identity.terminating).then_some(identity.seed)
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

    async fn act_for_restore(
        &self,
        cluster: &EtcdCluster,
        step: &BackupStep,
        target: Option<&RestoreTarget>,
    ) -> Result<(), Failure> {
        let namespace = cluster.namespace().unwrap_or_default();
        let name = cluster.name_any();
        let owner = BackupOwner {
            kind: "EtcdCluster",
            name: name.clone(),
            uid: cluster.uid().unwrap_or_default(),
        };
        match (step, target) {
            (BackupStep::CreateJob { attempt, .. }, Some(target)) => {
                let work = BackupWork::Restore {
                    path: target.path.clone(),
                    seed: target.seed.clone(),
                };
                let references = (&*name, &*target.store);
                let job = self
                    .create_job(&namespace, references, &owner, &work, *attempt)
                    .await?;
                self.apply_key((&namespace, &name), &owner, &job, Key::for_restores)
                    .await
            }
            (BackupStep::ApplyKey { job }, _) => {
                self.apply_key_of((&namespace, &name), &owner, job, Key::for_restores)
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
