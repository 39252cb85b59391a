//! Reading and changing objects that are kept as JSON.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A text at a path of fields; empty where there is none.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A number at a path of fields.
pub fn number(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// What is at a path of fields.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, field| value.get(field))
}

/// The items of a list at a path of fields; none where there is no list.
pub fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The items of a list in a field, to change them; none where there is no list.
pub fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// Puts a value at a path of fields, making the objects on the way.
pub fn put(object: &mut Value, path: &[&str], value: Value) {
    let mut here = object;
    for field in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[*field];
    }
    *here = value;
}

/// Takes a field away; gives what it was.
pub fn take(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut here = object;
    for field in way {
        here = here.get_mut(field)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// Puts a value where nothing is.
pub fn default(object: &mut Value, path: &[&str], value: Value) {
    if at(object, path).is_none_or(Value::is_null) {
        put(object, path, value);
    }
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// `metadata.namespace`; empty for what has none.
pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// `metadata.resourceVersion` as the number that it is here; 0 where there is none.
pub fn revision(object: &Value) -> u64 {
    text(object, &["metadata", "resourceVersion"])
        .parse()
        .unwrap_or(0)
}

/// A label's value.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, &["metadata", "labels", key]).and_then(Value::as_str)
}

/// Whether it is on its way out.
pub fn is_deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// The UID that labels of an EtcdCluster's objects carry: its own, or the one that it has adopted.
pub fn life(cluster: &Value) -> &str {
    match text(cluster, &["spec", "bootstrap", "adopt", "clusterUID"]) {
        "" => uid(cluster),
        adopted => adopted,
    }
}

/// Its finalizers.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(object, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
}

/// Its owners.
pub fn owners(object: &Value) -> &[Value] {
    items(object, &["metadata", "ownerReferences"])
}

/// The owner that controls it.
pub fn controller(object: &Value) -> Option<&Value> {
    owners(object)
        .iter()
        .find(|owner| owner["controller"] == Value::Bool(true))
}

/// Status, reason, and message of a condition, if it is there.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    items(object, &["status", "conditions"])
        .iter()
        .find(|condition| condition["type"] == type_)
}

/// Whether a condition is there and true.
pub fn holds(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition; the time of its transition changes with its status only.
pub fn set_condition(
    object: &mut Value,
    now_ms: u64,
    type_: &str,
    status: bool,
    why: Option<(&str, &str)>,
) {
    set_condition_text(
        object,
        now_ms,
        type_,
        if status { "True" } else { "False" },
        why,
    );
}

/// Takes a condition away.
pub fn remove_condition(object: &mut Value, type_: &str) {
    if let Some(list) = object["status"]["conditions"].as_array_mut() {
        list.retain(|condition| condition["type"] != type_);
    }
}

/// Like [`set_condition`], with any status (`Unknown`).
pub fn set_condition_text(
    object: &mut Value,
    now_ms: u64,
    type_: &str,
    status: &str,
    why: Option<(&str, &str)>,
) {
    let mut wanted = json!({"type": type_, "status": status});
    if let Some((reason, message)) = why {
        wanted["reason"] = json!(reason);
        wanted["message"] = json!(message);
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(list) = object["status"]["conditions"].as_array_mut() else {
        return;
    };
    let found = list.iter_mut().find(|condition| condition["type"] == type_);
    match found {
        Some(found) => {
            let same = found["status"] == wanted["status"];
            wanted["lastTransitionTime"] = if same {
                found["lastTransitionTime"].clone()
            } else {
                json!(time(now_ms))
            };
            *found = wanted;
        }
        None => {
            wanted["lastTransitionTime"] = json!(time(now_ms));
            list.push(wanted);
        }
    }
}

/// A time as objects carry it, in whole seconds.
pub fn time(now_ms: u64) -> String {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds)
        .unwrap_or(Timestamp::MAX)
        .to_string()
}

/// A time that an object carries, in milliseconds since 1970; `None` where there is none.
pub fn time_ms(object: &Value, path: &[&str]) -> Option<u64> {
    let time: Timestamp = text(object, path).parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// A reference to an owner that controls what carries it.
pub fn owner_reference(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}
