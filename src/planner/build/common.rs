//! What several kinds share: labels, owners, input hashes and ports.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::crd::{
    ANNOTATION_BUILDER, ANNOTATION_INPUTS, APP, DisruptionPolicy, LABEL_CLUSTER, LABEL_CLUSTER_UID,
    LABEL_MEMBER, MANAGER, ValidatedCluster, client_service_name, network_policy_name,
    operator_secret_name, pdb_name, peers_service_name,
};
use crate::plan::{ObjectKey, ObjectKind};

use super::cert_manager;
use super::certificates::pod_inputs;
use super::image::OwnImage;
use super::server;

/// Number of this builder, written on every object. Raised when the rendering changes.
pub const BUILDER: u32 = 2;
/// Port for etcd clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port for the other members and the operator.
pub const PEER_PORT: u16 = 2380;
/// Port for probes and metrics, plain HTTP.
pub const METRICS_PORT: u16 = 2381;

/// What the operator's own flags and place add to a rendering. Not part of a member's inputs: another
/// image reaches a member when it is next made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The operator's own image, for clusters that name none.
    pub image: OwnImage,
    /// Namespace of the operator's own pods; `None` for an operator outside of Kubernetes. A change updates the
    /// NetworkPolicy at once: it has to admit the current operator.
    pub operator_namespace: Option<String>,
    /// User and group of members; `None` leaves them to the platform, as OpenShift wants it.
    pub user: Option<i64>,
}

/// The customary user of images without users: a number, so that Kubernetes can check it.
pub const USER: i64 = 65532;

/// The hash of the inputs of a member's set.
pub fn wanted_inputs(cluster: &ValidatedCluster) -> String {
    let mut inputs = restart_inputs(cluster);
    inputs["resources"] = json!(cluster.spec.resources);
    hash(&inputs)
}

/// The hash of those that only a restart of its pod can change.
pub(super) fn wanted_restart_inputs(cluster: &ValidatedCluster) -> String {
    hash(&restart_inputs(cluster))
}

fn restart_inputs(cluster: &ValidatedCluster) -> Value {
    let spec = &cluster.spec;
    let mut inputs = json!({
        "version": spec.version,
        "image": spec.image,
        "podTemplate": spec.pod_template,
        "scheduling": spec.scheduling,
    });
    // Left out without TLS: the inputs of existing members stay what they were.
    if let Some(tls) = pod_inputs(cluster) {
        inputs["tls"] = tls;
    }
    // Likewise without settings of the server.
    if let Some(settings) = server::inputs(&spec.server) {
        inputs["server"] = settings;
    }
    inputs
}

/// The objects that are not a member's, with the hash of the inputs of each.
pub fn wanted_objects(
    cluster: &ValidatedCluster,
    settings: &Settings,
) -> BTreeMap<ObjectKey, String> {
    let policy = ObjectKey {
        kind: ObjectKind::NetworkPolicy,
        name: network_policy_name(&cluster.name),
    };
    let mut objects = resource_objects(cluster);
    objects.insert(policy, policy_inputs(cluster, settings));
    objects
}

/// The hash of the NetworkPolicy's inputs.
pub(super) fn policy_inputs(cluster: &ValidatedCluster, settings: &Settings) -> String {
    hash(&json!({
        "access": cluster.spec.network_policy,
        "operator": settings.operator_namespace,
        // Policies of operators that knew no backups do not admit them.
        "backups": true,
    }))
}

/// Those of them that follow from the resource alone.
pub fn resource_objects(cluster: &ValidatedCluster) -> BTreeMap<ObjectKey, String> {
    let name = cluster.name.as_str();
    let key = |kind, name| ObjectKey { kind, name };
    let always = [
        (
            key(ObjectKind::Secret, operator_secret_name(name)),
            hash(&json!("operator")),
        ),
        (
            key(ObjectKind::Service, peers_service_name(name)),
            of_families(cluster, "peers"),
        ),
        (
            key(ObjectKind::Service, client_service_name(name)),
            hash(&json!(cluster.spec.service)),
        ),
        (
            key(ObjectKind::PodDisruptionBudget, pdb_name(name)),
            // How many have to stay available is not among its inputs: the plan compares the number.
            hash(&match cluster.spec.disruption.policy {
                DisruptionPolicy::Auto => json!("open while the plan says so"),
                DisruptionPolicy::Gate => json!("gate of pods that are not released"),
                DisruptionPolicy::Budget => json!("as many as the plan says stay available"),
            }),
        ),
    ];
    always
        .into_iter()
        .chain(cert_manager::wanted(cluster))
        .collect()
}

/// The hash of the inputs of a slot's Service, apart from its number and member.
pub fn wanted_slot_inputs(cluster: &ValidatedCluster) -> String {
    of_families(cluster, "slot")
}

/// The hash of a Service that has of `spec.service` the IP families alone: what it was before there were any, where none
/// are asked for.
fn of_families(cluster: &ValidatedCluster, what: &str) -> String {
    let asked = &cluster.spec.service;
    match asked.names_families() {
        false => hash(&json!(what)),
        true => hash(&json!([what, asked.ip_family_policy, asked.ip_families])),
    }
}

/// The hash of one of [`resource_objects`].
pub(super) fn inputs_of(cluster: &ValidatedCluster, kind: ObjectKind, name: &str) -> String {
    let key = ObjectKey {
        kind,
        name: name.to_owned(),
    };
    resource_objects(cluster).remove(&key).unwrap_or_default()
}

/// Half of a SHA-256, in hexadecimal, of a JSON value with sorted keys.
pub(super) fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The resource as an owner of its objects.
pub fn owner(cluster: &ValidatedCluster, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: "quorate.dev/v1alpha1".to_owned(),
        kind: "EtcdCluster".to_owned(),
        name: cluster.name.clone(),
        uid: cluster.uid.clone(),
        controller: controller.then_some(true),
        block_owner_deletion: None,
    }
}

/// Labels of every object of a cluster.
pub(super) fn labels(cluster: &ValidatedCluster, component: &str) -> BTreeMap<String, String> {
    strings(&[
        ("app.kubernetes.io/name", APP),
        ("app.kubernetes.io/instance", &cluster.name),
        ("app.kubernetes.io/component", component),
        ("app.kubernetes.io/managed-by", MANAGER),
        (LABEL_CLUSTER, &cluster.name),
        (LABEL_CLUSTER_UID, &cluster.life),
    ])
}

/// Labels of the objects of one member.
pub(super) fn member_labels(cluster: &ValidatedCluster, member: &str) -> BTreeMap<String, String> {
    let mut labels = labels(cluster, "member");
    labels.insert(LABEL_MEMBER.to_owned(), member.to_owned());
    labels
}

/// Selects the member pods of this life of the cluster.
pub(super) fn selector(cluster: &ValidatedCluster) -> BTreeMap<String, String> {
    strings(&[
        ("app.kubernetes.io/component", "member"),
        (LABEL_CLUSTER_UID, &cluster.life),
    ])
}

/// Metadata of an object that is deleted with the resource.
pub(super) fn metadata(cluster: &ValidatedCluster, name: String, inputs: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.namespace.clone()),
        labels: Some(labels(cluster, "cluster")),
        annotations: Some(annotations(inputs)),
        owner_references: Some(vec![owner(cluster, true)]),
        ..ObjectMeta::default()
    }
}

/// The hash of the inputs and the builder's number.
pub(super) fn annotations(inputs: &str) -> BTreeMap<String, String> {
    strings(&[
        (ANNOTATION_INPUTS, inputs),
        (ANNOTATION_BUILDER, &BUILDER.to_string()),
    ])
}

pub(super) fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
