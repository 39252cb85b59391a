//! The files of a member that does not run, read where they are or from a copy of them. Never writes, creates or removes
//! anything: this may be the last disk that holds a cluster's data.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::{CheckpointInfo, Checkpoints};
use super::device::{Disk, DiskFile, DiskLock};
use super::directory::LOCK;
use super::error::{Error, REPLACE_MEMBER, Result};
use super::file::{HeldLock, OpenFile};
use super::identity::Identity;
use super::log::{self, LogReader};
use crate::raft::HardState;

/// A member's files. The directory stays locked for as long as this lives, so that no server starts there.
#[derive(Debug)]
pub struct StoppedMember {
    /// Whose disk it is.
    pub identity: Identity,
    /// Its log.
    pub log: LogReader,
    /// Term, vote and commit index; the cluster may have committed more than it knows.
    pub hard_state: HardState,
    /// All checkpoints.
    pub checkpoints: Checkpoints,
    /// The checkpoint to start from.
    pub checkpoint: CheckpointInfo,
    _lock: Option<Box<dyn DiskLock>>,
}

/// What a data directory holds.
#[derive(Debug)]
pub enum Stopped {
    /// A member's data.
    Member(Box<StoppedMember>),
    /// No data: it was never used, or never received any.
    Empty(Option<Identity>),
}

/// Reads a data directory without changing it.
///
/// # Errors
/// [`Error::InUse`] while a server runs in it, [`Error::Corrupt`] where a start of the member would fail as well; any
/// other of this room's.
pub fn open_stopped(root: &Path) -> Result<Stopped> {
    let disk = Untouched {
        root: root.to_owned(),
    };
    let listed = disk.list("");
    listed.map_err(|e| Error::io("list", disk.describe(""), e))?;
    let lock = locked(&disk)?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Some(identity) = Identity::load(&*disk)? else {
        return Ok(Stopped::Empty(None));
    };
    let checkpoints = Checkpoints::new(Arc::clone(&disk));
    let gone = |what: &str| Error::Corrupt {
        file: disk.describe("log"),
        offset: 0,
        what: what.to_owned(),
        remedy: REPLACE_MEMBER,
    };
    let found = match identity.phase() {
        super::Phase::Standby => None,
        _ => log::read(&disk, &identity.uuid())?,
    };
    let Some((mut log, hard_state)) = found else {
        return match identity.phase() {
            super::Phase::Standby | super::Phase::Joining => Ok(Stopped::Empty(Some(identity))),
            _ => Err(gone("the log is gone, but this disk has been a member")),
        };
    };
    let shape = log.shape();
    let Some(checkpoint) = checkpoints.select(&shape)? else {
        return match shape.last() {
            0 => Ok(Stopped::Empty(Some(identity))),
            _ => Err(gone(
                "its checkpoints are gone, and the log alone is no state",
            )),
        };
    };
    let start = checkpoint.position;
    if shape.term(start.index) != Some(start.term) {
        if !checkpoint.received || start.index < shape.floor() {
            return Err(gone("the log does not continue the checkpoint"));
        }
        // The server stopped between storing what its leader sent and starting the log that follows.
        log = log.after(start);
    }
    Ok(Stopped::Member(Box::new(StoppedMember {
        identity,
        log,
        hard_state,
        checkpoints,
        checkpoint,
        _lock: lock,
    })))
}

fn locked(disk: &Untouched) -> Result<Option<Box<dyn DiskLock>>> {
    match disk.lock(LOCK) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::InUse {
            directory: disk.describe(""),
        }),
        // A copy need not have it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("lock", disk.describe(LOCK), error)),
    }
}

/// A directory that is only read.
#[derive(Debug)]
struct Untouched {
    root: PathBuf,
}

impl Untouched {
    fn path(&self, name: &str) -> PathBuf {
        match name.is_empty() {
            true => self.root.clone(),
            false => self.root.join(name),
        }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for Untouched {
    fn create_directory(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenFile(File::open(self.path(name))?)))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    /// A directory that is missing is an empty one: a copy of a volume need not have it.
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.is_empty() => {
                return Ok(Vec::new());
            }
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<String>>>()?;
        names.sort();
        Ok(names)
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn DiskLock>> {
        let file = File::open(self.path(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(HeldLock(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        refused()
    }

    fn total_bytes(&self) -> io::Result<u64> {
        refused()
    }

    fn describe(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}
