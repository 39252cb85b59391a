//! The history of the store: all changes in order, merged from the watchers of the whole key space, and the state at
//! every revision.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use super::Found;
use crate::history::{Event, History, Kv, Nanos, Watch};

/// The revision of the first change.
const FIRST: i64 = 2;

/// The whole history of the store.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Changes by revision, without previous values.
    pub(crate) changes: BTreeMap<i64, Vec<Event>>,
    /// When a change was first delivered to any client.
    pub(crate) seen: BTreeMap<i64, Nanos>,
    keys: BTreeMap<String, BTreeMap<i64, Option<Kv>>>,
}

impl Log {
    /// Merges the watchers' records; events that differ between watchers are violations.
    pub(crate) fn of(history: &History, found: &mut Found) -> Log {
        let mut log = Log::default();
        for watch in &history.watches {
            let whole = watch.key.is_empty() || watch.key == "\0";
            if whole && watch.end == "\0" && !watch.no_put && !watch.no_delete {
                log.take(watch, found);
            }
        }
        log.replay(found);
        log
    }

    fn take(&mut self, watch: &Watch, found: &mut Found) {
        for shown in &watch.shown {
            for events in shown.events.chunk_by(|a, b| a.kv.modified == b.kv.modified) {
                let revision = events[0].kv.modified;
                let plain: Vec<Event> = events.iter().map(without_prev).collect();
                match self.changes.entry(revision) {
                    Entry::Vacant(place) => {
                        place.insert(plain);
                    }
                    Entry::Occupied(known) if *known.get() == plain => {}
                    Entry::Occupied(known) => found.add(
                        "one history",
                        format!(
                            "{} received {plain:?} from {}, and another watcher {:?}",
                            watch.watcher,
                            watch.member,
                            known.get()
                        ),
                    ),
                }
                let seen = self.seen.entry(revision).or_insert(shown.at);
                *seen = shown.at.min(*seen);
            }
        }
    }

    fn replay(&mut self, found: &mut Found) {
        let mut expected = FIRST;
        for (&revision, events) in &self.changes {
            if revision != expected {
                found.add(
                    "no gap in the revisions",
                    format!(
                        "no watcher received revisions {expected} to {}",
                        revision - 1
                    ),
                );
            }
            expected = revision + 1;
            for event in events {
                let versions = self.keys.entry(event.kv.key.clone()).or_default();
                let before = versions.range(..revision).next_back();
                let before = before.and_then(|(_, kv)| kv.clone());
                if let Some(text) = misfit(event, before.as_ref()) {
                    found.add("versions of a key", text);
                }
                let now = (!event.deleted).then(|| event.kv.clone());
                versions.insert(revision, now);
            }
        }
    }

    /// The newest revision.
    pub(crate) fn newest(&self) -> i64 {
        let last = self.changes.last_key_value();
        last.map_or(FIRST - 1, |(revision, _)| *revision)
    }

    /// A key at a revision.
    pub(crate) fn at(&self, key: &str, revision: i64) -> Option<&Kv> {
        let versions = self.keys.get(key)?;
        versions.range(..=revision).next_back()?.1.as_ref()
    }

    /// The keys in a range at a revision, in order.
    pub(crate) fn range<'a>(
        &'a self,
        key: &'a str,
        end: &'a str,
        revision: i64,
    ) -> impl Iterator<Item = &'a Kv> {
        let keys = self
            .keys
            .range::<str, _>((Bound::Included(key), Bound::Unbounded));
        let keys = keys.take_while(move |(each, _)| contains(key, end, each));
        keys.filter_map(move |(each, _)| self.at(each, revision))
    }

    /// Changes from a revision on, as a watcher of a range with these filters receives them.
    pub(crate) fn for_watch<'a>(
        &'a self,
        watch: &'a Watch,
    ) -> impl Iterator<Item = (i64, Vec<&'a Event>)> {
        let from = self.changes.range(watch.start..);
        from.filter_map(move |(revision, events)| {
            let wanted = events.iter().filter(|event| wants(watch, event));
            let wanted: Vec<&Event> = wanted.collect();
            (!wanted.is_empty()).then_some((*revision, wanted))
        })
    }
}

/// Whether a key is in a range.
pub(crate) fn contains(key: &str, end: &str, each: &str) -> bool {
    match end {
        "" => each == key,
        "\0" => each >= key,
        end => each >= key && each < end,
    }
}

fn wants(watch: &Watch, event: &Event) -> bool {
    let filtered = if event.deleted {
        watch.no_delete
    } else {
        watch.no_put
    };
    !filtered && contains(&watch.key, &watch.end, &event.kv.key)
}

/// The event without the previous value.
pub(crate) fn without_prev(event: &Event) -> Event {
    Event {
        prev: None,
        ..event.clone()
    }
}

/// Why an event's revisions and version do not follow from the key's previous state; `None` if they do.
fn misfit(event: &Event, before: Option<&Kv>) -> Option<String> {
    let kv = &event.kv;
    let fits = match (event.deleted, before) {
        (true, before) => before.is_some(),
        (false, None) => kv.version == 1 && kv.created == kv.modified,
        (false, Some(before)) => kv.version == before.version + 1 && kv.created == before.created,
    };
    (!fits).then(|| format!("{event:?} came after {before:?}"))
}
