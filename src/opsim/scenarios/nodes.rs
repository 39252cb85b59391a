//! Nodes that go away: cordoned and drained as `kubectl drain` does it, by the names of pods, again
//! and again; with volumes that follow and volumes that do not; and lost without a drain.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::ground_truth::GroundTruth;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "drain-move",
        story: "every member's node is drained, one after the other, and the volumes can follow: the same members move",
        script: |world| Box::pin(drain_each(world, "standard")),
    },
    Scenario {
        name: "drain-replace",
        story: "every member's node is drained, one after the other, and the volumes stay: each member is replaced first",
        script: |world| Box::pin(drain_each(world, "local")),
    },
    Scenario {
        name: "drain-two-at-once",
        story: "the nodes of two members are drained at once: one drain waits for the other",
        script: |world| Box::pin(drain_two(world, "standard")),
    },
    Scenario {
        name: "drain-two-at-once-local",
        story: "as drain-two-at-once, with volumes that stay on their nodes",
        script: |world| Box::pin(drain_two(world, "local")),
    },
    Scenario {
        name: "drain-no-spare",
        story: "a node is drained and there is no other one: the drain is held, and the status reports what would help",
        script: |world| Box::pin(drain_no_spare(world)),
    },
    Scenario {
        name: "cordon-taken-back",
        story: "a cordon is taken back at each point of a move and of a replacement: what was begun is ended",
        script: |world| Box::pin(cordon_taken_back(world)),
    },
    Scenario {
        name: "cordon-alone",
        story: "a node is cordoned and not drained: its member moves all the same",
        script: |world| Box::pin(cordon_alone(world)),
    },
    Scenario {
        name: "drained-node-lost",
        story: "a node is lost while it is drained, first for a reboot, then for good",
        script: |world| Box::pin(drained_node_lost(world)),
    },
];

/// A drain as `kubectl drain` does it: it looks once which pods are there, and then asks for each
/// by its name, with a pause, until the pod that it asked for last is gone. That another pod has
/// taken the name in the meantime it does not notice by itself.
pub(super) struct Drain {
    node: String,
    /// Name and UID of the pods that are still there, and whether the eviction went through.
    pub(super) left: Vec<(String, String, bool)>,
    next_ms: u64,
}

/// The pause of `kubectl drain` after a refused eviction.
const PAUSE_MS: u64 = 5_000;

fn uid_of(world: &World, pod: &str) -> Option<String> {
    let found = world.api.lock().get(Kind::Pod, NAMESPACE, pod)?;
    Some(object::uid(&found).to_owned())
}

impl Drain {
    pub(super) fn begin(world: &mut World, node: &str) -> Self {
        world.containers.kube.cordon(node, true);
        let api = world.api.clone();
        let api = api.lock();
        let here = api
            .all(Kind::Pod)
            .filter(|pod| object::text(pod, &["spec", "nodeName"]) == node);
        let pod = |pod: &std::sync::Arc<Value>| {
            (
                object::name(pod).to_owned(),
                object::uid(pod).to_owned(),
                false,
            )
        };
        Self {
            node: node.to_owned(),
            left: here.map(pod).collect(),
            next_ms: 0,
        }
    }

    /// Asks where it is time. Returns whether nothing is left.
    pub(super) fn turn(&mut self, world: &World) -> bool {
        let now_ms = world.now_ms();
        let asks = now_ms >= self.next_ms;
        self.left.retain_mut(|(pod, uid, evicted)| {
            let found = uid_of(world, pod);
            if *evicted {
                return found.as_deref() == Some(uid.as_str());
            }
            if !asks {
                return true;
            }
            let Some(found) = found else { return false };
            *uid = found;
            let api = world.api.clone();
            *evicted = api
                .lock()
                .evict("user", (NAMESPACE, pod), &json!({}))
                .is_ok();
            true
        });
        if asks {
            self.next_ms = now_ms + PAUSE_MS;
        }
        self.left.is_empty()
    }
}

/// A cluster of three members whose volumes are of this class.
pub(super) async fn three(world: &mut World, class: &str) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["storage"]["storageClassName"] = json!(class);
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await
}

/// Voters that serve, of all of them.
pub(super) fn serving(truth: &GroundTruth) -> (usize, usize) {
    let mut clusters = truth.clusters.values();
    clusters
        .find(|cluster| cluster.exists)
        .map_or((0, 0), |cluster| (cluster.serving(), cluster.voters.len()))
}

/// Drains go on until they are through; no more than so many voters may be down meanwhile.
pub(super) async fn finish(
    world: &mut World,
    mut drains: Vec<Drain>,
    down: usize,
) -> Result<(), Failure> {
    let mut fewest = None;
    let what = "the drains are through".to_owned();
    world
        .until(&what, SOON_MS, |world, truth| {
            let (serve, voters) = serving(truth);
            if serve + down < voters {
                fewest.get_or_insert((serve, voters));
            }
            drains.retain_mut(|drain| !drain.turn(world));
            drains.is_empty()
        })
        .await?;
    match fewest {
        Some((serve, voters)) => Err(world.unexpected(format!(
            "{serve} of {voters} voters serve while a node is drained"
        ))),
        None => Ok(()),
    }
}

pub(super) fn none_is_on(world: &World, node: &str) -> Result<(), Failure> {
    let on = |member: &String| user::node_of(world, member) == node;
    match user::voters(world).into_iter().find(on) {
        Some(member) => Err(world.unexpected(format!("{member} is still on {node}"))),
        None => Ok(()),
    }
}

pub(super) fn same_voters(world: &World, before: &[String]) -> Result<(), Failure> {
    let now = user::voters(world);
    if now == before {
        return Ok(());
    }
    Err(world.unexpected(format!("the voters were {before:?} and are {now:?}")))
}

async fn drain_each(world: &mut World, class: &str) -> Result<(), Failure> {
    three(world, class).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    // With volumes that stay no member is down at any time; one that moves is for a moment.
    let down = usize::from(class == "standard");
    for node in ["node-a", "node-b", "node-c"] {
        let drain = Drain::begin(world, node);
        if drain.left.is_empty() {
            return Err(world.unexpected(format!("there is no member on {}", drain.node)));
        }
        finish(world, vec![drain], down).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
        world.containers.kube.cordon(node, false);
        world.settle(SOON_MS).await?;
    }
    if class == "standard" {
        return same_voters(world, &before);
    }
    let kept = user::voters(world)
        .into_iter()
        .find(|name| before.contains(name));
    match kept {
        Some(name) => Err(world.unexpected(format!("{name} was not replaced"))),
        None => Ok(()),
    }
}

async fn drain_two(world: &mut World, class: &str) -> Result<(), Failure> {
    three(world, class).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    let nodes = ["node-a", "node-b"];
    let drains = nodes.map(|node| Drain::begin(world, node)).into();
    finish(world, drains, usize::from(class == "standard")).await?;
    world.settle(SOON_MS).await?;
    for node in nodes {
        none_is_on(world, node)?;
    }
    Ok(())
}

async fn drain_no_spare(world: &mut World) -> Result<(), Failure> {
    three(world, "local").await?;
    let before = user::configuration(world);
    let mut drain = Drain::begin(world, "node-b");
    let (writes, began) = (world.writes(), world.now_ms());
    world
        .until("five minutes pass", 400_000, |world, _| {
            drain.turn(world);
            world.now_ms() > began + 300_000
        })
        .await?;
    if drain.left.iter().any(|(_, _, evicted)| *evicted) || world.writes() != writes {
        return Err(world.unexpected("something was done"));
    }
    let step = user::status(world, "demo")["step"].clone();
    if user::configuration(world) != before || step["reason"] != "NoSpareNode" {
        return Err(world.unexpected(format!("the step is {step}")));
    }
    world.containers.kube.add_node("node-d", "zone-1");
    finish(world, vec![drain], 0).await?;
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-b")
}

pub(super) fn action(world: &World) -> String {
    let step = user::status(world, "demo")["step"].clone();
    let word = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", word("action"), word("reason"))
}

async fn cordon_taken_back(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    for at in [
        "Retire Retire",
        "Move HandOver",
        "Move Released",
        "DeletePod DeletePod",
    ] {
        taken_back_at(world, at).await?;
        same_voters(world, &before)?;
    }
    user::edit(
        world,
        "demo",
        &json!({"disruption": {"nodeReplacement": "AddFirst"}}),
    );
    for at in [
        "CreatePVC CreatePVC",
        "AddLearner AddLearner",
        "Promote Promote",
    ] {
        taken_back_at(world, at).await?;
    }
    Ok(())
}

/// Cordons a follower's node until its leave has come so far, and then no more.
async fn taken_back_at(world: &mut World, at: &str) -> Result<(), Failure> {
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.cordon(&node, true);
    world
        .until(at, 120_000, |world, _| reached(world, at, &node))
        .await?;
    world.containers.kube.cordon(&node, false);
    world.settle(SOON_MS).await
}

/// Whether a leave has come so far. An operator that ends right after the step never reports it: then
/// no member is left on the node in the end.
fn reached(world: &World, at: &str, node: &str) -> bool {
    action(world) == at || none_is_on(world, node).is_ok()
}

async fn cordon_alone(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    let leader = user::leader(world).unwrap_or_default();
    let node = user::node_of(world, &leader);
    world.containers.kube.cordon(&node, true);
    world.settle(SOON_MS).await?;
    none_is_on(world, &node)?;
    same_voters(world, &before)
}

async fn drained_node_lost(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let (before, node) = (user::voters(world), "node-b");
    // No other node is open: the drain is held, and the node reboots under it.
    world.containers.kube.cordon("node-d", true);
    let mut drain = Drain::begin(world, node);
    world.pass_ms(20_000).await?;
    drain.turn(world);
    world.containers.kube.node_down(node);
    world.pass_ms(60_000).await?;
    world.containers.kube.node_up(node);
    world.settle(SOON_MS).await?;
    same_voters(world, &before)?;
    world.containers.kube.node_down(node);
    world.pass_ms(200_000).await?;
    world.containers.kube.cordon("node-d", false);
    world.pass_ms(60_000).await?;
    world.containers.kube.node_delete(node);
    world.settle(SOON_MS).await?;
    none_is_on(world, node)
}
