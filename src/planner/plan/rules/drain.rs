//! The node of a voter is drained. If another node can take it with its volume, the same member moves: it hands over
//! and retires, its pod may be evicted, and if that does not happen, the operator deletes it, or evicts it under a
//! counting PDB. Otherwise its successor comes first: that is done by `grow`, 12, 11 and 15, in that order. Without a
//! spare node this is only reported. One member at a time.

use crate::plan::Rule;
use std::cmp::Reverse;

use crate::crd::member_number;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::guards;
use crate::plan::nodes::Way;
use crate::plan::observed::PodFacts;
use crate::plan::situation::Situation;
use crate::plan::step::Class;

use super::hand_over::{self, Leaver};
use super::pod_disruption_budget;

/// How long a drain may evict the pod itself. It requests the eviction of a pod by its name, repeatedly, with a pause
/// of 5 s (`kubectl drain`) or 10 s (cluster autoscaler): it may never notice that a pod was deleted otherwise, and
/// request the eviction of its successor with the same name forever.
const EVICTION_MS: u64 = 11_000;

/// Lets no eviction take pods that are not to go any more, whatever became of the reason. Needs no
/// quorum; without one, none may go.
pub(super) fn hold_pods(s: &Situation<'_>, draft: &mut Draft) {
    let open = |pod: &PodFacts| pod.released_ms.is_some() && !pod.terminating;
    for (member, pod) in s.o.pods.iter().filter(|(_, pod)| open(pod)) {
        let why = if s.counts_evictions_by_pdb() {
            "disruption.policy is Budget: pods are evicted through the PDB, not released".to_owned()
        } else if s.cluster.spec.paused {
            "paused by spec.paused".to_owned()
        } else if s.way(member) != Some(Way::Move) {
            "its member stays where it is".to_owned()
        } else if let Err(held) = guards::restart_voter(s, member) {
            held
        } else {
            continue;
        };
        let action = Action::Object(ObjectAction::HoldPod {
            member: member.clone(),
            uid: pod.uid.clone(),
        });
        draft.step(Rule::Drain, action, why);
    }
}

/// Returns whether a voter leaves or would leave now, so that no other member is restarted meanwhile.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let mut leavers: Vec<(&str, Way)> = Vec::new();
    for (name, _) in s.voters.iter().filter(|(_, seat)| seat.ours) {
        match s.way(name) {
            Some(Way::Stay(reason, text)) => {
                draft.wait("Move", name, reason, text);
            }
            Some(Way::AddFirst) | None => {}
            Some(way) => leavers.push((name, way)),
        }
    }
    // Members in progress first, then followers, the leader last, with the highest number first.
    leavers.sort_by_key(|(name, _)| {
        let leads = s.view.is_some_and(|(leader, _)| leader == *name);
        let number = member_number(&s.cluster.name, name);
        (!s.retires(name), leads, Reverse(number))
    });
    let Some((member, way)) = leavers.into_iter().next() else {
        return false;
    };
    let other_half_way = s
        .voters
        .keys()
        .any(|name| name != member && s.retires(name));
    if other_half_way {
        return false;
    }
    let released =
        s.o.pods
            .get(member)
            .is_some_and(|pod| pod.released_ms.is_some());
    // What was begun goes on.
    let begins = released || hand_over::at_rest(s) && hand_over::settled(s, draft, member, "Move");
    if !begins {
        return true;
    }
    match way {
        Way::RemoveFirst => remove(s, draft, member),
        _ => move_away(s, draft, member),
    }
    true
}

/// The reason for a leave, as part of a sentence.
fn reason(s: &Situation<'_>, member: &str) -> String {
    let (node, why) = s.leaves(member).unwrap_or_default();
    format!("its node {node} {why}")
}

fn move_away(s: &Situation<'_>, draft: &mut Draft, member: &str) {
    let Some(pod) = s.o.pods.get(member) else {
        return;
    };
    if pod.terminating {
        draft.wait(
            "Move",
            member,
            "Terminating",
            format!("the pod of {member} to terminate"),
        );
        return;
    }
    if let Err(held) = guards::restart_voter(s, member) {
        draft.guarded("Move", member, &held);
        return;
    }
    let reason = reason(s, member);
    let leaver = Leaver {
        member,
        rule: Rule::Drain,
        reason: &reason,
        for_good: false,
    };
    if !hand_over::advance(s, draft, &leaver) {
        return;
    }
    if s.counts_evictions_by_pdb() {
        return evict(s, draft, member, pod, &reason);
    }
    let (member_name, uid) = (member.to_owned(), pod.uid.clone());
    let Some(since) = pod.released_ms else {
        let action = Action::Object(ObjectAction::ReleasePod {
            member: member_name,
            uid,
        });
        draft.step(
            Rule::Drain,
            action,
            format!("{reason}, and its clients are elsewhere"),
        );
        return;
    };
    if since + EVICTION_MS > s.o.now_ms {
        let seconds = EVICTION_MS / 1000;
        let what = format!(
            "a drain to evict the pod of {member}, at most {seconds} s; then the operator deletes it"
        );
        let wait = draft.wait("Move", member, "Released", what);
        wait.since_ms = Some(since);
        wait.deadline_ms = Some(since + EVICTION_MS);
        return;
    }
    let action = Action::Object(ObjectAction::DeletePod {
        member: member_name,
        uid,
    });
    draft.step(
        Rule::Drain,
        action,
        format!("{reason}, and no drain evicted its pod"),
    );
}

/// Under `Budget` pods are not released: a drain may evict the pod as soon as the PDB allows it, and a retiring member
/// does not count there any more.
fn evict(s: &Situation<'_>, draft: &mut Draft, member: &str, pod: &PodFacts, reason: &str) {
    let retiring = s.description(member).and_then(|d| d.retiring_ms);
    if retiring.is_some_and(|age| age < EVICTION_MS) {
        let seconds = EVICTION_MS / 1000;
        let what = format!(
            "a drain to evict the pod of {member}, at most {seconds} s; then the operator evicts it"
        );
        draft.wait("Move", member, "Evictable", what);
        return;
    }
    let reason = format!("{reason}, and no drain evicted its pod");
    pod_disruption_budget::let_go(s, draft, ("Move", Rule::Drain), member, &pod.uid, reason);
}

fn remove(s: &Situation<'_>, draft: &mut Draft, member: &str) {
    if draft.held(Class::Membership) {
        return;
    }
    let reason = format!(
        "{}, and disruption.nodeReplacement is RemoveFirst",
        reason(s, member)
    );
    hand_over::removed(s, draft, member, Rule::Drain, reason);
}
