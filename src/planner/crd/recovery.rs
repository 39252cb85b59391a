//! The resource `EtcdRecovery`: the reviewed act by which a cluster that has lost its quorum goes on, from a member that
//! is left or from a backup, under the same name, Services and certificates.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LocalRef;
use super::bootstrap::{Restore, default_bump};
use super::follow::FollowedCluster;
use super::schema;

/// What is recovered, and from what.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdRecovery",
    plural = "etcdrecoveries",
    shortname = "qr",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdRecoveryStatus",
    derive = "PartialEq",
    doc = "The recovery of an EtcdCluster that has lost its quorum for good. `kubectl quorate recover NAME --plan` writes one for review.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "What is recovered"),
    printcolumn(name = "Survivor", type_ = "string", json_path = ".spec.survivor.member", description = "The member whose data are kept; none: a backup's"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Pending, Fencing, Restoring, Recovered or Refused"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "When it was asked for"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", description = "What happens now, or why nothing does"),
    validation = kube_core::Rule::new("has(self.spec.survivor) != has(self.spec.restore)")
        .message("give either spec.survivor, or spec.restore"),
    validation = kube_core::Rule::new("self.spec.acceptLoss")
        .message("acceptLoss has to be true: what only the lost members hold is lost for good"),
    validation = kube_core::Rule::new("self.spec == oldSelf.spec")
        .message("a recovery was reviewed as it is, so its spec is immutable: delete it and create another EtcdRecovery")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRecoverySpec {
    /// The EtcdCluster.
    pub cluster_ref: LocalRef,
    /// Its UID (`metadata.uid`, or the one that it has adopted: `status.clusterUID`): a cluster that was created again under
    /// its name is another one.
    #[serde(rename = "clusterUID")]
    #[schemars(length(min = 1, max = 64))]
    pub cluster_uid: String,
    /// The incarnation that has lost its quorum, as in `status.incarnation`. The recovered cluster is the next one, so a
    /// recovery is carried out once.
    #[serde(default = "first_incarnation")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 1000000", "incarnation must be 1 to 1000000")])))]
    pub incarnation: i64,
    /// The member whose data are kept. It is only read; a new member gets them, and the volumes of the former members stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<Survivor>,
    /// The backup whose data the cluster gets, where no member is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// What only the lost members hold is lost. Has to be true.
    pub accept_loss: bool,
}

/// A member that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Survivor {
    /// Its name, such as demo-2.
    #[schemars(length(min = 1, max = 63))]
    pub member: String,
    /// What its disk held when this was reviewed. Nothing is done if it holds less, or is another one.
    pub expect: ExpectedDisk,
    /// By how much the revision is raised, so that it is above every one that a client has seen. Everything before counts
    /// as compacted. 0: neither.
    #[serde(default = "default_bump")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 1000000000000", "survivor.revisionBump must be 0 to 1000000000000")])))]
    pub revision_bump: i64,
}

/// What a survivor's disk holds at least.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedDisk {
    /// UUID of the disk.
    #[serde(rename = "diskUUID")]
    #[schemars(length(min = 1, max = 64))]
    pub disk_uuid: String,
    /// Term of the last entry of its log.
    #[schemars(range(min = 1))]
    pub term: i64,
    /// Index of the last entry of its log.
    #[schemars(range(min = 1))]
    pub index: i64,
}

fn first_incarnation() -> i64 {
    1
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPhase {
    /// Nothing was done yet.
    #[default]
    Pending,
    /// Every former member is stopped but the survivor.
    Fencing,
    /// A new member receives the data.
    Restoring,
    /// The cluster was formed again.
    Recovered,
    /// It is not carried out: it does not fit the cluster.
    Refused,
}

/// State of a recovery as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdRecoveryStatus {
    /// How far it is.
    pub phase: RecoveryPhase,
    /// What happens now, or why nothing does and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The incarnation that it makes, or has made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// The new member that gets the data and forms the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
    /// When the first former member was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,
    /// When the cluster was formed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completion_time: Option<Time>,
}

/// Where the first data of a cluster come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A backup or a snapshot in a store.
    Stored(Restore),
    /// A member of the incarnation before.
    Survivor(Survivor),
    /// A living cluster, which is followed from then on.
    Followed(FollowedCluster),
}

impl DataSource {
    /// What it is, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            DataSource::Stored(restore) => restore.in_words(),
            DataSource::Survivor(survivor) => format!("the data of {}", survivor.member),
            DataSource::Followed(follow) => format!("a snapshot of {}", follow.in_words()),
        }
    }

    /// By how much the revision is raised.
    #[must_use]
    pub fn revision_bump(&self) -> u64 {
        let bump = match self {
            DataSource::Stored(restore) => restore.revision_bump,
            DataSource::Survivor(survivor) => survivor.revision_bump,
            // Clients go on at the revisions that they have seen.
            DataSource::Followed(_) => 0,
        };
        // Not negative, by the schema.
        u64::try_from(bump).unwrap_or(0)
    }

    /// Whether the cluster follows the one that its data come from.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        matches!(self, DataSource::Followed(_))
    }
}

impl EtcdRecoverySpec {
    /// Where the data come from; `None` for one that breaks its rules.
    #[must_use]
    pub fn source(&self) -> Option<DataSource> {
        match (&self.survivor, &self.restore) {
            (Some(survivor), None) => Some(DataSource::Survivor(survivor.clone())),
            (None, Some(restore)) => Some(DataSource::Stored(restore.clone())),
            _ => None,
        }
    }
}
