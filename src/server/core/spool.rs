//! The state as a database of etcd's, in a file without a name in the data directory: who reads it slowly holds a file
//! and no part of the store. Never sends it anywhere.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::handle::Published;
use crate::bolt::HEAD_BYTES;
use crate::disk::{Disk as _, FileDisk};
use crate::server::listen::quiet::Quiet;
use crate::snapshot::{self, Contents};

/// Bytes between two syncs at most, so that no sync delays the log's for long.
const SYNC_EVERY: u64 = 8 << 20;
/// Bytes of the disk that stay free for the log.
pub(in crate::server) const RESERVE: u64 = 64 << 20;

/// Limits log lines that clients can cause at any rate.
static FAILED: Quiet = Quiet::new();

/// The file.
#[derive(Debug)]
pub(in crate::server) struct Spooled {
    pub(in crate::server) file: File,
    /// In bytes.
    pub(in crate::server) length: u64,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum SpoolError {
    /// The log comes first.
    #[error(
        "a snapshot may need {needed} bytes in the data directory for a moment, and {free} are free"
    )]
    Space {
        /// Bytes, at most.
        needed: u64,
        /// Bytes.
        free: u64,
    },
    /// The disk failed.
    #[error("the snapshot cannot be made: {0}")]
    Failed(String),
}

/// Writes a state, which the caller has found to be its cluster's. `permit` is given back with the file or with the
/// last byte: a caller that waits no longer does not end the writing.
pub(in crate::server) async fn spool<P: Send + 'static>(
    state: Arc<Published>,
    number: u64,
    directory: PathBuf,
    permit: P,
) -> Result<(Spooled, P), SpoolError> {
    let contents = Contents {
        view: Arc::clone(&state.view),
        membership: Arc::clone(&state.membership),
        index: state.applied,
        term: state.term,
    };
    drop(state);
    let written = tokio::task::spawn_blocking(move || {
        let spooled = checked(&directory, number, &contents)?;
        Ok((spooled, permit))
    });
    written
        .await
        .map_err(|error| SpoolError::Failed(error.to_string()))?
}

/// Two writers would each find the same space free.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn checked(directory: &Path, number: u64, contents: &Contents) -> Result<Spooled, SpoolError> {
    let failed = |error: snapshot::Error| {
        let why = match &error {
            snapshot::Error::Write(source) => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        if let Some(left_out) = FAILED.line(Instant::now()) {
            tracing::warn!(left_out, "a snapshot cannot be made: {why}");
        }
        SpoolError::Failed(why)
    };
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let free = FileDisk::new(directory).and_then(|disk| disk.free_bytes());
    let free = free.map_err(|error| failed(error.into()))?;
    let needed = snapshot::estimate(&contents.view) + RESERVE;
    if needed > free {
        return Err(SpoolError::Space { needed, free });
    }
    write(directory, number, contents).map_err(failed)
}

/// Writes the database into a file and unlinks it.
fn write(directory: &Path, number: u64, contents: &Contents) -> Result<Spooled, snapshot::Error> {
    // Left behind only by a crash in between; a start removes files with this suffix.
    let path = directory.join(format!("snapshot-{number:016x}.tmp"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    let mut offset = HEAD_BYTES as u64;
    let mut synced = 0;
    let (head, length) = snapshot::export(contents, |bytes| {
        file.write_all_at(bytes, offset)?;
        offset += bytes.len() as u64;
        if offset - synced >= SYNC_EVERY {
            file.sync_data()?;
            synced = offset;
        }
        Ok(())
    })?;
    file.write_all_at(&head, 0)?;
    Ok(Spooled { file, length })
}
