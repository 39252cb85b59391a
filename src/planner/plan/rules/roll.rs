//! Changed inputs are rolled out to members one at a time. Resources alone change in place, where the kubelet can; all
//! else by a restart on the same disk: followers first, the leader last after a hand-over. The next one waits until all
//! others have been ready for a while, so that a bad spec costs one member. One whose pod is not ready for another container's sake
//! goes before all: the change may be what repairs it, and no Service leads to it. Members that are replaced instead are handled by `grow`
//! and `shrink`.

use crate::plan::Rule;
use std::cmp::Reverse;

use crate::crd::member_number;
use crate::mutants::mutant;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::guards;
use crate::plan::observed::Resize;
use crate::plan::situation::{Situation, in_ms};

use super::hand_over::{self, Leaver};
use super::{pod_disruption_budget, sets};

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let hasty = mutant!(RollBesideSick) || mutant!(RollAtOnce);
    // Inputs with which a new member failed are applied to no other member.
    if !(hand_over::at_rest(s) || hasty) || draft.remembered.is_some() {
        return;
    }
    // One member that moves its clients away and cannot be placed again is enough.
    let mut voters = s.voters.keys();
    if voters.any(|name| s.retires(name) && s.cannot_return(name)) {
        return;
    }
    let Some(member) = next(s) else {
        return;
    };
    let by_replacement = s.is_replaced(member);
    let resize = s.resize(member).filter(|_| !by_replacement);
    let outdated = !s.updated(member) && resize.is_none() || s.retires(member);
    if by_replacement && (outdated || set_is_current(s, member)) {
        return;
    }
    let restarts = !by_replacement && outdated;
    if restarts && !hasty && !hand_over::settled(s, draft, member, "Restart") {
        return;
    }
    if !set_is_current(s, member) {
        let terminating = s.o.sets.get(member).is_none_or(|set| set.terminating);
        if !terminating && s.pvc(member).is_some() {
            let reason = "the spec has changed; this alone restarts nothing";
            sets::apply(s, draft, Rule::Roll, member, reason);
        }
        return;
    }
    if restarts {
        restart(s, draft, member);
    } else if let Some(resize) = resize {
        resized(s, draft, member, resize);
    }
}

/// The next member: one that is leaving already first, so that no other one goes beside it, then one that clients are kept from, then one in
/// progress, then followers, the leader last, with the highest number first.
fn next<'s>(s: &'s Situation<'_>) -> Option<&'s str> {
    let ours = s.voters.iter().filter(|(_, seat)| seat.ours);
    let names = ours.map(|(name, _)| name.as_str());
    // A member whose pod would not be placed again is not restarted: `drain` moves or replaces it.
    let unfinished = names.filter(|name| !s.cannot_return(name));
    let unfinished =
        unfinished.filter(|name| !s.updated(name) || !set_is_current(s, name) || s.retires(name));
    let unfinished = unfinished.filter(|name| {
        let unhealthy = s.voters.get(*name).is_none_or(|seat| !seat.healthy());
        let goes = s.o.pods.get(*name).is_none_or(|pod| pod.terminating);
        !(mutant!(RollBesideSick) && unhealthy || mutant!(RollAtOnce) && goes)
    });
    unfinished.min_by_key(|name| {
        let half_way = s.retires(name) || set_is_current(s, name);
        let leads = s.view.is_some_and(|(leader, _)| leader == *name);
        let number = member_number(&s.cluster.name, name);
        let cut_off = s.kept_unready(name).is_some();
        let leaving = s.is_leaving(name);
        (!leaving, !cut_off, !half_way, leads, Reverse(number))
    })
}

fn set_is_current(s: &Situation<'_>, member: &str) -> bool {
    let set = s.o.sets.get(member);
    set.is_some_and(|set| set.inputs.as_ref() == Some(&s.o.wanted_inputs))
}

/// The next step of a resize in place, which interrupts nobody.
fn resized(s: &Situation<'_>, draft: &mut Draft, member: &str, resize: &Resize) {
    let Some(pod) = s.o.pods.get(member) else {
        return;
    };
    let (name, uid) = (member.to_owned(), pod.uid.clone());
    let (action, reason) = match resize {
        Resize::Wanted => (
            ObjectAction::ResizePod { member: name, uid },
            "of all that is asked for it lacks only the resources",
        ),
        Resize::Provided => (
            ObjectAction::RecordInputs { member: name, uid },
            "its container has the changed resources",
        ),
        Resize::Asked {
            since_ms,
            why,
            infeasible,
        } => return wait(s, draft, member, (*since_ms, why.as_deref(), *infeasible)),
    };
    draft.step(Rule::Roll, Action::Object(action), reason);
}

fn wait(
    s: &Situation<'_>,
    draft: &mut Draft,
    member: &str,
    (since_ms, why, infeasible): (u64, Option<&str>, bool),
) {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    if infeasible && s.is_believed(since_ms) {
        let text = format!(
            "the node of {member} never has the resources that are asked for{why}; the member runs with the earlier ones: lower spec.resources, or name it in spec.replaceMembers"
        );
        return draft.stall("ResizeInfeasible", text);
    }
    let what = format!("the kubelet to give {member} its resources{why}");
    let wait = draft.wait("ResizePod", member, "Resizing", what);
    wait.since_ms = Some(since_ms);
    if s.can_leave_its_node(member) || why.is_empty() {
        let deadline = in_ms(s.cluster.spec.update_strategy.progress_deadline_seconds);
        wait.deadline_ms = Some(since_ms + deadline);
    }
}

fn restart(s: &Situation<'_>, draft: &mut Draft, member: &str) {
    let Some(pod) = s.o.pods.get(member).filter(|pod| !pod.terminating) else {
        return;
    };
    let hasty = mutant!(RollBesideSick) || mutant!(RollAtOnce);
    if let Err(held) = guards::restart_voter(s, member)
        && !hasty
    {
        draft.guarded("Restart", member, &held);
        return;
    }
    let reason = if s.updated(member) {
        "it was asked to retire, but is kept"
    } else {
        "it runs an older spec"
    };
    let leaver = Leaver {
        member,
        rule: Rule::Roll,
        reason,
        for_good: false,
    };
    if !mutant!(RollAtOnce) && !hand_over::advance(s, draft, &leaver) {
        return;
    }
    pod_disruption_budget::let_go(
        s,
        draft,
        ("Restart", Rule::Roll),
        member,
        &pod.uid,
        reason.to_owned(),
    );
}
