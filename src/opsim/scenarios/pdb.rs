//! Evictions that are counted: `disruption.policy: Budget`. Drains and evictions take whatever the
//! PDB lets them, without asking an operator, and never so many that the others have no quorum.

use serde_json::json;

use crate::crd::pod_name;
use crate::opsim::api::Kind;
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::{Drain, action, finish, none_is_on, same_voters, serving};

pub(super) const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "pdb-drain",
        story: "evictions are counted: every member's node is drained, one after the other, and then one is only cordoned; what the operator itself lets go it evicts",
        script: |world| Box::pin(drain_each(world)),
    },
    Scenario {
        name: "pdb-two-drains",
        story: "evictions are counted: the nodes of two of three members are drained at once, then of three of five; never more are down than a quorum can spare",
        script: |world| Box::pin(drain_many(world)),
    },
    Scenario {
        name: "pdb-switch",
        story: "evictions are held, then counted, then held, each time at another point of a move, and asked for all the time",
        script: |world| Box::pin(switched(world)),
    },
    Scenario {
        name: "pdb-grow-shrink",
        story: "evictions are counted while a cluster has a member replaced, grows and shrinks, and all are asked for at each size",
        script: |world| Box::pin(grow_and_shrink(world)),
    },
    Scenario {
        name: "pdb-sleeps",
        story: "evictions are counted, and the cluster hibernates and wakes with another size: no PDB is asked",
        script: |world| Box::pin(sleeps(world)),
    },
    Scenario {
        name: "pdb-pool",
        story: "evictions are counted, volumes stay on their nodes, and an autoscaler drains a node and deletes it: its member is replaced",
        script: |world| Box::pin(pool(world)),
    },
];

async fn counted(world: &mut World, replicas: u32, class: &str) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(replicas);
    spec["storage"]["storageClassName"] = json!(class);
    spec["disruption"] = json!({"policy": "Budget"});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await
}

/// How often the operators deleted and evicted pods.
fn let_go(world: &World) -> (usize, usize) {
    let ledger = lock(&world.ledger);
    let count = |is: &dyn Fn(&str) -> bool| ledger.log.iter().filter(|(_, word)| is(word)).count();
    (
        count(&|word| word.starts_with("DELETE pods/")),
        count(&|word| word.starts_with("POST pods/") && word.contains("/eviction")),
    )
}

async fn drain_each(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    for node in ["node-a", "node-b", "node-c"] {
        let drain = Drain::begin(world, node);
        if drain.left.is_empty() {
            return Err(world.unexpected(format!("there is no member on {node}")));
        }
        finish(world, vec![drain], 1).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
        world.containers.kube.cordon(node, false);
        world.settle(SOON_MS).await?;
    }
    let leader = user::leader(world).unwrap_or_default();
    let node = user::node_of(world, &leader);
    world.containers.kube.cordon(&node, true);
    world.settle(SOON_MS).await?;
    none_is_on(world, &node)?;
    match let_go(world) {
        (0, evicted) if evicted > 0 => same_voters(world, &before),
        (deleted, evicted) => Err(world.unexpected(format!(
            "the operator deleted {deleted} pods and evicted {evicted}"
        ))),
    }
}

async fn drain_many(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "standard").await?;
    for node in ["node-d", "node-e", "node-f", "node-g", "node-h"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    for (replicas, many, spare) in [(3, 2, 1), (5, 3, 2)] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
        let nodes = user::voters(world).into_iter().take(many);
        let nodes: Vec<String> = nodes.map(|name| user::node_of(world, &name)).collect();
        let drains = nodes.iter().map(|node| Drain::begin(world, node)).collect();
        finish(world, drains, spare).await?;
        world.settle(SOON_MS).await?;
        for node in &nodes {
            none_is_on(world, node)?;
            world.containers.kube.cordon(node, false);
        }
        world.settle(SOON_MS).await?;
    }
    Ok(())
}

/// Asks for the eviction of every member, by names alone.
fn evict_all(world: &World) {
    for member in user::voters(world) {
        let pod = pod_name(&member);
        let api = world.api.clone();
        drop(
            api.lock()
                .evict("autoscaler", (NAMESPACE, &pod), &json!({})),
        );
    }
}

/// Somebody asks for every eviction again and again for so long; a quorum serves all the time.
async fn asked(world: &mut World, ms: u64) -> Result<(), Failure> {
    let (mut next_ms, end_ms) = (0, world.now_ms() + ms);
    let mut fewest = None;
    world
        .until("time passes", ms + 60_000, |world, truth| {
            let (serve, voters) = serving(truth);
            if serve < voters / 2 + 1 {
                fewest.get_or_insert((serve, voters));
            }
            if world.now_ms() >= next_ms {
                evict_all(world);
                next_ms = world.now_ms() + 5_000;
            }
            world.now_ms() >= end_ms
        })
        .await?;
    match fewest {
        None => Ok(()),
        Some((serve, voters)) => {
            Err(world.unexpected(format!("evictions left {serve} of {voters} voters")))
        }
    }
}

async fn switched(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    let points = [
        ("Move Released", "Gate"),
        ("Move Evictable", "Budget"),
        ("Retire Retire", "Gate"),
        ("Retire Retire", "Budget"),
    ];
    for (at, from) in points {
        user::edit(world, "demo", &json!({"disruption": {"policy": from}}));
        world.settle(SOON_MS).await?;
        let node = user::node_of(world, &user::follower(world));
        world.containers.kube.cordon(&node, true);
        world
            .until(at, 120_000, |world, _| {
                action(world) == at || none_is_on(world, &node).is_ok()
            })
            .await?;
        let to = if from == "Gate" { "Budget" } else { "Gate" };
        user::edit(world, "demo", &json!({"disruption": {"policy": to}}));
        asked(world, 30_000).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, &node)?;
        world.containers.kube.cordon(&node, false);
        world.settle(SOON_MS).await?;
    }
    same_voters(world, &before)
}

async fn grow_and_shrink(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    let replaced = user::follower(world);
    user::edit(world, "demo", &json!({"replaceMembers": [replaced]}));
    world.settle(SOON_MS).await?;
    for replicas in [5, 4, 1, 2, 3] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        asked(world, 15_000).await?;
        world.settle(SOON_MS).await?;
    }
    Ok(())
}

async fn sleeps(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "standard").await?;
    for replicas in [0, 1, 0, 3] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
    }
    user::edit(world, "demo", &json!({"paused": true}));
    world.settle(SOON_MS).await?;
    user::delete(world, Kind::Pod, &pod_name(&user::follower(world)));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"paused": false}));
    world.settle(SOON_MS).await
}

async fn pool(world: &mut World) -> Result<(), Failure> {
    counted(world, 3, "local").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    let on_it = |name: &&String| user::node_of(world, name) == "node-b";
    let victim = before.iter().find(on_it).cloned().unwrap_or_default();
    faults::disk_is_doomed(world, &victim);
    let drain = Drain::begin(world, "node-b");
    finish(world, vec![drain], 1).await?;
    world.containers.kube.node_delete("node-b");
    world.settle(SOON_MS).await?;
    none_is_on(world, "node-b")?;
    let now = user::voters(world);
    let kept = now.iter().filter(|name| before.contains(name)).count();
    if kept == 2 {
        return Ok(());
    }
    Err(world.unexpected(format!("the voters were {before:?} and are {now:?}")))
}
