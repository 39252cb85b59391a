//! An imagined future: what Kubernetes and the members make of a step, as far as a plan can tell.
//! A member that answers now goes on answering, one that does not stays silent; a pod that is made
//! starts on a node that takes it. Never fails a step, and knows nothing of time-outs.

use crate::plan::{MemberAction, ObjectAction};
use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{ValidatedCluster, pvc_name};
use crate::operator::platform::Observation;
use crate::operator::status_memory;
use crate::plan::{
    Action, Description, IdentitySecret, MemberView, NodeFacts, ObjectFacts, ObjectKey, ObjectKind,
    Observed, Owner, PdbFacts, Phase, Plan, PodFacts, PodPhase, PvcFacts, PvcState, ServerFacts,
    SetFacts, SlotFacts, Space,
};

/// What was seen, carried on.
pub(super) struct Future {
    o: Observed,
    /// What the server of a disk said last, by PVC: it says so again when it comes back.
    disks: BTreeMap<String, Description>,
    /// Members whose data differs; `None` where nobody has compared it.
    differing: Option<BTreeSet<u64>>,
    /// Number of the next thing that is made.
    next: u64,
}

impl Future {
    pub(super) fn new(seen: &Observation) -> Self {
        Self {
            o: seen.observed.clone(),
            disks: super::hibernation::disks(&seen.observed),
            differing: super::alarms::differing(&seen.observed),
            next: 0,
        }
    }

    pub(super) fn observed(&self) -> &Observed {
        &self.o
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.o.now_ms
    }

    /// The reconcile is over: its status is written, and so many seconds pass.
    pub(super) fn end_reconcile(&mut self, plan: &Plan, seconds: u64) {
        self.o.status_cluster_id.clone_from(&plan.status.cluster_id);
        self.o.hints = status_memory::of_status(&plan.status);
        let passed_ms = seconds * 1000;
        self.o.now_ms += passed_ms;
        self.kubernetes();
        self.members(passed_ms);
    }

    fn cluster(&self) -> Option<&ValidatedCluster> {
        self.o.cluster.as_ref().ok()
    }

    fn pvc_of(&self, member: &str) -> String {
        let uid = self.cluster().map(|cluster| cluster.uid.as_str());
        pvc_name(member, uid.unwrap_or_default())
    }

    fn fresh(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}-to-be-{}", self.next)
    }

    /// Sets make their pods, pods without a set go, PVCs that are let go are gone.
    fn kubernetes(&mut self) {
        let awake = self.o.sets.iter().filter(|(_, set)| !set.hibernated);
        let sets: Vec<String> = awake.map(|(name, _)| name.clone()).collect();
        let orphans: Vec<String> = self.o.pods.keys().cloned().collect();
        for member in orphans {
            if !sets.contains(&member) {
                self.lose_pod(&member);
            }
        }
        for member in sets {
            if !self.o.pods.contains_key(&member) {
                self.make_pod(&member);
            }
        }
        let used: Vec<String> = self.o.pods.keys().map(|name| self.pvc_of(name)).collect();
        self.o
            .pvcs
            .retain(|name, pvc| !pvc.terminating || used.contains(name));
    }

    fn make_pod(&mut self, member: &str) {
        let name = self.pvc_of(member);
        let Some(pvc) = self.o.pvcs.get(&name).filter(|pvc| !pvc.terminating) else {
            return;
        };
        let Some(node) = self.node_for(pvc) else {
            return;
        };
        let uid = self.fresh("pod");
        let now_ms = self.o.now_ms;
        let pod = PodFacts {
            uid: uid.clone(),
            phase: PodPhase::Running,
            ready_since_ms: None,
            terminating: false,
            node: node.clone(),
            ends_ms: None,
            released_ms: None,
            inputs: self.o.sets.get(member).and_then(|set| set.inputs.clone()),
            peer_tls: self
                .cluster()
                .is_some_and(|cluster| cluster.spec.tls.is_some()),
            server: self.cluster().map_or_else(ServerFacts::default, |cluster| {
                ServerFacts::of(&cluster.spec.server)
            }),
            created_ms: now_ms,
            started_ms: Some(now_ms),
            waiting: None,
            last_exit: None,
        };
        self.o.pods.insert(member.to_owned(), pod);
        let bound_here = self.binds_to_nodes();
        if let Some(pvc) = self.o.pvcs.get_mut(&name).filter(|pvc| !pvc.bound) {
            pvc.bound = true;
            pvc.node_bound = Some(bound_here);
            pvc.nodes = node.filter(|_| bound_here).map(|node| [node].into());
        }
        let mut description = match self.disks.remove(&name) {
            Some(description) => description,
            None => self.empty_disk(),
        };
        description.pod_uid = uid;
        self.o.descriptions.insert(member.to_owned(), description);
        // Whoever starts finds what is there now.
        super::certificates::load(&mut self.o);
    }

    fn empty_disk(&mut self) -> Description {
        let version = self.cluster().map(|cluster| cluster.spec.version.clone());
        Description {
            version: version.unwrap_or_default(),
            disk_uuid: self.fresh("disk"),
            disk_empty: true,
            // What it will hold, the others hold.
            space: Some(Space::default()),
            phase: Phase::Standby,
            cluster_uid: self.cluster().map(|cluster| cluster.uid.clone()),
            ..Description::default()
        }
    }

    /// As other volumes of this cluster do, or as their class promises.
    fn binds_to_nodes(&self) -> bool {
        let seen = self.o.pvcs.values().find_map(|pvc| pvc.node_bound);
        seen.or(self.o.class_node_bound).unwrap_or(false)
    }

    /// The emptiest node that takes a pod with this PVC; `Some(None)` where nodes are not seen.
    fn node_for(&self, pvc: &PvcFacts) -> Option<Option<String>> {
        if self.o.nodes.is_empty() {
            return Some(None);
        }
        let takes = |(name, node): &(&String, &NodeFacts)| {
            let reaches = pvc.nodes.as_ref().is_none_or(|all| all.contains(*name));
            node.ready && !node.closed && !node.out_of_service && reaches
        };
        let crowd = |name: &str| {
            let pods = self.o.pods.values();
            pods.filter(|pod| pod.node.as_deref() == Some(name)).count()
        };
        let open = self.o.nodes.iter().filter(takes);
        let (name, _) = open.min_by_key(|(name, _)| crowd(name))?;
        Some(Some(name.clone()))
    }

    /// The pod is gone; what its disk holds is remembered.
    fn lose_pod(&mut self, member: &str) {
        self.o.pods.remove(member);
        let Some(mut description) = self.o.descriptions.remove(member) else {
            return;
        };
        let led = std::mem::take(&mut description.leads);
        description.retiring_ms = None;
        let name = self.pvc_of(member);
        self.disks.insert(name, description);
        if led {
            self.elect();
        }
    }

    /// Descriptions are as fresh as can be, the leader hears from whom it can, newcomers join.
    fn members(&mut self, passed_ms: u64) {
        let Some(leader) = self.leader() else {
            self.elect();
            return self.age(passed_ms);
        };
        let (commit, mut views) = (leader.commit, leader.members.clone());
        for view in &mut views {
            let named = self.o.descriptions.get_mut(&view.name);
            let Some(description) = named.filter(|said| said.disk_uuid == view.disk_uuid) else {
                view.last_contact_ms = view.last_contact_ms.map(|age| age + passed_ms);
                view.promotable = false;
                continue;
            };
            if matches!(description.phase, Phase::Standby | Phase::Joining) {
                description.phase = Phase::Member;
                description.disk_empty = false;
                description.member_id = view.id;
            }
            view.last_contact_ms = Some(0);
            view.match_index = commit;
            view.promotable = view.learner;
            view.not_promotable = String::new();
        }
        self.share(&views);
        self.age(passed_ms);
        if let Some(differing) = &self.differing {
            super::alarms::compare(&mut self.o, differing);
        }
    }

    /// Everybody who is a member knows these.
    fn share(&mut self, views: &[MemberView]) {
        let leader = self.leader().cloned().unwrap_or_default();
        for description in self.o.descriptions.values_mut() {
            let seat = views.iter().find(|view| view.id == description.member_id);
            let Some(seat) = seat.filter(|_| description.phase == Phase::Member) else {
                continue;
            };
            description.cluster_id = leader.cluster_id;
            description.term = leader.term;
            description.leader_id = leader.member_id;
            description.commit = leader.commit;
            description.applied = leader.commit;
            description.configuration_index = leader.configuration_index;
            description.alarms.clone_from(&leader.alarms);
            description.ready = !seat.learner && description.retiring_ms.is_none();
            description.members = views.to_vec();
            description.tombstones.clone_from(&leader.tombstones);
        }
    }

    fn age(&mut self, passed_ms: u64) {
        let now_ms = self.o.now_ms;
        for (member, description) in &mut self.o.descriptions {
            description.age_ms = 0;
            if let Some(since) = &mut description.retiring_ms {
                *since += passed_ms;
            }
            if let Some(pod) = self.o.pods.get_mut(member) {
                let since = pod.ready_since_ms.unwrap_or(now_ms);
                pod.ready_since_ms = description.ready.then_some(since);
            }
        }
        self.count_available();
    }

    fn leader(&self) -> Option<&Description> {
        let mut all = self.o.descriptions.values();
        all.find(|description| description.leads && description.phase == Phase::Member)
    }

    /// A quorum of those that answer chooses one of them.
    fn elect(&mut self) {
        let members = self.o.descriptions.values();
        let views = members.max_by_key(|said| said.configuration_index);
        let views = views.map(|said| said.members.clone()).unwrap_or_default();
        let voters: Vec<&MemberView> = views.iter().filter(|view| !view.learner).collect();
        let answers = |view: &&&MemberView| {
            let said = self.o.descriptions.get(&view.name);
            said.is_some_and(|said| {
                said.member_id == view.id && said.phase == Phase::Member && said.cluster_id != 0
            })
        };
        let up: Vec<&&MemberView> = voters.iter().filter(answers).collect();
        if up.len() <= voters.len() / 2 {
            return;
        }
        if let Some(name) = up.first().map(|view| view.name.clone()) {
            self.lead(&name);
        }
    }

    fn lead(&mut self, name: &str) {
        let terms = self.o.descriptions.values().map(|said| said.term);
        let term = terms.max().unwrap_or(0) + 1;
        let known = self.o.descriptions.values();
        let known = known.max_by_key(|said| said.configuration_index).cloned();
        for (member, description) in &mut self.o.descriptions {
            description.leads = member == name;
            if description.leads {
                description.term = term;
                if let Some(known) = &known {
                    description.members.clone_from(&known.members);
                    description.tombstones.clone_from(&known.tombstones);
                    description.configuration_index = known.configuration_index;
                }
            }
        }
    }

    fn leading(&mut self) -> Option<&mut Description> {
        let mut all = self.o.descriptions.values_mut();
        all.find(|description| description.leads && description.phase == Phase::Member)
    }

    /// What a step does.
    pub(super) fn act(&mut self, action: &Action) {
        match action {
            Action::Member(action) => self.act_on_members(action),
            Action::Certificate(action) => {
                let id = self.fresh("certificate");
                super::certificates::act(&mut self.o, action, &id);
            }
            Action::Object(action) => self.act_on_object(action),
        }
    }

    fn act_on_object(&mut self, action: &ObjectAction) {
        match action {
            ObjectAction::AdmitSpec { hash } => {
                let spec = self.o.spec.as_mut();
                spec.into_iter()
                    .for_each(|spec| spec.kept = Some(hash.clone()));
            }
            ObjectAction::ApplyObject(key) => {
                let inputs = self.o.wanted_objects.get(key).cloned();
                let facts = ObjectFacts {
                    owner: Owner::Ours,
                    terminating: false,
                    inputs,
                };
                self.o.objects.insert(key.clone(), facts);
                if key.kind == ObjectKind::PodDisruptionBudget {
                    self.o.pdb = Some(PdbFacts::default());
                }
            }
            ObjectAction::SetPdb { min_available, .. } => self.set_pdb(*min_available),
            ObjectAction::CreateIdentitySecret {
                seed,
                nonce,
                incarnation,
            } => {
                self.o.identity_secret = self.cluster().map(|cluster| IdentitySecret {
                    owner: Owner::Ours,
                    terminating: false,
                    cluster_uid: cluster.uid.clone(),
                    incarnation: *incarnation,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                });
            }
            ObjectAction::CreatePvc { .. }
            | ObjectAction::GrowPvc { .. }
            | ObjectAction::MarkPvc { .. }
            | ObjectAction::OwnPvc { .. }
            | ObjectAction::DeletePvc { .. } => self.act_on_pvc(action),
            ObjectAction::ApplySet {
                member, hibernated, ..
            } => self.apply_set(member, *hibernated),
            ObjectAction::DeleteSet { member, .. } => drop(self.o.sets.remove(member)),
            ObjectAction::MapSlot { slot, member, .. } => {
                let facts = SlotFacts {
                    uid: self.fresh("slot"),
                    owner: Owner::Ours,
                    terminating: false,
                    inputs: Some(self.o.wanted_slot_inputs.clone()),
                    member: Some(member.clone()),
                };
                self.o.slots.insert(*slot, facts);
            }
            ObjectAction::DropSlot { slot, .. } => drop(self.o.slots.remove(slot)),
            ObjectAction::ReleasePod { member, .. } => {
                let now_ms = self.o.now_ms;
                if let Some(pod) = self.o.pods.get_mut(member) {
                    pod.released_ms = Some(now_ms);
                }
            }
            ObjectAction::HoldPod { member, .. } => {
                if let Some(pod) = self.o.pods.get_mut(member) {
                    pod.released_ms = None;
                }
            }
            ObjectAction::EvictPod { member, .. } | ObjectAction::DeletePod { member, .. } => {
                self.lose_pod(member);
            }
        }
    }

    fn set_pdb(&mut self, min_available: u32) {
        let is_pdb = |key: &&ObjectKey| key.kind == ObjectKind::PodDisruptionBudget;
        let key = self.o.wanted_objects.keys().find(is_pdb).cloned();
        if let Some(key) = key {
            self.act(&Action::Object(ObjectAction::ApplyObject(key)));
        }
        self.o.pdb = Some(PdbFacts {
            min_available: Some(min_available),
            available: None,
        });
        self.count_available();
    }

    /// Kubernetes counts who is available.
    fn count_available(&mut self) {
        let ready = |pod: &&PodFacts| {
            pod.ready_since_ms.is_some() && !pod.terminating && pod.released_ms.is_none()
        };
        let available = self.o.pods.values().filter(ready).count();
        if let Some(pdb) = &mut self.o.pdb {
            pdb.available = u32::try_from(available).ok();
        }
    }

    fn apply_set(&mut self, member: &str, hibernated: bool) {
        let uid = self.fresh("set");
        let (now_ms, inputs) = (self.o.now_ms, self.o.wanted_inputs.clone());
        let sets = self.o.sets.entry(member.to_owned());
        let set = sets.or_insert(SetFacts {
            plain_peers: false,
            uid,
            owner: Owner::Ours,
            terminating: false,
            inputs: None,
            created_ms: now_ms,
            hibernated,
            edited: false,
        });
        set.hibernated = hibernated;
        set.edited = false;
        set.inputs = Some(inputs);
    }

    fn act_on_pvc(&mut self, action: &ObjectAction) {
        match action {
            ObjectAction::CreatePvc { member, pvc } => {
                let cluster = self.cluster();
                let facts = PvcFacts {
                    uid: String::new(),
                    cluster_uid: cluster.map(|cluster| cluster.uid.clone()),
                    member: Some(member.clone()),
                    state: PvcState::New,
                    terminating: false,
                    bound: false,
                    volume_gone: None,
                    no_node: None,
                    node_bound: None,
                    nodes: None,
                    requested_bytes: cluster.map_or(0, |cluster| cluster.storage_bytes),
                    owned: cluster.is_some_and(owns_pvcs),
                };
                let uid = self.fresh("claim");
                self.o.pvcs.insert(pvc.clone(), PvcFacts { uid, ..facts });
            }
            ObjectAction::GrowPvc { pvc, bytes, .. } => {
                self.pvc(pvc, |facts| facts.requested_bytes = *bytes);
            }
            ObjectAction::MarkPvc { pvc, state, .. } => {
                self.pvc(pvc, |facts| facts.state = *state);
            }
            ObjectAction::OwnPvc { pvc, owned, .. } => {
                self.pvc(pvc, |facts| facts.owned = *owned);
            }
            ObjectAction::DeletePvc { pvc, .. } => self.pvc(pvc, |facts| {
                facts.terminating = true;
            }),
            _ => {}
        }
    }

    fn pvc(&mut self, name: &str, change: impl FnOnce(&mut PvcFacts)) {
        if let Some(facts) = self.o.pvcs.get_mut(name) {
            change(facts);
        }
    }

    fn act_on_members(&mut self, action: &MemberAction) {
        match action {
            MemberAction::Bootstrap {
                member,
                nonce,
                disk_uuid,
                ..
            } => self.form(member, nonce, disk_uuid),
            MemberAction::AddLearner {
                member, disk_uuid, ..
            } => {
                self.next += 1;
                let view = MemberView {
                    id: u64::MAX - self.next,
                    name: member.clone(),
                    learner: true,
                    disk_uuid: disk_uuid.clone(),
                    ..MemberView::default()
                };
                self.change(|leader| leader.members.push(view));
            }
            MemberAction::SetPeerUrls { id, urls, .. } => self.change(|leader| {
                let of = leader.members.iter_mut().find(|view| view.id == *id);
                of.into_iter()
                    .for_each(|view| view.peer_urls.clone_from(urls));
            }),
            MemberAction::Promote { id, .. } => self.change(|leader| {
                let of = leader.members.iter_mut().find(|view| view.id == *id);
                of.into_iter().for_each(|view| view.learner = false);
            }),
            MemberAction::Disarm { kind, id, .. } => {
                let on = format!("{} {id:x}", kind.as_str());
                for said in self.o.descriptions.values_mut() {
                    said.alarms.retain(|alarm| *alarm != on);
                }
            }
            MemberAction::Transfer { to, .. } => self.lead(to),
            MemberAction::Retire { member, .. } => {
                let said = self.o.descriptions.get_mut(member);
                let led = said.is_some_and(|said| {
                    said.retiring_ms = Some(1);
                    said.ready = false;
                    std::mem::take(&mut said.leads)
                });
                if led {
                    self.elect_other(member);
                }
            }
            MemberAction::Remove { member, id, .. } => {
                self.change(|leader| {
                    leader.members.retain(|view| view.id != *id);
                    leader.tombstones.push((*id, member.clone()));
                });
                let said = self.o.descriptions.get_mut(member);
                let led = said.is_some_and(|said| {
                    said.phase = Phase::Removed;
                    said.ready = false;
                    std::mem::take(&mut said.leads)
                });
                if led {
                    self.elect_other(member);
                }
            }
        }
    }

    /// Somebody else leads, whom this one told what it knew.
    fn elect_other(&mut self, member: &str) {
        let Some(known) = self.o.descriptions.get(member).cloned() else {
            return;
        };
        let next = known.members.iter().find(|view| {
            let said = self.o.descriptions.get(&view.name);
            let serves = said.is_some_and(|said| said.phase == Phase::Member && said.ready);
            view.name != member && !view.learner && serves
        });
        let Some(next) = next.map(|view| view.name.clone()) else {
            return self.elect();
        };
        self.lead(&next);
    }

    fn form(&mut self, member: &str, nonce: &str, disk_uuid: &str) {
        let seat = MemberView {
            id: 1,
            name: member.to_owned(),
            disk_uuid: disk_uuid.to_owned(),
            last_contact_ms: Some(0),
            ..MemberView::default()
        };
        if let Some(said) = self.o.descriptions.get_mut(member) {
            said.phase = Phase::Member;
            said.disk_empty = false;
            said.nonce = Some(nonce.to_owned());
            said.cluster_id = 1;
            said.member_id = 1;
            said.leads = true;
            said.term = 1;
            said.configuration_index = 1;
            said.members = vec![seat];
        }
    }

    /// The leader's word about the members changes.
    fn change(&mut self, change: impl FnOnce(&mut Description)) {
        if let Some(leader) = self.leading() {
            change(leader);
            leader.configuration_index += 1;
        }
    }
}

fn owns_pvcs(cluster: &ValidatedCluster) -> bool {
    cluster.spec.storage.retention.when_deleted == crate::crd::RetentionPolicy::Delete
}
