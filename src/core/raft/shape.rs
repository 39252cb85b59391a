//! The shape of a log: where it starts and ends, the term of each index as compact runs, and
//! which entries change the membership. Holds no entries.

use std::collections::BTreeSet;

use super::error::Error;
use super::types::{Entry, EntryKind, Index, Term};

/// The shape of a log. Terms change rarely, so a run a term is all that is kept of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogShape {
    floor: Index,
    floor_term: Term,
    last: Index,
    /// (first index, term), ascending in both; the first run starts at `floor + 1`.
    runs: Vec<(Index, Term)>,
    /// Configuration entries above the floor.
    configurations: BTreeSet<Index>,
}

impl LogShape {
    /// An empty log after the given position: the entry at `floor` was dropped, its term is known.
    pub fn new(floor: Index, floor_term: Term) -> Self {
        Self {
            floor,
            floor_term,
            last: floor,
            runs: Vec::new(),
            configurations: BTreeSet::new(),
        }
    }

    /// The index before the first entry.
    pub fn floor(&self) -> Index {
        self.floor
    }

    /// The index of the last entry, or the floor of an empty log.
    pub fn last(&self) -> Index {
        self.last
    }

    /// The term at the last index.
    pub fn last_term(&self) -> Term {
        self.runs.last().map_or(self.floor_term, |(_, term)| *term)
    }

    /// The term at `index`, if it is the floor or in the log.
    pub fn term(&self, index: Index) -> Option<Term> {
        if index < self.floor || index > self.last {
            return None;
        }
        let run = self.runs.partition_point(|(first, _)| *first <= index);
        Some(if run == 0 {
            self.floor_term
        } else {
            self.runs[run - 1].1
        })
    }

    /// The first index of the run of equal terms that holds `index`, which is above the floor
    /// and in the log; otherwise `index` itself.
    pub(super) fn run_start(&self, index: Index) -> Index {
        let run = self.runs.partition_point(|(first, _)| *first <= index);
        if run == 0 {
            index
        } else {
            self.runs[run - 1].0
        }
    }

    /// Adds an entry. One at or below the last index replaces it and all that follow, as in
    /// the file that the log is kept in.
    pub fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        let broken = |reason: &str| Error::Restored(format!("entry {}: {reason}", entry.index));
        if entry.index <= self.floor || entry.index > self.last + 1 {
            return Err(broken("does not follow the log before it"));
        }
        self.truncate(entry.index);
        if entry.term < self.last_term() {
            return Err(broken("is of an older term than the entry before it"));
        }
        if entry.term != self.last_term() || self.runs.is_empty() {
            self.runs.push((entry.index, entry.term));
        }
        if entry.checked_kind()? == EntryKind::Configuration {
            self.configurations.insert(entry.index);
        }
        self.last = entry.index;
        Ok(())
    }

    /// Forgets `from` and all that follows.
    pub fn truncate(&mut self, from: Index) {
        if from > self.last {
            return;
        }
        let from = from.max(self.floor + 1);
        self.runs
            .truncate(self.runs.partition_point(|(first, _)| *first < from));
        self.configurations.split_off(&from);
        self.last = from - 1;
    }

    /// Forgets everything up to and including `index`, which becomes the floor. Nothing
    /// happens if `index` is not in the log.
    pub fn drop_through(&mut self, index: Index) {
        let Some(term) = self.term(index) else { return };
        let past = self.runs.partition_point(|(first, _)| *first <= index + 1);
        // The run that holds index + 1 keeps its term and starts there.
        if past > 0 {
            self.runs.drain(..past - 1);
            self.runs[0].0 = index + 1;
        }
        if index == self.last {
            self.runs.clear();
        }
        self.configurations = self.configurations.split_off(&(index + 1));
        self.floor = index;
        self.floor_term = term;
    }

    /// The configuration entries above `index`, in order.
    pub fn configurations_after(&self, index: Index) -> impl DoubleEndedIterator<Item = Index> {
        self.configurations
            .range(index.saturating_add(1)..)
            .copied()
    }
}
