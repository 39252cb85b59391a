//! One member as a value: raft, store, leases and the order between them. Inputs in, effects out.
//!
//! [`Member`] is the consensus half and belongs to the thread that steps Raft; [`StateMachine`] is
//! the state half and belongs to the applier. The simulator and the server's threads only carry out
//! a member's effects, so the order between durability, sending and applying is simulated as
//! shipped. Never touches a clock, a socket, a disk, a thread or a random number.
//!
//! # Duties of the owner
//! 1. Call [`Member::handle`] with one input at a time and a monotonic clock, and carry out the
//!    effects in their order where they concern the same thing (one log, one applier, one
//!    receiver). Different things may be done in parallel.
//! 2. [`Effect::Write`]: entries, then hard state, durable together; then [`Input::Persisted`].
//!    There is one at a time. Whatever depends on it (votes, acknowledgements) is held back by the
//!    member, so messages may be sent at once.
//! 3. [`Effect::Apply`]: [`StateMachine::apply`] each entry in order, publish
//!    [`StateMachine::view`], answer the request of each [`Applied::request`], then pass
//!    [`StateMachine::take_report`] to [`Input::Applied`]. The entries are durable at this point,
//!    so neither the machine nor a checkpoint of it is ever ahead of the log. [`Effect::ReadReady`]
//!    comes after the report, so the state that is published then is recent enough.
//! 4. [`Effect::TakeCheckpoint`]: [`StateMachine::checkpoint`] between two batches, written in the
//!    background, then [`Input::CheckpointDone`]. Keep the two newest checkpoints; one of the same index as the newest takes
//!    its place.
//! 5. A checkpoint received from a leader is made durable, then reported with
//!    [`Input::SnapshotReceived`]. [`Effect::InstallCheckpoint`] may follow: reset the log to begin
//!    after it, [`StateMachine::restore`], then [`Input::Installed`] with the new machine's report.
//! 6. Start: newest checkpoint -> [`StateMachine::restore`] -> report and log into [`Member::new`].
//!    Entries of the log after the checkpoint come back through [`Effect::Apply`]. A cluster is
//!    founded by writing the checkpoint of [`StateMachine::found`] first; a joiner starts with an
//!    empty disk.
//! 7. Links deliver a message at most once. Report [`Input::PeerDisk`] after each successful hello,
//!    also after a reconnection, [`Input::Unreachable`] when a message was dropped,
//!    [`Input::Unsent`] if it was a forward and certainly nothing of it was sent,
//!    [`Input::Unlinked`] when a connection broke or cannot be made, and [`Input::Gone`] when that shows that the
//!    process of a member ended. A change of the configuration
//!    is answered with a later entry than its own, once a quorum of the new configuration knows of
//!    it for good; see [`ConfigurationApplied`]. The answer to a member's own removal comes from
//!    [`StateMachine::part`] at [`Effect::Removed`].
//! 8. Time-outs are the owner's: give [`Input::Cancel`] and answer that the outcome is unknown.
//!    [`RequestId`]s must never repeat: a new boot nonce at each start, a counter that grows.

mod admission;
mod api;
mod bootstrap;
mod change;
mod lessor;
mod member;
mod membership;
mod payload;
mod peer;
mod removal;
mod state_machine;

pub use admission::{Facts, Standing};
pub use api::{
    Awaited, CheckpointInfo, Effect, Input, LeaseEvent, ProposalError, Report, RequestRefusal,
    StopReason, TransferFailure,
};
pub use bootstrap::{FOUNDING_INDEX, InitialMember, cluster_id, member_id};
pub use change::{Add, Bind, ChangeBody, Join, MembershipCommand, MembershipError, Target, Update};
pub use member::{
    CheckpointPolicy, Member, MemberConfig, MemberRestored, MemberStatus, PeerStatus,
};
pub use membership::{
    ChangeKind, ChangeRecord, FORMAT, MemberRecord, Membership, REMEMBERED_CHANGES, Tombstone,
};
pub use payload::{
    ApplyError, ConfigurationApplied, LogPayload, PayloadBody, RequestId, UnknownEntry,
    without_tokens,
};
pub use peer::{
    Forward, ForwardChange, ForwardInTerm, ForwardedOutcome, ForwardedOutcomeKind,
    ForwardedOutcomes, LeaseAnswerRecord, LeaseAnswers, LeaseCall, LeaseCalls, LeaseTimes,
    PeerBody, PeerMessage, Proposal, RefusalRecord, RemovedNotice, TryAgain,
};
pub use removal::PeerReports;
pub use state_machine::{Applied, Checkpoint, CheckpointMeta, Outcome, RestoreError, StateMachine};

#[cfg(test)]
mod tests;
