//! How a serving voter leaves, for good or for a restart: leadership is moved first, its clients are moved to other
//! members, and only then it leaves. `drain`, `shrink` and `roll` share it; it does not decide which member leaves.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction};
use crate::plan::alarms;
use crate::plan::draft::{Draft, fence};
use crate::plan::guards;
use crate::plan::situation::{Situation, in_ms};
use crate::plan::step::Class;
use crate::plan::victims;

use super::{leftovers, slots};

/// Time limit of a hand-over: after it, the removal causes an election.
const HAND_OVER_MS: u64 = 30_000;
/// Before this a retiring member has not asked connected clients to go elsewhere, which it does after five seconds.
const ENDPOINTS_MS: u64 = 7_000;
/// How long to wait until Kubernetes has observed that a member became unready and routes no clients to it any more;
/// after that it may never happen.
const UNREADY_MS: u64 = 30_000;

/// Which member leaves, and why.
pub(super) struct Leaver<'a> {
    pub(super) member: &'a str,
    /// The rule that wants it.
    pub(super) rule: Rule,
    pub(super) reason: &'a str,
    /// Another member gets its slot: it does not come back.
    pub(super) for_good: bool,
}

/// Adds the next step of the hand-over. Returns whether it is complete.
pub(super) fn advance(s: &Situation<'_>, draft: &mut Draft, leaver: &Leaver<'_>) -> bool {
    let Leaver {
        member,
        rule,
        reason,
        for_good,
    } = *leaver;
    mutant!(NoHandOver => return true);
    let leads = s.view.is_some_and(|(leader, _)| leader == member);
    if leads && !asked_long_ago(s, "Transfer", member) {
        if let Some((to, to_id)) = victims::successor(s, member) {
            let action = Action::Member(MemberAction::Transfer {
                from: member.to_owned(),
                to: to.to_owned(),
                to_id,
                fence: fence(s),
            });
            draft.step(rule, action, format!("{reason}, and it leads"));
        } else {
            draft.hold(
                Class::Membership,
                format!("{member} leads and no voter can take over"),
            );
        }
        return false;
    }
    if for_good && let Some(action) = slots::hand_over(s, member) {
        draft.step(Rule::Objects, action, format!("{member} leaves"));
        return false;
    }
    let description = s.description(member);
    let retiring = description.and_then(|d| d.retiring_ms);
    if retiring.is_none()
        && description.is_some_and(|d| d.ready)
        && let Some(pod) = s.o.pods.get(member)
    {
        let action = Action::Member(MemberAction::Retire {
            member: member.to_owned(),
            pod_uid: pod.uid.clone(),
        });
        let why = format!("{reason}; its clients go elsewhere first");
        draft.step(rule, action, why);
        return false;
    }
    // Until its Services no longer list it, the retired member serves the clients that still connect. Without Services
    // there are none.
    let pod = s.o.pods.get(member);
    let seen_ready = pod.is_some_and(|pod| pod.ready_since_ms.is_some());
    let seen_ready = seen_ready && !mutant!(UnreadyUnseen);
    let led_to = s.o.routed.contains(member) || s.o.denied.contains("endpointslices");
    let led_to = led_to && !mutant!(RoutesUnseen);
    let least = if seen_ready || led_to {
        UNREADY_MS
    } else {
        ENDPOINTS_MS
    };
    let lingers = retiring.is_some_and(|age| age < least);
    if !s.o.wanted_objects.is_empty() && lingers {
        let action = match (for_good, rule) {
            (true, _) => "Remove",
            (false, Rule::Drain) => "Move",
            (false, Rule::Fence) => "Fence",
            (false, _) => "Restart",
        };
        let what = format!("clients of {member} to move to other members");
        draft.wait(action, member, "HandOver", what);
        return false;
    }
    true
}

/// Whether this was the last request to the member, longer ago than a hand-over takes.
fn asked_long_ago(s: &Situation<'_>, word: &str, member: &str) -> bool {
    let last = s.o.status_memory.step.as_ref();
    last.is_some_and(|(action, target, since)| {
        let ago = s.o.now_ms.saturating_sub(*since);
        action == word && target.as_deref() == Some(member) && ago > HAND_OVER_MS
    })
}

/// Whether a request that may fail repeatedly is made now: for the duration of a hand-over, and then after pauses that
/// double, because another voter may be the better one by then.
pub(super) fn asks_again(s: &Situation<'_>, word: &str, member: &str) -> bool {
    let last = s.o.status_memory.step.as_ref();
    let last =
        last.filter(|(action, target, _)| action == word && target.as_deref() == Some(member));
    let ago = last.map_or(0, |(_, _, since)| s.o.now_ms.saturating_sub(*since));
    let turns = ago / HAND_OVER_MS;
    turns == 0 || turns.is_power_of_two()
}

/// Removes a voter for good, if the guards allow it and after its hand-over.
pub(super) fn removed(
    s: &Situation<'_>,
    draft: &mut Draft,
    member: &str,
    rule: Rule,
    reason: String,
) {
    let Some(seat) = s.voters.get(member) else {
        return;
    };
    if let Err(held) = guards::remove_voter(s, member) {
        draft.guarded("Remove", member, &held);
        return;
    }
    let leaver = Leaver {
        member,
        rule,
        reason: &reason,
        for_good: true,
    };
    if !advance(s, draft, &leaver) || leftovers::kept(s, draft, member, rule) {
        return;
    }
    let action = Action::Member(MemberAction::Remove {
        member: member.to_owned(),
        id: seat.view.id,
        fence: fence(s),
    });
    draft.step(rule, action, reason);
}

/// Whether all wanted voters are present and healthy, and no member is joining.
pub(super) fn at_rest(s: &Situation<'_>) -> bool {
    let voters = s.voters.len();
    let whole = voters == s.cluster.target() && s.healthy() == voters;
    whole && s.learners.is_empty() && s.standbys.is_empty()
}

/// Whether every other voter has been ready for long enough for the given action on this one; if not, reports which one
/// it waits for.
pub(super) fn settled(
    s: &Situation<'_>,
    draft: &mut Draft,
    member: &str,
    word: &'static str,
) -> bool {
    let does = match word {
        "Restart" => "is restarted",
        _ => "leaves its node",
    };
    let least = in_ms(s.cluster.spec.update_strategy.min_ready_seconds);
    // Nor does one that retires for its restart serve any, and it does not come back without one.
    let serves_none = s.kept_unready(member).is_some() || s.retires(member);
    let cut_off = word == "Restart" && serves_none;
    for (name, seat) in s.voters.iter().filter(|(name, _)| *name != member) {
        if !seat.ours || s.retires(name) {
            // Healthy, which is all that is known of a foreign one; one that retires follows the log
            // and waits for its own turn.
            continue;
        }
        let ready = s.description(name).is_some_and(|d| d.ready);
        if cut_off && ready && s.kept_unready(name).is_some() && !s.updated(name) {
            // What keeps clients from both may be repaired by the change, and this one serves none of them either. Its server has
            // caught up.
            continue;
        }
        let since = s.o.pods.get(name).and_then(|pod| pod.ready_since_ms);
        let Some(since) = since.filter(|_| ready) else {
            // As in etcd, no member is ready while it is raised.
            let what = match alarms::is_on(s) {
                true => format!(
                    "the alarm CORRUPT to be off: while it is on no member is ready, and only then {member} {does}"
                ),
                false => {
                    let beside = s.o.pods.get(name).and_then(|pod| pod.beside.as_ref());
                    let why = beside.map_or(String::new(), |it| format!(" ({})", it.why));
                    format!("{name} to be ready{why} before {member} {does}")
                }
            };
            draft.wait(word, member, "Settling", what);
            return false;
        };
        if since + least > s.o.now_ms {
            let seconds = least / 1000;
            let what = format!("{name} to be ready for {seconds} s, before {member} {does}");
            let wait = draft.wait(word, member, "Settling", what);
            wait.since_ms = Some(since);
            wait.deadline_ms = Some(since + least);
            return false;
        }
    }
    true
}
