//! Rule 8: alarms. CORRUPT first: where it names a minority and two comparisons prove it, leadership
//! goes to a voter whose data is right, the named members are replaced one at a time, and the alarm is
//! switched off once all data is equal. NOSPACE is switched off where its reason is gone.

use std::collections::BTreeSet;

use crate::plan::alarms::{self, Corruption};
use crate::plan::draft::{Draft, fence};
use crate::plan::situation::Situation;
use crate::plan::step::{Action, AlarmKind};
use crate::plan::victims;

use super::farewell;

/// Returns whether a member is on its way out for its data: until it is gone nobody else goes or comes.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let leaves = match alarms::corruption(s) {
        None | Some(Corruption::Person(_)) => false,
        Some(Corruption::Wait(what)) => {
            draft.wait("Compare", "", "Corrupt", what);
            false
        }
        Some(Corruption::Proven(sick)) => replace(s, draft, &sick),
        Some(Corruption::Healed(named)) => {
            for id in named {
                let why = "the members' data is equal, as was compared twice";
                disarm(s, draft, AlarmKind::Corrupt, id, why.to_owned());
            }
            false
        }
    };
    for id in alarms::raised(s, AlarmKind::NoSpace) {
        if let Ok(why) = alarms::no_space(s, id) {
            disarm(s, draft, AlarmKind::NoSpace, id, why);
        }
    }
    leaves
}

fn disarm(s: &Situation<'_>, draft: &mut Draft, kind: AlarmKind, id: u64, why: String) {
    let action = Action::Disarm {
        kind,
        member: alarms::name_of(s, id),
        id,
        fence: fence(s),
    };
    draft.step(8, action, why);
}

/// One of them leaves, the leader's leadership first. Its successor comes by rule 13, on a disk of its
/// own, and its volume goes by rule 17, once the successor votes.
fn replace(s: &Situation<'_>, draft: &mut Draft, sick: &BTreeSet<String>) -> bool {
    // The sick are healed, and those on their way in come, by their own rules first.
    if !alarms::is_whole(s) {
        let what =
            "every other member to be there and healthy before one with differing data leaves";
        draft.wait("Replace", "", "Corrupt", what);
        return false;
    }
    let Some(first) = sick.first() else {
        return false;
    };
    let reason = "its data differs from the majority's, as was compared twice".to_owned();
    let Some((leader, _)) = s.view else {
        return false;
    };
    if !sick.contains(leader) {
        farewell::removed(s, draft, first, 8, reason);
        return true;
    }
    let Some((to, to_id)) = victims::successor(s, leader).filter(|(to, _)| !sick.contains(*to))
    else {
        let what = "a voter whose data is right to take over";
        draft.wait("Transfer", leader, "Corrupt", what);
        return true;
    };
    let action = Action::Transfer {
        from: leader.to_owned(),
        to: to.to_owned(),
        to_id,
        fence: fence(s),
    };
    draft.step(8, action, format!("{reason}, and it leads"));
    true
}
