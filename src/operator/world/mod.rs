//! A world in memory for the tests of the reconcile as shipped: the model of what actions do, an
//! operator that dies in the middle of an act, and caches that are behind. It checks on every act
//! what must never be done.

mod act;

use futures::FutureExt as _;

use crate::crd::{EtcdClusterStatus, ValidatedCluster};
use crate::model::Model;
use crate::operator::platform::{
    Act, Failure, Freshness, Observation, Platform, Report, Specification,
};
use crate::operator::queue::Ended;
use crate::operator::reconcile::{Rules, reconcile};
use crate::operator::testing::observation_at;
use crate::plan::status_memory;
use crate::plan::{Description, ObjectKey, ObjectKind};

/// Entries that a learner receives in a second: it takes some seconds to catch up.
const CATCH_UP: u64 = 1_000;

pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) cluster: ValidatedCluster,
    status: EtcdClusterStatus,
    /// Times at which the status was written.
    pub(crate) writes: Vec<u64>,
    epoch: u64,
    /// How many seconds the operator's caches are behind, and what they show.
    pub(crate) behind: usize,
    past: Vec<Observation>,
    /// Words of every act that changed something.
    pub(crate) acts: Vec<String>,
    /// The same acts in full.
    pub(crate) done: Vec<String>,
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
        let mut seen = observation_at(1_000_000).observed;
        let key = ObjectKey {
            kind: ObjectKind::Service,
            name: "demo-client".into(),
        };
        seen.wanted_objects = [(key, "service".to_owned())].into();
        let mut model = Model::of(&seen);
        model.pace.catch_up = CATCH_UP;
        let mut cluster = seen.cluster.expect("the test's cluster is valid");
        cluster.spec.replicas = replicas;
        Self {
            model,
            cluster,
            status: EtcdClusterStatus::default(),
            writes: Vec::new(),
            epoch: 1,
            behind: 0,
            past: vec![],
            acts: vec![],
            done: vec![],
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.model.api.now_ms
    }

    pub(crate) fn bootstraps(&self) -> u32 {
        self.model.raft.formed
    }

    /// The API server holds the resource as it is now.
    fn render(&mut self) {
        let api = &mut self.model.api;
        api.cluster = Ok(self.cluster.clone());
        api.epoch = self.epoch;
        api.slot_endpoints = (0..self.cluster.target())
            .map(|slot| format!("slot-{slot}"))
            .collect();
        let memory = status_memory::of_status(&self.status);
        self.model.remember(self.status.cluster_id.clone(), memory);
    }

    /// A second passes: controllers and servers do what they do by themselves.
    pub(crate) fn tick(&mut self) {
        if self.behind > 0 {
            let seen = self.observe("");
            self.past.push(seen);
        }
        self.render();
        self.model.advance(1000);
    }

    pub(crate) fn observe(&mut self, entropy: &str) -> Observation {
        self.render();
        let mut seen = observation_at(self.now_ms());
        seen.observed = self.model.observe();
        seen.observed.entropy = entropy.into();
        seen.status = self.status.clone();
        seen.status_age_ms = self.writes.last().map(|at| self.now_ms() - at);
        seen
    }

    /// Through stale caches: StatefulSets, pods and objects are old; what every observation reads live (PVCs, the
    /// identity Secret, the members' descriptions) is not.
    fn observe_cached(&mut self, entropy: &str) -> Observation {
        let mut seen = self.observe(entropy);
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
            let same = |name: &String, description: &mut Description| {
                pods.get(name)
                    .is_some_and(|pod| pod.uid == description.pod_uid)
            };
            seen.observed.descriptions.retain(same);
        }
        seen
    }

    /// One reconcile, and whether it acted; with a crash, the operator dies in the act and another
    /// one, with a newer epoch, follows.
    pub(crate) fn reconcile(&mut self, crash: Option<Crash>) -> (Ended, bool) {
        let entropy = format!("entropy-{}", self.now_ms());
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
            // Stale caches may delay a step until they have caught up.
            if quiet > 5 + self.behind && self.settled() {
                return acts;
            }
            self.tick();
        }
        panic!("not settled: {:?}; {:?}", self.status.summary, self.acts);
    }

    /// As many voters as wanted, nothing else, an object of each kind for each of them, and no reported wait: between
    /// two restarts all of the rest is so as well.
    fn settled(&self) -> bool {
        let (api, raft) = (&self.model.api, &self.model.raft);
        let names = self.names();
        let target = self.cluster.target();
        if target == 0 {
            return api.pods.is_empty() && api.sets.values().all(|set| set.hibernated);
        }
        let held = |name: &String| {
            let mut slots = api.slots.values();
            slots.any(|slot| slot.member.as_ref() == Some(name))
        };
        self.status.step.is_none()
            && names.len() == target
            && raft.members.len() == target
            && api.sets.len() == target
            && api.pvcs.len() == target
            && api.pods.len() == target
            && api.slots.len() == target
            && names.iter().all(|name| self.model.runs(name) && held(name))
    }

    /// Takes a member's disk and process away.
    pub(crate) fn lose_disk(&mut self, member: &str) {
        let pvc = crate::crd::pvc_name(member, &self.cluster.life);
        self.model.api.pvcs.remove(&pvc);
        self.model.disks.remove(&pvc);
        self.model.api.pods.remove(member);
    }

    /// Its server hangs until its pod is replaced.
    pub(crate) fn hang(&mut self, member: &str) {
        let uid = self.model.api.pods[member].uid.clone();
        self.model.faults.stuck.insert(uid);
    }

    pub(crate) fn leader_name(&self) -> String {
        self.model.raft.leader.clone().expect("a leader")
    }

    /// The voters.
    pub(crate) fn names(&self) -> Vec<String> {
        let voters = self.model.raft.voters();
        let mut names: Vec<String> = voters.map(|view| view.name.clone()).collect();
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
        _: Specification,
    ) -> Result<Option<Observation>, Failure> {
        Ok(Some(match freshness {
            Freshness::Cached => self.world.observe_cached(entropy),
            Freshness::Live => self.world.observe(entropy),
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
            self.world.writes.push(self.world.now_ms());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
