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
    let named = s.voters.iter().filter(|(name, seat)| {
        let set = s.o.sets.get(*name);
        let runs = set.is_some_and(|set| !set.hibernated && !set.terminating);
        seat.ours && s.o.fenced.contains(*name) && runs
    });
    // One that hands over already is finished first.
    let mut named: Vec<&String> = named.map(|(name, _)| name).collect();
    named.sort_by_key(|name| !s.retires(name));
    for name in named {
        let voters = s.voters.len();
        if voters - 1 < quorum(voters) {
            let text = format!(
                "{name} is not fenced: without it the other {} of {voters} voters would be no quorum. To stop the whole cluster, with its volumes as they are, set replicas: 0",
                voters - 1
            );
            draft.stall("FenceRefused", text);
            continue;
        }
        if let Some(other) = leaving(s, name) {
            let text = format!("{other}, which is leaving its node or restarting");
            draft.wait("Fence", name, "Settling", text);
            continue;
        }
        if let Err(held) = guards::fence_voter(s, name) {
            draft.guarded("Fence", name, &held);
            continue;
        }
        let leaver = Leaver {
            member: name,
            rule: Rule::Fence,
            reason: REASON,
            for_good: false,
        };
        if hand_over::advance(s, draft, &leaver) {
            draft.step(Rule::Fence, s.sleeping_set(name), REASON);
        }
        return true;
    }
    false
}

/// Another voter that is to have a pod by its set, and is leaving.
fn leaving<'a>(s: &'a Situation<'_>, member: &str) -> Option<&'a String> {
    let others = s.voters.keys().filter(|name| *name != member);
    let mut run = others.filter(|name| s.o.sets.get(*name).is_none_or(|set| !set.hibernated));
    run.find(|name| s.is_leaving(name))
}
