//! Wakes those watch streams for which something was published, and no others: with ten thousand of them, a put that is
//! for one wakes one ([decision 71](../../../docs/decisions/071-streams-are-woken-for-what-they-watch.md)).
//!
//! Sends nothing and holds no events: a stream that is woken reads them from the published view, as far as its client
//! reads.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::{
    CatchUp, Event, GroupKey, News, Revision, Slice, StreamId, View, WatchError, WatchSpec,
    Watched, WatcherId, Watchers,
};

/// All watch streams of this member that have a watcher.
#[derive(Debug)]
pub(crate) struct Wakes(Mutex<Watched<Arc<Bell>>>);

/// What wakes one stream.
#[derive(Debug, Default)]
struct Bell {
    news: Mutex<News>,
    rung: Notify,
}

impl Wakes {
    /// No stream yet; continues from a view.
    pub(super) fn new(view: &View) -> Wakes {
        Wakes(Mutex::new(Watched::new(view)))
    }

    /// Matches a view, publishes it and wakes the streams for which there is something in it. `publish` returns what is
    /// replaced.
    pub(super) fn publish<T>(&self, view: &View, publish: impl FnOnce() -> T) {
        let mut woken = Vec::new();
        let mut watched = lock(&self.0);
        watched.advance(view, &mut |bell, news| {
            lock(&bell.news).add(news);
            woken.push(Arc::clone(bell));
        });
        // Before another watcher is added: its stream sees a state as new as the one that was matched without it. After
        // the news: a stream that sees this state knows what is for it there.
        let replaced = publish();
        drop(watched);
        woken.iter().for_each(|bell| bell.rung.notify_one());
        // Not with the lock: it may be the last that knew of much.
        drop(replaced);
    }

    /// Whether no stream has a watcher.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// The watchers of one stream, which [`Wakes`] knows of until they are dropped.
#[derive(Debug)]
pub(crate) struct StreamWatchers {
    id: StreamId,
    wakes: Arc<Wakes>,
    bell: Arc<Bell>,
    watchers: Watchers,
}

impl StreamWatchers {
    /// No watcher yet; continues from a view. No other stream has this number.
    pub(super) fn new(wakes: &Arc<Wakes>, id: StreamId, view: &View) -> StreamWatchers {
        StreamWatchers {
            id,
            wakes: Arc::clone(wakes),
            bell: Arc::default(),
            watchers: Watchers::new(view),
        }
    }

    /// Returns when something was published for the stream since the last return. May be dropped and called again.
    pub(crate) async fn woken(&self) {
        self.bell.rung.notified().await;
    }

    /// As [`Watchers::create`].
    pub(crate) fn create(&mut self, id: WatcherId, spec: WatchSpec) -> Result<(), WatchError> {
        self.watchers.create(id, spec)?;
        if let Some(group) = self.watchers.group_of(id) {
            let seen = self.watchers.revision();
            let mut watched = lock(&self.wakes.0);
            let news = watched.add(self.id, Arc::clone(&self.bell), group, seen);
            // Before anything newer is matched.
            lock(&self.bell.news).add(news);
        }
        Ok(())
    }

    /// As [`Watchers::cancel`].
    pub(crate) fn cancel(&mut self, id: WatcherId) -> bool {
        let group = self.watchers.group_of(id).cloned();
        let found = self.watchers.cancel(id);
        self.left(group);
        found
    }

    /// As [`Watchers::catch_up`].
    pub(crate) fn catch_up(&mut self, id: WatcherId, view: &View, slice: Slice) -> CatchUp {
        let group = self.watchers.group_of(id).cloned();
        let caught = self.watchers.catch_up(id, view, slice);
        if matches!(caught, CatchUp::Compacted(_) | CatchUp::Unreadable(_)) {
            self.left(group);
        }
        caught
    }

    /// As [`Watchers::advance`], with a view that is or was published; matches only from where something is for the
    /// stream. `deliver` gets the number of revisions that are matched as well.
    pub(crate) fn advance(
        &mut self,
        view: &View,
        deliver: &mut impl FnMut(Revision, WatcherId, &Arc<Vec<Event>>) -> bool,
    ) {
        let revision = view.revision();
        let news = lock(&self.bell.news).take(revision);
        self.watchers.pass(news.map_or(revision, |first| first - 1));
        let revisions = revision - self.watchers.revision();
        self.watchers
            .advance(view, &mut |id, events| deliver(revisions, id, events));
    }

    /// A watcher of this group has left; perhaps it was the last.
    fn left(&self, group: Option<GroupKey>) {
        if let Some(group) = group.filter(|group| !self.watchers.has_group(group)) {
            lock(&self.wakes.0).remove(self.id, &group);
        }
    }
}

/// What changes nothing.
impl Deref for StreamWatchers {
    type Target = Watchers;

    fn deref(&self) -> &Watchers {
        &self.watchers
    }
}

impl Drop for StreamWatchers {
    fn drop(&mut self) {
        for group in self.watchers.groups() {
            lock(&self.wakes.0).remove(self.id, group);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::raft::Position;
    use crate::store::{Command, Compact, Operation, Put, Store};

    fn put(store: &mut Store, key: &'static [u8]) -> Arc<View> {
        let put = Operation::Put(Put {
            key: key.into(),
            ..Default::default()
        });
        let position = Position { index: 1, term: 1 };
        store
            .apply(&Command::from(put), position)
            .expect("a revision");
        store.publish()
    }

    fn spec(key: &'static [u8], start_revision: Revision) -> WatchSpec {
        WatchSpec {
            key: key.into(),
            start_revision,
            ..Default::default()
        }
    }

    fn is_woken(stream: &StreamWatchers) -> bool {
        stream.woken().now_or_never().is_some()
    }

    /// The revisions of the events that a stream is shown.
    fn shown(stream: &mut StreamWatchers, view: &View) -> Vec<Revision> {
        let mut shown = Vec::new();
        stream.advance(view, &mut |_, _, events| {
            shown.extend(events.iter().map(|event| event.kv.mod_revision));
            true
        });
        shown
    }

    #[test]
    fn only_a_stream_with_something_to_send_is_woken() {
        let mut store = Store::new();
        let view = store.publish();
        let wakes = Arc::new(Wakes::new(&view));
        let mut first = StreamWatchers::new(&wakes, 1, &view);
        let mut second = StreamWatchers::new(&wakes, 2, &view);
        first.create(0, spec(b"a", 0)).expect("a watcher");
        second.create(0, spec(b"b", 0)).expect("a watcher");
        let view = put(&mut store, b"a");
        let mut published = false;
        wakes.publish(&view, || {
            assert_ne!(*lock(&first.bell.news), News::default(), "known before");
            assert!(!is_woken(&first), "and woken after");
            published = true;
        });
        assert!(published && is_woken(&first) && !is_woken(&second));
        assert_eq!(shown(&mut first, &view), [2]);
        assert!(shown(&mut second, &view).is_empty());
        assert_eq!(second.revision(), 2, "it has passed over that");
        let view = put(&mut store, b"b");
        wakes.publish(&view, || {});
        assert!(!is_woken(&first) && is_woken(&second));
        assert_eq!(shown(&mut second, &view), [3]);
    }

    /// One group of a watcher is known as long as a watcher has it.
    #[test]
    fn streams_leave_nothing_behind() {
        let mut store = Store::new();
        (0..3).for_each(|_| drop(put(&mut store, b"a")));
        let compact = Operation::Compact(Compact { revision: 3 });
        let position = Position { index: 1, term: 1 };
        store.apply(&compact.into(), position).expect("compacted");
        let view = store.publish();
        let wakes = Arc::new(Wakes::new(&view));
        let mut stream = StreamWatchers::new(&wakes, 1, &view);
        for id in 0..3 {
            stream.create(id, spec(b"a", 0)).expect("a watcher");
        }
        stream.create(3, spec(b"b", 2)).expect("a watcher");
        let caught = stream.catch_up(3, &view, Slice::default());
        assert_eq!(caught, CatchUp::Compacted(3));
        assert!(stream.cancel(0) && stream.cancel(1) && !stream.cancel(1));
        let view = put(&mut store, b"a");
        wakes.publish(&view, || {});
        assert!(is_woken(&stream), "one is left");
        assert_eq!(shown(&mut stream, &view), [5]);
        assert!(stream.cancel(2) && wakes.is_empty());
        stream.create(4, spec(b"c", 0)).expect("a watcher");
        stream.create(5, spec(b"d", 0)).expect("a watcher");
        assert!(!wakes.is_empty());
        drop(stream);
        assert!(wakes.is_empty());
    }
}
