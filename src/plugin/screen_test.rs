//! The output as it is printed: `tests/screens`. `UPDATE_GOLDEN=1` rewrites it.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::dry_run::plan;
use super::members::{self, Columns};
use super::screen::{Observation, Operator, status};
use super::table::{WIDTH, wrapped};

pub(super) const NOW: &str = "2026-05-01T12:00:00Z";

fn shown(name: &str, cluster: Value, events: Value, operator: Operator) {
    let read = "the test's own objects are whole";
    let observation = Observation {
        cluster: serde_json::from_value(cluster).expect(read),
        events: serde_json::from_value(events).expect(read),
        operator,
    };
    compare(
        name,
        &status(&observation, NOW.parse::<Timestamp>().expect(read)),
    );
}

pub(super) fn compare(name: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide: {line:?}");
        assert_eq!(line.trim_end(), line, "blanks at the end of a line");
    }
    compare_wide(name, text);
}

/// The same for what is wider than a screen.
pub(super) fn compare_wide(name: &str, text: &str) {
    let path = format!(
        "{}/../../tests/screens/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the folder is there");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{path}");
}

fn planned(name: &str, forecast: Value, applied: bool) {
    let wanted = cluster(json!({"replicas": 5, "version": "0.1.0"}), Value::Null);
    let read = "the test's own objects are whole";
    let wanted = serde_json::from_value(wanted).expect(read);
    let forecast = serde_json::from_value(forecast).expect(read);
    compare(name, &plan(&wanted, &forecast, applied));
}

#[test]
fn plan_of_an_edited_file() {
    let step = |after: u64, member: &str, what: &str, why: &str| json!({"afterSeconds": after, "member": member, "what": what, "why": why});
    let steps = json!([
        step(
            0,
            "demo-4",
            "create PVC data-demo-4-63b6a for demo-4",
            "3 of 5 voters"
        ),
        step(
            1,
            "demo-4",
            "apply set demo-4 on PVC data-demo-4-63b6a",
            "3 of 5 voters, and its PVC is there"
        ),
        step(
            2,
            "demo-4",
            "add demo-4 as a learner",
            "its server waits with an empty disk, and everybody else is healthy and in sync"
        ),
        step(103, "demo-4", "promote demo-4", "it has caught up"),
    ]);
    let end = json!({"state": "rest", "words": "5 voters, demo-2 leads"});
    planned(
        "plan",
        json!({"steps": steps, "end": end, "holds": []}),
        true,
    );
    let none = json!({"steps": [], "end": {"state": "rest", "words": "3 voters, demo-2 leads"}, "holds": []});
    planned("plan-nothing", none, false);
    let stalled = json!({
        "steps": [step(0, "demo-3", "apply set demo-3 on PVC data-demo-3-63b6a", "its spec is outdated")],
        "end": {"state": "stalled", "words": "demo-3 did not become ready with the current spec within 600 s (ImagePullBackOff): correct or revert the spec"},
        "holds": ["demo-3 is not healthy", "demo-3 is not healthy"],
    });
    planned("plan-stalled", stalled, true);
    let waits = json!({"steps": [], "end": {"state": "waits", "words": "a node for demo-1: its node node-1 is cordoned, and no other node has room"}, "holds": ["demo-1 is on its way"]});
    planned("plan-waits", waits, false);
}

fn lease(renewed: &str) -> Operator {
    let leases = json!([{
        "metadata": {"name": "quorate-operator", "namespace": "quorate-system"},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 15},
    }]);
    Operator::Leases(serde_json::from_value(leases).expect("a Lease"))
}

pub(super) fn cluster(spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "tenants", "uid": "u", "generation": 3},
        "spec": spec, "status": status,
    })
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

pub(super) fn member(name: &str, more: Value) -> Value {
    let mut member = json!({
        "name": name, "role": "Voter", "leader": false, "health": "Healthy", "version": "0.1.0",
        "nodeName": format!("node-{}", name.len()), "updated": true,
    });
    for (key, value) in more.as_object().expect("an object") {
        member[key] = value.clone();
    }
    member
}

fn event(type_: &str, at: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": at}, "involvedObject": {}, "type": type_, "message": message, "lastTimestamp": at,
    })
}

#[test]
fn at_rest() {
    let status = json!({
        "observedGeneration": 3, "version": "0.1.0", "leader": "demo-2", "clusterID": "fa4d23850fde98fe",
        "endpoints": {"client": "http://demo-client.tenants.svc:2379"}, "summary": "3 voters, demo-2 leads",
        "members": [member("demo-1", json!({})), member("demo-2", json!({"leader": true})), member("demo-14", json!({}))],
        "conditions": [
            condition("Ready", "True", "AllVotersReady", "3 of 3 wanted voters are ready", "2026-04-01T12:00:00Z"),
            condition("Progressing", "False", "AtRest", "nothing to do", "2026-05-01T11:58:30Z"),
            condition("Degraded", "False", "AsWanted", "3 voters tolerate 1 failure", "2026-05-01T09:00:00Z"),
            condition("Durable", "False", "UnsafeNoFsync", "server.extraArgs has unsafe-no-fsync: acknowledged writes can be lost when machines lose power", "2026-05-01T11:58:30Z"),
            // Longer than the others: its age had no blank behind it.
            condition("DisruptionAllowed", "True", "AtRest", "one member may be evicted", "2026-05-01T11:58:30Z"),
        ],
    });
    let events = json!([event(
        "Normal",
        "2026-05-01T11:58:30Z",
        "promoted demo-14: it has caught up"
    )]);
    shown(
        "at-rest",
        cluster(json!({"replicas": 3, "version": "0.1.0"}), status),
        events,
        lease("2026-05-01T11:59:58.000000Z"),
    );
}

#[test]
fn a_member_is_replaced() {
    let unhealthy = json!({
        "health": "Unhealthy", "restarts": 3, "version": null, "updated": false,
        "reason": "no contact with the leader for 640 s, and its pod has been replaced three times without any change",
    });
    let learner = json!({"role": "Learner", "lagEntries": 48_211});
    let status = json!({
        "observedGeneration": 3, "version": "0.1.0", "leader": "demo-1", "clusterID": "fa4d23850fde98fe",
        "endpoints": {"client": "http://demo-client.tenants.svc:2379"},
        "summary": "demo-4 is catching up: 48211 entries behind; promoted when it is within 100 entries of the leader",
        "members": [member("demo-1", json!({"leader": true})), member("demo-2", unhealthy), member("demo-3", json!({})), member("demo-4", learner)],
        "step": {
            "action": "Promote", "member": "demo-4", "state": "Waiting", "reason": "CatchingUp",
            "waitingFor": "demo-4 to come within 100 entries of the leader; it is 48211 behind and gains on it",
            "next": "at rest with 3 voters", "startTime": "2026-05-01T11:59:10Z", "deadline": "2026-05-01T12:14:10Z",
        },
        "joinFailures": {"count": 2, "lastTime": "2026-05-01T11:40:00Z", "inputs": "x", "reason": "the image could not be pulled"},
        "conditions": [
            condition("Ready", "False", "VotersMissing", "2 of 3 wanted voters are ready", "2026-05-01T11:49:00Z"),
            condition("Quorate", "True", "LeaderSeen", "demo-1 leads; 2 of 3 voters are healthy; tolerates 0 more failures", "2026-04-01T12:00:00Z"),
            condition("Degraded", "True", "VoterLost", "one more loss stops all writes", "2026-05-01T11:49:00Z"),
        ],
        "leftovers": [{"kind": "PersistentVolumeClaim", "name": "data-demo-9-63b6a", "reason": "kept by storage.retention.whenRemoved; delete it when its data is not needed any more"}],
    });
    let events = json!([
        event(
            "Warning",
            "2026-05-01T11:58:00Z",
            "demo-2 is not reached by the leader any more, and does not answer the operator either"
        ),
        event(
            "Normal",
            "2026-05-01T11:59:00Z",
            "removed demo-2: it cannot come back by itself"
        ),
        event(
            "Normal",
            "2026-05-01T11:59:10Z",
            "add demo-4 as a learner: its server waits with an empty disk"
        ),
    ]);
    shown(
        "replaced",
        cluster(json!({"replicas": 3, "version": "0.2.0"}), status),
        events,
        lease("2026-05-01T11:59:58.000000Z"),
    );
}

#[test]
fn hibernated_cluster() {
    let hibernated = |name| {
        let row = json!({"health": "Unknown", "reason": "it sleeps", "version": null, "nodeName": null, "podName": null, "updated": false});
        member(name, row)
    };
    let why = "replicas is 0: no member runs; volumes and identities stay";
    let at = "2026-05-01T08:00:00Z";
    let status = json!({
        "observedGeneration": 3, "clusterID": "fa4d23850fde98fe", "replicas": 0,
        "endpoints": {"client": "http://demo-client.tenants.svc:2379"},
        "summary": "hibernates: 3 members asleep on their volumes",
        "members": [hibernated("demo-1"), hibernated("demo-2"), hibernated("demo-3")],
        "conditions": [
            condition("Ready", "False", "Hibernated", why, at),
            condition("Progressing", "False", "Hibernated", why, at),
            condition("Stalled", "False", "NotStalled", "the operator needs no help", at),
        ],
    });
    let stopped = "put set demo-1 to sleep on PVC data-demo-1-63b6a: replicas is 0: it stops, and its volume stays";
    shown(
        "hibernated",
        cluster(json!({"replicas": 0, "version": "0.1.0"}), status),
        json!([event("Normal", at, stopped)]),
        lease("2026-05-01T11:59:58.000000Z"),
    );
}

#[test]
fn no_operator_answers() {
    let status = json!({"observedGeneration": 2, "summary": "3 voters, demo-2 leads", "members": [member("demo-1", json!({"health": "Unknown", "reason": "not seen for 30 s"}))]});
    let spec = json!({"replicas": 3, "version": "0.1.0", "paused": true});
    shown(
        "no-operator",
        cluster(spec, status),
        json!([]),
        lease("2026-05-01T11:00:00.000000Z"),
    );
    let refused = Operator::Unknown(
        "Error from server (Forbidden): leases.coordination.k8s.io is forbidden".to_owned(),
    );
    shown(
        "new",
        cluster(json!({"replicas": 1, "version": "0.1.0"}), Value::Null),
        json!([]),
        refused,
    );
    shown(
        "never",
        cluster(json!({"replicas": 1, "version": "0.1.0"}), Value::Null),
        json!([]),
        Operator::Leases(Vec::new()),
    );
}

#[test]
fn a_long_word_has_a_line_of_its_own() {
    let long = "x".repeat(90);
    let lines = wrapped("head ", &format!("before {long} after"));
    assert_eq!(
        lines,
        [
            "head before".to_owned(),
            format!("     {long}"),
            "     after".to_owned()
        ]
    );
}

#[test]
fn members_in_two_widths() {
    let unhealthy = json!({
        "health": "Unhealthy", "version": null, "updated": false, "podName": "demo-2-0",
        "reason": "no contact with the leader for 640 s, and its pod has been replaced three times without any change",
    });
    let leader = json!({
        "leader": true, "id": "8e9e05c52164694d", "podName": "demo-1-0", "volumeClaimName": "data-demo-1-63b6a",
    });
    let learner = json!({"role": "Learner", "lagEntries": 48_211, "podName": "demo-3-0"});
    let rows = json!([
        member("demo-1", leader),
        member("demo-2", unhealthy),
        member("demo-3", learner),
    ]);
    let rows: Vec<crate::crd::MemberStatus> = serde_json::from_value(rows).expect("members");
    let drawn = |columns| members::table(&rows, columns).join("\n") + "\n";
    compare("members", &drawn(Columns::Few));
    compare_wide("members-wide", &drawn(Columns::All));
    assert_eq!(members::table(&[], Columns::All), ["no member is known"]);
}
