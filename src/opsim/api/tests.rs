//! The simulated API server beside the rules of the real one.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch as KubePatch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;

pub(super) fn server() -> ApiServer {
    ApiServer::new(7, NOW_MS)
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "prod"}, "data": {"a": "YQ=="}})
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> (u16, String) {
    let refusal = result.expect_err("refused");
    (refusal.code, refusal.reason)
}

fn set(image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "demo-1", "namespace": "prod"},
        "spec": {"replicas": 1, "serviceName": "peers",
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "member", "image": image,
                    "env": [{"name": "A", "value": "1"}],
                    "ports": [{"containerPort": 2379, "name": "client"}]}]}}}})
}

pub(super) fn apply(
    server: &mut ApiServer,
    who: &str,
    body: Value,
    force: bool,
) -> Result<Arc<Value>, Refusal> {
    let kind = Kind::of(
        object::text(&body, &["apiVersion"]),
        object::text(&body, &["kind"]),
    );
    let name = object::name(&body).to_owned();
    let patch = Patch::Apply { body, force };
    server.patch(who, kind.expect("a kind"), ("prod", &name), patch)
}

#[test]
fn update_needs_the_newest_resource_version() {
    let mut server = server();
    let first = server
        .create("me", Kind::Secret, secret("a"))
        .expect("made");
    assert_eq!(
        object::text(&first, &["metadata", "creationTimestamp"]),
        "2023-11-14T22:13:20Z"
    );
    assert_eq!(
        code(server.create("me", Kind::Secret, secret("a"))),
        (409, "AlreadyExists".into())
    );
    let mut changed = (*first).clone();
    changed["data"]["b"] = json!("Yg==");
    let second = server
        .replace("me", Kind::Secret, changed.clone())
        .expect("changed");
    assert!(object::revision(&second) > object::revision(&first));
    assert_eq!(
        code(server.replace("me", Kind::Secret, changed)),
        (409, "Conflict".into())
    );
    // A write that changes nothing makes no version.
    let same = server
        .replace("me", Kind::Secret, (*second).clone())
        .expect("the same");
    assert_eq!(object::revision(&same), object::revision(&second));
    let other = server
        .create("me", Kind::Secret, secret("b"))
        .expect("made");
    assert!(object::revision(&other) > object::revision(&second));
    assert_ne!(object::uid(&other), object::uid(&first));
    let versions = server.versions(Kind::Secret, 0, server.revision());
    let seen: Vec<Change> = versions.iter().map(|version| version.change).collect();
    assert_eq!(seen, [Change::Added, Change::Modified, Change::Added]);
}

#[test]
fn delete_checks_uid_and_awaits_finalizers() {
    let mut server = server();
    let mut held = secret("a");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let made = server.create("me", Kind::Secret, held).expect("made");
    let id = ("prod", "a");
    let wrong = Delete::only("other");
    assert_eq!(
        code(server.delete("me", Kind::Secret, id, &wrong)),
        (409, "Conflict".into())
    );
    let right = Delete::only(object::uid(&made));
    let marked = server
        .delete("me", Kind::Secret, id, &right)
        .expect("marked");
    assert!(object::is_deleting(&marked));
    let again = server
        .delete("me", Kind::Secret, id, &right)
        .expect("marked already");
    assert_eq!(object::revision(&again), object::revision(&marked));
    let more = json!({"metadata": {"finalizers": ["x/y", "z/z"]}});
    let refused = server.patch("me", Kind::Secret, id, Patch::Merge(more));
    assert_eq!(code(refused), (422, "Invalid".into()));
    let none = json!({"metadata": {"finalizers": null}});
    server
        .patch("me", Kind::Secret, id, Patch::Merge(none))
        .expect("let go");
    assert_eq!(server.get(Kind::Secret, "prod", "a"), None);
    assert_eq!(
        code(server.delete("me", Kind::Secret, id, &right)),
        (404, "NotFound".into())
    );
    let last = server
        .versions(Kind::Secret, 0, server.revision())
        .last()
        .expect("one");
    assert_eq!(
        (last.change, last.revision),
        (Change::Deleted, server.revision())
    );
}

#[test]
fn only_spec_writes_raise_the_generation() {
    let mut server = server();
    let cluster = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "prod"},
        "spec": {"replicas": 3}, "status": {"clusterId": "stolen"}});
    let made = server
        .create("user", Kind::EtcdCluster, cluster)
        .expect("made");
    assert_eq!(made.get("status"), None);
    assert_eq!(object::number(&made, &["metadata", "generation"]), Some(1));
    let change = json!({"spec": {"replicas": 5}, "status": {"clusterId": "stolen"}});
    let id = ("prod", "demo");
    let changed = server
        .patch("user", Kind::EtcdCluster, id, Patch::Merge(change))
        .expect("ok");
    assert_eq!(changed.get("status"), None);
    assert_eq!(
        object::number(&changed, &["metadata", "generation"]),
        Some(2)
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = server
        .patch("user", Kind::EtcdCluster, id, Patch::Merge(label))
        .expect("ok");
    assert_eq!(
        object::number(&labelled, &["metadata", "generation"]),
        Some(2)
    );
}

#[test]
fn apply_removes_only_own_fields() {
    let mut server = server();
    let first = apply(&mut server, "quorate", set("a:1"), true).expect("made");
    let same = apply(&mut server, "quorate", set("a:1"), true).expect("the same");
    assert_eq!(object::revision(&first), object::revision(&same));
    assert_eq!(object::number(&same, &["metadata", "generation"]), Some(1));
    let container = ["spec", "template", "spec", "containers"];
    let of = |set: &Value| object::items(set, &container)[0].clone();
    assert_eq!(of(&same)["terminationMessagePath"], "/dev/termination-log");
    // Somebody else adds a variable of their own and an annotation.
    let theirs = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "demo-1", "namespace": "prod", "annotations": {"n": "1"}},
        "spec": {"template": {"spec": {"containers": [{"name": "member",
            "env": [{"name": "B", "value": "2"}]}]}}}});
    apply(&mut server, "other", theirs, false).expect("added");
    let mut fewer = set("a:2");
    fewer["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    fewer["spec"]["template"]["spec"]["containers"][0]
        .as_object_mut()
        .expect("a map")
        .remove("ports");
    let changed = apply(&mut server, "quorate", fewer, true).expect("changed");
    let member = of(&changed);
    assert_eq!(member["image"], "a:2");
    assert_eq!(member["env"], json!([{"name": "B", "value": "2"}]));
    assert_eq!(member.get("ports"), None);
    assert_eq!(changed["metadata"]["annotations"], json!({"n": "1"}));
    assert_eq!(
        object::number(&changed, &["metadata", "generation"]),
        Some(3)
    );
}

#[test]
fn foreign_field_conflicts_without_force() {
    let mut server = server();
    apply(&mut server, "quorate", set("a:1"), true).expect("made");
    let image = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "demo-1", "namespace": "prod"},
        "spec": {"template": {"spec": {"containers": [{"name": "member", "image": "b:1"}]}}}});
    let refused = apply(&mut server, "other", image.clone(), false).expect_err("a conflict");
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let cause = &refused.details["causes"][0];
    assert_eq!(cause["message"], "conflict with \"quorate\"");
    apply(&mut server, "other", image, true).expect("forced");
    // The first manager takes it back by force, and the other one's list item stays its own.
    let back = apply(&mut server, "quorate", set("a:1"), true).expect("taken back");
    let containers = object::items(&back, &["spec", "template", "spec", "containers"]);
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0]["image"], "a:1");
    let other = server.managed_fields(Kind::StatefulSet, "prod", "demo-1");
    assert!(
        !other
            .to_string()
            .contains("f:image\":{}},\"manager\":\"other"),
        "{other}"
    );
}

#[test]
fn apply_checks_the_uid_but_not_of_a_status() {
    let mut server = server();
    let mut body = set("a:1");
    body["metadata"]["uid"] = json!("gone");
    assert_eq!(
        code(apply(&mut server, "quorate", body.clone(), true)),
        (409, "Conflict".into())
    );
    apply(&mut server, "quorate", set("a:1"), true).expect("made");
    assert_eq!(
        code(apply(&mut server, "quorate", body, true)),
        (422, "Invalid".into())
    );
}

#[test]
fn immutable_fields_are_refused() {
    let mut server = server();
    let made = apply(&mut server, "quorate", set("a:1"), true).expect("made");
    let mut other = (*made).clone();
    other["spec"]["serviceName"] = json!("else");
    assert_eq!(
        code(server.replace("me", Kind::StatefulSet, other)),
        (422, "Invalid".into())
    );
    let mut identity_secret = secret("demo-identity");
    identity_secret["immutable"] = json!(true);
    server
        .create("me", Kind::Secret, identity_secret)
        .expect("made");
    let change = Patch::Merge(json!({"data": {"a": "Yg=="}}));
    let refused = server.patch("me", Kind::Secret, ("prod", "demo-identity"), change);
    assert_eq!(code(refused), (422, "Invalid".into()));
    let pvc = json!({"metadata": {"name": "c", "namespace": "prod"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}}});
    server
        .create("me", Kind::PersistentVolumeClaim, pvc)
        .expect("made");
    let id = ("prod", "c");
    server.edit("kube", Kind::PersistentVolumeClaim, id, |c| {
        c["status"]["phase"] = json!("Bound")
    });
    let size =
        |size: &str| Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    let grown = server.patch("me", Kind::PersistentVolumeClaim, id, size("9Gi"));
    assert_eq!(code(grown), (403, "Forbidden".into()));
    let shrunk = server.patch("me", Kind::PersistentVolumeClaim, id, size("7Gi"));
    assert_eq!(code(shrunk), (422, "Invalid".into()));
}

#[test]
fn pods_have_time_to_end() {
    let mut server = server();
    let pod = json!({"metadata": {"name": "p", "namespace": "prod"},
        "spec": {"terminationGracePeriodSeconds": 60,
            "containers": [{"name": "c", "image": "a:1"}]}});
    let id = ("prod", "p");
    let none = Delete::default();
    server.create("me", Kind::Pod, pod.clone()).expect("made");
    server
        .delete("me", Kind::Pod, id, &none)
        .expect("gone: it was nowhere");
    assert_eq!(server.get(Kind::Pod, "prod", "p"), None);
    server.create("me", Kind::Pod, pod).expect("made");
    server.edit("scheduler", Kind::Pod, id, |pod| {
        pod["spec"]["nodeName"] = json!("n1")
    });
    let marked = server.delete("me", Kind::Pod, id, &none).expect("marked");
    assert_eq!(
        object::number(&marked, &["metadata", "deletionGracePeriodSeconds"]),
        Some(60)
    );
    let ends = object::time_ms(&marked, &["metadata", "deletionTimestamp"]);
    assert_eq!(ends, Some(NOW_MS + 60_000));
    // A change of it does not end it before its time.
    server.edit("kubelet", Kind::Pod, id, |pod| {
        pod["status"]["phase"] = json!("Running")
    });
    assert!(server.get(Kind::Pod, "prod", "p").is_some());
    let now = Delete {
        grace_seconds: Some(0),
        ..Delete::default()
    };
    server.delete("kubelet", Kind::Pod, id, &now).expect("gone");
    assert_eq!(server.get(Kind::Pod, "prod", "p"), None);
}

#[tokio::test]
async fn a_real_client_talks_to_it() {
    let shared = SharedApiServer::new(server());
    let client = shared.client("operator-1", "prod");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "prod");
    assert!(secrets.get_opt("a").await.expect("an answer").is_none());
    let made: Secret = serde_json::from_value(secret("a")).expect("a Secret");
    let made = secrets
        .create(&PostParams::default(), &made)
        .await
        .expect("made");
    let error = secrets
        .create(&PostParams::default(), &secret_of("a"))
        .await;
    assert!(matches!(error, Err(kube::Error::Api(s)) if s.reason == "AlreadyExists"));
    let services: Api<Service> = Api::namespaced(client.clone(), "prod");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s",
        "labels": {"a": "b"}}, "spec": {"ports": [{"port": 1, "protocol": "TCP"}]}});
    let parameters = PatchParams::apply("quorate").force();
    let applied = services
        .patch("s", &parameters, &KubePatch::Apply(&service))
        .await;
    assert!(applied.expect("applied").uid().is_some());
    let listed = services
        .list(&ListParams::default().labels("a=b"))
        .await
        .expect("a list");
    assert_eq!(listed.items.len(), 1);
    let listed = services
        .list(&ListParams::default().labels("a=c"))
        .await
        .expect("a list");
    assert_eq!(listed.items.len(), 0);
    let pvcs: Api<PersistentVolumeClaim> = Api::namespaced(client, "prod");
    let error = pvcs.get("none").await;
    assert!(matches!(error, Err(kube::Error::Api(s)) if s.code == 404));
    let uid = made.uid().expect("a UID");
    let only = |uid: &str| DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    let error = secrets.delete("a", &only("other")).await;
    assert!(matches!(error, Err(kube::Error::Api(s)) if s.code == 409));
    assert!(
        secrets
            .delete("a", &only(&uid))
            .await
            .expect("deleted")
            .is_right()
    );
    assert!(shared.lock().not_modelled().is_empty());
}

fn secret_of(name: &str) -> Secret {
    serde_json::from_value(secret(name)).expect("a Secret")
}

#[tokio::test]
async fn hook_sees_every_request() {
    let shared = SharedApiServer::new(server());
    let secrets: Api<Secret> = Api::namespaced(shared.client("operator-1", "prod"), "prod");
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let (seen, verdicts) = (
        calls.clone(),
        [
            Verdict::Refuse(Refusal::unavailable("away")),
            Verdict::LoseReply,
            Verdict::CrashBefore,
            Verdict::CrashAfter,
            Verdict::Pass,
        ],
    );
    let mut verdicts = verdicts.into_iter();
    shared.intercept(move |call: &Call| {
        seen.lock().expect("unpoisoned").push(call.clone());
        verdicts.next().unwrap_or(Verdict::Pass)
    });
    let create = |name: &'static str| {
        let secrets = secrets.clone();
        async move {
            secrets
                .create(&PostParams::default(), &secret_of(name))
                .await
        }
    };
    let there = |name: &str| shared.lock().get(Kind::Secret, "prod", name).is_some();
    assert!(matches!(create("a").await, Err(kube::Error::Api(s)) if s.code == 503));
    assert!(!there("a"));
    assert!(matches!(create("b").await, Err(kube::Error::Service(_))));
    assert!(there("b"));
    for name in ["c", "d"] {
        let mut future = Box::pin(create(name));
        for _ in 0..20 {
            assert!(
                futures::poll!(future.as_mut()).is_pending(),
                "its caller is no more"
            );
            tokio::task::yield_now().await;
        }
    }
    assert!(!there("c") && there("d"));
    assert!(secrets.get("d").await.is_ok());
    let calls = calls.lock().expect("unpoisoned").clone();
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "d"]);
    let writes: Vec<Option<u64>> = calls.iter().map(|call| call.write).collect();
    assert_eq!(writes, [Some(1), Some(2), Some(3), Some(4), None]);
}

#[tokio::test]
async fn caches_follow_it_by_real_watches() {
    use futures::StreamExt;
    use kube::runtime::{WatchStreamExt, watcher};
    let shared = SharedApiServer::new(server());
    shared
        .lock()
        .create("me", Kind::Secret, secret("a"))
        .expect("made");
    let secrets: Api<Secret> = Api::all(shared.client("operator-1", "prod"));
    let events = watcher(secrets, watcher::Config::default()).touched_objects();
    let mut events = Box::pin(events);
    let mut next = async || {
        events
            .next()
            .await
            .expect("lasts")
            .expect("works")
            .name_any()
    };
    assert_eq!(next().await, "a");
    shared
        .lock()
        .create("me", Kind::Secret, secret("b"))
        .expect("made");
    assert_eq!(next().await, "b");
    let id = ("prod", "a");
    shared
        .lock()
        .delete("me", Kind::Secret, id, &Delete::default())
        .expect("gone");
    assert_eq!(next().await, "a");
}

#[test]
fn unmodelled_requests_are_refused_and_noted() {
    let mut server = server();
    let mut body = set("a:1");
    body["spec"]["template"]["spec"]["hostAliases"] = json!([{"ip": "1.1.1.1"}]);
    assert_eq!(
        code(apply(&mut server, "quorate", body, true)),
        (501, "NotModelled".into())
    );
    assert_eq!(server.not_modelled().len(), 1);
    assert!(server.not_modelled()[0].contains("hostAliases"));
}

fn cluster(spec: Value) -> Value {
    json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "prod"}, "spec": spec})
}

#[test]
fn a_cluster_is_kept_by_its_schema() {
    let mut server = server();
    for bad in [
        json!({"replicas": 10}),
        json!({"replicas": "3"}),
        json!({"storage": {"size": "1Ki"}}),
        json!({"service": {"type": "Else"}}),
        json!({"replicas": -1}),
        json!({"tls": {"peer": {"source": "Vault"}}}),
    ] {
        let refused = server.create("user", Kind::EtcdCluster, cluster(bad.clone()));
        assert_eq!(code(refused), (422, "Invalid".into()), "{bad}");
    }
    let made = cluster(json!({"unknown": 1, "storage": {"size": "8Gi"}}));
    let made = server
        .create("user", Kind::EtcdCluster, made)
        .expect("valid");
    assert_eq!(made["spec"]["replicas"], 3);
    assert_eq!(
        made["spec"]["storage"]["retention"]["whenDeleted"],
        "Retain"
    );
    assert_eq!(made["spec"].get("unknown"), None);
    assert!(made["metadata"]["uid"].is_string());
    // TLS is switched on, never off.
    for (change, fits) in [(json!({}), true), (json!(null), false)] {
        let patch = Patch::Merge(json!({"spec": {"tls": change}}));
        let changed = server.patch("user", Kind::EtcdCluster, ("prod", "demo"), patch);
        assert_eq!(changed.is_ok(), fits, "{changed:?}");
    }
    let tiny = json!({"spec": {"storage": {"size": "4Mi"}}});
    let id = ("prod", "demo");
    let refused = server.patch("user", Kind::EtcdCluster, id, Patch::Merge(tiny));
    assert_eq!(code(refused), (422, "Invalid".into()));
    let typed: crate::crd::EtcdCluster = serde_json::from_value((*made).clone()).expect("typed");
    assert_eq!(typed.spec.replicas, 3);
}

/// As in a real API server, the UID of a status is not compared.
#[tokio::test]
async fn status_of_another_uid_is_accepted() {
    let shared = SharedApiServer::new(server());
    shared
        .lock()
        .create("user", Kind::EtcdCluster, cluster(json!({})))
        .expect("made");
    let clusters: Api<crate::crd::EtcdCluster> =
        Api::namespaced(shared.client("operator-1", "prod"), "prod");
    let status = |status: Value| {
        let body = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "demo", "uid": "another"}, "status": status});
        let clusters = clusters.clone();
        async move {
            let parameters = PatchParams::apply("quorate").force();
            clusters
                .patch_status("demo", &parameters, &KubePatch::Apply(&body))
                .await
        }
    };
    let written = status(json!({"clusterID": "abc"})).await.expect("written");
    assert_eq!(
        written
            .status
            .and_then(|status| status.cluster_id)
            .as_deref(),
        Some("abc")
    );
    let stored = shared
        .lock()
        .get(Kind::EtcdCluster, "prod", "demo")
        .expect("there");
    assert_eq!(
        object::number(&stored, &["metadata", "generation"]),
        Some(1)
    );
    let error = status(json!({"unknown": 1}))
        .await
        .expect_err("not in the schema");
    assert!(matches!(error, kube::Error::Api(s) if s.code == 500));
}

/// What is taken out of a spec goes from what was applied: a service account once named stayed
/// for ever, because Kubernetes keeps it under the field's old name.
#[test]
fn unnamed_fields_are_removed() {
    let full = "
spec:
  image: registry.example/quorate:x
  resources: {requests: {cpu: 1}, limits: {memory: 2Gi}}
  service: {type: LoadBalancer, labels: {team: a}, annotations: {lb.example/internal: 'true'}}
  podTemplate:
    metadata: {labels: {team: a}, annotations: {note: b}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations: [{key: etcd, operator: Exists, effect: NoSchedule}]
      priorityClassName: high
      imagePullSecrets: [{name: pull}]
      serviceAccountName: plain
      terminationGracePeriodSeconds: 120
      topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}]
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {a: b}}}]}}
";
    let how = |one_per_node| crate::build::SetOptions {
        one_per_node,
        ..crate::build::SetOptions::default()
    };
    let objects = |spec: &str, one_per_node: bool| {
        let head = "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: demo, namespace: prod}\n";
        let mut cluster = crate::crd::parse(&format!("{head}{spec}")).expect("a resource");
        cluster.metadata.uid = Some("6f1c2d3e-aaaa-bbbb-cccc-0123456789ab".into());
        let cluster = crate::crd::validate(&cluster).expect("valid");
        let settings = crate::build::Settings {
            operator_namespace: None,
            image: crate::build::OwnImage::of("quorate".parse().expect("a reference")),
            user: Some(crate::build::USER),
        };
        let set = crate::build::stateful_set(&cluster, &settings, "demo-1", how(one_per_node));
        let service = crate::build::client_service(&cluster);
        [
            serde_json::to_value(set).expect("JSON"),
            serde_json::to_value(service).expect("JSON"),
        ]
    };
    let end = |specs: &[(&str, bool)]| -> Vec<Value> {
        let mut server = server();
        let mut last = Vec::new();
        for (spec, one_per_node) in specs {
            let applied = objects(spec, *one_per_node).into_iter();
            last = applied
                .map(|body| apply(&mut server, "quorate", body, true))
                .collect();
        }
        assert!(
            server.not_modelled().is_empty(),
            "{:?}",
            server.not_modelled()
        );
        let shown = last.into_iter().map(|object| {
            let mut object = (*object.expect("applied")).clone();
            for field in ["uid", "resourceVersion", "generation"] {
                object::take(&mut object, &["metadata", field]);
            }
            for field in ["clusterIP", "clusterIPs"] {
                object::take(&mut object, &["spec", field]);
            }
            object
        });
        shown.collect()
    };
    let plain = end(&[("spec: {}", false)]);
    assert_eq!(
        end(&[("spec: {}", false), (full, true), ("spec: {}", false)]),
        plain
    );
    assert_eq!(
        end(&[(full, false), ("spec: {}", true), ("spec: {}", false)]),
        plain
    );
    assert_eq!(
        end(&[("spec: {}", false), (full, true)]),
        end(&[(full, true)])
    );
}
