//! Voters that the user has stopped, to look at their volumes: which they are. Decides about no step.

use std::collections::BTreeSet;

use super::situation::{Situation, quorum};

/// The voters that are named, and whose sets have no pod any more. A quorum of the others is never among them: of a cluster
/// that slept more may be named than can be spared.
pub(super) fn fenced(s: &Situation<'_>) -> BTreeSet<String> {
    let voters = voters(s);
    let stopped = |name: &&String| s.o.sets.get(*name).is_none_or(|set| set.hibernated);
    let named = s.o.fenced.iter().filter(|name| voters.contains(*name));
    let most = voters.len() - quorum(voters.len()).min(voters.len());
    named.filter(stopped).take(most).cloned().collect()
}

/// The names of the voters, as a leader says, or as the status does while none is seen.
pub(super) fn voters(s: &Situation<'_>) -> BTreeSet<String> {
    let Some((_, leader)) = s.view else {
        return s.o.status_memory.voters.iter().cloned().collect();
    };
    let voters = leader.members.iter().filter(|member| !member.learner);
    voters.map(|member| member.name.clone()).collect()
}
