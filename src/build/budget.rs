//! The disruption budget: no eviction is ever allowed of a pod that it is over, so a drain waits
//! until the operator has let the pod go, by a label that takes it out of the selection. One static
//! object: nothing to recompute, nothing to race.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{LABEL_RELEASED, ValidatedCluster, pdb_name};
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
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: LABEL_RELEASED.to_owned(),
                    operator: "DoesNotExist".to_owned(),
                    values: None,
                }]),
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
