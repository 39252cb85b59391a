//! What is read of an object is the same of a pruned one; what is not read is gone.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::drift;
use super::super::facts;
use super::super::kept_secret::KeptSecret;
use super::super::nodes;
use super::super::user_certificates;
use super::*;
use crate::build::{self, OwnImage, Settings};
use crate::crd::{
    ANNOTATION_IGNORE_CORDON, ANNOTATION_INPUTS, ANNOTATION_STORAGE, EtcdCluster,
    LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_MEMBER, LABEL_RELEASED, ValidatedCluster,
};
use crate::operator::admission::admit;
use crate::plan::PdbLimit;

/// An object as an API server stores one, with these fields of its own.
fn of<K: DeserializeOwned>(mut own: Value) -> K {
    let common = json!({
        "name": "demo-1", "namespace": "team-a", "uid": "u1", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-03-01T00:00:00Z", "deletionTimestamp": "2026-03-02T00:00:00Z",
        "finalizers": ["a/b"],
        "ownerReferences": [{"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "name": "demo",
            "uid": "c1", "controller": true}],
        "managedFields": [{"manager": "quorate", "operation": "Apply", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:containers": {}}}}],
    });
    for (key, value) in common.as_object().expect("an object") {
        own["metadata"][key] = value.clone();
    }
    for (key, value) in [
        (LAST_APPLIED, "{\"a copy\": 1}"),
        ("cni.example/ips", "10.0.0.1"),
    ] {
        own["metadata"]["annotations"][key] = value.into();
    }
    serde_json::from_value(own).expect("an object")
}

/// The object as a cache gives it: nothing is left of what is never read, and as a text it is the same.
fn pruned<K: Prune + Clone + Serialize + PartialEq + Debug>(whole: &K) -> K {
    let mut pruned = whole.clone();
    pruned.prune();
    let whole_kinds = [
        "Node",
        "PersistentVolume",
        "StorageClass",
        "EtcdBackup",
        "EtcdBackupSchedule",
        "EtcdBackupStore",
        "EtcdRecovery",
    ];
    let is_whole = whole_kinds.contains(&&*K::kind(&()));
    assert_eq!(pruned.text().is_none(), is_whole, "{}", K::kind(&()));
    let text = serde_json::to_string(&pruned).expect("JSON");
    for gone in ["managedFields", LAST_APPLIED] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    let whole = whole.meta();
    let kept = pruned.meta();
    assert_eq!(whole.labels, kept.labels, "objects are selected by them");
    assert_eq!(
        (&whole.uid, &whole.resource_version, &whole.owner_references),
        (&kept.uid, &kept.resource_version, &kept.owner_references)
    );
    assert_eq!(whole.deletion_timestamp, kept.deletion_timestamp);
    assert_eq!(whole.creation_timestamp, kept.creation_timestamp);
    assert_eq!(whole.finalizers, kept.finalizers);
    assert_eq!(whole.generation, kept.generation);
    pruned
}

/// That these texts are in the object, and not in the pruned one.
fn assert_gone<K: Serialize>(whole: &K, pruned: &K, texts: &[&str]) {
    let text = |object: &K| serde_json::to_string(object).expect("JSON");
    let (whole, pruned) = (text(whole), text(pruned));
    for gone in texts {
        assert!(
            whole.contains(gone) && !pruned.contains(gone),
            "{gone}: {pruned}"
        );
    }
}

fn cluster() -> ValidatedCluster {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "team-a", "uid": "c1"},
        "spec": {"replicas": 3, "version": "0.9.0",
            "podTemplate": {"metadata": {"annotations": {"team": "a"}},
                "spec": {"nodeSelector": {"zone": "z1"}, "containers": []}},
            "tls": {"client": {"source": "Secret", "certificateSecretRef": {"name": "mine"}},
                "peer": {"source": "Secret", "certificateSecretRef": {"name": "mine"}}}},
    }))
    .expect("a resource");
    admit(&cluster).expect("it is valid")
}

fn settings() -> Settings {
    Settings {
        image: OwnImage::of("registry.example/quorate".parse().expect("a reference")),
        operator_namespace: Some("quorate-system".into()),
        user: Some(build::USER),
    }
}

fn pod() -> Pod {
    let state = json!({"running": {"startedAt": "2026-03-01T00:00:09Z"}});
    let ended = json!({"terminated": {"exitCode": 20, "message": "{\"class\":\"corrupt\"}"}});
    let secret = |name: &str| json!({"secret": {"name": name, "items": []}});
    of(json!({
        "metadata": {
            "labels": {LABEL_CLUSTER_UID: "c1", LABEL_MEMBER: "demo-1", LABEL_RELEASED: "5", "team": "a"},
            "annotations": {ANNOTATION_INPUTS: "h"}},
        "spec": {
            "nodeName": "node-a", "serviceAccountName": "an-account",
            "tolerations": [{"key": "unread-toleration", "operator": "Exists"}],
            "containers": [
                {"name": "istio", "image": "mesh", "args": ["--listen-peer-urls=http://x"]},
                {"name": build::CONTAINER, "image": "registry.example/quorate:0.9.0",
                    "args": ["--listen-peer-urls=https://[::]:2380", "--heartbeat-interval=200", "--unsafe-no-fsync=true"],
                    "env": [{"name": "UNREAD_VARIABLE", "value": "1"}],
                    "resources": {"requests": {"cpu": "1"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/unread"}]}],
            "volumes": [
                {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "unread-volume", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "client-tls", "projected": {"sources": [secret("mine"), secret("trusted")]}},
                {"name": "peer-tls", "projected": {"sources": [secret("old"), secret("old-trusted")]}}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "unread-host",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T00:00:19Z"}],
            "initContainerStatuses": [{"name": "first", "image": "unread-image", "imageID": "", "ready": true, "restartCount": 0}],
            "containerStatuses": [
                {"name": "istio", "image": "mesh", "imageID": "m", "ready": true, "restartCount": 0},
                {"name": build::CONTAINER, "image": "i", "imageID": "sha256:one", "containerID": "unread-container",
                    "ready": true, "restartCount": 3, "state": state, "lastState": ended}]},
    }))
}

#[test]
fn pods_keep_their_facts() {
    let whole = pod();
    let kept = pruned(&whole);
    assert_eq!(facts::pod(&kept), facts::pod(&whole));
    assert_eq!(facts::stranger(&kept), facts::stranger(&whole));
    let read = facts::pod(&kept);
    assert!(read.peer_tls && read.server.unsynced && read.last_exit.is_some());
    assert_eq!(read.inputs.as_deref(), Some("h"));

    let addresses = BTreeMap::from([("demo-1".to_owned(), "10.0.0.1:2380".to_owned())]);
    let pods = |pod: &Pod| BTreeMap::from([("demo-1".to_owned(), Arc::new(pod.clone()))]);
    let made = |pod: &Pod| facts::made_of(&pods(pod), &addresses);
    assert_eq!(made(&kept), made(&whole));
    let content = made(&kept)["10.0.0.1:2380"].content.clone();
    assert_eq!(content.as_deref(), Some("sha256:one"));
    let secrets = |pod: &Pod| user_certificates::names(&cluster(), &pods(pod));
    assert_eq!(secrets(&kept), secrets(&whole));
    assert!(
        secrets(&kept).contains("old-trusted"),
        "{secrets:?}",
        secrets = secrets(&kept)
    );
    let ip = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    assert_eq!(ip(&kept), ip(&whole));
    let spec = |pod: &Pod| {
        pod.spec
            .as_ref()
            .map(|spec| spec.service_account_name.clone())
    };
    assert_eq!(spec(&kept), Some(Some("an-account".to_owned())));

    let unread = [
        "unread-toleration",
        "UNREAD_VARIABLE",
        "/unread",
        "unread-volume",
        "unread-host",
        "unread-image",
        "unread-container",
        "cni.example/ips",
    ];
    assert_gone(&whole, &kept, &unread);
}

/// Edits are found by comparing with a rendering: of what is rendered nothing may be dropped.
#[test]
fn rendered_objects_keep_every_rendered_field() {
    fn check<K>(rendered: &K, edits: &[(&str, Value)])
    where
        K: Prune + Clone + Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let is_edited = |live: &K| {
            let known = drift::Known::default();
            known.is_edited(live, "one", || Some(rendered.clone()))
        };
        let mut stored = serde_json::to_value(rendered).expect("JSON");
        stored["metadata"]["managedFields"] = json!([{"manager": "quorate"}]);
        stored["metadata"]["resourceVersion"] = "7".into();
        let live = |value: &Value| -> K {
            pruned(&serde_json::from_value::<K>(value.clone()).expect("an object"))
        };
        assert!(!is_edited(&live(&stored)), "{stored}");
        for (path, value) in edits {
            let mut edited = stored.clone();
            *edited.pointer_mut(path).expect("it is rendered") = value.clone();
            assert!(is_edited(&live(&edited)), "{path}");
        }
    }
    let cluster = cluster();
    let how = build::SetOptions {
        one_per_node: true,
        hibernated: false,
        plaintext_peers: false,
    };
    let set = build::stateful_set(&cluster, &settings(), "demo-1", how);
    let container = "/spec/template/spec/containers/0";
    check(
        &set,
        &[
            (&format!("{container}/image"), json!("another")),
            (&format!("{container}/args/0"), json!("--another")),
            (&format!("{container}/env"), json!([])),
            (&format!("{container}/volumeMounts"), json!([])),
            (&format!("{container}/readinessProbe"), Value::Null),
            ("/spec/template/spec/volumes", json!([])),
            ("/spec/template/spec/nodeSelector", json!({"zone": "z2"})),
            ("/spec/template/metadata/annotations/team", json!("b")),
            ("/spec/replicas", json!(0)),
            ("/metadata/labels/quorate.dev~1member", json!("demo-2")),
        ],
    );
    let slot = build::slot_service(&cluster, 1, "demo-1");
    check(
        &slot,
        &[("/spec/selector/quorate.dev~1member", json!("demo-2"))],
    );
    let pdb = build::pdb_without_evictions(&cluster);
    check(&pdb, &[("/spec/maxUnavailable", json!(3))]);
    let policy = build::network_policy(&cluster, &settings());
    check(&policy, &[("/spec/podSelector", json!({}))]);
}

#[test]
fn sets_and_services_keep_their_facts() {
    let how = build::SetOptions {
        one_per_node: true,
        hibernated: true,
        plaintext_peers: true,
    };
    let set = build::stateful_set(&cluster(), &settings(), "demo-1", how);
    let mut set = serde_json::to_value(set).expect("JSON");
    set["status"] = json!({"replicas": 1, "currentRevision": "unread-revision"});
    let whole: StatefulSet = of(set);
    let kept = pruned(&whole);
    let read = |set: &StatefulSet| facts::set(set, "demo", "c1");
    assert_eq!(read(&kept), read(&whole));
    assert!(read(&kept).hibernated && read(&kept).plain_peers);
    assert_gone(&whole, &kept, &["unread-revision"]);

    let mut slot =
        serde_json::to_value(build::slot_service(&cluster(), 1, "demo-1")).expect("JSON");
    slot["status"] = json!({"loadBalancer": {"ingress": [{"ip": "unread-ip"}]}});
    let whole: Service = of(slot);
    let kept = pruned(&whole);
    let read = |service: &Service| facts::slot(service, "demo", "c1");
    assert_eq!(read(&kept), read(&whole));
    assert_eq!(read(&kept).member.as_deref(), Some("demo-1"));
    assert_gone(&whole, &kept, &["unread-ip"]);

    let mut pdb =
        serde_json::to_value(build::pdb(&cluster(), PdbLimit::MinAvailable(2))).expect("JSON");
    pdb["status"] = json!({"observedGeneration": 3, "currentHealthy": 2, "desiredHealthy": 2,
        "disruptionsAllowed": 0, "expectedPods": 3, "disruptedPods": {"unread-pod": "2026-03-01T00:00:00Z"}});
    let whole: PodDisruptionBudget = of(pdb);
    let kept = pruned(&whole);
    assert_eq!(facts::pdb(&kept), facts::pdb(&whole));
    let counted = facts::pdb(&kept);
    assert_eq!(
        (counted.min_available(), counted.available),
        (Some(2), Some(2))
    );
    assert_gone(&whole, &kept, &["unread-pod"]);
}

#[test]
fn volumes_and_nodes_keep_their_facts() {
    let node: Node = of(json!({
        "metadata": {"labels": {"kubernetes.io/hostname": "demo-1", "zone": "z1"},
            "annotations": {ANNOTATION_IGNORE_CORDON: "true"}},
        "spec": {"unschedulable": true, "podCIDR": "unread-range",
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
        "status": {"images": [{"names": ["unread-image"]}], "capacity": {"cpu": "4"},
            "conditions": [{"type": "MemoryPressure", "status": "False", "message": "unread-pressure"},
                {"type": "Ready", "status": "True"}]},
    }));
    let kept_node = pruned(&node);
    for cluster in [None, Some(&cluster())] {
        assert_eq!(
            nodes::node(&kept_node, cluster),
            nodes::node(&node, cluster)
        );
    }
    let mut alive = node.clone();
    alive.metadata.deletion_timestamp = None;
    let kept_alive = pruned(&alive);
    let read = nodes::node(&kept_alive, Some(&cluster()));
    assert_eq!(read, nodes::node(&alive, Some(&cluster())));
    assert!(read.ready && read.out_of_service && read.closed && !read.unselected);
    assert!(nodes::concerns_members(&kept_node));
    let unread = [
        "unread-range",
        "unread-image",
        "unread-pressure",
        "capacity",
    ];
    assert_gone(&node, &kept_node, &unread);

    let volume: PersistentVolume = of(json!({
        "metadata": {},
        "spec": {"capacity": {"storage": "8Gi"}, "local": {"path": "/disk"}, "storageClassName": "unread-class",
            "claimRef": {"name": "unread-claim"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["demo-1"]}]}]}}},
        "status": {"phase": "Bound"},
    }));
    let kept_volume = pruned(&volume);
    assert_gone(
        &volume,
        &kept_volume,
        &["unread-class", "unread-claim", "Bound"],
    );

    let pvc: PersistentVolumeClaim = of(json!({
        "metadata": {
            "labels": {LABEL_CLUSTER_UID: "c1", LABEL_MEMBER: "demo-1", LABEL_CLAIM_STATE: "joined"},
            "annotations": {ANNOTATION_STORAGE: "{\"bytes\":1}"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1", "storageClassName": "fast",
            "volumeMode": "unread-mode", "resources": {"requests": {"storage": "8Gi"}}},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "6Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
            "conditions": [{"type": "NodeResizeError", "status": "True", "message": "no room"}]},
    }));
    let kept_pvc = pruned(&pvc);
    assert_gone(&pvc, &kept_pvc, &["unread-mode", "accessModes"]);
    let volume_name = |pvc: &PersistentVolumeClaim| {
        let spec = pvc.spec.as_ref();
        spec.and_then(|spec| spec.volume_name.clone())
    };
    assert_eq!(volume_name(&kept_pvc), volume_name(&pvc));
    let whole = facts::pvc(&pvc, "c1", Some(&volume), &[Arc::new(node)]);
    let kept = facts::pvc(&kept_pvc, "c1", Some(&kept_volume), &[Arc::new(kept_node)]);
    assert_eq!(kept, whole);
    assert_eq!(kept.requested_bytes, 8 << 30);
    assert_eq!(kept.storage.capacity_bytes, 6 << 30);
    assert!(kept.storage.resize_problem.is_some() && kept.bound && kept.nodes.is_some());
    assert_eq!(kept.node_bound, Some(true));
}

#[test]
fn classes_keep_their_facts() {
    let class: StorageClass = of(json!({
        "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true,
        "parameters": {"type": "unread-type"}, "mountOptions": ["unread-option"],
    }));
    let kept = pruned(&class);
    assert_gone(&class, &kept, &["unread-type", "unread-option"]);
    let (class, kept) = ([Arc::new(class)], [Arc::new(kept)]);
    assert_eq!(facts::classes(&kept), facts::classes(&class));
    assert!(facts::classes(&kept)["demo-1"].is_default);
    assert_eq!(facts::class_node_bound(None, &kept), Some(true));
}

/// The resource's own annotations ask for things, and its specification is judged as a whole.
#[test]
fn resources_lose_nothing_but_bookkeeping() {
    let whole: EtcdCluster = of(json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"annotations": {"quorate.dev/rotate-peer-ca": "1"}},
        "spec": {"replicas": 3, "version": "0.9.0"},
        "status": {"clusterId": "a"},
    }));
    let mut kept = DeserializeGuard(Ok(whole.clone()));
    kept.prune();
    let kept = kept.0.expect("it can be read");
    assert_eq!((&kept.spec, &kept.status), (&whole.spec, &whole.status));
    let meta = &kept.metadata;
    assert!(meta.managed_fields.is_none());
    let rotation = facts::annotation(meta, "quorate.dev/rotate-peer-ca");
    assert_eq!(rotation.as_deref(), Some("1"));
    assert_eq!(facts::annotation(meta, LAST_APPLIED), None);
    let user = facts::annotation(meta, "cni.example/ips");
    assert!(user.is_some(), "the user's own");
    let secret: KeptSecret = of(json!({"metadata": {}, "data": {"ca.crt": "YQ=="}}));
    assert_eq!(pruned(&secret).secret().data, None);
}

/// Kinds of which each cluster has some: a text is a fraction of the structure. The others are shared by all clusters, and
/// read whole by each.
#[test]
fn what_each_cluster_has_is_kept_as_text() {
    fn is_text<K: Prune>(object: &K) -> bool {
        object.text().is_some()
    }
    let (cluster, settings) = (cluster(), settings());
    let how = build::SetOptions {
        one_per_node: true,
        hibernated: false,
        plaintext_peers: false,
    };
    let set = build::stateful_set(&cluster, &settings, "demo-1", how);
    assert!(is_text(&set) && set.text().is_some_and(|text| text.len() < 8 << 10));
    assert!(is_text(&pod()) && is_text(&PersistentVolumeClaim::default()));
    assert!(is_text(&build::slot_service(&cluster, 1, "demo-1")));
    assert!(is_text(&build::pdb_without_evictions(&cluster)));
    assert!(is_text(&build::network_policy(&cluster, &settings)));
    assert!(is_text(&KeptSecret::from(Secret::default())));
    assert!(is_text(&EndpointSlice::default()));
    let resource: EtcdCluster =
        of(json!({"metadata": {}, "spec": {"replicas": 3, "version": "0.9.0"}}));
    assert!(is_text(&DeserializeGuard(Ok(resource))));
    assert!(!is_text(&Node::default()) && !is_text(&PersistentVolume::default()));
    assert!(!is_text(&StorageClass::default()));
}

/// Whatever a text would change is kept whole.
#[test]
fn what_a_text_would_change_is_kept_whole() {
    #[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Forgets {
        #[serde(skip)]
        part: bool,
    }
    assert!(text(&Forgets { part: false }).is_some());
    assert!(text(&Forgets { part: true }).is_none());
}
