//! Values to a file of their own while a store is built from something else than a checkpoint, as from a backup: with one
//! value in memory at a time, so that data larger than memory can be founded from.
//!
//! Never writes a checkpoint: the file stays only if one names it before the store is dropped.

use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Readable, Saver, in_full};
use crate::disk::{self, Class, ValueWriter};
use crate::store::{ReadFailure, ValueBytes, ValueFile};

/// A file of values in the making, to which a store refers already. Dropping it unfinished removes the file.
#[derive(Debug)]
pub struct PlacedValues<'a> {
    saver: &'a Saver,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    writer: ValueWriter,
    file: Arc<ValueFile>,
    written: Arc<OnceLock<Readable>>,
}

impl Saver {
    /// Begins to place values, on a disk that was never a member's. What an earlier attempt has left goes first: there need
    /// not be room for both.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn place(&self) -> Result<PlacedValues<'_>, disk::Error> {
        self.checkpoints().clear()?;
        Ok(PlacedValues {
            saver: self,
            begun: None,
        })
    }
}

impl PlacedValues<'_> {
    /// Writes a value, and says where it will be; `None`: it belongs into memory.
    ///
    /// # Errors
    /// Those of the disk; a full volume is [`io::ErrorKind::StorageFull`].
    pub fn put(&mut self, value: &[u8]) -> io::Result<Option<(Arc<ValueFile>, u64)>> {
        let from = self.saver.to_files();
        if from.is_none_or(|from| value.len() < from) {
            return Ok(None);
        }
        let begun = match &mut self.begun {
            Some(begun) => begun,
            none => none.insert(begin(self.saver).map_err(of_disk)?),
        };
        let offset = begun.writer.put(value).map_err(of_disk)?;
        Ok(Some((Arc::clone(&begun.file), offset)))
    }

    /// Ends the file: from here on the values in it can be read. Durable when it returns.
    ///
    /// # Errors
    /// As [`PlacedValues::put`].
    pub fn finish(self) -> io::Result<()> {
        if let Some(begun) = self.begun {
            let reader = begun.writer.finish().map_err(of_disk)?;
            // Nothing else sets it.
            let _ = begun.written.set(Readable(reader));
        }
        Ok(())
    }
}

fn begin(saver: &Saver) -> disk::Result<Begun> {
    let writer = saver.checkpoints().values().begin()?;
    let written = Arc::default();
    let file = ValueFile::new(writer.number(), Unfinished(Arc::clone(&written)));
    Ok(Begun {
        writer,
        file,
        written,
    })
}

fn of_disk(error: disk::Error) -> io::Error {
    let kind = match error.class() {
        Class::DiskFull => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, in_full(&error))
}

/// A file that can be read once it is whole.
#[derive(Debug)]
struct Unfinished(Arc<OnceLock<Readable>>);

impl Unfinished {
    fn whole(&self) -> Result<&Readable, ReadFailure> {
        let whole = self.0.get();
        whole.ok_or_else(|| ReadFailure::Io("the file of values is not finished".to_owned()))
    }
}

impl ValueBytes for Unfinished {
    fn read(&self, offset: u64, length: u32) -> Result<Bytes, ReadFailure> {
        self.whole()?.read(offset, length)
    }

    fn read_many(
        &self,
        places: &[(u64, u32)],
        each: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), (u64, ReadFailure)> {
        let first = places.first().map_or(0, |(offset, _)| *offset);
        let whole = self.whole().map_err(|failure| (first, failure))?;
        whole.read_many(places, each)
    }

    fn read_ahead(&self, offset: u64, length: u32) {
        if let Some(whole) = self.0.get() {
            whole.read_ahead(offset, length);
        }
    }

    fn length(&self) -> u64 {
        self.0.get().map_or(0, ValueBytes::length)
    }
}
