//! With which image a cluster's pods are made where the operator's own reference does not say it: a set that is applied again
//! keeps the one that it was made with, and members of another version than the operator's get the one that members of that
//! version have, rather than a tag that a mirror need not have. Reads what is cached; writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::context::Context;
use super::{drift, facts};
use crate::build::Settings;
use crate::crd::{ANNOTATION_IMAGE, ANNOTATION_VERSION, LABEL_CLUSTER_UID, ValidatedCluster};

impl Context {
    /// The settings by which this cluster's pods are made.
    pub(super) fn settings_of(&self, cluster: &ValidatedCluster) -> Settings {
        settings_of(cluster, &self.settings, || self.sets_of(cluster))
    }

    /// The settings by which this member's set is made.
    pub(super) fn settings_of_member(&self, cluster: &ValidatedCluster, member: &str) -> Settings {
        let found = self.caches.sets.get(&cluster.namespace, member);
        let made = found.and_then(|set| settings_of_set(cluster, &self.settings, &set));
        made.unwrap_or_else(|| self.settings_of(cluster))
    }

    fn sets_of(&self, cluster: &ValidatedCluster) -> Vec<Arc<StatefulSet>> {
        let life = [(LABEL_CLUSTER_UID, cluster.life.as_str())];
        self.caches.sets.of_any(&cluster.namespace, &life)
    }
}

fn is_owned_by(cluster: &ValidatedCluster, set: &StatefulSet) -> bool {
    let owners = set.owner_references();
    owners.iter().any(|owner| owner.uid == cluster.uid)
}

/// The settings that a set keeps when it is applied again. One that sleeps wakes as the operator makes sets now: what it was
/// made with may be gone by then. So it is with an image of a repository that the operator has left.
fn settings_of_set(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> Option<Settings> {
    let sleeps = set.spec.as_ref().and_then(|set| set.replicas) == Some(0);
    if sleeps || !is_owned_by(cluster, set) {
        return None;
    }
    let then = drift::settings_of_rendering(cluster, settings, set)?;
    let image = then.image.reference.to_string();
    settings.image.is_beside(&image).then_some(then)
}

fn settings_of(
    cluster: &ValidatedCluster,
    settings: &Settings,
    sets: impl FnOnce() -> Vec<Arc<StatefulSet>>,
) -> Settings {
    let mut settings = settings.clone();
    if settings.image.stands_for(cluster) {
        return settings;
    }
    let own = settings.image.reference.to_string();
    let mut kept = BTreeMap::<String, (usize, Option<Time>)>::new();
    for set in sets().iter().filter(|set| is_owned_by(cluster, set)) {
        let note = |name| facts::annotation(&set.metadata, name);
        let of_version = note(ANNOTATION_VERSION).as_ref() == Some(&cluster.spec.version);
        let image = note(ANNOTATION_IMAGE).filter(|_| of_version);
        // A mirror that was left may be gone. And what the operator runs now is of its own version, whatever it was before.
        let Some(image) = image.filter(|it| settings.image.is_beside(it) && *it != own) else {
            continue;
        };
        let (sets, newest) = kept.entry(image).or_default();
        *sets += 1;
        *newest = set.creation_timestamp().max(newest.take());
    }
    let kept = kept.into_iter().max_by_key(|(_, made)| made.clone());
    settings.image.kept = kept.map(|(image, _)| image);
    settings
}

#[cfg(test)]
#[path = "kept_image_test.rs"]
mod tests;
