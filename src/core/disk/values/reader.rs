//! Reads values from one file and checks each. Never gives a value that does not match its checksum.

use std::io;
use std::sync::Arc;

use super::{FORMAT, HEAD, MAGIC, VALUE_HEAD, checksum, head, name};
use crate::disk::device::{Disk, DiskFile, read_exact};
use crate::disk::error::{Error, REPLACE_MEMBER, Result};
use crate::disk::frame::{self, Cursor};
use crate::mutants::mutant;

/// A file of values, open for reading.
#[derive(Debug)]
pub struct ValueReader {
    path: String,
    number: u64,
    file: Arc<dyn DiskFile>,
    length: u64,
}

impl ValueReader {
    pub(super) fn open(disk: &Arc<dyn Disk>, number: u64) -> Result<Self> {
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
        Ok(Self::written(path, number, file, length))
    }

    pub(super) fn written(path: String, number: u64, file: Arc<dyn DiskFile>, length: u64) -> Self {
        Self {
            path,
            number,
            file,
            length,
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads the value at an offset.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not the one that was written there, [`Error::Io`].
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; VALUE_HEAD + length as usize];
        read_exact(&*self.file, offset, &mut bytes)
            .map_err(|e| failed(self.path.clone(), offset, e))?;
        let value = bytes.split_off(VALUE_HEAD);
        let mut cursor = Cursor(&bytes);
        let (sum, found) = (cursor.u32(), cursor.u32());
        let right = (sum, found) == (Some(checksum(self.number, offset, &value)), Some(length));
        if !right && !mutant!(ValueRot) {
            let what = "a value does not match its checksum";
            return Err(damaged(self.path.clone(), offset, what));
        }
        Ok(value)
    }
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
