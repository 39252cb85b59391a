//! Which streams of watchers have something to look at: the groups of all their watchers in one index, against which
//! what is published is matched once.
//!
//! Creates no event and decides nothing about what a watcher is shown: each stream's own [`Watchers`](super::Watchers)
//! match again. A stream may be told of what is for none of its watchers; it always is of what is for one.

use std::collections::BTreeMap;

use crate::mutants::mutant;

use super::Revision;
use super::view::View;
use super::watch_index::{GroupIndex, GroupKey};

/// Identity of a stream, chosen by the caller.
pub type StreamId = u64;

/// The most records that are matched at once. With more of them every stream looks for itself, so that a transaction
/// that deletes a million keys is not matched by the thread that applies it.
const MOST_RECORDS: usize = if cfg!(test) { 24 } else { 4096 };

/// The most groups that are found for all of them: a client may watch a hundred thousand ranges around one key.
const MOST_FINDS: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// The first and the last revision that a stream has yet to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News(Option<(Revision, Revision)>);

impl News {
    fn at(first: Revision, last: Revision) -> News {
        News(Some((first, last)))
    }

    /// Adds what came later.
    pub fn add(&mut self, later: News) {
        self.0 = match (self.0, later.0) {
            (Some((first, last)), Some(later)) => Some((first.min(later.0), last.max(later.1))),
            (own, later) => own.or(later),
        };
    }

    /// The revision from which on a stream that looks at a view of this revision has to; `None` if nothing up to there
    /// is for it. What lies beyond stays.
    pub fn take(&mut self, revision: Revision) -> Option<Revision> {
        let (first, last) = self.0.filter(|(first, _)| *first <= revision)?;
        let beyond = last > revision && !mutant!(NewsForgotten);
        self.0 = beyond.then_some((revision + 1, last));
        Some(first)
    }
}

/// The streams of a member, each by whatever reaches it, and what they watch.
#[derive(Debug)]
pub struct Watched<S> {
    /// The revision up to which everything was matched.
    revision: Revision,
    groups: BTreeMap<GroupKey, BTreeMap<StreamId, S>>,
    index: GroupIndex,
}

impl<S> Watched<S> {
    /// No stream; continues from a view.
    #[must_use]
    pub fn new(view: &View) -> Self {
        Watched {
            revision: view.revision(),
            groups: BTreeMap::new(),
            index: GroupIndex::default(),
        }
    }

    /// Whether nothing is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A stream that has looked at everything up to `seen` has a watcher of this group now. Returns what was published
    /// since: it was matched without this watcher.
    pub fn add(&mut self, id: StreamId, stream: S, group: &GroupKey, seen: Revision) -> News {
        if !self.groups.contains_key(group) {
            self.index.insert(group.clone());
        }
        let streams = self.groups.entry(group.clone()).or_default();
        let new = streams.insert(id, stream).is_none();
        if new && seen < self.revision && !mutant!(LateWatcherMisses) {
            News::at(seen + 1, self.revision)
        } else {
            News::default()
        }
    }

    /// A stream has no watcher of this group any more.
    pub fn remove(&mut self, id: StreamId, group: &GroupKey) {
        let Some(streams) = self.groups.get_mut(group) else {
            return;
        };
        streams.remove(&id);
        if streams.is_empty() {
            self.groups.remove(group);
            self.index.remove(group);
        }
    }

    /// Matches a newer view, before it is published. `found` gets each stream that has to look at it, perhaps more than
    /// once.
    pub fn advance(&mut self, view: &View, found: &mut impl FnMut(&S, News)) {
        let next = self.revision + 1;
        if view.revision() < next {
            return;
        }
        self.revision = view.revision();
        if self.is_empty() {
            return;
        }
        let log = &view.state.log;
        let at = log.position(next);
        // Where history is missing, or the compacted revision was raised past what anyone has seen, each stream's
        // watchers decide what becomes of them.
        let usual = view.compacted() <= next && log.len() - at <= MOST_RECORDS;
        let touched = usual.then(|| self.touched(view, at)).flatten();
        let Some(touched) = touched else {
            let news = News::at(next, self.revision);
            let streams = self.groups.values().flat_map(BTreeMap::values);
            streams.for_each(|stream| found(stream, news));
            return;
        };
        for (group, news) in touched {
            let streams = self.groups.get(group).into_iter();
            let streams = streams.flat_map(BTreeMap::values);
            streams.for_each(|stream| found(stream, news));
        }
    }

    /// The groups for which there is something from a place of the log on, each once, however many of the records are
    /// for it: it may have ten thousand streams. `None` if that is too much to find out here.
    fn touched(&self, view: &View, at: usize) -> Option<BTreeMap<&GroupKey, News>> {
        let mut touched: BTreeMap<&GroupKey, News> = BTreeMap::new();
        let mut finds = 0;
        for entry in view.state.log.iter_from(at) {
            let record = &entry.record;
            self.index.each(record.key(), &mut |group| {
                finds += 1;
                if group.wants(record) && !mutant!(StreamNotWoken) {
                    let news = News::at(record.main, record.main);
                    touched.entry(group).or_default().add(news);
                }
            });
            if finds > MOST_FINDS {
                return None;
            }
        }
        Some(touched)
    }
}
