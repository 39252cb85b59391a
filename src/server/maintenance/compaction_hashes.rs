//! The hash at the revision of a compaction, computed from before it. `HashKV` continues to return
//! it, as etcd's does, so that the hashes that clients get before and after a compaction are equal.
//!
//! Hashing takes time in proportion to the number of keys, so a separate thread does it from an
//! immutable view; only a request for that very hash waits for it. Never stored on disk: a
//! restarted member hashes what the compaction left, and its `compact_revision` shows that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::server::process::host_facts;
use crate::store::{KeyHash, Revision, View};

/// Compactions whose hashes are kept: as many as etcd keeps.
const MOST: usize = 10;

/// The hashes of the last compactions.
#[derive(Debug)]
pub(crate) struct CompactionHashes {
    state: Mutex<State>,
    /// Notified whenever a hash is computed.
    made: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// By revision: compactions only move forward.
    kept: VecDeque<Kept>,
    /// A thread is hashing.
    busy: bool,
}

#[derive(Debug)]
struct Kept {
    /// The revision of the previous compaction, -1 if there was none.
    from: Revision,
    at: Revision,
    hash: Hash,
}

#[derive(Debug)]
enum Hash {
    /// To be computed from this view.
    Of(Arc<View>),
    /// Being computed.
    Soon,
    Is(KeyHash),
}

impl Default for CompactionHashes {
    fn default() -> Self {
        CompactionHashes {
            state: Mutex::default(),
            made: watch::channel(()).0,
        }
    }
}

impl CompactionHashes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records compactions, each from one revision to another, that are in `view` and not published
    /// yet, and has them hashed. A compaction at revision 0 is ignored: etcd would from then on
    /// return its hash whenever the newest one is requested, which is named 0 too.
    pub(crate) fn begin(
        hashes: &Arc<CompactionHashes>,
        compactions: &[(Revision, Revision)],
        view: &Arc<View>,
    ) {
        let mut state = hashes.lock();
        for (from, at) in compactions.iter().copied().filter(|(_, at)| *at > 0) {
            let hash = Hash::Of(Arc::clone(view));
            state.kept.push_back(Kept { from, at, hash });
        }
        // Hashes that can no longer be requested release their views, computed or not.
        let surplus = state.kept.len().saturating_sub(MOST);
        state.kept.drain(..surplus);
        if state.busy || state.kept.is_empty() {
            return;
        }
        state.busy = true;
        drop(state);
        let own = Arc::clone(hashes);
        let thread = std::thread::Builder::new().name("hasher".to_owned());
        // Detached: it writes nothing, so it may end with the process at any point.
        if let Err(error) = thread.spawn(move || own.work()) {
            tracing::warn!("cannot start a thread to hash what was compacted: {error}");
            let mut state = hashes.lock();
            state.kept.retain(|kept| matches!(kept.hash, Hash::Is(_)));
            state.busy = false;
            hashes.made.send_replace(());
        }
    }

    /// Computes hashes, the newest first, until none is left.
    fn work(&self) {
        host_facts::step_back();
        while let Some((from, at, view)) = self.next() {
            let hash = view.hash_before_compaction(from, at, &host_facts::pace());
            drop(view);
            let mut state = self.lock();
            match hash {
                Ok(hash) => state
                    .kept
                    .iter_mut()
                    .filter(|kept| kept.at == at)
                    .for_each(|kept| kept.hash = Hash::Is(hash)),
                Err(error) => {
                    tracing::warn!(revision = at, "cannot hash what was compacted: {error}");
                    state.kept.retain(|kept| kept.at != at);
                }
            }
            drop(state);
            self.made.send_replace(());
        }
    }

    fn next(&self) -> Option<(Revision, Revision, Arc<View>)> {
        let mut state = self.lock();
        for kept in state.kept.iter_mut().rev() {
            match std::mem::replace(&mut kept.hash, Hash::Soon) {
                Hash::Of(view) => return Some((kept.from, kept.at, view)),
                other => kept.hash = other,
            }
        }
        state.busy = false;
        None
    }

    /// The hash at the revision of a compaction, computed from before it; `None` at any other
    /// revision. Waits while it is being computed.
    pub(crate) async fn at(&self, revision: Revision) -> Option<KeyHash> {
        let mut made = self.made.subscribe();
        loop {
            if let Some(hash) = self.find(revision)? {
                return Some(hash);
            }
            made.changed().await.ok()?;
        }
    }

    /// The entry for this revision, if it is kept, and its hash, if it is computed.
    fn find(&self, revision: Revision) -> Option<Option<KeyHash>> {
        let state = self.lock();
        let kept = state.kept.iter().find(|kept| kept.at == revision)?;
        match kept.hash {
            Hash::Is(hash) => Some(Some(hash)),
            Hash::Of(_) | Hash::Soon => Some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Command, Compact, Operation, Position, Put, Store};

    fn run(store: &mut Store, operation: Operation) {
        let position = Position { index: 1, term: 1 };
        let command = Command::from(operation);
        store.apply(&command, position).expect("it is carried out");
    }

    /// Compactions that come faster than they can be hashed: what is kept stays bounded, the newest
    /// are answered, and those that were dropped return `None`.
    #[tokio::test]
    async fn last_ten_compaction_hashes_are_kept() {
        let hashes = Arc::<CompactionHashes>::default();
        let mut store = Store::new();
        let mut before = Vec::new();
        for number in 0..30_u32 {
            let put = Put {
                key: format!("k{}", number % 3).into(),
                value: number.to_string().into(),
                ..Put::default()
            };
            run(&mut store, Operation::Put(put));
            let revision = store.revision();
            before.push(store.publish().hash_kv(revision).expect("a hash"));
            let from = store.compacted();
            run(&mut store, Operation::Compact(Compact { revision }));
            CompactionHashes::begin(&hashes, &[(from, revision)], &store.publish());
            store.reclaim(usize::MAX);
        }
        let (old, kept) = before.split_at(20);
        for hash in kept {
            assert_eq!(hashes.at(hash.hash_revision).await, Some(*hash));
        }
        for hash in old {
            assert_eq!(hashes.at(hash.hash_revision).await, None);
        }
        assert_eq!(hashes.lock().kept.len(), MOST);
        let none = [(-1, 0)];
        CompactionHashes::begin(&hashes, &none, &store.publish());
        assert_eq!(hashes.at(0).await, None, "0 is the newest");
    }
}
