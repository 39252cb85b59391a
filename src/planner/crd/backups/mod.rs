//! The resources about backups: where they are stored, one backup, and a schedule of them. Every field has an effect.

mod backup;
mod schedule;
mod store;

#[cfg(test)]
mod tests;

pub use backup::{BackupPhase, EtcdBackup, EtcdBackupSpec, EtcdBackupStatus, VerificationStatus};
pub use schedule::{
    ArchivePhase, ArchiveStatus, EtcdBackupSchedule, EtcdBackupScheduleSpec,
    EtcdBackupScheduleStatus, LastBackup, ScheduleArchive, ScheduleRetention,
};
pub use store::{
    AzureStore, EtcdBackupStore, EtcdBackupStoreSpec, EtcdBackupStoreStatus, GcsStore, S3Store,
    Scratch, SecretKeyRef, StoreEncryption, VolumeStore,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A resource of the same namespace, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
