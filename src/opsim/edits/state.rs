//! Where a cluster ended, as far as it follows from the specification alone.
//!
//! Left out, because the way there decides it: names, numbers and identities of members, UIDs,
//! addresses, nodes, generations and revisions; claims of members that left and were kept; how a
//! size is written. The storage class is the one that the cluster was made with on every way.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::crd::{LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_MEMBER, bytes_of};
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::world::World;

const KINDS: [Kind; 5] = [
    Kind::StatefulSet,
    Kind::Pod,
    Kind::PersistentVolumeClaim,
    Kind::Service,
    Kind::PodDisruptionBudget,
];

/// The end state of the only resource.
pub(super) fn of(world: &World) -> Value {
    let mut state = world.end_state();
    let api = world.api.lock();
    for resource in api.all(Kind::EtcdCluster) {
        let (name, uid) = (object::name(resource), object::uid(resource));
        let mut objects: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for kind in KINDS {
            let ours = api
                .all(kind)
                .filter(|found| object::label(found, LABEL_CLUSTER_UID) == Some(uid));
            let kept = ours.filter(|found| !is_retired(found));
            let mut seen: Vec<Value> = kept.map(|found| plain(kind, found, uid)).collect();
            seen.sort_by_key(Value::to_string);
            objects.insert(kind.name(), seen);
        }
        if follows_volumes(&resource["spec"]) {
            for kind in ["StatefulSet", "Pod"] {
                for found in objects.get_mut(kind).into_iter().flatten() {
                    without_places(found);
                }
            }
        }
        let slots = api.all(Kind::Service);
        let slots =
            slots.filter(|found| object::at(found, &["spec", "selector", LABEL_MEMBER]).is_some());
        state["clusters"][name]["objects"] = json!(objects);
        state["clusters"][name]["slots"] = json!(slots.count());
    }
    state
}

fn is_retired(found: &Value) -> bool {
    object::label(found, LABEL_CLAIM_STATE) == Some("retired")
}

/// Where members are kept apart once it is seen that their volumes cannot move: the first one was
/// made before anybody could see that.
fn follows_volumes(spec: &Value) -> bool {
    let mobility = object::text(spec, &["scheduling", "volumes"]);
    let local = object::text(spec, &["storage", "storageClassName"]) == "local";
    local && (mobility.is_empty() || mobility == "Auto")
}

fn without_places(found: &mut Value) {
    for path in [&["spec", "template", "spec"][..], &["spec"][..]] {
        for field in ["topologySpreadConstraints", "affinity"] {
            let way: Vec<&str> = path.iter().copied().chain([field]).collect();
            object::take(found, &way);
        }
    }
}

/// What of an object follows from the specification.
fn plain(kind: Kind, found: &Value, uid: &str) -> Value {
    let member = object::label(found, LABEL_MEMBER);
    let mut spec = found["spec"].clone();
    let mut labels = found["metadata"]["labels"].clone();
    let mut annotations = found["metadata"]["annotations"].clone();
    match kind {
        Kind::Pod => {
            object::take(&mut spec, &["nodeName"]);
            object::take(&mut labels, &["controller-revision-hash"]);
        }
        Kind::PersistentVolumeClaim => {
            object::take(&mut spec, &["volumeName"]);
            // The node that the scheduler chose.
            let chosen = "volume.kubernetes.io/selected-node";
            object::take(&mut annotations, &[chosen]);
            let size = ["resources", "requests", "storage"];
            let bytes = bytes_of(object::text(&spec, &size)).unwrap_or(0);
            object::put(&mut spec, &size, json!(bytes));
        }
        Kind::Service => {
            for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
                object::take(&mut spec, &[field]);
            }
            for port in object::items_mut(&mut spec, "ports") {
                object::take(port, &["nodePort"]);
            }
            let slot = object::at(&spec, &["selector", LABEL_MEMBER]).is_some();
            if slot {
                object::put(&mut spec, &["selector", LABEL_MEMBER], json!("MEMBER"));
            }
        }
        _ => {}
    }
    let told = json!({
        "labels": labels,
        "annotations": annotations,
        "owners": object::owners(found).len(),
        "spec": spec,
        "deleting": object::is_deleting(found),
    });
    let mut text = told.to_string();
    if let Some(member) = member {
        let claim = crate::crd::claim_name(member, uid);
        text = text.replace(&claim, "CLAIM").replace(member, "MEMBER");
    }
    text = text.replace(uid, "UID");
    serde_json::from_str(&text).unwrap_or(told)
}
