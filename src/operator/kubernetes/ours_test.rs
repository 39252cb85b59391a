//! How foreign objects with a cluster's labels are treated.

use serde_json::{Value, json};

use super::*;
use crate::crd::LABEL_CLUSTER;

const DEMO: Life<'_> = Life {
    name: "demo",
    uid: "11111111-life",
    life: "11111111-life",
};

fn of<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

fn controller(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn labels(member: &str) -> Value {
    json!({LABEL_CLUSTER: "demo", LABEL_CLUSTER_UID: DEMO.uid, LABEL_MEMBER: member})
}

fn set(name: &str, uid: &str, owners: Value) -> Arc<StatefulSet> {
    of(json!({"metadata": {"name": name, "uid": uid, "ownerReferences": owners}}))
}

fn pod(name: &str, member: &str, owners: Value) -> Arc<Pod> {
    of(
        json!({"metadata": {"name": name, "labels": labels(member), "ownerReferences": owners},
            "spec": {"containers": []}}),
    )
}

/// A pod `stray` with the labels of `demo-1` stood in the place of the real one, because it came
/// later in the list: its empty disk made a healthy cluster read `0/3`, and nothing was healed.
#[test]
fn a_pod_counts_only_as_its_set_made_it() {
    let resource = controller("EtcdCluster", "demo", DEMO.uid);
    let sets = [
        set("demo-1", "s1", resource.clone()),
        set(
            "demo-2",
            "s2",
            controller("EtcdCluster", "demo", "an earlier life"),
        ),
        set("demo-3", "s3", json!([])),
    ];
    let held = |name: &str, member: &str, kind: &str, by: &str, uid: &str| {
        pod(name, member, controller(kind, by, uid))
    };
    let found = [
        held("demo-1-0", "demo-1", "StatefulSet", "demo-1", "s1"),
        pod("stray", "demo-1", json!([])),
        held("zzz-0", "demo-1", "StatefulSet", "demo-1", "s1"),
        // Of sets that are not this life's.
        held("demo-2-0", "demo-2", "StatefulSet", "demo-2", "s2"),
        held("demo-3-0", "demo-3", "StatefulSet", "demo-3", "s3"),
        // Of a deleted StatefulSet, and with a foreign UID.
        held("demo-4-0", "demo-4", "StatefulSet", "demo-4", "s4"),
        held("demo-5-0", "demo-5", "ReplicaSet", "demo-1", "s1"),
        pod("other-1-0", "other-1", json!([])),
    ];
    let pods = DEMO.pods(&found, &sets);
    let names = |pods: &BTreeMap<String, Arc<Pod>>| {
        let names = pods.values().map(|pod| pod.name_any());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&pods.own), ["demo-1-0"]);
    let others = ["demo-2-0", "demo-3-0", "demo-4-0", "demo-5-0"];
    assert_eq!(names(&pods.others), others);
}

#[test]
fn objects_count_by_their_derived_names() {
    let pvc = |name: &str, uid: &str, member: &str| {
        let labels = json!({LABEL_CLUSTER: "demo", LABEL_CLUSTER_UID: uid, LABEL_MEMBER: member});
        of::<PersistentVolumeClaim>(json!({"metadata": {"name": name, "labels": labels}}))
    };
    let found = vec![
        pvc("data-demo-1-11111", DEMO.uid, "demo-1"),
        pvc("loot", DEMO.uid, "demo-9"),
        pvc("data-demo-2-11111", DEMO.uid, "demo-3"),
        pvc("data-demo-1-00000", "00000000-earlier", "demo-1"),
    ];
    let kept = DEMO.pvcs(found);
    let names: Vec<String> = kept.iter().map(|pvc| pvc.name_any()).collect();
    assert_eq!(names, ["data-demo-1-11111", "data-demo-1-00000"]);
    let sets = DEMO.sets(vec![
        set("web", "s", json!([])),
        set("demo-7", "s", json!([])),
    ]);
    assert_eq!(sets.len(), 1, "a set under a member's name is in the way");
}

/// The next name after this one was none: the number wrapped around to 0.
#[test]
fn labels_cannot_exhaust_member_numbers() {
    assert_eq!(member_number("demo", "demo-18446744073709551615"), None);
    assert_eq!(
        member_number("demo", "demo-4294967295"),
        Some(4_294_967_295)
    );
}
