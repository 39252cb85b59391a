//! The log of revisions since the last compaction, in the order they were written. It serves
//! watchers, hashes and checkpoints, and it is where the older revisions of a key are. Cloning is cheap: full chunks are shared.
//!
//! Never decides how an entry of a full chunk is held.

use std::sync::Arc;

use super::Revision;
use super::chunk::{CHUNK, Held, Sealed};
use super::record::Record;
use super::span::Span;
use super::unkeyed::Unkeyed;

/// Chunks in a group.
const GROUP: usize = 128;
/// So often a chunk is looked for where it should be; from then on the rest is halved.
const GUESSES: usize = 4;

/// A record, and how many bytes of the store compaction frees once everything up to and
/// including this entry lies below the compacted revision.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) record: Record,
    pub(super) frees: u64,
}

/// The revision of an entry of which there may be no more than that ([`Entries::within`]).
pub(super) fn revision_of(entry: &Result<LogEntry, Revision>) -> Revision {
    match entry {
        Ok(entry) => entry.record.main,
        Err(main) => *main,
    }
}

impl LogEntry {
    /// It, if its key is in a span, else its revision.
    pub(super) fn within(&self, span: Span<'_>) -> Result<LogEntry, Revision> {
        match span.contains(self.record.key()) {
            true => Ok(self.clone()),
            false => Err(self.record.main),
        }
    }
}

/// A full chunk, and the place of its first entry: a search must not look into each chunk that it passes. `None` once all
/// its entries have left.
#[derive(Clone, Debug)]
struct Chunk {
    first: (Revision, u32),
    sealed: Option<Arc<Sealed>>,
}

/// Entries in order of their places: groups of full chunks, then full chunks, then the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct RevisionLog {
    groups: Arc<Vec<Arc<Vec<Chunk>>>>,
    chunks: Arc<Vec<Chunk>>,
    tail: Arc<Vec<LogEntry>>,
    /// Entries at the front of the first group or chunk that have been dropped.
    skip: usize,
    /// Position in the history of the store of the first entry, if there is one.
    front: Option<(Revision, u32)>,
}

/// Where an entry is held.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// In a record that nobody packs.
    Record,
    /// In a full chunk, at this number.
    Chunk(Arc<Sealed>, usize),
}

impl RevisionLog {
    /// Adds an entry above all others.
    pub(super) fn push(&mut self, entry: LogEntry) {
        self.front.get_or_insert_with(|| entry.record.place());
        let tail = Arc::make_mut(&mut self.tail);
        tail.push(entry);
        if tail.len() < CHUNK {
            return;
        }
        let full = std::mem::take(tail);
        let first = full.first().map(|entry| entry.record.place());
        self.push_chunk(first.unwrap_or_default(), Sealed::of(full));
    }

    /// Adds a full chunk above all entries, of which this is the first place. There is no entry that is not in a full chunk.
    pub(super) fn push_chunk(&mut self, first: (Revision, u32), sealed: Sealed) {
        debug_assert!(self.tail.is_empty(), "the chunk would not be in its order");
        self.front.get_or_insert(first);
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.push(Chunk {
            first,
            sealed: Some(Arc::new(sealed)),
        });
        if chunks.len() == GROUP {
            let full = std::mem::take(&mut self.chunks);
            Arc::make_mut(&mut self.groups).push(full);
        }
    }

    /// Packs full chunks of which so many more entries than before can be.
    pub(super) fn pack(&self, least: usize) {
        self.sealed().for_each(|(_, chunk)| chunk.pack(least));
    }

    /// Number of entries that are packed.
    #[cfg(test)]
    pub(super) fn packed(&self) -> u32 {
        self.sealed().map(|(_, chunk)| chunk.held().packed()).sum()
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.stored() - self.skip
    }

    fn full(&self) -> usize {
        self.groups.len() * GROUP + self.chunks.len()
    }

    fn stored(&self) -> usize {
        self.full() * CHUNK + self.tail.len()
    }

    /// A full chunk by its number.
    fn slot(&self, number: usize) -> Option<&Chunk> {
        match self.groups.get(number / GROUP) {
            Some(group) => group.get(number % GROUP),
            None => self.chunks.get(number - self.groups.len() * GROUP),
        }
    }

    fn chunk(&self, number: usize) -> Option<&Arc<Sealed>> {
        self.slot(number)?.sealed.as_ref()
    }

    /// The entry at a position from the front.
    pub(super) fn get(&self, at: usize) -> Option<LogEntry> {
        let at = at + self.skip;
        match self.chunk(at / CHUNK) {
            Some(chunk) => Some(chunk.held().entry(at % CHUNK)),
            None => self.tail.get(at.checked_sub(self.full() * CHUNK)?).cloned(),
        }
    }

    pub(super) fn first(&self) -> Option<LogEntry> {
        self.get(0)
    }

    /// Whether a record at this position of the store's history is in it, if there is one.
    pub(super) fn holds(&self, place: (Revision, u32)) -> bool {
        self.front.is_some_and(|front| front <= place)
    }

    /// Position of the first entry whose revision is at least `main`.
    pub(super) fn position(&self, main: Revision) -> usize {
        self.lower_bound((main, 0)).saturating_sub(self.skip)
    }

    /// The same with what was dropped counted, and by place.
    fn lower_bound(&self, place: (Revision, u32)) -> usize {
        let below = |entry: &LogEntry| entry.record.place() < place;
        let in_tail = |log: &Self| log.full() * CHUNK + log.tail.partition_point(below);
        // Most who ask want what was written last.
        if self.tail.first().is_some_and(below) {
            return in_tail(self);
        }
        let (front, from) = (self.skip / CHUNK, self.chunk_from(place));
        // It lies in the last chunk that begins below, or behind that.
        if from > front
            && let Some(Chunk { first, sealed }) = self.slot(from - 1)
            && let Some(chunk) = sealed
        {
            let within = chunk.held().lower_bound(place, *first);
            if within < CHUNK || from < self.full() {
                return (from - 1) * CHUNK + within;
            }
        } else if from < self.full() {
            return from * CHUNK;
        }
        in_tail(self)
    }

    /// The number of the first full chunk that begins at a place or above, dropped ones left out.
    fn chunk_from(&self, place: (Revision, u32)) -> usize {
        let (mut low, mut high) = (self.skip / CHUNK, self.full());
        let main = |number| self.slot(number).map_or(0, |chunk| chunk.first.0);
        for step in 0.. {
            if low >= high {
                break;
            }
            // Chunks have about as many revisions each: two looks are enough then, where halving needs one for each bit of the
            // number of chunks, each at other memory.
            let middle = match step < GUESSES {
                true => between(place.0, (main(low), low), (main(high - 1), high - 1)),
                false => usize::midpoint(low, high),
            };
            match self.slot(middle) {
                Some(chunk) if chunk.first < place => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The record of this key at a position of the store's history, and where it is held.
    pub(super) fn find(&self, key: &[u8], place: (Revision, u32)) -> Option<(Record, Holder)> {
        let in_tail = |entry: &LogEntry| entry.record.place() <= place;
        if self.tail.first().is_some_and(in_tail) {
            let at = self.tail.partition_point(in_tail).checked_sub(1)?;
            let record = &self.tail.get(at)?.record;
            let there = record.place() == place && self.full() * CHUNK + at >= self.skip;
            return there.then(|| (record.clone(), Holder::Record));
        }
        let number = self.chunk_from(after(place)).checked_sub(1)?;
        let Chunk { first, sealed } = self.slot(number)?;
        let chunk = sealed.as_ref()?;
        let (at, record) = chunk.held().find(key, place, *first)?;
        let there = number * CHUNK + at >= self.skip;
        there.then(|| (record, Holder::Chunk(Arc::clone(chunk), at)))
    }

    /// Whether an entry at a place would be in this chunk; it is not in the tail.
    fn is_in(
        &self,
        place: (Revision, u32),
        (number, first, _): &(usize, (Revision, u32), Arc<Held>),
    ) -> bool {
        let next = self.slot(number + 1);
        *first <= place && next.is_none_or(|next| place < next.first)
    }

    /// For finding many places one after the other.
    pub(super) fn finder(&self) -> Finder<'_> {
        Finder {
            log: self,
            chunk: None,
        }
    }

    /// The full chunks, each with the place of its first entry. Some entries of the first may have been dropped.
    pub(super) fn sealed(&self) -> impl Iterator<Item = ((Revision, u32), &Arc<Sealed>)> {
        let chunks = self.groups.iter().flat_map(|group| group.iter());
        let chunks = chunks.chain(&*self.chunks);
        chunks.filter_map(|chunk| Some((chunk.first, chunk.sealed.as_ref()?)))
    }

    /// The entries behind them. Some may have been dropped.
    pub(super) fn tail(&self) -> &[LogEntry] {
        &self.tail
    }

    /// The entries from a position on.
    pub(super) fn iter_from(&self, at: usize) -> Entries<'_> {
        Entries {
            log: self,
            at: at + self.skip,
            held: None,
        }
    }

    /// Drops the first entry.
    pub(super) fn pop_front(&mut self) {
        if self.len() == 0 {
            return;
        }
        self.skip += 1;
        if self.skip == self.stored() {
            *self = RevisionLog::default();
        } else if self.skip == GROUP * CHUNK && !self.groups.is_empty() {
            Arc::make_mut(&mut self.groups).remove(0);
            self.skip = 0;
        } else if self.groups.is_empty() && self.skip == CHUNK {
            // The skipped chunk is the first of the loose ones: the tail is shorter than that.
            Arc::make_mut(&mut self.chunks).remove(0);
            self.skip = 0;
        } else if self.skip.is_multiple_of(CHUNK)
            && let Some(group) = Arc::make_mut(&mut self.groups).first_mut()
        {
            // Lets go of the records at once; the place of the chunk goes with its group.
            Arc::make_mut(group)[self.skip / CHUNK - 1].sealed = None;
        }
        self.front = match self.chunk(self.skip / CHUNK) {
            Some(chunk) => Some(chunk.held().place(self.skip % CHUNK)),
            None => self.tail.get(self.skip).map(|entry| entry.record.place()),
        };
    }

    /// Lets go of what dropped entries hold. As a rule that stays until every entry of their chunk has been dropped.
    pub(super) fn let_go(&mut self) {
        let (number, dropped) = (self.skip / CHUNK, self.skip % CHUNK);
        let first = self.chunk(number).map(|chunk| chunk.held());
        let last = match (&first, dropped.checked_sub(1)) {
            (_, None) => return,
            (Some(held), Some(at)) => Some(held.entry(at)),
            (None, Some(at)) => self.tail.get(at).cloned(),
        };
        if last.is_none_or(|entry| entry.record.key().is_empty()) {
            return;
        }
        let empty = |entries: &mut [LogEntry]| {
            for entry in entries {
                entry.record = Record::tombstone(&[], entry.record.place());
            }
        };
        let Some(held) = first else {
            return empty(&mut Arc::make_mut(&mut self.tail)[..dropped]);
        };
        let mut entries = held.all();
        empty(&mut entries[..dropped]);
        let chunks = match Arc::make_mut(&mut self.groups).first_mut() {
            Some(group) => group,
            None => &mut self.chunks,
        };
        Arc::make_mut(chunks)[number].sealed = Some(Arc::new(Sealed::of(entries)));
    }
}

/// Finds places one after the other. If they ascend each chunk is looked at once, and with many of them most of that is at memory that the
/// one before has looked at.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    log: &'a RevisionLog,
    /// The chunk of the last one: its number, its first place, and how it held its entries.
    chunk: Option<(usize, (Revision, u32), Arc<Held>)>,
}

impl Finder<'_> {
    /// The revision at a position of the store's history.
    pub(super) fn find(&mut self, place: (Revision, u32)) -> Option<Unkeyed> {
        let log = self.log;
        let in_tail = |entry: &LogEntry| entry.record.place() <= place;
        if log.tail.first().is_some_and(in_tail) {
            let at = log.tail.partition_point(in_tail).checked_sub(1)?;
            let record = &log.tail.get(at)?.record;
            return (record.place() == place).then(|| Unkeyed::of(record));
        }
        let (_, first, held) = match self.chunk.take().filter(|chunk| log.is_in(place, chunk)) {
            Some(chunk) => self.chunk.insert(chunk),
            None => {
                let number = log.chunk_from(after(place)).checked_sub(1)?;
                let Chunk { first, sealed } = log.slot(number)?;
                self.chunk.insert((number, *first, sealed.as_ref()?.held()))
            }
        };
        held.revision(place, *first)
    }
}

/// Entries in their order.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    log: &'a RevisionLog,
    /// What was dropped is counted.
    at: usize,
    /// The chunk that it is in.
    held: Option<Arc<Held>>,
}

impl<'a> Entries<'a> {
    /// The entries whose keys are in a span; of the others only their revisions, so that no record is made of what is packed.
    pub(super) fn within(self, span: Span<'a>) -> Within<'a> {
        Within {
            entries: self,
            span,
            room: Vec::new(),
        }
    }

    /// Goes on by one: the chunk that the next entry is in, if it is in one, and its number.
    fn step(&mut self) -> (Option<&Held>, usize) {
        let at = self.at;
        self.at += 1;
        if at.is_multiple_of(CHUNK) || self.held.is_none() {
            self.held = self.log.chunk(at / CHUNK).map(|chunk| chunk.held());
        }
        (self.held.as_deref(), at)
    }

    fn in_tail(&self, at: usize) -> Option<&'a LogEntry> {
        let at = at.checked_sub(self.log.full() * CHUNK)?;
        self.log.tail.get(at)
    }
}

impl Iterator for Entries<'_> {
    type Item = LogEntry;

    fn next(&mut self) -> Option<LogEntry> {
        match self.step() {
            (Some(held), at) => Some(held.entry(at % CHUNK)),
            (None, at) => self.in_tail(at).cloned(),
        }
    }
}

/// Entries of which those of other keys are passed.
#[derive(Debug)]
pub(super) struct Within<'a> {
    entries: Entries<'a>,
    span: Span<'a>,
    /// For a key that is put together.
    room: Vec<u8>,
}

impl Iterator for Within<'_> {
    type Item = Result<LogEntry, Revision>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.entries.step() {
            (Some(held), at) => Some(held.within(at % CHUNK, self.span, &mut self.room)),
            (None, at) => Some(self.entries.in_tail(at)?.within(self.span)),
        }
    }
}

/// The next place at its revision. No row has the last number ([`MOST_SUB`](super::rows::MOST_SUB)).
fn after(place: (Revision, u32)) -> (Revision, u32) {
    (place.0, place.1.saturating_add(1))
}

/// Where a revision lies between two others, whose chunks have these numbers.
fn between(main: Revision, low: (Revision, usize), high: (Revision, usize)) -> usize {
    let part = (main - low.0) as f64 / (high.0 - low.0).max(1) as f64;
    low.1 + (part.clamp(0.0, 1.0) * (high.1 - low.1) as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(main: Revision) -> LogEntry {
        let record = Record::tombstone(b"k", (main, 0));
        LogEntry { record, frees: 0 }
    }

    #[test]
    fn log_is_a_queue_across_block_borders() {
        let mut log = RevisionLog::default();
        let (mut front, mut back) = (0, 0);
        // Grow by more than shrinking, then drain, so that the front crosses chunks and groups
        // while the back does as well.
        for step in 0..40_000_usize {
            log.push(entry(back as i64));
            back += 1;
            if step % 3 == 0 || step > 20_000 {
                log.pop_front();
                front += 1;
            }
            if step % 251 == 0 {
                assert_eq!(log.len(), back - front);
                let first = log.first().map(|entry| entry.record.main);
                assert_eq!(first, (front < back).then_some(front as i64));
                let middle = (front + back) / 2;
                assert_eq!(log.position(middle as i64), middle - front);
            }
        }
        let left: Vec<i64> = log.iter_from(0).map(|entry| entry.record.main).collect();
        assert_eq!(left, (front as i64..back as i64).collect::<Vec<_>>());
        while log.len() > 0 {
            log.pop_front();
        }
        assert!(log.first().is_none());
    }

    #[test]
    fn clone_keeps_what_the_original_drops() {
        let mut log = RevisionLog::default();
        (0..300).for_each(|main| log.push(entry(main)));
        let frozen = log.clone();
        (0..200).for_each(|_| log.pop_front());
        log.push(entry(300));
        assert_eq!(frozen.len(), 300);
        assert_eq!(frozen.get(0).map(|entry| entry.record.main), Some(0));
        assert_eq!(log.len(), 101);
    }

    /// Places of two entries each, of old revisions that can be packed.
    fn old(number: usize) -> LogEntry {
        let place = (2 + number as i64 / 2 * 3, number as u32 % 2);
        let record = Record::tombstone(format!("key {}", number % 50).as_bytes(), place);
        record.supersede();
        let frees = number as u64 * 1000;
        LogEntry { record, frees }
    }

    /// However its entries are held, each is found by its place and its revision, and none else is.
    #[test]
    fn packed_entries_are_found_by_their_places() {
        for (count, dropped) in [
            (1, 0),
            (127, 3),
            (128, 0),
            (128, 127),
            (129, 128),
            (700, 200),
            (40_000, 17_000),
        ] {
            let mut log = RevisionLog::default();
            (0..count).for_each(|number| log.push(old(number)));
            log.pack(1);
            assert_eq!(log.packed() as usize, count / CHUNK * CHUNK);
            (0..dropped).for_each(|_| log.pop_front());
            let kept: Vec<LogEntry> = log.iter_from(0).collect();
            assert_eq!((kept.len(), log.len()), (count - dropped, count - dropped));
            let step = 1 + count / 1000;
            for (at, entry) in kept.iter().enumerate().step_by(step) {
                let expected = old(at + dropped);
                let (place, frees) = (expected.record.place(), expected.frees);
                assert_eq!((entry.record.place(), entry.frees), (place, frees));
                assert_eq!(entry.record.key(), expected.record.key());
                let found = log
                    .find(entry.record.key(), place)
                    .map(|(record, _)| record.place());
                assert_eq!(found, Some(place));
                assert!(
                    log.find(entry.record.key(), (place.0, place.1 + 2))
                        .is_none()
                );
                let first = if place.1 == 1 && at > 0 { at - 1 } else { at };
                assert_eq!(log.position(place.0), first);
                assert_eq!(log.position(place.0 - 1), first);
                assert!(log.holds(place));
            }
            let span = Span::new(b"key 7", b"key 9");
            let within: Vec<_> = log.iter_from(0).within(span).collect();
            assert_eq!(within.len(), kept.len());
            for (entry, expected) in within.iter().zip(&kept) {
                assert_eq!(revision_of(entry), expected.record.main);
                let expected = span.contains(expected.record.key()).then_some(expected);
                let keyed = |entry: &LogEntry| (entry.record.key().to_vec(), entry.frees);
                assert_eq!(entry.as_ref().ok().map(keyed), expected.map(keyed));
            }
            assert_eq!(log.position(i64::MAX), kept.len());
            if dropped > 0 {
                let last = old(dropped - 1).record;
                assert!(log.find(last.key(), last.place()).is_none());
                assert!(!log.holds(last.place()));
            }
        }
    }
}
