//! `spec.backupBeforeDeletion`: the last backup of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LocalRef;

/// The last backup of a cluster that is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupBeforeDeletion {
    /// The EtcdBackupStore that it is saved in.
    pub store_ref: LocalRef,
}
