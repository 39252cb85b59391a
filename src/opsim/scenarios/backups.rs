//! Backups by the operator's own reconciles and by Jobs: saved, verified, scheduled, restored, and made before a deletion,
//! with a store that fails and pods that are taken away.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, Patch, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};
use crate::opsim::work::store::Damage;

use super::recoveries;

pub(super) const SCENARIOS: [Scenario; 13] = [
    Scenario {
        name: "backup-verified",
        story: "a cluster is saved, and what is stored is restored into a member that is thrown away: the Jobs are gone after that",
        script: |world| Box::pin(verified(world)),
    },
    Scenario {
        name: "backup-credentials",
        story: "a store refuses the credentials, is full, slow and out of reach; once it is sound the backup is stored by itself",
        script: |world| Box::pin(credentials(world)),
    },
    Scenario {
        name: "backup-evicted",
        story: "the pod of a Job is evicted, another one is deleted by hand: the backup is stored once",
        script: |world| Box::pin(evicted(world)),
    },
    Scenario {
        name: "backup-damaged",
        story: "a bit of a stored backup flips before it is verified: it is not called Verified, and its reason is in the status",
        script: |world| Box::pin(damaged(world)),
    },
    Scenario {
        name: "backup-schedule",
        story: "a schedule of every five minutes with a retention of two, a store that fails for a while and a backup that is damaged in it: the last whole one stays",
        script: |world| Box::pin(scheduled(world)),
    },
    Scenario {
        name: "backup-member-lost",
        story: "a member loses its disk while a slow store takes a backup: it is replaced meanwhile",
        script: |world| Box::pin(member_lost(world)),
    },
    Scenario {
        name: "backup-restored",
        story: "a cluster that starts with a backup, by its Job, once the backup is there: nothing is restored after that",
        script: |world| Box::pin(restored(world)),
    },
    Scenario {
        name: "backup-restored-late",
        story: "the backup that a cluster starts with is damaged, then whole; the pods of the Job and of the seed are deleted while data are sent",
        script: |world| Box::pin(restored_late(world)),
    },
    Scenario {
        name: "backup-recovered",
        story: "two of three volumes are gone: the Job of the recovery gives the third one's data to a new member",
        script: |world| Box::pin(recovered(world)),
    },
    Scenario {
        name: "backup-recovered-all",
        story: "all volumes are gone: the Job of the recovery gives a backup to a new member",
        script: |world| Box::pin(recovered_all(world)),
    },
    Scenario {
        name: "backup-node-lost",
        story: "the node of a Job's pod is cut off for good while it saves: another Job stores the backup",
        script: |world| Box::pin(node_lost(world)),
    },
    Scenario {
        name: "backup-archived",
        story: "the log is archived behind a first backup, the archiver's pod is evicted, and its Job is gone once no archive is wanted",
        script: |world| Box::pin(archived(world)),
    },
    Scenario {
        name: "backup-before-deletion",
        story: "a cluster that is saved before it is deleted waits for its store, and goes once the backup is stored",
        script: |world| Box::pin(before_deletion(world)),
    },
];

/// A Secret's value in base64: `right`.
const RIGHT: &str = "cmlnaHQ=";
/// In base64: `wrong`.
const WRONG: &str = "d3Jvbmc=";

fn make(world: &mut World, kind: Kind, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": kind.name(),
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
    let made = world.api.lock().create("user", kind, object);
    debug_assert!(made.is_ok(), "{made:?}");
}

fn set_credentials(world: &mut World, key: &str) {
    let data = json!({"data": {"AWS_SECRET_ACCESS_KEY": key}});
    let id = (NAMESPACE, "store-credentials");
    let mut api = world.api.lock();
    if api.get(Kind::Secret, id.0, id.1).is_some() {
        let set = api.patch("user", Kind::Secret, id, Patch::Merge(data));
        debug_assert!(set.is_ok(), "{set:?}");
        return;
    }
    let mut secret = data;
    secret["metadata"] = json!({"name": id.1, "namespace": id.0});
    let made = api.create("user", Kind::Secret, secret);
    debug_assert!(made.is_ok(), "{made:?}");
}

/// A cluster of so many members that serves, and a store.
pub(super) async fn begin(world: &mut World, replicas: u32) -> Result<(), Failure> {
    world.with_backups();
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    add_store(world);
    world.settle(SOON_MS).await
}

fn add_store(world: &mut World) {
    set_credentials(world, RIGHT);
    lock(&world.work).store.accepts = Some(RIGHT.to_owned());
    let spec = json!({"s3": {"bucket": "backups"},
        "credentialsSecretRef": {"name": "store-credentials"}});
    make(world, Kind::EtcdBackupStore, "nightly", &spec);
}

pub(super) fn save(world: &mut World, name: &str, verify: bool) {
    let spec = json!({"clusterRef": {"name": "demo"}, "storeRef": {"name": "nightly"},
        "verify": verify, "deadlineSeconds": 3600});
    make(world, Kind::EtcdBackup, name, &spec);
}

fn status(world: &World, kind: Kind, name: &str) -> Value {
    let found = world.api.lock().get(kind, NAMESPACE, name);
    found.map_or(Value::Null, |found| found["status"].clone())
}

pub(super) fn phase(world: &World, name: &str) -> String {
    let status = status(world, Kind::EtcdBackup, name);
    object::text(&status, &["phase"]).to_owned()
}

pub(super) async fn until_phase(
    world: &mut World,
    name: &str,
    wanted: &str,
    most_ms: u64,
) -> Result<(), Failure> {
    let what = format!("EtcdBackup {name} {wanted}");
    let holds = |world: &World, _: &_| phase(world, name) == wanted;
    world.until(&what, most_ms, holds).await
}

fn has_jobs(world: &World) -> bool {
    world.api.lock().all(Kind::Job).next().is_some()
}

/// Everything is at rest, and no Job is left.
pub(super) async fn rest(world: &mut World) -> Result<(), Failure> {
    world.settle(SOON_MS).await?;
    match has_jobs(world) {
        false => Ok(()),
        true => Err(world.unexpected("a Job is left")),
    }
}

pub(super) fn stored(world: &World) -> usize {
    lock(&world.work).store.objects.len()
}

fn one_is_stored(world: &World) -> Result<(), Failure> {
    match stored(world) {
        1 => Ok(()),
        many => Err(world.unexpected(format!("{many} backups are stored"))),
    }
}

async fn verified(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    save(world, "one", true);
    until_phase(world, "one", "Verified", 300_000).await?;
    shown_as_newest(world, "one").await?;
    rest(world).await?;
    one_is_stored(world)
}

/// Nothing else happens to the cluster, so the backup itself has to cause its reconcile.
async fn shown_as_newest(world: &mut World, name: &str) -> Result<(), Failure> {
    let shown = |world: &World, _: &_| {
        user::status(world, "demo")["backup"]["lastVerified"]["name"] == name
    };
    world.until("the cluster to show it", 20_000, shown).await
}

async fn credentials(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    set_credentials(world, WRONG);
    save(world, "one", true);
    let refused = |world: &World, _: &_| {
        let status = status(world, Kind::EtcdBackupStore, "nightly");
        let conditions = object::items(&status, &["conditions"]);
        conditions
            .iter()
            .any(|it| it["reason"] == "CredentialsRejected")
    };
    world.until("the store's refusal", 300_000, refused).await?;
    set_credentials(world, RIGHT);
    lock(&world.work).store.full = true;
    world.pass_ms(120_000).await?;
    if stored(world) > 0 {
        return Err(world.unexpected("a full store took a backup"));
    }
    lock(&world.work).store.full = false;
    lock(&world.work).store.unreachable = true;
    world.pass_ms(120_000).await?;
    lock(&world.work).store.unreachable = false;
    lock(&world.work).store.slow = 20;
    until_phase(world, "one", "Verified", 900_000).await?;
    rest(world).await?;
    one_is_stored(world)
}

/// The pod of a Job that runs.
pub(super) fn pod_of_a_job(world: &World) -> Option<String> {
    let api = world.api.lock();
    let mut pods = api.all(Kind::Pod).filter(|pod| {
        let owner = object::controller(pod).is_some_and(|owner| owner["kind"] == "Job");
        owner && object::text(pod, &["status", "phase"]) == "Running" && !object::is_deleting(pod)
    });
    pods.next().map(|pod| object::name(pod).to_owned())
}

/// Evicts the pod of a Job that runs; its name.
fn evict_a_job(world: &World) -> Result<String, Failure> {
    let pod = pod_of_a_job(world).unwrap_or_default();
    let evicted = world
        .api
        .lock()
        .evict("user", (NAMESPACE, &pod), &json!({}));
    match evicted {
        Ok(_) => Ok(pod),
        Err(_) => Err(world.unexpected(format!("the pod {pod:?} of a Job was not evicted"))),
    }
}

async fn evicted(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    lock(&world.work).store.slow = 10;
    save(world, "one", false);
    let runs = |world: &World, _: &_| pod_of_a_job(world).is_some();
    world.until("a pod of a Job", 120_000, runs).await?;
    let pod = evict_a_job(world)?;
    let another = |world: &World, _: &_| pod_of_a_job(world).is_some_and(|other| other != pod);
    world.until("another pod", 120_000, another).await?;
    let pod = pod_of_a_job(world).unwrap_or_default();
    user::delete(world, Kind::Pod, &pod);
    until_phase(world, "one", "Uploaded", 300_000).await?;
    rest(world).await?;
    one_is_stored(world)
}

/// Something happens to every backup that is stored.
fn damage(world: &mut World, which: usize, damage: Damage) {
    let now_ms = world.now_ms();
    let mut work = lock(&world.work);
    let path = work.store.objects.keys().nth(which).cloned();
    work.store.damage(&path.unwrap_or_default(), damage, now_ms);
}

async fn damaged(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    save(world, "one", false);
    until_phase(world, "one", "Uploaded", 300_000).await?;
    damage(world, 0, Damage::Flipped);
    let asked = object::time(world.now_ms());
    let ask = json!({"metadata": {"annotations": {crate::crd::ANNOTATION_VERIFY: asked}}});
    let id = (NAMESPACE, "one");
    let patched = (world.api.lock()).patch("user", Kind::EtcdBackup, id, Patch::Merge(ask));
    debug_assert!(patched.is_ok(), "{patched:?}");
    until_phase(world, "one", "Failed", 300_000).await?;
    world.settle(SOON_MS).await?;
    let why = status(world, Kind::EtcdBackup, "one");
    match object::text(&why, &["message"]).contains("cannot be restored") {
        true => Ok(()),
        false => Err(world.unexpected(format!("the reason is not stated: {why}"))),
    }
}

async fn scheduled(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    let spec = json!({"clusterRef": {"name": "demo"}, "storeRef": {"name": "nightly"},
        "schedule": "*/5 * * * *", "verifyEverySeconds": 600,
        "retention": {"last": 2, "hourly": 0, "daily": 0, "weekly": 0, "minKeep": 1}});
    make(world, Kind::EtcdBackupSchedule, "often", &spec);
    let many = |world: &World, _: &_| stored(world) >= 2;
    world.until("two backups", 900_000, many).await?;
    damage(world, 1, Damage::Truncated);
    lock(&world.work).store.unreachable = true;
    world.pass_ms(400_000).await?;
    lock(&world.work).store.unreachable = false;
    world.pass_ms(1_800_000).await?;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    let id = (NAMESPACE, "often");
    let set = (world.api.lock()).patch("user", Kind::EtcdBackupSchedule, id, suspend);
    debug_assert!(set.is_ok(), "{set:?}");
    rest(world).await?;
    let whole = {
        let work = lock(&world.work);
        let objects = work.store.objects.values();
        objects.filter(|object| object.is_whole()).count()
    };
    match (1..=3).contains(&whole) {
        true => Ok(()),
        false => Err(world.unexpected(format!("{whole} whole backups are left"))),
    }
}

async fn member_lost(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    lock(&world.work).store.slow = 400;
    save(world, "one", false);
    until_phase(world, "one", "Streaming", 120_000).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    if phase(world, "one") != "Streaming" {
        return Err(world.unexpected("the backup did not take long enough to be in the way"));
    }
    until_phase(world, "one", "Uploaded", 900_000).await?;
    rest(world).await
}

async fn restored(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    let mut spec = user::spec(3);
    spec["bootstrap"] = json!({"restore": {"backupRef": {"name": "one"}}});
    user::create(world, "copy", &spec);
    world.pass_ms(30_000).await?;
    let founded = lock(&world.servers).founded.len();
    if founded != 1 {
        return Err(world.unexpected("a cluster was formed without its data"));
    }
    save(world, "one", false);
    until_phase(world, "one", "Uploaded", 300_000).await?;
    until_restored(world).await?;
    // Longer than after any Job another one may begin.
    world.pass_ms(1_200_000).await?;
    rest(world).await
}

async fn until_restored(world: &mut World) -> Result<(), Failure> {
    let restored = |world: &World, _: &_| {
        let found = user::status(world, "copy");
        object::text(&found, &["restore", "phase"]) == "Restored"
    };
    world.until("the restore", SOON_MS, restored).await
}

async fn restored_late(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    save(world, "one", false);
    until_phase(world, "one", "Uploaded", 300_000).await?;
    damage(world, 0, Damage::Flipped);
    let mut spec = user::spec(1);
    spec["bootstrap"] = json!({"restore": {"backupRef": {"name": "one"}}});
    user::create(world, "copy", &spec);
    let stalled = |world: &World, _: &_| {
        let stalled = user::reason(world, "copy", "Stalled");
        stalled.is_some() && lock(&world.servers).founded.len() == 1
    };
    world
        .until("a restore that fails", 300_000, stalled)
        .await?;
    for object in lock(&world.work).store.objects.values_mut() {
        object.damage = None;
    }
    let runs = |world: &World, _: &_| pod_of_a_job(world).is_some();
    world.until("a Job that sends", 300_000, runs).await?;
    world.pass_ms(1_500).await?;
    let pod = pod_of_a_job(world).unwrap_or_default();
    user::delete(world, Kind::Pod, &pod);
    user::delete(world, Kind::Pod, "copy-1-0");
    until_restored(world).await?;
    rest(world).await
}

async fn recovered(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    let survivor = user::follower(world);
    recoveries::lose_others(world, &[&survivor]);
    recoveries::ask(world, Some(&survivor), "", 1).await?;
    recoveries::recovered(world, 1).await?;
    rest(world).await
}

async fn recovered_all(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    save(world, "one", true);
    until_phase(world, "one", "Verified", 300_000).await?;
    recoveries::lose_others(world, &[]);
    world.pass_ms(20_000).await?;
    recoveries::ask(world, None, "one", 1).await?;
    recoveries::recovered(world, 1).await?;
    rest(world).await
}

async fn node_lost(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    for node in ["node-a", "node-b", "node-c"] {
        world.containers.kube.cordon(node, true);
    }
    lock(&world.work).store.slow = 40;
    save(world, "one", false);
    until_phase(world, "one", "Streaming", 120_000).await?;
    for node in ["node-a", "node-b", "node-c"] {
        world.containers.kube.cordon(node, false);
    }
    world.containers.kube.node_cut("node-d");
    lock(&world.work).store.slow = 1;
    until_phase(world, "one", "Uploaded", 1_800_000).await?;
    world.containers.kube.node_delete("node-d");
    rest(world).await?;
    one_is_stored(world)
}

async fn archived(world: &mut World) -> Result<(), Failure> {
    begin(world, 1).await?;
    let spec = json!({"clusterRef": {"name": "demo"}, "storeRef": {"name": "nightly"},
        "schedule": "0 0 * * *", "archive": {"intervalSeconds": 5}});
    make(world, Kind::EtcdBackupSchedule, "log", &spec);
    archives(world, 300_000).await?;
    evict_a_job(world)?;
    let before = index(world);
    let further = |world: &World, _: &_| index(world) > before + 1_000;
    world.until("a longer archive", 300_000, further).await?;
    archives(world, 300_000).await?;
    let none = Patch::Merge(json!({"spec": {"archive": null}}));
    let id = (NAMESPACE, "log");
    let set = (world.api.lock()).patch("user", Kind::EtcdBackupSchedule, id, none);
    debug_assert!(set.is_ok(), "{set:?}");
    rest(world).await?;
    one_is_stored(world)
}

/// The last entry that the schedule's status calls archived.
fn index(world: &World) -> i64 {
    let status = status(world, Kind::EtcdBackupSchedule, "log");
    object::number(&status, &["archive", "raftIndex"]).unwrap_or(0)
}

async fn archives(world: &mut World, most_ms: u64) -> Result<(), Failure> {
    let holds = |world: &World, _: &_| {
        let status = status(world, Kind::EtcdBackupSchedule, "log");
        object::text(&status, &["archive", "phase"]) == "Archiving" && index(world) > 0
    };
    world.until("an archive", most_ms, holds).await
}

async fn before_deletion(world: &mut World) -> Result<(), Failure> {
    begin(world, 3).await?;
    let asked = json!({"backupBeforeDeletion": {"storeRef": {"name": "nightly"}}});
    user::edit(world, "demo", &asked);
    let held = |world: &World, _: &_| {
        let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
        found.is_some_and(|found| object::finalizers(&found).count() == 1)
    };
    world.until("the finalizer", 120_000, held).await?;
    world.settle(SOON_MS).await?;
    lock(&world.work).store.unreachable = true;
    user::delete(world, Kind::EtcdCluster, "demo");
    world.pass_ms(90_000).await?;
    if user::objects(world, Kind::StatefulSet).len() != 3 {
        return Err(world.unexpected("a cluster went without its last backup"));
    }
    lock(&world.work).store.unreachable = false;
    let gone = |world: &World, _: &_| {
        let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
        found.is_none()
    };
    world.until("the deletion", 900_000, gone).await?;
    one_is_stored(world)?;
    rest(world).await
}
