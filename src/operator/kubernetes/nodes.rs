//! Nodes as facts: which ones report, which ones are drained, and which ones take no member's pod. Only
//! reading and translating; that a node is full is not seen.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use super::facts;
use crate::crd::{ANNOTATION_IGNORE_CORDON, ValidatedCluster};
use crate::plan::NodeFacts;

/// Taint of a node on which nothing runs any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint that Kubernetes sets on a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taints that count as a drain: out of service, shut down by the cloud, and those of the cluster autoscaler and of
/// Karpenter (its current one and the one before 1.0).
const DRAIN_TAINTS: [&str; 5] = [
    OUT_OF_SERVICE,
    "node.cloudprovider.kubernetes.io/shutdown",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

/// A Node, as the members of this cluster see it.
pub(super) fn node(node: &Node, cluster: Option<&ValidatedCluster>) -> NodeFacts {
    let spec = node.spec.as_ref();
    let conditions = node.status.as_ref().map(|status| &status.conditions);
    let mut conditions = conditions.into_iter().flatten().flatten();
    let taints = spec.and_then(|spec| spec.taints.as_deref());
    let taints = taints.unwrap_or_default();
    let unselected = cluster.is_some_and(|cluster| !is_selected(node, cluster));
    NodeFacts {
        unselected,
        ready: conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        drain_reason: drain_reason(node, taints, cluster),
        closed: cluster.map_or_else(
            || is_cordoned(node),
            |cluster| refuses(node, taints, cluster),
        ),
        out_of_service: taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
    }
}

fn is_cordoned(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// Why a node counts as drained, in words.
fn drain_reason(
    node: &Node,
    taints: &[Taint],
    cluster: Option<&ValidatedCluster>,
) -> Option<String> {
    if node.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted".to_owned());
    }
    let named = cluster.map(|cluster| cluster.spec.disruption.drain_taints.as_slice());
    let named = named.unwrap_or_default();
    let drains =
        |taint: &&Taint| DRAIN_TAINTS.contains(&taint.key.as_str()) || named.contains(&taint.key);
    if let Some(taint) = taints.iter().find(drains) {
        return Some(format!("has the taint {}", taint.key));
    }
    let ignored = facts::is_asked(&node.metadata, ANNOTATION_IGNORE_CORDON);
    (is_cordoned(node) && !ignored).then(|| "is cordoned".to_owned())
}

/// Whether a change of a node may affect its members: reserving, draining or losing it changes one of these. The
/// regular status updates of a healthy node do not.
pub(super) fn concerns_members(node: &Node) -> bool {
    let facts = self::node(node, None);
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    !facts.ready || facts.drain_reason.is_some() || taints.is_some_and(|taints| !taints.is_empty())
}

/// Whether a node's cordon, its taints, or what the pod template selects, keep members away.
fn refuses(node: &Node, taints: &[Taint], cluster: &ValidatedCluster) -> bool {
    let template = &cluster.spec.pod_template.spec;
    let keeps_away = |taint: &Taint| {
        let mut tolerations = template.tolerations.iter();
        taint.effect != "PreferNoSchedule"
            && !tolerations.any(|toleration| tolerates(toleration, taint))
    };
    // The cordon comes first, the taint a moment later.
    let cordon = is_cordoned(node).then(|| Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
    cordon.iter().chain(taints).any(keeps_away) || !is_selected(node, cluster)
}

/// Whether the pod template selects a node, by its node selector and a required affinity.
fn is_selected(node: &Node, cluster: &ValidatedCluster) -> bool {
    let template = &cluster.spec.pod_template.spec;
    let selects = |selector: &BTreeMap<String, String>| {
        let mut wanted = selector.iter();
        wanted.all(|(key, value)| facts::has_label(&node.metadata, key, value))
    };
    let affinity = template.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let fits = required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| facts::fits(term, node))
    });
    fits && selects(&template.node_selector)
}

/// Whether a toleration covers a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let (key, effect) = (toleration.key.as_deref(), toleration.effect.as_deref());
    let of_effect = effect.unwrap_or_default().is_empty() || effect == Some(&taint.effect);
    let of_key = key.unwrap_or_default().is_empty() || key == Some(&taint.key);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    let same = key.is_some() && value(&toleration.value) == value(&taint.value);
    of_effect && of_key && (exists || same)
}

#[cfg(test)]
#[path = "nodes_test.rs"]
mod tests;
