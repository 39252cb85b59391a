//! Figures of statuses that say little: what is not known is absent.

use serde_json::{Value, json};

use super::*;

fn cluster(status: Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": "tenants", "name": "demo", "uid": "u1", "generation": 2},
        "spec": {"replicas": 3},
        "status": status,
    }))
    .expect("a cluster")
}

/// So many seconds after the first of March.
fn now(seconds: i64) -> Timestamp {
    let first: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
    first + jiff::SignedDuration::from_secs(seconds)
}

fn quorate(status: &str) -> Value {
    json!([{"type": "Quorate", "status": status, "reason": "NoQuorumSeen", "message": "",
        "lastTransitionTime": "2026-03-01T00:00:00Z"}])
}

fn voters(healths: &[&str]) -> Value {
    let row = |(at, health): (usize, &&str)| json!({"name": format!("demo-{at}"), "role": "Voter", "health": health});
    healths.iter().enumerate().map(row).collect()
}

/// A cluster whose quorum nobody has seen was one that tolerates 0 failures, like one that is about to lose it.
#[test]
fn what_is_not_known_is_absent() {
    let unseen = json!({"observedGeneration": 2, "replicas": 3, "members": voters(&["Unknown"; 3]),
        "conditions": quorate("Unknown")});
    let figures = Figures::of(&cluster(unseen), None, now(0));
    assert_eq!(figures.tolerated, None);
    let members = figures.members.expect("they are listed");
    assert_eq!(members[0], [0, 0, 3]);
    // A status for which the members were not asked.
    let deleting = json!({"observedGeneration": 2, "summary": "the resource is being deleted"});
    let figures = Figures::of(&cluster(deleting), None, now(0));
    let expected = Figures {
        namespace: "tenants".into(),
        name: "demo".into(),
        wanted: 3,
        generation: Some(2),
        observed_generation: Some(2),
        ..Figures::default()
    };
    assert_eq!(figures, expected);
}

#[test]
fn failures_are_tolerated_down_to_a_quorum() {
    let tolerated = |healths: &[&str]| {
        let status = json!({"replicas": healths.len(), "members": voters(healths),
            "conditions": quorate("True")});
        Figures::of(&cluster(status), None, now(0)).tolerated
    };
    assert_eq!(tolerated(&["Healthy"; 3]), Some(1));
    assert_eq!(tolerated(&["Healthy"; 5]), Some(2));
    assert_eq!(tolerated(&["Healthy", "Healthy", "Unhealthy"]), Some(0));
    assert_eq!(tolerated(&["Healthy", "Unknown", "Unhealthy"]), Some(0));
    assert_eq!(tolerated(&["Healthy"]), Some(0));
    assert_eq!(tolerated(&[]), None);
}

/// Whoever may write a status cannot make any number of series by it, and no time that is none.
#[test]
fn foreign_conditions_and_times_do_not_count() {
    let status = json!({"replicas": 1,
        "conditions": [{"type": "Anything", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-03-01T00:00:00Z"}],
        "step": {"action": "Promote", "state": "Acting", "reason": "Promote", "startTime": "yesterday"},
        "certificates": [{"secret": "a", "port": "peer", "notAfter": "never"}]});
    let figures = Figures::of(&cluster(status), None, now(0));
    assert!(figures.conditions.is_empty());
    assert_eq!(figures.step, None);
    assert!(figures.certificates.is_empty());
}

/// Whoever writes statuses may be away or be refused: a lag that was written then stood still, below the alert for it.
#[test]
fn a_lag_grows_while_no_status_is_written() {
    let lag = |follow: Value, seconds: i64| {
        let figures = Figures::of(&cluster(json!({"follow": follow})), None, now(seconds));
        figures.follow.expect("it follows").lag_seconds
    };
    let follows = |seconds: i64| json!({"phase": "Following", "asOf": "2026-03-01T00:00:00Z", "lagSeconds": seconds});
    // What is written is to half a minute.
    for (written, seconds, seen) in [
        (0, 25, 0),
        (0, 39, 0),
        (25, 26, 25),
        (0, 240, 210),
        (200, 240, 210),
        (200, 210, 200),
    ] {
        assert_eq!(
            lag(follows(written), seconds),
            Some(seen),
            "{written} {seconds}"
        );
    }
    // It ran ahead.
    assert_eq!(lag(follows(0), -60), Some(0));
    // After a cutover there is none, whatever was known before.
    let over = json!({"phase": "CutOver", "asOf": "2026-03-01T00:00:00Z"});
    assert_eq!(lag(over, 3_600), None);
    let never = json!({"phase": "Following", "lagSeconds": 70});
    assert_eq!(lag(never, 3_600), Some(70));
}
