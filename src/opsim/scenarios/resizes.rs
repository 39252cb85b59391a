//! Changed resources: given to running pods where their kubelets can, one member at a time, and by a restart where they cannot.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::same_voters;

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "resized",
        story: "requests change, change again while the first change is on its way, and change back: every pod gets them while it runs; a limit of memory restarts each",
        script: |world| Box::pin(resized(world)),
    },
    Scenario {
        name: "resized-alone",
        story: "the requests of a cluster of one change: no successor comes, and its pod stays",
        script: |world| Box::pin(alone(world)),
    },
    Scenario {
        name: "resized-by-limits",
        story: "a request goes, and the limit is the request; then the limit changes within a core, and with it the request",
        script: |world| Box::pin(by_limits(world)),
    },
    Scenario {
        name: "resize-beside-trouble",
        story: "a member waits for room on its node, and the node restarts: its pod stays, and so do the others",
        script: |world| Box::pin(beside_trouble(world)),
    },
    Scenario {
        name: "resize-deferred",
        story: "a node has no room for what its member asks for, whose volume is there: the member runs on as it was until there is room; one that asks for more than any node has runs on too",
        script: |world| Box::pin(deferred(world)),
    },
    Scenario {
        name: "resize-moves",
        story: "a node has no room for what its member asks for, whose volume can leave: once it has waited, the member is restarted",
        script: |world| Box::pin(moves(world)),
    },
    Scenario {
        name: "resize-unknown",
        story: "an API server before 1.33 resizes no pod: each is restarted",
        script: |world| Box::pin(unknown(world)),
    },
];

async fn made(world: &mut World, replicas: u32, class: &str) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(replicas);
    spec["storage"]["storageClassName"] = json!(class);
    spec["updateStrategy"] = json!({"progressDeadlineSeconds": 60});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await
}

fn asks(world: &mut World, requests: &Value) {
    user::edit(world, "demo", &json!({"resources": {"requests": requests}}));
}

/// How often the container of each pod was started, by the UID of the pod.
fn starts(world: &World) -> BTreeMap<String, Option<u32>> {
    let pods = user::objects(world, Kind::Pod);
    let starts = pods.iter().map(|pod| {
        let uid = object::uid(pod);
        (uid.to_owned(), world.containers.kube.starts(uid))
    });
    starts.collect()
}

/// Whether the container of every pod has this, as its kubelet reports.
fn all_have(world: &World, part: &str, kind: &str, amount: &str) -> Result<(), Failure> {
    for pod in user::objects(world, Kind::Pod) {
        let has = &pod["status"]["containerStatuses"][0]["resources"][part][kind];
        if has != amount {
            let name = object::name(&pod);
            return Err(world.unexpected(format!("{name} has {kind} {has}, not {amount}")));
        }
    }
    Ok(())
}

fn none_was_restarted(
    world: &World,
    before: &BTreeMap<String, Option<u32>>,
) -> Result<(), Failure> {
    let now = starts(world);
    match now == *before {
        true => Ok(()),
        false => Err(world.unexpected(format!("the starts were {before:?} and are {now:?}"))),
    }
}

fn each_was_restarted(
    world: &World,
    before: &BTreeMap<String, Option<u32>>,
) -> Result<(), Failure> {
    let now = starts(world);
    match now.keys().any(|uid| before.contains_key(uid)) {
        true => Err(world.unexpected(format!("the starts were {before:?} and are {now:?}"))),
        false => Ok(()),
    }
}

async fn resized(world: &mut World) -> Result<(), Failure> {
    made(world, 3, "standard").await?;
    let (before, leader) = (starts(world), user::leader(world));
    asks(world, &json!({"cpu": "200m", "memory": "512Mi"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    all_have(world, "requests", "memory", "512Mi")?;
    asks(world, &json!({"cpu": "300m"}));
    world.pass_ms(700).await?;
    asks(world, &json!({"cpu": "400m"}));
    world.pass_ms(700).await?;
    asks(world, &json!({"cpu": "200m", "memory": "512Mi"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    all_have(world, "requests", "memory", "512Mi")?;
    none_was_restarted(world, &before)?;
    if user::leader(world) != leader {
        return Err(world.unexpected("another member leads".to_owned()));
    }
    let voters = user::voters(world);
    user::edit(
        world,
        "demo",
        &json!({"resources": {"limits": {"memory": "2Gi"}}}),
    );
    world.settle(SOON_MS).await?;
    all_have(world, "limits", "memory", "2Gi")?;
    each_was_restarted(world, &before)?;
    same_voters(world, &voters)
}

/// What has a limit alone requests that: another limit is another request too.
async fn by_limits(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["resources"] =
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m", "memory": "2Gi"}});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    let before = starts(world);
    user::edit(
        world,
        "demo",
        &json!({"resources": {"requests": {"cpu": null}}}),
    );
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "1500m")?;
    each_was_restarted(world, &before)?;
    let before = starts(world);
    let limits = json!({"resources": {"limits": {"cpu": "1900m"}}});
    user::edit(world, "demo", &limits);
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "1900m")?;
    all_have(world, "limits", "cpu", "1900m")?;
    none_was_restarted(world, &before)
}

/// The node of a follower is full, and the follower is to have more; the node.
async fn waits_for_room(world: &mut World) -> Result<String, Failure> {
    let full = user::node_of(world, &user::follower(world));
    world.containers.kube.set_full(&full, true);
    asks(world, &json!({"cpu": "200m"}));
    world
        .until("it waits for its node", 60_000, |world, _| {
            user::status(world, "demo")["step"]["reason"] == "Resizing"
        })
        .await?;
    Ok(full)
}

/// A member without contact is not restarted for resources that its node may not have.
async fn beside_trouble(world: &mut World) -> Result<(), Failure> {
    made(world, 3, "local").await?;
    let before = starts(world);
    let full = waits_for_room(world).await?;
    world.containers.kube.node_down(&full);
    world.pass_ms(20_000).await?;
    world.containers.kube.node_up(&full);
    world.pass_ms(60_000).await?;
    let now = starts(world);
    if !now.keys().eq(before.keys()) {
        return Err(world.unexpected(format!("the pods were {before:?} and are {now:?}")));
    }
    world.containers.kube.set_full(&full, false);
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")
}

async fn alone(world: &mut World) -> Result<(), Failure> {
    made(world, 1, "standard").await?;
    let (before, voters) = (starts(world), user::voters(world));
    asks(world, &json!({"cpu": "200m"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    none_was_restarted(world, &before)?;
    same_voters(world, &voters)
}

async fn deferred(world: &mut World) -> Result<(), Failure> {
    made(world, 3, "local").await?;
    let before = starts(world);
    let full = waits_for_room(world).await?;
    // Longer than a member has that can leave its node.
    world.pass_ms(120_000).await?;
    none_was_restarted(world, &before)?;
    world.containers.kube.set_full(&full, false);
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    asks(world, &json!({"cpu": "4000"}));
    world
        .until("it is stalled", 60_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("ResizeInfeasible")
        })
        .await?;
    world.pass_ms(120_000).await?;
    none_was_restarted(world, &before)?;
    asks(world, &json!({"cpu": "300m"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "300m")?;
    none_was_restarted(world, &before)
}

async fn moves(world: &mut World) -> Result<(), Failure> {
    made(world, 3, "standard").await?;
    let (before, voters) = (starts(world), user::voters(world));
    let full = user::node_of(world, &user::follower(world));
    world.containers.kube.set_full(&full, true);
    asks(world, &json!({"cpu": "200m"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    let kept = starts(world)
        .keys()
        .filter(|uid| before.contains_key(*uid))
        .count();
    if kept != 2 {
        return Err(world.unexpected(format!("{kept} pods were kept")));
    }
    same_voters(world, &voters)
}

async fn unknown(world: &mut World) -> Result<(), Failure> {
    made(world, 3, "standard").await?;
    let (before, voters) = (starts(world), user::voters(world));
    world.api.lock().forget_resizes();
    asks(world, &json!({"cpu": "200m"}));
    world.settle(SOON_MS).await?;
    all_have(world, "requests", "cpu", "200m")?;
    each_was_restarted(world, &before)?;
    same_voters(world, &voters)
}
