//! A toy world for the planner: sets, pods, PVCs, nodes and a cluster that behave as much like
//! the real ones as a plan can tell. It refuses what the real ones must never be asked.

mod act;
mod alarmed;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{
    DisruptionPolicy, EtcdClusterSpec, EtcdClusterStatus, ValidatedCluster, pvc_name,
};
use crate::plan::*;

pub(super) use alarmed::roomy;

pub(super) const CLUSTER_UID: &str = "c1a5-0000";
const SECOND: u64 = 1000;
const SLOT_INPUTS: &str = "slot-1";

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) cluster: ValidatedCluster,
    pub(super) deleting: bool,
    pub(super) status: EtcdClusterStatus,
    pub(super) identity_secret: Option<IdentitySecret>,
    pub(super) objects: BTreeMap<ObjectKey, ObjectFacts>,
    /// What the PDB keeps available; `None`: it is a gate, or there is none.
    pub(super) min_available: Option<u32>,
    pub(super) slots: BTreeMap<u32, SlotFacts>,
    pub(super) tls: tls::Certificates,
    /// Slots are Kubernetes' alone.
    pub(super) has_slots: bool,
    pub(super) sets: BTreeMap<String, SetFacts>,
    pub(super) pods: BTreeMap<String, PodFacts>,
    pub(super) pvcs: BTreeMap<String, PvcFacts>,
    pub(super) disks: BTreeMap<String, Disk>,
    /// Volumes that are made stay on their node.
    pub(super) node_bound: bool,
    pub(super) class_node_bound: Option<bool>,
    pub(super) routed: BTreeSet<String>,
    pub(super) denied: BTreeSet<String>,
    /// Members whose pod begins on no node with another one.
    one_per_node: BTreeSet<String>,
    /// What the servers of sets are told, by member.
    told: BTreeMap<String, ServerFacts>,
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// What servers that were made from such inputs say of their version; others say 0.1.0.
    pub(super) versions: BTreeMap<String, String>,
    /// The oldest version that can read the disks.
    pub(super) readable_since: String,
    /// Inputs whose image cannot be pulled.
    pub(super) bad_inputs: BTreeSet<String>,
    pub(super) inputs: String,
    pub(super) members: Vec<MemberView>,
    pub(super) tombstones: Vec<(u64, String)>,
    /// Removed members that were learners to their end.
    never_voted: BTreeSet<u64>,
    pub(super) configuration_index: u64,
    pub(super) leader: Option<String>,
    pub(super) term: u64,
    pub(super) commit: u64,
    pub(super) alarms: Vec<String>,
    /// Members that are full, or whose version does not say (`None`); all others have space.
    pub(super) spaces: BTreeMap<String, Option<Space>>,
    /// Members whose data differs from the others'.
    pub(super) differing: BTreeSet<String>,
    /// Comparisons that the leader has made, the newest first, with when.
    pub(super) compared: Vec<(u64, Comparison)>,
    /// Members that the operator cannot dial.
    pub(super) unseen: BTreeSet<String>,
    /// Servers whose answers nobody signs, as of version 0.1.0.
    pub(super) unsigned: BTreeSet<String>,
    /// Members whose kubelet does not look whether they are ready any more.
    pub(super) unprobed: BTreeSet<String>,
    /// Members whose set makes no pod for now.
    pub(super) podless: BTreeSet<String>,
    /// Members whose pod takes its whole grace period to end.
    pub(super) lingering: BTreeSet<String>,
    /// Sides of a partition between members; who is not named is on side 0.
    pub(super) side: BTreeMap<String, u8>,
    /// Entries that a learner receives in a second.
    pub(super) catch_up: u64,
    last_contact: BTreeMap<u64, u64>,
    /// Members that retire, and since when.
    retired: BTreeMap<String, u64>,
    formed: u32,
    next: u64,
}

/// What is on a PVC's volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) uuid: String,
    pub(super) member: Option<u64>,
    pub(super) removed: bool,
    pub(super) nonce: Option<String>,
    /// Its pod can only run on this node.
    pub(super) node: Option<String>,
}

impl World {
    pub(super) fn new(replicas: i32) -> World {
        let mut spec = EtcdClusterSpec {
            replicas,
            ..EtcdClusterSpec::default()
        };
        spec.storage.size = "1Gi".into();
        let nodes = ["node-a", "node-b", "node-c", "node-d", "node-e"];
        let node = NodeFacts {
            ready: true,
            ..NodeFacts::default()
        };
        World {
            now: 1_000_000 * SECOND,
            cluster: ValidatedCluster {
                namespace: "default".into(),
                name: "demo".into(),
                uid: CLUSTER_UID.into(),
                generation: 1,
                spec,
                storage_bytes: 1 << 30,
            },
            deleting: false,
            status: EtcdClusterStatus::default(),
            identity_secret: None,
            objects: BTreeMap::new(),
            min_available: None,
            slots: BTreeMap::new(),
            tls: tls::Certificates::default(),
            has_slots: true,
            node_bound: false,
            class_node_bound: None,
            routed: BTreeSet::new(),
            denied: BTreeSet::new(),
            one_per_node: BTreeSet::new(),
            told: BTreeMap::new(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            pvcs: BTreeMap::new(),
            disks: BTreeMap::new(),
            nodes: nodes
                .iter()
                .map(|name| ((*name).to_owned(), node.clone()))
                .collect(),
            versions: BTreeMap::new(),
            readable_since: "0.1.0".into(),
            bad_inputs: BTreeSet::new(),
            inputs: "spec-1".into(),
            members: Vec::new(),
            tombstones: Vec::new(),
            never_voted: BTreeSet::new(),
            configuration_index: 0,
            leader: None,
            term: 0,
            commit: 0,
            alarms: Vec::new(),
            spaces: BTreeMap::new(),
            differing: BTreeSet::new(),
            compared: Vec::new(),
            unseen: BTreeSet::new(),
            podless: BTreeSet::new(),
            lingering: BTreeSet::new(),
            unsigned: BTreeSet::new(),
            unprobed: BTreeSet::new(),
            side: BTreeMap::new(),
            catch_up: 1_000_000,
            last_contact: BTreeMap::new(),
            retired: BTreeMap::new(),
            formed: 0,
            next: 0,
        }
    }

    fn fresh(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    pub(super) fn wanted_objects(&self) -> BTreeMap<ObjectKey, String> {
        let pdb = match self.cluster.spec.disruption.policy {
            DisruptionPolicy::Gate => "objects-1",
            DisruptionPolicy::Budget => "objects-2",
        };
        let own = [
            (ObjectKind::Service, "demo-client", "objects-1"),
            (ObjectKind::PodDisruptionBudget, "demo", pdb),
        ]
        .map(|(kind, name, inputs)| {
            let name = name.into();
            (ObjectKey { kind, name }, inputs.to_owned())
        });
        own.into_iter().chain(self.certificates_wanted()).collect()
    }

    fn pdb_facts(&self) -> Option<PdbFacts> {
        let mut kinds = self.objects.keys().map(|key| key.kind);
        let there = kinds.any(|kind| kind == ObjectKind::PodDisruptionBudget);
        there.then(|| PdbFacts {
            min_available: self.min_available,
            available: u32::try_from(self.available()).ok(),
        })
    }

    /// Pods that count as available where evictions are counted.
    fn available(&self) -> usize {
        let pods = self.pods.values();
        pods.filter(|pod| pod.ready_since_ms.is_some() && pod.released_ms.is_none())
            .count()
    }

    pub(super) fn observe(&self) -> Observed {
        let names: BTreeSet<&String> = self.pods.keys().collect();
        Observed {
            now_ms: self.now,
            entropy: "n0".into(),
            epoch: 1,
            deleting: self.deleting,
            refused: None,
            spec: None,
            cluster: Ok(self.cluster.clone()),
            client_endpoint: "http://demo-client.default.svc:2379".into(),
            status_cluster_id: self.status.cluster_id.clone(),
            hints: crate::operator::status_memory::of_status(&self.status),
            identity_secret: self.identity_secret.clone(),
            wanted_objects: self.wanted_objects(),
            objects: self.objects.clone(),
            pdb: self.pdb_facts(),
            slot_endpoints: self.slot_endpoints(),
            wanted_slot_inputs: SLOT_INPUTS.into(),
            tls: self.tls_facts(),
            slots: self.slots.clone(),
            wanted_inputs: self.inputs.clone(),
            sets: self.sets.clone(),
            pods: self.pods.clone(),
            pvcs: self.pvcs.clone(),
            class_node_bound: self.class_node_bound,
            routed: self.routed.clone(),
            denied: self.denied.clone(),
            nodes: self.nodes.clone(),
            descriptions: names
                .into_iter()
                .filter(|name| !self.unseen.contains(*name))
                .filter_map(|name| Some((name.clone(), self.describe(name)?)))
                .collect(),
        }
    }

    fn slot_endpoints(&self) -> Vec<String> {
        let slots = if self.has_slots {
            self.cluster.target()
        } else {
            0
        };
        let url = |slot| format!("http://demo-client-{slot}.default.svc:2379");
        (0..slots).map(url).collect()
    }

    fn version_of(&self, member: &str) -> String {
        let inputs = self.pods.get(member).and_then(|pod| pod.inputs.as_ref());
        let version = inputs.and_then(|inputs| self.versions.get(inputs));
        version.cloned().unwrap_or_else(|| "0.1.0".into())
    }

    fn disk(&self, member: &str) -> Option<&Disk> {
        self.disks.get(&pvc_name(member, CLUSTER_UID))
    }

    pub(super) fn runs(&self, member: &str) -> bool {
        self.pods.get(member).is_some_and(|pod| {
            let up = pod
                .node
                .as_ref()
                .and_then(|n| self.nodes.get(n))
                .is_some_and(|n| n.ready);
            pod.started_ms.is_some() && up
        })
    }

    /// Whether this member of the list runs on its own disk.
    pub(super) fn lives(&self, view: &MemberView) -> bool {
        self.runs(&view.name)
            && self
                .disk(&view.name)
                .is_some_and(|d| d.member == Some(view.id) && !d.removed)
    }

    fn reach(&self, a: &str, b: &str) -> bool {
        let same = self.side.get(a).unwrap_or(&0) == self.side.get(b).unwrap_or(&0);
        same && self.dials(a, b) && self.dials(b, a)
    }

    fn describe(&self, name: &str) -> Option<Description> {
        if !self.runs(name) {
            return None;
        }
        let disk = self.disk(name)?;
        let view = self.members.iter().find(|m| Some(m.id) == disk.member);
        let leads = self.leader.as_deref() == Some(name);
        let phase = match (disk.member, disk.removed) {
            (None, _) => Phase::Standby,
            (_, true) => Phase::Removed,
            _ => Phase::Member,
        };
        let voter = view.is_some_and(|view| !view.learner);
        let served = self
            .leader
            .as_ref()
            .is_some_and(|leader| self.reach(leader, name));
        let members = if phase == Phase::Member {
            self.views(leads)
        } else {
            Vec::new()
        };
        Some(Description {
            age_ms: 100,
            pod_uid: self.pods.get(name)?.uid.clone(),
            version: self.version_of(name),
            readable_since: Some(self.readable_since.clone()),
            disk_uuid: disk.uuid.clone(),
            disk_empty: disk.member.is_none(),
            unsigned: self.unsigned.contains(name),
            phase,
            nonce: disk.nonce.clone(),
            cluster_uid: Some(CLUSTER_UID.into()),
            incarnation: u64::from(disk.member.is_some()),
            cluster_id: if disk.member.is_some() { 0xc0ffee } else { 0 },
            member_id: disk.member.unwrap_or(0),
            leads,
            term: self.term,
            leader_id: 0,
            commit: self.commit,
            applied: self.commit,
            ready: voter && served && !self.retired.contains_key(name),
            retiring_ms: self.retired.get(name).map(|at| (self.now - at).max(1)),
            security: self.security(name),
            alarms: self.alarms.clone(),
            space: self.space(name),
            comparisons: if leads {
                self.comparisons()
            } else {
                Vec::new()
            },
            configuration_index: self.configuration_index,
            members,
            tombstones: if leads {
                self.tombstones.clone()
            } else {
                Vec::new()
            },
            never_voted: self.never_voted.clone(),
        })
    }

    fn views(&self, leads: bool) -> Vec<MemberView> {
        let mut views = self.members.clone();
        for view in &mut views {
            if !leads {
                view.last_contact_ms = None;
                continue;
            }
            let lives = self.lives(view);
            let contact = self.last_contact.get(&view.id);
            view.last_contact_ms = contact.map(|at| self.now - at);
            view.promotable = view.learner
                && lives
                && view.match_index >= self.commit
                && view.last_contact_ms.is_some_and(|age| age < 1000);
            if !view.promotable {
                view.not_promotable = "its log is behind".into();
            }
        }
        views
    }

    /// A second passes.
    pub(super) fn tick(&mut self) {
        self.now += SECOND;
        self.kubernetes();
        self.carry_certificates();
        self.raft();
        self.compare();
        self.probe();
    }

    /// The kubelets ask each server whether it is ready.
    fn probe(&mut self) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        // As in etcd, under CORRUPT nobody is.
        let corrupt = self.alarms.iter().any(|alarm| alarm.starts_with("CORRUPT"));
        for name in names {
            if self.unprobed.contains(&name) {
                continue;
            }
            let ready = self.describe(&name).is_some_and(|d| d.ready) && !corrupt;
            let now = self.now;
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.ready_since_ms = ready.then(|| pod.ready_since_ms.unwrap_or(now));
            }
        }
    }

    fn kubernetes(&mut self) {
        let gone: Vec<String> = self
            .pods
            .keys()
            .filter(|member| self.sets.get(*member).is_none_or(|set| set.hibernated))
            .cloned()
            .collect();
        for member in gone {
            self.pods.remove(&member);
        }
        let pods = self.pods.clone();
        self.pvcs.retain(|name, pvc| {
            let used = pvc
                .member
                .as_ref()
                .and_then(|member| pods.get(member))
                .is_some_and(|pod| pod.node.is_some());
            let goes = pvc.terminating && !used;
            if goes {
                self.disks.remove(name);
            }
            !goes
        });
        let awake = self.sets.iter().filter(|(_, set)| !set.hibernated);
        let members: Vec<String> = awake.map(|(name, _)| name.clone()).collect();
        for member in members {
            if !self.pods.contains_key(&member) {
                if self.podless.contains(&member) {
                    continue;
                }
                let uid = self.fresh("pod");
                let pod = PodFacts {
                    uid,
                    phase: PodPhase::Pending,
                    ready_since_ms: None,
                    terminating: false,
                    node: None,
                    ends_ms: None,
                    released_ms: None,
                    inputs: self.sets[&member].inputs.clone(),
                    peer_tls: self.tls.of_sets.contains_key(&member),
                    server: self.told.get(&member).copied().unwrap_or_default(),
                    created_ms: self.now,
                    started_ms: None,
                    waiting: None,
                    last_exit: None,
                };
                self.pods.insert(member.clone(), pod);
            }
            self.kubelet(&member);
        }
    }

    fn kubelet(&mut self, member: &str) {
        let pvc = pvc_name(member, CLUSTER_UID);
        let bound = self.disks.get(&pvc).and_then(|disk| disk.node.clone());
        let usable = self.pvcs.get(&pvc).is_some_and(|pvc| !pvc.terminating);
        let certified = self.has_certificates(member);
        let busy: BTreeSet<String> = self.pods.values().filter_map(|p| p.node.clone()).collect();
        let nodes = &self.nodes;
        let fits = |name: &&String| {
            let node = &nodes[*name];
            node.ready && !node.closed && bound.as_ref().is_none_or(|b| b == *name)
        };
        let free = nodes.keys().filter(fits).find(|name| !busy.contains(*name));
        // From both sides: nobody joins the node of a member that is kept apart.
        let kept_apart: BTreeSet<&String> = (self.pods.iter())
            .filter(|(name, _)| self.one_per_node.contains(*name))
            .filter_map(|(_, pod)| pod.node.as_ref())
            .collect();
        let alone = self.one_per_node.contains(member);
        let open = |name: &&String| fits(name) && !alone && !kept_apart.contains(*name);
        let free = free.or_else(|| nodes.keys().find(open)).cloned();
        let bad = self.pods[member]
            .inputs
            .as_ref()
            .is_some_and(|i| self.bad_inputs.contains(i));
        let Some(pod) = self.pods.get_mut(member) else {
            return;
        };
        if pod.node.is_none() {
            if !usable {
                pod.waiting = Some(format!("Unschedulable: PVC {pvc} not found"));
                return;
            }
            let Some(node) = free else {
                pod.waiting = Some("Unschedulable: no node fits".into());
                return;
            };
            pod.node = Some(node);
            pod.waiting = None;
        }
        let up = pod
            .node
            .as_ref()
            .and_then(|n| self.nodes.get(n))
            .is_some_and(|n| n.ready);
        if pod.started_ms.is_none() && up {
            if bad {
                pod.waiting = Some("ImagePullBackOff".into());
                return;
            }
            if !certified {
                return; // its Secrets are not there yet
            }
            pod.waiting = None;
            pod.phase = PodPhase::Running;
            pod.started_ms = Some(self.now);
            self.retired.remove(member);
            if let Some(pvc) = self.pvcs.get_mut(&pvc) {
                pvc.bound = true;
                pvc.node_bound = Some(self.node_bound);
                let node = pod.node.clone().filter(|_| self.node_bound);
                pvc.nodes = node.map(|node| [node].into());
            }
            self.next += 1;
            let uuid = format!("disk{}", self.next);
            let node = pod.node.clone().filter(|_| self.node_bound);
            self.disks.entry(pvc).or_insert(Disk {
                uuid,
                node,
                ..Disk::default()
            });
        }
    }

    fn raft(&mut self) {
        let voters: Vec<MemberView> = self
            .members
            .iter()
            .filter(|m| !m.learner)
            .cloned()
            .collect();
        let quorum = voters.len() / 2 + 1;
        let supported = |candidate: &str| {
            let votes = voters
                .iter()
                .filter(|m| self.lives(m) && self.reach(candidate, &m.name))
                .count();
            votes >= quorum && voters.iter().any(|m| m.name == candidate && self.lives(m))
        };
        let keeps = self.leader.as_deref().is_some_and(supported);
        if !keeps {
            let best = voters
                .iter()
                .filter(|m| supported(&m.name))
                .max_by_key(|m| m.match_index);
            let best = best.map(|m| m.name.clone());
            if best.is_some() {
                self.term += 1;
                self.last_contact.clear();
            }
            self.leader = best;
        }
        let Some(leader) = self.leader.clone() else {
            return;
        };
        self.commit += 10;
        // A standby that was added joins by itself.
        for view in &self.members {
            let pvc = pvc_name(&view.name, CLUSTER_UID);
            let running = self.runs(&view.name);
            if let Some(disk) = self.disks.get_mut(&pvc)
                && disk.member.is_none()
                && disk.uuid == view.disk_uuid
                && running
            {
                disk.member = Some(view.id);
                if self.differing.contains(&leader) {
                    self.differing.insert(view.name.clone());
                }
            }
        }
        for i in 0..self.members.len() {
            let view = self.members[i].clone();
            if !self.lives(&view) || !self.reach(&leader, &view.name) {
                continue;
            }
            self.last_contact.insert(view.id, self.now);
            let most = if view.learner {
                view.match_index + self.catch_up
            } else {
                self.commit
            };
            self.members[i].match_index = most.min(self.commit);
        }
    }

    /// One pass: observe, plan, execute the first step, report; then a second passes.
    pub(super) fn reconcile(&mut self) -> Plan {
        let plan = plan(&self.observe());
        let refused = plan.conditions.iter().any(|c| c.reason == "PlanRefused");
        assert!(!refused, "the rules want what the lints refuse\n{plan}");
        self.same_a_moment_later(&plan);
        if let Some(step) = plan.first() {
            self.execute(&step.action.clone());
        }
        self.status = plan.status.clone();
        self.tick();
        plan
    }

    /// An operator acts only on a step that it planned twice, and time goes on in between: a step that
    /// names the time of its plan would never be done. (One did, and a drain waited for ever; only the
    /// real cluster showed it.)
    fn same_a_moment_later(&self, plan: &Plan) {
        let mut later = self.observe();
        later.now_ms += 1;
        let again = crate::plan::plan(&later);
        if let (Some(step), Some(again)) = (plan.first(), again.first())
            && step.action.to_string() == again.action.to_string()
        {
            assert_eq!(step.action, again.action, "it changes with the time");
        }
    }

    /// Passes until there has been nothing to do for some time, at most `most` of them.
    pub(super) fn settle(&mut self, most: u32) -> Vec<Plan> {
        let mut plans = Vec::new();
        let mut quiet = 0;
        for _ in 0..most {
            let plan = self.reconcile();
            let rests = plan.steps.is_empty() && plan.progress.is_none();
            quiet = if rests { quiet + 1 } else { 0 };
            plans.push(plan);
            if quiet >= 3 {
                return plans;
            }
        }
        plans
    }

    /// Keeps new pods from a node and says that it goes away, or takes that back.
    pub(super) fn cordon(&mut self, node: &str, cordoned: bool) {
        let facts = self.nodes.get_mut(node).expect("a node");
        facts.going = cordoned.then(|| "is cordoned".into());
        facts.closed = cordoned;
    }

    pub(super) fn node_of(&self, member: &str) -> String {
        let pod = self.pods.get(member);
        pod.and_then(|pod| pod.node.clone()).unwrap_or_default()
    }

    /// What `kubectl drain` does again and again: an eviction by the pod's name. Returns whether
    /// it went through.
    pub(super) fn evict(&mut self, member: &str) -> bool {
        let (available, min_available) = (self.available(), self.min_available);
        let goes = |pod: &PodFacts| {
            let free = pod.released_ms.is_some() || pod.phase == PodPhase::Pending;
            let others = available - usize::from(pod.ready_since_ms.is_some());
            free || min_available.is_some_and(|min_available| others >= min_available as usize)
        };
        let goes = self.pods.get(member).is_some_and(goes);
        if goes {
            let (alive, voters) = self.reachable_voters();
            let leader = self.leader.clone().unwrap_or_default();
            let mut seats = self.members.iter().filter(|m| !m.learner);
            let serves =
                seats.any(|m| m.name == member && self.lives(m) && self.reach(&leader, member));
            self.pods.remove(member);
            let left = alive - usize::from(serves);
            assert!(
                left == alive || left > voters / 2,
                "I3: the eviction of {member} leaves {left} of {voters} voters"
            );
        }
        goes
    }

    pub(super) fn voters(&self) -> usize {
        self.members.iter().filter(|m| !m.learner).count()
    }

    /// Pod and volume are lost; the set makes a new pod, which finds no PVC.
    pub(super) fn lose_pvc(&mut self, member: &str) {
        let pvc = pvc_name(member, CLUSTER_UID);
        self.pvcs.remove(&pvc);
        self.disks.remove(&pvc);
        self.pods.remove(member);
    }

    /// The volume comes back empty under the same PVC.
    pub(super) fn lose_disk(&mut self, member: &str) {
        self.disks.remove(&pvc_name(member, CLUSTER_UID));
        self.pods.remove(member);
    }
}
