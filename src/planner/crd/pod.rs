//! The part of a pod that users may extend. What the operator sets itself (command, probes, volumes, security,
//! hostname) is not in the schema and is refused.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, Toleration, TopologySpreadConstraint,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Additions to the member pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// Further labels and annotations.
    pub metadata: PodMetadata,
    /// Further settings of the pods.
    pub spec: PodSpecSubset,
}

/// Further labels and annotations of the member pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("!has(self.labels) || self.labels.all(k, !k.startsWith('quorate.dev/') && !k.startsWith('app.kubernetes.io/'))", "podTemplate labels under quorate.dev/ and app.kubernetes.io/ are the operator's: choose other keys"), ("!has(self.annotations) || self.annotations.all(k, !k.startsWith('quorate.dev/'))", "podTemplate annotations under quorate.dev/ are the operator's: choose other keys")])))]
pub struct PodMetadata {
    /// Labels of the member pods, in addition to those of the operator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the member pods, in addition to those of the operator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub annotations: BTreeMap<String, String>,
}

/// Further settings of the member pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecSubset {
    /// Labels that a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate. As in Kubernetes: core/v1 Toleration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Affinity, in addition to the operator's own spreading. As in Kubernetes: core/v1 Affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::affinity")]
    pub affinity: Option<Affinity>,
    /// Spreading over further topologies; the operator adds the selector of the cluster's pods. As in
    /// Kubernetes: core/v1 TopologySpreadConstraint, without its selectors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::spread_constraints")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Name of the PriorityClass of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Secrets with the credentials of the image's registry. Without them and without `serviceAccountName`, an image of
    /// the operator's repository is pulled with Secrets of the names that the operator was given, if they are in this
    /// namespace. As in Kubernetes: core/v1 LocalObjectReference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::image_pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Service account of the pods; they need no access to the Kubernetes API and get no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Seconds that a member has to hand over before it is killed. Default 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 15 && self <= 3600", "terminationGracePeriodSeconds must be 15 to 3600: a member needs time to hand over its leadership")])))]
    pub termination_grace_period_seconds: Option<i64>,
}
