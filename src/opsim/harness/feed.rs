//! Fills an operator's cache of one kind from the simulated API server: as late as configured, and
//! then with everything at once, so that events are both late and coalesced.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use kube::Resource;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::operator::kubernetes::cache::Cache;
use crate::operator::kubernetes::indexed::Filler;
use crate::operator::kubernetes::pruned::Prune;
use crate::opsim::api::object;

/// Every so many deliveries the watch has ended, and a whole list comes instead of events.
const LIST: u64 = 5;

/// One kind as one operator has it.
pub(crate) struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Hash + Eq,
{
    filler: Filler<K>,
    shown: BTreeMap<(String, String), (u64, K)>,
    deliveries: u64,
}

impl<K> Feed<K>
where
    K: Prune + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// An empty cache, and what fills it.
    pub(crate) fn new() -> (Self, Cache<K>) {
        Self::of(Cache::filled())
    }

    /// The same of a kind that the API server refuses to show.
    pub(crate) fn refused() -> (Self, Cache<K>) {
        Self::of(Cache::refused())
    }

    fn of((mut filler, cache): (Filler<K>, Cache<K>)) -> (Self, Cache<K>) {
        filler.apply(&mut Event::Init);
        filler.apply(&mut Event::InitDone);
        let feed = Self {
            filler,
            shown: BTreeMap::new(),
            deliveries: 0,
        };
        (feed, cache)
    }

    /// Shows one more object, of which nothing is remembered here: what the cache then holds is all
    /// that is held.
    pub(crate) fn add(&mut self, value: &Value) -> Option<K> {
        let object = serde_json::from_value::<K>(value.clone()).ok()?;
        self.filler.apply(&mut Event::Apply(object.clone()));
        Some(object)
    }

    /// Shows what there is now; calls `changed` with each object that came, changed or went.
    pub(crate) fn deliver<'a>(
        &mut self,
        now: impl Iterator<Item = &'a Value>,
        mut changed: impl FnMut(&K),
    ) {
        self.deliveries += 1;
        // With thousands a list takes what hundreds of events take.
        let every = LIST.max(self.shown.len() as u64 / 20);
        if self.deliveries.is_multiple_of(every) {
            return self.list(now, changed);
        }
        let mut gone: std::collections::BTreeSet<(String, String)> =
            self.shown.keys().cloned().collect();
        for value in now {
            let key = key(value);
            gone.remove(&key);
            let revision = object::revision(value);
            if self
                .shown
                .get(&key)
                .is_some_and(|(shown, _)| *shown == revision)
            {
                continue;
            }
            let Ok(object) = serde_json::from_value::<K>(value.clone()) else {
                continue;
            };
            let mut event = Event::Apply(object.clone());
            self.filler.show(&mut event, &mut changed);
            self.shown.insert(key, (revision, object));
        }
        for key in gone {
            if let Some((_, object)) = self.shown.remove(&key) {
                self.filler.show(&mut Event::Delete(object), &mut changed);
            }
        }
    }

    /// Shows a second list: what came, changed or went since the last delivery has no event.
    fn list<'a>(&mut self, now: impl Iterator<Item = &'a Value>, mut changed: impl FnMut(&K)) {
        self.shown.clear();
        self.filler.show(&mut Event::Init, &mut changed);
        for value in now {
            if let Ok(object) = serde_json::from_value::<K>(value.clone()) {
                let mut event = Event::InitApply(object.clone());
                self.filler.show(&mut event, &mut changed);
                self.shown
                    .insert(key(value), (object::revision(value), object));
            }
        }
        self.filler.show(&mut Event::InitDone, &mut changed);
    }
}

fn key(value: &Value) -> (String, String) {
    let namespace = object::namespace(value).to_owned();
    (namespace, object::name(value).to_owned())
}
