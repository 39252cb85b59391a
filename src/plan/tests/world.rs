//! A toy world for the planner: sets, pods, claims, nodes and a cluster that behave as much like
//! the real ones as a plan can tell. It refuses what the real ones must never be asked.

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{
    EtcdClusterSpec, EtcdClusterStatus, ValidatedCluster, bytes_of, claim_name, latch_name,
};
use crate::plan::*;

pub(super) const CLUSTER_UID: &str = "c1a5-0000";
const SECOND: u64 = 1000;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) cluster: ValidatedCluster,
    pub(super) deleting: bool,
    pub(super) status: EtcdClusterStatus,
    pub(super) latch: Option<Latch>,
    pub(super) objects: BTreeMap<ObjectKey, ObjectFacts>,
    pub(super) sets: BTreeMap<String, SetFacts>,
    pub(super) pods: BTreeMap<String, PodFacts>,
    pub(super) claims: BTreeMap<String, ClaimFacts>,
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// Inputs whose image cannot be pulled.
    pub(super) bad_inputs: BTreeSet<String>,
    pub(super) inputs: String,
    pub(super) members: Vec<MemberView>,
    pub(super) tombstones: Vec<(u64, String)>,
    pub(super) configuration_index: u64,
    pub(super) leader: Option<String>,
    pub(super) term: u64,
    pub(super) commit: u64,
    pub(super) alarms: Vec<String>,
    /// Members that the operator cannot dial.
    pub(super) unseen: BTreeSet<String>,
    /// Sides of a partition between members; who is not named is on side 0.
    pub(super) side: BTreeMap<String, u8>,
    /// Entries that a learner receives in a second.
    pub(super) catch_up: u64,
    last_contact: BTreeMap<u64, u64>,
    retired: BTreeSet<String>,
    formed: u32,
    next: u64,
}

/// What is on a claim's volume.
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
            latch: None,
            objects: BTreeMap::new(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            disks: BTreeMap::new(),
            nodes: nodes
                .iter()
                .map(|name| ((*name).to_owned(), node.clone()))
                .collect(),
            bad_inputs: BTreeSet::new(),
            inputs: "spec-1".into(),
            members: Vec::new(),
            tombstones: Vec::new(),
            configuration_index: 0,
            leader: None,
            term: 0,
            commit: 0,
            alarms: Vec::new(),
            unseen: BTreeSet::new(),
            side: BTreeMap::new(),
            catch_up: 1_000_000,
            last_contact: BTreeMap::new(),
            retired: BTreeSet::new(),
            formed: 0,
            next: 0,
        }
    }

    fn fresh(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    pub(super) fn wanted_objects(&self) -> BTreeMap<ObjectKey, String> {
        [
            (ObjectKind::Service, "demo-client"),
            (ObjectKind::PodDisruptionBudget, "demo"),
        ]
        .map(|(kind, name)| {
            (
                ObjectKey {
                    kind,
                    name: name.into(),
                },
                "objects-1".to_owned(),
            )
        })
        .into()
    }

    pub(super) fn observe(&self) -> Observed {
        let names: BTreeSet<&String> = self.pods.keys().collect();
        Observed {
            now_ms: self.now,
            entropy: "n0".into(),
            epoch: 1,
            deleting: self.deleting,
            cluster: Ok(self.cluster.clone()),
            client_endpoint: "http://demo-client.default.svc:2379".into(),
            status_cluster_id: self.status.cluster_id.clone(),
            hints: crate::operator::hints::of_status(&self.status),
            latch: self.latch.clone(),
            wanted_objects: self.wanted_objects(),
            objects: self.objects.clone(),
            wanted_inputs: self.inputs.clone(),
            sets: self.sets.clone(),
            pods: self.pods.clone(),
            claims: self.claims.clone(),
            nodes: self.nodes.clone(),
            descriptions: names
                .into_iter()
                .filter(|name| !self.unseen.contains(*name))
                .filter_map(|name| Some((name.clone(), self.describe(name)?)))
                .collect(),
        }
    }

    fn disk(&self, member: &str) -> Option<&Disk> {
        self.disks.get(&claim_name(member, CLUSTER_UID))
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
        self.side.get(a).unwrap_or(&0) == self.side.get(b).unwrap_or(&0)
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
            version: "0.1.0".into(),
            disk_uuid: disk.uuid.clone(),
            disk_empty: disk.member.is_none(),
            phase,
            nonce: disk.nonce.clone(),
            cluster_uid: Some(CLUSTER_UID.into()),
            cluster_id: if disk.member.is_some() { 0xc0ffee } else { 0 },
            member_id: disk.member.unwrap_or(0),
            leads,
            term: self.term,
            leader_id: 0,
            commit: self.commit,
            applied: self.commit,
            ready: voter && served && !self.retired.contains(name),
            alarms: self.alarms.clone(),
            configuration_index: self.configuration_index,
            members,
            tombstones: if leads {
                self.tombstones.clone()
            } else {
                Vec::new()
            },
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
        self.raft();
    }

    fn kubernetes(&mut self) {
        let gone: Vec<String> = self
            .pods
            .keys()
            .filter(|member| !self.sets.contains_key(*member))
            .cloned()
            .collect();
        for member in gone {
            self.pods.remove(&member);
        }
        let pods = self.pods.clone();
        self.claims.retain(|name, claim| {
            let used = claim
                .member
                .as_ref()
                .and_then(|member| pods.get(member))
                .is_some_and(|pod| pod.node.is_some());
            let goes = claim.terminating && !used;
            if goes {
                self.disks.remove(name);
            }
            !goes
        });
        let members: Vec<String> = self.sets.keys().cloned().collect();
        for member in members {
            if !self.pods.contains_key(&member) {
                let uid = self.fresh("pod");
                let pod = PodFacts {
                    uid,
                    phase: PodPhase::Pending,
                    ready: false,
                    terminating: false,
                    node: None,
                    inputs: self.sets[&member].inputs.clone(),
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
        let claim = claim_name(member, CLUSTER_UID);
        let bound = self.disks.get(&claim).and_then(|disk| disk.node.clone());
        let usable = self
            .claims
            .get(&claim)
            .is_some_and(|claim| !claim.terminating);
        let busy: BTreeSet<String> = self.pods.values().filter_map(|p| p.node.clone()).collect();
        let nodes = &self.nodes;
        let fits = |name: &&String| {
            let node = &nodes[*name];
            node.ready && !node.unschedulable && bound.as_ref().is_none_or(|b| b == *name)
        };
        let free = nodes.keys().filter(fits).find(|name| !busy.contains(*name));
        let free = free.or_else(|| nodes.keys().find(fits)).cloned();
        let bad = self.pods[member]
            .inputs
            .as_ref()
            .is_some_and(|i| self.bad_inputs.contains(i));
        let Some(pod) = self.pods.get_mut(member) else {
            return;
        };
        if pod.node.is_none() {
            if !usable {
                pod.waiting = Some(format!("Unschedulable: claim {claim} not found"));
                return;
            }
            let Some(node) = free else {
                pod.waiting = Some("Unschedulable: no node fits".into());
                return;
            };
            pod.node = Some(node);
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
            pod.waiting = None;
            pod.phase = PodPhase::Running;
            pod.started_ms = Some(self.now);
            self.retired.remove(member);
            if let Some(claim) = self.claims.get_mut(&claim) {
                claim.bound = true;
            }
            self.next += 1;
            let uuid = format!("disk{}", self.next);
            self.disks.entry(claim).or_insert(Disk {
                uuid,
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
            let claim = claim_name(&view.name, CLUSTER_UID);
            let running = self.runs(&view.name);
            if let Some(disk) = self.disks.get_mut(&claim)
                && disk.member.is_none()
                && disk.uuid == view.disk_uuid
                && running
            {
                disk.member = Some(view.id);
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

    fn fence(&self, fence: Fence) {
        assert_eq!(
            fence.configuration_index, self.configuration_index,
            "a stale view"
        );
        assert!(self.leader.is_some(), "a membership call without a leader");
    }

    fn claim_by(&mut self, name: &str, uid: &str) -> &mut ClaimFacts {
        let claim = self.claims.get_mut(name).expect("the claim exists");
        assert_eq!(claim.uid, uid, "the claim is the one that was seen");
        claim
    }

    /// Voters that live and are on the leader's side.
    fn reachable_voters(&self) -> (usize, usize) {
        let leader = self.leader.clone().unwrap_or_default();
        let voters: Vec<_> = self.members.iter().filter(|m| !m.learner).collect();
        let lives = voters
            .iter()
            .filter(|m| self.lives(m) && self.reach(&leader, &m.name));
        (lives.count(), voters.len())
    }

    /// Carries out a step, refusing what must never be asked.
    pub(super) fn execute(&mut self, action: &Action) {
        let (alive, voters) = self.reachable_voters();
        let quorate = self.leader.is_some() && alive > voters / 2;
        self.act(action);
        let (alive, voters) = self.reachable_voters();
        if quorate {
            assert!(
                alive > voters / 2,
                "I3: {action} leaves {alive} of {voters} voters"
            );
        }
        assert!(self.formed <= 1, "I7: one cluster a UID");
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::ApplyObject(key) => {
                let inputs = self.wanted_objects().remove(key);
                let facts = ObjectFacts {
                    owner: Owner::Ours,
                    terminating: false,
                    inputs,
                };
                self.objects.insert(key.clone(), facts);
            }
            Action::CreateLatch { seed, nonce } => {
                assert!(self.latch.is_none(), "{} exists", latch_name("demo"));
                self.latch = Some(Latch {
                    owner: Owner::Ours,
                    terminating: false,
                    cluster_uid: CLUSTER_UID.into(),
                    incarnation: 1,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                });
            }
            Action::CreateClaim { member, claim } => {
                let facts = ClaimFacts {
                    uid: self.fresh("claim"),
                    cluster_uid: Some(CLUSTER_UID.into()),
                    member: Some(member.clone()),
                    state: ClaimState::New,
                    terminating: false,
                    bound: false,
                    volume_gone: None,
                    requested_bytes: bytes_of(&self.cluster.spec.storage.size).expect("a size"),
                    owned: false,
                };
                assert!(
                    self.claims.insert(claim.clone(), facts).is_none(),
                    "{claim} exists"
                );
            }
            Action::GrowClaim { claim, uid, bytes } => {
                self.claim_by(claim, uid).requested_bytes = *bytes;
            }
            Action::MarkClaim { claim, uid, state } => self.claim_by(claim, uid).state = *state,
            Action::OwnClaim { claim, uid, owned } => self.claim_by(claim, uid).owned = *owned,
            Action::ApplySet { member, claim } => {
                assert!(self.claims.contains_key(claim), "a set without its claim");
                let uid = self.fresh("set");
                let inputs = Some(self.inputs.clone());
                let created_ms = self.now;
                let set = self.sets.entry(member.clone()).or_insert(SetFacts {
                    uid,
                    owner: Owner::Ours,
                    terminating: false,
                    inputs: None,
                    created_ms,
                });
                set.inputs = inputs;
            }
            Action::DeletePod { member, uid } => {
                assert_eq!(&self.pods[member].uid, uid);
                self.pods.remove(member);
            }
            Action::DeleteSet { member, uid } => {
                assert_eq!(&self.sets[member].uid, uid);
                assert!(
                    !self.members.iter().any(|m| m.name == *member),
                    "I4: {member} is a member"
                );
                self.sets.remove(member);
            }
            Action::DeleteClaim { claim, uid } => {
                let claim = self.claim_by(claim, uid);
                claim.terminating = true;
                let member = claim.member.clone().unwrap_or_default();
                assert!(
                    !self.members.iter().any(|m| m.name == member),
                    "I1: {member} lives on it"
                );
            }
            Action::Retire { member, .. } => {
                self.retired.insert(member.clone());
            }
            _ => self.membership(action),
        }
    }

    fn membership(&mut self, action: &Action) {
        match action {
            Action::Bootstrap {
                member,
                disk_uuid,
                nonce,
                ..
            } => {
                let claim = claim_name(member, CLUSTER_UID);
                let disk = self.disks.get_mut(&claim).expect("the seed has a disk");
                assert!(disk.member.is_none() && disk.uuid == *disk_uuid, "I6");
                disk.member = Some(1);
                disk.nonce = Some(nonce.clone());
                let view = MemberView {
                    id: 1,
                    name: member.clone(),
                    disk_uuid: disk_uuid.clone(),
                    ..MemberView::default()
                };
                self.members.push(view);
                self.formed += 1;
                self.configuration_index = 1;
                self.commit = 10;
            }
            Action::AddLearner {
                member,
                disk_uuid,
                fence,
            } => {
                self.fence(*fence);
                assert!(
                    !self.tombstones.iter().any(|(_, name)| name == member),
                    "a reused name"
                );
                self.next += 1;
                let id = 100 + self.next;
                self.members.push(MemberView {
                    id,
                    name: member.clone(),
                    learner: true,
                    disk_uuid: disk_uuid.clone(),
                    ..MemberView::default()
                });
                self.configuration_index += 1;
            }
            Action::Promote { id, fence, .. } => {
                self.fence(*fence);
                let commit = self.commit;
                let view = self
                    .members
                    .iter_mut()
                    .find(|m| m.id == *id)
                    .expect("a learner");
                assert!(
                    view.learner && view.match_index + 100 >= commit,
                    "it has not caught up"
                );
                view.learner = false;
                self.configuration_index += 1;
            }
            Action::Transfer {
                from, to, fence, ..
            } => {
                self.fence(*fence);
                assert_eq!(self.leader.as_ref(), Some(from));
                self.leader = Some(to.clone());
                self.term += 1;
            }
            Action::Remove { member, id, fence } => {
                self.fence(*fence);
                self.members.retain(|m| m.id != *id);
                self.tombstones.push((*id, member.clone()));
                for disk in self.disks.values_mut().filter(|d| d.member == Some(*id)) {
                    disk.removed = true;
                }
                self.configuration_index += 1;
                if self.leader.as_ref() == Some(member) {
                    self.leader = None;
                    self.raft();
                }
            }
            other => panic!("not a membership step: {other}"),
        }
    }

    /// One pass: observe, plan, execute the first step, report; then a second passes.
    pub(super) fn pass(&mut self) -> Plan {
        let plan = plan(&self.observe());
        let refused = plan.conditions.iter().any(|c| c.reason == "PlanRefused");
        assert!(!refused, "the rules want what the lints refuse\n{plan}");
        if let Some(step) = plan.first() {
            self.execute(&step.action.clone());
        }
        self.status = plan.status.clone();
        self.tick();
        plan
    }

    /// Passes until there has been nothing to do for some time, at most `most` of them.
    pub(super) fn settle(&mut self, most: u32) -> Vec<Plan> {
        let mut plans = Vec::new();
        let mut quiet = 0;
        for _ in 0..most {
            let plan = self.pass();
            let rests = plan.steps.is_empty() && plan.progress.is_none();
            quiet = if rests { quiet + 1 } else { 0 };
            plans.push(plan);
            if quiet >= 3 {
                return plans;
            }
        }
        plans
    }

    pub(super) fn voters(&self) -> usize {
        self.members.iter().filter(|m| !m.learner).count()
    }

    /// Pod and volume are lost; the set makes a new pod, which finds no claim.
    pub(super) fn lose_claim(&mut self, member: &str) {
        let claim = claim_name(member, CLUSTER_UID);
        self.claims.remove(&claim);
        self.disks.remove(&claim);
        self.pods.remove(member);
    }

    /// The volume comes back empty under the same claim.
    pub(super) fn lose_disk(&mut self, member: &str) {
        self.disks.remove(&claim_name(member, CLUSTER_UID));
        self.pods.remove(member);
    }
}
