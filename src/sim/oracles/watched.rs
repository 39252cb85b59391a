//! What watchers were shown, against the order of all changes: each change of what they watch,
//! once, in order, with the key as it was before; nothing left out but what was compacted.

use bytes::Bytes;

use super::{Verdict, Violation};
use crate::store::{Event, EventKind, Revision};

/// A change of a key.
#[derive(Clone, Debug)]
struct Change {
    revision: Revision,
    key: Bytes,
    /// `None`: deleted.
    value: Option<Bytes>,
}

/// All changes, in order.
#[derive(Debug, Default)]
pub(in crate::sim) struct Watched {
    changes: Vec<Change>,
}

/// How far a watcher has come, and what it watches: one key, or all.
#[derive(Clone, Debug, Default)]
pub(in crate::sim) struct Progress {
    pub(in crate::sim) key: Option<Bytes>,
    /// How many of the changes it was shown or had no interest in.
    next: usize,
    /// The last revision that it was shown.
    pub(in crate::sim) seen: Revision,
}

impl Progress {
    /// Nothing seen yet.
    pub(in crate::sim) fn new(key: Option<Bytes>) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }
}

impl Watched {
    /// A machine applied a change; each is told once, in order.
    pub(in crate::sim) fn changed(&mut self, revision: Revision, key: Bytes, value: Option<Bytes>) {
        self.changes.push(Change {
            revision,
            key,
            value,
        });
    }

    /// A watcher with `prev_kv` was shown events by a member that has compacted so far.
    pub(in crate::sim) fn shown(
        &self,
        progress: &mut Progress,
        events: &[Event],
        compacted: Revision,
    ) -> Verdict {
        for event in events {
            let Some((at, change)) = self.next(progress) else {
                return Err(violation(format!("{event:?} was never applied")));
            };
            let value = (event.kind == EventKind::Put).then(|| event.kv.value.clone());
            let same = (event.kv.mod_revision, &event.kv.key, &value)
                == (change.revision, &change.key, &change.value);
            if !same {
                return Err(violation(format!(
                    "shown {event:?} after revision {}, where {change:?} was next",
                    progress.seen
                )));
            }
            self.check_before(at, event, compacted)?;
            progress.next = at + 1;
            progress.seen = change.revision;
        }
        Ok(())
    }

    /// The key as it was: it may be missing only where a compaction has taken it.
    fn check_before(&self, at: usize, event: &Event, compacted: Revision) -> Verdict {
        let earlier = self.changes.iter().take(at).rev();
        let before = earlier.into_iter().find(|one| one.key == event.kv.key);
        let before = before.filter(|one| one.value.is_some());
        let shown = event.prev_kv.as_ref();
        let same = match (before, shown) {
            (None, None) => true,
            (Some(before), Some(shown)) => {
                (shown.mod_revision, Some(&shown.value)) == (before.revision, before.value.as_ref())
            }
            (Some(before), None) => before.revision <= compacted,
            (None, Some(_)) => false,
        };
        if same {
            return Ok(());
        }
        Err(violation(format!(
            "{event:?} with the key before as {shown:?}, which was {before:?}; compacted {compacted}"
        )))
    }

    /// A watcher was told that what it needs was compacted up to a revision.
    pub(in crate::sim) fn compacted(&self, progress: &mut Progress, to: Revision) -> Verdict {
        let needs = self.next(progress).map(|(_, change)| change.revision);
        if progress.seen >= to {
            return Err(violation(format!(
                "a watcher that has seen {} was told that {to} is compacted; it needs {needs:?}",
                progress.seen
            )));
        }
        progress.next = self.changes.partition_point(|change| change.revision <= to);
        progress.seen = to;
        Ok(())
    }

    /// A watcher that is in step with a member at this revision must have seen all of it.
    pub(in crate::sim) fn in_step(&self, progress: &Progress, revision: Revision) -> Verdict {
        match self.next(progress) {
            Some((_, change)) if change.revision <= revision => Err(violation(format!(
                "a watcher in step at revision {revision} was never shown {change:?}"
            ))),
            _ => Ok(()),
        }
    }

    fn next(&self, progress: &Progress) -> Option<(usize, &Change)> {
        let wanted = |change: &Change| progress.key.as_ref().is_none_or(|key| *key == change.key);
        let mut rest = self.changes.iter().enumerate().skip(progress.next);
        rest.find(|(_, change)| wanted(change))
    }
}

fn violation(text: String) -> Violation {
    Violation::new("watches", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeyValue;

    fn history() -> Watched {
        let mut watched = Watched::default();
        for (revision, key, value) in [(2, "a", Some("1")), (3, "b", Some("2")), (4, "a", None)] {
            let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
            watched.changed(revision, bytes(key), value.map(bytes));
        }
        watched
    }

    fn put(revision: Revision, key: &'static str, value: &'static str) -> Event {
        Event {
            kind: EventKind::Put,
            kv: KeyValue {
                key: Bytes::from_static(key.as_bytes()),
                value: Bytes::from_static(value.as_bytes()),
                mod_revision: revision,
                ..KeyValue::default()
            },
            prev_kv: None,
        }
    }

    #[test]
    fn a_gap_a_repetition_and_another_order_are_seen() {
        let watched = history();
        let shown = |events: &[Event]| watched.shown(&mut Progress::default(), events, 0);
        assert_eq!(shown(&[put(2, "a", "1"), put(3, "b", "2")]), Ok(()));
        assert!(shown(&[put(3, "b", "2")]).is_err());
        assert!(shown(&[put(2, "a", "1"), put(2, "a", "1")]).is_err());
        assert!(shown(&[put(3, "b", "2"), put(2, "a", "1")]).is_err());
        assert!(shown(&[put(2, "a", "other")]).is_err());
    }

    #[test]
    fn a_missing_or_wrong_key_before_is_seen() {
        let watched = history();
        let delete = |prev_kv| {
            let mut event = put(4, "a", "");
            event.kind = EventKind::Delete;
            event.prev_kv = prev_kv;
            let mut progress = Progress {
                key: Some(Bytes::from_static(b"a")),
                ..Progress::default()
            };
            watched.shown(&mut progress, &[put(2, "a", "1"), event], 0)
        };
        assert!(delete(None).is_err());
        assert!(delete(Some(put(3, "a", "2").kv)).is_err());
        assert_eq!(delete(Some(put(2, "a", "1").kv)), Ok(()));
    }

    #[test]
    fn what_was_never_shown_is_missed_and_what_was_compacted_is_not() {
        let watched = history();
        let mut progress = Progress::default();
        assert!(watched.in_step(&progress, 4).is_err());
        assert_eq!(watched.compacted(&mut progress, 3), Ok(()));
        assert!(watched.in_step(&progress, 4).is_err());
        assert_eq!(watched.in_step(&progress, 3), Ok(()));
        assert!(
            watched.compacted(&mut progress, 3).is_err(),
            "it has seen that"
        );
    }
}
