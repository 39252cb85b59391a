//! The invariants, checked a second time: a plan that would violate one is refused as a whole. Written from the facts
//! only and without the rules' helpers, so that a bug there is not repeated here.

mod alarms;
mod evictions;
mod fence;
mod follow;
mod mounts;
mod recovery;
mod volumes;

use crate::crd::{
    ClientAuth, NodeReplacement, Tls, TlsPort, ValidatedCluster, client_certificate_name, pvc_name,
};
use crate::mutants::mutant;

use super::action::{Action, CertificateAction, FirstData, MemberAction, ObjectAction};
use super::certificates::{TrustBundle, UserCertificate};
use super::incarnation;
use super::observed::{
    Description, MemberView, Observed, Owner, Phase, PodFacts, PvcState, Resize,
};
use super::situation::{CONTACT_MS, FRESH_MS};
use super::step::{Plan, Step};

/// The invariants that this plan would violate, in words; empty for a valid plan. `plan` itself checks this; a shell
/// checks again the plan that it is about to execute.
pub fn lint(o: &Observed, plan: &Plan) -> Vec<String> {
    match &o.cluster {
        Ok(cluster) if !o.deleting || o.held => {
            let (_, own) = incarnation::current(o, cluster);
            steps_of((o, &own), cluster, &plan.steps)
        }
        _ if plan.steps.is_empty() => Vec::new(),
        _ => vec!["an invalid or deleted resource gets no steps".to_owned()],
    }
}

/// The invariants that these steps would break, by the facts as they were seen, and those of this incarnation.
pub(super) fn steps_of(
    (seen, o): (&Observed, &Observed),
    cluster: &ValidatedCluster,
    steps: &[Step],
) -> Vec<String> {
    mutant!(LintOff => return Vec::new());
    let facts = Facts {
        o,
        cluster,
        leader: leader(o, cluster),
    };
    let mut refused = Vec::new();
    let changes = steps
        .iter()
        .filter(|step| step.action.is_membership())
        .count();
    if changes > 1 {
        refused.push("I2: more than one membership change in a plan".to_owned());
    }
    for (i, step) in steps.iter().enumerate() {
        let checked = facts.check(&step.action);
        let checked = checked.and_then(|()| recovery::spares_quorums(seen, cluster, &step.action));
        let open = || follow::leaves_nothing_closed(seen, cluster, &step.action);
        let checked = checked.and_then(|()| open());
        if let Err(why) = checked.and_then(|()| facts.mounts(&step.action, &steps[..i])) {
            refused.push(format!("{}: {why}", step.action));
        }
    }
    refused
}

struct Facts<'a> {
    o: &'a Observed,
    cluster: &'a ValidatedCluster,
    leader: Option<(&'a str, &'a Description)>,
}

impl Facts<'_> {
    fn check(&self, action: &Action) -> Result<(), String> {
        self.hibernation(action)?;
        self.user_certificates(action)?;
        match action {
            Action::Object(ObjectAction::CreateIdentitySecret { incarnation, .. }) => {
                self.create_identity_secret(*incarnation)
            }
            Action::Object(ObjectAction::DeleteIdentitySecret { incarnation }) => {
                self.delete_identity_secret(*incarnation)
            }
            Action::Member(MemberAction::Bootstrap {
                member,
                disk_uuid,
                snapshot,
                ..
            }) => {
                self.bootstrap(member, disk_uuid)?;
                self.first_data(member, snapshot.as_ref())
            }
            Action::Member(MemberAction::AddLearner {
                member, disk_uuid, ..
            }) => self.add_learner(member, disk_uuid),
            Action::Member(MemberAction::SetPeerUrls { id, urls, .. }) => {
                let (healthy, voters) = self.count()?;
                refuse(healthy < voters, "I5: a voter is not healthy")?;
                refuse(self.members().all(|m| m.id != *id), "it is no member")?;
                let descriptions = || self.members().map(|m| self.o.descriptions.get(&m.name));
                let speaks = |description: Option<&Description>| {
                    let security = description
                        .and_then(|description| description.security.get(&TlsPort::Peer));
                    security.is_some_and(|security| security.tls)
                };
                refuse(
                    urls.is_empty() || !descriptions().all(speaks),
                    "a member could not be dialled, or could not dial it",
                )
            }
            Action::Member(MemberAction::Promote { id, .. }) => self.promote(*id),
            Action::Member(MemberAction::Transfer { from, to_id, .. }) => {
                refuse(
                    self.leader.is_none_or(|(name, _)| name != from),
                    "it does not lead",
                )?;
                let to = self.members().find(|m| m.id == *to_id && !m.learner);
                refuse(
                    !to.is_some_and(|m| self.reached(m)),
                    "I3: the voter is not in contact",
                )
            }
            Action::Member(MemberAction::Remove { id, .. }) => self.remove(*id),
            Action::Member(MemberAction::Disarm { kind, id, .. }) => self.disarm(*kind, *id),
            Action::Object(ObjectAction::SetPdb { limit, before }) => self.set_pdb(*limit, *before),
            Action::Object(ObjectAction::EvictPod { member, uid }) => {
                refuse(
                    !self.with_budget_policy(),
                    "disruption.policy is not Budget",
                )?;
                self.pod(member, uid)?;
                self.delete_pod(member)
            }
            Action::Object(ObjectAction::ResizePod { member, uid }) => {
                let (healthy, voters) = self.count()?;
                refuse(healthy < voters, "I3: a voter is not healthy")?;
                self.resizes(member, uid, &Resize::Wanted)
            }
            Action::Object(ObjectAction::RecordInputs { member, uid }) => {
                self.resizes(member, uid, &Resize::Provided)
            }
            Action::Object(ObjectAction::DeletePod { member, .. }) => {
                let mut voters = self.members().filter(|m| !m.learner);
                let serves = voters.any(|m| m.name == *member && self.healthy(m));
                refuse(
                    self.with_budget_policy() && serves,
                    "it is evicted, not deleted",
                )?;
                self.none_but_this_is_evicted()?;
                self.delete_pod(member)
            }
            Action::Object(ObjectAction::ReleasePod { member, uid, .. }) => {
                refuse(self.with_budget_policy(), "disruption.policy is Budget")?;
                let mut others = self.o.pods.iter().filter(|(name, _)| *name != member);
                refuse(
                    others.any(|(_, pod)| pod.released_ms.is_some()),
                    "an eviction may take another pod",
                )?;
                self.none_but_this_is_evicted()?;
                self.pod(member, uid)?;
                self.delete_pod(member)
            }
            Action::Object(ObjectAction::DeleteSet { member, .. }) => {
                if self.never_held_data(&pvc_name(member, &self.cluster.life)) {
                    return Ok(());
                }
                refuse(self.leader.is_none(), "no leader with a quorum was seen")?;
                refuse(
                    self.members().any(|m| m.name == *member),
                    "I4: it is a member",
                )
            }
            Action::Object(ObjectAction::DeletePvc { pvc, .. }) => self.delete_pvc(pvc),
            Action::Object(ObjectAction::GrowPvc { pvc, bytes, .. }) => self.grow_pvc(pvc, *bytes),
            Action::Object(ObjectAction::CreatePvc { member, .. }) => {
                refuse(
                    self.members().any(|m| m.name == *member),
                    "I6: a member has this name",
                )?;
                let mut tombstones = self.leader.into_iter().flat_map(|(_, d)| &d.tombstones);
                refuse(
                    tombstones.any(|(_, name)| name == member),
                    "a removed member had this name",
                )
            }
            Action::Object(ObjectAction::MapSlot { slot, member, .. }) => {
                self.map_slot(*slot, member)
            }
            Action::Object(ObjectAction::DropSlot { slot, uid, .. }) => {
                let facts = self.o.slots.get(slot).filter(|facts| facts.uid == *uid);
                refuse(facts.is_none(), "it is another Service")?;
                refuse(
                    facts.is_some_and(|facts| facts.owner != Owner::Ours),
                    "it belongs to another owner",
                )?;
                let wanted = usize::try_from(*slot).is_ok_and(|slot| slot < self.cluster.target());
                refuse(wanted, "the slot is wanted")
            }
            Action::Certificate(CertificateAction::DropCertificate { secret, uid }) => {
                let facts = self.o.tls.secrets.get(secret);
                let facts = facts.filter(|facts| facts.uid == *uid);
                let member = facts.and_then(|facts| facts.member.as_deref());
                let tls = self.cluster.spec.tls.as_ref();
                let needed = tls.is_some_and(|tls| tls.client_auth == ClientAuth::Required);
                let users = client_certificate_name(&self.cluster.name) == *secret && !needed;
                refuse(facts.is_none(), "it is another Secret")?;
                refuse(member.is_none() && !users, "it is no member's")?;
                refuse(
                    self.members().any(|m| Some(m.name.as_str()) == member),
                    "a member shows it",
                )
            }
            Action::Certificate(CertificateAction::SignRequest {
                port,
                member,
                uid,
                pod_uid,
                ..
            }) => {
                let requests = self.o.tls.requests.as_ref();
                let found = requests.and_then(|all| all.get(&(member.clone(), *port)));
                let earlier = self.o.earlier.pods.get(member);
                let pod = self.o.pods.get(member).or(earlier);
                refuse(
                    found.is_none_or(|found| found.uid != *uid),
                    "nobody requests it",
                )?;
                refuse(
                    pod.is_none_or(|pod| pod.uid != *pod_uid || pod.terminating),
                    "it is not for the pod that the member has",
                )
            }
            Action::Certificate(CertificateAction::PublishAuthorities { .. }) => {
                let tls = self.cluster.spec.tls.as_ref();
                refuse(
                    !tls.is_some_and(Tls::publishes_bundle),
                    "no ClusterTrustBundle is asked for",
                )?;
                refuse(
                    matches!(&self.o.tls.bundle, TrustBundle::There(facts)
                        if !matches!(facts.owner, Owner::Ours | Owner::EarlierLife)),
                    "it belongs to another owner",
                )
            }
            Action::Certificate(CertificateAction::WithdrawAuthorities { uid, .. }) => {
                let tls = self.cluster.spec.tls.as_ref();
                let facts = self.o.tls.bundle.ours();
                refuse(
                    facts.is_none_or(|facts| facts.uid != *uid),
                    "it is another ClusterTrustBundle",
                )?;
                refuse(
                    tls.is_some_and(Tls::publishes_bundle),
                    "the ClusterTrustBundle is asked for",
                )
            }
            Action::Object(ObjectAction::AdmitSpec { .. }) => refuse(
                self.o.refused.is_some(),
                "the specification is not the resource's",
            ),
            Action::Object(ObjectAction::ApplyObject(_))
            | Action::Certificate(CertificateAction::MakeAuthority { .. })
            | Action::Certificate(CertificateAction::IssueCertificate { .. })
            | Action::Certificate(CertificateAction::MakeTrust { .. })
            | Action::Certificate(CertificateAction::RotateAuthority { .. })
            | Action::Certificate(CertificateAction::TrustAuthorities { .. })
            | Action::Object(ObjectAction::RecordStorage { .. })
            | Action::Object(ObjectAction::MarkPvc { .. })
            | Action::Object(ObjectAction::OwnPvc { .. })
            | Action::Object(ObjectAction::HoldPod { .. })
            | Action::Member(MemberAction::Retire { .. })
            | Action::Object(ObjectAction::ApplySet { .. }) => Ok(()),
        }
    }

    /// A hibernating cluster keeps its members, its volumes and its StatefulSets, and no member of another cluster is
    /// scaled down.
    fn hibernation(&self, action: &Action) -> Result<(), String> {
        let hibernates = self.cluster.target() == 0;
        match action {
            Action::Object(ObjectAction::ApplySet {
                member, hibernated, ..
            }) => self.sleep_of(member, *hibernated),
            Action::Object(ObjectAction::DeleteIdentitySecret { .. })
            | Action::Object(ObjectAction::CreateIdentitySecret { .. })
            | Action::Object(ObjectAction::CreatePvc { .. })
            | Action::Object(ObjectAction::DeletePvc { .. })
            | Action::Object(ObjectAction::DeleteSet { .. })
            | Action::Member(MemberAction::Bootstrap { .. })
            | Action::Object(ObjectAction::MapSlot { .. })
            | Action::Object(ObjectAction::DropSlot { .. }) => {
                refuse(hibernates, "I1: the cluster hibernates")
            }
            other => refuse(
                hibernates && other.is_membership(),
                "I1: the cluster hibernates",
            ),
        }
    }

    /// No member is created or restarted with an unusable certificate of the user.
    fn user_certificates(&self, action: &Action) -> Result<(), String> {
        let starts = match action {
            Action::Object(ObjectAction::ApplySet { hibernated, .. }) => !hibernated,
            Action::Object(ObjectAction::CreatePvc { .. })
            | Action::Object(ObjectAction::DeletePod { .. })
            | Action::Object(ObjectAction::EvictPod { .. })
            | Action::Object(ObjectAction::ReleasePod { .. }) => true,
            _ => false,
        };
        let unfit = |user_certificate: &UserCertificate| {
            let ended = user_certificate.certificate.as_ref();
            user_certificate.unfit.is_some()
                || ended.is_none_or(|one| one.not_after_ms <= self.o.now_ms)
        };
        refuse(
            starts && self.o.tls.user_certificates.values().any(unfit),
            "a certificate that the operator does not issue is not fit for use",
        )
    }

    /// A first identity where nothing exists, or that of a cluster which a quorum confirms.
    fn create_identity_secret(&self, incarnation: u64) -> Result<(), String> {
        refuse(
            self.o.identity_secret.is_some(),
            "I7: there is an identity already",
        )?;
        if let Some((_, leader)) = self.leader {
            return refuse(
                leader.incarnation.max(1) != incarnation,
                "I7: it is another life of the cluster",
            );
        }
        let uid = Some(self.cluster.life.clone());
        let mut ours = self.o.pvcs.values().filter(|c| c.cluster_uid == uid);
        // The next incarnation; one that has a volume already gets its own Secret again.
        if incarnation > 1 && !ours.clone().any(|pvc| pvc.incarnation == incarnation) {
            return self.fenced(incarnation - 1);
        }
        let formed = self.o.status_cluster_id.is_some();
        if self.cluster.spec.adopts().is_some() && !formed {
            return self.adopt(incarnation);
        }
        refuse(
            formed || ours.any(|pvc| pvc.state != PvcState::New),
            "I7: the cluster was formed before",
        )?;
        let mut descriptions = self.o.descriptions.values();
        refuse(
            descriptions.any(|d| d.cluster_uid == uid && !d.disk_empty),
            "I7: somebody has data of this cluster",
        )
    }

    /// No volume of a member that voted is deleted before its successor votes. The exceptions are those of the
    /// specification: a smaller size needs no successor, what `whenRemoved` keeps is not deleted at all, and deletion
    /// of the resource is not part of a plan.
    fn delete_pvc(&self, pvc: &str) -> Result<(), String> {
        if self.never_held_data(pvc) {
            return Ok(());
        }
        refuse(self.leader.is_none(), "no leader with a quorum was seen")?;
        let mut names = self
            .members()
            .map(|m| pvc_name(&m.name, &self.cluster.life));
        refuse(names.any(|name| name == *pvc), "I1: a member lives on it")?;
        let facts = self.o.pvcs.get(pvc);
        let joined = facts.is_some_and(|facts| facts.state != PvcState::New);
        let member = facts.and_then(|facts| facts.member.as_deref());
        let mut removed = self.leader.into_iter().flat_map(|(_, d)| {
            let of_it = d.tombstones.iter();
            let of_it = of_it.filter(|(_, name)| Some(name.as_str()) == member);
            of_it.map(|(id, _)| d.never_voted.contains(id))
        });
        refuse(
            member.is_some_and(|member| self.left_corrupt(member)),
            "I14: its member left under the alarm CORRUPT",
        )?;
        let voted = removed.next().map_or(joined, |never| !never);
        let voters = self.members().filter(|m| !m.learner).count();
        refuse(
            voted && voters < self.cluster.target(),
            "I12: its member voted, and its successor does not yet",
        )
    }

    /// Only what members have used is adopted, and the newest incarnation of it.
    fn adopt(&self, incarnation: u64) -> Result<(), String> {
        let uid = Some(self.cluster.life.clone());
        let ours = self.o.pvcs.values().filter(|pvc| pvc.cluster_uid == uid);
        let used = ours.filter(|pvc| pvc.state == PvcState::Joined && !pvc.terminating);
        let newest = used.map(|pvc| pvc.incarnation).max();
        refuse(newest.is_none(), "I6: there is nothing to adopt")?;
        refuse(
            newest > Some(incarnation),
            "I7: a later incarnation has volumes",
        )
    }

    /// A cluster that adopts is formed only as the next incarnation, which a recovery asks for.
    fn bootstrap(&self, member: &str, disk_uuid: &str) -> Result<(), String> {
        refuse(
            self.cluster.spec.adopts().is_some() && !self.is_recovered(),
            "I6: the adopted cluster was formed before",
        )?;
        refuse(
            self.o.status_cluster_id.is_some(),
            "I6: the cluster was formed before",
        )?;
        refuse(self.leader.is_some(), "I7: the cluster lives")?;
        let identity_secret = self
            .o
            .identity_secret
            .as_ref()
            .ok_or("I7: there is no identity")?;
        refuse(identity_secret.seed != member, "I7: it is not the seed")?;
        let uid = Some(self.cluster.life.clone());
        let ours = || self.o.pvcs.values().filter(|pvc| pvc.cluster_uid == uid);
        refuse(
            ours().any(|pvc| pvc.state != PvcState::New),
            "I6: a member lived before",
        )?;
        refuse(
            ours().count() != 1,
            "I6: there are other volumes of this cluster",
        )?;
        let described = self.o.descriptions.get(member).ok_or("it did not answer")?;
        let empty = described.phase == Phase::Standby && described.disk_empty;
        refuse(
            !empty || described.disk_uuid != disk_uuid,
            "I6: its disk is not the empty one",
        )
    }

    /// A cluster that is to be restored, or to follow another one, never starts without its data, and no other one starts
    /// with any.
    fn first_data(&self, member: &str, snapshot: Option<&FirstData>) -> Result<(), String> {
        let Some(snapshot) = snapshot.filter(|_| self.needs_data()) else {
            return refuse(
                snapshot.is_some() || self.needs_data(),
                "I15: a cluster starts with the snapshot that its specification or recovery names, or empty",
            );
        };
        let staged = self
            .o
            .descriptions
            .get(member)
            .and_then(|d| d.staged.as_ref());
        refuse(
            !staged.is_some_and(|staged| staged.complete && staged.sha256 == snapshot.sha256),
            "I15: the seed does not have this snapshot",
        )?;
        refuse(
            self.wanted_bump() != Some(snapshot.revision_bump),
            "I15: the revision is raised by another number",
        )?;
        let follows = self.is_to_follow();
        let living = staged.is_some_and(|staged| staged.source_cluster != 0);
        refuse(
            snapshot.follow != follows,
            "I15: it follows another cluster exactly if its specification says so",
        )?;
        refuse(
            living != follows,
            "I15: who follows starts with a snapshot of a living cluster, and nobody else does",
        )
    }

    fn add_learner(&self, member: &str, disk_uuid: &str) -> Result<(), String> {
        let (healthy, voters) = self.count()?;
        refuse(healthy < voters, "I5: a voter is not healthy")?;
        self.leads_unnamed()?;
        let learners = self.members().filter(|m| m.learner).count();
        let most = if voters == 1 && self.cluster.target() >= 3 {
            2
        } else {
            1
        };
        refuse(learners >= most, "I2: there is a learner already")?;
        refuse(
            self.members().any(|m| m.name == member),
            "it is a member already",
        )?;
        refuse(
            self.members().any(|m| m.disk_uuid == disk_uuid),
            "its disk is a member's",
        )
    }

    fn promote(&self, id: u64) -> Result<(), String> {
        let (healthy, voters) = self.count()?;
        let learner = self
            .members()
            .find(|m| m.id == id && m.learner)
            .ok_or("it is no learner")?;
        self.may_vote(id)?;
        refuse(
            !self.reached(learner) || !learner.promotable,
            "I3: it has not caught up",
        )?;
        refuse(
            voters > 1 && healthy < voters.div_ceil(2) + 1,
            "I3: too few healthy voters",
        )?;
        self.evictions_leave(voters.div_ceil(2) + 1)
    }

    fn remove(&self, id: u64) -> Result<(), String> {
        let (healthy, voters) = self.count()?;
        let member = self
            .members()
            .find(|m| m.id == id)
            .ok_or("it is no member")?;
        if member.learner {
            return Ok(());
        }
        refuse(voters < 2, "I3: it is the last voter")?;
        self.data_is_known()?;
        self.keeps_volume(id)?;
        let is_healthy = self.healthy(member);
        let rest = healthy - usize::from(is_healthy);
        refuse(
            rest < (voters - 1) / 2 + 1,
            "I3: the rest would have no quorum",
        )?;
        let stopped = self
            .o
            .sets
            .get(&member.name)
            .is_some_and(|set| set.hibernated);
        refuse(
            stopped && self.o.fenced.contains(&member.name),
            "I4: it is fenced",
        )?;
        let surplus = voters > self.cluster.target();
        let foreign = self.disk_differs(member);
        let asked = self.asked_to_leave(&member.name) && voters == self.cluster.target();
        refuse(
            !surplus && !asked && self.reached(member) && !foreign && !self.data_differs(id),
            "I4: the leader reaches it",
        )
    }

    /// Whether its node is drained, and the spec removes it before another one is added.
    fn asked_to_leave(&self, member: &str) -> bool {
        let node = self.o.pods.get(member).and_then(|pod| pod.node.as_deref());
        let node = node.and_then(|node| self.o.nodes.get(node));
        let way = self.cluster.spec.disruption.node_replacement;
        way == NodeReplacement::RemoveFirst && node.is_some_and(|node| node.drain_reason.is_some())
    }

    fn map_slot(&self, slot: u32, member: &str) -> Result<(), String> {
        refuse(self.leader.is_none(), "no leader with a quorum was seen")?;
        let wanted = usize::try_from(slot).is_ok_and(|slot| slot < self.cluster.target());
        refuse(!wanted, "no such slot is wanted")?;
        refuse(
            !self.members().any(|m| m.name == member && !m.learner),
            "it is no voter",
        )?;
        let others = self.o.slots.iter().filter(|(other, _)| {
            **other != slot && usize::try_from(**other).is_ok_and(|n| n < self.cluster.target())
        });
        let mut others = others.map(|(_, facts)| facts.member.as_deref());
        refuse(
            others.any(|held| held == Some(member)),
            "it has another slot",
        )
    }

    /// A member's pod, if it is the one that the action names.
    fn pod(&self, member: &str, uid: &str) -> Result<&PodFacts, String> {
        let pod = self.o.pods.get(member).filter(|pod| pod.uid == uid);
        pod.ok_or_else(|| "it is another pod".to_owned())
    }

    fn resizes(&self, member: &str, uid: &str, stage: &Resize) -> Result<(), String> {
        refuse(
            self.pod(member, uid)?.resize.as_ref() != Some(stage),
            "the pod is at another stage of its resize, or needs a restart",
        )
    }

    fn delete_pod(&self, member: &str) -> Result<(), String> {
        // A pod that never started serves no clients.
        if self
            .o
            .pods
            .get(member)
            .is_some_and(|pod| pod.started_ms.is_none())
        {
            return Ok(());
        }
        let Some(view) = self.members().find(|m| m.name == member && !m.learner) else {
            return Ok(());
        };
        let (healthy, voters) = self.count()?;
        let description = self.o.descriptions.get(member);
        refuse(
            self.healthy(view) && description.is_some_and(|d| d.ready && d.retiring_ms.is_none()),
            "it serves clients: it retires first",
        )?;
        self.returns(member)?;
        if self.healthy(view) {
            self.follows(member)?;
        }
        let rest = healthy - usize::from(self.healthy(view));
        refuse(rest < voters / 2 + 1, "I3: the rest has no quorum")
    }

    /// Healthy voters and all voters.
    fn count(&self) -> Result<(usize, usize), String> {
        refuse(self.leader.is_none(), "no leader with a quorum was seen")?;
        let voters = || self.members().filter(|m| !m.learner);
        Ok((
            voters().filter(|m| self.healthy(m)).count(),
            voters().count(),
        ))
    }

    fn members(&self) -> impl Iterator<Item = &MemberView> {
        self.leader.into_iter().flat_map(|(_, d)| &d.members)
    }

    fn reached(&self, member: &MemberView) -> bool {
        let leads = self.leader.is_some_and(|(_, d)| d.member_id == member.id);
        leads || member.last_contact_ms.is_some_and(|age| age <= CONTACT_MS)
    }

    fn healthy(&self, member: &MemberView) -> bool {
        let ours = crate::crd::member_number(&self.cluster.name, &member.name).is_some();
        let answers = self.o.descriptions.get(&member.name);
        let answers = answers.is_some_and(|d| d.age_ms <= FRESH_MS && d.phase == Phase::Member);
        self.reached(member) && (answers || !ours)
    }

    fn disk_differs(&self, member: &MemberView) -> bool {
        let described = self.o.descriptions.get(&member.name);
        described.is_some_and(|d| d.proves_an_empty_disk() && d.disk_uuid != member.disk_uuid)
    }
}

fn refuse(broken: bool, why: &str) -> Result<(), String> {
    if broken { Err(why.to_owned()) } else { Ok(()) }
}

/// The leader with a quorum of the highest term, by the facts alone.
fn leader<'a>(o: &'a Observed, cluster: &ValidatedCluster) -> Option<(&'a str, &'a Description)> {
    let mut best: Option<(&str, &Description)> = None;
    for (name, d) in &o.descriptions {
        let stale = d.age_ms > FRESH_MS || o.pods.get(name).is_some_and(|p| p.uid != d.pod_uid);
        let ours = d.cluster_uid.as_deref() == Some(cluster.life.as_str());
        let newer = best.is_none_or(|(_, b)| d.term >= b.term);
        if d.leads && d.phase == Phase::Member && ours && !stale && newer {
            best = Some((name, d));
        }
    }
    best
}
