//! Members have different timings while new ones are rolled out. If the election timeout of some were less than twice
//! the heartbeat interval of others, they would repeatedly consider a healthy leader dead. Such a change is refused
//! before a pod is touched, and nothing is created from the spec; it can be made in two smaller steps.

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
        "{member} runs with {}; together with {} this would cause needless elections: every election timeout must be at least twice every heartbeat interval. Nothing is changed until spec.server is corrected; change the timings in smaller steps",
        words(pod.server.timings),
        words(wanted)
    ))
}
