//! The rules of users and roles, as an API server applies them, and the sample.

use kube_core::CustomResourceExt;
use kube_core::cel::{Validator, compile_schema};
use serde_json::{Value, json};

use super::{EtcdRole, EtcdUser};
use crate::crd::parse::{mistakes, schema_of};

/// What an API server has against a resource, created or changed from another one.
fn refusals(new: &Value, old: Option<&Value>) -> String {
    let definition = match new["kind"].as_str() {
        Some("EtcdUser") => EtcdUser::crd(),
        _ => EtcdRole::crd(),
    };
    let schema = schema_of(definition);
    let mut found = mistakes(&schema, new);
    if let Err(errors) = Validator::new().validate_compiled(&compile_schema(&schema), new, old) {
        found.extend(errors.iter().map(|error| error.message.clone()));
    }
    found.join("; ")
}

fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["clusterRef"] = json!({"name": "demo"});
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

#[test]
fn users_are_known_somehow_and_root_alone_decides_on_authentication() {
    for (name, spec, refusal) in [
        ("app", json!({"password": {}}), ""),
        (
            "app",
            json!({"certificate": {"validityDays": 1}, "roles": ["a"]}),
            "",
        ),
        ("app", json!({"roles": ["a"]}), "say how the user is known"),
        (
            "root",
            json!({"password": {}, "authentication": "Enabled"}),
            "",
        ),
        (
            "r",
            json!({"userName": "root", "password": {}, "authentication": "Disabled"}),
            "",
        ),
        (
            "app",
            json!({"password": {}, "authentication": "Enabled"}),
            "of root alone",
        ),
        (
            "root",
            json!({"userName": "app", "password": {}, "authentication": "Enabled"}),
            "of root alone",
        ),
        (
            "app",
            json!({"certificate": {"validityDays": 0}}),
            "must be 1 to 90",
        ),
        (
            "app",
            json!({"password": {"secretRef": {"name": "s", "key": "k"}, "rotateAfterDays": 3}}),
            "take rotateAfterDays out",
        ),
        (
            "app",
            json!({"password": {}, "connection": {"kubeApiserver": {}}}),
            "known by a certificate",
        ),
        (
            "app",
            json!({"certificate": {}, "connection": {"kubeApiserver": {"mountPath": "etc"}}}),
            "absolute path",
        ),
        (
            "app",
            json!({"password": {}, "connection": {"secretName": "A"}}),
            "name of a Secret",
        ),
        (
            "app",
            json!({"password": {}, "connection": {"kamaji": {"name": "a"}}}),
            "known by a certificate",
        ),
        (
            "app",
            json!({"password": {"secretRef": {"name": "my secret", "key": "k"}}}),
            "name of a Secret",
        ),
        (
            "a-name-that-is-longer-than-the-common-name-of-a-certificate-may-be",
            json!({"password": {}}),
            "at most 64 characters",
        ),
        (
            "app",
            json!({"password": {}, "groups": []}),
            "unknown field",
        ),
    ] {
        let found = refusals(&resource("EtcdUser", name, &spec), None);
        let as_expected = match refusal {
            "" => found.is_empty(),
            refusal => found.contains(refusal),
        };
        assert!(as_expected, "{spec}: {found:?}, not {refusal:?}");
    }
}

#[test]
fn permissions_are_about_keys_and_the_role_root_has_all() {
    let read = |span: Value| {
        let mut permission = span;
        permission["access"] = json!("Read");
        json!({ "permissions": [permission] })
    };
    for (name, spec, refusal) in [
        ("app", json!({}), ""),
        ("app", read(json!({"prefix": ""})), ""),
        ("app", read(json!({"key": "a", "rangeEnd": "b"})), ""),
        ("app", read(json!({})), "give either key, or prefix"),
        (
            "app",
            read(json!({"key": "a", "prefix": "b"})),
            "give either key, or prefix",
        ),
        (
            "app",
            read(json!({"prefix": "a", "rangeEnd": "b"})),
            "rangeEnd is the end",
        ),
        ("root", json!({}), "needs no resource"),
        ("r", json!({"roleName": "root"}), "needs no resource"),
    ] {
        let found = refusals(&resource("EtcdRole", name, &spec), None);
        let as_expected = match refusal {
            "" => found.is_empty(),
            refusal => found.contains(refusal),
        };
        assert!(as_expected, "{spec}: {found:?}, not {refusal:?}");
    }
}

#[test]
fn names_in_the_cluster_stay() {
    let named = |name: &str| {
        resource(
            "EtcdUser",
            "app",
            &json!({"password": {}, "userName": name}),
        )
    };
    let found = refusals(&named("b"), Some(&named("a")));
    assert!(found.contains("cannot be changed"), "{found}");
    let secret = |name: &str| {
        resource(
            "EtcdUser",
            "app",
            &json!({"password": {}, "connection": {"secretName": name}}),
        )
    };
    let found = refusals(&secret("b"), Some(&secret("a")));
    assert!(found.contains("secretName cannot be changed"), "{found}");
    let found = refusals(
        &secret("b"),
        Some(&resource("EtcdUser", "app", &json!({"password": {}}))),
    );
    assert!(found.contains("secretName cannot be changed"), "{found}");
    let default = secret("app-connection");
    let absent = resource("EtcdUser", "app", &json!({"password": {}}));
    assert_eq!(refusals(&default, Some(&absent)), "");
    let role = |spec: Value| resource("EtcdRole", "app", &spec);
    let found = refusals(&role(json!({"roleName": "b"})), Some(&role(json!({}))));
    assert!(found.contains("cannot be changed"), "{found}");
    let more = role(json!({"permissions": [{"access": "Write", "key": "a"}]}));
    assert_eq!(refusals(&more, Some(&role(json!({})))), "");
}

#[test]
fn sample_is_valid() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/samples/user.yaml"
    );
    let text = std::fs::read_to_string(file).expect("the sample");
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    assert_eq!(all.len(), 3);
    for one in all {
        assert_eq!(refusals(&one, None), "", "{one}");
    }
}
