//! Which values a checkpoint writes to a new file of values: those that are in memory, and those in files of which
//! little is left. Never writes itself, and never frees the memory of a value before it is durable in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::mutants::mutant;

use super::DamagedValue;
use super::checkpoint::kept;
use super::chunk::Sealed;
use super::log::Holder;
use super::record::Record;
use super::span::Span;
use super::value::{ValueFile, sum};
use super::view::View;

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
    /// and says where: those of at least `from` bytes in memory, and up to `most` bytes of those in the files `worn`. In order of
    /// keys, so that neighbours come to lie beside each other. A value in a worn file that cannot be read stays there.
    /// Reads every record: not for a runtime's thread.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn move_values<E: From<DamagedValue>>(
        &self,
        from: usize,
        (worn, most): (&BTreeSet<u64>, u64),
        mut put: impl FnMut(&[u8]) -> Result<u64, E>,
    ) -> Result<Moved, E> {
        let (mut moved, mut taken, mut failure) = (Moved::default(), 0, None);
        self.state.keys.visit(Span::ALL, &mut |entry| {
            for found in kept(entry, self.state.compacted) {
                let (record, holder) = self.state.held(entry, found);
                let place = record.value.place();
                let length = record.value.len() as u64;
                match &place {
                    None if length < from as u64 => continue,
                    None => {}
                    Some(place) if worn.contains(&place.file.number()) && taken < most => {
                        taken += length;
                    }
                    Some(place) => {
                        moved.stays(&place.file, length);
                        continue;
                    }
                }
                let value = match (record.value.load(), place) {
                    (Ok(value), _) => Ok(value),
                    // Another member may heal it, and until then nobody gets another value.
                    (Err(_), Some(place)) if !mutant!(DamageEndsCheckpoint) => {
                        moved.stays(&place.file, length);
                        continue;
                    }
                    (Err(damaged), _) => Err(E::from(damaged)),
                };
                match value.and_then(|value| Ok((put(&value)?, sum(&value)))) {
                    Ok((offset, sum)) => moved.written(&record, holder, (offset, sum)),
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        });
        failure.map_or(Ok(moved), Err)
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
