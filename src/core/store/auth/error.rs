//! Why authentication refuses something. Never carries a gRPC code: the services map each onto
//! etcd's text and code.

/// A refusal of authentication or of its management, one for each of etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There is no user `root`.
    #[error("root user does not exist")]
    RootUserNotExist,
    /// The user `root` has not the role `root`.
    #[error("root user does not have the root role")]
    RootRoleNotExist,
    /// A user of this name exists.
    #[error("user exists already")]
    UserExists,
    /// No user is named, or the request came with none.
    #[error("no user is named")]
    UserEmpty,
    /// No user of this name.
    #[error("user not found")]
    UserNotFound,
    /// A role of this name exists.
    #[error("role exists already")]
    RoleExists,
    /// No role of this name.
    #[error("role not found")]
    RoleNotFound,
    /// No role is named.
    #[error("no role is named")]
    RoleEmpty,
    /// Wrong user or password.
    #[error("wrong user or password")]
    AuthFailed,
    /// A grant without a permission.
    #[error("no permission is given")]
    PermissionNotGiven,
    /// The user may not do this.
    #[error("permission denied")]
    PermissionDenied,
    /// The user has not this role.
    #[error("the role is not granted to the user")]
    RoleNotGranted,
    /// The role has not this permission.
    #[error("the permission is not granted to the role")]
    PermissionNotGranted,
    /// Authentication is not enabled.
    #[error("authentication is not enabled")]
    NotEnabled,
    /// Users, roles or permissions have changed since the request's token was checked.
    #[error("users or permissions have changed since the request was made")]
    OldRevision,
    /// A change that would lock everyone out, or a span that holds no key.
    #[error("the change is not allowed")]
    InvalidManagement,
}
