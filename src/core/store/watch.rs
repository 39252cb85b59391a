//! Matches events to watchers. A set of watchers belongs to one reader of views (a client runtime); it matches each
//! published view against them and lets unsynced ones catch up from history, a slice at a time and each by itself, so
//! that a slow watcher does not slow others.
//!
//! Never sends anything, never splits a revision, and never touches the store.
//!
//! Watchers of one span with the same options form a group whose events are created once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mutants::mutant;
use bytes::Bytes;

use super::log::{LogEntry, revision_of};
use super::record::Record;
use super::view::View;
use super::watch_index::{GroupIndex, GroupKey};
use super::{DamagedValue, Event, EventKind, Revision};

/// Name of a watcher within its set, chosen by the caller.
pub type WatcherId = u64;

/// What a watcher wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchSpec {
    /// The key, or the first key of the span. Empty means `\0` (as in etcd).
    pub key: Bytes,
    /// The end of the span, as in a range request.
    pub range_end: Bytes,
    /// The first revision to see; 0: what comes after now.
    pub start_revision: Revision,
    /// Show keys as they were before each event.
    pub prev_kv: bool,
    /// Leave out puts.
    pub no_put: bool,
    /// Leave out deletes.
    pub no_delete: bool,
}

/// Why a watcher cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The end of the span does not lie after its first key.
    #[error("the span of the watcher is empty")]
    EmptyRange,
    /// A watcher of this name exists in the set.
    #[error("a watcher of this ID exists")]
    DuplicateId,
    /// The start revision is negative.
    #[error("the start revision is negative")]
    NegativeStart,
}

/// How much history a watcher is shown in one slice. A slice ends with the first revision that
/// reaches a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Records of the log that were examined.
    pub records: usize,
    /// Bytes of keys and values shown.
    pub bytes: usize,
}

impl Default for Slice {
    fn default() -> Self {
        Slice {
            records: 1000,
            bytes: 1 << 20,
        }
    }
}

/// What a slice of history held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// Events, perhaps none; the watcher is still behind.
    Behind(Vec<Event>),
    /// The last events, perhaps none; the watcher is in step now.
    Synced(Vec<Event>),
    /// The history that it needs has been compacted. It was removed from the set, and must be cancelled with this
    /// revision.
    Compacted(Revision),
    /// A value that it is to be shown cannot be read. It was removed from the set, and must be cancelled for this reason.
    Unreadable(DamagedValue),
    /// No watcher of this name is behind.
    NotBehind,
}

/// A set of watchers.
#[derive(Debug, Default)]
pub struct Watchers {
    /// The revision up to which watchers in step have seen everything.
    revision: Revision,
    watchers: BTreeMap<WatcherId, Watcher>,
    behind: BTreeSet<WatcherId>,
    groups: BTreeMap<GroupKey, Group>,
    index: GroupIndex,
}

#[derive(Debug)]
struct Watcher {
    group: GroupKey,
    /// The first requested revision, with 0 resolved.
    start: Revision,
    behind: Option<Behind>,
}

#[derive(Clone, Copy, Debug)]
struct Behind {
    /// The first revision that it has not seen.
    next: Revision,
    /// It was in step once, so it may have what a compaction has forgotten but not reclaimed.
    demoted: bool,
}

#[derive(Debug, Default)]
struct Group {
    /// Watchers in step.
    synced: BTreeSet<WatcherId>,
    /// All watchers, behind or not.
    size: usize,
}

impl Watchers {
    /// An empty set that continues from a view.
    #[must_use]
    pub fn new(view: &View) -> Self {
        Watchers {
            revision: view.revision(),
            ..Watchers::default()
        }
    }

    /// The revision up to which watchers in step have seen everything: what goes into the
    /// header of a creation or progress reply.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Number of watchers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Adds a watcher; advance the set to the newest view before, since "now" is the set's current revision. One that
    /// starts in the past is unsynced at first, also if its start has been compacted: [`catch_up`](Self::catch_up) then
    /// reports it.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn create(&mut self, id: WatcherId, spec: WatchSpec) -> Result<(), WatchError> {
        let key = if spec.key.is_empty() {
            Bytes::from_static(&[0])
        } else {
            spec.key
        };
        if spec.start_revision < 0 {
            return Err(WatchError::NegativeStart);
        }
        if !matches!(spec.range_end[..], [] | [0]) && key >= spec.range_end {
            return Err(WatchError::EmptyRange);
        }
        if self.watchers.contains_key(&id) {
            return Err(WatchError::DuplicateId);
        }
        let past = spec.start_revision > 0 && spec.start_revision <= self.revision;
        let start = if spec.start_revision == 0 {
            self.revision + 1
        } else {
            spec.start_revision
        };
        let first = start + i64::from(mutant!(WatchSkips)) - i64::from(mutant!(WatchGoesBack));
        let behind = past.then_some(Behind {
            next: first,
            demoted: false,
        });
        let group = GroupKey {
            key,
            range_end: spec.range_end,
            prev_kv: spec.prev_kv,
            no_put: spec.no_put,
            no_delete: spec.no_delete,
        };
        self.join(id, &group, past);
        self.watchers.insert(
            id,
            Watcher {
                group,
                start,
                behind,
            },
        );
        Ok(())
    }

    fn join(&mut self, id: WatcherId, key: &GroupKey, behind: bool) {
        if !self.groups.contains_key(key) {
            self.index.insert(key.clone());
        }
        let group = self.groups.entry(key.clone()).or_default();
        group.size += 1;
        if behind {
            self.behind.insert(id);
        } else {
            group.synced.insert(id);
        }
    }

    /// The group of a watcher.
    #[must_use]
    pub fn group_of(&self, id: WatcherId) -> Option<&GroupKey> {
        self.watchers.get(&id).map(|watcher| &watcher.group)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = &GroupKey> {
        self.groups.keys()
    }

    /// Whether a watcher has this group.
    #[must_use]
    pub fn has_group(&self, key: &GroupKey) -> bool {
        self.groups.contains_key(key)
    }

    /// Removes a watcher; false if there is none.
    pub fn cancel(&mut self, id: WatcherId) -> bool {
        let Some(watcher) = self.watchers.remove(&id) else {
            return false;
        };
        self.behind.remove(&id);
        let key = &watcher.group;
        let Some(group) = self.groups.get_mut(key) else {
            return true;
        };
        group.synced.remove(&id);
        group.size -= 1;
        if group.size > 0 {
            return true;
        }
        self.groups.remove(key);
        self.index.remove(key);
        true
    }

    /// Takes it as given that nothing up to this revision is for a watcher in step (see [`Watched`](super::Watched)).
    pub fn pass(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Delivers the events of a newer view to the synced watchers. `deliver` gets a watcher and its events, oldest
    /// first, and returns whether it accepted them; if not, the watcher is unsynced from there on and catches up by
    /// itself.
    pub fn advance(
        &mut self,
        view: &View,
        deliver: &mut impl FnMut(WatcherId, &Arc<Vec<Event>>) -> bool,
    ) {
        let next = self.revision + 1;
        if view.revision() < next {
            return;
        }
        self.pass_over(view);
        if self.all_behind() {
            // No watcher is synced: none gets the new events, however many they are.
            self.revision = view.revision();
            return;
        }
        if !view.state.history_from(next) {
            // This reader slept through a compaction and its reclaim.
            let synced: Vec<WatcherId> = self
                .groups
                .values()
                .flat_map(|group| group.synced.iter().copied())
                .collect();
            synced.into_iter().for_each(|id| self.demote(id, next));
            self.revision = view.revision();
            return;
        }
        let mut touched: BTreeMap<GroupKey, Vec<Record>> = BTreeMap::new();
        for entry in view.state.log.iter_from(view.state.log.position(next)) {
            self.each_group(&entry.record, &mut |key| match touched.get_mut(key) {
                Some(records) => records.push(entry.record.clone()),
                None => drop(touched.insert(key.clone(), vec![entry.record.clone()])),
            });
        }
        let mut refused = Vec::new();
        for (key, records) in touched {
            let make = |record: &Record| view.state.retained_event(record, key.prev_kv);
            let events = records.iter().map(make).collect::<Result<Vec<Event>, _>>();
            let Some(group) = self.groups.get(&key) else {
                continue;
            };
            let Ok(events) = events.map(Arc::new) else {
                // Each of them learns why when it catches up.
                refused.extend(group.synced.iter().map(|id| (*id, next)));
                continue;
            };
            for id in &group.synced {
                let start = self.watchers.get(id).map_or(0, |watcher| watcher.start);
                let Some(events) = from_start(&events, start) else {
                    continue;
                };
                if !deliver(*id, &events) {
                    refused.push((*id, next.max(start)));
                }
            }
        }
        mutant!(StarvedLoses => refused.clear());
        refused
            .into_iter()
            .for_each(|(id, next)| self.demote(id, next));
        self.revision = view.revision();
    }

    /// Where the revision was raised, nothing was written between: whoever waits for a revision there has seen it at a
    /// cluster that is lost, and learns that it is compacted.
    fn pass_over(&mut self, view: &View) {
        let compacted = view.compacted();
        if compacted <= self.revision + 1 {
            return;
        }
        let log = &view.state.log;
        let end = log.position(compacted + 1);
        let waits = self.watchers.iter().filter(|(_, watcher)| {
            let between = (self.revision + 2..compacted).contains(&watcher.start);
            between && watcher.behind.is_none() && log.position(watcher.start) == end
        });
        let waits: Vec<WatcherId> = waits.map(|(id, _)| *id).collect();
        for id in waits {
            self.demote(id, self.revision + 1);
            if let Some(behind) = self.watchers.get_mut(&id).and_then(|it| it.behind.as_mut()) {
                behind.demoted = false;
            }
        }
    }

    fn each_group(&self, record: &Record, found: &mut impl FnMut(&GroupKey)) {
        self.index.each(record.key(), &mut |key| {
            let synced = self
                .groups
                .get(key)
                .is_some_and(|group| !group.synced.is_empty());
            if synced && key.wants(record) {
                found(key);
            }
        });
    }

    fn demote(&mut self, id: WatcherId, next: Revision) {
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return;
        };
        watcher.behind = Some(Behind {
            next: next.max(watcher.start),
            demoted: true,
        });
        if let Some(group) = self.groups.get_mut(&watcher.group) {
            group.synced.remove(&id);
        }
        self.behind.insert(id);
    }

    /// Watchers that are behind.
    pub fn behind(&self) -> impl Iterator<Item = WatcherId> {
        self.behind.iter().copied()
    }

    /// How many are behind.
    #[must_use]
    pub fn behind_count(&self) -> usize {
        self.behind.len()
    }

    /// Whether none is in step: what is published next has nothing for any of them yet.
    #[must_use]
    pub fn all_behind(&self) -> bool {
        self.behind.len() == self.watchers.len()
    }

    /// Whether a watcher is in step and has reached its start revision, so that a progress
    /// reply with the set's [`revision`](Self::revision) is true for it.
    #[must_use]
    pub fn in_step(&self, id: WatcherId) -> Option<bool> {
        let watcher = self.watchers.get(&id)?;
        let synced = watcher.behind.is_none() || mutant!(ProgressAhead);
        Some(synced && self.revision + 1 >= watcher.start)
    }

    /// Shows a watcher that is behind a slice of history. `view` must be as new as the one the
    /// set was advanced to.
    pub fn catch_up(&mut self, id: WatcherId, view: &View, slice: Slice) -> CatchUp {
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return CatchUp::NotBehind;
        };
        let Some(behind) = &mut watcher.behind else {
            return CatchUp::NotBehind;
        };
        let state = &view.state;
        let lost = if behind.demoted {
            !state.history_from(behind.next)
        } else {
            behind.next < state.compacted
        };
        if lost && !mutant!(WatchLostByCompaction) {
            self.cancel(id);
            return CatchUp::Compacted(view.compacted());
        }
        let (mut events, mut bytes, mut last) = (Vec::new(), 0, behind.next - 1);
        let entries = state.log.iter_from(state.log.position(behind.next));
        let entries = entries.within(watcher.group.span());
        let entries = entries.take_while(|entry| revision_of(entry) <= self.revision);
        for (looked_at, entry) in entries.enumerate() {
            let main = revision_of(&entry);
            let split = mutant!(WatchSplits) && main == last;
            let full = looked_at >= slice.records || bytes >= slice.bytes;
            if full && (main > last || split) {
                behind.next = main + i64::from(split);
                return CatchUp::Behind(events);
            }
            last = main;
            let Ok(LogEntry { record, .. }) = &entry else {
                continue;
            };
            if mutant!(DeleteAtCompaction) && record.tombstone && last == state.compacted {
                continue;
            }
            if watcher.group.wants(record) {
                bytes += record.key().len() + record.value.len();
                let event = if behind.demoted {
                    state.retained_event(record, watcher.group.prev_kv)
                } else {
                    state.event(record, watcher.group.prev_kv)
                };
                match event {
                    Ok(event) => events.push(event),
                    Err(damaged) => {
                        self.cancel(id);
                        return CatchUp::Unreadable(damaged);
                    }
                }
            }
        }
        watcher.behind = None;
        self.behind.remove(&id);
        if let Some(group) = self.groups.get_mut(&watcher.group) {
            group.synced.insert(id);
        }
        CatchUp::Synced(events)
    }
}

/// The events from a start revision on; `None` if there are none.
fn from_start(events: &Arc<Vec<Event>>, start: Revision) -> Option<Arc<Vec<Event>>> {
    let start = mutant!(FutureIgnored => 0, else start);
    let early = events.partition_point(|event| event.kv.mod_revision < start);
    match early {
        0 => Some(Arc::clone(events)),
        _ if early == events.len() => None,
        _ => Some(Arc::new(events[early..].to_vec())),
    }
}

impl EventKind {
    /// Whether it is a delete.
    #[must_use]
    pub fn is_delete(self) -> bool {
        self == EventKind::Delete
    }
}
