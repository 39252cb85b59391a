//! Voters that do not serve. Restarted where that can help, removed on evidence
//! of death, before anyone is added.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction, ObjectAction};
use crate::plan::draft::{Draft, fence};
use crate::plan::evidence::Verdict;
use crate::plan::guards;
use crate::plan::situation::{Seat, Situation};
use crate::plan::step::Class;

use super::{sets, trial};

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for (name, seat) in &s.voters {
        if s.pvc(name).is_some_and(|pvc| pvc.terminating) {
            draft.note(
                "PVCDeleted",
                format!(
                    "PVC {} was deleted while in use: {name} is replaced when its pod ends",
                    s.pvc_name(name)
                ),
            );
        }
        let Some(why) = seat.verdict.why() else {
            continue;
        };
        draft.hold(Class::Membership, format!("{name} is not healthy: {why}"));
        draft.hold(Class::Disruption, format!("{name} is not healthy: {why}"));
        if !mutant!(AddBesideDead) {
            draft.hold(Class::Objects, format!("{name} is not healthy: {why}"));
        }
    }
    // The dead first: each one removed makes the rest safer.
    let dead = |seat: &Seat<'_>| matches!(seat.verdict, Verdict::Dead(_));
    for (name, seat) in s.voters.iter().filter(|(_, seat)| dead(seat)) {
        treat(s, draft, name, seat);
    }
    for (name, seat) in s.voters.iter().filter(|(_, seat)| !dead(seat)) {
        treat(s, draft, name, seat);
    }
}

fn treat(s: &Situation<'_>, draft: &mut Draft, name: &str, seat: &Seat<'_>) {
    match &seat.verdict {
        Verdict::Healthy | Verdict::Fenced => {}
        Verdict::Unknown(why) => {
            draft.wait(
                "Wait",
                name,
                "Unknown",
                format!("the operator to observe {name} as healthy: {why}"),
            );
        }
        Verdict::Wait {
            why,
            for_what,
            until_ms,
        } => {
            if unstick(s, draft, name, why) {
                return;
            }
            let wait = draft.wait(
                "Heal",
                name,
                "Unhealthy",
                format!("{name}: {for_what} ({why})"),
            );
            wait.deadline_ms = *until_ms;
        }
        Verdict::Stuck(reason, why) => {
            if !unstick(s, draft, name, why) {
                draft.stall(reason, format!("{name}: {why}"));
            }
        }
        Verdict::Restart(why) => {
            if unstick(s, draft, name, why) {
                return;
            }
            let Some(pod) = s.o.pods.get(name) else {
                return;
            };
            match guards::restart_voter(s, name) {
                Ok(()) => {
                    let action = Action::Object(ObjectAction::DeletePod {
                        member: name.to_owned(),
                        uid: pod.uid.clone(),
                    });
                    draft.step(Rule::Unhealthy, action, why.clone());
                }
                Err(held) => {
                    draft.guarded("DeletePod", name, &held);
                }
            }
        }
        Verdict::Dead(why) => match guards::remove_voter(s, name) {
            Ok(()) if super::leftovers::kept(s, draft, name, Rule::Unhealthy) => {}
            Ok(()) => {
                let action = Action::Member(MemberAction::Remove {
                    member: name.to_owned(),
                    id: seat.view.id,
                    fence: fence(s),
                });
                draft.step(Rule::Unhealthy, action, why.clone());
            }
            Err(held) => {
                draft.guarded("Remove", name, &format!("{held} ({why})"));
            }
        },
    }
}

/// A member that does not serve and was created from an older spec gets the current one, so that a corrected spec takes
/// effect at once; of several voters the first, and the next once that one runs. Returns whether it did something.
pub(super) fn unstick(s: &Situation<'_>, draft: &mut Draft, name: &str, why: &str) -> bool {
    let Some(set) = s.o.sets.get(name).filter(|set| !set.terminating) else {
        return false;
    };
    if s.pvc(name).is_none() || mutant!(StuckForGood) {
        return false;
    }
    // With the current template no node would take it.
    if s.would_be_stranded(name) {
        return false;
    }
    // Other resources are no remedy, and its node may not have them for the next pod.
    if s.lacks_resources(name) {
        return false;
    }
    let set_is_old = set.inputs.as_ref() != Some(&s.o.wanted_inputs);
    let pod = s.o.pods.get(name).filter(|pod| !pod.terminating);
    let inputs = pod.and_then(|pod| pod.inputs.as_ref());
    let pod_is_old = inputs.is_some_and(|inputs| *inputs != s.o.wanted_inputs);
    if !set_is_old && !pod_is_old {
        return false;
    }
    // A node that does not report may still run the pod: leave it alone.
    let node = s.o.pods.get(name).and_then(|pod| pod.node.as_ref());
    if node.is_some_and(|node| !s.o.node_reports(node)) {
        return false;
    }
    if s.voters.contains_key(name) {
        // The trouble may be its own: it keeps the spec that it ran with. One that does not vote costs no quorum.
        if let Some(other) = trial::tried_by(s, draft, name) {
            trial::note(draft, name, &other);
            if !set_is_old {
                // Its next pod would have the spec that is being tried.
                let what = format!("{other} to run with the changed spec ({name}: {why})");
                draft.wait("Heal", name, "KeepsSpec", what);
            }
            return !set_is_old;
        }
        // Without its pod's end the set would wait with a spec that its next pod may not start with.
        if pod.is_some()
            && let Err(held) = guards::restart_voter(s, name)
        {
            draft.guarded("DeletePod", name, &held);
            return true;
        }
    }
    if set_is_old {
        let reason = format!("it does not serve ({why}) and the spec has changed since");
        sets::apply(s, draft, Rule::RollUnhealthy, name, reason);
        return true;
    }
    let Some(pod) = pod else {
        return false;
    };
    let action = Action::Object(ObjectAction::DeletePod {
        member: name.to_owned(),
        uid: pod.uid.clone(),
    });
    draft.step(
        Rule::RollUnhealthy,
        action,
        format!("it does not serve ({why}) and its pod is of an older spec"),
    );
    true
}
