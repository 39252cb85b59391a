//! What an act does to the world, as the API server and the servers would have it, and what no
//! operator may ever do.

use super::{Cluster, Member, Pvc, Set, World};
use crate::operator::platform::{Act, Failure};
use crate::plan::{Action, Fence, IdentitySecret, Owner, PvcState};
use crate::plan::{CertificateAction, MemberAction, ObjectAction};

impl World {
    /// Carries out an act as the API server and the servers would.
    pub(super) fn act(&mut self, act: &Act) -> Result<(), Failure> {
        let changed = || Failure::Changed("a precondition does not hold".into());
        self.never(&act.action);
        match &act.action {
            // This world keeps no specification.
            Action::Object(ObjectAction::AdmitSpec { .. }) => return Err(changed()),
            Action::Object(ObjectAction::ApplyObject(_)) => self.service = Some("service".into()),
            Action::Object(ObjectAction::CreateIdentitySecret {
                seed,
                nonce,
                incarnation,
            }) => {
                let identity_secret = IdentitySecret {
                    owner: Owner::Ours,
                    terminating: false,
                    cluster_uid: self.cluster.uid.clone(),
                    incarnation: *incarnation,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                };
                self.identity_secret.get_or_insert(identity_secret);
            }
            Action::Object(ObjectAction::CreatePvc { member, pvc }) => self.create_pvc(member, pvc),
            Action::Object(ObjectAction::GrowPvc { pvc, uid, bytes }) => {
                self.change_pvc(pvc, uid, |pvc| pvc.bytes = *bytes)?;
            }
            Action::Object(ObjectAction::MarkPvc { pvc, uid, state }) => {
                self.change_pvc(pvc, uid, |pvc| pvc.state = *state)?;
            }
            Action::Object(ObjectAction::OwnPvc { pvc, uid, owned }) => {
                self.change_pvc(pvc, uid, |pvc| pvc.owned = *owned)?;
            }
            Action::Object(ObjectAction::DeletePvc { pvc, uid }) => {
                self.change_pvc(pvc, uid, |pvc| pvc.terminating = true)?;
            }
            Action::Object(ObjectAction::ApplySet { member, hibernated, .. }) => {
                let (uid, created_ms) = (self.uid(), self.now_ms);
                let inputs = self.wanted_inputs.clone();
                let set = self.sets.entry(member.clone());
                let set = set.or_insert(Set {
                    uid,
                    hibernated: false,
                    created_ms,
                    inputs: String::new(),
                });
                set.inputs = inputs;
                set.hibernated = *hibernated;
            }
            Action::Object(ObjectAction::MapSlot { slot, member, .. }) => {
                let uid = self.uid();
                self.slots.entry(*slot).or_insert((uid, String::new())).1 = member.clone();
            }
            Action::Object(ObjectAction::DropSlot { slot, uid, .. }) => {
                if self.slots.get(slot).is_some_and(|(found, _)| found == uid) {
                    self.slots.remove(slot);
                }
            }
            // Without nodes there is nobody to release, without a PDB nobody to evict, and without
            // TLS nothing to certify.
            Action::Object(ObjectAction::SetPdb { .. })
            | Action::Object(ObjectAction::EvictPod { .. })
            // Its members raise no alarms.
            | Action::Member(MemberAction::Disarm { .. })
            | Action::Object(ObjectAction::ReleasePod { .. })
            | Action::Object(ObjectAction::HoldPod { .. })
            | Action::Certificate(CertificateAction::MakeAuthority { .. })
            | Action::Certificate(CertificateAction::IssueCertificate { .. })
            | Action::Certificate(CertificateAction::RotateAuthority { .. })
            | Action::Certificate(CertificateAction::TrustAuthorities { .. })
            | Action::Certificate(CertificateAction::DropCertificate { .. }) => return Err(changed()),
            Action::Object(ObjectAction::DeletePod { member, uid }) => {
                let pod = self.pods.get_mut(member).filter(|pod| pod.uid == *uid);
                pod.ok_or_else(changed)?.deleting = true;
            }
            Action::Object(ObjectAction::DeleteSet { member, uid }) => {
                if self.sets.get(member).is_some_and(|set| set.uid == *uid) {
                    self.sets.remove(member);
                }
            }
            Action::Member(MemberAction::Bootstrap {
                member, disk_uuid, ..
            }) => self.bootstrap(member, disk_uuid)?,
            Action::Member(MemberAction::Retire { member, .. }) => {
                let now = self.now_ms;
                let pod = self.pods.get_mut(member).ok_or_else(changed)?;
                pod.retires_since.get_or_insert(now);
            }
            Action::Member(MemberAction::Transfer { to_id, fence, .. }) => {
                self.fenced(*fence)?.leader = *to_id;
            }
            Action::Member(MemberAction::SetPeerUrls { fence, .. }) => {
                self.fenced(*fence)?.configuration_index += 1;
            }
            Action::Member(MemberAction::AddLearner {
                member,
                disk_uuid,
                fence,
                ..
            }) => {
                let since_ms = self.now_ms;
                let raft = self.fenced(*fence)?;
                let id = raft.configuration_index + 1;
                let (name, disk) = (member.clone(), disk_uuid.clone());
                raft.members.insert(
                    id,
                    Member {
                        name,
                        learner: true,
                        disk,
                        since_ms,
                    },
                );
                raft.configuration_index += 1;
            }
            Action::Member(MemberAction::Promote { id, fence, .. }) => {
                let raft = self.fenced(*fence)?;
                raft.members.get_mut(id).ok_or_else(changed)?.learner = false;
                raft.configuration_index += 1;
            }
            Action::Member(MemberAction::Remove { id, fence, .. }) => {
                let raft = self.fenced(*fence)?;
                let gone = raft.members.remove(id).ok_or_else(changed)?;
                raft.tombstones.push((*id, gone.name));
                raft.configuration_index += 1;
            }
        }
        self.acts.push(act.action.word().to_owned());
        self.told.push(act.action.to_string());
        Ok(())
    }

    /// What no operator may ever do, whatever its rules say.
    fn never(&self, action: &Action) {
        let lives = |id: &u64| {
            let raft = self.raft.as_ref().expect("a cluster");
            raft.members
                .get(id)
                .is_some_and(|member| self.lives(*id, member))
        };
        let living = |without: Option<u64>| {
            let members = self.raft.iter().flat_map(|raft| &raft.members);
            let voters = members.filter(|(id, member)| {
                !member.learner && Some(**id) != without && self.lives(**id, member)
            });
            voters.count()
        };
        match action {
            Action::Member(MemberAction::Bootstrap { .. }) => assert!(
                self.bootstraps == 0 || self.raft.is_some(),
                "a second cluster of one resource"
            ),
            Action::Member(MemberAction::Remove { id, .. }) => {
                let voter = self
                    .raft
                    .as_ref()
                    .is_some_and(|raft| raft.members.get(id).is_some_and(|member| !member.learner));
                let rest = self.voters().len().saturating_sub(1);
                assert!(
                    !voter || living(Some(*id)) > rest / 2,
                    "the removal of {id} (lives: {}) leaves no quorum",
                    lives(id)
                );
            }
            Action::Object(ObjectAction::DeletePvc { pvc, .. }) => {
                let Some(pvc) = self.pvcs.get(pvc) else {
                    return;
                };
                let member = self
                    .raft
                    .as_ref()
                    .is_some_and(|r| r.members.contains_key(&pvc.id));
                assert!(pvc.id == 0 || !member, "a member's disk is deleted");
            }
            Action::Object(ObjectAction::MapSlot { member, .. }) => assert!(
                self.voters().iter().any(|voter| voter.name == *member),
                "a slot leads to {member}, which is no voter"
            ),
            Action::Object(ObjectAction::DeletePod { member, .. }) => {
                let voter = self.voters().iter().any(|voter| voter.name == *member);
                let id = self.pvc_of(member).map(|pvc| pvc.id);
                assert!(
                    !voter || living(id) > self.voters().len() / 2,
                    "the restart of {member} leaves no quorum"
                );
            }
            _ => {}
        }
    }

    fn create_pvc(&mut self, member: &str, pvc: &str) {
        let (uid, disk) = (self.uid(), self.uid());
        let bytes = self.cluster.storage_bytes;
        self.pvcs.entry(pvc.to_owned()).or_insert(Pvc {
            uid,
            member: member.to_owned(),
            state: PvcState::New,
            terminating: false,
            bytes,
            owned: false,
            disk,
            id: 0,
        });
    }

    fn change_pvc(
        &mut self,
        pvc: &str,
        uid: &str,
        change: impl FnOnce(&mut Pvc),
    ) -> Result<(), Failure> {
        let found = self.pvcs.get_mut(pvc).filter(|pvc| pvc.uid == uid);
        change(found.ok_or_else(|| Failure::Changed("another PVC".into()))?);
        Ok(())
    }

    fn bootstrap(&mut self, member: &str, disk: &str) -> Result<(), Failure> {
        let name = crate::crd::pvc_name(member, &self.cluster.uid);
        let pvc = self.pvcs.get_mut(&name).filter(|pvc| pvc.disk == disk);
        let pvc = pvc.ok_or_else(|| Failure::Changed("another disk".into()))?;
        if pvc.id != 0 {
            return Ok(());
        }
        pvc.id = 1;
        self.bootstraps += 1;
        let seed = Member {
            name: member.into(),
            learner: false,
            disk: disk.into(),
            since_ms: self.now_ms,
        };
        let raft = Cluster {
            members: [(1, seed)].into(),
            configuration_index: 1,
            ..Cluster::default()
        };
        self.raft = Some(raft);
        self.elect();
        Ok(())
    }

    fn fenced(&mut self, fence: Fence) -> Result<&mut Cluster, Failure> {
        let quorate = self.quorate();
        let raft = self
            .raft
            .as_mut()
            .ok_or_else(|| Failure::Retry("no cluster".into()))?;
        if !quorate {
            return Err(Failure::Retry("no quorum".into()));
        }
        if fence.configuration_index != raft.configuration_index || fence.epoch < raft.epoch {
            return Err(Failure::Changed("the fence does not hold".into()));
        }
        raft.epoch = fence.epoch;
        Ok(raft)
    }
}
