//! Reads values from one file and checks each. Never gives a value that does not match its checksum; where one does not, or
//! cannot be read, is remembered.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::{Claim, FOOT, FORMAT, HEAD, MAGIC, VALUE_HEAD, checksum, foot, head, name};
use crate::disk::device::{Disk, DiskFile, read_exact};
use crate::disk::error::{Error, HEALED_OR_REPLACED, REPLACE_MEMBER, Result};
use crate::disk::frame::{self, Cursor};
use crate::mutants::mutant;

/// Values that are farther apart than this, in bytes, are not read together.
const GAP: u64 = 4 << 10;
/// Most bytes that are read together, unless one value is longer.
const TOGETHER: u64 = 1 << 20;

/// A file of values, open for reading.
#[derive(Debug)]
pub struct ValueReader {
    path: String,
    claim: Claim,
    file: Arc<dyn DiskFile>,
    length: u64,
}

impl ValueReader {
    pub(super) fn open(disk: &Arc<dyn Disk>, claim: Claim) -> Result<Self> {
        let number = claim.number();
        let path = disk.describe(&name(number));
        let file = match disk.open(&name(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(path, 0, "it is missing, and a checkpoint names it"));
            }
            file => file.map_err(|e| Error::io("open", path.clone(), e))?,
        };
        let length = file.length();
        let length = length.map_err(|e| Error::io("measure", path.clone(), e))?;
        let mut found = [0; HEAD];
        read_exact(&*file, 0, &mut found).map_err(|e| failed(path.clone(), 0, e))?;
        check_head(&path, number, &found)?;
        check_foot(&path, number, &*file, length)?;
        Ok(Self::written(path, claim, file, length))
    }

    pub(super) fn written(
        path: String,
        claim: Claim,
        file: Arc<dyn DiskFile>,
        length: u64,
    ) -> Self {
        Self {
            path,
            claim,
            file,
            length,
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.claim.number()
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads the value at an offset.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not the one that was written there, [`Error::Io`].
    pub fn read(&self, offset: u64, length: u32) -> Result<Bytes> {
        let bytes = self.bytes(offset, end(offset, length));
        let value = bytes.and_then(|bytes| self.checked(offset, length, &bytes));
        value.inspect_err(|error| self.claim.note_damage(offset, &error.to_string()))
    }

    /// Reads values whose offsets ascend, neighbours with one read. `each` gets the number of a place among these, and the
    /// value that is there.
    ///
    /// # Errors
    /// As [`ValueReader::read`], with the offset at which it failed.
    pub fn read_many(
        &self,
        places: &[(u64, u32)],
        mut each: impl FnMut(usize, Bytes),
    ) -> std::result::Result<(), (u64, Error)> {
        let mut at = 0;
        while let Some((begin, _)) = places.get(at).copied() {
            let (count, until) = together(&places[at..]);
            let some = &places[at..at + count];
            let Ok(bytes) = self.bytes(begin, until) else {
                // It says nothing of where between them the disk fails.
                for (offset, length) in some {
                    let value = self.read(*offset, *length);
                    each(at, value.map_err(|error| (*offset, error))?);
                    at += 1;
                }
                continue;
            };
            // What lies between them must not stay in memory for as long as they do.
            let wanted: usize = some.iter().map(|(_, length)| *length as usize).sum();
            let sparse = wanted < bytes.len() / 2;
            for (offset, length) in some {
                let (offset, length) = (*offset, *length);
                // Both are within what was read, which is at most one long value.
                let from = (offset - begin) as usize;
                let one = bytes.slice(from..from + VALUE_HEAD + length as usize);
                let value = self.checked(offset, length, &one);
                let value = value.map_err(|error| {
                    self.claim.note_damage(offset, &error.to_string());
                    (offset, error)
                })?;
                let kept = match sparse {
                    true => Bytes::copy_from_slice(&value),
                    false => value,
                };
                each(at, kept);
                at += 1;
            }
        }
        Ok(())
    }

    /// The value at an offset is read soon. Does not wait.
    pub fn read_ahead(&self, offset: u64, length: u32) {
        let length = VALUE_HEAD as u64 + u64::from(length);
        self.file.read_ahead(offset, length);
    }

    fn bytes(&self, begin: u64, end: u64) -> Result<Bytes> {
        let length = usize::try_from(end - begin)
            .map_err(|_| Error::Misuse(format!("a read of {} bytes", end - begin)))?;
        let mut bytes = vec![0; length];
        read_exact(&*self.file, begin, &mut bytes)
            .map_err(|e| failed(self.path.clone(), begin, e))?;
        Ok(Bytes::from(bytes))
    }

    /// The value in these bytes, which begin at its offset.
    fn checked(&self, offset: u64, length: u32, bytes: &Bytes) -> Result<Bytes> {
        let mut cursor = Cursor(bytes);
        let (sum, found) = (cursor.u32(), cursor.u32());
        let value = bytes.slice(VALUE_HEAD..);
        let right = (sum, found) == (Some(checksum(self.number(), offset, &value)), Some(length));
        if !right && !mutant!(ValueRot) {
            return Err(Error::Corrupt {
                file: self.path.clone(),
                offset,
                what: "a value does not match its checksum".to_owned(),
                remedy: HEALED_OR_REPLACED,
            });
        }
        Ok(value)
    }
}

/// Where a value ends. No file is nearly as long as a number can be, so a place that is damaged ends beyond the file.
fn end(offset: u64, length: u32) -> u64 {
    offset.saturating_add(VALUE_HEAD as u64 + u64::from(length))
}

/// How many of these values, of which there is one, are read together, and where the last of them ends.
fn together(places: &[(u64, u32)]) -> (usize, u64) {
    let (begin, length) = places[0];
    let mut until = end(begin, length);
    let mut count = 1;
    for (offset, length) in &places[1..] {
        let next = end(*offset, *length);
        let apart = offset.checked_sub(until).is_none_or(|gap| gap > GAP);
        if apart || next - begin > TOGETHER {
            break;
        }
        (count, until) = (count + 1, next);
    }
    (count, until)
}

fn check_head(path: &str, number: u64, found: &[u8; HEAD]) -> Result<()> {
    if *found == head(number) {
        return Ok(());
    }
    if found[..8] != MAGIC {
        let what = "it does not begin with the magic bytes of a file of values";
        return Err(damaged(path.to_owned(), 0, what));
    }
    let mut cursor = Cursor(&found[8..]);
    let (format, named, sum) = (cursor.u32(), cursor.u64(), cursor.u32());
    let (Some(format), Some(named), Some(sum)) = (format, named, sum) else {
        return Err(damaged(path.to_owned(), 8, "its head is short"));
    };
    let checksum = |format: u32| {
        crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), &named.to_le_bytes())
    };
    if format > FORMAT && !frame::rotten(FORMAT, sum, checksum) {
        return Err(Error::TooNew {
            file: path.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    if checksum(format) != sum {
        return Err(damaged(
            path.to_owned(),
            8,
            "its head does not match its checksum",
        ));
    }
    Err(damaged(
        path.to_owned(),
        12,
        "the file was renamed: its head has another number",
    ))
}

/// A file that lost its end, or went on after it, is damaged as a whole.
fn check_foot(path: &str, number: u64, file: &dyn DiskFile, length: u64) -> Result<()> {
    let at = length.saturating_sub(FOOT as u64).max(HEAD as u64);
    let mut found = [0; FOOT];
    read_exact(file, at, &mut found).map_err(|e| failed(path.to_owned(), at, e))?;
    match found == foot(number, at) {
        true => Ok(()),
        false => Err(damaged(
            path.to_owned(),
            at,
            "it does not end as it was written",
        )),
    }
}

fn failed(path: String, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(path, offset, "the file ends early"),
        _ => Error::io("read", path, error),
    }
}

fn damaged(file: String, offset: u64, what: &str) -> Error {
    Error::Corrupt {
        file,
        offset,
        what: what.to_owned(),
        remedy: REPLACE_MEMBER,
    }
}
