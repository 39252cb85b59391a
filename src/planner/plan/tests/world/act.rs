//! A step is carried out by the model; here is what no step may ever ask for, whether or not the API
//! server and the members would refuse it. A refusal fails the test as well.

use super::World;
use crate::plan::*;
use crate::plan::{MemberAction, ObjectAction};

impl World {
    /// Carries out a step, refusing what must never be asked.
    pub(in crate::plan::tests) fn execute(&mut self, action: &Action) {
        self.render();
        self.never(action);
        self.names_what_is_there(action);
        let quorate = self.is_quorate();
        let before = self.min_available();
        let done = self.model.act(action);
        assert_eq!(done, Ok(()), "{action}");
        self.keeps_a_quorum(action, quorate);
        let incarnation = self.api.identity_secret.as_ref();
        let incarnation = incarnation.map_or(0, |identity| identity.incarnation);
        let incarnation = incarnation.max(self.raft.incarnation);
        assert!(
            u64::from(self.raft.formed) <= incarnation,
            "I7: one cluster an incarnation"
        );
        self.counts_enough(action, before);
    }

    fn keeps_a_quorum(&self, action: &Action, quorate: bool) {
        let (alive, voters) = self.reachable_voters();
        if quorate && self.cluster.target() > 0 {
            assert!(
                alive > voters / 2,
                "I3: {action} leaves {alive} of {voters} voters"
            );
        }
    }

    fn counts_enough(&self, action: &Action, before: Option<u32>) {
        let Some(min_available) = self.min_available() else {
            return;
        };
        let removed = |name: &&String| (self.raft.tombstones.iter()).any(|(_, gone)| gone == *name);
        let still_there = self.api.pods.keys().filter(removed).count();
        let voters = self.voters();
        let (least, counted) = (min_available as usize, voters + still_there);
        assert!(
            least > voters / 2 && (least > counted / 2 || before <= Some(min_available)),
            "I11: {action} leaves a PDB of {min_available} for {counted} members"
        );
    }

    /// What must not be asked for.
    fn never(&self, action: &Action) {
        match action {
            Action::Object(action) => self.never_of_objects(action),
            Action::Member(action) => self.never_of_members(action),
            Action::Certificate(_) => {}
        }
    }

    fn never_of_objects(&self, action: &ObjectAction) {
        match action {
            ObjectAction::CreateIdentitySecret { .. } => {
                assert!(self.api.identity_secret.is_none(), "it exists");
            }
            ObjectAction::DeleteIdentitySecret { .. } => self.never_unfenced(),
            ObjectAction::CreatePvc { pvc, .. } => {
                assert!(!self.api.pvcs.contains_key(pvc), "{pvc} exists");
            }
            ObjectAction::ApplySet {
                member,
                pvc,
                hibernated,
                ..
            } => {
                let claimed = self.api.pvcs.contains_key(pvc);
                assert!(claimed || *hibernated, "a set without its PVC");
                let certified = self.has_secrets(member);
                assert!(certified || *hibernated, "a set without its certificates");
            }
            ObjectAction::ReleasePod { member, .. } => {
                let mut others = self.api.pods.iter().filter(|(name, _)| *name != member);
                let open = others.any(|(_, pod)| pod.released_ms.is_some());
                assert!(!open, "evictions may take two pods");
            }
            ObjectAction::DeleteSet { member, .. } => {
                assert!(!self.is_member(member), "I4: {member} is a member");
            }
            ObjectAction::DeletePvc { pvc, .. } => self.never_deletes(pvc),
            ObjectAction::MapSlot { member, .. } => {
                let votes = self.raft.voters().any(|view| view.name == *member);
                assert!(votes, "no voter");
            }
            _ => {}
        }
    }

    /// I16: at most one member of the lost incarnation runs.
    fn never_unfenced(&self) {
        assert!(!self.is_quorate(), "I16: there is a quorum");
        let dead = |node: &String| self.api.nodes[node].out_of_service;
        let pods = self.api.pods.values();
        let pods = pods.filter(|pod| !pod.node.as_ref().is_some_and(dead));
        let runs = pods.count();
        assert!(runs <= 1, "I16: {runs} pods are there");
    }

    fn is_member(&self, name: &str) -> bool {
        self.raft.members.iter().any(|view| view.name == name)
    }

    fn never_deletes(&self, pvc: &str) {
        let member = self.api.pvcs[pvc].member.clone().unwrap_or_default();
        assert!(!self.is_member(&member), "I1: {member} lives on it");
        let voted =
            |(id, name): &(u64, String)| *name == member && !self.raft.never_voted.contains(id);
        let (voters, wanted) = (self.voters(), self.cluster.target());
        assert!(
            voters >= wanted || !self.raft.tombstones.iter().any(voted),
            "I12: {member} voted, and {voters} of {wanted} vote"
        );
    }

    fn never_of_members(&self, action: &MemberAction) {
        match action {
            MemberAction::Bootstrap {
                member, snapshot, ..
            } => {
                let identity = self.api.identity_secret.as_ref();
                let again = identity.is_some_and(|identity| identity.incarnation > 1);
                let follows = !again && self.cluster.spec.follow().is_some();
                let restores = again || follows || self.cluster.spec.restore().is_some();
                assert_eq!(snapshot.is_some(), restores, "I15");
                let followed = snapshot.as_ref().is_some_and(|it| it.follow);
                assert_eq!(followed, follows, "I15");
                let pvc = crate::crd::pvc_name(member, super::CLUSTER_UID);
                let disk = self.disks.get(&pvc).expect("the seed has a disk");
                assert!(disk.member.is_none(), "I6");
            }
            MemberAction::AddLearner { member, .. } => {
                let reused = self.raft.tombstones.iter().any(|(_, name)| name == member);
                assert!(!reused, "a reused name");
            }
            MemberAction::SetPeerUrls { id, urls, .. } => {
                let view = self.raft.members.iter().find(|view| view.id == *id);
                assert_ne!(&view.expect("a member").peer_urls, urls, "nothing changes");
            }
            MemberAction::Promote { id, .. } => {
                let view = self.raft.members.iter().find(|view| view.id == *id);
                assert!(view.expect("a member").learner, "it votes already");
            }
            MemberAction::Disarm { kind, id, .. } => {
                let on = format!("{} {id:x}", kind.as_str());
                assert!(self.health.alarms.contains(&on), "it is on");
            }
            MemberAction::Transfer { .. }
            | MemberAction::Retire { .. }
            | MemberAction::Remove { .. } => {}
        }
    }

    /// The API server ignores the deletion of a missing object; a step is based on the preceding observation.
    fn names_what_is_there(&self, action: &Action) {
        let (found, uid) = match action {
            Action::Object(
                ObjectAction::EvictPod { member, uid }
                | ObjectAction::DeletePod { member, uid }
                | ObjectAction::ReleasePod { member, uid }
                | ObjectAction::HoldPod { member, uid },
            ) => (self.api.pods.get(member).map(|pod| &pod.uid), uid),
            Action::Object(ObjectAction::DeleteSet { member, uid }) => {
                (self.api.sets.get(member).map(|set| &set.uid), uid)
            }
            Action::Object(
                ObjectAction::DeletePvc { pvc, uid }
                | ObjectAction::GrowPvc { pvc, uid, .. }
                | ObjectAction::RecordStorage { pvc, uid, .. }
                | ObjectAction::MarkPvc { pvc, uid, .. }
                | ObjectAction::OwnPvc { pvc, uid, .. },
            ) => (self.api.pvcs.get(pvc).map(|facts| &facts.uid), uid),
            Action::Object(ObjectAction::DropSlot { slot, uid, .. }) => {
                (self.api.slots.get(slot).map(|facts| &facts.uid), uid)
            }
            Action::Certificate(CertificateAction::DropCertificate { secret, uid }) => {
                let secrets = &self.api.tls.secrets;
                (secrets.get(secret).map(|facts| &facts.uid), uid)
            }
            Action::Certificate(CertificateAction::WithdrawAuthorities { uid, .. }) => {
                let found = match &self.api.tls.bundle {
                    TrustBundle::There(facts) => Some(&facts.uid),
                    _ => None,
                };
                (found, uid)
            }
            _ => return,
        };
        assert_eq!(found, Some(uid), "{action}: it is the one that was seen");
    }

    /// What `kubectl drain` does again and again: an eviction by the pod's name. Returns whether
    /// it went through.
    pub(in crate::plan::tests) fn evict(&mut self, member: &str) -> bool {
        let (alive, voters) = self.reachable_voters();
        let followed = self.reached_voters().any(|view| view.name == member);
        let goes = self.model.evict(member).is_ok();
        let left = alive - usize::from(followed);
        assert!(
            !goes || !followed || left > voters / 2,
            "I3: the eviction of {member} leaves {left} of {voters} voters"
        );
        goes
    }
}
