//! Volumes grow before they are full, where the spec asks for it: one first, and the others when its volume has grown.
//! The size that was reached is what the PVCs request; `storage.size` stays the user's.

use crate::crd::Growth;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Exit, PvcFacts};
use crate::plan::situation::Situation;

/// A description that is older may be of the time before the volume grew.
const NEW_MS: u64 = 3_000;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let Some(growth) = s.cluster.autogrow() else {
        return;
    };
    let kept = s.seated_pvcs();
    let kept = kept.filter(|(_, pvc)| pvc.bound && !pvc.terminating && !s.becomes_smaller(pvc));
    let kept: Vec<(&str, &PvcFacts)> = kept.collect();
    let grows = |(_, pvc): &&(&str, &PvcFacts)| pvc.storage.capacity_bytes < pvc.requested_bytes;
    if let Some((name, pvc)) = kept.iter().find(grows) {
        return unfinished(s, draft, name, pvc);
    }
    let largest = kept.iter().map(|(_, pvc)| pvc.requested_bytes).max();
    let reached = largest.unwrap_or(0).min(growth.max);
    let behind = |(_, pvc): &&(&str, &PvcFacts)| pvc.requested_bytes < reached;
    if let Some((name, pvc)) = kept.iter().find(behind) {
        return grow(s, draft, (name, pvc), reached, "another volume has grown");
    }
    let full = kept
        .iter()
        .filter(|(name, pvc)| is_full(s, growth, name, pvc));
    let at_max: Vec<&str> = full
        .clone()
        .filter(|(_, pvc)| pvc.requested_bytes >= growth.max)
        .map(|(name, _)| *name)
        .collect();
    if !at_max.is_empty() {
        draft.note(
            "VolumeAtMax",
            format!(
                "the volume of {} is fuller than {} % and grows no more: storage.autogrow.max is reached. Raise it, delete keys and compact, or remove what else lies on the volume",
                at_max.join(", "),
                growth.at
            ),
        );
    }
    let mut due = full.filter(|(_, pvc)| pvc.requested_bytes < growth.max);
    if let Some((name, pvc)) = due.next() {
        let bytes = growth.next(pvc.requested_bytes);
        let why = format!("it is fuller than {} %", growth.at);
        grow(s, draft, (name, pvc), bytes, &why);
    }
}

/// A volume that is not as large as requested yet, or will not be.
fn unfinished(s: &Situation<'_>, draft: &mut Draft, name: &str, pvc: &PvcFacts) {
    if let Some(why) = &pvc.storage.resize_problem {
        let text = format!(
            "PVC {} of {name} does not become as large as requested: {why}. See its events; the volumes grow on when it has grown",
            s.pvc_name(name)
        );
        draft.stall("VolumeNotGrown", text);
        return;
    }
    let what = format!("the volume of {name} to become as large as requested");
    draft.wait("GrowPVC", name, "Resizing", what);
}

fn is_full(s: &Situation<'_>, growth: Growth, name: &str, pvc: &PvcFacts) -> bool {
    // Its server does not run because its disk is full.
    let pod = s.o.pods.get(name);
    let ended =
        pod.is_some_and(|pod| pod.started_ms.is_none() && pod.last_exit == Some(Exit::DiskFull));
    let description = s.description(name);
    let description = description.filter(|it| !it.unsigned && it.age_ms <= NEW_MS);
    let space = description.and_then(|it| it.space);
    let size = pvc.storage.capacity_bytes;
    ended || space.is_some_and(|space| size > 0 && growth.is_due(size, space.free))
}

fn grow(
    s: &Situation<'_>,
    draft: &mut Draft,
    (name, pvc): (&str, &PvcFacts),
    bytes: u64,
    why: &str,
) {
    let class = pvc.storage.class.as_ref();
    let class = class.and_then(|class| Some((class, s.o.classes.get(class)?)));
    if let Some((class, _)) = class.filter(|(_, facts)| !facts.expands) {
        let text = format!(
            "storage.autogrow asks for a larger volume of {name}, because {why}, and its storage class {class} does not let volumes grow: set allowVolumeExpansion in the class, or storage.storageClassName to one that does"
        );
        draft.stall("VolumeNotGrown", text);
        return;
    }
    let action = Action::Object(ObjectAction::GrowPvc {
        pvc: s.pvc_name(name),
        uid: pvc.uid.clone(),
        bytes,
        asked: None,
    });
    draft.step(Rule::Objects, action, format!("storage.autogrow: {why}"));
}
