//! The rules of the resources about backups, as an API server applies them, and the sample.

use kube_core::cel::{Validator, compile_schema};
use kube_core::{CustomResourceExt, ResourceExt as _};
use serde_json::{Value, json};

use super::{EtcdBackup, EtcdBackupSchedule, EtcdBackupStore};
use crate::crd::parse::{mistakes, schema_of};

/// What an API server has against a resource, created or changed from another one.
fn refusals(kind: &str, new: &Value, old: Option<&Value>) -> String {
    let definition = match kind {
        "EtcdBackupStore" => EtcdBackupStore::crd(),
        "EtcdBackup" => EtcdBackup::crd(),
        _ => EtcdBackupSchedule::crd(),
    };
    let schema = schema_of(definition);
    let mut found = mistakes(&schema, new);
    let compiled = compile_schema(&schema);
    if let Err(errors) = Validator::new().validate_compiled(&compiled, new, old) {
        found.extend(errors.iter().map(|error| error.message.clone()));
    }
    found.join("; ")
}

fn resource(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "a", "namespace": "default"}, "spec": spec,
    })
}

#[test]
fn stores_are_one_place_and_name_no_credentials() {
    let s3 = json!({"bucket": "b"});
    for (spec, refusal) in [
        (json!({"s3": s3}), ""),
        (
            json!({"s3": {"bucket": "b", "prefix": "a/b-c", "endpoint": "http://s3:9000"}}),
            "",
        ),
        (json!({"azure": {"account": "a", "container": "c"}}), ""),
        (json!({"volume": {"claimName": "c", "prefix": "x"}}), ""),
        (json!({}), "give exactly one"),
        (json!({"s3": s3, "gcs": s3}), "give exactly one"),
        (
            json!({"volume": {"claimName": "c"}, "credentialsSecretRef": {"name": "s"}}),
            "a volume needs neither",
        ),
        (json!({"s3": {"bucket": "s3://b"}}), "bucket is the name"),
        (
            json!({"s3": {"bucket": "b", "prefix": "/a"}}),
            "prefix is a path",
        ),
        (
            json!({"s3": {"bucket": "b", "prefix": "a/../b"}}),
            "prefix is a path",
        ),
        (
            json!({"s3": {"bucket": "b", "endpoint": "https://u:p@s3"}}),
            "endpoint is a URL",
        ),
        (
            json!({"s3": s3, "scratch": {"size": "1Mi"}}),
            "scratch.size",
        ),
        (json!({"s3": s3, "bucket": "b"}), "bucket"),
    ] {
        let found = refusals("EtcdBackupStore", &resource("EtcdBackupStore", &spec), None);
        assert_eq!(found.is_empty(), refusal.is_empty(), "{spec}: {found}");
        assert!(found.contains(refusal), "{spec}: {found}");
    }
}

#[test]
fn a_backup_is_of_one_moment() {
    let spec = json!({"clusterRef": {"name": "demo"}, "storeRef": {"name": "s3"}});
    let old = resource("EtcdBackup", &spec);
    assert_eq!(refusals("EtcdBackup", &old, None), "");
    let mut new = old.clone();
    new["spec"]["verify"] = json!(true);
    let found = refusals("EtcdBackup", &new, Some(&old));
    assert!(found.contains("its spec is immutable"), "{found}");
    new = old.clone();
    new["metadata"]["name"] = json!("a".repeat(51));
    let found = refusals("EtcdBackup", &new, None);
    assert!(found.contains("at most 50 characters"), "{found}");
    new = old;
    new["spec"]["deadlineSeconds"] = json!(5);
    let found = refusals("EtcdBackup", &new, None);
    assert!(found.contains("deadlineSeconds must be"), "{found}");
}

#[test]
fn schedules_are_cron_and_keep_something() {
    let spec = |schedule: &str| json!({"clusterRef": {"name": "demo"}, "storeRef": {"name": "s3"}, "schedule": schedule});
    let check = |spec: &Value| {
        let schedule = resource("EtcdBackupSchedule", spec);
        refusals("EtcdBackupSchedule", &schedule, None)
    };
    for good in ["0 2 * * *", "@hourly", "*/5  1-3 * JAN sun"] {
        assert_eq!(check(&spec(good)), "", "{good}");
    }
    for bad in ["0 2 * *", "0 0 2 * * *", "@", "daily"] {
        let found = check(&spec(bad));
        assert!(found.contains("schedule has five fields"), "{bad}: {found}");
    }
    let mut nothing = spec("@daily");
    nothing["retention"] = json!({"last": 0, "hourly": 0, "daily": 0, "weekly": 0, "minKeep": 1});
    let found = check(&nothing);
    assert!(found.contains("retention must keep something"), "{found}");
    let mut archived = spec("@daily");
    archived["archive"] = json!({});
    assert_eq!(check(&archived), "");
    archived["archive"] = json!({"intervalSeconds": 0, "windowSeconds": 60});
    let found = check(&archived);
    assert!(found.contains("intervalSeconds must be 1 to 60"), "{found}");
    assert!(found.contains("windowSeconds must be 0"), "{found}");
    let mut often = spec("@daily");
    often["verifyEverySeconds"] = json!(5);
    let found = check(&often);
    assert!(found.contains("verifyEverySeconds must be"), "{found}");
}

/// The documents of a sample, each of which the API server would take.
fn sample(name: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/samples");
    let text = std::fs::read_to_string(format!("{folder}/{name}")).expect("the sample");
    let documents: Vec<Value> = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("YAML"))
        .collect();
    for document in &documents {
        let kind = document["kind"].as_str().expect("a kind");
        assert_eq!(refusals(kind, document, None), "", "{document}");
    }
    documents
}

#[test]
fn samples_are_valid_and_encrypted() {
    let documents = sample("backup.yaml");
    let store: EtcdBackupStore =
        serde_json::from_value(documents[0].clone()).expect("a store first");
    assert!(store.spec.encryption.is_some());
    let schedule: EtcdBackupSchedule =
        serde_json::from_value(documents[1].clone()).expect("then a schedule");
    assert_eq!(schedule.spec.store_ref.name, store.name_any());
    let [one] = sample("one-backup.yaml").try_into().expect("one document");
    let backup: EtcdBackup = serde_json::from_value(one).expect("a backup");
    assert_eq!(backup.spec.store_ref.name, store.name_any());
}
