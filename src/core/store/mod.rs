//! The MVCC state machine of a member: keys with their history, leases, compaction, watch
//! matching, checkpoints. A value with one owner that applies commands, and frozen views that
//! any thread may read.
//!
//! Apply depends on the command, its position and the state alone: it never reads a clock, a
//! random number or a configuration, and never blocks but for a value that is in a file (see [`ValueBytes`]).
//! What a view shows never changes once it is published.

mod alarm;
mod auth;
mod block;
mod changes;
mod check;
mod checkpoint;
mod chunk;
mod command;
mod earlier;
mod error;
mod follow;
mod hash;
mod heal;
mod history;
mod key_rows;
mod keys;
mod lease;
mod log;
mod marked;
mod merge;
mod merged_rows;
mod moves;
mod overview;
mod pace;
mod pieces;
mod placed;
mod range;
mod read_ahead;
mod reads;
mod recents;
mod record;
mod replaced;
mod row_bytes;
mod rows;
mod span;
mod staged;
mod state;
mod state_machine;
mod stream;
mod tree;
mod txn;
mod unkeyed;
mod value;
mod view;
mod watch;
mod watch_index;
mod watched;
mod written;

pub use crate::raft::Position;
pub use alarm::{Alarm, AlarmKind, SetAlarm, SetAlarmResponse};
pub use auth::*;
pub use changes::Changes;
pub use check::{Limits, check, check_range, check_txn};
pub use checkpoint::{CHUNK_BYTES, Export, Import};
pub use command::*;
pub use error::Error;
pub use follow::{
    Follow, FollowClose, FollowFinish, FollowPromote, FollowResponse, FollowedEvent, FollowedLease,
    FollowedRevision, Following,
};
pub use hash::KeyHash;
pub use heal::LostValue;
pub use lease::LeaseInfo;
pub use merge::Merge;
pub use moves::Moved;
pub use overview::Overview;
pub use pace::Pace;
pub use range::Counted;
pub use read_ahead::ReadAhead;
pub use rows::{Rebuild, Row};
pub use state_machine::Store;
pub use stream::{Inline, Outline};
pub use tree::TOGETHER as TOUCHED;
pub use value::{DamagedValue, Healed, ReadFailure, ValueBytes, ValueFile};
pub use view::View;
pub use watch::{CatchUp, Slice, WatchError, WatchSpec, WatcherId, Watchers};
pub use watch_index::GroupKey;
pub use watched::{News, StreamId, Watched};
pub use written::{Moment, UsedFiles, Written};

/// A revision of the store. 1 is the empty store; the first write makes 2.
pub type Revision = i64;

/// Identity of a lease; 0 means none.
pub type LeaseId = i64;

/// The largest time to live that can be granted, in seconds (etcd's bound).
pub const MAX_LEASE_TTL: i64 = 9_000_000_000;

#[cfg(test)]
mod tests;
