//! The plan of a role: each difference alone, and what etcd's own rules make of a grant.

use serde_json::{Value, json};

use super::*;
use crate::crd::access::EtcdRoleStatus;
use crate::crd::access::KeyAccess::{Read, ReadWrite, Write};

fn span(key: &str, end: &str) -> KeySpan {
    KeySpan {
        key: key.into(),
        end: end.into(),
    }
}

pub(super) fn about() -> ResourceFacts {
    ResourceFacts {
        generation: Some(1),
        deleting: false,
        held: true,
        retain: false,
        rival: None,
        now: "2026-03-01T00:00:00Z".parse().expect("a time"),
    }
}

fn role(permissions: Value, held: Option<Vec<(KeySpan, KeyAccess)>>) -> ObservedRole {
    let spec = json!({"clusterRef": {"name": "demo"}, "permissions": permissions});
    ObservedRole {
        about: about(),
        spec: serde_json::from_value(spec).expect("a spec"),
        status: EtcdRoleStatus::default(),
        name: "app".to_owned(),
        cluster: ClusterView::Reached(HeldRole {
            auth_revision: 1,
            permissions: held,
        }),
    }
}

fn change(observed: &ObservedRole) -> Option<AccessChange> {
    match plan_role(observed).step {
        Some(AccessStep::Change(change)) => Some(change),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn reason(plan: &AccessPlan<EtcdRoleStatus>) -> &str {
    &plan.status.conditions[0].reason
}

#[test]
fn permissions_are_those_that_are_asked_for_and_no_others() {
    let app = json!([{"access": "ReadWrite", "prefix": "/app/"}]);
    assert_eq!(
        change(&role(app.clone(), None)),
        Some(AccessChange::AddRole)
    );
    let wanted = span("/app/", "/app0");
    let grant = AccessChange::GrantPermission(wanted.clone(), ReadWrite);
    assert_eq!(
        change(&role(app.clone(), Some(vec![]))),
        Some(grant.clone())
    );
    // What is new before what goes.
    let other = (span("/b", ""), Read);
    let held = vec![(wanted.clone(), Read), other.clone()];
    assert_eq!(change(&role(app.clone(), Some(held))), Some(grant));
    let held = vec![(wanted.clone(), ReadWrite), other.clone()];
    let extra = AccessChange::RevokePermission(other.0);
    assert_eq!(change(&role(app.clone(), Some(held))), Some(extra));
    let plan = plan_role(&role(app, Some(vec![(wanted, ReadWrite)])));
    assert_eq!((plan.step.clone(), reason(&plan)), (None, "AsSpecified"));
}

/// etcd changes the kind in place only of the first permission that begins with a key, and adds a second one for any other
/// span: a role that had both would keep the old kind for good.
#[test]
fn a_second_span_of_a_key_is_taken_away_before_it_is_given_again() {
    let wanted = json!([
        {"access": "Read", "key": "a", "rangeEnd": "b"},
        {"access": "Read", "key": "a", "rangeEnd": "c"},
    ]);
    let (first, second) = (span("a", "b"), span("a", "c"));
    let held = vec![(first.clone(), Read), (second.clone(), Write)];
    let taken = AccessChange::RevokePermission(second.clone());
    assert_eq!(
        change(&role(wanted.clone(), Some(held))),
        Some(taken.clone())
    );
    let held = vec![(first.clone(), Write), (second.clone(), Read)];
    let in_place = AccessChange::GrantPermission(first.clone(), Read);
    assert_eq!(change(&role(wanted.clone(), Some(held))), Some(in_place));
    let twice = vec![(first, Read), (second.clone(), Write), (second, Read)];
    assert_eq!(change(&role(wanted, Some(twice))), Some(taken));
}

#[test]
fn spans_are_those_of_etcdctl() {
    let spec = |permission: Value| {
        let spec = json!({"clusterRef": {"name": "demo"}, "permissions": [permission]});
        let spec: crate::crd::access::EtcdRoleSpec = serde_json::from_value(spec).expect("a spec");
        spec.spans()
            .map(|spans| spans.into_keys().next().expect("one"))
    };
    let all = |access: Value| spec(access).expect("a span");
    assert_eq!(
        all(json!({"access": "Read", "prefix": ""})),
        span("\0", "\0")
    );
    assert_eq!(
        all(json!({"access": "Read", "prefix": "a/"})),
        span("a/", "a0")
    );
    assert_eq!(all(json!({"access": "Read", "key": "a"})), span("a", ""));
    let backwards = spec(json!({"access": "Read", "key": "b", "rangeEnd": "a"}));
    assert!(
        backwards
            .expect_err("refused")
            .to_string()
            .contains("behind key")
    );
    let twice = json!([{"access": "Read", "prefix": "a/"}, {"access": "Write", "key": "a/", "rangeEnd": "a0"}]);
    let plan = plan_role(&role(twice, Some(vec![])));
    assert_eq!((plan.step.clone(), reason(&plan)), (None, "Invalid"));
    assert!(
        plan.status
            .message
            .expect("a text")
            .contains("each span once")
    );
}

/// `kubectl wait --for=condition=Ready` returned at once: the finalizer alone was written by then.
#[test]
fn nothing_is_ready_before_the_first_look() {
    let mut new = role(json!([]), None);
    new.about.held = false;
    let plan = plan_role(&new);
    assert_eq!(
        (plan.step.clone(), reason(&plan)),
        (Some(AccessStep::Hold), "Applying")
    );
    assert_eq!(plan.status.conditions[0].status, "False");
}

#[test]
fn a_deleted_role_goes_from_the_cluster_first() {
    let deleted = |cluster, retain| {
        let mut observed = role(json!([]), None);
        observed.about.deleting = true;
        observed.about.retain = retain;
        observed.cluster = cluster;
        plan_role(&observed)
    };
    let held = |permissions| {
        ClusterView::Reached(HeldRole {
            auth_revision: 1,
            permissions,
        })
    };
    let goes = Some(AccessStep::Change(AccessChange::DeleteRole));
    assert_eq!(deleted(held(Some(vec![])), false).step, goes);
    assert_eq!(deleted(held(None), false).step, Some(AccessStep::LetGo));
    assert_eq!(
        deleted(ClusterView::Gone, false).step,
        Some(AccessStep::LetGo)
    );
    assert_eq!(
        deleted(held(Some(vec![])), true).step,
        Some(AccessStep::LetGo)
    );
    let waits = deleted(ClusterView::Unreachable("no leader".into()), false);
    assert_eq!(
        (waits.step.clone(), reason(&waits)),
        (None, "ClusterUnreachable")
    );
    assert!(
        waits
            .status
            .message
            .expect("a text")
            .contains("deletionPolicy: Retain")
    );
}
