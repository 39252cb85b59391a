//! Writes statuses and events about backups.

use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};

use super::Backups;
use crate::backup_plan::{StoreFinding, plan_store};
use crate::build;
use crate::crd::backups::{
    BackupPhase, EtcdBackup, EtcdBackupSchedule, EtcdBackupScheduleStatus, EtcdBackupStatus,
    EtcdBackupStore, EtcdBackupStoreStatus,
};
use crate::operator::kubernetes::objects::apply_status;
use crate::operator::platform::Failure;

impl Backups {
    pub(super) async fn write_backup(
        &self,
        backup: &EtcdBackup,
        before: &EtcdBackupStatus,
        status: &EtcdBackupStatus,
    ) -> Result<(), Failure> {
        if before == status {
            return Ok(());
        }
        let (namespace, name) = (backup.namespace().unwrap_or_default(), backup.name_any());
        let uid = backup.uid().unwrap_or_default();
        let client = &self.shared.client;
        apply_status::<EtcdBackup>(client, (&namespace, &name), &uid, status).await?;
        if before.phase != status.phase {
            self.publish_phase(backup, status).await;
        }
        Ok(())
    }

    async fn publish_phase(&self, backup: &EtcdBackup, status: &EtcdBackupStatus) {
        let note = match status.phase {
            BackupPhase::Pending => return,
            BackupPhase::Streaming => "The data are read and stored".to_owned(),
            BackupPhase::Uploaded => {
                format!("Revision {} is stored", status.revision.unwrap_or(0))
            }
            BackupPhase::Verified => "It was restored and compared".to_owned(),
            BackupPhase::Failed => status.message.clone().unwrap_or_default(),
        };
        let event = Event {
            type_: match status.phase {
                BackupPhase::Failed => EventType::Warning,
                _ => EventType::Normal,
            },
            reason: format!("{:?}", status.phase),
            note: Some(note),
            action: "Backup".to_owned(),
            secondary: None,
        };
        let about = backup.object_ref(&());
        // An event that is lost is not worth a failed reconcile.
        if let Err(error) = self.shared.recorder.publish(&event, &about).await {
            tracing::warn!(backup = %backup.name_any(), %error, "an event was not written");
        }
    }

    pub(super) async fn write_schedule(
        &self,
        schedule: &EtcdBackupSchedule,
        before: &EtcdBackupScheduleStatus,
        status: &EtcdBackupScheduleStatus,
    ) -> Result<(), Failure> {
        if before == status {
            return Ok(());
        }
        let namespace = schedule.namespace().unwrap_or_default();
        let (name, uid) = (schedule.name_any(), schedule.uid().unwrap_or_default());
        let client = &self.shared.client;
        apply_status::<EtcdBackupSchedule>(client, (&namespace, &name), &uid, status).await?;
        Ok(())
    }

    /// What a Job found out about a store.
    pub(super) async fn write_finding(
        &self,
        namespace: &str,
        store: &str,
        finding: &StoreFinding,
    ) -> Result<(), Failure> {
        let Some(cached) = self.store(namespace, store) else {
            return Ok(());
        };
        let known = cached.status.clone().unwrap_or_default();
        if plan_store(&known, finding, cached.metadata.generation) == known {
            return Ok(());
        }
        // The cache may not have the finding before this one.
        let Some(store) = self.live::<EtcdBackupStore>(namespace, store).await? else {
            return Ok(());
        };
        let before = store.status.clone().unwrap_or_default();
        let status = plan_store(&before, finding, store.metadata.generation);
        self.write_store(&store, &before, &status).await
    }

    pub(super) async fn write_url(&self, store: &EtcdBackupStore) -> Result<(), Failure> {
        let before = store.status.clone().unwrap_or_default();
        let status = EtcdBackupStoreStatus {
            url: Some(build::store_url(&store.spec)),
            ..before.clone()
        };
        self.write_store(store, &before, &status).await
    }

    async fn write_store(
        &self,
        store: &EtcdBackupStore,
        before: &EtcdBackupStoreStatus,
        status: &EtcdBackupStoreStatus,
    ) -> Result<(), Failure> {
        if before == status {
            return Ok(());
        }
        let namespace = store.namespace().unwrap_or_default();
        let (name, uid) = (store.name_any(), store.uid().unwrap_or_default());
        let client = &self.shared.client;
        apply_status::<EtcdBackupStore>(client, (&namespace, &name), &uid, status).await?;
        Ok(())
    }
}
