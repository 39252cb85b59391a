//! What the API server last told: one reflector a kind and namespace, and a trigger for the
//! cluster that an event is about. Caches may be stale; whatever destroys something reads live.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Where to watch: every namespace, or these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them.
    All,
    /// Only these.
    Only(Vec<String>),
}

impl Namespaces {
    /// From a comma-separated list; empty means all.
    pub fn parse(list: &str) -> Result<Self, String> {
        if list.trim().is_empty() {
            return Ok(Self::All);
        }
        let mut names = Vec::new();
        for name in list.split(',').map(str::trim) {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
                return Err(format!(
                    "{name:?} is not the name of a namespace: give names separated by commas, or leave it empty for all"
                ));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(Self::Only(names))
    }

    fn apis<K>(&self, client: &Client) -> Vec<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match self {
            Self::All => vec![Api::all(client.clone())],
            Self::Only(names) => names
                .iter()
                .map(|name| Api::namespaced(client.clone(), name))
                .collect(),
        }
    }
}

/// The objects of one kind.
#[derive(Clone)]
pub struct Cache<K: Resource<DynamicType = ()> + Clone + 'static> {
    stores: Vec<Store<K>>,
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Watches a namespaced kind. `trigger` is called with each object that appeared, changed or
    /// went, and with each object of a repeated list.
    pub fn namespaced(
        client: &Client,
        namespaces: &Namespaces,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let apis = namespaces.apis(client);
        let start = |api| watch(api, config.clone(), trigger.clone());
        Self {
            stores: apis.into_iter().map(start).collect(),
        }
    }

    /// Watches a kind that has no namespaces.
    pub fn cluster_wide(
        client: &Client,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self {
        Self {
            stores: vec![watch(Api::all(client.clone()), config.clone(), trigger)],
        }
    }

    /// Waits until every list was read once.
    pub async fn ready(&self) {
        for store in &self.stores {
            // The writer lives in a task that never ends while the process runs.
            let _ = store.wait_until_ready().await;
        }
    }

    /// One object by name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = ObjectRef::new(name).within(namespace);
        self.stores.iter().find_map(|store| store.get(&key))
    }

    /// All objects that fit, in order of namespace and name.
    pub fn select(&self, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let all = self.stores.iter().flat_map(Store::state);
        let mut chosen: Vec<Arc<K>> = all.filter(|object| fits(object)).collect();
        let key = |object: &Arc<K>| (object.meta().namespace.clone(), object.meta().name.clone());
        chosen.sort_by_key(key);
        chosen
    }
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    trigger: impl Fn(&K) + Send + Sync + 'static,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = store();
    tokio::spawn(async move {
        let events = watcher(api, config).default_backoff().reflect(writer);
        let mut events = std::pin::pin!(events.into_stream());
        let mut last_error = String::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    trigger(&object);
                }
                Ok(watcher::Event::Delete(object)) => trigger(&object),
                Ok(watcher::Event::Init) => {}
                Ok(watcher::Event::InitDone) => last_error.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if text != last_error {
                        let kind = K::kind(&());
                        tracing::warn!(%kind, error = %text, "the watch failed; it is tried again");
                        last_error = text;
                    }
                }
            }
        }
    });
    reader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_a_list_or_all() {
        assert_eq!(Namespaces::parse(""), Ok(Namespaces::All));
        let only = Namespaces::Only(vec!["a".into(), "b-2".into()]);
        assert_eq!(Namespaces::parse("a, b-2,a"), Ok(only));
        let error = Namespaces::parse("a,,b").expect_err("an empty name");
        assert!(error.contains("separated by commas"), "{error}");
        assert!(Namespaces::parse("Team").is_err());
    }
}
