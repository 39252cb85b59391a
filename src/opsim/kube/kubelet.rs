//! Kubelets: containers start once their volumes and images are there, restart with a back-off,
//! end with grace, and are reported while the node reaches the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, time};
use crate::opsim::api::{ApiServer, Delete, Kind, SIDECAR, SIDECAR_INIT};

use super::contents::{arguments, environment, mounted, runs_once};
use super::nodes::SimulatedNode;
use super::place::{OUT_OF_SERVICE, asks_too_much};
use super::pod_certificates;
use super::{Kube, Sidecar, volumes};

/// A process that ran this long is not taken for one that crashes, in milliseconds.
const WELL_MS: u64 = 600_000;
/// Exit code of a process that ends by SIGTERM.
const TERMINATED: i32 = 143;
/// Exit code of one whose node does not know how it ended.
const UNKNOWN: i32 = 255;
/// The longest wait before a process is started again, in seconds.
const BACK_OFF_MAX_S: u64 = 300;

/// A container that runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// UID of its pod.
    pub uid: String,
    /// Where it can be dialled.
    pub address: String,
    /// Where it runs.
    pub node: String,
    /// The first PVC that its pod mounts; empty where there is none.
    pub pvc: String,
    /// That PVC's UID.
    pub pvc_uid: String,
    /// The volume behind it: the disk.
    pub volume: String,
    /// What it runs.
    pub image: String,
    /// How, with references to its environment filled in.
    pub args: Vec<String>,
    /// The Secrets that its pod mounts, in order, by the names of its volumes.
    pub secrets: BTreeMap<String, Vec<String>>,
    /// The Secrets that its environment is made of, as they were when it was started.
    pub environment: BTreeMap<String, String>,
    /// How often it was started, this time included.
    pub starts: u32,
    /// It received SIGTERM, and will have ended at this time, in milliseconds since 1970.
    pub stops_at_ms: Option<u64>,
    /// Whether its node reaches the API server, and other nodes.
    pub connected: bool,
}

/// What the process in a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// Its readiness probe succeeds.
    Ready(bool),
    /// It ended by itself.
    Exited {
        /// With this code.
        code: i32,
        /// And this termination message.
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Runs {
        since_ms: u64,
        ready: bool,
    },
    BacksOff {
        until_ms: u64,
        seconds: u64,
    },
    Stops {
        since_ms: u64,
        until_ms: u64,
        ready: bool,
    },
    /// Without power, or with its disk taken away.
    Off,
    Ended,
}

/// A container that was started at least once.
#[derive(Clone, Debug)]
pub(super) struct Container {
    namespace: String,
    pod: String,
    uid: String,
    node: String,
    address: String,
    pvc: String,
    pvc_uid: String,
    volume: String,
    image: String,
    args: Vec<String>,
    secrets: BTreeMap<String, Vec<String>>,
    environment: BTreeMap<String, String>,
    /// Of a pod that is not started again.
    once: bool,
    /// What its control group has.
    resources: Value,
    starts: u32,
    crashes: u32,
    state: State,
    last_exit: Option<Value>,
}

impl Container {
    fn start(&mut self, now_ms: u64) {
        self.starts += 1;
        self.state = State::Runs {
            since_ms: now_ms,
            ready: false,
        };
    }

    fn exit(&mut self, now_ms: u64, code: i32, message: &str) {
        let since_ms = match self.state {
            State::Runs { since_ms, .. } | State::Stops { since_ms, .. } => since_ms,
            _ => now_ms,
        };
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.last_exit = Some(
            json!({"exitCode": code, "reason": reason, "message": message,
            "startedAt": time(since_ms), "finishedAt": time(now_ms)}),
        );
        if self.once || matches!(self.state, State::Stops { .. }) {
            self.state = State::Ended;
            return;
        }
        if now_ms.saturating_sub(since_ms) >= WELL_MS {
            self.crashes = 0;
        }
        let seconds = match self.crashes {
            0 => 0,
            crashes => (10 << (crashes - 1).min(5)).min(BACK_OFF_MAX_S),
        };
        self.crashes += 1;
        self.state = State::BacksOff {
            until_ms: now_ms + seconds * 1000,
            seconds,
        };
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.node == node
    }

    fn holds_disk(&self) -> bool {
        matches!(self.state, State::Runs { .. } | State::Stops { .. })
    }

    fn is_ready(&self) -> bool {
        matches!(
            self.state,
            State::Runs { ready: true, .. } | State::Stops { ready: true, .. }
        )
    }
}

impl Kube {
    /// The containers that run now, in order of their pods' UIDs, those on nodes that are cut off
    /// included.
    pub fn running(&self) -> Vec<Running> {
        let running = self.containers.values().filter(|one| one.holds_disk());
        running
            .map(|one| Running {
                namespace: one.namespace.clone(),
                pod: one.pod.clone(),
                uid: one.uid.clone(),
                address: one.address.clone(),
                node: one.node.clone(),
                pvc: one.pvc.clone(),
                pvc_uid: one.pvc_uid.clone(),
                volume: one.volume.clone(),
                image: one.image.clone(),
                args: one.args.clone(),
                secrets: one.secrets.clone(),
                environment: one.environment.clone(),
                starts: one.starts,
                stops_at_ms: match one.state {
                    State::Stops { until_ms, .. } => Some(until_ms),
                    _ => None,
                },
                connected: self
                    .machines
                    .get(&one.node)
                    .is_some_and(SimulatedNode::is_heard),
            })
            .collect()
    }

    /// How often this pod's container was started, if it ever was.
    pub fn starts(&self, pod_uid: &str) -> Option<u32> {
        self.containers.get(pod_uid).map(|one| one.starts)
    }

    /// Takes what the process of a pod does. Nothing where it does not run.
    pub fn report(&mut self, pod_uid: &str, process: &Process) {
        let now_ms = self.with(|api| api.now_ms());
        let found = self.containers.get_mut(pod_uid);
        let Some(container) = found.filter(|container| container.holds_disk()) else {
            return;
        };
        match process {
            Process::Ready(is) => match &mut container.state {
                State::Runs { ready, .. } | State::Stops { ready, .. } if *ready != *is => {
                    *ready = *is;
                }
                _ => return,
            },
            Process::Exited { code, message } => container.exit(now_ms, *code, message),
        }
        self.stir();
    }

    /// Whether a round of the kubelets does anything although the API server has nothing new.
    pub(super) fn is_kubelet_due(&self, now_ms: u64) -> bool {
        let due = |one: &Container| match one.state {
            State::BacksOff { until_ms, .. } | State::Stops { until_ms, .. } => until_ms <= now_ms,
            State::Runs { .. } | State::Off | State::Ended => false,
        };
        let requests = pod_certificates::is_due(&self.credentials, now_ms);
        self.stirred || requests || self.containers.values().any(due)
    }

    /// A round of every kubelet. Tells whether a container started, stopped or is about to.
    pub(super) fn advance_kubelets(&mut self, api: &mut ApiServer) -> bool {
        let now_ms = api.now_ms();
        self.stirred = false;
        let before: Vec<State> = self.containers.values().map(|c| c.state.clone()).collect();
        let pods: Vec<Arc<Value>> = api.all(Kind::Pod).cloned().collect();
        self.pass_time(now_ms);
        for pod in &pods {
            let node = object::text(pod, &["spec", "nodeName"]);
            if self.machines.get(node).is_some_and(SimulatedNode::is_heard) {
                self.attend(api, pod);
            }
        }
        let there = |uid: &String| pods.iter().any(|pod| object::uid(pod) == uid);
        self.credentials.retain(|(uid, _), _| there(uid));
        pod_certificates::clean(api);
        // What the API server does not know any more is killed by a node that hears so.
        let heard = |one: &Container| {
            self.machines
                .get(&one.node)
                .is_some_and(SimulatedNode::is_heard)
        };
        let known = |one: &Container| {
            let pod = api.get(Kind::Pod, &one.namespace, &one.pod);
            pod.is_some_and(|pod| object::uid(&pod) == one.uid)
        };
        let stray: Vec<String> = self
            .containers
            .values()
            .filter(|one| heard(one) && !known(one))
            .map(|one| one.uid.clone())
            .collect();
        for uid in stray {
            self.containers.remove(&uid);
        }
        let moved = !before.iter().eq(self.containers.values().map(|c| &c.state));
        if moved {
            self.stir();
        }
        moved
    }

    /// What happens on the nodes without anybody's doing.
    fn pass_time(&mut self, now_ms: u64) {
        let mut fresh = Vec::new();
        for (uid, one) in &mut self.containers {
            let powered = self.machines.get(&one.node).is_some_and(|m| m.up);
            if !powered {
                if one.state != State::Ended {
                    one.state = State::Off;
                }
                continue;
            }
            match one.state {
                State::BacksOff { until_ms, .. } if until_ms <= now_ms => one.start(now_ms),
                State::Stops { until_ms, .. } if until_ms <= now_ms => {
                    let code = if one.once { TERMINATED } else { 0 };
                    one.exit(now_ms, code, "");
                }
                State::Off if one.once => one.exit(now_ms, UNKNOWN, ""),
                State::Off => {
                    fresh.push(uid.clone());
                    one.start(now_ms);
                }
                _ => {}
            }
        }
        for uid in fresh {
            let address = self.address();
            if let Some(one) = self.containers.get_mut(&uid) {
                one.address = address;
            }
        }
    }

    /// Syncs one pod with the API server, and writes its status.
    fn attend(&mut self, api: &mut ApiServer, pod: &Value) {
        let now_ms = api.now_ms();
        let uid = object::uid(pod);
        let deleting = object::is_deleting(pod);
        let certified = deleting || pod_certificates::attend(&mut self.credentials, api, pod);
        if !certified && !self.containers.contains_key(uid) {
            let creating = ("ContainerCreating".to_owned(), String::new());
            return self.write_status(api, pod, Some(creating));
        }
        if !self.containers.contains_key(uid) && !deleting {
            match self.start(api, pod) {
                Ok(container) => drop(self.containers.insert(uid.to_owned(), container)),
                Err(waiting) => return self.write_status(api, pod, Some(waiting)),
            }
        }
        if deleting {
            let deadline = object::time_ms(pod, &["metadata", "deletionTimestamp"]);
            let stop_ms = self.stop_ms;
            let ended = self.containers.get_mut(uid).is_none_or(|one| {
                match one.state {
                    State::Runs { since_ms, ready } => {
                        let own = now_ms.saturating_add(stop_ms);
                        let until_ms = deadline.map_or(own, |deadline| own.min(deadline));
                        one.state = State::Stops {
                            since_ms,
                            until_ms,
                            ready,
                        };
                    }
                    State::BacksOff { .. } | State::Off => one.state = State::Ended,
                    State::Stops { .. } | State::Ended => {}
                }
                one.state == State::Ended
            });
            if ended {
                // How it has ended is known before it is gone.
                if runs_once(pod) {
                    self.write_status(api, pod, None);
                }
                let how = Delete {
                    grace_seconds: Some(0),
                    ..Delete::only(uid)
                };
                let id = (object::namespace(pod), object::name(pod));
                let _ = api.delete("kubelet", Kind::Pod, id, &how);
                if !runs_once(pod) {
                    self.containers.remove(uid);
                }
                return;
            }
        }
        self.resize(pod);
        self.write_status(api, pod, None);
    }

    /// A container gets the resources that its pod asks for by now, if its node has them.
    fn resize(&mut self, pod: &Value) {
        if asks_too_much(&pod["spec"]).is_some()
            || self
                .full_nodes
                .contains(object::text(pod, &["spec", "nodeName"]))
        {
            return;
        }
        if let Some(container) = self.containers.get_mut(object::uid(pod)) {
            container.resources = own(pod)["resources"].clone();
        }
    }

    /// What keeps a container from the resources that its pod asks for: reason and message.
    fn delay(&self, pod: &Value) -> Option<(&'static str, String)> {
        let container = self.containers.get(object::uid(pod))?;
        if container.once || container.resources == own(pod)["resources"] {
            return None;
        }
        let message = |what: &str| format!("Node didn't have enough capacity: {what}");
        Some(match asks_too_much(&pod["spec"]) {
            Some(why) => ("Infeasible", message(&why)),
            None => ("Deferred", message("cpu")),
        })
    }

    /// A pod's container, started; else what it waits for, as reason and message.
    fn start(&mut self, api: &mut ApiServer, pod: &Value) -> Result<Container, (String, String)> {
        let namespace = object::namespace(pod);
        let creating = || ("ContainerCreating".to_owned(), String::new());
        let secrets = mounted(pod);
        for (secret, keys) in secrets.values().flatten() {
            let found = api.get(Kind::Secret, namespace, secret);
            let has = |key: &String| {
                let found = found.as_ref();
                found.is_some_and(|found| object::at(found, &["data", key]).is_some())
            };
            if found.is_none() || !keys.iter().all(has) {
                return Err(creating());
            }
        }
        if self.sidecar(pod) == Some(Sidecar::Hangs) {
            return Err(("PodInitializing".into(), String::new()));
        }
        let mut disk = None;
        for name in volumes::pvc_names(pod) {
            let pvc = api.get(Kind::PersistentVolumeClaim, namespace, name);
            let pvc = pvc
                .filter(|pvc| volumes::is_bound(pvc))
                .ok_or_else(creating)?;
            let volume = object::text(&pvc, &["spec", "volumeName"]).to_owned();
            if api.get(Kind::PersistentVolume, "", &volume).is_none() {
                return Err(creating());
            }
            let node = object::text(pod, &["spec", "nodeName"]);
            if !self.attach(api, &volume, node) {
                return Err(creating());
            }
            disk.get_or_insert((name.to_owned(), object::uid(&pvc).to_owned(), volume));
        }
        let container = own(pod);
        let image = object::text(container, &["image"]);
        if self.bad_images.contains(image) {
            let message = format!("Back-off pulling image \"{image}\"");
            return Err(("ImagePullBackOff".into(), message));
        }
        let environment = environment(api, namespace, container)?;
        let (pvc, pvc_uid, volume) = disk.unwrap_or_default();
        let mut started = Container {
            namespace: namespace.to_owned(),
            pod: object::name(pod).to_owned(),
            uid: object::uid(pod).to_owned(),
            node: object::text(pod, &["spec", "nodeName"]).to_owned(),
            address: self.address(),
            pvc,
            pvc_uid,
            volume,
            image: image.to_owned(),
            args: arguments(pod, container),
            secrets: (secrets.into_iter())
                .map(|(volume, all)| {
                    let names: Vec<String> = match pod_certificates::mount_of(pod, &volume) {
                        Some(signed) => vec![signed],
                        None => all.into_iter().map(|(name, _)| name).collect(),
                    };
                    (volume, names)
                })
                .collect(),
            environment,
            once: runs_once(pod),
            resources: own(pod)["resources"].clone(),
            starts: 0,
            crashes: 0,
            state: State::Off,
            last_exit: None,
        };
        started.start(api.now_ms());
        Ok(started)
    }

    /// How the sidecar of a pod fails, if it has one that does.
    fn sidecar(&self, pod: &Value) -> Option<Sidecar> {
        let fails = self.sidecars.get(object::name(pod)).copied();
        fails.filter(|_| has_sidecar(pod))
    }

    /// The status of the containers that a webhook added: of the init container, and of the one beside the server's.
    fn sidecar_statuses(&self, pod: &Value, started: bool) -> Option<(Value, Value)> {
        if !has_sidecar(pod) {
            return None;
        }
        let fails = self.sidecar(pod);
        let of = |name: &str, ready: bool, state: Value| {
            json!({"name": name, "image": "registry.example/mesh:1", "imageID": "", "ready": ready,
                "started": state["running"].is_object(), "state": state, "restartCount": 0, "lastState": {}})
        };
        // Since when is the same in each report.
        let runs = || json!({"running": {}});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let init = match fails {
            Some(Sidecar::Hangs) if !started => of(SIDECAR_INIT, false, runs()),
            _ => of(
                SIDECAR_INIT,
                true,
                json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
            ),
        };
        let beside = match fails {
            Some(Sidecar::Crashes) => of(SIDECAR, false, waits("CrashLoopBackOff")),
            _ if !started => of(SIDECAR, false, waits("PodInitializing")),
            _ => of(SIDECAR, true, runs()),
        };
        Some((init, beside))
    }

    /// Whether a disk can be used on this node: no other pod uses it, or the one that did has lost it.
    fn attach(&mut self, api: &ApiServer, volume: &str, node: &str) -> bool {
        let lost = |node: &str| {
            let found = api.get(Kind::Node, "", node);
            found.is_none_or(|node| {
                let taints = object::items(&node, &["spec", "taints"]).iter();
                taints
                    .into_iter()
                    .any(|taint| taint["key"] == OUT_OF_SERVICE)
            })
        };
        for other in self.containers.values_mut() {
            if other.volume == volume && other.node != node && other.holds_disk() {
                if !lost(&other.node) {
                    return false;
                }
                other.state = State::Ended;
            }
        }
        true
    }

    fn address(&mut self) -> String {
        self.next_address += 1;
        let at = self.next_address;
        format!("10.{}.{}.{}", 128 + (at >> 16), (at >> 8) & 0xff, at & 0xff)
    }

    /// Writes the pod's status.
    fn write_status(&self, api: &mut ApiServer, pod: &Value, waiting: Option<(String, String)>) {
        let now_ms = api.now_ms();
        let container = self.containers.get(object::uid(pod));
        let ready = container.is_some_and(Container::is_ready);
        let own = own(pod);
        let beside = self.sidecar_statuses(pod, container.is_some());
        let ended = container.filter(|one| one.once && one.state == State::Ended);
        let ended = ended.and_then(|one| one.last_exit.as_ref());
        let state = match (container.map(|one| &one.state), waiting) {
            _ if ended.is_some() => json!({"terminated": ended}),
            (Some(State::Runs { since_ms, .. } | State::Stops { since_ms, .. }), _) => {
                json!({"running": {"startedAt": time(*since_ms)}})
            }
            (Some(State::BacksOff { seconds, .. }), _) => {
                let message = format!(
                    "back-off {seconds}s restarting failed container={} pod={}",
                    object::text(own, &["name"]),
                    object::name(pod)
                );
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            }
            (_, Some((reason, message))) if message.is_empty() => {
                json!({"waiting": {"reason": reason}})
            }
            (_, Some((reason, message))) => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            (Some(State::Off | State::Ended) | None, None) => {
                json!({"waiting": {"reason": "ContainerCreating"}})
            }
        };
        let mut shown = json!({"name": own["name"], "image": own["image"], "imageID": "",
            "ready": ready, "started": container.is_some(), "state": state,
            "restartCount": container.map_or(0, |one| one.starts.saturating_sub(1)),
            "lastState": {}});
        if let Some(one) = container.filter(|one| one.holds_disk() && !one.once) {
            shown["resources"] = one.resources.clone();
        }
        let delay = self.delay(pod);
        let earlier = container.filter(|one| !one.once);
        if let Some(exit) = earlier.and_then(|one| one.last_exit.as_ref()) {
            shown["lastState"] = json!({"terminated": exit});
        }
        let never = container.is_none() && runs_once(pod) && object::is_deleting(pod);
        let phase = match ended {
            Some(exit) if exit["exitCode"] == 0 => "Succeeded",
            Some(_) => "Failed",
            None if never => "Failed",
            None if container.is_some() => "Running",
            None => "Pending",
        };
        let all_ready = ready && beside.as_ref().is_none_or(|(_, one)| one["ready"] == true);
        let id = (object::namespace(pod), object::name(pod));
        api.edit("kubelet", Kind::Pod, id, |pod| {
            for (type_, holds) in [
                ("Initialized", true),
                ("ContainersReady", all_ready),
                ("Ready", all_ready),
            ] {
                let why =
                    (!holds).then_some(("ContainersNotReady", "containers with unready status"));
                object::set_condition(pod, now_ms, type_, holds, why);
            }
            match &delay {
                Some((reason, message)) => {
                    let why = Some((*reason, message.as_str()));
                    object::set_condition(pod, now_ms, "PodResizePending", true, why);
                }
                None => object::remove_condition(pod, "PodResizePending"),
            }
            let status = &mut pod["status"];
            object::default(status, &["startTime"], json!(time(now_ms)));
            status["phase"] = json!(phase);
            status["containerStatuses"] = json!([shown]);
            if let Some((init, sidecar)) = &beside {
                status["initContainerStatuses"] = json!([init]);
                status["containerStatuses"] = json!([sidecar, shown]);
            }
            if let Some(one) = container {
                status["podIP"] = json!(one.address);
                status["podIPs"] = json!([{"ip": one.address}]);
            }
        });
    }
}

/// The container of a simulated pod, whatever a webhook put in front of it.
fn own(pod: &Value) -> &Value {
    let mut containers = object::items(pod, &["spec", "containers"]).iter();
    let own = containers.find(|one| one["name"] != SIDECAR);
    own.unwrap_or(&Value::Null)
}

/// Whether a webhook added a container.
fn has_sidecar(pod: &Value) -> bool {
    let mut containers = object::items(pod, &["spec", "containers"]).iter();
    containers.any(|one| one["name"] == SIDECAR)
}
