//! Linearizability of what clients saw. The store gives a total order, its revisions, so checking
//! is quick: an acknowledged write stands at its revision; a read tells the value as of its
//! revision; and no operation is ordered before one that had ended when it began. A write that
//! was not acknowledged is unknown: it may be there or not.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Verdict, Violation};

/// An acknowledged write of one key.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Write {
    pub(in crate::sim) key: Bytes,
    /// `None`: deleted.
    pub(in crate::sim) value: Option<Bytes>,
    pub(in crate::sim) revision: i64,
    /// What [`Linear::began`] returned when it began.
    pub(in crate::sim) began: i64,
}

/// An answered linearizable read of one key.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Read {
    pub(in crate::sim) key: Bytes,
    pub(in crate::sim) value: Option<Bytes>,
    pub(in crate::sim) revision: i64,
    /// What [`Linear::began`] returned when it began.
    pub(in crate::sim) began: i64,
}

/// The order of all writes, and the newest revision that anybody has seen.
#[derive(Debug, Default)]
pub(in crate::sim) struct Linear {
    changes: BTreeMap<Bytes, BTreeMap<i64, Option<Bytes>>>,
    applied: i64,
    seen: i64,
}

impl Linear {
    /// The newest revision that a machine has applied.
    pub(in crate::sim) fn applied(&self) -> i64 {
        self.applied
    }

    /// A machine applied a change; each revision is told once, in order.
    pub(in crate::sim) fn changed(&mut self, revision: i64, key: Bytes, value: Option<Bytes>) {
        self.applied = self.applied.max(revision);
        self.changes.entry(key).or_default().insert(revision, value);
    }

    /// An operation begins now: everything seen so far must come before it.
    pub(in crate::sim) fn began(&self) -> i64 {
        self.seen
    }

    /// A write was acknowledged.
    pub(in crate::sim) fn wrote(&mut self, write: &Write) -> Verdict {
        if write.revision <= write.began {
            return Err(violation(format!(
                "a write of {:?} at revision {} began after revision {} was seen",
                write.key, write.revision, write.began
            )));
        }
        let there = self
            .changes
            .get(&write.key)
            .and_then(|changes| changes.get(&write.revision));
        if there != Some(&write.value) {
            return Err(violation(format!(
                "the write of {:?} = {:?} was acknowledged at revision {}, where there is {there:?}",
                write.key, write.value, write.revision
            )));
        }
        self.seen = self.seen.max(write.revision);
        Ok(())
    }

    /// A read was answered.
    pub(in crate::sim) fn read(&mut self, read: &Read) -> Verdict {
        if read.revision < read.began {
            return Err(violation(format!(
                "a stale read of {:?}: answered at revision {}, begun after revision {} was seen",
                read.key, read.revision, read.began
            )));
        }
        let changes = self.changes.get(&read.key);
        let newest = changes.and_then(|changes| changes.range(..=read.revision).next_back());
        let expected = newest.and_then(|(_, value)| value.clone());
        if expected != read.value {
            return Err(violation(format!(
                "a read of {:?} at revision {} gave {:?}, and not {expected:?}",
                read.key, read.revision, read.value
            )));
        }
        self.seen = self.seen.max(read.revision);
        Ok(())
    }
}

fn violation(text: String) -> Violation {
    Violation::new("linearizability", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Bytes {
        Bytes::from_static(b"k")
    }

    fn value(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    fn history() -> Linear {
        let mut linear = Linear::default();
        linear.changed(2, key(), value("a"));
        linear.changed(3, key(), value("b"));
        linear
    }

    #[test]
    fn a_lost_write_is_seen() {
        let mut linear = history();
        let write = Write {
            key: key(),
            value: value("x"),
            revision: 4,
            began: 0,
        };
        assert!(linear.wrote(&write).is_err());
        let write = Write {
            value: value("b"),
            revision: 3,
            ..write
        };
        assert_eq!(linear.wrote(&write), Ok(()));
    }

    #[test]
    fn a_stale_read_and_a_wrong_value_are_seen() {
        let mut linear = history();
        let write = Write {
            key: key(),
            value: value("b"),
            revision: 3,
            began: 0,
        };
        linear.wrote(&write).expect("it is there");
        let began = linear.began();
        let stale = Read {
            key: key(),
            value: value("a"),
            revision: 2,
            began,
        };
        assert!(linear.read(&stale).is_err());
        assert!(
            linear
                .read(&Read {
                    revision: 3,
                    ..stale.clone()
                })
                .is_err()
        );
        assert_eq!(
            linear.read(&Read {
                value: value("b"),
                revision: 3,
                ..stale.clone()
            }),
            Ok(())
        );
        // One that began earlier may answer with the older state.
        assert_eq!(linear.read(&Read { began: 2, ..stale }), Ok(()));
    }

    #[test]
    fn a_write_ordered_before_what_it_followed_is_seen() {
        let mut linear = history();
        linear
            .read(&Read {
                key: key(),
                value: value("b"),
                revision: 3,
                began: 0,
            })
            .expect("fine");
        let write = Write {
            key: key(),
            value: value("b"),
            revision: 3,
            began: linear.began(),
        };
        assert!(linear.wrote(&write).is_err());
    }
}
