//! A member's PVC: made by the operator and not by the set, so that growing is a patch
//! and a missing PVC is exact evidence.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::crd::{
    ANNOTATION_STORAGE, LABEL_CLAIM_STATE, LABEL_INCARNATION, RetentionPolicy, ValidatedCluster,
    bytes_of, pvc_name,
};
use crate::plan::{AskedStorage, PvcState};

use super::common::{member_labels, owner};

/// The size of a PVC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvcSize {
    /// Bytes that it requests.
    pub bytes: u64,
    /// Of those, what the specification asks for.
    pub asked: u64,
}

/// The PVC of a member of an incarnation, in the state that is recorded on it.
pub fn pvc(
    cluster: &ValidatedCluster,
    member: &str,
    incarnation: u64,
    state: PvcState,
    size: PvcSize,
) -> PersistentVolumeClaim {
    let storage = &cluster.spec.storage;
    let requested = size_in_words(cluster, size.bytes);
    let asked = AskedStorage {
        bytes: size.asked,
        class: storage.storage_class_name.clone(),
    };
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
            annotations: Some(
                [(
                    ANNOTATION_STORAGE.to_owned(),
                    asked_storage(cluster, &asked),
                )]
                .into(),
            ),
            owner_references: owned.then(|| vec![owner(cluster, false)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(requested))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// A number of bytes as a quantity: `storage.size` as it is written where it is that many, else in Mi where it is whole.
pub fn size_in_words(cluster: &ValidatedCluster, bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes == cluster.storage_bytes {
        cluster.spec.storage.size.clone()
    } else if bytes.is_multiple_of(MIB) {
        format!("{}Mi", bytes / MIB)
    } else {
        bytes.to_string()
    }
}

/// What is recorded on a PVC: what the specification asks of its volume.
pub fn asked_storage(cluster: &ValidatedCluster, asked: &AskedStorage) -> String {
    let mut record = json!({"size": size_in_words(cluster, asked.bytes)});
    if let Some(class) = &asked.class {
        record["storageClassName"] = json!(class);
    }
    record.to_string()
}

/// Reads it; `None` where it is not ours or was edited: then nothing counts as recorded.
pub fn read_asked_storage(text: &str) -> Option<AskedStorage> {
    let asked: Value = serde_json::from_str(text).ok()?;
    let class = match asked.get("storageClassName") {
        None => None,
        Some(class) => Some(class.as_str()?.to_owned()),
    };
    let bytes = bytes_of(asked.get("size")?.as_str()?).ok()?;
    Some(AskedStorage { bytes, class })
}
