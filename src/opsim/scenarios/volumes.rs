//! Volumes that are changed by the replacement of their members: another class, a smaller size, another zone.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::{same_voters, three};

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "class-changed",
        story: "the storage class of three, of one and of four members changes, and the field is left out again: every member is replaced, its successor first",
        script: |world| Box::pin(class_changed(world)),
    },
    Scenario {
        name: "class-missing",
        story: "a storage class is asked for that does not exist: nobody leaves, a lost member's successor waits with the others serving, and all is well when it is set back",
        script: |world| Box::pin(class_missing(world)),
    },
    Scenario {
        name: "class-taken-back",
        story: "another storage class is taken back at each point of a replacement",
        script: |world| Box::pin(class_taken_back(world)),
    },
    Scenario {
        name: "size-shrunk",
        story: "the size of the volumes is lowered below what the data need, which is refused, and then to one that they fit in",
        script: |world| Box::pin(size_shrunk(world)),
    },
    Scenario {
        name: "zone-changed",
        story: "the pods are to run in another zone, which their volumes cannot follow to; then back, and one of the successors' nodes is lost on the way",
        script: |world| Box::pin(zone_changed(world)),
    },
    Scenario {
        name: "autogrow",
        story: "volumes get full: they grow up to the stated maximum, and so do those of new members; a lowered size takes it back",
        script: |world| Box::pin(autogrow(world)),
    },
    Scenario {
        name: "pvc-grown-by-hand",
        story: "somebody grows one PVC by hand: nobody is replaced for it",
        script: |world| Box::pin(grown_by_hand(world)),
    },
];

/// The PVCs of members: their classes, or their sizes.
fn all(world: &World, path: &[&str]) -> Vec<String> {
    let pvcs = user::objects(world, Kind::PersistentVolumeClaim);
    let mut found: Vec<String> = pvcs
        .iter()
        .map(|pvc| object::text(pvc, path).to_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn classes(world: &World) -> Vec<String> {
    all(world, &["spec", "storageClassName"])
}

fn sizes(world: &World) -> Vec<String> {
    all(world, &["status", "capacity", "storage"])
}

fn same(world: &World, what: &str, found: &[String], wanted: &str) -> Result<(), Failure> {
    if found == [wanted] {
        return Ok(());
    }
    Err(world.unexpected(format!("{what} are {found:?}, not {wanted}")))
}

fn all_new(world: &World, before: &[String]) -> Result<(), Failure> {
    let kept = user::voters(world)
        .into_iter()
        .find(|name| before.contains(name));
    match kept {
        Some(name) => Err(world.unexpected(format!("{name} was not replaced"))),
        None => Ok(()),
    }
}

fn ask(world: &mut World, storage: Value) {
    user::edit(world, "demo", &json!({"storage": storage}));
}

/// Waits until the status reports that the user has to do something, with this reason.
async fn stalls(world: &mut World, reason: &str) -> Result<(), Failure> {
    let stalled =
        |world: &World, _: &_| user::reason(world, "demo", "Stalled").as_deref() == Some(reason);
    world.until(reason, 60_000, stalled).await
}

async fn class_changed(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    for node in ["node-d", "node-e"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    for (replicas, class) in [(3, "local"), (1, "standard"), (4, "local")] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
        let before = user::voters(world);
        ask(world, json!({"storageClassName": class}));
        world.settle(SOON_MS).await?;
        all_new(world, &before)?;
        same(world, "the classes", &classes(world), class)?;
    }
    let before = user::voters(world);
    ask(world, json!({"storageClassName": null}));
    world.settle(SOON_MS).await?;
    all_new(world, &before)?;
    same(world, "the classes", &classes(world), "standard")
}

async fn class_missing(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    ask(world, json!({"storageClassName": "another"}));
    stalls(world, "NoStorageClass").await?;
    world.pass_ms(900_000).await?;
    same_voters(world, &before)?;
    ask(world, json!({"storageClassName": "standard"}));
    world.settle(SOON_MS).await?;
    same_voters(world, &before)?;
    same(world, "the classes", &classes(world), "standard")
}

async fn class_taken_back(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    for ms in [500, 2_000, 5_000, 8_000, 12_000, 20_000, 40_000, 90_000] {
        ask(world, json!({"storageClassName": "local"}));
        world.pass_ms(ms).await?;
        ask(world, json!({"storageClassName": "standard"}));
        world.settle(SOON_MS).await?;
        same(world, "the classes", &classes(world), "standard")?;
    }
    Ok(())
}

async fn size_shrunk(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let before = user::voters(world);
    // The servers hold 100 MiB.
    ask(world, json!({"size": "400Mi"}));
    stalls(world, "VolumeTooSmall").await?;
    let writes = world.writes();
    world.pass_ms(120_000).await?;
    same_voters(world, &before)?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done"));
    }
    ask(world, json!({"size": "600Mi"}));
    world.settle(SOON_MS).await?;
    all_new(world, &before)?;
    same(world, "the sizes", &sizes(world), "600Mi")?;
    // Half way back.
    ask(world, json!({"size": "500Mi"}));
    world.pass_ms(25_000).await?;
    ask(world, json!({"size": "600Mi"}));
    world.settle(SOON_MS).await?;
    same(world, "the sizes", &sizes(world), "600Mi")
}

async fn zone_changed(world: &mut World) -> Result<(), Failure> {
    three(world, "local").await?;
    for node in ["node-d", "node-e", "node-f", "node-g"] {
        world.containers.kube.add_node(node, "zone-2");
    }
    let zone = |zone: &str| {
        let selector = json!({"topology.kubernetes.io/zone": zone});
        json!({"podTemplate": {"spec": {"nodeSelector": selector}}})
    };
    let before = user::voters(world);
    user::edit(world, "demo", &zone("zone-2"));
    // No voter is down for it.
    let began = world.now_ms();
    let mut fewest = usize::MAX;
    world
        .until("two minutes pass", 400_000, |world, truth| {
            fewest = fewest.min(super::nodes::serving(truth).0);
            world.now_ms() > began + 120_000
        })
        .await?;
    if fewest < 3 {
        return Err(world.unexpected(format!("{fewest} voters served")));
    }
    user::roll(world, "demo").await?;
    all_new(world, &before)?;
    user::edit(world, "demo", &zone("zone-1"));
    world.pass_ms(10_000).await?;
    let lost = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&lost);
    world.pass_ms(60_000).await?;
    world.containers.kube.node_delete(&lost);
    user::roll(world, "demo").await
}

async fn grown_by_hand(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::voters(world);
    let pvcs = user::objects(world, Kind::PersistentVolumeClaim);
    let name = pvcs.first().map_or("", |pvc| object::name(pvc)).to_owned();
    user::grow(world, &name, "3Gi");
    world.pass_ms(120_000).await?;
    world.settle(SOON_MS).await?;
    same_voters(world, &before)?;
    // The others follow storage.size, and so does that one only where it is smaller.
    ask(world, json!({"size": "2Gi"}));
    world.settle(SOON_MS).await?;
    let wanted = ["2Gi".to_owned(), "3Gi".to_owned()];
    if sizes(world) != wanted {
        return Err(world.unexpected(format!("the sizes are {:?}", sizes(world))));
    }
    same_voters(world, &before)
}

/// The status of simulated servers follows the size of their volumes; so many bytes are taken on each.
fn fill(world: &World, mebibytes: u64) {
    lock(&world.servers).behaviour.filled_bytes = mebibytes << 20;
}

async fn autogrow(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    for node in ["node-d", "node-e"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    let before = user::voters(world);
    ask(
        world,
        json!({"autogrow": {"at": 80, "by": "50%", "max": "2Gi"}}),
    );
    world.settle(SOON_MS).await?;
    same(world, "the sizes", &sizes(world), "1Gi")?;
    fill(world, 900);
    let grown = |world: &World, _: &_| sizes(world) == ["1536Mi"];
    world
        .until("all volumes have grown", 120_000, grown)
        .await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    same(world, "the sizes", &sizes(world), "1536Mi")?;
    fill(world, 3_000);
    let grown = |world: &World, _: &_| sizes(world) == ["2048Mi"];
    world
        .until("all are as large as may be", 120_000, grown)
        .await?;
    let noted = |world: &World, _: &_| {
        let status = user::status(world, "demo");
        let notes = status["notes"].as_array().cloned().unwrap_or_default();
        notes.iter().any(|note| note["reason"] == "VolumeAtMax")
    };
    world.until("a note about it", 60_000, noted).await?;
    world.settle(SOON_MS).await?;
    let now = user::voters(world);
    if let Some(name) = before.iter().find(|name| !now.contains(name)) {
        return Err(world.unexpected(format!("{name} was replaced")));
    }
    fill(world, 200);
    ask(world, json!({"size": "600Mi"}));
    world.settle(SOON_MS).await?;
    same(world, "the sizes", &sizes(world), "600Mi")
}
