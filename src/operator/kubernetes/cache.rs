//! The last state received from the API server: one watch per kind and namespace, and a trigger for the cluster of
//! an event. Caches may be stale; destructive actions read live. The operator may lack permission for cluster-scoped
//! resources: such a cache reports this and is empty, until the permission is granted, which it finds out by listing again.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

#[cfg(feature = "simulators")]
use super::indexed::Filler;
use super::indexed::Indexed;
use super::pruned::Prune;
use crate::mutants::mutant;

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

    /// Whether this one is among them.
    pub(super) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == namespace),
        }
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
    stores: Vec<Indexed<K>>,
    /// Of each: the API server refuses to show them, and the operator can do without.
    denied: Vec<watch::Receiver<bool>>,
}

impl<K> Cache<K>
where
    K: Prune + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Watches a namespaced kind. `trigger` is called with each object that appeared, changed or
    /// went, with each object of a repeated list, and with each that is missing in it, once readers see it.
    pub fn namespaced(
        client: &Client,
        namespaces: &Namespaces,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Self::in_namespaces(client, namespaces, config, trigger, None)
    }

    /// The same of a kind that the operator can do without: as far as it may.
    pub fn namespaced_as_allowed(
        client: &Client,
        namespaces: &Namespaces,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Self::in_namespaces(client, namespaces, config, trigger, Some(is_forbidden))
    }

    /// The same of a kind that an older API server does not have.
    pub fn namespaced_where_served(
        client: &Client,
        namespaces: &Namespaces,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let denies = |error: &watcher::Error| is_forbidden(error) || is_unknown(error);
        Self::in_namespaces(client, namespaces, config, trigger, Some(denies))
    }

    /// `denies`: of a kind that the operator can do without, the errors for which the cache no longer waits for it.
    fn in_namespaces(
        client: &Client,
        namespaces: &Namespaces,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
        denies: Option<Denies>,
    ) -> Self
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let apis = namespaces.apis(client).into_iter();
        let start = |api| {
            let (deny, denied) = watch::channel(false);
            let deny = denies.map(|denies| (deny, denies));
            let store = follow(api, config.clone(), trigger.clone(), deny);
            (store, denied)
        };
        let (stores, denied) = apis.map(start).unzip();
        Self { stores, denied }
    }

    /// Watches a kind that has no namespaces, as far as the operator may.
    pub fn cluster_wide(
        client: &Client,
        config: &watcher::Config,
        trigger: impl Fn(&K) + Clone + Send + Sync + 'static,
    ) -> Self {
        let (deny, denied) = watch::channel(false);
        let api = Api::all(client.clone());
        Self {
            stores: vec![follow(
                api,
                config.clone(),
                trigger,
                Some((deny, is_forbidden as Denies)),
            )],
            denied: vec![denied],
        }
    }

    /// A cache that is filled from outside: by a simulation, which decides what is stale and how much.
    #[cfg(feature = "simulators")]
    pub(crate) fn filled() -> (Filler<K>, Self) {
        let (filler, store) = Indexed::new();
        let cache = Self {
            stores: vec![store],
            denied: vec![watch::channel(false).1],
        };
        (filler, cache)
    }

    /// The same of a kind that the API server refuses to show.
    #[cfg(feature = "simulators")]
    pub(crate) fn refused() -> (Filler<K>, Self) {
        let (filler, mut cache) = Self::filled();
        cache.denied = vec![watch::channel(true).1];
        (filler, cache)
    }

    /// Waits until every list was read once, or is known to be out of reach.
    pub async fn ready(&self) {
        for (store, denied) in self.stores.iter().zip(&self.denied) {
            let mut denied = denied.clone();
            tokio::select! {
                // The writer lives in a task that never ends while the process runs.
                _ = store.wait_until_ready() => {}
                // A denial can no longer arrive: only the list counts.
                () = async { if denied.wait_for(|denied| *denied).await.is_err() {
                    std::future::pending::<()>().await;
                } } => {}
            }
        }
    }

    /// Whether the API server refuses to show these objects, or some of them.
    pub fn is_denied(&self) -> bool {
        self.denied.iter().any(|denied| *denied.borrow())
    }

    /// One object by name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let mut stores = self.stores.iter();
        stores.find_map(|store| store.get(namespace, name))
    }

    /// One object of a kind that has no namespaces.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        if self.is_denied() {
            return None;
        }
        self.get("", name)
    }

    /// All objects that fit, in order of namespace and name.
    pub fn select(&self, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        if self.is_denied() {
            return Vec::new();
        }
        let all = self.stores.iter().flat_map(Indexed::all);
        let mut chosen: Vec<Arc<K>> = all.filter(|object| fits(object)).collect();
        let key = |object: &Arc<K>| (object.meta().namespace.clone(), object.meta().name.clone());
        chosen.sort_by_key(key);
        chosen
    }

    /// Calls with each object, one at a time, for callers that want little of many.
    pub fn each(&self, mut visit: impl FnMut(&K)) {
        if self.is_denied() {
            return;
        }
        for store in &self.stores {
            store.each(&mut visit);
        }
    }

    /// The objects of a namespace that fit, by name.
    pub fn in_namespace(&self, namespace: &str, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        if self.is_denied() {
            return Vec::new();
        }
        let stores = self.stores.iter();
        let all = stores.flat_map(|store| store.in_namespace(namespace));
        all.filter(|object| fits(object)).collect()
    }

    /// The objects of a namespace with one of these labels and values, sorted by name. The labels identify the cluster
    /// of an object.
    pub fn of_any(&self, namespace: &str, owners: &[(&str, &str)]) -> Vec<Arc<K>> {
        let all = self.stores.iter();
        all.flat_map(|store| store.of_any(namespace, owners))
            .collect()
    }

    /// The objects on a node, of every namespace.
    pub fn on_node(&self, node: &str) -> Vec<Arc<K>> {
        let all = self.stores.iter();
        all.flat_map(|store| store.on_node(node)).collect()
    }
}

/// After a watch was denied the objects are listed again, in case that they may be seen by now: after this pause, and twice as
/// long each time until something is seen.
const LIST_AGAIN: Duration = match cfg!(test) {
    true => Duration::from_millis(50),
    false => Duration::from_secs(2),
};
const LIST_AGAIN_AT_LAST: Duration = Duration::from_secs(300);

/// Whether an error is one that no repetition removes.
type Denies = fn(&watcher::Error) -> bool;

/// Follows a list. `deny` receives whether the API server refuses it, by these errors.
fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    trigger: impl Fn(&K) + Send + Sync + 'static,
    deny: Option<(watch::Sender<bool>, Denies)>,
) -> Indexed<K>
where
    K: Prune + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (mut filler, reader) = Indexed::new();
    tokio::spawn(async move {
        let mut last_error = String::new();
        let mut pause = LIST_AGAIN;
        loop {
            let mut events = std::pin::pin!(watcher(api.clone(), config.clone()).default_backoff());
            while let Some(mut event) = events.next().await {
                if matches!(event, Ok(watcher::Event::InitDone)) {
                    // Before whoever is told of an object looks at it.
                    set_denied(deny.as_ref(), false);
                }
                if let Ok(event) = &mut event {
                    filler.show(event, &trigger);
                }
                match event {
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    // The list alone says nothing of the watch, if that was denied.
                    Ok(watcher::Event::InitDone) if pause > LIST_AGAIN => {}
                    Ok(watcher::Event::InitDone) => last_error.clear(),
                    Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                        last_error.clear();
                        pause = LIST_AGAIN;
                    }
                    Err(error) => {
                        let denied = deny.as_ref().is_some_and(|(_, denies)| denies(&error));
                        if denied {
                            set_denied(deny.as_ref(), true);
                        }
                        let text = error.to_string();
                        if text != last_error {
                            let kind = K::kind(&());
                            tracing::warn!(%kind, error = %text, "the watch failed; retrying");
                            last_error = text;
                        }
                        if denied && says_nothing_when_allowed(&error) {
                            break;
                        }
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LIST_AGAIN_AT_LAST);
        }
    });
    reader
}

/// A list that is allowed again says so; a watch that is goes on where it was, with its next event.
fn says_nothing_when_allowed(error: &watcher::Error) -> bool {
    !matches!(error, watcher::Error::InitialListFailed(_)) && !mutant!(DeniedForGood)
}

fn set_denied(deny: Option<&(watch::Sender<bool>, Denies)>, denied: bool) {
    if let Some((deny, _)) = deny {
        deny.send_replace(denied);
    }
}

/// Whether the operator lacks the right, which no repetition brings.
fn is_forbidden(error: &watcher::Error) -> bool {
    code(error) == Some(403)
}

/// Whether the API server does not know the kind: until its definition is installed.
fn is_unknown(error: &watcher::Error) -> bool {
    code(error) == Some(404)
}

fn code(error: &watcher::Error) -> Option<u16> {
    let (watcher::Error::InitialListFailed(error)
    | watcher::Error::WatchStartFailed(error)
    | watcher::Error::WatchFailed(error)) = error
    else {
        return None;
    };
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator without permission for cluster-scoped resources must not wait for them forever: it did, because a
    /// refused list is never complete.
    #[tokio::test]
    async fn refused_list_counts_as_empty() {
        use k8s_openapi::api::core::v1::Node;
        let answer = |code: u16| {
            let reason = if code == 403 {
                "Forbidden"
            } else {
                "InternalError"
            };
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "code": code,
                "status": "Failure", "reason": reason, "message": "no"});
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let answer = http::Response::builder().status(code);
                let body = kube::client::Body::from(body.to_string().into_bytes());
                std::future::ready(answer.body(body))
            });
            Client::new(service, "default")
        };
        let everything = watcher::Config::default();
        let nodes: Cache<Node> = Cache::cluster_wide(&answer(403), &everything, |_| {});
        nodes.ready().await;
        assert!(nodes.is_denied());
        assert!(nodes.select(|_| true).is_empty());
        // The operator waits for an API server with errors.
        let nodes: Cache<Node> = Cache::cluster_wide(&answer(500), &everything, |_| {});
        let soon = std::time::Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, nodes.ready()).await.is_err());
        assert!(!nodes.is_denied());
    }

    /// A kube-apiserver that has just started refuses watches for a moment, until it has read the roles. The watch went on
    /// without an event then, and what the cache had stayed hidden as long as the operator ran.
    #[tokio::test]
    async fn what_was_denied_for_a_moment_is_shown_again() {
        use k8s_openapi::api::core::v1::Node;
        use std::sync::atomic::{AtomicU32, Ordering};
        let watches = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let watch = request
                .uri()
                .query()
                .unwrap_or_default()
                .contains("watch=true");
            let number = watch.then(|| watches.fetch_add(1, Ordering::Relaxed));
            async move {
                let (code, body) = match number {
                    None => (
                        200,
                        serde_json::json!({"kind": "NodeList", "apiVersion": "v1",
                            "metadata": {"resourceVersion": "7"}, "items": []}),
                    ),
                    Some(0) => (
                        403,
                        serde_json::json!({"kind": "Status", "apiVersion": "v1", "code": 403,
                            "status": "Failure", "reason": "Forbidden", "message": "not yet"}),
                    ),
                    // Allowed, and nothing happens.
                    Some(_) => std::future::pending().await,
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            }
        });
        let client = Client::new(service, "default");
        let everything = watcher::Config::default();
        let nodes: Cache<Node> = Cache::cluster_wide(&client, &everything, |_| {});
        let mut denied = nodes.denied[0].clone();
        let limit = Duration::from_secs(5);
        let changes = async {
            denied.wait_for(|denied| *denied).await.map(drop)?;
            denied.wait_for(|denied| !*denied).await.map(drop)
        };
        let changes = tokio::time::timeout(limit, changes).await;
        changes.expect("it stays denied").expect("it is followed");
        assert!(!nodes.is_denied());
    }

    /// The same for a namespaced kind that is missing in older roles.
    #[tokio::test]
    async fn kinds_missing_in_an_older_role_are_skipped() {
        use k8s_openapi::api::discovery::v1::EndpointSlice;
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "code": 403,
                "status": "Failure", "reason": "Forbidden", "message": "no"});
            let body = kube::client::Body::from(body.to_string().into_bytes());
            std::future::ready(http::Response::builder().status(403).body(body))
        });
        let client = Client::new(service, "default");
        let namespaces = Namespaces::Only(vec!["a".into(), "b".into()]);
        let everything = watcher::Config::default();
        let slices: Cache<EndpointSlice> =
            Cache::namespaced_as_allowed(&client, &namespaces, &everything, |_| {});
        slices.ready().await;
        assert!(slices.is_denied());
    }

    /// An API server whose definitions are older than the operator: it starts all the same.
    #[tokio::test]
    async fn kinds_that_are_not_served_are_skipped() {
        use crate::crd::EtcdRecovery;
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "code": 404,
                "status": "Failure", "reason": "NotFound", "message": "the server could not find the requested resource"});
            let body = kube::client::Body::from(body.to_string().into_bytes());
            std::future::ready(http::Response::builder().status(404).body(body))
        });
        let client = Client::new(service, "default");
        let everything = watcher::Config::default();
        let recoveries: Cache<kube::core::DeserializeGuard<EtcdRecovery>> =
            Cache::namespaced_where_served(&client, &Namespaces::All, &everything, |_| {});
        recoveries.ready().await;
        assert!(recoveries.is_denied());
        assert!(recoveries.select(|_| true).is_empty());
    }

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
