//! Rule 15: too many members: what is no voter goes first, then voters in the victims' order,
//! each handed over before it is removed.

use crate::plan::draft::{Draft, fence};
use crate::plan::guards;
use crate::plan::situation::Situation;
use crate::plan::step::{Action, Class};
use crate::plan::victims;

use super::slots;

/// A hand-over that takes longer than this is not waited for: the removal elects anew.
const HAND_OVER_MS: u64 = 30_000;
/// After this long no Service sends clients to a member that became unready, and it has asked
/// those that were connected to go elsewhere, which it does after five seconds.
const ENDPOINTS_MS: u64 = 7_000;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    // What is on its way in may be one more: the successor of a member that is replaced.
    let too_many = s.seats().saturating_sub(s.goal());
    let target = s.cluster.target();
    // Standbys, the newest first: no membership is touched.
    for name in s.standbys.iter().rev().take(too_many) {
        if let Some(claim) = s.claim(name) {
            let action = Action::DeleteClaim {
                claim: s.claim_name(name),
                uid: claim.uid.clone(),
            };
            draft.step(
                15,
                action,
                format!("{name} is not needed any more and never joined"),
            );
        }
    }
    let members = s.voters.len() + s.learners.len();
    let mut ours = s.learners.iter().filter(|(_, seat)| seat.ours);
    if members > s.goal()
        && let Some((name, seat)) = ours.next_back()
    {
        let action = Action::Remove {
            member: name.clone(),
            id: seat.view.id,
            fence: fence(s),
        };
        draft.step(
            15,
            action,
            format!("{members} members are more than {target}"),
        );
        return;
    }
    if s.voters.len() <= target {
        return;
    }
    let Some(victim) = victims::voters_in_order(s).first().copied() else {
        draft.note(
            "ForeignMember",
            "there are too many members, but none that this operator made",
        );
        return;
    };
    remove(s, draft, victim);
}

fn remove(s: &Situation<'_>, draft: &mut Draft, victim: &str) {
    let Some(seat) = s.voters.get(victim) else {
        return;
    };
    if let Err(held) = guards::remove_voter(s, victim) {
        draft.guarded("Remove", victim, &held);
        return;
    }
    let mut reason = format!(
        "{} voters are more than {}",
        s.voters.len(),
        s.cluster.target()
    );
    if s.to_replace(victim) {
        reason += ", and replaceMembers names it";
    }
    let leads = s.view.is_some_and(|(leader, _)| leader == victim);
    if leads && !asked_long_ago(s, "Transfer", victim) {
        if let Some((to, to_id)) = victims::successor(s, victim) {
            let action = Action::Transfer {
                from: victim.to_owned(),
                to: to.to_owned(),
                to_id,
                fence: fence(s),
            };
            draft.step(15, action, format!("{reason}, and it leads"));
        } else {
            draft.hold(
                Class::Membership,
                format!("{victim} leads and no voter can take over"),
            );
        }
        return;
    }
    if let Some(action) = slots::hand_over(s, victim) {
        draft.step(3, action, format!("{victim} leaves"));
        return;
    }
    let serves = s.description(victim).is_some_and(|d| d.ready);
    if serves
        && !asked_long_ago(s, "Retire", victim)
        && let Some(pod) = s.o.pods.get(victim)
    {
        let action = Action::Retire {
            member: victim.to_owned(),
            pod_uid: pod.uid.clone(),
        };
        draft.step(
            15,
            action,
            format!("{reason}; its clients go elsewhere first"),
        );
        return;
    }
    // Until its Services have forgotten it, the retired member serves whoever still comes.
    if !s.o.wanted_objects.is_empty() && asked(s, "Retire", victim, |ago| ago < ENDPOINTS_MS) {
        draft.wait(
            "Retire",
            victim,
            "HandOver",
            format!("clients to leave {victim}"),
        );
        return;
    }
    let action = Action::Remove {
        member: victim.to_owned(),
        id: seat.view.id,
        fence: fence(s),
    };
    draft.step(15, action, reason);
}

/// Whether clients are being sent away from a member that retires. Any other step would take the
/// place of this one on record, and with it the wait.
pub(super) fn hands_over(s: &Situation<'_>) -> bool {
    let last = s.o.hints.step.as_ref();
    last.is_some_and(|(action, _, since)| {
        action == "Retire" && s.o.now_ms.saturating_sub(*since) < ENDPOINTS_MS
    })
}

fn asked_long_ago(s: &Situation<'_>, word: &str, member: &str) -> bool {
    asked(s, word, member, |ago| ago > HAND_OVER_MS)
}

/// Whether this was asked of the member last, so many milliseconds ago; not without a record.
fn asked(s: &Situation<'_>, word: &str, member: &str, when: impl Fn(u64) -> bool) -> bool {
    let last = s.o.hints.step.as_ref();
    last.is_some_and(|(action, whom, since)| {
        action == word && whom.as_deref() == Some(member) && when(s.o.now_ms.saturating_sub(*since))
    })
}
