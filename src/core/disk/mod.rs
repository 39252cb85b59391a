//! Bytes on disk: log segments, checkpoints and the identity file, behind the [`Disk`] trait.
//!
//! The log on disk *is* the Raft log. A batch is one write and one sync; what a call of
//! [`Log::append`] returned `Ok` for survives any crash. Synced bytes are never written again. A
//! tail that is provably torn is cut; any other damage, and any failed sync, is an error that
//! names the file, the offset and the remedy.
//!
//! Never acknowledges before a sync, never retries a sync, never repairs by guessing, never
//! starts a thread: the shell decides where calls run.
//!
//! Layout of a data directory:
//!
//! | name | content |
//! |---|---|
//! | `lock` | held by the process that uses the directory |
//! | `identity` | the owner of this disk: [`Identity`] |
//! | `starts` | its starts, and the newest of each other member: [`Starts`] |
//! | `log/<sequence>.log` | segments: [`Log`] |
//! | `checkpoints/<index>-<term>.checkpoint` | states of the machine: [`Checkpoints`] |
//! | `values/<number>.values` | values that checkpoints have moved out of memory: [`ValueFiles`] |
//! | `staged` | the snapshot that a standby founds a cluster from, until it has: the server's |
//! | `reserve` | nothing: reserved space for a full volume ([`Reserve`]) |
//! | `*/*.tmp` | unfinished work, removed at start |

/// The oldest version whose servers can read what this one writes into a data directory, the log's
/// entries and the states of the machine included. Raised with every format that an older one cannot read.
pub const READABLE_SINCE: &str = "0.1.0";
/// The oldest one that can read a directory with files of values in it.
pub(crate) const VALUES_READABLE_SINCE: &str = "0.2.0";

mod append;
mod checkpoint;
mod device;
mod directory;
pub mod double;
mod error;
mod file;
mod frame;
mod identity;
mod log;
mod open;
mod reserve;
mod starts;
mod stopped;
#[cfg(test)]
mod tests;
mod values;

pub use crate::raft::Position;
pub use checkpoint::{
    CheckpointInfo, CheckpointReader, CheckpointWriter, Checkpoints, MAX_CHUNK_BYTES,
};
pub use device::{Disk, DiskFile, DiskLock, SECTOR};
pub use directory::DataDirectory;
pub use error::{Class, Error, Result};
pub use file::FileDisk;
pub use identity::{Identity, Phase};
pub use log::{Log, LogOptions, LogReader, Preparer, log_bytes};
pub use open::{FirstCheckpoint, MemberFiles, create_member, create_member_with, open_member};
pub use reserve::Reserve;
pub use starts::{Descent, Lineage, Start, Starts};
pub use stopped::{Stopped, StoppedMember, open_stopped};
pub use values::{ValueFiles, ValuePlace, ValueReader, ValueWriter};
