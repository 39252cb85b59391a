//! PodCertificateRequest of certificates.k8s.io/v1, as far as a signer reads it. Of our own, because the types that are used for
//! everything else are those of an older Kubernetes, which had the kind as another version.
//!
//! Never decides anything about one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::Resource;
use serde::Deserialize;

/// One.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodCertificateRequest {
    metadata: ObjectMeta,
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

/// What a kubelet requests; nothing of it changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) signer_name: String,
    #[serde(rename = "podUID")]
    pub(super) pod_uid: String,
    pub(super) service_account_name: String,
    pub(super) node_name: String,
    #[serde(default)]
    pub(super) max_expiration_seconds: Option<i32>,
    /// A certificate signing request (PKCS #10, DER), of which the API server has verified the signature.
    #[serde(rename = "stubPKCS10Request", default)]
    pub(super) request: ByteString,
    #[serde(default)]
    pub(super) unverified_user_annotations: BTreeMap<String, String>,
}

/// How it was answered.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
}

impl Resource for PodCertificateRequest {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PodCertificateRequest".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "certificates.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "podcertificaterequests".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
