//! Rule 16, as far as this version goes: at rest, a changed template is given to one set at a
//! time, which restarts nothing by itself. The next set gets it when a pod has proved it, so a bad
//! one reaches one member. Followers first, the leader last; the status says who runs what.

use std::cmp::Reverse;

use crate::crd::{member_number, pod_name};
use crate::plan::draft::Draft;
use crate::plan::situation::Situation;
use crate::plan::victims::updated;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let rests = s.healthy() == s.voters.len() && s.learners.is_empty() && s.standbys.is_empty();
    // Inputs from which a new member could not be made are given to nobody else.
    if !rests || draft.remembered.is_some() {
        return;
    }
    let current = |name: &str| {
        s.o.sets
            .get(name)
            .is_some_and(|set| set.inputs.as_ref() == Some(&s.o.wanted_inputs))
    };
    let ours = s
        .voters
        .iter()
        .filter(|(_, seat)| seat.ours)
        .map(|(name, _)| name.as_str());
    let mut outdated: Vec<&str> = ours
        .filter(|name| !updated(s, name) || !current(name))
        .collect();
    outdated.sort_by_key(|name| {
        let leads = s.view.is_some_and(|(leader, _)| leader == *name);
        (
            !current(name),
            leads,
            Reverse(member_number(&s.cluster.name, name)),
        )
    });
    let Some(first) = outdated.first().copied() else {
        return;
    };
    if current(first) {
        draft.note(
            "Outdated",
            format!(
                "{} run an older spec; delete pod {} to bring {first} up to date, the next one follows when it is ready",
                outdated.join(", "),
                pod_name(first)
            ),
        );
        return;
    }
    let going = s.o.sets.get(first).is_none_or(|set| set.terminating);
    if !going && s.claim(first).is_some() {
        let action = s.apply_set(first);
        draft.step(16, action, "the spec has changed; nothing is restarted");
    }
}
