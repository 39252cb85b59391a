//! What a step does to the toy world, and what no step may ever ask of it.

use super::tls::url;
use super::{CLUSTER_UID, SECOND, SLOT_INPUTS, World};
use crate::crd::{bytes_of, identity_secret_name, pvc_name};
use crate::plan::*;
use crate::plan::{MemberAction, ObjectAction};

impl World {
    fn fence(&self, fence: Fence) {
        assert_eq!(
            fence.configuration_index, self.configuration_index,
            "a stale view"
        );
        assert!(self.leader.is_some(), "a membership call without a leader");
    }

    fn pvc_by(&mut self, name: &str, uid: &str) -> &mut PvcFacts {
        let pvc = self.pvcs.get_mut(name).expect("the PVC exists");
        assert_eq!(pvc.uid, uid, "the PVC is the one that was seen");
        pvc
    }

    /// Voters that live and are on the leader's side.
    pub(in crate::plan::tests) fn reachable_voters(&self) -> (usize, usize) {
        let leader = self.leader.clone().unwrap_or_default();
        let voters: Vec<_> = self.members.iter().filter(|m| !m.learner).collect();
        let lives = voters
            .iter()
            .filter(|m| self.lives(m) && self.reach(&leader, &m.name));
        (lives.count(), voters.len())
    }

    /// Carries out a step, refusing what must never be asked.
    pub(in crate::plan::tests) fn execute(&mut self, action: &Action) {
        let (alive, voters) = self.reachable_voters();
        let quorate = self.leader.is_some() && alive > voters / 2;
        let before = self.min_available;
        self.act(action);
        let (alive, voters) = self.reachable_voters();
        if quorate && self.cluster.target() > 0 {
            assert!(
                alive > voters / 2,
                "I3: {action} leaves {alive} of {voters} voters"
            );
        }
        assert!(self.formed <= 1, "I7: one cluster a UID");
        let removed = |name: &&String| self.tombstones.iter().any(|(_, gone)| gone == *name);
        let still_there = self.pods.keys().filter(removed).count();
        let counted = voters + still_there;
        if let Some(min_available) = self.min_available {
            assert!(
                min_available as usize > voters / 2
                    && (min_available as usize > counted / 2 || before <= Some(min_available)),
                "I11: {action} leaves a PDB of {min_available} for {counted} members"
            );
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Object(ObjectAction::AdmitSpec { .. }) => {
                panic!("this world keeps no specification")
            }
            Action::Object(ObjectAction::ApplyObject(key)) => {
                let inputs = self.wanted_objects().remove(key);
                let facts = ObjectFacts {
                    owner: Owner::Ours,
                    terminating: false,
                    inputs,
                };
                self.objects.insert(key.clone(), facts);
                if key.kind == ObjectKind::PodDisruptionBudget {
                    self.min_available = None;
                }
            }
            Action::Object(ObjectAction::SetPdb {
                min_available,
                before,
            }) => {
                assert_eq!(self.min_available, *before, "another PDB");
                let kind = ObjectKind::PodDisruptionBudget;
                let name = "demo".into();
                self.act(&Action::Object(ObjectAction::ApplyObject(ObjectKey {
                    kind,
                    name,
                })));
                self.min_available = Some(*min_available);
            }
            Action::Object(ObjectAction::EvictPod { member, uid }) => {
                assert_eq!(&self.pods[member].uid, uid);
                assert!(self.evict(member), "the PDB refuses {member}");
            }
            Action::Object(ObjectAction::CreateIdentitySecret {
                seed,
                nonce,
                incarnation,
            }) => {
                assert!(
                    self.identity_secret.is_none(),
                    "{} exists",
                    identity_secret_name("demo")
                );
                self.identity_secret = Some(IdentitySecret {
                    owner: Owner::Ours,
                    terminating: false,
                    cluster_uid: CLUSTER_UID.into(),
                    incarnation: *incarnation,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                });
            }
            Action::Object(ObjectAction::CreatePvc { member, pvc }) => {
                let facts = PvcFacts {
                    uid: self.fresh("claim"),
                    cluster_uid: Some(CLUSTER_UID.into()),
                    member: Some(member.clone()),
                    state: PvcState::New,
                    terminating: false,
                    bound: false,
                    volume_gone: None,
                    no_node: None,
                    node_bound: None,
                    nodes: None,
                    requested_bytes: bytes_of(&self.cluster.spec.storage.size).expect("a size"),
                    owned: false,
                };
                assert!(
                    self.pvcs.insert(pvc.clone(), facts).is_none(),
                    "{pvc} exists"
                );
            }
            Action::Object(ObjectAction::GrowPvc { pvc, uid, bytes }) => {
                self.pvc_by(pvc, uid).requested_bytes = *bytes;
            }
            Action::Object(ObjectAction::MarkPvc { pvc, uid, state }) => {
                self.pvc_by(pvc, uid).state = *state
            }
            Action::Object(ObjectAction::OwnPvc { pvc, uid, owned }) => {
                self.pvc_by(pvc, uid).owned = *owned
            }
            Action::Object(ObjectAction::ApplySet {
                member,
                pvc,
                one_per_node,
                hibernated,
                plaintext_peers,
            }) => {
                let claimed = self.pvcs.contains_key(pvc);
                assert!(claimed || *hibernated, "a set without its PVC");
                assert!(
                    self.has_certificates(member) || *hibernated,
                    "a set without its certificates"
                );
                self.tls.of_sets.remove(member);
                if self.cluster.spec.tls.is_some() {
                    self.tls.of_sets.insert(member.clone(), *plaintext_peers);
                }
                let told = ServerFacts::of(&self.cluster.spec.server);
                self.told.insert(member.clone(), told);
                self.one_per_node.remove(member);
                if *one_per_node {
                    self.one_per_node.insert(member.clone());
                }
                let uid = self.fresh("set");
                let inputs = Some(self.inputs.clone());
                let created_ms = self.now;
                let set = self.sets.entry(member.clone()).or_insert(SetFacts {
                    plain_peers: false,
                    uid,
                    owner: Owner::Ours,
                    terminating: false,
                    inputs: None,
                    created_ms,
                    hibernated: false,
                    edited: false,
                });
                set.inputs = inputs;
                set.plain_peers = *plaintext_peers || self.cluster.spec.tls.is_none();
                set.hibernated = *hibernated;
                set.edited = false;
            }
            Action::Object(ObjectAction::ReleasePod { member, uid }) => {
                let pod = self.pods.get_mut(member).expect("a pod");
                assert_eq!(&pod.uid, uid);
                pod.released_ms = Some(self.now);
                let open = self.pods.values().filter(|pod| pod.released_ms.is_some());
                assert_eq!(open.count(), 1, "evictions may take two pods");
            }
            Action::Object(ObjectAction::HoldPod { member, uid }) => {
                let pod = self.pods.get_mut(member).expect("a pod");
                assert_eq!(&pod.uid, uid);
                pod.released_ms = None;
            }
            Action::Object(ObjectAction::DeletePod { member, uid }) => {
                let by = self.now + 30 * SECOND;
                let pod = self.pods.get_mut(member).expect("a pod");
                assert_eq!(&pod.uid, uid);
                if self.lingering.contains(member) {
                    (pod.terminating, pod.ends_ms) = (true, Some(by));
                } else {
                    self.pods.remove(member);
                }
            }
            Action::Object(ObjectAction::DeleteSet { member, uid }) => {
                assert_eq!(&self.sets[member].uid, uid);
                assert!(
                    !self.members.iter().any(|m| m.name == *member),
                    "I4: {member} is a member"
                );
                self.sets.remove(member);
            }
            Action::Object(ObjectAction::DeletePvc { pvc, uid }) => {
                let (voters, wanted) = (self.voters(), self.cluster.target());
                let stones = self.tombstones.clone();
                let never_voted = self.never_voted.clone();
                let pvc = self.pvc_by(pvc, uid);
                pvc.terminating = true;
                let member = pvc.member.clone().unwrap_or_default();
                assert!(
                    !self.members.iter().any(|m| m.name == member),
                    "I1: {member} lives on it"
                );
                let voted =
                    |(id, name): &(u64, String)| *name == member && !never_voted.contains(id);
                assert!(
                    voters >= wanted || !stones.iter().any(voted),
                    "I12: {member} voted, and {voters} of {wanted} vote"
                );
            }
            Action::Object(ObjectAction::MapSlot { slot, member, .. }) => {
                let voter = |m: &&MemberView| m.name == *member && !m.learner;
                assert!(self.members.iter().any(|m| voter(&m)), "no voter");
                let facts = SlotFacts {
                    uid: self.fresh("slot"),
                    owner: Owner::Ours,
                    terminating: false,
                    inputs: Some(SLOT_INPUTS.into()),
                    member: Some(member.clone()),
                };
                self.slots.insert(*slot, facts);
            }
            Action::Object(ObjectAction::DropSlot { slot, uid, .. }) => {
                let gone = self.slots.remove(slot);
                assert_eq!(gone.map(|facts| facts.uid).as_ref(), Some(uid));
            }
            Action::Member(MemberAction::Retire { member, .. }) => {
                self.retired.insert(member.clone(), self.now);
            }
            action if matches!(action, Action::Certificate(_)) => self.certify(action),
            _ => self.membership(action),
        }
    }

    fn membership(&mut self, action: &Action) {
        match action {
            Action::Member(MemberAction::Bootstrap {
                member,
                disk_uuid,
                nonce,
                ..
            }) => {
                let pvc = pvc_name(member, CLUSTER_UID);
                let disk = self.disks.get_mut(&pvc).expect("the seed has a disk");
                assert!(disk.member.is_none() && disk.uuid == *disk_uuid, "I6");
                disk.member = Some(1);
                disk.nonce = Some(nonce.clone());
                let view = MemberView {
                    id: 1,
                    name: member.clone(),
                    disk_uuid: disk_uuid.clone(),
                    peer_urls: self.own_urls(member),
                    ..MemberView::default()
                };
                self.members.push(view);
                self.formed += 1;
                self.configuration_index = 1;
                self.commit = 10;
            }
            Action::Member(MemberAction::AddLearner {
                member,
                disk_uuid,
                secure,
                fence,
            }) => {
                self.fence(*fence);
                assert!(
                    !self.tombstones.iter().any(|(_, name)| name == member),
                    "a reused name"
                );
                self.next += 1;
                let id = 100 + self.next;
                self.members.push(MemberView {
                    id,
                    name: member.clone(),
                    learner: true,
                    disk_uuid: disk_uuid.clone(),
                    peer_urls: vec![url(member, *secure)],
                    ..MemberView::default()
                });
                self.configuration_index += 1;
            }
            Action::Member(MemberAction::SetPeerUrls {
                id, urls, fence, ..
            }) => {
                self.fence(*fence);
                let mut of = self.members.iter_mut();
                let of = of.find(|m| m.id == *id).expect("a member");
                assert_ne!(&of.peer_urls, urls, "nothing changes");
                of.peer_urls.clone_from(urls);
                self.configuration_index += 1;
            }
            Action::Member(MemberAction::Promote { id, fence, .. }) => {
                self.fence(*fence);
                let commit = self.commit;
                let view = self
                    .members
                    .iter_mut()
                    .find(|m| m.id == *id)
                    .expect("a learner");
                assert!(
                    view.learner && view.match_index + 100 >= commit,
                    "it has not caught up"
                );
                view.learner = false;
                self.configuration_index += 1;
            }
            Action::Member(MemberAction::Transfer {
                from, to, fence, ..
            }) => {
                self.fence(*fence);
                assert_eq!(self.leader.as_ref(), Some(from));
                self.leader = Some(to.clone());
                self.term += 1;
                self.compared.clear();
            }
            Action::Member(MemberAction::Disarm {
                kind, id, fence, ..
            }) => {
                self.fence(*fence);
                let on = format!("{} {id:x}", kind.as_str());
                assert!(self.alarms.contains(&on), "it is on");
                self.alarms.retain(|alarm| *alarm != on);
            }
            Action::Member(MemberAction::Remove { member, id, fence }) => {
                self.fence(*fence);
                if self.members.iter().any(|m| m.id == *id && m.learner) {
                    self.never_voted.insert(*id);
                }
                self.members.retain(|m| m.id != *id);
                self.tombstones.push((*id, member.clone()));
                for disk in self.disks.values_mut().filter(|d| d.member == Some(*id)) {
                    disk.removed = true;
                }
                self.configuration_index += 1;
                if self.leader.as_ref() == Some(member) {
                    self.leader = None;
                    self.raft();
                }
            }
            other => panic!("not a membership step: {other}"),
        }
    }
}
