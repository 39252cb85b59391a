//! Autoscalers of node pools, which choose a node only if the PDBs of its pods let these go: one that looks twice, marks the
//! node and evicts once its replacement is there, as Karpenter does, and one that marks and evicts in the same moment, as
//! the cluster autoscaler does. Both delete the node once it is empty.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, label_selector_fits, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::{Drain, none_is_on, same_voters, serving, three};

pub(super) const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "karpenter",
        story: "Karpenter replaces the node of every member, one after the other: it finds the PDB open, and evicts when the operator is ready",
        script: |world| Box::pin(karpenter(world)),
    },
    Scenario {
        name: "karpenter-gate",
        story: "with the policy Gate, Karpenter never chooses the node of a member; the policy is changed, and it does",
        script: |world| Box::pin(gate(world)),
    },
    Scenario {
        name: "cluster-autoscaler",
        story: "the cluster autoscaler removes the node of every member, one after the other, and evicts in the moment in which it marks the node",
        script: |world| Box::pin(cluster_autoscaler(world)),
    },
    Scenario {
        name: "autoscalers-at-once",
        story: "Karpenter and the cluster autoscaler choose the nodes of two members at the same time, and a user drains that of the third",
        script: |world| Box::pin(at_once(world)),
    },
    Scenario {
        name: "autoscaler-no-spare",
        story: "clusters of one and of two, and volumes that stay on their nodes: no node is chosen",
        script: |world| Box::pin(never(world)),
    },
    Scenario {
        name: "autoscaler-alone",
        story: "the operator is away while the PDB is open: two nodes are removed, one after the other, and a quorum serves all the time",
        script: |world| Box::pin(alone(world)),
    },
    Scenario {
        name: "autoscaler-node-lost",
        story: "the node of a member is silent: before Kubernetes notices, the PDB is closed, and no other node is chosen until it is back",
        script: |world| Box::pin(node_lost(world)),
    },
    Scenario {
        name: "autoscaler-amid-changes",
        story: "the cluster autoscaler chooses a node while members are rolled, replaced and grow, and after they hibernated: it waits, and goes on afterwards",
        script: |world| Box::pin(amid_changes(world)),
    },
];

/// How long Karpenter looks before it looks again, and a replacement takes to come.
const KARPENTER: Pace = Pace {
    taint: "karpenter.sh/disrupted",
    validates_ms: 15_000,
    launches_ms: 40_000,
    pause_ms: 5_000,
    patience_ms: u64::MAX,
};

/// The cluster autoscaler evicts at once, again after 10 s, and gives a node up after two minutes.
const CLUSTER_AUTOSCALER: Pace = Pace {
    taint: "ToBeDeletedByClusterAutoscaler",
    validates_ms: 10_000,
    launches_ms: 0,
    pause_ms: 10_000,
    patience_ms: 120_000,
};

/// How an autoscaler goes about a node.
#[derive(Debug)]
struct Pace {
    taint: &'static str,
    validates_ms: u64,
    launches_ms: u64,
    pause_ms: u64,
    patience_ms: u64,
}

#[derive(Debug)]
enum Stage {
    /// It looks whether the pods may be evicted.
    Looks,
    /// They might, at this time: it looks again later.
    Validates(u64),
    /// The node is marked, and its replacement comes at this time.
    Launches(u64),
    /// Since when it evicts, and when it asks next.
    Evicts { since_ms: u64, next_ms: u64 },
    /// The node is gone.
    Done,
}

/// An autoscaler that wants to be rid of a node.
#[derive(Debug)]
struct Autoscaler {
    node: &'static str,
    /// The node that comes in its place, if one does.
    replacement: Option<&'static str>,
    pace: &'static Pace,
    stage: Stage,
    /// How often it chose the node.
    chosen: u32,
    /// Evictions that were refused.
    refused: u32,
}

impl Autoscaler {
    fn karpenter(node: &'static str, replacement: &'static str) -> Self {
        Self::new(node, Some(replacement), &KARPENTER)
    }

    fn cluster_autoscaler(node: &'static str) -> Self {
        Self::new(node, None, &CLUSTER_AUTOSCALER)
    }

    fn new(node: &'static str, replacement: Option<&'static str>, pace: &'static Pace) -> Self {
        Self {
            node,
            replacement,
            pace,
            stage: Stage::Looks,
            chosen: 0,
            refused: 0,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Goes on, if it is time.
    fn turn(&mut self, world: &mut World) {
        let now_ms = world.now_ms();
        match self.stage {
            Stage::Looks if may_go(world, self.node) => self.stage = Stage::Validates(now_ms),
            Stage::Validates(at) if now_ms >= at + self.pace.validates_ms => {
                if !may_go(world, self.node) {
                    self.stage = Stage::Looks;
                    return;
                }
                self.chosen += 1;
                world.containers.kube.mark(self.node, self.pace.taint, true);
                self.stage = Stage::Launches(now_ms + self.pace.launches_ms);
                self.turn(world);
            }
            Stage::Launches(at) if now_ms >= at => {
                if let Some(replacement) = self.replacement {
                    world.containers.kube.add_node(replacement, "zone-1");
                }
                let (since_ms, next_ms) = (now_ms, now_ms);
                self.stage = Stage::Evicts { since_ms, next_ms };
                self.turn(world);
            }
            Stage::Evicts { since_ms, next_ms } if now_ms >= next_ms => {
                self.evict(world, since_ms);
            }
            _ => {}
        }
    }

    fn evict(&mut self, world: &mut World, since_ms: u64) {
        let now_ms = world.now_ms();
        let here = pods_on(world, self.node);
        if here.is_empty() {
            world.containers.kube.node_delete(self.node);
            self.stage = Stage::Done;
            return;
        }
        for pod in here.iter().filter(|pod| !object::is_deleting(pod)) {
            let id = (NAMESPACE, object::name(pod));
            let went = world.api.lock().evict("autoscaler", id, &json!({}));
            self.refused += u32::from(went.is_err());
        }
        let leaves = here.iter().any(|pod| object::is_deleting(pod));
        if !leaves && now_ms >= since_ms.saturating_add(self.pace.patience_ms) {
            world
                .containers
                .kube
                .mark(self.node, self.pace.taint, false);
            self.stage = Stage::Looks;
            return;
        }
        let next_ms = now_ms + self.pace.pause_ms;
        self.stage = Stage::Evicts { since_ms, next_ms };
    }
}

fn pods_on(world: &World, node: &str) -> Vec<std::sync::Arc<Value>> {
    let api = world.api.lock();
    let here = api.all(Kind::Pod);
    let here = here.filter(|pod| object::text(pod, &["spec", "nodeName"]) == node);
    here.cloned().collect()
}

/// Whether an autoscaler would choose this node: the PDB of each of its pods allows a disruption, by its status alone.
fn may_go(world: &World, node: &str) -> bool {
    let here = pods_on(world, node);
    let api = world.api.lock();
    here.iter().all(|pod| {
        let mut over = api.all(Kind::PodDisruptionBudget).filter(|pdb| {
            object::namespace(pdb) == object::namespace(pod)
                && label_selector_fits(&pdb["spec"]["selector"], pod)
        });
        over.all(|pdb| object::number(pdb, &["status", "disruptionsAllowed"]).unwrap_or(0) > 0)
    })
}

/// Half a second passes, in which no more than one voter may be down.
async fn moment(world: &mut World) -> Result<(), Failure> {
    let (mut fewest, end_ms) = (None, world.now_ms() + 500);
    world
        .until("a moment passes", 60_000, |world, truth| {
            let (serve, voters) = serving(truth);
            if serve + 1 < voters {
                fewest.get_or_insert((serve, voters));
            }
            world.now_ms() >= end_ms
        })
        .await?;
    match fewest {
        None => Ok(()),
        Some((serve, voters)) => Err(world.unexpected(format!(
            "{serve} of {voters} voters serve while nodes are removed"
        ))),
    }
}

/// Until every node is gone.
async fn go_on(world: &mut World, scalers: &mut [Autoscaler]) -> Result<(), Failure> {
    let end_ms = world.now_ms() + SOON_MS;
    while scalers.iter().any(|scaler| !scaler.is_done()) {
        if world.now_ms() >= end_ms {
            return Err(world.unexpected(format!("the nodes are not gone: {scalers:?}")));
        }
        scalers.iter_mut().for_each(|scaler| scaler.turn(world));
        moment(world).await?;
    }
    Ok(())
}

/// For so long no node may be chosen.
async fn in_vain(world: &mut World, scaler: &mut Autoscaler, ms: u64) -> Result<(), Failure> {
    let end_ms = world.now_ms() + ms;
    while world.now_ms() < end_ms {
        scaler.turn(world);
        if scaler.chosen > 0 {
            return Err(world.unexpected(format!("{} was chosen", scaler.node)));
        }
        moment(world).await?;
    }
    Ok(())
}

async fn karpenter(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    for (node, replacement) in [
        ("node-a", "node-d"),
        ("node-b", "node-e"),
        ("node-c", "node-f"),
    ] {
        let mut all = [Autoscaler::karpenter(node, replacement)];
        go_on(world, &mut all).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
    }
    same_voters(world, &before)
}

async fn gate(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["disruption"] = json!({"policy": "Gate"});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    let before = user::uids(world, Kind::Pod);
    let mut scaler = Autoscaler::karpenter("node-a", "node-d");
    in_vain(world, &mut scaler, 600_000).await?;
    user::edit(world, "demo", &json!({"disruption": {"policy": "Auto"}}));
    world.settle(SOON_MS).await?;
    if user::uids(world, Kind::Pod) != before {
        return Err(world.unexpected("a change of the policy restarted a member"));
    }
    go_on(world, &mut [scaler]).await?;
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-a")
}

async fn cluster_autoscaler(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    for (node, spare) in [
        ("node-a", "node-d"),
        ("node-b", "node-e"),
        ("node-c", "node-f"),
    ] {
        world.containers.kube.add_node(spare, "zone-1");
        go_on(world, &mut [Autoscaler::cluster_autoscaler(node)]).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
    }
    same_voters(world, &before)
}

async fn at_once(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    for node in ["node-d", "node-e", "node-f"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    let mut all = [
        Autoscaler::cluster_autoscaler("node-a"),
        Autoscaler::karpenter("node-b", "node-g"),
    ];
    // Until one of both has chosen a node.
    while all.iter().all(|scaler| scaler.chosen == 0) {
        all.iter_mut().for_each(|scaler| scaler.turn(world));
        moment(world).await?;
    }
    let mut drain = Drain::begin(world, "node-c");
    let end_ms = world.now_ms() + SOON_MS;
    while !drain.turn(world) || all.iter().any(|scaler| !scaler.is_done()) {
        if world.now_ms() >= end_ms {
            return Err(world.unexpected(format!("not through: {all:?}, {:?}", drain.left)));
        }
        all.iter_mut().for_each(|scaler| scaler.turn(world));
        moment(world).await?;
    }
    world.settle(SOON_MS).await?;
    for node in ["node-a", "node-b", "node-c"] {
        none_is_on(world, node)?;
    }
    same_voters(world, &before)
}

async fn never(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    world.containers.kube.add_node("node-d", "zone-1");
    let mut spec = user::spec(3);
    spec["storage"]["storageClassName"] = json!("local");
    user::create(world, "demo", &spec);
    for replicas in [3, 2, 1] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
        let voter = user::voters(world).remove(0);
        let node = user::node_of(world, &voter);
        let nodes = ["node-a", "node-b", "node-c", "node-d"];
        let Some(node) = nodes.into_iter().find(|name| *name == node) else {
            return Err(world.unexpected(format!("{voter} is on {node}")));
        };
        let mut scaler = Autoscaler::cluster_autoscaler(node);
        in_vain(world, &mut scaler, 120_000).await?;
    }
    Ok(())
}

async fn alone(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    world.stop_operators();
    for node in ["node-a", "node-b"] {
        go_on(world, &mut [Autoscaler::cluster_autoscaler(node)]).await?;
    }
    world.start_operator("operator-2");
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-a")?;
    none_is_on(world, "node-b")?;
    same_voters(world, &before)
}

async fn node_lost(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.node_down("node-b");
    // Kubernetes notices after 40 s; until then it counts the member as available.
    world.pass_ms(20_000).await?;
    let mut scaler = Autoscaler::cluster_autoscaler("node-a");
    in_vain(world, &mut scaler, 70_000).await?;
    world.containers.kube.node_up("node-b");
    world.settle(SOON_MS).await?;
    go_on(world, &mut [scaler]).await?;
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-a")?;
    same_voters(world, &before)
}

async fn amid_changes(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    for node in ["node-d", "node-e", "node-f"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    let replaced = user::follower(world);
    let label = json!({"podTemplate": {"metadata": {"labels": {"a": "b"}}}});
    let changes = [
        (label, "node-a"),
        (json!({"replaceMembers": [replaced]}), "node-b"),
        (json!({"replicas": 5}), "node-c"),
    ];
    for (change, node) in changes {
        user::edit(world, "demo", &change);
        let mut all = [Autoscaler::cluster_autoscaler(node)];
        go_on(world, &mut all).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
    }
    user::edit(world, "demo", &json!({"replicas": 0}));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.containers.kube.add_node("node-g", "zone-1");
    world.containers.kube.add_node("node-h", "zone-1");
    world.settle(SOON_MS).await?;
    go_on(world, &mut [Autoscaler::cluster_autoscaler("node-d")]).await?;
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-d")
}
