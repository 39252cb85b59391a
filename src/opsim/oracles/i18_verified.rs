//! I18: a backup that is called Verified restores. When it is called so, and each time that it is verified again, what is
//! stored under its name is whole, and is of the cluster and the revision that its status names.

use std::collections::BTreeMap;

use crate::opsim::harness::backup_truth::{Backup, BackupTruth};

pub(super) fn moment(truth: &BackupTruth, judged: &mut BTreeMap<String, String>) -> Option<String> {
    let verified = truth.backups.iter();
    let verified = verified.filter(|(_, backup)| backup.phase == "Verified");
    for (uid, backup) in verified {
        let before = judged.insert(uid.clone(), backup.verified.clone());
        if before.as_ref() == Some(&backup.verified) {
            continue;
        }
        if let Some(why) = wrong(truth, backup) {
            return Some(format!(
                "EtcdBackup {} is called Verified, and {why}",
                backup.name
            ));
        }
    }
    None
}

fn wrong(truth: &BackupTruth, backup: &Backup) -> Option<String> {
    let Some(stored) = truth.stored.get(&backup.path) else {
        return Some(format!("there is no {}", backup.path));
    };
    // What happens to it after it was read, nobody knows yet; times in a status are in whole seconds.
    if let Some(damage) = stored.damage
        && stored.damaged_ms < backup.verified_ms
    {
        return Some(format!("it is {damage:?}"));
    }
    let (own, named) = (&stored.saved, (&backup.cluster_id, backup.revision));
    ((&own.cluster_id, own.revision) != named).then(|| {
        format!(
            "it is revision {} of cluster {}, not {} of {}",
            own.revision, own.cluster_id, named.1, named.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::backups;
    use super::*;
    use crate::opsim::work::store::Damage;

    #[test]
    fn verified_backups_that_do_not_restore_are_detected() {
        let found = |change: &dyn Fn(&mut BackupTruth)| {
            let mut truth = backups();
            change(&mut truth);
            moment(&truth, &mut BTreeMap::new()).is_some()
        };
        assert!(!found(&|_| {}));
        assert!(found(&|truth| truth.stored.clear()));
        assert!(found(&|truth| {
            for object in truth.stored.values_mut() {
                (object.damage, object.damaged_ms) = (Some(Damage::Flipped), 1);
            }
        }));
        assert!(found(&|truth| {
            for backup in truth.backups.values_mut() {
                backup.revision += 1;
            }
        }));
        assert!(found(&|truth| {
            for backup in truth.backups.values_mut() {
                backup.cluster_id = "other".to_owned();
            }
        }));
    }

    #[test]
    fn verified_again_is_judged_again() {
        let (mut truth, mut judged) = (backups(), BTreeMap::new());
        assert_eq!(moment(&truth, &mut judged), None);
        truth.stored.clear();
        assert_eq!(moment(&truth, &mut judged), None, "nothing new is claimed");
        for backup in truth.backups.values_mut() {
            backup.verified = "later".to_owned();
        }
        assert!(moment(&truth, &mut judged).is_some());
    }
}
