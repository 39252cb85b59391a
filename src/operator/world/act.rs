//! What an act does to the world, as the API server and the servers would have it, and what no
//! operator may ever do.

use super::{Claim, Cluster, Member, Set, World};
use crate::operator::platform::{Act, Failure};
use crate::plan::{Action, ClaimState, Fence, Latch, Owner};

impl World {
    /// Carries out an act as the API server and the servers would.
    pub(super) fn act(&mut self, act: &Act) -> Result<(), Failure> {
        let changed = || Failure::Changed("a precondition does not hold".into());
        self.never(&act.action);
        match &act.action {
            // This world keeps no specification.
            Action::AdmitSpec { .. } => return Err(changed()),
            Action::ApplyObject(_) => self.service = Some("service".into()),
            Action::CreateLatch {
                seed,
                nonce,
                incarnation,
            } => {
                let latch = Latch {
                    owner: Owner::Ours,
                    terminating: false,
                    cluster_uid: self.cluster.uid.clone(),
                    incarnation: *incarnation,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                };
                self.latch.get_or_insert(latch);
            }
            Action::CreateClaim { member, claim } => self.create_claim(member, claim),
            Action::GrowClaim { claim, uid, bytes } => {
                self.change_claim(claim, uid, |claim| claim.bytes = *bytes)?;
            }
            Action::MarkClaim { claim, uid, state } => {
                self.change_claim(claim, uid, |claim| claim.state = *state)?;
            }
            Action::OwnClaim { claim, uid, owned } => {
                self.change_claim(claim, uid, |claim| claim.owned = *owned)?;
            }
            Action::DeleteClaim { claim, uid } => {
                self.change_claim(claim, uid, |claim| claim.terminating = true)?;
            }
            Action::ApplySet { member, asleep, .. } => {
                let (uid, created_ms) = (self.uid(), self.now_ms);
                let inputs = self.wanted_inputs.clone();
                let set = self.sets.entry(member.clone());
                let set = set.or_insert(Set {
                    uid,
                    asleep: false,
                    created_ms,
                    inputs: String::new(),
                });
                set.inputs = inputs;
                set.asleep = *asleep;
            }
            Action::MapSlot { slot, member, .. } => {
                let uid = self.uid();
                self.slots.entry(*slot).or_insert((uid, String::new())).1 = member.clone();
            }
            Action::DropSlot { slot, uid, .. } => {
                if self.slots.get(slot).is_some_and(|(found, _)| found == uid) {
                    self.slots.remove(slot);
                }
            }
            // Without nodes there is nobody to release, without a budget nobody to evict, and without
            // TLS nothing to certify.
            Action::SetBudget { .. }
            | Action::EvictPod { .. }
            // Its members raise no alarms.
            | Action::Disarm { .. }
            | Action::ReleasePod { .. }
            | Action::HoldPod { .. }
            | Action::MakeAuthority { .. }
            | Action::IssueCertificate { .. }
            | Action::RotateAuthority { .. }
            | Action::TrustAuthorities { .. }
            | Action::DropCertificate { .. } => return Err(changed()),
            Action::DeletePod { member, uid } => {
                let pod = self.pods.get_mut(member).filter(|pod| pod.uid == *uid);
                pod.ok_or_else(changed)?.deleting = true;
            }
            Action::DeleteSet { member, uid } => {
                if self.sets.get(member).is_some_and(|set| set.uid == *uid) {
                    self.sets.remove(member);
                }
            }
            Action::Bootstrap {
                member, disk_uuid, ..
            } => self.bootstrap(member, disk_uuid)?,
            Action::Retire { member, .. } => {
                let now = self.now_ms;
                let pod = self.pods.get_mut(member).ok_or_else(changed)?;
                pod.retires_since.get_or_insert(now);
            }
            Action::Transfer { to_id, fence, .. } => {
                self.fenced(*fence)?.leader = *to_id;
            }
            Action::SetPeerUrls { fence, .. } => {
                self.fenced(*fence)?.configuration_index += 1;
            }
            Action::AddLearner {
                member,
                disk_uuid,
                fence,
                ..
            } => {
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
            Action::Promote { id, fence, .. } => {
                let raft = self.fenced(*fence)?;
                raft.members.get_mut(id).ok_or_else(changed)?.learner = false;
                raft.configuration_index += 1;
            }
            Action::Remove { id, fence, .. } => {
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
            Action::Bootstrap { .. } => assert!(
                self.bootstraps == 0 || self.raft.is_some(),
                "a second cluster of one resource"
            ),
            Action::Remove { id, .. } => {
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
            Action::DeleteClaim { claim, .. } => {
                let Some(claim) = self.claims.get(claim) else {
                    return;
                };
                let member = self
                    .raft
                    .as_ref()
                    .is_some_and(|r| r.members.contains_key(&claim.id));
                assert!(claim.id == 0 || !member, "a member's disk is deleted");
            }
            Action::MapSlot { member, .. } => assert!(
                self.voters().iter().any(|voter| voter.name == *member),
                "a slot leads to {member}, which is no voter"
            ),
            Action::DeletePod { member, .. } => {
                let voter = self.voters().iter().any(|voter| voter.name == *member);
                let id = self.claim_of(member).map(|claim| claim.id);
                assert!(
                    !voter || living(id) > self.voters().len() / 2,
                    "the restart of {member} leaves no quorum"
                );
            }
            _ => {}
        }
    }

    fn create_claim(&mut self, member: &str, claim: &str) {
        let (uid, disk) = (self.uid(), self.uid());
        let bytes = self.cluster.storage_bytes;
        self.claims.entry(claim.to_owned()).or_insert(Claim {
            uid,
            member: member.to_owned(),
            state: ClaimState::New,
            terminating: false,
            bytes,
            owned: false,
            disk,
            id: 0,
        });
    }

    fn change_claim(
        &mut self,
        claim: &str,
        uid: &str,
        change: impl FnOnce(&mut Claim),
    ) -> Result<(), Failure> {
        let found = self.claims.get_mut(claim).filter(|claim| claim.uid == uid);
        change(found.ok_or_else(|| Failure::Changed("another claim".into()))?);
        Ok(())
    }

    fn bootstrap(&mut self, member: &str, disk: &str) -> Result<(), Failure> {
        let name = crate::crd::claim_name(member, &self.cluster.uid);
        let claim = self
            .claims
            .get_mut(&name)
            .filter(|claim| claim.disk == disk);
        let claim = claim.ok_or_else(|| Failure::Changed("another disk".into()))?;
        if claim.id != 0 {
            return Ok(());
        }
        claim.id = 1;
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
