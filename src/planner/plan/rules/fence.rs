//! Voters that the user wants stopped, to look at their volumes, by an annotation of the resource: the set of such a member gets no
//! pod, and member and volume stay. Never so many that the others are no quorum. They are started again by `hibernate`, as after
//! a sleep.

use crate::crd::ANNOTATION_FENCED;
use crate::plan::Rule;
use crate::plan::draft::Draft;
use crate::plan::fence::voters;
use crate::plan::guards;
use crate::plan::situation::{Situation, quorum};

use super::hand_over::{self, Leaver};
use super::pod_disruption_budget;

/// Why a member is fenced, in steps and in what is held up.
const REASON: &str = "it is named by the annotation quorate.dev/fenced";

/// Says who is fenced, also without a quorum, and who is named in vain.
pub(super) fn notes(s: &Situation<'_>, draft: &mut Draft) {
    let cluster = &s.cluster.name;
    for name in &s.fenced {
        let text = format!(
            "{name} is fenced: its server is stopped, its volume stays, and no member is added, removed or restarted by choice. kubectl quorate unfence {cluster} {name} starts it again"
        );
        draft.note("Fenced", text);
    }
    let voters = voters(s);
    for name in s.o.fenced.iter().filter(|name| !voters.contains(*name)) {
        let text = format!(
            "{name} is no voter, so the annotation {ANNOTATION_FENCED} does nothing for it: take the name out of it"
        );
        draft.note("FencedUnknown", text);
    }
}

/// Stops one that is named and runs. Returns whether one is on its way.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    for name in named(s) {
        match held(s, name) {
            Some(Held::Refused(text)) => draft.stall("FenceRefused", text),
            Some(Held::Leaving(other)) => {
                let text = format!("{other}, which is leaving its node or restarting");
                draft.wait("Fence", name, "Settling", text);
            }
            Some(Held::Guard(held)) => draft.guarded("Fence", name, &held),
            Some(Held::Budget(why)) => wait_for_budget(draft, name, &why),
            None => {
                stop(s, draft, name);
                return true;
            }
        }
    }
    false
}

/// The one that is stopped now, or hands over for that.
pub(super) fn next<'s>(s: &'s Situation<'_>) -> Option<&'s String> {
    named(s).into_iter().find(|name| held(s, name).is_none())
}

/// Voters that are named and run. One that hands over already is finished first.
fn named<'s>(s: &'s Situation<'_>) -> Vec<&'s String> {
    let named = s.voters.iter().filter(|(name, seat)| {
        let set = s.o.sets.get(*name);
        let runs = set.is_some_and(|set| !set.hibernated && !set.terminating);
        seat.ours && s.o.fenced.contains(*name) && runs
    });
    let mut named: Vec<&String> = named.map(|(name, _)| name).collect();
    named.sort_by_key(|name| !s.retires(name));
    named
}

/// What keeps a named voter from being stopped.
enum Held<'s> {
    /// There are too few voters for that.
    Refused(String),
    /// This one is leaving.
    Leaving(&'s String),
    /// The others would be no quorum now.
    Guard(String),
    /// The PDB counts too few of the others, so that nobody would let go of it once it has handed over.
    Budget(String),
}

fn held<'s>(s: &'s Situation<'_>, name: &str) -> Option<Held<'s>> {
    let voters = s.voters.len();
    if voters - 1 < quorum(voters) {
        let text = format!(
            "{name} is not fenced: without it the other {} of {voters} voters would be no quorum. To stop the whole cluster, with its volumes as they are, set replicas: 0",
            voters - 1
        );
        return Some(Held::Refused(text));
    }
    let other = leaving(s, name).map(Held::Leaving);
    let other = other.or_else(|| guards::fence_voter(s, name).err().map(Held::Guard));
    // Only its restart ends that it retires.
    let too_few = || pod_disruption_budget::too_few_beside(s, name).filter(|_| !s.retires(name));
    other.or_else(|| too_few().map(Held::Budget))
}

fn stop(s: &Situation<'_>, draft: &mut Draft, name: &str) {
    let leaver = Leaver {
        member: name,
        rule: Rule::Fence,
        reason: REASON,
        for_good: false,
    };
    if !hand_over::advance(s, draft, &leaver) {
        return;
    }
    match pod_disruption_budget::keeps_too_few_beside(s, name) {
        Some(why) => wait_for_budget(draft, name, &why),
        None => draft.step(Rule::Fence, s.sleeping_set(name), REASON),
    }
}

fn wait_for_budget(draft: &mut Draft, name: &str, why: &str) {
    let what = format!("the PDB to count on the others without {name}: {why}");
    draft.wait("Fence", name, "Budget", what);
}

/// Another voter that is to have a pod by its set, and is leaving. Of one that is not healthy nothing is taken by stopping it.
fn leaving<'a>(s: &'a Situation<'_>, member: &str) -> Option<&'a String> {
    if s.voters.get(member).is_some_and(|seat| !seat.healthy()) {
        return None;
    }
    let others = s
        .voters
        .iter()
        .filter(|(name, seat)| *name != member && seat.ours);
    let mut run = others
        .map(|(name, _)| name)
        .filter(|name| s.o.sets.get(*name).is_none_or(|set| !set.hibernated));
    run.find(|name| s.is_leaving(name))
}
