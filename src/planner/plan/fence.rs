//! Voters that the user has stopped, to look at their volumes: which they are. Decides about no step.

use std::collections::BTreeSet;

use super::observed::{MemberView, Phase};
use super::situation::{CONTACT_MS, Situation, quorum};

/// The voters that are named and stopped. A quorum of the others is never among them: of a cluster that slept more may be named than
/// can be spared.
pub(super) fn fenced(s: &Situation<'_>) -> BTreeSet<String> {
    let voters = voters(s);
    let named = s.o.fenced.iter().filter(|name| voters.contains(*name));
    // Who is stopped for certain comes first: who may stay so has to leave a quorum beside these.
    let (certain, others): (Vec<&String>, Vec<&String>) =
        named.partition(|name| s.o.sets.contains_key(*name));
    let certain = certain
        .into_iter()
        .filter(|name| s.o.sets[*name].hibernated);
    let others = others.into_iter().filter(|name| may_stay_stopped(s, name));
    let most = voters.len() - quorum(voters.len()).min(voters.len());
    certain.chain(others).take(most).cloned().collect()
}

/// Whether a named voter without a set gets one without a pod. That a set is missing does not say that its member was stopped: it may
/// run all the same, or never have been stopped. So it has to be away already, and could be stopped now.
fn may_stay_stopped(s: &Situation<'_>, member: &str) -> bool {
    let Some((leader, description)) = s.view else {
        return false;
    };
    let reached = |one: &MemberView| {
        one.name == leader || one.last_contact_ms.is_some_and(|age| age <= CONTACT_MS)
    };
    let voters = || description.members.iter().filter(|one| !one.learner);
    let runs =
        s.o.pods.contains_key(member) || voters().any(|one| one.name == member && reached(one));
    let mut pods = s.o.pods.values();
    let one_goes = pods.any(|pod| pod.terminating || pod.released_ms.is_some());
    let serves = |one: &&MemberView| {
        let described = s.description(&one.name);
        reached(one) && described.is_some_and(|d| d.phase == Phase::Member)
    };
    let others = voters().filter(|one| one.name != member);
    let spared = others.filter(serves).count() >= quorum(voters().count());
    let kept = s.o.pdb.and_then(|pdb| pdb.min_available()).unwrap_or(0) as usize;
    let evicted =
        s.may_lose_one() || s.counts_evictions_by_pdb() && kept < quorum(voters().count());
    !runs && !one_goes && spared && !evicted
}

/// The names of the voters, as a leader says, or as the status does while none is seen.
pub(super) fn voters(s: &Situation<'_>) -> BTreeSet<String> {
    let Some((_, leader)) = s.view else {
        return s.o.status_memory.voters.iter().cloned().collect();
    };
    let voters = leader.members.iter().filter(|member| !member.learner);
    voters.map(|member| member.name.clone()).collect()
}
