//! A spec that no voter runs with yet is given to one member at a time, whatever trouble the others have: one that nothing
//! starts with then costs one member and not the quorum. Plans nothing itself.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::evidence::START_MS;
use crate::plan::observed::PodFacts;
use crate::plan::situation::{CONTACT_MS, Situation, in_ms};

use super::bootstrap;

/// Who has the wanted inputs, or gets them by this plan, and is still to show that a member runs with them: meanwhile this
/// one does not get them. `None` also where this one alone is left to show it: its own pod is refused by its kubelet, nothing
/// runs with the inputs that it has, and the others had their time.
pub(super) fn tried_by(s: &Situation<'_>, draft: &Draft, member: &str) -> Option<String> {
    let wanted = &s.o.wanted_inputs;
    if mutant!(TriedByAll) || is_proven(s, wanted) {
        return None;
    }
    let mut others = s.o.sets.keys().filter(|name| *name != member);
    let helpless = is_helpless(s, member);
    let tries =
        |name: &String| is_given(draft, name) || has(s, name) && !(helpless && is_overdue(s, name));
    if let Some(other) = others.find(|name| tries(name)) {
        return Some(other.clone());
    }
    let failed = s.o.status_memory.join_failures.as_ref();
    let failed = failed.is_some_and(|failure| failure.inputs == s.attempt());
    (failed && !helpless).then(|| "a new member".to_owned())
}

/// Reports that a member does not get the wanted inputs yet.
pub(super) fn note(draft: &mut Draft, member: &str, other: &str) {
    let text = format!(
        "{member} does not run and keeps the spec that it has: {other} is still to run with the changed one"
    );
    draft.note("KeepsSpec", text);
}

/// Whether a voter runs with these inputs. Of others it is not known whether their release reads the voters' disks.
fn is_proven(s: &Situation<'_>, inputs: &str) -> bool {
    let known = bootstrap::known_voters(s);
    let voters = s
        .voters
        .keys()
        .chain(known.iter().filter(|_| s.view.is_none()));
    voters.into_iter().any(|name| runs(s, name, inputs))
}

/// Whether a member stays up with these inputs, in contact with the leader where there is one.
fn runs(s: &Situation<'_>, member: &str, inputs: &str) -> bool {
    let pod = live_pod(s, member).filter(|pod| pod.inputs.as_deref() == Some(inputs));
    let since = pod.and_then(|pod| pod.started_ms);
    let stays_up = since.is_some_and(|since| since + START_MS <= s.o.now_ms);
    let leads = s.view.is_some_and(|(leader, _)| leader == member);
    let seat = s.voters.get(member).or_else(|| s.learners.get(member));
    let contact = match seat {
        Some(seat) => seat
            .view
            .last_contact_ms
            .is_some_and(|age| age <= CONTACT_MS),
        None => s.view.is_none() || s.description(member).is_some(),
    };
    stays_up && (leads || contact)
}

/// Whether a member cannot go on as it is: its kubelet or the scheduler reports what keeps it from running, and, as long as
/// there is a leader, no voter runs with its inputs. One that is only away, as while its node boots, has no such report.
fn is_helpless(s: &Situation<'_>, member: &str) -> bool {
    let pod = live_pod(s, member).filter(|pod| pod.started_ms.is_none() && pod.waiting.is_some());
    let inputs = pod.and_then(|pod| pod.inputs.as_deref());
    inputs.is_some_and(|inputs| s.view.is_none() || !is_proven(s, inputs))
}

/// Whether a rule that corrects what does not run gives a member's next pod the wanted inputs.
fn is_given(draft: &Draft, member: &str) -> bool {
    draft.steps.iter().any(|step| match &step.action {
        Action::Object(ObjectAction::ApplySet {
            member: other,
            hibernated,
            ..
        }) => {
            other == member
                && !hibernated
                && matches!(step.rule, Rule::RollUnhealthy | Rule::Quorum)
        }
        _ => false,
    })
}

/// Whether a member's set has the wanted inputs, and its pod, if there is one, too.
fn has(s: &Situation<'_>, member: &str) -> bool {
    let wanted = |inputs: &Option<String>| inputs.as_ref() == Some(&s.o.wanted_inputs);
    let set =
        s.o.sets
            .get(member)
            .filter(|set| !set.terminating && !set.hibernated);
    set.is_some_and(|set| wanted(&set.inputs))
        && live_pod(s, member).is_none_or(|pod| wanted(&pod.inputs))
}

/// Whether a member has had the time in which it has to come back.
fn is_overdue(s: &Situation<'_>, member: &str) -> bool {
    let deadline = in_ms(s.cluster.spec.update_strategy.progress_deadline_seconds);
    let seat = s.voters.get(member).or_else(|| s.learners.get(member));
    let away = seat.and_then(|seat| seat.view.last_contact_ms);
    let since = match s.o.pods.get(member) {
        Some(pod) if pod.terminating => pod.ends_ms,
        Some(pod) => Some(pod.created_ms),
        None => away.map(|age| s.o.now_ms.saturating_sub(age)),
    };
    since.is_some_and(|since| since + deadline <= s.o.now_ms)
}

fn live_pod<'s>(s: &'s Situation<'_>, member: &str) -> Option<&'s PodFacts> {
    s.o.pods.get(member).filter(|pod| !pod.terminating)
}
