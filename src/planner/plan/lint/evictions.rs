//! I11: whatever the PDB lets an eviction take, the others are a quorum, and nothing else takes a member meanwhile.

use super::{Facts, refuse};
use crate::crd::DisruptionPolicy::{self, Auto, Budget, Gate};
use crate::plan::observed::{MemberView, ObjectKind};
use crate::plan::pdb::PdbLimit;

impl Facts<'_> {
    /// Whether evictions are counted, where there is a PDB.
    pub(super) fn with_budget_policy(&self) -> bool {
        self.policy() == Budget
    }

    /// How evictions are handled; a platform without a PDB has none.
    fn policy(&self) -> DisruptionPolicy {
        let mut wanted = self.o.wanted_objects.keys();
        match wanted.any(|key| key.kind == ObjectKind::PodDisruptionBudget) {
            true => self.cluster.spec.disruption.policy,
            false => Gate,
        }
    }

    /// Whether an eviction may take any member, as was seen.
    fn is_open(&self) -> bool {
        let open = self
            .o
            .pdb
            .is_some_and(|pdb| pdb.limit != Some(PdbLimit::CLOSED));
        self.policy() == Auto && open
    }

    /// Under `Budget` all is counted; otherwise a pod is ended while no eviction can take another one.
    pub(super) fn none_but_this_is_evicted(&self) -> Result<(), String> {
        refuse(
            self.is_open(),
            "I11: an eviction may take another pod: the PDB is closed first",
        )
    }

    /// Whether so many members stay available, whatever is evicted.
    pub(super) fn evictions_leave(&self, needed: usize) -> Result<(), String> {
        let kept = self.o.pdb.and_then(|pdb| pdb.min_available()).unwrap_or(0) as usize;
        refuse(
            (self.with_budget_policy() || self.is_open()) && kept < needed,
            "I11: evictions could leave no quorum of the voters to be",
        )
    }

    pub(super) fn set_pdb(&self, limit: PdbLimit, before: Option<PdbLimit>) -> Result<(), String> {
        let policy = self.policy();
        refuse(policy == Gate, "disruption.policy is Gate")?;
        match limit {
            PdbLimit::MaxUnavailable(0) => refuse(policy == Budget, "disruption.policy is Budget"),
            PdbLimit::MaxUnavailable(_) => refuse(true, "I11: it depends on which pods are there"),
            PdbLimit::MinAvailable(kept) => {
                let known = match before {
                    Some(PdbLimit::MinAvailable(before)) => before,
                    Some(PdbLimit::MaxUnavailable(_)) if policy == Auto => u32::MAX,
                    Some(PdbLimit::MaxUnavailable(_)) | None => 0,
                };
                self.keeps_enough(kept as usize, known as usize)?;
                match policy {
                    Auto => self.opens(kept as usize),
                    Budget | Gate => Ok(()),
                }
            }
        }
    }

    fn keeps_enough(&self, kept: usize, before: usize) -> Result<(), String> {
        let lowers = before > kept;
        let most = self.all_voters().count().max(self.cluster.target());
        refuse(kept < most / 2 + 1, "I11: it is less than a quorum")?;
        refuse(
            lowers && self.leader.is_none(),
            "no leader with a quorum was seen",
        )?;
        let mut removed = self.leader.into_iter().flat_map(|(_, d)| &d.tombstones);
        refuse(
            lowers && removed.any(|(_, name)| self.o.pods.contains_key(name)),
            "I11: the pod of a removed member is still there",
        )
    }

    /// Under `Auto`: one of all wanted members, while all are there and stay.
    fn opens(&self, kept: usize) -> Result<(), String> {
        let (healthy, voters) = self.count()?;
        let whole = healthy == voters && voters == self.cluster.target();
        let learns = self.members().any(|m| m.learner);
        refuse(!whole || learns, "I11: a member is missing, or joining")?;
        refuse(voters < 3 || kept + 1 != voters, "I11: not all but one")?;
        let node = |m: &MemberView| self.o.pods.get(&m.name)?.node.as_ref();
        let drained = |m: &MemberView| {
            let node = node(m).and_then(|node| self.o.nodes.get(node));
            node.is_none_or(|node| node.drain_reason.is_some() || !node.ready)
        };
        refuse(
            self.all_voters().any(drained),
            "I11: the node of a member is drained, not ready or unknown",
        )
    }

    fn all_voters(&self) -> impl Iterator<Item = &MemberView> {
        self.members().filter(|m| !m.learner)
    }
}
