//! etcd's error texts and gRPC codes, in one table.
//!
//! Clients look errors up by exact text, so a text here is an interface, not prose. Never
//! decides which error a request gets: the rooms below have error enums of their own and the
//! services map them onto this one.

use tonic::{Code, Status};

macro_rules! errors {
    ($($(#[$note:meta])* $name:ident = $code:ident, $text:literal;)*) => {
        /// An error as a client of etcd knows it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EtcdError {
            $($(#[$note])* #[doc = $text] $name,)*
        }

        impl EtcdError {
            /// Every error, in the order of the table.
            pub const ALL: &[EtcdError] = &[$(EtcdError::$name,)*];

            /// The gRPC code that travels with the text.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(EtcdError::$name => Code::$code,)* }
            }

            /// The exact text, with its prefix.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(EtcdError::$name => concat!("etcdserver: ", $text),)* }
            }
        }
    };
}

errors! {
    EmptyKey = InvalidArgument, "key is not provided";
    KeyNotFound = InvalidArgument, "key not found";
    ValueProvided = InvalidArgument, "value is provided";
    LeaseProvided = InvalidArgument, "lease is provided";
    TooManyOps = InvalidArgument, "too many operations in txn request";
    DuplicateKey = InvalidArgument, "duplicate key given in txn request";
    InvalidClientApiVersion = InvalidArgument, "invalid client api version";
    InvalidSortOption = InvalidArgument, "invalid sort option";
    Compacted = OutOfRange, "mvcc: required revision has been compacted";
    FutureRevision = OutOfRange, "mvcc: required revision is a future revision";
    NoSpace = ResourceExhausted, "mvcc: database space exceeded";

    LeaseNotFound = NotFound, "requested lease not found";
    LeaseExists = FailedPrecondition, "lease already exists";
    LeaseTtlTooLarge = OutOfRange, "too large lease TTL";
    WatchCanceled = Cancelled, "watch canceled";

    MemberExists = FailedPrecondition, "member ID already exist";
    PeerUrlExists = FailedPrecondition, "Peer URLs already exists";
    NotEnoughStarted = FailedPrecondition, "re-configuration failed due to not enough started members";
    BadMemberUrls = InvalidArgument, "given member URLs are invalid";
    MemberNotFound = NotFound, "member not found";
    MemberNotLearner = FailedPrecondition, "can only promote a learner member";
    LearnerNotReady = FailedPrecondition, "can only promote a learner member which is in sync with leader";
    TooManyLearners = FailedPrecondition, "too many learner members in cluster";
    ClusterIdMismatch = FailedPrecondition, "cluster ID mismatch";

    RequestTooLarge = InvalidArgument, "request is too large";
    TooManyRequests = ResourceExhausted, "too many requests";

    RootUserNotExist = FailedPrecondition, "root user does not exist";
    RootRoleNotExist = FailedPrecondition, "root user does not have root role";
    UserExists = FailedPrecondition, "user name already exists";
    UserEmpty = InvalidArgument, "user name is empty";
    UserNotFound = FailedPrecondition, "user name not found";
    RoleExists = FailedPrecondition, "role name already exists";
    RoleNotFound = FailedPrecondition, "role name not found";
    RoleEmpty = InvalidArgument, "role name is empty";
    AuthFailed = InvalidArgument, "authentication failed, invalid user ID or password";
    PermissionNotGiven = InvalidArgument, "permission not given";
    PermissionDenied = PermissionDenied, "permission denied";
    RoleNotGranted = FailedPrecondition, "role is not granted to the user";
    PermissionNotGranted = FailedPrecondition, "permission is not granted to the role";
    AuthNotEnabled = FailedPrecondition, "authentication is not enabled";
    InvalidAuthToken = Unauthenticated, "invalid auth token";
    InvalidAuthManagement = InvalidArgument, "invalid auth management";
    AuthOldRevision = InvalidArgument, "revision of auth store is old";

    NoLeader = Unavailable, "no leader";
    NotLeader = FailedPrecondition, "not leader";
    LeaderChanged = Unavailable, "leader changed";
    NotCapable = FailedPrecondition, "not capable";
    Stopped = Unavailable, "server stopped";
    Timeout = Unavailable, "request timed out";
    TimeoutLeaderFail = Unavailable, "request timed out, possibly due to previous leader failure";
    TimeoutConnectionLost = Unavailable, "request timed out, possibly due to connection lost";
    TimeoutApplied = Unavailable, "request timed out, waiting for the applied index took too long";
    Unhealthy = Unavailable, "unhealthy cluster";
    Corrupt = DataLoss, "corrupt cluster";
    NotSupportedForLearner = FailedPrecondition, "rpc not supported for learner";
    BadLeaderTransferee = FailedPrecondition, "bad leader transferee";

    WrongDowngradeFormat = InvalidArgument, "wrong downgrade target version format";
    InvalidDowngradeTarget = InvalidArgument, "invalid downgrade target version";
    ClusterVersionUnavailable = FailedPrecondition, "cluster version not found during downgrade";
    DowngradeInProcess = FailedPrecondition, "cluster has a downgrade job in progress";
    NoInflightDowngrade = FailedPrecondition, "no inflight downgrade job";

    /// None of etcd's: a cluster there follows no other one.
    Following = FailedPrecondition, "this cluster follows another one and takes no writes before the cutover";

    Canceled = Cancelled, "request canceled";
    DeadlineExceeded = DeadlineExceeded, "context deadline exceeded";
}

impl EtcdError {
    /// The text after the prefix, as a log or a cancel reason may want it.
    #[must_use]
    pub fn short(self) -> &'static str {
        self.text().trim_start_matches("etcdserver: ")
    }
}

impl std::fmt::Display for EtcdError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for EtcdError {}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Status {
        Status::new(error.code(), error.text())
    }
}

#[cfg(test)]
#[path = "error_test.rs"]
mod tests;
