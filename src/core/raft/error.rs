//! The errors of the core. It never panics: wrong input comes back as one of these.

use super::types::{ChangeRefusal, Index, MemberId, Term};

/// Errors. [`Error::is_fatal`] determines how to handle them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting that cannot work.
    #[error("invalid raft setting: {0}")]
    Config(&'static str),
    /// What the disk gave back contradicts itself.
    #[error("restored state is damaged: {0}")]
    Restored(String),
    /// This member is known to have held entries that it no longer has. Continuing would let it vote and acknowledge
    /// without them.
    #[error(
        "log lost: index {commit} is committed but the local log ends at {last}; \
         this disk must not rejoin, remove the member and add a new one"
    )]
    LogLost {
        /// The committed index.
        commit: Index,
        /// The last index of the local log.
        last: Index,
    },
    /// A leader asked to overwrite an entry that is committed here.
    #[error("entry {index} of term {theirs} would replace a committed entry of term {ours}")]
    Diverged {
        /// Where the logs differ.
        index: Index,
        /// The term of the local entry.
        ours: Term,
        /// The term of the offered entry.
        theirs: Term,
    },
    /// An entry of a kind that this version does not know.
    #[error("entry {index} is of unknown kind {kind}: a newer version wrote it")]
    UnknownEntryKind {
        /// The entry.
        index: Index,
        /// Its kind.
        kind: i32,
    },
    /// A configuration entry whose data cannot be read.
    #[error("configuration entry {index} cannot be decoded")]
    BrokenConfiguration {
        /// The entry.
        index: Index,
    },
    /// A message that no correct member sends. It has been dropped and changed nothing.
    #[error("message from {from:x} refused: {reason}")]
    BadMessage {
        /// The sender that the message names.
        from: MemberId,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The caller broke its side of the contract. Nothing was changed.
    #[error("misuse of the core: {0}")]
    Misuse(String),
    /// A change of membership that does not fit the configuration. Nothing was changed.
    #[error("change of membership refused: {0}")]
    Change(#[from] ChangeRefusal),
    /// The log on disk gave back something else than was written.
    #[error("log read at {index} returned the wrong entries: {reason}")]
    WrongRead {
        /// Where the read started.
        index: Index,
        /// What is wrong with the answer.
        reason: &'static str,
    },
}

impl Error {
    /// Whether the member must stop: its state can no longer be trusted. Other errors leave
    /// the core as it was; they are worth a log line.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Restored(_)
            | Self::LogLost { .. }
            | Self::Diverged { .. }
            | Self::UnknownEntryKind { .. }
            | Self::BrokenConfiguration { .. }
            | Self::WrongRead { .. } => true,
            Self::BadMessage { .. } | Self::Misuse(_) | Self::Change(_) => false,
        }
    }
}

/// Why a proposal was not appended. It has left no trace in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Only the leader appends.
    #[error("not the leader")]
    NotLeader {
        /// The leader of the current term, where known.
        leader: Option<MemberId>,
    },
    /// Leadership is being handed over. Try again at the new leader.
    #[error("leadership is being handed to {to:x}")]
    Transferring {
        /// The member it goes to.
        to: MemberId,
    },
    /// One entry exceeds the core's limit.
    #[error("entry of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The size of the largest entry, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Too much of the log is not committed yet. Try again when some of it is.
    #[error("{uncommitted} bytes are not committed yet, the limit is {limit} bytes")]
    Overloaded {
        /// Bytes appended in this term and not committed.
        uncommitted: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Another change of membership is not applied yet, or the leader is too new to know.
    #[error("another change of membership is not applied yet")]
    ChangePending,
    /// The change does not fit the configuration.
    #[error("change of membership refused: {0}")]
    Change(#[from] ChangeRefusal),
    /// Nothing to append.
    #[error("empty proposal")]
    Empty,
}

/// Why leadership cannot be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Only the leader can transfer leadership.
    #[error("not the leader")]
    NotLeader {
        /// The leader of the current term, where known.
        leader: Option<MemberId>,
    },
    /// The target is not a voter, or is the leader itself.
    #[error("{to:x} cannot take over leadership")]
    BadTarget {
        /// The target.
        to: MemberId,
    },
    /// A transfer to another member is under way.
    #[error("leadership is being handed to {to:x} already")]
    Transferring {
        /// The other target.
        to: MemberId,
    },
}
