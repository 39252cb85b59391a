//! What becomes of clients when their member leaves: Services lead them elsewhere first, however long
//! Kubernetes takes to write that down, and no wait for it is unbounded.

use serde_json::json;

use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "endpoints-late",
        story: "Kubernetes takes fifteen seconds to write down who is ready, then two minutes: a member that leaves is waited for until no Service leads to it, and no longer than half a minute",
        script: |world| Box::pin(late(world)),
    },
    Scenario {
        name: "endpoints-unseen",
        story: "the operator's role is of before it looked at endpoints: it reports that, waits for half a minute each time, and goes on",
        script: |world| Box::pin(unseen(world)),
    },
];

async fn late(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    world.containers.kube.set_endpoints_ms(15_000);
    user::edit(
        world,
        "demo",
        &json!({"resources": {"requests": {"cpu": "200m"}}}),
    );
    world.settle(SOON_MS).await?;
    world.containers.kube.set_endpoints_ms(120_000);
    user::edit(world, "demo", &json!({"replicas": 1}));
    world.settle(SOON_MS).await
}

async fn unseen(world: &mut World) -> Result<(), Failure> {
    world.without_slices();
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let conditions = user::status(world, "demo")["conditions"].to_string();
    if !conditions.contains("no right to read endpointslices") {
        return Err(world.unexpected(format!("it does not report what is missing: {conditions}")));
    }
    world.containers.kube.set_endpoints_ms(20_000);
    user::edit(world, "demo", &json!({"replicas": 1}));
    world.settle(SOON_MS).await
}
