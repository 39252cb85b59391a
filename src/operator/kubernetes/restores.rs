//! What the restores of new clusters have come to, between the reconciles of backups, which run their Jobs, and those of
//! clusters, which report them. Kept in memory alone: whoever misses an entry asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;

use super::workers::Key;
use crate::plan::RestoreFacts;

/// How each restore is doing, by its cluster.
#[derive(Debug, Default)]
pub(super) struct Restores {
    known: Mutex<BTreeMap<Key, RestoreFacts>>,
    /// To the queue of the reconciles of backups, once they run.
    queue: OnceLock<mpsc::UnboundedSender<Key>>,
}

impl Restores {
    /// Where to ask for a restore that nothing is known of.
    pub(super) fn ask_at(&self, queue: mpsc::UnboundedSender<Key>) {
        let _ = self.queue.set(queue);
    }

    /// How the restore of a cluster is doing. If that is not known, it is looked for.
    pub(super) fn of(&self, cluster: &Key) -> Option<RestoreFacts> {
        let known = self.known().get(cluster).cloned();
        if known.is_none()
            && let Some(queue) = self.queue.get()
        {
            let _ = queue.send((cluster.0.clone(), format!("cluster/{}", cluster.1)));
        }
        known
    }

    /// Notes how it is doing; `None`: it is over.
    pub(super) fn note(&self, cluster: Key, facts: Option<RestoreFacts>) {
        match facts {
            Some(facts) => self.known().insert(cluster, facts),
            None => self.known().remove(&cluster),
        };
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, RestoreFacts>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
