//! What the console shows of Kubernetes, and to whom: resources from the caches, and what this operator has seen and
//! published itself. Whoever may list EtcdClusters sees them, and backups and events if he may list these. The API server
//! is asked who somebody is and what he may, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::DeserializeGuard;

use super::cache::Cache;
use super::callers::{Callers, Refusal, Wish};
use super::context::Resourceful;
use super::dry_run::Acting;
use super::workers::Key;
use crate::crd::backups::EtcdBackup;
use crate::crd::{EtcdCluster, GROUP};
use crate::model::call::AUDIENCE;
use crate::operator::clock::Clock;
use crate::operator::console::{
    self, Document, Error, Observed, Part, Recent, Request, Row, Sight, Source,
};
use crate::operator::platform::Event;
use crate::plan::Description;

/// Clusters in a list; whoever has more asks for a namespace.
const LISTED: usize = 500;
/// With many clusters the list takes long to make: it is made again after so many times as long, but not at once.
const AT_REST: u32 = 20;
/// At least so long it holds.
const HOLDS: Duration = Duration::from_secs(1);

/// What the operator notes for the console while it works; kept only where there is one.
pub(crate) struct Feed {
    clock: Clock,
    events: Recent,
    observed: Mutex<BTreeMap<Key, Observed>>,
    backups: OnceLock<Cache<DeserializeGuard<EtcdBackup>>>,
}

impl Feed {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            events: Recent::default(),
            observed: Mutex::default(),
            backups: OnceLock::new(),
        }
    }

    /// An event about a cluster was published.
    pub(super) fn published(&self, key: &Key, event: &Event) {
        self.events.keep(key, event, self.now());
    }

    /// The members of a cluster have answered.
    pub(super) fn described(&self, key: &Key, descriptions: &BTreeMap<String, Description>) {
        let seen = Observed {
            at: Some(self.now()),
            positions: console::positions(descriptions),
        };
        self.observed().insert(key.clone(), seen);
    }

    /// Where backups are known.
    pub(super) fn backups_in(&self, cache: Cache<DeserializeGuard<EtcdBackup>>) {
        let _ = self.backups.set(cache);
    }

    /// A cluster is deleted.
    pub(super) fn forget(&self, key: &Key) {
        self.events.forget(key);
        self.observed().remove(key);
    }

    fn observed_of(&self, key: &Key) -> Observed {
        self.observed().get(key).cloned().unwrap_or_default()
    }

    /// Whether backups are known here: not before their cache is filled, and never where the API server shows none.
    fn knows_backups(&self) -> Result<(), String> {
        match self.backups.get() {
            None => Err("The operator has not read them yet.".to_owned()),
            Some(cache) if cache.is_denied() => {
                Err("The operator may not list EtcdBackups, or there is no such kind.".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    fn backups_of(&self, (namespace, name): &Key) -> Vec<console::Backup> {
        let of_it = |guard: &DeserializeGuard<EtcdBackup>| {
            let backup = guard.0.as_ref();
            backup.is_ok_and(|backup| backup.spec.cluster_ref.name == *name)
        };
        let cache = self.backups.get();
        let found = cache.map(|cache| cache.in_namespace(namespace, of_it));
        let found = found.unwrap_or_default();
        console::backups(found.iter().filter_map(|guard| guard.0.as_ref().ok()))
    }

    fn now(&self) -> Timestamp {
        let milliseconds = i64::try_from(self.clock.unix_ms()).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(milliseconds).unwrap_or_default();
        // The page shows no more of it.
        Timestamp::from_second(time.as_second()).unwrap_or_default()
    }

    fn observed(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Observed>> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The list of all clusters, for every viewer the same.
#[derive(Clone)]
struct Listed {
    made: Instant,
    took: Duration,
    rows: Arc<Vec<Row>>,
    unreadable: usize,
}

impl Listed {
    fn new(clusters: &Cache<Resourceful>) -> Self {
        let made = Instant::now();
        let (mut rows, mut unreadable) = (Vec::new(), 0);
        clusters.each(|guard| match &guard.0 {
            Ok(cluster) => rows.push(console::row(cluster)),
            Err(_) => unreadable += 1,
        });
        rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Self {
            made,
            took: made.elapsed(),
            rows: Arc::new(rows),
            unreadable,
        }
    }

    fn holds(&self) -> bool {
        self.made.elapsed() < HOLDS.max(self.took * AT_REST)
    }
}

/// The console's source.
pub(super) struct Shown {
    clusters: Cache<Resourceful>,
    acting: Acting,
    callers: Callers,
    feed: Arc<Feed>,
    listed: tokio::sync::Mutex<Option<Listed>>,
}

impl Shown {
    pub(super) fn new(
        clusters: Cache<Resourceful>,
        acting: Acting,
        callers: Callers,
        feed: Arc<Feed>,
    ) -> Self {
        Self {
            clusters,
            acting,
            callers,
            feed,
            listed: tokio::sync::Mutex::default(),
        }
    }

    /// One viewer makes it, on a thread on which nothing else waits; the others wait for it.
    async fn listed(&self) -> Option<Listed> {
        let mut listed = self.listed.lock().await;
        if !listed.as_ref().is_some_and(Listed::holds) {
            let clusters = self.clusters.clone();
            *listed = tokio::task::spawn_blocking(move || Listed::new(&clusters))
                .await
                .ok();
        }
        listed.clone()
    }

    async fn may_list(
        &self,
        token: &str,
        (group, plural): (&'static str, &'static str),
        namespace: Option<&String>,
    ) -> Result<(), Refusal> {
        let wish = Wish::List {
            group,
            plural,
            namespace: namespace.cloned(),
        };
        self.callers.may(token, Some(AUDIENCE), &wish).await
    }

    fn cluster(&self, sight: &Sight, key: &Key) -> Option<console::Cluster> {
        let guard = self.clusters.get(&key.0, &key.1)?;
        let cluster: &EtcdCluster = guard.0.as_ref().ok()?;
        let standby = "This operator stands by: the one that holds the Lease knows of them.";
        let seen = |may: &Result<(), String>| match self.acting.get() {
            Some(_) => may.clone(),
            None => may.clone().and(Err(standby.to_owned())),
        };
        let backups = seen(&sight.backups).and_then(|()| self.feed.knows_backups());
        let backups = Part::of(&backups, || self.feed.backups_of(key));
        let events = Part::of(&seen(&sight.events), || self.feed.events.of(key));
        let observed = self.feed.observed_of(key);
        Some(console::cluster(cluster, &observed, backups, events))
    }
}

impl Source for Shown {
    const PAUSE: Duration = Duration::from_secs(1);

    async fn sight(&self, request: &Request) -> Result<Sight, Error> {
        let token = request.token.as_deref().ok_or(Error::NoToken)?;
        let namespace = request.namespace.as_ref();
        let clusters = self.may_list(token, (GROUP, "etcdclusters"), namespace);
        clusters.await?;
        let backups = self.may_list(token, (GROUP, "etcdbackups"), namespace);
        let backups = withheld(backups.await)?;
        let events = withheld(self.may_list(token, ("", "events"), namespace).await)?;
        Ok(Sight {
            namespace: request.namespace.clone(),
            backups,
            events,
        })
    }

    async fn document(&self, sight: &Sight, cluster: Option<&Key>) -> Document {
        let listed = self.listed().await;
        let unreadable = listed.as_ref().map_or(0, |listed| listed.unreadable);
        let rows = listed.map(|listed| listed.rows).unwrap_or_default();
        let namespace = sight.namespace.as_ref();
        let seen = |row: &&Row| namespace.is_none_or(|namespace| row.namespace == *namespace);
        let clusters: Vec<Row> = rows.iter().filter(seen).take(LISTED).cloned().collect();
        let omitted = rows.iter().filter(seen).count() - clusters.len();
        let cluster = cluster.filter(|key| sight.covers(key));
        Document {
            version: env!("CARGO_PKG_VERSION"),
            active: self.acting.get().is_some(),
            namespace: sight.namespace.clone(),
            clusters,
            omitted,
            // Of a namespace nobody knows whose they are.
            unreadable: if namespace.is_none() { unreadable } else { 0 },
            cluster: cluster.and_then(|key| self.cluster(sight, key)),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Unknown(_) => Self::Unknown(text),
            Refusal::Forbidden(_) => Self::Forbidden(text),
            Refusal::Unclear(_) => Self::Unclear(text),
        }
    }
}

/// Who may not see a part sees the others.
fn withheld(may: Result<(), Refusal>) -> Result<Result<(), String>, Error> {
    match may {
        Ok(()) => Ok(Ok(())),
        Err(Refusal::Forbidden(why)) => Ok(Err(why)),
        Err(refusal) => Err(refusal.into()),
    }
}

#[cfg(all(test, feature = "simulators"))]
#[path = "console_test.rs"]
mod tests;
