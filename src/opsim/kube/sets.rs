//! The StatefulSet controller: pods by ordinal, remade only once the old one is really gone, and
//! the revision of the template that each was made from.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::opsim::api::object::{self, put};
use crate::opsim::api::{ApiServer, Delete, Kind, Refusal, label_selector_fits};

const ACTOR: &str = "statefulset-controller";
/// The label with the revision that a pod was made from.
const REVISION: &str = "controller-revision-hash";

pub(super) fn advance(api: &mut ApiServer, priority_classes: &BTreeSet<String>) {
    let sets: Vec<Arc<Value>> = api.all(Kind::StatefulSet).cloned().collect();
    for set in sets {
        if !object::is_deleting(&set) {
            one(api, &set, priority_classes);
        }
    }
}

fn one(api: &mut ApiServer, set: &Value, priority_classes: &BTreeSet<String>) {
    if !object::items(set, &["spec", "volumeClaimTemplates"]).is_empty() {
        api.note(Refusal::not_modelled("spec.volumeClaimTemplates"));
        return;
    }
    let revision = format!("{}-{}", object::name(set), hash(&set["spec"]["template"]));
    let pods = own_pods(api, set);
    let replicas = object::number(set, &["spec", "replicas"]).unwrap_or(1);
    let ordinal = |pod: &Value| -> Option<i64> {
        let rest = object::name(pod).strip_prefix(object::name(set))?;
        rest.strip_prefix('-')?.parse().ok()
    };
    for wanted in 0..replicas {
        let found = pods.iter().find(|pod| ordinal(pod) == Some(wanted));
        match found {
            None => {
                let pod = pod(set, wanted, &revision);
                let class = object::text(&pod, &["spec", "priorityClassName"]);
                let known = class.is_empty()
                    || class.starts_with("system-")
                    || priority_classes.contains(class);
                if known {
                    // A name that is taken, or a refusal, is tried again.
                    let _ = api.create(ACTOR, Kind::Pod, pod);
                }
            }
            Some(pod) if ended(pod) && !object::is_deleting(pod) => delete(api, pod),
            Some(_) => {}
        }
    }
    for pod in &pods {
        let surplus = ordinal(pod).is_none_or(|at| at >= replicas);
        if surplus && !object::is_deleting(pod) {
            delete(api, pod);
        }
    }
    status(api, set, &revision);
}

fn delete(api: &mut ApiServer, pod: &Value) {
    let id = (object::namespace(pod), object::name(pod));
    let _ = api.delete(ACTOR, Kind::Pod, id, &Delete::only(object::uid(pod)));
}

fn ended(pod: &Value) -> bool {
    matches!(
        object::text(pod, &["status", "phase"]),
        "Failed" | "Succeeded"
    )
}

/// The pods that the set controls, after adopting those that match and have no controller.
fn own_pods(api: &mut ApiServer, set: &Value) -> Vec<Arc<Value>> {
    // The controller ignores a pod with another name, whatever its labels.
    let is_named = |pod: &Value| {
        let rest = object::name(pod).strip_prefix(object::name(set));
        let ordinal = rest.and_then(|rest| rest.strip_prefix('-'));
        ordinal.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok())
    };
    let fits = |pod: &&Arc<Value>| {
        object::namespace(pod) == object::namespace(set)
            && is_named(pod)
            && label_selector_fits(&set["spec"]["selector"], pod)
    };
    let pods: Vec<Arc<Value>> = api.all(Kind::Pod).filter(fits).cloned().collect();
    let mut own = Vec::new();
    for pod in pods {
        match object::controller(&pod) {
            Some(owner) if owner["uid"] == set["metadata"]["uid"] => own.push(pod),
            Some(_) => {}
            None if object::is_deleting(&pod) => {}
            None => {
                let id = (object::namespace(&pod), object::name(&pod));
                let reference = object::owner_reference("apps/v1", "StatefulSet", set);
                let adopted = api.edit(ACTOR, Kind::Pod, id, |pod| {
                    let mut owners = object::owners(pod).to_vec();
                    owners.push(reference);
                    put(pod, &["metadata", "ownerReferences"], json!(owners));
                });
                own.extend(adopted);
            }
        }
    }
    own
}

/// Ten letters and digits that follow from the template and from nothing else.
fn hash(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string().as_bytes());
    digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn pod(set: &Value, ordinal: i64, revision: &str) -> Value {
    let template = &set["spec"]["template"];
    let name = format!("{}-{ordinal}", object::name(set));
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {},
        "spec": template["spec"].clone()});
    for field in ["labels", "annotations"] {
        if let Some(value) = object::at(template, &["metadata", field]) {
            put(&mut pod, &["metadata", field], value.clone());
        }
    }
    let meta = &mut pod["metadata"];
    meta["name"] = json!(name);
    meta["namespace"] = set["metadata"]["namespace"].clone();
    meta["ownerReferences"] = json!([object::owner_reference("apps/v1", "StatefulSet", set)]);
    put(meta, &["labels", REVISION], json!(revision));
    put(
        meta,
        &["labels", "statefulset.kubernetes.io/pod-name"],
        json!(name),
    );
    put(
        meta,
        &["labels", "apps.kubernetes.io/pod-index"],
        json!(ordinal.to_string()),
    );
    let spec = &mut pod["spec"];
    spec["hostname"] = json!(name);
    spec["subdomain"] = set["spec"]["serviceName"].clone();
    tolerate_silence(spec);
    pod
}

/// What admission gives every pod: five minutes on a node that is silent.
pub(super) fn tolerate_silence(spec: &mut Value) {
    let mut tolerations = object::items(spec, &["tolerations"]).to_vec();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let named = |toleration: &Value| {
            let own = object::text(toleration, &["key"]);
            let effect = object::text(toleration, &["effect"]);
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !tolerations.iter().any(named) {
            tolerations.push(json!({"key": key, "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    spec["tolerations"] = json!(tolerations);
}

fn status(api: &mut ApiServer, set: &Value, revision: &str) {
    let pods = own_pods(api, set);
    let alive: Vec<_> = pods
        .iter()
        .filter(|pod| !object::is_deleting(pod))
        .collect();
    let ready = alive
        .iter()
        .filter(|pod| object::holds(pod, "Ready"))
        .count();
    let current = match object::text(set, &["status", "currentRevision"]) {
        "" => revision,
        current => current,
    };
    let of = |revision: &str| {
        let made = |pod: &&&Arc<Value>| object::label(pod, REVISION) == Some(revision);
        alive.iter().filter(made).count()
    };
    let rolling = object::text(set, &["spec", "updateStrategy", "type"]) == "RollingUpdate";
    let done = rolling && of(revision) == alive.len() && ready == alive.len();
    let current = if done { revision } else { current };
    let status = json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready,
        "currentReplicas": of(current), "updatedReplicas": of(revision),
        "currentRevision": current, "updateRevision": revision, "collisionCount": 0,
    });
    let id = (object::namespace(set), object::name(set));
    api.edit(ACTOR, Kind::StatefulSet, id, |set| set["status"] = status);
}
