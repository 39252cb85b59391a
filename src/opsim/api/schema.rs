//! The schemas of our own resources, as the API server uses it: unknown fields go, absent ones get
//! their defaults, and what the schema or one of its rules does not allow is refused.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Map, Value};

use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use crate::crd::backups::{EtcdBackup, EtcdBackupSchedule, EtcdBackupStore};
use crate::crd::{EtcdCluster, EtcdRecovery};

/// A kind's schema and its rules.
struct Schema {
    value: Value,
    rules: CompiledSchema,
}

impl Schema {
    fn of(definition: &CustomResourceDefinition) -> Self {
        let definition = serde_json::to_value(definition).unwrap_or_default();
        let value = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let rules = compile_schema(&value);
        Self { value, rules }
    }
}

static CLUSTERS: LazyLock<Schema> = LazyLock::new(|| Schema::of(&EtcdCluster::crd()));
static RECOVERIES: LazyLock<Schema> = LazyLock::new(|| Schema::of(&EtcdRecovery::crd()));
static STORES: LazyLock<Schema> = LazyLock::new(|| Schema::of(&EtcdBackupStore::crd()));
static BACKUPS: LazyLock<Schema> = LazyLock::new(|| Schema::of(&EtcdBackup::crd()));
static SCHEDULES: LazyLock<Schema> = LazyLock::new(|| Schema::of(&EtcdBackupSchedule::crd()));

/// The schema of a kind of ours; `None` for Kubernetes' own kinds.
fn of(kind: Kind) -> Option<&'static Schema> {
    match kind {
        Kind::EtcdCluster => Some(&CLUSTERS),
        Kind::EtcdRecovery => Some(&RECOVERIES),
        Kind::EtcdBackupStore => Some(&STORES),
        Kind::EtcdBackup => Some(&BACKUPS),
        Kind::EtcdBackupSchedule => Some(&SCHEDULES),
        _ => None,
    }
}

/// Takes unknown fields away and fills in defaults.
pub(super) fn fill(kind: Kind, object: &mut Value) {
    let Some(schema) = of(kind) else { return };
    prune(object, &schema.value, "", &mut Vec::new());
    // Metadata has a schema of its own, of which this one describes little.
    let meta = object["metadata"].take();
    *object = apply_defaults(&schema.value, object);
    object["metadata"] = meta;
}

/// An applied configuration may not name fields that the schema does not know.
pub(super) fn knows(kind: Kind, object: &Value) -> Result<(), Refusal> {
    let Some(schema) = of(kind) else {
        return Ok(());
    };
    let mut unknown = Vec::new();
    prune(&mut object.clone(), &schema.value, "", &mut unknown);
    match unknown.first() {
        None => Ok(()),
        Some(path) => Err(Refusal::internal(format!(
            "failed to create typed patch object: {path}: field not declared in schema"
        ))),
    }
}

/// Whether the schema allows the object.
pub(super) fn check(kind: Kind, object: &Value) -> Result<(), Refusal> {
    let Some(schema) = of(kind) else {
        return Ok(());
    };
    for part in ["spec", "status"] {
        let Some(value) = object.get(part) else {
            continue;
        };
        fits(value, &schema.value["properties"][part], part)
            .map_err(|(path, why)| Refusal::invalid(kind, object::name(object), &path, &why))?;
    }
    Ok(())
}

/// Whether the schema's rules allow the object, after another version of it.
pub(super) fn obeys(kind: Kind, old: Option<&Value>, object: &Value) -> Result<(), Refusal> {
    let Some(schema) = of(kind) else {
        return Ok(());
    };
    let Err(errors) = Validator::new().validate_compiled(&schema.rules, object, old) else {
        return Ok(());
    };
    let name = object::name(object);
    Err(Refusal::invalid(kind, name, "spec", &errors.to_string()))
}

fn prune(value: &mut Value, schema: &Value, path: &str, unknown: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) {
        return;
    }
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let any = &schema["additionalProperties"];
            let root = path.is_empty();
            let mut kept = Map::new();
            for (name, mut value) in std::mem::take(fields) {
                let below = format!("{path}.{name}");
                let plain = root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                match known.and_then(|known| known.get(&name)) {
                    _ if plain => {}
                    Some(schema) => {
                        let null = value.is_null() && schema["nullable"] != Value::Bool(true);
                        if null && schema.get("default").is_some() {
                            continue;
                        }
                        prune(&mut value, schema, &below, unknown);
                    }
                    None if any.is_object() => prune(&mut value, any, &below, unknown),
                    None if *any == Value::Bool(true) => {}
                    None => {
                        unknown.push(below);
                        continue;
                    }
                }
                kept.insert(name, value);
            }
            *fields = kept;
        }
        Value::Array(items) => {
            for item in items {
                prune(item, &schema["items"], &format!("{path}[]"), unknown);
            }
        }
        _ => {}
    }
}

type Misfit = (String, String);

fn fits(value: &Value, schema: &Value, path: &str) -> Result<(), Misfit> {
    let refuse = |why: String| Err((path.to_owned(), why));
    if value.is_null() {
        return match schema["nullable"] == Value::Bool(true) {
            true => Ok(()),
            false => refuse("Invalid value: \"null\"".into()),
        };
    }
    let either = schema["x-kubernetes-int-or-string"] == Value::Bool(true);
    let wanted = schema["type"].as_str().unwrap_or_default();
    let right = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => !either || value.is_string() || value.is_number(),
    };
    if !right {
        return refuse(format!("Invalid value: {value}: must be of type {wanted}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return refuse(format!("Unsupported value: {value}"));
    }
    let number = |field: &str| schema[field].as_f64();
    let length = match value {
        Value::String(text) => Some((text.chars().count(), "minLength", "maxLength")),
        Value::Array(items) => Some((items.len(), "minItems", "maxItems")),
        Value::Object(fields) => Some((fields.len(), "minProperties", "maxProperties")),
        _ => None,
    };
    #[allow(clippy::cast_precision_loss)]
    let (size, least, most) = match length {
        Some((length, least, most)) => (Some(length as f64), least, most),
        None => (value.as_f64(), "minimum", "maximum"),
    };
    if let Some(size) = size
        && (number(least).is_some_and(|least| size < least)
            || number(most).is_some_and(|most| size > most))
    {
        return refuse(format!(
            "Invalid value: {size} is out of {least} and {most}"
        ));
    }
    inside(value, schema, path)
}

fn inside(value: &Value, schema: &Value, path: &str) -> Result<(), Misfit> {
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if !fields.contains_key(name) {
                    return Err((format!("{path}.{name}"), "Required value".into()));
                }
            }
            for (name, value) in fields {
                let known = &schema["properties"][name];
                let schema = match known.is_object() {
                    true => known,
                    false => &schema["additionalProperties"],
                };
                if schema.is_object() {
                    fits(value, schema, &format!("{path}.{name}"))?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                fits(item, &schema["items"], &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
