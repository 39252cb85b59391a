//! Log matching (paper, figure 3): entries of one index and term are the same everywhere and
//! follow the same entry. And a shadow of each member's log, by which leader completeness and
//! the durability of what is committed are judged.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::mutants::mutant;
use crate::raft::{Entry, Index, LogShape, Term};
use crate::sim::network::HostId;

use super::{Verdict, Violation};

/// Every entry that was ever written, and which host holds which.
#[derive(Debug, Default)]
pub(in crate::sim) struct Logs {
    entries: BTreeMap<(Index, Term), (u64, Term)>,
    shadows: BTreeMap<HostId, Shadow>,
}

/// One host's log: the terms after its floor.
#[derive(Clone, Debug, Default)]
struct Shadow {
    floor: (Index, Term),
    terms: BTreeMap<Index, Term>,
}

impl Logs {
    /// A host's log begins after this entry, whatever was there before; what lay beyond is kept
    /// only where the caller writes it again.
    pub(in crate::sim) fn reset(&mut self, host: HostId, floor: (Index, Term)) {
        let terms = BTreeMap::new();
        self.shadows.insert(host, Shadow { floor, terms });
    }

    /// A host's log as it was found at a start, with all its entries: everything that was durable
    /// must be there, as it was.
    pub(in crate::sim) fn recovered(
        &mut self,
        host: HostId,
        found: &LogShape,
        entries: &[Entry],
    ) -> Verdict {
        let floor = found.floor();
        let floor = (floor, found.term(floor).unwrap_or_default());
        let mut shadow = Shadow {
            floor,
            terms: BTreeMap::new(),
        };
        for index in floor.0 + 1..=found.last() {
            shadow
                .terms
                .insert(index, found.term(index).unwrap_or_default());
        }
        if let Some(before) = self.shadows.get(&host) {
            for (index, term) in before.terms.range(floor.0 + 1..) {
                // A write that was not yet known to be durable may have replaced it, and cut off
                // what followed: then the log ends in a later term.
                let there = shadow.terms.get(index).copied();
                let lost = there.unwrap_or(found.last_term().saturating_sub(1)) < *term;
                if lost && !mutant!(BlindDurability) {
                    return Err(Violation::new(
                        "durability",
                        format!("host {host} lost index {index} of term {term} in a crash"),
                    ));
                }
            }
        }
        for entry in entries {
            let before = shadow.term(entry.index.saturating_sub(1));
            self.same(host, entry, before.unwrap_or_default())?;
        }
        self.shadows.insert(host, shadow);
        Ok(())
    }

    /// A host acknowledges to a leader that its log is durable up to an index.
    pub(in crate::sim) fn acknowledges(&self, host: HostId, index: Index) -> Verdict {
        let last = self.last(host);
        if index <= last || mutant!(BlindAcknowledged) {
            return Ok(());
        }
        Err(Violation::new(
            "durable before acknowledged",
            format!("host {host} acknowledges index {index}, its disk has up to {last}"),
        ))
    }

    /// Where a host's log ends.
    pub(in crate::sim) fn last(&self, host: HostId) -> Index {
        let shadow = self.shadows.get(&host);
        shadow.map_or(0, |shadow| {
            let last = shadow.terms.keys().next_back().copied();
            last.unwrap_or(shadow.floor.0)
        })
    }

    /// Entries are durable at a host.
    pub(in crate::sim) fn wrote(&mut self, host: HostId, entries: &[Entry]) -> Verdict {
        for entry in entries {
            let shadow = self.shadows.entry(host).or_default();
            shadow.terms.split_off(&entry.index);
            let before = shadow.term(entry.index - 1).ok_or_else(|| {
                Violation::new(
                    "log matching",
                    format!("host {host} writes index {} after a gap", entry.index),
                )
            })?;
            shadow.terms.insert(entry.index, entry.term);
            self.same(host, entry, before)?;
        }
        Ok(())
    }

    /// An entry is what it is everywhere, and follows the same one.
    fn same(&mut self, host: HostId, entry: &Entry, before: Term) -> Verdict {
        let before = mutant!(BlindPredecessor => 0, else before);
        let what = (digest(entry), before);
        let known = self.entries.entry((entry.index, entry.term));
        if *known.or_insert(what) == what {
            return Ok(());
        }
        Err(Violation::new(
            "log matching",
            format!(
                "host {host} holds another entry at index {} of term {}, or after another one",
                entry.index, entry.term
            ),
        ))
    }

    /// Whether a host's log holds this entry, or holds it no longer because a checkpoint does.
    pub(in crate::sim) fn holds(&self, host: HostId, index: Index, term: Term) -> bool {
        let Some(shadow) = self.shadows.get(&host) else {
            return false;
        };
        index < shadow.floor.0 || shadow.term(index) == Some(term)
    }
}

impl Shadow {
    fn term(&self, index: Index) -> Option<Term> {
        if index == self.floor.0 {
            return Some(self.floor.1);
        }
        self.terms.get(&index).copied()
    }
}

fn digest(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.kind.hash(&mut hasher);
    if !mutant!(BlindLogMatching) {
        entry.data.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: Index, term: Term, data: &'static [u8]) -> Entry {
        Entry {
            index,
            term,
            data: data.into(),
            ..Entry::default()
        }
    }

    #[test]
    fn detects_two_entries_at_one_place() {
        let mut logs = Logs::default();
        assert_eq!(
            logs.wrote(0, &[entry(1, 1, b"a"), entry(2, 1, b"b")]),
            Ok(())
        );
        assert_eq!(logs.wrote(1, &[entry(1, 1, b"a")]), Ok(()));
        assert!(logs.wrote(1, &[entry(2, 1, b"c")]).is_err());
    }

    #[test]
    fn detects_same_entry_after_different_prefix() {
        let mut logs = Logs::default();
        assert_eq!(
            logs.wrote(0, &[entry(1, 1, b"a"), entry(2, 3, b"b")]),
            Ok(())
        );
        assert_eq!(logs.wrote(1, &[entry(1, 2, b"x")]), Ok(()));
        assert!(logs.wrote(1, &[entry(2, 3, b"b")]).is_err());
    }

    #[test]
    fn detects_acks_before_durability() {
        let mut logs = Logs::default();
        assert!(logs.acknowledges(0, 1).is_err());
        assert_eq!(logs.wrote(0, &[entry(1, 1, b"a")]), Ok(()));
        assert_eq!(logs.acknowledges(0, 1), Ok(()));
        assert!(logs.acknowledges(0, 2).is_err());
    }

    #[test]
    fn detects_changed_log_after_a_restart() {
        let mut logs = Logs::default();
        let good = entry(1, 1, b"a");
        assert_eq!(logs.wrote(0, std::slice::from_ref(&good)), Ok(()));
        let mut shape = LogShape::new(0, 0);
        shape.append(&good).expect("the first");
        assert_eq!(logs.recovered(0, &shape, &[good]), Ok(()));
        assert!(logs.recovered(0, &shape, &[entry(1, 1, b"x")]).is_err());
        assert!(logs.recovered(0, &LogShape::new(0, 0), &[]).is_err());
    }

    #[test]
    fn log_gap_is_detected() {
        let mut logs = Logs::default();
        assert_eq!(
            logs.wrote(0, &[entry(1, 1, b"a"), entry(2, 1, b"b")]),
            Ok(())
        );
        assert_eq!(logs.wrote(0, &[entry(1, 2, b"z")]), Ok(()));
        assert!(!logs.holds(0, 2, 1) && logs.holds(0, 1, 2));
        assert!(logs.wrote(0, &[entry(4, 2, b"q")]).is_err());
        logs.reset(0, (10, 2));
        assert!(logs.holds(0, 9, 1) && logs.holds(0, 10, 2) && !logs.holds(0, 11, 2));
    }
}
