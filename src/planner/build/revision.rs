//! The specification that was last admitted, as a ControllerRevision of the resource: what the
//! cluster is kept by while a newer one is refused. Its name is a hash of what it holds, so it is
//! never changed, only followed by another one.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use crate::crd::{EtcdClusterSpec, ValidatedCluster};

use super::common::{hash, metadata};

/// Hash of a cluster's specification.
pub fn spec_hash(cluster: &ValidatedCluster) -> String {
    hash_of_spec(&cluster.spec)
}

/// Hash of a specification. `paused` does not count: nothing is rendered from it.
pub fn hash_of_spec(spec: &EtcdClusterSpec) -> String {
    let spec = EtcdClusterSpec {
        paused: false,
        ..spec.clone()
    };
    hash(&json!(spec))
}

/// The revision that holds this specification.
pub fn revision(cluster: &ValidatedCluster) -> ControllerRevision {
    let spec = EtcdClusterSpec {
        paused: false,
        ..cluster.spec.clone()
    };
    let name = format!("{}-spec-{}", cluster.name, spec_hash(cluster));
    ControllerRevision {
        metadata: metadata(cluster, name, ""),
        data: Some(RawExtension(json!({ "spec": spec }))),
        revision: cluster.generation,
    }
}

/// The specification that a revision holds; `None` where it is none of ours, or cannot be read by
/// this version.
pub fn spec_of(revision: &ControllerRevision) -> Option<EtcdClusterSpec> {
    let spec = revision.data.as_ref()?.0.get("spec")?;
    serde_json::from_value(spec.clone()).ok()
}
