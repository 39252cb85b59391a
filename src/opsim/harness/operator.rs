//! One operator process: its caches, its reconciles and its queue as shipped, polled by hand so that
//! everything else has its turn between any two of its requests. To crash is to be dropped.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::events::{Recorder, Reporter};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use crate::build::{OwnImage, Settings};
use crate::crd::{EtcdRecovery, LABEL_CLUSTER_UID, MANAGER};
use crate::operator::clock::Clock;
use crate::operator::held::{Asked, Held, Hold};
use crate::operator::kubernetes::cache::Namespaces;
use crate::operator::kubernetes::context::{Caches, Context, Environment, Resourceful};
use crate::operator::kubernetes::kept_secret::KeptSecret;
use crate::operator::kubernetes::lease::{Candidate, Leadership, LeaseTimes, fenced};
use crate::operator::kubernetes::triggers;
use crate::operator::kubernetes::trust_bundle::SWEEP_EVERY;
use crate::operator::kubernetes::workers::Key;
use crate::operator::members::Dial;
use crate::operator::metrics::Metrics;
use crate::operator::queue::{Ended, Queue};
use crate::operator::reconcile::{Rules, reconcile};
use crate::opsim::api::{self, ApiServer, Kind, object};
use crate::opsim::servers::{self, Servers, way};
use crate::server::operator_api::client::{MemberClient, WayError};

use super::backups::{BackupReconciles, CACHED_OF_BACKUPS};
use super::feed::Feed;
use super::request_faults::{Request, RequestFaults};

/// Kinds that an operator has caches of.
pub const CACHED: [Kind; 13] = [
    Kind::EtcdCluster,
    Kind::EtcdRecovery,
    Kind::StatefulSet,
    Kind::Pod,
    Kind::PersistentVolumeClaim,
    Kind::Service,
    Kind::Secret,
    Kind::PodDisruptionBudget,
    Kind::Node,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::NetworkPolicy,
    Kind::EndpointSlice,
];

/// Between two tries to get or keep the Lease, in milliseconds, as shipped.
const LEASE_RETRY_MS: u64 = 2_000;
/// A holder that could not renew for this long ends itself, as shipped.
const LEASE_DEADLINE_MS: u64 = 10_000;

/// Namespace and name of the Lease.
pub(super) const LEASE: (&str, &str) = ("operators", "quorate");

type Attempt = (Candidate, Result<Option<String>, kube::Error>);

/// How an operator comes to act.
pub(crate) enum Right {
    /// By itself, under this epoch.
    FixedEpoch(u64),
    /// By the Lease.
    Lease,
}

/// What an operator is made with.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) api: api::SharedApiServer,
    pub(crate) request_faults: RequestFaults,
    pub(crate) clock: Clock,
    pub(crate) servers: Arc<Mutex<Servers>>,
    pub(crate) rules: Rules,
    pub(crate) right: Right,
    /// What it contains is its version.
    pub(crate) image: OwnImage,
    /// Its role is of before EndpointSlices were asked for.
    pub(crate) sees_no_slices: bool,
    /// The reconciles of backups run in it too.
    pub(crate) with_backups: bool,
    /// Makes the nonce of an identity Secret differ from that of any other process.
    pub(crate) entropy: u64,
}

struct Feeds {
    clusters: Feed<Resourceful>,
    recoveries: Feed<DeserializeGuard<EtcdRecovery>>,
    sets: Feed<StatefulSet>,
    pods: Feed<Pod>,
    pvcs: Feed<PersistentVolumeClaim>,
    services: Feed<Service>,
    secrets: Feed<KeptSecret>,
    pdbs: Feed<PodDisruptionBudget>,
    policies: Feed<NetworkPolicy>,
    slices: Feed<EndpointSlice>,
    nodes: Feed<Node>,
    volumes: Feed<PersistentVolume>,
    classes: Feed<StorageClass>,
}

/// The Lease, between tries and while one is under way.
struct Holding {
    candidate: Option<Candidate>,
    under_way: Option<Pin<Box<dyn Future<Output = Attempt>>>>,
    next_ms: u64,
    renewed_ms: u64,
}

/// What is counted of an operator, until it is taken.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Passes that ended.
    pub(crate) reconciles: u64,
    /// Passes that began while a cache was behind.
    pub(crate) stale: u64,
    /// Versions that no cache showed, because a newer one came with them.
    pub(crate) coalesced: u64,
}

/// A reconcile that is polled by hand.
pub(super) type Underway = Pin<Box<dyn Future<Output = Ended>>>;

/// One process.
pub(crate) struct Operator {
    pub(crate) name: String,
    pub(crate) request_faults: RequestFaults,
    shared: Arc<Context>,
    rules: Rules,
    feeds: Feeds,
    nodes: triggers::Nodes,
    queue: Queue<Key>,
    /// What members hold, what is asked of it, and clusters whose backups have changed.
    held: Held<Key>,
    asked: mpsc::UnboundedReceiver<Asked<Key>>,
    told: mpsc::UnboundedReceiver<Key>,
    underway: Vec<(Key, Underway)>,
    /// A look for ClusterTrustBundles of clusters that are gone, and when the next one is due.
    sweep: Option<Pin<Box<dyn Future<Output = ()>>>>,
    sweep_ms: u64,
    /// Reconciles that run at once, of as many clusters.
    pub(crate) concurrency: usize,
    backups: Option<BackupReconciles>,
    lease: Option<Holding>,
    /// It acts.
    pub(crate) leads: bool,
    /// It does nothing at all, not even to notice the time: a stopped process.
    pub(crate) frozen: bool,
    /// When a cache is filled next, by kind.
    due: BTreeMap<Kind, u64>,
    /// How late caches are at most, in milliseconds, by kind.
    pub(crate) lags: BTreeMap<Kind, u64>,
    /// The API server's revision at the last read; `None`: nothing was listed yet.
    seen: Option<u64>,
    /// The revision that each cache is of.
    shown: BTreeMap<Kind, u64>,
    entropy: u64,
    pub(crate) counted: Counted,
    reconciles: u64,
    /// How the last reconcile ended.
    pub(crate) last: Option<Ended>,
}

impl Operator {
    pub(crate) fn new(setup: Setup) -> Self {
        let (feeds, caches) = caches(setup.sees_no_slices);
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let reporter = Reporter {
            controller: MANAGER.into(),
            instance: Some(setup.name.clone()),
        };
        let now_ms = setup.clock.unix_ms();
        let connection = || setup.api.service(&setup.name);
        let (leadership, lease, request_faults) = match setup.right {
            Right::FixedEpoch(epoch) => {
                (Leadership::fixed(epoch), None, setup.request_faults.clone())
            }
            Right::Lease => {
                let client = gated(connection(), setup.request_faults.clone());
                let identity = format!("{}-{now_ms}", setup.name);
                let clock = setup.clock.clone();
                let times = LeaseTimes::default();
                let candidate = Candidate::new(client, LEASE.0, LEASE.1, identity, clock, times);
                let leadership = candidate.leadership();
                let request_faults = setup.request_faults.clone().by(&leadership);
                let holding = Holding {
                    candidate: Some(candidate),
                    under_way: None,
                    next_ms: now_ms,
                    renewed_ms: now_ms,
                };
                (leadership, Some(holding), request_faults)
            }
        };
        let client = gated(connection(), request_faults.clone());
        let client = fenced(client, leadership.clone(), None);
        let recorder = Recorder::new(client.clone(), reporter);
        let outside = Environment {
            clock: setup.clock.clone(),
            hold: hold(request_faults.clone(), setup.servers.clone()),
            dial: dial(request_faults, setup.servers),
        };
        let settings = Settings {
            image: setup.image,
            operator_namespace: Some("quorate-system".into()),
            user: Some(crate::build::USER),
        };
        let shared = Context::new(
            client, caches, settings, leadership, recorder, metrics, outside,
        );
        let shared = Arc::new(shared);
        let (ask, asked) = mpsc::unbounded_channel();
        shared.held.to(ask);
        let (tell, told) = mpsc::unbounded_channel();
        shared.tell_at(tell);
        let backups = setup
            .with_backups
            .then(|| BackupReconciles::new(shared.clone()));
        Self {
            name: setup.name,
            request_faults: setup.request_faults,
            shared,
            rules: setup.rules,
            feeds,
            nodes: triggers::Nodes::default(),
            queue: Queue::new(),
            held: Held::new(),
            asked,
            told,
            underway: Vec::new(),
            sweep: None,
            sweep_ms: now_ms,
            concurrency: 1,
            backups,
            leads: lease.is_none(),
            lease,
            frozen: false,
            due: BTreeMap::new(),
            lags: BTreeMap::new(),
            seen: None,
            shown: BTreeMap::new(),
            entropy: setup.entropy,
            counted: Counted::default(),
            reconciles: 0,
            last: None,
        }
    }

    /// Whether a reconcile is under way.
    pub(crate) fn is_busy(&self) -> bool {
        let of_backups = self.backups.as_ref().is_some_and(BackupReconciles::is_busy);
        !self.underway.is_empty() || self.sweep.is_some() || of_backups || self.is_asking()
    }

    fn is_asking(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.under_way.is_some())
    }

    /// When it may have something to do next, if it knows.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let lease = self.lease.as_ref().map(|lease| lease.next_ms);
        let lease = lease.filter(|_| !self.is_asking());
        let due = self.queue.next_due().filter(|_| self.leads);
        let feed = self.due.values().min().copied();
        let backups = self.backups.as_ref().and_then(BackupReconciles::next_ms);
        let backups = backups.filter(|_| self.leads);
        [lease, due, feed, backups].into_iter().flatten().min()
    }

    /// Does what it does at this moment. `draw` chooses the next lag of a cache, up to a bound.
    /// Returns false where the process has ended.
    pub(crate) async fn turn(
        &mut self,
        api: &api::SharedApiServer,
        now_ms: u64,
        draw: &mut dyn FnMut(u64) -> u64,
    ) -> bool {
        if self.frozen {
            return true;
        }
        self.deliver(api, now_ms, draw);
        if !self.keep_lease(now_ms).await {
            return false;
        }
        self.hear(now_ms).await;
        self.sweep(api, now_ms);
        if let Some(sweep) = &mut self.sweep
            && futures::poll!(sweep.as_mut()).is_ready()
        {
            self.sweep = None;
        }
        while self.underway.len() < self.concurrency && self.leads && self.begin(now_ms) {}
        let mut at = 0;
        while let Some((key, reconciling)) = self.underway.get_mut(at) {
            let std::task::Poll::Ready(ended) = futures::poll!(reconciling.as_mut()) else {
                at += 1;
                continue;
            };
            if ended == Ended::Gone {
                self.shared.forget(key);
            }
            self.queue.ended(key, ended, now_ms);
            self.reconciles += 1;
            self.counted.reconciles += 1;
            self.last = Some(ended);
            drop(self.underway.remove(at));
        }
        if self.leads
            && !self.request_faults.is_dead()
            && let Some(backups) = &mut self.backups
        {
            let turn =
                |cx: &mut std::task::Context<'_>| std::task::Poll::Ready(backups.turn(now_ms, cx));
            self.counted.reconciles += u64::from(std::future::poll_fn(turn).await);
        }
        !self.request_faults.is_dead()
    }

    /// Begins to look for ClusterTrustBundles of clusters that are gone, where there are any: a look at none says nothing.
    fn sweep(&mut self, api: &api::SharedApiServer, now_ms: u64) {
        let due = self.leads && self.sweep.is_none() && self.sweep_ms <= now_ms;
        if !due || api.lock().all(Kind::ClusterTrustBundle).next().is_none() {
            return;
        }
        self.sweep_ms = now_ms + SWEEP_EVERY.as_secs() * 1_000;
        let shared = self.shared.clone();
        let sweep = async move { shared.sweep_trust_bundles(&Namespaces::All).await };
        self.sweep = Some(Box::pin(sweep));
    }

    /// Each cluster of its cache is due.
    pub(crate) fn look(&mut self, now_ms: u64) {
        for cluster in self.shared.caches.clusters.select(|_| true) {
            if let Some(key) = triggers::of_resource(kube::Resource::meta(&*cluster)) {
                self.queue.trigger(key, now_ms);
            }
        }
    }

    /// What members and backups tell of.
    async fn hear(&mut self, now_ms: u64) {
        while let Ok(asked) = self.asked.try_recv() {
            self.held.take(asked);
        }
        while let Ok(key) = self.told.try_recv() {
            self.queue.trigger(key, now_ms);
        }
        let (held, queue) = (&mut self.held, &mut self.queue);
        std::future::poll_fn(|context| {
            while let Poll::Ready((key, told)) = held.poll_told(context) {
                queue.told(key, told, now_ms);
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Begins a reconcile, if one is due.
    fn begin(&mut self, now_ms: u64) -> bool {
        let Some(key) = self.queue.take(now_ms) else {
            return false;
        };
        self.counted.stale += u64::from(!self.due.is_empty());
        self.entropy = self.entropy.wrapping_add(1);
        let entropy = format!("{:032x}", self.entropy);
        let (shared, rules, of) = (self.shared.clone(), self.rules, key.clone());
        if self.backups.is_none() {
            shared.has_no_jobs(&key);
        }
        let reconciling = async move {
            let mut cluster = shared.cluster(&of);
            let ended = reconcile(&mut cluster, rules, &entropy).await;
            if ended == Ended::Gone {
                shared.withdraw_after(&of).await;
            }
            ended
        };
        self.underway.push((key, Box::pin(reconciling)));
        true
    }

    /// Tries to get or keep the Lease. Returns false where it is lost: the process ends.
    async fn keep_lease(&mut self, now_ms: u64) -> bool {
        let Some(lease) = &mut self.lease else {
            return true;
        };
        if lease.next_ms <= now_ms
            && let Some(mut candidate) = lease.candidate.take()
        {
            lease.under_way = Some(Box::pin(async move {
                let result = candidate.attempt().await;
                (candidate, result)
            }));
        }
        let Some(attempt) = &mut lease.under_way else {
            return true;
        };
        let std::task::Poll::Ready((candidate, result)) = futures::poll!(attempt.as_mut()) else {
            return true;
        };
        lease.under_way = None;
        lease.candidate = Some(candidate);
        lease.next_ms = now_ms + LEASE_RETRY_MS;
        match result {
            Ok(None) => {
                lease.renewed_ms = now_ms;
                self.leads = true;
                true
            }
            Ok(Some(_)) => !self.leads,
            Err(_) => !self.leads || now_ms < lease.renewed_ms + LEASE_DEADLINE_MS,
        }
    }

    /// How it stands, for a message.
    pub(crate) fn in_words(&self) -> String {
        let epoch = self.shared.leadership.epoch();
        let backups = self.backups.as_ref().map(BackupReconciles::in_words);
        format!(
            "{} (epoch {epoch}): leads {}, busy {}, {} reconciles, last {:?} {}",
            self.name,
            self.leads,
            self.is_busy(),
            self.reconciles,
            self.last,
            backups.unwrap_or_default(),
        )
    }

    fn deliver(
        &mut self,
        api: &api::SharedApiServer,
        now_ms: u64,
        draw: &mut dyn FnMut(u64) -> u64,
    ) {
        let api = api.lock();
        let Some(seen) = self.seen.replace(api.revision()) else {
            // No process acts before it has listed every kind.
            for kind in self.cached() {
                self.show(&api, kind, now_ms);
            }
            return;
        };
        if api.revision() == seen && self.due.is_empty() {
            return;
        }
        for kind in self.cached() {
            // A change is shown after a while; what happened until then is shown with it.
            let changed = !api.versions(kind, seen, u64::MAX).is_empty();
            if changed && !self.due.contains_key(&kind) {
                let lag = self.lags.get(&kind).copied().unwrap_or(20);
                self.due.insert(kind, now_ms + draw(lag));
            }
            if self.due.get(&kind).is_some_and(|due| *due <= now_ms) {
                self.due.remove(&kind);
                self.count_coalesced(&api, kind);
                self.show(&api, kind, now_ms);
            }
        }
    }

    /// The kinds that it has caches of.
    fn cached(&self) -> impl Iterator<Item = Kind> + use<> {
        let of_backups = self.backups.is_some().then_some(CACHED_OF_BACKUPS);
        CACHED.into_iter().chain(of_backups.into_iter().flatten())
    }

    /// Of several changes of one object that are shown at once only the last is seen.
    fn count_coalesced(&mut self, api: &ApiServer, kind: Kind) {
        let last = self.shown.get(&kind).copied().unwrap_or(0);
        let versions = api.versions(kind, last, u64::MAX);
        let of: std::collections::BTreeSet<&str> = versions
            .iter()
            .map(|version| object::name(&version.object))
            .collect();
        self.counted.coalesced += (versions.len() - of.len()) as u64;
    }

    /// Everything was listed up to now, as far as this operator is concerned.
    pub(crate) fn listed(&mut self, api: &api::SharedApiServer) {
        self.seen = Some(api.lock().revision());
    }

    /// One more object in the cache of its kind; resources have their reconcile soon.
    pub(crate) fn add(&mut self, kind: Kind, object: &Value, now_ms: u64) {
        let feeds = &mut self.feeds;
        match kind {
            Kind::EtcdCluster => {
                let (namespace, name) = (object::namespace(object), object::name(object));
                let key = (namespace.to_owned(), name.to_owned());
                let read = feeds.clusters.add(object);
                read.into_iter()
                    .for_each(|_| self.queue.trigger(key.clone(), now_ms));
            }
            Kind::EtcdRecovery => drop(feeds.recoveries.add(object)),
            Kind::StatefulSet => drop(feeds.sets.add(object)),
            Kind::Pod => drop(feeds.pods.add(object)),
            Kind::PersistentVolumeClaim => drop(feeds.pvcs.add(object)),
            Kind::Service => drop(feeds.services.add(object)),
            Kind::Secret => drop(feeds.secrets.add(object)),
            Kind::PodDisruptionBudget => drop(feeds.pdbs.add(object)),
            Kind::NetworkPolicy => drop(feeds.policies.add(object)),
            Kind::EndpointSlice => drop(feeds.slices.add(object)),
            Kind::Node => drop(feeds.nodes.add(object)),
            Kind::PersistentVolume => drop(feeds.volumes.add(object)),
            Kind::StorageClass => drop(feeds.classes.add(object)),
            _ => {}
        }
    }

    fn show(&mut self, api: &ApiServer, kind: Kind, now_ms: u64) {
        self.shown.insert(kind, api.revision());
        if let Some(backups) = &mut self.backups {
            backups.show(api, kind, now_ms);
        }
        let queue = &mut self.queue;
        let mut owned = |meta: &ObjectMeta| {
            if let Some(key) = triggers::of_owned(meta) {
                queue.trigger(key, now_ms);
            }
        };
        let all = || api.all(kind).map(|object| &**object);
        let ours = || all().filter(|object| is_ours(object));
        let feeds = &mut self.feeds;
        match kind {
            Kind::EtcdCluster => feeds.clusters.deliver(all(), |object| {
                if let Some(key) = triggers::of_resource(kube::Resource::meta(object)) {
                    queue.trigger(key, now_ms);
                }
            }),
            Kind::EtcdRecovery => feeds.recoveries.deliver(all(), |recovery| {
                if let Some(key) = triggers::of_recovery(recovery) {
                    queue.trigger(key, now_ms);
                }
            }),
            Kind::StatefulSet => feeds.sets.deliver(ours(), |o| owned(&o.metadata)),
            Kind::Pod => feeds.pods.deliver(ours(), |o| owned(&o.metadata)),
            Kind::PersistentVolumeClaim => feeds.pvcs.deliver(ours(), |o| owned(&o.metadata)),
            Kind::Service => feeds.services.deliver(ours(), |o| owned(&o.metadata)),
            Kind::Secret => feeds
                .secrets
                .deliver(ours(), |o| owned(kube::Resource::meta(o))),
            Kind::PodDisruptionBudget => feeds.pdbs.deliver(ours(), |o| owned(&o.metadata)),
            Kind::NetworkPolicy => feeds.policies.deliver(ours(), |o| owned(&o.metadata)),
            Kind::EndpointSlice => feeds.slices.deliver(ours(), |o| owned(&o.metadata)),
            Kind::Node => {
                let (pods, nodes) = (&self.shared.caches.pods, &self.nodes);
                feeds.nodes.deliver(all(), |node| {
                    for key in nodes.concerned(node, pods) {
                        queue.trigger(key, now_ms);
                    }
                });
            }
            Kind::PersistentVolume => feeds.volumes.deliver(all(), |_| {}),
            Kind::StorageClass => feeds.classes.deliver(all(), |_| {}),
            _ => {}
        }
    }
}

pub(crate) fn is_ours(object: &Value) -> bool {
    object::label(object, LABEL_CLUSTER_UID).is_some()
}

fn caches(sees_no_slices: bool) -> (Feeds, Caches) {
    let (clusters, of_clusters) = Feed::new();
    let (recoveries, of_recoveries) = Feed::new();
    let (sets, of_sets) = Feed::new();
    let (pods, of_pods) = Feed::new();
    let (pvcs, of_pvcs) = Feed::new();
    let (services, of_services) = Feed::new();
    let (secrets, of_secrets) = Feed::new();
    let (pdbs, of_pdbs) = Feed::new();
    let (policies, of_policies) = Feed::new();
    let (slices, of_slices) = match sees_no_slices {
        true => Feed::refused(),
        false => Feed::new(),
    };
    let (nodes, of_nodes) = Feed::new();
    let (volumes, of_volumes) = Feed::new();
    let (classes, of_classes) = Feed::new();
    let feeds = Feeds {
        clusters,
        recoveries,
        sets,
        pods,
        pvcs,
        services,
        secrets,
        pdbs,
        policies,
        slices,
        nodes,
        volumes,
        classes,
    };
    let caches = Caches {
        clusters: of_clusters,
        sets: of_sets,
        pods: of_pods,
        pvcs: of_pvcs,
        services: of_services,
        secrets: of_secrets,
        pdbs: of_pdbs,
        policies: of_policies,
        slices: of_slices,
        nodes: of_nodes,
        volumes: of_volumes,
        classes: of_classes,
        recoveries: of_recoveries,
    };
    (feeds, caches)
}

/// A client whose requests go through [`RequestFaults`].
fn gated(connection: api::Connection, request_faults: RequestFaults) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (connection, request_faults) = (connection.clone(), request_faults.clone());
        async move {
            let words = Request::of_api(request.method(), request.uri().path());
            let failed = || Err(api::Broken);
            request_faults
                .pass(words, connection.oneshot(request), failed)
                .await
        }
    });
    Client::new(service, "default")
}

/// Calls that simulated servers hold, through [`RequestFaults`].
fn hold(request_faults: RequestFaults, servers: Arc<Mutex<Servers>>) -> Hold {
    Arc::new(move |call| {
        let (request_faults, servers) = (request_faults.clone(), servers.clone());
        let words = Request::of_member("/quorate.v1.Member/Describe", &call.address);
        Box::pin(async move {
            let failed = || Err(std::io::Error::other("the answer was lost"));
            let held = servers::hold(servers, call);
            request_faults.pass(words, held, failed).await
        })
    })
}

/// Reaches simulated servers through [`RequestFaults`].
fn dial(request_faults: RequestFaults, servers: Arc<Mutex<Servers>>) -> Dial {
    Arc::new(move |address, key, secure| {
        let (request_faults, to) = (request_faults.clone(), address.to_owned());
        let way = way(&servers, address, secure);
        let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
            let (request_faults, way) = (request_faults.clone(), way.clone());
            let words = Request::of_member(request.uri().path(), &to);
            async move {
                let failed = || Err(WayError::new("the answer was lost"));
                request_faults
                    .pass(words, way.oneshot(request), failed)
                    .await
            }
        });
        let service = tower::util::BoxCloneService::new(service);
        Ok(MemberClient::over(service, key.clone()))
    })
}
