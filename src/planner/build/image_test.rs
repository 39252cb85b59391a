//! Which image members and Jobs run, and which Secrets they name for it.

use super::*;
use crate::build::tests::{cluster, settings};
use crate::build::{BackupOwner, BackupWork, SetOptions, backup_job, stateful_set};
use crate::crd::backups::EtcdBackupStoreSpec;

const DIGEST: &str = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// An operator of 0.2.0 that was installed by this reference.
fn installed(reference: &str) -> Settings {
    Settings {
        image: OwnImage {
            reference: reference.parse().expect("a reference"),
            version: "0.2.0".to_owned(),
            pull_secrets: vec!["mirror".to_owned()],
            kept: None,
        },
        ..settings()
    }
}

/// The image of the members of a version.
fn run(reference: &str, version: &str) -> String {
    let mut cluster = cluster("spec: {}");
    cluster.spec.version = version.to_owned();
    cluster_image(&cluster, &installed(reference))
}

/// Members were pulled by the tag `0.1.0` whatever the operator's own tag was, which a mirror need not have.
#[test]
fn members_of_the_operators_version_run_its_image() {
    for own in [
        "registry.example:5000/quorate:main".to_owned(),
        "registry.example/quorate:2026.11.28".to_owned(),
        format!("registry.example/quorate{DIGEST}"),
        format!("[fd00::10]:5000/quorate:0.2.0{DIGEST}"),
    ] {
        assert_eq!(run(&own, "0.2.0"), own);
    }
}

/// A digest is that of one version. Taken for another one it would bring members of the operator's version, which the
/// rules about versions have not seen.
#[test]
fn another_version_has_its_own_tag() {
    let digested = format!("registry.example:5000/quorate:main{DIGEST}");
    for own in ["registry.example:5000/quorate:0.2.0", digested.as_str()] {
        assert_eq!(run(own, "0.1.0"), "registry.example:5000/quorate:0.1.0");
        assert_eq!(
            run(own, "0.2.0-rc.1"),
            "registry.example:5000/quorate:0.2.0-rc.1"
        );
    }
    // An operator that was told no more than the repository.
    assert_eq!(
        run("registry.example:5000/quorate", "0.2.0"),
        "registry.example:5000/quorate:0.2.0"
    );
}

/// A mirror that is used by digest need not have a tag for each version, so members of an earlier version could not be
/// replaced any more once the operator was updated.
#[test]
fn another_version_keeps_its_image() {
    let kept = format!("registry.example/quorate{DIGEST}");
    let mut settings = installed("registry.example/quorate:main");
    settings.image.kept = Some(kept.clone());
    let mut cluster = cluster("spec: {}");
    for (version, image) in [
        ("0.1.0", kept.as_str()),
        ("0.2.0", "registry.example/quorate:main"),
    ] {
        cluster.spec.version = version.to_owned();
        assert_eq!(cluster_image(&cluster, &settings), image);
    }
}

/// A set keeps the policy that Kubernetes filled in for its first image: with `latest` once, no member started without the
/// registry any more.
#[test]
fn pull_policy_is_that_of_the_image() {
    for (image, policy) in [
        ("registry.example/quorate:0.1.0", "IfNotPresent"),
        (&format!("quorate{DIGEST}"), "IfNotPresent"),
        (&format!("quorate:latest{DIGEST}"), "IfNotPresent"),
        ("registry.example:5000/quorate", "Always"),
        ("quorate:latest", "Always"),
    ] {
        assert_eq!(pull_policy(image), policy, "{image}");
    }
}

#[test]
fn named_image_is_taken_literally() {
    let image = format!("mirror.example/quorate:x{DIGEST}");
    let named = cluster(&format!("spec: {{image: '{image}'}}"));
    assert_eq!(cluster_image(&named, &installed("quorate:0.2.0")), image);
}

#[test]
fn secrets_follow_the_operators_image() {
    let names = |spec: &str| {
        let settings = installed("registry.example/quorate:main");
        let secrets = pull_secrets(&cluster(spec), &settings).unwrap_or_default();
        let names: Vec<String> = secrets.into_iter().map(|secret| secret.name).collect();
        names.join(" ")
    };
    assert_eq!(names("spec: {}"), "mirror");
    assert_eq!(
        names("spec: {image: 'registry.example/quorate:0.1.0'}"),
        "mirror"
    );
    assert_eq!(names("spec: {image: 'other.example/quorate:main'}"), "");
    // What the resource says counts.
    let of_pod = |spec: &str| names(&format!("spec: {{podTemplate: {{spec: {spec}}}}}"));
    assert_eq!(of_pod("{imagePullSecrets: [{name: own}]}"), "own");
    assert_eq!(of_pod("{serviceAccountName: default}"), "");
}

#[test]
fn members_and_jobs_have_the_image_and_its_secrets() {
    let own = format!("registry.example/quorate:main{DIGEST}");
    let (settings, mut cluster) = (installed(&own), cluster("spec: {}"));
    cluster.spec.version = "0.2.0".to_owned();
    let set = stateful_set(&cluster, &settings, "demo-1", SetOptions::default());
    let set = set.spec.expect("a spec").template;
    let owner = BackupOwner {
        kind: "EtcdBackup",
        name: "nightly".to_owned(),
        uid: "uid".to_owned(),
    };
    let work = BackupWork::Verify {
        id: "one".to_owned(),
    };
    let store = EtcdBackupStoreSpec::default();
    let job = backup_job(&cluster, &settings, &store, &owner, &work, 1);
    let job = job.spec.expect("a spec").template;
    for template in [set, job] {
        let pod = template.spec.expect("a pod");
        assert_eq!(pod.containers[0].image.as_ref(), Some(&own));
        let secrets = pod.image_pull_secrets.unwrap_or_default();
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets[0].name, "mirror");
    }
}
