//! All changes of keys in the order of their revisions, as first applied, and what follows from
//! them: what each key was at any revision. Checks that revisions follow one another without a
//! gap, and that each change carries the right version and creating revision. The other oracles
//! judge by it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::store::{Event, EventKind, KeyValue, Revision};

/// A change of a key.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::sim) struct Change {
    pub(in crate::sim) revision: Revision,
    pub(in crate::sim) key: Bytes,
    /// `None`: deleted.
    pub(in crate::sim) kv: Option<KeyValue>,
}

/// All changes. The store begins at revision 1, without any.
#[derive(Debug)]
pub(in crate::sim) struct History {
    changes: Vec<Change>,
    /// Where the changes of each key are.
    keys: BTreeMap<Bytes, Vec<usize>>,
    revision: Revision,
}

impl Default for History {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            keys: BTreeMap::new(),
            revision: 1,
        }
    }
}

impl History {
    /// The newest revision that any machine has applied.
    pub(in crate::sim) fn revision(&self) -> Revision {
        self.revision
    }

    /// A machine applied a change, as the first one; each is reported once, in order.
    pub(in crate::sim) fn changed(&mut self, event: &Event) -> Verdict {
        let (key, revision) = (event.kv.key.clone(), event.kv.mod_revision);
        let follows = revision == self.revision || revision == self.revision + 1;
        if !follows && !mutant!(BlindRevisions) {
            return Err(violation(format!(
                "revision {revision} of {key:?} comes after {}",
                self.revision
            )));
        }
        let before = self.at(&key, revision);
        let kv = match event.kind {
            EventKind::Delete if before.is_none() => {
                return Err(violation(format!(
                    "{key:?} is deleted at revision {revision} and was not there"
                )));
            }
            EventKind::Delete => None,
            EventKind::Put => {
                let wanted = (
                    before.map_or(revision, |before| before.create_revision),
                    before.map_or(0, |before| before.version) + 1,
                );
                let found = (event.kv.create_revision, event.kv.version);
                if wanted != found && !mutant!(BlindVersions) {
                    return Err(violation(format!(
                        "{:?} should have creating revision and version {wanted:?}",
                        event.kv
                    )));
                }
                Some(event.kv.clone())
            }
        };
        self.revision = revision;
        let places = self.keys.entry(key.clone()).or_default();
        places.push(self.changes.len());
        self.changes.push(Change { revision, key, kv });
        Ok(())
    }

    /// A key as it was at a revision.
    pub(in crate::sim) fn at(&self, key: &[u8], revision: Revision) -> Option<&KeyValue> {
        let places = self.keys.get(key)?;
        let behind = places.partition_point(|at| self.changes[*at].revision <= revision);
        let last = *places.get(behind.checked_sub(1)?)?;
        self.changes[last].kv.as_ref()
    }

    /// All keys as they were at a revision.
    pub(in crate::sim) fn state(&self, revision: Revision) -> BTreeMap<Bytes, KeyValue> {
        let there = |key: &Bytes| Some((key.clone(), self.at(key, revision)?.clone()));
        self.keys.keys().filter_map(there).collect()
    }

    /// The changes from one on, with their numbers.
    pub(in crate::sim) fn from(&self, at: usize) -> impl Iterator<Item = (usize, &Change)> {
        self.changes.iter().enumerate().skip(at)
    }

    /// How many changes lie at or before a revision.
    pub(in crate::sim) fn until(&self, revision: Revision) -> usize {
        self.changes
            .partition_point(|change| change.revision <= revision)
    }
}

fn violation(text: String) -> Violation {
    Violation::new("revisions", text)
}

/// An event for the tests of the oracles that judge by the history.
#[cfg(test)]
pub(super) fn event(
    revision: Revision,
    key: &'static str,
    value: Option<&'static str>,
    (create_revision, version): (Revision, i64),
) -> Event {
    let kind = match value {
        Some(_) => EventKind::Put,
        None => EventKind::Delete,
    };
    let kv = KeyValue {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value.unwrap_or_default().as_bytes()),
        mod_revision: revision,
        create_revision,
        version,
        lease: 0,
    };
    Event {
        kind,
        kv,
        prev_kv: None,
    }
}

/// `a` is put at 2, changed at 4 and deleted at 5; `b` is put at 3 and, with `c`, at 6.
#[cfg(test)]
pub(super) fn example() -> History {
    let mut history = History::default();
    for event in [
        event(2, "a", Some("1"), (2, 1)),
        event(3, "b", Some("2"), (3, 1)),
        event(4, "a", Some("3"), (2, 2)),
        event(5, "a", None, (0, 0)),
        event(6, "b", Some("4"), (3, 2)),
        event(6, "c", Some("5"), (6, 1)),
    ] {
        history.changed(&event).expect("a good history");
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_returns_keys_at_every_revision() {
        let history = example();
        let value = |key: &str, at| history.at(key.as_bytes(), at).map(|kv| kv.value.clone());
        assert_eq!(value("a", 1), None);
        assert_eq!(value("a", 3), Some(Bytes::from_static(b"1")));
        assert_eq!(value("a", 9), None);
        assert_eq!(history.state(6).len(), 2);
        assert_eq!((history.revision(), history.until(5)), (6, 4));
    }

    #[test]
    fn detects_gaps_and_wrong_versions() {
        let mut history = example();
        assert!(history.changed(&event(8, "d", Some("x"), (8, 1))).is_err());
        assert!(history.changed(&event(5, "d", Some("x"), (5, 1))).is_err());
        assert!(history.changed(&event(7, "d", Some("x"), (7, 2))).is_err());
        assert!(history.changed(&event(7, "b", Some("x"), (7, 1))).is_err());
        assert!(history.changed(&event(7, "a", None, (0, 0))).is_err());
        assert_eq!(history.changed(&event(7, "d", Some("x"), (7, 1))), Ok(()));
    }
}
