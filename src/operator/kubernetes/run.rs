//! The operator's process: probes, caches, the Lease, then reconciles until it is stopped or loses the Lease.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::access;
use super::backups;
use super::cache::{Cache, Namespaces};
use super::callers::Callers;
use super::console::{Feed, Shown};
use super::context::{Caches, Context, Environment};
use super::deletion_policy;
use super::dry_run::{self, Acting};
use super::lease::{self, Candidate, LeaseTimes};
use super::probes::{self, Health, Metered};
use super::scrape::Scraped;
use super::triggers;
use super::trust_bundle;
use super::workers::{self, Key};
use crate::build::{self, OwnImage, Settings};
use crate::crd::{EtcdRecovery, LABEL_CLUSTER_UID, MANAGER};
use crate::operator::clock::Clock;
use crate::operator::console;
use crate::operator::endpoint;
use crate::operator::held;
use crate::operator::members;
use crate::operator::metrics::{Controller, Metrics};
use crate::operator::queue::Ended;
use crate::operator::reconcile::{Rules, reconcile};

/// The command line's settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's own image.
    pub image: OwnImage,
    /// Where to watch.
    pub namespaces: Namespaces,
    /// Address of the probes.
    pub probe_address: SocketAddr,
    /// Namespace of the operator's own pods, where it runs in one.
    pub own_namespace: Option<String>,
    /// Name of the Lease.
    pub lease_name: String,
    /// Its namespace; the operator's own where absent.
    pub lease_namespace: Option<String>,
    /// How long it lasts.
    pub lease_times: LeaseTimes,
    /// Clusters worked on at the same time.
    pub concurrency: usize,
    /// Whether forecasts are served at the probes' address.
    pub forecasts: bool,
    /// Who may read the metrics there.
    pub metrics: MetricsFor,
    /// The user that members run as.
    pub member_user: MemberUser,
    /// Where the console is served, if it is.
    pub console: Option<SocketAddr>,
}

/// The user that members run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberUser {
    /// The customary one, or where the API server is OpenShift's, which chooses, none.
    Auto,
    /// None: the platform chooses.
    Platform,
    /// This one.
    Number(u32),
}

impl std::str::FromStr for MemberUser {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self::Auto),
            ("platform", _) => Ok(Self::Platform),
            (_, Ok(number)) if number > 0 => Ok(Self::Number(number)),
            _ => Err("give auto, platform, or the number of a user other than root".into()),
        }
    }
}

/// The API group of OpenShift's security context constraints, which assign user IDs per namespace.
const OPENSHIFT: &str = "security.openshift.io";

async fn member_user(client: &Client, wanted: MemberUser) -> Option<i64> {
    match wanted {
        MemberUser::Platform => None,
        MemberUser::Number(number) => Some(number.into()),
        MemberUser::Auto => match client.list_api_groups().await {
            Ok(groups) if groups.groups.iter().any(|group| group.name == OPENSHIFT) => {
                tracing::info!("this is an OpenShift: it chooses the user of members");
                None
            }
            Ok(_) => Some(build::USER),
            Err(error) => {
                tracing::warn!(%error, "cannot see whether this is an OpenShift: members run as {}", build::USER);
                Some(build::USER)
            }
        },
    }
}

/// Who may read the operator's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsFor {
    /// Bearer tokens that the API server authenticates, and whose subject may get /metrics.
    Known,
    /// Anyone who reaches the port.
    Everybody,
    /// No one.
    Nobody,
}

/// Why the operator ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No way to an API server is configured.
    #[error(
        "cannot find the Kubernetes API: run inside a cluster, or set KUBECONFIG or ~/.kube/config"
    )]
    NoCluster(#[source] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("cannot use the Kubernetes configuration")]
    Client(#[source] Box<kube::Error>),
    /// The probes' port is in use.
    #[error("cannot listen on {address} (--probe-address)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The console's port is in use.
    #[error(transparent)]
    Console(#[from] console::Error),
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The Lease is lost.
    #[error(transparent)]
    Lease(#[from] lease::Error),
}

/// Runs until SIGTERM or Ctrl-C (then `Ok`), or until the operator may not act any more.
pub async fn run(options: Options) -> Result<(), Error> {
    let mut stop = Stop::new()?;
    // Both of the TLS library's providers may be linked in: choose before anything asks.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = Config::infer().await.map_err(Error::NoCluster)?;
    let lease_namespace = options
        .lease_namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))?;

    let health = Arc::new(Health::default());
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let acting = Acting::default();
    registry.register_collector(Box::new(Scraped(acting.clone())));
    let callers = Arc::new(Callers::new(client.clone(), Clock::machine()));
    let further = if options.forecasts {
        dry_run::route(acting.clone(), callers.clone())
    } else {
        Router::new()
    };
    let registry = Arc::new(registry);
    let metered = match options.metrics {
        MetricsFor::Nobody => Metered::Nobody,
        MetricsFor::Everybody => Metered::Everybody,
        MetricsFor::Known => Metered::Known(callers),
    };
    let metered = (registry, metered);
    let probes = probes::bind(options.probe_address, health.clone(), metered, further);
    let probes = probes.map_err(|source| Error::Listen {
        address: options.probe_address,
        source,
    })?;
    tokio::spawn(probes);

    let console = options.console.map(console::bind).transpose()?;

    let (trigger, mut triggers) = mpsc::unbounded_channel();
    let caches = watch(&client, &options.namespaces, &trigger);
    tokio::select! {
        () = caches.ready() => health.set_ready(),
        () = stop.wait() => return Ok(()),
    }
    tracing::info!("the caches are filled");
    let feed = console.map(|(listener, address)| {
        tracing::info!(%address, "the console is served");
        let feed = Arc::new(Feed::new(Clock::machine()));
        // Its own, so that strangers at one port do not keep callers at the other from being reviewed.
        let callers = Callers::new(client.clone(), Clock::machine());
        let shown = Shown::new(
            caches.clusters.clone(),
            acting.clone(),
            callers,
            feed.clone(),
        );
        let routes = console::routes(Arc::new(shown));
        tokio::spawn(endpoint::serve(listener, routes, console::LIMITS));
        feed
    });

    let (identity, clock) = (identity(), Clock::machine());
    let mut candidate = Candidate::new(
        client.clone(),
        &lease_namespace,
        &options.lease_name,
        identity.clone(),
        clock.clone(),
        options.lease_times,
    );
    let leadership = {
        let mut acquired = std::pin::pin!(candidate.acquire());
        loop {
            tokio::select! {
                leadership = &mut acquired => break leadership,
                // Another operator is active; everything is observed once this one acquires the Lease.
                Some(_) = triggers.recv() => {}
                () = stop.wait() => return Ok(()),
            }
        }
    };
    metrics.leading(true);
    tracing::info!(lease = %options.lease_name, epoch = leadership.epoch(), "this operator acts");

    let reporter = Reporter {
        controller: MANAGER.into(),
        instance: Some(identity),
    };
    // Whatever changes something: nothing does without the Lease.
    let settings = Settings {
        image: options.image,
        operator_namespace: options.own_namespace,
        user: member_user(&client, options.member_user).await,
    };
    let reader = client.clone();
    let client = lease::fenced(client, leadership.clone(), Some(lease::REQUEST));
    let recorder = Recorder::new(client.clone(), reporter);
    let outside = Environment {
        clock,
        dial: members::network(),
        hold: held::network(),
    };
    let shared = Arc::new(Context::new(
        client, caches, settings, leadership, recorder, metrics, outside,
    ));
    if let Some(feed) = feed {
        let _ = shared.feed.set(feed);
    }
    let _ = acting.set(shared.clone());
    for cluster in shared.caches.clusters.select(|_| true) {
        if let Some(key) = triggers::of_resource(kube::Resource::meta(&*cluster)) {
            let _ = trigger.send(key);
        }
    }
    let (tell, changed) = mpsc::unbounded_channel();
    let (ask, asked) = mpsc::unbounded_channel();
    shared.held.to(ask);
    shared.tell_at(trigger.clone());
    tokio::spawn(held::run(asked, move |told| {
        let _ = tell.send(told);
    }));
    tokio::spawn(deletion_policy::follow(reader.clone(), shared.clone()).await);
    let namespaces = options.namespaces.clone();
    tokio::spawn(trust_bundle::follow(shared.clone(), namespaces));
    let namespaces = options.namespaces.clone();
    tokio::spawn(backups::run(reader.clone(), namespaces, shared.clone()));
    let namespaces = options.namespaces.clone();
    tokio::spawn(access::run(reader, namespaces, shared.clone()));
    let reconciling = |key: Key| reconcile_one(shared.clone(), health.clone(), key);
    let lost = tokio::select! {
        lost = candidate.hold() => Some(lost),
        () = workers::run((triggers, changed), options.concurrency, stop.wait(), reconciling) => None,
    };
    match lost {
        Some(lost) => Err(lost.into()),
        None => {
            tracing::info!("stopping: the current steps are finished");
            candidate.release().await;
            Ok(())
        }
    }
}

async fn reconcile_one(shared: Arc<Context>, health: Arc<Health>, key: Key) -> Ended {
    let name = format!("{}/{}", key.0, key.1);
    health.begin(&name);
    let started = Instant::now();
    let entropy = uuid::Uuid::new_v4().simple().to_string();
    let mut cluster = shared.cluster(&key);
    let ended = Box::pin(reconcile(&mut cluster, Rules::SHIPPED, &entropy)).await;
    shared.metrics.reconciled(
        Controller::Cluster,
        ended == Ended::Failed,
        started.elapsed().as_secs_f64(),
    );
    if ended == Ended::Gone {
        Box::pin(shared.withdraw_after(&key)).await;
        shared.forget(&key);
        Box::pin(shared.report_without_cluster(&key)).await;
    }
    health.end(&name);
    ended
}

/// Starts every watch. An event about an object triggers the cluster that its label names; one about a
/// node that members may have to leave, those that have a pod on it.
fn watch(client: &Client, namespaces: &Namespaces, trigger: &mpsc::UnboundedSender<Key>) -> Caches {
    let everything = watcher::Config::default();
    let ours = watcher::Config::default().labels(LABEL_CLUSTER_UID);
    let resources = {
        let trigger = trigger.clone();
        move |meta: &ObjectMeta| {
            if let Some(key) = triggers::of_resource(meta) {
                let _ = trigger.send(key);
            }
        }
    };
    let owned = {
        let trigger = trigger.clone();
        move |meta: &ObjectMeta| {
            if let Some(key) = triggers::of_owned(meta) {
                let _ = trigger.send(key);
            }
        }
    };
    macro_rules! owned {
        () => {{
            let owned = owned.clone();
            Cache::namespaced(client, namespaces, &ours, move |object| {
                owned(kube::Resource::meta(object));
            })
        }};
    }
    let slices = {
        let owned = owned.clone();
        let changed = move |slice: &EndpointSlice| owned(&slice.metadata);
        Cache::namespaced_as_allowed(client, namespaces, &ours, changed)
    };
    let pods: Cache<Pod> = owned!();
    let held = {
        let (trigger, pods) = (trigger.clone(), pods.clone());
        let nodes = Arc::new(triggers::Nodes::default());
        move |node: &Node| {
            for key in nodes.concerned(node, &pods) {
                let _ = trigger.send(key);
            }
        }
    };
    let asked = {
        let trigger = trigger.clone();
        move |recovery: &DeserializeGuard<EtcdRecovery>| {
            if let Some(key) = triggers::of_recovery(recovery) {
                let _ = trigger.send(key);
            }
        }
    };
    Caches {
        clusters: Cache::namespaced(client, namespaces, &everything, move |object| {
            resources(kube::Resource::meta(object));
        }),
        sets: owned!(),
        pods,
        pvcs: owned!(),
        services: owned!(),
        secrets: owned!(),
        pdbs: owned!(),
        policies: owned!(),
        slices,
        nodes: Cache::cluster_wide(client, &everything, held),
        volumes: Cache::cluster_wide(client, &everything, |_| {}),
        classes: Cache::cluster_wide(client, &everything, |_| {}),
        recoveries: Cache::namespaced_where_served(client, namespaces, &everything, asked),
    }
}

/// This process among all operators: its pod, and something random, for a pod may restart.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "quorate-operator".into());
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{host}-{}", &random[..8])
}

impl Caches {
    async fn ready(&self) {
        self.clusters.ready().await;
        self.sets.ready().await;
        self.pods.ready().await;
        self.pvcs.ready().await;
        self.services.ready().await;
        self.secrets.ready().await;
        self.pdbs.ready().await;
        self.policies.ready().await;
        self.slices.ready().await;
        self.nodes.ready().await;
        self.volumes.ready().await;
        self.classes.ready().await;
        self.recoveries.ready().await;
    }
}

/// SIGTERM and Ctrl-C.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, Error> {
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        Ok(Self {
            interrupt,
            terminate,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
