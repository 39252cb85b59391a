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

/// One kind as one operator has it.
pub(crate) struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Hash + Eq,
{
    filler: Filler<K>,
    shown: BTreeMap<(String, String), (u64, K)>,
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
        let mut gone: std::collections::BTreeSet<(String, String)> =
            self.shown.keys().cloned().collect();
        for value in now {
            let key = (
                object::namespace(value).to_owned(),
                object::name(value).to_owned(),
            );
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
            self.filler.apply(&mut Event::Apply(object.clone()));
            changed(&object);
            self.shown.insert(key, (revision, object));
        }
        for key in gone {
            if let Some((_, object)) = self.shown.remove(&key) {
                self.filler.apply(&mut Event::Delete(object.clone()));
                changed(&object);
            }
        }
    }
}
