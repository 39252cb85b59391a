//! A mutating webhook as a service mesh has one: the pods of members get a container and an init container more, a volume, a
//! label and an annotation. It changes no other object.

use serde_json::{Value, json};

use super::object::{self, put};
use crate::crd::LABEL_MEMBER;

/// The container that is added. It comes first.
pub(in crate::opsim) const SIDECAR: &str = "mesh-proxy";
/// The init container that is added.
pub(in crate::opsim) const SIDECAR_INIT: &str = "mesh-init";

pub(super) fn admit(pod: &mut Value) {
    if object::label(pod, LABEL_MEMBER).is_none() {
        return;
    }
    let image = "registry.example/mesh:1";
    let mount = json!([{"name": "mesh-envoy", "mountPath": "/etc/mesh"}]);
    let resources =
        json!({"requests": {"cpu": "10m", "memory": "40Mi"}, "limits": {"memory": "1Gi"}});
    let proxy = json!({"name": SIDECAR, "image": image, "args": ["proxy", "--name=other"],
        "resources": resources, "volumeMounts": mount});
    let containers = object::items(pod, &["spec", "containers"]);
    let containers: Vec<Value> = [proxy]
        .into_iter()
        .chain(containers.iter().cloned())
        .collect();
    pod["spec"]["containers"] = json!(containers);
    pod["spec"]["initContainers"] =
        json!([{"name": SIDECAR_INIT, "image": image, "args": ["init"]}]);
    let mut volumes = object::items(pod, &["spec", "volumes"]).to_vec();
    volumes.push(json!({"name": "mesh-envoy", "emptyDir": {}}));
    pod["spec"]["volumes"] = json!(volumes);
    put(
        pod,
        &["metadata", "labels", "mesh.example/rev"],
        json!("default"),
    );
    let status = json!(r#"{"containers":["mesh-proxy"]}"#);
    put(
        pod,
        &["metadata", "annotations", "mesh.example/status"],
        status,
    );
}
