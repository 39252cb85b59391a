//! Where a pod may be: taints and tolerations, selectors and affinities of nodes, and what no node
//! has that much of.

use serde_json::Value;

use crate::opsim::api::object;
use crate::opsim::api::requirement_fits;

/// Name of the label that identifies a node.
pub(super) const HOST: &str = "kubernetes.io/hostname";
/// Taint of a node that is cordoned.
pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taint of a node that reports that it is not ready.
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint of a node that does not report any more.
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint by which somebody vouches that nothing runs on a node any more.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a toleration covers a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (
        object::text(toleration, &["key"]),
        object::text(toleration, &["effect"]),
    );
    if !effect.is_empty() && effect != object::text(taint, &["effect"]) {
        return false;
    }
    if !key.is_empty() && key != object::text(taint, &["key"]) {
        return false;
    }
    match object::text(toleration, &["operator"]) {
        "Exists" => true,
        _ => {
            !key.is_empty()
                && object::text(toleration, &["value"]) == object::text(taint, &["value"])
        }
    }
}

/// The taints that keep new pods away, the cordon as one of them.
fn closed_by(node: &Value) -> Vec<Value> {
    let mut taints: Vec<Value> = object::items(node, &["spec", "taints"])
        .iter()
        .filter(|taint| object::text(taint, &["effect"]) != "PreferNoSchedule")
        .cloned()
        .collect();
    let cordoned = object::at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
    if cordoned && !taints.iter().any(|taint| taint["key"] == UNSCHEDULABLE) {
        taints.push(serde_json::json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
    }
    taints
}

/// Why the node's taints keep a pod away, if they do.
pub(super) fn taints_refuse(spec: &Value, node: &Value) -> Option<String> {
    let tolerations = object::items(spec, &["tolerations"]);
    let taint = closed_by(node)
        .into_iter()
        .find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))?;
    if taint["key"] == UNSCHEDULABLE {
        return Some("node(s) were unschedulable".into());
    }
    Some(format!(
        "node(s) had untolerated taint {{{}: {}}}",
        object::text(&taint, &["key"]),
        object::text(&taint, &["value"])
    ))
}

/// What every node has: pods that ask for more find none. Nodes are never full.
const NODE_HAS: [(&str, u64); 2] = [("cpu", 64), ("memory", 256 << 30)];

/// Why no node has what the pod asks for, if none has.
pub(super) fn asks_too_much(spec: &Value) -> Option<String> {
    for (what, most) in NODE_HAS {
        let asked = object::items(spec, &["containers"])
            .iter()
            .map(|container| {
                let quantity = object::at(container, &["resources", "requests", what]);
                let text = quantity.map_or(String::new(), |quantity| match quantity {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                crate::crd::bytes_of(&text).unwrap_or(0)
            });
        if asked.sum::<u64>() > most {
            return Some(format!("Insufficient {what}"));
        }
    }
    None
}

/// Whether a node satisfies the pod's selector and what it requires of nodes.
pub(super) fn affinity_fits(spec: &Value, node: &Value) -> bool {
    let wanted = spec.get("nodeSelector").and_then(Value::as_object);
    let mut wanted = wanted.into_iter().flatten();
    let selected = wanted.all(|(key, value)| object::label(node, key) == value.as_str());
    const REQUIRED: &[&str] = &[
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
    ];
    selected && object::at(spec, REQUIRED).is_none_or(|required| selector_fits(required, node))
}

/// Whether a node satisfies a node selector: one of its terms.
pub(super) fn selector_fits(selector: &Value, node: &Value) -> bool {
    object::items(selector, &["nodeSelectorTerms"])
        .iter()
        .any(|term| term_fits(term, node))
}

fn term_fits(term: &Value, node: &Value) -> bool {
    let labels = object::items(term, &["matchExpressions"]);
    let fields = object::items(term, &["matchFields"]);
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    labels.iter().all(|requirement| {
        let key = object::text(requirement, &["key"]);
        requirement_fits(requirement, object::label(node, key))
    }) && fields.iter().all(|requirement| {
        let named = object::text(requirement, &["key"]) == "metadata.name";
        named && requirement_fits(requirement, Some(object::name(node)))
    })
}
