//! What must not leave a cluster is taken out of its objects: what Secrets hold, values of environment variables, and the
//! copies of manifests that kubectl keeps. Pure; says how long a value was, and never any part of it.

use serde_json::{Map, Value, json};

/// Copies of whole manifests, in annotations.
const COPIES: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];

/// An object or a list without its secrets.
pub(super) fn object(mut value: Value) -> Value {
    clean(&mut value);
    value
}

fn clean(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(fields) => {
            of_secret(fields);
            of_metadata(fields);
            of_environment(fields);
            of_node(fields);
            of_volume(fields);
            fields.values_mut().for_each(clean);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A Secret, or what has the same fields: no field of ours has these names.
fn of_secret(fields: &mut Map<String, Value>) {
    let is_secret = fields.get("kind").is_some_and(|kind| kind == "Secret")
        || fields.contains_key("stringData");
    // In a list of Secrets, the API server leaves the kind of each item out.
    let typed = fields.get("type").is_some_and(Value::is_string) && fields.contains_key("metadata");
    if !is_secret && !typed {
        return;
    }
    for name in ["data", "stringData"] {
        let Some(Value::Object(data)) = fields.get_mut(name) else {
            continue;
        };
        for value in data.values_mut() {
            *value = hidden(value);
        }
    }
}

fn of_metadata(fields: &mut Map<String, Value>) {
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else {
        return;
    };
    metadata.remove("managedFields");
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        COPIES
            .iter()
            .for_each(|copy| drop(annotations.remove(*copy)));
    }
}

fn of_environment(fields: &mut Map<String, Value>) {
    let Some(Value::Array(variables)) = fields.get_mut("env") else {
        return;
    };
    for variable in variables {
        if let Some(value) = variable.get_mut("value") {
            *value = hidden(value);
        }
    }
}

/// The images on a node are its longest part, and others' business.
fn of_node(fields: &mut Map<String, Value>) {
    if fields.get("kind").is_some_and(|kind| kind == "Node")
        && let Some(Value::Object(status)) = fields.get_mut("status")
    {
        status.remove("images");
    }
}

/// What a driver of volumes was told, which may be anything.
fn of_volume(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(attributes)) = fields.get_mut("volumeAttributes") {
        attributes
            .values_mut()
            .for_each(|value| *value = hidden(value));
    }
}

fn hidden(value: &Value) -> Value {
    match value.as_str() {
        Some("") => json!(""),
        Some(text) => json!(format!("left out: {} characters", text.chars().count())),
        None => json!("left out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_variables_are_left_out() {
        let pod = |value: &str| {
            let env = json!([
                {"name": "TOKEN", "value": value},
                {"name": "REFERRED", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ]);
            json!({"containers": [{"name": "member", "env": env}]})
        };
        let list = json!({"items": [
            {"kind": "Secret", "metadata": {"name": "demo-client"}, "data": {"tls.key": "c2VjcmV0", "empty": ""}},
            {"type": "Opaque", "metadata": {"name": "bare"}, "data": {"password": "c2VjcmV0"}},
            {"kind": "Pod", "metadata": {
                "name": "demo-1-0",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"secret\": 1}", "quorate.dev/inputs": "i"},
            }, "spec": pod("secret")},
            {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "public"}},
            {"kind": "Node", "metadata": {"name": "a"}, "status": {"images": [{"names": ["b"]}], "phase": "Ready"}},
        ]});
        let expected = json!({"items": [
            {"kind": "Secret", "metadata": {"name": "demo-client"}, "data": {"tls.key": "left out: 8 characters", "empty": ""}},
            {"type": "Opaque", "metadata": {"name": "bare"}, "data": {"password": "left out: 8 characters"}},
            {"kind": "Pod", "metadata": {"name": "demo-1-0", "annotations": {"quorate.dev/inputs": "i"}},
                "spec": pod("left out: 6 characters")},
            {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "public"}},
            {"kind": "Node", "metadata": {"name": "a"}, "status": {"phase": "Ready"}},
        ]});
        assert_eq!(object(list), expected);
    }
}
