//! Where a cluster ended, as far as it follows from the specification alone.
//!
//! Left out, because the way there decides it: names, numbers and identities of members, UIDs,
//! addresses, nodes, generations and revisions; PVCs of members that left and were kept; how a
//! size is written. The storage class is the one that the cluster was made with on every way. A pod
//! that was made while TLS was switched on has it in its arguments until it is made anew for
//! something else; how the members are dialled in the end is compared instead.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::build::TRANSITION;
use crate::crd::{
    ANNOTATION_RENDERED, LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_MEMBER, bytes_of,
};
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::World;

/// A member's address as its server receives it, without TLS and with it.
const PLAIN: &str = "--initial-advertise-peer-urls=http://";
const SECURE: &str = "--initial-advertise-peer-urls=https://";

const KINDS: [Kind; 6] = [
    Kind::StatefulSet,
    Kind::Pod,
    Kind::PersistentVolumeClaim,
    Kind::Service,
    Kind::PodDisruptionBudget,
    Kind::NetworkPolicy,
];

/// The end state of the only resource.
pub(super) fn of(world: &World) -> Value {
    let mut state = world.end_state();
    let api = world.api.lock();
    for resource in api.all(Kind::EtcdCluster) {
        let (name, uid) = (object::name(resource), object::life(resource));
        let mut objects: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for kind in KINDS {
            let ours = api
                .all(kind)
                .filter(|found| object::label(found, LABEL_CLUSTER_UID) == Some(uid));
            let kept = ours.filter(|found| !is_retired(found));
            let asks = object::at(resource, &["spec", "service", "ipFamilyPolicy"]).is_some();
            let seen = kept.map(|found| plain(kind, found, uid, asks));
            let mut seen: Vec<Value> = seen.collect();
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
        state["clusters"][name]["dialled"] = json!(dialled(world, uid));
    }
    state
}

/// By what schemes the members of a cluster reach each other.
fn dialled(world: &World, uid: &str) -> BTreeSet<String> {
    let servers = lock(&world.servers);
    let group = servers.group_of(uid).into_iter();
    let members = group.flat_map(|group| group.membership.members.values());
    let urls = members.flat_map(|member| &member.peer_urls);
    let schemes = urls.filter_map(|url| url.split_once("://"));
    schemes.map(|(scheme, _)| scheme.to_owned()).collect()
}

/// The arguments of a server that was started while TLS was switched on, as they are later.
fn without_transition(pod: &mut Value) {
    for container in object::items_mut(pod, "containers") {
        let Some(words) = container["args"].as_array_mut() else {
            continue;
        };
        let before = words.len();
        words.retain(|word| word != TRANSITION);
        if words.len() == before {
            continue;
        }
        for word in words.iter_mut() {
            let plain = word.as_str().and_then(|word| word.strip_prefix(PLAIN));
            if let Some(rest) = plain {
                *word = json!(format!("{SECURE}{rest}"));
            }
        }
    }
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
fn plain(kind: Kind, found: &Value, uid: &str, asks_for_families: bool) -> Value {
    let member = object::label(found, LABEL_MEMBER);
    let mut spec = found["spec"].clone();
    let mut labels = found["metadata"]["labels"].clone();
    let mut annotations = found["metadata"]["annotations"].clone();
    match kind {
        Kind::Pod => {
            object::take(&mut spec, &["nodeName"]);
            object::take(&mut labels, &["controller-revision-hash"]);
            without_transition(&mut spec);
        }
        Kind::StatefulSet => {
            // Of names, and of what was seen when it was made.
            object::take(&mut annotations, &[ANNOTATION_RENDERED]);
            if let Some(pod) = spec.pointer_mut("/template/spec") {
                without_transition(pod);
            }
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
    if kind == Kind::Service && !asks_for_families {
        // A Service keeps what it was given where the resource does not say it any more.
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            object::take(&mut spec, &[field]);
        }
    }
    let content = json!({
        "labels": labels,
        "annotations": annotations,
        "owners": object::owners(found).len(),
        "spec": spec,
        "deleting": object::is_deleting(found),
    });
    let mut text = content.to_string();
    if let Some(member) = member {
        let pvc = crate::crd::pvc_name(member, uid);
        text = text.replace(&pvc, "CLAIM").replace(member, "MEMBER");
    }
    text = text.replace(uid, "UID");
    serde_json::from_str(&text).unwrap_or(content)
}
