//! What the deletion of a cluster waits for: first that the cluster that it follows is not left closed to writes, then its
//! last backup. From what the resource says; calls nobody.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::deletion::{FOREGROUND, has};
use super::facts;
use crate::backup_plan::{
    DeletionStep, DeletionWait, ObservedDeletion, ObservedSource, SourceLetGo, SourceStanding,
    SourceStep, plan_deletion, plan_source,
};
use crate::crd::{
    ANNOTATION_LEAVE_CLOSED, EtcdCluster, FINALIZER_SOURCE, FollowPhase, FollowedCluster, Until,
};
use crate::operator::kubernetes::facts::is_asked;
use crate::plan::{LastBackupFacts, SOURCE_OPEN};

/// A cluster with what its deletion depends on.
pub(super) struct Seen {
    pub(super) of_source: ObservedSource,
    pub(super) of_backup: ObservedDeletion,
}

/// A write.
pub(super) enum Step {
    OfSource(SourceStep),
    OfBackup(DeletionStep),
}

impl Seen {
    /// The next step, and what the deletion waits for. The followed cluster first: whether this one has cut over decides
    /// whether there is anything to save.
    pub(super) fn plan(&self) -> (Option<Step>, Option<LastBackupFacts>) {
        let facts = |waits: DeletionWait, of_source: bool| LastBackupFacts {
            message: waits.message,
            needs_user: waits.needs_user,
            of_source,
        };
        let of_source = plan_source(&self.of_source);
        // What is settled keeps its finalizer until the backup is stored: nothing closes the followed cluster meanwhile.
        let settled = of_source.step == Some(SourceStep::LetGo(SourceLetGo::Settled));
        let of_backup = || plan_deletion(&self.of_backup);
        if let Some(waits) = of_source.waits {
            return (None, Some(facts(waits, true)));
        }
        if settled && self.of_backup.deleting && self.of_backup.held {
            let plan = of_backup();
            let waits = plan.waits.map(|waits| facts(waits, false));
            return (plan.step.map(Step::OfBackup), waits);
        }
        if let Some(step) = of_source.step {
            return (Some(Step::OfSource(step)), None);
        }
        let plan = of_backup();
        let waits = plan.waits.map(|waits| facts(waits, false));
        (plan.step.map(Step::OfBackup), waits)
    }
}

/// Whether the user does not care that the followed cluster may stay closed to writes.
pub(in crate::operator::kubernetes) fn is_source_waived(meta: &ObjectMeta) -> bool {
    is_asked(meta, ANNOTATION_LEAVE_CLOSED)
}

/// What the resource says of the cluster that it follows.
pub(super) fn source_of(cluster: &EtcdCluster, now: Timestamp) -> ObservedSource {
    let meta = &cluster.metadata;
    let phase = cluster
        .status
        .as_ref()
        .and_then(|it| Some(it.follow.as_ref()?.phase));
    let deleting = meta.deletion_timestamp.as_ref().map(|at| at.0);
    let condition = facts::following(cluster);
    let seen = condition.and_then(|it| it.observed_generation);
    let follow = cluster.spec.follow();
    ObservedSource {
        cluster: cluster.name_any(),
        source: follow
            .as_ref()
            .map(FollowedCluster::in_words)
            .unwrap_or_default(),
        follows: facts::follows(cluster),
        held: has(meta, FINALIZER_SOURCE),
        deleting,
        foreground: has(meta, FOREGROUND),
        formed: cluster
            .status
            .as_ref()
            .is_some_and(|it| it.cluster_id.is_some()),
        waived: is_source_waived(meta),
        // The cutover of one that moves does not become Manual again: there was never another Job.
        never_closes: phase != Some(FollowPhase::Frozen)
            && follow
                .as_ref()
                .is_some_and(|it| !it.standby && it.until == Until::Stay),
        standing: match condition.map(|it| it.reason.as_str()) {
            Some(SOURCE_OPEN) if deleting.is_some() => SourceStanding::Settled,
            // Not what was seen before the deletion, which is a generation of its own.
            Some("NoQuorumSeen") if seen >= meta.generation => SourceStanding::Unseen,
            _ => SourceStanding::Pending,
        },
        closed: phase == Some(FollowPhase::Frozen),
        now,
    }
}

/// Whether the followed cluster was seen open since the deletion was asked for: it has all data, and no cutover follows.
pub(super) fn is_seen_open(cluster: &EtcdCluster) -> bool {
    let deleting = cluster.metadata.deletion_timestamp.is_some();
    let reason = facts::following(cluster).map(|it| it.reason.as_str());
    deleting && facts::follows(cluster) && reason == Some(SOURCE_OPEN)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::backup_plan::LetGo;
    use crate::crd::FINALIZER_BACKUP;
    use crate::operator::kubernetes::backups::deletion::tests::cluster;
    use crate::operator::kubernetes::backups::deletion::{is_due, of_resource};

    #[test]
    fn what_was_seen_before_the_deletion_does_not_count() {
        let standing = |observed: i64| {
            let metadata = json!({"generation": 3, "deletionTimestamp": "2026-03-01T00:00:00Z"});
            let mut found = cluster(
                metadata,
                json!({"replicaOf": {"endpoints": ["http://a:2379"]}}),
            );
            let condition = json!({"type": "Following", "status": "Unknown", "reason": "NoQuorumSeen",
                "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z", "observedGeneration": observed});
            let status = json!({"clusterID": "9f", "follow": {"phase": "Frozen"}, "conditions": [condition]});
            found.status = serde_json::from_value(status).expect("a status");
            source_of(&found, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(standing(2).standing, SourceStanding::Pending);
        let seen = standing(3);
        assert_eq!(seen.standing, SourceStanding::Unseen);
        assert!(seen.closed && seen.source.contains("the source at"));
    }

    /// Whether a followed cluster may be left closed is read from what was written after the deletion was asked for; then
    /// the last backup is made, if there is anything to save.
    #[test]
    fn the_followed_cluster_comes_first() {
        let follow = json!({"endpoints": ["http://a:2379"], "cutover": "WhenCaughtUp"});
        let spec = json!({"bootstrap": {"follow": follow}, "backupBeforeDeletion": {"storeRef": {"name": "nightly"}}});
        let now: Timestamp = "2026-03-01T00:00:10Z".parse().expect("a time");
        let seen = |deleted: bool, finalizers: Value, phase: &str, reason: &str| {
            let mut metadata = json!({"finalizers": finalizers});
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-03-01T00:00:00Z");
            }
            let mut found = cluster(metadata, spec.clone());
            let condition = json!({"type": "Following", "status": "True", "reason": reason,
                "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z"});
            let status =
                json!({"clusterID": "9f", "follow": {"phase": phase}, "conditions": [condition]});
            found.status = serde_json::from_value(status).expect("a status");
            let seen = Seen {
                of_source: source_of(&found, now),
                of_backup: of_resource(&found),
            };
            (is_due(&found), seen.plan())
        };
        let both = json!([FINALIZER_SOURCE, FINALIZER_BACKUP]);
        let (due, (step, _)) = seen(false, json!([]), "Following", "Following");
        assert!(due && matches!(step, Some(Step::OfSource(SourceStep::Hold))));
        let (due, (step, _)) = seen(false, json!([FINALIZER_SOURCE]), "Following", "Following");
        assert!(due && matches!(step, Some(Step::OfBackup(DeletionStep::Hold))));
        let (due, (step, _)) = seen(false, both.clone(), "CutOver", "CutOver");
        let settled = SourceStep::LetGo(SourceLetGo::Settled);
        assert!(due && matches!(step, Some(Step::OfSource(step)) if step == settled));
        for (phase, reason) in [("Frozen", "Frozen"), ("Following", "Following")] {
            let (_, (step, waits)) = seen(true, both.clone(), phase, reason);
            assert!(step.is_none());
            assert!(waits.expect("it waits").of_source, "{phase}");
        }
        let (_, (step, _)) = seen(true, both.clone(), "Following", SOURCE_OPEN);
        let nothing = DeletionStep::LetGo(LetGo::Follows);
        assert!(matches!(step, Some(Step::OfBackup(step)) if step == nothing));
        let (_, (step, waits)) = seen(true, both, "CutOver", "CutOver");
        assert!(matches!(
            step,
            Some(Step::OfBackup(DeletionStep::CreateBackup { .. }))
        ));
        assert!(!waits.expect("it waits").of_source);
        let (_, (step, _)) = seen(true, json!([FINALIZER_SOURCE]), "Following", SOURCE_OPEN);
        assert!(matches!(step, Some(Step::OfSource(step)) if step == settled));
    }
}
