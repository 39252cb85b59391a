//! The members' own behaviour: a quorum of those that reach each other elects one of them, the leader has contact with
//! those that it reaches and brings them up to date, and an added standby joins. The configuration is one value: a
//! partitioned member has it as well.

use std::collections::{BTreeMap, BTreeSet};

use super::Model;
use crate::plan::{Following, MemberView};

/// Entries that clients write in a second.
const WRITES_A_SECOND: u64 = 10;

/// The members.
#[derive(Clone, Debug, Default)]
pub struct Raft {
    /// The configuration, without the leader's own knowledge.
    pub members: Vec<MemberView>,
    /// Members that were removed: ID and name.
    pub tombstones: Vec<(u64, String)>,
    /// IDs of removed members that were learners to their end.
    pub never_voted: BTreeSet<u64>,
    /// Index of the last change of the configuration.
    pub configuration_index: u64,
    /// Name of the leader.
    pub leader: Option<String>,
    /// Its term.
    pub(super) term: u64,
    /// Its commit index.
    pub commit: u64,
    /// The leader's last contact with a member, by its ID.
    pub(super) contact_ms: BTreeMap<u64, u64>,
    /// The newest epoch of an operator that was seen.
    pub(super) epoch: u64,
    /// Cluster ID; 0 while no cluster was formed.
    pub(super) cluster_id: u64,
    /// Life of the cluster.
    pub incarnation: u64,
    /// How many clusters were formed.
    pub formed: u32,
    /// The cluster that this one follows, as its members describe it.
    pub following: Option<Following>,
    /// Revision of the data.
    pub revision: i64,
}

impl Raft {
    /// The members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberView> {
        self.members.iter().filter(|view| !view.learner)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&MemberView> {
        self.members.iter().find(|view| view.name == name)
    }
}

impl Model {
    /// Whether a member's server runs.
    pub fn runs(&self, member: &str) -> bool {
        self.api.pods.get(member).is_some_and(|pod| {
            let up = pod.started_ms.is_some() && self.is_up(pod.node.as_ref());
            (up || self.faults.answering.contains(&pod.uid))
                && !self.faults.stuck.contains(&pod.uid)
                && self.disk(member).is_some()
        })
    }

    /// Whether this member of the configuration runs on its own disk.
    pub fn lives(&self, view: &MemberView) -> bool {
        let own = |disk: &super::Disk| {
            disk.member == Some(view.id) && !disk.removed && disk.foreign.is_none()
        };
        self.runs(&view.name) && self.disk(&view.name).is_some_and(own)
    }

    /// Voters that live and that the leader reaches.
    pub fn reached_voters(&self) -> impl Iterator<Item = &MemberView> {
        let leader = self.raft.leader.as_deref().unwrap_or_default();
        let voters = self.raft.voters();
        voters.filter(move |view| self.lives(view) && self.reach(leader, &view.name))
    }

    /// How many those are, and how many vote.
    pub fn reachable_voters(&self) -> (usize, usize) {
        let voters = self.raft.voters().count();
        (self.reached_voters().count(), voters)
    }

    /// Whether a leader is known, and a quorum follows it.
    pub fn is_quorate(&self) -> bool {
        let (alive, voters) = self.reachable_voters();
        self.raft.leader.is_some() && alive > voters / 2
    }

    pub(super) fn reach(&self, a: &str, b: &str) -> bool {
        let side = &self.faults.side;
        let same = side.get(a).unwrap_or(&0) == side.get(b).unwrap_or(&0);
        same && self.dials(a, b) && self.dials(b, a)
    }

    /// Whether a member answers linearizable reads as a voter.
    pub(super) fn serves(&self, member: &str) -> bool {
        let Some(view) = self.raft.by_name(member) else {
            return false;
        };
        let leader = self.raft.leader.as_deref();
        self.lives(view)
            && !view.learner
            && leader.is_some_and(|leader| self.reach(leader, member))
            && self.retires_ms(member).is_none()
    }

    pub(super) fn retires_ms(&self, member: &str) -> Option<u64> {
        let pod = self.api.pods.get(member)?;
        self.servers.get(&pod.uid)?.retires_ms
    }

    /// So many milliseconds of an elected leader's work.
    pub(super) fn replicate(&mut self, ms: u64) {
        self.elect();
        let Some(leader) = self.raft.leader.clone() else {
            return;
        };
        self.raft.commit += WRITES_A_SECOND * ms / 1000;
        self.join(&leader);
        let received = self.pace.catch_up.saturating_mul(ms) / 1000;
        for at in 0..self.raft.members.len() {
            let view = &self.raft.members[at];
            if !self.lives(view) || !self.reach(&leader, &view.name) {
                continue;
            }
            let (id, learner) = (view.id, view.learner);
            self.raft.contact_ms.insert(id, self.api.now_ms);
            let commit = self.raft.commit;
            let view = &mut self.raft.members[at];
            let most = view.match_index.saturating_add(received);
            view.match_index = if learner { most.min(commit) } else { commit };
        }
    }

    /// Another one leads where the leader has no quorum.
    pub(super) fn elect(&mut self) {
        if let Some(leader) = &self.raft.leader
            && self.is_supported(leader)
        {
            return;
        }
        let candidates = self.raft.voters();
        let candidates = candidates.filter(|view| self.is_supported(&view.name));
        let next = candidates.max_by_key(|view| view.match_index);
        let next = next.map(|view| view.name.clone());
        if next.is_some() {
            self.raft.term += 1;
            self.raft.contact_ms.clear();
        }
        self.raft.leader = next;
    }

    /// Whether a quorum would vote for this member.
    pub(super) fn is_supported(&self, candidate: &str) -> bool {
        let votes = |view: &&MemberView| self.lives(view) && self.reach(candidate, &view.name);
        let quorum = self.raft.voters().count() / 2 + 1;
        self.raft.voters().filter(votes).count() >= quorum
            && (self.raft.voters()).any(|view| view.name == candidate && self.lives(view))
    }

    /// An added standby joins by itself, and receives its leader's data.
    fn join(&mut self, leader: &str) {
        for at in 0..self.raft.members.len() {
            let view = self.raft.members[at].clone();
            let name = self.pvc_of(&view.name);
            let running = self.runs(&view.name);
            let disk = self.disks.get_mut(&name);
            let added = disk.filter(|disk| disk.member.is_none() && disk.uuid == view.disk_uuid);
            if let Some(disk) = added.filter(|_| running) {
                disk.member = Some(view.id);
                disk.foreign = None;
                if self.health.differing.contains(leader) {
                    self.health.differing.insert(view.name);
                }
            }
        }
    }
}
