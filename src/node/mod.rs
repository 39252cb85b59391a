//! One member as a value: raft, store, leases and the order between them. Inputs in, effects out.

mod admission;
mod api;
mod change;
mod found;
mod lessor;
mod machine;
mod member;
mod membership;
mod payload;
mod peer;

pub use api::{
    CheckpointInfo, Effect, Input, LeaseEvent, ProposalError, Report, RequestRefusal, StopReason,
    TransferFailure,
};
pub use change::{Add, Bind, ChangeBody, Join, MembershipCommand, MembershipError, Target, Update};
pub use found::{FOUNDING_INDEX, InitialMember, cluster_id, member_id};
pub use machine::{Applied, Checkpoint, CheckpointMeta, Machine, Outcome, RestoreError};
pub use member::{
    CheckpointPolicy, Member, MemberConfig, MemberRestored, MemberStatus, PeerStatus,
};
pub use membership::{
    ChangeKind, ChangeRecord, FORMAT, MemberRecord, Membership, REMEMBERED_CHANGES, Tombstone,
};
pub use payload::{LogPayload, PayloadBody, RequestId, UnknownEntry};
pub use peer::{
    Fate, FateKind, Fates, Forward, ForwardChange, LeaseAnswerRecord, LeaseAnswers, LeaseCall,
    LeaseCalls, LeaseTimes, PeerBody, PeerMessage, Place, Proposal, RefusalRecord, RemovedNotice,
    TryAgain,
};
