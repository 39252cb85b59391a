//! `spec.bootstrap`: where a new cluster has its first data from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LocalRef;
use super::schema;

/// Where the first data come from. Without it a cluster starts empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Start with the data of a backup or of a snapshot. A Job gives them to the first member, and the cluster is not
    /// formed before that member has all of them. Members are added as to any other cluster.
    pub restore: Restore,
}

/// A backup, or a snapshot that etcd or `quorate backup fetch` wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("has(self.backupRef) != has(self.storeRef)", "give either bootstrap.restore.backupRef, or storeRef and path"), ("has(self.path) == has(self.storeRef)", "bootstrap.restore.storeRef and path go together: a store, and what to restore from it")])))]
pub struct Restore {
    /// An EtcdBackup of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_ref: Option<LocalRef>,
    /// An EtcdBackupStore of this namespace, for what is stored there and has no EtcdBackup: a backup of another
    /// Kubernetes cluster, or a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_ref: Option<LocalRef>,
    /// Where it is below the store's prefix: `NAMESPACE/CLUSTER/ID` of a backup, or the name of a file that `etcdctl
    /// snapshot save` wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_path")]
    pub path: Option<String>,
    /// By how much the revision is raised, so that it is above every one that a client has seen of the lost cluster.
    /// Everything before the raised revision counts as compacted: watches that resume are told to read again. 0: the
    /// revision stays, and a client that has seen later ones may take the restored data for newer than they are.
    #[serde(default = "default_bump")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 1000000000000", "bootstrap.restore.revisionBump must be 0 to 1000000000000")])))]
    pub revision_bump: i64,
}

impl Default for Restore {
    fn default() -> Self {
        Restore {
            backup_ref: None,
            store_ref: None,
            path: None,
            revision_bump: default_bump(),
        }
    }
}

impl Restore {
    /// What is restored, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        match (&self.backup_ref, &self.store_ref, &self.path) {
            (Some(backup), ..) => format!("EtcdBackup {}", backup.name),
            (None, Some(store), Some(path)) => {
                format!("{path} in EtcdBackupStore {}", store.name)
            }
            // The rules of the schema refuse it.
            _ => "nothing".to_owned(),
        }
    }
}

/// A billion: more writes than happen between two backups.
pub(super) fn default_bump() -> i64 {
    1_000_000_000
}
