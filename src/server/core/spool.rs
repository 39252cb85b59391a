//! The state as a database of etcd's, in a file without a name in the data directory: who reads it slowly holds a file
//! and no part of the store. Whoever asks for a slow pace holds the state for as long as the file is written. Not faster than is asked for, since the log is on the same disk. Never sends it anywhere.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::handle::Published;
use crate::bolt::HEAD_BYTES;
use crate::disk::{Disk as _, FileDisk};
use crate::server::listen::quiet::Quiet;
use crate::snapshot::{self, Contents};

/// Bytes between two syncs at most, so that no sync delays the log's for long.
const SYNC_EVERY: u64 = 8 << 20;
/// Bytes of the disk that stay free for the log.
pub(in crate::server) const RESERVE: u64 = 64 << 20;

/// The slowest pace, in bytes a second.
const SLOWEST: u64 = 1 << 20;

/// Bytes that are handed to the disk at once, where there is a pace: few, since the log's next sync waits for them.
const PIECE: usize = 128 << 10;

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

/// How fast something is written, and whether it still is to be. Clones share that.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Pace {
    /// Bytes a second at most; 0: as fast as the disk can.
    rate: u64,
    stopped: Arc<(Mutex<bool>, Condvar)>,
}

impl Pace {
    /// Bytes a second at most; 0: as fast as the disk can. A slower pace than a MiB a second is that: until the last
    /// byte is written, the state is held in memory.
    pub(in crate::server) fn new(rate: u64) -> Pace {
        Pace {
            rate: match rate {
                0 => 0,
                rate => rate.max(SLOWEST),
            },
            ..Pace::default()
        }
    }

    /// Nobody needs it any more: it ends with an error.
    pub(in crate::server) fn stop(&self) {
        *self.lock() = true;
        self.stopped.1.notify_all();
    }

    fn is_stopped(&self) -> bool {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.stopped
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many bytes are due that were begun at a time, at so many times the rate. Blocks the thread.
    pub(in crate::server) fn keep(&self, begun: Instant, bytes: u64, times: u64) -> io::Result<()> {
        let mut stopped = self.lock();
        let rate = self.rate.saturating_mul(times);
        if rate > 0 {
            let due = begun + Duration::from_secs_f64(bytes as f64 / rate as f64);
            let left = due.saturating_duration_since(Instant::now());
            let waited = self
                .stopped
                .1
                .wait_timeout_while(stopped, left, |stopped| !*stopped);
            stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match *stopped {
            true => Err(io::Error::other("nobody waits for it any more")),
            false => Ok(()),
        }
    }
}

/// Writes a state, which the caller has found to be its cluster's. `permit` is given back with the file or with the
/// last byte: a caller that waits no longer does not end the writing.
pub(in crate::server) async fn spool<P: Send + 'static>(
    state: Arc<Published>,
    number: u64,
    directory: PathBuf,
    pace: Pace,
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
        let spooled = checked(&directory, number, &contents, &pace)?;
        Ok((spooled, permit))
    });
    written
        .await
        .map_err(|error| SpoolError::Failed(error.to_string()))?
}

/// One that is as fast as the disk is enough.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Bytes that are still to be written: two writers would each find the same space free.
static PROMISED: Mutex<u64> = Mutex::new(0);

/// Space that a snapshot may still need.
struct Promise(u64);

impl Promise {
    fn of(directory: &Path, bytes: u64) -> Result<Promise, SpoolError> {
        let mut promised = PROMISED.lock().unwrap_or_else(PoisonError::into_inner);
        let free = FileDisk::new(directory).and_then(|disk| disk.free_bytes());
        let free = free.map_err(|error| SpoolError::Failed(error.to_string()))?;
        let free = free.saturating_sub(*promised);
        let needed = bytes + RESERVE;
        if needed > free {
            return Err(SpoolError::Space { needed, free });
        }
        *promised += bytes;
        Ok(Promise(bytes))
    }

    /// So much of it is used.
    fn written(&mut self, bytes: u64) {
        let bytes = bytes.min(self.0);
        self.0 -= bytes;
        *PROMISED.lock().unwrap_or_else(PoisonError::into_inner) -= bytes;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.written(self.0);
    }
}

fn checked(
    directory: &Path,
    number: u64,
    contents: &Contents,
    pace: &Pace,
) -> Result<Spooled, SpoolError> {
    // Whoever writes slowly keeps nobody waiting.
    let _one =
        (pace.rate == 0).then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
    let promise = Promise::of(directory, snapshot::estimate(&contents.view))?;
    write(directory, number, contents, pace, promise).map_err(|error| {
        let why = match &error {
            snapshot::Error::Write(source) => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        if !pace.is_stopped()
            && let Some(left_out) = FAILED.line(Instant::now())
        {
            tracing::warn!(left_out, "a snapshot cannot be made: {why}");
        }
        SpoolError::Failed(why)
    })
}

/// Writes the database into a file and unlinks it.
fn write(
    directory: &Path,
    number: u64,
    contents: &Contents,
    pace: &Pace,
    promise: Promise,
) -> Result<Spooled, snapshot::Error> {
    // Left behind only by a crash in between; a start removes files with this suffix.
    let path = directory.join(format!("snapshot-{number:016x}.tmp"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    let mut spool = Spool {
        file,
        offset: HEAD_BYTES as u64,
        synced: 0,
        pace,
        begun: Instant::now(),
        promise,
    };
    let (head, length) = snapshot::export(contents, |bytes| spool.append(bytes))?;
    spool.file.write_all_at(&head, 0)?;
    Ok(Spooled {
        file: spool.file,
        length,
    })
}

/// The file while it is written.
struct Spool<'a> {
    file: File,
    offset: u64,
    synced: u64,
    pace: &'a Pace,
    begun: Instant,
    promise: Promise,
}

impl Spool<'_> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.pace.rate == 0 {
            self.put(bytes)?;
            if self.offset - self.synced >= SYNC_EVERY {
                self.file.sync_data()?;
                self.synced = self.offset;
            }
            // Whether it still is to be.
            return self.pace.keep(self.begun, 0, 1);
        }
        for piece in bytes.chunks(PIECE) {
            self.put(piece)?;
            write_out(&self.file, self.synced, self.offset)?;
            self.synced = self.offset;
            self.pace.keep(self.begun, self.offset, 1)?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        self.promise.written(bytes.len() as u64);
        Ok(())
    }
}

/// Has the disk write a part of a file and waits for it. The file need not survive anything: no journal is written and no
/// cache of the disk is flushed, for which the log would have to wait.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "sync_file_range has no wrapper in the standard library"
)]
fn write_out(file: &File, from: u64, to: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let offset = libc::off64_t::try_from(from).map_err(io::Error::other)?;
    let bytes = libc::off64_t::try_from(to - from).map_err(io::Error::other)?;
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, how) } {
        0 => Ok(()),
        // Not every file system has it.
        _ => file.sync_data(),
    }
}

#[cfg(not(target_os = "linux"))]
fn write_out(file: &File, _: u64, _: u64) -> io::Result<()> {
    file.sync_data()
}
