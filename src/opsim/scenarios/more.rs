//! Stories that single rules of the plan are there for: without them, these end badly.

use serde_json::json;

use crate::opsim::api::Kind;
use crate::opsim::faults;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "five-and-one-down",
        story: "one of five is down when a sixth and a seventh are asked for: none is added before it has left (scenario 4)",
        script: |world| Box::pin(five_and_one_down(world)),
    },
    Scenario {
        name: "one-unseen",
        story: "the operator cannot reach one member that the others reach: nothing changes (scenario 11)",
        script: |world| Box::pin(one_unseen(world)),
    },
    Scenario {
        name: "disks-all-empty",
        story: "all disks come back empty: nothing is formed anew (scenario 10)",
        script: |world| Box::pin(disks_all_empty(world)),
    },
    Scenario {
        name: "quota-used-up",
        story: "the quota is used up: it is reported, no member is restarted or replaced for it, and what is asked for meanwhile is done (scenario 15)",
        script: |world| Box::pin(quota_used_up(world)),
    },
    Scenario {
        name: "set-deleted",
        story: "somebody deletes a member's set: it is made again, and the member goes on with its disk",
        script: |world| Box::pin(set_deleted(world)),
    },
    Scenario {
        name: "service-refused",
        story: "a label of the client Service is none that Kubernetes takes: a lost disk is replaced and the cluster grows all the same (scenario 17)",
        script: |world| Box::pin(service_refused(world)),
    },
    Scenario {
        name: "slow-newcomers",
        story: "new members need a minute to catch up: none is promoted before, and none that is replaced leaves before (scenarios 3 and 13)",
        script: |world| Box::pin(slow_newcomers(world)),
    },
];

async fn made(world: &mut World, replicas: u32) -> Result<u64, Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    world.settle(SOON_MS).await?;
    Ok(user::configuration(world))
}

async fn five_and_one_down(world: &mut World) -> Result<(), Failure> {
    for node in ["node-d", "node-e", "node-f", "node-g"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    made(world, 5).await?;
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&node);
    world.pass_ms(20_000).await?;
    user::edit(world, "demo", &json!({"replicas": 7}));
    world.pass_ms(300_000).await?;
    world.containers.kube.node_delete(&node);
    world.settle(SOON_MS).await
}

async fn one_unseen(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    let node = user::node_of(world, &user::follower(world));
    lock(&world.servers).unseen.insert(node);
    world.pass_ms(300_000).await?;
    user::unchanged(world, before)?;
    lock(&world.servers).unseen.clear();
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn disks_all_empty(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    for member in user::voters(world) {
        faults::disk_is_emptied(world, &member);
    }
    world.pass_ms(300_000).await?;
    match user::reason(world, "demo", "Stalled").as_deref() {
        Some("DataLost") => Ok(()),
        other => Err(world.unexpected(format!("Stalled for {other:?}"))),
    }
}

async fn quota_used_up(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    lock(&world.servers).alarms = vec!["NOSPACE 1".to_owned()];
    let reported = |world: &World, _: &_| {
        user::reason(world, "demo", "Degraded").as_deref() == Some("AlarmRaised")
    };
    world.until("AlarmRaised", 120_000, reported).await?;
    let writes = world.writes();
    world.pass_ms(300_000).await?;
    user::unchanged(world, before)?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done for the alarm"));
    }
    // A change of the membership needs no space.
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    lock(&world.servers).alarms.clear();
    world.settle(SOON_MS).await
}

async fn set_deleted(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    let member = user::follower(world);
    user::delete(world, Kind::StatefulSet, &member);
    world.pass_ms(10_000).await?;
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn service_refused(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    let bad = json!({"service": {"labels": {"pool": "not a label"}}});
    user::edit(world, "demo", &bad);
    world.pass_ms(20_000).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world
        .until("five voters", 300_000, |world, _| {
            user::voters(world).len() == 5
        })
        .await?;
    // The reconcile that promotes the last one may report nothing, when its answer is lost: the next one does.
    world
        .until("the refusal in the status", 30_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("Refused")
        })
        .await?;
    user::edit(
        world,
        "demo",
        &json!({"service": {"labels": {"pool": null}}}),
    );
    world.settle(SOON_MS).await
}

async fn slow_newcomers(world: &mut World) -> Result<(), Failure> {
    made(world, 1).await?;
    lock(&world.servers).behaviour.catch_up_ms = 60_000;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.settle(SOON_MS).await?;
    let old = user::follower(world);
    user::edit(world, "demo", &json!({"replaceMembers": [old]}));
    world.settle(SOON_MS).await
}
