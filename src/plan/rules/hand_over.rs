//! How a voter that serves leaves, for good or for a restart: its leadership is moved first, its
//! clients are sent away, and only then it goes. `drain`, `shrink` and `roll` share it; it decides
//! nothing about who goes.

use crate::mutants::{Mutant, planted};
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction};
use crate::plan::alarms;
use crate::plan::draft::{Draft, fence};
use crate::plan::guards;
use crate::plan::situation::{Situation, in_ms};
use crate::plan::step::Class;
use crate::plan::victims;

use super::{leftovers, slots};

/// A hand-over that takes longer than this is not waited for: the removal elects anew.
const HAND_OVER_MS: u64 = 30_000;
/// Before this a member that retires has not asked those that are connected to go elsewhere, which
/// it does after five seconds.
const ENDPOINTS_MS: u64 = 7_000;
/// So long it is waited for that Kubernetes sees that a member became unready, and sends nobody to it
/// any more: who does not look for so long may look never.
const UNREADY_MS: u64 = 30_000;

/// Who leaves, and what for.
pub(super) struct Leaver<'a> {
    pub(super) member: &'a str,
    /// The rule that wants it.
    pub(super) rule: Rule,
    pub(super) reason: &'a str,
    /// Somebody else takes its slot: it does not come back.
    pub(super) for_good: bool,
}

/// Adds what has to happen before the voter may go. Returns whether nothing is left of that.
pub(super) fn said(s: &Situation<'_>, draft: &mut Draft, leaver: &Leaver<'_>) -> bool {
    let Leaver {
        member,
        rule,
        reason,
        for_good,
    } = *leaver;
    if planted(Mutant::NoFarewell) {
        return true;
    }
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
    // Until its Services have forgotten it, the retired member serves whoever still comes. Where
    // there are no Services, nobody comes by one.
    let pod = s.o.pods.get(member);
    let seen_ready = pod.is_some_and(|pod| pod.ready_since_ms.is_some());
    let seen_ready = seen_ready && !planted(Mutant::UnreadyUnseen);
    let led_to = s.o.routed.contains(member) || s.o.denied.contains("endpointslices");
    let led_to = led_to && !planted(Mutant::RoutesUnseen);
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
            (false, _) => "Restart",
        };
        let what = format!("clients to leave {member}");
        draft.wait(action, member, "HandOver", what);
        return false;
    }
    true
}

/// Whether this was asked of the member last, and longer ago than a hand-over takes.
fn asked_long_ago(s: &Situation<'_>, word: &str, member: &str) -> bool {
    let last = s.o.hints.step.as_ref();
    last.is_some_and(|(action, whom, since)| {
        let ago = s.o.now_ms.saturating_sub(*since);
        action == word && whom.as_deref() == Some(member) && ago > HAND_OVER_MS
    })
}

/// Whether something that may fail again and again is asked for now: for as long as a hand-over takes, and
/// then after pauses that double, because another voter may be the better one by then.
pub(super) fn asks_again(s: &Situation<'_>, word: &str, member: &str) -> bool {
    let last = s.o.hints.step.as_ref();
    let last = last.filter(|(action, whom, _)| action == word && whom.as_deref() == Some(member));
    let ago = last.map_or(0, |(_, _, since)| s.o.now_ms.saturating_sub(*since));
    let turns = ago / HAND_OVER_MS;
    turns == 0 || turns.is_power_of_two()
}

/// A voter is removed for good, where the guards allow it and once it has said farewell.
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
    if !said(s, draft, &leaver) || leftovers::kept(s, draft, member, rule) {
        return;
    }
    let action = Action::Member(MemberAction::Remove {
        member: member.to_owned(),
        id: seat.view.id,
        fence: fence(s),
    });
    draft.step(rule, action, reason);
}

/// Whether every voter that is wanted is there and healthy, and nobody is on the way in.
pub(super) fn at_rest(s: &Situation<'_>) -> bool {
    let voters = s.voters.len();
    let whole = voters == s.cluster.target() && s.healthy() == voters;
    whole && s.learners.is_empty() && s.standbys.is_empty()
}

/// Whether every other voter has been ready for long enough for this one to do what the word says;
/// if not, says whom it waits for.
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
    for (name, seat) in s.voters.iter().filter(|(name, _)| *name != member) {
        if !seat.ours || s.retires(name) {
            // Healthy, which is all that is known of a foreign one; one that retires follows the log
            // and waits for its own turn.
            continue;
        }
        let ready = s.description(name).is_some_and(|d| d.ready);
        let since = s.o.pods.get(name).and_then(|pod| pod.ready_since_ms);
        let Some(since) = since.filter(|_| ready) else {
            // As in etcd, nobody is ready under it, however well he is.
            let what = match alarms::is_on(s) {
                true => format!(
                    "the alarm CORRUPT to be off: while it is on no member is ready, and only then {member} {does}"
                ),
                false => format!("{name} to be ready before {member} {does}"),
            };
            draft.wait(word, member, "Settling", what);
            return false;
        };
        if since + least > s.o.now_ms {
            let seconds = least / 1000;
            let what = format!("{name} to have been ready for {seconds} s before {member} {does}");
            let wait = draft.wait(word, member, "Settling", what);
            wait.since_ms = Some(since);
            wait.deadline_ms = Some(since + least);
            return false;
        }
    }
    true
}
