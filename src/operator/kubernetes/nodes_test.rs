//! What a Node becomes as facts.

use serde_json::{Value, json};

use super::*;
use crate::operator::testing::observation_at;

fn cluster(change: impl FnOnce(&mut ValidatedCluster)) -> ValidatedCluster {
    let seen = observation_at(1).observed.cluster;
    let mut cluster = seen.expect("the test's cluster is valid");
    change(&mut cluster);
    cluster
}

fn of(metadata: Value, spec: Value) -> Node {
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let node = json!({"metadata": metadata, "spec": spec, "status": status});
    serde_json::from_value(node).expect("a valid object")
}

/// Why it counts as drained, and whether it is unschedulable.
fn facts_of(metadata: Value, spec: Value, cluster: &ValidatedCluster) -> (Option<String>, bool) {
    let facts = node(&of(metadata, spec), Some(cluster));
    (facts.drain_reason, facts.closed)
}

fn why(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn nodes_report_or_do_not() {
    let mut silent = of(
        json!({"name": "a"}),
        json!({"unschedulable": true, "taints": [
            {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}),
    );
    let status = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
    silent.status = serde_json::from_value(status).expect("a status");
    let facts = node(&silent, None);
    assert!(!facts.ready && facts.out_of_service && facts.closed);
    let well = node(&of(json!({}), json!({})), None);
    let wanted = NodeFacts {
        ready: true,
        ..NodeFacts::default()
    };
    assert_eq!(well, wanted);
}

#[test]
fn healthy_node_updates_trigger_nothing() {
    assert!(!concerns_members(&of(json!({}), json!({}))));
    let taint = json!({"taints": [{"key": "of-somebody", "effect": "NoSchedule"}]});
    for (metadata, spec) in [
        (json!({}), json!({"unschedulable": true})),
        (json!({}), taint),
        (
            json!({"deletionTimestamp": "2026-11-22T08:00:00Z"}),
            json!({}),
        ),
    ] {
        assert!(concerns_members(&of(metadata, spec)));
    }
    assert!(concerns_members(&Node::default()), "it does not report");
}

#[test]
fn nodes_that_count_as_drained() {
    let plain = cluster(|_| {});
    let taint = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
    assert_eq!(facts_of(json!({}), json!({}), &plain), (None, false));
    let cordoned = json!({"unschedulable": true});
    let found = facts_of(json!({}), cordoned.clone(), &plain);
    assert_eq!(found, (why("is cordoned"), true));
    for key in DRAIN_TAINTS {
        let text = format!("has the taint {key}");
        assert_eq!(facts_of(json!({}), taint(key), &plain), (Some(text), true));
    }
    // Any other taint closes a node, and does not take members from it.
    let own = "example.org/maintenance";
    assert_eq!(facts_of(json!({}), taint(own), &plain), (None, true));
    let named = cluster(|cluster| cluster.spec.disruption.drain_taints = vec![own.into()]);
    let found = facts_of(json!({}), taint(own), &named);
    assert_eq!(found, (Some(format!("has the taint {own}")), true));
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(
        facts_of(deleted, json!({}), &plain),
        (why("is being deleted"), false)
    );
    // The annotation ignores a cordon, but nothing else.
    let ignore = |value: &str| json!({"annotations": {"quorate.dev/ignore-cordon": value}});
    assert_eq!(facts_of(ignore(""), cordoned.clone(), &plain), (None, true));
    let found = facts_of(ignore("false"), cordoned, &plain);
    assert_eq!(found, (why("is cordoned"), true));
    let found = facts_of(ignore("true"), taint("karpenter.sh/disrupted"), &plain).0;
    assert_eq!(found, why("has the taint karpenter.sh/disrupted"));
}

#[test]
fn a_node_is_closed_to_pods_that_do_not_fit_it() {
    let tolerating = |toleration: Value| {
        cluster(|cluster| {
            let tolerations = serde_json::from_value(json!([toleration]));
            cluster.spec.pod_template.spec.tolerations = tolerations.expect("tolerations");
        })
    };
    let closed = |spec: Value, cluster: &ValidatedCluster| facts_of(json!({}), spec, cluster).1;
    let tainted = |effect: &str| json!({"taints": [{"key": "a", "value": "b", "effect": effect}]});
    let plain = cluster(|_| {});
    assert!(closed(tainted("NoExecute"), &plain));
    assert!(!closed(tainted("PreferNoSchedule"), &plain));
    for fitting in [
        json!({"operator": "Exists"}),
        json!({"key": "a", "operator": "Exists"}),
        json!({"key": "a", "value": "b"}),
        json!({"key": "a", "value": "b", "effect": "NoSchedule"}),
    ] {
        assert!(!closed(tainted("NoSchedule"), &tolerating(fitting)));
    }
    for other in [
        json!({"key": "a"}),
        json!({"key": "b", "operator": "Exists"}),
        json!({"key": "a", "value": "b", "effect": "NoExecute"}),
    ] {
        assert!(closed(tainted("NoSchedule"), &tolerating(other)));
    }
    // A pod that tolerates everything would come back to a cordoned node.
    let all = tolerating(json!({"operator": "Exists"}));
    assert!(!closed(json!({"unschedulable": true}), &all));

    let chosen = cluster(|cluster| {
        let selector = [("disk".to_owned(), "fast".to_owned())].into();
        cluster.spec.pod_template.spec.node_selector = selector;
    });
    let labels = |value: &str| json!({"labels": {"disk": value}});
    assert!(!facts_of(labels("fast"), json!({}), &chosen).1);
    assert!(facts_of(labels("slow"), json!({}), &chosen).1);
    // A cordoned one is closed, and selected all the same.
    let cordoned = of(labels("fast"), json!({"unschedulable": true}));
    let facts = node(&cordoned, Some(&chosen));
    assert!(facts.closed && !facts.unselected);
    assert!(node(&of(labels("slow"), json!({})), Some(&chosen)).unselected);
    let required = cluster(|cluster| {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}});
        let affinity = serde_json::from_value(affinity).expect("an affinity");
        cluster.spec.pod_template.spec.affinity = Some(affinity);
    });
    assert!(!facts_of(labels("slow"), json!({}), &required).1);
    assert!(facts_of(json!({}), json!({}), &required).1);
}
