//! Which groups of watchers match a key. Independent of the members of a group.
//!
//! Groups of single keys are found by key, others in sorted lists of a bounded length with the largest end below
//! each place (interval trees without pointers).

use std::collections::BTreeMap;

use crate::mutants::mutant;
use bytes::Bytes;

use super::record::Record;
use super::span::Span;

/// The most groups in one list, which is put together anew for each change of it.
const PART: usize = if cfg!(test) { 8 } else { 256 };

/// What the watchers of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    pub(super) prev_kv: bool,
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
}

impl GroupKey {
    pub(super) fn span(&self) -> Span<'_> {
        Span::new(&self.key, &self.range_end)
    }

    pub(super) fn wants(&self, record: &Record) -> bool {
        let left_out = if record.tombstone {
            self.no_delete
        } else {
            self.no_put
        };
        !left_out || mutant!(FilterIgnored)
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct GroupIndex {
    single: BTreeMap<Bytes, Vec<GroupKey>>,
    spans: SpanIndex,
}

impl GroupIndex {
    pub(super) fn insert(&mut self, key: GroupKey) {
        if key.range_end.is_empty() {
            self.single.entry(key.key.clone()).or_default().push(key);
        } else {
            self.spans.insert(key);
        }
    }

    pub(super) fn remove(&mut self, key: &GroupKey) {
        if !key.range_end.is_empty() {
            self.spans.remove(key);
        } else if let Some(keys) = self.single.get_mut(&key.key) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.single.remove(&key.key);
            }
        }
    }

    /// Finds every group whose span holds a key.
    pub(super) fn each<'a>(&'a self, key: &[u8], found: &mut impl FnMut(&'a GroupKey)) {
        if let Some(keys) = self.single.get(key) {
            keys.iter().for_each(&mut *found);
        }
        self.spans.stab(key, found);
    }
}

/// Groups of spans, sorted by their first keys: lists of them, none empty.
#[derive(Debug, Default)]
struct SpanIndex {
    parts: Vec<Part>,
}

impl SpanIndex {
    /// The place of the list that has a group, or gets it.
    fn place(&self, key: &GroupKey) -> usize {
        let after = self.parts.partition_point(|part| part.sorted[0] <= *key);
        after.saturating_sub(1)
    }

    fn insert(&mut self, key: GroupKey) {
        let at = self.place(&key);
        let Some(part) = self.parts.get_mut(at) else {
            self.parts.push(Part::new(vec![key]));
            return;
        };
        part.insert(key);
        if part.sorted.len() > PART {
            let upper = part.sorted.split_off(PART / 2);
            part.rebuild();
            self.parts.insert(at + 1, Part::new(upper));
        }
    }

    fn remove(&mut self, key: &GroupKey) {
        let at = self.place(key);
        let Some(part) = self.parts.get_mut(at) else {
            return;
        };
        part.remove(key);
        if part.sorted.is_empty() {
            self.parts.remove(at);
        }
    }

    /// Finds every group whose span holds a key.
    fn stab<'a>(&'a self, key: &[u8], found: &mut impl FnMut(&'a GroupKey)) {
        let begun = self
            .parts
            .iter()
            .take_while(|part| part.sorted[0].key[..] <= *key);
        begun.for_each(|part| Part::stab(&part.sorted, &part.ends, key, found));
    }
}

/// Some of the groups.
#[derive(Debug)]
struct Part {
    sorted: Vec<GroupKey>,
    /// For the implicit balanced tree over `sorted`: the largest end below each place; `None`
    /// is open-ended.
    ends: Vec<Option<Bytes>>,
}

impl Part {
    fn new(sorted: Vec<GroupKey>) -> Part {
        let ends = Vec::new();
        let mut part = Part { sorted, ends };
        part.rebuild();
        part
    }

    fn insert(&mut self, key: GroupKey) {
        let at = self.sorted.partition_point(|other| *other < key);
        self.sorted.insert(at, key);
        self.rebuild();
    }

    fn remove(&mut self, key: &GroupKey) {
        if let Ok(at) = self.sorted.binary_search(key) {
            self.sorted.remove(at);
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        self.ends = vec![None; self.sorted.len()];
        if !self.sorted.is_empty() {
            Self::fill(&self.sorted, &mut self.ends);
        }
    }

    /// Notes at the middle the largest end of the whole part; `Some` of it if all are bounded.
    fn fill(part: &[GroupKey], ends: &mut [Option<Bytes>]) -> Option<Bytes> {
        let middle = part.len() / 2;
        let own = match &part[middle].range_end[..] {
            [0] => None,
            _ => Some(part[middle].range_end.clone()),
        };
        let (left, rest) = ends.split_at_mut(middle);
        let (here, right) = rest.split_at_mut(1);
        let mut largest = own;
        for (part, ends) in [(&part[..middle], left), (&part[middle + 1..], right)] {
            if !part.is_empty() {
                let end = Self::fill(part, ends);
                largest = largest.zip(end).map(|(a, b)| a.max(b));
            }
        }
        here[0].clone_from(&largest);
        largest
    }

    /// Finds every group of a part of the tree whose span holds a key.
    fn stab<'a>(
        part: &'a [GroupKey],
        ends: &[Option<Bytes>],
        key: &[u8],
        found: &mut impl FnMut(&'a GroupKey),
    ) {
        if part.is_empty() {
            return;
        }
        let middle = part.len() / 2;
        if ends[middle].as_ref().is_some_and(|end| end[..] <= *key) {
            return;
        }
        Self::stab(&part[..middle], &ends[..middle], key, found);
        if part[middle].key[..] > *key {
            return;
        }
        if part[middle].span().contains(key) {
            found(&part[middle]);
        }
        Self::stab(&part[middle + 1..], &ends[middle + 1..], key, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(key: usize, end: usize) -> GroupKey {
        let range_end = match end {
            0 => Bytes::from_static(&[0]),
            end => Bytes::from(format!("{end:02}")),
        };
        let key = Bytes::from(format!("{key:02}"));
        GroupKey {
            key,
            range_end,
            prev_kv: false,
            no_put: false,
            no_delete: false,
        }
    }

    #[test]
    fn key_finds_exactly_the_spans_containing_it() {
        let mut index = GroupIndex::default();
        let mut all = Vec::new();
        for number in 0..40 {
            let key = number * 7 % 40;
            let end = if number % 9 == 0 {
                0
            } else {
                key + 1 + number * 5 % 13
            };
            all.push(group(key, end));
        }
        for (round, added) in all.iter().enumerate() {
            index.insert(added.clone());
            if round % 3 == 2 {
                index.remove(&all[round - 1]);
            }
        }
        let left = |at: usize| at % 3 != 1 || at + 1 >= all.len();
        for key in 0..60 {
            let key = format!("{key:02}");
            let mut found = Vec::new();
            index.each(key.as_bytes(), &mut |group| found.push(group.clone()));
            let kept = all
                .iter()
                .enumerate()
                .filter(|(at, _)| left(*at))
                .map(|(_, group)| group);
            let mut expected: Vec<GroupKey> = kept
                .filter(|group| group.span().contains(key.as_bytes()))
                .cloned()
                .collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "at {key}");
        }
    }
}
