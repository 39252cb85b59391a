//! A learner is promoted when it has caught up, or given up after its deadline.

use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction};
use crate::plan::alarms;
use crate::plan::draft::{Draft, fence};
use crate::plan::evidence::{Verdict, pod_in_words};
use crate::plan::guards;
use crate::plan::situation::{CONTACT_MS, Seat, Situation, in_ms};
use crate::plan::step::Class;

/// A learner in contact is catching up: it gets this many times its deadline.
const CATCHING_UP: u64 = 4;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for (name, seat) in &s.learners {
        if !seat.ours {
            draft.hold(
                Class::Membership,
                format!("{name} is a learner that was not added by the operator"),
            );
            draft.note(
                "ForeignMember",
                format!("{name} is left alone; remove or promote it by hand"),
            );
            continue;
        }
        if s.voters.len() >= s.goal() {
            continue; // one too many: `shrink`
        }
        draft.hold(Class::Disruption, format!("{name} is a learner"));
        learner(s, draft, name, seat);
    }
}

fn learner(s: &Situation<'_>, draft: &mut Draft, name: &str, seat: &Seat<'_>) {
    if let Verdict::Dead(why) = &seat.verdict
        && disk_evidence(s, name, seat)
    {
        give_up(s, draft, name, seat, why.clone());
        return;
    }
    if s.pvc(name).is_some_and(|pvc| pvc.terminating) {
        let why = "its PVC is being deleted: its disk would not survive a restart";
        give_up(s, draft, name, seat, why.to_owned());
        return;
    }
    if alarms::is_spoiled(s, seat.view.id) {
        let why = "its data differs from the majority's, as was compared twice";
        give_up(s, draft, name, seat, why.to_owned());
        return;
    }
    if let Some(why) = s.turned_back(name) {
        let action = Action::Member(MemberAction::Remove {
            member: name.to_owned(),
            id: seat.view.id,
            fence: fence(s),
        });
        draft.step(Rule::Drain, action, why);
        return;
    }
    if ready(seat) {
        return promote(s, draft, name, seat);
    }
    let since = s.tries_since(name);
    let patience = in_ms(s.cluster.spec.healing.learner_deadline_seconds);
    let contact = seat
        .view
        .last_contact_ms
        .is_some_and(|age| age <= CONTACT_MS);
    let deadline = since
        + if contact {
            patience * CATCHING_UP
        } else {
            patience
        };
    let (reason, state) = if contact {
        (
            "CatchingUp",
            // The number of entries is in the member's row: here it would rewrite the status.
            seat.view.not_promotable.clone(),
        )
    } else {
        let pod =
            s.o.pods
                .get(name)
                .map_or("it has no pod".to_owned(), pod_in_words);
        (
            "NotStarted",
            format!("the leader has no contact with it; {pod}"),
        )
    };
    if !contact && super::unhealthy::unstick(s, draft, name, &state) {
        return;
    }
    if s.o.now_ms >= deadline {
        give_up(
            s,
            draft,
            name,
            seat,
            format!("it did not catch up in time: {state}"),
        );
        return;
    }
    let wait = draft.wait(
        "Promote",
        name,
        reason,
        format!("{name} to catch up: {state}"),
    );
    wait.since_ms = Some(since);
    wait.deadline_ms = Some(deadline);
}

fn ready(seat: &Seat<'_>) -> bool {
    seat.view.promotable && seat.healthy()
}

fn promote(s: &Situation<'_>, draft: &mut Draft, name: &str, seat: &Seat<'_>) {
    if s.grows_by_two() && s.learners.values().filter(|other| ready(other)).count() < 2 {
        draft.wait(
            "Promote",
            name,
            "WaitsForSecond",
            "a second learner to catch up as well: two voters alone would tolerate no failure",
        );
        return;
    }
    match guards::promote(s, seat.view.id) {
        Ok(()) => {
            let action = Action::Member(MemberAction::Promote {
                member: name.to_owned(),
                id: seat.view.id,
                fence: fence(s),
            });
            draft.step(Rule::Learner, action, "it has caught up");
        }
        Err(held) => {
            draft.guarded("Promote", name, &held);
        }
    }
}

/// Only the disk settles it for a learner; the rest has its deadline.
fn disk_evidence(s: &Situation<'_>, name: &str, seat: &Seat<'_>) -> bool {
    let other_disk = s.description(name).is_some_and(|d| {
        d.proves_an_empty_disk()
            && !seat.view.disk_uuid.is_empty()
            && d.disk_uuid != seat.view.disk_uuid
    });
    other_disk
        || s.pvc(name).is_none_or(|pvc| pvc.volume_gone.is_some())
        || s.o
            .pods
            .get(name)
            .is_some_and(|pod| pod.last_exit.is_some() && pod.started_ms.is_none())
}

fn give_up(s: &Situation<'_>, draft: &mut Draft, name: &str, seat: &Seat<'_>, why: String) {
    let action = Action::Member(MemberAction::Remove {
        member: name.to_owned(),
        id: seat.view.id,
        fence: fence(s),
    });
    draft
        .failed_joins
        .push((action.clone(), format!("{name}: {why}")));
    draft.step(Rule::Learner, action, why);
}

/// Entries that a learner still lacks.
pub(in crate::plan) fn lag(s: &Situation<'_>, seat: &Seat<'_>) -> u64 {
    s.view
        .map_or(0, |(_, d)| d.commit.saturating_sub(seat.view.match_index))
}
