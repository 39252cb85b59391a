//! What `kubectl quorate recover` prints: `tests/screens`. `UPDATE_GOLDEN=1` rewrites it.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::recover::{Lost, list, plan, refusal};
use super::screen_test::{NOW, cluster, compare, member};

const READ: &str = "the test's own objects are whole";

fn now() -> Timestamp {
    NOW.parse().expect(READ)
}

fn claim(member: &str, more: Value) -> Value {
    let mut labels = json!({"quorate.dev/cluster": "demo", "quorate.dev/cluster-uid": "u",
        "quorate.dev/member": member, "quorate.dev/claim-state": "joined"});
    for (key, value) in more.as_object().expect("an object") {
        labels[key] = value.clone();
    }
    json!({"metadata": {"name": format!("data-{member}-63b6a"), "labels": labels}, "status": {"phase": "Bound"}})
}

fn pod(member: &str, node: &str, phase: &str) -> Value {
    let labels = json!({"quorate.dev/cluster-uid": "u", "quorate.dev/member": member});
    json!({"metadata": {"name": format!("{member}-0"), "labels": labels},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}})
}

fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn disk(uuid: &str, term: u64, index: u64) -> Value {
    let disk = json!({"diskUUID": uuid, "term": term, "index": index, "lastAppendTime": "2026-05-01T11:48:00Z"});
    json!({"health": "Unknown", "disk": disk})
}

fn recovery(name: &str, status: Value) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdRecovery",
        "metadata": {"name": name, "namespace": "tenants", "creationTimestamp": "2026-05-01T11:55:00Z"},
        "spec": {"clusterRef": {"name": "demo"}, "clusterUID": "u", "incarnation": 1, "acceptLoss": true,
            "survivor": {"member": "demo-3", "expect": {"diskUUID": "d", "term": 4, "index": 1207}}},
        "status": status,
    })
}

fn status(members: &[Value], backup: Value) -> Value {
    json!({"observedGeneration": 3, "clusterID": "fa4d23850fde98fe", "incarnation": 1,
        "summary": "no leader with a quorum is seen", "members": members, "backup": backup})
}

fn nightly() -> Value {
    json!({"lastSuccess": {"name": "nightly-29", "time": "2026-05-01T03:00:00Z", "revision": 88_120}})
}

fn lost(status: Value) -> Lost {
    let cluster = cluster(json!({"replicas": 3, "version": "0.2.0"}), status);
    Lost {
        cluster: serde_json::from_value(cluster).expect(READ),
        pods: Vec::new(),
        pvcs: Vec::new(),
        nodes: None,
        recoveries: Vec::new(),
    }
}

fn objects<T: serde::de::DeserializeOwned>(all: &[Value]) -> Vec<T> {
    let all = all.iter().cloned();
    all.map(|one| serde_json::from_value(one).expect(READ))
        .collect()
}

fn printed(lost: &Lost) -> String {
    assert_eq!(refusal(lost), None);
    let planned = plan(lost, now());
    match planned.yaml {
        Some(yaml) => format!("{}\n{yaml}", planned.screen),
        None => planned.screen,
    }
}

/// One of three is left; one is on a node that does not report, the volume of the third is gone.
fn one_is_left() -> Lost {
    let members = [
        member("demo-1", json!({"health": "Unknown"})),
        member("demo-2", json!({"health": "Unknown"})),
        member(
            "demo-3",
            disk("5f1c9a34-7a1e-4f0e-9d2b-0d6f0a3c1b77", 4, 1207),
        ),
    ];
    Lost {
        pods: objects(&[
            pod("demo-2", "node-b", "Running"),
            pod("demo-3", "node-c", "Running"),
        ]),
        pvcs: objects(&[
            claim("demo-2", json!({"quorate.dev/claim-state": "retired"})),
            claim("demo-3", json!({})),
            claim("demo-0", json!({"quorate.dev/claim-state": "retired"})),
        ]),
        nodes: Some(objects(&[
            node("node-b", "Unknown"),
            node("node-c", "True"),
        ])),
        ..lost(status(&members, nightly()))
    }
}

#[test]
fn recovery_of_the_longest_log() {
    compare("recover", &printed(&one_is_left()));
}

/// Who does not say what it holds is never the one that is kept, and of those who do the longest log counts, by its term
/// first.
#[test]
fn longest_log_is_that_of_the_highest_term() {
    let members = [
        member("demo-1", disk("a", 4, 9_000)),
        member("demo-2", disk("b", 5, 10)),
        member("demo-3", json!({"health": "Healthy"})),
        member("demo-4", disk("d", 5, 10)),
        member("demo-5", disk("e", 6, 10)),
    ];
    let mut lost = lost(status(&members, Value::Null));
    let names = ["demo-1", "demo-2", "demo-3", "demo-4", "demo-5"];
    let mut claims = names.map(|name| claim(name, json!({})));
    // It is gone as soon as its pod ends.
    claims[4]["metadata"]["deletionTimestamp"] = json!(NOW);
    lost.pvcs = objects(&claims);
    let yaml = plan(&lost, now()).yaml.expect("a member is left");
    assert!(yaml.contains("member: demo-2"), "{yaml}");
    assert!(yaml.contains("acceptLoss: false"), "{yaml}");
}

/// The longest log was that of a member whose data differ from the others': the operator refused what was planned.
#[test]
fn member_that_the_alarm_names_is_not_planned() {
    let mut corrupt = disk("a", 5, 9_000);
    corrupt["disk"]["corrupt"] = json!(true);
    let members = [
        member("demo-1", corrupt),
        member("demo-2", disk("b", 5, 10)),
        member("demo-3", json!({"health": "Unknown"})),
        member("demo-4", json!({"health": "Unknown"})),
        member("demo-5", json!({"health": "Unknown"})),
    ];
    let mut lost = lost(status(&members, Value::Null));
    lost.pvcs = objects(&["demo-1", "demo-2"].map(|name| claim(name, json!({}))));
    let planned = plan(&lost, now());
    let yaml = planned.yaml.expect("a member is left");
    assert!(yaml.contains("member: demo-2"), "{yaml}");
    let screen = planned.screen;
    assert!(
        screen.contains("disk a, named by the alarm CORRUPT"),
        "{screen}"
    );
    lost.pvcs.pop();
    let planned = plan(&lost, now());
    assert_eq!(planned.yaml, None);
    assert!(
        planned.screen.contains("nobody whose data can be trusted"),
        "{}",
        planned.screen
    );
}

#[test]
fn recovery_from_a_backup_if_no_member_is_left() {
    let members = [
        member("demo-1", json!({"health": "Unknown"})),
        member("demo-2", json!({"health": "Unknown"})),
        member("demo-3", json!({"health": "Unknown"})),
    ];
    let mut all_gone = lost(status(&members, nightly()));
    all_gone.recoveries = objects(&[recovery(
        "demo-incarnation-2",
        json!({"phase": "Refused", "message": "demo-3 runs on another disk"}),
    )]);
    compare("recover-backup", &printed(&all_gone));
    let mut backups = nightly();
    backups["archived"] =
        json!({"time": "2026-05-01T11:49:30Z", "raftIndex": 9_204, "url": "s3://b/tenants/demo"});
    backups["lastSuccess"]["url"] = json!("s3://b/tenants/demo");
    all_gone.cluster.status = lost(status(&members, backups)).cluster.status;
    compare("recover-archive", &printed(&all_gone));
    let mut nothing = lost(status(&members, Value::Null));
    nothing.pvcs = objects(&[claim("demo-2", json!({}))]);
    assert!(plan(&nothing, now()).yaml.is_none());
    compare("recover-nothing", &printed(&nothing));
}

/// The printed manifest is one that the API server accepts once it was reviewed, and none before.
#[test]
fn manifest_is_a_valid_recovery() {
    let yaml = plan(&one_is_left(), now()).yaml.expect("a manifest");
    let read: crate::crd::EtcdRecovery = serde_saphyr::from_str(&yaml).expect("it is YAML");
    let survivor = read.spec.survivor.expect("a survivor");
    assert_eq!((survivor.expect.term, survivor.expect.index), (4, 1207));
    assert!(!read.spec.accept_loss);
    assert_eq!((&*read.spec.cluster_uid, read.spec.incarnation), ("u", 1));
}

#[test]
fn living_cluster_has_nothing_to_recover() {
    let refused = |change: &dyn Fn(&mut Lost)| {
        let mut lost = one_is_left();
        change(&mut lost);
        refusal(&lost).expect("it is refused")
    };
    let of_status = |lost: &mut Lost| lost.cluster.status.clone().unwrap_or_default();
    let text = refused(&|lost| {
        let mut status = of_status(lost);
        status.leader = Some("demo-2".into());
        lost.cluster.status = Some(status);
    });
    assert!(text.contains("demo-2 leads demo with a quorum"), "{text}");
    let text = refused(&|lost| lost.cluster.status = None);
    assert!(text.contains("no operator has reported"), "{text}");
    let text = refused(&|lost| {
        let mut status = of_status(lost);
        status.cluster_id = None;
        lost.cluster.status = Some(status);
    });
    assert!(text.contains("was never formed"), "{text}");
    let text = refused(&|lost| {
        let mut status = of_status(lost);
        (status.cluster_id, status.incarnation) = (None, Some(2));
        lost.cluster.status = Some(status);
    });
    assert!(
        text.contains("EtcdRecovery of incarnation 1 again"),
        "{text}"
    );
    let text = refused(&|lost| lost.cluster.spec.replicas = 0);
    assert!(text.contains("hibernates"), "{text}");
    let text = refused(&|lost| {
        let mut status = of_status(lost);
        status.members[1].disk = status.members[2].disk.clone();
        lost.cluster.status = Some(status);
    });
    assert!(text.contains("2 of the 3 members of demo answer"), "{text}");
    let text = refused(&|lost| {
        lost.recoveries = objects(&[recovery("again", json!({"phase": "Fencing"}))]);
    });
    assert!(text.contains("EtcdRecovery again is under way"), "{text}");
}

#[test]
fn recoveries_of_a_cluster() {
    let mut one = one_is_left();
    compare("recoveries-none", &list(&one, now()));
    let message = "waits for the pod of demo-2 to be gone; node node-b does not report: once nothing runs on it, delete it or taint it (kubectl taint nodes node-b node.kubernetes.io/out-of-service=nodeshutdown:NoExecute)";
    one.recoveries = objects(&[
        recovery(
            "first",
            json!({"phase": "Refused", "message": "demo-3 runs on another disk"}),
        ),
        recovery("second", json!({"phase": "Fencing", "message": message})),
        recovery("third", Value::Null),
    ]);
    compare("recoveries", &list(&one, now()));
}
