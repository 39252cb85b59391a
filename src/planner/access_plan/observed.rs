//! What was observed of a user, a role and their cluster. Facts only: no password, no key, no judgement.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::crd::access::{
    EtcdRoleSpec, EtcdRoleStatus, EtcdUserSpec, EtcdUserStatus, KeyAccess, KeySpan,
};

/// What users and roles have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceFacts {
    /// Its generation.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub deleting: bool,
    /// It has our finalizer.
    pub held: bool,
    /// What it stands for stays in the cluster when it is deleted.
    pub retain: bool,
    /// An older resource of the same kind that stands for the same name in the same cluster.
    pub rival: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// The cluster of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterView<H> {
    /// There is none, or it is being deleted.
    Gone,
    /// No member answers for it, or it takes no changes now, and why.
    Unreachable(String),
    /// What it has, from a state that includes everything committed before.
    Reached(H),
}

/// An `EtcdRole`.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRole {
    /// The resource.
    pub about: ResourceFacts,
    /// Its specification.
    pub spec: EtcdRoleSpec,
    /// Its status.
    pub status: EtcdRoleStatus,
    /// Name of the role in the cluster.
    pub name: String,
    /// The cluster.
    pub cluster: ClusterView<HeldRole>,
}

/// What a cluster has of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldRole {
    /// Counts changes of users and roles: a change is refused if it has moved on.
    pub auth_revision: u64,
    /// Its permissions in their order; `None`: there is no such role.
    pub permissions: Option<Vec<(KeySpan, KeyAccess)>>,
}

/// An `EtcdUser`.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedUser {
    /// The resource.
    pub about: ResourceFacts,
    /// Its specification.
    pub spec: EtcdUserSpec,
    /// Its status.
    pub status: EtcdUserStatus,
    /// Name of the user in the cluster.
    pub name: String,
    /// Name of the connection Secret.
    pub secret: String,
    /// The operator issues certificates for clients of this cluster; otherwise, why it does not.
    pub issues: Result<(), String>,
    /// The password that the user should have.
    pub password: PasswordFacts,
    /// The connection Secret.
    pub connection: ConnectionFacts,
    /// The cluster.
    pub cluster: ClusterView<HeldUser>,
}

/// What a cluster has of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldUser {
    /// Counts changes of users and roles: a change is refused if it has moved on.
    pub auth_revision: u64,
    /// Requests need a user.
    pub enabled: bool,
    /// Whether the user exists: known by a certificate alone, and the roles.
    pub user: Option<(bool, BTreeSet<String>)>,
    /// Which of the roles that are asked for exist.
    pub known_roles: BTreeSet<String>,
    /// Whether the password in the Secret is the user's.
    pub password_is_right: bool,
}

/// The password that the user should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordFacts {
    /// None is asked for.
    NotAsked,
    /// It is missing or unfit, and why.
    Missing(String),
    /// It is there; made at this time, if the operator has made it.
    There {
        /// In Unix milliseconds.
        made_ms: Option<u64>,
    },
}

/// The connection Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// It exists.
    pub exists: bool,
    /// It holds what it should, but for the certificate.
    pub is_current: bool,
    /// The certificate in it, if there is one with a key that fits.
    pub certificate: Option<CertificateInUse>,
}

/// A client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateInUse {
    /// It names the user, and the CA that signs now has signed it.
    pub fits: bool,
    /// The CA ends no later: another one would not hold for longer.
    pub is_longest: bool,
    /// When it begins, in Unix milliseconds.
    pub not_before_ms: u64,
    /// When it ends.
    pub not_after_ms: u64,
}
