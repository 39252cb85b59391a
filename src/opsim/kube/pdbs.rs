//! The disruption controller: what each PDB allows, from how many of its pods are ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::api::{ApiServer, Kind, label_selector_fits};

const ACTOR: &str = "disruption-controller";
/// A disruption that did not happen is forgotten after this long, in milliseconds.
const FORGOTTEN_MS: u64 = 120_000;

pub(super) fn advance(api: &mut ApiServer) {
    let pdbs: Vec<Arc<Value>> = api.all(Kind::PodDisruptionBudget).cloned().collect();
    for pdb in pdbs {
        let status = status(api, &pdb);
        let id = (object::namespace(&pdb), object::name(&pdb));
        api.edit(ACTOR, Kind::PodDisruptionBudget, id, |pdb| {
            let conditions = object::at(pdb, &["status", "conditions"]).cloned();
            pdb["status"] = status;
            if let Some(conditions) = conditions {
                pdb["status"]["conditions"] = conditions;
            }
            let allowed = object::number(pdb, &["status", "disruptionsAllowed"]);
            let enough = allowed.is_some_and(|allowed| allowed > 0);
            let reason = if enough {
                "SufficientPods"
            } else {
                "InsufficientPods"
            };
            let at = object::time_ms(pdb, &["metadata", "creationTimestamp"]).unwrap_or(0);
            let same = object::condition(pdb, "DisruptionAllowed")
                .is_some_and(|known| known["reason"] == reason);
            if !same {
                let why = Some((reason, ""));
                object::set_condition(pdb, at, "DisruptionAllowed", enough, why);
            }
        });
    }
}

fn status(api: &ApiServer, pdb: &Value) -> Value {
    let chosen = |pod: &&Arc<Value>| {
        object::namespace(pod) == object::namespace(pdb)
            && label_selector_fits(&pdb["spec"]["selector"], pod)
            && !matches!(
                object::text(pod, &["status", "phase"]),
                "Succeeded" | "Failed"
            )
    };
    let pods: Vec<&Arc<Value>> = api.all(Kind::Pod).filter(chosen).collect();
    // What their controllers want counts, not how many there are.
    let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
    for pod in &pods {
        let Some(owner) = object::controller(pod) else {
            continue;
        };
        let (namespace, name) = (object::namespace(pod), object::text(owner, &["name"]));
        if let Some(set) = api.get(Kind::StatefulSet, namespace, name)
            && set["metadata"]["uid"] == owner["uid"]
        {
            let replicas = object::number(&set, &["spec", "replicas"]).unwrap_or(1);
            wanted.insert(object::uid(&set).to_owned(), replicas);
        }
    }
    let by_controllers: i64 = wanted.values().sum();
    let count = i64::try_from(pods.len()).unwrap_or(0);
    let (expected, desired) = match (
        object::number(pdb, &["spec", "maxUnavailable"]),
        object::number(pdb, &["spec", "minAvailable"]),
    ) {
        (Some(most), _) => (by_controllers, (by_controllers - most).max(0)),
        (None, Some(least)) => (count, least),
        (None, None) => (count, 1),
    };
    let now_ms = api.now_ms();
    let disrupted = object::at(pdb, &["status", "disruptedPods"]).and_then(Value::as_object);
    let mut kept = serde_json::Map::new();
    for (name, at) in disrupted.into_iter().flatten() {
        let there = pods
            .iter()
            .any(|pod| object::name(pod) == name && !object::is_deleting(pod));
        let at_ms = object::time_ms(at, &[]).unwrap_or(0);
        if there && at_ms + FORGOTTEN_MS > now_ms {
            kept.insert(name.clone(), at.clone());
        }
    }
    let healthy = pods.iter().filter(|pod| {
        object::holds(pod, "Ready")
            && !object::is_deleting(pod)
            && !kept.contains_key(object::name(pod))
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(0);
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let mut status = json!({
        "observedGeneration": pdb["metadata"]["generation"], "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
    });
    if !kept.is_empty() {
        status["disruptedPods"] = Value::Object(kept);
    }
    status
}
