//! Voters that the user fences: stopped, left as they are, and started again.

use serde_json::json;

use crate::crd::{ANNOTATION_FENCED, pod_name};
use crate::opsim::api::Kind;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::same_voters;

pub(super) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "fence",
        story: "the leader is fenced, longer than any deadline, while the spec changes: its pod goes, its volume and its membership stay; then it comes back on its disk, and the change goes on",
        script: |world| Box::pin(leader(world)),
    },
    Scenario {
        name: "fence-quorum",
        story: "every voter is fenced at once: one is stopped, and the others go on",
        script: |world| Box::pin(quorum(world)),
    },
    Scenario {
        name: "fence-set-deleted",
        story: "a voter is fenced, all are named then, and somebody deletes the StatefulSet of one that runs: that one starts again, and the fenced one stays stopped",
        script: |world| Box::pin(set_deleted(world)),
    },
    Scenario {
        name: "fence-budget",
        story: "evictions are counted, and drains ask for them again and again while a voter is fenced: no second one goes with it",
        script: |world| Box::pin(budget(world)),
    },
];

async fn made(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await
}

fn fence(world: &mut World, names: &str) {
    user::annotate(world, "demo", ANNOTATION_FENCED, names);
}

fn has_pod(world: &World, member: &str) -> bool {
    let pod = world
        .api
        .lock()
        .get(Kind::Pod, NAMESPACE, &pod_name(member));
    pod.is_some()
}

async fn leader(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let (voters, disks) = (
        user::voters(world),
        user::uids(world, Kind::PersistentVolumeClaim),
    );
    let fenced = user::leader(world).unwrap_or_default();
    fence(world, &fenced);
    world
        .until("its pod is gone", 120_000, |world, _| {
            !has_pod(world, &fenced)
        })
        .await?;
    user::change_template(world, "demo");
    world.pass_ms(600_000).await?;
    if has_pod(world, &fenced) || user::uids(world, Kind::PersistentVolumeClaim) != disks {
        return Err(world.unexpected(format!("{fenced} was not left as it was")));
    }
    same_voters(world, &voters)?;
    if user::reason(world, "demo", "Degraded").as_deref() != Some("Fenced") {
        return Err(world.unexpected("the status does not say that a member is fenced"));
    }
    if user::leader(world).is_none() {
        return Err(world.unexpected("nobody leads beside it"));
    }
    fence(world, "");
    user::roll(world, "demo").await?;
    if user::uids(world, Kind::PersistentVolumeClaim) != disks {
        return Err(world.unexpected("the volumes are others"));
    }
    same_voters(world, &voters)
}

async fn quorum(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let voters = user::voters(world);
    fence(world, &voters.join(","));
    world.pass_ms(300_000).await?;
    let stopped = voters.iter().filter(|name| !has_pod(world, name)).count();
    if stopped != 1 || user::leader(world).is_none() {
        return Err(world.unexpected(format!("{stopped} members are stopped")));
    }
    fence(world, "");
    world.settle(SOON_MS).await?;
    same_voters(world, &voters)
}

async fn set_deleted(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let voters = user::voters(world);
    let fenced = voters.last().cloned().unwrap_or_default();
    fence(world, &fenced);
    world
        .until("its pod is gone", 120_000, |world, _| {
            !has_pod(world, &fenced)
        })
        .await?;
    fence(world, &voters.join(","));
    world.pass_ms(60_000).await?;
    let leader = user::leader(world);
    let mut others = voters.iter().filter(|name| **name != fenced);
    let victim = others.find(|name| Some(*name) != leader.as_ref());
    user::delete(world, Kind::StatefulSet, victim.map_or("", |name| name));
    world.pass_ms(120_000).await?;
    let stopped = voters.iter().filter(|name| !has_pod(world, name));
    let stopped: Vec<&String> = stopped.collect();
    if stopped != [&fenced] || user::leader(world).is_none() {
        return Err(world.unexpected(format!("{stopped:?} are stopped, and {fenced} is fenced")));
    }
    fence(world, "");
    world.settle(SOON_MS).await?;
    same_voters(world, &voters)
}

async fn budget(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    let mut spec = user::spec(3);
    spec["disruption"] = json!({"policy": "Budget"});
    user::create(world, "demo", &spec);
    world.settle(SOON_MS).await?;
    let voters = user::voters(world);
    let fenced = user::leader(world).unwrap_or_default();
    fence(world, &fenced);
    let others: Vec<String> = voters
        .iter()
        .filter(|name| **name != fenced)
        .cloned()
        .collect();
    for second in 0..300 {
        let pod = pod_name(&others[second % others.len()]);
        let went = world
            .api
            .lock()
            .evict("user", (NAMESPACE, &pod), &json!({}));
        world.pass_ms(1_000).await?;
        let running = voters.iter().filter(|name| has_pod(world, name)).count();
        if running < 2 {
            return Err(world.unexpected(format!(
                "{running} members run, {pod} was evicted: {went:?}"
            )));
        }
        if !has_pod(world, &fenced) {
            break;
        }
    }
    world.pass_ms(120_000).await?;
    if has_pod(world, &fenced) || user::leader(world).is_none() {
        return Err(world.unexpected(format!("{fenced} is not fenced, or nobody leads")));
    }
    fence(world, "");
    world.settle(SOON_MS).await?;
    same_voters(world, &voters)
}
