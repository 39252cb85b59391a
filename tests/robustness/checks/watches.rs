//! Checks the guarantees of watches against the whole history: ordered, unique, atomic, reliable, resumable, progress
//! notifications, previous values, filters; and cancelled only for a compacted revision.

use std::iter::Peekable;

use super::log::{Log, without_prev};
use super::{Compactions, Found, Looked};
use crate::history::{Event, History, Shown, Watch};

/// Checks all watches.
pub(crate) fn check(
    history: &History,
    log: &Log,
    compactions: &Compactions,
    looked: &mut Looked,
    found: &mut Found,
) {
    for watch in &history.watches {
        looked.resumed += u64::from(watch.start > 1);
        let mut judge = Judge {
            watch,
            log,
            compactions,
            next: log.for_watch(watch).peekable(),
            seen: watch.start - 1,
            found: &mut *found,
        };
        for shown in &watch.shown {
            looked.events += shown.events.len() as u64;
            looked.bookmarks += u64::from(shown.bookmark);
            looked.compacted_watches += u64::from(shown.compacted > 0);
            if !judge.shown(shown) {
                break; // what follows a first violation is not informative
            }
        }
    }
}

struct Judge<'a, I: Iterator<Item = (i64, Vec<&'a Event>)>> {
    watch: &'a Watch,
    log: &'a Log,
    compactions: &'a Compactions,
    next: Peekable<I>,
    /// The last revision that it received, by an event or a progress notification.
    seen: i64,
    found: &'a mut Found,
}

impl<'a, I: Iterator<Item = (i64, Vec<&'a Event>)>> Judge<'a, I> {
    fn shown(&mut self, shown: &Shown) -> bool {
        let before = self.found.0.len();
        for events in shown.events.chunk_by(|a, b| a.kv.modified == b.kv.modified) {
            self.revision(events, shown);
            if self.found.0.len() > before {
                return false;
            }
        }
        if shown.bookmark {
            self.bookmark(shown.revision);
        }
        if shown.compacted > 0 {
            self.compacted(shown);
        }
        self.found.0.len() == before
    }

    /// The events of one revision must be complete, and the next ones that match the watch.
    fn revision(&mut self, events: &[Event], shown: &Shown) {
        let revision = events[0].kv.modified;
        if revision <= self.seen {
            let rule = "watch: ordered and unique";
            return self.broken(rule, format!("{events:?} after revision {}", self.seen));
        }
        let Some((expected, changes)) = self.next.next() else {
            let rule = "watch: only what happened";
            return self.broken(rule, format!("{events:?}, which no other watcher received"));
        };
        let plain: Vec<Event> = events.iter().map(without_prev).collect();
        if expected < revision {
            let text = format!("revision {expected} was left out before {revision}: {changes:?}");
            return self.broken("watch: reliable", text);
        }
        if expected > revision {
            let rule = "watch: filter and range";
            return self.broken(rule, format!("{events:?}, which it has not requested"));
        }
        if !plain.iter().eq(changes.iter().copied()) {
            let rule = "watch: atomic";
            return self.broken(rule, format!("{plain:?} of {changes:?}"));
        }
        for event in events {
            self.prev(event, shown);
        }
        self.seen = revision;
    }

    /// The previous value; it may be missing only after a compaction.
    fn prev(&mut self, event: &Event, shown: &Shown) {
        let before = self.log.at(&event.kv.key, event.kv.modified - 1);
        let fits = match (&event.prev, before) {
            (None, None) => true,
            (Some(prev), Some(before)) => self.watch.prev && prev == before,
            (Some(_), None) => false,
            (None, Some(_)) => {
                !self.watch.prev || self.compactions.possible(shown.at) >= event.kv.modified
            }
        };
        if !fits {
            let text = format!("{event:?}, where the key was {before:?}");
            self.broken("watch: the key as it was", text);
        }
    }

    fn bookmark(&mut self, revision: i64) {
        if let Some((missed, changes)) = self.next.next_if(|(next, _)| *next <= revision) {
            let text = format!(
                "received a progress notification for {revision} before revision {missed}: {changes:?}"
            );
            self.broken("watch: bookmarks", text);
        }
        // A progress notification may be older than its events, and proves nothing about what the watcher requested.
        self.seen = self.seen.max(revision);
    }

    fn compacted(&mut self, shown: &Shown) {
        let possible = self.compactions.possible(shown.at);
        if self.seen >= shown.compacted || shown.compacted > possible {
            let text = format!(
                "cancelled as compacted up to {}; it has received {}, and a compaction to {possible} was requested",
                shown.compacted, self.seen
            );
            self.broken("watch: cancelled for cause", text);
        }
    }

    fn broken(&mut self, rule: &'static str, text: String) {
        let Watch {
            watcher, member, ..
        } = self.watch;
        let start = self.watch.start;
        let text = format!("{watcher} on {member} from {start} received {text}");
        self.found.add(rule, text);
    }
}
