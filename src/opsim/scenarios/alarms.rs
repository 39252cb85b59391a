//! Stories of alarms: whose reason is gone, members that the comparisons prove to be wrong, and
//! where nothing decides.

use serde_json::json;

use crate::opsim::faults;
use crate::opsim::harness::ground_truth::GroundTruth;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 9] = [
    Scenario {
        name: "nospace-freed",
        story: "every member is full; the alarm stays on while one still is, and goes off once all have space",
        script: |world| Box::pin(freed(world)),
    },
    Scenario {
        name: "corrupt-minority",
        story: "the data of a follower differs: it is replaced, and the alarm goes off once all data is equal",
        script: |world| Box::pin(minority(world, false)),
    },
    Scenario {
        name: "corrupt-leader",
        story: "the data of the leader differs: another leads before it is replaced",
        script: |world| Box::pin(minority(world, true)),
    },
    Scenario {
        name: "corrupt-and-lost",
        story: "the data of a follower differs, and the leader's node is lost: one is replaced, then the other",
        script: |world| Box::pin(and_lost(world)),
    },
    Scenario {
        name: "corrupt-and-grown",
        story: "the data of the leader differs while the cluster grows: no learner that got it ever votes",
        script: |world| Box::pin(and_grown(world)),
    },
    Scenario {
        name: "corrupt-two-of-five",
        story: "the data of two of five differs: one after the other is replaced",
        script: |world| Box::pin(two_of_five(world)),
    },
    Scenario {
        name: "corrupt-majority",
        story: "the alarm names two of three: nothing is done, and the status reports what a person has to do",
        script: |world| Box::pin(majority(world)),
    },
    Scenario {
        name: "corrupt-unclear",
        story: "the leader differs from two, one of which is lost: no member leaves or joins before a person decides",
        script: |world| Box::pin(unclear(world)),
    },
    Scenario {
        name: "corrupt-for-a-moment",
        story: "a member's data differs in one comparison and not in the next: no member is replaced",
        script: |world| Box::pin(for_a_moment(world)),
    },
];

async fn made(world: &mut World, members: u32) -> Result<u64, Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(members));
    world.settle(SOON_MS).await?;
    Ok(user::configuration(world))
}

async fn alarm_reported(world: &mut World) -> Result<(), Failure> {
    let reported = |world: &World, _: &_| {
        user::reason(world, "demo", "Degraded").as_deref() == Some("AlarmRaised")
    };
    world.until("AlarmRaised", 120_000, reported).await
}

async fn switched_off(world: &mut World) -> Result<(), Failure> {
    let off = |world: &World, _: &_| lock(&world.servers).alarms.is_empty();
    world.until("the alarm to be off", 900_000, off).await?;
    world.settle(SOON_MS).await
}

async fn freed(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    let all = user::voters(world);
    lock(&world.servers).full.extend(all.iter().cloned());
    let first = all.first().cloned().unwrap_or_default();
    lock(&world.servers).raise("NOSPACE", &first);
    alarm_reported(world).await?;
    lock(&world.servers).full = [first].into();
    world.pass_ms(60_000).await?;
    if lock(&world.servers).alarms.is_empty() {
        return Err(world.unexpected("the alarm is off, and a member is full"));
    }
    lock(&world.servers).full.clear();
    switched_off(world).await?;
    user::unchanged(world, before)
}

/// The lost one decides whose data is right: a copy of the leader's in its place would outvote the other.
async fn unclear(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    let wrong = user::leader(world).unwrap_or_default();
    let lost = user::follower(world);
    let node = user::node_of(world, &lost);
    faults::data_differs(world, &wrong, 7);
    world.containers.kube.node_down(&node);
    lock(&world.servers).alarms = vec!["CORRUPT 0".to_owned()];
    alarm_reported(world).await?;
    world.pass_ms(900_000).await?;
    user::unchanged(world, before)?;
    user::edit(world, "demo", &json!({"replaceMembers": [wrong.clone()]}));
    user::replaced(world, &wrong).await?;
    world.containers.kube.node_delete(&node);
    user::replaced(world, &lost).await?;
    lock(&world.servers).alarms.clear();
    user::edit(world, "demo", &json!({"replaceMembers": null}));
    world.settle(SOON_MS).await
}

async fn minority(world: &mut World, leads: bool) -> Result<(), Failure> {
    made(world, 3).await?;
    let corrupt = match leads {
        true => user::leader(world).unwrap_or_default(),
        false => user::follower(world),
    };
    faults::data_differs(world, &corrupt, 7);
    lock(&world.servers).raise("CORRUPT", &corrupt);
    user::replaced(world, &corrupt).await?;
    switched_off(world).await
}

/// Who waits for comparisons heals all the same. A new leader knows a lost member's age by the step in hand
/// alone, and that was the comparison that the lost one kept silent in.
async fn and_lost(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    let lost = user::leader(world).unwrap_or_default();
    let corrupt = user::follower(world);
    let node = user::node_of(world, &lost);
    world.containers.kube.node_down(&node);
    faults::data_differs(world, &corrupt, 7);
    lock(&world.servers).raise("CORRUPT", &corrupt);
    user::replaced(world, &lost).await?;
    user::replaced(world, &corrupt).await?;
    world.containers.kube.node_delete(&node);
    switched_off(world).await
}

/// A learner that the wrong leader made is there when the alarm is raised, and another one is to come.
async fn and_grown(world: &mut World) -> Result<(), Failure> {
    made(world, 3).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    world.containers.kube.add_node("node-e", "zone-1");
    world.containers.kube.add_node("node-f", "zone-1");
    // Too slow to prove anything before who joins has caught up.
    lock(&world.servers).behaviour.compare_ms = 60_000;
    let corrupt = user::leader(world).unwrap_or_default();
    faults::data_differs(world, &corrupt, 7);
    user::edit(world, "demo", &json!({"replicas": 5}));
    let joins = |_: &World, truth: &GroundTruth| {
        let mut clusters = truth.clusters.values();
        clusters.any(|cluster| !cluster.learners.is_empty())
    };
    lock(&world.servers).behaviour.catch_up_ms = 30_000;
    world.until("a learner", 300_000, joins).await?;
    // It has caught up by the time at which the operator may act again.
    user::edit(world, "demo", &json!({"paused": true}));
    world.pass_ms(60_000).await?;
    lock(&world.servers).raise("CORRUPT", &corrupt);
    user::edit(world, "demo", &json!({"paused": false}));
    switched_off(world).await?;
    let voters = user::voters(world);
    match voters.len() == 5 && !voters.contains(&corrupt) {
        true => Ok(()),
        false => Err(world.unexpected(format!("{corrupt} was to be replaced: {voters:?}"))),
    }
}

async fn two_of_five(world: &mut World) -> Result<(), Failure> {
    made(world, 5).await?;
    let leader = user::leader(world).unwrap_or_default();
    let corrupt = [leader, user::follower(world)];
    for member in &corrupt {
        faults::data_differs(world, member, 7);
        lock(&world.servers).raise("CORRUPT", member);
    }
    switched_off(world).await?;
    let voters = user::voters(world);
    match corrupt.iter().find(|member| voters.contains(member)) {
        None if voters.len() == 5 => Ok(()),
        _ => Err(world.unexpected(format!("{corrupt:?} were to be replaced: {voters:?}"))),
    }
}

async fn nothing_done(world: &mut World, before: u64) -> Result<(), Failure> {
    alarm_reported(world).await?;
    world.pass_ms(20_000).await?;
    let writes = world.writes();
    world.pass_ms(300_000).await?;
    user::unchanged(world, before)?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done for the alarm"));
    }
    // Somebody has looked.
    lock(&world.servers).alarms.clear();
    world.settle(SOON_MS).await
}

async fn majority(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    for member in user::followers(world) {
        faults::data_differs(world, &member, 7);
        lock(&world.servers).raise("CORRUPT", &member);
    }
    nothing_done(world, before).await
}

async fn for_a_moment(world: &mut World) -> Result<(), Failure> {
    let before = made(world, 3).await?;
    lock(&world.servers).behaviour.compare_ms = 180_000;
    let member = user::follower(world);
    faults::data_differs(world, &member, 7);
    lock(&world.servers).raise("CORRUPT", &member);
    world.pass_ms(3_000).await?;
    faults::data_differs(world, &member, 0);
    alarm_reported(world).await?;
    world.pass_ms(200_000).await?;
    nothing_done(world, before).await
}
