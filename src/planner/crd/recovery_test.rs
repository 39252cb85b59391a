//! The rules of recoveries, as an API server applies them, and the sample.

use kube_core::CustomResourceExt;
use kube_core::cel::{Validator, compile_schema};
use serde_json::{Value, json};

use super::EtcdRecovery;
use super::parse::{mistakes, schema_of};

/// What an API server has against a recovery, created or changed from another one.
fn refusals(new: &Value, old: Option<&Value>) -> String {
    let schema = schema_of(EtcdRecovery::crd());
    let mut found = mistakes(&schema, new);
    if let Err(errors) = Validator::new().validate_compiled(&compile_schema(&schema), new, old) {
        found.extend(errors.iter().map(|error| error.message.clone()));
    }
    found.join("; ")
}

fn sample() -> Value {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/samples/recovery.yaml"
    );
    let text = std::fs::read_to_string(file).expect("the sample");
    serde_saphyr::from_str(&text).expect("YAML")
}

#[test]
fn recovery_has_one_source_and_an_accepted_loss() {
    assert_eq!(refusals(&sample(), None), "");
    let with = |change: fn(&mut Value)| {
        let mut changed = sample();
        change(&mut changed["spec"]);
        refusals(&changed, None)
    };
    let backup = with(|spec| {
        *spec = json!({"clusterRef": {"name": "demo"}, "clusterUID": "u", "acceptLoss": true,
            "restore": {"backupRef": {"name": "nightly"}}});
    });
    assert_eq!(backup, "");
    let refused = |found: String, words: &str| assert!(found.contains(words), "{found}");
    let not_accepted = with(|spec| spec["acceptLoss"] = json!(false));
    refused(not_accepted, "acceptLoss has to be true");
    let both = with(|spec| spec["restore"] = json!({"backupRef": {"name": "nightly"}}));
    refused(both, "give either spec.survivor, or spec.restore");
    refused(
        with(|spec| drop(spec.as_object_mut().and_then(|it| it.remove("survivor")))),
        "give either spec.survivor, or spec.restore",
    );
    let zeroth = with(|spec| spec["incarnation"] = json!(0));
    refused(zeroth, "incarnation must be 1");
}

#[test]
fn reviewed_recovery_stays_as_it_is() {
    let mut changed = sample();
    changed["spec"]["survivor"]["member"] = json!("demo-1");
    let found = refusals(&changed, Some(&sample()));
    assert!(found.contains("its spec is immutable"), "{found}");
}
