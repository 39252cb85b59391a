//! What the operator reports: the last seen state, what it does, why it waits and what is next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// State of a cluster as last seen. A hint for people and tools: the operator derives every
/// decision from live facts, and losing the status only restarts its waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdClusterStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Voters of the cluster, as its own member list says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Voters that answer linearizable reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Voters that run what the spec asks for.
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
    /// UID of the resource that the members are bound to.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Life of the cluster under this UID; only an explicit recovery raises it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Cluster ID that etcd clients see, in hexadecimal.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Lowest version that a voter runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Name of the member that leads; absent when no leader with a quorum was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Where clients connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// One plain sentence: what happens now and what comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The step in hand; absent at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepStatus>,
    /// One entry a member, learners and standbys included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// Objects that are kept or belong to another life of this name; never adopted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub leftovers: Vec<Leftover>,
    /// How many leftovers there are beside those listed; absent where that is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftovers_omitted: Option<i32>,
    /// New members that did not make it, and since when; absent when the last one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_failures: Option<JoinFailures>,
    /// How often the alarm NOSPACE was switched off in a row; absent once it has stayed off for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disarms: Option<Disarms>,
    /// What is worth knowing and stops nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub notes: Vec<NoteStatus>,
    /// A write that failed, while it does; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingAct>,
    /// The certificates in use, and until when they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["secret"]))]
    pub certificates: Vec<CertificateStatus>,
    /// Ready, Available, Quorate, Progressing, Degraded, Durable and Stalled, and TLSReady with TLS.
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
    /// URLs of the slots, one a wanted voter: each leads to one voter and outlives it, so a client
    /// that wants to know all members (kube-apiserver's `--etcd-servers`) lists these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "atomic"))]
    pub slots: Vec<String>,
    /// Secret whose `ca.crt` holds the authorities that vouch for the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretReference>,
    /// Secret with a certificate for clients: `tls.crt`, `tls.key` and `ca.crt`. Absent where the
    /// operator makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretReference>,
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
    /// The Secret that holds it.
    pub secret: String,
    /// The port that it is for: `client` or `peer`.
    pub port: String,
    /// The member that shows it; absent for an authority, for the certificate of clients, and for
    /// one that the user gives to all members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// When it ends.
    #[schemars(extend("format" = "date-time"))]
    pub not_after: String,
}

/// The step in hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// What is done or waited for, such as `Promote`.
    pub action: String,
    /// The member that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Whether the operator acts or waits.
    pub state: StepState,
    /// A machine-readable word for why.
    pub reason: String,
    /// What has to happen first, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What comes after it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Since when this step is in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start_time: Option<String>,
    /// When the wait ends and the operator does something else.
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

/// What a member is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum MemberRole {
    /// Counts for the quorum.
    Voter,
    /// Receives the log, does not vote.
    Learner,
    /// Its pod exists or is being made; it is not in the cluster yet.
    Standby,
    /// It is out of the cluster; its objects are going.
    Leaving,
}

/// What was seen of a member within the freshness bound.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum MemberHealth {
    /// The leader and the operator reach it.
    Healthy,
    /// There is evidence that it does not serve.
    Unhealthy,
    /// Not enough was seen to say either.
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
    /// Entries that a learner still lacks.
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
    /// Whether its pod was made from the current spec.
    #[serde(default)]
    pub updated: bool,
    /// Times that the operator replaced its pod since it was last healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
}

/// An object that is kept, or that belongs to another life of this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Why it is left and what to do about it.
    pub reason: String,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoteStatus {
    /// Machine-readable word for it, such as VolumeKept.
    pub reason: String,
    /// What was seen and what it leads to, in words.
    pub message: String,
}

/// A write that failed and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingAct {
    /// What is to be done, in words.
    pub action: String,
    /// Why it failed last, in words.
    pub message: String,
    /// Since when it fails.
    #[schemars(extend("format" = "date-time"))]
    pub start_time: String,
}

/// The alarm NOSPACE was switched off, and came on again or may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disarms {
    /// How often in a row.
    pub count: i32,
    /// When last.
    #[schemars(extend("format" = "date-time"))]
    pub last_time: String,
    /// The ID of the member that it named then, in hexadecimal.
    pub member_id: String,
}

/// New members that did not make it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinFailures {
    /// How many in a row.
    pub count: i32,
    /// When the last one was given up.
    #[schemars(extend("format" = "date-time"))]
    pub last_time: String,
    /// What its pod was made from and how long it had; what differs is tried at once.
    pub inputs: String,
    /// Why, in words.
    pub reason: String,
}
