//! A webhook adds a container and an init container to the pods of members, as a service mesh does: the operator does not take
//! that for an edit, reads its own container alone, and removes no member for what another one does.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, SIDECAR, object};
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::kube::Sidecar;
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::same_voters;

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "sidecar",
        story: "a webhook adds a sidecar to every member's pod: the cluster is made, resized in place, grown and rolled with it, and nothing of it is undone",
        script: |world| Box::pin(injected(world)),
    },
    Scenario {
        name: "sidecar-hangs",
        story: "the init container of a sidecar does not end in a member's new pod: the pod is replaced, the member is kept, and the status says what it waits for",
        script: |world| Box::pin(hangs(world)),
    },
    Scenario {
        name: "sidecar-crashes",
        story: "the sidecar of a member crashes, so that its pod is not ready: the status says so, a changed spec is given to that member first and to no other one before it is ready, and none is removed",
        script: |world| Box::pin(crashes(world)),
    },
];

async fn made(world: &mut World) -> Result<(), Failure> {
    world.api.lock().inject_sidecars();
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await
}

/// Whether every member's pod has the sidecar and the server.
fn all_have_both(world: &World) -> Result<(), Failure> {
    for pod in user::objects(world, Kind::Pod) {
        let names = object::items(&pod, &["spec", "containers"]).iter();
        let names: Vec<&Value> = names.map(|one| &one["name"]).collect();
        if names != [SIDECAR, "member"] {
            return Err(world.unexpected(format!("{} has {names:?}", object::name(&pod))));
        }
    }
    Ok(())
}

async fn injected(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    all_have_both(world)?;
    let before = user::uids(world, Kind::Pod);
    let requests = json!({"resources": {"requests": {"cpu": "200m"}}});
    user::edit(world, "demo", &requests);
    world.settle(SOON_MS).await?;
    if user::uids(world, Kind::Pod) != before {
        return Err(world.unexpected("a pod was made again for its requests".to_owned()));
    }
    for pod in user::objects(world, Kind::Pod) {
        let [sidecar, own] =
            [0, 1].map(|at| &pod["spec"]["containers"][at]["resources"]["requests"]["cpu"]);
        if sidecar != "10m" || own != "200m" {
            return Err(
                world.unexpected(format!("the sidecar requests {sidecar}, the server {own}"))
            );
        }
    }
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    user::change_template(world, "demo");
    user::roll(world, "demo").await?;
    all_have_both(world)
}

async fn hangs(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let voters = user::voters(world);
    let victim = user::follower(world);
    let pod = crate::crd::pod_name(&victim);
    world
        .containers
        .kube
        .set_sidecar(&pod, Some(Sidecar::Hangs));
    user::delete(world, Kind::Pod, &pod);
    world
        .until("the status names the sidecar", 600_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("SidecarFailing")
        })
        .await?;
    // Long after healing.unhealthySeconds.
    world.pass_ms(600_000).await?;
    same_voters(world, &voters)?;
    world.containers.kube.set_sidecar(&pod, None);
    world.settle(SOON_MS).await?;
    same_voters(world, &voters)
}

async fn crashes(world: &mut World) -> Result<(), Failure> {
    made(world).await?;
    let voters = user::voters(world);
    let victim = user::follower(world);
    let pod = crate::crd::pod_name(&victim);
    world
        .containers
        .kube
        .set_sidecar(&pod, Some(Sidecar::Crashes));
    world
        .until("the status names the sidecar", 120_000, |world, _| {
            user::reason(world, "demo", "Degraded").as_deref() == Some("SidecarFailing")
        })
        .await?;
    // The pod of that member, and those of the others.
    let pods = |world: &World| {
        let all = user::uids(world, Kind::Pod).into_iter();
        all.partition::<Vec<_>, _>(|(name, _)| *name == pod)
    };
    let before = pods(world);
    user::change_template(world, "demo");
    world
        .until("it has the changed spec first", 120_000, |world, _| {
            let (own, _) = pods(world);
            !own.is_empty() && own != before.0
        })
        .await?;
    world.pass_ms(600_000).await?;
    if pods(world).1 != before.1 {
        return Err(world.unexpected("another member was restarted beside it".to_owned()));
    }
    same_voters(world, &voters)?;
    world.containers.kube.set_sidecar(&pod, None);
    user::roll(world, "demo").await?;
    same_voters(world, &voters)
}
