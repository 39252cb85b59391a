//! Who may make and edit objects in a cluster's namespace, and is not the operator: objects with a
//! cluster's labels have no effect, and edits of what the operator made do not last.

use std::collections::BTreeMap;

use rand::RngExt as _;
use serde_json::{Value, json};

use crate::opsim::api::{Kind, Patch, object};
use crate::opsim::faults;
use crate::opsim::harness::ground::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "strangers",
        story: "somebody makes pods, a set, a claim, a Service and a Secret with the cluster's labels, whose servers say that they lead: the cluster is made, grows, is healed and shrinks as without them",
        script: |world| Box::pin(strangers(world)),
    },
    Scenario {
        name: "edited-by-hand",
        story: "somebody edits sets, Services and the disruption budget by hand, some at a time: all of it is taken back, and no pod is restarted for it",
        script: |world| Box::pin(edited(world)),
    },
];

async fn strangers(world: &mut World) -> Result<(), Failure> {
    world.intruder = true;
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"tls": {}}));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 3}));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"replicas": 0}));
    world.settle(SOON_MS).await
}

/// Kinds whose objects are edited.
const EDITED: [Kind; 3] = [Kind::StatefulSet, Kind::Service, Kind::PodDisruptionBudget];

/// What somebody may write into an object of this kind.
fn edits(kind: Kind) -> Vec<Value> {
    let selector = |labels: Value| json!({"spec": {"selector": labels}});
    match kind {
        Kind::StatefulSet => vec![
            json!({"spec": {"replicas": 2}}),
            json!({"spec": {"template": {"spec": {"serviceAccountName": "mine"}}}}),
            json!({"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}}}),
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 0}}}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}}),
        ],
        Kind::Service => vec![
            selector(json!({"app": "mine"})),
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
            json!({"metadata": {"annotations": {"quorate.dev/inputs": null}}}),
        ],
        _ => vec![
            json!({"spec": {"maxUnavailable": 3}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
        ],
    }
}

/// What the objects of the operator's say, and the pods that are there.
fn told(world: &World) -> BTreeMap<String, Value> {
    let api = world.api.lock();
    let mut told = BTreeMap::new();
    for kind in EDITED {
        for one in api.all(kind) {
            let name = format!("{} {}", kind.name(), object::name(one));
            let meta = &one["metadata"];
            let said = json!([one["spec"], meta["labels"], meta["annotations"]]);
            told.insert(name, said);
        }
    }
    for pod in api.all(Kind::Pod) {
        told.insert(
            format!("Pod {}", object::name(pod)),
            json!(object::uid(pod)),
        );
    }
    told
}

async fn edited(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let before = told(world);
    for round in 0..4 {
        for kind in EDITED {
            let api = world.api.clone();
            let names: Vec<String> = {
                let api = api.lock();
                let all = api.all(kind).map(|one| object::name(one).to_owned());
                all.collect()
            };
            let choices = edits(kind);
            for name in names {
                // Some of them, and in the first round each once.
                if round > 0 && world.random.random_bool(0.5) {
                    continue;
                }
                let edit = choices[world.random.random_range(0..choices.len())].clone();
                let edit = Patch::Merge(edit);
                let made = api.lock().patch("user", kind, (NAMESPACE, &name), edit);
                if let Err(refusal) = made {
                    return Err(world.unexpected(format!("{name}: {}", refusal.message)));
                }
            }
        }
        world.pass_ms(30_000).await?;
        world.settle(SOON_MS).await?;
        let now = told(world);
        if let Some((name, _)) = before
            .iter()
            .find(|(name, said)| now.get(*name) != Some(said))
        {
            let (was, is) = (&before[name], now.get(name));
            return Err(world.unexpected(format!("{name} was {was} and is {is:?}")));
        }
        if now.len() != before.len() {
            return Err(world.unexpected("something was left of the edits"));
        }
    }
    Ok(())
}
