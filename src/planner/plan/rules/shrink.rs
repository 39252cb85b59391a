//! Too many members: what is no voter goes first, then voters in the victims' order,
//! each handed over before it is removed.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction, ObjectAction};
use crate::plan::draft::{Draft, fence};
use crate::plan::situation::Situation;
use crate::plan::victims;

use super::hand_over;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    // One more may be joining: the successor of a member that is replaced.
    let too_many = s.seats().saturating_sub(s.goal());
    let target = s.cluster.target();
    // Standbys, the newest first: no membership is touched.
    for name in s.standbys.iter().rev().take(too_many) {
        if let Some(pvc) = s.pvc(name) {
            let action = Action::Object(ObjectAction::DeletePvc {
                pvc: s.pvc_name(name),
                uid: pvc.uid.clone(),
            });
            draft.step(
                Rule::Shrink,
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
        let action = Action::Member(MemberAction::Remove {
            member: name.clone(),
            id: seat.view.id,
            fence: fence(s),
        });
        draft.step(
            Rule::Shrink,
            action,
            format!("{members} members are more than {target}"),
        );
        return;
    }
    let target = target - usize::from(mutant!(OneTooMany) && target > 1);
    let named = s.voters.keys().any(|name| s.to_replace(name));
    if s.voters.len() <= target && !(named && mutant!(ReplacedFirst)) {
        return;
    }
    // A fenced one is not healthy, and would be the first to go, with its volume.
    if let Some(fenced) = s.o.fenced.iter().find(|name| s.voters.contains_key(*name)) {
        let text = format!("{fenced} to be unfenced: no member is removed by choice meanwhile");
        draft.wait("Remove", "", "Fenced", text);
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
    let mut reason = format!(
        "{} voters are more than {}",
        s.voters.len(),
        s.cluster.target()
    );
    if let Some((node, why)) = s.leaves(victim) {
        reason += &format!(", and its node {node} {why}");
    } else if s.to_replace(victim) {
        reason += ", and replaceMembers names it";
    } else if let Some(why) = s.unfit(victim) {
        reason += &format!(", and {why}");
    } else if s.is_replaced(victim) && !s.updated(victim) {
        reason += ", and it runs an older spec";
    }
    hand_over::removed(s, draft, victim, Rule::Shrink, reason);
}
