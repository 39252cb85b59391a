//! A view of the core for people, metrics and the checks made before a change of membership.

use std::collections::BTreeMap;

use super::ready::Role;
use super::types::{Configuration, Index, MemberId, Term};

/// The status of a member's core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// This member.
    pub id: MemberId,
    /// Its role.
    pub role: Role,
    /// Its term.
    pub term: Term,
    /// The candidate that it voted for in this term.
    pub vote: Option<MemberId>,
    /// The leader of this term, where known.
    pub leader: Option<MemberId>,
    /// The member that leadership is being handed to.
    pub transferring: Option<MemberId>,
    /// The commit index.
    pub commit: Index,
    /// The last index reported as applied.
    pub applied: Index,
    /// The last index of the log.
    pub last_index: Index,
    /// The term of the entry there.
    pub last_term: Term,
    /// The last index known to be on this member's disk.
    pub durable_index: Index,
    /// The index before the first entry that the log still has.
    pub floor_index: Index,
    /// The applied configuration.
    pub configuration: Configuration,
    /// Ticks since the start.
    pub ticks: u64,
    /// A leader that has committed an entry of its own term, so that reads are served.
    pub reads_ready: bool,
    /// At a leader: the progress of each member, including itself. Empty at others.
    pub progress: BTreeMap<MemberId, ProgressStatus>,
}

/// The progress of one member, as tracked by its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressStatus {
    /// The last index that the member is known to hold durably.
    pub matched: Index,
    /// The next index to send.
    pub next: Index,
    /// How entries are sent.
    pub state: ProgressState,
    /// Whether it is a learner.
    pub learner: bool,
    /// Whether it answered since the last check of the quorum.
    pub recent_active: bool,
    /// The value of `ticks` at its last answer; `None` before the first one to this leader.
    pub last_ack_tick: Option<u64>,
    /// The last index that it reported as applied.
    pub applied: Index,
    /// In [`ProgressState::Snapshot`]: the index that its log must reach before entries flow.
    pub pending_snapshot: Option<Index>,
    /// Appends under way.
    pub inflight_messages: usize,
    /// Entry bytes under way.
    pub inflight_bytes: u64,
}

/// How a leader sends entries to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgressState {
    /// One append at a time, to find where the logs agree.
    Probe,
    /// Appends flow ahead of their answers.
    Replicate,
    /// It waits for a snapshot.
    Snapshot,
}
