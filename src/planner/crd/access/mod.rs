//! The resources about who may do what in a cluster: users and roles of etcd's authentication. Every field has an effect.

mod role;
mod user;

#[cfg(test)]
mod tests;

pub use role::{
    EtcdRole, EtcdRoleSpec, EtcdRoleStatus, KeyAccess, KeySpan, PermissionError, RolePermission,
};
pub use user::{
    Authentication, EtcdUser, EtcdUserSpec, EtcdUserStatus, KamajiDataStore, KubeApiserverFlags,
    PasswordSecretRef, UserCertificateSpec, UserConnection, UserPassword,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The user that etcd wants before authentication is enabled, and the role that may do everything.
pub const ROOT: &str = "root";

/// What becomes of a user or a role in the cluster once the resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted there, and until then the resource stays.
    #[default]
    Delete,
    /// It stays as it is.
    Retain,
}
