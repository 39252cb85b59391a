//! What the API server stores, and every version that it ever stored.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use serde_json::{Value, json};

use super::apply::Manager;
use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::selector::Selector;

/// Namespace (empty where the kind has none) and name.
pub(super) type Key = (String, String);

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One version of one object.
#[derive(Clone, Debug)]
pub struct Version {
    /// The global revision, which is this version's `resourceVersion`. A deletion has one too.
    pub revision: u64,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
    /// The object's kind.
    pub kind: Kind,
    /// What happened.
    pub change: Change,
    /// The object after the change; before it where it was deleted.
    pub object: Arc<Value>,
    /// Who wrote it.
    pub actor: String,
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) object: Arc<Value>,
    pub(super) managers: Arc<Vec<Manager>>,
}

/// The API server.
#[derive(Debug)]
pub struct ApiServer {
    now_ms: u64,
    seed: u64,
    serial: u64,
    revision: u64,
    objects: BTreeMap<Kind, BTreeMap<Key, Stored>>,
    versions: BTreeMap<Kind, Vec<Version>>,
    /// Versions up to this one cannot be watched from any more.
    compacted: u64,
    not_modelled: Vec<String>,
    /// Whether it has the subresource `resize` of pods.
    pub(super) resizes_pods: bool,
    /// Whether a mesh's webhook changes the pods of members.
    meshed: bool,
    /// IP families of Services, the default one first.
    ip_families: Vec<&'static str>,
    watchers: Vec<Waker>,
}

impl ApiServer {
    /// An empty one. UIDs and generated names follow from the seed.
    pub fn new(seed: u64, now_ms: u64) -> Self {
        Self {
            now_ms,
            seed,
            serial: 0,
            revision: 1,
            objects: BTreeMap::new(),
            versions: BTreeMap::new(),
            compacted: 0,
            not_modelled: Vec::new(),
            resizes_pods: true,
            meshed: false,
            ip_families: vec!["IPv4"],
            watchers: Vec::new(),
        }
    }

    /// Tells the time, in milliseconds since 1970. It never goes back.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// The time that it was last given.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Lets a mesh's webhook add a container to the pods of members from now on.
    pub fn inject_sidecars(&mut self) {
        self.meshed = true;
    }

    pub(super) fn injects_sidecars(&self) -> bool {
        self.meshed
    }

    /// Gives Services addresses of these IP families from now on, by default of the first.
    pub fn set_ip_families(&mut self, families: &[&'static str]) {
        self.ip_families = families.to_vec();
    }

    pub(super) fn ip_families(&self) -> &[&'static str] {
        &self.ip_families
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.stored(kind, namespace, name)
            .map(|stored| stored.object.clone())
    }

    /// The objects that fit, in order of namespace and name.
    pub fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Vec<Arc<Value>> {
        self.all(kind)
            .filter(|object| namespace.is_none_or(|wanted| wanted == object::namespace(object)))
            .filter(|object| selector.fits(object))
            .cloned()
            .collect()
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Value>> {
        let objects = self.objects.get(&kind).into_iter().flatten();
        objects.map(|(_, stored)| &stored.object)
    }

    /// The versions of a kind's objects after one revision and up to another, in order. The state
    /// of a cache that is at a revision is what these add up to from 0.
    pub fn versions(&self, kind: Kind, after: u64, up_to: u64) -> &[Version] {
        let all = self.versions.get(&kind).map_or(&[][..], Vec::as_slice);
        let from = all.partition_point(|version| version.revision <= after);
        let to = all.partition_point(|version| version.revision <= up_to);
        all.get(from..to.max(from)).unwrap_or_default()
    }

    /// Makes watches from this revision or before it fail with 410, as a compacted store does.
    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// What was asked for and is not modelled.
    pub fn not_modelled(&self) -> &[String] {
        &self.not_modelled
    }

    /// Notes a refusal for what is not modelled, and passes it on.
    pub fn note(&mut self, refusal: Refusal) -> Refusal {
        if refusal.code == 501 {
            self.not_modelled.push(refusal.message.clone());
        }
        refusal
    }

    /// Whose fields are whose, as `metadata.managedFields` would show it.
    pub fn managed_fields(&self, kind: Kind, namespace: &str, name: &str) -> Value {
        let managers = self.stored(kind, namespace, name);
        let managers = managers.map(|stored| stored.managers.clone());
        managers
            .iter()
            .flat_map(|managers| managers.iter())
            .map(Manager::to_json)
            .collect()
    }

    pub(super) fn stored(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Stored> {
        let key = (namespace.to_owned(), name.to_owned());
        self.objects.get(&kind)?.get(&key)
    }

    /// Stores a version that follows all rules already: gives it its revision.
    pub(super) fn store(
        &mut self,
        actor: &str,
        kind: Kind,
        mut object: Value,
        managers: Arc<Vec<Manager>>,
    ) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let key = key(&object);
        let object = Arc::new(object);
        let stored = Stored {
            object: object.clone(),
            managers,
        };
        let before = self.objects.entry(kind).or_default().insert(key, stored);
        let change = match before {
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        self.publish(actor, kind, change, object.clone());
        object
    }

    /// Takes an object out of the store.
    pub(super) fn erase(&mut self, actor: &str, kind: Kind, object: &Value) -> Arc<Value> {
        self.revision += 1;
        let mut last = object.clone();
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        if let Some(objects) = self.objects.get_mut(&kind) {
            objects.remove(&key(object));
        }
        let last = Arc::new(last);
        self.publish(actor, kind, Change::Deleted, last.clone());
        last
    }

    fn publish(&mut self, actor: &str, kind: Kind, change: Change, object: Arc<Value>) {
        let version = Version {
            revision: self.revision,
            at_ms: self.now_ms,
            kind,
            change,
            object,
            actor: actor.to_owned(),
        };
        self.versions.entry(kind).or_default().push(version);
        for waker in self.watchers.drain(..) {
            waker.wake();
        }
    }

    pub(super) fn wake_me(&mut self, waker: &Waker) {
        self.watchers.push(waker.clone());
    }

    /// A new UID, in the form of a random one.
    pub(super) fn new_uid(&mut self) -> String {
        let (high, low) = (self.draw(), self.draw());
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
        let (d, e) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }

    /// Five letters and digits for a generated name.
    pub(super) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut drawn = self.draw();
        let mut letter = || {
            let at = usize::try_from(drawn % 27).unwrap_or(0);
            drawn /= 27;
            char::from(LETTERS.get(at).copied().unwrap_or(b'x'))
        };
        (0..5).map(|_| letter()).collect()
    }

    /// The next number from the seed (splitmix64).
    fn draw(&mut self) -> u64 {
        self.serial += 1;
        let step = self.serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed.wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The keys of a kind from one on, for lists in pages.
    pub(super) fn after(
        &self,
        kind: Kind,
        start: Bound<Key>,
    ) -> impl Iterator<Item = (&Key, &Stored)> {
        let objects = self.objects.get(&kind);
        objects
            .into_iter()
            .flat_map(move |objects| objects.range((start.clone(), Bound::Unbounded)))
    }
}

pub(super) fn key(object: &Value) -> Key {
    (
        object::namespace(object).to_owned(),
        object::name(object).to_owned(),
    )
}
