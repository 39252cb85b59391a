//! A key with all its revisions: the newest one itself, and of those that it replaced where they are in the log of
//! revisions, in a few bytes each. Never decides what is forgotten, only how, and never looks into the log.
//!
//! A million keys with three old revisions each have three million of them: a pointer for each, with the piece of memory
//! behind it, was what a history took most of.

use std::ops::Deref;
use std::sync::Arc;

use arrayvec::ArrayVec;
use prost::encoding::decode_varint;
use triomphe::ThinArc;

use super::Revision;
use super::record::Record;
use super::tree::Item;
use crate::mutants::mutant;

/// Marks that take so many bytes become a run: some sixty of them.
const RUN: usize = 192;
/// The most bytes that a mark takes: two numbers of ten.
const MOST_MARK: usize = 20;

/// An older revision of a key, which is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Its position in the history of the store.
    pub(super) place: (Revision, u32),
    pub(super) tombstone: bool,
}

/// A revision of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// The newest one, or the one that a compaction kept.
    Record(&'a Record),
    /// One that is in the log.
    Mark(Mark),
}

impl Found<'_> {
    pub(super) fn place(&self) -> (Revision, u32) {
        match self {
            Found::Record(record) => record.place(),
            Found::Mark(mark) => mark.place,
        }
    }

    pub(super) fn main(&self) -> Revision {
        self.place().0
    }

    pub(super) fn tombstone(&self) -> bool {
        match self {
            Found::Record(record) => record.tombstone,
            Found::Mark(mark) => mark.tombstone,
        }
    }
}

/// A record of a state.
#[derive(Clone, Debug)]
pub(super) enum Seen<'a> {
    /// That of its tree.
    Tree(&'a Record),
    /// That of its log, or a copy of what is packed there.
    Log(Record),
}

impl Deref for Seen<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        match self {
            Seen::Tree(record) => record,
            Seen::Log(record) => record,
        }
    }
}

/// A key with every revision of it that has not been reclaimed. Cloning is O(1).
#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    newest: Record,
    older: Option<Older>,
}

/// The revisions below the newest one, oldest first: first the one that is not in the log any more, if there is one, then full runs, then
/// up to so many marks as bytes.
#[derive(Clone, Debug)]
struct Older(ThinArc<Before, u8>);

#[derive(Clone, Debug)]
struct Before {
    base: Option<Record>,
    runs: Option<Arc<Runs>>,
}

/// Of a key with a long history. What leaves it leaves the list as it is, until half of it has left.
#[derive(Clone, Debug, Default)]
struct Runs {
    /// What is not above this place has left.
    left: (Revision, u32),
    /// So many whole ones of the list.
    gone: usize,
    list: Arc<Vec<Run>>,
}

/// Marks as bytes, with the first one besides.
#[derive(Clone, Debug)]
struct Run(ThinArc<(Revision, u32), u8>);

impl Item for KeyEntry {
    fn key(&self) -> &[u8] {
        self.newest.key()
    }

    fn live(&self) -> bool {
        !self.newest.tombstone
    }

    fn modified(&self) -> Revision {
        self.newest.main
    }

    fn load(&self) {
        self.newest.load();
    }
}

impl KeyEntry {
    pub(super) fn new(first: Record) -> Self {
        KeyEntry {
            newest: first,
            older: None,
        }
    }

    /// The same with older revisions, oldest first: one that is not in the log, and those that are.
    pub(super) fn with_older(newest: Record, base: Option<Record>, marks: &[Mark]) -> Self {
        let older = Older::loaded(base, marks);
        KeyEntry { newest, older }
    }

    pub(super) fn newest(&self) -> &Record {
        &self.newest
    }

    /// Adds a revision above all others. `logged`: the newest one until now is in the log.
    pub(super) fn push(&mut self, record: Record, logged: bool) {
        let last = std::mem::replace(&mut self.newest, record);
        last.supersede();
        let older = self.older.take();
        self.older = Some(match logged {
            true => Older::pushed(older, Mark::of(&last)),
            false => Older::of(Some(last), None, &[]),
        });
    }

    /// The newest revision not above `revision`, a tombstone included.
    #[inline]
    pub(super) fn at(&self, revision: Revision) -> Option<Found<'_>> {
        if self.newest.main <= revision {
            return Some(Found::Record(&self.newest));
        }
        self.older.as_ref()?.at(revision)
    }

    /// The key as a reader at `revision` sees it.
    #[inline]
    pub(super) fn live_at(&self, revision: Revision) -> Option<Found<'_>> {
        if self.newest.main <= revision {
            return (!self.newest.tombstone).then_some(Found::Record(&self.newest));
        }
        self.at(revision).filter(|found| !found.tombstone())
    }

    /// A record leaves the log with all before it: the revisions below it go, and it goes itself if `inclusive`, but never the
    /// newest.
    pub(super) fn leaves_log(&mut self, record: &Record, inclusive: bool) {
        let Some(older) = self.older.take() else {
            return;
        };
        let is_newest = record.place() == self.newest.place();
        let kept = !inclusive && !is_newest && !mutant!(KeptRevisionLost);
        let base = kept.then(|| record.clone());
        self.older = older.above(record.place(), base);
    }

    /// Whether it has one that a compaction kept, below this place.
    pub(super) fn has_base_below(&self, place: (Revision, u32)) -> bool {
        let base = self.own_records().next();
        base.is_some_and(|base| base.place() < place && base.place() != self.newest.place())
    }

    /// Forgets the one that a compaction kept.
    pub(super) fn forget_base(&mut self) {
        let Some(older) = self.older.take() else {
            return;
        };
        let (runs, marks) = (older.before().runs.clone(), &older.0.slice);
        let nothing = runs.is_none() && marks.is_empty();
        self.older = (!nothing).then(|| Older::of(None, runs, marks));
    }

    /// Those that have records of their own: the one that a compaction kept, and the newest.
    pub(super) fn own_records(&self) -> impl Iterator<Item = &Record> {
        let base = self.older.as_ref();
        let base = base.and_then(|older| older.before().base.as_ref());
        base.into_iter().chain(std::iter::once(&self.newest))
    }

    /// Every revision, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Found<'_>> {
        let older = self.older.iter().flat_map(Older::all);
        older.chain(std::iter::once(Found::Record(&self.newest)))
    }
}

impl Older {
    fn of(base: Option<Record>, runs: Option<Arc<Runs>>, marks: &[u8]) -> Self {
        Older(ThinArc::from_header_and_slice(Before { base, runs }, marks))
    }

    fn before(&self) -> &Before {
        &self.0.header.header
    }

    /// Those that are in no run.
    fn rest(&self) -> Marks<'_> {
        Marks::of(&self.0.slice)
    }

    /// What pushing one after the other would give.
    fn loaded(base: Option<Record>, marks: &[Mark]) -> Option<Self> {
        let (mut bytes, mut first) = (ArrayVec::<u8, { RUN + MOST_MARK }>::new(), None);
        let mut list = Vec::new();
        for mark in marks {
            if let Some(place) = first.take_if(|_| bytes.len() >= RUN) {
                list.push(Run(ThinArc::from_header_and_slice(place, &bytes)));
                bytes.clear();
            }
            let (main, _) = *first.get_or_insert(mark.place);
            let relative = if bytes.is_empty() { 0 } else { main };
            bytes.extend(mark.bytes(relative));
        }
        let runs = (!list.is_empty()).then(|| Runs {
            list: Arc::new(list),
            ..Runs::default()
        });
        let nothing = base.is_none() && marks.is_empty();
        (!nothing).then(|| Self::of(base, runs.map(Arc::new), &bytes))
    }

    fn pushed(older: Option<Self>, mark: Mark) -> Self {
        let Some(older) = older else {
            return Self::of(None, None, &mark.bytes(0));
        };
        let Before { base, runs } = older.before().clone();
        let Some(first) = older.rest().next() else {
            return Self::of(base, runs, &mark.bytes(0));
        };
        let mut bytes: ArrayVec<u8, { RUN + MOST_MARK }> = ArrayVec::new();
        let fits = older.0.slice.len() < RUN
            && bytes.try_extend_from_slice(&older.0.slice).is_ok()
            && bytes
                .try_extend_from_slice(&mark.bytes(first.place.0))
                .is_ok();
        if fits {
            return Self::of(base, runs, &bytes);
        }
        // What is here moves to a run, and the new one is the first again.
        let full = Run(ThinArc::from_header_and_slice(first.place, &older.0.slice));
        drop(older);
        let mut runs = runs.unwrap_or_default();
        Arc::make_mut(&mut Arc::make_mut(&mut runs).list).push(full);
        Self::of(base, Some(runs), &mark.bytes(0))
    }

    fn at(&self, revision: Revision) -> Option<Found<'_>> {
        let before = self.before();
        let fits = |mark: &Mark| mark.place.0 <= revision;
        let marks = self.rest().take_while(fits).last();
        let marks = marks.or_else(|| before.runs.as_ref()?.at(revision));
        if let Some(mark) = marks {
            return Some(Found::Mark(mark));
        }
        let base = before.base.as_ref();
        base.filter(|base| base.main <= revision).map(Found::Record)
    }

    /// What lies above a place, and this before it.
    fn above(&self, place: (Revision, u32), base: Option<Record>) -> Option<Self> {
        let first = self.rest().next();
        if let Some(first) = first.filter(|first| first.place > place) {
            let runs = self.before().runs.as_ref();
            let runs = runs.and_then(|runs| runs.above(place, first.place));
            return Some(Self::of(base, runs.map(Arc::new), &self.0.slice));
        }
        let (mut bytes, mut first) = (Vec::new(), None);
        for mark in self.rest().filter(|mark| mark.place > place) {
            bytes.extend(mark.bytes(first.unwrap_or_default()));
            first.get_or_insert(mark.place.0);
        }
        let nothing = base.is_none() && bytes.is_empty();
        (!nothing).then(|| Self::of(base, None, &bytes))
    }

    fn all(&self) -> impl Iterator<Item = Found<'_>> {
        let before = self.before();
        let runs = before.runs.iter().flat_map(|runs| runs.marks());
        let marks = runs.chain(self.rest()).map(Found::Mark);
        before.base.iter().map(Found::Record).chain(marks)
    }
}

impl Runs {
    fn list(&self) -> &[Run] {
        &self.list[self.gone..]
    }

    fn marks(&self) -> impl Iterator<Item = Mark> {
        let marks = self.list().iter().flat_map(Run::marks);
        marks.filter(|mark| mark.place > self.left)
    }

    fn at(&self, revision: Revision) -> Option<Mark> {
        let list = self.list();
        let below = list.partition_point(|run| run.first().0 <= revision);
        let marks = list[..below].last()?.marks();
        let mark = marks.take_while(|mark| mark.place.0 <= revision).last();
        mark.filter(|mark| mark.place > self.left)
    }

    /// What lies above a place; `next` is what lies behind all of them.
    fn above(&self, place: (Revision, u32), next: (Revision, u32)) -> Option<Runs> {
        let list = self.list();
        let ends = list[1..].iter().map(Run::first).chain([next]);
        let gone = self.gone + ends.take_while(|end| *end <= place).count();
        let mut runs = Runs {
            left: place,
            gone,
            list: Arc::clone(&self.list),
        };
        if gone * 2 > runs.list.len() {
            runs.list = Arc::new(runs.list[gone..].to_vec());
            runs.gone = 0;
        }
        (!runs.list.is_empty()).then_some(runs)
    }
}

impl Run {
    fn first(&self) -> (Revision, u32) {
        self.0.header.header
    }

    fn marks(&self) -> Marks<'_> {
        Marks::of(&self.0.slice)
    }
}

impl Mark {
    pub(super) fn of(record: &Record) -> Self {
        Mark {
            place: record.place(),
            tombstone: record.tombstone,
        }
    }

    /// Its bytes behind marks of which the first has this main revision; 0: it is the first.
    fn bytes(self, first: Revision) -> ArrayVec<u8, MOST_MARK> {
        let (main, sub) = self.place;
        // Revisions are below 2^60.
        let ahead = main.wrapping_sub(first).cast_unsigned() << 2;
        let flags = u64::from(self.tombstone) << 1 | u64::from(sub != 0);
        let mut bytes = ArrayVec::new();
        put_number(ahead | flags, &mut bytes);
        if sub != 0 {
            put_number(sub.into(), &mut bytes);
        }
        bytes
    }
}

/// Seven bits in each byte, as protobuf has it.
fn put_number(mut number: u64, into: &mut ArrayVec<u8, MOST_MARK>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Marks in their bytes.
#[derive(Clone, Debug)]
struct Marks<'a> {
    bytes: &'a [u8],
    first: Revision,
}

impl<'a> Marks<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Marks { bytes, first: 0 }
    }
}

impl Iterator for Marks<'_> {
    type Item = Mark;

    fn next(&mut self) -> Option<Mark> {
        // It fails at the end alone: all of them were put there whole.
        let head = decode_varint(&mut self.bytes).ok()?;
        let sub = match head & 1 {
            0 => 0,
            _ => decode_varint(&mut self.bytes).ok()? as u32,
        };
        let main = self.first + (head >> 2).cast_signed();
        if self.first == 0 {
            self.first = main;
        }
        Some(Mark {
            place: (main, sub),
            tombstone: head & 2 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of each kind: far and near ones, and several at one revision.
    fn places(count: u32) -> Vec<(Revision, u32)> {
        let mut main = 1;
        let place = |number: u32| {
            main += [1, 1 << 30, 0, 3, 200, 1 << 20][number as usize % 6];
            (main, if number % 6 == 2 { 70_000 } else { 0 })
        };
        (0..count).map(place).collect()
    }

    fn record(place: (Revision, u32)) -> Record {
        use crate::store::record::Details;
        use crate::store::value::Value;
        match place.0 % 5 {
            0 => Record::tombstone(b"k", place),
            _ => {
                let value = Value::new(bytes::Bytes::new());
                Record::new(b"k", value, Details::default(), place)
            }
        }
    }

    fn entry(places: &[(Revision, u32)]) -> KeyEntry {
        let mut entry = KeyEntry::new(record(places[0]));
        places[1..]
            .iter()
            .for_each(|place| entry.push(record(*place), true));
        entry
    }

    fn all(entry: &KeyEntry) -> Vec<((Revision, u32), bool)> {
        let all = entry.records();
        all.map(|found| (found.place(), found.tombstone()))
            .collect()
    }

    /// A key that is loaded at once has the revisions, and the runs, of one that was written.
    #[test]
    fn loaded_key_is_the_one_that_was_written() {
        for count in [1, 2, 3, 60, 61, 62, 120, 300] {
            let places = places(count);
            let written = entry(&places);
            let (last, older) = places.split_last().expect("at least one");
            let marks: Vec<Mark> = older.iter().map(|at| Mark::of(&record(*at))).collect();
            let loaded = KeyEntry::with_older(record(*last), None, &marks);
            assert_eq!(all(&loaded), all(&written));
            let shape = |entry: &KeyEntry| {
                let older = entry.older.as_ref()?;
                let runs = older
                    .before()
                    .runs
                    .as_ref()
                    .map_or(0, |runs| runs.list().len());
                Some((runs, older.0.slice.to_vec()))
            };
            assert_eq!(shape(&loaded), shape(&written), "of {count}");
            for (main, _) in &places {
                let found = |entry: &KeyEntry| entry.at(*main).map(|found| found.place());
                assert_eq!(found(&loaded), found(&written));
            }
            let base = KeyEntry::with_older(record(*last), Some(record((0, 1))), &marks);
            assert_eq!(all(&base)[0].0, (0, 1));
            assert_eq!(&all(&base)[1..], &all(&written)[..]);
        }
    }

    #[test]
    fn revision_is_found_across_runs() {
        let places = places(300);
        let entry = entry(&places);
        assert!(entry.at(1).is_none());
        for (main, _) in &places {
            for revision in [main - 1, *main, main + 1] {
                let expected = places.iter().rfind(|place| place.0 <= revision);
                let found = entry.at(revision).map(|found| found.place());
                assert_eq!(found, expected.copied(), "at {revision}");
                let live = entry.live_at(revision).map(|found| found.main());
                assert_eq!(
                    live,
                    found.map(|found| found.0).filter(|main| main % 5 != 0)
                );
            }
        }
        assert_eq!(
            entry.at(i64::MAX).map(|found| found.place()),
            places.last().copied()
        );
    }

    /// Whatever leaves the log, in one step or in many, what lies above it stays, and the last one that left before it, if that
    /// is no tombstone and not the newest.
    #[test]
    fn what_left_the_log_is_kept_below_what_is_in_it() {
        let places = places(300);
        for step in [1, 2, 31, 64, 200] {
            let mut entry = entry(&places);
            for (at, place) in places.iter().enumerate().step_by(step) {
                let shared = entry.clone();
                let before = all(&shared);
                let left = record(*place);
                entry.leaves_log(&left, left.tombstone);
                let kept = places[at..].iter().map(|place| (*place, place.0 % 5 == 0));
                let skipped = left.tombstone && at + 1 < places.len();
                let kept: Vec<_> = kept.skip(usize::from(skipped)).collect();
                assert_eq!(all(&entry), kept, "{at} by {step}");
                assert_eq!(all(&shared), before, "a clone is not touched");
                let is_base = matches!(entry.records().next(), Some(Found::Record(_)));
                let last = at + 1 == places.len();
                assert_eq!(is_base, !left.tombstone || last || kept.len() == 1);
            }
        }
    }

    /// A revision that was not in the log any more when it was replaced.
    #[test]
    fn revision_that_is_not_in_the_log_is_kept_as_it_is() {
        let mut entry = KeyEntry::new(record((7, 0)));
        entry.push(record((8, 0)), false);
        (9..200).for_each(|main| entry.push(record((main, 0)), true));
        assert_eq!(entry.records().count(), 193);
        assert!(matches!(entry.at(7), Some(Found::Record(found)) if found.main == 7));
        assert!(matches!(entry.at(8), Some(Found::Mark(found)) if found.place == (8, 0)));
        entry.leaves_log(&record((8, 0)), false);
        assert_eq!(entry.at(7).map(|found| found.main()), None);
        assert!(matches!(entry.at(8), Some(Found::Record(found)) if found.main == 8));
    }

    /// Of a hundred thousand revisions the list of runs was copied for each that left the log.
    #[test]
    fn long_history_is_rarely_copied() {
        fn list(entry: &KeyEntry) -> Option<&Arc<Vec<Run>>> {
            let runs = entry.older.as_ref()?.before().runs.as_ref();
            runs.map(|runs| &runs.list)
        }
        let count = 20_000;
        let mut entry = KeyEntry::new(record((1, 0)));
        let (mut copied, mut left) = (0, 0);
        for main in 2..2 * count {
            // As a view that was published.
            let shared = entry.clone();
            if main < count {
                entry.push(record((main, 0)), true);
            } else {
                left += 1;
                entry.leaves_log(&record((left, 0)), false);
            }
            let same = match (list(&shared), list(&entry)) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            copied += usize::from(!same);
            let bytes = entry.older.as_ref().map_or(0, |older| older.0.slice.len());
            assert!(bytes <= RUN + MOST_MARK);
        }
        assert!(copied < 600, "{copied} times");
    }

    /// It took sixteen for the list, and eight for each and more, before.
    #[test]
    fn few_marks_take_three_words_and_their_bytes() {
        assert_eq!(size_of::<KeyEntry>(), 16);
        assert_eq!(size_of::<Before>(), 16);
        let first = 3_000_000;
        let entry = entry(&[(first, 0), (first + 900_000, 0), (first + 1_900_000, 0)]);
        let older = entry.older.expect("two of them");
        assert!(older.0.slice.len() <= 11, "{:?}", &older.0.slice);
    }
}
