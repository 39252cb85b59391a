//! Stories of clusters at rest: how often they are looked at, and how soon what a member changes is seen.

use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "told-of-members",
        story: "a cluster at rest is reconciled every five minutes, and within some seconds of an alarm, which its members alone know",
        script: |world| Box::pin(told(world)),
    },
    Scenario {
        name: "told-of-silence",
        story: "a member that is out of the operator's reach without a word is Unknown within half a minute",
        script: |world| Box::pin(silent(world)),
    },
    Scenario {
        name: "told-by-none",
        story: "members without digests, as of version 0.1.0, are asked every ten seconds, and once they have them every five minutes",
        script: |world| Box::pin(untold(world)),
    },
];

/// How many reconciles the operator makes within two minutes at rest.
async fn reconciles(world: &mut World) -> Result<u64, Failure> {
    let before = world.reconciles;
    world.pass_ms(120_000).await?;
    Ok(world.reconciles - before)
}

async fn is_calm(world: &mut World) -> Result<(), Failure> {
    // A stranger's pods are what a cluster at rest does not have.
    if world.intruder {
        return Ok(());
    }
    match reconciles(world).await? {
        0..=3 => Ok(()),
        many => Err(world.unexpected(format!("{many} reconciles in two minutes at rest"))),
    }
}

/// An alarm is raised and goes off. Nothing of Kubernetes knows of it, and what it changes in the status is seen.
async fn alarmed(world: &mut World, most_ms: u64) -> Result<(), Failure> {
    let full = user::voters(world).first().cloned().unwrap_or_default();
    lock(&world.servers).full.insert(full.clone());
    lock(&world.servers).raise("NOSPACE", &full);
    let seen = |world: &World, _: &_| {
        user::reason(world, "demo", "Degraded").as_deref() == Some("AlarmRaised")
    };
    world.until("the alarm to be seen", most_ms, seen).await?;
    lock(&world.servers).full.clear();
    let off = |world: &World, _: &_| lock(&world.servers).alarms.is_empty();
    world.until("the alarm to be off", 300_000, off).await?;
    world.settle(SOON_MS).await
}

async fn told(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let before = user::configuration(world);
    is_calm(world).await?;
    alarmed(world, 8_000).await?;
    is_calm(world).await?;
    user::unchanged(world, before)
}

async fn silent(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    is_calm(world).await?;
    let before = user::configuration(world);
    let node = user::node_of(world, &user::follower(world));
    lock(&world.servers).unseen.insert(node);
    let unknown = |world: &World, _: &_| {
        let status = user::status(world, "demo");
        let mut members = status["members"].as_array().into_iter().flatten();
        members.any(|member| member["health"] == "Unknown")
    };
    world.until("it to be Unknown", 40_000, unknown).await?;
    lock(&world.servers).unseen.clear();
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn untold(world: &mut World) -> Result<(), Failure> {
    lock(&world.servers).behaviour.tells = false;
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let looks = reconciles(world).await?;
    if looks < 10 {
        return Err(world.unexpected(format!("only {looks} reconciles in two minutes")));
    }
    alarmed(world, 20_000).await?;
    // The members are of a newer version from now on.
    lock(&world.servers).behaviour.tells = true;
    world.pass_ms(20_000).await?;
    is_calm(world).await
}
