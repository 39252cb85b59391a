//! What the reconciles of backups have found out about clusters, for the clusters' own reconciles, which report it: how
//! a restore or what follows another cluster is doing, which backups there are, and what a deletion waits for. Kept in
//! memory alone: whoever misses an entry asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;

use super::workers::Key;
use crate::crd::ClusterBackups;
use crate::plan::{FollowFacts, LastBackupFacts, RestoreFacts};

/// What is known of each cluster.
#[derive(Debug, Default)]
pub(super) struct BackupNotes {
    restores: Mutex<BTreeMap<Key, RestoreFacts>>,
    follows: Mutex<BTreeMap<Key, FollowFacts>>,
    backups: Mutex<BTreeMap<Key, ClusterBackups>>,
    last_backups: Mutex<BTreeMap<Key, LastBackupFacts>>,
    /// To the queue of the reconciles of backups, once they run.
    queue: OnceLock<mpsc::UnboundedSender<Key>>,
    /// To the queue of the reconciles of clusters, as long as they run.
    clusters: OnceLock<mpsc::UnboundedSender<Key>>,
}

impl BackupNotes {
    /// Where to ask for what is not known.
    pub(super) fn ask_at(&self, queue: mpsc::UnboundedSender<Key>) {
        let _ = self.queue.set(queue);
    }

    /// Where to tell of clusters whose notes have changed.
    pub(super) fn tell_at(&self, clusters: mpsc::UnboundedSender<Key>) {
        let _ = self.clusters.set(clusters);
    }

    /// How the restore of a cluster is doing. If that is not known, it is looked for.
    pub(super) fn restore_of(&self, cluster: &Key) -> Option<RestoreFacts> {
        let known = held(&self.restores).get(cluster).cloned();
        known.or_else(|| self.ask("cluster", cluster))
    }

    /// Notes how a restore is doing; `None`: it is over.
    pub(super) fn note_restore(&self, cluster: Key, facts: Option<RestoreFacts>) {
        match facts {
            Some(facts) => held(&self.restores).insert(cluster, facts),
            None => held(&self.restores).remove(&cluster),
        };
    }

    /// How the Job of a cluster that follows another one is doing. If that is not known, it is looked for.
    pub(super) fn follow_of(&self, cluster: &Key) -> Option<FollowFacts> {
        let known = held(&self.follows).get(cluster).cloned();
        known.or_else(|| self.ask("cluster", cluster))
    }

    /// Notes how that Job is doing. Since when none may close the followed cluster stays as it was noted first.
    pub(super) fn note_follow(&self, cluster: Key, mut facts: FollowFacts, may_close: bool) {
        let mut all = held(&self.follows);
        let before = all.get(&cluster).and_then(|known| known.quiet_since_ms);
        facts.quiet_since_ms = match may_close {
            true => None,
            false => before.or(facts.quiet_since_ms),
        };
        all.insert(cluster, facts);
    }

    /// Whether it is known that no Job may close the cluster that is followed.
    pub(super) fn is_quiet(&self, cluster: &Key) -> bool {
        let all = held(&self.follows);
        let known = all.get(cluster);
        known.is_some_and(|known| known.quiet_since_ms.is_some())
    }

    /// Looks at once how that Job is doing.
    pub(super) fn look_at_follow(&self, cluster: &Key) {
        let _: Option<()> = self.ask("cluster", cluster);
    }

    /// The backups of a cluster. If they are not known, they are looked for.
    pub(super) fn backups_of(&self, cluster: &Key) -> Option<ClusterBackups> {
        let known = held(&self.backups).get(cluster).cloned();
        known.or_else(|| self.ask("backups-of", cluster))
    }

    /// Notes the backups of a cluster, which has to report them.
    pub(super) fn note_backups(&self, cluster: Key, backups: ClusterBackups) {
        let before = held(&self.backups).insert(cluster.clone(), backups.clone());
        if before.as_ref() != Some(&backups)
            && let Some(clusters) = self.clusters.get()
        {
            let _ = clusters.send(cluster);
        }
    }

    /// What the last backup of a cluster waits for. It is looked at once more each time: whether the finalizer has to be
    /// added or removed is decided there too.
    pub(super) fn last_backup_of(&self, cluster: &Key) -> Option<LastBackupFacts> {
        let _: Option<()> = self.ask("deletion", cluster);
        held(&self.last_backups).get(cluster).cloned()
    }

    /// Notes what the last backup of a cluster waits for; `None`: for nothing.
    pub(super) fn note_last_backup(&self, cluster: Key, facts: Option<LastBackupFacts>) {
        match facts {
            Some(facts) => held(&self.last_backups).insert(cluster, facts),
            None => held(&self.last_backups).remove(&cluster),
        };
    }

    /// Drops what is known of a cluster that is gone.
    pub(super) fn forget(&self, cluster: &Key) {
        held(&self.restores).remove(cluster);
        held(&self.follows).remove(cluster);
        held(&self.backups).remove(cluster);
        held(&self.last_backups).remove(cluster);
    }

    fn ask<T>(&self, what: &str, cluster: &Key) -> Option<T> {
        let queue = self.queue.get()?;
        let _ = queue.send((cluster.0.clone(), format!("{what}/{}", cluster.1)));
        None
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
