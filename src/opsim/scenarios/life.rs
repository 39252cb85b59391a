//! A cluster's ordinary life: made, grown, shrunk, changed, deleted and made again.

use serde_json::json;

use crate::crd::FINALIZER_BACKUP;
use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::strangers::{as_the_first_builder_made, contents, unchanged};

pub(super) const SCENARIOS: [Scenario; 16] = [
    Scenario {
        name: "create-1",
        story: "a cluster of one is asked for",
        script: |world| Box::pin(create(world, 1)),
    },
    Scenario {
        name: "create-3",
        story: "a cluster of three is asked for: one forms it, two join and are promoted together",
        script: |world| Box::pin(create(world, 3)),
    },
    Scenario {
        name: "create-5",
        story: "a cluster of five is asked for",
        script: |world| Box::pin(create(world, 5)),
    },
    Scenario {
        name: "grow-and-shrink",
        story: "1 -> 3 -> 5 -> 3 -> 1, each when the one before is reached",
        script: |world| Box::pin(grow_and_shrink(world)),
    },
    Scenario {
        name: "edited-on-the-way",
        story: "3 -> 5 -> 1 -> 3 while nothing is finished: the newest target counts (scenario 20)",
        script: |world| Box::pin(edited_on_the_way(world)),
    },
    Scenario {
        name: "template-rolled",
        story: "resources and labels of the pods change; the user deletes one outdated pod after the other",
        script: |world| Box::pin(template_rolled(world)),
    },
    Scenario {
        name: "version-rolled",
        story: "the version changes, with the pods deleted by the user one after the other, and back",
        script: |world| Box::pin(version_rolled(world)),
    },
    Scenario {
        name: "version-refused",
        story: "two minor versions at once, and one that cannot read the disks any more, are refused before a pod is touched; the next one follows",
        script: |world| Box::pin(version_refused(world)),
    },
    Scenario {
        name: "operator-upgraded",
        story: "an operator of 0.2.0 takes over from one of 0.1.0: no pod is touched and a lost disk is replaced by a member of 0.1.0; the version follows, goes back, and cannot once the disks are written anew",
        script: |world| Box::pin(operator_upgraded(world)),
    },
    Scenario {
        name: "volume-grows",
        story: "the size of the volumes is raised, and who keeps them when the resource is deleted",
        script: |world| Box::pin(volume_grows(world)),
    },
    Scenario {
        name: "member-replaced",
        story: "replaceMembers names a member, then all of them",
        script: |world| Box::pin(member_replaced(world)),
    },
    Scenario {
        name: "paused",
        story: "paused while growing: nothing goes on, until it is resumed (scenario 20)",
        script: |world| Box::pin(paused(world)),
    },
    Scenario {
        name: "deleted-with-volumes",
        story: "the resource is deleted with its volumes, and made again under the same name (scenario 19)",
        script: |world| Box::pin(recreated(world, "Delete")),
    },
    Scenario {
        name: "deleted-without-volumes",
        story: "the resource is deleted and its volumes stay; one of the same name never touches them (scenario 19)",
        script: |world| Box::pin(recreated(world, "Retain")),
    },
    Scenario {
        name: "deleted-held",
        story: "the resource is deleted and waits for its last backup: a lost disk is replaced and a size is reached meanwhile; let go, everything goes",
        script: |world| Box::pin(deleted_held(world)),
    },
    Scenario {
        name: "removed-volumes-kept",
        story: "3 -> 1 with volumes of removed members kept: they are marked and stay",
        script: |world| Box::pin(removed_volumes_kept(world)),
    },
];

async fn create(world: &mut World, replicas: u32) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    world.settle(SOON_MS).await
}

async fn grow_and_shrink(world: &mut World) -> Result<(), Failure> {
    create(world, 1).await?;
    for replicas in [3, 5, 3, 1] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
    }
    Ok(())
}

async fn edited_on_the_way(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    for replicas in [5, 1, 3] {
        user::edit(world, "demo", &json!({"replicas": replicas}));
        world.pass_ms(4_000).await?;
    }
    world.settle(SOON_MS).await
}

async fn template_rolled(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    let change = json!({
        "resources": {"requests": {"cpu": "100m"}},
        "podTemplate": {"metadata": {"labels": {"team": "storage"}}},
    });
    user::edit(world, "demo", &change);
    user::roll(world, "demo").await
}

async fn version_rolled(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    for version in [user::later(1, "0"), user::VERSION.to_owned()] {
        user::edit(world, "demo", &json!({"version": version}));
        user::roll(world, "demo").await?;
        let reported = user::status(world, "demo")["version"].clone();
        if reported != version {
            return Err(world.unexpected(format!("the status reports version {reported}")));
        }
    }
    Ok(())
}

/// Edits the version; the reason is reported and nothing else is done.
async fn refused(world: &mut World, version: &str) -> Result<(), Failure> {
    let writes = world.writes();
    user::edit(world, "demo", &json!({"version": version}));
    let what = format!("{version} is refused");
    world
        .until(&what, 60_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("VersionRefused")
        })
        .await?;
    world.pass_ms(60_000).await?;
    if world.writes() != writes {
        return Err(world.unexpected("something was done"));
    }
    Ok(())
}

/// These servers only report such versions, and since which one their disks can be read.
async fn version_refused(world: &mut World) -> Result<(), Failure> {
    let (next, after) = (user::later(1, "0"), user::later(2, "0"));
    create(world, 3).await?;
    refused(world, &after).await?;
    user::edit(world, "demo", &json!({"version": next}));
    user::roll(world, "demo").await?;
    lock(&world.servers).behaviour.readable_since = next.clone();
    refused(world, user::VERSION).await?;
    user::edit(world, "demo", &json!({"replicas": 0, "version": next}));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    refused(world, user::VERSION).await?;
    user::edit(world, "demo", &json!({"version": after}));
    user::roll(world, "demo").await
}

/// An operator of 0.2.0 comes to a cluster that one of 0.1.0 made. The version is the resource's: neither the operator's own
/// nor the newer definition's default changes it.
async fn operator_upgraded(world: &mut World) -> Result<(), Failure> {
    let (earlier, now) = ("0.1.0", "0.2.0");
    world.image.version = earlier.to_owned();
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["version"] = json!(earlier);
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    world.stop_operators();
    as_the_first_builder_made(world);
    let found = contents(world);
    world.image.version = now.to_owned();
    world.start_operator("operator-2");
    world.pass_ms(30_000).await?;
    world.settle(SOON_MS).await?;
    unchanged(world, &found, "the upgrade")?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    world.settle(SOON_MS).await?;
    runs(world, earlier)?;
    for version in [now, earlier, now] {
        user::edit(world, "demo", &json!({"version": version}));
        user::roll(world, "demo").await?;
        runs(world, version)?;
    }
    // Checkpoints have moved values to files.
    lock(&world.servers).behaviour.readable_since = now.to_owned();
    refused(world, earlier).await
}

/// Every member's pod is of this version's image.
fn runs(world: &World, version: &str) -> Result<(), Failure> {
    let wanted = format!("registry.example/quorate:{version}");
    for pod in user::objects(world, Kind::Pod) {
        let image = &pod["spec"]["containers"][0]["image"];
        if *image != wanted {
            return Err(world.unexpected(format!("{} runs {image}", object::name(&pod))));
        }
    }
    match user::status(world, "demo")["version"] == version {
        true => Ok(()),
        false => Err(world.unexpected(format!("the status does not report version {version}"))),
    }
}

async fn volume_grows(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    let change = json!({"storage": {"size": "2Gi", "retention": {"whenDeleted": "Delete"}}});
    user::edit(world, "demo", &change);
    world.settle(SOON_MS).await?;
    let api = world.api.clone();
    let grown = |pvc: &&std::sync::Arc<serde_json::Value>| {
        let size = object::text(pvc, &["status", "capacity", "storage"]);
        size == "2Gi" && !object::owners(pvc).is_empty()
    };
    let grown = api
        .lock()
        .all(Kind::PersistentVolumeClaim)
        .filter(grown)
        .count();
    if grown != 3 {
        return Err(world.unexpected(format!("{grown} of 3 PVCs have grown and are owned")));
    }
    Ok(())
}

async fn member_replaced(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    let first = user::voters(world);
    user::edit(
        world,
        "demo",
        &json!({"replaceMembers": [user::leader(world)]}),
    );
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replaceMembers": first}));
    world.settle(SOON_MS).await?;
    let kept = user::voters(world)
        .into_iter()
        .find(|name| first.contains(name));
    match kept {
        Some(name) => Err(world.unexpected(format!("{name} was not replaced"))),
        None => Ok(()),
    }
}

async fn paused(world: &mut World) -> Result<(), Failure> {
    create(world, 1).await?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.pass_ms(3_000).await?;
    user::edit(world, "demo", &json!({"paused": true}));
    world.pass_ms(2_000).await?;
    let (before, writes) = (user::configuration(world), world.writes());
    world.pass_ms(60_000).await?;
    if user::configuration(world) != before || world.writes() != writes {
        return Err(world.unexpected("something was done although it is paused"));
    }
    user::edit(world, "demo", &json!({"paused": false}));
    world.settle(SOON_MS).await
}

async fn recreated(world: &mut World, when_deleted: &str) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["storage"]["retention"] = json!({"whenDeleted": when_deleted});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    user::delete(world, Kind::EtcdCluster, "demo");
    world.pass_ms(1_000).await?;
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    let pvcs = user::objects(world, Kind::PersistentVolumeClaim).len();
    let wanted = if when_deleted == "Retain" { 6 } else { 3 };
    if pvcs != wanted {
        return Err(world.unexpected(format!("{pvcs} PVCs of {wanted}")));
    }
    Ok(())
}

/// The backup itself is made apart from the cluster's reconciles: here the finalizer is put on and taken off as they do.
async fn deleted_held(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    user::finalizers(world, "demo", &[FINALIZER_BACKUP]);
    user::delete(world, Kind::EtcdCluster, "demo");
    world.settle(SOON_MS).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    user::edit(world, "demo", &json!({"replicas": 1}));
    world.settle(SOON_MS).await?;
    user::finalizers(world, "demo", &[]);
    world.settle(SOON_MS).await?;
    match user::objects(world, Kind::StatefulSet).is_empty() {
        true => Ok(()),
        false => Err(world.unexpected("something runs on")),
    }
}

async fn removed_volumes_kept(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["storage"]["retention"] = json!({"whenRemoved": "Retain"});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 1}));
    world.settle(SOON_MS).await
}
