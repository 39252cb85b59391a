//! Members wait differently long for heartbeats while new timings reach them
//! one at a time. Where some would wait less than twice the time between the heartbeats of others, a
//! leader of these would be taken for dead by those, again and again. Such a step is refused before a
//! pod is touched, and nothing is made from the spec; two smaller ones lead there.

use crate::crd::Timings;
use crate::plan::draft::Draft;
use crate::plan::situation::Situation;
use crate::plan::step::Class;

/// Whether the wanted timings cannot follow those that run, and the plan ends here.
pub(super) fn refused(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let Some(why) = why(s) else { return false };
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, "the wanted timings are refused");
    }
    draft.stall("TimingsRefused", why);
    true
}

/// Why the wanted timings cannot follow, if they cannot.
pub(super) fn why(s: &Situation<'_>) -> Option<String> {
    let wanted = s.cluster.spec.server.timings();
    let mut pods = s.o.pods.iter();
    let (member, pod) = pods.find(|(_, pod)| !pod.server.timings.go_with(wanted))?;
    let words = |Timings {
                     heartbeat_ms,
                     election_ms,
                 }: Timings| {
        format!("heartbeats of {heartbeat_ms} ms and elections after {election_ms} ms")
    };
    Some(format!(
        "{member} runs with {}, beside which {} would make needless elections: nobody may wait less than twice as long as between anybody's heartbeats. Nothing is changed until spec.server is corrected; go there in smaller steps",
        words(pod.server.timings),
        words(wanted)
    ))
}
