//! Disk errors, in terms that an operator needs: which file, the offset, and what to do. Never hides a failed sync:
//! those are fatal and are never retried.

use std::io;

/// Result of this room's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An act of this room that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process holds the lock of the data directory.
    #[error(
        "the data directory {directory} is in use by another process; stop that process or give this server another --data-dir"
    )]
    InUse {
        /// The directory as the operator wrote it.
        directory: String,
    },
    /// The directory, or a file in it, belongs to something else.
    #[error("{file}: {what}; {remedy}")]
    Foreign {
        /// The file or directory.
        file: String,
        /// What was found.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Bytes that were once durable have changed.
    #[error("{file} is damaged at offset {offset}: {what}; {remedy}")]
    Corrupt {
        /// The damaged file.
        file: String,
        /// Byte offset of the damage in the file.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The file was written by a newer release.
    #[error(
        "{file} has format {found}, this binary reads formats up to {supported}; its data is kept: start the release that wrote it, or a newer one"
    )]
    TooNew {
        /// The file.
        file: String,
        /// Its format number.
        found: u32,
        /// The newest format that this binary supports.
        supported: u32,
    },
    /// A file that this server did not make lies among its own.
    #[error("{file}: {what}; {remedy}")]
    Stray {
        /// The file.
        file: String,
        /// What it is not.
        what: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The identity file is missing, or contradicts the rest of the directory.
    #[error("{file}: {what}; {remedy}")]
    Identity {
        /// The identity file.
        file: String,
        /// The contradiction.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The disk was found to be a copy of its member's disk.
    #[error("the data directory {directory} is no longer its member's: {why}")]
    Copied {
        /// The directory as the operator wrote it.
        directory: String,
        /// Which server found it, what it is, and what to do.
        why: String,
    },
    /// No space is left.
    #[error(
        "no space left while writing {file}; free space on this volume or enlarge it, then start the server again"
    )]
    Full {
        /// The file.
        file: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file would take the room that the log needs next.
    #[error(
        "{file} is given up after {written} bytes: more of it would leave less than {spare} bytes of this volume for the log; enlarge the volume if as much is stored"
    )]
    NoRoom {
        /// The file.
        file: String,
        /// How much of it was written.
        written: u64,
        /// What is to be left free.
        spare: u64,
    },
    /// A sync failed. What reached the disk is unknown; the process must stop.
    #[error(
        "sync of {file} failed, so what reached the disk is unknown; the server stops and must not go on with this process"
    )]
    Sync {
        /// The file or directory.
        file: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Any other failed file operation.
    #[error("cannot {act} {file}")]
    Io {
        /// The operation: `open`, `read`, `write`, ...
        act: &'static str,
        /// The file.
        file: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An earlier error made this log or writer unusable; errors stay.
    #[error("unusable after an earlier error: {first}")]
    Failed {
        /// Text of the first error.
        first: String,
    },
    /// The requested entries are no longer, or not yet, in the log.
    #[error("entries {from} to {to} are not in the log, which holds {first} to {last}")]
    NotInLog {
        /// First requested index.
        from: u64,
        /// First index that was not requested.
        to: u64,
        /// First index in the log.
        first: u64,
        /// Last index in the log.
        last: u64,
    },
    /// The caller broke this room's contract; nothing was written.
    #[error("refused: {0}")]
    Misuse(String),
}

/// The fixed classes of errors, each with a fixed process exit code: the operator's evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Durable bytes are damaged.
    Corrupt,
    /// The disk belongs to another member, cluster or program.
    ForeignDisk,
    /// No space is left.
    DiskFull,
    /// A sync failed.
    Fsync,
    /// Identity file missing or contradictory.
    Identity,
    /// Another process holds the directory.
    InUse,
    /// Another input or output error.
    Io,
    /// A broken contract inside the process.
    Bug,
    /// A newer release wrote what is on the disk. The disk is intact.
    TooNew,
    /// A foreign file is in its directories. The disk is intact.
    Stray,
    /// The disk is a copy of its member's, or was rolled back to an older state.
    Copied,
}

impl Class {
    /// Exit code of the server process for this class.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Corrupt => 20,
            Self::ForeignDisk => 21,
            Self::DiskFull => 22,
            Self::Fsync => 23,
            Self::Identity => 24,
            Self::InUse => 25,
            Self::Io => 26,
            Self::Bug => 27,
            Self::TooNew => 28,
            Self::Stray => 29,
            Self::Copied => 30,
        }
    }

    /// Stable name for the termination message and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::ForeignDisk => "foreign_disk",
            Self::DiskFull => "disk_full",
            Self::Fsync => "fsync",
            Self::Identity => "identity",
            Self::InUse => "in_use",
            Self::Io => "io",
            Self::Bug => "bug",
            Self::TooNew => "too_new",
            Self::Stray => "stray_file",
            Self::Copied => "copied_disk",
        }
    }
}

impl Error {
    /// The class of this error.
    pub fn class(&self) -> Class {
        match self {
            Self::InUse { .. } => Class::InUse,
            Self::Foreign { .. } => Class::ForeignDisk,
            Self::Corrupt { .. } => Class::Corrupt,
            Self::TooNew { .. } => Class::TooNew,
            Self::Stray { .. } => Class::Stray,
            Self::Identity { .. } => Class::Identity,
            Self::Copied { .. } => Class::Copied,
            Self::Full { .. } | Self::NoRoom { .. } => Class::DiskFull,
            Self::Sync { .. } => Class::Fsync,
            Self::Io { .. } => Class::Io,
            Self::Failed { .. } | Self::NotInLog { .. } | Self::Misuse(_) => Class::Bug,
        }
    }

    /// An error of `act` on `file`; a full disk is distinguished.
    pub fn io(act: &'static str, file: String, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull
            || source.kind() == io::ErrorKind::QuotaExceeded
        {
            Self::Full { file, source }
        } else {
            Self::Io { act, file, source }
        }
    }
}

/// The remedy for a foreign file, or one of a newer release, among the server's own.
pub(crate) const MOVE_AWAY: &str = "move it out of the data directory if you put it there, or start the release that made it; the rest of the directory is kept as it is";

/// The remedy for damage in a member's own durable state.
pub(crate) const REPLACE_MEMBER: &str = "do not edit or delete single files: remove this member from the cluster and add it again with an empty data directory, or restore the directory from a backup of the volume that was taken while the server was stopped and since which it has not run";

/// The remedy for a damaged value, of which other members have the same.
pub(crate) const HEALED_OR_REPLACED: &str = "the other members are asked for it; if none has it, remove this member from the cluster and add it again with an empty data directory";
