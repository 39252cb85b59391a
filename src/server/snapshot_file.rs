//! A snapshot in a file, as etcd or this server saved it: a database, with the SHA-256 of it behind it unless it was
//! copied from a data directory. Whoever restores one, by hand or for an operator, checks it here. Never changes it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::bolt::Source;
use crate::snapshot::{self, Changes, Imported};
use crate::store::ValueFile;

/// Length of the digest at the end of a snapshot, in bytes.
pub(crate) const DIGEST: u64 = 32;
/// The size of a database is a multiple of this.
const SECTOR: u64 = 512;
/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// A snapshot in a file.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    file: File,
    /// Of the database.
    length: u64,
    has_digest: bool,
}

/// A digest that does not match, in hexadecimal.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The digest in the file.
    pub(crate) expected: String,
    /// That of the data.
    pub(crate) found: String,
}

impl SnapshotFile {
    pub(crate) fn open(path: &Path) -> io::Result<SnapshotFile> {
        SnapshotFile::new(File::open(path)?)
    }

    pub(crate) fn new(file: File) -> io::Result<SnapshotFile> {
        let length = file.metadata()?.len();
        let has_digest = length % SECTOR == DIGEST;
        Ok(SnapshotFile {
            file,
            length: length - if has_digest { DIGEST } else { 0 },
            has_digest,
        })
    }

    pub(crate) fn has_digest(&self) -> bool {
        self.has_digest
    }

    /// Compares the data with the digest behind them, if there is one.
    pub(crate) fn check_digest(&self) -> io::Result<Result<(), Mismatch>> {
        if !self.has_digest {
            return Ok(Ok(()));
        }
        let found = sha256(&self.file, self.length)?;
        let mut expected = [0; DIGEST as usize];
        self.file.read_exact_at(&mut expected, self.length)?;
        let expected = hex(&expected);
        match found == expected {
            true => Ok(Ok(())),
            false => Ok(Err(Mismatch { expected, found })),
        }
    }

    /// Reads the database, with these changes, and values where `place` has put them.
    pub(crate) fn import_placed(
        self,
        changes: &Changes,
        place: impl FnMut(&[u8]) -> io::Result<Option<(Arc<ValueFile>, u64)>>,
    ) -> Result<Imported, snapshot::Error> {
        snapshot::import_placed(self, changes, place)
    }

    /// Reads the database, with these changes.
    pub(crate) fn import(self, changes: &Changes) -> Result<Imported, snapshot::Error> {
        snapshot::import_changed(self, changes)
    }
}

impl Source for SnapshotFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(into.len() as u64) > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(into, offset)
    }
}

/// The SHA-256 of the first bytes of a file, in hexadecimal.
pub(crate) fn sha256(file: &File, length: u64) -> io::Result<String> {
    Ok(hex(&raw_sha256(file, length)?))
}

/// The same, as a snapshot ends with it.
pub(crate) fn raw_sha256(file: &File, length: u64) -> io::Result<Vec<u8>> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let bytes = PIECE.min(usize::try_from(length - at).unwrap_or(PIECE));
        file.read_exact_at(&mut piece[..bytes], at)?;
        digest.update(&piece[..bytes]);
        at += bytes as u64;
    }
    Ok(digest.finalize().to_vec())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
