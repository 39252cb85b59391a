//! What the caller has to do for the core.

use super::message::Message;
use super::types::{Entry, HardState, Index, MemberId, SnapshotMeta, Term};

/// The number of a batch, for [`super::Raft::persisted`].
pub type PersistMark = u64;
/// The number of a log read, for [`super::Raft::log_read`].
pub type Ticket = u64;

/// Work for the caller. Each part may be done in parallel with the others, but for the order
/// inside a part; see the duties at the head of the room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ready {
    /// To write to the log. At most one batch is under way.
    pub batch: Option<Persist>,
    /// To send at once, in order for each receiver.
    pub messages: Vec<Message>,
    /// Committed and locally durable entries to apply, in order, without a gap.
    pub committed: Vec<Entry>,
    /// Reads that may be answered once their index is applied.
    pub read_states: Vec<ReadState>,
    /// Reads that will never be answered.
    pub read_failures: Vec<ReadFailure>,
    /// Entries to read back from the log.
    pub log_reads: Vec<LogRead>,
    /// Members that need a snapshot. The core asks for one at a time.
    pub snapshot_sends: Vec<SnapshotSend>,
    /// A received snapshot that is to replace log and state.
    pub install: Option<SnapshotMeta>,
    /// Set when role, term or leader differ from the last one returned.
    pub role_change: Option<RoleChange>,
}

impl Ready {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One write to the log: first the entries, then the hard state, durable together. Each is worth
/// a sync: a commit index alone never makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// To be returned once the batch is durable.
    pub number: PersistMark,
    /// The hard state, where it changed.
    pub hard_state: Option<HardState>,
    /// Entries to append. The first may be at or below the end of the log on disk: it and the following ones replace
    /// the existing ones.
    pub entries: Vec<Entry>,
}

/// A read that may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadState {
    /// What the caller named the read.
    pub request: u64,
    /// The state must have applied this index first.
    pub index: Index,
}

/// A read that will not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// What the caller named the read.
    pub request: u64,
    /// Why.
    pub reason: ReadFailureReason,
}

/// Why a read failed. Any of them may be retried as a new read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailureReason {
    /// No leader is known.
    #[error("no leader")]
    NoLeader,
    /// Term or leader changed while it waited.
    #[error("leader changed")]
    LeaderChanged,
    /// No answer within an election timeout.
    #[error("timed out")]
    TimedOut,
    /// Too many reads wait already.
    #[error("too many pending reads")]
    TooMany,
}

/// Entries to read from the log on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRead {
    /// To be returned with the entries.
    pub ticket: Ticket,
    /// The first index.
    pub from: Index,
    /// The index after the last one.
    pub to: Index,
    /// Stop before the data exceeds this, but give at least one entry.
    pub max_bytes: u64,
}

/// A member that needs a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSend {
    /// The receiver.
    pub to: MemberId,
    /// The leader's term, to travel with the snapshot.
    pub term: Term,
    /// The snapshot must reach at least here to be of use, since the log starts after it.
    pub at_least: Index,
}

/// A change of role, term or leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleChange {
    /// What this member is now.
    pub role: Role,
    /// Its term.
    pub term: Term,
    /// The leader of that term, where known.
    pub leader: Option<MemberId>,
}

/// What a member is in its term (paper §5.1), with the pre-candidate of thesis §9.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks whether it would win an election.
    PreCandidate,
    /// Asks for votes.
    Candidate,
    /// Appends for all.
    Leader,
}
