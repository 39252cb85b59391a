//! The resource `EtcdBackupStore`: an object store or a volume, and how its backups are encrypted.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LocalRef;
use crate::crd::schema;

/// Where backups are stored.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdBackupStore",
    plural = "etcdbackupstores",
    shortname = "qbs",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdBackupStoreStatus",
    derive = "PartialEq",
    doc = "A place for backups of EtcdClusters of its namespace: S3, Google Cloud Storage, Azure Blob Storage or a volume.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", description = "Whether the last Job could use it"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url", description = "Where backups are"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = "1", description = "What the last Job found"),
    validation = kube_core::Rule::new("(has(self.spec.s3) ? 1 : 0) + (has(self.spec.gcs) ? 1 : 0) + (has(self.spec.azure) ? 1 : 0) + (has(self.spec.volume) ? 1 : 0) == 1")
        .message("give exactly one of spec.s3, spec.gcs, spec.azure and spec.volume"),
    validation = kube_core::Rule::new("!has(self.spec.volume) || (!has(self.spec.credentialsSecretRef) && !has(self.spec.caSecretRef))")
        .message("a volume needs neither credentialsSecretRef nor caSecretRef: remove them")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStoreSpec {
    /// Amazon S3, or a store with its API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
    /// Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,
    /// Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureStore>,
    /// A volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeStore>,
    /// Secret whose keys become environment variables of the Jobs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
    /// GOOGLE_SERVICE_ACCOUNT_KEY, AZURE_STORAGE_ACCOUNT_KEY and so on. Not needed with a workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalRef>,
    /// Key of a Secret with PEM roots of the store's certificate, in addition to the well-known ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// ServiceAccount of the Jobs, for a workload identity. Its token is mounted only if this field is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// With which key backups are encrypted. Without it they are stored as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<StoreEncryption>,
    /// Space for the Jobs: as many bytes as the data for a backup, three times as many for a verification. By default
    /// that of the node, as an `emptyDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Scratch>,
}

/// A bucket of Amazon S3, or of a store with its API. The bucket is part of the path, not of the host's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Store {
    /// Name of the bucket.
    #[schemars(length(min = 1, max = 255))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')", "bucket is the name of a bucket alone, without scheme or path")])))]
    pub bucket: String,
    /// Folder of the backups in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_prefix")]
    pub prefix: Option<String>,
    /// Region of the bucket; by default that of the credentials, or us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub region: Option<String>,
    /// URL of a store other than Amazon's, with http:// or https://.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_endpoint")]
    pub endpoint: Option<String>,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStore {
    /// Name of the bucket.
    #[schemars(length(min = 1, max = 255))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')", "bucket is the name of a bucket alone, without scheme or path")])))]
    pub bucket: String,
    /// Folder of the backups in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_prefix")]
    pub prefix: Option<String>,
}

/// A container of Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureStore {
    /// Name of the storage account.
    #[schemars(length(min = 1, max = 64))]
    pub account: String,
    /// Name of the container.
    #[schemars(length(min = 1, max = 255))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[a-z0-9$][a-z0-9-]*$')", "container is the name of a container alone, without scheme or path")])))]
    pub container: String,
    /// Folder of the backups in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_prefix")]
    pub prefix: Option<String>,
    /// URL of a store other than Azure's, with http:// or https://.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_endpoint")]
    pub endpoint: Option<String>,
}

/// A volume, which one Job after the other mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStore {
    /// Name of a PersistentVolumeClaim of the namespace. Other than the members' volumes, it should survive the nodes
    /// that they are on.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Folder of the backups on the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::store_prefix")]
    pub prefix: Option<String>,
}

/// How backups are encrypted: AES-256-GCM, with keys that are derived from the given one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreEncryption {
    /// Key of a Secret with 32 random bytes in base64 (`openssl rand -base64 32`). Keep a copy outside of this
    /// Kubernetes cluster: without the key no backup can be restored.
    pub key_secret_ref: SecretKeyRef,
    /// Earlier keys, with which older backups are read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub previous_key_secret_refs: Vec<SecretKeyRef>,
}

/// One key of a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A volume of its own for each Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scratch {
    /// Size of the volume, such as 8Gi.
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("isQuantity(self) && quantity(self).isGreaterThan(quantity('16Mi'))", "scratch.size must be a quantity of more than 16Mi, such as 8Gi")])))]
    pub size: String,
    /// Its storage class; by default the default class of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
}

/// What the Jobs found. A hint for people and tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdBackupStoreStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where backups are; each cluster has a folder below it, named after its namespace and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When a Job last found out whether it can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_use_time: Option<Time>,
    /// Ready: whether the last Job could use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
