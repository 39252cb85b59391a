//! Too few members: the next PVC, then its set. After a member was given up, the next one waits, longer each time; a
//! changed spec is tried at once.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::nodes::Way;
use crate::plan::situation::{Situation, in_ms};
use crate::plan::step::Class;
use crate::plan::victims;

use super::sets;

/// The longest pause between two attempts, milliseconds.
const LONGEST_PAUSE_MS: u64 = 1_800_000;
/// The first pause after a failed attempt, milliseconds; never longer than the deadline itself.
const FIRST_PAUSE_MS: u64 = 60_000;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let target = s.goal();
    draft.remembered =
        s.o.status_memory
            .join_failures
            .clone()
            .filter(|failure| (s.voters.len() < target) && failure.inputs == s.attempt());
    if s.voters.len() + s.learners.len() >= target {
        return;
    }
    if draft.held(Class::Objects) {
        return;
    }
    // A PVC without its set: finish what was begun.
    for name in s
        .standbys
        .iter()
        .filter(|name| !s.o.sets.contains_key(*name))
        .take(target)
    {
        if s.o.pods.contains_key(name) {
            draft.wait(
                "ApplySet",
                name,
                "Terminating",
                "an earlier pod of this name to terminate",
            );
            continue;
        }
        let reason = "its PVC exists and it needs a pod";
        sets::apply(s, draft, Rule::Grow, name, reason);
        return;
    }
    if s.seats() >= target {
        return;
    }
    let most = if s.grows_by_two() { 2 } else { 1 };
    if s.standbys.len() + s.learners.len() >= most && !mutant!(TwoLearners) {
        return;
    }
    if let Some(failure) = &draft.remembered {
        let patience = in_ms(s.cluster.spec.healing.learner_deadline_seconds);
        let first = FIRST_PAUSE_MS.min(patience.max(1000));
        let doubled = first.saturating_mul(1 << failure.count.saturating_sub(1).min(16));
        let due = failure.last_ms + doubled.min(LONGEST_PAUSE_MS);
        if due > s.o.now_ms {
            let why = format!(
                "the back-off after {} failed attempt(s) to add a member; the last: {}",
                failure.count, failure.reason
            );
            let since = failure.last_ms;
            let wait = draft.wait("CreatePVC", "", "BackOff", why);
            wait.since_ms = Some(since);
            wait.deadline_ms = Some(due);
            return;
        }
    }
    let volume = s.new_volume();
    let member = s.next_name();
    let pvc = s.pvc_name(&member);
    let mut reason = format!("{} of {target} members", s.seats());
    let leaver = |name: &String| (s.way(name) == Some(Way::AddFirst)).then(|| s.leaves(name));
    if let Some((node, why)) = s.voters.keys().find_map(leaver).flatten() {
        reason += &format!(": {node} {why}, and its member is replaced");
    }
    let mut leavers = victims::voters_in_order(s).into_iter();
    if let Some((name, why)) = leavers.find_map(|name| Some((name, s.unfit(name)?))) {
        reason += &format!(": {name} is replaced, because {why}");
    }
    draft.step(
        Rule::Grow,
        Action::Object(ObjectAction::CreatePvc {
            member,
            incarnation: s.incarnation,
            pvc,
            bytes: volume.bytes,
            asked: volume.asked,
        }),
        reason,
    );
}
