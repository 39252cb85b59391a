//! Resources that are deleted, and others of their name that adopt the volumes.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "adopted",
        story: "the resource is deleted and its volumes stay; at once another one of its name adopts them: the same members go on as the same cluster, and once more",
        script: |world| Box::pin(adopted(world)),
    },
    Scenario {
        name: "adopted-with-tls",
        story: "a cluster without TLS is deleted, and adopted by a resource with it",
        script: |world| Box::pin(adopted_with_tls(world)),
    },
    Scenario {
        name: "adopted-one-missing",
        story: "one of three volumes is gone when they are adopted: the others have a quorum, and it is replaced",
        script: |world| Box::pin(one_missing(world)),
    },
    Scenario {
        name: "adopted-foreign",
        story: "an adopted volume holds the data of another cluster: its member is replaced, and the volume is kept",
        script: |world| Box::pin(foreign(world)),
    },
    Scenario {
        name: "adopted-recovered",
        story: "one of three volumes is left: nothing is formed, which is reported, until a recovery names it; then the recovered cluster is deleted and adopted",
        script: |world| Box::pin(too_few(world)),
    },
    Scenario {
        name: "adopted-nothing",
        story: "the UID is none that volumes have: that is reported, and nothing is formed",
        script: |world| Box::pin(nothing(world)),
    },
];

/// The UID by which volumes can be adopted.
fn life(world: &World) -> String {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    found.map_or(String::new(), |found| object::life(&found).to_owned())
}

/// Three members that serve. Gives the UID that their volumes carry.
async fn three(world: &mut World) -> Result<String, Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    Ok(life(world))
}

/// The specification of a resource that adopts.
fn adopting(life: &str) -> Value {
    let mut spec = user::spec(3);
    spec["bootstrap"] = json!({"adopt": {"clusterUID": life}});
    spec
}

/// Deletes the resource. Its objects go before long, and its volumes stay.
fn delete(world: &mut World) {
    user::delete(world, Kind::EtcdCluster, "demo");
}

fn formed(world: &World, clusters: usize) -> Result<(), Failure> {
    let founded: usize = lock(&world.servers).founded.values().map(Vec::len).sum();
    match founded == clusters {
        true => Ok(()),
        false => Err(world.unexpected(format!("{founded} clusters were formed"))),
    }
}

async fn adopted(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    let (voters, before) = (user::voters(world), user::configuration(world));
    for pause_ms in [0, 20_000] {
        delete(world);
        world.pass_ms(pause_ms).await?;
        user::create(world, "demo", &adopting(&life));
        world.settle(SOON_MS).await?;
        user::unchanged(world, before)?;
        formed(world, 1)?;
    }
    if user::voters(world) != voters {
        return Err(world.unexpected("other members serve"));
    }
    Ok(())
}

async fn adopted_with_tls(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    delete(world);
    let mut spec = adopting(&life);
    spec["tls"] = json!({});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    formed(world, 1)
}

async fn one_missing(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    let victim = user::follower(world);
    delete(world);
    world.pass_ms(5_000).await?;
    faults::sleepers_pvc_is_deleted(world, &victim);
    world.pass_ms(1_000).await?;
    user::create(world, "demo", &adopting(&life));
    user::replaced(world, &victim).await?;
    world.settle(SOON_MS).await?;
    formed(world, 1)
}

async fn foreign(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    let victim = user::follower(world);
    let volume = faults::volume_of(world, &victim);
    delete(world);
    world.pass_ms(5_000).await?;
    lock(&world.servers).swap(&volume, "of-another-cluster");
    user::create(world, "demo", &adopting(&life));
    user::replaced(world, &victim).await?;
    world.settle(SOON_MS).await?;
    let pvcs = user::objects(world, Kind::PersistentVolumeClaim);
    if pvcs.len() != 4 {
        return Err(world.unexpected("the volume of another cluster was deleted"));
    }
    formed(world, 1)
}

/// Nothing is formed, and this is the reason that is reported.
async fn stalls(world: &mut World, reason: &str) -> Result<(), Failure> {
    let reported =
        |world: &World, _: &_| user::reason(world, "demo", "Stalled").as_deref() == Some(reason);
    world.until(reason, 120_000, reported).await?;
    world.pass_ms(30_000).await
}

async fn too_few(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    let survivor = user::follower(world);
    let others = user::voters(world).into_iter();
    let others: Vec<String> = others.filter(|name| *name != survivor).collect();
    delete(world);
    world.pass_ms(5_000).await?;
    for member in others {
        faults::sleepers_pvc_is_deleted(world, &member);
    }
    world.pass_ms(1_000).await?;
    user::create(world, "demo", &adopting(&life));
    stalls(world, "DataLost").await?;
    formed(world, 1)?;
    super::recoveries::recover(world, Some(&survivor), 1).await?;
    super::recoveries::recovered(world, 1).await?;
    formed(world, 2)?;
    delete(world);
    world.pass_ms(5_000).await?;
    user::create(world, "demo", &adopting(&life));
    world.settle(SOON_MS).await?;
    formed(world, 2)
}

async fn nothing(world: &mut World) -> Result<(), Failure> {
    let life = three(world).await?;
    delete(world);
    world.pass_ms(5_000).await?;
    user::create(
        world,
        "demo",
        &adopting("11111111-2222-3333-4444-555555555555"),
    );
    stalls(world, "NothingToAdopt").await?;
    formed(world, 1)?;
    delete(world);
    world.pass_ms(5_000).await?;
    user::create(world, "demo", &adopting(&life));
    world.settle(SOON_MS).await?;
    formed(world, 1)
}
