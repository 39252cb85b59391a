//! The disruption budget: no eviction is ever allowed, so a drain waits until the operator itself
//! has let the pod go. One static object: nothing to recompute, nothing to race.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{ValidatedCluster, pdb_name};
use crate::plan::ObjectKind;

use super::common::{inputs_of, metadata, selector};

/// The budget over all member pods.
pub fn budget(cluster: &ValidatedCluster) -> PodDisruptionBudget {
    let name = pdb_name(&cluster.name);
    let inputs = inputs_of(cluster, ObjectKind::PodDisruptionBudget, &name);
    PodDisruptionBudget {
        metadata: metadata(cluster, name, &inputs),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(0)),
            selector: Some(LabelSelector {
                match_labels: Some(selector(cluster)),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
