//! A small world for the planner: the model of actions, a user who writes the resource, and faults. It refuses what the
//! real components must never be asked for.

mod act;
mod alarmed;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use crate::crd::{
    Adopt, Bootstrap, DisruptionPolicy, EtcdClusterSpec, EtcdClusterStatus, RecoveryPhase, TlsPort,
    ValidatedCluster, pvc_name,
};
use crate::model::Model;
use crate::plan::status_memory;
use crate::plan::testing::observed_at;
use crate::plan::*;

pub(super) use alarmed::roomy;

pub(super) const CLUSTER_UID: &str = "c1a5-0000";
/// Of the resource and of its members at first, whatever this build's is: the golden texts have it.
const FIRST_VERSION: &str = "0.1.0";
const SECOND: u64 = 1000;

#[derive(Clone, Debug)]
pub(super) struct World {
    model: Model,
    /// The resource as its user last wrote it.
    pub(super) cluster: ValidatedCluster,
    pub(super) status: EtcdClusterStatus,
    /// Slots are Kubernetes' alone.
    pub(super) has_slots: bool,
    /// The inputs of certificates.
    pub(super) names: String,
    /// The issuer of earlier certificates is not recorded.
    pub(super) forgotten: bool,
    /// How often the resource was deleted.
    deletions: u32,
}

/// What is in the model can be seen, and broken, by every test.
impl Deref for World {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Model {
        &mut self.model
    }
}

impl World {
    pub(super) fn new(replicas: i32) -> World {
        let mut spec = EtcdClusterSpec {
            replicas,
            ..EtcdClusterSpec::default()
        };
        spec.storage.size = "1Gi".into();
        spec.version = FIRST_VERSION.into();
        // Those that are about another policy set it.
        spec.disruption.policy = DisruptionPolicy::Gate;
        let cluster = ValidatedCluster {
            namespace: "default".into(),
            name: "demo".into(),
            uid: CLUSTER_UID.into(),
            life: CLUSTER_UID.into(),
            generation: 1,
            spec,
            storage_bytes: 1 << 30,
        };
        World {
            model: nothing_yet(&cluster),
            cluster,
            status: EtcdClusterStatus::default(),
            has_slots: true,
            names: "names-1".into(),
            forgotten: false,
            deletions: 0,
        }
    }

    pub(super) fn observe(&self) -> Observed {
        let mut observed = self.model.observe();
        self.rendered().put_into(&mut observed);
        observed
    }

    /// What the resource is rendered to now, and what the status remembers.
    fn rendered(&self) -> Rendered {
        let slots = if self.has_slots {
            self.cluster.target()
        } else {
            0
        };
        let url = |slot| format!("http://demo-client-{slot}.default.svc:2379");
        Rendered {
            cluster: self.cluster.clone(),
            objects: self.wanted_objects(),
            slots: (0..slots).map(url).collect(),
            certificates: self.wanted_certificates(),
            signers: self.signers(),
            status: self.status.clone(),
        }
    }

    fn render(&mut self) {
        self.rendered().put_into(&mut self.model.api);
    }

    fn wanted_objects(&self) -> BTreeMap<ObjectKey, String> {
        let pdb = match self.cluster.spec.disruption.policy {
            DisruptionPolicy::Gate => "objects-1",
            DisruptionPolicy::Budget => "objects-2",
            DisruptionPolicy::Auto => "objects-3",
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

    /// A second passes.
    pub(super) fn tick(&mut self) {
        self.render();
        self.model.advance(SECOND);
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
        self.report_recoveries(&plan);
        self.tick();
        plan
    }

    /// What the status of each EtcdRecovery says from now on.
    fn report_recoveries(&mut self, plan: &Plan) {
        for report in &plan.recoveries {
            let mut all = self.model.api.recoveries.iter_mut();
            let Some(known) = all.find(|known| known.name == report.name) else {
                continue;
            };
            match report.phase {
                _ if known.recovered || known.refused.is_some() => {}
                RecoveryPhase::Refused => known.refused = Some(report.message.clone()),
                RecoveryPhase::Pending => {}
                phase => {
                    known.begun = true;
                    known.recovered = phase == RecoveryPhase::Recovered;
                }
            }
        }
    }

    /// An operator executes only a step that it planned twice, and time passes in between: a step that contains the
    /// time of its plan would never be executed. (One did, and a drain waited forever; only the real cluster showed
    /// it.)
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

    /// Cordons a node, or uncordons it.
    pub(super) fn cordon(&mut self, node: &str, cordoned: bool) {
        let facts = self.api.nodes.get_mut(node).expect("a node");
        facts.drain_reason = cordoned.then(|| "is cordoned".into());
        facts.closed = cordoned || facts.unselected;
    }

    pub(super) fn node_of(&self, member: &str) -> String {
        let pod = self.api.pods.get(member);
        pod.and_then(|pod| pod.node.clone()).unwrap_or_default()
    }

    pub(super) fn voters(&self) -> usize {
        self.raft.voters().count()
    }

    /// Pod and volume are lost; the set makes a new pod, which finds no PVC.
    pub(super) fn lose_pvc(&mut self, member: &str) {
        let pvc = pvc_name(member, CLUSTER_UID);
        self.api.pvcs.remove(&pvc);
        self.disks.remove(&pvc);
        self.api.pods.remove(member);
    }

    /// The volume comes back empty under the same PVC, on any node.
    pub(super) fn lose_disk(&mut self, member: &str) {
        let pvc = pvc_name(member, CLUSTER_UID);
        self.disks.remove(&pvc);
        if let Some(facts) = self.api.pvcs.get_mut(&pvc) {
            facts.bound = false;
            facts.nodes = None;
        }
        self.api.pods.remove(member);
    }

    /// Whether members have used volumes that are there.
    pub(super) fn may_adopt(&self) -> bool {
        let used = |pvc: &PvcFacts| pvc.state == PvcState::Joined && !pvc.terminating;
        self.api.pvcs.values().any(used)
    }

    /// The resource is deleted, and another one of its name adopts its volumes, which stay.
    pub(super) fn adopt(&mut self) {
        self.deletions += 1;
        self.cluster.uid = format!("c2a5-{:04}", self.deletions);
        self.cluster.spec.bootstrap = Some(Bootstrap {
            adopt: Some(Adopt {
                cluster_uid: CLUSTER_UID.into(),
            }),
            ..Bootstrap::default()
        });
        self.status = EtcdClusterStatus::default();
        let api = &mut self.model.api;
        api.identity_secret = None;
        (api.sets, api.pods, api.slots) = Default::default();
        (api.tls.secrets, api.tls.rotate) = Default::default();
        self.lose_objects();
        self.tick();
    }

    /// All objects that are not a member's are gone, including the PDB.
    pub(super) fn lose_objects(&mut self) {
        self.api.objects.clear();
        self.api.pdb = None;
    }

    /// The PDB's number is edited.
    pub(super) fn set_min_available(&mut self, min_available: u32) {
        let pdb = self.api.pdb.as_mut().expect("a PDB");
        pdb.limit = Some(PdbLimit::MinAvailable(min_available));
    }
}

/// What follows from the resource and its status.
struct Rendered {
    cluster: ValidatedCluster,
    objects: BTreeMap<ObjectKey, String>,
    slots: Vec<String>,
    certificates: BTreeMap<TlsPort, String>,
    signers: BTreeMap<String, BTreeSet<String>>,
    status: EtcdClusterStatus,
}

impl Rendered {
    fn put_into(self, o: &mut Observed) {
        o.cluster = Ok(self.cluster);
        o.wanted_objects = self.objects;
        o.slot_endpoints = self.slots;
        o.tls.wanted = self.certificates;
        o.tls.signers = self.signers;
        o.status_memory = status_memory::of_status(&self.status);
        o.status_incarnation = status_memory::incarnation(&self.status);
        o.status_cluster_id = self.status.cluster_id;
    }
}

/// Five nodes, and nothing of the cluster.
fn nothing_yet(cluster: &ValidatedCluster) -> Model {
    let mut seen = observed_at(1_000_000 * SECOND);
    let node = NodeFacts {
        ready: true,
        ..NodeFacts::default()
    };
    let nodes = ["node-a", "node-b", "node-c", "node-d", "node-e"];
    seen.nodes = nodes.map(|name| (name.to_owned(), node.clone())).into();
    seen.entropy = "n0".into();
    seen.cluster = Ok(cluster.clone());
    seen.client_endpoint = "http://demo-client.default.svc:2379".into();
    seen.wanted_slot_inputs = "slot-1".into();
    seen.wanted_inputs = "spec-1".into();
    let mut model = Model::of(&seen);
    model.pace.catch_up = 1_000_000;
    model.pace.carried_ms = 30 * SECOND;
    model.version = FIRST_VERSION.into();
    model.readable_since = Some(FIRST_VERSION.into());
    model.health.space = roomy();
    model.health.compares = true;
    // Golden texts contain some of the generated names.
    model.last = 0;
    model
}
