//! Opens log and checkpoints together: the one order in which a member's files come to life, for
//! the server and the simulation alike.

use super::checkpoint::{CheckpointInfo, Checkpoints};
use super::directory::DataDirectory;
use super::error::{Error, REPLACE_MEMBER, Result};
use super::identity::Phase;
use super::log::{Log, LogOptions};
use crate::raft::{HardState, Position};

/// The checkpoint that a new member starts from: its place, its description and its chunks.
pub type FirstCheckpoint<'a, C = Vec<Vec<u8>>> = (Position, &'a [u8], C);

/// The files of a member, ready for use.
#[derive(Debug)]
pub struct MemberFiles {
    /// The log; hard state and shape are read from it.
    pub log: Log,
    /// All checkpoints.
    pub checkpoints: Checkpoints,
    /// The checkpoint to start from; `None` for a joiner that has not received one yet.
    pub checkpoint: Option<CheckpointInfo>,
    /// Newer checkpoints that were found damaged and were removed, newest first: the log makes up
    /// for them.
    pub discarded: Vec<Position>,
}

/// Makes the files of a new member: a first checkpoint (`None` for a joiner, which waits for its
/// leader's) and the log after it. Durable when it returns. The caller then stores an identity
/// with [`Phase::Joining`] or [`Phase::Member`]; until then this may be done again.
///
/// # Errors
/// [`Error::Misuse`] if the disk has been a member; any other of this room's.
pub fn create_member(
    directory: &DataDirectory,
    first: Option<FirstCheckpoint<'_, impl IntoIterator<Item: AsRef<[u8]>>>>,
    hard_state: HardState,
    options: LogOptions,
) -> Result<MemberFiles> {
    let checkpoints = Checkpoints::new(directory.disk().clone());
    let write = |(position, meta, chunks)| checkpoints.write(position, meta, chunks);
    create_member_with(
        directory,
        &checkpoints,
        || first.map(write).transpose(),
        (hard_state, options),
    )
}

/// The same with these checkpoints of the directory, of which `write` writes the first one. Files of values that are open
/// through them stay.
///
/// # Errors
/// As [`create_member`], and those of `write`.
pub fn create_member_with<E: From<Error>>(
    directory: &DataDirectory,
    checkpoints: &Checkpoints,
    write: impl FnOnce() -> std::result::Result<Option<CheckpointInfo>, E>,
    (hard_state, options): (HardState, LogOptions),
) -> std::result::Result<MemberFiles, E> {
    let misuse = |what: &str| E::from(Error::Misuse(what.to_owned()));
    let Some(identity) = directory.identity() else {
        return Err(misuse("a member's disk has an identity first"));
    };
    if identity.phase() != Phase::Standby {
        return Err(misuse("this disk is bound to a member already"));
    }
    checkpoints.clear()?;
    let checkpoint = write()?;
    let floor = checkpoint.map(|info| info.position).unwrap_or_default();
    let log = Log::create(
        directory.disk().clone(),
        identity.uuid(),
        hard_state,
        floor,
        options,
    )?;
    Ok(MemberFiles {
        log,
        checkpoints: checkpoints.clone(),
        checkpoint,
        discarded: Vec::new(),
    })
}

/// Opens the files of a member: checks the whole log, chooses the checkpoint to start from, and
/// finishes the installation of a received one that a crash interrupted.
///
/// # Errors
/// [`Error::Corrupt`] if the log does not reach from the checkpoint on, or any other damage.
pub fn open_member(directory: &DataDirectory, options: LogOptions) -> Result<MemberFiles> {
    let disk = directory.disk();
    let Some(identity) = directory.identity() else {
        return Err(Error::Misuse("a member's disk has an identity".to_owned()));
    };
    let mut log = Log::open(disk.clone(), identity.uuid(), options)?;
    let checkpoints = Checkpoints::new(disk.clone());
    let shape = log.shape();
    let checkpoint = checkpoints.select(&shape)?;
    let start = checkpoint.map(|info| info.position).unwrap_or_default();
    let discarded = checkpoints.discard_after(start)?;
    if shape.term(start.index) != Some(start.term) {
        let received = checkpoint.is_some_and(|info| info.received);
        if !received || start.index < shape.floor() {
            return Err(Error::Corrupt {
                file: disk.describe("log"),
                offset: 0,
                what: format!(
                    "log lost: it holds {} to {} and does not continue the checkpoint at {start}",
                    shape.floor() + 1,
                    shape.last()
                ),
                remedy: REPLACE_MEMBER,
            });
        }
        checkpoints.confirm(start)?;
        log.reset(start)?;
    }
    Ok(MemberFiles {
        log,
        checkpoints,
        checkpoint,
        discarded,
    })
}
