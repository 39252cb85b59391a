//! A member's PVC: made by the operator and not by the set, so that growing is a patch
//! and a missing PVC is exact evidence.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::crd::{
    LABEL_CLAIM_STATE, LABEL_INCARNATION, RetentionPolicy, ValidatedCluster, pvc_name,
};
use crate::plan::PvcState;

use super::common::{member_labels, owner};

/// The PVC of a member of an incarnation, in the state that is recorded on it.
pub fn pvc(
    cluster: &ValidatedCluster,
    member: &str,
    incarnation: u64,
    state: PvcState,
) -> PersistentVolumeClaim {
    let storage = &cluster.spec.storage;
    let mut labels = member_labels(cluster, member);
    let recorded = match state {
        PvcState::New => None,
        PvcState::Joined => Some("joined"),
        PvcState::Retired => Some("retired"),
    };
    if let Some(recorded) = recorded {
        labels.insert(LABEL_CLAIM_STATE.to_owned(), recorded.to_owned());
    }
    // Absent for the first one, so that a cluster that was never recovered is made as it always was.
    if incarnation > 1 {
        labels.insert(LABEL_INCARNATION.to_owned(), incarnation.to_string());
    }
    let goes = storage.retention.when_deleted == RetentionPolicy::Delete;
    let owned = goes && state != PvcState::Retired;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(pvc_name(member, &cluster.life)),
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
