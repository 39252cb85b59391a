//! `prune`: deletes what a retention does not keep, and what no manifest names. Observes, decides, deletes, in this
//! order; the manifest of a backup goes first, so that a prune that is killed leaves no damaged backup.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use object_store::path::Path;

use super::Error;
use super::archive::{Archived, Horizon, prunable};
use super::cipher::Key;
use super::repository::{Kind, Repository, Stored};
use super::retention::{Candidate, Decision, Retention, decide};
use super::save::DEADLINE;

/// How old the newest part of an attempt without a manifest is before it is deleted: no `save` takes so long.
const LEFT_OVER: Duration = Duration::from_secs(2 * DEADLINE.as_secs());

/// What a prune does, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Backups that stay, and why.
    pub kept: BTreeMap<String, Vec<&'static str>>,
    /// Backups that go.
    pub deleted: Vec<Deletion>,
    /// Backups without a manifest of which parts go.
    pub left_over: Vec<String>,
}

/// A backup that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its name.
    pub id: String,
    /// Its attempt.
    pub attempt: String,
    /// Whether it is damaged.
    pub damaged: bool,
}

/// Decides, cluster by cluster: the backups of one take no place of another's. Pure.
#[must_use]
pub fn plan(stored: &[Stored], policy: &Retention, zone: &TimeZone, now: Timestamp) -> Plan {
    let mut clusters: BTreeMap<&str, Vec<Candidate>> = BTreeMap::new();
    for backup in stored {
        if let Some(manifest) = backup.known() {
            let cluster = clusters.entry(&manifest.source.cluster_id).or_default();
            cluster.push(Candidate {
                id: backup.id.clone(),
                at: manifest.started,
                good: backup.damage().is_none(),
                verified: backup.verified(),
            });
        }
    }
    let clusters = clusters.values();
    let decisions: BTreeMap<String, Decision> = clusters
        .flat_map(|candidates| decide(policy, candidates, zone))
        .collect();
    let mut plan = Plan::default();
    for backup in stored {
        match (backup.known(), decisions.get(&backup.id)) {
            (Some(manifest), Some(Decision::Delete)) => plan.deleted.push(Deletion {
                id: backup.id.clone(),
                attempt: manifest.attempt.clone(),
                damaged: backup.damage().is_some(),
            }),
            (_, Some(Decision::Keep(reasons))) => {
                plan.kept.insert(backup.id.clone(), reasons.clone());
            }
            // Perhaps a newer version's, or of another key: never deleted by a rule.
            _ if backup.manifest.is_some() => {
                let reason = vec!["its manifest cannot be read"];
                plan.kept.insert(backup.id.clone(), reason);
            }
            _ => {}
        }
        if !left_over(backup, now).is_empty() {
            plan.left_over.push(backup.id.clone());
        }
    }
    plan
}

/// Deletes what the plan says, as long as it is still what would be planned: a listing is of no one moment, and deleting
/// takes time in which a verification may end. `deleted` gets the backups that it has deleted, also before an error.
///
/// # Errors
/// The first error of the store; a repetition continues.
pub async fn carry_out(
    repository: &Repository,
    first: &Plan,
    policy: &Retention,
    zone: &TimeZone,
    keys: &[Key],
    now: Timestamp,
    deleted: &mut Vec<String>,
) -> Result<(), Error> {
    for deletion in &first.deleted {
        let stored = repository.list(keys).await?;
        let backup = stored.iter().find(|it| it.id == deletion.id);
        if let Some(backup) = backup
            && plan(&stored, policy, zone, now).deleted.contains(deletion)
        {
            delete(repository, &all_manifest_first(backup)).await?;
            deleted.push(deletion.id.clone());
        }
    }
    for id in &first.left_over {
        if let Some(stored) = again(repository, id, keys).await? {
            delete(repository, &left_over(&stored, now)).await?;
        }
    }
    Ok(())
}

/// What goes of the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivePlan {
    /// Objects with entries.
    pub objects: Vec<Archived>,
    /// Clusters whose marks of idle times go.
    pub marks: Vec<u64>,
}

/// What of the archive leads to no moment that is to be kept, where these backups are left: see [`prunable`].
///
/// # Errors
/// Those of the store.
pub async fn plan_archive(
    repository: &Repository,
    left: &[&Stored],
    window: Duration,
    now: Timestamp,
) -> Result<ArchivePlan, Error> {
    let archived = repository.archived(None).await?;
    let (known, unread) = horizon(left);
    let prunable = prunable(&archived, &known, unread, window, now);
    Ok(ArchivePlan {
        objects: prunable.into_iter().cloned().collect(),
        marks: repository.outlived_marks(&known, unread, now).await?,
    })
}

/// Deletes what goes of the archive, the oldest entries first: a prune that is killed leaves no new hole.
///
/// # Errors
/// The first error of the store; a repetition continues.
pub async fn carry_out_archive(repository: &Repository, plan: &ArchivePlan) -> Result<(), Error> {
    for object in &plan.objects {
        repository
            .delete_archived(object.cluster_id, object.range)
            .await?;
    }
    for cluster_id in &plan.marks {
        repository.delete_idle_mark(*cluster_id).await?;
    }
    Ok(())
}

/// The clusters of these backups with their good ones, and whether some cannot be read.
fn horizon(left: &[&Stored]) -> (Horizon, bool) {
    let mut known = Horizon::new();
    let mut unread = false;
    for backup in left {
        let Some(manifest) = backup.known() else {
            unread |= backup.manifest.is_some();
            continue;
        };
        let Ok(cluster_id) = u64::from_str_radix(&manifest.source.cluster_id, 16) else {
            unread = true;
            continue;
        };
        let good = known.entry(cluster_id).or_default();
        if backup.damage().is_none() {
            good.push((manifest.snapshot.raft_index, manifest.completed));
        }
    }
    (known, unread)
}

/// A backup as it is now; `None` if it is gone.
async fn again(repository: &Repository, id: &str, keys: &[Key]) -> Result<Option<Stored>, Error> {
    match repository.find(id, keys).await {
        Ok(stored) => Ok(Some(stored)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn delete(repository: &Repository, paths: &[Path]) -> Result<(), Error> {
    for path in paths {
        repository.delete(path).await?;
    }
    Ok(())
}

pub(super) fn all_manifest_first(backup: &Stored) -> Vec<Path> {
    let mut objects: Vec<_> = backup.objects.iter().collect();
    objects.sort_by_key(|object| (object.kind != Kind::Manifest, object.path.clone()));
    objects.into_iter().map(|it| it.path.clone()).collect()
}

/// What no manifest names and nobody writes any more: parts of other attempts, and everything where there is no
/// manifest.
fn left_over(backup: &Stored, now: Timestamp) -> Vec<Path> {
    let named = match &backup.manifest {
        Some(Ok(manifest)) => Some(&manifest.attempt),
        // It may name any.
        Some(Err(_)) => return Vec::new(),
        None => None,
    };
    let mut attempts: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for object in &backup.objects {
        match &object.kind {
            Kind::Part { attempt, .. } if Some(attempt) != named => {
                attempts.entry(attempt).or_default().push(object);
            }
            Kind::Verification if named.is_none() => attempts.entry("").or_default().push(object),
            _ => {}
        }
    }
    let is_old = |at: Timestamp| now.duration_since(at).unsigned_abs() > LEFT_OVER && at < now;
    let mut paths = Vec::new();
    for objects in attempts.values() {
        let newest = objects.iter().map(|it| it.modified).max();
        if newest.is_some_and(is_old) {
            paths.extend(objects.iter().map(|it| it.path.clone()));
        }
    }
    paths
}
