//! The resource from a YAML text without an API server: unknown fields, defaults and rules as an
//! API server would treat them, and the definition itself as YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Map, Value};

use super::access::{EtcdRole, EtcdUser};
use super::backups::{EtcdBackup, EtcdBackupSchedule, EtcdBackupStore};
use super::recovery::EtcdRecovery;
use super::spec::EtcdCluster;

/// Why a text is not a valid `EtcdCluster`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// Another kind or version.
    #[error("expected apiVersion quorate.dev/v1alpha1 and kind EtcdCluster, found {0}")]
    Kind(String),
    /// Fields that are unknown or of the wrong type, and violated rules; one line each.
    #[error("invalid EtcdCluster: {}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Reads one resource and applies the schema's defaults.
///
/// # Errors
/// [`ParseError`] names every field that is wrong, not only the first.
pub fn parse(yaml: &str) -> Result<EtcdCluster, ParseError> {
    let value: Value =
        serde_saphyr::from_str(yaml).map_err(|error| ParseError::Yaml(error.to_string()))?;
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("nothing")
            .to_owned()
    };
    if text("apiVersion") != "quorate.dev/v1alpha1" || text("kind") != "EtcdCluster" {
        return Err(ParseError::Kind(format!(
            "{} {}",
            text("apiVersion"),
            text("kind")
        )));
    }
    let schema = schema();
    let mut problems = Vec::new();
    check(&schema, &value, "", &mut problems);
    if !problems.is_empty() {
        return Err(ParseError::Invalid(problems));
    }
    let value = kube_core::cel::apply_defaults(&schema, &value);
    let cluster: EtcdCluster = serde_json::from_value(value)
        .map_err(|error| ParseError::Invalid(vec![error.to_string()]))?;
    match super::validate::obeys_rules(&cluster) {
        Ok(()) => Ok(cluster),
        Err(errors) => Err(ParseError::Invalid(
            errors
                .iter()
                .map(|e| format!("{}: {}", e.field_path, e.message))
                .collect(),
        )),
    }
}

/// The custom resource definitions, that of clusters first.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        EtcdCluster::crd(),
        EtcdBackupStore::crd(),
        EtcdBackup::crd(),
        EtcdBackupSchedule::crd(),
        EtcdRecovery::crd(),
        EtcdRole::crd(),
        EtcdUser::crd(),
    ]
}

/// A custom resource definition as YAML, as in `crds/`.
///
/// # Errors
/// [`ParseError::Yaml`] when the definition cannot be written as YAML.
pub fn definition_yaml(definition: &CustomResourceDefinition) -> Result<String, ParseError> {
    serde_saphyr::to_string(definition).map_err(|error| ParseError::Yaml(error.to_string()))
}

/// The schema of a cluster's served version, as JSON.
pub(super) fn schema() -> Value {
    schema_of(EtcdCluster::crd())
}

/// What is unknown or of the wrong type in a resource.
#[cfg(test)]
pub(super) fn mistakes(schema: &Value, resource: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(schema, resource, "", &mut problems);
    problems
}

/// The schema of a definition's served version, as JSON.
pub(super) fn schema_of(definition: CustomResourceDefinition) -> Value {
    definition
        .spec
        .versions
        .into_iter()
        .next()
        .and_then(|version| version.schema?.open_api_v3_schema)
        .and_then(|schema| serde_json::to_value(schema).ok())
        .unwrap_or(Value::Null)
}

/// Collects fields that are not in the schema and values that it does not allow.
fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        problems.push(format!(
            "{path}: {value} is not one of {}",
            allowed.join(", ")
        ));
        return;
    }
    let expected = schema.get("type").and_then(Value::as_str).unwrap_or("");
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    if !fits {
        problems.push(format!("{path}: expected {expected}, found {value}"));
        return;
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, problems),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                check(
                    schema.get("items").unwrap_or(&Value::Null),
                    item,
                    &format!("{path}[{i}]"),
                    problems,
                );
            }
        }
        _ => {}
    }
}

fn check_object(schema: &Value, map: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let at = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let other = schema.get("additionalProperties");
    for (key, value) in map {
        // Metadata and the kind belong to Kubernetes, not to this schema.
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
            continue;
        }
        match (properties.and_then(|p| p.get(key)), other) {
            (Some(inner), _) | (None, Some(inner)) => check(inner, value, &at(key), problems),
            (None, None) if properties.is_some() => {
                problems.push(format!(
                    "{}: unknown field; this version has no such setting",
                    at(key)
                ));
            }
            (None, None) => {}
        }
    }
    for key in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(key) = key.as_str()
            && !map.contains_key(key)
        {
            problems.push(format!("{}: missing", at(key)));
        }
    }
}
