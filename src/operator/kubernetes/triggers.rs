//! Maps an event of an object to its clusters. Decides nothing else; changes without events are found by the periodic
//! reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;

use super::cache::Cache;
use super::nodes;
use super::workers::Key;
use crate::crd::{EtcdRecovery, LABEL_CLUSTER};

/// What was last seen of each node, as far as it concerns members: the regular updates of a node's status do not.
#[derive(Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<String, u64>>);

impl Nodes {
    /// The clusters that a node's event may affect: those with a pod on it, if the node is not well, or is another one than
    /// before. The others, which may have waited for such a node, observe it in their next reconcile.
    pub(crate) fn concerned(&self, node: &Node, pods: &Cache<Pod>) -> BTreeSet<Key> {
        let Some(name) = node.metadata.name.as_deref() else {
            return BTreeSet::new();
        };
        let changed = self.is_changed(name, node);
        if !changed && !nodes::concerns_members(node) {
            return BTreeSet::new();
        }
        let pods = pods.on_node(name);
        pods.iter()
            .filter_map(|pod| of_owned(&pod.metadata))
            .collect()
    }

    /// Whether it is known, and was another one.
    fn is_changed(&self, name: &str, node: &Node) -> bool {
        let spec = node.spec.as_ref();
        let seen = (
            nodes::node(node, None),
            spec.and_then(|spec| spec.taints.as_ref()),
            &node.metadata.labels,
        );
        let mut hasher = DefaultHasher::new();
        format!("{seen:?}").hash(&mut hasher);
        let hash = hasher.finish();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if node.metadata.deletion_timestamp.is_some() {
            all.remove(name);
            return true;
        }
        let before = all.insert(name.to_owned(), hash);
        before.is_some_and(|before| before != hash)
    }
}

/// The cluster that a resource is.
pub(crate) fn of_resource(meta: &ObjectMeta) -> Option<Key> {
    Some((meta.namespace.clone()?, meta.name.clone()?))
}

/// The cluster that an object's label names.
pub(crate) fn of_owned(meta: &ObjectMeta) -> Option<Key> {
    let cluster = meta.labels.as_ref()?.get(LABEL_CLUSTER)?;
    Some((meta.namespace.clone()?, cluster.clone()))
}

/// The cluster that a recovery names.
pub(crate) fn of_recovery(recovery: &DeserializeGuard<EtcdRecovery>) -> Option<Key> {
    let recovery = recovery.0.as_ref().ok()?;
    let cluster = recovery.spec.cluster_ref.name.clone();
    Some((recovery.metadata.namespace.clone()?, cluster))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;

    /// A cordon was observed only by the next reconcile, up to ten seconds later, while a drain waited.
    #[test]
    fn lost_node_triggers_its_clusters_at_once() {
        let (mut filler, pods) = Cache::filled();
        for (cluster, node) in [("one", "a"), ("two", "a"), ("two", "b"), ("three", "b")] {
            let pod = json!({
                "metadata": {"namespace": "default", "name": format!("{cluster}-on-{node}"),
                    "labels": {LABEL_CLUSTER: cluster}},
                "spec": {"nodeName": node, "containers": []}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            filler.apply(&mut watcher::Event::Apply(pod));
        }
        let nodes = Nodes::default();
        let node = |cordoned: bool, zone: &str| -> Node {
            let node = json!({"metadata": {"name": "a", "labels": {"zone": zone}},
                "spec": {"unschedulable": cordoned},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            serde_json::from_value(node).expect("a node")
        };
        let concerned = |node: &Node| {
            let keys = nodes.concerned(node, &pods);
            keys.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert!(concerned(&node(false, "z1")).is_empty(), "a well node");
        assert_eq!(concerned(&node(true, "z1")), ["one", "two"]);
        assert_eq!(concerned(&node(true, "z1")), ["one", "two"], "still");
        assert_eq!(concerned(&node(false, "z1")), ["one", "two"], "well again");
        assert!(
            concerned(&node(false, "z1")).is_empty(),
            "a well node's own words"
        );
        assert_eq!(concerned(&node(false, "z2")), ["one", "two"]);
        // As it is told of when it is deleted.
        let mut gone = node(false, "z2");
        let now = jiff::Timestamp::UNIX_EPOCH;
        gone.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        assert_eq!(concerned(&gone), ["one", "two"]);
    }
}
