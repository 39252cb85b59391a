//! The ClusterTrustBundle with the CAs of a cluster's client port. It belongs to no namespace, so that no resource can own
//! it: an annotation says whose it is, and Kubernetes lets only those change it who may attest for its signer.

use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::crd::{
    ANNOTATION_BUILDER, ANNOTATION_OF_RESOURCE, MANAGER, ValidatedCluster, signer_name,
    trust_bundle_name,
};
use crate::plan::Owner;

use super::certificates::CERTIFICATE_COMPONENT;
use super::common::{BUILDER, labels, strings};

/// The label by which an operator finds those that it or another one published, and its value.
pub const TRUST_BUNDLES: (&str, &str) = ("app.kubernetes.io/managed-by", MANAGER);

/// The ClusterTrustBundle of a cluster, with these CAs (PEM).
pub fn trust_bundle(cluster: &ValidatedCluster, authorities: String) -> ClusterTrustBundle {
    let (namespace, name) = (&cluster.namespace, &cluster.name);
    let of = format!("{namespace}/{name}/{}", cluster.uid);
    ClusterTrustBundle {
        metadata: ObjectMeta {
            name: Some(trust_bundle_name(namespace, name)),
            labels: Some(labels(cluster, CERTIFICATE_COMPONENT)),
            annotations: Some(strings(&[
                (ANNOTATION_OF_RESOURCE, &of),
                (ANNOTATION_BUILDER, &BUILDER.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        spec: ClusterTrustBundleSpec {
            signer_name: Some(signer_name(namespace, name)),
            trust_bundle: authorities,
        },
    }
}

/// Namespace, name and UID of the resource that a ClusterTrustBundle goes with; `None` where Quorate did not publish it.
pub fn trust_bundle_of(metadata: &ObjectMeta) -> Option<(&str, &str, &str)> {
    let labels = metadata.labels.as_ref()?;
    if labels.get(TRUST_BUNDLES.0).map(String::as_str) != Some(TRUST_BUNDLES.1) {
        return None;
    }
    let of = metadata.annotations.as_ref()?.get(ANNOTATION_OF_RESOURCE)?;
    let mut parts = of.splitn(3, '/');
    let of = (parts.next()?, parts.next()?, parts.next()?);
    // Its name says the same: the annotation of another one leads to no cluster.
    let named = trust_bundle_name(of.0, of.1);
    (metadata.name.as_ref() == Some(&named)).then_some(of)
}

/// Whose a ClusterTrustBundle with a cluster's name is, for the resource with this UID.
pub fn owner_of_trust_bundle(metadata: &ObjectMeta, uid: &str) -> Owner {
    match trust_bundle_of(metadata) {
        Some((.., of)) if of == uid => Owner::Ours,
        Some(_) => Owner::EarlierLife,
        None => Owner::Unowned,
    }
}
