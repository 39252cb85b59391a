//! The desired state: the `EtcdCluster` resource. Every field has an effect.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::autogrow::Autogrow;
use super::bootstrap::Bootstrap;
use super::deletion::BackupBeforeDeletion;
use super::network::NetworkAccess;
use super::pod::PodTemplate;
use super::quantity::Quantity;
use super::replica::ReplicaOf;
use super::schema;
use super::server::Server;
use super::service::ServiceOptions;
use super::tls::Tls;

/// The desired state of a cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "qec",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "super::status::EtcdClusterStatus",
    derive = "PartialEq",
    doc = "A replicated etcd-style cluster: any etcd v3 client can use it.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready", description = "Ready voters of wanted voters"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", description = "Lowest running version"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "The member that leads"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary", description = "What happens now and what comes next"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Updated", type_ = "string", json_path = ".status.updated", priority = "1", description = "Voters that run the current spec"),
    printcolumn(name = "Cluster ID", type_ = "string", json_path = ".status.clusterID", priority = "1", description = "Cluster ID that clients see"),
    validation = kube_core::Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name must start with a letter and hold only a-z, 0-9 and '-', because Services are named after it: choose another metadata.name"),
    validation = kube_core::Rule::new("size(self.metadata.name) <= 40")
        .message("the name must have at most 40 characters, because members and Services add to it: choose a shorter metadata.name"),
    validation = kube_core::Rule::new("!has(oldSelf.spec.tls) || has(self.spec.tls)")
        .message("tls cannot be removed from an existing cluster: restore it, or create a new cluster without it and copy the data (`etcdctl make-mirror`, or a snapshot)"),
    validation = kube_core::Rule::new("has(self.spec.bootstrap) == has(oldSelf.spec.bootstrap) && (!has(self.spec.bootstrap) || self.spec.bootstrap == oldSelf.spec.bootstrap || (has(self.spec.bootstrap.follow) && has(oldSelf.spec.bootstrap.follow) && self.spec.bootstrap.follow.endpoints == oldSelf.spec.bootstrap.follow.endpoints && has(self.spec.bootstrap.follow.tls) == has(oldSelf.spec.bootstrap.follow.tls) && (!has(self.spec.bootstrap.follow.tls) || self.spec.bootstrap.follow.tls == oldSelf.spec.bootstrap.follow.tls) && has(self.spec.bootstrap.follow.user) == has(oldSelf.spec.bootstrap.follow.user) && (!has(self.spec.bootstrap.follow.user) || self.spec.bootstrap.follow.user == oldSelf.spec.bootstrap.follow.user) && oldSelf.spec.bootstrap.follow.cutover == 'Manual' && self.spec.bootstrap.follow.cutover == 'WhenCaughtUp'))")
        .message("bootstrap is immutable, because it says where the first data of the cluster come from; only follow.cutover may be changed, from Manual to WhenCaughtUp: set it back, or create another cluster"),
    validation = kube_core::Rule::new("!has(self.spec.replicaOf) || !has(self.spec.bootstrap)")
        .message("give bootstrap or replicaOf, and not both: a standby has its first data from its source"),
    validation = kube_core::Rule::new("has(self.spec.replicaOf) == has(oldSelf.spec.replicaOf)")
        .message("replicaOf is set when an EtcdCluster is created, or never, and stays when it was promoted: create another EtcdCluster as the standby"),
    validation = kube_core::Rule::new("!has(self.spec.replicaOf) || !has(oldSelf.spec.replicaOf) || !has(oldSelf.status) || !has(oldSelf.status.follow) || oldSelf.status.follow.phase != 'CutOver' || (has(self.spec.replicaOf.promote) == has(oldSelf.spec.replicaOf.promote) && (!has(self.spec.replicaOf.promote) || self.spec.replicaOf.promote == oldSelf.spec.replicaOf.promote))")
        .message("replicaOf.promote stays as it was carried out: clients write here. To follow again, create another EtcdCluster as the standby"),
    validation = kube_core::Rule::new("!has(self.spec.service) || !has(self.spec.service.ipFamilies) || !has(oldSelf.status) || !has(oldSelf.status.endpoints) || !has(oldSelf.status.endpoints.ipFamilies) || (has(oldSelf.spec.service) && has(oldSelf.spec.service.ipFamilies) && self.spec.service.ipFamilies == oldSelf.spec.service.ipFamilies) || size(self.spec.service.ipFamilies) == 0 || size(oldSelf.status.endpoints.ipFamilies) == 0 || self.spec.service.ipFamilies[0] == oldSelf.status.endpoints.ipFamilies[0]")
        .message("service.ipFamilies must begin with the first one of status.endpoints.ipFamilies, because Kubernetes never changes the first family of a Service: begin with that one, or leave the field out"),
    validation = kube_core::Rule::new("!has(self.spec.server) || !has(self.spec.server.quota) || !isQuantity(self.spec.server.quota) || !isQuantity(self.spec.storage.size) || quantity(self.spec.server.quota).add(quantity(self.spec.server.quota)).add(quantity(self.spec.server.quota)).add(quantity(self.spec.server.quota)).compareTo(quantity(self.spec.storage.size)) <= 0")
        .message("server.quota must be at most a quarter of storage.size: up to three checkpoints of the data and as much log are on the volume; lower the quota or raise storage.size")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Voting members, 1 to 9. Odd sizes are better: an even one needs one more member for its quorum and tolerates no
    /// more failures than the odd size below it. 0 hibernates the cluster: every member stops, volumes and identities
    /// are kept, and any other size starts all of them together.
    #[serde(default = "default_replicas")]
    #[x_kube(
        validation = kube_core::Rule::new("self >= 0 && self <= 9").message("replicas must be 0 (hibernation) to 9: more members make every write slower without making the cluster safer")
    )]
    pub replicas: i32,
    /// Version of Quorate that the members run. Pinned when the resource is created. Where it is the operator's own, they
    /// run the operator's image, with its tag and digest; otherwise the one that members of that version have here already,
    /// or the image of the operator's repository whose tag it is.
    #[serde(default = "default_version")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = kube_core::Rule::new("self.matches('^[0-9]+[.][0-9]+[.][0-9]+([-][0-9A-Za-z.-]+)?$')").message("version must look like 0.1.0: it is the version of the operator's image, or the tag of another one in its repository; for any other image set spec.image"))]
    pub version: String,
    /// Image of the members, instead of one that follows from the version: `[registry[:port]/]repository[:tag][@digest]`.
    /// With a digest the tag does not count. Which version it contains is known once the first member runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = super::image::rule())]
    pub image: Option<String>,
    /// While this is true the operator keeps the status, the PDB and certificates up to date, and
    /// changes nothing else. Only a followed cluster that is closed to writes is opened again.
    #[serde(default)]
    pub paused: bool,
    /// Where the first data of the cluster come from; by default it starts empty. Immutable, but for `follow.cutover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// A standby of a cluster elsewhere: it starts with a snapshot of that one, follows it at the same revisions, for as
    /// long as nothing else is asked for, and is promoted by `promote`. Never together with `bootstrap`; set when the
    /// EtcdCluster is created, or never, and kept after the promotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_of: Option<ReplicaOf>,
    /// While this is true the resource cannot be deleted, by anyone: a ValidatingAdmissionPolicy, which the chart brings,
    /// refuses it. Set it to false first. Members and volumes are not protected from the deletion of the namespace; only
    /// the resource stays then, and the namespace does not go before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_protection: bool,
    /// Save the cluster before it is deleted: the resource stays, and its members serve, until one EtcdBackup that was
    /// begun after the deletion was asked for is stored. If that fails it stays, and its status says why and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_before_deletion: Option<BackupBeforeDeletion>,
    /// The members' volumes.
    #[serde(default)]
    pub storage: Storage,
    /// Compute resources of each member. New values reach the members one at a time: requests while they run, where the
    /// kubelet can; another limit of memory, or another number of whole cores, by a restart.
    #[serde(default)]
    pub resources: Resources,
    /// Additions to the member pods. New values reach the members one at a time.
    #[serde(default)]
    pub pod_template: PodTemplate,
    /// Settings of the members' servers. New values reach the members one at a time. Unset fields have the servers'
    /// defaults.
    #[serde(default, skip_serializing_if = "Server::is_default")]
    pub server: Server,
    /// The Service that clients use, and the IP families of the cluster's Services.
    #[serde(default)]
    pub service: ServiceOptions,
    /// Who may reach the members over the network. The peer port is open only to the other members and the operator.
    #[serde(default, skip_serializing_if = "NetworkAccess::is_default")]
    pub network_policy: NetworkAccess,
    /// TLS of both ports. Without it connections are not encrypted. `{}` is enough for certificates that the operator
    /// creates and renews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Where members may run.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// How a changed version, image, resource, server setting or pod template is rolled out to the members.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,
    /// When unhealthy or slow members are replaced.
    #[serde(default)]
    pub healing: Healing,
    /// What happens to members whose node is drained or removed.
    #[serde(default)]
    pub disruption: Disruption,
    /// Names of members to replace, one at a time: a new member is added and promoted first, then the named one leaves.
    /// Names of members that no longer exist are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::member_names")]
    pub replace_members: Vec<String>,
}

fn default_replicas() -> i32 {
    3
}

fn default_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

impl Default for EtcdClusterSpec {
    fn default() -> Self {
        EtcdClusterSpec {
            replicas: default_replicas(),
            version: default_version(),
            image: None,
            paused: false,
            bootstrap: None,
            replica_of: None,
            deletion_protection: false,
            backup_before_deletion: None,
            storage: Storage::default(),
            resources: Resources::default(),
            pod_template: PodTemplate::default(),
            server: Server::default(),
            service: ServiceOptions::default(),
            network_policy: NetworkAccess::default(),
            tls: None,
            scheduling: Scheduling::default(),
            update_strategy: UpdateStrategy::default(),
            healing: Healing::default(),
            disruption: Disruption::default(),
            replace_members: Vec::new(),
        }
    }
}

/// The members' volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("!has(self.autogrow) || !isQuantity(self.autogrow.max) || !isQuantity(self.size) || quantity(self.autogrow.max).compareTo(quantity(self.size)) >= 0", "storage.autogrow.max must be at least storage.size: raise it")])))]
pub struct Storage {
    /// Kind of storage: one PVC for each member.
    #[serde(rename = "type")]
    pub type_: StorageType,
    /// Size of each member's volume, such as 8Gi. Volumes grow where their storage class allows expansion. If it is
    /// lowered, members are replaced one at a time by new ones with smaller volumes; refused while the data are more
    /// than a quarter of the smaller size.
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("isQuantity(self) && quantity(self).isGreaterThan(quantity('16Mi'))", "storage.size must be a quantity of more than 16Mi, such as 8Gi")])))]
    pub size: String,
    /// Storage class of the volumes; by default the default class of the Kubernetes cluster. If it is changed, members
    /// are replaced one at a time by new ones with volumes of the other class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self != ''", "storage.storageClassName must not be empty: leave the field out for the default class")])))]
    pub storage_class_name: Option<String>,
    /// What happens to volumes that are no longer used.
    pub retention: Retention,
    /// Growth of the volumes before they are full, where their storage class allows expansion. `size` stays as it is:
    /// the largest volume decides about the others and about those of new members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autogrow: Option<Autogrow>,
}

impl Default for Storage {
    fn default() -> Self {
        Storage {
            type_: StorageType::PersistentVolume,
            size: "8Gi".to_owned(),
            storage_class_name: None,
            retention: Retention::default(),
            autogrow: None,
        }
    }
}

/// Kind of storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    /// One PVC per member.
    #[default]
    PersistentVolume,
}

/// What happens to volumes that are no longer used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    /// Volumes of the cluster when the resource is deleted.
    pub when_deleted: RetentionPolicy,
    /// The volume of a member that was removed from the cluster.
    pub when_removed: RetentionPolicy,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            when_deleted: RetentionPolicy::Retain,
            when_removed: RetentionPolicy::Delete,
        }
    }
}

/// Keep or delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetentionPolicy {
    /// The PVC is kept, with its data.
    Retain,
    /// The PVC is deleted.
    Delete,
}

/// Compute resources of each member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Requested resources, such as `cpu: 500m`. By default, if neither a request nor a limit is set: 100m CPU, and 2.5
    /// times `server.quota` of memory, 256Mi without a quota; and 64Mi of `ephemeral-storage`, for logs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,
    /// Resource limits, such as `memory: 2Gi`. None by default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Quantity>,
}

/// Where members may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    /// How members are spread over nodes.
    pub spread: Spread,
    /// Whether the members' volumes can follow them to other nodes.
    #[serde(skip_serializing_if = "VolumeMobility::is_auto")]
    pub volumes: VolumeMobility,
}

/// How members are spread over nodes. They are also spread over zones where possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    /// Nodes hold at most one member more than another, and with node-bound volumes at most one member each; a member
    /// for which no such node is free waits.
    #[default]
    Required,
    /// Evenly where possible; a member does not wait for a better node.
    Preferred,
}

/// Whether volumes can follow their members to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeMobility {
    /// Detected: a bound volume with a node affinity on the host name cannot. Before any is bound, by the storage
    /// class: volumes of `kubernetes.io/no-provisioner` cannot.
    #[default]
    Auto,
    /// They cannot: with `spread: Required` members never share a node.
    NodeBound,
    /// They can, within their node affinity.
    Movable,
}

impl VolumeMobility {
    // Omitted if it is the default, so that the inputs of existing members do not change.
    fn is_auto(&self) -> bool {
        *self == VolumeMobility::Auto
    }
}

/// How a changed version, image, resource or pod template is rolled out: one member at a time, the leader last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// How an outdated member is updated.
    #[serde(rename = "type")]
    pub type_: UpdateType,
    /// Seconds that every member must have been ready before the next one is restarted.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 86400", "updateStrategy.minReadySeconds must be 0 to 86400 (a day)")])))]
    pub min_ready_seconds: i32,
    /// Seconds after which a member that does not come back from its restart counts as failed: the condition Stalled
    /// states which one and why, and the others are not changed.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 604800", "updateStrategy.progressDeadlineSeconds must be 1 to 604800 (a week)")])))]
    pub progress_deadline_seconds: i32,
}

impl Default for UpdateStrategy {
    fn default() -> Self {
        UpdateStrategy {
            type_: UpdateType::Restart,
            min_ready_seconds: 10,
            progress_deadline_seconds: 600,
        }
    }
}

/// How a member that runs an older spec is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateType {
    /// Its pod is recreated on the same volume. Clusters of one or two members tolerate no restart: their members are
    /// replaced.
    #[default]
    Restart,
    /// A new member is added and promoted first, then the outdated one leaves.
    Replace,
}

/// When unhealthy or slow members are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Healing {
    /// Seconds without contact after which a voter is removed and replaced; set it longer than a reboot takes. 0: never
    /// by time alone, only on evidence that its disk is gone.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 604800", "healing.unhealthySeconds must be 0 (never by time alone) to 604800 (a week)")])))]
    pub unhealthy_seconds: i32,
    /// Seconds for a new member to start and catch up before it is given up.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 604800", "healing.learnerDeadlineSeconds must be 1 to 604800 (a week); large data needs longer")])))]
    pub learner_deadline_seconds: i32,
    /// How often the pod of a voter without contact is replaced on a healthy node before the voter is removed.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 100", "healing.maxRestarts must be 0 to 100")])))]
    pub max_restarts: i32,
}

impl Default for Healing {
    fn default() -> Self {
        Healing {
            unhealthy_seconds: 600,
            learner_deadline_seconds: 900,
            max_restarts: 3,
        }
    }
}

/// What happens to members whose node is drained or removed: it is cordoned, is being deleted, or has the taint of a
/// cluster autoscaler, of Karpenter, of a cloud shutdown, or the out-of-service taint. The Node annotation
/// `quorate.dev/ignore-cordon` keeps a member on a cordoned node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// How evictions of member pods are handled.
    pub policy: DisruptionPolicy,
    /// How a member leaves a drained node. One member at a time.
    pub node_replacement: NodeReplacement,
    /// Keys of further taints that mark a node as drained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taint_keys")]
    pub drain_taints: Vec<String>,
}

/// How evictions of member pods are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionPolicy {
    /// As `Gate`, but while nothing is under way the PDB lets an eviction take one member: Karpenter and the cluster
    /// autoscaler choose only nodes whose pods may be evicted. It does so for three or more members whose volumes can be
    /// used on other nodes, and no longer once a node of a member is drained. An eviction that comes before that is one as
    /// under `Budget`: the member hands over when its pod is terminated. The condition DisruptionAllowed says which of both
    /// it is, and why.
    #[default]
    Auto,
    /// Evictions are blocked until the operator has prepared the member to leave: a drain waits exactly as long as
    /// necessary.
    Gate,
    /// As many evictions at once as leave a quorum available, from any source; a member hands over when its pod is
    /// terminated. For node pools whose autoscaler does not wait. The operator itself evicts serving pods instead of
    /// deleting them.
    Budget,
}

/// How a member leaves a drained node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeReplacement {
    /// It moves with its volume if another node can take both; otherwise another member is added on another node and
    /// promoted first.
    #[default]
    Auto,
    /// It moves with its volume, and stays while no other node can take both.
    Move,
    /// Another member is added on another node and promoted first, also if the volume could move.
    AddFirst,
    /// It is removed first, then another one is added; one failure less is tolerated in between. Needs no spare node.
    RemoveFirst,
}
