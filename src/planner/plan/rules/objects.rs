//! Services, Secret, PDB, and the PVCs' size and owner. They need no
//! quorum and hold nothing.

use crate::crd::RetentionPolicy;
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{ObjectKind, PvcState};
use crate::plan::situation::Situation;

/// Every object that is not a member's.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    apply(s, draft, |_| true);
}

/// The PDB alone.
pub(super) fn pdb_only(s: &Situation<'_>, draft: &mut Draft) {
    apply(s, draft, |kind| kind == ObjectKind::PodDisruptionBudget);
}

/// Only objects that request certificates.
pub(super) fn certificates_only(s: &Situation<'_>, draft: &mut Draft) {
    let asked = |kind| kind == ObjectKind::Certificate && !mutant!(IssueForgotten);
    apply(s, draft, asked);
}

fn apply(s: &Situation<'_>, draft: &mut Draft, wanted: impl Fn(ObjectKind) -> bool) {
    for (key, inputs) in
        s.o.wanted_objects
            .iter()
            .filter(|(key, _)| wanted(key.kind))
            // It needs a limit: those are rules of their own.
            .filter(|(key, _)| {
                let limited = s.counts_evictions_by_pdb() || s.opens_its_pdb();
                !(limited && key.kind == ObjectKind::PodDisruptionBudget)
            })
    {
        let reason = match s.o.objects.get(key) {
            None => "it is missing",
            Some(facts) if facts.terminating => {
                let text = format!("{} {} to be deleted", key.kind.as_str(), key.name);
                draft.wait("ApplyObject", "", "Terminating", text);
                continue;
            }
            Some(facts) if facts.inputs.is_none() => "it was changed after it was created",
            Some(facts) if facts.inputs.as_ref() != Some(inputs) => {
                if key.kind == ObjectKind::Service && s.waits_for_client_service(&key.name) {
                    continue;
                }
                "what it is created from changed"
            }
            Some(_) => continue,
        };
        draft.step(
            Rule::Objects,
            Action::Object(ObjectAction::ApplyObject(key.clone())),
            reason,
        );
    }
}

/// The owner and the size of the PVCs of this life.
pub(super) fn volumes(s: &Situation<'_>, draft: &mut Draft) {
    let goes = s.cluster.spec.storage.retention.when_deleted == RetentionPolicy::Delete;
    let wanted = s.asked().bytes;
    for (name, pvc) in s.our_pvcs().filter(|(_, pvc)| !pvc.terminating) {
        let owned = goes && pvc.state != PvcState::Retired;
        let (pvc_name, uid) = (name.to_owned(), pvc.uid.clone());
        if pvc.owned != owned {
            let action = Action::Object(ObjectAction::OwnPvc {
                pvc: pvc_name,
                uid,
                owned,
            });
            draft.step(
                Rule::Objects,
                action,
                "as set by storage.retention.whenDeleted",
            );
        } else if pvc.state == PvcState::Retired {
            continue;
        } else if pvc.requested_bytes < wanted && pvc.bound {
            let action = Action::Object(ObjectAction::GrowPvc {
                pvc: pvc_name,
                uid,
                bytes: wanted,
                asked: Some(s.asked_by_growth(pvc)),
            });
            draft.step(Rule::Objects, action, "storage.size was raised");
        } else if let Some(asked) = s.unrecorded(pvc) {
            let action = Action::Object(ObjectAction::RecordStorage {
                pvc: pvc_name,
                uid,
                asked,
            });
            draft.step(Rule::Objects, action, "its volume is as the spec asks for");
        }
    }
    if let Some(why) = s.lacks_its_class() {
        draft.stall("NoStorageClass", why);
    }
    if let Some(why) = s.refused_size() {
        draft.stall("VolumeTooSmall", why);
    }
}
