//! A member's StatefulSet as an earlier builder rendered it. A newer operator does not change such a StatefulSet until
//! its member's next roll, and detects edits by comparing with this rendering.

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::crd::{
    ANNOTATION_BUILDER, ANNOTATION_IMAGE, ANNOTATION_RENDERED, ANNOTATION_RESTART_INPUTS,
    ANNOTATION_VERSION, ValidatedCluster,
};

use super::common::{BUILDER, Settings, USER};
use super::pod::{SetOptions, asked_requirements, stateful_set};

/// The builder of release 0.1.0.
const FIRST: u32 = 1;

/// The set of a member as this builder made it; `None` for one that this release does not know.
///
/// The first builder did not record its rendering and its image, requested no resources that the user does not set, always set the
/// user of the processes, and named no Secrets of the operator's and no policy by which images are pulled.
pub fn stateful_set_by(
    builder: u32,
    cluster: &ValidatedCluster,
    settings: &Settings,
    member: &str,
    how: SetOptions,
) -> Option<StatefulSet> {
    if builder == BUILDER {
        return Some(stateful_set(cluster, settings, member, how));
    }
    if builder != FIRST {
        return None;
    }
    let mut settings = settings.clone();
    settings.user = Some(USER);
    settings.image.pull_secrets = Vec::new();
    let mut set = stateful_set(cluster, &settings, member, how);
    let template = set.spec.as_mut().map(|spec| {
        let pod = spec.template.spec.iter_mut();
        for container in pod.flat_map(|pod| &mut pod.containers) {
            container.resources = asked_requirements(cluster);
            container.image_pull_policy = None;
        }
        spec.template.metadata.get_or_insert_default()
    });
    for meta in template.into_iter().chain([&mut set.metadata]) {
        let annotations = meta.annotations.get_or_insert_default();
        for later in [
            ANNOTATION_RENDERED,
            ANNOTATION_RESTART_INPUTS,
            ANNOTATION_VERSION,
            ANNOTATION_IMAGE,
        ] {
            annotations.remove(later);
        }
        annotations.insert(ANNOTATION_BUILDER.to_owned(), FIRST.to_string());
    }
    Some(set)
}
