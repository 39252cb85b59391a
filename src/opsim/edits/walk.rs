//! Walks a path of edits in a world, and the straight ways to where it ends.

use serde_json::{Value, json};

use crate::crd::{TlsPort, cert_manager_certificate_name};
use crate::opsim::api::{Kind, Patch, object};
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::scenarios::restores;
use crate::opsim::user::{self, SOON_MS};
use crate::opsim::user_certificates::{UserAuthority, put_certificate, put_trusted};

use super::EditCounts;
use super::fields::{NO_IMAGE, NO_VERSION, PRIORITY, ZONE};
use super::path::{Deed, Edit, Path, Target, Then, set};

const NAME: &str = "demo";
const ACTOR: &str = "user";

/// How a cluster comes to the specification at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By all of its edits.
    Edits,
    /// By one edit.
    Straight,
    /// It is made with it.
    Made,
}

/// Goes this way; at its end everything is at rest.
pub(super) async fn go(
    world: &mut World,
    path: &Path,
    way: Way,
    counts: &mut EditCounts,
) -> Result<(), Failure> {
    prepare(world);
    world.start_operator("operator-1");
    if way == Way::Made {
        user::create(world, NAME, &path.last);
        restores::send(world);
        return rest(world).await;
    }
    user::create(world, NAME, &path.first);
    restores::send(world);
    if way == Way::Straight {
        world.settle(SOON_MS).await?;
        replaced(world, &path.last)?;
        return rest(world).await;
    }
    // As often as not the first edit meets a cluster that is still being made.
    if path.edits.len().is_multiple_of(2) {
        world.settle(SOON_MS).await?;
    } else {
        world.pass_ms(3_000).await?;
    }
    let mut spec = path.first.clone();
    for edit in &path.edits {
        let at_rest = before(world, counts);
        made(world, edit, &mut spec, counts)?;
        counts.in_flight += u64::from(!at_rest);
        match edit.then {
            Then::Rest => world.settle(SOON_MS).await?,
            Then::Wait(ms) => world.pass_ms(ms).await?,
        }
    }
    rest(world).await?;
    scale_is_reported(world)
}

/// Seven nodes, so that five members and a sixth have one each; images that are not there.
fn prepare(world: &mut World) {
    let theirs = UserAuthority::new(world, NAME);
    // The last two are cert-manager's, which has them before anybody asks.
    let cert_manager = TlsPort::ALL.map(|port| cert_manager_certificate_name(NAME, port));
    let secrets = ["their-client", "their-peer", "their-other"].into_iter();
    for secret in secrets.chain(cert_manager.iter().map(String::as_str)) {
        put_certificate(world, secret, &theirs.signed(world, 90), &theirs.root);
    }
    put_trusted(world, "their-authorities", &theirs.root);
    let kube = &mut world.containers.kube;
    for node in ["node-d", "node-e", "node-f", "node-g"] {
        kube.add_node(node, ZONE);
    }
    kube.add_priority_class(PRIORITY);
    kube.set_bad_image(NO_IMAGE, true);
    kube.set_bad_image(&format!("registry.example/quorate:{NO_VERSION}"), true);
}

/// The desired state, and every member of the current specification.
async fn rest(world: &mut World) -> Result<(), Failure> {
    user::roll(world, NAME).await
}

/// Whether the edit about to be made meets a cluster that is as it should be.
fn before(world: &World, counts: &mut EditCounts) -> bool {
    counts.edits += 1;
    user::reason(world, NAME, "Ready").is_some() && user::outdated(world, NAME).is_none()
}

fn resource(world: &World) -> Value {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, NAME);
    found.map_or(Value::Null, |found| (*found).clone())
}

/// Makes one edit. One that has to be refused leaves the resource as it was.
fn made(
    world: &mut World,
    edit: &Edit,
    spec: &mut Value,
    counts: &mut EditCounts,
) -> Result<(), Failure> {
    counts.fields.insert(edit.field);
    let (value, refused) = match &edit.deed {
        Deed::Set(value) => (value.clone(), false),
        Deed::Refused(value) => (value.clone(), true),
        Deed::Scale(replicas) => {
            counts.scaled += 1;
            set(spec, "replicas", &json!(replicas));
            return scaled(world, *replicas);
        }
        Deed::Replace(target) => (named(world, *target), false),
        Deed::Metadata(number) => return remarked(world, *number),
    };
    let was = resource(world);
    let mut wanted = spec.clone();
    set(&mut wanted, edit.field, &value);
    let taken = if edit.whole {
        replace(world, &wanted)
    } else {
        let mut part = Value::Null;
        let way: Vec<&str> = edit.field.split('.').collect();
        // A merge patch adds to a map: what is not wanted any more is taken away by name.
        let old = object::at(&was["spec"], &way).cloned().unwrap_or_default();
        object::put(&mut part, &way, merged(&old, &value));
        patch(world, &json!({"spec": part}))
    };
    match (refused, taken) {
        (true, Ok(())) => {
            let what = format!("{} was given {value}, and it was not refused", edit.field);
            Err(world.unexpected(what))
        }
        (true, Err(_)) if resource(world) != was => Err(world.unexpected(format!(
            "a refused edit of {} changed something",
            edit.field
        ))),
        (true, Err(_)) => {
            counts.refused += 1;
            Ok(())
        }
        (false, Err(why)) => {
            Err(world.unexpected(format!("{} = {value} was refused: {why}", edit.field)))
        }
        (false, Ok(())) => {
            world.edits += 1;
            if edit.bad {
                counts.bad += 1;
                counts.open.insert(edit.field);
            } else if counts.open.remove(edit.field) {
                counts.bad_then_good += 1;
            }
            *spec = wanted;
            Ok(())
        }
    }
}

/// A merge patch that makes `new` of `old`.
fn merged(old: &Value, new: &Value) -> Value {
    let (Some(was), Some(is)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let gone = was.keys().filter(|key| !is.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let kept = is.iter();
    let kept = kept.map(|(key, value)| {
        let before = was.get(key).unwrap_or(&Value::Null);
        (key.clone(), merged(before, value))
    });
    gone.chain(kept).collect()
}

fn replaced(world: &mut World, spec: &Value) -> Result<(), Failure> {
    world.edits += 1;
    replace(world, spec).map_err(|why| world.unexpected(why))
}

/// A whole new object, as `kubectl replace` sends it.
fn replace(world: &mut World, spec: &Value) -> Result<(), String> {
    let mut object = resource(world);
    object["spec"] = spec.clone();
    let taken = world.api.lock().replace(ACTOR, Kind::EtcdCluster, object);
    taken.map(drop).map_err(|refusal| format!("{refusal:?}"))
}

fn patch(world: &mut World, part: &Value) -> Result<(), String> {
    let id = (NAMESPACE, NAME);
    let patch = Patch::Merge(part.clone());
    let taken = world.api.lock().patch(ACTOR, Kind::EtcdCluster, id, patch);
    taken.map(drop).map_err(|refusal| format!("{refusal:?}"))
}

/// What `kubectl scale` and autoscalers do: they know where the size is from the definition alone.
fn scaled(world: &mut World, replicas: u64) -> Result<(), Failure> {
    let paths = scale_paths();
    let way: Vec<&str> = paths[0].split('.').skip(1).collect();
    let mut part = Value::Null;
    object::put(&mut part, &way, json!(replicas));
    world.edits += 1;
    patch(world, &part).map_err(|why| world.unexpected(why))
}

/// Paths of the size, of the size as it is, and of the selector, in the scale subresource.
fn scale_paths() -> [String; 3] {
    use kube::CustomResourceExt as _;
    let crd = crate::crd::EtcdCluster::crd();
    let scale = crd.spec.versions.into_iter().next();
    let scale = scale.and_then(|version| version.subresources?.scale);
    scale.map_or_else(Default::default, |scale| {
        [
            scale.spec_replicas_path,
            scale.status_replicas_path,
            scale.label_selector_path.unwrap_or_default(),
        ]
    })
}

/// The scale subresource reports the voters, and its selector finds their pods and no others.
fn scale_is_reported(world: &World) -> Result<(), Failure> {
    let resource = resource(world);
    let [wanted, found, selector] = scale_paths().map(|path| {
        let way: Vec<&str> = path.split('.').skip(1).collect();
        object::at(&resource, &way).cloned().unwrap_or_default()
    });
    let selector = selector.as_str().unwrap_or_default().to_owned();
    let pairs: Vec<(&str, &str)> = selector
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let api = world.api.lock();
    let fits = |pod: &Value| {
        let mut pairs = pairs.iter();
        pairs.all(|(key, value)| object::label(pod, key) == Some(value))
    };
    let pods = api.all(Kind::Pod).filter(|pod| fits(pod)).count();
    drop(api);
    if found != wanted || json!(pods) != wanted || pairs.is_empty() {
        return Err(world.unexpected(format!(
            "scale: {wanted} wanted, {found} reported, {pods} pods by {selector:?}"
        )));
    }
    Ok(())
}

/// Labels and annotations of the resource itself: nothing follows from them.
fn remarked(world: &mut World, number: u64) -> Result<(), Failure> {
    let was = resource(world);
    let remark = json!({"metadata": {
        "labels": {"example.com/owner": format!("team-{}", number % 7)},
        "annotations": {"example.com/note": number.to_string()},
    }});
    patch(world, &remark).map_err(|why| world.unexpected(why))?;
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    if generation(&resource(world)) != generation(&was) {
        return Err(world.unexpected("metadata raised the generation"));
    }
    Ok(())
}

fn named(world: &World, target: Target) -> Value {
    let leader = user::leader(world);
    match target {
        Target::Leader => json!(leader.into_iter().collect::<Vec<_>>()),
        Target::Follower => json!(
            user::followers(world)
                .into_iter()
                .take(1)
                .collect::<Vec<_>>()
        ),
        Target::All => json!(user::voters(world)),
    }
}
