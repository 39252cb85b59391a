//! Commands of the log about users and roles, the actor of a command, and what members learn from one. A tag is never
//! reused.

use bytes::Bytes;

use super::Permission;
use crate::store::Revision;

/// The user for whom a command was proposed: checked again when it is applied. A command without a user is refused
/// while authentication is enabled.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Actor {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The auth revision at which the user was known; not 0.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
}

/// A command about users, roles and permissions.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthCommand {
    /// What to do. `None` means a kind that this version does not know.
    #[prost(
        oneof = "AuthOperation",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
    )]
    pub operation: Option<AuthOperation>,
}

/// The kinds of commands about users, roles and permissions.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AuthOperation {
    /// Enables authentication.
    #[prost(message, tag = "1")]
    Enable(AuthEnable),
    /// Disables it.
    #[prost(message, tag = "2")]
    Disable(AuthDisable),
    /// Makes a token known to every member.
    #[prost(message, tag = "3")]
    Authenticate(Authenticate),
    /// Adds a user.
    #[prost(message, tag = "4")]
    UserAdd(UserAdd),
    /// Deletes a user.
    #[prost(message, tag = "5")]
    UserDelete(UserDelete),
    /// Changes a password.
    #[prost(message, tag = "6")]
    UserChangePassword(UserChangePassword),
    /// Grants a role to a user.
    #[prost(message, tag = "7")]
    UserGrantRole(UserRole),
    /// Takes a role from a user.
    #[prost(message, tag = "8")]
    UserRevokeRole(UserRole),
    /// Adds a role.
    #[prost(message, tag = "9")]
    RoleAdd(RoleName),
    /// Deletes a role, from every user too.
    #[prost(message, tag = "10")]
    RoleDelete(RoleName),
    /// Grants a permission to a role, or changes its kind.
    #[prost(message, tag = "11")]
    RoleGrantPermission(RoleGrantPermission),
    /// Takes a permission from a role.
    #[prost(message, tag = "12")]
    RoleRevokePermission(RoleRevokePermission),
}

impl From<AuthOperation> for AuthCommand {
    fn from(operation: AuthOperation) -> Self {
        AuthCommand {
            operation: Some(operation),
        }
    }
}

/// Enables authentication.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AuthEnable {}

/// Disables authentication.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AuthDisable {}

/// Makes a token known to every member. The proposer has checked the password at a revision;
/// applied at another one, it is refused and the password has to be checked again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Authenticate {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The auth revision at which the password was right.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Random letters, to which the entry's index is added; empty where tokens are signed.
    #[prost(string, tag = "3")]
    pub token_prefix: String,
    /// When it was proposed, in milliseconds since 1970: a member that applies it later, after
    /// a restart or as a newcomer, must not make an expired token valid again.
    #[prost(uint64, tag = "4")]
    pub issued_ms: u64,
}

/// Adds a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserAdd {
    /// The name; not empty.
    #[prost(string, tag = "1")]
    pub name: String,
    /// bcrypt's text; empty with `no_password`.
    #[prost(bytes = "bytes", tag = "2")]
    pub password: Bytes,
    /// The user is known by a certificate alone.
    #[prost(bool, tag = "3")]
    pub no_password: bool,
}

/// Deletes a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserDelete {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Changes a password. A user without one keeps having none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserChangePassword {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// bcrypt's text.
    #[prost(bytes = "bytes", tag = "2")]
    pub password: Bytes,
}

/// A role of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserRole {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The role.
    #[prost(string, tag = "2")]
    pub role: String,
}

/// A role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleName {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Grants a permission to a role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleGrantPermission {
    /// The role.
    #[prost(string, tag = "1")]
    pub role: String,
    /// The permission; refused without.
    #[prost(message, optional, tag = "2")]
    pub permission: Option<Permission>,
}

/// Takes a permission from a role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleRevokePermission {
    /// The role.
    #[prost(string, tag = "1")]
    pub role: String,
    /// The permission's key.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// The permission's end.
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// Answer to a command about users, roles and permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthResponse {
    /// The current revision of the store, for the header of the reply.
    pub revision: Revision,
    /// The auth revision afterwards.
    pub auth_revision: u64,
    /// What every member does with the tokens that it keeps.
    pub tokens: TokenChange,
}

/// What a command means for the tokens that a member keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenChange {
    /// Nothing.
    #[default]
    None,
    /// A new one: this prefix, a dot and the index of the entry.
    Issued {
        /// Its user.
        user: String,
        /// Its letters.
        prefix: String,
        /// Time of the request, in milliseconds since 1970.
        issued_ms: u64,
    },
    /// Those of this user are worth nothing any more.
    Revoked {
        /// The user.
        user: String,
    },
    /// No token is worth anything any more.
    AllRevoked,
}
