//! Names and encodings of what etcd keeps in its backend. Interface facts, no behaviour.

/// Names of the buckets, in the order of the alphabet, which is that of the file.
pub(super) const ALARM: &str = "alarm";
pub(super) const AUTH: &str = "auth";
pub(super) const AUTH_ROLES: &str = "authRoles";
pub(super) const AUTH_USERS: &str = "authUsers";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const KEY: &str = "key";
pub(super) const LEASE: &str = "lease";
pub(super) const MEMBERS: &str = "members";
pub(super) const MEMBERS_REMOVED: &str = "members_removed";
pub(super) const META: &str = "meta";

/// Keys of the bucket `auth`.
pub(super) const AUTH_ENABLED: &[u8] = b"authEnabled";
pub(super) const AUTH_REVISION: &[u8] = b"authRevision";

/// Keys of the bucket `cluster`.
pub(super) const CLUSTER_VERSION: &[u8] = b"clusterVersion";
pub(super) const DOWNGRADE: &[u8] = b"downgrade";

/// Keys of the bucket `meta`.
pub(super) const CONF_STATE: &[u8] = b"confState";
pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
pub(super) const FINISHED_COMPACT: &[u8] = b"finishedCompactRev";
pub(super) const SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";
pub(super) const TERM: &[u8] = b"term";

/// `leasepb.Lease`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Lease {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
    #[prost(int64, tag = "2")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "3")]
    pub(super) remaining_ttl: i64,
}

/// `etcdserverpb.AlarmMember`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub(super) member: u64,
    #[prost(int32, tag = "2")]
    pub(super) alarm: i32,
}

/// A member as etcd's JSON has it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Member<'a> {
    pub(super) id: u64,
    #[serde(rename = "peerURLs")]
    pub(super) peer_urls: &'a [String],
    #[serde(rename = "isLearner", skip_serializing_if = "std::ops::Not::not")]
    pub(super) learner: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(rename = "clientURLs", skip_serializing_if = "<[_]>::is_empty")]
    pub(super) client_urls: &'a [String],
}

/// Raft's configuration as etcd's JSON has it.
#[derive(Debug, serde::Serialize)]
pub(super) struct ConfState {
    pub(super) voters: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) learners: Vec<u64>,
    pub(super) auto_leave: bool,
}
