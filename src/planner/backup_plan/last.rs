//! Which of a cluster's backups would be restored, and how long that took when it was last tried.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observed::BackupFacts;
use crate::crd::ClusterBackups;
use crate::crd::backups::LastBackup;

/// The newest good backup and the newest verified one.
#[must_use]
pub fn last_backups(backups: &[BackupFacts]) -> ClusterBackups {
    let good = || backups.iter().filter(|backup| backup.good());
    let newest = good().max_by_key(|backup| backup.taken());
    let verified = good()
        .filter(|backup| backup.status.verification.is_some())
        .max_by_key(|backup| backup.taken());
    ClusterBackups {
        last_success: newest.map(last),
        recovery_seconds: verified
            .and_then(|backup| backup.status.verification.as_ref())
            .map(|verification| verification.seconds),
        last_verified: verified.map(last),
        // The members know that.
        archived: None,
    }
}

fn last(backup: &BackupFacts) -> LastBackup {
    LastBackup {
        name: backup.name.clone(),
        time: Time(backup.taken()),
        revision: backup.status.revision.unwrap_or(0),
        url: backup.status.url.clone(),
    }
}
