//! A part of a database to the bytes of an object and back: compressed, encrypted, with a digest of what is stored.
//! Pure.

use super::cipher::AttemptKeys;
use super::manifest::Part;
use super::{Error, sha256};

/// zstd's own default: most of what higher levels reach, at a speed above that of a network.
const LEVEL: i32 = 3;

/// No part of a database is longer.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// The object of a part, and its entry in the manifest. `number` begins at 1.
pub(super) fn pack(
    number: u32,
    bytes: &[u8],
    keys: Option<&AttemptKeys>,
) -> Result<(Part, Vec<u8>), Error> {
    if bytes.len() as u64 > MOST_BYTES {
        let text = format!("a part of {} bytes is longer than any part is", bytes.len());
        return Err(Error::Usage(text));
    }
    let unfit = |error: std::io::Error| Error::Usage(format!("zstd: {error}"));
    let mut object = zstd::bulk::compress(bytes, LEVEL).map_err(unfit)?;
    if let Some(keys) = keys {
        object = keys.seal(number, object)?;
    }
    let part = Part {
        size: bytes.len() as u64,
        stored: object.len() as u64,
        sha256: sha256(&object),
    };
    Ok((part, object))
}

/// The bytes of a part; an error says what is wrong with the object.
pub(super) fn unpack(
    number: u32,
    part: &Part,
    object: Vec<u8>,
    keys: Option<&AttemptKeys>,
) -> Result<Vec<u8>, String> {
    if object.len() as u64 != part.stored {
        return Err(format!(
            "part {number} has {} bytes and had {} when it was saved",
            object.len(),
            part.stored
        ));
    }
    if sha256(&object) != part.sha256 {
        return Err(format!(
            "part {number} is not what was saved: its SHA-256 differs"
        ));
    }
    let packed = match keys {
        None => object,
        Some(keys) => keys
            .open(number, object)
            .ok_or_else(|| format!("part {number} was changed by somebody without the key"))?,
    };
    // The length is the manifest's, so that no object unpacks to more.
    if part.size > MOST_BYTES {
        return Err(format!("part {number} is longer than any part is"));
    }
    let size = usize::try_from(part.size).map_err(|_| format!("part {number} is too long"))?;
    let bytes = zstd::bulk::decompress(&packed, size)
        .map_err(|error| format!("part {number} does not unpack: {error}"))?;
    match bytes.len() == size {
        true => Ok(bytes),
        false => Err(format!(
            "part {number} unpacks to {} bytes of {size}",
            bytes.len()
        )),
    }
}
