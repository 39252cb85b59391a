//! Backups whose resource, cluster or key comes and goes while their Jobs work.

use serde_json::json;

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::backups::{begin, phase, pod_of_a_job, rest, save, stored, until_phase};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "backup-recreated",
        story: "a backup is deleted while it is saved and created again under its name: the Job of the first one goes, and the second one is stored under a name of its own",
        script: |world| Box::pin(recreated(world)),
    },
    Scenario {
        name: "backup-asleep",
        story: "a cluster hibernates while it is to be saved: the backup waits, and is stored once it has woken",
        script: |world| Box::pin(asleep(world)),
    },
    Scenario {
        name: "backup-key-renewed",
        story: "somebody deletes the Secret with the operator's key while a backup is under way: Jobs get the new key, and the backup is stored",
        script: |world| Box::pin(key_renewed(world)),
    },
];

async fn until_a_pod_runs(world: &mut World) -> Result<(), Failure> {
    let runs = |world: &World, _: &_| pod_of_a_job(world).is_some();
    world.until("a pod of a Job", 120_000, runs).await
}

async fn recreated(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    lock(&world.work).store.slow = 10;
    save(world, "one", true);
    until_a_pod_runs(world).await?;
    user::delete(world, Kind::EtcdBackup, "one");
    save(world, "one", true);
    let found = world.api.lock().get(Kind::EtcdBackup, NAMESPACE, "one");
    let uid = found.map_or(String::new(), |found| object::uid(&found).to_owned());
    until_phase(world, "one", "Verified", 600_000).await?;
    rest(world).await?;
    let work = lock(&world.work);
    let second = format!("one-{}", &uid[..8]);
    let mut names = work.store.objects.keys();
    let there = names.any(|path| path.ends_with(&second));
    drop(work);
    match there {
        true => Ok(()),
        false => Err(world.unexpected(format!("{second} is not stored"))),
    }
}

async fn asleep(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    user::edit(world, "demo", &json!({"replicas": 0}));
    world.settle(SOON_MS).await?;
    save(world, "one", false);
    world.pass_ms(60_000).await?;
    if stored(world) > 0 || phase(world, "one") != "Pending" {
        return Err(world.unexpected("a cluster was saved that sleeps"));
    }
    user::edit(world, "demo", &json!({"replicas": 3}));
    until_phase(world, "one", "Uploaded", 600_000).await?;
    rest(world).await
}

async fn key_renewed(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    lock(&world.work).store.unreachable = true;
    save(world, "one", false);
    until_a_pod_runs(world).await?;
    user::delete(
        world,
        Kind::Secret,
        &crate::crd::operator_secret_name("demo"),
    );
    world.pass_ms(30_000).await?;
    lock(&world.work).store.unreachable = false;
    until_phase(world, "one", "Uploaded", 900_000).await?;
    rest(world).await
}
