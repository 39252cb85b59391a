//! Volumes only grow, and never beyond what the specification allows.

use super::{Facts, refuse};
use crate::crd::{bytes_of, pvc_name};
use crate::plan::observed::{Observed, PvcFacts, PvcState};

impl Facts<'_> {
    /// Up to `storage.size`, what it was for another volume of this cluster, or `storage.autogrow.max`.
    pub(super) fn grow_pvc(&self, pvc: &str, bytes: u64) -> Result<(), String> {
        let Some(facts) = self.o.pvcs.get(pvc) else {
            return Err("there is no such PVC".to_owned());
        };
        refuse(bytes <= facts.requested_bytes, "it would not grow")?;
        let ours = |facts: &&PvcFacts| facts.cluster_uid.as_ref() == Some(&self.cluster.life);
        let asked = |facts: &PvcFacts| facts.storage.asked.as_ref().map_or(0, |asked| asked.bytes);
        let before = self.o.pvcs.values().filter(ours).map(asked).max();
        let autogrow = self.cluster.spec.storage.autogrow.as_ref();
        let max = autogrow.and_then(|autogrow| bytes_of(&autogrow.max).ok());
        let allowed = [before, max].into_iter().flatten();
        let most = allowed.fold(self.cluster.storage_bytes, u64::max);
        refuse(bytes > most, "storage.size does not allow that much")
    }

    /// Whether nothing was ever stored in this PVC, nor anywhere else for this cluster.
    pub(super) fn never_held_data(&self, pvc: &str) -> bool {
        let facts = self.o.pvcs.get(pvc);
        let unused = facts.is_some_and(|facts| !facts.bound && facts.state == PvcState::New);
        let uid = Some(&self.cluster.life);
        let mut ours = self
            .o
            .pvcs
            .values()
            .filter(|facts| facts.cluster_uid.as_ref() == uid);
        let formed = self.o.status_cluster_id.is_some() || self.leader.is_some();
        unused && !formed && ours.all(|facts| facts.state == PvcState::New)
    }

    /// A voter that serves is not restarted into a place where its volume cannot follow.
    pub(super) fn follows(&self, member: &str) -> Result<(), String> {
        let pvc = self.o.pvcs.get(&pvc_name(member, &self.cluster.life));
        let stranded = pvc.is_some_and(|pvc| selects_none(self.o, pvc));
        refuse(
            stranded,
            "I4: no node that the pod template selects can use its volume",
        )
    }
}

fn selects_none(o: &Observed, pvc: &PvcFacts) -> bool {
    let nodes = pvc.nodes.as_ref().filter(|nodes| !nodes.is_empty());
    nodes.is_some_and(|nodes| {
        let mut known = nodes.iter().map(|node| o.nodes.get(node));
        known.all(|node| node.is_some_and(|node| node.unselected))
    })
}
