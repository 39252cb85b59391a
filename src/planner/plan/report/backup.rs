//! `status.backup`: which backups there are, and how far the log is archived. Never asks a store.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::crd::{ArchivedPoint, ClusterBackups};
use crate::plan::observed::Archived;
use crate::plan::situation::Situation;

/// The archive goes on every few seconds; the status says so twice a minute.
const STEP: SignedDuration = SignedDuration::from_secs(30);

/// Clocks of nodes differ by less.
const AHEAD_MS: u64 = 60_000;

/// The cluster's backups; while they are not known, as they were last known.
pub(super) fn status(s: &Situation<'_>) -> Option<ClusterBackups> {
    let before = s.o.status_memory.backup.as_ref();
    let known = s.o.backups.clone().or_else(|| before.cloned());
    let archived = archived(s, before.and_then(|before| before.archived.as_ref()));
    let status = ClusterBackups {
        archived,
        ..known.unwrap_or_default()
    };
    Some(status).filter(|status| *status != ClusterBackups::default())
}

/// What the members of this cluster were last told. One that has restarted knows nothing, and what was known counts.
fn archived(s: &Situation<'_>, before: Option<&ArchivedPoint>) -> Option<ArchivedPoint> {
    let ours = s.o.descriptions.keys().filter_map(|name| {
        let description = s.description(name)?;
        let ours = description.cluster_uid.as_deref() == Some(s.cluster.life.as_str());
        // Nobody knows what will be committed: that clock is wrong, or it is a lie.
        let known = |it: &Archived| it.as_of_ms <= s.o.now_ms.saturating_add(AHEAD_MS);
        description.archived.clone().filter(|it| ours && known(it))
    });
    let newest = ours
        .max_by_key(|archived| archived.as_of_ms)
        .and_then(|archived| {
            let ms = i64::try_from(archived.as_of_ms).ok()?;
            Some(ArchivedPoint {
                time: Time(Timestamp::from_second(ms / 1000).ok()?),
                raft_index: i64::try_from(archived.index).ok()?,
                url: archived.location,
            })
        });
    match (newest, before) {
        (Some(newest), Some(before))
            if newest.url == before.url && newest.time.0 < before.time.0 + STEP =>
        {
            Some(before.clone())
        }
        (Some(newest), _) => Some(newest),
        (None, before) => before.cloned(),
    }
}
