//! Under `disruption.policy: Budget`: how many members have to stay available, and how a serving pod is stopped. The
//! number is a quorum of all that vote, that the spec wants, that are about to vote, and whose pods still exist after
//! they left: so it is raised before a promotion and lowered last, and no eviction, from any source, leaves too few.
//!
//! A serving pod is evicted, so that it is counted with all other evictions. One that does not serve is deleted: the
//! PDB counts it as unavailable already, and would refuse its eviction exactly when there are too few. Hibernation
//! scales down, and is not subject to the PDB. A fence scales down as well, and an eviction at the same moment would take a second
//! member: so one more has to stay available for as long as the pod counts that is about to end by its set.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::PvcState;
use crate::plan::pdb::PdbLimit;
use crate::plan::situation::{Situation, quorum};
use crate::plan::step::Class;

const UNCOUNTED: &str = "the PDB's status has not been updated yet";

/// Makes the PDB, raises it or lowers it. `fenced` is who is fenced next, if anybody may be now.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft, fenced: Option<&String>) {
    let wanted = s.wanted_pdb();
    let Some((key, inputs)) = wanted.filter(|_| s.counts_evictions_by_pdb()) else {
        return;
    };
    let facts = s.o.objects.get(key);
    if facts.is_some_and(|facts| facts.terminating) {
        let text = format!("{} {} to be deleted", key.kind.as_str(), key.name);
        draft.wait("SetPDB", "", "Terminating", text);
        return;
    }
    let limit = s.o.pdb.and_then(|pdb| pdb.limit);
    let before = s.o.pdb.and_then(|pdb| pdb.min_available());
    let current = facts.is_some_and(|facts| facts.inputs.as_ref() == Some(inputs));
    // The existing number stays until a leader reports the voters.
    if facts.is_some() && s.view.is_none() {
        return;
    }
    let members = members(s);
    let stops = mutant!(DeletedUnasked => 0, else stopping(s, fenced));
    let wanted = u32::try_from(quorum(members) + stops).unwrap_or(u32::MAX);
    // Lowered only when no pod of a removed member exists any more: until then the PDB could count such a pod as
    // available in place of a voter's.
    let kept = before.filter(|_| !mutant!(LoweredEarly) && left(s) > 0);
    let min_available = wanted.max(kept.unwrap_or(0));
    if current && before == Some(min_available) {
        return;
    }
    let why = match before {
        _ if facts.is_none() => "it is missing".to_owned(),
        Some(now) if now < min_available && stops > 0 => {
            format!("{stops} of {members} members is to stop without an eviction")
        }
        Some(now) if now < min_available => format!("{members} vote, or may soon"),
        Some(now) if now > min_available => {
            format!("{members} vote, and no pod of a removed member is left")
        }
        _ => "disruption.policy is Budget".to_owned(),
    };
    draft.step(
        Rule::Objects,
        Action::Object(ObjectAction::SetPdb {
            limit: PdbLimit::MinAvailable(min_available),
            before: limit,
        }),
        why,
    );
}

/// Members whose quorum has to stay available.
fn members(s: &Situation<'_>) -> usize {
    let target = s.cluster.target();
    if s.view.is_none() {
        // The voters are unknown: no fewer than any source indicates.
        let joined = |state: PvcState| state == PvcState::Joined;
        let joined = s.our_pvcs().filter(|(_, pvc)| joined(pvc.state));
        return target
            .max(s.o.status_memory.voters.len())
            .max(joined.count());
    }
    let soon = s.learners.values().filter(|seat| seat.ours).count();
    let soon = mutant!(PromotedUnbudgeted => 0, else soon);
    let left = mutant!(LoweredEarly => 0, else left(s));
    target.max(s.voters.len() + soon + left)
}

/// Pods that are still there of members that left.
fn left(s: &Situation<'_>) -> usize {
    let pods = s.o.pods.keys();
    pods.filter(|name| s.tombstoned(name)).count()
}

/// Pods that end by their sets, and that Kubernetes counts as available until then: of who is fenced next, and of who is fenced already.
fn stopping(s: &Situation<'_>, next: Option<&String>) -> usize {
    let fenced = s.fenced.iter().filter(|name| Some(*name) != next);
    let ending = next.into_iter().chain(fenced);
    ending.filter(|name| is_available(s, name)).count()
}

/// Whether Kubernetes counts a member's pod as available, as far as observed.
fn is_available(s: &Situation<'_>, member: &str) -> bool {
    let pod = s.o.pods.get(member);
    pod.is_some_and(|pod| pod.ready_since_ms.is_some() && !pod.terminating)
}

/// Why too few of the others are available for a member's pod to end by its set, if the PDB is what counts them.
pub(super) fn too_few_beside(s: &Situation<'_>, member: &str) -> Option<String> {
    if !s.counts_evictions_by_pdb() || mutant!(DeletedUnasked) {
        return None;
    }
    let Some(available) = s.o.pdb.unwrap_or_default().available else {
        return Some(UNCOUNTED.to_owned());
    };
    let (counts, least) = beside(s, member);
    too_few(available.saturating_sub(counts), least)
}

/// As how many pods Kubernetes counts a member's own, and how many have to be available beside it.
fn beside(s: &Situation<'_>, member: &str) -> (u32, u32) {
    let least = u32::try_from(quorum(s.voters.len())).unwrap_or(u32::MAX);
    (u32::from(is_available(s, member)), least)
}

/// Why a member's pod does not end by its set yet, which no PDB counts: an eviction could leave too few beside it.
pub(super) fn keeps_too_few_beside(s: &Situation<'_>, member: &str) -> Option<String> {
    if !s.counts_evictions_by_pdb() || mutant!(DeletedUnasked) {
        return None;
    }
    let Some(kept) = s.o.pdb.unwrap_or_default().min_available() else {
        return Some(UNCOUNTED.to_owned());
    };
    let (counts, least) = beside(s, member);
    if kept < least + counts {
        let required = least + counts;
        return Some(format!("it keeps {kept} available, required: {required}"));
    }
    too_few_beside(s, member)
}

/// Stops a voter's pod that nothing else protects: evicted under a PDB, deleted otherwise. Reason and number are those
/// of the rule that wants it.
pub(super) fn let_go(
    s: &Situation<'_>,
    draft: &mut Draft,
    (word, rule): (&'static str, Rule),
    member: &str,
    uid: &str,
    reason: String,
) {
    let (name, uid) = (member.to_owned(), uid.to_owned());
    if !s.counts_evictions_by_pdb() || mutant!(DeletedUnasked) {
        let action = Action::Object(ObjectAction::DeletePod { member: name, uid });
        return draft.step(rule, action, reason);
    }
    match refused(s, member) {
        Some(why) => {
            let what = format!("the PDB to allow the eviction of {member}: {why}");
            draft.hold(Class::Disruption, format!("{member} waits for {what}"));
            draft.wait(word, member, "Budget", what);
        }
        None => draft.step(
            rule,
            Action::Object(ObjectAction::EvictPod { member: name, uid }),
            reason,
        ),
    }
}

/// Why the PDB would refuse an eviction of this member's pod, as far as observed: then it is not requested.
fn refused(s: &Situation<'_>, member: &str) -> Option<String> {
    let pdb = s.o.pdb.unwrap_or_default();
    let (Some(min_available), Some(available)) = (pdb.min_available(), pdb.available) else {
        return Some(UNCOUNTED.to_owned());
    };
    let counts = u32::from(is_available(s, member));
    too_few(available.saturating_sub(counts), min_available)
}

fn too_few(others: u32, required: u32) -> Option<String> {
    (others < required).then(|| format!("other members available: {others}, required: {required}"))
}
