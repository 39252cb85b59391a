//! The text of a scrape, against `tests/metrics/clusters.txt`; `UPDATE_GOLDEN=1` writes it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::crd::EtcdCluster;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics/clusters.txt");

/// Clusters as a scrape has them.
#[derive(Debug)]
struct Given(Vec<Figures>);

impl Collector for Given {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&self.0, 0, &mut encoder)
    }
}

fn text(all: Vec<Figures>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Given(all)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    text
}

/// A cluster of three with TLS, of which everything is known that a status can say.
fn busy() -> EtcdCluster {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "a \"message\"",
            "lastTransitionTime": "2026-03-01T00:00:00Z"})
    };
    let member = |name: &str, role: &str, health: &str| json!({"name": name, "role": role, "health": health});
    let mut learner = member("demo-4", "Learner", "Healthy");
    learner["lagEntries"] = json!(120);
    let cluster = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": "tenants", "name": "demo", "uid": "u1", "generation": 4},
        "spec": {"replicas": 3, "disruption": {"policy": "Budget"}},
        "status": {
            "observedGeneration": 3, "replicas": 3, "readyReplicas": 2, "updatedReplicas": 3,
            "clusterID": "c0ffee", "version": "0.1.0", "summary": "waiting for demo-4 to catch up",
            "members": [member("demo-1", "Voter", "Healthy"), member("demo-2", "Voter", "Healthy"),
                member("demo-3", "Voter", "Unhealthy"), learner],
            "step": {"action": "Promote", "member": "demo-4", "state": "Waiting", "reason": "CatchingUp",
                "waitingFor": "demo-4 to catch up", "startTime": "2026-03-01T00:00:10Z"},
            "failing": {"action": "apply set demo-4", "message": "no", "startTime": "2026-03-01T00:00:20Z"},
            "certificates": [{"secret": "demo-1-peer-tls", "port": "peer", "member": "demo-1",
                "notAfter": "2026-06-01T00:00:00Z"}],
            "backup": {"lastSuccess": {"name": "nightly-1", "time": "2026-03-01T00:00:00Z", "revision": 7},
                "lastVerified": {"name": "nightly-0", "time": "2026-02-28T00:00:00Z", "revision": 5},
                "recoverySeconds": 12,
                "archived": {"time": "2026-03-01T00:00:30Z", "raftIndex": 9, "url": "s3://a/b"}},
            "follow": {"phase": "Following", "lagRevisions": 5, "lagSeconds": 0},
            "conditions": [condition("Ready", "False", "VotersNotReady"),
                condition("Quorate", "True", "LeaderSeen"), condition("Foreign", "True", "NotOurs")],
        },
    });
    serde_json::from_value(cluster).expect("a cluster")
}

/// One that was created a moment ago.
fn new() -> EtcdCluster {
    let cluster = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": "tenants", "name": "new", "uid": "u2", "generation": 1},
        "spec": {"replicas": 1},
    });
    serde_json::from_value(cluster).expect("a cluster")
}

#[test]
fn a_scrape_is_the_golden_text() {
    let text = text(vec![
        Figures::of(&busy(), Some(1), Timestamp::UNIX_EPOCH),
        Figures::of(&new(), None, Timestamp::UNIX_EPOCH),
    ]);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &text).expect("written");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("tests/metrics/clusters.txt");
    assert_eq!(text, golden, "UPDATE_GOLDEN=1 writes it");
}

/// What the text has is what the table says: each metric, with its labels and its type, and no other.
#[test]
fn samples_are_those_of_the_table() {
    let text = text(vec![Figures::of(&busy(), Some(1), Timestamp::UNIX_EPOCH)]);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sampled: BTreeSet<&str> = lines
        .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
        .collect();
    let metrics = names::CLUSTERS.metrics.iter().copied();
    let table = metrics.clone().chain([&names::UNREADABLE]);
    let table: BTreeSet<&str> = table.map(|metric| metric.name).collect();
    assert_eq!(sampled, table);
    for metric in metrics {
        let begin = format!("{}{{", metric.name);
        let mut lines = text.lines();
        let line = lines
            .find(|line| line.starts_with(&begin))
            .expect("a sample");
        let labels = line.split("=\"").map(|part| {
            let from = |c: char| !(c.is_ascii_lowercase() || c == '_');
            part.rsplit(from).next().unwrap_or_default()
        });
        let labels: Vec<&str> = labels.take(metric.labels.len()).collect();
        assert_eq!(labels, metric.labels, "{line}");
        let count = line.matches("=\"").count();
        assert_eq!(count, metric.labels.len(), "{line}");
    }
}

/// Ten thousand clusters of three with TLS take some tens of MB a scrape, and not hundreds.
#[test]
fn a_cluster_at_rest_is_some_kilobytes() {
    let mut cluster = busy();
    let status = cluster.status.as_mut().expect("a status");
    (status.step, status.failing, status.follow) = (None, None, None);
    let mut conditions = Vec::new();
    for type_ in crate::crd::ConditionType::ALL {
        let mut condition = status.conditions[0].clone();
        condition.type_ = type_.as_str().to_owned();
        conditions.push(condition);
    }
    status.conditions = conditions;
    let certificate = status.certificates[0].clone();
    status.certificates = vec![certificate; 9];
    let one = text(vec![Figures::of(&cluster, Some(1), Timestamp::UNIX_EPOCH)]).len();
    let two = text(vec![
        Figures::of(&cluster, Some(1), Timestamp::UNIX_EPOCH);
        2
    ])
    .len();
    assert!(two - one < 8 << 10, "{} bytes", two - one);
    // Nothing of a cluster but its samples: the descriptions are there once.
    assert_eq!(text(Vec::new()).lines().count(), 4);
}
