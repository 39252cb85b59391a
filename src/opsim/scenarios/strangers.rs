//! Who may make and edit objects in a cluster's namespace, and is not the operator: objects with a
//! cluster's labels have no effect, and edits of what the operator made do not last.

use std::collections::BTreeMap;

use rand::RngExt as _;
use serde_json::{Value, json};

use crate::crd::{
    ANNOTATION_BUILDER, ANNOTATION_IMAGE, ANNOTATION_RENDERED, ANNOTATION_RESTART_INPUTS,
    ANNOTATION_VERSION,
};
use crate::opsim::api::{Kind, Patch, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "strangers",
        story: "somebody makes pods, a set, a PVC, a Service and a Secret with the cluster's labels, whose servers report that they lead: the cluster is made, grows, is healed and shrinks as without them",
        script: |world| Box::pin(strangers(world)),
    },
    Scenario {
        name: "edited-by-hand",
        story: "somebody edits sets, Services and the PDB by hand, some at a time: all of it is taken back, and no pod is restarted for it",
        script: |world| Box::pin(edited(world)),
    },
    Scenario {
        name: "upgraded-and-edited",
        story: "an operator finds what that of release 0.1.0 made, and leaves it as it is; what somebody edits of it by hand is taken back, and no pod is restarted for it",
        script: |world| Box::pin(upgraded(world)),
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
            // At rest, where it has this field.
            json!({"spec": {"minAvailable": 3}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
        ],
    }
}

/// The content of the operator's objects, and the existing pods.
pub(super) fn contents(world: &World) -> BTreeMap<String, Value> {
    let mut contents = BTreeMap::new();
    for kind in EDITED {
        for one in user::objects(world, kind) {
            let name = format!("{} {}", kind.name(), object::name(&one));
            let meta = &one["metadata"];
            let content = json!([one["spec"], meta["labels"], meta["annotations"]]);
            contents.insert(name, content);
        }
    }
    for pod in user::objects(world, Kind::Pod) {
        contents.insert(
            format!("Pod {}", object::name(&pod)),
            json!(object::uid(&pod)),
        );
    }
    contents
}

async fn edited(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let before = contents(world);
    rounds_of_edits(world, &before).await
}

async fn upgraded(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    let before = contents(world);
    world.stop_operators();
    as_the_first_builder_made(world);
    let found = contents(world);
    world.start_operator("operator-2");
    world.pass_ms(30_000).await?;
    world.settle(SOON_MS).await?;
    unchanged(world, &found, "the upgrade")?;
    rounds_of_edits(world, &before).await
}

/// Makes of a cluster's objects what the operator of release 0.1.0 would have made.
pub(super) fn as_the_first_builder_made(world: &World) {
    const ACTOR: &str = "release-0.1.0";
    let mut api = world.api.lock();
    for kind in EDITED {
        let names: Vec<String> = api
            .all(kind)
            .map(|one| object::name(one).to_owned())
            .collect();
        for name in names {
            api.edit(ACTOR, kind, (NAMESPACE, &name), |one| {
                one["metadata"]["annotations"][ANNOTATION_BUILDER] = json!("1");
                if kind != Kind::StatefulSet {
                    return;
                }
                forget_later_notes(one);
                let template = &mut one["spec"]["template"];
                template["metadata"]["annotations"][ANNOTATION_BUILDER] = json!("1");
                forget_later_notes(template);
                template["spec"]["containers"][0]["resources"] = json!({});
            });
        }
    }
}

/// What the first builder did not note.
fn forget_later_notes(object: &mut Value) {
    if let Some(notes) = object["metadata"]["annotations"].as_object_mut() {
        for later in [
            ANNOTATION_RENDERED,
            ANNOTATION_RESTART_INPUTS,
            ANNOTATION_VERSION,
            ANNOTATION_IMAGE,
        ] {
            notes.remove(later);
        }
    }
}

/// Whether the objects and the pods are unchanged.
pub(super) fn unchanged(
    world: &World,
    before: &BTreeMap<String, Value>,
    what: &str,
) -> Result<(), Failure> {
    let now = contents(world);
    if let Some((name, was)) = before
        .iter()
        .find(|(name, content)| now.get(*name) != Some(content))
    {
        let is = now.get(name);
        return Err(world.unexpected(format!("after {what} {name} was {was} and is {is:?}")));
    }
    match now.len() == before.len() {
        true => Ok(()),
        false => Err(world.unexpected(format!("something was left of {what}"))),
    }
}

async fn rounds_of_edits(
    world: &mut World,
    before: &BTreeMap<String, Value>,
) -> Result<(), Failure> {
    for round in 0..4 {
        for kind in EDITED {
            let api = world.api.clone();
            let all = user::objects(world, kind);
            let names: Vec<String> = all.iter().map(|one| object::name(one).to_owned()).collect();
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
        unchanged(world, before, "the edits")?;
    }
    Ok(())
}
