//! The resource `EtcdBackup`: one backup of one cluster.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LocalRef;
use crate::crd::schema;

/// One backup.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdBackup",
    plural = "etcdbackups",
    shortname = "qb",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdBackupStatus",
    derive = "PartialEq",
    doc = "A backup of an EtcdCluster. Deleting it keeps what is stored.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "What was saved"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Pending, Streaming, Uploaded, Verified or Failed"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.revision", description = "Revision of the data"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size", description = "Size of the data"),
    printcolumn(name = "Taken", type_ = "date", json_path = ".status.startTime", description = "When the data were read"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", description = "What happens now, or went wrong"),
    printcolumn(name = "Store", type_ = "string", json_path = ".spec.storeRef.name", priority = "1", description = "Where it is"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.id", priority = "1", description = "Its name in the store"),
    validation = kube_core::Rule::new("size(self.metadata.name) <= 50")
        .message("the name must have at most 50 characters, because Jobs are named after it: choose a shorter metadata.name"),
    validation = kube_core::Rule::new("self.spec == oldSelf.spec")
        .message("a backup is of one moment, so its spec is immutable: create another EtcdBackup")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// The EtcdCluster that is saved.
    pub cluster_ref: LocalRef,
    /// The EtcdBackupStore that it is saved in.
    pub store_ref: LocalRef,
    /// Whether the backup is restored into a throw-away member and compared, right after it was saved.
    #[serde(default)]
    pub verify: bool,
    /// MiB a second at most that the member writes for the backup, and that are read from it. By default 25: members serve
    /// beside it as without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 100000", "rateMiBPerSecond must be 1 to 100000")])))]
    #[serde(rename = "rateMiBPerSecond")]
    pub rate_mib_per_second: Option<i32>,
    /// Seconds after which a backup that could not be saved or verified is given up. Until then it is repeated.
    #[serde(default = "default_deadline")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 60 && self <= 604800", "deadlineSeconds must be 60 to 604800 (a week)")])))]
    pub deadline_seconds: i32,
}

impl EtcdBackupSpec {
    /// Six hours.
    pub const DEADLINE_SECONDS: i32 = 21_600;
}

fn default_deadline() -> i32 {
    EtcdBackupSpec::DEADLINE_SECONDS
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// No Job runs yet, or it waits.
    #[default]
    Pending,
    /// A Job reads the data and stores them.
    Streaming,
    /// It is stored as a whole.
    Uploaded,
    /// It was restored and compared.
    Verified,
    /// It was given up, cannot be restored, or is gone.
    Failed,
}

/// State of a backup as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdBackupStatus {
    /// How far it is.
    pub phase: BackupPhase,
    /// What happens now and why, or what went wrong and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Jobs so far for the current phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The backup's name in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When a member was asked for the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,
    /// When everything was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completion_time: Option<Time>,
    /// Seconds between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i64>,
    /// ID of the cluster, as etcdctl prints it.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// ID of the member that gave the data.
    #[serde(rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Revision of the data, read from themselves, as everything below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Index of the last entry of the log in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,
    /// Its term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raft_term: Option<i64>,
    /// etcd's HashKV at that revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<i64>,
    /// Keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// Bytes of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// The same for people, such as 1.2 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Bytes in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    /// Name of the key with which it is encrypted, a digest of it; absent if it is not encrypted.
    #[serde(rename = "encryptionKeyID", skip_serializing_if = "Option::is_none")]
    pub encryption_key_id: Option<String>,
    /// Its last verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationStatus>,
    /// Ready: the backup is stored, and nothing is known against it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A verification: the backup was restored into a throw-away member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationStatus {
    /// When it ended.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    /// Seconds from the first byte read from the store to a member that answers: the measured recovery time.
    pub seconds: i64,
    /// Version of the member.
    pub version: String,
}
