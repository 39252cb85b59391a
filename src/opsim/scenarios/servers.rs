//! Stories of `spec.server`: a changed argument reaches the members' servers one at a time, also while
//! the quota is used up; an argument that no server would start with reaches none.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "server-changed",
        story: "compaction, timings and a flag change; the quota is used up and raised under the alarm: each reaches one member after the other",
        script: |world| Box::pin(changed(world)),
    },
    Scenario {
        name: "server-refused",
        story: "a flag that no server takes, and timings too far away, are refused before a pod is touched; what is right follows at once",
        script: |world| Box::pin(refused(world)),
    },
];

async fn create(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await
}

/// Every member's server runs with this argument.
fn has_argument(world: &World, argument: &str) -> Result<(), Failure> {
    let pods = user::objects(world, Kind::Pod);
    let pods = pods.iter().filter(|pod| {
        let spec = object::at(pod, &["spec"]).cloned().unwrap_or_default();
        let arguments = spec["containers"][0]["args"].as_array().cloned();
        arguments.unwrap_or_default().contains(&json!(argument))
    });
    match pods.count() {
        3 => Ok(()),
        few => Err(world.unexpected(format!("{few} of 3 pods have {argument}"))),
    }
}

async fn rolled(world: &mut World, server: Value, argument: &str) -> Result<(), Failure> {
    user::edit(world, "demo", &json!({"server": server}));
    user::roll(world, "demo").await?;
    has_argument(world, argument)
}

fn durable(world: &World) -> Option<String> {
    let status = user::status(world, "demo");
    let mut all = status["conditions"].as_array()?.iter();
    let durable = all.find(|condition| condition["type"] == "Durable")?;
    Some(durable["reason"].as_str()?.to_owned())
}

async fn changed(world: &mut World) -> Result<(), Failure> {
    create(world).await?;
    let before = user::configuration(world);
    let server =
        json!({"quota": "64Mi", "autoCompaction": {"mode": "Revision", "retention": "1000"}});
    rolled(world, server, "--auto-compaction-retention=1000").await?;
    let server = json!({"heartbeatIntervalMilliseconds": 500, "electionTimeoutMilliseconds": 5000});
    rolled(world, server, "--election-timeout=5000").await?;
    lock(&world.servers).alarms = vec!["NOSPACE 1".to_owned()];
    rolled(
        world,
        json!({"quota": "128Mi"}),
        "--quota-backend-bytes=134217728",
    )
    .await?;
    lock(&world.servers).alarms.clear();
    let server = json!({"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]});
    rolled(world, server, "--unsafe-no-fsync=true").await?;
    if durable(world).as_deref() != Some("UnsafeNoFsync") {
        return Err(world.unexpected("members without syncs are called durable"));
    }
    let server = json!({"extraArgs": [{"name": "log-level", "value": "debug"}]});
    rolled(world, server, "--log-level=debug").await?;
    if durable(world).as_deref() != Some("Synced") {
        return Err(world.unexpected("members with syncs are not called durable"));
    }
    user::unchanged(world, before)
}

/// The reason is reported and nothing else is done.
async fn nothing_done(world: &mut World, server: Value, reason: &str) -> Result<(), Failure> {
    let writes = world.writes();
    user::edit(world, "demo", &json!({"server": server}));
    world
        .until("it is refused", 60_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some(reason)
        })
        .await?;
    world.pass_ms(60_000).await?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done"));
    }
    Ok(())
}

async fn refused(world: &mut World) -> Result<(), Failure> {
    create(world).await?;
    let flags = |name: &str, value: &str| json!({"extraArgs": [{"name": name, "value": value}]});
    nothing_done(world, flags("no-such-flag", "1"), "InvalidSpec").await?;
    rolled(world, flags("log-level", "debug"), "--log-level=debug").await?;
    let far = json!({"heartbeatIntervalMilliseconds": 1000, "electionTimeoutMilliseconds": 10_000});
    nothing_done(world, far.clone(), "TimingsRefused").await?;
    let near = json!({"heartbeatIntervalMilliseconds": 500, "electionTimeoutMilliseconds": 5_000});
    rolled(world, near, "--heartbeat-interval=500").await?;
    rolled(world, far, "--heartbeat-interval=1000").await
}
