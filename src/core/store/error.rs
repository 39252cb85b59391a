//! The store's one error enum. Never carries a gRPC code: the services map each variant onto
//! etcd's text and code.

use super::{AuthError, DamagedValue, Revision};

/// Why the store refuses a request. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key of a request, of an operation or of a compare is empty.
    #[error("the key is empty")]
    EmptyKey,
    /// `ignore_value` together with a value.
    #[error("a value is given although the value is to be kept")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("a lease is given although the lease is to be kept")]
    LeaseProvided,
    /// `ignore_value` or `ignore_lease` on a missing key, or an empty operation.
    #[error("the key does not exist")]
    KeyNotFound,
    /// More compares or operations than the limit for one transaction.
    #[error("too many operations in one transaction")]
    TooManyOps,
    /// Two puts, or a put and a delete, of one key on one path through a transaction.
    #[error("a transaction writes one key twice")]
    DuplicateKey,
    /// A sort order or target that does not exist.
    #[error("unknown sort order or target")]
    InvalidSortOption,
    /// The revision lies below the compacted one.
    #[error("the revision has been compacted (compacted at {compacted})")]
    Compacted {
        /// The revision of the last compaction.
        compacted: Revision,
    },
    /// The revision has not been written yet.
    #[error("the revision is in the future (current is {current})")]
    FutureRevision {
        /// The current revision.
        current: Revision,
    },
    /// The quota would be exceeded, or the alarm about it is on.
    #[error("the space of the store is used up")]
    NoSpace,
    /// The alarm about corruption is on.
    #[error("a member's data differs from the others': nothing may be changed")]
    Corrupt,
    /// No lease of this ID, or ID 0.
    #[error("lease not found")]
    LeaseNotFound,
    /// A lease of this ID exists already.
    #[error("lease exists already")]
    LeaseExists,
    /// A TTL above [`MAX_LEASE_TTL`](super::MAX_LEASE_TTL).
    #[error("the TTL of the lease is too large")]
    LeaseTtlTooLarge,
    /// A write of a client, while this cluster follows another one.
    #[error("this cluster follows another one and takes no writes of its own before the cutover")]
    Following,
    /// A step behind a cluster that is not followed, or not any more.
    #[error("this cluster does not follow cluster {cluster:x}")]
    NotFollowed {
        /// The cluster of the step.
        cluster: u64,
    },
    /// A step that leaves something out, or an end elsewhere than at the revision that is reached.
    #[error("revision {found} of the followed cluster does not follow revision {current}")]
    FollowGap {
        /// The revision that is reached.
        current: Revision,
        /// That of the step.
        found: Revision,
    },
    /// An end, or an opening, of an attempt that is not the last one.
    #[error("another attempt to leave the followed cluster has begun, or this one was given up")]
    FollowSuperseded,
    /// An end before all leases, users and roles of the followed cluster are here.
    #[error("the leases or users of the followed cluster are not all here")]
    FollowIncomplete,
    /// A revision of the followed cluster that does not lead on from the data here.
    #[error(
        "at revision {revision} the followed cluster had another past of the key {:?} than there is here",
        String::from_utf8_lossy(key)
    )]
    Diverged {
        /// The revision.
        revision: Revision,
        /// The key.
        key: bytes::Bytes,
    },
    /// Users, roles and permissions forbid it.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A read-only entry point was given a transaction that writes.
    #[error("the transaction writes, so it has to go through the log")]
    NotReadOnly,
    /// A command without an operation known to this version. A member that finds one in its log must stop: otherwise it
    /// would diverge.
    #[error("the log holds a command of an unknown kind")]
    UnknownCommand,
    /// A value cannot be read from its file. A member that needs it to apply an entry must stop: it would diverge.
    #[error("a value cannot be read: {0}")]
    Value(#[from] DamagedValue),
    /// A checkpoint that cannot be read back.
    #[error("the checkpoint of the store is damaged: {0}")]
    Checkpoint(String),
    /// A checkpoint that a newer version wrote.
    #[error("the checkpoint of the store is of format {0}, which this version does not know")]
    CheckpointFormat(u32),
}
