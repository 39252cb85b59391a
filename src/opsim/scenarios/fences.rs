//! Voters that the user fences: stopped, left as they are, and started again.

use crate::crd::{ANNOTATION_FENCED, pod_name};
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::same_voters;

pub(super) const SCENARIOS: [Scenario; 2] = [
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

/// The claims by name and UID.
fn claims(world: &World) -> Vec<(String, String)> {
    let all = user::objects(world, Kind::PersistentVolumeClaim);
    let one = |claim: &std::sync::Arc<serde_json::Value>| {
        (
            object::name(claim).to_owned(),
            object::uid(claim).to_owned(),
        )
    };
    all.iter().map(one).collect()
}

async fn leader(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let (voters, disks) = (user::voters(world), claims(world));
    let fenced = user::leader(world).unwrap_or_default();
    fence(world, &fenced);
    world
        .until("its pod is gone", 120_000, |world, _| {
            !has_pod(world, &fenced)
        })
        .await?;
    let annotations = serde_json::json!({"podTemplate": {"metadata": {"annotations": {"example.org/roll": "1"}}}});
    user::edit(world, "demo", &annotations);
    world.pass_ms(600_000).await?;
    if has_pod(world, &fenced) || claims(world) != disks {
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
    if claims(world) != disks {
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
