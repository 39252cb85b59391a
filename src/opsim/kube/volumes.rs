//! Volumes: made for PVCs by their class, bound, grown, reclaimed; PVCs that pods use stay.
//!
//! A class with the provisioner `kubernetes.io/no-provisioner` takes volumes that somebody made.
//! Any other makes them; with the parameter `nodeBound: "true"` for one node only, as local disks
//! are, else for every node.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, put};
use crate::opsim::api::{ApiServer, Delete, Kind};

use super::place::{self, HOST};

const ACTOR: &str = "persistentvolume-controller";
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// On which node the scheduler wants a volume.
const CHOSEN: &str = "volume.kubernetes.io/selected-node";
const SIZE: &[&str] = &["spec", "resources", "requests", "storage"];

/// How the PVCs of a pod stand towards a node.
pub(super) enum Fit {
    /// All have volumes that the node can use.
    Bound,
    /// A volume is being made for this node.
    Chosen(String),
    /// Volumes are still to be made.
    Unbound,
}

/// The PVCs that a pod names; why it can be nowhere when one is missing.
pub(super) fn pvcs_of(api: &ApiServer, pod: &Value) -> Result<Vec<Arc<Value>>, String> {
    let mut pvcs = Vec::new();
    for name in pvc_names(pod) {
        let Some(pvc) = api.get(Kind::PersistentVolumeClaim, object::namespace(pod), name) else {
            return Err(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if object::is_deleting(&pvc) {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if object::text(&pvc, &["status", "phase"]) == "Lost" {
            let why = "bound to non-existent persistentvolume";
            let volume = object::text(&pvc, &["spec", "volumeName"]);
            return Err(format!(
                "persistentvolumeclaim \"{name}\" {why} \"{volume}\""
            ));
        }
        if !is_bound(&pvc) && !waits_for_pod(api, &pvc) {
            return Err("pod has unbound immediate PersistentVolumeClaims".into());
        }
        pvcs.push(pvc);
    }
    Ok(pvcs)
}

/// The names of the PVCs that a pod mounts.
pub(super) fn pvc_names(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = object::items(pod, &["spec", "volumes"]).iter();
    volumes
        .map(|volume| object::text(volume, &["persistentVolumeClaim", "claimName"]))
        .filter(|name| !name.is_empty())
}

/// Whether a PVC has its volume.
pub(super) fn is_bound(pvc: &Value) -> bool {
    object::text(pvc, &["status", "phase"]) == "Bound"
}

fn class(api: &ApiServer, pvc: &Value) -> Option<Arc<Value>> {
    let name = object::text(pvc, &["spec", "storageClassName"]);
    api.get(Kind::StorageClass, "", name)
}

fn waits_for_pod(api: &ApiServer, pvc: &Value) -> bool {
    class(api, pvc)
        .is_some_and(|class| object::text(&class, &["volumeBindingMode"]) == "WaitForFirstConsumer")
}

fn is_manual(class: &Value) -> bool {
    object::text(class, &["provisioner"]) == "kubernetes.io/no-provisioner"
}

/// Why a node is none for these PVCs.
pub(super) fn refused_by(api: &ApiServer, pvcs: &[Arc<Value>], node: &Value) -> Option<String> {
    for pvc in pvcs {
        if is_bound(pvc) {
            let volume = object::text(pvc, &["spec", "volumeName"]);
            let Some(volume) = api.get(Kind::PersistentVolume, "", volume) else {
                return Some(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
                        .into(),
                );
            };
            if !usable(&volume, node) {
                return Some("node(s) didn't match PersistentVolume's node affinity".into());
            }
            continue;
        }
        let manual = class(api, pvc).is_some_and(|class| is_manual(&class));
        if manual && free(api, pvc, Some(node)).is_none() {
            let why = "node(s) didn't find available persistent volumes to bind";
            return Some(why.into());
        }
        // A volume that is being made for another node is waited for.
        let chosen = chosen(pvc);
        let elsewhere = chosen.is_some_and(|chosen| chosen != object::name(node));
        let there = chosen.is_some_and(|node| api.get(Kind::Node, "", node).is_some());
        if elsewhere && there {
            return Some("node(s) had volume node affinity conflict".into());
        }
    }
    None
}

fn usable(volume: &Value, node: &Value) -> bool {
    object::at(volume, &["spec", "nodeAffinity", "required"])
        .is_none_or(|required| place::selector_fits(required, node))
}

fn chosen(pvc: &Value) -> Option<&str> {
    object::at(pvc, &["metadata", "annotations", CHOSEN])?.as_str()
}

/// How the PVCs stand towards the node that was chosen for their pod.
pub(super) fn ready_for(api: &ApiServer, pvcs: &[Arc<Value>], node: &str) -> Fit {
    let _ = api;
    let mut unbound = pvcs.iter().filter(|pvc| !is_bound(pvc)).peekable();
    if unbound.peek().is_none() {
        return Fit::Bound;
    }
    let on_the_way = unbound.find_map(|pvc| chosen(pvc));
    match on_the_way {
        Some(other) if other != node => Fit::Chosen(other.to_owned()),
        Some(_) => Fit::Chosen(node.to_owned()),
        None => Fit::Unbound,
    }
}

/// Asks for the volumes on this node.
pub(super) fn choose_node(api: &mut ApiServer, pvcs: &[Arc<Value>], node: &str) {
    for pvc in pvcs.iter().filter(|pvc| !is_bound(pvc)) {
        let id = (object::namespace(pvc), object::name(pvc));
        api.edit("scheduler", Kind::PersistentVolumeClaim, id, |pvc| {
            put(pvc, &["metadata", "annotations", CHOSEN], json!(node));
        });
    }
}

/// Gives up the node that was asked for, because it is no more.
pub(super) fn forget_choice(api: &mut ApiServer, pvcs: &[Arc<Value>]) {
    for pvc in pvcs.iter().filter(|pvc| !is_bound(pvc)) {
        let id = (object::namespace(pvc), object::name(pvc));
        api.edit(ACTOR, Kind::PersistentVolumeClaim, id, |pvc| {
            object::take(pvc, &["metadata", "annotations", CHOSEN]);
        });
    }
}

pub(super) fn advance(api: &mut ApiServer, serial: &mut u64) {
    let pvcs: Vec<Arc<Value>> = api.all(Kind::PersistentVolumeClaim).cloned().collect();
    for pvc in &pvcs {
        if object::is_deleting(pvc) {
            release(api, pvc);
        } else if object::text(pvc, &["spec", "volumeName"]).is_empty() {
            provide(api, pvc, serial);
        } else {
            follow(api, pvc);
        }
    }
    let volumes: Vec<Arc<Value>> = api.all(Kind::PersistentVolume).cloned().collect();
    for volume in &volumes {
        reclaim(api, volume);
    }
}

/// Lets a PVC go once no pod uses it. A pod that has no node yet does not use anything.
fn release(api: &mut ApiServer, pvc: &Value) {
    let used = api.all(Kind::Pod).any(|pod| {
        object::namespace(pod) == object::namespace(pvc)
            && !object::text(pod, &["spec", "nodeName"]).is_empty()
            && !matches!(
                object::text(pod, &["status", "phase"]),
                "Succeeded" | "Failed"
            )
            && pvc_names(pod).any(|name| name == object::name(pvc))
    });
    if used {
        return;
    }
    let id = (object::namespace(pvc), object::name(pvc));
    api.edit(
        "pvc-protection-controller",
        Kind::PersistentVolumeClaim,
        id,
        |pvc| {
            let mut finalizers: Vec<String> = object::finalizers(pvc).map(str::to_owned).collect();
            finalizers.retain(|name| name != PROTECTION);
            pvc["metadata"]["finalizers"] = json!(finalizers);
        },
    );
}

/// Finds or makes a volume for a PVC.
fn provide(api: &mut ApiServer, pvc: &Value, serial: &mut u64) {
    let Some(class) = class(api, pvc) else {
        return;
    };
    let node = match chosen(pvc) {
        Some(node) => match api.get(Kind::Node, "", node) {
            Some(node) => Some(node),
            None => return forget_choice(api, &[Arc::new(pvc.clone())]),
        },
        None if waits_for_pod(api, pvc) => return,
        None => None,
    };
    let volume = if is_manual(&class) {
        match free(api, pvc, node.as_deref()) {
            Some(volume) => volume,
            None => return,
        }
    } else {
        *serial += 1;
        let made = make(pvc, &class, node.as_deref(), *serial);
        match api.create(ACTOR, Kind::PersistentVolume, made) {
            Ok(volume) => volume,
            Err(_) => return,
        }
    };
    bind(api, pvc, &volume);
}

/// A volume that is free for a PVC, on a node where one is given.
fn free(api: &ApiServer, pvc: &Value, node: Option<&Value>) -> Option<Arc<Value>> {
    let fits = |volume: &&Arc<Value>| {
        object::text(volume, &["status", "phase"]) == "Available"
            && !object::is_deleting(volume)
            && volume["spec"].get("claimRef").is_none()
            && object::text(volume, &["spec", "storageClassName"])
                == object::text(pvc, &["spec", "storageClassName"])
            && node.is_none_or(|node| usable(volume, node))
    };
    api.all(Kind::PersistentVolume).find(fits).cloned()
}

fn make(pvc: &Value, class: &Value, node: Option<&Value>, serial: u64) -> Value {
    let name = format!("pvc-{serial:04}-{}", object::uid(pvc));
    let mut volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": object::at(pvc, SIZE)},
        "accessModes": pvc["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
        "storageClassName": class["metadata"]["name"],
        "csi": {"driver": class["provisioner"], "volumeHandle": name},
    }});
    let bound = object::text(class, &["parameters", "nodeBound"]) == "true";
    if let Some(node) = node.filter(|_| bound) {
        let host = object::label(node, HOST).unwrap_or_default();
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": HOST, "operator": "In", "values": [host]}]}]}});
    }
    volume
}

fn bind(api: &mut ApiServer, pvc: &Value, volume: &Value) {
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": object::namespace(pvc), "name": object::name(pvc),
        "uid": object::uid(pvc)});
    let name = object::name(volume).to_owned();
    let size = volume["spec"]["capacity"]["storage"].clone();
    api.edit(ACTOR, Kind::PersistentVolume, ("", &name), |volume| {
        put(volume, &["spec", "claimRef"], reference);
        put(volume, &["status", "phase"], json!("Bound"));
    });
    let id = (object::namespace(pvc), object::name(pvc));
    api.edit(ACTOR, Kind::PersistentVolumeClaim, id, |pvc| {
        put(pvc, &["spec", "volumeName"], json!(name));
        let modes = pvc["spec"]["accessModes"].clone();
        pvc["status"] =
            json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": size}});
    });
}

/// A PVC that has its volume: notices its loss, and grows it.
fn follow(api: &mut ApiServer, pvc: &Value) {
    let id = (object::namespace(pvc), object::name(pvc));
    let volume = object::text(pvc, &["spec", "volumeName"]);
    let Some(volume) = api.get(Kind::PersistentVolume, "", volume) else {
        api.edit(ACTOR, Kind::PersistentVolumeClaim, id, |pvc| {
            put(pvc, &["status", "phase"], json!("Lost"));
        });
        return;
    };
    let ours = object::at(&volume, &["spec", "claimRef", "uid"]);
    match ours {
        None => return bind(api, pvc, &volume),
        Some(uid) if uid != &pvc["metadata"]["uid"] => {
            api.edit(ACTOR, Kind::PersistentVolumeClaim, id, |pvc| {
                put(pvc, &["status", "phase"], json!("Lost"));
            });
            return;
        }
        Some(_) => {}
    }
    let wanted = object::at(pvc, SIZE).cloned().unwrap_or(Value::Null);
    if wanted == pvc["status"]["capacity"]["storage"] || !is_bound(pvc) {
        return;
    }
    api.edit(
        "resizer",
        Kind::PersistentVolume,
        ("", object::name(&volume)),
        |volume| {
            put(volume, &["spec", "capacity", "storage"], wanted.clone());
        },
    );
    api.edit("resizer", Kind::PersistentVolumeClaim, id, |pvc| {
        put(pvc, &["status", "capacity", "storage"], wanted.clone());
    });
}

/// A volume whose PVC is gone goes too, or stays for somebody to look at it.
fn reclaim(api: &mut ApiServer, volume: &Value) {
    let name = object::name(volume);
    let Some(of) = volume["spec"].get("claimRef") else {
        if object::is_deleting(volume) {
            drop_protection(api, name);
        }
        return;
    };
    let (namespace, pvc) = (
        object::text(of, &["namespace"]),
        object::text(of, &["name"]),
    );
    let found = api.get(Kind::PersistentVolumeClaim, namespace, pvc);
    if found.is_some_and(|found| found["metadata"]["uid"] == of["uid"]) {
        return;
    }
    api.edit(ACTOR, Kind::PersistentVolume, ("", name), |volume| {
        put(volume, &["status", "phase"], json!("Released"));
    });
    let goes = object::text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Delete";
    if goes {
        let _ = api.delete(
            ACTOR,
            Kind::PersistentVolume,
            ("", name),
            &Delete::default(),
        );
    }
    if goes || object::is_deleting(volume) {
        drop_protection(api, name);
    }
}

fn drop_protection(api: &mut ApiServer, name: &str) {
    api.edit(
        "pv-protection-controller",
        Kind::PersistentVolume,
        ("", name),
        |volume| {
            let mut finalizers: Vec<String> =
                object::finalizers(volume).map(str::to_owned).collect();
            finalizers.retain(|name| name != VOLUME_PROTECTION);
            volume["metadata"]["finalizers"] = json!(finalizers);
        },
    );
}
