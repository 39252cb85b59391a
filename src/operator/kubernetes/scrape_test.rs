//! What a scrape finds in the caches, and what that costs with many clusters.

use std::time::Instant;

use kube::runtime::watcher::Event;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::super::pruned::Prune as _;
use super::*;

/// The PDB of a cluster, controlled by the resource with this UID, as a cache keeps it.
fn pdb(uid: &str, observed: i64) -> PodDisruptionBudget {
    let pdb = json!({
        "metadata": {"namespace": "tenants", "name": "demo", "generation": 2, "ownerReferences": [
            {"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "name": "demo", "uid": uid,
                "controller": true}]},
        "spec": {"minAvailable": 2},
        "status": {"observedGeneration": observed, "currentHealthy": 3, "desiredHealthy": 2,
            "disruptionsAllowed": 1, "expectedPods": 3},
    });
    let mut pdb: PodDisruptionBudget = serde_json::from_value(pdb).expect("a PDB");
    pdb.prune();
    pdb
}

/// A resource as a watch shows it.
fn resource(name: &str, spec: Value, status: Value) -> Resourceful {
    let resource = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": "tenants", "name": name, "uid": "u1", "generation": 1},
        "spec": spec, "status": status,
    });
    serde_json::from_value(resource).expect("a resource")
}

/// Anyone who may create a PDB of that name may also write its status.
#[test]
fn only_the_own_counted_pdb_is_believed() {
    let spec = json!({"replicas": 3, "disruption": {"policy": "Budget"}});
    let cluster = resource("demo", spec, json!({})).0.expect("readable");
    assert_eq!(allowed_by(&cluster, &pdb("u1", 2)), Some(1));
    let older = allowed_by(&cluster, &pdb("u1", 1));
    assert_eq!(older, None, "of an older number");
    let other = allowed_by(&cluster, &pdb("u0", 2));
    assert_eq!(other, None, "of another cluster");
}

/// A standby has full caches as well, and says nothing of clusters: whoever adds up replicas would count each twice.
#[test]
fn a_standby_has_no_metrics_of_clusters() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scraped(Acting::default())));
    assert_eq!(encoded(&registry), "# EOF\n");
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    text
}

#[cfg(feature = "simulators")]
#[test]
fn unreadable_clusters_are_counted() {
    let (mut filler, clusters) = Cache::filled();
    let good = resource("good", json!({"replicas": 3}), json!({}));
    let bad = resource("bad", json!({"replicas": "three"}), json!({}));
    assert!(bad.0.is_err());
    filler.apply(&mut Event::Apply(good));
    filler.apply(&mut Event::Apply(bad));
    let (all, unreadable) = of_all(&clusters, Timestamp::UNIX_EPOCH, |_| None);
    assert_eq!((all.len(), unreadable), (1, 1));
}

/// `cargo test --release --lib scrape -- --ignored --nocapture` prints what decision 78 gives as a scrape's cost.
#[cfg(feature = "simulators")]
#[test]
#[ignore = "a measurement"]
fn cost_of_ten_thousand_clusters() {
    #[derive(Debug)]
    struct Given(Vec<Figures>);
    impl Collector for Given {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            clusters::encode(&self.0, 0, &mut encoder)
        }
    }
    let (mut filler, cache) = Cache::filled();
    for number in 0..10_000 {
        let name = format!("cluster-{number}");
        filler.apply(&mut Event::Apply(at_rest(&name)));
    }
    let began = Instant::now();
    let (all, _) = of_all(&cache, Timestamp::UNIX_EPOCH, |_| Some(1));
    let read = began.elapsed();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Given(all)));
    let began = Instant::now();
    let text = encoded(&registry);
    let (written, lines) = (began.elapsed(), text.lines().count());
    println!(
        "10000 clusters: read in {read:?}, written in {written:?}: {lines} lines, {} bytes",
        text.len()
    );
    assert!(lines > 300_000);
}

/// A cluster of three with TLS and backups.
#[cfg(feature = "simulators")]
fn at_rest(name: &str) -> Resourceful {
    use crate::crd::ConditionType;
    let condition = |type_: ConditionType| {
        json!({"type": type_.as_str(), "status": "True", "reason": "AllVotersReady", "observedGeneration": 1,
            "message": "3 of 3 wanted voters are ready", "lastTransitionTime": "2026-03-01T00:00:00Z"})
    };
    let members = (1..=3).map(|number| {
        json!({"name": format!("{name}-{number}"), "id": "8e9e05c52164694d", "role": "Voter", "leader": number == 1,
            "health": "Healthy", "version": "0.1.0", "podName": format!("{name}-{number}-0"), "updated": true,
            "nodeName": format!("node-{number}"), "volumeClaimName": format!("data-{name}-{number}-14989")})
    });
    let secrets = (1..=9).map(|number| {
        json!({"secret": format!("{name}-{number}-client-tls"), "port": "client", "notAfter": "2026-06-01T00:00:00Z"})
    });
    let last = json!({"name": "nightly-1", "time": "2026-03-01T00:00:00Z", "revision": 7});
    let status = json!({
        "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "ready": "3/3",
        "updated": "3/3", "clusterID": "cdf818194e3a8c32", "version": "0.1.0", "leader": format!("{name}-1"),
        "summary": "3 voters, the first leads", "members": members.collect::<Value>(),
        "certificates": secrets.collect::<Value>(),
        "backup": {"lastSuccess": last, "lastVerified": last, "recoverySeconds": 12},
        "conditions": ConditionType::ALL.map(condition).to_vec(),
    });
    resource(name, json!({"replicas": 3}), status)
}
