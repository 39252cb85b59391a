//! Maps an event of an object to its clusters. Decides nothing else; changes without events are found by the periodic
//! reconciles.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;

use super::cache::Cache;
use super::nodes;
use super::workers::Key;
use crate::crd::{EtcdRecovery, LABEL_CLUSTER};

/// The clusters that a node's change may affect: those with a pod on it. The others, which may have waited for such a
/// node, observe it in their next reconcile.
pub(crate) fn of_node(node: &Node, pods: &Cache<Pod>) -> BTreeSet<Key> {
    let name = node.metadata.name.as_deref();
    let Some(name) = name.filter(|_| nodes::concerns_members(node)) else {
        return BTreeSet::new();
    };
    let pods = pods.on_node(name);
    pods.iter()
        .filter_map(|pod| of_owned(&pod.metadata))
        .collect()
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
        let concerned = |cordoned: bool| {
            let node = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": cordoned},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let node: Node = serde_json::from_value(node).expect("a node");
            let keys = of_node(&node, &pods);
            keys.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(concerned(true), ["one", "two"]);
        assert!(concerned(false).is_empty(), "a well node's own words");
    }
}
