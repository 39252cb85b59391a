//! Which values a checkpoint writes to a new file of values: those that are in memory, and those in files of which
//! little is left. Never writes itself, and never frees the memory of a value before it is durable in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::mutants::mutant;

use super::block::Named;
use super::checkpoint::{base, kept};
use super::chunk::{CHUNK, Sealed};
use super::history::Found;
use super::log::{Holder, LogEntry};
use super::record::Record;
use super::span::Span;
use super::state::State;
use super::value::{ValueFile, sum};
use super::view::View;
use super::{DamagedValue, Revision};

/// How much of a file is needed.
#[derive(Debug, Default)]
struct Used {
    /// Bytes of the values in it that the state has.
    bytes: u64,
    /// Bytes of all of it.
    length: u64,
}

/// What was written to a new file, and which files the state needs besides.
#[derive(Debug, Default)]
pub struct Moved {
    /// What was written, where, and its checksum.
    records: Vec<(Record, u64, u32)>,
    /// The same of what is in full chunks of the log, with its number there: it may be packed.
    logged: Vec<(Arc<Sealed>, (usize, u64, u32))>,
    /// The other files in which there are values, by number.
    others: BTreeMap<u64, Used>,
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
        let mut moving = Moving {
            state: &self.state,
            from,
            worn,
            most,
            put,
            moved: Moved::default(),
            taken: 0,
        };
        moving.keys()?;
        for (first, chunk) in self.state.log.sealed() {
            moving.chunk(first, chunk)?;
        }
        for LogEntry { record, .. } in self.state.log.tail() {
            moving.replaced(record, || Holder::Record)?;
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

impl<F, E: From<DamagedValue>> Moving<'_, F>
where
    F: FnMut(&[u8]) -> Result<u64, E>,
{
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
        let used = self.others.entry(file.number()).or_default();
        used.bytes += bytes;
        used.length = file.length();
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.logged.is_empty()
    }

    /// The files in which the other values are, and bytes of these.
    #[cfg(test)]
    pub(super) fn used(&self) -> BTreeMap<u64, u64> {
        let others = self.others.iter();
        others.map(|(number, used)| (*number, used.bytes)).collect()
    }

    /// The numbers of the files in which the other values are.
    pub fn others(&self) -> impl Iterator<Item = u64> + '_ {
        self.others.keys().copied()
    }

    /// Of those, the files that are worth to be written again: those of which less than half is needed, and the
    /// smallest of more than `most`.
    #[must_use]
    pub fn worn(&self, most: usize) -> BTreeSet<u64> {
        let (worn, mut others): (Vec<_>, Vec<_>) = self
            .others
            .iter()
            .partition(|(_, used)| used.bytes * 2 < used.length);
        others.sort_unstable_by_key(|(_, used)| used.bytes);
        let too_many = others.len().saturating_sub(most);
        let smallest = others.into_iter().take(too_many);
        let numbers = worn.into_iter().chain(smallest);
        numbers.map(|(number, _)| *number).collect()
    }

    /// What was written is durable in `file`: from here on it is read from there, by readers of every view.
    pub fn settle(mut self, file: &Arc<ValueFile>) {
        for (record, offset, sum) in self.records {
            record.value.settle(file, offset, sum);
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
