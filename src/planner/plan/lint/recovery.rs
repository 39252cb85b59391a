//! I16: no act of recovery without its fencing. Nothing here uses the rule's own code.

use super::{Facts, refuse};
use crate::crd::{EtcdRecoverySpec, ValidatedCluster};
use crate::plan::action::{Action, ObjectAction};
use crate::plan::observed::{Description, Observed, Phase, PodFacts, RecoveryFacts, SetFacts};
use crate::plan::situation::FRESH_MS;

impl Facts<'_> {
    /// The one EtcdRecovery that names this incarnation of this cluster.
    fn recovery_of(&self, lost: u64) -> Option<&EtcdRecoverySpec> {
        let now = self.incarnation();
        // One that was carried out says where its incarnation came from, and is not carried out again.
        let counts = |it: &&RecoveryFacts| it.refused.is_none() && (!it.recovered || now > lost);
        let mut specs = self.o.recoveries.iter().filter(counts);
        let names = |spec: &EtcdRecoverySpec| {
            spec.cluster_uid == self.cluster.life
                && u64::try_from(spec.incarnation) == Ok(lost)
                && spec.accept_loss
        };
        let one = specs.find(|it| names(&it.spec))?;
        let more = specs.any(|it| names(&it.spec));
        (!more).then_some(&one.spec)
    }

    /// Whether an EtcdRecovery asks for the incarnation of the identity Secret.
    pub(super) fn is_recovered(&self) -> bool {
        let lost = self.incarnation().checked_sub(1);
        lost.is_some_and(|lost| self.recovery_of(lost).is_some())
    }

    /// The incarnation of the identity Secret; 0 without one.
    fn incarnation(&self) -> u64 {
        let identity = self.o.identity_secret.as_ref();
        identity.map_or(0, |identity| identity.incarnation)
    }

    /// Members sleep with the whole cluster; else only those of a lost incarnation do, all but the survivor.
    pub(super) fn sleep_of(&self, member: &str, hibernated: bool) -> Result<(), String> {
        let hibernates = self.cluster.target() == 0;
        let now = self.incarnation();
        if self.o.earlier.sets.contains_key(member) {
            let spec = self.recovery_of(now.saturating_sub(1));
            let survives = is_survivor(spec, member);
            let formed = self.leader.is_some() || self.o.status_cluster_id.is_some();
            refuse(
                hibernated && !hibernates && !formed && self.former_serve(),
                "I16: a former member follows a leader, or is ready",
            )?;
            return refuse(
                !hibernated && (!survives || self.leader.is_some()),
                "I16: a former member starts, and nobody needs its data",
            );
        }
        if hibernated == hibernates {
            return Ok(());
        }
        refuse(!hibernated, "I1: only replicas 0 lets members sleep")?;
        // Without a quorum a named member that runs is stopped by a recovery only.
        let off = self.o.sets.get(member).is_some_and(|set| set.hibernated);
        if self.o.fenced.contains(member) && (off || self.leader.is_some()) {
            return self.fences(member);
        }
        refuse(
            self.leader.is_some(),
            "I16: a leader with a quorum was seen",
        )?;
        self.nobody_follows()?;
        // Without an identity Secret it may be any that is asked for.
        let asked = match now {
            0 => self.o.recoveries.iter().any(|it| {
                let lost = u64::try_from(it.spec.incarnation).unwrap_or(0);
                self.recovery_of(lost).is_some() && !is_survivor(Some(&it.spec), member)
            }),
            now => {
                let spec = self.recovery_of(now);
                spec.is_some() && !is_survivor(spec, member)
            }
        };
        refuse(!asked, "I1: only replicas 0 lets members sleep")
    }

    /// The identity of a lost incarnation goes only once nobody of it runs but the survivor.
    pub(super) fn delete_identity_secret(&self, incarnation: u64) -> Result<(), String> {
        refuse(
            self.incarnation() != incarnation,
            "I16: it is another incarnation's",
        )?;
        self.fenced(incarnation)
    }

    /// Whether everybody of a lost incarnation has stopped but the survivor, which holds what was reviewed.
    pub(super) fn fenced(&self, lost: u64) -> Result<(), String> {
        refuse(
            self.leader.is_some(),
            "I16: a leader with a quorum was seen",
        )?;
        self.nobody_follows()?;
        let spec = self.recovery_of(lost);
        let spec = spec.ok_or("I16: no EtcdRecovery asks for it")?;
        let (own, former) = (&self.o.sets, &self.o.earlier.sets);
        let mut sets = own.iter().chain(former);
        let starts = |set: &SetFacts| !set.hibernated && !set.terminating;
        refuse(
            sets.any(|(name, set)| !is_survivor(Some(spec), name) && starts(set)),
            "I16: a former member may start",
        )?;
        let mut pods = self.o.pods.iter().chain(&self.o.earlier.pods);
        let runs = |pod: &PodFacts| {
            let node = pod.node.as_ref().and_then(|node| self.o.nodes.get(node));
            !node.is_some_and(|node| node.out_of_service && !node.ready)
        };
        refuse(
            pods.any(|(name, pod)| !is_survivor(Some(spec), name) && runs(pod)),
            "I16: a former member may still run",
        )?;
        let Some(survivor) = &spec.survivor else {
            return Ok(());
        };
        let own = self.o.descriptions.get(&survivor.member);
        let described = own.or_else(|| self.o.earlier.descriptions.get(&survivor.member));
        let described = described.ok_or("I16: the survivor does not answer")?;
        let expected = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
        let reviewed = (
            expected(survivor.expect.term),
            expected(survivor.expect.index),
        );
        refuse(
            described.disk_uuid != survivor.expect.disk_uuid
                || (described.last_term, described.last_index) < reviewed,
            "I16: the survivor does not hold what was reviewed",
        )
    }

    /// Whether anything speaks for a quorum of an earlier incarnation.
    fn former_serve(&self) -> bool {
        let former = &self.o.earlier;
        let mut fresh = former
            .descriptions
            .values()
            .filter(|d| d.age_ms <= FRESH_MS);
        let mut pods = former.pods.values();
        fresh.any(Description::follows_a_leader) || pods.any(|pod| pod.ready_since_ms.is_some())
    }

    /// No member that answers follows a leader, and Kubernetes calls none ready: either means that there may be a quorum.
    fn nobody_follows(&self) -> Result<(), String> {
        let mut fresh = self
            .o
            .descriptions
            .values()
            .filter(|d| d.age_ms <= FRESH_MS);
        refuse(
            fresh.any(Description::follows_a_leader),
            "I16: a member follows a leader",
        )?;
        let mut pods = self.o.pods.values();
        refuse(
            pods.any(|pod| pod.ready_since_ms.is_some()),
            "I16: a member is ready",
        )
    }

    /// By how much the revision is raised in this incarnation, if it does not start empty.
    pub(super) fn wanted_bump(&self) -> Option<u64> {
        match self.incarnation() {
            0 | 1 => {
                // Who follows is at the revisions of the followed cluster.
                let restore = self.cluster.spec.restore();
                let restored = restore.map(|restore| restore.revision_bump);
                let bump = restored.or(self.cluster.spec.follow().map(|_| 0));
                u64::try_from(bump?).ok()
            }
            now => Some(self.recovery_of(now - 1)?.source()?.revision_bump()),
        }
    }

    /// Whether this incarnation may not start empty.
    pub(super) fn needs_data(&self) -> bool {
        let spec = &self.cluster.spec;
        self.incarnation() > 1 || spec.restore().is_some() || spec.follow().is_some()
    }

    /// Whether this incarnation is to follow the cluster that its snapshot was taken from.
    pub(super) fn is_to_follow(&self) -> bool {
        self.incarnation() <= 1 && self.cluster.spec.follow().is_some()
    }
}

fn is_survivor(spec: Option<&EtcdRecoverySpec>, member: &str) -> bool {
    let survivor = spec.and_then(|spec| spec.survivor.as_ref());
    survivor.is_some_and(|survivor| survivor.member == member)
}

/// Whatever objects say about incarnations: no member that a leader with a quorum names is stopped for a recovery, or
/// loses its StatefulSet.
pub(super) fn spares_quorums(
    seen: &Observed,
    cluster: &ValidatedCluster,
    action: &Action,
) -> Result<(), String> {
    let member = match action {
        Action::Object(ObjectAction::ApplySet {
            member,
            hibernated: true,
            ..
        }) if cluster.target() > 0 && !seen.fenced.contains(member) => member,
        Action::Object(ObjectAction::DeleteSet { member, .. }) => member,
        _ => return Ok(()),
    };
    let leads = |d: &&Description| {
        d.leads
            && d.age_ms <= FRESH_MS
            && d.phase == Phase::Member
            && d.cluster_uid.as_deref() == Some(cluster.life.as_str())
    };
    let mut leaders = seen.descriptions.values().filter(leads);
    refuse(
        leaders.any(|leader| leader.members.iter().any(|it| it.name == *member)),
        "I16: a leader with a quorum names it",
    )
}
