//! Consensus as a value: step, tick, ready. Never touches a clock, a socket, a disk or a thread.
//!
//! The protocol is that of the Raft paper and thesis (Ongaro 2014), with the states and the behaviour of etcd's core:
//! pre-vote, a quorum check with a lease on votes, pipelined appends, learners, changes of membership one at a time and
//! in force once applied, transfer of leadership, reads by index. A [`Raft`] is driven by calls and drained by
//! [`Raft::take_ready`]. It withholds messages that must wait for a disk until the write is reported as durable, so a
//! caller cannot acknowledge or vote too early.
//!
//! # The caller's duties
//! 1. Call [`Raft::tick`] at a steady pace, [`Raft::step`] for each message that arrives, and [`Raft::take_ready`] when
//!    [`Raft::has_ready`] is true. Messages may be lost, duplicated, delayed and reordered, but not altered.
//! 2. Stop the member at an error for which [`Error::is_fatal`] holds. All others are about one
//!    message or call, which has changed nothing.
//! 3. Send [`Ready::messages`] at once. None of them waits for the batch beside them.
//! 4. Write [`Ready::batch`] to the log: its entries, of which the first may replace the log from there on, and the
//!    hard state with its commit index, atomically. Then call [`Raft::persisted`] with its number. No other batch comes
//!    before that.
//! 5. Apply [`Ready::committed`] in order. When a configuration entry is applied and the state
//!    machine accepts it, call [`Raft::apply_configuration`]; then, for it and all others,
//!    [`Raft::applied`]. Many entries may be reported at once, after the changes among them.
//! 6. Answer each of [`Ready::log_reads`] by [`Raft::log_read`].
//! 7. For each of [`Ready::snapshot_sends`] stream a snapshot of at least the given index, along
//!    with this member's id and the given term, and owe one [`Raft::report_snapshot`] for it. The
//!    receiver steps [`Message::install_snapshot`] once the snapshot is whole and durable.
//! 8. On [`Ready::install`] replace state and log by the snapshot (nothing of the old log may remain), durably, and
//!    call [`Raft::snapshot_installed`]. No batch comes before that.
//! 9. Keep the log back to a durable snapshot; report by [`Raft::compact`] what was dropped.
//! 10. Give each read a name that was not used since the start. Answer each
//!     [`Ready::read_states`] from a state that has applied its index. A failed read may be repeated, as a new read.
//! 11. Where a closed connection and a refused new one show that a member's process ended, call [`Raft::report_gone`],
//!     and again after a random time while new ones are refused. This is optional: it shortens elections.
//! 12. After a restart give [`Restored`] all that was durable, and a new boot nonce. A disk that
//!     lost anything that was durable must never come back under the same member id.

mod config;
mod core;
mod election;
mod error;
mod inflights;
mod log;
mod membership;
mod message;
mod output;
mod progress;
mod quorum;
mod read_index;
mod read_only;
mod ready;
mod replication;
mod shape;
mod status;
mod transfer;
mod types;

#[cfg(test)]
mod tests;

pub use self::core::{Raft, Stepped};
pub use config::{Config, Restored};
pub use error::{Error, ProposeError, TransferError};
pub use message::{
    Append, AppendReply, Body, Heartbeat, HeartbeatReply, Message, ReadId, ReadIndex,
    ReadIndexReply, TimeoutNow, VoteReply, VoteRequest,
};
pub use ready::{
    LogRead, Persist, PersistMark, ReadFailure, ReadFailureReason, ReadState, Ready, Role,
    RoleChange, SnapshotSend, Ticket,
};
pub use shape::LogShape;
pub use status::{ProgressState, ProgressStatus, Status};
pub use types::{
    ChangeKind, ChangeRecord, ChangeRefusal, Configuration, ConfigurationChange,
    ConfigurationRecord, Entry, EntryKind, HardState, Index, MemberId, Position, SnapshotMeta,
    Term,
};
