//! Disks that are sound and do not serve for a while: nothing may be done about them.

use crate::opsim::faults;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "disk-too-new",
        story: "an image is set back to one that cannot read a member's disk: the member is held with its disk, however long, and is back with the right one",
        script: |world| Box::pin(too_new(world)),
    },
    Scenario {
        name: "disk-hangs",
        story: "a member's disk hangs while the template changes: no other one is restarted until it goes on",
        script: |world| Box::pin(hangs(world)),
    },
];

async fn three(world: &mut World) -> Result<u64, Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    Ok(user::configuration(world))
}

/// 900 s are longer than `unhealthySeconds`: a member that only did not answer would be removed.
async fn too_new(world: &mut World) -> Result<(), Failure> {
    let before = three(world).await?;
    let member = user::follower(world);
    let volume = faults::volume_of(world, &member);
    lock(&world.servers).refuse(&volume, Some((28, "too_new")));
    let reported = |world: &World, _: &_| {
        user::reason(world, "demo", "Stalled").as_deref() == Some("DiskTooNew")
    };
    world.until("DiskTooNew", 120_000, reported).await?;
    world.pass_ms(900_000).await?;
    user::unchanged(world, before)?;
    lock(&world.servers).refuse(&volume, None);
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn hangs(world: &mut World) -> Result<(), Failure> {
    three(world).await?;
    let member = user::follower(world);
    let pods = |world: &World| -> Vec<String> {
        let running = world.containers.kube.running();
        running.into_iter().map(|one| one.uid).collect()
    };
    let before = pods(world);
    {
        let mut servers = lock(&world.servers);
        let now = servers.now_ms;
        servers.hung_disks.insert(member, now);
    }
    world.pass_ms(20_000).await?;
    user::change_template(world, "demo");
    world.pass_ms(60_000).await?;
    if pods(world) != before {
        return Err(world.unexpected("a pod was replaced beside a disk that hangs"));
    }
    lock(&world.servers).hung_disks.clear();
    user::roll(world, "demo").await
}
