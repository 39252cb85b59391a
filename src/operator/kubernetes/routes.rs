//! To which pods a cluster's Services send clients, by their EndpointSlices: a pod that became unready
//! is still sent some until Kubernetes has written that down. Reads; decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::Api;

use super::observe::live;
use super::platform::OneCluster;
use super::{facts, related_objects};
use crate::crd::{client_service_name, slot_number};
use crate::operator::platform::{Failure, Freshness};
use crate::plan::Description;

/// Names the Service of a slice.
const SERVICE: &str = "kubernetes.io/service-name";

impl OneCluster {
    /// Members that clients are still sent to, where some member sends its own away: before, nothing
    /// is decided on it. `None` where the operator may not see it.
    pub(super) async fn routed(
        &self,
        freshness: Freshness,
        pods: &BTreeMap<String, Arc<Pod>>,
        descriptions: &BTreeMap<String, Description>,
    ) -> Result<Option<BTreeSet<String>>, Failure> {
        let slices = &self.shared.caches.slices;
        if slices.is_denied() {
            return Ok(None);
        }
        let leaves = |description: &Description| description.retiring_ms.is_some();
        if !descriptions.values().any(leaves) {
            return Ok(Some(BTreeSet::new()));
        }
        let slices = match freshness {
            Freshness::Live => {
                let api = Api::namespaced(self.shared.client.clone(), &self.key.0);
                match live(api, &self.of_name()).await {
                    // The permission was revoked, and the watch has not noticed it yet.
                    Err(Failure::Refused(_)) => return Ok(None),
                    slices => slices?,
                }
            }
            Freshness::Cached => related_objects::of_name(slices, &self.key),
        };
        let routed = routed(&slices, &self.key.1);
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        let members = pods.iter().filter(|(_, pod)| routed.contains(&uid(pod)));
        Ok(Some(members.map(|(member, _)| member.clone()).collect()))
    }
}

/// UIDs of the pods to which the client Services route. The peers' Service has every member, ready or not, and is not
/// for clients.
fn routed(slices: &[Arc<EndpointSlice>], cluster: &str) -> BTreeSet<String> {
    let common = client_service_name(cluster);
    let for_clients = |slice: &&Arc<EndpointSlice>| {
        let service = facts::label(&slice.metadata, SERVICE);
        service.is_some_and(|name| name == common || slot_number(cluster, &name).is_some())
    };
    // An endpoint without a ready condition counts as ready.
    let ready = |endpoint: &&Endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    };
    let slices = slices.iter().filter(for_clients);
    let endpoints = slices.flat_map(|slice| &slice.endpoints).filter(ready);
    endpoints
        .filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::kubernetes::pruned::Prune as _;

    fn slice(service: &str, endpoints: &Value) -> Arc<EndpointSlice> {
        let slice = json!({
            "metadata": {"name": service, "labels": {SERVICE: service}},
            "addressType": "IPv4", "endpoints": endpoints,
        });
        Arc::new(serde_json::from_value(slice).expect("a slice"))
    }

    fn endpoint(uid: &str, conditions: Value) -> Value {
        json!({"addresses": ["10.0.0.1"], "conditions": conditions,
            "targetRef": {"kind": "Pod", "name": uid, "uid": uid}})
    }

    #[test]
    fn only_ready_client_endpoints_count() {
        let slices = [
            slice(
                "demo-client",
                &json!([
                    endpoint("ready", json!({"ready": true})),
                    endpoint("unready", json!({"ready": false})),
                    endpoint("unsaid", json!({})),
                ]),
            ),
            slice(
                "demo-client-1",
                &json!([endpoint("slot", json!({"ready": true}))]),
            ),
            slice(
                "demo-peers",
                &json!([endpoint("peer", json!({"ready": true}))]),
            ),
            slice(
                "other-client",
                &json!([endpoint("other", json!({"ready": true}))]),
            ),
            slice(
                "demo-client-x",
                &json!([endpoint("stray", json!({"ready": true}))]),
            ),
        ];
        let found: Vec<String> = routed(&slices, "demo").into_iter().collect();
        assert_eq!(found, ["ready", "slot", "unsaid"]);
        // As they are cached.
        let kept = slices.map(|slice| {
            let mut kept = (*slice).clone();
            kept.prune();
            assert!(kept.endpoints.iter().all(|one| one.addresses.is_empty()));
            Arc::new(kept)
        });
        let found: Vec<String> = routed(&kept, "demo").into_iter().collect();
        assert_eq!(found, ["ready", "slot", "unsaid"]);
    }
}
