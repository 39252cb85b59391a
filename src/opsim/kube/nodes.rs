//! What is done about nodes: those that are silent are marked, and pods that do not tolerate it are
//! asked to go; pods whose node is gone, or vouched to be dead, are taken away.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, put};
use crate::opsim::api::{ApiServer, Delete, Kind};

use super::contents::runs_once;
use super::jobs::DISRUPTED;
use super::place::{self, NOT_READY, OUT_OF_SERVICE, UNREACHABLE};

const ACTOR: &str = "node-controller";
/// A node is silent for this long before anybody notices, in milliseconds.
const NOTICED_MS: u64 = 40_000;
/// Why a node is ready.
const READY: (&str, &str) = ("KubeletReady", "kubelet is posting ready status");

/// A machine, whatever the API server knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimulatedNode {
    /// It has power, and its containers run.
    pub(super) up: bool,
    /// It reaches the API server and other machines.
    pub(super) connected: bool,
    /// Since when it has been heard or silent, in milliseconds since 1970.
    pub(super) since_ms: u64,
}

impl SimulatedNode {
    pub(super) fn is_heard(&self) -> bool {
        self.up && self.connected
    }
}

pub(super) fn advance(
    api: &mut ApiServer,
    machines: &BTreeMap<String, SimulatedNode>,
    gone: &mut BTreeMap<String, u64>,
) {
    let nodes: Vec<Arc<Value>> = api.all(Kind::Node).cloned().collect();
    for node in &nodes {
        let name = object::name(node);
        gone.remove(name);
        let now_ms = api.now_ms();
        match machines.get(name) {
            Some(machine) if machine.is_heard() => well(api, name),
            Some(machine) if machine.since_ms + NOTICED_MS > now_ms => {}
            _ => silent(api, name),
        }
    }
    let pods: Vec<Arc<Value>> = api.all(Kind::Pod).cloned().collect();
    for pod in &pods {
        take(api, pod, gone);
    }
}

fn well(api: &mut ApiServer, name: &str) {
    let now_ms = api.now_ms();
    let marked = |node: &Value| {
        let taints = object::items(node, &["spec", "taints"]).iter();
        let ready = object::condition(node, "Ready");
        ready.is_none_or(|ready| ready["status"] != "True" || ready["message"] != READY.1)
            || (taints.into_iter()).any(|t| t["key"] == NOT_READY || t["key"] == UNREACHABLE)
    };
    if api
        .get(Kind::Node, "", name)
        .is_some_and(|node| !marked(&node))
    {
        return;
    }
    api.edit(ACTOR, Kind::Node, ("", name), |node| {
        object::set_condition(node, now_ms, "Ready", true, Some(READY));
        let mut taints = object::items(node, &["spec", "taints"]).to_vec();
        taints.retain(|taint| taint["key"] != NOT_READY && taint["key"] != UNREACHABLE);
        if taints.is_empty() {
            object::take(node, &["spec", "taints"]);
        } else {
            put(node, &["spec", "taints"], json!(taints));
        }
    });
}

fn silent(api: &mut ApiServer, name: &str) {
    let now_ms = api.now_ms();
    let marked = |node: &Value| {
        let mut taints = object::items(node, &["spec", "taints"]).iter();
        let unknown = object::condition(node, "Ready").is_some_and(|c| c["status"] == "Unknown");
        unknown && taints.any(|taint| taint["key"] == UNREACHABLE)
    };
    let known = api
        .get(Kind::Node, "", name)
        .is_some_and(|node| marked(&node));
    if !known {
        mark(api, name);
    }
    let here = |pod: &&Arc<Value>| object::text(pod, &["spec", "nodeName"]) == name;
    let pods: Vec<Arc<Value>> = api.all(Kind::Pod).filter(here).cloned().collect();
    for pod in pods.iter().filter(|pod| object::holds(pod, "Ready")) {
        let id = (object::namespace(pod), object::name(pod));
        api.edit(ACTOR, Kind::Pod, id, |pod| {
            object::set_condition(pod, now_ms, "Ready", false, Some(("NodeNotReady", "")));
        });
    }
}

fn mark(api: &mut ApiServer, name: &str) {
    let now_ms = api.now_ms();
    api.edit(ACTOR, Kind::Node, ("", name), |node| {
        let why = Some(("NodeStatusUnknown", "Kubelet stopped posting node status."));
        object::set_condition_text(node, now_ms, "Ready", "Unknown", why);
        let mut taints = object::items(node, &["spec", "taints"]).to_vec();
        if taints.iter().any(|taint| taint["key"] == UNREACHABLE) {
            return;
        }
        taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
        let since = object::time(now_ms);
        taints.push(json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": since}));
        put(node, &["spec", "taints"], json!(taints));
    });
}

/// Takes a pod from a node that is not for it any more.
fn take(api: &mut ApiServer, pod: &Value, gone: &mut BTreeMap<String, u64>) {
    let now_ms = api.now_ms();
    let name = object::text(pod, &["spec", "nodeName"]);
    if name.is_empty() {
        if object::is_deleting(pod) {
            force(api, pod);
        }
        return;
    }
    let Some(node) = api.get(Kind::Node, "", name) else {
        let since_ms = *gone.entry(name.to_owned()).or_insert(now_ms);
        if since_ms + NOTICED_MS <= now_ms {
            force(api, pod);
        }
        return;
    };
    let taints = object::items(&node, &["spec", "taints"]);
    let vouched = taints.iter().any(|taint| taint["key"] == OUT_OF_SERVICE);
    if vouched && object::is_deleting(pod) && !object::holds(&node, "Ready") {
        return force(api, pod);
    }
    if !object::is_deleting(pod) && must_go(pod, taints, now_ms) {
        let id = (object::namespace(pod), object::name(pod));
        let how = Delete::only(object::uid(pod));
        if runs_once(pod) {
            let why = Some((
                "DeletionByTaintManager",
                "Taint manager: deleting due to NoExecute taint",
            ));
            api.edit("taint-eviction-controller", Kind::Pod, id, |pod| {
                object::set_condition(pod, now_ms, DISRUPTED, true, why);
            });
        }
        let _ = api.delete("taint-eviction-controller", Kind::Pod, id, &how);
    }
}

/// Whether a taint drives the pod away now.
fn must_go(pod: &Value, taints: &[Value], now_ms: u64) -> bool {
    let tolerations = object::items(pod, &["spec", "tolerations"]);
    let driving = taints.iter().filter(|taint| taint["effect"] == "NoExecute");
    driving.into_iter().any(|taint| {
        let mut covering = tolerations
            .iter()
            .filter(|toleration| place::tolerates(toleration, taint))
            .peekable();
        if covering.peek().is_none() {
            return true;
        }
        let since_ms = object::time_ms(taint, &["timeAdded"]).unwrap_or(now_ms);
        let limits = covering.filter_map(|t| object::number(t, &["tolerationSeconds"]));
        limits.min().is_some_and(|seconds| {
            let limit_ms = u64::try_from(seconds).unwrap_or(0) * 1000;
            since_ms + limit_ms <= now_ms
        })
    })
}

fn force(api: &mut ApiServer, pod: &Value) {
    let id = (object::namespace(pod), object::name(pod));
    let how = Delete {
        grace_seconds: Some(0),
        ..Delete::only(object::uid(pod))
    };
    let _ = api.delete("pod-garbage-collector", Kind::Pod, id, &how);
}
