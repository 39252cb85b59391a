//! I20: nothing is restored over living data. No Job gives a snapshot to a server that holds data, and none is made for an
//! incarnation that is known to be formed. For a recovery none is made while there is a quorum: its fencing comes first.

use super::{BELIEVED_MS, History};
use crate::opsim::harness::backup_truth::JobTruth;
use crate::opsim::harness::ground_truth::GroundTruth;

pub(super) fn moment(truth: &GroundTruth) -> Option<String> {
    truth.backups.overwrites.first().cloned()
}

pub(super) fn deed(before: &GroundTruth, after: &GroundTruth, history: &History) -> Option<String> {
    let known = &before.backups.jobs;
    let mut new = after.backups.jobs.iter();
    new.find_map(|(uid, job)| match known.contains_key(uid) {
        true => None,
        false => wrong(job, before, history),
    })
}

fn wrong(job: &JobTruth, before: &GroundTruth, history: &History) -> Option<String> {
    let founds = job.founds?;
    let cluster = before.clusters.get(&job.owner)?;
    if job.recovers && cluster.quorate && cluster.incarnation < founds {
        return Some(format!(
            "Job {} recovers a cluster that has a quorum",
            job.name
        ));
    }
    // What was formed a moment ago the operator may not know yet.
    let formed_ms = history.formed_ms.get(&(job.owner.clone(), founds))?;
    let known = before.now_ms.saturating_sub(*formed_ms) > BELIEVED_MS;
    let formed = cluster.incarnation >= founds && known;
    formed.then(|| format!("Job {} restores over a cluster that is formed", job.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fixture::{cluster, ground_truth, history};
    use super::*;
    use crate::opsim::harness::backup_truth::BackupTruth;

    fn with_job(mut truth: GroundTruth, founds: u64, recovers: bool) -> GroundTruth {
        let job = JobTruth {
            name: "demo-restore-1".to_owned(),
            kind: "restore".to_owned(),
            owner: "uid".to_owned(),
            owned: true,
            founds: Some(founds),
            recovers,
            runs: false,
        };
        truth.backups = Arc::new(BackupTruth {
            jobs: [("job".to_owned(), job)].into(),
            ..BackupTruth::default()
        });
        truth
    }

    #[test]
    fn jobs_for_formed_clusters_are_detected() {
        let mut formed = cluster(3);
        formed.incarnation = 1;
        let history = history(&formed);
        let found = |now_ms: u64, founds: u64, recovers: bool| {
            let before = ground_truth(&formed, now_ms);
            let after = with_job(before.clone(), founds, recovers);
            deed(&before, &after, &history).is_some()
        };
        assert!(found(BELIEVED_MS + 1, 1, false));
        assert!(!found(1_000, 1, false), "formed a moment ago");
        assert!(!found(BELIEVED_MS + 1, 2, false));
        assert!(found(1_000, 2, true), "there is a quorum");
        let known = with_job(ground_truth(&formed, 60_000), 1, false);
        assert_eq!(deed(&known, &known, &history), None, "it was there before");
    }

    #[test]
    fn data_over_data_are_detected() {
        let mut truth = ground_truth(&cluster(1), 0);
        assert_eq!(moment(&truth), None);
        truth.backups = Arc::new(BackupTruth {
            overwrites: vec!["x was sent to a member".to_owned()],
            ..BackupTruth::default()
        });
        assert!(moment(&truth).is_some());
    }
}
