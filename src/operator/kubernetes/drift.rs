//! Manual edits: whether an object still is as it was rendered. The rendered fields are compared one by one; fields
//! that others add, and that the API server defaults, are ignored. Reads and caches; the plan decides about an edit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PodSpec;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use super::facts;
use crate::build::{self, SetOptions, Settings};
use crate::crd::{
    ANNOTATION_BUILDER, ANNOTATION_IMAGE, ANNOTATION_INPUTS, ANNOTATION_RENDERED, ImageReference,
    ValidatedCluster, bytes_of,
};
use crate::mutants::mutant;
use crate::operator::clock::{Clock, Moment};

/// Minimum time between two reverts of one object: repeated edits do not keep the operator busy.
const AGAIN: Duration = Duration::from_secs(2);

/// What is known of the objects of a cluster; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By kind and name: for which version of the object, by which specification, and whether it was edited. One
    /// generation may be evaluated with two specifications: the current one, and, if that is refused, the one admitted
    /// last.
    judged: BTreeMap<String, (String, String, bool)>,
    /// By kind and name: fields that admission always changes, whatever is applied.
    kept: BTreeMap<String, BTreeSet<String>>,
    /// When an object was last written.
    written: BTreeMap<String, Moment>,
}

impl Known {
    /// Whether an object was edited; `rendered` is what it would be rendered as.
    pub(super) fn is_edited<K>(
        &self,
        live: &K,
        specification: &str,
        rendered: impl FnOnce() -> Option<K>,
    ) -> bool
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let (key, version) = (key(live), live.resource_version().unwrap_or_default());
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = inner.written.get(&key);
        if mutant!(EditsStay) || recent.is_some_and(|at| at.elapsed() < AGAIN) {
            return false;
        }
        if let Some((of, under, edited)) = inner.judged.get(&key)
            && of == &version
            && under == specification
            && !version.is_empty()
        {
            return *edited;
        }
        let kept = inner.kept.get(&key);
        let edited = rendered().is_some_and(|rendered| {
            let differ = differ(&rendered, live);
            differ
                .iter()
                .any(|path| kept.is_none_or(|kept| !kept.contains(path)))
        });
        let under = specification.to_owned();
        inner.judged.insert(key, (version, under, edited));
        edited
    }

    /// Whether an observation that began then may have passed an edit over, for it came right after an own write. What counts
    /// is when the objects were looked at, and not when this is asked, which is after the members have answered.
    pub(super) fn passed_over(&self, began: &Moment) -> bool {
        let ago = match mutant!(EditsPassedOver) {
            true => Duration::ZERO,
            false => began.elapsed(),
        };
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = inner.written.values();
        written.any(|at| at.elapsed() < AGAIN + ago)
    }

    /// An object was applied, and this is what the API server made of it. What it changed at once it
    /// would change again.
    pub(super) fn made<K>(&self, rendered: &K, stored: &K, clock: &Clock)
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let differ = differ(rendered, stored);
        let key = key(stored);
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if differ.is_empty() {
            inner.kept.remove(&key);
        } else {
            tracing::info!(object = %key, fields = ?differ, "the API server keeps other values than were applied");
            inner.kept.insert(key.clone(), differ);
        }
        inner.judged.remove(&key);
        inner.written.insert(key, clock.now());
    }
}

/// What a member's set would be made as again, by the builder that made it; `None` where the operator would make it
/// otherwise by now, for another spec: then only the member's next roll changes it.
pub(super) fn set_as_made(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> Option<StatefulSet> {
    if rendered(set).is_some() {
        let (_, made) = settings_and_rendering(cluster, settings, set)?;
        return Some(made);
    }
    // Its rendering is not recorded: neither in the first builder's StatefulSets, nor if the annotation was removed.
    // Its inputs are recorded, and the closest rendering counts.
    if !is_of_this_spec(cluster, set) {
        return None;
    }
    let ways = ways(cluster, settings, set).map(|mut way| {
        if cluster.spec.image.is_none() {
            keep_repository(&mut way, set, &cluster.spec.version);
        }
        way
    });
    ways.min_by_key(|way| differ(way, set).len())
}

/// The operator's settings when it made this set, if it recorded that, and the spec has been the same since. What is applied
/// again is applied with them: another image reaches a member with its next roll, and not because somebody edited its set.
pub(super) fn settings_of_rendering(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> Option<Settings> {
    if !is_of_this_spec(cluster, set) {
        return None;
    }
    let (settings, _) = settings_and_rendering(cluster, settings, set)?;
    Some(settings)
}

fn settings_and_rendering(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> Option<(Settings, StatefulSet)> {
    let made = rendered(set)?;
    // Of another spec it is none of those, or as it would be made now.
    let most = match is_of_this_spec(cluster, set) {
        true => usize::MAX,
        false => 1,
    };
    let then = settings_then(cluster, settings, set).into_iter();
    then.take(most).find_map(|settings| {
        let way =
            ways(cluster, &settings, set).find(|way| rendered(way).as_ref() == Some(&made))?;
        Some((settings, way))
    })
}

fn is_of_this_spec(cluster: &ValidatedCluster, set: &StatefulSet) -> bool {
    let inputs = facts::annotation(&set.metadata, ANNOTATION_INPUTS);
    inputs.as_ref() == Some(&build::wanted_inputs(cluster))
}

fn rendered(set: &StatefulSet) -> Option<String> {
    facts::annotation(&set.metadata, ANNOTATION_RENDERED)
}

/// How it was made follows from what was seen then.
fn ways(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> impl Iterator<Item = StatefulSet> {
    let member = set.name_any();
    let by = builder_of(set).unwrap_or(build::BUILDER);
    (0..8u8).filter_map(move |bits| {
        let how = SetOptions {
            one_per_node: bits & 1 != 0,
            hibernated: bits & 2 != 0,
            plaintext_peers: bits & 4 != 0,
        };
        build::stateful_set_by(by, cluster, settings, &member, how)
    })
}

/// The settings that the operator may have had when it made a set: those of now first, with another image, and with other
/// Secrets for it.
fn settings_then(
    cluster: &ValidatedCluster,
    settings: &Settings,
    set: &StatefulSet,
) -> Vec<Settings> {
    let mut all = vec![settings.clone()];
    let Some(pod) = pod_of(set).filter(|_| !mutant!(EarlierImageHides)) else {
        return all;
    };
    // As it is recorded, in case that it was edited in the pod's template; where none is, as it is there.
    let recorded = facts::annotation(&set.metadata, ANNOTATION_IMAGE);
    let named = build::container_image(Some(pod)).map(str::to_owned);
    let mut images: Vec<String> = recorded.into_iter().chain(named).collect();
    images.dedup();
    for reference in images.iter().filter_map(|image| image.parse().ok()) {
        let mut then = settings.clone();
        then.image.reference = reference;
        then.image.version.clone_from(&cluster.spec.version);
        all.push(then);
    }
    let secrets = pod.image_pull_secrets.iter().flatten();
    let secrets: Vec<String> = secrets.map(|one| one.name.clone()).collect();
    for index in 0..all.len() {
        let mut then = all[index].clone();
        then.image.pull_secrets.clone_from(&secrets);
        all.push(then);
    }
    all
}

/// The repository of an image that the resource does not name is a setting of the operator that made the set, and may be
/// another one by now: only the tag counts then. Sets without a recorded rendering are those of the first builder, whose
/// images had the version as their tag.
fn keep_repository(way: &mut StatefulSet, live: &StatefulSet, version: &str) {
    let image = build::container_image(pod_of(live));
    let by_version = |image: &&str| {
        let image = image.parse::<ImageReference>();
        image.is_ok_and(|image| image.tag() == Some(version) && image.digest().is_none())
    };
    let Some(image) = image.filter(by_version) else {
        return;
    };
    let pod = way.spec.as_mut().and_then(|set| set.template.spec.as_mut());
    let ours = pod.into_iter().flat_map(|pod| &mut pod.containers);
    for one in ours.filter(|one| one.name == build::CONTAINER) {
        one.image = Some(image.to_owned());
    }
}

fn pod_of(set: &StatefulSet) -> Option<&PodSpec> {
    set.spec.as_ref()?.template.spec.as_ref()
}

/// Which builder rendered an object, as far as recorded.
fn builder_of<K: Resource>(object: &K) -> Option<u32> {
    facts::annotation(object.meta(), ANNOTATION_BUILDER)?
        .parse()
        .ok()
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}

/// The fields that are rendered and not so. None of an object that a newer release rendered. Sets that
/// an older one rendered are compared with what that was; all other kinds have been the same since the
/// first builder, but for its number.
fn differ<K: Resource<DynamicType = ()> + Serialize>(rendered: &K, live: &K) -> BTreeSet<String> {
    let mut differ = BTreeSet::new();
    let (by, of) = (builder_of(live), builder_of(rendered));
    if by > of || by < of && mutant!(EarlierUnseen) {
        return differ;
    }
    let (Ok(rendered_json), Ok(live_json)) =
        (serde_json::to_value(rendered), serde_json::to_value(live))
    else {
        return differ;
    };
    for path in ["labels", "annotations", "ownerReferences"] {
        let wanted = &rendered_json["metadata"][path];
        let found = &live_json["metadata"][path];
        compare(&format!("metadata.{path}"), wanted, found, &mut differ);
    }
    compare(
        "spec",
        &rendered_json["spec"],
        &live_json["spec"],
        &mut differ,
    );
    if by.is_some_and(|by| by > 0) && by < of {
        differ.remove(&format!("metadata.annotations.{ANNOTATION_BUILDER}"));
    }
    differ
}

fn compare(path: &str, wanted: &Value, found: &Value, differ: &mut BTreeSet<String>) {
    let same = match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, wanted) in wanted {
                let found = found.get(key).unwrap_or(&Value::Null);
                compare(&format!("{path}.{key}"), wanted, found, differ);
            }
            // A selector with an additional term selects something else.
            let whole = path == "spec.selector" || path.starts_with("spec.selector.");
            !whole || wanted.len() == found.len()
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let name = |one: &Value| one["name"].as_str().map(str::to_owned);
            if !wanted.is_empty() && wanted.iter().chain(found).all(|one| name(one).is_some()) {
                for wanted in wanted {
                    let named = name(wanted).unwrap_or_default();
                    let other = found.iter().find(|one| name(one).as_ref() == Some(&named));
                    let found = other.unwrap_or(&Value::Null);
                    compare(&format!("{path}[{named}]"), wanted, found, differ);
                }
                true
            } else {
                for (at, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                    compare(&format!("{path}[{at}]"), wanted, found, differ);
                }
                wanted.len() == found.len()
            }
        }
        // An explicit empty value: the API server omits it.
        (Value::Array(wanted), Value::Null) => wanted.is_empty(),
        (Value::Object(wanted), Value::Null) => wanted.is_empty(),
        (Value::String(wanted), Value::Null) => wanted.is_empty(),
        (Value::Bool(wanted), Value::Null) => !wanted,
        (Value::Null, _) => true,
        (wanted, found) => wanted == found || same_quantity(wanted, found),
    };
    if !same {
        differ.insert(path.to_owned());
    }
}

/// Whether two texts are one quantity: the API server writes `1024Mi` as `1Gi`.
fn same_quantity(wanted: &Value, found: &Value) -> bool {
    let thousandths = |value: &Value| {
        let text = value.as_str()?;
        let text = text.strip_suffix('m').unwrap_or(text);
        let scale = if Some(text) == value.as_str() {
            1000
        } else {
            1
        };
        bytes_of(text).ok()?.checked_mul(scale)
    };
    // A fraction of a unit counts in thousandths, whether it is written so or with a point.
    let exact = |value: &Value| {
        let text = value.as_str()?;
        match text.split_once('.') {
            Some((whole, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit()) => {
                let digits: u64 = format!("{whole}{fraction:0<3}").parse().ok()?;
                (fraction.len() <= 3).then_some(digits)
            }
            _ => thousandths(value),
        }
    };
    exact(wanted).is_some_and(|wanted| exact(found) == Some(wanted))
}

#[cfg(test)]
#[path = "drift_test.rs"]
mod tests;
