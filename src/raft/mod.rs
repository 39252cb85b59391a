//! Consensus as a value: step, tick, ready. Never touches a clock, a socket, a disk or a thread.

mod config;
mod error;
mod message;
mod ready;
mod shape;
mod status;
mod types;

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
    ConfigurationRecord, Entry, EntryKind, HardState, Index, MemberId, SnapshotMeta, Term,
};
