//! The value of a record: what it is never changes, where it is may. It is in memory until a checkpoint has written
//! it to a file of values; from then on it is read from there. One that is damaged there comes back from another member.
//!
//! Never opens, writes or removes a file: whoever owns the files gives readable ones, and who asks for a value
//! that is in one waits for it.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::mutants::mutant;

/// What a processor loads at once, in bytes.
const LINE: usize = 64;
/// What follows these lines it loads by itself.
const LINES: usize = 8;

/// Why a value cannot be read from its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DamagedValue {
    /// The number of the file.
    pub file: u64,
    /// Where the value is in it, in bytes.
    pub offset: u64,
    /// What is wrong there, with the name of the file.
    pub what: String,
    /// Whether the file could not be read, which says nothing of what is in it.
    pub io: bool,
}

/// Why a file gives no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// It could not be read now.
    Io(String),
    /// What was read is not what was written.
    Damaged(String),
}

/// What the store asks of a file of values.
pub trait ValueBytes: Debug + Send + Sync {
    /// Reads the value at an offset and checks it.
    ///
    /// # Errors
    /// What is wrong, as text that names the file.
    fn read(&self, offset: u64, length: u32) -> Result<Bytes, ReadFailure>;

    /// Reads values whose offsets ascend, neighbours together. `each` gets the number of a place among these, and the value
    /// that is there.
    ///
    /// # Errors
    /// The offset at which it failed, and why.
    fn read_many(
        &self,
        places: &[(u64, u32)],
        each: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), (u64, ReadFailure)>;

    /// The value at an offset is read soon. Does not wait.
    fn read_ahead(&self, offset: u64, length: u32);

    /// Length of the file, in bytes.
    fn length(&self) -> u64;
}

/// A file of values. Records refer to it, so it stays open as long as one of them lives.
#[derive(Debug)]
pub struct ValueFile {
    number: u64,
    bytes: Box<dyn ValueBytes>,
}

impl ValueFile {
    /// The file of this number, which no other file of the member has or had.
    pub fn new(number: u64, bytes: impl ValueBytes + 'static) -> Arc<Self> {
        Arc::new(ValueFile {
            number,
            bytes: Box::new(bytes),
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length()
    }

    pub(super) fn read(&self, offset: u64, length: u32) -> Result<Bytes, DamagedValue> {
        let read = self.bytes.read(offset, length);
        read.map_err(|failure| self.damaged(offset, failure))
    }

    /// As [`ValueBytes::read_many`].
    pub(super) fn read_many(
        &self,
        places: &[(u64, u32)],
        each: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), DamagedValue> {
        let read = self.bytes.read_many(places, each);
        read.map_err(|(offset, failure)| self.damaged(offset, failure))
    }

    fn damaged(&self, offset: u64, failure: ReadFailure) -> DamagedValue {
        let (what, io) = match failure {
            ReadFailure::Io(what) => (what, true),
            ReadFailure::Damaged(what) => (what, false),
        };
        let file = self.number;
        DamagedValue {
            file,
            offset,
            what,
            io,
        }
    }
}

/// Where a value is in a file, and what proves that another member's is the same.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: Arc<ValueFile>,
    pub(super) offset: u64,
    pub(super) length: u32,
    /// As [`sum`] counts it, from when the value was in memory. What the file has may be damaged, its checksum included.
    pub(super) sum: u32,
}

/// The checksum of a value, wherever it is.
pub(super) fn sum(value: &[u8]) -> u32 {
    crc32c::crc32c(value)
}

impl Place {
    pub(super) fn read(&self) -> Result<Bytes, DamagedValue> {
        self.file.read(self.offset, self.length)
    }

    pub(super) fn read_ahead(&self) {
        self.file.bytes.read_ahead(self.offset, self.length);
    }
}

/// What became of another member's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healed {
    /// It is in memory now.
    Taken,
    /// It is not this one: of another revision or key, or other bytes.
    Refused,
    /// It is not read from where it was damaged any more.
    Elsewhere,
    /// It was written by a build that kept no checksum of it beside its place.
    Unproven,
}

/// A value, wherever it is.
#[derive(Debug)]
pub(super) struct Value(Mutex<At>);

#[derive(Debug)]
enum At {
    Memory(Bytes),
    File(Place),
}

impl Value {
    pub(super) fn new(value: Bytes) -> Self {
        Value(Mutex::new(At::Memory(value)))
    }

    pub(super) fn placed(place: Place) -> Self {
        Value(Mutex::new(At::File(place)))
    }

    /// Held for a few instructions at a time, never while a file is read.
    #[inline]
    fn at(&self) -> MutexGuard<'_, At> {
        self.0.lock()
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        match &*self.at() {
            At::Memory(value) => value.len(),
            At::File(place) => place.length as usize,
        }
    }

    /// Whether fewer bytes of it are in memory: it is shorter, or in a file.
    pub(super) fn takes_less_than(&self, bytes: usize) -> bool {
        match &*self.at() {
            At::Memory(value) => value.len() < bytes,
            At::File(_) => true,
        }
    }

    /// Loads the beginning of it if it is in memory, for whoever reads it next.
    pub(super) fn touch(&self) {
        if let At::Memory(value) = &*self.at() {
            let lines = value.iter().step_by(LINE).take(LINES);
            std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
        }
    }

    /// The value itself.
    ///
    /// # Errors
    /// If its file is damaged or cannot be read.
    #[inline]
    pub(super) fn load(&self) -> Result<Bytes, DamagedValue> {
        if let At::Memory(value) = &*self.at() {
            return Ok(value.clone());
        }
        self.read()
    }

    /// The value itself if it is in memory, else where it is.
    #[inline]
    pub(super) fn here(&self) -> Result<Bytes, Place> {
        match &*self.at() {
            At::Memory(value) => Ok(value.clone()),
            At::File(place) => Err(place.clone()),
        }
    }

    #[cold]
    fn read(&self) -> Result<Bytes, DamagedValue> {
        let place = match &*self.at() {
            At::Memory(value) => return Ok(value.clone()),
            At::File(place) => place.clone(),
        };
        place.read()
    }

    /// Where it is, if it is in a file.
    pub(super) fn place(&self) -> Option<Place> {
        match &*self.at() {
            At::Memory(_) => None,
            At::File(place) => Some(place.clone()),
        }
    }

    /// From here on it is read from this place, which holds the same value durably.
    pub(super) fn settle(&self, file: &Arc<ValueFile>, offset: u64, sum: u32) {
        let mut at = self.at();
        let length = match &*at {
            // Its length came from a request or a checkpoint, which have limits far below this.
            At::Memory(value) => u32::try_from(value.len()).unwrap_or(u32::MAX),
            At::File(place) => place.length,
        };
        let place = Place {
            file: Arc::clone(file),
            offset,
            length,
            sum,
        };
        let before = std::mem::replace(&mut *at, At::File(place));
        // What is freed is freed without the lock.
        drop(at);
        drop(before);
    }

    /// From here on it is in memory again, if this is what was written where it was found damaged.
    pub(super) fn heal(&self, damaged: (u64, u64), value: Bytes) -> Healed {
        let sum = sum(&value);
        let mut at = self.at();
        match &*at {
            At::File(place) if (place.file.number(), place.offset) == damaged => {
                if place.sum == 0 {
                    return Healed::Unproven;
                }
                let same = (place.length as usize, place.sum) == (value.len(), sum);
                if !same && !mutant!(HealsUnproven) {
                    return Healed::Refused;
                }
            }
            At::File(_) | At::Memory(_) => return Healed::Elsewhere,
        }
        let before = std::mem::replace(&mut *at, At::Memory(value));
        // The file may be closed with it.
        drop(at);
        drop(before);
        Healed::Taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a new key of 32 bytes takes 104 bytes of the allocator's class of 112; a larger one would fall into the next.
    #[test]
    fn place_takes_no_more_memory_than_a_handle_of_bytes() {
        assert_eq!(size_of::<At>(), size_of::<Bytes>());
        assert_eq!(size_of::<Value>(), size_of::<Bytes>() + 8);
    }
}
