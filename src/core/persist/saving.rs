//! One checkpoint with its values in files, in one of two ways: from the state alone, or from the checkpoint before and what has
//! changed since. Never decides which files are written again, and never leaves a checkpoint that names a file which is not durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::{Error, file};
use crate::disk::{self, CheckpointInfo, Checkpoints, Position, ValueReader, ValueWriter};
use crate::store::{
    self, DamagedValue, Export, Merge, Moment, Moved, UsedFiles, ValueFile, View, Written,
};

/// Bytes of values that one checkpoint takes out of worn files at most.
const MOST_TAKEN: u64 = 256 << 20;
/// Bytes of values between two signs of life.
const ALIVE_EVERY: u64 = 1 << 20;

/// A checkpoint that was written, and where.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) position: Position,
    pub(super) written: Written,
}

/// Why a checkpoint was not made of the one before.
#[derive(Debug)]
pub(super) enum Unmerged {
    /// That one is damaged, or not what the state comes from.
    Before(String),
    /// What would fail without it as well.
    Failed(Error),
}

/// A state, and where it goes.
#[derive(Debug)]
pub(super) struct Saving<'a, A> {
    pub(super) checkpoints: &'a Checkpoints,
    pub(super) position: Position,
    pub(super) meta: &'a [u8],
    pub(super) view: Arc<View>,
    /// From before anything of it was read.
    pub(super) moment: Moment,
    /// Files whose values are moved.
    pub(super) worn: BTreeSet<u64>,
    pub(super) alive: A,
}

impl<A: Fn()> Saving<'_, A> {
    /// Writes it with every value in itself.
    pub(super) fn whole(&self, chunks: Export) -> Result<(CheckpointInfo, Written), Error> {
        self.export(chunks, (UsedFiles::default(), None))
    }

    /// Writes it from the state alone, values of at least `from` bytes in files. Every record is looked at.
    pub(super) fn alone(
        &self,
        from: usize,
        chunks: Export,
    ) -> Result<(CheckpointInfo, Written), Error> {
        let (moved, new) = self.moving::<Error>(|put| {
            let worn = (&self.worn, MOST_TAKEN);
            self.view.move_values(from, worn, put)
        })?;
        let number = new.number();
        let files = new.settle(moved);
        self.view.pack();
        match files.is_empty() {
            false => self.export(chunks.placed(), (files, number)),
            true => self.export(chunks, (files, number)),
        }
    }

    fn export(
        &self,
        mut chunks: Export,
        (files, new): (UsedFiles, Option<u64>),
    ) -> Result<(CheckpointInfo, Written), Error> {
        let info = self.write(&files, || match (chunks.next(), chunks.failure()) {
            (None, Some(damaged)) => Err(Error::from(damaged.clone())),
            (chunk, _) => Ok(chunk),
        })?;
        let moment = self.moment.clone();
        Ok((info, Written { moment, files, new }))
    }

    /// Makes it of the one before. `None` if it cannot be: it is of another store, a value was healed
    /// since, or the log of revisions does not reach back to it.
    pub(super) fn merged(
        &self,
        from: usize,
        last: &Last,
    ) -> Result<Option<(CheckpointInfo, Written)>, Unmerged> {
        let Some(changes) = self.view.changes_since(&last.written.moment) else {
            return Ok(None);
        };
        let before = || self.before(last.position);
        let (moved, new) = self.moving::<Unmerged>(|put| {
            let (changes, worn) = ((&changes, from), (&self.worn, MOST_TAKEN));
            self.view.move_changes(changes, before, worn, put)
        })?;
        let (number, needed) = (new.number(), moved.needed(&last.written.files));
        let claims = self.claim(&needed)?;
        let mut files = new.settle(moved).and(&needed);
        self.view.pack();
        let merge = |files: &UsedFiles| {
            let (view, changes) = (Arc::clone(&self.view), changes.clone());
            let changed = (changes, self.worn.clone());
            let merge = Merge::new(view, changed, before()?, files.clone());
            merge.map_err(Unmerged::from)
        };
        if last.written.moment.compacted() != self.view.compacted() {
            // What is left in each file is known once all rows were seen, and files are named before the first.
            files = self.counted(merge(&files)?)?;
        }
        let mut merge = merge(&files)?;
        let info = self.write(&files, || Ok::<_, Unmerged>(merge.next_chunk()?))?;
        drop(claims);
        let written = merge.written(self.moment.clone(), number);
        Ok(Some((info, written)))
    }

    /// The chunks of the one before.
    fn before(
        &self,
        position: Position,
    ) -> Result<impl Iterator<Item = disk::Result<Bytes>>, Unmerged> {
        let before = self.checkpoints.open(position);
        let before = before.map_err(|error| Unmerged::Before(error.to_string()))?;
        Ok(before.inspect(|_| (self.alive)()))
    }

    /// The files that the next one will name stay on the disk while it is written, whoever makes room meanwhile.
    fn claim(&self, files: &UsedFiles) -> Result<Vec<ValueReader>, Unmerged> {
        let open = |number| self.checkpoints.values().open(number);
        let claims = files.numbers().map(open).collect::<disk::Result<_>>();
        claims.map_err(|error| Unmerged::Before(error.to_string()))
    }

    /// The files that a merge needs.
    fn counted(&self, mut merge: Merge<'_>) -> Result<UsedFiles, Unmerged> {
        while merge.next_chunk()?.is_some() {}
        Ok(merge.written(self.moment.clone(), None).files)
    }

    /// Moves values to a new file, if there are any to move.
    fn moving<E: From<disk::Error>>(
        &self,
        moves: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<u64, E>) -> Result<Moved, E>,
    ) -> Result<(Moved, NewFile), E> {
        let mut writer: Option<ValueWriter> = None;
        let (mut bytes, mut signed) = (0, 0);
        let moved = moves(&mut |value| {
            bytes += value.len() as u64;
            if bytes >= signed + ALIVE_EVERY {
                signed = bytes;
                (self.alive)();
            }
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(self.checkpoints.values().begin()?),
            };
            Ok(writer.put(value)?)
        })?;
        let reader = writer.map(ValueWriter::finish).transpose()?;
        Ok((moved, NewFile(reader.map(file), bytes)))
    }

    fn write<E: From<disk::Error>>(
        &self,
        files: &UsedFiles,
        mut next: impl FnMut() -> Result<Option<Bytes>, E>,
    ) -> Result<CheckpointInfo, E> {
        let files: Vec<u64> = files.numbers().collect();
        let named = (self.meta, &files[..]);
        let mut writer = self.checkpoints.begin_with(self.position, named, false)?;
        while let Some(chunk) = next()? {
            (self.alive)();
            writer.chunk(&chunk)?;
        }
        Ok(writer.finish()?)
    }
}

/// The file that values were moved to, and bytes of these.
#[derive(Debug)]
struct NewFile(Option<Arc<ValueFile>>, u64);

impl NewFile {
    fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|file| file.number())
    }

    /// From here on what has moved is read from it. Returns the files in which there are values of those that were looked at.
    fn settle(self, moved: Moved) -> UsedFiles {
        let mut files = moved.others().clone();
        if let NewFile(Some(file), bytes) = self {
            files.add(&file, bytes);
            moved.settle(&file);
        }
        files
    }
}

impl From<disk::Error> for Unmerged {
    fn from(error: disk::Error) -> Self {
        Unmerged::Failed(error.into())
    }
}

impl From<DamagedValue> for Unmerged {
    fn from(error: DamagedValue) -> Self {
        Unmerged::Failed(error.into())
    }
}

impl From<store::Error> for Unmerged {
    fn from(error: store::Error) -> Self {
        Unmerged::Before(error.to_string())
    }
}
