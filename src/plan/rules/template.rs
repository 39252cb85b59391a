//! Rule 16, as far as this version goes: at rest, a changed template is given to the sets, which
//! restart nothing by themselves. A member runs it from its next pod on; the status says who does.

use crate::plan::draft::Draft;
use crate::plan::situation::Situation;
use crate::plan::step::Action;
use crate::plan::victims::updated;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let rests = s.healthy() == s.voters.len() && s.learners.is_empty() && s.standbys.is_empty();
    if !rests {
        return;
    }
    let mut outdated = Vec::new();
    for (name, seat) in s.voters.iter().filter(|(_, seat)| seat.ours) {
        let Some(set) = s.o.sets.get(name).filter(|set| !set.terminating) else {
            continue;
        };
        if set.inputs.as_ref() != Some(&s.o.wanted_inputs) && s.claim(name).is_some() {
            let action = Action::ApplySet {
                member: name.clone(),
                claim: s.claim_name(name),
            };
            draft.step(16, action, "the spec has changed; nothing is restarted");
        }
        if seat.healthy() && !updated(s, name) {
            outdated.push(name.as_str());
        }
    }
    if !outdated.is_empty() {
        draft.note(
            "Outdated",
            format!(
                "{} run an older spec until their pods are made again; to do it now, delete one pod at a time and wait until it is ready",
                outdated.join(", ")
            ),
        );
    }
}
