//! A checkpoint made of the rows of the one before and of what has changed since: what a revision is never changes, so only what is
//! new is encoded, and only compaction leaves something out. Its bytes are those that [`Export`](super::Export) gives of the same state.
//!
//! Never trusts the one before: rows that do not add up to the size and the number of keys of the state are an error, and
//! whoever asked writes a checkpoint of the state alone.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::changes::Changes;
use super::checkpoint::{CHUNK_BYTES, kept_at, row, write_head, write_tail};
use super::earlier::Earlier;
use super::merged_rows::{Line, MergedRows};
use super::pieces::damaged;
use super::unkeyed::Unkeyed;
use super::view::View;
use super::written::{Moment, UsedFiles, Written};
use super::{Error, Revision};
use crate::mutants::mutant;

/// The chunks of a state, made of those of an earlier one and of what has changed since.
#[derive(Debug)]
pub struct Merge<'a> {
    view: Arc<View>,
    /// Whether it names any file.
    placed: bool,
    earlier: Earlier<'a>,
    changes: Changes,
    /// How many of these were passed.
    taken: usize,
    /// Files some of whose values have moved.
    worn: BTreeSet<u64>,
    rows: MergedRows,
    buffer: BytesMut,
    leases: u64,
    stage: Stage,
    /// What a changed row has besides its key.
    room: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Rows,
    Done,
}

impl<'a> Merge<'a> {
    /// Of a state, what it has that the checkpoint before had not, and the chunks of that. Values have moved
    /// out of the files `worn`, and what is to be in files is in these.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the one before cannot be read.
    pub fn new<E: ToString>(
        view: Arc<View>,
        (changes, worn): (Changes, BTreeSet<u64>),
        chunks: impl Iterator<Item = Result<Bytes, E>> + 'a,
        files: UsedFiles,
    ) -> Result<Self, Error> {
        let placed = !files.is_empty();
        Ok(Merge {
            earlier: Earlier::new(chunks)?,
            changes,
            taken: 0,
            worn,
            placed,
            rows: MergedRows::new(view.compacted(), files),
            buffer: BytesMut::new(),
            leases: 0,
            stage: Stage::Head,
            room: Vec::new(),
            view,
        })
    }

    /// The next chunk; `None` after the last one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the one before is damaged, or is not what this state comes from.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while self.buffer.len() < CHUNK_BYTES && self.stage != Stage::Done {
            match self.stage {
                Stage::Head => {
                    self.leases = write_head(&self.view, self.placed, &mut self.buffer);
                    self.stage = Stage::Rows;
                }
                _ => self.step()?,
            }
        }
        let size = self.buffer.len().min(CHUNK_BYTES);
        Ok((size > 0).then(|| self.buffer.split_to(size).freeze()))
    }

    /// What is known of it, once its last chunk was written: it is of this moment, and this file was written for it.
    #[must_use]
    pub fn written(self, moment: Moment, new: Option<u64>) -> Written {
        Written {
            moment,
            files: self.rows.into_files(),
            new,
        }
    }

    /// Goes on by one row.
    fn step(&mut self) -> Result<(), Error> {
        let change = self.changes.get(self.taken);
        let order = match (self.earlier.row(), change) {
            (None, None) => return self.end(),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(row), Some(change)) => {
                let key = self.earlier.key().cmp(change.key());
                key.then_with(|| row.place.cmp(&change.place()))
            }
        };
        match order {
            Ordering::Less => self.take_earlier(),
            Ordering::Greater => self.take_change(),
            Ordering::Equal => Err(damaged("it has a revision that is new")),
        }
    }

    fn take_earlier(&mut self) -> Result<(), Error> {
        let Some(fields) = self.earlier.row() else {
            return Ok(());
        };
        if fields.named {
            self.rows.begin(self.earlier.key(), &mut self.buffer)?;
        }
        let line = fields.line(self.earlier.rest());
        let worn = self.worn.contains(&line.file) && !mutant!(MergedStale);
        let now = worn.then(|| now(&self.view, self.earlier.key(), line.place));
        let line = match now.flatten() {
            Some(now) => encode(now, &mut self.room),
            None if worn && line.place.0 > self.view.compacted() => {
                return Err(damaged("it has a revision that the state has not"));
            }
            None => line,
        };
        self.rows.add(&line, &mut self.buffer)?;
        self.earlier.pass()
    }

    fn take_change(&mut self) -> Result<(), Error> {
        self.changes.load(self.taken);
        let Some(record) = self.changes.get(self.taken) else {
            return Ok(());
        };
        if record.key() != self.rows.key() {
            self.rows.begin(record.key(), &mut self.buffer)?;
        }
        let line = encode(Unkeyed::of(record), &mut self.room);
        self.rows.add(&line, &mut self.buffer)?;
        self.taken += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        let records = self.rows.end(&self.view, &mut self.buffer)?;
        write_tail(&self.view, (records, self.leases), &mut self.buffer);
        self.stage = Stage::Done;
        Ok(())
    }
}

/// A revision of a state as it is now, unless compaction has forgotten it.
fn now(view: &View, key: &[u8], place: (Revision, u32)) -> Option<Unkeyed> {
    let entry = view.state.keys.get(key)?;
    let found = kept_at(entry, view.compacted(), place)?;
    Some(Unkeyed::of(&view.state.seen(entry, found)))
}

/// The same as a line, whose bytes go to `room`.
fn encode(revision: Unkeyed, room: &mut Vec<u8>) -> Line<'_> {
    let row = row(revision, Bytes::new());
    room.clear();
    // A vector that grows cannot be too small.
    let _ = row.encode(room);
    Line {
        rest: room,
        place: (row.main, row.sub),
        tombstone: row.tombstone,
        file: row.file,
        length: match row.file {
            0 => row.value.len() as u64,
            _ => row.length.into(),
        },
    }
}
