//! What watchers were shown, against the order of all changes. etcd's guarantees: every change
//! of what is watched (reliable, after a resumption too), once (unique), in order of revision
//! (ordered), all of a revision in one answer (atomic), with the key as it was before (prev_kv),
//! nothing that was filtered out (filter), and nothing at or before a revision that a progress
//! answer has named (bookmark). Only what was compacted may be missing, and then the watcher is informed.

use bytes::Bytes;

use super::history::{Change, History};
use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::store::{Event, EventKind, Revision};

/// What a watcher watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::sim) struct Wish {
    /// A key, or the first one of a span.
    pub(in crate::sim) key: Bytes,
    /// As in a range: empty is one key, `\0` all from `key` on.
    pub(in crate::sim) range_end: Bytes,
    pub(in crate::sim) no_put: bool,
    pub(in crate::sim) no_delete: bool,
}

impl Wish {
    fn wants(&self, change: &Change) -> bool {
        let inside = match &self.range_end[..] {
            [] => change.key == self.key,
            [0] => change.key >= self.key,
            _ => change.key >= self.key && change.key < self.range_end,
        };
        let filtered = match change.kv {
            Some(_) => self.no_put,
            None => self.no_delete,
        };
        inside && (!filtered || mutant!(BlindFilter))
    }
}

/// How far a watcher has come.
#[derive(Clone, Debug, Default)]
pub(in crate::sim) struct Progress {
    pub(in crate::sim) wish: Wish,
    /// How many of the changes it was shown or had no interest in.
    next: usize,
    /// The last revision that it was sent, or that a progress answer named.
    pub(in crate::sim) seen: Revision,
    /// The last revision that a progress answer named.
    bookmark: Revision,
}

impl Progress {
    /// Nothing seen yet.
    pub(in crate::sim) fn new(wish: Wish) -> Self {
        Self {
            wish,
            ..Self::default()
        }
    }

    /// Begins after a revision, without what came before.
    pub(in crate::sim) fn begin_after(&mut self, history: &History, revision: Revision) {
        self.next = history.until(revision);
        self.seen = revision;
        self.bookmark = revision;
    }

    fn next<'a>(&self, history: &'a History) -> Option<(usize, &'a Change)> {
        let mut rest = history.from(self.next);
        rest.find(|(_, change)| self.wish.wants(change))
    }

    /// A watcher with `prev_kv` was shown one answer by a member that has compacted so far.
    pub(in crate::sim) fn shown(
        &mut self,
        history: &History,
        events: &[Event],
        compacted: Revision,
    ) -> Verdict {
        for event in events {
            let Some((at, change)) = self.next(history) else {
                return Err(violation(format!("{event:?} was never applied")));
            };
            let kv = (event.kind == EventKind::Put).then_some(&event.kv);
            let same = (event.kv.mod_revision, &event.kv.key, kv)
                == (change.revision, &change.key, change.kv.as_ref());
            if !same && !mutant!(BlindWatchOrder) {
                return Err(violation(format!(
                    "shown {event:?} after revision {}, where {change:?} was next",
                    self.seen
                )));
            }
            if change.revision <= self.bookmark && !mutant!(BlindBookmark) {
                return Err(violation(format!(
                    "shown {event:?} after a progress answer with revision {}",
                    self.bookmark
                )));
            }
            check_before(history, event, compacted)?;
            self.next = at + 1;
            self.seen = change.revision;
        }
        match self.next(history) {
            _ if mutant!(BlindAtomic) => Ok(()),
            Some((_, change)) if !events.is_empty() && change.revision == self.seen => {
                Err(violation(format!(
                    "an answer ended with a part of revision {}: {change:?} belongs to it",
                    self.seen
                )))
            }
            _ => Ok(()),
        }
    }

    /// A watcher was cancelled since what it needs was compacted up to a revision.
    pub(in crate::sim) fn compacted(&mut self, history: &History, to: Revision) -> Verdict {
        if self.seen >= to && !mutant!(BlindCompaction) {
            let needs = self.next(history).map(|(_, change)| change.revision);
            return Err(violation(format!(
                "a watcher that has seen {} received that {to} is compacted; it needs {needs:?}",
                self.seen
            )));
        }
        self.next = history.until(to);
        self.seen = to;
        Ok(())
    }

    /// A progress answer with this revision, or being in step with a member that stands there:
    /// all of it must have been shown, and none of it may come later.
    pub(in crate::sim) fn in_step(&mut self, history: &History, revision: Revision) -> Verdict {
        if let Some((_, change)) = self.next(history)
            && change.revision <= revision
            && !mutant!(BlindMissing)
        {
            return Err(violation(format!(
                "a watcher in step at revision {revision} was never shown {change:?}"
            )));
        }
        self.bookmark = self.bookmark.max(revision);
        Ok(())
    }
}

/// The key as it was: it may be missing only where a compaction has taken it.
fn check_before(history: &History, event: &Event, compacted: Revision) -> Verdict {
    let before = history.at(&event.kv.key, event.kv.mod_revision - 1);
    let shown = event.prev_kv.as_ref();
    if before == shown || mutant!(BlindPrevKv) {
        return Ok(());
    }
    match (before, shown) {
        (Some(before), None) if before.mod_revision <= compacted => Ok(()),
        _ => Err(violation(format!(
            "{event:?} with the key before as {shown:?}, which was {before:?}; compacted {compacted}"
        ))),
    }
}

fn violation(text: String) -> Violation {
    Violation::new("watches", text)
}

#[cfg(test)]
mod tests {
    use super::super::history::{event, example};
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn all() -> Progress {
        Progress::new(Wish {
            key: bytes("a"),
            range_end: bytes("\0"),
            ..Wish::default()
        })
    }

    fn a_put() -> Event {
        event(2, "a", Some("1"), (2, 1))
    }

    fn a_changed() -> Event {
        Event {
            prev_kv: Some(a_put().kv),
            ..event(4, "a", Some("3"), (2, 2))
        }
    }

    fn b_put() -> Event {
        event(3, "b", Some("2"), (3, 1))
    }

    /// The changes of revision 6.
    fn both() -> [Event; 2] {
        let prev_kv = Some(b_put().kv);
        let b = event(6, "b", Some("4"), (3, 2));
        [Event { prev_kv, ..b }, event(6, "c", Some("5"), (6, 1))]
    }

    #[test]
    fn detects_gaps_repeats_and_reordering() {
        let history = example();
        let shown = |events: &[Event]| all().shown(&history, events, 0);
        assert_eq!(shown(&[a_put(), b_put()]), Ok(()));
        assert!(shown(&[b_put()]).is_err());
        assert!(shown(&[a_put(), a_put()]).is_err());
        assert!(shown(&[b_put(), a_put()]).is_err());
        assert!(shown(&[event(2, "a", Some("other"), (2, 1))]).is_err());
        assert!(shown(&[event(2, "a", Some("1"), (1, 1))]).is_err());
    }

    #[test]
    fn detects_a_missing_or_wrong_prev_kv() {
        let history = example();
        let changed = |prev_kv| {
            let mut one = Progress::new(Wish {
                key: bytes("a"),
                ..Wish::default()
            });
            let changed = Event {
                prev_kv,
                ..a_changed()
            };
            one.shown(&history, &[a_put(), changed], 0)
        };
        assert!(changed(None).is_err());
        assert!(changed(Some(b_put().kv)).is_err());
        assert_eq!(changed(Some(a_put().kv)), Ok(()));
    }

    #[test]
    fn detects_a_revision_split_over_responses() {
        let history = example();
        let mut progress = all();
        progress.begin_after(&history, 5);
        assert!(progress.clone().shown(&history, &both()[..1], 0).is_err());
        assert_eq!(progress.shown(&history, &both(), 0), Ok(()));
    }

    #[test]
    fn detects_events_behind_progress() {
        let history = example();
        let mut progress = all();
        progress.begin_after(&history, 5);
        assert!(progress.clone().in_step(&history, 6).is_err());
        assert_eq!(progress.in_step(&history, 5), Ok(()));
        progress.bookmark = 6;
        assert!(progress.shown(&history, &both(), 0).is_err());
    }

    #[test]
    fn detects_filter_mistakes() {
        let history = example();
        let mut deletes = all();
        deletes.wish.no_put = true;
        let gone = || Event {
            prev_kv: Some(a_changed().kv),
            ..event(5, "a", None, (0, 0))
        };
        assert!(deletes.clone().shown(&history, &[a_put()], 0).is_err());
        assert!(deletes.clone().in_step(&history, 6).is_err());
        assert_eq!(deletes.shown(&history, &[gone()], 0), Ok(()));
        assert_eq!(deletes.in_step(&history, 6), Ok(()));
    }

    #[test]
    fn detects_missed_watch_events() {
        let history = example();
        let mut progress = all();
        assert!(progress.in_step(&history, 4).is_err());
        assert_eq!(progress.compacted(&history, 3), Ok(()));
        assert!(progress.in_step(&history, 4).is_err());
        assert_eq!(progress.in_step(&history, 3), Ok(()));
        assert!(progress.compacted(&history, 3).is_err(), "it has seen that");
    }
}
