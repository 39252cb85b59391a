//! Objects that are not a member's, as facts from the caches: the cluster's own objects and slots, its PVCs with their
//! volumes, and which of these the operator may not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::cache::Cache;
use super::context::Caches;
use super::facts;
use super::pruned::Prune;
use super::workers::Key;
use crate::crd::{LABEL_CLUSTER, ValidatedCluster, identity_secret_name, slot_number};
use crate::plan::{ClassFacts, ObjectFacts, ObjectKey, ObjectKind, PvcFacts, SlotFacts};

/// The objects that carry the cluster's name, without its identity Secret and its slots, which are facts of
/// their own.
pub(super) fn objects(
    caches: &Caches,
    (pdbs, services): (&[Arc<PodDisruptionBudget>], &[Arc<Service>]),
    key: &Key,
    uid: &str,
) -> BTreeMap<ObjectKey, ObjectFacts> {
    let name = key.1.as_str();
    let mut objects = BTreeMap::new();
    let mut add = |kind, meta: &kube::api::ObjectMeta| {
        let key = ObjectKey {
            kind,
            name: meta.name.clone().unwrap_or_default(),
        };
        objects.insert(key, facts::object(meta, name, uid));
    };
    for service in services {
        if slot_number(name, &service.name_any()).is_none() {
            add(ObjectKind::Service, &service.metadata);
        }
    }
    let identity_secret = identity_secret_name(name);
    for secret in of_name(&caches.secrets, key) {
        if secret.name_any() != identity_secret {
            add(ObjectKind::Secret, secret.meta());
        }
    }
    for policy in of_name(&caches.policies, key) {
        add(ObjectKind::NetworkPolicy, &policy.metadata);
    }
    for pdb in pdbs {
        add(ObjectKind::PodDisruptionBudget, &pdb.metadata);
    }
    objects
}

/// The slots' Services, by number.
pub(super) fn slots(services: &[Arc<Service>], key: &Key, uid: &str) -> BTreeMap<u32, SlotFacts> {
    let slot = |service: &Arc<Service>| {
        let number = slot_number(&key.1, &service.name_any())?;
        Some((number, facts::slot(service, &key.1, uid)))
    };
    services.iter().filter_map(slot).collect()
}

/// What carries the cluster's name.
pub(super) fn of_name<K>(cache: &Cache<K>, key: &Key) -> Vec<Arc<K>>
where
    K: Prune + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    cache.of_any(&key.0, &[(LABEL_CLUSTER, &key.1)])
}

/// The PVCs, with what is seen of their volumes.
pub(super) fn pvcs(
    caches: &Caches,
    pvcs: &[Arc<PersistentVolumeClaim>],
    nodes: &[Arc<Node>],
    uid: &str,
) -> BTreeMap<String, PvcFacts> {
    let facts = |pvc: &Arc<PersistentVolumeClaim>| {
        let volume = pvc.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let volume = volume.and_then(|volume| caches.volumes.named(&volume));
        (
            pvc.name_any(),
            facts::pvc(pvc, uid, volume.as_deref(), nodes),
        )
    };
    pvcs.iter().map(facts).collect()
}

/// What the cluster's storage class shows before any volume exists.
pub(super) fn class_node_bound(caches: &Caches, cluster: &ValidatedCluster) -> Option<bool> {
    let wanted = cluster.spec.storage.storage_class_name.as_deref();
    facts::class_node_bound(wanted, &caches.classes.select(|_| true))
}

/// The storage classes.
pub(super) fn classes(caches: &Caches) -> BTreeMap<String, ClassFacts> {
    facts::classes(&caches.classes.select(|_| true))
}

/// The kinds that the operator may not read, in the plural. `slices`: EndpointSlices are one of them.
pub(super) fn denied(caches: &Caches, slices: bool) -> BTreeSet<String> {
    [
        ("nodes", caches.nodes.is_denied()),
        ("persistentvolumes", caches.volumes.is_denied()),
        ("storageclasses", caches.classes.is_denied()),
        ("endpointslices", slices),
    ]
    .into_iter()
    .filter(|(_, denied)| *denied)
    .map(|(kind, _)| kind.to_owned())
    .collect()
}
