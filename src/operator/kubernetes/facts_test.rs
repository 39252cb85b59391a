//! What objects of the API server become as facts.

use serde_json::{Value, json};

use super::*;
use crate::operator::kubernetes::pruned::Prune as _;
use crate::plan::AskedStorage;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid object")
}

#[test]
fn owners_are_distinguished() {
    let meta = |kind: &str, name: &str, uid: &str| -> ObjectMeta {
        of(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u1"},
            {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true}]}))
    };
    assert_eq!(
        owner(&meta("EtcdCluster", "demo", "u1"), "demo", "u1"),
        Owner::Ours
    );
    assert_eq!(
        owner(&meta("EtcdCluster", "demo", "u0"), "demo", "u1"),
        Owner::EarlierLife
    );
    let other = Owner::Other("StatefulSet web".into());
    assert_eq!(
        owner(&meta("StatefulSet", "web", "u9"), "demo", "u1"),
        other
    );
    assert_eq!(owner(&ObjectMeta::default(), "demo", "u1"), Owner::Unowned);
}

#[test]
fn an_unschedulable_pod_has_a_reason() {
    let facts = pod(&of(json!({
        "metadata": {"uid": "p1", "creationTimestamp": "1970-01-01T00:00:05Z"},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]}
    })));
    assert_eq!(facts.phase, PodPhase::Pending);
    assert_eq!(
        facts.waiting.as_deref(),
        Some("Unschedulable: 0/2 nodes are available")
    );
    assert_eq!(
        (
            facts.created_ms,
            facts.started_ms,
            facts.ready_since_ms.is_some()
        ),
        (5000, None, false)
    );
}

/// A pod that its kubelet evicted was told as "its pod ended": why, only the pod said, which is replaced soon after.
#[test]
fn an_evicted_pod_has_a_reason() {
    let why = "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi.";
    let mut evicted: Pod = of(json!({
        "metadata": {"uid": "p1"},
        "status": {"phase": "Failed", "reason": "Evicted", "message": why}
    }));
    let facts = pod(&evicted);
    assert_eq!(facts.phase, PodPhase::Ended);
    assert_eq!(facts.waiting, Some(format!("Evicted: {why}")));
    evicted.prune();
    assert_eq!(pod(&evicted), facts);
}

#[test]
fn pod_facts_name_exits_and_bad_images() {
    let facts = pod(&of(json!({
        "metadata": {"uid": "p1"},
        "spec": {"nodeName": "node-a", "containers": []},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "member", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            "lastState": {"terminated": {"exitCode": 20, "message": "{\"class\":\"corrupt\"}"}}}]}
    })));
    assert_eq!(facts.last_exit, Some(Exit::Corrupt));
    assert_eq!(
        facts.waiting.as_deref(),
        Some("CrashLoopBackOff: back-off 40s")
    );
    assert_eq!(facts.node.as_deref(), Some("node-a"));
}

/// A mesh's container came first by its name: its exit with code 20 was treated as a damaged disk, and a member would
/// have been removed for it.
#[test]
fn only_the_members_own_container_is_evidence() {
    let status = |name: &str, code: i32| {
        json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"terminated": {"exitCode": code}}})
    };
    let containers = |order: [Value; 2]| {
        let sidecar = json!({"name": "istio", "args": ["--listen-peer-urls=https://x"]});
        pod(&of(json!({"metadata": {"uid": "p1"},
            "spec": {"containers": [sidecar, {"name": "member", "args": ["server"]}]},
            "status": {"phase": "Running", "containerStatuses": order}})))
    };
    let facts = containers([status("istio", 20), status("member", 1)]);
    assert_eq!(facts.last_exit, Some(Exit::Other(1)));
    assert!(!facts.peer_tls, "a sidecar's argument is not the server's");
    let facts = containers([status("istio", 0), status("member", 21)]);
    assert_eq!(
        facts.last_exit,
        Some(Exit::Other(21)),
        "a code without words is no evidence"
    );
    let mut member = status("member", 21);
    member["state"]["terminated"]["message"] = json!(r#"{"class":"foreign_disk"}"#);
    let facts = containers([status("istio", 0), member]);
    assert_eq!(facts.last_exit, Some(Exit::ForeignDisk));
    let alone = pod(&of(json!({"metadata": {"uid": "p1"},
        "status": {"containerStatuses": [status("istio", 20)]}})));
    assert_eq!(alone.last_exit, None);
}

#[test]
fn strangers_give_no_evidence() {
    let facts = stranger(&of(
        json!({"metadata": {"uid": "p1", "labels": {LABEL_RELEASED: "5"}},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "member", "image": "i", "imageID": "", "ready": true, "restartCount": 3,
                "lastState": {"terminated": {"exitCode": 20, "message": "{\"class\":\"corrupt\"}"}}}]}
        }),
    ));
    assert_eq!((facts.last_exit, facts.started_ms), (None, None));
    assert_eq!((facts.ready_since_ms, facts.released_ms), (None, None));
    assert_eq!(facts.uid, "p1");
}

#[test]
fn a_running_pod_waits_for_nothing() {
    let facts = pod(&of(json!({
        "metadata": {"uid": "p1", "annotations": {"quorate.dev/inputs": "h"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "member", "image": "i", "imageID": "", "ready": true,
            "restartCount": 0, "state": {"running": {"startedAt": "1970-01-01T00:00:09Z"}}}]}
    })));
    assert_eq!(
        (
            facts.started_ms,
            facts.waiting,
            facts.ready_since_ms.is_some()
        ),
        (Some(9000), None, true)
    );
    assert_eq!(facts.inputs.as_deref(), Some("h"));
}

fn volume(expression: Value) -> PersistentVolume {
    of(
        json!({"metadata": {"name": "pv1"}, "spec": {"nodeAffinity": {"required": {
        "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}),
    )
}

fn named(name: &str) -> Arc<Node> {
    let labels = json!({"kubernetes.io/hostname": name});
    Arc::new(of(json!({"metadata": {"name": name, "labels": labels}})))
}

#[test]
fn a_volume_that_no_node_can_use_is_reported() {
    let on_a = volume(json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}));
    let facts = |volume: Option<&PersistentVolume>, nodes: &[Arc<Node>]| {
        pvc(
            &of(json!({"metadata": {}, "status": {"phase": "Bound"}})),
            "u1",
            volume,
            nodes,
        )
    };
    assert_eq!(facts(Some(&on_a), &[named("a"), named("b")]).no_node, None);
    let facts_of_it = facts(Some(&on_a), &[named("b")]);
    assert_eq!(facts_of_it.volume_gone, None, "its node may come back");
    let gone = facts_of_it.no_node;
    assert_eq!(
        gone.as_deref(),
        Some("no Node that exists satisfies the affinity of volume pv1")
    );
    assert_eq!(
        facts(Some(&on_a), &[]).no_node,
        None,
        "no Node in view is no evidence"
    );
    let odd = volume(json!({"key": "kubernetes.io/hostname", "operator": "Near", "values": ["a"]}));
    assert_eq!(facts(Some(&odd), &[named("b")]).no_node, None);
    let anywhere: PersistentVolume = of(json!({"metadata": {"name": "pv2"}, "spec": {}}));
    assert_eq!(facts(Some(&anywhere), &[named("b")]).no_node, None);
}

#[test]
fn pvc_facts_hold_owner_and_state() {
    let facts = pvc(
        &of(json!({
            "metadata": {"uid": "c1",
                "labels": {"quorate.dev/cluster-uid": "u1", "quorate.dev/member": "demo-1",
                    "quorate.dev/claim-state": "joined"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "EtcdCluster", "name": "demo", "uid": "u1"}]},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Lost"}
        })),
        "u1",
        None,
        &[],
    );
    assert_eq!(
        (facts.state, facts.owned, facts.bound),
        (PvcState::Joined, true, false)
    );
    assert!(!facts.terminating);
    assert_eq!(
        (facts.member.as_deref(), facts.requested_bytes),
        (Some("demo-1"), 1 << 30)
    );
    assert!(facts.volume_gone.is_some_and(|why| why.contains("Lost")));
    // Of a resource that is gone: the garbage collection deletes it before long.
    let orphaned = of(json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "EtcdCluster", "name": "demo", "uid": "u0"}]}}));
    let facts = pvc(&orphaned, "u1", None, &[]);
    assert!(facts.terminating && !facts.owned);
}

#[test]
fn node_bound_volumes_are_recognised() {
    let of_terms = |terms: Value| -> PersistentVolume {
        of(json!({"metadata": {"name": "pv1"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}))
    };
    let host = |hosts: Value| {
        json!({"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
            {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]})
    };
    let zone = json!({"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]});
    let field = json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]}]});
    for (volume, bound) in [
        (of_terms(json!([host(json!(["a"]))])), true),
        (of_terms(json!([field])), true),
        (of_terms(json!([host(json!(["a", "b"]))])), false),
        (of_terms(json!([host(json!(["a"])), zone])), false),
        (of_terms(json!([])), false),
        (
            of(json!({"metadata": {}, "spec": {"local": {"path": "/disk"}}})),
            true,
        ),
        (
            of(json!({"metadata": {}, "spec": {"hostPath": {"path": "/disk"}}})),
            false,
        ),
    ] {
        let facts = pvc(
            &of(json!({"metadata": {}, "status": {"phase": "Bound"}})),
            "u1",
            Some(&volume),
            &[],
        );
        assert_eq!(facts.node_bound, Some(bound), "{volume:?}");
    }
    let unseen = pvc(&of(json!({"metadata": {}})), "u1", None, &[]);
    assert_eq!(unseen.node_bound, None);
}

#[test]
fn node_bound_storage_classes_are_recognised() {
    let class = |name: &str, provisioner: &str, default: &str, at: &str| -> Arc<StorageClass> {
        Arc::new(of(
            json!({"provisioner": provisioner, "metadata": {"name": name,
            "creationTimestamp": at,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default}}}),
        ))
    };
    let (static_, early, late) = (
        "kubernetes.io/no-provisioner",
        "1970-01-01T00:00:05Z",
        "1970-01-01T00:00:09Z",
    );
    let classes = [
        class("local", static_, "true", late),
        class("cloud", "csi.example", "true", early),
    ];
    assert_eq!(class_node_bound(Some("local"), &classes), Some(true));
    assert_eq!(class_node_bound(Some("cloud"), &classes), None);
    assert_eq!(class_node_bound(Some("gone"), &classes), None);
    assert_eq!(
        class_node_bound(None, &classes),
        Some(true),
        "the newest default"
    );
    let other = [class("local", static_, "false", late)];
    assert_eq!(class_node_bound(None, &other), None);
    assert_eq!(class_node_bound(None, &[]), None);
}

#[test]
fn storage_facts_hold_what_was_asked_and_what_became_of_it() {
    let of_pvc = |annotation: &str, status: Value| {
        let object = json!({
            "metadata": {"annotations": {"quorate.dev/storage": annotation}},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}},
            "status": status,
        });
        pvc(&of(object), "u1", None, &[]).storage
    };
    let facts = of_pvc(
        r#"{"size":"2Gi","storageClassName":"fast"}"#,
        json!({"phase": "Bound", "capacity": {"storage": "2Gi"}}),
    );
    let asked = AskedStorage {
        bytes: 2 << 30,
        class: Some("fast".into()),
    };
    assert_eq!(facts.asked, Some(asked));
    assert_eq!(facts.class.as_deref(), Some("fast"));
    assert_eq!(
        (facts.capacity_bytes, facts.resize_problem),
        (2 << 30, None)
    );
    // What is not ours, or was edited, records nothing.
    for text in [
        "",
        "2Gi",
        "{}",
        r#"{"size":2}"#,
        r#"{"size":"2Gi","storageClassName":7}"#,
    ] {
        assert_eq!(of_pvc(text, json!({})).asked, None, "{text}");
    }
    let failed = json!({"conditions": [
        {"type": "FileSystemResizePending", "status": "True"},
        {"type": "ControllerResizeError", "status": "True", "message": "no space"}]});
    let problem = of_pvc("{}", failed).resize_problem.expect("a problem");
    assert!(problem.contains("no space"), "{problem}");
    let never = json!({"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}});
    assert!(of_pvc("{}", never).resize_problem.is_some());
    let on_its_way = json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}});
    assert_eq!(of_pvc("{}", on_its_way).resize_problem, None);
}

#[test]
fn storage_classes_expand_and_one_is_the_default() {
    let class = |name: &str, expands: bool, at: &str| -> Arc<StorageClass> {
        Arc::new(of(
            json!({"provisioner": "csi.example", "allowVolumeExpansion": expands,
            "metadata": {"name": name, "creationTimestamp": at,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        ))
    };
    let found = classes(&[
        class("old", true, "1970-01-01T00:00:05Z"),
        class("new", false, "1970-01-01T00:00:09Z"),
    ]);
    let facts = |expands, is_default| ClassFacts {
        expands,
        is_default,
    };
    assert_eq!(found["old"], facts(true, false));
    assert_eq!(found["new"], facts(false, true));
}

#[test]
fn a_slot_names_its_member() {
    let service: Service = of(json!({
        "metadata": {"uid": "s1", "annotations": {"quorate.dev/inputs": "h"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "EtcdCluster", "name": "demo", "uid": "u1", "controller": true}]},
        "spec": {"selector": {"quorate.dev/cluster-uid": "u1", "quorate.dev/member": "demo-7"}}
    }));
    let facts = slot(&service, "demo", "u1");
    assert_eq!(facts.member.as_deref(), Some("demo-7"));
    assert_eq!((facts.owner, facts.terminating), (Owner::Ours, false));
    assert_eq!(facts.inputs.as_deref(), Some("h"));
}

#[test]
fn pdb_facts_hold_number_and_count() {
    let facts_of = |spec: serde_json::Value, counted: i64| {
        let object = json!({
            "metadata": {"name": "demo", "generation": 3}, "spec": spec,
            "status": {"observedGeneration": counted, "currentHealthy": 2, "desiredHealthy": 2,
                "disruptionsAllowed": 0, "expectedPods": 3},
        });
        pdb(&serde_json::from_value(object).expect("a valid object"))
    };
    let facts = |limit, available| PdbFacts { limit, available };
    let least = |pods| Some(PdbLimit::MinAvailable(pods));
    let two = json!({"minAvailable": 2});
    assert_eq!(facts_of(two.clone(), 3), facts(least(2), Some(2)));
    assert_eq!(
        facts_of(two, 2),
        facts(least(2), None),
        "counted for the previous spec"
    );
    assert_eq!(
        facts_of(json!({"maxUnavailable": 0}), 3),
        facts(Some(PdbLimit::CLOSED), Some(2))
    );
    assert_eq!(
        facts_of(json!({"minAvailable": "50%"}), 3),
        facts(None, Some(2))
    );
}

/// A tag that was moved to other content was treated as the same image.
#[test]
fn image_is_known_by_its_digest() {
    let pod = |id: &str| -> Arc<Pod> {
        Arc::new(of(json!({
            "metadata": {"uid": "p1"},
            "spec": {"containers": [{"name": "mesh", "image": "m"}, {"name": "member", "image": "q:1"}]},
            "status": {"containerStatuses": [
                {"name": "mesh", "image": "m", "imageID": "m@sha256:0", "ready": true, "restartCount": 0},
                {"name": "member", "image": "q:1", "imageID": id, "ready": true, "restartCount": 0}]}
        })))
    };
    let made = |id: &str| {
        let pods = BTreeMap::from([("demo-1".to_owned(), pod(id))]);
        let addresses = BTreeMap::from([("demo-1".to_owned(), "a:1".to_owned())]);
        made_of(&pods, &addresses).remove("a:1").expect("there")
    };
    let known = made("q@sha256:1");
    assert_eq!(
        (known.pod_uid.as_str(), known.image.as_str()),
        ("p1", "q:1")
    );
    assert_eq!(known.content.as_deref(), Some("q@sha256:1"));
    assert_eq!(made("").content, None, "it is not there yet");
}
