//! One user: the Secret with the password and the certificate first, then the user with the roles and the password,
//! then what is no longer wanted goes, and for root whether requests need a user at all.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    AccessChange, AccessPlan, AccessStep, ClusterView, HeldUser, ObservedUser, PasswordFacts,
    Problem, again, conflict, deletion, finalizer, finalizing, reached, ready, time,
};
use crate::crd::access::{Authentication, EtcdUserStatus, ROOT};

const DAY_MS: u64 = 86_400_000;
/// A user's Secrets are looked at this often: they have no event here.
const SECRET_MS: u64 = 60_000;

/// The next step for a user, and its status.
#[must_use]
pub fn plan_user(observed: &ObservedUser) -> AccessPlan<EtcdUserStatus> {
    let (step, problem) = match observed.about.deleting {
        true => deletion(&observed.about, &observed.cluster, |held| {
            goes(observed, held)
        }),
        false => wanted(observed),
    };
    let doing = match &step {
        Some(AccessStep::Change(change)) => Some(("Applying", change.to_string())),
        Some(AccessStep::WriteConnection { .. }) => {
            Some(("Applying", format!("write Secret {}", observed.secret)))
        }
        Some(AccessStep::Hold | AccessStep::LetGo) => Some(finalizing()),
        None => None,
    };
    let problem = problem.or(doing);
    let again_ms = again(problem.as_ref()).min(SECRET_MS);
    AccessPlan {
        status: status(observed, problem.as_ref()),
        step,
        again_ms,
    }
}

fn status(observed: &ObservedUser, problem: Option<&Problem>) -> EtcdUserStatus {
    let connection = &observed.connection;
    let expires = connection
        .certificate
        .and_then(|one| time(one.not_after_ms));
    EtcdUserStatus {
        message: problem.map(|(_, text)| text.clone()),
        user_name: Some(observed.name.clone()),
        connection_secret: connection.exists.then(|| observed.secret.clone()),
        certificate_expires: expires.map(Time),
        authentication_enabled: match &observed.cluster {
            ClusterView::Reached(held) => Some(held.enabled),
            _ => observed.status.authentication_enabled,
        },
        conditions: ready(&observed.status.conditions, problem, &observed.about),
    }
}

/// What deletes the user; root is not deleted while requests need a user, and etcd refuses it.
fn goes(observed: &ObservedUser, held: &HeldUser) -> Option<AccessChange> {
    let stays = held.enabled && observed.name == ROOT;
    (held.user.is_some() && !stays).then_some(AccessChange::DeleteUser)
}

fn wanted(observed: &ObservedUser) -> (Option<AccessStep>, Option<Problem>) {
    if let Some(problem) = conflict(&observed.about, "EtcdUser", &observed.name) {
        return (None, Some(problem));
    }
    if let Some(step) = finalizer(&observed.about) {
        return (Some(step), None);
    }
    let held = match reached(&observed.cluster) {
        Ok(held) => held,
        Err(problem) => return (None, Some(problem)),
    };
    // Neither holds up what does not need it.
    let problem = not_issued(observed).or_else(|| missing_password(observed));
    // A password of the operator's is in the Secret before it is the user's: nobody else knows it.
    if let Some(step) = secret_first(observed) {
        return (Some(step), problem);
    }
    let (change, missing) = in_cluster(observed, held);
    let step = change.map(AccessStep::Change);
    (
        step.or_else(|| connection_last(observed)),
        problem.or(missing),
    )
}

fn not_issued(observed: &ObservedUser) -> Option<Problem> {
    let why = observed.issues.as_ref().err()?;
    observed.spec.certificate.as_ref()?;
    Some(("CertificateNotIssued", why.clone()))
}

fn missing_password(observed: &ObservedUser) -> Option<Problem> {
    match &observed.password {
        PasswordFacts::Missing(why) if has_own_password(observed) => {
            Some(("SecretMissing", why.clone()))
        }
        _ => None,
    }
}

/// The password comes from a Secret of the user's.
fn has_own_password(observed: &ObservedUser) -> bool {
    let password = observed.spec.password.as_ref();
    password.is_some_and(|password| password.secret_ref.is_some())
}

/// The connection Secret with a password or a certificate that is to be made.
fn secret_first(observed: &ObservedUser) -> Option<AccessStep> {
    let new_password = match (&observed.spec.password, &observed.password) {
        (Some(asked), PasswordFacts::Missing(_)) => asked.secret_ref.is_none(),
        (Some(asked), PasswordFacts::There { made_ms }) => {
            let days = asked
                .rotate_after_days
                .and_then(|days| u64::try_from(days).ok());
            let over = |(made, days): (u64, u64)| now_ms(observed) >= made + days * DAY_MS;
            made_ms.zip(days).is_some_and(over)
        }
        _ => false,
    };
    let new_certificate = is_certificate_due(observed);
    (new_password || new_certificate).then_some(AccessStep::WriteConnection {
        new_password,
        new_certificate,
    })
}

/// The same with everything else in it, after the cluster: a password of the user's own has become the user's by then.
fn connection_last(observed: &ObservedUser) -> Option<AccessStep> {
    (!leads_there(observed)).then_some(AccessStep::WriteConnection {
        new_password: false,
        new_certificate: false,
    })
}

/// The connection Secret holds what it should.
fn leads_there(observed: &ObservedUser) -> bool {
    observed.connection.exists && observed.connection.is_current
}

/// Missing, of another user or CA, or over two thirds of its time; none while none is issued.
fn is_certificate_due(observed: &ObservedUser) -> bool {
    if observed.spec.certificate.is_none() || observed.issues.is_err() {
        return false;
    }
    let Some(one) = observed.connection.certificate.filter(|one| one.fits) else {
        return true;
    };
    let third = one.not_after_ms.saturating_sub(one.not_before_ms) / 3;
    // Another one would end with the CA too.
    let is_longest = one.is_longest;
    !is_longest && now_ms(observed) >= one.not_after_ms.saturating_sub(third)
}

fn now_ms(observed: &ObservedUser) -> u64 {
    u64::try_from(observed.about.now.as_millisecond()).unwrap_or(0)
}

/// The next change of the cluster, and what keeps the user from being as specified.
fn in_cluster(observed: &ObservedUser, held: &HeldUser) -> (Option<AccessChange>, Option<Problem>) {
    let no_password = observed.spec.password.is_none();
    let is_missing = missing_password(observed).is_some();
    let Some((has_none, roles)) = &held.user else {
        let add = AccessChange::AddUser { no_password };
        return ((!is_missing).then_some(add), None);
    };
    if *has_none != no_password {
        return (None, Some(other_kind(&observed.name, *has_none)));
    }
    let wanted = roles_of(observed);
    let given = wanted.difference(roles);
    let mut given = given.filter(|role| *role == ROOT || held.known_roles.contains(*role));
    if let Some(role) = given.next() {
        return (Some(AccessChange::GrantRole(role.clone())), None);
    }
    if !no_password && !held.password_is_right && !is_missing {
        return (Some(AccessChange::SetPassword), None);
    }
    if let Some(change) = authentication(observed, held, roles) {
        return (Some(change), None);
    }
    let missing = missing_roles(&wanted, held);
    let extra = roles.difference(&wanted).next();
    (
        extra.map(|role| AccessChange::RevokeRole(role.clone())),
        missing,
    )
}

/// etcd cannot turn a user of one kind into the other.
fn other_kind(name: &str, has_none: bool) -> Problem {
    let (is, wanted) = match has_none {
        true => ("without a password", "with one"),
        false => ("with a password", "without one"),
    };
    let text = format!(
        "the cluster has the user {name} {is}, and {wanted} is asked for: etcd cannot change that; change spec.password, or delete the user there (etcdctl user delete {name}), and it is made anew"
    );
    ("OtherKindOfUser", text)
}

fn roles_of(observed: &ObservedUser) -> BTreeSet<String> {
    let mut roles: BTreeSet<String> = observed.spec.roles.iter().cloned().collect();
    if observed.name == ROOT {
        roles.insert(ROOT.to_owned());
    }
    roles
}

fn missing_roles(wanted: &BTreeSet<String>, held: &HeldUser) -> Option<Problem> {
    let missing = wanted.difference(&held.known_roles);
    let missing: Vec<&str> = missing
        .map(String::as_str)
        .filter(|role| *role != ROOT)
        .collect();
    (!missing.is_empty()).then(|| {
        let text = format!(
            "the cluster has no role {}: create an EtcdRole of that name, or take it out of spec.roles",
            missing.join(", ")
        );
        ("RolesMissing", text)
    })
}

/// Whether requests need a user, as root's resource says.
fn authentication(
    observed: &ObservedUser,
    held: &HeldUser,
    roles: &BTreeSet<String>,
) -> Option<AccessChange> {
    if observed.name != ROOT || !roles.contains(ROOT) {
        return None;
    }
    match (observed.spec.authentication?, held.enabled) {
        (Authentication::Enabled, false) if can_be_root(observed, held) => {
            Some(AccessChange::Enable)
        }
        (Authentication::Disabled, true) => Some(AccessChange::Disable),
        _ => None,
    }
}

/// The connection Secret leads to the cluster, with a password that was found right, or a certificate that members ask
/// for.
fn can_be_root(observed: &ObservedUser, held: &HeldUser) -> bool {
    let by_password = observed.spec.password.is_some() && held.password_is_right;
    let certificate = observed.connection.certificate;
    let by_certificate = observed.issues.is_ok() && certificate.is_some_and(|one| one.fits);
    leads_there(observed) && (by_password || by_certificate)
}
