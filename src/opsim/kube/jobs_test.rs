//! Jobs and their pods beside the rules of the real ones.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::opsim::api::{Delete, Kind, object};

/// A Kubernetes with one node and one Job, as the operator makes them.
fn kube() -> Kube {
    let mut kube = Kube::new(SharedApiServer::new(ApiServer::new(3, 1_700_000_000_000)));
    kube.add_node("n1", "a");
    let job = json!({"metadata": {"name": "save", "namespace": "prod"},
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": 600,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}]},
            "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "backup", "image": "a:1", "args": ["backup", "save"]}]}}}});
    let made = kube.api().lock().create("quorate", Kind::Job, job);
    assert!(made.is_ok(), "{made:?}");
    assert!(kube.settle());
    kube
}

fn job(kube: &Kube) -> Arc<Value> {
    let found = kube.api().lock().get(Kind::Job, "prod", "save");
    found.expect("a Job")
}

fn pods(kube: &Kube) -> Vec<Arc<Value>> {
    kube.api().lock().all(Kind::Pod).cloned().collect()
}

fn exits(kube: &mut Kube, code: i32) {
    let running = kube.running();
    let message = "said".to_owned();
    kube.report(&running[0].uid, &Process::Exited { code, message });
    assert!(kube.settle());
}

fn passes(kube: &mut Kube, ms: u64) {
    let now_ms = kube.api().lock().now_ms() + ms;
    kube.api().lock().set_now_ms(now_ms);
    assert!(kube.settle());
}

fn reason(kube: &Kube, type_: &str) -> Option<String> {
    let job = job(kube);
    let found = object::condition(&job, type_)?;
    (found["status"] == "True").then(|| object::text(found, &["reason"]).to_owned())
}

#[test]
fn a_job_is_complete_once_its_pod_has_succeeded() {
    let mut kube = kube();
    assert_eq!((pods(&kube).len(), kube.running().len()), (1, 1));
    exits(&mut kube, 0);
    assert_eq!(
        reason(&kube, "Complete").as_deref(),
        Some("CompletionsReached")
    );
    let pod = &pods(&kube)[0];
    assert_eq!(object::text(pod, &["status", "phase"]), "Succeeded");
    let statuses = object::items(pod, &["status", "containerStatuses"]);
    assert_eq!(statuses[0]["state"]["terminated"]["message"], "said");
    assert_eq!(object::finalizers(pod).count(), 0, "it is counted");
    assert!(kube.running().is_empty(), "it is not started again");
}

#[test]
fn a_job_fails_by_its_pods_exit_code() {
    for (code, why) in [(1, "BackoffLimitExceeded"), (2, "PodFailurePolicy")] {
        let mut kube = kube();
        exits(&mut kube, code);
        assert_eq!(reason(&kube, "Failed").as_deref(), Some(why));
        assert_eq!(pods(&kube).len(), 1, "none is made in its place");
    }
}

#[test]
fn an_evicted_pod_is_made_again_and_a_deleted_one_counts() {
    let mut kube = kube();
    let first = object::name(&pods(&kube)[0]).to_owned();
    let evicted = kube.api().lock().evict("me", ("prod", &first), &json!({}));
    assert!(evicted.is_ok() && kube.settle());
    assert_eq!(pods(&kube).len(), 1, "not before the first one has ended");
    passes(&mut kube, 1_000);
    let second = object::name(&pods(&kube)[0]).to_owned();
    assert!(second != first && reason(&kube, "Failed").is_none());
    let api = kube.api().clone();
    let deleted = api
        .lock()
        .delete("me", Kind::Pod, ("prod", &second), &Delete::default());
    assert!(deleted.is_ok() && kube.settle());
    passes(&mut kube, 1_000);
    assert_eq!(
        reason(&kube, "Failed").as_deref(),
        Some("BackoffLimitExceeded")
    );
    assert!(pods(&kube).is_empty());
}

#[test]
fn a_job_is_given_up_at_its_deadline() {
    let mut kube = kube();
    passes(&mut kube, 600_000);
    assert_eq!(reason(&kube, "Failed"), None, "its pod ends first");
    passes(&mut kube, 1_000);
    assert_eq!(reason(&kube, "Failed").as_deref(), Some("DeadlineExceeded"));
    assert!(kube.running().is_empty());
}

#[test]
fn pods_of_a_deleted_job_go_with_it() {
    let mut kube = kube();
    let api = kube.api().clone();
    let deleted = api
        .lock()
        .delete("me", Kind::Job, ("prod", "save"), &Delete::default());
    assert!(deleted.is_ok() && kube.settle());
    passes(&mut kube, 1_000);
    assert!(pods(&kube).is_empty() && kube.running().is_empty());
}
