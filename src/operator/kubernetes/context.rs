//! Shared state of the reconciles of all clusters: the client, the caches, the Lease, and what is kept of each cluster
//! between two reconciles. Decides nothing and makes no requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::core::DeserializeGuard;
use kube::runtime::events::Recorder;
use tokio::sync::mpsc;

use super::backup_notes::BackupNotes;
use super::cache::Cache;
use super::cert_manager;
use super::console::Feed;
use super::deletion_policy;
use super::drift;
use super::judged::Judged;
use super::kept_secret::KeptSecret;
use super::lease::Leadership;
use super::pod_certificates;
use super::revisions;
use super::trust_bundle;
use super::user_certificates;
use super::workers::Key;
use crate::build::Settings;
use crate::crd::{EtcdCluster, EtcdClusterStatus, EtcdRecovery};
use crate::operator::clock::{Clock, Moment};
use crate::operator::held::{Asked, Asker, Hold};
use crate::operator::members::{Dial, Members};
use crate::operator::metrics::Metrics;

use super::platform::OneCluster;

/// The resource as it is watched: one that cannot be read does not stop the others.
pub(crate) type Resourceful = DeserializeGuard<EtcdCluster>;

/// Every cache.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) clusters: Cache<Resourceful>,
    pub(crate) sets: Cache<StatefulSet>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) pvcs: Cache<PersistentVolumeClaim>,
    pub(crate) services: Cache<Service>,
    pub(crate) secrets: Cache<KeptSecret>,
    pub(crate) pdbs: Cache<PodDisruptionBudget>,
    pub(crate) policies: Cache<NetworkPolicy>,
    pub(crate) slices: Cache<EndpointSlice>,
    pub(crate) nodes: Cache<Node>,
    pub(crate) volumes: Cache<PersistentVolume>,
    pub(crate) classes: Cache<StorageClass>,
    /// Out of reach where the API server does not have the kind, or the role is an older one.
    pub(crate) recoveries: Cache<DeserializeGuard<EtcdRecovery>>,
}

/// What all reconciles share.
pub(crate) struct Context {
    pub(super) client: Client,
    pub(crate) caches: Caches,
    pub(super) settings: Settings,
    pub(crate) leadership: Leadership,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    pub(super) outside: Environment,
    pub(super) memories: Mutex<BTreeMap<Key, Memory>>,
    pub(super) backup_notes: BackupNotes,
    pub(super) deletion_policy: deletion_policy::Known,
    /// The calls that members hold.
    pub(crate) held: Asker<Key>,
    /// What is noted for the console, where there is one.
    pub(super) feed: OnceLock<Arc<Feed>>,
}

/// What is outside of the API server: time, and the way to the members.
#[derive(Clone)]
pub(crate) struct Environment {
    /// The time.
    pub(crate) clock: Clock,
    /// How members are reached.
    pub(crate) dial: Dial,
    /// How they are asked to tell of a change.
    pub(crate) hold: Hold,
}

/// What is kept of a cluster between reconciles; losing it costs a connection or a status write.
#[derive(Clone, Default)]
pub(super) struct Memory {
    /// The key of the cluster's Secret and the connections made with it.
    pub(super) members: Option<(Vec<u8>, Members)>,
    pub(super) written: Option<Written>,
    /// Content of the user's Secrets.
    pub(super) user_certificates: user_certificates::Known,
    /// State of the certificates that were requested from cert-manager.
    pub(super) cert_manager: cert_manager::Known,
    /// Its ClusterTrustBundle.
    pub(super) trust_bundle: trust_bundle::Known,
    /// What kubelets request for its members.
    pub(super) pod_certificates: pod_certificates::Known,
    /// What was judged of its resource.
    pub(super) judged: Judged,
    /// The specification that was last admitted.
    pub(super) revisions: revisions::Known,
    /// Which objects were edited.
    pub(super) drift: drift::Known,
}

/// The status that this operator wrote last.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) at: Moment,
    /// Version of the resource that the reconcile saw in the cache: while the cache still shows it, the
    /// cache has not caught up with the write.
    pub(super) over: Option<String>,
    /// Until the cache shows it.
    pub(super) status: Option<EtcdClusterStatus>,
}

impl Context {
    pub(crate) fn new(
        client: Client,
        caches: Caches,
        settings: Settings,
        leadership: Leadership,
        recorder: Recorder,
        metrics: Metrics,
        outside: Environment,
    ) -> Self {
        let memories = Mutex::default();
        Self {
            client,
            caches,
            settings,
            leadership,
            recorder,
            metrics,
            outside,
            memories,
            backup_notes: BackupNotes::default(),
            deletion_policy: deletion_policy::Known::default(),
            held: Asker::default(),
            feed: OnceLock::new(),
        }
    }

    /// The platform of one cluster, for one reconcile.
    pub(crate) fn cluster(self: &Arc<Self>, key: &Key) -> OneCluster {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memories.entry(key.clone()).or_default().clone();
        OneCluster {
            shared: self.clone(),
            key: key.clone(),
            memory,
            aside: false,
            seen: None,
        }
    }

    /// The same for an observation that keeps no state, for callers that may ask about any name.
    pub(super) fn cluster_aside(self: &Arc<Self>, key: &Key) -> OneCluster {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = memories.get(key).cloned().unwrap_or_default();
        memory.drift = drift::Known::default();
        OneCluster {
            shared: self.clone(),
            key: key.clone(),
            memory,
            aside: true,
            seen: None,
        }
    }

    /// No reconcile of backups runs here, and so no Job of a cluster that follows another one.
    #[cfg(feature = "simulators")]
    pub(crate) fn has_no_jobs(&self, key: &Key) {
        let facts = crate::plan::FollowFacts {
            quiet_since_ms: Some(0),
            ..Default::default()
        };
        self.backup_notes.note_follow(key.clone(), facts, false);
    }

    /// Where a cluster's reconcile is asked for whose backups have changed.
    pub(crate) fn tell_at(&self, queue: mpsc::UnboundedSender<Key>) {
        self.backup_notes.tell_at(queue);
    }

    /// Drops the state of a deleted cluster.
    pub(crate) fn forget(&self, key: &Key) {
        if let Some(feed) = self.feed.get() {
            feed.forget(key);
        }
        self.backup_notes.forget(key);
        self.held.ask(Asked::Release(key.clone()));
        self.memories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}
