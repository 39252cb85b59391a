//! Clusters that start with the data of a backup, or of a living cluster that they follow.

use serde_json::json;

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "restore",
        story: "three members with a backup's data: the seed receives them, forms the cluster, and two join",
        script: |world| Box::pin(restore(world)),
    },
    Scenario {
        name: "restore-late",
        story: "the backup is found after a minute, and the seed's pod is deleted while it receives: nothing is formed before",
        script: |world| Box::pin(restore_late(world)),
    },
    Scenario {
        name: "follow",
        story: "three members follow a living cluster, one is replaced meanwhile, and they take its place",
        script: |world| Box::pin(follow(world)),
    },
];

/// ID of the living cluster.
const SOURCE: u64 = 0x5e0c;

/// Asks for a cluster that starts with a backup.
fn ask(world: &mut World) {
    let mut spec = user::spec(3);
    spec["bootstrap"] = json!({"restore": {"backupRef": {"name": "nightly"}}});
    user::create(world, "demo", &spec);
}

/// From now on a Job sends the snapshot, if the cluster is to be restored.
pub(in crate::opsim) fn send(world: &mut World) {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    let Some(cluster) = found else {
        return;
    };
    if object::at(&cluster, &["spec", "bootstrap", "restore"]).is_some() {
        let uid = object::uid(&cluster).to_owned();
        lock(&world.servers).send(uid, "abc", None);
    } else if object::at(&cluster, &["spec", "bootstrap", "follow"]).is_some() {
        let uid = object::uid(&cluster).to_owned();
        lock(&world.servers).send_living(uid, SOURCE);
    }
}

async fn follow(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["bootstrap"] = json!({"follow": {"endpoints": ["http://etcd-0.etcd:2379"]}});
    user::create(world, "demo", &spec);
    world.pass_ms(30_000).await?;
    is_at(world, "follow", "Seeding")?;
    send(world);
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "Following")?;
    spec["replaceMembers"] = json!(["demo-2"]);
    user::edit(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "Following")?;
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    let found = found.ok_or_else(|| world.unexpected("the resource is gone"))?;
    lock(&world.servers).cut_over(object::uid(&found));
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "CutOver")
}

async fn restore(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    ask(world);
    send(world);
    world.settle(SOON_MS).await?;
    is_at(world, "restore", "Restored")
}

async fn restore_late(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    ask(world);
    world.pass_ms(60_000).await?;
    if !lock(&world.servers).founded.is_empty() {
        return Err(world.unexpected("it was formed without its data"));
    }
    send(world);
    world.pass_ms(2_000).await?;
    user::delete(world, Kind::Pod, "demo-1-0");
    world.settle(SOON_MS).await?;
    is_at(world, "restore", "Restored")
}

/// The status reports it, with what the seed has described.
fn is_at(world: &World, what: &str, wanted: &str) -> Result<(), Failure> {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    let found = found.ok_or_else(|| world.unexpected("the resource is gone"))?;
    let phase = object::text(&found, &["status", what, "phase"]);
    if phase == wanted {
        return Ok(());
    }
    Err(world.unexpected(format!("status.{what}.phase is {phase:?}, not {wanted}")))
}
