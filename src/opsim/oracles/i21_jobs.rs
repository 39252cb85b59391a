//! I21: of one resource no two Jobs of a kind work at once, none outlives its resource for long, and once everything is at
//! rest each backup has ended, a failed one with its reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::harness::backup_truth::BackupTruth;

/// So long a garbage collector may take.
const COLLECTED_MS: u64 = 60_000;

pub(super) fn moment(
    truth: &BackupTruth,
    now_ms: u64,
    ownerless_ms: &mut BTreeMap<String, u64>,
) -> Option<String> {
    let mut at_work = BTreeSet::new();
    for job in truth.jobs.values().filter(|job| job.runs) {
        if !at_work.insert((&job.owner, &job.kind)) {
            return Some(format!(
                "two Jobs of {} work at once: {}",
                job.kind, job.name
            ));
        }
    }
    ownerless_ms.retain(|uid, _| truth.jobs.contains_key(uid));
    for (uid, job) in truth.jobs.iter().filter(|(_, job)| !job.owned) {
        let since = *ownerless_ms.entry(uid.clone()).or_insert(now_ms);
        if now_ms.saturating_sub(since) > COLLECTED_MS {
            return Some(format!("Job {} outlives its resource", job.name));
        }
    }
    None
}

/// Why backups have not come to an end, if they have not.
pub(crate) fn unfinished(api: &ApiServer) -> Option<String> {
    api.all(Kind::EtcdBackup).find_map(|backup| {
        let name = object::name(backup);
        let text = |field: &str| object::text(backup, &["status", field]);
        match text("phase") {
            "Uploaded" | "Verified" => None,
            "Failed" if !text("message").is_empty() => None,
            "Failed" => Some(format!("EtcdBackup {name} has failed without a reason")),
            phase => Some(format!(
                "EtcdBackup {name} is {phase:?}: {}",
                text("message")
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::opsim::harness::backup_truth::JobTruth;

    fn jobs(all: &[(&str, bool, bool)]) -> BackupTruth {
        let job = |(kind, owned, runs): &(&str, bool, bool)| JobTruth {
            kind: (*kind).to_owned(),
            owner: "uid".to_owned(),
            owned: *owned,
            runs: *runs,
            ..JobTruth::default()
        };
        let all = all.iter().enumerate();
        BackupTruth {
            jobs: all.map(|(at, one)| (at.to_string(), job(one))).collect(),
            ..BackupTruth::default()
        }
    }

    #[test]
    fn jobs_at_once_and_left_jobs_are_detected() {
        let found = |truth: &BackupTruth, now_ms: u64| {
            moment(truth, now_ms, &mut [("0".to_owned(), 0)].into()).is_some()
        };
        assert!(!found(
            &jobs(&[("save", true, true), ("verify", true, true)]),
            0
        ));
        assert!(!found(
            &jobs(&[("save", true, true), ("save", true, false)]),
            0
        ));
        assert!(found(
            &jobs(&[("save", true, true), ("save", true, true)]),
            0
        ));
        assert!(!found(&jobs(&[("save", false, true)]), COLLECTED_MS));
        assert!(found(&jobs(&[("save", false, true)]), COLLECTED_MS + 1));
    }

    #[test]
    fn unfinished_backups_are_reported() {
        let with = |status: serde_json::Value| {
            let mut api = ApiServer::new(1, 0);
            let backup = json!({"metadata": {"name": "one", "namespace": "default"},
                "spec": {"clusterRef": {"name": "demo"}, "storeRef": {"name": "nightly"}}});
            let made = api.create("user", Kind::EtcdBackup, backup);
            assert!(made.is_ok(), "{made:?}");
            api.edit("test", Kind::EtcdBackup, ("default", "one"), |it| {
                it["status"] = status.clone();
            });
            unfinished(&api)
        };
        assert!(with(json!({"phase": "Pending"})).is_some());
        assert!(with(json!({"phase": "Failed"})).is_some());
        assert_eq!(with(json!({"phase": "Failed", "message": "no"})), None);
        assert_eq!(with(json!({"phase": "Verified"})), None);
    }
}
