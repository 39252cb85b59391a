//! A member's volume claim: made by the operator and not by the set, so that growing is a patch
//! and a missing claim is exact evidence.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::crd::{LABEL_CLAIM_STATE, RetentionPolicy, ValidatedCluster, claim_name};
use crate::plan::ClaimState;

use super::common::{member_labels, owner};

/// The claim of a member, in the state that is recorded on it.
pub fn claim(cluster: &ValidatedCluster, member: &str, state: ClaimState) -> PersistentVolumeClaim {
    let storage = &cluster.spec.storage;
    let mut labels = member_labels(cluster, member);
    let recorded = match state {
        ClaimState::New => None,
        ClaimState::Joined => Some("joined"),
        ClaimState::Retired => Some("retired"),
    };
    if let Some(recorded) = recorded {
        labels.insert(LABEL_CLAIM_STATE.to_owned(), recorded.to_owned());
    }
    let goes = storage.retention.when_deleted == RetentionPolicy::Delete;
    let owned = goes && state != ClaimState::Retired;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(member, &cluster.uid)),
            namespace: Some(cluster.namespace.clone()),
            labels: Some(labels),
            owner_references: owned.then(|| vec![owner(cluster, false)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(storage.size.clone()))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
