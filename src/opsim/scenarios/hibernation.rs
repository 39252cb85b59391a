//! Clusters that are put to sleep with `replicas: 0`, at any moment, and wake.

use serde_json::json;

use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::ground_truth::GroundTruth;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

/// Longer than any patience of the specification.
const LONG_MS: u64 = 1_000_000;

pub(super) const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "sleeps-and-wakes",
        story: "replicas 0: nothing runs, and nothing is written; then the same members wake on their disks, with another template",
        script: |world| Box::pin(sleeps_and_wakes(world)),
    },
    Scenario {
        name: "sleeps-half-way",
        story: "replicas 0 at moments of growing, rolling and replacing; each time it wakes, and what was asked for comes about",
        script: |world| Box::pin(sleeps_half_way(world)),
    },
    Scenario {
        name: "made-asleep",
        story: "a cluster is made with replicas 0: nothing of it is made before it is to run",
        script: |world| Box::pin(made_asleep(world)),
    },
    Scenario {
        name: "sleeps-on-a-drained-node",
        story: "replicas 0 while a node is drained, and paused for a while: it wakes on other nodes",
        script: |world| Box::pin(on_a_drained_node(world)),
    },
    Scenario {
        name: "disks-lost-in-sleep",
        story: "a volume is lost while it sleeps: its member is replaced after waking; of two of three it is reported that data may be lost",
        script: |world| Box::pin(disks_lost(world)),
    },
];

async fn made(world: &mut World, replicas: u32) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    world.settle(SOON_MS).await
}

fn scale(world: &mut World, replicas: u32) {
    user::edit(world, "demo", &json!({"replicas": replicas}));
}

/// Names and UIDs of the PVCs.
fn pvcs(world: &World) -> Vec<String> {
    let all = user::objects(world, Kind::PersistentVolumeClaim);
    all.iter()
        .map(|pvc| format!("{} {}", object::name(pvc), object::uid(pvc)))
        .collect()
}

async fn sleeps_and_wakes(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    let (before, disks) = (user::configuration(world), pvcs(world));
    scale(world, 0);
    world.settle(SOON_MS).await?;
    let writes = world.writes();
    world.pass_ms(LONG_MS).await?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done while it sleeps"));
    }
    let change = json!({"replicas": 3, "podTemplate": {"metadata": {"labels": {"team": "night"}}}});
    user::edit(world, "demo", &change);
    user::roll(world, "demo").await?;
    user::unchanged(world, before)?;
    if pvcs(world) != disks {
        return Err(world.unexpected("the volumes are not those of before"));
    }
    Ok(())
}

async fn sleeps_half_way(world: &mut World) -> Result<(), Failure> {
    made(world, 1).await?;
    for (replicas, ms) in [(3, 1_500), (5, 4_000), (3, 2_500)] {
        scale(world, replicas);
        world.pass_ms(ms).await?;
        scale(world, 0);
        world.settle(SOON_MS).await?;
        world.pass_ms(LONG_MS).await?;
        scale(world, replicas);
        world.settle(SOON_MS).await?;
    }
    let named = user::follower(world);
    user::edit(world, "demo", &json!({"replaceMembers": [named]}));
    world.pass_ms(5_000).await?;
    scale(world, 0);
    // They change their mind before everybody sleeps, and once more.
    world.pass_ms(300).await?;
    scale(world, 3);
    world.pass_ms(700).await?;
    scale(world, 0);
    world.settle(SOON_MS).await?;
    user::edit(
        world,
        "demo",
        &json!({"replicas": 3, "resources": {"requests": {"cpu": "100m"}}}),
    );
    user::roll(world, "demo").await?;
    // Who followed is by chance, and the specification would end with that name.
    user::edit(world, "demo", &json!({"replaceMembers": []}));
    world.settle(SOON_MS).await
}

async fn made_asleep(world: &mut World) -> Result<(), Failure> {
    made(world, 0).await?;
    let some = [Kind::Secret, Kind::StatefulSet, Kind::PersistentVolumeClaim]
        .into_iter()
        .find(|kind| !user::objects(world, *kind).is_empty());
    if let Some(kind) = some {
        return Err(world.unexpected(format!("a {} was made", kind.name())));
    }
    scale(world, 3);
    world.settle(SOON_MS).await
}

async fn on_a_drained_node(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let (before, node) = (
        user::voters(world),
        user::node_of(world, &user::follower(world)),
    );
    world.containers.kube.cordon(&node, true);
    world.pass_ms(6_000).await?;
    scale(world, 0);
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"paused": true, "replicas": 3}));
    world.pass_ms(60_000).await?;
    if !user::objects(world, Kind::Pod).is_empty() {
        return Err(world.unexpected("it woke although it is paused"));
    }
    user::edit(world, "demo", &json!({"paused": false}));
    world.settle(SOON_MS).await?;
    let now = user::voters(world);
    let on = |member: &String| user::node_of(world, member) == node;
    match now.iter().find(|member| on(member)) {
        Some(member) => Err(world.unexpected(format!("{member} is on {node}"))),
        None if now != before => Err(world.unexpected(format!("{before:?} became {now:?}"))),
        None => Ok(()),
    }
}

async fn disks_lost(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    scale(world, 0);
    world.settle(SOON_MS).await?;
    let lost = user::voters(world).remove(0);
    faults::sleepers_pvc_is_deleted(world, &lost);
    world.pass_ms(20_000).await?;
    scale(world, 3);
    world.settle(SOON_MS).await?;
    if user::voters(world).contains(&lost) {
        return Err(world.unexpected(format!("{lost} is still a member")));
    }
    scale(world, 0);
    world.settle(SOON_MS).await?;
    for lost in user::voters(world).into_iter().take(2) {
        faults::sleepers_pvc_is_deleted(world, &lost);
    }
    for replicas in [0, 3] {
        scale(world, replicas);
        let data_lost = |world: &World, _: &GroundTruth| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("DataLost")
        };
        world.until("DataLost", 120_000, data_lost).await?;
    }
    Ok(())
}
