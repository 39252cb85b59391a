//! One role: first it exists, then it has every permission that is asked for, then no other.

use std::collections::BTreeMap;

use super::{
    AccessChange, AccessPlan, AccessStep, HeldRole, ObservedRole, Problem, again, conflict,
    deletion, finalizer, finalizing, reached, ready,
};
use crate::crd::access::{EtcdRoleStatus, KeyAccess, KeySpan};

/// The next step for a role, and its status.
#[must_use]
pub fn plan_role(observed: &ObservedRole) -> AccessPlan<EtcdRoleStatus> {
    let (step, problem) = match observed.about.deleting {
        true => deletion(&observed.about, &observed.cluster, |held| {
            (held.permissions.is_some()).then_some(AccessChange::DeleteRole)
        }),
        false => wanted(observed),
    };
    let doing = match &step {
        Some(AccessStep::Change(change)) => Some(("Applying", change.to_string())),
        Some(_) => Some(finalizing()),
        None => None,
    };
    let problem = problem.or(doing);
    AccessPlan {
        status: EtcdRoleStatus {
            message: problem.as_ref().map(|(_, text)| text.clone()),
            role_name: Some(observed.name.clone()),
            conditions: ready(
                &observed.status.conditions,
                problem.as_ref(),
                &observed.about,
            ),
        },
        again_ms: again(problem.as_ref()),
        step,
    }
}

fn wanted(observed: &ObservedRole) -> (Option<AccessStep>, Option<Problem>) {
    if let Some(problem) = conflict(&observed.about, "EtcdRole", &observed.name) {
        return (None, Some(problem));
    }
    if let Some(step) = finalizer(&observed.about) {
        return (Some(step), None);
    }
    let spans = match observed.spec.spans() {
        Ok(spans) => spans,
        Err(error) => return (None, Some(("Invalid", error.to_string()))),
    };
    match reached(&observed.cluster) {
        Ok(held) => (change(held, &spans).map(AccessStep::Change), None),
        Err(problem) => (None, Some(problem)),
    }
}

/// The first difference.
fn change(held: &HeldRole, wanted: &BTreeMap<KeySpan, KeyAccess>) -> Option<AccessChange> {
    let Some(held) = &held.permissions else {
        return Some(AccessChange::AddRole);
    };
    let missing = wanted
        .iter()
        .find_map(|(span, kind)| given(held, span, *kind));
    let extra = || {
        let extra = held.iter().find(|(span, _)| !wanted.contains_key(span));
        extra.map(|(span, _)| AccessChange::RevokePermission(span.clone()))
    };
    missing.or_else(extra)
}

/// What gives a role this permission. A grant changes the kind in place only for the first of those that begin with one
/// key, as in etcd; any other is taken away before it is given again.
fn given(held: &[(KeySpan, KeyAccess)], span: &KeySpan, kind: KeyAccess) -> Option<AccessChange> {
    let mut same = held.iter().filter(|(known, _)| known == span);
    match (same.next(), same.next()) {
        (Some((_, known)), None) if *known == kind => None,
        (None, _) => Some(AccessChange::GrantPermission(span.clone(), kind)),
        (Some(_), None) if is_first(held, span) => {
            Some(AccessChange::GrantPermission(span.clone(), kind))
        }
        (Some(_), _) => Some(AccessChange::RevokePermission(span.clone())),
    }
}

fn is_first(held: &[(KeySpan, KeyAccess)], span: &KeySpan) -> bool {
    let first = held.iter().find(|(known, _)| known.key == span.key);
    first.is_some_and(|(known, _)| known == span)
}
