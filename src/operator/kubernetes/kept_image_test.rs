//! Which image members of another version than the operator's are made with.

use serde_json::json;

use super::*;
use crate::build::{self, OwnImage, SetOptions};
use crate::operator::testing::observation_at;

const DIGEST: &str = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn operator(reference: &str, version: &str) -> Settings {
    let mut image = OwnImage::of(reference.parse().expect("a reference"));
    image.version = version.to_owned();
    Settings {
        image,
        operator_namespace: None,
        user: Some(build::USER),
    }
}

fn cluster(version: &str) -> ValidatedCluster {
    let mut cluster = observation_at(0).observed.cluster.expect("a cluster");
    cluster.spec.version = version.to_owned();
    cluster
}

/// A set that an operator of 0.1.0 made, which was installed by a digest.
fn made_then(cluster: &ValidatedCluster) -> StatefulSet {
    let then = operator(&format!("registry.example/quorate{DIGEST}"), "0.1.0");
    build::stateful_set(cluster, &then, "demo-1", SetOptions::default())
}

fn kept(cluster: &ValidatedCluster, now: &Settings, set: StatefulSet) -> Option<String> {
    settings_of(cluster, now, || vec![Arc::new(set)]).image.kept
}

/// The operator was updated by digest. Members of a cluster that stays behind were made by a tag from then on, which the
/// mirror did not have.
#[test]
fn members_of_an_earlier_version_keep_their_digest() {
    let cluster = cluster("0.1.0");
    let now = operator("registry.example/quorate:main", "0.2.0");
    let image = format!("registry.example/quorate{DIGEST}");
    assert_eq!(kept(&cluster, &now, made_then(&cluster)), Some(image));
}

/// A change of anything but the version makes new sets, which were pulled by the tag again.
#[test]
fn image_is_kept_through_a_change_of_the_spec() {
    let mut cluster = cluster("0.1.0");
    let set = made_then(&cluster);
    cluster.spec.pod_template.spec.priority_class_name = Some("high".into());
    let now = operator("registry.example/quorate:main", "0.2.0");
    assert!(kept(&cluster, &now, set).is_some());
}

#[test]
fn nothing_else_is_kept() {
    let earlier = cluster("0.1.0");
    let now = operator("registry.example/quorate:main", "0.2.0");
    let set = made_then(&earlier);
    // A mirror that the operator does not use any more.
    let elsewhere = operator("other.example/quorate:main", "0.2.0");
    assert_eq!(kept(&earlier, &elsewhere, set.clone()), None);
    // A set of another cluster, of another version, and of the operator's own version.
    let mut stranger = set.clone();
    stranger.metadata.owner_references = None;
    assert_eq!(kept(&earlier, &now, stranger), None);
    assert_eq!(kept(&cluster("0.1.1"), &now, set), None);
    let own = cluster("0.2.0");
    assert_eq!(kept(&own, &now, made_then(&own)), None);
}

/// An operator that was updated by a tag that moves has the same reference as before, and it stands for another version.
#[test]
fn own_reference_is_not_kept_for_another_version() {
    let cluster = cluster("0.1.0");
    let then = operator("registry.example/quorate:main", "0.1.0");
    let set = build::stateful_set(&cluster, &then, "demo-1", SetOptions::default());
    let now = operator("registry.example/quorate:main", "0.2.0");
    assert_eq!(kept(&cluster, &now, set), None);
}

/// Of several images that of most sets counts, and of as many the newest set's.
#[test]
fn image_of_most_sets_counts() {
    let cluster = cluster("0.1.0");
    let now = operator("registry.example/quorate:main", "0.2.0");
    let made = |member: &str, tag: &str, at: &str| {
        let then = operator(&format!("registry.example/quorate:{tag}"), "0.1.0");
        let mut set = build::stateful_set(&cluster, &then, member, SetOptions::default());
        set.metadata.creation_timestamp = serde_json::from_value(json!(at)).expect("a time");
        Arc::new(set)
    };
    let new = made("demo-2", "new", "2026-11-29T12:00:00Z");
    let old = made("demo-1", "old", "2026-11-28T12:00:00Z");
    let older = made("demo-3", "old", "2026-11-27T12:00:00Z");
    let kept = |sets| settings_of(&cluster, &now, || sets).image.kept;
    let name = |tag| Some(format!("registry.example/quorate:{tag}"));
    assert_eq!(kept(vec![new.clone(), old.clone()]), name("new"));
    assert_eq!(kept(vec![new, old, older]), name("old"));
}

/// A set whose edit is undone keeps its image. One that slept while the operator moved woke with an image that was gone.
#[test]
fn sets_keep_their_image_while_they_run() {
    let cluster = cluster("0.1.0");
    let then = operator("registry.example/quorate:old", "0.1.0");
    let made = |hibernated| {
        let how = SetOptions {
            hibernated,
            ..SetOptions::default()
        };
        build::stateful_set(&cluster, &then, "demo-1", how)
    };
    let now = operator("registry.example/quorate:new", "0.1.0");
    let kept = |set| settings_of_set(&cluster, &now, &set).map(|it| it.image.reference);
    assert_eq!(kept(made(false)), Some(then.image.reference.clone()));
    assert_eq!(kept(made(true)), None);
    let moved = operator("other.example/quorate:new", "0.1.0");
    assert!(settings_of_set(&cluster, &moved, &made(false)).is_none());
}
