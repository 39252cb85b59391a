//! `spec.bootstrap`: where a new cluster has its first data from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LocalRef;
use super::follow::Follow;
use super::schema;
use super::spec::{EtcdCluster, EtcdClusterSpec};

/// Where the first data come from. Without it a cluster starts empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("(has(self.restore) ? 1 : 0) + (has(self.adopt) ? 1 : 0) + (has(self.follow) ? 1 : 0) == 1", "give one of bootstrap.restore, bootstrap.adopt and bootstrap.follow: a cluster starts with the data of a backup, goes on with its own volumes, or follows a living cluster")])))]
pub struct Bootstrap {
    /// Start with the data of a backup or of a snapshot. A Job gives them to the first member, and the cluster is not
    /// formed before that member has all of them. Members are added as to any other cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// Go on with the volumes that a deleted EtcdCluster of this name has left in this namespace: its members start on
    /// them, all together, as they do after hibernation. No cluster is formed and nothing is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adopt>,
    /// Start with a snapshot of a living cluster, of etcd or of Quorate, follow it at the same revisions, and take its
    /// place. Until then clients may read here and not write. Members are added as to any other cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
}

/// Which volumes a cluster goes on with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adopt {
    /// The UID that the volumes are labelled with: `kubectl get pvc -L quorate.dev/cluster-uid`. It is the UID of the
    /// deleted EtcdCluster, or the one that it had adopted.
    #[serde(rename = "clusterUID")]
    #[schemars(schema_with = "schema::cluster_uid")]
    pub cluster_uid: String,
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
    /// snapshot save` wrote. With `at` also `NAMESPACE/CLUSTER`: the newest good backup before that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_path")]
    pub path: Option<String>,
    /// Restore a moment after the backup, from the archived log that follows it. Without it, the backup alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// By how much the revision is raised, so that it is above every one that a client has seen of the lost cluster.
    /// Everything before the raised revision counts as compacted: watches that resume are told to read again. 0: the
    /// revision stays, and a client that has seen later ones may take the restored data for newer than they are.
    #[serde(default = "default_bump")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 1000000000000", "bootstrap.restore.revisionBump must be 0 to 1000000000000")])))]
    pub revision_bump: i64,
}

impl EtcdClusterSpec {
    /// What the cluster is restored from, if it is.
    #[must_use]
    pub fn restore(&self) -> Option<&Restore> {
        self.bootstrap.as_ref()?.restore.as_ref()
    }

    /// The UID of the deleted cluster whose volumes it goes on with, if it does.
    #[must_use]
    pub fn adopts(&self) -> Option<&str> {
        let adopt = self.bootstrap.as_ref()?.adopt.as_ref();
        adopt.map(|adopt| adopt.cluster_uid.as_str())
    }
}

impl EtcdCluster {
    /// The UID that its members, their volumes and its objects' labels carry: its own, or the adopted one.
    #[must_use]
    pub fn life(&self) -> &str {
        let own = self.metadata.uid.as_deref();
        self.spec.adopts().or(own).unwrap_or_default()
    }
}

impl Default for Restore {
    fn default() -> Self {
        Restore {
            backup_ref: None,
            store_ref: None,
            path: None,
            at: None,
            revision_bump: default_bump(),
        }
    }
}

/// A moment of a cluster whose log was archived: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("(has(self.time) ? 1 : 0) + (has(self.revision) ? 1 : 0) + (has(self.raftIndex) ? 1 : 0) + (has(self.latest) ? 1 : 0) == 1", "give one of restore.at.time, revision, raftIndex and latest")])))]
pub struct Moment {
    /// Nothing that was committed after this time, and everything up to one interval of the archive before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub time: Option<Time>,
    /// This revision is the last one that is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
    /// The entry of this index in the log is the last one that is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub raft_index: Option<i64>,
    /// To the end of the archive. Only `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self", "restore.at.latest is true, or left out")])))]
    pub latest: Option<bool>,
}

impl Moment {
    /// As the flag `--at` of `quorate backup restore` takes it.
    #[must_use]
    pub fn argument(&self) -> String {
        match (&self.time, self.revision, self.raft_index) {
            (Some(time), ..) => time.0.to_string(),
            (None, Some(revision), _) => format!("revision:{revision}"),
            (None, None, Some(index)) => format!("index:{index}"),
            (None, None, None) => "latest".to_owned(),
        }
    }

    /// In words, behind what is restored.
    #[must_use]
    pub fn in_words(&self) -> String {
        match (&self.time, self.revision, self.raft_index) {
            (Some(time), ..) => format!("at {}", time.0),
            (None, Some(revision), _) => format!("at revision {revision}"),
            (None, None, Some(index)) => format!("at index {index}"),
            (None, None, None) => "to the end of the archive".to_owned(),
        }
    }
}

impl Restore {
    /// What is restored, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let what = self.source_in_words();
        match &self.at {
            Some(moment) => format!("{what} {}", moment.in_words()),
            None => what,
        }
    }

    fn source_in_words(&self) -> String {
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
