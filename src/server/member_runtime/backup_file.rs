//! The file that a backup reads: it is written and read through once on a thread that may wait for the disk, and given up
//! when nobody asks for it any more. Never decides which state is in it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;

use super::lock;
use crate::disk::{Disk as _, FileDisk};
use crate::server::core::handle::Published;
use crate::server::core::spool::{Pace, RESERVE, SpoolError, spool};
use crate::server::operator_api::backup_client::READ;
use crate::wire::member::OpenResponse;

/// A file that nobody has read for so long is given up: longer than whoever reads it waits for an answer.
const IDLE: Duration = Duration::from_secs(330);
/// A file is given up after this in any case, as a backup is.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// Between two looks at a file.
const LOOK: Duration = Duration::from_secs(10);
/// It is read through at so many times the pace at which it is written: from memory, mostly.
const READ_THROUGH: u64 = 4;

/// The file, of which a member has one at most.
pub(super) type Slot = Arc<Mutex<Option<Held>>>;

/// The file that a backup reads.
pub(super) struct Held {
    pub(super) number: u64,
    /// What was asked for; without length and digest.
    about: OpenResponse,
    pace: Pace,
    written: watch::Receiver<Option<Result<Whole, Status>>>,
    /// A call waits until it is written.
    guarded: bool,
    opened: Instant,
    pub(super) used: Instant,
}

/// A file that is written.
#[derive(Clone)]
pub(super) struct Whole {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
    sha256: Bytes,
}

impl Drop for Held {
    /// Whatever gives it up: what is still being written ends.
    fn drop(&mut self) {
        self.pace.stop();
    }
}

impl Held {
    /// All of it, if it is written.
    pub(super) fn whole(&self) -> Option<Result<Whole, Status>> {
        self.written.borrow().clone()
    }
}

/// Begins to write a state into a file; the slot is empty.
pub(super) fn begin(
    slot: &Slot,
    state: Arc<Published>,
    (about, rate): (OpenResponse, u64),
    directory: PathBuf,
    permit: OwnedSemaphorePermit,
) {
    let (report, written) = watch::channel(None);
    let number = about.file;
    let pace = Pace::new(rate);
    let now = Instant::now();
    *lock(slot) = Some(Held {
        number,
        about,
        pace: pace.clone(),
        written,
        guarded: rate == 0,
        opened: now,
        used: now,
    });
    tokio::spawn(give_up(Arc::downgrade(slot), number, directory.clone()));
    tokio::spawn(async move {
        let done = write(state, number, directory, pace, permit).await;
        report.send_replace(Some(done));
    });
}

/// Waits for the file. `None`: it is still being written.
///
/// # Errors
/// It was given up, or cannot be written; then it is given up here.
pub(super) async fn wait(
    slot: &Slot,
    number: u64,
    patience: Duration,
) -> Result<OpenResponse, Status> {
    let (about, mut written) = {
        let mut held = lock(slot);
        let held = held.as_mut().filter(|held| held.number == number);
        let held = held.ok_or_else(given_up)?;
        held.used = Instant::now();
        (held.about.clone(), held.written.clone())
    };
    let done = async {
        let done = written.wait_for(Option::is_some).await;
        done.map(|done| done.clone())
    };
    let done = match tokio::time::timeout(patience, done).await {
        Err(_) => None,
        Ok(Err(_)) => Some(Err(Status::internal("its writer has ended"))),
        Ok(Ok(done)) => done,
    };
    let Some(done) = done else {
        return Ok(OpenResponse {
            growing: true,
            ..about
        });
    };
    match done {
        Ok(whole) => {
            if let Some(held) = lock(slot).as_mut().filter(|held| held.number == number) {
                (held.used, held.guarded) = (Instant::now(), false);
            }
            Ok(OpenResponse {
                length: whole.length,
                sha256: whole.sha256,
                ..about
            })
        }
        Err(status) => {
            close(slot, number).await;
            Err(status)
        }
    }
}

/// Gives a file up.
pub(super) async fn close(slot: &Slot, number: u64) {
    let closed = lock(slot).take_if(|held| held.number == number);
    free(closed).await;
}

/// Nobody has asked for it for long, or its space was needed.
pub(super) fn given_up() -> Status {
    Status::not_found(
        "the file was given up: nobody had read it for minutes, or its space was needed",
    )
}

/// Gives a file up when the call that waits for it ends without it.
pub(super) struct Abandoned {
    pub(super) slot: Slot,
    pub(super) number: u64,
    pub(super) done: bool,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if !self.done {
            drop(lock(&self.slot).take_if(|held| held.number == self.number));
        }
    }
}

/// `permit` is given back when all is written and read through, whether or not anybody waits for it.
async fn write(
    state: Arc<Published>,
    number: u64,
    directory: PathBuf,
    pace: Pace,
    permit: OwnedSemaphorePermit,
) -> Result<Whole, Status> {
    let spooled = spool(state, number, directory, pace.clone(), permit).await;
    let (spooled, permit) = spooled.map_err(|error| match error {
        SpoolError::Space { .. } => Status::resource_exhausted(error.to_string()),
        SpoolError::Failed(_) => Status::internal(error.to_string()),
    })?;
    let digest = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let sha256 = digest(&spooled.file, spooled.length, &pace)?;
        Ok::<_, std::io::Error>(Whole {
            file: Arc::new(spooled.file),
            length: spooled.length,
            sha256: sha256.into(),
        })
    });
    let whole = digest
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    whole.map_err(|error| Status::internal(format!("cannot read back: {error}")))
}

fn digest(file: &File, length: u64, pace: &Pace) -> std::io::Result<Vec<u8>> {
    let (mut digest, mut offset) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ as usize];
    let begun = Instant::now();
    while offset < length {
        // At most `READ`.
        let piece = (length - offset).min(READ) as usize;
        file.read_exact_at(&mut buffer[..piece], offset)?;
        digest.update(&buffer[..piece]);
        offset += piece as u64;
        pace.keep(begun, offset, READ_THROUGH)?;
    }
    Ok(digest.finalize().to_vec())
}

/// Drops the file once nobody reads it any more, or the log needs its space.
async fn give_up(slot: Weak<Mutex<Option<Held>>>, number: u64, directory: PathBuf) {
    loop {
        tokio::time::sleep(LOOK).await;
        let directory = directory.clone();
        let space = tokio::task::spawn_blocking(move || {
            let disk = FileDisk::new(&directory)?;
            disk.free_bytes()
        });
        let space = space.await.ok().and_then(Result::ok);
        let Some(slot) = slot.upgrade() else { return };
        let dropped = {
            let mut held = lock(&slot);
            let Some(file) = held.as_ref().filter(|held| held.number == number) else {
                return;
            };
            let idle = file.used.elapsed() >= IDLE && !file.guarded;
            let idle = idle || file.opened.elapsed() >= LONGEST;
            let needed = space.is_some_and(|free| free < RESERVE);
            if !idle && !needed {
                continue;
            }
            held.take()
        };
        tracing::warn!(
            "a backup has stopped reading this member, or its file takes space that the log needs"
        );
        free(dropped).await;
        return;
    }
}

/// The space of a large file is not freed at once: not on a thread that others wait for.
async fn free(held: Option<Held>) {
    if let Some(held) = held {
        let _ = tokio::task::spawn_blocking(move || drop(held)).await;
    }
}
