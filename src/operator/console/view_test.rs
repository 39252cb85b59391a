//! What is shown of resources, against `tests/console/document.json`; `UPDATE_GOLDEN=1` writes it.

use serde_json::{Value, json};

use super::*;

fn resource(spec: &Value, status: &Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": "tenants", "name": "demo", "uid": "u1", "generation": 2,
            "creationTimestamp": "2026-03-01T00:00:00Z"},
        "spec": spec, "status": status,
    }))
    .expect("a cluster")
}

fn conditions(all: &[(&str, &str)]) -> Value {
    let one = |(type_, status): &(&str, &str)| {
        json!({"type": type_, "status": status, "reason": "Because",
        "message": "in words", "lastTransitionTime": "2026-03-01T00:05:00Z"})
    };
    all.iter().map(one).collect()
}

/// A cluster of three that promotes its third member.
fn growing() -> EtcdCluster {
    let member = |name: &str, role: &str, health: &str| {
        json!({"name": name, "id": "8e9e05c52164694d", "role": role,
        "leader": name == "demo-1", "health": health, "version": "0.2.0", "nodeName": "node-a",
        "podName": format!("{name}-0"), "volumeClaimName": format!("data-{name}"), "updated": true})
    };
    let mut learner = member("demo-3", "Learner", "Healthy");
    learner["lagEntries"] = json!(12);
    let mut gone = member("demo-2", "Voter", "Unhealthy");
    gone["reason"] = json!("no contact for 21 s");
    resource(
        &json!({"replicas": 3}),
        &json!({
            "observedGeneration": 2, "replicas": 2, "readyReplicas": 1, "ready": "1/3", "version": "0.2.0",
            "leader": "demo-1", "clusterID": "f1c2", "summary": "demo-3 catches up, then it is promoted",
            "endpoints": {"client": "https://demo-client.tenants.svc:2379", "caSecretRef": {"name": "secret-ca"},
                "clientSecretRef": {"name": "secret-client"}},
            "step": {"action": "Promote", "member": "demo-3", "state": "Waiting", "reason": "CatchingUp",
                "waitingFor": "12 entries", "next": "nothing", "startTime": "2026-03-01T00:04:00Z",
                "deadline": "2026-03-01T00:14:00Z"},
            "failing": {"action": "apply", "message": "conflict", "startTime": "2026-03-01T00:04:30Z"},
            "members": [member("demo-1", "Voter", "Healthy"), gone, learner],
            "notes": [{"reason": "VolumeKept", "message": "data-demo-0 is kept"}],
            "certificates": [{"secret": "secret-peer", "port": "peer", "notAfter": "2027-01-01T00:00:00Z"}],
            "backup": {"lastSuccess": {"name": "b", "time": "2026-03-01T00:01:00Z", "revision": 7}},
            "conditions": conditions(&[("Ready", "False"), ("Progressing", "True"), ("Degraded", "True")]),
        }),
    )
}

fn backup(name: &str, cluster: &str, started: Option<&str>) -> EtcdBackup {
    serde_json::from_value(json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdBackup",
        "metadata": {"namespace": "tenants", "name": name},
        "spec": {"clusterRef": {"name": cluster}, "storeRef": {"name": "minio"}},
        "status": {"phase": "Uploaded", "startTime": started, "revision": 7, "size": "1.2 KiB",
            "url": "s3://bucket/somewhere", "encryptionKeyID": "k"},
    }))
    .expect("a backup")
}

fn document() -> Document {
    let cluster = growing();
    let position = Position {
        term: 3,
        last_index: 100,
        applied_index: 100,
        match_index: Some(90),
        lag_entries: Some(10),
        revision: 70,
        data_bytes: Some(4_096),
    };
    let observed = Observed {
        at: Some(Timestamp::from_second(1_772_323_500).expect("a time")),
        positions: [("demo-3".to_owned(), position)].into(),
    };
    let saved = [
        backup("older", "demo", Some("2026-03-01T00:01:00Z")),
        backup("newer", "demo", Some("2026-03-01T00:02:00Z")),
        backup("pending", "demo", None),
    ];
    let withheld = Err("alice may not list events in namespace tenants".to_owned());
    Document {
        version: "0.0.0",
        active: true,
        namespace: Some("tenants".into()),
        clusters: vec![row(&cluster)],
        omitted: 0,
        unreadable: 0,
        cluster: Some(super::cluster(
            &cluster,
            &observed,
            Part::Shown(backups(saved.iter())),
            Part::of(&withheld, Vec::new),
        )),
    }
}

#[test]
fn a_growing_cluster_is_shown() {
    let text = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/console/document.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).expect("written");
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, golden, "UPDATE_GOLDEN=1 writes it");
}

/// Whoever may list clusters need not be able to list Secrets, and what names them helps nobody here.
#[test]
fn no_secret_is_named() {
    let text = serde_json::to_string(&document()).expect("JSON");
    assert!(!text.contains("secret"), "{text}");
    assert!(!text.contains("s3://"), "{text}");
}

#[test]
fn signs_are_what_is_not_as_at_rest() {
    let signs = |spec: Value, all: &[(&str, &str)]| {
        let status = json!({"conditions": conditions(all)});
        let row = row(&resource(&spec, &status));
        let texts = row.signs.into_iter().map(|sign| sign.text);
        texts.collect::<Vec<_>>().join(", ")
    };
    let spec = || json!({"replicas": 3});
    let calm = [
        ("Ready", "True"),
        ("Available", "True"),
        ("Quorate", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
        ("Durable", "True"),
        ("Stalled", "False"),
    ];
    assert_eq!(signs(spec(), &calm), "Ready");
    assert_eq!(
        signs(json!({"replicas": 3, "paused": true}), &calm),
        "Paused, Ready"
    );
    let lost = [
        ("Ready", "False"),
        ("Available", "False"),
        ("Quorate", "False"),
        ("Stalled", "True"),
    ];
    assert_eq!(signs(spec(), &lost), "Stalled, No quorum, Not available");
    assert_eq!(signs(spec(), &[("Quorate", "Unknown")]), "Quorum unknown");
    assert_eq!(signs(spec(), &[("Ready", "False")]), "Not ready");
    let mut new = resource(&spec(), &json!({}));
    new.status = None;
    assert_eq!(row(&new).signs[0].text, "No status yet");
}

/// The newest ones; those that have not begun come first.
#[test]
fn backups_are_bounded_and_in_order() {
    let minute = |number: usize| format!("2026-03-01T00:{number:02}:00Z");
    let all: Vec<EtcdBackup> = (0..40)
        .map(|number| backup(&format!("b{number:02}"), "demo", Some(&minute(number))))
        .chain([backup("pending", "demo", None)])
        .collect();
    let rows = backups(all.iter());
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(
        (names.len(), &names[..3]),
        (BACKUPS, &["pending", "b39", "b38"][..])
    );
}
