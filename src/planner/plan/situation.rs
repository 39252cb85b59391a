//! The situation of one reconcile: which member leads with a quorum, who is a member, who is joining, and what is left
//! over. Derived from `Observed` once; the rules read it and decide.

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{
    DataSource, DisruptionPolicy, EtcdRecoverySpec, FollowedCluster, Spread, Survivor, TlsPort,
    UpdateType, ValidatedCluster, VolumeMobility, member_number, pvc_name,
};
use crate::mutants::mutant;

use super::action::{Action, ObjectAction};
use super::certificates::CertificateFacts;
use super::evidence::{Verdict, verdict};
use super::fence;
use super::nodes::Way;
use super::observed::{
    Beside, Description, MemberView, ObjectKey, ObjectKind, Observed, Phase, PvcFacts, PvcState,
    RecoveryFacts, Resize,
};

/// A description older than this is outdated.
pub const FRESH_MS: u64 = 10_000;
/// A leader without an answer from a member for this long has no contact with it.
pub const CONTACT_MS: u64 = 3_000;

/// A kubelet's report may still be about the resources that it was asked for before, for this long.
const REPORTED_MS: u64 = 10_000;

/// One reconcile, understood.
pub(super) struct Situation<'a> {
    pub(super) o: &'a Observed,
    pub(super) cluster: &'a ValidatedCluster,
    /// The current incarnation of the cluster.
    pub(super) incarnation: u64,
    /// The leader's name and description, when a leader with a quorum answered.
    pub(super) view: Option<(&'a str, &'a Description)>,
    /// Voters in the leader's view, by name.
    pub(super) voters: BTreeMap<String, Seat<'a>>,
    /// Learners in the leader's view, by name.
    pub(super) learners: BTreeMap<String, Seat<'a>>,
    /// Members on the way in: a PVC or set of ours that is no member and never was one.
    pub(super) standbys: BTreeSet<String>,
    /// Leaving members: our objects whose member was removed or given up.
    pub(super) leaving: BTreeSet<String>,
    /// Voters that are fenced: they have no pod, and get none.
    pub(super) fenced: BTreeSet<String>,
}

/// A place in the cluster's member list.
pub(super) struct Seat<'a> {
    pub(super) view: &'a MemberView,
    /// The name is one that this operator assigns.
    pub(super) ours: bool,
    pub(super) verdict: Verdict,
}

impl Seat<'_> {
    pub(super) fn healthy(&self) -> bool {
        matches!(self.verdict, Verdict::Healthy)
    }
}

/// Seconds of the resource in milliseconds; it was checked that they are not negative.
pub(super) fn in_ms(seconds: i32) -> u64 {
    u64::try_from(seconds).unwrap_or(0) * 1000
}

/// Votes that a configuration of `voters` needs.
pub(super) fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

impl<'a> Situation<'a> {
    /// From the facts of this incarnation.
    pub(super) fn new(o: &'a Observed, cluster: &'a ValidatedCluster, incarnation: u64) -> Self {
        let view = leader_with_quorum(o, cluster);
        let mut s = Situation {
            o,
            cluster,
            incarnation,
            view,
            voters: BTreeMap::new(),
            learners: BTreeMap::new(),
            standbys: BTreeSet::new(),
            leaving: BTreeSet::new(),
            fenced: BTreeSet::new(),
        };
        s.fenced = fence::fenced(&s);
        if let Some((_, description)) = view {
            for member in &description.members {
                let name = seat_name(member);
                let ours = member_number(&cluster.name, &name).is_some();
                let verdict = verdict(&s, &name, ours, member);
                let seats = if member.learner {
                    &mut s.learners
                } else {
                    &mut s.voters
                };
                seats.insert(
                    name,
                    Seat {
                        view: member,
                        ours,
                        verdict,
                    },
                );
            }
        }
        s.sort_objects();
        s
    }

    /// Tells members on the way in from members on the way out.
    fn sort_objects(&mut self) {
        let mut names: BTreeSet<String> = self.o.sets.keys().cloned().collect();
        names.extend(self.our_pvcs().filter_map(|(_, pvc)| pvc.member.clone()));
        for name in names {
            if self.voters.contains_key(&name) || self.learners.contains_key(&name) {
                continue;
            }
            let pvc = self.pvc(&name);
            let removed = self.tombstoned(&name)
                || self
                    .description(&name)
                    .is_some_and(|d| d.phase == Phase::Removed)
                || pvc.is_some_and(|c| c.state != PvcState::New);
            let given_up = pvc.is_none_or(|c| c.terminating);
            // Before the cluster exists, and without a leader's description, no member counts as leaving.
            if self.view.is_some() && (removed || given_up) {
                self.leaving.insert(name);
            } else if !removed {
                self.standbys.insert(name);
            }
        }
    }

    /// A recent description by the pod that the platform has under this name.
    pub(super) fn description(&self, name: &str) -> Option<&'a Description> {
        fresh_description(self.o, name)
    }

    /// The PVC of a member of this life.
    pub(super) fn pvc(&self, member: &str) -> Option<&'a PvcFacts> {
        let pvc = self.o.pvcs.get(&self.pvc_name(member))?;
        (pvc.cluster_uid.as_deref() == Some(self.cluster.life.as_str())).then_some(pvc)
    }

    pub(super) fn pvc_name(&self, member: &str) -> String {
        pvc_name(member, &self.cluster.life)
    }

    /// PVCs that were made for this life of the resource.
    pub(super) fn our_pvcs(&self) -> impl Iterator<Item = (&'a str, &'a PvcFacts)> + use<'a> {
        let (o, uid) = (self.o, self.cluster.life.as_str());
        o.pvcs
            .iter()
            .filter(move |(_, pvc)| pvc.cluster_uid.as_deref() == Some(uid))
            .map(|(name, pvc)| (name.as_str(), pvc))
    }

    /// Whether a volume of this cluster is bound to its node: by the spec, by the volumes of this incarnation, or
    /// otherwise by their class.
    fn node_bound(&self) -> bool {
        match self.cluster.spec.scheduling.volumes {
            VolumeMobility::NodeBound => return true,
            VolumeMobility::Movable => return false,
            VolumeMobility::Auto => {}
        }
        let seen = || self.our_pvcs().filter_map(|(_, pvc)| pvc.node_bound);
        seen().any(|bound| bound)
            || seen().next().is_none() && self.o.class_node_bound == Some(true)
    }

    /// Whether a member may not start on a node with another one: its volume could not leave that node. Even spreading
    /// would let the successor of a member whose node is lost join a healthy member's node, and stay there.
    pub(super) fn keeps_apart(&self) -> bool {
        self.cluster.spec.scheduling.spread == Spread::Required && self.node_bound()
    }

    /// Whether evictions are counted rather than held, where there are any.
    pub(super) fn counts_evictions_by_pdb(&self) -> bool {
        self.cluster.spec.disruption.policy == DisruptionPolicy::Budget
            && self.wanted_pdb().is_some()
    }

    /// Whether evictions are held while something is under way, and one is let through otherwise.
    pub(super) fn opens_its_pdb(&self) -> bool {
        self.cluster.spec.disruption.policy == DisruptionPolicy::Auto && self.wanted_pdb().is_some()
    }

    /// Whether an eviction may take a member that the plan counts on.
    pub(super) fn may_lose_one(&self) -> bool {
        self.opens_its_pdb() && self.o.pdb.is_some_and(|pdb| pdb.is_open())
    }

    /// The PDB of a platform that has one, with the hash of its inputs.
    pub(super) fn wanted_pdb(&self) -> Option<(&'a ObjectKey, &'a String)> {
        let mut objects = self.o.wanted_objects.iter();
        objects.find(|(key, _)| key.kind == ObjectKind::PodDisruptionBudget)
    }

    /// Whether the spec wants no member to run, and every member and volume to stay.
    pub(super) fn hibernates(&self) -> bool {
        self.cluster.target() == 0
    }

    /// Whether nothing runs any more of a cluster that is to hibernate.
    pub(super) fn sleeps(&self) -> bool {
        let awake = self.o.sets.values().any(|set| !set.hibernated);
        self.hibernates() && !awake && self.o.pods.is_empty()
    }

    /// Since when a newcomer has had its chance: since its set was made, or its pod where that is
    /// younger, because it has slept since.
    pub(super) fn tries_since(&self, name: &str) -> u64 {
        let set = self.o.sets.get(name).map(|set| set.created_ms);
        let pod = self.o.pods.get(name).map(|pod| pod.created_ms);
        set.max(pod).unwrap_or(self.o.now_ms)
    }

    /// The action that creates a member's StatefulSet, or applies the current template.
    pub(super) fn apply_set(&self, member: &str) -> Action {
        self.set(member, self.hibernates() || self.fenced.contains(member))
    }

    /// The action that stops a former member; its volume stays.
    pub(super) fn sleeping_set(&self, member: &str) -> Action {
        self.set(member, true)
    }

    /// The action that starts a former member.
    pub(super) fn waking_set(&self, member: &str) -> Action {
        self.set(member, false)
    }

    fn set(&self, member: &str, hibernated: bool) -> Action {
        Action::Object(ObjectAction::ApplySet {
            member: member.to_owned(),
            pvc: self.pvc_name(member),
            one_per_node: self.keeps_apart(),
            hibernated,
            plaintext_peers: super::rules::enable_tls::is_under_way(self),
        })
    }

    /// The recovery that made this incarnation, while it exists.
    fn recovery(&self) -> Option<&'a EtcdRecoverySpec> {
        let mut made = self.o.recoveries.iter().filter(|it| self.makes(it));
        let one = made.next()?;
        made.next().is_none().then_some(&one.spec)
    }

    /// Whether a recovery asks for this incarnation, and was not refused.
    fn makes(&self, it: &RecoveryFacts) -> bool {
        let lost = u64::try_from(it.spec.incarnation);
        let makes = lost.is_ok_and(|lost| lost + 1 == self.incarnation);
        it.refused.is_none() && it.spec.cluster_uid == self.cluster.life && makes
    }

    /// The member whose data this incarnation goes on with.
    pub(super) fn survivor(&self) -> Option<&'a Survivor> {
        self.recovery()?.survivor.as_ref()
    }

    /// Whether this incarnation was formed before the resource existed: it goes on with the volumes of a deleted one. Not
    /// while a recovery makes another.
    pub(super) fn is_adopted(&self) -> bool {
        let mut made = self.o.recoveries.iter().filter(|it| self.makes(it));
        self.cluster.spec.adopts().is_some() && made.all(|it| it.recovered)
    }

    /// Whether this incarnation does not start empty.
    pub(super) fn starts_with_data(&self) -> bool {
        let spec = &self.cluster.spec;
        self.incarnation > 1 || spec.restore().is_some() || spec.follow().is_some()
    }

    /// The cluster that this incarnation is to follow. A recovered cluster follows none: its revision was raised.
    pub(super) fn to_follow(&self) -> Option<FollowedCluster> {
        self.cluster.spec.follow().filter(|_| self.incarnation == 1)
    }

    /// Where its first data come from, if it does not start empty and that is known.
    pub(super) fn source(&self) -> Option<DataSource> {
        if self.incarnation > 1 {
            return self.recovery()?.source();
        }
        let restored = self.cluster.spec.restore().cloned();
        let followed = || self.to_follow().map(DataSource::Followed);
        restored.map(DataSource::Stored).or_else(followed)
    }

    pub(super) fn tombstoned(&self, member: &str) -> bool {
        self.view
            .is_some_and(|(_, d)| d.tombstones.iter().any(|(_, name)| name == member))
    }

    /// Whether the volume of a former member may be a copy of the data that is needed: fewer members vote than wanted,
    /// so its successor does not vote yet. A member that never voted does not count.
    pub(super) fn is_kept_for_now(&self, member: &str) -> bool {
        mutant!(VolumeBeforeSuccessor => return false);
        let joined = self.pvc(member).is_some_and(|c| c.state != PvcState::New);
        let voted = |d: &Description| {
            let mut removed = d.tombstones.iter().filter(|(_, name)| name == member);
            removed.any(|(id, _)| !d.never_voted.contains(id))
        };
        let known = self.tombstoned(member);
        let voted = if known {
            self.view.is_some_and(|(_, d)| voted(d))
        } else {
            joined
        };
        voted && self.voters.len() < self.cluster.target()
    }

    /// The voters to grow to: one more than wanted while a voter is being replaced, so that its successor serves before
    /// it leaves.
    pub(super) fn goal(&self) -> usize {
        let replaced = self.voters.keys().any(|name| self.is_replaced(name));
        self.cluster.target() + usize::from(replaced)
    }

    /// Whether the spec asks for a replacement of this member.
    pub(super) fn to_replace(&self, member: &str) -> bool {
        let named = &self.cluster.spec.replace_members;
        named.iter().any(|name| name == member)
    }

    /// Whether this voter is replaced by another member: `replaceMembers` names it, or it is outdated and not
    /// restarted, or its volume is another one than the spec asks for, or it cannot stay on its node and does not move.
    pub(super) fn is_replaced(&self, member: &str) -> bool {
        let ours = self.voters.get(member).is_some_and(|seat| seat.ours);
        let way = if ours { self.way(member) } else { None };
        let retires = self.retires(member) && way != Some(Way::Move);
        // The next pod of one that terminates has all.
        let pod = self.o.pods.get(member);
        let remade = pod.is_some_and(|pod| pod.terminating && pod.resize.is_some());
        let outdated = !self.updated(member) && self.resize(member).is_none() && !remade;
        let changes = ours && (outdated || retires);
        self.to_replace(member)
            || ours && self.unfit(member).is_some()
            || way == Some(Way::AddFirst)
            || self.updates_by_replacement() && changes
    }

    /// Whether outdated members are replaced instead of restarted: by the spec, and where the quorum does not tolerate
    /// a restart.
    pub(super) fn updates_by_replacement(&self) -> bool {
        self.cluster.spec.update_strategy.type_ == UpdateType::Replace || self.cluster.target() <= 2
    }

    /// The inputs of a new member, its deadline and its volume: a failure does not apply to a member for which these
    /// differ.
    pub(super) fn attempt(&self) -> String {
        let patience = self.cluster.spec.healing.learner_deadline_seconds;
        let storage = &self.cluster.spec.storage;
        let class = storage.storage_class_name.as_deref().unwrap_or("-");
        let (inputs, size) = (&self.o.wanted_inputs, &storage.size);
        format!("{inputs}-{patience}s-{size}-{class}")
    }

    /// Whether a record is of a key that is gone with its pod: the next pod gets another certificate.
    pub(super) fn binds_nobody(&self, port: TlsPort, facts: &CertificateFacts) -> bool {
        let member = facts.member.as_ref();
        let gone = member.is_some_and(|member| !self.o.pods.contains_key(member));
        gone && self.o.tls.pod_keys.contains(&port)
    }

    /// Whether a member's pod was created from the current inputs, as far as recorded.
    pub(super) fn updated(&self, member: &str) -> bool {
        let inputs = self
            .o
            .pods
            .get(member)
            .and_then(|pod| pod.inputs.as_deref());
        inputs.is_none_or(|inputs| inputs == self.o.wanted_inputs)
    }

    /// How a member that is not updated becomes so without a restart; `None` where it needs one. If its node does not
    /// provide the resources in time, a member that can leave the node does; one that cannot would have no pod.
    pub(super) fn resize(&self, member: &str) -> Option<&'a Resize> {
        let pod = self.o.pods.get(member).filter(|pod| !pod.terminating)?;
        let resize = pod.resize.as_ref().filter(|_| !self.retires(member))?;
        let Resize::Asked {
            since_ms,
            infeasible,
            why,
        } = resize
        else {
            return Some(resize);
        };
        let deadline = in_ms(self.cluster.spec.update_strategy.progress_deadline_seconds);
        let late = since_ms + deadline <= self.o.now_ms;
        // A kubelet that says nothing does not know resizes: its node may have room.
        let silent = why.is_none() && !infeasible;
        let over = late || *infeasible && self.is_believed(*since_ms);
        let restarts = over && (silent || self.can_leave_its_node(member));
        (!restarts).then_some(resize)
    }

    /// Whether what a kubelet reports is about the resources that it was last asked for, at this time.
    pub(super) fn is_believed(&self, since_ms: u64) -> bool {
        since_ms + REPORTED_MS <= self.o.now_ms
    }

    /// Whether of all that is asked for a member's pod lacks only the resources, for which none is restarted.
    pub(super) fn lacks_resources(&self, member: &str) -> bool {
        let pod = self.o.pods.get(member);
        pod.is_some_and(|pod| pod.resize.is_some())
    }

    /// Whether a member's pod was created from the current inputs, its resources aside, as far as recorded.
    pub(super) fn is_started_as_wanted(&self, member: &str) -> bool {
        self.updated(member) || self.lacks_resources(member)
    }

    /// The inputs that a member's pod was started with: the wanted ones also where it lacks resources.
    pub(super) fn started_with(&self, member: &str) -> Option<&'a String> {
        let pod = self.o.pods.get(member)?;
        match pod.resize {
            Some(_) => Some(&self.o.wanted_inputs),
            None => pod.inputs.as_ref(),
        }
    }

    /// Whether a member gets another node where its own does not have what it asks for: with its volume, or by a
    /// successor.
    pub(super) fn can_leave_its_node(&self, member: &str) -> bool {
        let movable = self.pvc(member).and_then(|pvc| pvc.node_bound) == Some(false);
        movable || self.updates_by_replacement()
    }

    /// Whether a member sends its clients away. Only a restart ends that.
    pub(super) fn retires(&self, member: &str) -> bool {
        self.description(member)
            .is_some_and(|d| d.retiring_ms.is_some())
    }

    /// The container beside a member's server for whose sake its pod is not ready: no Service leads to that member.
    pub(super) fn kept_unready(&self, member: &str) -> Option<&'a Beside> {
        let pod = self.o.pods.get(member).filter(|pod| !pod.terminating)?;
        pod.beside.as_ref().filter(|_| pod.ready_since_ms.is_none())
    }

    /// Whether a member is about to be without its pod, or is: it serves still, or not yet.
    pub(super) fn is_leaving(&self, member: &str) -> bool {
        let pod = self.o.pods.get(member);
        let stays = pod.is_some_and(|pod| !pod.terminating && pod.released_ms.is_none());
        !stays || self.retires(member)
    }

    /// H: voters seen healthy within the freshness bound.
    pub(super) fn healthy(&self) -> usize {
        self.voters.values().filter(|seat| seat.healthy()).count()
    }

    /// From one voter to three or more: two learners, promoted back to back.
    pub(super) fn grows_by_two(&self) -> bool {
        self.voters.len() == 1 && self.cluster.target() >= 3
    }

    /// Voters, learners and standbys together.
    pub(super) fn seats(&self) -> usize {
        self.voters.len() + self.learners.len() + self.standbys.len()
    }

    /// Proof that the cluster exists or existed, even when no member answers.
    pub(super) fn bootstrapped(&self) -> bool {
        self.view.is_some() || !mutant!(FormsAgain) && self.formed_before()
    }

    fn formed_before(&self) -> bool {
        let carried_out = |it: &RecoveryFacts| {
            let lost = u64::try_from(it.spec.incarnation).unwrap_or(0);
            it.recovered && it.spec.cluster_uid == self.cluster.life && lost + 1 == self.incarnation
        };
        self.o.status_cluster_id.is_some()
            || self.is_adopted()
            || self.o.recoveries.iter().any(carried_out)
            || self.our_pvcs().any(|(_, pvc)| pvc.state != PvcState::New)
            || self.o.descriptions.keys().any(|name| {
                self.description(name).is_some_and(|d| {
                    d.cluster_id != 0
                        && d.cluster_uid.as_deref() == Some(self.cluster.life.as_str())
                })
            })
    }

    /// The first name that was never used: 1 + the largest over members, tombstones, sets, PVCs and pods. Without a leader
    /// the members count that any server knows of: those of adopted volumes are in no status.
    pub(super) fn next_name(&self) -> String {
        let cluster = self.cluster.name.as_str();
        let tombstones = self
            .view
            .map(|(_, d)| d.tombstones.as_slice())
            .unwrap_or_default();
        let earlier = &self.o.earlier;
        let described = self.o.descriptions.values();
        let described = described.chain(earlier.descriptions.values());
        let known = described.flat_map(|d| d.members.iter().map(|member| member.name.as_str()));
        let pvcs = self.our_pvcs().map(|(_, pvc)| pvc);
        let pvcs = pvcs.chain(earlier.pvcs.values());
        let pvcs = pvcs.filter_map(|pvc| pvc.member.as_deref());
        let earlier = earlier.sets.keys().chain(earlier.pods.keys());
        let remembered = self.o.status_memory.voters.iter();
        let pvcs = pvcs.chain(earlier.chain(remembered).map(String::as_str));
        let largest = (self
            .voters
            .keys()
            .chain(self.learners.keys())
            .map(String::as_str))
        .chain(tombstones.iter().map(|(_, name)| name.as_str()))
        .chain(
            self.o
                .sets
                .keys()
                .chain(self.o.pods.keys())
                .map(String::as_str),
        )
        .chain(pvcs)
        .chain(known)
        .filter_map(|name| member_number(cluster, name))
        .max();
        crate::crd::member_name(cluster, largest.unwrap_or(0) + 1)
    }
}

/// The name of a member, or its ID if it never published one.
fn seat_name(member: &MemberView) -> String {
    if member.name.is_empty() {
        format!("{:x}", member.id)
    } else {
        member.name.clone()
    }
}

fn fresh_description<'a>(o: &'a Observed, name: &str) -> Option<&'a Description> {
    let description = o.descriptions.get(name)?;
    let same_pod = o
        .pods
        .get(name)
        .is_none_or(|pod| pod.uid == description.pod_uid);
    (description.age_ms <= FRESH_MS && same_pod).then_some(description)
}

/// The leader with a quorum; of two, the one with the higher term.
fn leader_with_quorum<'a>(
    o: &'a Observed,
    cluster: &ValidatedCluster,
) -> Option<(&'a str, &'a Description)> {
    o.descriptions
        .keys()
        .filter_map(|name| Some((name.as_str(), fresh_description(o, name)?)))
        .filter(|(_, d)| d.leads && d.phase == Phase::Member)
        .filter(|(_, d)| d.cluster_uid.as_deref() == Some(cluster.life.as_str()))
        .max_by_key(|(_, d)| d.term)
}
