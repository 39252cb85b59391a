//! What the operator reports: the last observed state, what it does, why it waits and what is next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LastBackup;
use super::follow::FollowStatus;
use super::schema;
use super::service::IpFamily;

/// State of a cluster as last observed. A hint for people and tools: the operator derives every decision from live
/// state, and losing the status only restarts its waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdClusterStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Voters in the cluster's own member list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Voters that answer linearizable reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Voters that run the current spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Ready voters of wanted voters, such as `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Updated voters of all voters, such as `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<String>,
    /// Label selector of the member pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// UID that the members and their volumes are bound to: the resource's own, or the adopted one.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Incarnation of the cluster under this UID; only an explicit recovery increases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Cluster ID that etcd clients see, in hexadecimal.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Lowest version that a voter runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Name of the leader; absent when no leader with a quorum was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Where clients connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// One sentence: what happens now and what comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The current step; absent at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepStatus>,
    /// One entry per member, including learners and standbys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// Objects that are kept, or belong to an earlier cluster with this name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub leftovers: Vec<Leftover>,
    /// Number of leftovers that are not listed; absent if it is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftovers_omitted: Option<i32>,
    /// New members that failed to join; absent after a successful one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_failures: Option<JoinFailures>,
    /// How often the alarm NOSPACE was disarmed in a row; absent once it has stayed off for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disarms: Option<Disarms>,
    /// Findings that block nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub notes: Vec<NoteStatus>,
    /// How the cluster comes or came to its first data; absent without `spec.bootstrap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreStatus>,
    /// How far the cluster is with `spec.bootstrap.follow` or `spec.replicaOf`; absent without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<FollowStatus>,
    /// The backups that this cluster would be restored from; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<ClusterBackups>,
    /// The write that is failing; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingAct>,
    /// The certificates in use, with their expiry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["secret"]))]
    pub certificates: Vec<CertificateStatus>,
    /// Ready, Available, Quorate, Progressing, Degraded, Durable and Stalled, TLSReady with TLS, Following with
    /// `spec.bootstrap.follow` or `spec.replicaOf`, and DisruptionAllowed with `disruption.policy: Auto`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Where clients connect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// URL of the client Service: any ready voter.
    pub client: String,
    /// URLs of the slots, one per wanted voter: each routes to one voter and outlives it. For clients that list all
    /// members, such as kube-apiserver (`--etcd-servers`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "atomic"))]
    pub slots: Vec<String>,
    /// IP families of the client Service, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_families: Vec<IpFamily>,
    /// Secret whose `ca.crt` holds the CAs of the members' certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretReference>,
    /// Secret with a certificate for clients: `tls.crt`, `tls.key` and `ca.crt`. Absent if the operator creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretReference>,
    /// Name of the ClusterTrustBundle with the CAs of the members' certificates. Absent if none is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_trust_bundle: Option<String>,
}

/// A Secret in the namespace of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    pub name: String,
}

/// A certificate in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The Secret that contains it.
    pub secret: String,
    /// The port that it is for: `client` or `peer`.
    pub port: String,
    /// The member that uses it; absent for a CA, for the client certificate, and for the user's own certificate of all
    /// members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// When it expires.
    #[schemars(extend("format" = "date-time"))]
    pub not_after: String,
}

/// The current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The action that is executed or waits, such as `Promote`.
    pub action: String,
    /// The member that it affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Whether the operator acts or waits.
    pub state: StepState,
    /// Machine-readable reason.
    pub reason: String,
    /// What has to happen first, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What comes after it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When this step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// When the wait ends and the operator takes another step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub deadline: Option<String>,
}

/// Whether the operator acts or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepState {
    /// The step is being executed.
    Acting,
    /// Something else has to happen first.
    Waiting,
}

/// Role of a member.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum MemberRole {
    /// Counts towards the quorum.
    Voter,
    /// Receives the log, does not vote.
    Learner,
    /// Its pod exists or is being created; it has not joined the cluster yet.
    Standby,
    /// It was removed from the cluster; its objects are being deleted.
    Leaving,
}

/// Health of a member, from recent observations.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum MemberHealth {
    /// The leader and the operator reach it.
    Healthy,
    /// There is evidence that it does not serve.
    Unhealthy,
    /// Not enough was observed to decide.
    Unknown,
}

/// State of one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member and of its StatefulSet.
    pub name: String,
    /// Member ID in hexadecimal, as `etcdctl member list` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Voter, Learner, Standby or Leaving.
    pub role: MemberRole,
    /// Whether it leads.
    #[serde(default)]
    pub leader: bool,
    /// Healthy, Unhealthy or Unknown.
    pub health: MemberHealth,
    /// Why it is not healthy, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Log entries that a learner has not received yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_entries: Option<i64>,
    /// Version that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The node of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Its PVC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_name: Option<String>,
    /// What its disk holds; only while no leader with a quorum is seen. An EtcdRecovery names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<MemberDisk>,
    /// Whether its pod was created from the current spec.
    #[serde(default)]
    pub updated: bool,
    /// How often the operator replaced its pod since it was last healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
}

/// What a member's disk holds, by its own description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberDisk {
    /// UUID of the disk.
    #[serde(rename = "diskUUID")]
    pub disk_uuid: String,
    /// Term of the last entry of its log.
    pub term: i64,
    /// Index of the last entry of its log.
    pub index: i64,
    /// When its log last grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_append_time: Option<String>,
    /// The alarm CORRUPT names this member: its data are not to be trusted, and no recovery goes on with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub corrupt: bool,
}

/// An object that is kept, or that belongs to an earlier cluster with this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Why it is kept, and what to do about it.
    pub reason: String,
}

/// A finding that blocks nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoteStatus {
    /// Machine-readable reason, such as VolumeKept.
    pub reason: String,
    /// What was observed and its consequence, in words.
    pub message: String,
}

/// The backups that a cluster would be restored from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterBackups {
    /// The newest good backup: its time is the recovery point of a cluster that is not archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<LastBackup>,
    /// The newest backup that was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified: Option<LastBackup>,
    /// Seconds that its verification took: the recovery time as last measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_seconds: Option<i64>,
    /// How far the archive of the log goes, as a member was last told: the recovery point of a cluster that is archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<ArchivedPoint>,
}

/// A moment up to which everything is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedPoint {
    /// Everything that was committed at this time is in the store; to half a minute.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    /// Index of the last entry that is in the store.
    pub raft_index: i64,
    /// Where the archive is.
    pub url: String,
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    /// No data have arrived yet.
    #[default]
    Pending,
    /// The first member receives the data.
    Receiving,
    /// The first member has all data, and forms the cluster with them.
    Received,
    /// The cluster was formed with the data.
    Restored,
}

/// How a cluster comes to its first data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreStatus {
    /// Pending, Receiving, Received or Restored.
    pub phase: RestorePhase,
    /// What is restored.
    pub source: String,
    /// What happens now, or what went wrong and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes that the first member has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<i64>,
    /// Bytes of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Revision of the snapshot, before it is raised by `revisionBump`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// When the first data were seen to have arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// When all data will have arrived, at the speed so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expected_end_time: Option<String>,
    /// When the cluster was seen to have been formed with the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub completion_time: Option<String>,
}

/// A write that fails and is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingAct {
    /// The action, in words.
    pub action: String,
    /// The last error, in words.
    pub message: String,
    /// Since when it has been failing.
    #[schemars(extend("format" = "date-time"))]
    pub start_time: String,
}

/// The alarm NOSPACE was disarmed, and was raised again or may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disarms {
    /// How often in a row.
    pub count: i32,
    /// Time of the last one.
    #[schemars(extend("format" = "date-time"))]
    pub last_time: String,
    /// ID of the member that the alarm named then, in hexadecimal.
    pub member_id: String,
}

/// New members that failed to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinFailures {
    /// How many in a row.
    pub count: i32,
    /// When the last one was given up.
    #[schemars(extend("format" = "date-time"))]
    pub last_time: String,
    /// What its pod was created from and its deadline; after a change the next attempt is immediate.
    pub inputs: String,
    /// Why, in words.
    pub reason: String,
}
