//! The leaves of a schema and those of a value: what is compared so that no field is forgotten.

use std::collections::BTreeSet;

use serde_json::Value;

/// Every leaf of a schema, such as `storage.size` or `podTemplate.spec.tolerations[].key`. A map of
/// free keys is a leaf.
pub(super) fn of_schema(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(schema, None, "", &mut found);
    found
}

/// The leaves of a schema that a value has.
pub(super) fn of_value(schema: &Value, value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(schema, Some(value), "", &mut found);
    found
}

fn walk(schema: &Value, value: Option<&Value>, path: &str, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, inner) in properties {
            let below = match path {
                "" => name.clone(),
                _ => format!("{path}.{name}"),
            };
            match value {
                None => walk(inner, None, &below, found),
                Some(value) => {
                    if let Some(value) = value.get(name) {
                        walk(inner, Some(value), &below, found);
                    }
                }
            }
        }
    } else if schema["items"]["properties"].is_object() {
        let below = format!("{path}[]");
        match value {
            None => walk(&schema["items"], None, &below, found),
            Some(value) => {
                for item in value.as_array().into_iter().flatten() {
                    walk(&schema["items"], Some(item), &below, found);
                }
            }
        }
    } else {
        found.insert(path.to_owned());
    }
}
