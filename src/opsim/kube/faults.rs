//! What users, clouds and bad luck do to nodes, volumes and images.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, put};
use crate::opsim::api::{Delete, Kind, Refusal};

use super::Kube;
use super::nodes::SimulatedNode;
use super::place::{HOST, OUT_OF_SERVICE};

const ZONE: &str = "topology.kubernetes.io/zone";

impl Kube {
    /// Adds a node that is ready at once.
    pub fn add_node(&mut self, name: &str, zone: &str) {
        let now_ms = self.with(|api| {
            let now_ms = api.now_ms();
            let mut node = json!({"metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
                "spec": {}, "status": {}});
            object::set_condition(&mut node, now_ms, "Ready", true, Some(("KubeletReady", "")));
            // A node of this name that is there is that node.
            let _ = api.create("kubelet", Kind::Node, node);
            now_ms
        });
        self.set_machine(name, true, true, now_ms);
    }

    fn set_machine(&mut self, name: &str, up: bool, connected: bool, since_ms: u64) {
        let machine = SimulatedNode {
            up,
            connected,
            since_ms,
        };
        self.stir();
        let was = self.machines.insert(name.to_owned(), machine);
        let heard = up && connected;
        // One that is silent in another way has been silent since before.
        if let (Some(was), Some(machine)) = (was, self.machines.get_mut(name))
            && !was.is_heard()
            && !heard
        {
            machine.since_ms = was.since_ms;
        }
    }

    fn change_machine(&mut self, name: &str, up: bool, connected: bool) {
        let now_ms = self.with(|api| api.now_ms());
        self.set_machine(name, up, connected, now_ms);
    }

    /// Cuts a node's power: its containers end at once, without a report.
    pub fn node_down(&mut self, name: &str) {
        self.change_machine(name, false, true);
    }

    /// Cuts a node off: its containers run on, without a report.
    pub fn node_cut(&mut self, name: &str) {
        self.change_machine(name, true, false);
    }

    /// Gives a node its power and its network back.
    pub fn node_up(&mut self, name: &str) {
        self.change_machine(name, true, true);
    }

    /// Takes a node away for ever: its power, and its object.
    pub fn node_delete(&mut self, name: &str) {
        self.change_machine(name, false, false);
        let none = Delete::default();
        // One that is not there is gone already.
        let _ = self.with(|api| api.delete("cloud", Kind::Node, ("", name), &none));
    }

    /// Keeps new pods from a node, or lets them on it again.
    pub fn cordon(&mut self, name: &str, cordoned: bool) {
        self.edit(Kind::Node, name, |node| {
            if cordoned {
                put(node, &["spec", "unschedulable"], json!(true));
            } else {
                object::take(node, &["spec", "unschedulable"]);
            }
        });
    }

    /// Vouches that nothing runs on a node any more, or takes that back.
    pub fn out_of_service(&mut self, name: &str, vouched: bool) {
        self.edit(Kind::Node, name, |node| {
            let mut taints = object::items(node, &["spec", "taints"]).to_vec();
            taints.retain(|taint| taint["key"] != OUT_OF_SERVICE);
            if vouched {
                taints.push(json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown",
                    "effect": "NoExecute"}));
            }
            put(node, &["spec", "taints"], json!(taints));
        });
    }

    /// Marks a node that is to go, as autoscalers do, or takes that back.
    pub fn mark(&mut self, name: &str, key: &str, goes: bool) {
        self.edit(Kind::Node, name, |node| {
            let mut taints = object::items(node, &["spec", "taints"]).to_vec();
            taints.retain(|taint| taint["key"] != key);
            if goes {
                taints.push(json!({"key": key, "effect": "NoSchedule"}));
            }
            put(node, &["spec", "taints"], json!(taints));
        });
    }

    fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.with(|api| api.edit("admin", kind, ("", name), change));
    }

    /// Cordons a node and asks once for the eviction of each of its pods, as `kubectl drain`
    /// does again and again. Returns its value.
    pub fn drain(&mut self, name: &str) -> Vec<(String, Result<(), Refusal>)> {
        self.cordon(name, true);
        self.with(|api| {
            let here = |pod: &&Arc<Value>| object::text(pod, &["spec", "nodeName"]) == name;
            let pods: Vec<Arc<Value>> = api.all(Kind::Pod).filter(here).cloned().collect();
            let evict = |pod: &Arc<Value>| {
                let id = (object::namespace(pod), object::name(pod));
                let outcome = api.evict("admin", id, &json!({}));
                (object::name(pod).to_owned(), outcome)
            };
            pods.iter().map(evict).collect()
        })
    }

    /// Adds a class of volumes.
    pub fn add_class(&mut self, name: &str, class: Class) {
        let yes = |is: bool| if is { "true" } else { "false" };
        let object = json!({
            "metadata": {"name": name, "annotations":
                {"storageclass.kubernetes.io/is-default-class": yes(class.default)}},
            "provisioner": "disks.example.com", "parameters": {"nodeBound": yes(class.node_bound)},
            "reclaimPolicy": if class.retain { "Retain" } else { "Delete" },
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": class.grows,
        });
        // A class of this name that is there stays.
        let _ = self.with(|api| api.create("admin", Kind::StorageClass, object));
    }

    /// Destroys a volume: its object is gone, and its PVC will be lost.
    pub fn lose_volume(&mut self, name: &str) {
        self.with(|api| {
            let free = |volume: &mut Value| drop(object::take(volume, &["metadata", "finalizers"]));
            api.edit("admin", Kind::PersistentVolume, ("", name), free);
            let none = Delete::default();
            // One that is not there is lost already.
            let _ = api.delete("admin", Kind::PersistentVolume, ("", name), &none);
        });
    }

    /// Lets a node have nothing left for a container that asks for more while it runs, or enough again.
    pub fn set_full(&mut self, node: &str, full: bool) {
        self.stir();
        if full {
            self.full_nodes.insert(node.to_owned());
        } else {
            self.full_nodes.remove(node);
        }
    }

    /// Lets the sidecar of a pod fail, or work again.
    pub fn set_sidecar(&mut self, pod: &str, sidecar: Option<Sidecar>) {
        self.stir();
        match sidecar {
            Some(sidecar) => drop(self.sidecars.insert(pod.to_owned(), sidecar)),
            None => drop(self.sidecars.remove(pod)),
        }
    }

    /// Makes an image impossible to pull, or possible again.
    pub fn set_bad_image(&mut self, image: &str, bad: bool) {
        self.stir();
        if bad {
            self.bad_images.insert(image.to_owned());
        } else {
            self.bad_images.remove(image);
        }
    }
}

/// How a container fails that a webhook added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// The init container does not end, so that no other container starts.
    Hangs,
    /// The container beside the server's crashes again and again.
    Crashes,
}

/// What a class of volumes is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// It is for PVCs that name none.
    pub default: bool,
    /// A volume can be used on the node only that it was made for.
    pub node_bound: bool,
    /// Volumes can grow.
    pub grows: bool,
    /// Volumes stay when their PVCs go.
    pub retain: bool,
}
