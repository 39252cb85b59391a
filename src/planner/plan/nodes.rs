//! Members on drained nodes: how such a member can leave, and which nodes have room for it. The rules decide what to
//! do.

use std::collections::BTreeMap;

use crate::crd::{NodeReplacement, Spread, VolumeMobility};

use crate::mutants::mutant;

use super::situation::Situation;

/// How a voter leaves its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The same member, with its volume, on another node.
    Move,
    /// Another member is added on another node and promoted first.
    AddFirst,
    /// It is removed, then another one is added.
    RemoveFirst,
    /// Not now: the reason and what the user can do about it.
    Stay(&'static str, String),
}

impl<'a> Situation<'a> {
    /// The node of a member's pod and why it counts as drained, if it does.
    pub(super) fn leaves(&self, member: &str) -> Option<(&'a str, &'a str)> {
        let node = self.o.pods.get(member)?.node.as_deref()?;
        let reason = self.o.nodes.get(node)?.drain_reason.as_deref()?;
        Some((node, reason))
    }

    /// Whether a member's pod, if recreated, would not be placed on its node again.
    pub(super) fn cannot_return(&self, member: &str) -> bool {
        let node = self.leaves(member).map(|(node, _)| node);
        node.is_some_and(|node| self.is_closed(node))
    }

    /// Whether a member leaves a node together with its volume, where that can follow.
    pub(super) fn moves_members(&self) -> bool {
        match self.cluster.spec.disruption.node_replacement {
            NodeReplacement::Auto => !self.updates_by_replacement(),
            NodeReplacement::Move => true,
            NodeReplacement::AddFirst | NodeReplacement::RemoveFirst => false,
        }
    }

    /// Whether a member's volume can leave its node; `None` while that is not known.
    pub(super) fn volume_leaves(&self, member: &str) -> Option<bool> {
        let pvc = self.pvc(member)?;
        match self.cluster.spec.scheduling.volumes {
            VolumeMobility::NodeBound => Some(false),
            VolumeMobility::Movable => Some(true),
            VolumeMobility::Auto => pvc.node_bound.map(|bound| !bound),
        }
    }

    /// How a member leaves its drained node; `None` if the node is not drained.
    pub(super) fn way(&self, member: &str) -> Option<Way> {
        let (node, why) = self.leaves(member)?;
        if !self.is_closed(node) {
            let text = format!(
                "{node}, which {why}, to be closed to new pods, so that {member} does not come back to it: cordon it"
            );
            return Some(Way::Stay("NotCordoned", text));
        }
        let wanted = self.cluster.spec.disruption.node_replacement;
        if wanted == NodeReplacement::RemoveFirst || mutant!(RemoveFirstUnasked) {
            return Some(Way::RemoveFirst);
        }
        if self.moves_members() && self.rooms().any(|room| self.follows(member, room)) {
            return Some(Way::Move);
        }
        if wanted != NodeReplacement::Move && self.can_come(member) {
            return Some(Way::AddFirst);
        }
        Some(Way::Stay("NoSpareNode", self.no_spare(member, node, why)))
    }

    /// Why the operator does not wait for a new member that does not vote yet: its volume is not one that the spec asks
    /// for any more, or it is on a node where it cannot stay, and another one could be created elsewhere. A learner that
    /// can follow is promoted, and moves then.
    pub(super) fn turned_back(&self, member: &str) -> Option<String> {
        // One that completes the voters comes first, and is replaced like any other voter then.
        let needed =
            self.learners.contains_key(member) && self.voters.len() < self.cluster.target();
        if let Some(why) = self.unfit(member).filter(|_| !needed) {
            return Some(format!("{why}, and it is no voter yet"));
        }
        let (node, why) = self.leaves(member)?;
        let mut others = self.o.nodes.keys().filter(|other| *other != node);
        let learner = self.learners.contains_key(member);
        if learner && others.any(|other| self.follows(member, other)) {
            return None;
        }
        let elsewhere = self.rooms().next().is_some();
        (self.is_closed(node) && elsewhere)
            .then(|| format!("its node {node} {why}, and it is no voter yet"))
    }

    fn is_closed(&self, node: &str) -> bool {
        self.o.nodes.get(node).is_some_and(|facts| facts.closed)
    }

    /// Whether a successor of this member finds a node, or is joining already.
    fn can_come(&self, member: &str) -> bool {
        let half_way =
            |name: &String| name != member && self.leaves(name).is_some() && self.retires(name);
        let newcomer = self.seats() > self.cluster.target();
        // A move that was begun is finished first.
        let busy = self.voters.keys().any(half_way);
        newcomer || !busy && self.rooms().next().is_some()
    }

    /// Whether the member's volume can be used on this node. Unknown is no.
    fn follows(&self, member: &str, node: &str) -> bool {
        let Some(pvc) = self.pvc(member) else {
            return false;
        };
        let seen = pvc.nodes.as_ref().map(|nodes| nodes.contains(node));
        self.volume_leaves(member) == Some(true) && seen.unwrap_or(true)
    }

    /// Nodes on which one more member may run, according to nodes, taints and spread: free capacity is not checked. As
    /// the spec spreads them, the failure of a node must not take more members than it does now.
    fn rooms(&self) -> impl Iterator<Item = &'a str> {
        let mut crowd: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.o.pods.values() {
            if let Some(node) = pod.node.as_deref() {
                *crowd.entry(node).or_default() += 1;
            }
        }
        let most = match (self.cluster.spec.scheduling.spread, self.keeps_apart()) {
            (Spread::Preferred, _) => usize::MAX,
            (Spread::Required, true) => 1,
            (Spread::Required, false) => crowd.values().copied().max().unwrap_or(1),
        };
        let open = self.o.nodes.iter().filter(|(_, facts)| {
            facts.ready && facts.drain_reason.is_none() && !facts.closed && !facts.out_of_service
        });
        open.map(|(name, _)| name.as_str())
            .filter(move |name| crowd.get(name).copied().unwrap_or(0) < most)
    }

    fn no_spare(&self, member: &str, node: &str, why: &str) -> String {
        let shares = if self.cluster.spec.scheduling.spread == Spread::Required {
            ", or set scheduling.spread: Preferred to let members share one"
        } else {
            ""
        };
        format!(
            "a node for {member}: its node {node} {why}, and no other node has room. Add a node{shares}, or uncordon {node}; drains of {node} are blocked until then"
        )
    }
}
