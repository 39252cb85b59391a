//! What is known of a checkpoint that was written, for the next one: of which state it is, and how much of each file of values
//! it needs. Never knows where the checkpoint is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Revision;
use super::value::ValueFile;
use super::view::View;

/// What all states of one store share, and no others have: those that came from it by commands.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// How many of its values were healed.
    heals: AtomicU64,
    /// The checkpoint that it began with.
    imported: Option<Imported>,
}

/// A checkpoint that a store began with.
#[derive(Debug)]
pub(super) struct Imported {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) files: UsedFiles,
    /// Bytes of the longest value that is in it and not in a file.
    pub(super) longest: usize,
}

impl Origin {
    pub(super) fn of(imported: Imported) -> Self {
        Origin {
            heals: AtomicU64::new(0),
            imported: Some(imported),
        }
    }

    /// A value was healed: it is not where it was.
    pub(super) fn healed(&self) {
        self.heals.fetch_add(1, Ordering::SeqCst);
    }
}

/// A state of a store, and which of its values were healed until then: a state of a later moment with the same heals has each revision of this
/// one that it has as this one has it, but for values that were moved.
#[derive(Clone, Debug)]
pub struct Moment {
    origin: Arc<Origin>,
    heals: u64,
    pub(super) revision: Revision,
    compacted: Revision,
}

impl View {
    /// This state, and what was healed until now. To be asked for before any of it is read.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let origin = Arc::clone(&self.state.origin);
        Moment {
            heals: origin.heals.load(Ordering::SeqCst),
            origin,
            revision: self.revision(),
            compacted: self.compacted(),
        }
    }

    /// The checkpoint that its store began with, if it began with one that has each value of at least `from` bytes in a file.
    #[must_use]
    pub fn imported(&self, from: usize) -> Option<Written> {
        let origin = &self.state.origin;
        let imported = origin.imported.as_ref()?;
        (imported.longest < from).then(|| Written {
            moment: Moment {
                origin: Arc::clone(origin),
                heals: 0,
                revision: imported.revision,
                compacted: imported.compacted,
            },
            files: imported.files.clone(),
            new: None,
        })
    }
}

impl Moment {
    /// The revision of the last compaction before it.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Whether it is of the same store, not older, and nothing was healed in between.
    pub(super) fn follows(&self, before: &Moment) -> bool {
        let heals = self.heals == before.heals;
        Arc::ptr_eq(&self.origin, &before.origin) && heals && before.revision <= self.revision
    }
}

/// How much of a file is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Bytes of the values in it that the state has.
    pub(super) bytes: u64,
    /// Bytes of all of it.
    pub(super) length: u64,
}

/// The files of values that a state needs, by number.
#[derive(Clone, Debug, Default)]
pub struct UsedFiles(pub(super) BTreeMap<u64, Used>);

impl UsedFiles {
    /// These, and so many bytes of another one.
    pub fn add(&mut self, file: &ValueFile, bytes: u64) {
        let used = self.0.entry(file.number()).or_default();
        used.bytes += bytes;
        used.length = file.length();
    }

    /// These, and those of others that are not among them.
    #[must_use]
    pub fn and(mut self, others: &UsedFiles) -> Self {
        for (number, used) in &others.0 {
            self.0.entry(*number).or_insert(*used);
        }
        self
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of those, the files that are worth to be written again: those of which less than half is needed, and the
    /// smallest of more than `most`.
    #[must_use]
    pub fn worn(&self, most: usize) -> BTreeSet<u64> {
        let (worn, mut others): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .partition(|(_, used)| used.bytes * 2 < used.length);
        others.sort_unstable_by_key(|(_, used)| used.bytes);
        let too_many = others.len().saturating_sub(most);
        let smallest = others.into_iter().take(too_many);
        let numbers = worn.into_iter().chain(smallest);
        numbers.map(|(number, _)| *number).collect()
    }
}

/// A checkpoint that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Of which state.
    pub moment: Moment,
    /// The files in which it has values.
    pub files: UsedFiles,
    /// The one of these that was written for it.
    pub new: Option<u64>,
}

impl Written {
    /// The files that are worth to be written again, but for the one that has just been written.
    #[must_use]
    pub fn worn(&self, most: usize) -> BTreeSet<u64> {
        let mut older = self.files.clone();
        if let Some(new) = self.new {
            older.0.remove(&new);
        }
        older.worn(most)
    }
}

/// Counts bytes of values while rows are written or read.
#[derive(Debug, Default)]
pub(super) struct Counted {
    files: Vec<(u64, Used)>,
    /// Where among these the last one was found: neighbours are mostly in one.
    last: usize,
}

impl Counted {
    /// Nothing yet, in these files.
    pub(super) fn new(files: UsedFiles) -> Self {
        let none = |(number, used)| (number, Used { bytes: 0, ..used });
        Counted {
            files: files.0.into_iter().map(none).collect(),
            last: 0,
        }
    }

    /// A value of so many bytes in a file; false if that is not one of them.
    pub(super) fn add(&mut self, file: u64, bytes: u64) -> bool {
        let is_it = |(number, _): &(u64, Used)| *number == file;
        if !self.files.get(self.last).is_some_and(is_it) {
            let Some(found) = self.files.iter().position(is_it) else {
                return false;
            };
            self.last = found;
        }
        self.files[self.last].1.bytes += bytes;
        true
    }

    /// The files in which there are any.
    pub(super) fn used(self) -> UsedFiles {
        let used = self.files.into_iter().filter(|(_, used)| used.bytes > 0);
        UsedFiles(used.collect())
    }
}
