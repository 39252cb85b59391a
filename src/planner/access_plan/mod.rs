//! What the operator does about users and roles: from what was observed of one `EtcdUser` or `EtcdRole` and of its
//! cluster to the next step and the status. Pure: the time and what the cluster answered are arguments.
//!
//! One step at a time, and every half-finished state is an ordinary input of the next plan. A user gets what is new
//! before what is no longer wanted is taken away. Root is never locked out: authentication is enabled only for a root
//! that has the role root and was seen to be able to prove itself, and then keeps both. Never sees a password or a key.

mod observed;
mod role;
mod user;

#[cfg(test)]
mod role_test;
#[cfg(test)]
mod user_test;

pub use observed::{
    CertificateInUse, ClusterView, ConnectionFacts, HeldRole, HeldUser, ObservedRole, ObservedUser,
    PasswordFacts, ResourceFacts,
};
pub use role::plan_role;
pub use user::plan_user;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::crd::access::{KeyAccess, KeySpan};
use crate::crd::ready_condition;

/// One write. Passwords and keys are not in it: whoever carries it out reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessStep {
    /// Add the finalizer to the resource.
    Hold,
    /// Remove it.
    LetGo,
    /// Write the connection Secret.
    WriteConnection {
        /// With a new password made by the operator.
        new_password: bool,
        /// With a new certificate.
        new_certificate: bool,
    },
    /// Change the cluster.
    Change(AccessChange),
}

/// One change of a cluster's users, roles and permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Add the user of the resource.
    AddUser {
        /// Known by a certificate alone.
        no_password: bool,
    },
    /// Give the user the password that is in the Secret.
    SetPassword,
    /// Delete the user.
    DeleteUser,
    /// Give the user this role.
    GrantRole(String),
    /// Take it away.
    RevokeRole(String),
    /// Requests need a user from now on.
    Enable,
    /// They need none.
    Disable,
    /// Add the role of the resource.
    AddRole,
    /// Delete the role, from every user too.
    DeleteRole,
    /// Give the role a permission, or change its kind.
    GrantPermission(KeySpan, KeyAccess),
    /// Take it away.
    RevokePermission(KeySpan),
}

impl std::fmt::Display for AccessChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AccessChange::AddUser { .. } => f.write_str("add the user"),
            AccessChange::SetPassword => f.write_str("set the user's password"),
            AccessChange::DeleteUser => f.write_str("delete the user"),
            AccessChange::GrantRole(role) => write!(f, "grant the role {role} to the user"),
            AccessChange::RevokeRole(role) => write!(f, "revoke the role {role} from the user"),
            AccessChange::Enable => f.write_str("enable authentication"),
            AccessChange::Disable => f.write_str("disable authentication"),
            AccessChange::AddRole => f.write_str("add the role"),
            AccessChange::DeleteRole => f.write_str("delete the role"),
            AccessChange::GrantPermission(..) => f.write_str("grant a permission to the role"),
            AccessChange::RevokePermission(_) => f.write_str("revoke a permission from the role"),
        }
    }
}

/// The next step and the status before it; `again_ms`: when to look again without an event.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPlan<S> {
    /// The status.
    pub status: S,
    /// What to write, if anything.
    pub step: Option<AccessStep>,
    /// Milliseconds until the next look.
    pub again_ms: u64,
}

/// Nothing is left to do: edits by others are found by then.
const SETTLED_MS: u64 = 300_000;
/// Somebody has to change something: most of that has an event.
const PROBLEM_MS: u64 = 60_000;
/// A member that answers again has none.
const UNREACHABLE_MS: u64 = 10_000;
/// Under way, or a Secret that is about to come.
const WAITING_MS: u64 = 5_000;

/// Why a resource is not Ready: a reason for programs and a text for people.
type Problem = (&'static str, String);

/// What a resource waits for that gets or loses its finalizer.
fn finalizing() -> Problem {
    ("Applying", "write the resource's finalizer".to_owned())
}

/// When to look again without an event.
fn again(problem: Option<&Problem>) -> u64 {
    match problem.map(|(reason, _)| *reason) {
        None => SETTLED_MS,
        Some("ClusterMissing" | "ClusterUnreachable") => UNREACHABLE_MS,
        Some("Applying" | "SecretMissing") => WAITING_MS,
        Some(_) => PROBLEM_MS,
    }
}

/// Ready, or why not.
fn ready(known: &[Condition], problem: Option<&Problem>, about: &ResourceFacts) -> Vec<Condition> {
    let state = match problem {
        None => ("True", "AsSpecified", String::new()),
        Some((reason, text)) => ("False", *reason, text.clone()),
    };
    vec![ready_condition(known, state, about.generation, about.now)]
}

/// The cluster, unless it has to be waited for.
fn reached<H>(cluster: &ClusterView<H>) -> Result<&H, Problem> {
    match cluster {
        ClusterView::Reached(held) => Ok(held),
        ClusterView::Gone => Err((
            "ClusterMissing",
            "there is no such EtcdCluster, or it is being deleted".to_owned(),
        )),
        ClusterView::Unreachable(why) => Err(("ClusterUnreachable", why.clone())),
    }
}

/// What is done with a resource that is being deleted: `held` says whether the cluster still has what it stands for.
fn deletion<H>(
    about: &ResourceFacts,
    cluster: &ClusterView<H>,
    delete: impl Fn(&H) -> Option<AccessChange>,
) -> (Option<AccessStep>, Option<Problem>) {
    if !about.held {
        let text = "it is gone from the cluster; another finalizer keeps the resource".to_owned();
        return (None, Some(("Deleted", text)));
    }
    if about.retain || about.rival.is_some() {
        return (Some(AccessStep::LetGo), None);
    }
    match cluster {
        // Its data are gone, or go with it.
        ClusterView::Gone => (Some(AccessStep::LetGo), None),
        ClusterView::Unreachable(why) => {
            let text = format!(
                "cannot be deleted in the cluster: {why}; to give the resource up without that, set deletionPolicy: Retain"
            );
            (None, Some(("ClusterUnreachable", text)))
        }
        ClusterView::Reached(held) => match delete(held) {
            Some(change) => (Some(AccessStep::Change(change)), None),
            None => (Some(AccessStep::LetGo), None),
        },
    }
}

/// An older resource stands for the same.
fn conflict(about: &ResourceFacts, kind: &str, name: &str) -> Option<Problem> {
    let rival = about.rival.as_ref()?;
    let text =
        format!("the older {kind} {rival} is about {name} of this cluster: delete one of the two");
    Some(("Conflict", text))
}

/// The finalizer as the deletion policy wants it.
fn finalizer(about: &ResourceFacts) -> Option<AccessStep> {
    match (about.held, about.retain) {
        (false, false) => Some(AccessStep::Hold),
        (true, true) => Some(AccessStep::LetGo),
        _ => None,
    }
}

/// The end of a certificate as a time, for the status.
fn time(ms: u64) -> Option<Timestamp> {
    let ms = i64::try_from(ms).ok()?;
    Timestamp::from_millisecond(ms - ms % 1000).ok()
}
