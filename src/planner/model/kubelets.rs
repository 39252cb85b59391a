//! Controllers, scheduler and kubelets: StatefulSets create their pods, pods without a StatefulSet are deleted, deleted
//! PVCs are gone once no pod uses them, and pods start on a node that accepts them. A created pod starts at once unless
//! something prevents it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Disk, Model};
use crate::crd::TlsPort;
use crate::plan::{Observed, PodFacts, PodPhase, PortSecurity};

/// A server's memory: lost with the pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// It accepts connections without TLS on its peer port as well.
    pub(super) plain_peers: bool,
    /// What it has loaded, by port.
    pub(super) loaded: BTreeMap<TlsPort, PortSecurity>,
    /// Since when it retires.
    pub(super) retires_ms: Option<u64>,
}

impl Model {
    pub(super) fn control(&mut self) {
        let sets = &self.api.sets;
        let wanted = |member: &String| sets.get(member).is_some_and(|set| !set.hibernated);
        let nodes = &self.api.nodes;
        self.api.pods.retain(|member, pod| {
            if wanted(member) {
                return true;
            }
            // Only its kubelet says that it has ended, or whoever took its node out of service.
            let node = pod.node.as_ref().and_then(|node| nodes.get(node));
            pod.terminating = true;
            node.is_some_and(|node| !node.ready && !node.out_of_service)
        });
        self.end_pods();
        self.let_pvcs_go();
        self.grow_volumes();
        self.resize_pods();
        let awake = self.api.sets.iter().filter(|(_, set)| !set.hibernated);
        let members: Vec<String> = awake.map(|(name, _)| name.clone()).collect();
        for member in members.clone() {
            let found = self.api.pods.contains_key(&member);
            if !found && self.faults.podless.contains(&member) {
                continue;
            }
            if !found {
                self.make_pod(&member);
            }
        }
        self.request_certificates();
        for member in members {
            self.start(&member);
        }
        let uids: BTreeSet<&String> = self.api.pods.values().map(|pod| &pod.uid).collect();
        self.servers.retain(|uid, _| uids.contains(uid));
    }

    /// A pod that is being deleted ends, unless it uses its grace period or its kubelet does not work.
    fn end_pods(&mut self) {
        let ends = |(member, pod): &(&String, &PodFacts)| {
            let lingers = self.faults.lingering.contains(*member);
            pod.terminating && !lingers && self.is_up(pod.node.as_ref())
        };
        let pods = self.api.pods.iter();
        let ended: Vec<String> = pods.filter(ends).map(|(name, _)| name.clone()).collect();
        for member in ended {
            self.api.pods.remove(&member);
        }
    }

    fn let_pvcs_go(&mut self) {
        let pods = &self.api.pods;
        let placed = |pod: &PodFacts| pod.node.is_some() || pod.started_ms.is_some();
        let (pvcs, disks) = (&mut self.api.pvcs, &mut self.disks);
        pvcs.retain(|name, pvc| {
            let user = pvc.member.as_ref().and_then(|member| pods.get(member));
            let stays = !pvc.terminating || user.is_some_and(placed);
            if !stays {
                disks.remove(name);
            }
            stays
        });
    }

    /// Volumes become as large as requested.
    fn grow_volumes(&mut self) {
        for pvc in self.api.pvcs.values_mut().filter(|pvc| pvc.bound) {
            if pvc.storage.resize_problem.is_none() {
                pvc.storage.capacity_bytes = pvc.requested_bytes;
            }
        }
    }

    fn make_pod(&mut self, member: &str) {
        let Some(set) = self.api.sets.get(member).cloned() else {
            return;
        };
        let template = self.templates.get(member).copied().unwrap_or_default();
        let uid = self.fresh("pod");
        let server = Server {
            plain_peers: set.plain_peers,
            ..Server::default()
        };
        self.servers.insert(uid.clone(), server);
        let pod = PodFacts {
            uid,
            phase: PodPhase::Pending,
            ready_since_ms: None,
            terminating: false,
            node: None,
            ends_ms: None,
            released_ms: None,
            inputs: set.inputs,
            resize: None,
            peer_tls: template.peer_tls,
            server: template.server,
            created_ms: self.api.now_ms,
            started_ms: None,
            waiting: None,
            last_exit: None,
            beside: None,
            beside_ms: None,
        };
        self.api.pods.insert(member.to_owned(), pod);
    }

    /// The scheduler and the kubelet do their part for a pod that does not run yet.
    fn start(&mut self, member: &str) {
        let waits = |pod: &&PodFacts| pod.started_ms.is_none() && !pod.terminating;
        let Some(pod) = self.api.pods.get(member).filter(waits) else {
            return;
        };
        if self.faults.stuck.contains(&pod.uid) {
            return;
        }
        let next = self.next_of(member, pod);
        let starts = matches!(next, Next::Starts(_));
        let Some(pod) = self.api.pods.get_mut(member) else {
            return;
        };
        match next {
            Next::Waits(why) => pod.waiting = Some(why),
            Next::Placed(node, why) => (pod.node, pod.waiting) = (node, why),
            Next::Starts(node) => {
                (pod.node, pod.waiting) = (node, None);
                pod.phase = PodPhase::Running;
                pod.started_ms = Some(self.api.now_ms);
            }
        }
        if starts {
            self.mount(member);
        }
    }

    fn next_of(&self, member: &str, pod: &PodFacts) -> Next {
        let node = match &pod.node {
            Some(node) => Some(node.clone()),
            None => match self.place(member) {
                Ok(node) => node,
                Err(why) => return Next::Waits(why),
            },
        };
        let bad = |inputs: &String| self.faults.bad_inputs.contains(inputs);
        if !self.is_up(node.as_ref()) {
            return Next::Placed(node, pod.waiting.clone());
        }
        if pod.inputs.as_ref().is_some_and(bad) {
            return Next::Placed(node, Some("ImagePullBackOff".into()));
        }
        if self
            .faults
            .beside
            .get(member)
            .is_some_and(|it| it.goes_first)
        {
            return Next::Placed(node, None);
        }
        if pod.peer_tls && !self.has_certificates(member) {
            return Next::Placed(node, None); // its Secrets are not there yet
        }
        Next::Starts(node)
    }

    /// The emptiest node that accepts the member's pod; `None` if nodes are not observed.
    fn place(&self, member: &str) -> Result<Option<String>, String> {
        let name = self.pvc_of(member);
        let Some(pvc) = self.api.pvcs.get(&name).filter(|pvc| !pvc.terminating) else {
            return Err(format!("Unschedulable: PVC {name} not found"));
        };
        // Where classes are seen, one that does not exist makes no volume.
        let class = pvc.storage.class.as_ref();
        let exists = class.is_none_or(|class| self.api.classes.contains_key(class));
        if !pvc.bound && !exists && !self.api.classes.is_empty() {
            let why = "Unschedulable: pod has unbound immediate PersistentVolumeClaims";
            return Err(why.into());
        }
        if self.api.nodes.is_empty() {
            return Ok(None);
        }
        let alone = |name: &str| self.templates.get(name).is_some_and(|one| one.one_per_node);
        let on = |node: &str| {
            let pods = self.api.pods.iter();
            let on: Vec<&String> = pods
                .filter(|(_, pod)| pod.node.as_deref() == Some(node))
                .map(|(name, _)| name)
                .collect();
            on
        };
        let takes = |name: &&String| {
            let node = &self.api.nodes[*name];
            let reaches = pvc.nodes.as_ref().is_none_or(|all| all.contains(*name));
            // From both sides: no pod joins the node of a member that is kept apart.
            let others = on(name);
            let apart = alone(member) || others.iter().any(|other| alone(other));
            node.ready
                && !node.closed
                && !node.out_of_service
                && reaches
                && (others.is_empty() || !apart)
        };
        let open = self.api.nodes.keys().filter(takes);
        let emptiest = open.min_by_key(|name| on(name).len());
        match emptiest {
            Some(node) => Ok(Some(node.clone())),
            None => Err("Unschedulable: no node fits".into()),
        }
    }

    /// Whether a node's kubelet works. Where nodes are not seen, all do.
    pub(super) fn is_up(&self, node: Option<&String>) -> bool {
        is_up(&self.api, node)
    }

    /// A server that starts finds its volume, or a new one.
    fn mount(&mut self, member: &str) {
        let name = self.pvc_of(member);
        let uuid = self.fresh("disk");
        let node = self.api.pods.get(member).and_then(|pod| pod.node.clone());
        let bound_here = self.pace.node_bound;
        if let Some(pvc) = self.api.pvcs.get_mut(&name).filter(|pvc| !pvc.bound) {
            pvc.bound = true;
            pvc.storage.capacity_bytes = pvc.requested_bytes;
            pvc.node_bound = Some(bound_here);
            pvc.nodes = node.filter(|_| bound_here).map(|node| [node].into());
        }
        let disk = Disk {
            uuid,
            ..Disk::default()
        };
        self.disks.entry(name).or_insert(disk);
    }

    /// The kubelets probe each server's readiness.
    pub(super) fn probe(&mut self) {
        // As in etcd, under CORRUPT none is.
        let corrupt = self.health.is_corrupt();
        let names: Vec<String> = self.api.pods.keys().cloned().collect();
        for name in names {
            if self.faults.unprobed.contains(&name) {
                continue;
            }
            let beside = self.faults.beside.get(&name).cloned();
            let ready = self.serves(&name) && !corrupt && beside.is_none();
            let now_ms = self.api.now_ms;
            if let Some(pod) = self.api.pods.get_mut(&name) {
                pod.ready_since_ms = ready.then(|| pod.ready_since_ms.unwrap_or(now_ms));
                let ends = pod.beside.is_some() && beside.is_none();
                pod.beside_ms = if ends { Some(now_ms) } else { pod.beside_ms };
                pod.beside = beside;
            }
        }
    }
}

/// As [`Model::is_up`], by what was observed.
pub(super) fn is_up(o: &Observed, node: Option<&String>) -> bool {
    node.map_or(o.nodes.is_empty(), |node| o.node_reports(node))
}

/// What comes next for a pod that does not run.
enum Next {
    /// For a node, or for a PVC; why.
    Waits(String),
    /// It has its node, and its container does not start yet; why.
    Placed(Option<String>, Option<String>),
    /// It starts on its node.
    Starts(Option<String>),
}
