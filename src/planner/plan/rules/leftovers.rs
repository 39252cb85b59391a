//! Objects of removed members, and PVCs of another incarnation. Idempotent deletes that block nothing; what is kept is
//! reported, and left alone. The volume of a member that voted is deleted only when its successor votes: whatever the
//! evidence against it was, until then it may be a copy that is needed. That of one that voted and left under the alarm
//! CORRUPT is kept for good.

use crate::crd::RetentionPolicy;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::alarms;
use crate::plan::draft::Draft;
use crate::plan::observed::PvcState;
use crate::plan::situation::Situation;

use super::adopt;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for name in &s.leaving {
        // It left before the alarm was on.
        kept(s, draft, name, Rule::Leftovers);
        if let Some(set) = s.o.sets.get(name) {
            delete_set(s, draft, name, set.terminating, &set.uid);
        } else if !s.o.pods.contains_key(name) {
            settle_pvc(s, draft, name);
        } else {
            draft.note("Leaving", format!("the pod of {name} is still terminating"));
        }
    }
}

/// Marks the volume of a member that leaves, or has left, under the alarm CORRUPT as kept, and an adopted one that holds
/// the data of something else. Before any other step of its
/// removal, including its vote: the alarm may be disarmed by hand before the next step. Returns whether it had to be
/// marked.
pub(super) fn kept(s: &Situation<'_>, draft: &mut Draft, member: &str, rule: Rule) -> bool {
    let why = if alarms::is_to_be_kept(s, member) {
        "it leaves under the alarm CORRUPT, and its data may be the right ones"
    } else if adopt::holds_another_life(s, member) {
        "it was adopted, and holds the data of another cluster"
    } else {
        return false;
    };
    let pvc = s.pvc(member);
    let Some(pvc) = pvc.filter(|pvc| !pvc.terminating && pvc.state != PvcState::Retired) else {
        return false;
    };
    let action = Action::Object(ObjectAction::MarkPvc {
        pvc: s.pvc_name(member),
        uid: pvc.uid.clone(),
        state: PvcState::Retired,
    });
    draft.step(rule, action, why);
    true
}

fn delete_set(s: &Situation<'_>, draft: &mut Draft, name: &str, terminating: bool, uid: &str) {
    let node = s.o.pods.get(name).and_then(|pod| pod.node.as_deref());
    let facts = node.and_then(|node| s.o.nodes.get(node));
    // Its node may still run it. If the node is gone or out of service, Kubernetes itself removes the pod.
    if facts.is_some_and(|node| !node.ready && !node.out_of_service) {
        draft.note("Leaving", format!("{name} was removed; its objects stay until its node reports, is gone or is tainted out-of-service"));
        return;
    }
    if terminating {
        draft.note("Leaving", format!("the set of {name} is still terminating"));
        return;
    }
    let action = Action::Object(ObjectAction::DeleteSet {
        member: name.to_owned(),
        uid: uid.to_owned(),
    });
    draft.step(
        Rule::Leftovers,
        action,
        format!("{name} is out of the cluster"),
    );
}

fn settle_pvc(s: &Situation<'_>, draft: &mut Draft, name: &str) {
    let Some(pvc) = s.pvc(name).filter(|pvc| !pvc.terminating) else {
        return;
    };
    if alarms::is_to_be_kept(s, name) {
        return;
    }
    let (pvc_name, uid) = (s.pvc_name(name), pvc.uid.clone());
    let keep = s.cluster.spec.storage.retention.when_removed == RetentionPolicy::Retain;
    match pvc.state {
        PvcState::Retired => {}
        _ if keep && pvc.state == PvcState::Joined => {
            let action = Action::Object(ObjectAction::MarkPvc {
                pvc: pvc_name,
                uid,
                state: PvcState::Retired,
            });
            draft.step(
                Rule::Leftovers,
                action,
                "storage.retention.whenRemoved keeps it",
            );
        }
        PvcState::New | PvcState::Joined if s.is_kept_for_now(name) => draft.note(
            "VolumeKept",
            format!("PVC {pvc_name} of {name} is kept until its successor votes"),
        ),
        PvcState::New | PvcState::Joined => {
            let action = Action::Object(ObjectAction::DeletePvc { pvc: pvc_name, uid });
            draft.step(
                Rule::Leftovers,
                action,
                format!("{name} is out of the cluster"),
            );
        }
    }
}
