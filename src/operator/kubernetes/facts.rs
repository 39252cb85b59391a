//! From Kubernetes' objects to the facts for a plan. Only reads and translates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ContainerStatus, Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, Pod, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::build;
use crate::crd::{
    ANNOTATION_INPUTS, ANNOTATION_STORAGE, LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_INCARNATION,
    LABEL_MEMBER, LABEL_RELEASED, bytes_of,
};
use crate::operator::describe;
use crate::operator::members::MadeOf;
use crate::plan::{
    ClassFacts, Exit, ObjectFacts, Owner, PdbFacts, PdbLimit, PodFacts, PodPhase, PvcFacts,
    PvcState, ServerFacts, SetFacts, SlotFacts, StorageFacts,
};

/// The label that identifies a node.
const HOST: &str = "kubernetes.io/hostname";
/// Marks the default class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Words of a pod that cannot start are cut here.
const WAITING_MAX: usize = 300;

/// Whose an object is, for the resource with this name and UID.
pub(super) fn owner(meta: &ObjectMeta, name: &str, uid: &str) -> Owner {
    let mut owners = meta.owner_references.iter().flatten();
    match owners.find(|owner| owner.controller == Some(true)) {
        None => Owner::Unowned,
        Some(owner) if owner.uid == uid => Owner::Ours,
        Some(owner) if owner.kind == "EtcdCluster" && owner.name == name => Owner::EarlierLife,
        Some(owner) => Owner::Other(format!("{} {}", owner.kind, owner.name)),
    }
}

/// An object that is not a member's.
pub(super) fn object(meta: &ObjectMeta, name: &str, uid: &str) -> ObjectFacts {
    ObjectFacts {
        owner: owner(meta, name, uid),
        terminating: meta.deletion_timestamp.is_some(),
        inputs: annotation(meta, ANNOTATION_INPUTS),
    }
}

/// A PDB's limit, and Kubernetes' count for it.
pub(super) fn pdb(pdb: &PodDisruptionBudget) -> PdbFacts {
    let spec = pdb.spec.as_ref();
    let pods = |value: Option<&IntOrString>| match value {
        Some(IntOrString::Int(pods)) => u32::try_from(*pods).ok(),
        _ => None,
    };
    let least = pods(spec.and_then(|spec| spec.min_available.as_ref()));
    let most = pods(spec.and_then(|spec| spec.max_unavailable.as_ref()));
    let most = most.map(PdbLimit::MaxUnavailable);
    let status = pdb.status.as_ref();
    let counted = status.filter(|status| status.observed_generation == pdb.metadata.generation);
    let available = counted.map(|status| u32::try_from(status.current_healthy).unwrap_or(0));
    PdbFacts {
        limit: least.map(PdbLimit::MinAvailable).or(most),
        available,
    }
}

/// A slot's Service.
pub(super) fn slot(service: &Service, name: &str, uid: &str) -> SlotFacts {
    let meta = &service.metadata;
    SlotFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        owner: owner(meta, name, uid),
        terminating: meta.deletion_timestamp.is_some(),
        inputs: annotation(meta, ANNOTATION_INPUTS),
        member: build::slot_member(service),
    }
}

/// A member's set.
pub(super) fn set(set: &StatefulSet, name: &str, uid: &str) -> SetFacts {
    let meta = &set.metadata;
    SetFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        owner: owner(meta, name, uid),
        terminating: meta.deletion_timestamp.is_some(),
        inputs: annotation(meta, ANNOTATION_INPUTS),
        created_ms: milliseconds(meta.creation_timestamp.as_ref()),
        hibernated: set.spec.as_ref().and_then(|spec| spec.replicas) == Some(0),
        edited: false,
        plain_peers: {
            let template = set.spec.as_ref().map(|spec| &spec.template);
            build::takes_plain_peers(template.and_then(|template| template.spec.as_ref()))
        },
    }
}

/// The images of the pods at these addresses.
pub(super) fn made_of(
    pods: &BTreeMap<String, Arc<Pod>>,
    addresses: &BTreeMap<String, String>,
) -> BTreeMap<String, MadeOf> {
    let made = |(member, address): (&String, &String)| {
        let pod = pods.get(member)?;
        let image = build::container_image(pod.spec.as_ref());
        let made = MadeOf {
            pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            image: image.unwrap_or_default().to_owned(),
            content: server(pod)
                .map(|container| container.image_id.clone())
                .filter(|content| !content.is_empty()),
        };
        Some((address.clone(), made))
    };
    addresses.iter().filter_map(made).collect()
}

/// A member's pod.
pub(super) fn pod(pod: &Pod) -> PodFacts {
    let meta = &pod.metadata;
    let container = server(pod);
    let running = container.and_then(|container| container.state.as_ref()?.running.as_ref());
    PodFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        phase: phase(pod),
        ready_since_ms: ready_since(pod),
        terminating: meta.deletion_timestamp.is_some(),
        ends_ms: ends(meta),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        // A value that is no time of ours released it long ago.
        released_ms: label(meta, LABEL_RELEASED)
            .map(|since| since.parse::<u64>().unwrap_or(0).saturating_mul(1000)),
        inputs: annotation(meta, ANNOTATION_INPUTS),
        resize: None,
        peer_tls: build::speaks_tls(pod.spec.as_ref()),
        server: build::server_facts(build::container_arguments(pod.spec.as_ref())),
        created_ms: milliseconds(meta.creation_timestamp.as_ref()),
        started_ms: running.map(|running| milliseconds(running.started_at.as_ref())),
        waiting: waiting(pod, container),
        last_exit: container.and_then(last_exit),
        beside: super::beside::unwell(pod),
        beside_ms: super::beside::since(pod),
    }
}

/// The status of a pod's server container. Kubernetes sorts containers by name: the first may be a sidecar's, which
/// does not describe the server.
fn server(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses
        .iter()
        .find(|container| container.name == build::CONTAINER)
}

/// A pod that has a member's name but was not created by its StatefulSet. It blocks the one that the StatefulSet would
/// create, and nothing in its status is evidence.
pub(super) fn stranger(pod: &Pod) -> PodFacts {
    let meta = &pod.metadata;
    PodFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        phase: phase(pod),
        ready_since_ms: None,
        terminating: meta.deletion_timestamp.is_some(),
        ends_ms: ends(meta),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        released_ms: None,
        inputs: None,
        resize: None,
        // It is not dialled, so it delays no other.
        peer_tls: true,
        server: ServerFacts::default(),
        created_ms: milliseconds(meta.creation_timestamp.as_ref()),
        started_ms: None,
        waiting: Some("it is not of the member's set".to_owned()),
        last_exit: None,
        beside: None,
        beside_ms: None,
    }
}

fn ends(meta: &ObjectMeta) -> Option<u64> {
    let asked = meta.deletion_timestamp.as_ref();
    asked.map(|end| milliseconds(Some(end)))
}

fn phase(pod: &Pod) -> PodPhase {
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Running") => PodPhase::Running,
        Some("Succeeded" | "Failed") => PodPhase::Ended,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// Why a pod does not run, as reported by Kubernetes.
fn waiting(pod: &Pod, container: Option<&ContainerStatus>) -> Option<String> {
    let text = |reason: &str, message: Option<&str>| match message {
        Some(message) if !message.is_empty() => format!("{reason}: {message}"),
        _ => reason.to_owned(),
    };
    if let Some((false, message)) = condition(pod, "PodScheduled") {
        return Some(cut(text("Unschedulable", message.as_deref())));
    }
    // Of one that was evicted; its next pod has nothing of that.
    let status = pod.status.as_ref();
    let ended = status.filter(|status| status.phase.as_deref() == Some("Failed"));
    if let Some(reason) = ended.and_then(|status| status.reason.as_deref()) {
        let message = ended.and_then(|status| status.message.as_deref());
        return Some(cut(text(reason, message)));
    }
    let waiting = container?.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    // Every container begins so; it is no news.
    if matches!(reason, "ContainerCreating" | "PodInitializing") {
        return None;
    }
    Some(cut(text(reason, waiting.message.as_deref())))
}

fn condition(pod: &Pod, type_: &str) -> Option<(bool, Option<String>)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == type_)?;
    Some((condition.status == "True", condition.message.clone()))
}

/// Since when a ready pod has been ready.
fn ready_since(pod: &Pod) -> Option<u64> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(milliseconds(ready.last_transition_time.as_ref()))
}

fn last_exit(container: &ContainerStatus) -> Option<Exit> {
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().and_then(|state| state.terminated.clone())
    };
    let ended = ended(&container.state).or_else(|| ended(&container.last_state))?;
    // An empty message counts as a message: it does not report a damaged disk.
    let words = ended.message.unwrap_or_default();
    Some(describe::exit(ended.exit_code, Some(&words)))
}

/// The incarnation in an object's label. A text that is no number is one of no incarnation that is known: 0.
fn incarnation(meta: &ObjectMeta) -> u64 {
    label(meta, LABEL_INCARNATION).map_or(1, |number| number.parse().unwrap_or(0))
}

/// A member's PVC. Its volume is lost if the PVC reports that; that no existing node satisfies its affinity is reported
/// as well, but is not a loss: a replaced node comes back.
pub(super) fn pvc(
    pvc: &PersistentVolumeClaim,
    cluster_uid: &str,
    volume: Option<&PersistentVolume>,
    nodes: &[Arc<Node>],
) -> PvcFacts {
    let meta = &pvc.metadata;
    let phase = pvc
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let lost = phase == Some("Lost");
    let volume_gone = lost.then(|| "the PVC is Lost: its volume does not exist any more".into());
    let requested = pvc
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let requested = requested.and_then(|requests| requests.get("storage"));
    let owners = meta.owner_references.iter().flatten();
    PvcFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        cluster_uid: label(meta, LABEL_CLUSTER_UID),
        incarnation: incarnation(meta),
        member: label(meta, LABEL_MEMBER),
        state: match label(meta, LABEL_CLAIM_STATE).as_deref() {
            None => PvcState::New,
            Some("retired") => PvcState::Retired,
            // A value of a newer operator: whatever it means, the disk was used.
            Some(_) => PvcState::Joined,
        },
        terminating: meta.deletion_timestamp.is_some() || is_orphaned(meta, cluster_uid),
        bound: phase == Some("Bound"),
        volume_gone,
        no_node: volume.and_then(|volume| unreachable(volume, nodes)),
        node_bound: volume.map(node_bound),
        nodes: volume.and_then(|volume| usable(volume, nodes)),
        requested_bytes: requested
            .and_then(|size| bytes_of(&size.0).ok())
            .unwrap_or(0),
        storage: storage(pvc),
        owned: owners.into_iter().any(|owner| owner.uid == cluster_uid),
    }
}

/// Whether a PVC goes with a resource that is gone: the garbage collection deletes it before long.
fn is_orphaned(meta: &ObjectMeta, cluster_uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "EtcdCluster" && owner.uid != cluster_uid)
}

/// What a PVC's volume is, and what was asked of it.
fn storage(pvc: &PersistentVolumeClaim) -> StorageFacts {
    let status = pvc.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let asked = annotation(&pvc.metadata, ANNOTATION_STORAGE);
    let class = pvc
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone());
    StorageFacts {
        asked: asked.and_then(|text| build::read_asked_storage(&text)),
        class: class.filter(|class| !class.is_empty()),
        capacity_bytes: capacity
            .and_then(|size| bytes_of(&size.0).ok())
            .unwrap_or(0),
        resize_problem: resize_problem(pvc),
    }
}

/// Why a volume does not become as large as its PVC requests.
fn resize_problem(pvc: &PersistentVolumeClaim) -> Option<String> {
    let status = pvc.status.as_ref()?;
    let mut failed = status.conditions.iter().flatten().filter(|condition| {
        let kinds = ["ControllerResizeError", "NodeResizeError"];
        kinds.contains(&condition.type_.as_str()) && condition.status == "True"
    });
    if let Some(condition) = failed.next() {
        let message = condition.message.clone().unwrap_or_default();
        return Some(cut(format!("{}: {message}", condition.type_)));
    }
    let stages = status.allocated_resource_statuses.as_ref()?;
    let stage = stages.get("storage")?;
    stage.ends_with("Infeasible").then(|| stage.clone())
}

/// The storage classes. Of several default ones Kubernetes uses the newest.
pub(super) fn classes(classes: &[Arc<StorageClass>]) -> BTreeMap<String, ClassFacts> {
    let default = default_class(classes).and_then(|class| class.metadata.name.clone());
    let facts = |class: &Arc<StorageClass>| {
        let name = class.metadata.name.clone()?;
        let facts = ClassFacts {
            expands: class.allow_volume_expansion == Some(true),
            is_default: default.as_ref() == Some(&name),
        };
        Some((name, facts))
    };
    classes.iter().filter_map(facts).collect()
}

fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    let is_default = |class: &&Arc<StorageClass>| {
        annotation(&class.metadata, DEFAULT_CLASS).as_deref() == Some("true")
    };
    let defaults = classes.iter().filter(is_default);
    defaults.max_by_key(|class| milliseconds(class.metadata.creation_timestamp.as_ref()))
}

/// Whether a volume can be used on one node only: each way to satisfy its affinity names one host.
/// A volume of a zone is not bound to a node.
fn node_bound(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    if spec.is_some_and(|spec| spec.local.is_some()) {
        return true;
    }
    let affinity = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let Some(affinity) = affinity else {
        return false;
    };
    let names_one = |requirement: &NodeSelectorRequirement, key: &str| {
        let values = requirement.values.as_deref().unwrap_or_default();
        requirement.key == key && requirement.operator == "In" && values.len() == 1
    };
    let one_host = |term: &NodeSelectorTerm| {
        let mut labels = term.match_expressions.iter().flatten();
        let mut fields = term.match_fields.iter().flatten();
        labels.any(|label| names_one(label, HOST)) || fields.any(|f| names_one(f, "metadata.name"))
    };
    let terms = &affinity.node_selector_terms;
    !terms.is_empty() && terms.iter().all(one_host)
}

/// Whether the class with this name, or the default one, is known to create volumes that only one node can use. Any
/// other class may do so too: then the first bound volume shows it.
pub(super) fn class_node_bound(
    wanted: Option<&str>,
    classes: &[Arc<StorageClass>],
) -> Option<bool> {
    let class = match wanted {
        Some(name) => classes
            .iter()
            .find(|class| class.metadata.name.as_deref() == Some(name)),
        None => default_class(classes),
    };
    (class?.provisioner == "kubernetes.io/no-provisioner").then_some(true)
}

/// The names of the nodes that can use a volume; `None` for any.
fn usable(volume: &PersistentVolume, nodes: &[Arc<Node>]) -> Option<BTreeSet<String>> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required.as_ref()?.node_selector_terms;
    let fitting = nodes
        .iter()
        .filter(|node| terms.iter().any(|term| fits(term, node)));
    Some(
        fitting
            .filter_map(|node| node.metadata.name.clone())
            .collect(),
    )
}

/// Why no Node that exists can run a pod with this volume, if none can.
fn unreachable(volume: &PersistentVolume, nodes: &[Arc<Node>]) -> Option<String> {
    let affinity = volume
        .spec
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required
        .as_ref()?;
    let terms = &affinity.node_selector_terms;
    // Without any Node in view nothing is known.
    if nodes.is_empty()
        || nodes
            .iter()
            .any(|node| terms.iter().any(|term| fits(term, node)))
    {
        return None;
    }
    let name = volume.metadata.name.clone().unwrap_or_default();
    Some(format!(
        "no Node that exists satisfies the affinity of volume {name}"
    ))
}

pub(super) fn fits(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let name = node.metadata.name.as_deref();
    let mut by_label = term.match_expressions.iter().flatten();
    let mut by_field = term.match_fields.iter().flatten();
    // A term without any requirement matches nothing, as the scheduler has it.
    let empty = term.match_expressions.iter().flatten().next().is_none()
        && term.match_fields.iter().flatten().next().is_none();
    !empty
        && by_label.all(|required| meets(required, label(&required.key)))
        && by_field
            .all(|required| meets(required, name.filter(|_| required.key == "metadata.name")))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let is_wanted = |value: &str| wanted.iter().any(|wanted| wanted == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = |greater: bool| {
        let (Some(own), Some(bound)) = (
            value.and_then(number),
            wanted.first().and_then(|bound| number(bound)),
        ) else {
            return false;
        };
        if greater { own > bound } else { own < bound }
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(is_wanted),
        "NotIn" => !value.is_some_and(is_wanted),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(true),
        "Lt" => compare(false),
        // An operator that is not known here is no evidence of a lost disk.
        _ => true,
    }
}

/// Whether an object has a label with this value.
pub(super) fn has_label(meta: &ObjectMeta, key: &str, value: &str) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .is_some_and(|found| found == value)
}

/// A label's value.
pub(super) fn label(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(key).cloned())
}

pub(super) fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations
        .as_ref()
        .and_then(|annotations| annotations.get(key).cloned())
}

/// Whether an annotation asks for something: any value but `false`.
pub(super) fn is_asked(meta: &ObjectMeta, key: &str) -> bool {
    annotation(meta, key).is_some_and(|value| value != "false")
}

pub(super) fn milliseconds(time: Option<&Time>) -> u64 {
    time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok())
        .unwrap_or(0)
}

pub(super) fn cut(mut text: String) -> String {
    if text.len() > WAITING_MAX {
        let mut end = WAITING_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
#[path = "facts_test.rs"]
mod tests;
