//! Which values a checkpoint writes to a new file of values: those that are in memory, and those in files of which
//! little is left. Never writes itself, and never frees the memory of a value before it is durable in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrayvec::ArrayVec;
use bytes::Bytes;

use crate::mutants::mutant;

use super::block::Named;
use super::changes::Changes;
use super::checkpoint::{base, kept, kept_at};
use super::chunk::{CHUNK, Sealed};
use super::earlier::{Earlier, Fields};
use super::history::Found;
use super::log::{Holder, LogEntry};
use super::record::Record;
use super::span::Span;
use super::state::State;
use super::tree::TOGETHER;
use super::value::{ValueFile, sum};
use super::view::View;
use super::written::UsedFiles;
use super::{DamagedValue, Error, Revision};

/// What was written to a new file, and which files the state needs besides.
#[derive(Debug, Default)]
pub struct Moved {
    /// What was written, where, and its checksum.
    records: Vec<(Record, u64, u32)>,
    /// The same of what is in full chunks of the log, with its number there: it may be packed.
    logged: Vec<(Arc<Sealed>, (usize, u64, u32))>,
    /// The other files in which there are values, by number.
    others: UsedFiles,
    /// Bytes of values that are not needed in worn files any more, by number, as far as that was looked at.
    left: BTreeMap<u64, u64>,
}

impl View {
    /// Gives each value that a checkpoint of this state has to write to `put`, which writes it to a file
    /// and says where: those of at least `from` bytes in memory, and up to `most` bytes of those in the files `worn`. First those of
    /// the newest revisions in the order of their keys, so that neighbours come to lie beside each other, then those that they replaced in
    /// the order of the log. Reads every record that is not packed: not for a runtime's thread.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn move_values<E: From<DamagedValue>>(
        &self,
        from: usize,
        (worn, most): (&BTreeSet<u64>, u64),
        put: impl FnMut(&[u8]) -> Result<u64, E>,
    ) -> Result<Moved, E> {
        let mut moving = Moving::of(&self.state, from, (worn, most), put);
        moving.keys()?;
        for (first, chunk) in self.state.log.sealed() {
            moving.chunk(first, chunk)?;
        }
        for LogEntry { record, .. } in self.state.log.tail() {
            moving.replaced(record, || Holder::Record)?;
        }
        Ok(moving.moved)
    }

    /// The same for a checkpoint that is made of the one before: `changes` are what that one has not, and the chunks of that one, which are
    /// asked for only if there are worn files, say what is in these.
    ///
    /// # Errors
    /// Those of `put`; [`Error::Checkpoint`] if the one before is damaged.
    pub fn move_changes<'a, E, C, X>(
        &self,
        (changes, from): (&Changes, usize),
        chunks: impl FnOnce() -> Result<C, E>,
        (worn, most): (&BTreeSet<u64>, u64),
        put: impl FnMut(&[u8]) -> Result<u64, E>,
    ) -> Result<Moved, E>
    where
        E: From<DamagedValue> + From<Error>,
        C: Iterator<Item = Result<Bytes, X>> + 'a,
        X: ToString,
    {
        let mut moving = Moving::of(&self.state, from, (worn, most), put);
        let mut records = changes.newest_first();
        loop {
            let some: ArrayVec<&Record, TOGETHER> = records.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                break;
            }
            Record::load_all(some.iter().copied());
            some.iter().for_each(|record| record.value.touch());
            for record in some {
                // None of them is packed: that is what each checkpoint does last.
                moving.one(record, || Holder::Record)?;
            }
        }
        if !worn.is_empty() {
            moving.worn(Earlier::new(chunks()?)?)?;
        }
        Ok(moving.moved)
    }
}

/// A move under way.
struct Moving<'a, F> {
    state: &'a State,
    from: usize,
    worn: &'a BTreeSet<u64>,
    most: u64,
    put: F,
    moved: Moved,
    /// Bytes taken from worn files.
    taken: u64,
}

impl<'a, F, E: From<DamagedValue>> Moving<'a, F>
where
    F: FnMut(&[u8]) -> Result<u64, E>,
{
    fn of(state: &'a State, from: usize, (worn, most): (&'a BTreeSet<u64>, u64), put: F) -> Self {
        Moving {
            state,
            from,
            worn,
            most,
            put,
            moved: Moved::default(),
            taken: 0,
        }
    }

    /// What the checkpoint before has in worn files, as far as this state has it still.
    fn worn(&mut self, mut earlier: Earlier<'_>) -> Result<(), E>
    where
        E: From<Error>,
    {
        while let Some(row) = earlier.row() {
            if self.taken >= self.most {
                break;
            }
            if self.worn.contains(&row.file) && self.leaves(earlier.key(), row)? {
                *self.moved.left.entry(row.file).or_default() += row.length;
            }
            earlier.pass()?;
        }
        Ok(())
    }

    /// Moves the value of a row in a worn file. Returns whether it is not needed there any more.
    fn leaves(&mut self, key: &[u8], row: &Fields) -> Result<bool, E> {
        let Some(entry) = self.state.keys.get(key) else {
            return Ok(true);
        };
        let Some(found) = kept_at(entry, self.state.compacted, row.place) else {
            return Ok(true);
        };
        let (record, holder) = self.state.held(entry, found);
        let before = self.moved.len();
        self.one(&record, || holder)?;
        let place = record.value.place();
        let elsewhere = place.is_none_or(|place| place.file.number() != row.file);
        Ok(self.moved.len() > before || elsewhere)
    }

    /// The newest revision of each key, and the one that a compaction kept, if it is not in the log.
    fn keys(&mut self) -> Result<(), E> {
        let (state, mut failure) = (self.state, None);
        state.keys.visit(Span::ALL, &mut |entry| {
            for found in kept(entry, state.compacted) {
                if let Found::Record(record) = found
                    && let Err(error) = self.one(record, || Holder::Record)
                {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        failure.map_or(Ok(()), Err)
    }

    /// The revisions of a full chunk that later ones have replaced. What is packed is looked at only if something of it moves: with
    /// millions of them a checkpoint would take most of its time for those that stay where they are.
    fn chunk(&mut self, first: (Revision, u32), chunk: &Arc<Sealed>) -> Result<(), E> {
        let held = chunk.held();
        let kept = first.0 > self.state.compacted;
        let stays = held.block().filter(|block| {
            let mut files = block.files().iter();
            let worn = files.any(|named| self.worn.contains(&named.file.number()));
            kept && !worn && !block.has_value_of(self.from)
        });
        let Some(block) = stays else {
            return (0..CHUNK).try_for_each(|at| {
                let record = held.entry(at).record;
                self.replaced(&record, || Holder::Chunk(Arc::clone(chunk), at))
            });
        };
        for Named { file, bytes } in block.files() {
            mutant!(PackedFileUnnamed => break);
            self.moved.stays(file, *bytes);
        }
        for (at, LogEntry { record, .. }) in held.unpacked() {
            self.replaced(record, || Holder::Chunk(Arc::clone(chunk), at))?;
        }
        Ok(())
    }

    /// An entry of the log, if it is a revision of this state that a later one has replaced.
    fn replaced(&mut self, record: &Record, holder: impl FnOnce() -> Holder) -> Result<(), E> {
        // One that nothing has replaced is the newest of its key in each view that has it.
        if !record.is_superseded() {
            return Ok(());
        }
        let Some(entry) = self.state.keys.get(record.key()) else {
            return Ok(());
        };
        let (compacted, place) = (self.state.compacted, record.place());
        let kept = place.0 > compacted
            || base(entry, compacted).is_some_and(|base| match base {
                Found::Record(_) => false,
                Found::Mark(mark) => mark.place == place,
            });
        match kept && entry.newest().place() != place {
            true => self.one(record, holder),
            false => Ok(()),
        }
    }

    fn one(&mut self, record: &Record, holder: impl FnOnce() -> Holder) -> Result<(), E> {
        // It has no value.
        if record.tombstone {
            return Ok(());
        }
        let place = record.value.place();
        let length = record.value.len() as u64;
        match &place {
            None if length < self.from as u64 => return Ok(()),
            None => {}
            Some(place) if self.worn.contains(&place.file.number()) && self.taken < self.most => {
                self.taken += length;
            }
            Some(place) => {
                self.moved.stays(&place.file, length);
                return Ok(());
            }
        }
        let value = match (record.value.load(), place) {
            (Ok(value), _) => value,
            // Another member may heal it, and until then nobody gets another value.
            (Err(_), Some(place)) if !mutant!(DamageEndsCheckpoint) => {
                self.moved.stays(&place.file, length);
                return Ok(());
            }
            (Err(damaged), _) => return Err(E::from(damaged)),
        };
        let offset = (self.put)(&value)?;
        self.moved.written(record, holder(), (offset, sum(&value)));
        Ok(())
    }
}

impl Moved {
    fn written(&mut self, record: &Record, holder: Holder, (offset, sum): (u64, u32)) {
        match holder {
            Holder::Record => self.records.push((record.clone(), offset, sum)),
            Holder::Chunk(chunk, at) => self.logged.push((chunk, (at, offset, sum))),
        }
    }

    fn stays(&mut self, file: &ValueFile, bytes: u64) {
        self.others.add(file, bytes);
    }

    /// How many values were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len() + self.logged.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those of the files that the checkpoint before needed that are needed still: all but those that nothing is left in.
    #[must_use]
    pub fn needed(&self, before: &UsedFiles) -> UsedFiles {
        let left = |number: &u64| self.left.get(number).copied().unwrap_or(0);
        let all = before
            .0
            .iter()
            .filter(|(number, used)| used.bytes > left(number));
        UsedFiles(all.map(|(number, used)| (*number, *used)).collect())
    }

    /// The other files in which there are values of those that were looked at.
    #[must_use]
    pub fn others(&self) -> &UsedFiles {
        &self.others
    }

    /// What was written is durable in `file`: from here on it is read from there, by readers of every view.
    pub fn settle(mut self, file: &Arc<ValueFile>) {
        for some in self.records.chunks(TOGETHER) {
            Record::load_all(some.iter().map(|(record, ..)| record));
            for (record, offset, sum) in some {
                record.value.settle(file, *offset, *sum);
            }
        }
        // Each chunk once: it is put together anew.
        self.logged
            .sort_unstable_by_key(|(chunk, (at, _, _))| (Arc::as_ptr(chunk).addr(), *at));
        let chunks = self
            .logged
            .chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other));
        for chunk in chunks {
            let entries: Vec<_> = chunk.iter().map(|(_, entry)| *entry).collect();
            // There is one in each.
            chunk[0].0.settle(&entries, file);
        }
    }
}
