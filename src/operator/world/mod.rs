//! A world in memory for the tests of the loop as shipped: the API server's objects, the
//! controllers that make pods of sets, and servers that form, join and leave a cluster. It checks
//! on every act what must never be done.

mod act;

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;

use crate::crd::{EtcdClusterStatus, ValidatedCluster};
use crate::operator::platform::{Act, Failure, Freshness, Observation, Platform, Report};
use crate::operator::queue::Ended;
use crate::operator::reconcile::{Rules, reconcile};
use crate::operator::status_memory;
use crate::operator::testing::observation_at;
use crate::plan::{
    Description, IdentitySecret, MemberView, ObjectFacts, ObjectKey, ObjectKind, Owner, Phase,
    PodFacts, PodPhase, PvcFacts, PvcState, ServerFacts, SetFacts, SlotFacts,
};

pub(crate) struct Set {
    uid: String,
    pub(crate) hibernated: bool,
    created_ms: u64,
    inputs: String,
}

pub(crate) struct Pod {
    pub(crate) uid: String,
    created_ms: u64,
    inputs: String,
    deleting: bool,
    /// When its server was told to retire.
    retires_since: Option<u64>,
}

/// A PVC, and what the server wrote on its volume.
pub(crate) struct Pvc {
    uid: String,
    member: String,
    pub(crate) state: PvcState,
    terminating: bool,
    pub(crate) bytes: u64,
    pub(crate) owned: bool,
    disk: String,
    /// Member ID that lives on the disk; 0 while it is empty.
    id: u64,
}

#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) learner: bool,
    disk: String,
    since_ms: u64,
}

/// The replicated cluster.
#[derive(Default)]
pub(crate) struct Cluster {
    pub(crate) members: BTreeMap<u64, Member>,
    tombstones: Vec<(u64, String)>,
    configuration_index: u64,
    epoch: u64,
    pub(crate) leader: u64,
    /// When a member was last reached by the leader.
    contact_ms: BTreeMap<u64, u64>,
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) cluster: ValidatedCluster,
    status: EtcdClusterStatus,
    /// Times at which the status was written.
    pub(crate) writes: Vec<u64>,
    epoch: u64,
    identity_secret: Option<IdentitySecret>,
    service: Option<String>,
    /// The slots' Services: UID and member.
    pub(crate) slots: BTreeMap<u32, (String, String)>,
    pub(crate) wanted_inputs: String,
    pub(crate) sets: BTreeMap<String, Set>,
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) pvcs: BTreeMap<String, Pvc>,
    pub(crate) raft: Option<Cluster>,
    /// Members whose server does not run although their pod does.
    pub(crate) down: BTreeSet<String>,
    uids: u64,
    /// How many seconds the operator's caches are behind, and what they show.
    pub(crate) behind: usize,
    past: Vec<Observation>,
    pub(crate) bootstraps: u32,
    /// How long a learner takes to catch up.
    pub(crate) catch_up_ms: u64,
    /// Words of every act that changed something.
    pub(crate) acts: Vec<String>,
    /// The same acts in full.
    pub(crate) told: Vec<String>,
}

/// When the operator dies in a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Right before the act.
    Before,
    /// Right after it, before the report.
    After,
    /// The act was carried out, and its answer was lost.
    ReplyLost,
}

impl World {
    pub(crate) fn new(replicas: i32) -> Self {
        let seen = observation_at(1_000_000);
        let mut cluster = seen.observed.cluster.expect("the test's cluster is valid");
        cluster.spec.replicas = replicas;
        Self {
            now_ms: seen.observed.now_ms,
            cluster,
            status: EtcdClusterStatus::default(),
            writes: Vec::new(),
            epoch: 1,
            identity_secret: None,
            service: None,
            slots: BTreeMap::new(),
            wanted_inputs: "inputs".into(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            pvcs: BTreeMap::new(),
            raft: None,
            down: BTreeSet::new(),
            uids: 0,
            behind: 0,
            past: vec![],
            bootstraps: 0,
            catch_up_ms: 2000,
            acts: vec![],
            told: vec![],
        }
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    fn pvc_of(&self, member: &str) -> Option<&Pvc> {
        self.pvcs
            .get(&crate::crd::pvc_name(member, &self.cluster.uid))
    }

    /// Its server runs, on its disk.
    pub(crate) fn runs(&self, member: &str) -> bool {
        self.pods.get(member).is_some_and(|pod| !pod.deleting)
            && self.pvc_of(member).is_some()
            && !self.down.contains(member)
    }

    /// A member of the cluster that runs on the very disk that it is bound to.
    fn lives(&self, id: u64, member: &Member) -> bool {
        let pvc = self.pvc_of(&member.name);
        self.runs(&member.name) && pvc.is_some_and(|pvc| pvc.disk == member.disk && pvc.id == id)
    }

    pub(crate) fn voters(&self) -> Vec<&Member> {
        let members = self.raft.iter().flat_map(|raft| raft.members.values());
        members.filter(|member| !member.learner).collect()
    }

    fn quorate(&self) -> bool {
        let Some(raft) = &self.raft else { return false };
        let living = raft
            .members
            .iter()
            .filter(|(id, m)| !m.learner && self.lives(**id, m));
        living.count() > self.voters().len() / 2
    }

    /// A second passes: controllers and servers do what they do by themselves.
    pub(crate) fn tick(&mut self) {
        if self.behind > 0 {
            self.past.push(self.look(""));
        }
        self.now_ms += 1000;
        let awake = self.sets.iter().filter(|(_, set)| !set.hibernated);
        let sets: Vec<String> = awake.map(|(name, _)| name.clone()).collect();
        self.pods
            .retain(|member, pod| !pod.deleting && sets.contains(member));
        for member in sets {
            if !self.pods.contains_key(&member) {
                let uid = self.uid();
                let inputs = self.sets[&member].inputs.clone();
                let pod = Pod {
                    uid,
                    created_ms: self.now_ms,
                    inputs,
                    deleting: false,
                    retires_since: None,
                };
                self.pods.insert(member, pod);
            }
        }
        let pods = &self.pods;
        self.pvcs
            .retain(|_, pvc| !pvc.terminating || pods.contains_key(&pvc.member));
        self.join();
        self.elect();
    }

    /// A standby joins once the cluster knows its disk.
    fn join(&mut self) {
        let Some(raft) = &self.raft else { return };
        for (id, member) in &raft.members {
            let name = crate::crd::pvc_name(&member.name, &self.cluster.uid);
            let runs = self.pods.contains_key(&member.name) && !self.down.contains(&member.name);
            if let Some(pvc) = self.pvcs.get_mut(&name)
                && runs
                && pvc.id == 0
                && pvc.disk == member.disk
            {
                pvc.id = *id;
            }
        }
    }

    fn elect(&mut self) {
        let living: Vec<(u64, bool)> = {
            let Some(raft) = &self.raft else { return };
            let living = raft
                .members
                .iter()
                .filter(|(id, member)| self.lives(**id, member));
            living.map(|(id, member)| (*id, member.learner)).collect()
        };
        let quorate = self.quorate();
        let now_ms = self.now_ms;
        let Some(raft) = &mut self.raft else { return };
        if !living.contains(&(raft.leader, false)) || !quorate {
            let heir = living
                .iter()
                .find(|(_, learner)| !learner)
                .map(|(id, _)| *id);
            raft.leader = if quorate { heir.unwrap_or(0) } else { 0 };
        }
        if raft.leader != 0 {
            for (id, _) in living {
                raft.contact_ms.insert(id, now_ms);
            }
        }
    }

    pub(crate) fn look(&self, entropy: &str) -> Observation {
        let mut seen = observation_at(self.now_ms);
        let o = &mut seen.observed;
        o.entropy = entropy.into();
        o.epoch = self.epoch;
        o.cluster = Ok(self.cluster.clone());
        o.status_cluster_id = self.status.cluster_id.clone();
        o.hints = status_memory::of_status(&self.status);
        o.identity_secret = self.identity_secret.clone();
        o.wanted_inputs = self.wanted_inputs.clone();
        o.wanted_objects = [(service(), "service".to_owned())].into();
        o.objects = (self.service.iter())
            .map(|inputs| {
                let facts = ObjectFacts {
                    owner: Owner::Ours,
                    terminating: false,
                    inputs: Some(inputs.clone()),
                };
                (service(), facts)
            })
            .collect();
        o.slot_endpoints = (0..self.cluster.target())
            .map(|slot| format!("slot-{slot}"))
            .collect();
        o.slots = (self.slots.iter())
            .map(|(slot, (uid, member))| (*slot, slot_facts(uid, member)))
            .collect();
        o.sets = self
            .sets
            .iter()
            .map(|(name, set)| (name.clone(), set_facts(set)))
            .collect();
        o.pods = self
            .pods
            .keys()
            .map(|name| (name.clone(), self.pod_facts(name)))
            .collect();
        o.pvcs = self
            .pvcs
            .iter()
            .map(|(name, c)| (name.clone(), self.pvc_facts(c)))
            .collect();
        o.descriptions = (self.pods.keys())
            .filter(|name| self.runs(name))
            .filter_map(|name| Some((name.clone(), self.describe(name)?)))
            .collect();
        seen.status = self.status.clone();
        seen.status_age_ms = self.writes.last().map(|at| self.now_ms - at);
        seen
    }

    /// Through caches that are behind: sets, pods and objects are old; what every look reads live
    /// (PVCs, the identity Secret, the members' own words) is not.
    fn look_cached(&self, entropy: &str) -> Observation {
        let mut seen = self.look(entropy);
        let old = self
            .past
            .len()
            .checked_sub(self.behind)
            .and_then(|at| self.past.get(at));
        if let Some(old) = old {
            seen.observed.sets = old.observed.sets.clone();
            seen.observed.pods = old.observed.pods.clone();
            seen.observed.objects = old.observed.objects.clone();
            seen.observed.slots = old.observed.slots.clone();
            // A description by another pod than the cached one is left out.
            let pods = &old.observed.pods;
            let same = |name: &String, said: &mut Description| {
                pods.get(name).is_some_and(|pod| pod.uid == said.pod_uid)
            };
            seen.observed.descriptions.retain(same);
        }
        seen
    }

    fn pod_facts(&self, name: &str) -> PodFacts {
        let pod = &self.pods[name];
        let starts = self.pvc_of(name).is_some();
        PodFacts {
            uid: pod.uid.clone(),
            phase: if starts {
                PodPhase::Running
            } else {
                PodPhase::Pending
            },
            ready_since_ms: self.runs(name).then_some(pod.created_ms),
            terminating: pod.deleting,
            node: None,
            ends_ms: None,
            released_ms: None,
            inputs: Some(pod.inputs.clone()),
            peer_tls: false,
            server: ServerFacts::of(&self.cluster.spec.server),
            created_ms: pod.created_ms,
            started_ms: starts.then_some(pod.created_ms),
            waiting: None,
            last_exit: None,
        }
    }

    fn pvc_facts(&self, pvc: &Pvc) -> PvcFacts {
        PvcFacts {
            uid: pvc.uid.clone(),
            cluster_uid: Some(self.cluster.uid.clone()),
            member: Some(pvc.member.clone()),
            state: pvc.state,
            terminating: pvc.terminating,
            bound: true,
            volume_gone: None,
            no_node: None,
            node_bound: Some(false),
            nodes: None,
            requested_bytes: pvc.bytes,
            owned: pvc.owned,
        }
    }

    fn describe(&self, name: &str) -> Option<Description> {
        let pvc = self.pvc_of(name)?;
        let mut said = Description {
            pod_uid: self.pods[name].uid.clone(),
            version: "0.1.0".into(),
            disk_uuid: pvc.disk.clone(),
            disk_empty: pvc.id == 0,
            ..Description::default()
        };
        let Some(raft) = self.raft.as_ref().filter(|_| pvc.id != 0) else {
            return Some(said);
        };
        said.cluster_uid = Some(self.cluster.uid.clone());
        said.cluster_id = 77;
        said.member_id = pvc.id;
        let Some(own) = raft.members.get(&pvc.id) else {
            said.phase = Phase::Removed;
            return Some(said);
        };
        said.phase = Phase::Member;
        said.term = 1;
        said.leader_id = raft.leader;
        said.leads = raft.leader == pvc.id;
        let retires = self.pods[name].retires_since;
        said.retiring_ms = retires.map(|since| (self.now_ms - since).max(1));
        said.ready = raft.leader != 0 && !own.learner && retires.is_none();
        said.commit = 100;
        said.applied = 100;
        said.configuration_index = raft.configuration_index;
        said.tombstones = raft.tombstones.clone();
        said.members = raft
            .members
            .iter()
            .map(|(id, m)| self.member_view(*id, m, raft))
            .collect();
        Some(said)
    }

    fn member_view(&self, id: u64, member: &Member, raft: &Cluster) -> MemberView {
        let caught_up = self.lives(id, member) && self.now_ms >= member.since_ms + self.catch_up_ms;
        // It gains on the leader all the time.
        let lag = (member.since_ms + self.catch_up_ms).saturating_sub(self.now_ms) / 1000;
        MemberView {
            id,
            name: member.name.clone(),
            peer_urls: Vec::new(),
            learner: member.learner,
            disk_uuid: member.disk.clone(),
            match_index: 100_u64.saturating_sub(lag),
            last_contact_ms: raft.contact_ms.get(&id).map(|at| self.now_ms - at),
            unsynced_ms: 0,
            promotable: member.learner && caught_up,
            not_promotable: if caught_up {
                String::new()
            } else {
                format!("its log is {lag} entries behind")
            },
        }
    }

    /// One reconcile, and whether it acted; with a crash, the operator dies in the act and another
    /// one, with a newer epoch, follows.
    pub(crate) fn reconcile(&mut self, crash: Option<Crash>) -> (Ended, bool) {
        let entropy = format!("entropy-{}", self.now_ms);
        let mut operator = OneOperator {
            world: self,
            crash,
            acted: false,
        };
        // Nothing here waits for anything: what is not ready at once is dead.
        let ended = reconcile(&mut operator, Rules::SHIPPED, &entropy).now_or_never();
        let acted = operator.acted;
        let ended = ended.unwrap_or_else(|| {
            self.epoch += 1;
            Ended::Failed
        });
        (ended, acted)
    }

    /// Reconciles and seconds until nothing changes any more. The act with this number (from 0, in
    /// this call) is crashed. Returns the number of acts.
    pub(crate) fn settle(&mut self, crash: Option<(usize, Crash)>) -> usize {
        let (mut acts, mut quiet) = (0, 0);
        for _ in 0..3_000 {
            let now = crash.filter(|(at, _)| *at == acts).map(|(_, crash)| crash);
            let (_, acted) = self.reconcile(now);
            acts += usize::from(acted);
            quiet = if acted { 0 } else { quiet + 1 };
            // What caches that are behind still show may hold up a step until they have caught up.
            if quiet > 5 + self.behind && self.settled() {
                return acts;
            }
            self.tick();
        }
        panic!("not settled: {:?}; {:?}", self.status.summary, self.acts);
    }

    /// As many voters as wanted, nothing else, an object of each kind for each of them, and nothing
    /// that the operator says it waits for: between two restarts all of the rest is so as well.
    fn settled(&self) -> bool {
        let names: Vec<&String> = self.voters().iter().map(|voter| &voter.name).collect();
        let members = self.raft.as_ref().map_or(0, |raft| raft.members.len());
        if self.cluster.target() == 0 {
            return self.pods.is_empty() && self.sets.values().all(|set| set.hibernated);
        }
        self.status.step.is_none()
            && names.len() == self.cluster.target()
            && members == names.len()
            && self.sets.len() == names.len()
            && self.pvcs.len() == names.len()
            && self.pods.len() == names.len()
            && names.iter().all(|name| self.runs(name))
            && self.slots.len() == names.len()
            && names.iter().all(|name| {
                let mut held = self.slots.values().map(|(_, member)| member);
                held.any(|member| member == *name)
            })
    }

    /// Takes a member's disk and process away.
    pub(crate) fn lose_disk(&mut self, member: &str) {
        let pvc = crate::crd::pvc_name(member, &self.cluster.uid);
        self.pvcs.remove(&pvc);
        self.pods.remove(member);
    }

    pub(crate) fn leader_name(&self) -> String {
        let raft = self.raft.as_ref().expect("a cluster");
        raft.members[&raft.leader].name.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .voters()
            .iter()
            .map(|voter| voter.name.clone())
            .collect();
        names.sort();
        names
    }
}

/// An operator for one reconcile of the world.
struct OneOperator<'a> {
    world: &'a mut World,
    crash: Option<Crash>,
    acted: bool,
}

impl Platform for OneOperator<'_> {
    async fn observe(
        &mut self,
        freshness: Freshness,
        entropy: &str,
    ) -> Result<Option<Observation>, Failure> {
        Ok(Some(match freshness {
            Freshness::Cached => self.world.look_cached(entropy),
            Freshness::Live => self.world.look(entropy),
        }))
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        self.acted = true;
        if self.crash == Some(Crash::Before) {
            return std::future::pending().await;
        }
        let done = self.world.act(act);
        match self.crash {
            Some(Crash::After) => std::future::pending().await,
            Some(Crash::ReplyLost) => Err(Failure::Retry("the answer was lost".into())),
            _ => done,
        }
    }

    async fn report(&mut self, report: &Report) -> Result<(), Failure> {
        if let Some(status) = &report.status {
            self.world.status = status.clone();
            self.world.writes.push(self.world.now_ms);
        }
        Ok(())
    }
}

fn service() -> ObjectKey {
    ObjectKey {
        kind: ObjectKind::Service,
        name: "demo-client".into(),
    }
}

fn slot_facts(uid: &str, member: &str) -> SlotFacts {
    SlotFacts {
        uid: uid.to_owned(),
        owner: Owner::Ours,
        terminating: false,
        inputs: Some(String::new()),
        member: Some(member.to_owned()),
    }
}

fn set_facts(set: &Set) -> SetFacts {
    SetFacts {
        plain_peers: true,
        uid: set.uid.clone(),
        owner: Owner::Ours,
        terminating: false,
        inputs: Some(set.inputs.clone()),
        created_ms: set.created_ms,
        hibernated: set.hibernated,
        edited: false,
    }
}

mod tests;
