//! Which image a cluster's servers and Jobs run, and with which Secrets it is pulled: what `spec.image` names, or the
//! operator's own where the cluster is to have the operator's version, or else the one that its members were last made
//! with, or the one of the same repository whose tag is that version. Never guesses what an image contains: that its servers report.

use k8s_openapi::api::core::v1::LocalObjectReference;

use super::common::Settings;
use crate::crd::{ImageReference, ValidatedCluster};
use crate::mutants::mutant;

/// The operator's own image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnImage {
    /// As the operator was told.
    pub reference: ImageReference,
    /// What it contains: the version of the operator that runs.
    pub version: String,
    /// Secrets for it. Pods can use only those of their own namespace.
    pub pull_secrets: Vec<String>,
    /// The image that the cluster's members of its version have, where that version is not the operator's. `None` where
    /// none is known: then the version's own tag is taken.
    pub kept: Option<String>,
}

impl OwnImage {
    /// The image of this release, pulled without Secrets.
    #[must_use]
    pub fn of(reference: ImageReference) -> Self {
        OwnImage {
            reference,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pull_secrets: Vec::new(),
            kept: None,
        }
    }

    /// Whether a cluster's servers run an image that its resource or the operator's own reference says alone.
    #[must_use]
    pub fn stands_for(&self, cluster: &ValidatedCluster) -> bool {
        cluster.spec.image.is_some() || cluster.spec.version == self.version
    }

    /// The image of a version. No digest and no other tag stands for another version than the operator's.
    fn of_version(&self, version: &str) -> String {
        let named = self.reference.tag().or(self.reference.digest()).is_some();
        let own = version == self.version && !mutant!(OwnImageForgotten);
        if named && (own || mutant!(OneImageForAll)) {
            return self.reference.to_string();
        }
        if let Some(kept) = self.kept.as_ref().filter(|_| !own) {
            return kept.clone();
        }
        format!("{}:{version}", self.reference.repository())
    }

    /// Whether an image comes from where this one comes from.
    #[must_use]
    pub fn is_beside(&self, image: &str) -> bool {
        let image = image.parse::<ImageReference>();
        image.is_ok_and(|image| image.repository() == self.reference.repository())
    }
}

/// The image of a cluster's servers.
pub(super) fn cluster_image(cluster: &ValidatedCluster, settings: &Settings) -> String {
    let image = cluster.spec.image.clone();
    image.unwrap_or_else(|| settings.image.of_version(&cluster.spec.version))
}

/// When kubelets pull an image: as Kubernetes has it where nothing is said, but for a digest beside `latest`, which cannot move.
/// It is said all the same: a set keeps what was filled in for the first image that it had.
pub(super) fn pull_policy(image: &str) -> String {
    let moves = |image: &ImageReference| {
        image.digest().is_none() && image.tag().is_none_or(|tag| tag == "latest")
    };
    let always = image.parse().is_ok_and(|image| moves(&image));
    if always { "Always" } else { "IfNotPresent" }.to_owned()
}

/// The Secrets with which it is pulled: the resource's, or for an image of the operator's repository the operator's, of
/// the same names in the cluster's namespace. A ServiceAccount that the resource names brings its own, which Kubernetes
/// adds only to a pod that names none.
pub(super) fn pull_secrets(
    cluster: &ValidatedCluster,
    settings: &Settings,
) -> Option<Vec<LocalObjectReference>> {
    let user = &cluster.spec.pod_template.spec;
    if !user.image_pull_secrets.is_empty() {
        return Some(user.image_pull_secrets.clone());
    }
    let own = &settings.image;
    let beside = own.is_beside(&cluster_image(cluster, settings)) || mutant!(SecretsForAnyImage);
    if own.pull_secrets.is_empty() || !beside || user.service_account_name.is_some() {
        return None;
    }
    let names = own.pull_secrets.iter();
    let named = names.map(|name| LocalObjectReference { name: name.clone() });
    Some(named.collect())
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
