//! The reconciles of backups of one operator process: their caches, their queue and one reconcile at a time, beside those
//! of clusters, as shipped. Part of an operator, and gone with it.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::crd::LABEL_BACKUP_OWNER;
use crate::crd::backups::{EtcdBackup, EtcdBackupSchedule, EtcdBackupStore};
use crate::operator::kubernetes::backups::{Backups, Caches, triggers};
use crate::operator::kubernetes::context::Context;
use crate::operator::kubernetes::workers::Key;
use crate::operator::queue::{Ended, Queue};
use crate::opsim::api::{ApiServer, Kind, object};

use super::feed::Feed;
use super::operator::Underway;

/// Kinds that these reconciles have caches of, but for pods.
pub const CACHED_OF_BACKUPS: [Kind; 4] = [
    Kind::EtcdBackupStore,
    Kind::EtcdBackup,
    Kind::EtcdBackupSchedule,
    Kind::Job,
];

/// The reconciles of backups.
pub(super) struct BackupReconciles {
    stores: Feed<DeserializeGuard<EtcdBackupStore>>,
    backups: Feed<DeserializeGuard<EtcdBackup>>,
    schedules: Feed<DeserializeGuard<EtcdBackupSchedule>>,
    jobs: Feed<Job>,
    pods: Feed<Pod>,
    reconciles: Arc<Backups>,
    queue: Queue<Key>,
    /// What reconciles of clusters ask.
    asked: mpsc::UnboundedReceiver<Key>,
    under_way: Option<(Key, Underway)>,
    /// How the last one ended.
    last: Option<(Key, Ended)>,
}

impl BackupReconciles {
    pub(super) fn new(shared: Arc<Context>) -> Self {
        let (stores, of_stores) = Feed::new();
        let (backups, of_backups) = Feed::new();
        let (schedules, of_schedules) = Feed::new();
        let (jobs, of_jobs) = Feed::new();
        let (pods, of_pods) = Feed::new();
        let caches = Caches {
            stores: of_stores,
            backups: of_backups,
            schedules: of_schedules,
            jobs: of_jobs,
            pods: of_pods,
        };
        let (ask, asked) = mpsc::unbounded_channel();
        Self {
            stores,
            backups,
            schedules,
            jobs,
            pods,
            reconciles: Arc::new(Backups::new(shared, caches, ask)),
            queue: Queue::new(),
            asked,
            under_way: None,
            last: None,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        self.queue.next_due()
    }

    /// How the last reconcile ended.
    pub(super) fn in_words(&self) -> String {
        format!("of backups {:?}", self.last)
    }

    /// Begins the next reconcile and goes on with the one under way. Returns whether one ended.
    pub(super) fn turn(&mut self, now_ms: u64, cx: &mut std::task::Context<'_>) -> bool {
        while let Ok(key) = self.asked.try_recv() {
            self.queue.trigger(key, now_ms);
        }
        if self.under_way.is_none()
            && let Some(key) = self.queue.take(now_ms)
        {
            let (reconciles, of) = (self.reconciles.clone(), key.clone());
            let reconciling = async move { reconciles.reconcile(&of).await };
            self.under_way = Some((key, Box::pin(reconciling)));
        }
        let Some((key, reconciling)) = &mut self.under_way else {
            return false;
        };
        let std::task::Poll::Ready(ended) = reconciling.as_mut().poll(cx) else {
            return false;
        };
        self.queue.ended(key, ended, now_ms);
        self.last = self.under_way.take().map(|(key, _)| (key, ended));
        true
    }

    /// Fills the cache of a kind.
    pub(super) fn show(&mut self, api: &ApiServer, kind: Kind, now_ms: u64) {
        let queue = &mut self.queue;
        let all = || api.all(kind).map(|object| &**object);
        let ours = || all().filter(|object| is_ours(object));
        let mut trigger = |key: Key| queue.trigger(key, now_ms);
        match kind {
            Kind::EtcdBackupStore => self.stores.deliver(all(), |object| {
                let key = triggers::of("store", kube::Resource::meta(object));
                key.into_iter().for_each(&mut trigger);
            }),
            Kind::EtcdBackup => self.backups.deliver(all(), |object| {
                triggers::of_backup(object).for_each(&mut trigger);
            }),
            Kind::EtcdBackupSchedule => self.schedules.deliver(all(), |object| {
                let key = triggers::of("schedule", kube::Resource::meta(object));
                key.into_iter().for_each(&mut trigger);
            }),
            Kind::Job => self.jobs.deliver(ours(), |job| {
                let key = triggers::owner_of(&job.metadata);
                key.into_iter().for_each(&mut trigger);
            }),
            Kind::Pod => self.pods.deliver(ours(), |pod| {
                let key = triggers::owner_of(&pod.metadata);
                key.into_iter().for_each(&mut trigger);
            }),
            _ => {}
        }
    }
}

fn is_ours(object: &Value) -> bool {
    object::label(object, LABEL_BACKUP_OWNER).is_some()
}
