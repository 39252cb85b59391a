//! I19: neither a retention nor the operator loses the last good backup. No prune deletes the last whole backup of a
//! cluster, nor the newest verified one, and no operator deletes the resource of a backup that is stored whole.

use crate::opsim::harness::backup_truth::BackupTruth;

pub(super) fn moment(truth: &BackupTruth) -> Option<String> {
    let mut deletions = truth.deletions.iter();
    let lost = deletions.find(|deletion| deletion.last_whole || deletion.newest_verified)?;
    let what = match lost.last_whole {
        true => "the last whole one",
        false => "the newest verified one",
    };
    Some(format!("a prune has deleted {}: {what}", lost.path))
}

pub(super) fn deed(before: &BackupTruth, after: &BackupTruth) -> Option<String> {
    let mut gone = before.backups.iter();
    let lost = gone.find(|(uid, backup)| {
        let stored = after.stored.get(&backup.path);
        !after.backups.contains_key(*uid) && stored.is_some_and(|it| it.is_whole())
    });
    let (_, backup) = lost?;
    Some(format!(
        "EtcdBackup {} was deleted, and {} is stored whole",
        backup.name, backup.path
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::backups;
    use super::*;
    use crate::opsim::work::store::Deletion;

    #[test]
    fn lost_last_backups_are_detected() {
        let mut truth = backups();
        let deletion = |last_whole, newest_verified| Deletion {
            path: "s3://b/x".to_owned(),
            last_whole,
            newest_verified,
        };
        truth.deletions = vec![deletion(false, false)];
        assert_eq!(moment(&truth), None);
        truth.deletions = vec![deletion(true, false)];
        assert!(moment(&truth).is_some());
        truth.deletions = vec![deletion(false, true)];
        assert!(moment(&truth).is_some());
    }

    #[test]
    fn deleted_resources_of_stored_backups_are_detected() {
        let (before, mut after) = (backups(), backups());
        assert_eq!(deed(&before, &after), None);
        after.backups.clear();
        assert!(deed(&before, &after).is_some());
        after.stored.clear();
        assert_eq!(deed(&before, &after), None, "its objects went first");
    }
}
