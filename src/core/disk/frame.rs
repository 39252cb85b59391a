//! Small checked files, and the byte helpers that segments and checkpoints share.

use super::device::{Disk, read_exact};
use super::error::{Error, REPLACE_MEMBER, Result};

/// Bytes before the body of a small file: magic, format, length, checksum.
pub(crate) const SMALL_HEADER: usize = 8 + 4 + 4 + 4;
/// Small files are read whole; a longer one is damage.
const SMALL_LIMIT: usize = 1 << 20;

/// A little-endian cursor over bytes that were already checked by a checksum. `None` means that
/// the bytes are shorter than their format requires.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        if self.0.len() < n {
            return None;
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Length of a file; 0 of one that cannot be opened, as one that is removed meanwhile.
pub(crate) fn length_if_there(disk: &dyn Disk, name: &str) -> Result<u64> {
    let Ok(file) = disk.open(name) else {
        return Ok(0);
    };
    let length = file.length();
    length.map_err(|e| Error::io("measure", disk.describe(name), e))
}

/// Reads a small checked file; `None` if it does not exist.
pub(crate) fn load_small(
    disk: &dyn Disk,
    name: &str,
    magic: [u8; 8],
    format: u32,
) -> Result<Option<Vec<u8>>> {
    let path = || disk.describe(name);
    let file = match disk.open(name) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path(), error)),
    };
    let corrupt = |offset: u64, what: String| Error::Corrupt {
        file: path(),
        offset,
        what,
        remedy: REPLACE_MEMBER,
    };
    let length = file.length().map_err(|e| Error::io("measure", path(), e))?;
    if length < SMALL_HEADER as u64 || length > SMALL_LIMIT as u64 {
        return Err(corrupt(0, format!("its length is {length} bytes")));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(SMALL_LIMIT)];
    read_exact(&*file, 0, &mut bytes).map_err(|e| Error::io("read", path(), e))?;
    let (head, body) = bytes.split_at(SMALL_HEADER);
    if head[..8] != magic {
        return Err(corrupt(
            0,
            "it does not begin with the magic bytes of this kind of file".to_owned(),
        ));
    }
    let mut cursor = Cursor(&head[8..]);
    let (Some(found), Some(size), Some(sum)) = (cursor.u32(), cursor.u32(), cursor.u32()) else {
        return Err(corrupt(8, "its header is incomplete".to_owned()));
    };
    if found > format && !rotten(format, sum, |format| small_checksum(format, body)) {
        return Err(Error::TooNew {
            file: path(),
            found,
            supported: format,
        });
    }
    if size as usize != body.len() {
        return Err(corrupt(
            12,
            format!("its header gives {size} bytes, {} follow", body.len()),
        ));
    }
    if small_checksum(found, body) != sum {
        return Err(corrupt(16, "the checksum does not match".to_owned()));
    }
    Ok(Some(body.to_vec()))
}

/// The error for a small file whose checksum matches, but whose content is invalid.
pub(crate) fn corrupt_small(disk: &dyn Disk, name: &str, what: String) -> Error {
    Error::Corrupt {
        file: disk.describe(name),
        offset: SMALL_HEADER as u64,
        what,
        remedy: REPLACE_MEMBER,
    }
}

/// Replaces a small checked file atomically and durably.
pub(crate) fn store_small(
    disk: &dyn Disk,
    name: &str,
    temporary: &str,
    magic: [u8; 8],
    format: u32,
    body: &[u8],
) -> Result<()> {
    let size = u32::try_from(body.len())
        .ok()
        .filter(|n| *n as usize + SMALL_HEADER <= SMALL_LIMIT)
        .ok_or_else(|| Error::Misuse(format!("{name} would have {} bytes", body.len())))?;
    let mut bytes = Vec::with_capacity(SMALL_HEADER + body.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&small_checksum(format, body).to_le_bytes());
    bytes.extend_from_slice(body);
    remove_if_there(disk, temporary)?;
    let path = || disk.describe(temporary);
    let file = disk
        .create(temporary)
        .map_err(|e| Error::io("create", path(), e))?;
    file.write_at(0, &bytes)
        .map_err(|e| Error::io("write", path(), e))?;
    file.sync().map_err(|source| Error::Sync {
        file: path(),
        source,
    })?;
    disk.rename(temporary, name)
        .map_err(|e| Error::io("rename", path(), e))?;
    sync_directory(disk, "")
}

/// Syncs a directory; an error is a failed sync.
pub(crate) fn sync_directory(disk: &dyn Disk, directory: &str) -> Result<()> {
    disk.sync_directory(directory)
        .map_err(|source| Error::Sync {
            file: disk.describe(directory),
            source,
        })
}

/// Removes a file that may not exist.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", disk.describe(name), error))
        }
        _ => Ok(()),
    }
}

/// Removes unfinished work (`*.tmp`) of an earlier process from `directory`.
pub(crate) fn remove_temporaries(disk: &dyn Disk, directory: &str) -> Result<()> {
    let names = disk
        .list(directory)
        .map_err(|e| Error::io("list", disk.describe(directory), e))?;
    for name in names.iter().filter(|name| name.ends_with(".tmp")) {
        let name = if directory.is_empty() {
            name.clone()
        } else {
            format!("{directory}/{name}")
        };
        remove_if_there(disk, &name)?;
    }
    Ok(())
}

/// Whether a format number that is not known is damage: the checksum, which covers it, is right for
/// one of those that are known. Any other unknown number is that of a newer release.
pub(crate) fn rotten(known: u32, sum: u32, checksum: impl Fn(u32) -> u32) -> bool {
    (1..=known).any(|format| checksum(format) == sum)
}

fn small_checksum(format: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), body)
}
