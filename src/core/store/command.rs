//! The store's interface: requests, commands as in the log, responses. Never checks or executes anything.
//!
//! The types that travel in the log derive their protobuf encoding; a tag is never reused.

use bytes::Bytes;

use super::{
    Actor, AuthCommand, AuthResponse, Follow, FollowResponse, LeaseId, Revision, SetAlarm,
    SetAlarmResponse,
};

/// A key with its value and history, numbered on the wire as etcd's `mvccpb.KeyValue` (whose
/// encoding goes into the hash of the key space).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key; never empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Revision of the put that created this life of the key. 0 in a delete event.
    #[prost(int64, tag = "2")]
    pub create_revision: Revision,
    /// Revision of the last change.
    #[prost(int64, tag = "3")]
    pub mod_revision: Revision,
    /// Number of puts in this life of the key. 0 in a delete event.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The lease that the key is attached to, 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: LeaseId,
}

/// A change of one key, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// A put or a delete.
    pub kind: EventKind,
    /// The key after the change; a delete carries the key and the revision only.
    pub kv: KeyValue,
    /// The key just before this revision, if requested, existing and not compacted.
    pub prev_kv: Option<KeyValue>,
}

/// What happened to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created or changed.
    Put,
    /// It was deleted.
    Delete,
}

/// One entry of the log that concerns the store.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    /// What to do. `None` means a kind that this version does not know.
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4, 5, 6, 7, 20, 40, 41, 42")]
    pub operation: Option<Operation>,
    /// The requesting user. `None`: no user, or a server itself.
    #[prost(message, optional, tag = "10")]
    pub actor: Option<Actor>,
}

impl From<Operation> for Command {
    fn from(operation: Operation) -> Self {
        Command {
            operation: Some(operation),
            actor: None,
        }
    }
}

/// The kinds of commands.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Operation {
    /// Writes one key.
    #[prost(message, tag = "1")]
    Put(Put),
    /// Deletes a key or a range.
    #[prost(message, tag = "2")]
    DeleteRange(DeleteRange),
    /// Compares, then writes, deletes and reads atomically.
    #[prost(message, tag = "3")]
    Txn(Txn),
    /// Forgets history.
    #[prost(message, tag = "4")]
    Compact(Compact),
    /// Creates a lease.
    #[prost(message, tag = "5")]
    LeaseGrant(LeaseGrant),
    /// Ends a lease at a client's wish.
    #[prost(message, tag = "6")]
    LeaseRevoke(LeaseRevoke),
    /// Revokes expired leases, at the leader's request.
    #[prost(message, tag = "7")]
    LeaseExpire(LeaseExpire),
    /// Raises an alarm or switches it off.
    #[prost(message, tag = "40")]
    SetAlarm(SetAlarm),
    /// Notes how long leases still last, at the leader's wish.
    #[prost(message, tag = "41")]
    LeaseCheckpoint(LeaseCheckpoint),
    /// About users, roles and permissions.
    #[prost(message, tag = "20")]
    Auth(AuthCommand),
    /// Takes over what a followed cluster wrote.
    #[prost(message, tag = "42")]
    Follow(Follow),
}

/// Writes one key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Put {
    /// The key; not empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value; empty with `ignore_value`.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The lease to attach to, 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: LeaseId,
    /// Answer with the key as it was.
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    /// Keep the value; the key must exist.
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    /// Keep the lease; the key must exist.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// Deletes a key or a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRange {
    /// The key, or the first key of the range; not empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty: one key. `\0`: every key from `key` on. Else the first key after the range.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// Answer with the keys as they were.
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// Reads a key or a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Range {
    /// The key, or the first key of the range; not empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty: one key. `\0`: every key from `key` on. Else the first key after the range.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// The most keys to return; 0 or less: all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read at; 0 or less: the current one.
    #[prost(int64, tag = "4")]
    pub revision: Revision,
    /// The order of the answer.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// What to sort by.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// Leave out values (and, unless sorted by value, leases: as etcd 3.7 does).
    #[prost(bool, tag = "7")]
    pub keys_only: bool,
    /// Answer with the count alone.
    #[prost(bool, tag = "8")]
    pub count_only: bool,
    /// Leave out keys changed before this revision; 0: no bound.
    #[prost(int64, tag = "9")]
    pub min_mod_revision: Revision,
    /// Leave out keys changed after this revision; 0: no bound.
    #[prost(int64, tag = "10")]
    pub max_mod_revision: Revision,
    /// Leave out keys created before this revision; 0: no bound.
    #[prost(int64, tag = "11")]
    pub min_create_revision: Revision,
    /// Leave out keys created after this revision; 0: no bound.
    #[prost(int64, tag = "12")]
    pub max_create_revision: Revision,
}

/// Order of a sorted range; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// No order given: by key, or ascending when a target other than the key is given.
    None = 0,
    /// Smallest first.
    Ascend = 1,
    /// Largest first.
    Descend = 2,
}

/// What a range is sorted by; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// The key.
    Key = 0,
    /// The version.
    Version = 1,
    /// The creating revision.
    Create = 2,
    /// The revision of the last change.
    Mod = 3,
    /// The value.
    Value = 4,
}

/// A transaction: if every compare holds `success` is carried out, else `failure`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Txn {
    /// The guards; all have to hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// Carried out when they hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// Carried out when one does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// One guard of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compare {
    /// The comparison between the key's property and the given value.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// Which property.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// The key, or the first key of a range.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// As in [`Range`]; with a range the compare must hold for every key in it.
    #[prost(bytes = "bytes", tag = "4")]
    pub range_end: Bytes,
    /// What a value is compared with.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// What a version, revision or lease is compared with; 0 when the request carried a
    /// property of another kind than its target.
    #[prost(int64, tag = "6")]
    pub number: i64,
}

/// How two properties must relate; the numbers are etcd's. An unknown one always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    /// Equal.
    Equal = 0,
    /// The key's is greater.
    Greater = 1,
    /// The key's is less.
    Less = 2,
    /// Not equal.
    NotEqual = 3,
}

/// What is compared; the numbers are etcd's. An unknown one is always equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// The version; 0 for a missing key.
    Version = 0,
    /// The creating revision; 0 for a missing key.
    Create = 1,
    /// The revision of the last change; 0 for a missing key.
    Mod = 2,
    /// The value; never holds for a missing key.
    Value = 3,
    /// The lease; 0 for a missing key.
    Lease = 4,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestOp {
    /// The operation; none is refused before the log and does nothing in it.
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    pub op: Option<Op>,
}

impl From<Op> for RequestOp {
    fn from(op: Op) -> Self {
        RequestOp { op: Some(op) }
    }
}

/// The kinds of operations in a transaction.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Op {
    /// Reads; sees what earlier operations of the transaction did.
    #[prost(message, tag = "1")]
    Range(Range),
    /// Writes one key.
    #[prost(message, tag = "2")]
    Put(Put),
    /// Deletes.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRange),
    /// A transaction in the transaction; its compares see the state before the outermost one.
    #[prost(message, tag = "4")]
    Txn(Txn),
}

/// Forgets what was superseded before a revision. The revision itself stays readable.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Compact {
    /// The revision.
    #[prost(int64, tag = "1")]
    pub revision: Revision,
}

/// Creates a lease. The server chose the ID and raised the TTL before it proposed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseGrant {
    /// The ID; not 0.
    #[prost(int64, tag = "1")]
    pub id: LeaseId,
    /// Time to live in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
}

/// Ends a lease and deletes its keys in one revision, in key order.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRevoke {
    /// The ID.
    #[prost(int64, tag = "1")]
    pub id: LeaseId,
}

/// Revokes expired leases, each in a separate revision, in the given order. Applied in another term than the one it
/// names it does nothing; unknown IDs are ignored.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseExpire {
    /// The IDs.
    #[prost(int64, repeated, tag = "1")]
    pub ids: Vec<LeaseId>,
    /// The term of the leader that proposed.
    #[prost(uint64, tag = "2")]
    pub term: u64,
}

/// Notes what remains of leases, so that a new leader does not give them their whole time again.
/// Applied under another term than the one it names it does nothing; unknown IDs are passed over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseCheckpoint {
    /// The leases.
    #[prost(message, repeated, tag = "1")]
    pub leases: Vec<LeaseRemains>,
    /// The term of the leader that proposed.
    #[prost(uint64, tag = "2")]
    pub term: u64,
}

/// What remains of one lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseRemains {
    /// Its ID.
    #[prost(int64, tag = "1")]
    pub id: LeaseId,
    /// Seconds that it still lasts; 0: its whole time to live again.
    #[prost(int64, tag = "2")]
    pub remaining: i64,
}

/// What a carried out command answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To a put.
    Put(PutResponse),
    /// To a delete.
    DeleteRange(DeleteRangeResponse),
    /// To a transaction.
    Txn(TxnResponse),
    /// To a compaction.
    Compact(CompactResponse),
    /// To a grant.
    LeaseGrant(LeaseGrantResponse),
    /// To a revoke.
    LeaseRevoke(LeaseRevokeResponse),
    /// To an expiry.
    LeaseExpire(LeaseExpireResponse),
    /// To a change of an alarm.
    SetAlarm(SetAlarmResponse),
    /// To a checkpoint of leases.
    LeaseCheckpoint(LeaseCheckpointResponse),
    /// To a command about users, roles and permissions.
    Auth(AuthResponse),
    /// To a step behind a followed cluster.
    Follow(FollowResponse),
}

impl Response {
    /// The revision for the header of the reply.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Response::Put(response) => response.revision,
            Response::DeleteRange(response) => response.revision,
            Response::Txn(response) => response.revision,
            Response::Compact(response) => response.revision,
            Response::LeaseGrant(response) => response.revision,
            Response::LeaseRevoke(response) => response.revision,
            Response::LeaseExpire(response) => response.revision,
            Response::SetAlarm(response) => response.revision,
            Response::LeaseCheckpoint(response) => response.revision,
            Response::Auth(response) => response.revision,
            Response::Follow(response) => response.revision,
        }
    }
}

/// Answer to a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The current revision when it was read (not the requested one).
    pub revision: Revision,
    /// The keys.
    pub kvs: Vec<KeyValue>,
    /// Number of keys in the whole range, regardless of limit and revision filters.
    pub count: i64,
    /// Whether the limit cut the answer.
    pub more: bool,
}

/// Answer to a put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// The revision of the put.
    pub revision: Revision,
    /// The previous key-value, if requested and existing.
    pub prev_kv: Option<KeyValue>,
}

/// Answer to a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRangeResponse {
    /// The revision of the delete, or the current one if nothing was there.
    pub revision: Revision,
    /// Number of keys deleted.
    pub deleted: i64,
    /// The previous key-values, if requested.
    pub prev_kvs: Vec<KeyValue>,
}

/// Answer to a transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TxnResponse {
    /// The revision afterwards; 0 in a nested transaction (as in etcd).
    pub revision: Revision,
    /// Whether the compares held.
    pub succeeded: bool,
    /// An answer for each operation of the chosen list.
    pub responses: Vec<ResponseOp>,
}

/// Answer to one operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseOp {
    /// To a range.
    Range(RangeResponse),
    /// To a put.
    Put(PutResponse),
    /// To a delete.
    DeleteRange(DeleteRangeResponse),
    /// To a nested transaction.
    Txn(TxnResponse),
}

/// Answer to a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactResponse {
    /// The current revision.
    pub revision: Revision,
}

/// Answer to a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseGrantResponse {
    /// The current revision.
    pub revision: Revision,
    /// The ID.
    pub id: LeaseId,
    /// Seconds granted.
    pub ttl: i64,
}

/// Answer to a revoke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRevokeResponse {
    /// The revision afterwards.
    pub revision: Revision,
}

/// Answer to an expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseExpireResponse {
    /// The revision afterwards.
    pub revision: Revision,
    /// The leases that were ended; none when the term did not match.
    pub expired: Vec<LeaseId>,
}

/// Answer to a checkpoint of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCheckpointResponse {
    /// The current revision.
    pub revision: Revision,
    /// The leases that it concerned; none when the term did not match.
    pub leases: Vec<LeaseRemains>,
}
