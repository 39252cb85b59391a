//! Clusters that start with the data of a backup, or of a living cluster that they follow.

use serde_json::json;

use crate::crd::FINALIZER_SOURCE;
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 5] = [
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
    Scenario {
        name: "follow-closed",
        story: "three members follow a living cluster that is closed to writes: they do not stop for replicas 0 nor for a pause, nor go with their resource, before it is open again",
        script: |world| Box::pin(follow_closed(world)),
    },
    Scenario {
        name: "standby",
        story: "three members are the standby of a cluster elsewhere: its source moves, a member is replaced, the cluster sleeps and wakes, and it is promoted without its source",
        script: |world| Box::pin(standby(world)),
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
    } else if object::at(&cluster, &["spec", "bootstrap", "follow"]).is_some()
        || object::at(&cluster, &["spec", "replicaOf"]).is_some()
    {
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

/// The Job and the finalizer are made apart from the cluster's reconciles: here they act as those do.
async fn follow_closed(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["bootstrap"] = json!({"follow": {"endpoints": ["http://etcd-0.etcd:2379"]}});
    user::create(world, "demo", &spec);
    send(world);
    world.settle(SOON_MS).await?;
    lock(&world.servers).frozen = true;
    world.pass_ms(15_000).await?;
    is_at(world, "follow", "Frozen")?;
    user::edit(world, "demo", &json!({"replicas": 0}));
    world.pass_ms(60_000).await?;
    serve(world, 3)?;
    is_at(world, "follow", "Frozen")?;
    lock(&world.servers).frozen = false;
    world.settle(SOON_MS).await?;
    serve(world, 0)?;
    is_at(world, "follow", "Following")?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.settle(SOON_MS).await?;
    lock(&world.servers).frozen = true;
    user::edit(world, "demo", &json!({"paused": true}));
    world.pass_ms(15_000).await?;
    is_at(world, "follow", "Frozen")?;
    user::edit(world, "demo", &json!({"paused": false}));
    user::finalizers(world, "demo", &[FINALIZER_SOURCE]);
    user::delete(world, Kind::EtcdCluster, "demo");
    world.pass_ms(60_000).await?;
    serve(world, 3)?;
    lock(&world.servers).frozen = false;
    world.pass_ms(15_000).await?;
    user::finalizers(world, "demo", &[]);
    world.settle(SOON_MS).await?;
    match user::objects(world, Kind::StatefulSet).is_empty() {
        true => Ok(()),
        false => Err(world.unexpected("something runs on")),
    }
}

async fn standby(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["replicaOf"] = json!({"endpoints": ["http://etcd-0.east:2379"]});
    user::create(world, "demo", &spec);
    send(world);
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "Following")?;
    let moved = json!({"replicaOf": {"endpoints": ["http://etcd-0.north:2379"]}, "replaceMembers": ["demo-2"]});
    user::edit(world, "demo", &moved);
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 0}));
    world.settle(SOON_MS).await?;
    serve(world, 0)?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.settle(SOON_MS).await?;
    let promote = json!({"mode": "Failover", "acceptLoss": true, "revision": 1});
    user::edit(world, "demo", &json!({"replicaOf": {"promote": promote}}));
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "Following")?;
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    let found = found.ok_or_else(|| world.unexpected("the resource is gone"))?;
    lock(&world.servers).cut_over(object::uid(&found));
    world.settle(SOON_MS).await?;
    is_at(world, "follow", "CutOver")
}

/// So many members run.
fn serve(world: &World, wanted: usize) -> Result<(), Failure> {
    let pods = user::objects(world, Kind::Pod).len();
    match pods == wanted {
        true => Ok(()),
        false => Err(world.unexpected(format!("{pods} pods run, not {wanted}"))),
    }
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
