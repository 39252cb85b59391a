//! Whether a running pod can have the resources of the specification without a restart (in-place pod resize, [Kubernetes
//! 1.33](https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/)), and how far it is. Asks for nothing,
//! and does not decide when it is done.
//!
//! A server sizes itself by its limits when it starts: threads by whole cores, the default quota and its buffers by memory. So
//! another memory limit, or another number of whole cores, needs a restart; requests and parts of a core do not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodCondition, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::crd::{
    ANNOTATION_INPUTS, ANNOTATION_RESIZE, ANNOTATION_RESTART_INPUTS, ValidatedCluster,
    thousandths_of,
};
use crate::plan::Resize;

use super::common::{wanted_inputs, wanted_restart_inputs};
use super::pod::{CONTAINER, requirements};

/// In the place of a hash of inputs, while a pod gets other resources.
const RESIZING: &str = "resizing";
const REFUSED: &str = "refused";
const INFEASIBLE: &str = "infeasible";

/// How a pod gets what is wanted without a restart; `None` if it has it, or needs one. `wanted` is the hash of the cluster's
/// inputs, which is the same for all of its pods.
pub fn resize_of(cluster: &ValidatedCluster, wanted: &str, pod: &Pod) -> Option<Resize> {
    let annotation = |key: &str| pod.metadata.annotations.as_ref()?.get(key);
    annotation(ANNOTATION_INPUTS).filter(|inputs| *inputs != wanted)?;
    let restart = annotation(ANNOTATION_RESTART_INPUTS)?;
    if *restart != wanted_restart_inputs(cluster) {
        return None;
    }
    // One that never ran, or has no node, is made anew instead.
    let spec = pod.spec.as_ref().filter(|_| has_run(pod))?;
    let container = spec.containers.iter().find(|one| one.name == CONTAINER)?;
    let goal = Amounts::of(&requirements(cluster))?;
    let now = Amounts::of(container.resources.as_ref()?)?;
    let answer = annotation(ANNOTATION_RESIZE).and_then(|text| Answer::read(text, wanted));
    match answer {
        Some(Answer::Refused) => None,
        Some(Answer::Infeasible { since_ms }) => Some(Resize::Asked {
            since_ms,
            why: Some("the API server answers that its node has not enough".to_owned()),
            infeasible: true,
        }),
        _ if now != goal => can_become(&now, &goal, spec).then_some(Resize::Wanted),
        // It has them from somebody else, or was asked for the same amounts in other words.
        None => Some(Resize::Wanted),
        Some(Answer::Asked { since_ms }) => asked(pod, &goal, since_ms),
    }
}

/// What the kubelet reports of resources that it was asked for.
fn asked(pod: &Pod, goal: &Amounts, since_ms: u64) -> Option<Resize> {
    let status = server_status(pod);
    let has = status.and_then(|status| Amounts::of(status.resources.as_ref()?));
    let Some(delay) = delay(pod) else {
        return Some(match has.as_ref() == Some(goal) {
            true => Resize::Provided,
            false => Resize::Asked {
                since_ms,
                why: None,
                infeasible: false,
            },
        });
    };
    let why = delay.message.clone().or_else(|| delay.reason.clone());
    let why = why.filter(|why| !why.is_empty());
    let infeasible = delay.reason.as_deref() == Some("Infeasible");
    // Other reasons, such as exclusive cores or swap, do not hold for the next container.
    let lacks_room = why.as_deref().is_some_and(lacks_room);
    (!infeasible || lacks_room).then_some(Resize::Asked {
        since_ms,
        why,
        infeasible,
    })
}

/// Whether a refusal is about the room of the node: kubelets and the API server say which resource is not enough.
pub fn lacks_room(why: &str) -> bool {
    why.contains("enough capacity") || why.contains("enough allocatable")
}

/// The annotations of a pod whose kubelet is asked now for what is wanted. Until it provides that, the pod has the inputs of no
/// specification: neither of the earlier one, should that be wanted again, nor of this one.
pub fn resize_asked(cluster: &ValidatedCluster, now_ms: u64) -> Value {
    let asked = format!("{} {}", wanted_inputs(cluster), now_ms / 1000);
    json!({ANNOTATION_INPUTS: RESIZING, ANNOTATION_RESIZE: asked})
}

/// The annotations of a pod that the API server does not resize to what is wanted.
pub fn resize_refused(cluster: &ValidatedCluster) -> Value {
    json!({ANNOTATION_RESIZE: format!("{} {REFUSED}", wanted_inputs(cluster))})
}

/// The annotations of a pod whose node has no room for what is wanted, as the API server knows.
pub fn resize_infeasible(cluster: &ValidatedCluster, now_ms: u64) -> Value {
    let since = format!("{} {} {INFEASIBLE}", wanted_inputs(cluster), now_ms / 1000);
    json!({ANNOTATION_RESIZE: since})
}

/// The annotations of a pod whose kubelet has provided what is wanted.
pub fn resize_done(cluster: &ValidatedCluster) -> Value {
    json!({ANNOTATION_INPUTS: wanted_inputs(cluster), ANNOTATION_RESIZE: null})
}

/// The change of the pod's `resize` subresource, as a strategic merge. What has a limit alone requests that, as in a new pod: of
/// one that is there the API server would leave the earlier request.
pub fn resize_change(cluster: &ValidatedCluster) -> Value {
    let mut resources = requirements(cluster);
    for (kind, limit) in resources.limits.clone().unwrap_or_default() {
        let requests = resources.requests.get_or_insert_default();
        requests.entry(kind).or_insert(limit);
    }
    json!({"spec": {"containers": [{"name": CONTAINER, "resources": resources}]}})
}

/// Whether a pod's container is to have what is wanted, whatever it has.
pub fn resize_is_asked(cluster: &ValidatedCluster, pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ours = containers.filter(|one| one.name == CONTAINER);
    let now = ours.find_map(|one| Amounts::of(one.resources.as_ref()?));
    now.is_some() && now == Amounts::of(&requirements(cluster))
}

/// What a pod's annotation says of these inputs.
enum Answer {
    /// Its kubelet was asked.
    Asked { since_ms: u64 },
    /// The API server does not resize this pod.
    Refused,
    /// Its node has no room.
    Infeasible { since_ms: u64 },
}

impl Answer {
    /// `None` if it is about other inputs.
    fn read(text: &str, wanted: &str) -> Option<Self> {
        let mut words = text.split(' ');
        words.next().filter(|inputs| *inputs == wanted)?;
        let first = words.next()?;
        if first == REFUSED {
            return Some(Self::Refused);
        }
        let since_ms = first.parse::<u64>().ok()?.checked_mul(1000)?;
        Some(match words.next() {
            Some(INFEASIBLE) => Self::Infeasible { since_ms },
            _ => Self::Asked { since_ms },
        })
    }
}

fn has_run(pod: &Pod) -> bool {
    server_status(pod).is_some_and(|status| {
        let states = [&status.state, &status.last_state];
        let mut states = states.into_iter().flatten();
        states.any(|state| state.running.is_some() || state.terminated.is_some())
    })
}

fn server_status(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == CONTAINER)
}

/// What a kubelet reports while a resize is not done.
fn delay(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let reported = |type_: &str| {
        let mut found = conditions.iter();
        found.find(|one| one.type_ == type_ && one.status == "True")
    };
    reported("PodResizePending").or_else(|| reported("PodResizeInProgress"))
}

/// Whether the API server lets a container go from these resources to those while it runs, and its server needs no restart to follow.
fn can_become(now: &Amounts, goal: &Amounts, pod: &PodSpec) -> bool {
    let memory = |amounts: &Amounts| amounts.limits.get("memory").copied();
    let cores = |amounts: &Amounts| amounts.limits.get("cpu").map(|limit| (limit / 1000).max(1));
    let same_kinds =
        now.limits.keys().eq(goal.limits.keys()) && now.requests.keys().eq(goal.requests.keys());
    let others = |amounts: &BTreeMap<String, u128>| {
        let mut rest = amounts.clone();
        rest.retain(|kind, _| !matches!(kind.as_str(), "cpu" | "memory"));
        rest
    };
    // The kubelet would restart the container, and no client would be elsewhere.
    let restarts = pod.containers.iter().any(|one| {
        let policies = one.resize_policy.iter().flatten();
        let mut restart = policies.filter(|policy| policy.restart_policy != "NotRequired");
        one.name == CONTAINER && restart.next().is_some()
    });
    !restarts
        && same_kinds
        && memory(now) == memory(goal)
        && cores(now) == cores(goal)
        && others(&now.limits) == others(&goal.limits)
        && others(&now.requests) == others(&goal.requests)
        && (is_guaranteed(now) == is_guaranteed(goal) || !are_others_guaranteed(pod))
}

/// Whether its limits are its requests, of both kinds: the condition of the class Guaranteed. Pods do not change their class.
fn is_guaranteed(amounts: &Amounts) -> bool {
    ["cpu", "memory"].iter().all(|kind| {
        let limit = amounts.limits.get(*kind);
        limit.is_some() && limit == amounts.requests.get(*kind)
    })
}

/// Containers that run before the server count as well.
fn are_others_guaranteed(pod: &PodSpec) -> bool {
    let all = pod
        .containers
        .iter()
        .chain(pod.init_containers.iter().flatten());
    let mut others = all.filter(|one: &&Container| one.name != CONTAINER);
    others.all(|one| {
        let amounts = one.resources.as_ref().and_then(Amounts::of);
        amounts.is_some_and(|amounts| is_guaranteed(&amounts))
    })
}

/// Resources in thousandths, by kind.
#[derive(PartialEq, Eq)]
struct Amounts {
    requests: BTreeMap<String, u128>,
    limits: BTreeMap<String, u128>,
}

impl Amounts {
    /// `None` where one is no quantity. What has a limit alone requests that, as the API server has it.
    fn of(resources: &ResourceRequirements) -> Option<Self> {
        let limits = amounts(resources.limits.as_ref())?;
        let mut requests = limits.clone();
        requests.extend(amounts(resources.requests.as_ref())?);
        Some(Self { requests, limits })
    }
}

fn amounts(of: Option<&BTreeMap<String, Quantity>>) -> Option<BTreeMap<String, u128>> {
    let pairs = of.into_iter().flatten();
    let amounts = pairs.map(|(kind, quantity)| {
        let amount = thousandths_of(&quantity.0).ok()?;
        Some((kind.clone(), amount))
    });
    amounts.collect()
}

#[cfg(test)]
#[path = "resize_test.rs"]
mod tests;
