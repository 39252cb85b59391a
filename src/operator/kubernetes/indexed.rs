//! A reflector's store indexed by cluster, so that a reconcile of one cluster of many reads only its own objects. Holds
//! what its readers use of what it receives, and makes no requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::Event;

use super::pruned::Prune;
use crate::crd::{LABEL_CLUSTER, LABEL_CLUSTER_UID};

/// Labels that identify the cluster of an object: its name, and the UID of one of its incarnations.
const LABELS: [&str; 2] = [LABEL_CLUSTER, LABEL_CLUSTER_UID];

/// Names of objects, by their namespace and by a label with its value.
type Index = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// What is read.
pub(super) struct Indexed<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    index: Arc<RwLock<Index>>,
}

/// What fills it. There is one for each.
pub(crate) struct Filler<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    of: Indexed<K>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Clone for Indexed<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            index: self.index.clone(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + 'static> Indexed<K> {
    pub(super) fn new() -> (Filler<K>, Self) {
        let (store, writer) = store();
        let index = Arc::default();
        let filler = Filler {
            writer,
            of: Self { store, index },
        };
        let reader = filler.of.clone();
        (filler, reader)
    }

    /// All of it.
    pub(super) fn store(&self) -> &Store<K> {
        &self.store
    }

    /// The objects of a namespace with one of these labels and values.
    pub(super) fn of_any(&self, namespace: &str, owners: &[(&str, &str)]) -> Vec<Arc<K>> {
        let names: BTreeSet<String> = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            let here = index.get(namespace);
            let found = owners
                .iter()
                .filter_map(|(label, value)| here?.get(&key(label, value)));
            found.flatten().cloned().collect()
        };
        let get = |name: &String| self.store.get(&ObjectRef::new(name).within(namespace));
        names.iter().filter_map(get).collect()
    }
}

impl<K: Prune + Clone + Debug + 'static> Filler<K> {
    /// An event of the API server; its object is left as the cache keeps it.
    pub(crate) fn apply(&mut self, event: &mut Event<K>) {
        if let Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) = event {
            object.prune();
        }
        let (Event::Apply(object) | Event::Delete(object)) = &*event else {
            // The objects of a list are in the store when all of them have come.
            self.writer.apply_watcher_event(event);
            if matches!(event, Event::InitDone) {
                self.index_anew();
            }
            return;
        };
        let before = self.of.store.get(&ObjectRef::from_obj(object));
        self.writer.apply_watcher_event(event);
        let mut index = write(&self.of.index);
        if let Some(before) = before {
            remove(&mut index, before.meta());
        }
        if matches!(event, Event::Apply(_)) {
            add(&mut index, object.meta());
        }
    }

    fn index_anew(&mut self) {
        let mut anew = Index::new();
        for object in self.of.store.state() {
            add(&mut anew, object.meta());
        }
        *write(&self.of.index) = anew;
    }
}

fn write(index: &RwLock<Index>) -> std::sync::RwLockWriteGuard<'_, Index> {
    index.write().unwrap_or_else(PoisonError::into_inner)
}

fn add(index: &mut Index, meta: &ObjectMeta) {
    let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else {
        return;
    };
    for owner in owners(meta) {
        let here = index.entry(namespace.clone()).or_default();
        here.entry(owner).or_default().insert(name.clone());
    }
}

/// Nothing is left of a namespace or an owner without objects.
fn remove(index: &mut Index, meta: &ObjectMeta) {
    let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else {
        return;
    };
    let Some(here) = index.get_mut(namespace) else {
        return;
    };
    for owner in owners(meta) {
        if let Some(names) = here.get_mut(&owner) {
            names.remove(name);
            if names.is_empty() {
                here.remove(&owner);
            }
        }
    }
    if here.is_empty() {
        index.remove(namespace);
    }
}

fn owners(meta: &ObjectMeta) -> impl Iterator<Item = String> {
    let labels = meta.labels.as_ref();
    let names = LABELS.into_iter();
    names.filter_map(move |label| Some(key(label, labels?.get(label)?)))
}

fn key(label: &str, value: &str) -> String {
    format!("{label}={value}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, labels: serde_json::Value) -> Pod {
        let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
    }

    const ONE: (&str, &str) = (LABEL_CLUSTER, "one");
    const TWO: (&str, &str) = (LABEL_CLUSTER, "two");
    const LIFE: (&str, &str) = (LABEL_CLUSTER_UID, "u1");

    fn of(pods: &Indexed<Pod>, namespace: &str, owners: &[(&str, &str)]) -> Vec<String> {
        let found = pods.of_any(namespace, owners);
        let names = found.iter().map(|pod| pod.metadata.name.clone());
        names.map(|name| name.expect("a name")).collect()
    }

    #[test]
    fn objects_are_found_by_name_and_uid() {
        let (mut filler, pods) = Indexed::new();
        let both = json!({LABEL_CLUSTER: "one", LABEL_CLUSTER_UID: "u1"});
        filler.apply(&mut Event::Apply(pod("here", "b", both.clone())));
        filler.apply(&mut Event::Apply(pod(
            "here",
            "a",
            json!({LABEL_CLUSTER_UID: "u1"}),
        )));
        filler.apply(&mut Event::Apply(pod("there", "b", both)));
        filler.apply(&mut Event::Apply(pod("here", "c", json!({"app": "demo"}))));
        assert_eq!(of(&pods, "here", &[ONE, LIFE]), ["a", "b"]);
        assert_eq!(of(&pods, "here", &[ONE]), ["b"]);
        assert_eq!(of(&pods, "there", &[LIFE]), ["b"]);
        assert!(of(&pods, "nowhere", &[ONE]).is_empty());
        let other = (LABEL_CLUSTER, "u1");
        assert!(of(&pods, "here", &[other]).is_empty(), "another label");
    }

    #[test]
    fn index_follows_owner_changes() {
        let (mut filler, pods) = Indexed::new();
        let of_one = json!({LABEL_CLUSTER: "one"});
        let of_two = json!({LABEL_CLUSTER: "two"});
        filler.apply(&mut Event::Apply(pod("here", "a", of_one.clone())));
        filler.apply(&mut Event::Apply(pod("here", "a", of_two.clone())));
        assert!(of(&pods, "here", &[ONE]).is_empty());
        assert_eq!(of(&pods, "here", &[TWO]), ["a"]);
        // The last state of a deleted object may differ from the last one observed.
        filler.apply(&mut Event::Delete(pod("here", "a", of_one)));
        assert!(of(&pods, "here", &[ONE, TWO]).is_empty());
        assert!(write(&pods.index).is_empty(), "nothing is kept of it");
    }

    #[test]
    fn relist_replaces_the_cache_when_complete() {
        let (mut filler, pods) = Indexed::new();
        let labels = json!({LABEL_CLUSTER: "one"});
        filler.apply(&mut Event::Apply(pod("here", "old", labels.clone())));
        filler.apply(&mut Event::Init);
        filler.apply(&mut Event::InitApply(pod("here", "new", labels)));
        assert_eq!(of(&pods, "here", &[ONE]), ["old"]);
        filler.apply(&mut Event::InitDone);
        assert_eq!(of(&pods, "here", &[ONE]), ["new"]);
    }
}
