//! Users, roles and what they may do: the replicated half of etcd's authentication, its rules
//! and its errors.
//!
//! Deterministic: password hashes, token prefixes and times are chosen before a command is
//! proposed and travel in it. Never sees a password, never keeps a token and never reads a
//! certificate; the server does.

mod apply;
mod command;
mod error;
mod permit;
mod ranges;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use command::*;
pub use error::AuthError;
use ranges::Permitted;

/// The user that has to exist before authentication can be enabled.
pub const ROOT_USER: &str = "root";
/// The role that may do everything.
pub const ROOT_ROLE: &str = "root";

/// A user, encoded as etcd's `authpb.User`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct User {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// bcrypt's text; empty for a user without a password.
    #[prost(bytes = "bytes", tag = "2")]
    pub password: Bytes,
    /// Names of roles, sorted.
    #[prost(string, repeated, tag = "3")]
    pub roles: Vec<String>,
    /// Options set when the user was added; this version always writes them.
    #[prost(message, optional, tag = "4")]
    pub options: Option<UserOptions>,
}

/// Options of a user, encoded as etcd's `authpb.UserAddOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct UserOptions {
    /// The user is known by a certificate alone.
    #[prost(bool, tag = "1")]
    pub no_password: bool,
}

/// A role, encoded as etcd's `authpb.Role`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Role {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it grants, by first key.
    #[prost(message, repeated, tag = "2")]
    pub permissions: Vec<Permission>,
}

/// A grant on a span of keys, encoded as etcd's `authpb.Permission`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Permission {
    /// To do what; an unknown kind grants nothing, as in etcd.
    #[prost(enumeration = "PermissionKind", tag = "1")]
    pub kind: i32,
    /// The key, or the first one.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// As in a range request: empty is one key, `\0` is open-ended.
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// What a permission allows; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum PermissionKind {
    /// To read and to watch.
    Read = 0,
    /// To put and to delete.
    Write = 1,
    /// Both.
    ReadWrite = 2,
}

impl User {
    /// Whether the user may do everything.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.roles.iter().any(|role| role == ROOT_ROLE)
    }

    /// Whether the user is known by a certificate alone.
    #[must_use]
    pub fn has_no_password(&self) -> bool {
        self.options.is_some_and(|options| options.no_password)
    }
}

/// Everything about authentication that is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthState {
    pub(super) enabled: bool,
    pub(super) revision: u64,
    pub(super) users: BTreeMap<String, User>,
    pub(super) roles: BTreeMap<String, Role>,
    /// What each user's roles add up to; follows from the rest.
    permitted: BTreeMap<String, Permitted>,
}

/// The same as it is stored and sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Auth {
    /// Whether requests need a user.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    /// Counts changes.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Users.
    #[prost(message, repeated, tag = "3")]
    pub users: Vec<User>,
    /// Roles.
    #[prost(message, repeated, tag = "4")]
    pub roles: Vec<Role>,
}

impl From<&AuthState> for Auth {
    fn from(auth: &AuthState) -> Auth {
        Auth {
            enabled: auth.enabled,
            revision: auth.revision,
            users: auth.users().cloned().collect(),
            roles: auth.roles().cloned().collect(),
        }
    }
}

impl From<Auth> for AuthState {
    fn from(image: Auth) -> AuthState {
        AuthState::new(image.enabled, image.revision, image.users, image.roles)
    }
}

impl Default for AuthState {
    fn default() -> Self {
        AuthState {
            enabled: false,
            // etcd's first revision: 0 stands for no user in its requests.
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            permitted: BTreeMap::new(),
        }
    }
}

impl AuthState {
    /// A state read from elsewhere: a checkpoint, or the buckets of etcd's own file.
    #[must_use]
    pub fn new(enabled: bool, revision: u64, users: Vec<User>, roles: Vec<Role>) -> Self {
        let users = users.into_iter().map(|user| (user.name.clone(), user));
        let roles = roles.into_iter().map(|role| (role.name.clone(), role));
        let mut state = AuthState {
            enabled,
            revision: revision.max(1),
            users: users.collect(),
            roles: roles.collect(),
            permitted: BTreeMap::new(),
        };
        state.merge_permissions();
        state
    }

    /// The same with authentication disabled, for a member that only its own process reaches.
    #[must_use]
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Whether requests need a user.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Counts changes of users, roles and permissions; 1 before the first.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Users by name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Roles by name.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    /// The user of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// The role of this name.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    fn merge_permissions(&mut self) {
        let merged = self.users.values().map(|user| {
            let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
            let permissions = roles.flat_map(|role| &role.permissions);
            (user.name.clone(), Permitted::merge(permissions))
        });
        self.permitted = merged.collect();
    }
}
