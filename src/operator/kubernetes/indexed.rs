//! What a watch has shown of one kind: the objects, each as small as its kind is kept, and an index, so that a reconcile of
//! one cluster of many reads only its own objects, and a node's event the pods on that node. Holds what its readers use
//! of what it receives, and makes no requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::packed::{Packed, Packer};
use super::pruned::Prune;
use crate::crd::{LABEL_BACKUP_OWNER, LABEL_CLUSTER, LABEL_CLUSTER_UID};
use crate::mutants::mutant;

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
    packer: Packer,
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
    Text(Arc<Packed>),
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Whole(object.clone()),
            Self::Text(text) => Self::Text(text.clone()),
        }
    }
}

/// An object as it is kept, and where it is found.
struct Entry<K> {
    key: String,
    kept: Kept<K>,
    index: Vec<Box<str>>,
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
            packer: Packer::default(),
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
        let kept = self.read().kept.get(key(namespace, name).as_str()).cloned();
        kept.map(|kept| kept.read())
    }

    /// All of them, by namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        let all: Vec<Kept<K>> = self.read().kept.values().cloned().collect();
        read_all(all)
    }

    /// Calls with each of them, by namespace and name: one is a structure at a time.
    pub(super) fn each(&self, mut visit: impl FnMut(&K)) {
        let all: Vec<Kept<K>> = self.read().kept.values().cloned().collect();
        all.into_iter().for_each(|kept| visit(&kept.read()));
    }

    /// Those of a namespace, by name.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = key(namespace, "");
        let from = (Bound::Included(first.as_str()), Bound::Unbounded);
        let here: Vec<Kept<K>> = {
            let objects = self.read();
            let from = objects.kept.range::<str, _>(from);
            let here = from.take_while(|(key, _)| key.starts_with(&first));
            here.map(|(_, kept)| kept.clone()).collect()
        };
        read_all(here)
    }

    /// The objects of a namespace with one of these labels and values, by name.
    pub(super) fn of_any(&self, namespace: &str, owners: &[(&str, &str)]) -> Vec<Arc<K>> {
        let found: Vec<Kept<K>> = {
            let objects = self.read();
            let labels = owners.iter();
            let labels = labels.map(|(label, value)| by_label(namespace, label, value));
            let names: BTreeSet<&str> = labels.flat_map(|label| objects.found(label)).collect();
            let get = |name: &str| objects.kept.get(key(namespace, name).as_str()).cloned();
            names.into_iter().filter_map(get).collect()
        };
        read_all(found)
    }

    /// The objects on a node.
    pub(super) fn on_node(&self, node: &str) -> Vec<Arc<K>> {
        let found: Vec<Kept<K>> = {
            let objects = self.read();
            let keys = objects.found(by_node(node));
            keys.filter_map(|key| objects.kept.get(key).cloned())
                .collect()
        };
        read_all(found)
    }

    /// All bytes that are kept of each object, as its text is before it is compressed; `None` of one that is kept whole.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<Option<Vec<u8>>> {
        let text = |kept: &Kept<K>| match kept {
            Kept::Whole(_) => None,
            Kept::Text(packed) => Some(packed.text().into_owned()),
        };
        self.read().kept.values().map(text).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Prune + Clone> Filler<K> {
    /// An event of the API server; its object is left as readers of the cache see it, and one that is deleted says so.
    /// `changed` is called once readers see it, with each object that they may see otherwise than before: what was there, if
    /// it belongs to another cluster or none by now, what is gone, as it was, and of a list every object.
    pub(crate) fn show(&mut self, event: &mut Event<K>, mut changed: impl FnMut(&K)) {
        match event {
            // The objects of a list are shown when all of them have come.
            Event::Init => self.listed = Objects::default(),
            Event::InitApply(object) => {
                let key = key_of(object.meta());
                object.prune_after(|| self.shown(&key));
                let entry = Entry::of(object, &mut self.packer);
                let before = self.listed.kept.get(entry.key.as_str());
                let before = found_by(before.map(Kept::read).as_deref());
                self.listed.replace(&before, entry);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut *self.write(), listed);
                self.ready.send_replace(true);
                self.tell_of_list(before, changed);
            }
            Event::Apply(object) => {
                let before = self.shown(&key_of(object.meta()));
                object.prune_after(|| before.clone());
                let entry = Entry::of(object, &mut self.packer);
                let found = found_by(before.as_deref());
                let moved = before.filter(|_| found != entry.index);
                self.write().replace(&found, entry);
                moved.iter().for_each(|before| changed(before));
                changed(object);
            }
            Event::Delete(object) => {
                object.prune_deleted();
                say_deleted(object);
                let key = key_of(object.meta());
                let before = self.shown(&key);
                let found = found_by(before.as_deref());
                let moved = before.filter(|_| found != found_by(Some(&*object)));
                self.write().remove(&found, &key);
                moved.iter().for_each(|before| changed(before));
                changed(object);
            }
        }
    }

    /// The same, and nobody is told.
    #[cfg(any(test, feature = "simulators"))]
    pub(crate) fn apply(&mut self, event: &mut Event<K>) {
        self.show(event, |_| {});
    }

    /// A list has taken the place of what was there before.
    fn tell_of_list(&self, before: Objects<K>, mut changed: impl FnMut(&K)) {
        if mutant!(ListUnheard) {
            return;
        }
        for (key, was) in before.kept {
            let was = was.read();
            match self.shown(&key) {
                Some(is) if found_by(Some(&*is)) == found_by(Some(&*was)) => {}
                Some(_) => changed(&was),
                None => {
                    let mut gone = Arc::unwrap_or_clone(was);
                    say_deleted(&mut gone);
                    changed(&gone);
                }
            }
        }
        // One at a time: all of them as structures would be several times the cache.
        let keys: Vec<Box<str>> = {
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            objects.kept.keys().cloned().collect()
        };
        for key in keys {
            self.shown(&key).iter().for_each(|object| changed(object));
        }
    }

    /// What readers see now. Only this changes it, so it stays so without the lock.
    fn shown(&self, key: &str) -> Option<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let kept = objects.kept.get(key).cloned();
        drop(objects);
        kept.map(|kept| kept.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Objects<K> {
    /// What follows this prefix in the index.
    fn found(&self, prefix: String) -> impl Iterator<Item = &str> {
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let from = self.index.range::<str, _>(from);
        from.map_while(move |entry| entry.strip_prefix(prefix.as_str()))
    }
}

impl<K> Objects<K> {
    /// `before`: by what the object of this key was found.
    fn replace(&mut self, before: &[Box<str>], entry: Entry<K>) {
        self.remove(before, &entry.key);
        self.index.extend(entry.index);
        self.kept.insert(entry.key.into(), entry.kept);
    }

    fn remove(&mut self, before: &[Box<str>], key: &str) {
        self.kept.remove(key);
        for entry in before {
            self.index.remove(entry);
        }
    }
}

impl<K: Prune + Clone> Entry<K> {
    fn of(object: &K, packer: &mut Packer) -> Self {
        let whole = || Kept::Whole(Arc::new(object.clone()));
        let text = object.text();
        let mut packed = |text| match object.is_packed() {
            true => packer.pack(text),
            false => Packed::Plain(text),
        };
        let text = text.map(|text| Kept::Text(Arc::new(packed(text))));
        Self {
            key: key_of(object.meta()),
            kept: text.unwrap_or_else(whole),
            index: entries(object).collect(),
        }
    }
}

/// By what an object is found. The last state of a deleted one may differ from the one that was kept: that one is what the
/// index has.
fn found_by<K: Prune>(object: Option<&K>) -> Vec<Box<str>> {
    object.into_iter().flat_map(entries).collect()
}

/// An object that is gone without having been seen on its way: a forced deletion, or one while nobody watched.
fn say_deleted<K: Prune>(object: &mut K) {
    let some = Time(Timestamp::UNIX_EPOCH);
    object.meta_mut().deletion_timestamp.get_or_insert(some);
}

/// Without the lock: a text takes some microseconds.
fn read_all<K: Prune>(kept: Vec<Kept<K>>) -> Vec<Arc<K>> {
    kept.into_iter().map(|kept| kept.read()).collect()
}

impl<K: Prune> Kept<K> {
    /// An object that was there must never seem to be missing.
    fn read(&self) -> Arc<K> {
        match self {
            Self::Whole(object) => object.clone(),
            Self::Text(packed) => {
                let object = K::of_text(&packed.text());
                Arc::new(object.expect("it was read when it was kept"))
            }
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
    debug_assert!(number.is_some(), "nothing is found by {label}");
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
        let mut seen = Vec::new();
        pods.each(|pod| seen.push(pod.clone()));
        assert_eq!(seen, [whole]);
    }

    /// What an event tells of: each object as its name, its cluster, and whether it is gone.
    fn told(filler: &mut Filler<Pod>, event: Event<Pod>) -> Vec<String> {
        let mut told = Vec::new();
        filler.show(&mut { event }, |pod| {
            let meta = &pod.metadata;
            let labels = meta.labels.as_ref().expect("labels");
            let gone = meta.deletion_timestamp.as_ref().map_or("", |_| ", gone");
            let name = meta.name.as_deref().unwrap_or_default();
            told.push(format!("{name} of {}{gone}", labels[LABEL_CLUSTER]));
        });
        told
    }

    /// The cluster that an object belonged to until its label was changed was not told, and did not create it again
    /// before its next look.
    #[test]
    fn former_cluster_is_told() {
        let (mut filler, pods) = Indexed::new();
        let a = |cluster: &str| pod("here", "a", json!({LABEL_CLUSTER: cluster}));
        assert_eq!(told(&mut filler, Event::Apply(a("one"))), ["a of one"]);
        assert_eq!(told(&mut filler, Event::Apply(a("one"))), ["a of one"]);
        let moved = told(&mut filler, Event::Apply(a("two")));
        assert_eq!(moved, ["a of one", "a of two"]);
        let deleted = told(&mut filler, Event::Delete(a("three")));
        assert_eq!(deleted, ["a of two", "a of three, gone"]);
        assert!(pods.all().is_empty());
    }

    /// A second list, after a watch that ended: what came, changed or went meanwhile has no event of its own. It was told
    /// of before readers saw it, and what went not at all.
    #[test]
    fn second_list_tells_of_what_no_event_told() {
        let (mut filler, pods) = Indexed::new();
        let of = |name: &str, cluster: &str| pod("here", name, json!({LABEL_CLUSTER: cluster}));
        for name in ["gone", "moved", "same"] {
            told(&mut filler, Event::Apply(of(name, "one")));
        }
        let mut on_node = of("same", "one");
        on_node.spec.get_or_insert_default().node_name = Some("a".into());
        for event in [
            Event::Init,
            Event::InitApply(of("moved", "two")),
            Event::InitApply(on_node),
            Event::InitApply(of("new", "three")),
        ] {
            assert!(told(&mut filler, event).is_empty(), "nobody can see it yet");
            assert!(pods.get("here", "new").is_none());
        }
        let mut seen = Vec::new();
        filler.show(&mut Event::InitDone, |_| {
            seen.push(pods.get("here", "new").is_some());
        });
        assert!(!seen.is_empty() && seen.iter().all(|seen| *seen));
        assert_eq!(of_cluster(&pods, "one"), ["same"]);
        assert_eq!(of_cluster(&pods, "two"), ["moved"]);
        assert_eq!(pods.on_node("a").len(), 1);

        // The same list a third time, without one of them.
        filler.apply(&mut Event::Init);
        for (name, cluster) in [("moved", "one"), ("new", "three")] {
            filler.apply(&mut Event::InitApply(of(name, cluster)));
        }
        assert_eq!(
            told(&mut filler, Event::InitDone),
            [
                "moved of two",
                "same of one, gone",
                "moved of one",
                "new of three"
            ]
        );
        assert!(pods.on_node("a").is_empty());
        assert_eq!(pods.read().index.len(), 2, "nothing is kept of the others");
    }

    /// A watch that ends during its list begins another one: what came of the first is not shown with it.
    #[test]
    fn interrupted_list_is_dropped() {
        let (mut filler, pods) = Indexed::new();
        let of = |name: &str| pod("here", name, json!({LABEL_CLUSTER: "one"}));
        filler.apply(&mut Event::Apply(of("a")));
        for event in [
            Event::Init,
            Event::InitApply(of("b")),
            Event::Init,
            Event::InitApply(of("c")),
            Event::InitApply(of("c")),
        ] {
            filler.apply(&mut { event });
            assert_eq!(of_cluster(&pods, "one"), ["a"]);
        }
        assert_eq!(
            told(&mut filler, Event::InitDone),
            ["a of one, gone", "c of one"]
        );
        assert_eq!(of_cluster(&pods, "one"), ["c"]);
    }

    fn of_cluster(pods: &Indexed<Pod>, cluster: &str) -> Vec<String> {
        of(pods, "here", &[(LABEL_CLUSTER, cluster)])
    }
}
