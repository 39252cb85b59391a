//! A member that the user has named is stopped only while the others are a quorum without it.

use super::{Facts, refuse};
use crate::plan::observed::PodFacts;

impl Facts<'_> {
    /// Whether the set of a named member may have no pod. It may where it has none already. A set that is missing says nothing of its
    /// member, which may run: it has to be away, beside all else that is asked for.
    pub(super) fn fences(&self, member: &str) -> Result<(), String> {
        let set = self.o.sets.get(member);
        if set.is_some_and(|set| set.hibernated) {
            return Ok(());
        }
        refuse(self.leader.is_none(), "no leader with a quorum was seen")?;
        let runs = self.o.pods.contains_key(member)
            || self
                .members()
                .any(|one| one.name == member && self.reached(one));
        refuse(
            set.is_none() && runs,
            "I3: it runs without a set, and is to hand over first",
        )?;
        self.none_but_this_is_evicted()?;
        let ends = |(name, pod): (&String, &PodFacts)| {
            name != member && (pod.terminating || pod.released_ms.is_some())
        };
        refuse(self.o.pods.iter().any(ends), "I3: another pod may end")?;
        let voters = || self.members().filter(|one| !one.learner);
        let others = voters().filter(|one| one.name != member);
        let healthy = others.filter(|one| self.healthy(one)).count();
        refuse(
            !voters().any(|one| one.name == member),
            "I3: it does not vote",
        )?;
        let needed = voters().count() / 2 + 1;
        refuse(healthy < needed, "I3: the others would be no quorum")?;
        // No PDB counts what a set ends.
        let pod = self.o.pods.get(member);
        let counts = pod.is_some_and(|pod| pod.ready_since_ms.is_some() && !pod.terminating);
        self.evictions_leave(needed + usize::from(counts))
    }
}
