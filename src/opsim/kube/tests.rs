//! The simulated controllers and nodes beside the rules of the real ones.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::opsim::api::{Delete, Kind, Patch, Propagation, object};

const NOW_MS: u64 = 1_700_000_000_000;
const OWNER: &str = "quorate";

/// Three nodes in three zones, and a default class of disks that belong to nodes.
fn kube(node_bound: bool) -> Kube {
    let mut kube = Kube::new(SharedApiServer::new(ApiServer::new(3, NOW_MS)));
    for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
        kube.add_node(name, zone);
    }
    let class = Class {
        default: true,
        node_bound,
        grows: true,
        ..Class::default()
    };
    kube.add_class("disks", class);
    kube
}

fn member(kube: &Kube, name: &str) {
    member_with(kube, name, |_| {});
}

/// A PVC and a set as the operator makes them for a member.
fn member_with(kube: &Kube, name: &str, change: impl FnOnce(&mut Value)) {
    let mut api = kube.api().lock();
    let pvc = json!({"metadata": {"name": format!("data-{name}"), "namespace": "prod"},
        "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "8Gi"}}}});
    let _ = api.create(OWNER, Kind::PersistentVolumeClaim, pvc);
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "prod"},
        "spec": {"replicas": 1, "serviceName": "peers", "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"member": name}},
            "template": {"metadata": {"labels": {"member": name, "app": "etcd"}},
                "spec": {"terminationGracePeriodSeconds": 60,
                    "topologySpreadConstraints": [{"maxSkew": 1, "nodeTaintsPolicy": "Honor",
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "etcd"}}}],
                    "containers": [{"name": "member", "image": "a:1",
                        "args": ["--pod-uid=$(POD_UID)"],
                        "env": [{"name": "POD_UID", "valueFrom":
                            {"fieldRef": {"fieldPath": "metadata.uid"}}}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                    "volumes": [{"name": "data", "persistentVolumeClaim":
                        {"claimName": format!("data-{name}")}}]}}}});
    change(&mut set);
    let patch = Patch::Apply {
        body: set,
        force: true,
    };
    api.patch(OWNER, Kind::StatefulSet, ("prod", name), patch)
        .expect("applied");
}

fn pod(kube: &Kube, name: &str) -> Option<Arc<Value>> {
    kube.api().lock().get(Kind::Pod, "prod", name)
}

fn pvc(kube: &Kube, name: &str) -> Option<Arc<Value>> {
    kube.api()
        .lock()
        .get(Kind::PersistentVolumeClaim, "prod", name)
}

fn wait(kube: &mut Kube, seconds: u64) {
    for _ in 0..seconds {
        let now_ms = kube.api().lock().now_ms() + 1000;
        kube.api().lock().set_now_ms(now_ms);
        assert!(kube.settle(), "the parts come to rest");
    }
}

/// Every process that runs is ready.
fn all_ready(kube: &mut Kube) {
    assert!(kube.settle());
    for one in kube.running() {
        kube.report(&one.uid, &Process::Ready(true));
    }
    assert!(kube.settle());
}

fn delete_pod(kube: &Kube, name: &str) {
    let mut api = kube.api().lock();
    api.delete("me", Kind::Pod, ("prod", name), &Delete::default())
        .expect("marked");
}

#[test]
fn a_set_gets_its_pod_its_node_and_its_disk() {
    let mut kube = kube(true);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let running = kube.running();
    assert_eq!(running.len(), 1);
    let pod = pod(&kube, "demo-1-0").expect("a pod");
    assert!(object::holds(&pod, "Ready") && object::holds(&pod, "PodScheduled"));
    assert_eq!(
        running[0].args,
        [format!("--pod-uid={}", object::uid(&pod))]
    );
    assert_eq!(object::text(&pod, &["status", "podIP"]), running[0].address);
    assert_eq!(object::text(&pod, &["spec", "nodeName"]), running[0].node);
    let pvc = pvc(&kube, "data-demo-1").expect("a PVC");
    assert_eq!(object::text(&pvc, &["status", "phase"]), "Bound");
    let api = kube.api().lock();
    let volume = api
        .get(Kind::PersistentVolume, "", &running[0].volume)
        .expect("a volume");
    assert!(volume.to_string().contains(&running[0].node), "{volume}");
    let set = api.get(Kind::StatefulSet, "prod", "demo-1").expect("a set");
    assert_eq!(object::number(&set, &["status", "readyReplicas"]), Some(1));
    assert_eq!(
        set["status"]["observedGeneration"],
        set["metadata"]["generation"]
    );
    assert!(api.not_modelled().is_empty());
}

#[test]
fn pod_is_recreated_from_the_new_template() {
    let mut kube = kube(false);
    kube.set_stop_ms(5_000);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let first = pod(&kube, "demo-1-0").expect("a pod");
    member_with(&kube, "demo-1", |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a:2");
    });
    assert!(kube.settle());
    assert_eq!(
        kube.running()[0].image,
        "a:1",
        "only a deletion brings the new template"
    );
    let set = kube
        .api()
        .lock()
        .get(Kind::StatefulSet, "prod", "demo-1")
        .expect("a set");
    assert_ne!(
        set["status"]["currentRevision"],
        set["status"]["updateRevision"]
    );
    assert_eq!(
        object::number(&set, &["status", "updatedReplicas"]),
        Some(0)
    );
    delete_pod(&kube, "demo-1-0");
    wait(&mut kube, 2);
    let old = pod(&kube, "demo-1-0").expect("still there");
    assert_eq!(
        (object::uid(&old), object::is_deleting(&old)),
        (object::uid(&first), true)
    );
    assert!(kube.running()[0].stops_at_ms.is_some());
    wait(&mut kube, 4);
    let new = pod(&kube, "demo-1-0").expect("a new one");
    assert_ne!(object::uid(&new), object::uid(&first));
    assert_eq!(kube.running()[0].image, "a:2");
    assert_eq!(kube.running()[0].starts, 1);
}

#[test]
fn unschedulable_member_reports_why() {
    let mut kube = kube(true);
    for name in ["demo-1", "demo-2", "demo-3"] {
        member(&kube, name);
        assert!(kube.settle());
    }
    let nodes: BTreeSet<String> = kube.running().into_iter().map(|one| one.node).collect();
    assert_eq!(nodes.len(), 3);
    kube.cordon("n1", true);
    let on_n1 = kube
        .running()
        .into_iter()
        .find(|one| one.node == "n1")
        .expect("one")
        .pod;
    delete_pod(&kube, &on_n1);
    wait(&mut kube, 2);
    let stuck = pod(&kube, &on_n1).expect("a pod");
    let condition = object::condition(&stuck, "PodScheduled").expect("a condition");
    assert_eq!(condition["reason"], "Unschedulable");
    let message = object::text(condition, &["message"]);
    assert!(
        message.starts_with("0/3 nodes are available: "),
        "{message}"
    );
    assert!(
        message.contains("1 node(s) were unschedulable"),
        "{message}"
    );
    kube.cordon("n1", false);
    assert!(kube.settle());
    assert_eq!(kube.running().len(), 3);
}

#[test]
fn a_pvc_in_use_stays_until_its_pod_is_gone() {
    let mut kube = kube(false);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let volume = kube.running()[0].volume.clone();
    let id = ("prod", "data-demo-1");
    let none = Delete::default();
    kube.api()
        .lock()
        .delete("me", Kind::PersistentVolumeClaim, id, &none)
        .expect("marked");
    wait(&mut kube, 5);
    assert!(object::is_deleting(
        &pvc(&kube, "data-demo-1").expect("in use")
    ));
    delete_pod(&kube, "demo-1-0");
    wait(&mut kube, 5);
    assert_eq!(pvc(&kube, "data-demo-1"), None);
    assert_eq!(
        kube.api().lock().get(Kind::PersistentVolume, "", &volume),
        None
    );
    let waiting = pod(&kube, "demo-1-0").expect("a new pod");
    let condition = object::condition(&waiting, "PodScheduled").expect("a condition");
    assert!(condition.to_string().contains("not found"), "{condition}");
}

#[test]
fn a_lost_volume_and_a_grown_one() {
    let mut kube = kube(false);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let size = json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}});
    let id = ("prod", "data-demo-1");
    let patch = Patch::Merge(size);
    let grown = kube
        .api()
        .lock()
        .patch("me", Kind::PersistentVolumeClaim, id, patch);
    grown.expect("its class lets it grow");
    assert!(kube.settle());
    let found = pvc(&kube, "data-demo-1").expect("a PVC");
    assert_eq!(found["status"]["capacity"]["storage"], "9Gi");
    let volume = kube.running()[0].volume.clone();
    kube.lose_volume(&volume);
    assert!(kube.settle());
    let found = pvc(&kube, "data-demo-1").expect("a PVC");
    assert_eq!(object::text(&found, &["status", "phase"]), "Lost");
}

#[test]
fn crashes_back_off() {
    let mut kube = kube(false);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let exit = Process::Exited {
        code: 3,
        message: "why".into(),
    };
    let uid = kube.running()[0].uid.clone();
    kube.report(&uid, &exit);
    wait(&mut kube, 1);
    assert_eq!(kube.running()[0].starts, 2);
    kube.report(&uid, &exit);
    wait(&mut kube, 5);
    assert!(kube.running().is_empty());
    let found = pod(&kube, "demo-1-0").expect("a pod");
    let status = &found["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(status["lastState"]["terminated"]["message"], "why");
    assert!(!object::holds(&found, "Ready"));
    wait(&mut kube, 6);
    assert_eq!(kube.running()[0].starts, 3);
}

#[test]
fn image_pull_failure_is_reported() {
    let mut kube = kube(false);
    kube.set_bad_image("a:1", true);
    member(&kube, "demo-1");
    assert!(kube.settle());
    let found = pod(&kube, "demo-1-0").expect("a pod");
    let waiting = &found["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    assert_eq!(object::text(&found, &["status", "phase"]), "Pending");
    kube.set_bad_image("a:1", false);
    assert!(kube.settle());
    assert_eq!(kube.running().len(), 1);
}

#[test]
fn silent_node_keeps_its_pods() {
    for vouch in [true, false] {
        let mut kube = kube(false);
        member(&kube, "demo-1");
        all_ready(&mut kube);
        let first = kube.running()[0].clone();
        kube.node_down(&first.node);
        wait(&mut kube, 30);
        assert!(kube.running().is_empty(), "no power, no process");
        assert!(object::holds(
            &pod(&kube, "demo-1-0").expect("a pod"),
            "Ready"
        ));
        wait(&mut kube, 15);
        assert!(!object::holds(
            &pod(&kube, "demo-1-0").expect("a pod"),
            "Ready"
        ));
        wait(&mut kube, 280);
        assert!(!object::is_deleting(
            &pod(&kube, "demo-1-0").expect("tolerated")
        ));
        wait(&mut kube, 30);
        let marked = pod(&kube, "demo-1-0").expect("no kubelet confirms its end");
        assert!(object::is_deleting(&marked));
        wait(&mut kube, 100);
        assert_eq!(
            object::uid(&pod(&kube, "demo-1-0").expect("still")),
            first.uid
        );
        if vouch {
            kube.out_of_service(&first.node, true);
        } else {
            kube.node_delete(&first.node);
        }
        wait(&mut kube, 45);
        let running = kube.running();
        assert_eq!(running.len(), 1);
        assert_ne!(running[0].node, first.node);
        assert_eq!(running[0].volume, first.volume, "its disk can follow");
    }
}

#[test]
fn returning_node_restarts_containers() {
    let mut kube = kube(true);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let first = kube.running()[0].clone();
    kube.node_down(&first.node);
    wait(&mut kube, 60);
    kube.node_up(&first.node);
    wait(&mut kube, 1);
    let again = kube.running()[0].clone();
    assert_eq!((again.uid, again.starts), (first.uid.clone(), 2));
    assert_ne!(again.address, first.address);
    // One that is cut off runs on, and reports nothing.
    kube.node_cut(&first.node);
    wait(&mut kube, 60);
    let cut = kube.running()[0].clone();
    assert!(!cut.connected);
    delete_pod(&kube, "demo-1-0");
    wait(&mut kube, 100);
    assert_eq!(kube.running()[0].uid, first.uid);
    kube.node_up(&first.node);
    wait(&mut kube, 2);
    assert_ne!(kube.running()[0].uid, first.uid);
}

#[test]
fn volume_of_a_deleted_node_holds_its_pod() {
    let mut kube = kube(true);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let first = kube.running()[0].clone();
    kube.node_delete(&first.node);
    wait(&mut kube, 60);
    assert!(kube.running().is_empty());
    let stuck = pod(&kube, "demo-1-0").expect("a new pod");
    let condition = object::condition(&stuck, "PodScheduled").expect("a condition");
    let message = object::text(condition, &["message"]);
    assert!(
        message.contains("didn't match PersistentVolume's node affinity"),
        "{message}"
    );
}

fn pdb(kube: &Kube, most: i64) {
    let pdb = json!({"metadata": {"name": "demo", "namespace": "prod"},
        "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": "etcd"}}}});
    kube.api()
        .lock()
        .create("me", Kind::PodDisruptionBudget, pdb)
        .expect("made");
}

#[test]
fn a_budget_holds_a_drain() {
    let mut kube = kube(false);
    for name in ["demo-1", "demo-2", "demo-3"] {
        member(&kube, name);
    }
    pdb(&kube, 1);
    let id = ("prod", "demo");
    let hasty = kube.running().first().map(|one| one.node.clone());
    assert_eq!(hasty, None);
    all_ready(&mut kube);
    let status = kube
        .api()
        .lock()
        .get(Kind::PodDisruptionBudget, id.0, id.1)
        .expect("one");
    assert_eq!(
        object::number(&status, &["status", "disruptionsAllowed"]),
        Some(1)
    );
    let evictions = kube.drain("n1");
    assert_eq!(evictions.len(), 1);
    assert_eq!(evictions[0].1, Ok(()));
    let refused = kube.drain("n2").remove(0).1.expect_err("the PDB is spent");
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (429, "TooManyRequests")
    );
    wait(&mut kube, 3);
    let refused = kube.drain("n2").remove(0).1.expect_err("one is not ready");
    assert_eq!(refused.code, 429);
    // Pods on a cordoned node have nowhere to go here; given back, all is well again.
    kube.cordon("n1", false);
    kube.cordon("n2", false);
    all_ready(&mut kube);
    let none = json!({"spec": {"maxUnavailable": 0}});
    let patch = Patch::Merge(none);
    kube.api()
        .lock()
        .patch("me", Kind::PodDisruptionBudget, id, patch)
        .expect("changed");
    let refused = kube.drain("n2").remove(0).1.expect_err("not looked at yet");
    assert!(
        refused
            .details
            .to_string()
            .contains("still being processed")
    );
    assert!(kube.settle());
    assert_eq!(kube.drain("n2").remove(0).1.map_err(|e| e.code), Err(429));
}

#[test]
fn objects_are_deleted_with_their_last_owner() {
    let mut kube = kube(false);
    let made = |name: &str, owners: &[&Value]| {
        let owners: Vec<Value> = owners
            .iter()
            .map(|owner| {
                let mut reference = object::owner_reference("v1", "Secret", owner);
                reference["controller"] = json!(false);
                reference
            })
            .collect();
        let secret = json!({"metadata": {"name": name, "namespace": "prod",
            "ownerReferences": owners}});
        kube.api()
            .lock()
            .create("me", Kind::Secret, secret)
            .expect("made")
    };
    let (first, second) = (made("first", &[]), made("second", &[]));
    made("both", &[&first, &second]);
    let mut stranger = (*first).clone();
    stranger["metadata"]["uid"] = json!("another-life");
    made("stranger", &[&stranger]);
    assert!(kube.settle());
    let there = |kube: &Kube, name: &str| kube.api().lock().get(Kind::Secret, "prod", name);
    assert_eq!(
        there(&kube, "stranger"),
        None,
        "an owner is a UID, not a name"
    );
    let delete = |kube: &Kube, name: &str, propagation: Propagation| {
        let how = Delete {
            propagation: Some(propagation),
            ..Delete::default()
        };
        kube.api()
            .lock()
            .delete("me", Kind::Secret, ("prod", name), &how)
            .expect("deleted");
    };
    delete(&kube, "first", Propagation::Background);
    assert!(kube.settle());
    let both = there(&kube, "both").expect("it has an owner left");
    assert_eq!(object::owners(&both).len(), 1);
    delete(&kube, "second", Propagation::Foreground);
    assert!(there(&kube, "second").is_some_and(|second| object::is_deleting(&second)));
    assert!(kube.settle());
    assert_eq!((there(&kube, "second"), there(&kube, "both")), (None, None));
}

#[test]
fn orphans_stay() {
    let mut kube = kube(false);
    member(&kube, "demo-1");
    all_ready(&mut kube);
    let uid = kube.running()[0].uid.clone();
    let how = Delete {
        propagation: Some(Propagation::Orphan),
        ..Delete::default()
    };
    kube.api()
        .lock()
        .delete("me", Kind::StatefulSet, ("prod", "demo-1"), &how)
        .expect("marked");
    wait(&mut kube, 5);
    assert_eq!(
        kube.api().lock().get(Kind::StatefulSet, "prod", "demo-1"),
        None
    );
    let orphan = pod(&kube, "demo-1-0").expect("it stays");
    assert_eq!(object::owners(&orphan).len(), 0);
    member(&kube, "demo-1");
    assert!(kube.settle());
    let adopted = pod(&kube, "demo-1-0").expect("it stays");
    assert_eq!(
        (object::uid(&adopted), object::owners(&adopted).len()),
        (uid.as_str(), 1)
    );
    kube.api()
        .lock()
        .delete(
            "me",
            Kind::StatefulSet,
            ("prod", "demo-1"),
            &Delete::default(),
        )
        .expect("gone");
    wait(&mut kube, 5);
    assert_eq!(pod(&kube, "demo-1-0"), None);
}
