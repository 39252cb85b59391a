//! What a watch has shown of one kind: the objects, each as small as its kind is kept, and an index, so that a reconcile of
//! one cluster of many reads only its own objects, and a node's event the pods on that node. Holds what its readers use
//! of what it receives, and makes no requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::pruned::Prune;
use crate::crd::{LABEL_BACKUP_OWNER, LABEL_CLUSTER, LABEL_CLUSTER_UID};

/// Labels by which objects are found: the name of their cluster, the UID of one of its incarnations, and for what their Job
/// runs.
const LABELS: [&str; 3] = [LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_BACKUP_OWNER];

/// Separates the parts of a key. No name and no label has it.
const END: char = '\0';

/// What is read.
pub(super) struct Indexed<K> {
    objects: Arc<RwLock<Objects<K>>>,
    /// Whether a whole list has come.
    ready: watch::Receiver<bool>,
}

/// What fills it. There is one for each.
pub(crate) struct Filler<K> {
    objects: Arc<RwLock<Objects<K>>>,
    /// As far as the list under way has come.
    listed: Objects<K>,
    ready: watch::Sender<bool>,
}

struct Objects<K> {
    /// By namespace and name.
    kept: BTreeMap<Box<str>, Kept<K>>,
    /// Namespace, label with its value, and name; or node, and key of the object.
    index: BTreeSet<Box<str>>,
}

/// An object as its kind is kept.
enum Kept<K> {
    Whole(Arc<K>),
    Text(Box<[u8]>),
}

impl<K> Clone for Indexed<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            ready: self.ready.clone(),
        }
    }
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            kept: BTreeMap::new(),
            index: BTreeSet::new(),
        }
    }
}

impl<K: Prune> Indexed<K> {
    pub(super) fn new() -> (Filler<K>, Self) {
        let (ready, is_ready) = watch::channel(false);
        let filler = Filler {
            objects: Arc::default(),
            listed: Objects::default(),
            ready,
        };
        let reader = Self {
            objects: filler.objects.clone(),
            ready: is_ready,
        };
        (filler, reader)
    }

    /// Waits until a whole list has come.
    pub(super) async fn wait_until_ready(&self) {
        // The one that fills it lives in a task that never ends while the process runs.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }

    /// One object; those without a namespace have an empty one.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().get(&key(namespace, name))
    }

    /// All of them, by namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        let objects = self.read();
        objects.kept.values().filter_map(Kept::read).collect()
    }

    /// Those of a namespace, by name.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.read();
        let first = key(namespace, "");
        let from = (Bound::Included(first.as_str()), Bound::Unbounded);
        let from = objects.kept.range::<str, _>(from);
        let here = from.take_while(|(key, _)| key.starts_with(&first));
        here.filter_map(|(_, kept)| kept.read()).collect()
    }

    /// The objects of a namespace with one of these labels and values, by name.
    pub(super) fn of_any(&self, namespace: &str, owners: &[(&str, &str)]) -> Vec<Arc<K>> {
        let objects = self.read();
        let labels = owners.iter();
        let labels = labels.map(|(label, value)| by_label(namespace, label, value));
        let names: BTreeSet<&str> = labels.flat_map(|label| objects.found(label)).collect();
        let get = |name: &str| objects.get(&key(namespace, name));
        names.into_iter().filter_map(get).collect()
    }

    /// The objects on a node.
    pub(super) fn on_node(&self, node: &str) -> Vec<Arc<K>> {
        let objects = self.read();
        let keys = objects.found(by_node(node));
        keys.filter_map(|key| objects.get(key)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Prune + Clone> Filler<K> {
    /// An event of the API server; its object is left as readers of the cache see it.
    pub(crate) fn apply(&mut self, event: &mut Event<K>) {
        match event {
            // The objects of a list are shown when all of them have come.
            Event::Init => self.listed = Objects::default(),
            Event::InitApply(object) => {
                object.prune();
                self.listed.insert(object);
            }
            Event::InitDone => {
                *self.write() = std::mem::take(&mut self.listed);
                self.ready.send_replace(true);
            }
            Event::Apply(object) => {
                object.prune();
                self.write().insert(object);
            }
            Event::Delete(object) => {
                object.prune();
                self.write().remove(&key_of(object.meta()));
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Prune> Objects<K> {
    fn get(&self, key: &str) -> Option<Arc<K>> {
        self.kept.get(key)?.read()
    }

    /// What follows this prefix in the index.
    fn found(&self, prefix: String) -> impl Iterator<Item = &str> {
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let from = self.index.range::<str, _>(from);
        from.map_while(move |entry| entry.strip_prefix(prefix.as_str()))
    }
}

impl<K: Prune + Clone> Objects<K> {
    fn insert(&mut self, object: &K) {
        let key = key_of(object.meta());
        self.remove(&key);
        self.index.extend(entries(object));
        self.kept.insert(key.into(), Kept::of(object));
    }

    /// The last state of a deleted object may differ from the one that was kept: that one is what the index has.
    fn remove(&mut self, key: &str) {
        let before = self.kept.remove(key).and_then(|before| before.read());
        for entry in before.iter().flat_map(|before| entries(&**before)) {
            self.index.remove(&entry);
        }
    }
}

impl<K: Prune + Clone> Kept<K> {
    fn of(object: &K) -> Self {
        let whole = || Self::Whole(Arc::new(object.clone()));
        object.text().map_or_else(whole, Self::Text)
    }
}

impl<K: Prune> Kept<K> {
    fn read(&self) -> Option<Arc<K>> {
        match self {
            Self::Whole(object) => Some(object.clone()),
            Self::Text(text) => K::of_text(text).map(Arc::new),
        }
    }
}

/// What an object is found by.
fn entries<K: Prune>(object: &K) -> impl Iterator<Item = Box<str>> {
    let meta = object.meta();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    let labels = meta.labels.as_ref();
    let labels = LABELS.into_iter().filter_map(move |label| {
        let entry = by_label(namespace, label, labels?.get(label)?) + name;
        Some(entry.into())
    });
    let node = object.node().map(|node| by_node(node) + &key_of(meta));
    labels.chain(node.map(Into::into))
}

fn by_label(namespace: &str, label: &str, value: &str) -> String {
    // As short as it can be: there is one for each object.
    let number = LABELS.iter().position(|known| *known == label);
    let number = number.map_or(String::new(), |number| number.to_string());
    format!("{namespace}{END}{number}={value}{END}")
}

/// No namespace is empty.
fn by_node(node: &str) -> String {
    format!("{END}{node}{END}")
}

fn key_of(meta: &ObjectMeta) -> String {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    key(namespace, meta.name.as_deref().unwrap_or_default())
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}{END}{name}")
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
        let objects = pods.read();
        assert!(objects.index.is_empty(), "nothing is kept of it");
        assert!(objects.kept.is_empty());
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

    #[test]
    fn pods_are_found_by_their_node() {
        let (mut filler, pods) = Indexed::new();
        let mut on = |namespace: &str, name: &str, node: &str| {
            let mut pod = pod(namespace, name, json!({LABEL_CLUSTER: name}));
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            filler.apply(&mut Event::Apply(pod));
        };
        on("here", "a", "one");
        on("there", "b", "one");
        on("here", "c", "one-more");
        let names = |node: &str| {
            let found = pods.on_node(node);
            let names = found.iter().filter_map(|pod| pod.metadata.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names("one"), ["a", "b"]);
        on("here", "a", "two");
        assert_eq!(
            (names("one"), names("two")),
            (vec!["b".into()], vec!["a".into()])
        );
        assert!(names("").is_empty());
    }

    /// An object is kept as one text, which is a fraction of the size of its structure.
    #[test]
    fn objects_are_kept_as_text() {
        let (mut filler, pods) = Indexed::new();
        let mut whole = pod("here", "a", json!({LABEL_CLUSTER: "one"}));
        whole.spec.get_or_insert_default().node_name = Some("node-a".into());
        filler.apply(&mut Event::Apply(whole.clone()));
        let is_text = |kept: &Kept<Pod>| matches!(kept, Kept::Text(_));
        assert!(pods.read().kept.values().all(is_text));
        assert_eq!(pods.get("here", "a").as_deref(), Some(&whole));
        assert_eq!(pods.all().len(), 1);
    }
}
