//! A user or a role whose stored object cannot be read, such as one that a newer version wrote: its condition says so, with what is
//! wrong, as that of any other which is not as specified. What the cluster has of it stays as it is.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Accesses;
use crate::crd::ready_condition;
use crate::operator::kubernetes::objects::{Object, apply_status, failure};
use crate::operator::platform::Failure;
use crate::operator::queue::Ended;

/// What was written of one.
struct Told {
    about: ObjectReference,
    before: Vec<Condition>,
    after: Vec<Condition>,
    why: String,
}

impl Accesses {
    /// Says of a resource that it cannot be read. Whoever corrects it causes the next look.
    pub(super) async fn tell_unreadable<K: Object>(
        &self,
        (namespace, name): (&str, &str),
    ) -> Result<Ended, Failure> {
        let client = &self.shared.client;
        if let Some(told) = tell::<K>(client, (namespace, name), self.now()).await? {
            let (kind, why) = (K::kind(&()), &told.why);
            tracing::warn!(%namespace, %kind, %name, %why, "the resource cannot be read, and nothing is done for it");
            let conditions = (&told.before[..], &told.after[..]);
            self.announce((namespace, name), &told.about, conditions)
                .await;
        }
        Ok(Ended::Gone)
    }
}

/// Writes the condition, where the live object cannot be read either and does not say so yet.
async fn tell<K: Object>(
    client: &Client,
    (namespace, name): (&str, &str),
    now: Timestamp,
) -> Result<Option<Told>, Failure> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let found = api.get_opt(name).await;
    let Some(found) = found.map_err(|error| failure("read", name, &error))? else {
        return Ok(None);
    };
    let (uid, generation) = (found.uid().unwrap_or_default(), found.metadata.generation);
    let about = kube::Resource::object_ref(&found, &kind);
    let stored = serde_json::to_value(&found).unwrap_or_default();
    let Err(error) = serde_json::from_value::<K>(stored) else {
        return Ok(None);
    };
    let why = error.to_string();
    let mut status = match found.data.get("status") {
        Some(status) if status.is_object() => status.clone(),
        _ => json!({}),
    };
    let known = status["conditions"].as_array();
    let known = known.into_iter().flatten().cloned();
    let before: Vec<Condition> = known
        .filter_map(|one| serde_json::from_value(one).ok())
        .collect();
    let text = format!(
        "the operator cannot read this resource, and does nothing for it: {why}. Correct it, or run the operator and the definitions of the version that wrote it"
    );
    let state = ("False", "Invalid", text.clone());
    let after = vec![ready_condition(&before, state, generation, now)];
    if before == after {
        return Ok(None);
    }
    status["message"] = Value::String(text);
    status["conditions"] = json!(after);
    let there = apply_status::<K>(client, (namespace, name), &uid, &status).await?;
    Ok(there.then_some(Told {
        about,
        before,
        after,
        why,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::crd::access::{EtcdRole, EtcdUser};

    /// An API server that has this object, and what was written to it.
    fn server(stored: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let stored = Arc::new(Mutex::new(stored));
        let seen = written.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (stored, seen) = (stored.clone(), seen.clone());
            async move {
                let (head, body) = request.into_parts();
                if head.method == Method::PATCH {
                    assert!(head.uri.path().ends_with("/status"), "{}", head.uri);
                    let body = body.collect_bytes().await.expect("a body");
                    let body: Value = serde_json::from_slice(&body).expect("JSON");
                    stored.lock().expect("it")["status"] = body["status"].clone();
                    seen.lock().expect("it").push(body["status"].clone());
                }
                let text = stored.lock().expect("it").to_string();
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(text.into_bytes())))
            }
        });
        (Client::new(service, "default"), written)
    }

    fn resource(kind: &str, spec: &Value, status: &Value) -> Value {
        json!({
            "apiVersion": "quorate.dev/v1alpha1", "kind": kind,
            "metadata": {"namespace": "tenants", "name": "app", "uid": "u1", "generation": 3, "resourceVersion": "7"},
            "spec": spec, "status": status,
        })
    }

    fn now(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// A user that a newer version had written had no condition and no line in any log: it was passed over, and the alert for it
    /// led to nothing that said why.
    #[tokio::test]
    async fn one_that_cannot_be_read_says_why() {
        let spec = json!({"clusterRef": {"name": "demo"}, "roles": "all of them"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "AsSpecified", "message": "",
            "lastTransitionTime": "2026-03-01T00:00:00Z"});
        let status =
            json!({"userName": "app", "connectionSecret": "app-connection", "conditions": [ready]});
        let (client, written) = server(resource("EtcdUser", &spec, &status));
        let of = ("tenants", "app");
        let told = tell::<EtcdUser>(&client, of, now(1_800_000_000)).await;
        let told = told.expect("written").expect("news");
        assert_eq!((told.before.len(), told.after.len()), (1, 1));
        assert!(told.why.contains("all of them"), "{}", told.why);
        assert_eq!(told.about.name.as_deref(), Some("app"));
        let status = written.lock().expect("it").pop().expect("a status");
        // What is known of it beside that stays.
        assert_eq!(status["connectionSecret"], "app-connection");
        let condition = &status["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!("Invalid"))
        );
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(status["message"], condition["message"]);
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains("all of them"), "{message}");
        // It is said once.
        let again = tell::<EtcdUser>(&client, of, now(1_800_000_060)).await;
        assert!(again.expect("read").is_none());
        assert!(written.lock().expect("it").is_empty());
    }

    #[tokio::test]
    async fn a_role_without_a_status_too() {
        let spec = json!({"clusterRef": {"name": "demo"}, "permissions": {"prefix": "/"}});
        let (client, written) = server(resource("EtcdRole", &spec, &Value::Null));
        let told = tell::<EtcdRole>(&client, ("tenants", "app"), now(0)).await;
        assert!(told.expect("written").is_some());
        assert_eq!(
            written.lock().expect("it")[0]["conditions"][0]["reason"],
            "Invalid"
        );
    }

    /// A cache may be behind, and nothing is said of what has been corrected since.
    #[tokio::test]
    async fn one_that_was_corrected_is_left_alone() {
        let spec = json!({"clusterRef": {"name": "demo"}, "roles": ["reader"]});
        let (client, written) = server(resource("EtcdUser", &spec, &Value::Null));
        let told = tell::<EtcdUser>(&client, ("tenants", "app"), now(0)).await;
        assert!(told.expect("read").is_none());
        assert!(written.lock().expect("it").is_empty());
    }
}
