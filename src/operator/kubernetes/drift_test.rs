//! What counts as an edit.

use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

use super::*;
use crate::build::OwnImage;
use crate::operator::testing::observation_at;

fn cluster() -> ValidatedCluster {
    observation_at(0).observed.cluster.expect("a cluster")
}

fn own(reference: &str) -> OwnImage {
    OwnImage::of(reference.parse().expect("a reference"))
}

fn settings() -> Settings {
    Settings {
        image: own("registry.example/quorate"),
        operator_namespace: Some("quorate-system".into()),
        user: Some(build::USER),
    }
}

/// The object as the API server has it after this change.
fn edited<K: Serialize + serde::de::DeserializeOwned>(object: &K, change: Value) -> K {
    fn merge(into: &mut Value, change: Value) {
        match change {
            Value::Object(change) if into.is_object() => {
                for (key, change) in change {
                    merge(&mut into[key], change);
                }
            }
            change => *into = change,
        }
    }
    let mut value = serde_json::to_value(object).expect("JSON");
    merge(&mut value, change);
    serde_json::from_value(value).expect("an object")
}

fn fields<K: Resource<DynamicType = ()> + Serialize>(made: &K, live: &K) -> Vec<String> {
    differ(made, live).into_iter().collect()
}

/// `maxUnavailable: 3`, set by hand, stayed forever: the PDB's hash was still that of its inputs, and only that was
/// compared.
#[test]
fn only_edits_of_rendered_fields_are_detected() {
    let cluster = cluster();
    let pdb = build::pdb_without_evictions(&cluster);
    assert_eq!(fields(&pdb, &pdb), Vec::<String>::new());
    let loose = edited(&pdb, json!({"spec": {"maxUnavailable": 3}}));
    assert_eq!(fields(&pdb, &loose), ["spec.maxUnavailable"]);
    let narrow = json!({"spec": {"selector": {"matchLabels": {"one": "more"}}}});
    assert_eq!(
        fields(&pdb, &edited(&pdb, narrow)),
        ["spec.selector.matchLabels"]
    );
    let theirs = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
        "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    assert!(fields(&pdb, &edited(&pdb, theirs)).is_empty());

    let service = build::client_service(&cluster);
    let stored = json!({"spec": {"clusterIP": "10.0.0.1", "sessionAffinity": "None"}});
    assert!(fields(&service, &edited::<Service>(&service, stored)).is_empty());
    let other = json!({"spec": {"selector": {"app": "mine"}}});
    assert_eq!(
        fields(&service, &edited(&service, other)),
        ["spec.selector"]
    );
}

#[test]
fn a_set_is_compared_with_what_it_was_made_as() {
    let (cluster, settings) = (cluster(), settings());
    let how = SetOptions {
        one_per_node: true,
        ..SetOptions::default()
    };
    let set = build::stateful_set(&cluster, &settings, "demo-1", how);
    let again = |set: &StatefulSet| set_as_made(&cluster, &settings, set);
    assert_eq!(again(&set).as_ref(), Some(&set), "whatever was seen then");
    for change in [
        json!({"replicas": 2}),
        json!({"updateStrategy": {"type": "RollingUpdate"}}),
        json!({"template": {"spec": {"serviceAccountName": "mine"}}}),
        json!({"template": {"spec": {"containers": [{"name": "member", "image": "x"}]}}}),
    ] {
        let live = edited(&set, json!({"spec": change}));
        let made = again(&live).expect("as it was made");
        assert!(!fields(&made, &live).is_empty(), "{change}");
    }
    let more = json!({"spec": {"minReadySeconds": 0, "template": {"spec": {
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}}}});
    assert!(fields(&set, &edited(&set, more)).is_empty());
    // Another user for members, or another release: that is no edit.
    let other = Settings {
        user: None,
        ..settings.clone()
    };
    assert_eq!(set_as_made(&cluster, &other, &set), None);
    let newer = json!({"metadata": {"annotations": {"quorate.dev/builder": "99"}},
        "spec": {"replicas": 2}});
    assert!(fields(&set, &edited(&set, newer)).is_empty());
}

/// After the operator was updated to another image, edits of the sets that it had made before were not seen until each
/// member's next roll: none of the renderings that were compared had the image of that time.
#[test]
fn edits_are_seen_whatever_image_the_operator_has() {
    let (cluster, then) = (cluster(), settings());
    let set = build::stateful_set(&cluster, &then, "demo-1", SetOptions::default());
    let mut moved = settings();
    moved.image = own("elsewhere/quorate:main");
    let mut secrets = moved.clone();
    secrets.image.pull_secrets = vec!["mirror".into()];
    for now in [moved, secrets] {
        let again = |set: &StatefulSet| set_as_made(&cluster, &now, set);
        assert_eq!(again(&set).as_ref(), Some(&set), "that is no edit");
        let live = edited(&set, json!({"spec": {"replicas": 2}}));
        let made = again(&live).expect("as it was made");
        assert_eq!(fields(&made, &live), ["spec.replicas"]);
        // Undone, it has the image that it had.
        let as_then = settings_of_rendering(&cluster, &now, &live).expect("the settings");
        let undone = build::stateful_set(&cluster, &as_then, "demo-1", SetOptions::default());
        assert_eq!(undone, set);
        let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "member", "image": "x"}]}}}});
        let live = edited(&set, image);
        let made = again(&live).expect("the image is recorded beside it");
        assert!(!fields(&made, &live).is_empty());
    }
}

/// A webhook that changes every applied object would have been fought forever.
#[test]
fn mutated_fields_are_kept_without_a_fight() {
    let time = Arc::new(AtomicU64::new(1_000));
    let (clock, known) = (Clock::simulated(time.clone()), Known::default());
    let pdb = build::pdb_without_evictions(&cluster());
    let version = |number: u32, change: Value| -> PodDisruptionBudget {
        let mut live = edited(&pdb, change);
        live.metadata.resource_version = Some(number.to_string());
        live
    };
    let is_edited = |live: &PodDisruptionBudget| known.is_edited(live, "s", || Some(pdb.clone()));
    let mutated = json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}}});
    assert!(is_edited(&version(1, mutated.clone())));
    known.made(&pdb, &version(2, mutated.clone()), &clock);
    time.fetch_add(10_000, Ordering::SeqCst);
    assert!(!is_edited(&version(2, mutated)), "it would come back");
    let edit = json!({"spec": {"maxUnavailable": 1}});
    assert!(is_edited(&version(3, edit.clone())));
    known.made(&pdb, &version(4, json!({})), &clock);
    assert!(
        !is_edited(&version(5, edit.clone())),
        "a moment ago it was mended"
    );
    time.fetch_add(10_000, Ordering::SeqCst);
    assert!(is_edited(&version(5, edit)));
}

/// An edit that was looked at within two seconds of an own write counted as none. Whether such a write was too recent was asked
/// again after the members had answered, and by then it was not: the cluster was calm, and the edit stayed for five minutes.
#[test]
fn edits_that_were_passed_over_are_looked_at_again() {
    let time = Arc::new(AtomicU64::new(1_000));
    let (clock, known) = (Clock::simulated(time.clone()), Known::default());
    let pdb = build::pdb_without_evictions(&cluster());
    known.made(&pdb, &pdb, &clock);
    let mut live = edited(&pdb, json!({"spec": {"maxUnavailable": 1}}));
    live.metadata.resource_version = Some("2".to_owned());
    let is_edited = || known.is_edited(&live, "s", || Some(pdb.clone()));
    time.fetch_add(1_990, Ordering::SeqCst);
    let began = clock.now();
    assert!(!is_edited() && known.passed_over(&began));
    time.fetch_add(20, Ordering::SeqCst);
    assert!(known.passed_over(&began), "the members have answered");
    let began = clock.now();
    assert!(is_edited() && !known.passed_over(&began));
    time.fetch_add(10_000, Ordering::SeqCst);
    assert!(!known.passed_over(&began));
}

#[test]
fn quantities_are_compared_by_what_they_mean() {
    let same = |one: &str, other: &str| same_quantity(&json!(one), &json!(other));
    assert!(same("1024Mi", "1Gi") && same("0.5", "500m") && same("1000m", "1"));
    assert!(!same("500m", "500") && !same("1Gi", "1G") && !same("a", "b"));
}

/// What release 0.1.0 made on a real Kubernetes, as that kept it.
fn kept<K: serde::de::DeserializeOwned>(kind: &str) -> Vec<K> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/releases/0.1.0/objects"
    );
    let text = std::fs::read_to_string(format!("{path}/{kind}.json")).expect("kept");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let items = list["items"].as_array().expect("a list").iter();
    items
        .map(|item| serde_json::from_value(item.clone()).expect("an object"))
        .collect()
}

fn kept_cluster() -> ValidatedCluster {
    let resources: Vec<crate::crd::EtcdCluster> = kept("etcdclusters");
    crate::crd::validate(&resources[0]).expect("admitted")
}

fn kept_service(cluster: &ValidatedCluster, live: &Service) -> Service {
    let name = live.name_any();
    let rendered = match crate::crd::slot_number(&cluster.name, &name) {
        Some(slot) => {
            let member = build::slot_member(live).expect("a slot has a member");
            Some(build::slot_service(cluster, slot, &member))
        }
        None => build::service(cluster, &name),
    };
    rendered.expect("one of ours")
}

/// The object as if this builder had made it.
fn of_this_builder<K: Serialize + serde::de::DeserializeOwned>(live: &K) -> K {
    let note =
        json!({"metadata": {"annotations": {"quorate.dev/builder": build::BUILDER.to_string()}}});
    let live: Value = edited(&serde_json::to_value(live).expect("JSON"), note.clone());
    let template = live["spec"]["template"].is_object();
    let change = match template {
        true => json!({"spec": {"template": note}}),
        false => json!({}),
    };
    serde_json::from_value(edited(&live, change)).expect("an object")
}

/// Objects as a real API server of Kubernetes keeps them, with all that it and its controllers fill in:
/// none of that is an edit, so that nothing is written again when the operator is upgraded.
///
/// For a while the half about StatefulSets compared nothing: this builder had got another number, and objects of
/// another builder were skipped entirely. So each object gets this builder's number here, and intentional additions of
/// the builder are listed.
#[test]
fn kubernetes_defaults_are_no_edit() {
    let cluster = kept_cluster();
    let services: Vec<Service> = kept("services");
    assert_eq!(services.len(), 5);
    for live in &services {
        let (rendered, name) = (kept_service(&cluster, live), live.name_any());
        let none = Vec::<String>::new();
        assert_eq!(fields(&rendered, &of_this_builder(live)), none, "{name}");
        assert_eq!(fields(&rendered, live), none, "{name} of the first builder");
    }
    let pdbs: Vec<PodDisruptionBudget> = kept("poddisruptionbudgets");
    assert_eq!(pdbs.len(), 1);
    let pdb = build::pdb_without_evictions(&cluster);
    assert!(fields(&pdb, &of_this_builder(&pdbs[0])).is_empty());
    assert!(fields(&pdb, &pdbs[0]).is_empty());
    let sets: Vec<StatefulSet> = kept("statefulsets");
    assert_eq!(sets.len(), 3);
    for live in &sets {
        let made = build::stateful_set(&cluster, &settings(), &live.name_any(), AS_KEPT);
        let differ = fields(&made, &of_this_builder(live));
        assert_eq!(differ, ADDED, "what this builder adds, and nothing else");
    }
}

/// How the sets of the kept cluster were made: on volumes that follow their pods, with TLS from the
/// beginning.
const AS_KEPT: SetOptions = SetOptions {
    one_per_node: false,
    hibernated: false,
    plaintext_peers: false,
};
/// What this builder writes into a set, and the first one did not.
const ADDED: [&str; 3] = [
    "metadata.annotations.quorate.dev/rendered",
    "spec.template.metadata.annotations.quorate.dev/restart-inputs",
    "spec.template.spec.containers[member].resources.requests",
];

/// Objects of release 0.1.0 were compared with nothing until they were applied again, which for a StatefulSet is its
/// member's next roll: an edited PDB, a Service with another selector and a StatefulSet of two pods stayed as they were
/// through the upgrade and after it.
#[test]
fn edits_of_older_releases_objects_are_detected() {
    let cluster = kept_cluster();
    let pdbs: Vec<PodDisruptionBudget> = kept("poddisruptionbudgets");
    let loose = edited(&pdbs[0], json!({"spec": {"maxUnavailable": 3}}));
    assert_eq!(
        fields(&build::pdb_without_evictions(&cluster), &loose),
        ["spec.maxUnavailable"]
    );
    for live in kept::<Service>("services") {
        let rendered = kept_service(&cluster, &live);
        let other = edited(&live, json!({"spec": {"selector": {"app": "mine"}}}));
        assert_eq!(fields(&rendered, &other), ["spec.selector"]);
    }
    let again = |set: &StatefulSet| set_as_made(&cluster, &settings(), set);
    for live in kept::<StatefulSet>("statefulsets") {
        let name = live.name_any();
        let first = build::stateful_set_by(1, &cluster, &settings(), &name, AS_KEPT);
        assert_eq!(again(&live), first, "as the first builder made it");
        let unedited = again(&live).map(|made| fields(&made, &live));
        assert_eq!(unedited, Some(Vec::new()), "{name}");
        for (change, seen) in [
            (json!({"replicas": 2}), "spec.replicas"),
            (
                json!({"updateStrategy": {"type": "RollingUpdate"}}),
                "spec.updateStrategy.type",
            ),
            (
                json!({"template": {"spec": {"serviceAccountName": "mine"}}}),
                "spec.template.spec.serviceAccountName",
            ),
        ] {
            let live = edited(&live, json!({ "spec": change }));
            let made = again(&live).expect("of the same inputs");
            assert_eq!(fields(&made, &live), [seen]);
        }
        // One that the next roll changes is left alone, and so is one of a newer release.
        let mut other = cluster.clone();
        other.spec.version = "0.2.0".into();
        assert_eq!(set_as_made(&other, &settings(), &live), None);
        let newer = json!({"metadata": {"annotations": {"quorate.dev/builder": "99"}}});
        assert_eq!(again(&edited(&live, newer)), None);
    }
}

/// The repository of an image that the resource does not name is the operator's setting, and may have
/// been another one at the time of an older release: nothing may be written for that.
#[test]
fn another_tag_is_an_edit() {
    let mut cluster = kept_cluster();
    cluster.spec.image = None;
    let elsewhere = Settings {
        image: own("elsewhere/quorate"),
        ..settings()
    };
    let then = build::stateful_set_by(1, &cluster, &elsewhere, "demo-1", AS_KEPT).expect("known");
    let differ = |live: &StatefulSet| {
        let made = set_as_made(&cluster, &settings(), live).expect("of the same inputs");
        fields(&made, live)
    };
    assert!(differ(&then).is_empty());
    let image = |image: &str| {
        let mut live = then.clone();
        let pod = live
            .spec
            .as_mut()
            .and_then(|set| set.template.spec.as_mut());
        pod.expect("a template").containers[0].image = Some(image.into());
        differ(&live)
    };
    let seen = ["spec.template.spec.containers[member].image"];
    assert_eq!(image("elsewhere/quorate:0.0.9"), seen);
}

/// Removing the annotation with the rendering of a StatefulSet hid every other edit of it.
#[test]
fn set_without_its_annotation_counts_as_edited() {
    let (cluster, settings) = (cluster(), settings());
    let set = build::stateful_set(&cluster, &settings, "demo-1", SetOptions::default());
    let mut live = edited(&set, json!({"spec": {"replicas": 2}}));
    live.annotations_mut().remove(ANNOTATION_RENDERED);
    let made = set_as_made(&cluster, &settings, &live).expect("of the same inputs");
    let seen = ["metadata.annotations.quorate.dev/rendered", "spec.replicas"];
    assert_eq!(fields(&made, &live), seen);
}
