//! What must not cost data or stop healing: a Secret that somebody deletes, a node that is replaced
//! by another one of its name, a webhook that does not answer, a drain that removes first.

use serde_json::{Value, json};

use crate::opsim::api::Kind;
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

use super::nodes::{Drain, finish, none_is_on, three};

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "identity-deleted",
        story: "somebody deletes the Secret with the identity of a cluster that serves: it is made again from the members' word, and a lost disk is replaced meanwhile",
        script: |world| Box::pin(identity_deleted(world)),
    },
    Scenario {
        name: "identity-deleted-early",
        story: "the Secret goes while the cluster is being made: the seed's server reports an empty disk, and the cluster is formed once",
        script: |world| Box::pin(identity_deleted_early(world)),
    },
    Scenario {
        name: "only-node-replaced",
        story: "the only node that can use a member's volume is deleted and comes back: the same member goes on with its volume",
        script: |world| Box::pin(only_node_replaced(world)),
    },
    Scenario {
        name: "webhook-dead",
        story: "a webhook on Services does not answer and a member loses its disk: it is replaced all the same, and the status reports what fails",
        script: |world| Box::pin(webhook_dead(world)),
    },
    Scenario {
        name: "refused-and-healed",
        story: "a flag that no server knows, then a version that cannot follow, each beside a lost disk: only the change is refused, also by an operator that was just started",
        script: |world| Box::pin(refused_and_healed(world)),
    },
    Scenario {
        name: "spec-not-recorded",
        story: "an admitted specification cannot be recorded: nothing is made from it, a lost disk is replaced all the same, and a change that is refused later takes nothing back",
        script: |world| Box::pin(spec_not_recorded(world)),
    },
    Scenario {
        name: "drain-remove-first",
        story: "every member's node is drained with nodeReplacement RemoveFirst: each is removed before its successor comes",
        script: |world| Box::pin(drain_remove_first(world)),
    },
];

fn has_identity(world: &World) -> bool {
    let found = world
        .api
        .lock()
        .get(Kind::Secret, NAMESPACE, "demo-identity");
    found.is_some()
}

async fn identity_deleted(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let before = user::configuration(world);
    user::delete(world, Kind::Secret, "demo-identity");
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)?;
    if !has_identity(world) {
        return Err(world.unexpected("there is no identity"));
    }
    // Once more, beside a lost disk.
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::delete(world, Kind::Secret, "demo-identity");
    world.settle(SOON_MS).await?;
    if user::voters(world).contains(&victim) || !has_identity(world) {
        return Err(world.unexpected(format!("{victim} still votes, or there is no identity")));
    }
    Ok(())
}

async fn identity_deleted_early(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world
        .until("a PVC", 60_000, |world, _| {
            !user::objects(world, Kind::PersistentVolumeClaim).is_empty()
        })
        .await?;
    user::delete(world, Kind::Secret, "demo-identity");
    world.settle(SOON_MS).await
}

async fn only_node_replaced(world: &mut World) -> Result<(), Failure> {
    three(world, "local").await?;
    let before = user::configuration(world);
    let node = user::node_of(world, &user::follower(world));
    world.containers.kube.node_down(&node);
    world.pass_ms(20_000).await?;
    world.containers.kube.node_delete(&node);
    world.pass_ms(60_000).await?;
    user::unchanged(world, before)?;
    world.containers.kube.add_node(&node, "zone-1");
    world.settle(SOON_MS).await?;
    user::unchanged(world, before)
}

async fn webhook_dead(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    lock(&world.ledger).webhook = " services";
    user::delete(world, Kind::Service, "demo-client");
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    world
        .until("the failure in the status", 200_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("ActFails")
        })
        .await?;
    lock(&world.ledger).webhook = "";
    world.settle(SOON_MS).await?;
    if user::status(world, "demo")["failing"].is_object() {
        return Err(world.unexpected("the status still reports a failure"));
    }
    Ok(())
}

async fn drain_remove_first(world: &mut World) -> Result<(), Failure> {
    three(world, "local").await?;
    let change = json!({"disruption": {"nodeReplacement": "RemoveFirst"}});
    user::edit(world, "demo", &change);
    world.settle(SOON_MS).await?;
    world.containers.kube.add_node("node-d", "zone-1");
    for node in ["node-a", "node-b", "node-c"] {
        let drain = Drain::begin(world, node);
        finish(world, vec![drain], 1).await?;
        world.settle(SOON_MS).await?;
        none_is_on(world, node)?;
        world.containers.kube.cordon(node, false);
    }
    Ok(())
}

/// Found by reading: five voters were made from a specification that was recorded nowhere, and a version that was refused
/// afterwards brought back the recorded one with three: two healthy voters were removed, with their volumes.
async fn spec_not_recorded(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    lock(&world.ledger).webhook = " controllerrevisions";
    let change = json!({"updateStrategy": {"minReadySeconds": 7}});
    user::edit(world, "demo", &change);
    world
        .until("the failure in the status", 200_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("ActFails")
        })
        .await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.pass_ms(60_000).await?;
    let voters = user::voters(world);
    user::edit(world, "demo", &json!({"version": user::later(2, "0")}));
    world.pass_ms(300_000).await?;
    if user::voters(world) != voters || voters.len() != 3 {
        return Err(world.unexpected("the voters changed"));
    }
    lock(&world.ledger).webhook = "";
    user::edit(world, "demo", &json!({"version": null}));
    user::roll(world, "demo").await?;
    match user::voters(world).len() {
        5 => Ok(()),
        other => Err(world.unexpected(format!("{other} voters"))),
    }
}

async fn refused_and_healed(world: &mut World) -> Result<(), Failure> {
    three(world, "standard").await?;
    let bad = json!({"server": {"extraArgs": [{"name": "no-such-flag", "value": "1"}]}});
    refused_beside_a_loss(world, &bad, "InvalidSpec").await?;
    user::edit(world, "demo", &json!({"server": null}));
    world.settle(SOON_MS).await?;
    refused_beside_a_loss(
        world,
        &json!({"version": user::later(2, "0")}),
        "VersionRefused",
    )
    .await?;
    user::edit(world, "demo", &json!({"version": user::VERSION}));
    user::roll(world, "demo").await
}

/// A change is refused, the operator is another one, and a disk is lost.
async fn refused_beside_a_loss(
    world: &mut World,
    bad: &Value,
    reason: &str,
) -> Result<(), Failure> {
    user::edit(world, "demo", bad);
    world.pass_ms(20_000).await?;
    world.stop_operators();
    world.start_operator("operator-2");
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    user::replaced(world, &victim).await?;
    world
        .until("the refusal in a whole status", 60_000, |world, _| {
            let status = user::status(world, "demo");
            user::reason(world, "demo", "Stalled").as_deref() == Some(reason)
                && status["members"]
                    .as_array()
                    .is_some_and(|all| all.len() == 3)
                && status["endpoints"]["client"].is_string()
                && status["version"] == user::VERSION
        })
        .await
}
