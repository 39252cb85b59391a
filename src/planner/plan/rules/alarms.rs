//! Alarms. CORRUPT first: leadership is moved from a member that it names to one that it does not; if it names a
//! minority and two comparisons prove it, the named members are replaced one at a time, and the alarm is disarmed once
//! all data is equal. NOSPACE is disarmed when its cause is gone.

use crate::plan::Rule;
use std::collections::BTreeSet;

use crate::plan::action::{Action, AlarmKind, MemberAction};
use crate::plan::alarms::{self, Corruption};
use crate::plan::draft::{Draft, fence};
use crate::plan::situation::Situation;
use crate::plan::space;

use super::hand_over;

/// What the other rules make of this one.
pub(super) enum Outcome {
    /// A member is being removed for its data: until it is gone no other member is removed or added.
    Leaves,
    /// The other rules still run, and this wait, if any, is reported after theirs: the first wait is the current step,
    /// which records how long a member has been silent. A member with which a new leader never had contact would
    /// otherwise never be old enough to be healed.
    GoesOn(Option<Held>),
}

/// What an alarm waits for.
pub(super) struct Held {
    action: &'static str,
    member: String,
    what: String,
}

impl Held {
    pub(super) fn add_to(self, draft: &mut Draft) {
        draft.wait(self.action, &self.member, "Corrupt", self.what);
    }
}

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> Outcome {
    match alarms::corruption(s) {
        None | Some(Corruption::Person(_)) => Outcome::GoesOn(None),
        Some(Corruption::Wait(what)) => Outcome::GoesOn(Some(Held {
            action: alarms::COMPARE,
            member: String::new(),
            what,
        })),
        Some(Corruption::Led(to, id)) => lead_away(s, draft, to, id),
        Some(Corruption::Proven(corrupt)) => replace(s, draft, &corrupt),
        Some(Corruption::Healed(named)) => {
            for id in named {
                let why = "the members' data is equal, as was compared twice";
                disarm(s, draft, AlarmKind::Corrupt, id, why.to_owned());
            }
            Outcome::GoesOn(None)
        }
    }
}

/// After healing: a repeatedly raised alarm does not block healing, and this does not block later rules.
pub(super) fn space(s: &Situation<'_>, draft: &mut Draft) {
    for id in alarms::raised(s, AlarmKind::NoSpace) {
        let Ok(why) = space::is_free(s, id) else {
            continue;
        };
        let Some((again, until)) = space::rests(s, id) else {
            disarm(s, draft, AlarmKind::NoSpace, id, why);
            continue;
        };
        let member = alarms::name_of(s, id);
        let wait = draft.wait("Disarm", &member, "Pause", again);
        wait.deadline_ms = Some(until);
    }
}

fn disarm(s: &Situation<'_>, draft: &mut Draft, kind: AlarmKind, id: u64, why: String) {
    let action = Action::Member(MemberAction::Disarm {
        kind,
        member: alarms::name_of(s, id),
        id,
        fence: fence(s),
    });
    draft.step(Rule::Alarms, action, why);
}

/// One of them leaves. Its successor comes by `grow`, on a disk of its
/// own, and its volume goes by `leftovers`, once the successor votes.
fn replace(s: &Situation<'_>, draft: &mut Draft, corrupt: &BTreeSet<String>) -> Outcome {
    // Unhealthy members are healed and joining members added by their own rules first.
    if !alarms::is_whole(s) {
        let what =
            "every other member to be there and healthy before one with differing data leaves";
        return Outcome::GoesOn(Some(Held {
            action: "Replace",
            member: String::new(),
            what: what.to_owned(),
        }));
    }
    let Some(first) = corrupt.first() else {
        return Outcome::GoesOn(None);
    };
    let reason = "its data differs from the majority's, as was compared twice".to_owned();
    hand_over::removed(s, draft, first, Rule::Alarms, reason);
    Outcome::Leaves
}

/// Leadership moves before anything else is done. A voter that cannot take over is asked again after increasing pauses;
/// meanwhile the other rules run.
fn lead_away(s: &Situation<'_>, draft: &mut Draft, to: String, to_id: u64) -> Outcome {
    let Some((leader, _)) = s.view else {
        return Outcome::GoesOn(None);
    };
    if !hand_over::asks_again(s, "Transfer", leader) {
        return Outcome::GoesOn(Some(Held {
            action: "Transfer",
            member: leader.to_owned(),
            what: format!("{to} to be able to take over from {leader}, which the alarm names"),
        }));
    }
    let action = Action::Member(MemberAction::Transfer {
        from: leader.to_owned(),
        to,
        to_id,
        fence: fence(s),
    });
    draft.step(
        Rule::Alarms,
        action,
        "the alarm CORRUPT names it, and it leads",
    );
    Outcome::GoesOn(None)
}
