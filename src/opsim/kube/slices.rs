//! The endpoints controller: which pods each Service with a selector sends clients to, as one
//! EndpointSlice. It writes down what changed after a while, and until then clients are sent by what
//! it wrote before.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::api::{ApiServer, Delete, Kind};

const ACTOR: &str = "endpointslice-controller";
/// Names the Service of a slice.
pub(crate) const SERVICE: &str = "kubernetes.io/service-name";

/// Since when a Service's slice is not as it is to be, by namespace and name.
pub(super) type Late = BTreeMap<(String, String), u64>;

/// Writes down what has been so for `lag_ms`.
pub(super) fn advance(api: &mut ApiServer, late: &mut Late, lag_ms: u64) {
    let now_ms = api.now_ms();
    let services: Vec<Arc<Value>> = api.all(Kind::Service).cloned().collect();
    for service in &services {
        let id = (object::namespace(service), object::name(service));
        let key = (id.0.to_owned(), id.1.to_owned());
        let wanted = endpoints(api, service);
        let found = api.get(Kind::EndpointSlice, id.0, id.1);
        let of_it = found.as_ref().is_some_and(|slice| {
            let mut owners = object::owners(slice).iter();
            owners.any(|owner| owner["uid"] == service["metadata"]["uid"])
        });
        if of_it && found.is_some_and(|slice| slice["endpoints"] == wanted) {
            late.remove(&key);
            continue;
        }
        if now_ms < *late.entry(key.clone()).or_insert(now_ms) + lag_ms {
            continue;
        }
        late.remove(&key);
        if of_it {
            api.edit(ACTOR, Kind::EndpointSlice, id, |slice| {
                slice["endpoints"] = wanted.clone();
            });
            continue;
        }
        // One of a Service that was deleted is collected first.
        let _ = api.create(ACTOR, Kind::EndpointSlice, slice(service, id, &wanted));
    }
    let there =
        |(namespace, name): &(String, String)| api.get(Kind::Service, namespace, name).is_some();
    late.retain(|key, _| there(key));
    let slices: Vec<Arc<Value>> = api.all(Kind::EndpointSlice).cloned().collect();
    for slice in slices {
        let id = (object::namespace(&slice), object::name(&slice));
        let uid = object::owners(&slice)
            .first()
            .map(|owner| owner["uid"].clone());
        let service = api.get(Kind::Service, id.0, id.1);
        if service.map(|service| service["metadata"]["uid"].clone()) != uid {
            let _ = api.delete(ACTOR, Kind::EndpointSlice, id, &Delete::default());
        }
    }
}

/// A Service's slice: it carries the Service's labels.
fn slice(service: &Value, (namespace, name): (&str, &str), endpoints: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].clone();
    labels[SERVICE] = json!(name);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": labels,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name,
                "uid": service["metadata"]["uid"], "controller": true}]},
        "addressType": "IPv4", "endpoints": endpoints,
    })
}

fn endpoints(api: &ApiServer, service: &Value) -> Value {
    let selector = service["spec"]["selector"].as_object();
    let everybody = service["spec"]["publishNotReadyAddresses"] == Value::Bool(true);
    let chosen = |pod: &&Arc<Value>| {
        let fits = |(key, value): (&String, &Value)| object::label(pod, key) == value.as_str();
        object::namespace(pod) == object::namespace(service)
            && selector.is_some_and(|selector| selector.iter().all(fits))
            && object::at(pod, &["status", "podIP"]).is_some()
    };
    let endpoint = |pod: &Arc<Value>| {
        let ready = object::holds(pod, "Ready") && !object::is_deleting(pod);
        json!({
            "addresses": [pod["status"]["podIP"]],
            "conditions": {"ready": ready || everybody},
            "targetRef": {"kind": "Pod", "name": object::name(pod), "uid": object::uid(pod)},
        })
    };
    api.all(Kind::Pod).filter(chosen).map(endpoint).collect()
}
