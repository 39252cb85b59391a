//! Which recoveries concern a cluster, what they mean as facts, and when their status changes.

use serde_json::json;

use super::*;

fn recovery(status: &serde_json::Value) -> EtcdRecovery {
    let recovery = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdRecovery",
        "metadata": {"name": "again", "namespace": "default", "uid": "u"},
        "spec": {"clusterRef": {"name": "demo"}, "clusterUID": "c", "incarnation": 1, "acceptLoss": true,
            "restore": {"backupRef": {"name": "nightly"}}},
        "status": status,
    });
    serde_json::from_value(recovery).expect("a recovery")
}

fn report(phase: RecoveryPhase, message: &str) -> RecoveryReport {
    RecoveryReport {
        name: "again".to_owned(),
        phase,
        message: message.to_owned(),
        incarnation: 2,
        seed: None,
    }
}

fn at(second: u64) -> Time {
    now(second * 1000 + 400)
}

#[test]
fn one_of_the_clusters_name_counts_until_it_is_deleted() {
    let key = |name: &str| ("default".to_owned(), name.to_owned());
    let mut one = recovery(&json!({}));
    assert!(names(&DeserializeGuard(Ok(one.clone())), &key("demo")));
    assert!(!names(&DeserializeGuard(Ok(one.clone())), &key("other")));
    let elsewhere = ("other".to_owned(), "demo".to_owned());
    assert!(!names(&DeserializeGuard(Ok(one.clone())), &elsewhere));
    one.metadata.deletion_timestamp = Some(at(1));
    assert!(!names(&DeserializeGuard(Ok(one)), &key("demo")));
}

#[test]
fn refusal_is_kept_with_its_reason() {
    let refused = recovery(&json!({"phase": "Refused", "message": "another UID"}));
    assert_eq!(facts(&refused).refused.as_deref(), Some("another UID"));
    assert!(!is_under_way(&refused));
    let fencing = recovery(&json!({"phase": "Fencing", "message": "waits"}));
    assert_eq!(facts(&fencing).refused, None);
    assert!(is_under_way(&fencing));
    assert!(is_under_way(&recovery(&json!({}))));
}

#[test]
fn one_recovery_made_an_incarnation() {
    let one = recovery(&json!({"phase": "Restoring"}));
    let refused = recovery(&json!({"phase": "Refused"}));
    let both = [refused, one.clone()];
    let name = |found: Option<&EtcdRecovery>| found.map(ResourceExt::name_any);
    assert_eq!(name(that_made(&both, "c", 2)).as_deref(), Some("again"));
    assert_eq!(that_made(&both, "c", 3), None, "another incarnation");
    assert_eq!(that_made(&both, "d", 2), None, "another cluster");
    assert_eq!(that_made(&[one.clone(), one], "c", 2), None, "which one?");
}

#[test]
fn times_are_those_of_the_first_and_of_the_last_step() {
    let fencing = status(
        &EtcdRecoveryStatus::default(),
        &report(RecoveryPhase::Fencing, "stops"),
        &at(10),
    );
    assert_eq!(fencing.start_time, Some(at(10)));
    assert_eq!(fencing.incarnation, Some(2));
    // The same again is no news, whatever the time.
    let same = report(RecoveryPhase::Fencing, "stops");
    assert_eq!(status(&fencing, &same, &at(20)), fencing);
    let restoring = status(&fencing, &report(RecoveryPhase::Restoring, "x"), &at(20));
    let recovered = status(&restoring, &report(RecoveryPhase::Recovered, "x"), &at(30));
    assert_eq!(recovered.start_time, Some(at(10)));
    assert_eq!(recovered.completion_time, Some(at(30)));
}

#[test]
fn final_status_is_never_written_again() {
    for phase in [RecoveryPhase::Recovered, RecoveryPhase::Refused] {
        let before = EtcdRecoveryStatus {
            phase,
            ..EtcdRecoveryStatus::default()
        };
        let later = report(RecoveryPhase::Fencing, "it fits now");
        assert_eq!(status(&before, &later, &at(1)), before);
    }
    let refused = status(
        &EtcdRecoveryStatus::default(),
        &report(RecoveryPhase::Refused, "a leader answers"),
        &at(1),
    );
    assert_eq!(refused.start_time, None, "nothing was begun");
}

#[test]
fn cluster_is_formed_by_its_own_incarnation() {
    let identity = |incarnation: u64| IdentitySecret {
        owner: Owner::Ours,
        terminating: false,
        cluster_uid: "c".to_owned(),
        incarnation,
        seed: "demo-1".to_owned(),
        nonce: String::new(),
    };
    let mut known = EtcdClusterStatus {
        cluster_id: Some("1f".to_owned()),
        ..EtcdClusterStatus::default()
    };
    assert!(is_formed(&known, Some(&identity(1))));
    assert!(!is_formed(&known, Some(&identity(2))), "not again yet");
    assert!(is_formed(&known, None), "as far as is known");
    known.incarnation = Some(2);
    assert!(is_formed(&known, Some(&identity(2))));
    known.cluster_id = None;
    assert!(!is_formed(&known, Some(&identity(2))));
}
