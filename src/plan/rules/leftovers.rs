//! Rule 17: objects of members that are out of the cluster, and claims of another life. Idempotent
//! deletes that hold nothing; what is kept is reported, never adopted. The volume of one that voted
//! is deleted when its successor votes, and not before: whatever the evidence against it was, until
//! then it may be the copy that somebody needs. That of one that voted and left under the alarm CORRUPT is kept for good.

use crate::crd::RetentionPolicy;
use crate::plan::alarms;
use crate::plan::draft::Draft;
use crate::plan::observed::ClaimState;
use crate::plan::situation::Situation;
use crate::plan::step::Action;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for name in &s.leaving {
        // It left before the alarm was on.
        kept(s, draft, name, 17);
        if let Some(set) = s.o.sets.get(name) {
            delete_set(s, draft, name, set.terminating, &set.uid);
        } else if !s.o.pods.contains_key(name) {
            settle_claim(s, draft, name);
        } else {
            draft.note("Leaving", format!("the pod of {name} is still going"));
        }
    }
}

/// Marks the volume of one that leaves, or has left, under the alarm CORRUPT as one that is kept. Before
/// anything else of it goes, its vote as well: the alarm may be off, by hand, before the next step.
/// Returns whether it had to be marked.
pub(super) fn kept(s: &Situation<'_>, draft: &mut Draft, member: &str, rule: u8) -> bool {
    if !alarms::is_to_be_kept(s, member) {
        return false;
    }
    let Some(claim) = s.claim(member) else {
        return false;
    };
    let action = Action::MarkClaim {
        claim: s.claim_name(member),
        uid: claim.uid.clone(),
        state: ClaimState::Retired,
    };
    let why = "it leaves under the alarm CORRUPT, and its data may be the right ones";
    draft.step(rule, action, why);
    true
}

fn delete_set(s: &Situation<'_>, draft: &mut Draft, name: &str, terminating: bool, uid: &str) {
    let node = s.o.pods.get(name).and_then(|pod| pod.node.as_deref());
    let facts = node.and_then(|node| s.o.nodes.get(node));
    // Its node may still run it. Gone or out of service, Kubernetes itself lets the pod go.
    if facts.is_some_and(|node| !node.ready && !node.out_of_service) {
        draft.note("Leaving", format!("{name} was removed; its objects stay until its node reports, is gone or is tainted out-of-service"));
        return;
    }
    if terminating {
        draft.note("Leaving", format!("the set of {name} is still going"));
        return;
    }
    let action = Action::DeleteSet {
        member: name.to_owned(),
        uid: uid.to_owned(),
    };
    draft.step(17, action, format!("{name} is out of the cluster"));
}

fn settle_claim(s: &Situation<'_>, draft: &mut Draft, name: &str) {
    let Some(claim) = s.claim(name).filter(|claim| !claim.terminating) else {
        return;
    };
    if alarms::is_to_be_kept(s, name) {
        return;
    }
    let (claim_name, uid) = (s.claim_name(name), claim.uid.clone());
    let keep = s.cluster.spec.storage.retention.when_removed == RetentionPolicy::Retain;
    match claim.state {
        ClaimState::Retired => {}
        _ if keep && claim.state == ClaimState::Joined => {
            let action = Action::MarkClaim {
                claim: claim_name,
                uid,
                state: ClaimState::Retired,
            };
            draft.step(17, action, "storage.retention.whenRemoved keeps it");
        }
        ClaimState::New | ClaimState::Joined if s.is_kept_for_now(name) => draft.note(
            "VolumeKept",
            format!("claim {claim_name} of {name} is kept until its successor votes"),
        ),
        ClaimState::New | ClaimState::Joined => {
            let action = Action::DeleteClaim {
                claim: claim_name,
                uid,
            };
            draft.step(17, action, format!("{name} is out of the cluster"));
        }
    }
}
