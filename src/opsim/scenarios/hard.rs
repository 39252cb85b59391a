//! The hard ones: what fails while a cluster lives, alone or while something else is under way.

use serde_json::json;

use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 24] = [
    Scenario {
        name: "volume-gone",
        story: "a follower's volume exists no more: it is removed and replaced, never formed anew (scenario 2)",
        script: |world| Box::pin(volume_gone(world)),
    },
    Scenario {
        name: "disk-empty",
        story: "a follower's disk comes back empty: its server waits, and the old member leaves first (scenario 2)",
        script: |world| Box::pin(disk_empty(world)),
    },
    Scenario {
        name: "pvc-deleted",
        story: "somebody deletes the PVC and the pod of a follower by hand (scenario 2)",
        script: |world| Box::pin(pvc_deleted(world)),
    },
    Scenario {
        name: "learner-never-starts",
        story: "a new member's image does not exist: the voters are left alone, it is given up and tried again, until the image is corrected (scenario 3)",
        script: |world| Box::pin(learner_never_starts(world)),
    },
    Scenario {
        name: "learner-is-slow",
        story: "a new member needs long to catch up, and is not given up while it does (scenario 3)",
        script: |world| Box::pin(learner_is_slow(world)),
    },
    Scenario {
        name: "down-and-growing",
        story: "one of three is down for good and five are asked for: the dead one leaves first (scenario 4)",
        script: |world| Box::pin(down_and_growing(world)),
    },
    Scenario {
        name: "sick-while-rolled",
        story: "the template changes while a member is down: no other one is touched until it is back (scenario 5)",
        script: |world| Box::pin(sick_while_rolled(world)),
    },
    Scenario {
        name: "drain-refused",
        story: "with the policy Gate nodes are drained one after the other: the PDB refuses every eviction of a member (scenario 6, as far as this version goes)",
        script: |world| Box::pin(drain_refused(world)),
    },
    Scenario {
        name: "node-lost",
        story: "a node falls silent for longer than the patience, and comes back (scenario 7)",
        script: |world| Box::pin(node_lost(world)),
    },
    Scenario {
        name: "node-reboots",
        story: "a node is off for a minute: nothing is removed (scenario 7)",
        script: |world| Box::pin(node_reboots(world)),
    },
    Scenario {
        name: "local-disk-lost",
        story: "a node with a member's local volume is deleted: its member is replaced on another node (scenario 8)",
        script: |world| Box::pin(local_disk_lost(world)),
    },
    Scenario {
        name: "power-loss",
        story: "all nodes go off and come back: no member changes (scenario 9)",
        script: |world| Box::pin(power_loss(world)),
    },
    Scenario {
        name: "quorum-lost",
        story: "two of three volumes are gone: nothing is formed, added or removed, and the status reports it (scenario 10, without the rebuild)",
        script: |world| Box::pin(quorum_lost(world)),
    },
    Scenario {
        name: "operator-apart",
        story: "the operator reaches one member only, or none: unknown is not dead (scenario 11)",
        script: |world| Box::pin(operator_apart(world)),
    },
    Scenario {
        name: "island",
        story: "one member is apart from the others for a while (scenario 11)",
        script: |world| Box::pin(island(world)),
    },
    Scenario {
        name: "operator-absent",
        story: "no operator runs while a member's pod is deleted and an edit is made: the cluster serves on (scenario 12, I9)",
        script: |world| Box::pin(operator_absent(world)),
    },
    Scenario {
        name: "two-operators",
        story: "one operator is stopped in the middle of its work, another takes the Lease, the first goes on (scenario 12)",
        script: |world| Box::pin(two_operators(world)),
    },
    Scenario {
        name: "restart-at-two",
        story: "the first member restarts while the cluster grows from one to three (scenario 13)",
        script: |world| Box::pin(restart_at_two(world)),
    },
    Scenario {
        name: "corrupt",
        story: "a follower's server ends because its disk is damaged: it is removed and replaced (scenario 14)",
        script: |world| Box::pin(corrupt(world)),
    },
    Scenario {
        name: "server-hangs",
        story: "a follower's server hangs on a node that works: its pod is replaced",
        script: |world| Box::pin(server_hangs(world)),
    },
    Scenario {
        name: "kubelet-silent",
        story: "a node is cut off for longer than the patience, its server running on (scenario 7)",
        script: |world| Box::pin(kubelet_silent(world)),
    },
    Scenario {
        name: "leader-replaced",
        story: "the member that is to be replaced leads: leadership moves first (scenario 16)",
        script: |world| Box::pin(leader_replaced(world)),
    },
    Scenario {
        name: "bad-image",
        story: "an image that does not exist is given to one member, and corrected (scenario 17)",
        script: |world| Box::pin(bad_image(world)),
    },
    Scenario {
        name: "bad-image-and-more",
        story: "an image that does not exist is given to one of five members; another one's server hangs, then its node boots: it keeps its image",
        script: |world| Box::pin(bad_image_and_more(world)),
    },
];

async fn three(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await
}

async fn volume_gone(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let victim = user::follower(world);
    faults::volume_goes(world, &victim);
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await
}

async fn disk_empty(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await
}

async fn pvc_deleted(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let victim = user::follower(world);
    faults::pvc_is_deleted(world, &victim);
    user::delete(world, Kind::Pod, &crate::crd::pod_name(&victim));
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await
}

async fn learner_never_starts(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let (voters, before) = (user::voters(world), user::configuration(world));
    world
        .containers
        .kube
        .set_bad_image("registry.example/broken:1", true);
    let bad = json!({"replicas": 5, "image": "registry.example/broken:1"});
    user::edit(world, "demo", &bad);
    world.pass_ms(600_000).await?;
    user::unchanged(world, before)?;
    if user::voters(world) != voters {
        return Err(world.unexpected("the voters changed"));
    }
    user::edit(world, "demo", &json!({"image": null}));
    user::roll(world, "demo").await
}

async fn learner_is_slow(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    lock(&world.servers).behaviour.catch_up_ms = 400_000;
    user::edit(world, "demo", &json!({"replicas": 4}));
    world.pass_ms(300_000).await?;
    lock(&world.servers).behaviour.catch_up_ms = 2_000;
    world.settle(SOON_MS).await
}

async fn down_and_growing(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&node);
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.pass_ms(400_000).await?;
    world.containers.kube.node_delete(&node);
    world.settle(SOON_MS).await
}

async fn sick_while_rolled(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&node);
    world.pass_ms(20_000).await?;
    user::change_template(world, "demo");
    world.pass_ms(40_000).await?;
    user::unchanged(world, before)?;
    world.containers.kube.node_up(&node);
    user::roll(world, "demo").await
}

async fn drain_refused(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    user::edit(world, "demo", &json!({"disruption": {"policy": "Gate"}}));
    world.settle(SOON_MS).await?;
    for member in user::voters(world) {
        let pod = crate::crd::pod_name(&member);
        let api = world.api.clone();
        let evicted = api.lock().evict("user", (NAMESPACE, &pod), &json!({}));
        if evicted.is_ok() {
            return Err(world.unexpected(format!("{pod} was evicted")));
        }
        world.pass_ms(1_000).await?;
    }
    world.settle(SOON_MS).await
}

async fn node_lost(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&node);
    world.pass_ms(400_000).await?;
    world.containers.kube.node_up(&node);
    world.settle(SOON_MS).await
}

async fn node_reboots(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let leader = user::leader(world).unwrap_or_default();
    let node = user::node_of(world, &leader);
    world.containers.kube.node_down(&node);
    world.pass_ms(60_000).await?;
    world.containers.kube.node_up(&node);
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn local_disk_lost(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["storage"]["storageClassName"] = json!("local");
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    let victim = user::follower(world);
    let node = user::node_of(world, &victim);
    world.containers.kube.add_node("node-d", "zone-1");
    // While its server still runs: by that one its volume is found.
    faults::disk_is_doomed(world, &victim);
    world.containers.kube.node_down(&node);
    world.pass_ms(30_000).await?;
    world.containers.kube.node_delete(&node);
    world.settle(SOON_MS).await
}

async fn power_loss(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let nodes = ["node-a", "node-b", "node-c"];
    for node in nodes {
        world.containers.kube.node_down(node);
    }
    world.pass_ms(90_000).await?;
    for node in nodes {
        world.containers.kube.node_up(node);
        world.pass_ms(700).await?;
    }
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn quorum_lost(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    for victim in user::followers(world) {
        faults::volume_goes(world, &victim);
    }
    world.pass_ms(200_000).await?;
    let writes = world.writes();
    world.pass_ms(200_000).await?;
    user::unchanged(world, before)?;
    if world.writes() != writes {
        return Err(world.unexpected("something is still written"));
    }
    match user::reason(world, "demo", "Stalled").as_deref() {
        Some("DataLost") => Ok(()),
        other => Err(world.unexpected(format!("Stalled for {other:?}"))),
    }
}

async fn operator_apart(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let nodes: Vec<String> = ["node-a", "node-b", "node-c"].map(str::to_owned).into();
    let leader = user::leader(world).unwrap_or_default();
    let of_leader = user::node_of(world, &leader);
    let rest = nodes.iter().filter(|node| **node != of_leader);
    lock(&world.servers).unseen.extend(rest.cloned());
    world.pass_ms(300_000).await?;
    lock(&world.servers).unseen.extend(nodes);
    world.pass_ms(300_000).await?;
    user::unchanged(world, before)?;
    if user::reason(world, "demo", "Quorate").is_some() {
        return Err(world.unexpected("the status reports Quorate without an observation"));
    }
    lock(&world.servers).unseen.clear();
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn island(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let leader = user::leader(world).unwrap_or_default();
    let node = user::node_of(world, &leader);
    lock(&world.servers).islands.insert(node);
    world.pass_ms(30_000).await?;
    lock(&world.servers).islands.clear();
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn operator_absent(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    world.stop_operators();
    let leader = user::leader(world).unwrap_or_default();
    user::delete(world, Kind::Pod, &crate::crd::pod_name(&leader));
    user::edit(world, "demo", &json!({"replicas": 5}));
    let wrote = world.acknowledged();
    world.pass_ms(200_000).await?;
    user::unchanged(world, before)?;
    if world.acknowledged() < wrote + 1_000 {
        return Err(world.unexpected("the cluster did not serve without its operator"));
    }
    world.start_operator("operator-2");
    world.settle(SOON_MS).await
}

async fn two_operators(world: &mut World) -> Result<(), Failure> {
    world.by_lease();
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    world.start_operator("operator-2");
    for replicas in [5, 3, 5] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        // In the middle of a reconcile, with a step in hand.
        let begun = world.writes();
        world
            .until("a step is begun", 60_000, |world, _| {
                world.writes() > begun && world.busy_leader().is_some()
            })
            .await?;
        let frozen = world.freeze_leader();
        world.pass_ms(40_000).await?;
        world.thaw(&frozen);
        world.settle(SOON_MS).await?;
    }
    Ok(())
}

async fn restart_at_two(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(1));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    let first = user::voters(world).first().cloned().unwrap_or_default();
    world
        .until("two voters", 120_000, |world, _| {
            user::voters(world).len() == 2
        })
        .await?;
    user::delete(world, Kind::Pod, &crate::crd::pod_name(&first));
    world.settle(SOON_MS).await
}

async fn corrupt(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let victim = user::follower(world);
    faults::disk_is_damaged(world, &victim, 20, "corrupt");
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await
}

async fn bad_image(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    world
        .containers
        .kube
        .set_bad_image("registry.example/broken:1", true);
    let bad = json!({"image": "registry.example/broken:1"});
    user::edit(world, "demo", &bad);
    world.pass_ms(80_000).await?;
    user::unchanged(world, before)?;
    user::edit(world, "demo", &json!({"image": "registry.example/good:1"}));
    user::roll(world, "demo").await?;
    user::unchanged(world, before)
}

/// Found by reading: a member that did not serve for a moment got the image with which another one did not start: three
/// members had no quorum then, and five none after the next.
async fn bad_image_and_more(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    let before = user::configuration(world);
    let image = "registry.example/broken:1";
    world.containers.kube.set_bad_image(image, true);
    user::edit(world, "demo", &json!({ "image": image }));
    world.pass_ms(80_000).await?;
    let first = tried(world, image);
    let mut others = user::followers(world).into_iter();
    let other = others.find(|name| !first.contains(name));
    let other = other.unwrap_or_default();
    faults::server_hangs(world, &other);
    world.pass_ms(90_000).await?;
    let node = user::node_of(world, &other);
    world.containers.kube.node_down(&node);
    world.pass_ms(30_000).await?;
    world.containers.kube.node_up(&node);
    world.pass_ms(60_000).await?;
    let tried = tried(world, image);
    if first.len() != 1 || tried != first || user::leader(world).is_none() {
        return Err(world.unexpected(format!("{tried:?} have the image of {first:?}")));
    }
    user::edit(world, "demo", &json!({"image": "registry.example/good:1"}));
    user::roll(world, "demo").await?;
    user::unchanged(world, before)
}

/// The StatefulSets with this image.
fn tried(world: &World, image: &str) -> Vec<String> {
    let sets = user::objects(world, Kind::StatefulSet).into_iter();
    let path = ["spec", "template", "spec", "containers"];
    let with = sets.filter(|set| {
        let containers = object::items(set, &path);
        containers.iter().any(|one| one["image"] == image)
    });
    with.map(|set| object::name(&set).to_owned()).collect()
}

async fn server_hangs(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let before = user::configuration(world);
    let victim = user::follower(world);
    faults::server_hangs(world, &victim);
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn kubelet_silent(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_cut(&node);
    world.pass_ms(400_000).await?;
    world.containers.kube.node_up(&node);
    world.settle(SOON_MS).await
}

async fn leader_replaced(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let leader = user::leader(world).unwrap_or_default();
    user::edit(world, "demo", &json!({"replaceMembers": [leader]}));
    world.settle(SOON_MS).await?;
    if user::voters(world).contains(&leader) {
        return Err(world.unexpected(format!("{leader} is still there")));
    }
    let order = |word: &str| {
        let ledger = lock(&world.ledger);
        let mut words = ledger.log.iter().map(|(_, words)| words);
        words.position(|words| words.starts_with(word))
    };
    let (moved, left) = (order("Transfer at"), order("Remove at"));
    match (moved, left) {
        (Some(moved), Some(left)) if moved < left => Ok(()),
        other => Err(world.unexpected(format!(
            "its leadership did not move before it left: {other:?}"
        ))),
    }
}
