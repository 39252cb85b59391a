//! The names of an archive's objects. Pure.

/// Entries of the log, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// Index of the first one.
    pub first: u64,
    /// Index of the last one; never before the first.
    pub last: u64,
}

/// The folder of a cluster.
pub(super) fn folder(cluster_id: u64) -> String {
    format!("{cluster_id:016x}")
}

/// The cluster of a folder.
pub(super) fn cluster(folder: &str) -> Option<u64> {
    let id = u64::from_str_radix(folder, 16).ok()?;
    // One way to write it.
    (self::folder(id) == folder).then_some(id)
}

impl Range {
    /// The range of these indexes; `None` if it has no entry.
    #[must_use]
    pub fn new(first: u64, last: u64) -> Option<Range> {
        (first > 0 && first <= last && last < u64::MAX).then_some(Range { first, last })
    }

    /// The name of its object: sorts by the first index.
    pub(super) fn name(self) -> String {
        format!("{:020}-{:020}", self.first, self.last)
    }

    /// The range of an object's name; `None` for what is not ours.
    pub(super) fn parse(name: &str) -> Option<Range> {
        let (first, last) = name.split_once('-')?;
        let range = Range::new(first.parse().ok()?, last.parse().ok()?)?;
        (range.name() == name).then_some(range)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first == self.last {
            true => write!(to, "entry {}", self.first),
            false => write!(to, "entries {} to {}", self.first, self.last),
        }
    }
}
