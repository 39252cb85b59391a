//! What users do: resources, specifications, and now and then a pod or a PVC deleted by hand.

use std::sync::Arc;

use serde_json::{Value, json};

use super::api::{Delete, Kind, Patch, object};
use super::harness::containers::NAMESPACE;
use super::harness::intruder;
use super::harness::world::World;

/// The time within which a cluster is made or changed without any fault, in milliseconds.
pub(crate) const SOON_MS: u64 = 900_000;
const ACTOR: &str = "user";
/// The version of operators, unless a scenario says otherwise, and so the default of the resource.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A version that is so many minor ones after that, with this patch.
pub(crate) fn later(minors: u64, patch: &str) -> String {
    let mut parts = VERSION.split('.');
    let mut part = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (major, minor) = (part().unwrap_or(0), part().unwrap_or(0));
    format!("{major}.{}.{patch}", minor + minors)
}

/// A specification with short patience, so that stories are short.
pub(crate) fn spec(replicas: u32) -> Value {
    json!({
        "replicas": replicas,
        "version": VERSION,
        "storage": {"size": "1Gi"},
        "healing": {"unhealthySeconds": 120, "learnerDeadlineSeconds": 180, "maxRestarts": 1},
    })
}

/// Makes a resource.
pub(crate) fn create(world: &mut World, name: &str, spec: &Value) {
    let resource = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let made = world.api.lock().create(ACTOR, Kind::EtcdCluster, resource);
    debug_assert!(made.is_ok(), "{made:?}");
}

/// Asks for a recovery.
pub(crate) fn recover(world: &mut World, name: &str, spec: &Value) {
    let resource = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdRecovery",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let made = world.api.lock().create(ACTOR, Kind::EtcdRecovery, resource);
    debug_assert!(made.is_ok(), "{made:?}");
}

/// Changes a part of a specification. Returns whether the API server took it.
pub(crate) fn edit(world: &mut World, name: &str, spec: &Value) -> bool {
    let patch = Patch::Merge(json!({"spec": spec}));
    let id = (NAMESPACE, name);
    let changed = world.api.lock().patch(ACTOR, Kind::EtcdCluster, id, patch);
    world.edits += u64::from(changed.is_ok());
    changed.is_ok()
}

/// Gives a resource an annotation.
pub(crate) fn annotate(world: &mut World, name: &str, key: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    let id = (NAMESPACE, name);
    let changed = world.api.lock().patch(ACTOR, Kind::EtcdCluster, id, patch);
    debug_assert!(changed.is_ok(), "{changed:?}");
}

/// Sets the finalizers of a resource.
pub(crate) fn finalizers(world: &mut World, name: &str, all: &[&str]) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let id = (NAMESPACE, name);
    let changed = world.api.lock().patch(ACTOR, Kind::EtcdCluster, id, patch);
    debug_assert!(changed.is_ok(), "{changed:?}");
}

/// Raises the size that a PVC requests, by hand.
pub(crate) fn grow(world: &mut World, pvc: &str, size: &str) {
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    let (kind, id) = (Kind::PersistentVolumeClaim, (NAMESPACE, pvc));
    let grown = world.api.lock().patch(ACTOR, kind, id, patch);
    debug_assert!(grown.is_ok(), "{grown:?}");
}

/// Deletes an object of any kind.
pub(crate) fn delete(world: &mut World, kind: Kind, name: &str) {
    let namespace = if kind.is_namespaced() { NAMESPACE } else { "" };
    let _ = world
        .api
        .lock()
        .delete(ACTOR, kind, (namespace, name), &Delete::default());
}

/// Names of the voters, in order.
pub(crate) fn voters(world: &World) -> Vec<String> {
    let truth = world.monitor.ground_truth();
    let clusters = truth.clusters.values().filter(|cluster| cluster.exists);
    let voters = clusters.flat_map(|cluster| cluster.voters.values());
    let mut names: Vec<String> = voters.map(|member| member.name.clone()).collect();
    names.sort();
    names
}

/// The node of a member's pod.
pub(crate) fn node_of(world: &World, member: &str) -> String {
    let pod = crate::crd::pod_name(member);
    let found = world.api.lock().get(Kind::Pod, NAMESPACE, &pod);
    found.map_or(String::new(), |pod| {
        object::text(&pod, &["spec", "nodeName"]).to_owned()
    })
}

/// The name of the member that leads, if one does.
pub(crate) fn leader(world: &World) -> Option<String> {
    let servers = super::harness::request_faults::lock(&world.servers);
    let mut groups = servers.groups.values();
    groups.find_map(|group| {
        let leader = group.membership.member(group.leader?)?;
        Some(leader.name.clone())
    })
}

/// The members that do not lead, in order.
pub(crate) fn followers(world: &World) -> Vec<String> {
    let leader = leader(world);
    let mut names = voters(world);
    names.retain(|name| Some(name) != leader.as_ref());
    names
}

/// The first member that does not lead.
pub(crate) fn follower(world: &World) -> String {
    followers(world).into_iter().next().unwrap_or_default()
}

/// Index of the last change of the only cluster's configuration.
pub(crate) fn configuration(world: &World) -> u64 {
    let truth = world.monitor.ground_truth();
    let mut indexes = truth.clusters.values().map(|c| c.configuration_index);
    indexes.next_back().unwrap_or(0)
}

/// The configuration must still be what it was.
pub(crate) fn unchanged(world: &World, before: u64) -> Result<(), super::harness::world::Failure> {
    let now = configuration(world);
    if now == before {
        return Ok(());
    }
    Err(world.unexpected(format!("the configuration went from {before} to {now}")))
}

/// Waits until the cluster has three voters, and this one is not among them.
pub(crate) async fn replaced(
    world: &mut World,
    victim: &str,
) -> Result<(), super::harness::world::Failure> {
    let gone = |world: &World, _: &_| {
        let voters = voters(world);
        voters.len() == 3 && !voters.iter().any(|voter| voter == victim)
    };
    world.until("a replacement", 300_000, gone).await
}

/// The objects of a kind that clusters have: none of the stranger's.
pub(crate) fn objects(world: &World, kind: Kind) -> Vec<Arc<Value>> {
    let api = world.api.lock();
    let all = api.all(kind).filter(|object| !intruder::made(object));
    all.cloned().collect()
}

/// Names and UIDs of the objects of a kind that clusters have, in order.
pub(crate) fn uids(world: &World, kind: Kind) -> Vec<(String, String)> {
    let both = |one: &Arc<Value>| (object::name(one).to_owned(), object::uid(one).to_owned());
    objects(world, kind).iter().map(both).collect()
}

/// Changes the template of members' pods, in what restarts them and does nothing else. Returns whether the API server took it.
pub(crate) fn change_template(world: &mut World, name: &str) -> bool {
    let change = json!({"podTemplate": {"metadata": {"annotations": {"note": "new"}}}});
    edit(world, name, &change)
}

/// The status of a resource.
pub(crate) fn status(world: &World, name: &str) -> Value {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, name);
    found.map_or(Value::Null, |found| found["status"].clone())
}

/// The reason of a condition that is true.
pub(crate) fn reason(world: &World, name: &str, type_: &str) -> Option<String> {
    let status = status(world, name);
    let conditions = status["conditions"].as_array()?;
    let mut fitting = conditions
        .iter()
        .filter(|condition| condition["type"] == type_ && condition["status"] == "True");
    Some(fitting.next()?["reason"].as_str()?.to_owned())
}

/// Waits until a changed specification has reached every member.
pub(crate) async fn roll(
    world: &mut World,
    name: &str,
) -> Result<(), super::harness::world::Failure> {
    world.settle(SOON_MS).await?;
    match outdated(world, name) {
        None => Ok(()),
        Some(pod) => Err(world.unexpected(format!("{pod} is at rest with an older spec"))),
    }
}

/// Grows a cluster of three on two more nodes, shrinks it again, and has a follower replaced: members come and go.
pub(crate) async fn change_members(
    world: &mut World,
    name: &str,
) -> Result<(), super::harness::world::Failure> {
    for node in ["node-d", "node-e"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    for replicas in [5, 3] {
        edit(world, name, &json!({"replicas": replicas}));
        world.settle(SOON_MS).await?;
    }
    let old = follower(world);
    edit(world, name, &json!({"replaceMembers": [old]}));
    world.settle(SOON_MS).await
}

/// A set or a pod that was made from something else than the specification as it is.
pub(crate) fn outdated(world: &World, name: &str) -> Option<String> {
    let api = world.api.lock();
    let inputs = |object: &Value| {
        let path = ["metadata", "annotations", crate::crd::ANNOTATION_INPUTS];
        object::text(object, &path).to_owned()
    };
    let resource = api.get(Kind::EtcdCluster, NAMESPACE, name)?;
    let ours = |found: &&std::sync::Arc<Value>| {
        object::label(found, crate::crd::LABEL_CLUSTER_UID) == Some(object::life(&resource))
    };
    let parsed = serde_json::from_value((*resource).clone()).ok();
    let valid = parsed.and_then(|parsed| crate::crd::validate(&parsed).ok());
    let wanted = valid.map(|cluster| crate::build::wanted_inputs(&cluster));
    let members = [Kind::StatefulSet, Kind::Pod].into_iter();
    let members = members.flat_map(|kind| api.all(kind).filter(ours));
    let mut members = members.filter(|found| !intruder::made(found));
    let behind = members.find(|found| Some(inputs(found)) != wanted);
    behind.map(|found| object::name(found).to_owned())
}
