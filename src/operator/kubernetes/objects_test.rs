//! Writes and deletions, against the simulated API server.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;

use super::*;
use crate::crd::{EtcdCluster, EtcdClusterStatus};
use crate::opsim::api::{ApiServer, Delete, Kind, SharedApiServer};

fn service(controller: Option<&str>, label: Option<&str>) -> Service {
    let owner_references = controller.map(|uid| {
        vec![OwnerReference {
            api_version: "quorate.dev/v1alpha1".into(),
            kind: "EtcdCluster".into(),
            name: "demo".into(),
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
    });
    let labels = label.map(|value| [("life".to_owned(), value.to_owned())].into());
    let name = Some("demo-client".into());
    Service {
        metadata: ObjectMeta {
            name,
            owner_references,
            labels,
            ..ObjectMeta::default()
        },
        ..Service::default()
    }
}

#[test]
fn foreign_objects_are_never_written() {
    assert_eq!(
        check(&service(Some("u1"), None), Owned::Controller("u1")),
        Ok(())
    );
    let error = check(&service(Some("u2"), None), Owned::Controller("u1"));
    let text = error.expect_err("another owner").to_string();
    assert!(
        text.contains("Service demo-client belongs to EtcdCluster demo (UID u2)"),
        "{text}"
    );
    assert!(matches!(
        check(&service(None, None), Owned::Controller("u1")),
        Err(Failure::NameConflict { .. })
    ));
    assert_eq!(
        check(&service(None, Some("u1")), Owned::Label("life", "u1")),
        Ok(())
    );
    assert!(check(&service(None, Some("u2")), Owned::Label("life", "u1")).is_err());
}

#[test]
fn terminating_objects_are_waited_for() {
    let mut found = service(Some("u1"), None);
    found.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    let kind = check(&found, Owned::Controller("u1"));
    assert!(matches!(kind, Err(Failure::Terminating { .. })), "{kind:?}");
}

#[test]
fn refusals_differ_from_retries() {
    let api = |code| {
        let status = Status {
            code,
            message: "why".into(),
            ..Status::default()
        };
        failure("apply", "demo", &kube::Error::Api(Box::new(status)))
    };
    assert!(matches!(api(422), Failure::Refused(text) if text == "cannot apply demo: why"));
    assert!(matches!(api(403), Failure::Refused(_)));
    assert!(matches!(api(409), Failure::Changed(_)));
    assert!(matches!(api(500), Failure::Retry(_)));
    assert!(matches!(api(429), Failure::Retry(_)));
}

/// A resource that was deleted and created again between an observation and the report got the status of its earlier
/// incarnation, with that one's cluster ID.
#[tokio::test]
async fn status_is_never_written_to_another_uid() {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let client = shared.client("operator-1", "prod");
    let made = || {
        let resource = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "demo", "namespace": "prod"}, "spec": {}});
        let made = shared.lock().create("user", Kind::EtcdCluster, resource);
        made.expect("valid")["metadata"]["uid"]
            .as_str()
            .expect("a UID")
            .to_owned()
    };
    let stored = || {
        let found = shared.lock().get(Kind::EtcdCluster, "prod", "demo");
        found.expect("there")["status"]["clusterID"].clone()
    };
    let status = EtcdClusterStatus {
        cluster_id: Some("abc".into()),
        ..EtcdClusterStatus::default()
    };
    let (id, none) = (("prod", "demo"), Delete::default());
    let first = made();
    assert_eq!(
        apply_status::<EtcdCluster>(&client, id, &first, &status).await,
        Ok(true)
    );
    assert_eq!(stored(), "abc");
    let gone = shared.lock().delete("user", Kind::EtcdCluster, id, &none);
    gone.expect("deleted");
    assert_eq!(
        apply_status::<EtcdCluster>(&client, id, &first, &status).await,
        Ok(false)
    );
    made();
    assert_eq!(
        apply_status::<EtcdCluster>(&client, id, &first, &status).await,
        Ok(false)
    );
    assert!(stored().is_null(), "{}", stored());
}

/// That another object now has a name was reported as a refusal, which only a change of the specification would end.
#[tokio::test]
async fn another_uid_is_a_change_not_a_refusal() {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let service = json!({"metadata": {"name": "demo-client", "namespace": "prod"},
        "spec": {"ports": [{"port": 1}]}});
    let made = shared.lock().create("user", Kind::Service, service);
    made.expect("valid");
    let api: Api<Service> = Api::namespaced(shared.client("operator-1", "prod"), "prod");
    let body = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "demo-client", "uid": "another"}});
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let error = api
        .patch("demo-client", &parameters, &patch)
        .await
        .expect_err("another");
    let changed = failure("apply", "demo-client", &error);
    assert!(matches!(changed, Failure::Changed(_)), "{changed:?}");
}

fn pdb(min_available: Option<i32>) -> PodDisruptionBudget {
    let number = |number: i32| Some(IntOrString::Int(number));
    let spec = PodDisruptionBudgetSpec {
        min_available: min_available.and_then(number),
        max_unavailable: if min_available.is_none() {
            number(0)
        } else {
            None
        },
        ..PodDisruptionBudgetSpec::default()
    };
    let mut pdb = PodDisruptionBudget {
        spec: Some(spec),
        ..PodDisruptionBudget::default()
    };
    pdb.metadata.name = Some("demo".into());
    pdb.metadata.owner_references = service(Some("u1"), None).metadata.owner_references;
    pdb
}

/// Switching between `Gate` and a number is one write each, and a number that was decided on an earlier state is not
/// written over the current one.
#[tokio::test]
async fn pdb_is_written_only_over_the_observed_one() {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let client = shared.client("operator-1", "prod");
    let ours = Owned::Controller("u1");
    let stored = || {
        let found = shared.lock().get(Kind::PodDisruptionBudget, "prod", "demo");
        let spec = found.expect("there")["spec"].clone();
        (
            spec["minAvailable"].as_i64(),
            spec["maxUnavailable"].as_i64(),
        )
    };
    let made = apply(&client, "prod", &pdb(None), ours).await;
    made.expect("made");
    assert_eq!(stored(), (None, Some(0)));
    let two = apply_where(&client, "prod", &pdb(Some(2)), ours, |_| None).await;
    two.expect("written");
    assert_eq!(stored(), (Some(2), None));
    let other = |_: &PodDisruptionBudget| Some("the stored number differs".to_owned());
    let three = apply_where(&client, "prod", &pdb(Some(3)), ours, other).await;
    assert!(matches!(three, Err(Failure::Changed(_))), "{three:?}");
    assert_eq!(stored(), (Some(2), None));
    let gate = apply(&client, "prod", &pdb(None), ours).await;
    gate.expect("written");
    assert_eq!(stored(), (None, Some(0)));
}

/// A PDB's refusal is temporary, an eviction never takes another pod with the name, and a missing pod is the wanted
/// result.
#[tokio::test]
async fn eviction_takes_only_the_pod_of_its_uid() {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let client = shared.client("operator-1", "prod");
    let pod = json!({"metadata": {"name": "demo-1-0", "namespace": "prod", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/quorate:1"}]}});
    let made = shared.lock().create("user", Kind::Pod, pod).expect("valid");
    let uid = made["metadata"]["uid"].as_str().expect("a UID").to_owned();
    shared
        .lock()
        .edit("kubelet", Kind::Pod, ("prod", "demo-1-0"), |pod| {
            pod["status"] = json!({"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]});
        });
    let gate = json!({"metadata": {"name": "demo", "namespace": "prod"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}}});
    let made = shared
        .lock()
        .create("user", Kind::PodDisruptionBudget, gate);
    made.expect("valid");
    let refused = evict(&client, "prod", "demo-1-0", &uid).await;
    assert!(
        matches!(&refused, Err(Failure::Retry(why)) if why.contains("disruption budget")),
        "{refused:?}"
    );
    let (id, none) = (("prod", "demo"), Delete::default());
    let gone = shared
        .lock()
        .delete("user", Kind::PodDisruptionBudget, id, &none);
    gone.expect("deleted");
    let another = evict(&client, "prod", "demo-1-0", "another").await;
    assert!(matches!(another, Err(Failure::Changed(_))), "{another:?}");
    let taken = evict(&client, "prod", "demo-1-0", &uid).await;
    assert_eq!(taken, Ok(Deleted::Now));
    let gone = evict(&client, "prod", "demo-9-0", &uid).await;
    assert_eq!(gone, Ok(Deleted::Already));
}

/// A PVC that a member had started to use since it was observed was deleted all the same: its UID is unchanged.
#[tokio::test]
async fn delete_needs_the_observed_version() {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let client = shared.client("operator-1", "prod");
    let secret = json!({"metadata": {"name": "demo-1-peer-tls", "namespace": "prod"}});
    let made = shared.lock().create("user", Kind::Secret, secret);
    let made = made.expect("valid");
    let text = |path: &str| made["metadata"][path].as_str().expect("a text").to_owned();
    let (uid, seen) = (text("uid"), text("resourceVersion"));
    let id = ("prod", "demo-1-peer-tls");
    shared.lock().edit("user", Kind::Secret, id, |secret| {
        secret["metadata"]["labels"] = json!({"kept": "yes"});
    });
    let delete = async |uid: &str, version: Option<&str>| {
        delete::<k8s_openapi::api::core::v1::Secret>(&client, id.0, id.1, (uid, version)).await
    };
    let late = delete(&uid, Some(&seen)).await;
    assert!(matches!(late, Err(Failure::Changed(_))), "{late:?}");
    let another = delete("another", None).await;
    assert_eq!(another, Ok(Deleted::Already), "another one of the name");
    let found = shared.lock().get(Kind::Secret, id.0, id.1);
    let now = found.expect("still there")["metadata"]["resourceVersion"].clone();
    let now = now.as_str().expect("a version");
    assert_eq!(delete(&uid, Some(now)).await, Ok(Deleted::Now));
    assert_eq!(delete(&uid, Some(now)).await, Ok(Deleted::Already));
}
