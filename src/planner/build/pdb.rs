//! The PDB, one object a cluster under every policy.
//!
//! Under `Gate` it never allows an eviction of a pod that it selects, so a drain waits until the operator has released
//! the pod, by a label that removes it from the selection: one static object, nothing to recompute, no races.
//!
//! Under `Budget` it names how many members have to stay available, which the plan decides. What
//! counts as available is a ready pod, and only voters that do not retire are ready: newcomers,
//! removed members and those that send their clients away count for nothing.
//!
//! Under `Auto` it is the gate, or names all members but one, which the plan decides too.
//!
//! All select the same pods, so a change of policy is one write of one object, and at each moment one of them
//! applies. A pod that was released by its label under `Gate` is selected by neither: it does not count as available
//! and is not matched twice. Once the policy is `Budget`, the label is removed first, while `Gate` still applies; from
//! then on no pod gets it.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{LABEL_RELEASED, ValidatedCluster, pdb_name};
use crate::plan::{ObjectKind, PdbLimit};

use super::common::{inputs_of, metadata, selector};

/// The PDB for all member pods: no eviction of one that was not released.
pub fn pdb_without_evictions(cluster: &ValidatedCluster) -> PodDisruptionBudget {
    pdb(cluster, PdbLimit::CLOSED)
}

/// The PDB over all member pods, with this limit.
pub fn pdb(cluster: &ValidatedCluster, limit: PdbLimit) -> PodDisruptionBudget {
    let pods = |pods: u32| Some(IntOrString::Int(i32::try_from(pods).unwrap_or(i32::MAX)));
    let (min_available, max_unavailable) = match limit {
        PdbLimit::MinAvailable(least) => (pods(least), None),
        PdbLimit::MaxUnavailable(most) => (None, pods(most)),
    };
    let spec = PodDisruptionBudgetSpec {
        min_available,
        max_unavailable,
        ..PodDisruptionBudgetSpec::default()
    };
    over_members(cluster, spec)
}

fn over_members(cluster: &ValidatedCluster, spec: PodDisruptionBudgetSpec) -> PodDisruptionBudget {
    let name = pdb_name(&cluster.name);
    let inputs = inputs_of(cluster, ObjectKind::PodDisruptionBudget, &name);
    PodDisruptionBudget {
        metadata: metadata(cluster, name, &inputs),
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(LabelSelector {
                match_labels: Some(selector(cluster)),
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: LABEL_RELEASED.to_owned(),
                    operator: "DoesNotExist".to_owned(),
                    values: None,
                }]),
            }),
            ..spec
        }),
        status: None,
    }
}
