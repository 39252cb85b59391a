//! What a pod says of its container: its arguments, its environment, the Secrets that it cannot start without, and
//! whether it is started again. Starts nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::api::{ApiServer, Kind};

/// Whether a pod's container is not started again once it has ended.
pub(super) fn runs_once(pod: &Value) -> bool {
    object::text(pod, &["spec", "restartPolicy"]) == "Never"
}

/// The values of the Secrets that a container's environment is made of; without one of them it is not made.
pub(super) fn environment(
    api: &ApiServer,
    namespace: &str,
    container: &Value,
) -> Result<BTreeMap<String, String>, (String, String)> {
    let mut all = BTreeMap::new();
    for source in object::items(container, &["envFrom"]) {
        let name = object::text(source, &["secretRef", "name"]);
        let Some(secret) = api.get(Kind::Secret, namespace, name) else {
            let why = format!("secret \"{name}\" not found");
            return Err(("CreateContainerConfigError".to_owned(), why));
        };
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            all.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(all)
}

/// The Secrets that a pod cannot start without, by volume, each with the keys that it needs.
pub(super) fn mounted(pod: &Value) -> BTreeMap<String, Vec<(String, Vec<String>)>> {
    let of = |source: &Value, name: &str| {
        let name = object::text(source, &[name]).to_owned();
        let optional = object::at(source, &["optional"]) == Some(&json!(true));
        let keys = object::items(source, &["items"]).iter();
        let keys = keys.map(|item| object::text(item, &["key"]).to_owned());
        (!name.is_empty() && !optional).then(|| (name, keys.collect()))
    };
    let volumes = object::items(pod, &["spec", "volumes"]).iter();
    let volumes = volumes.map(|volume| {
        let whole = of(&volume["secret"], "secretName");
        let sources = object::items(volume, &["projected", "sources"]).iter();
        let parts = sources.filter_map(|source| of(&source["secret"], "name"));
        let all = whole.into_iter().chain(parts).collect();
        (object::text(volume, &["name"]).to_owned(), all)
    });
    volumes.collect()
}

/// The arguments, with `$(NAME)` replaced from the container's environment.
pub(super) fn arguments(pod: &Value, container: &Value) -> Vec<String> {
    let value = |variable: &Value| -> String {
        let path = object::text(variable, &["valueFrom", "fieldRef", "fieldPath"]);
        let from: Vec<&str> = path.split('.').collect();
        match path {
            "" => object::text(variable, &["value"]).to_owned(),
            _ => object::text(pod, &from).to_owned(),
        }
    };
    let variables: Vec<(String, String)> = object::items(container, &["env"])
        .iter()
        .map(|variable| {
            (
                format!("$({})", object::text(variable, &["name"])),
                value(variable),
            )
        })
        .collect();
    let fill = |argument: &str| {
        let mut text = argument.to_owned();
        for (name, value) in &variables {
            text = text.replace(name, value);
        }
        text
    };
    object::items(container, &["args"])
        .iter()
        .filter_map(Value::as_str)
        .map(fill)
        .collect()
}
