//! `prune`: deletes what a retention does not keep, and what no manifest names. Observes, decides, deletes, in this
//! order; the manifest of a backup goes first, so that a prune that is killed leaves no damaged backup.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use object_store::path::Path;

use super::Error;
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
    pub deleted: Vec<String>,
    /// Backups without a manifest of which parts go.
    pub left_over: Vec<String>,
    /// The objects that go, in order.
    pub objects: Vec<Path>,
}

/// Decides. Pure.
#[must_use]
pub fn plan(stored: &[Stored], policy: &Retention, zone: &TimeZone, now: Timestamp) -> Plan {
    let decisions = decide(policy, &candidates(stored), zone);
    let mut plan = Plan::default();
    for backup in stored {
        if matches!(backup.manifest, Some(Err(_))) {
            // Perhaps a newer version's: never deleted by a rule.
            let reason = vec!["its manifest cannot be read"];
            plan.kept.insert(backup.id.clone(), reason);
            continue;
        }
        match decisions.get(&backup.id) {
            Some(Decision::Delete) => {
                plan.deleted.push(backup.id.clone());
                plan.objects.extend(all_manifest_first(backup));
                continue;
            }
            Some(Decision::Keep(reasons)) => {
                plan.kept.insert(backup.id.clone(), reasons.clone());
            }
            None => {}
        }
        let before = plan.objects.len();
        plan.objects.extend(left_over(backup, now));
        if plan.objects.len() > before {
            plan.left_over.push(backup.id.clone());
        }
    }
    plan
}

/// Deletes what the plan says.
///
/// # Errors
/// The first error of the store; a repetition continues.
pub async fn carry_out(repository: &Repository, plan: &Plan) -> Result<(), Error> {
    for path in &plan.objects {
        repository.delete(path).await?;
    }
    Ok(())
}

/// Backups whose manifest can be read.
fn candidates(stored: &[Stored]) -> Vec<Candidate> {
    let known = stored.iter().filter_map(|backup| {
        let manifest = backup.manifest.as_ref()?.as_ref().ok()?;
        Some(Candidate {
            id: backup.id.clone(),
            at: manifest.started,
            good: backup.damage().is_none(),
            verified: backup.verified(),
        })
    });
    known.collect()
}

fn all_manifest_first(backup: &Stored) -> Vec<Path> {
    let mut objects: Vec<_> = backup.objects.iter().collect();
    objects.sort_by_key(|object| (object.kind != Kind::Manifest, object.path.clone()));
    objects.into_iter().map(|it| it.path.clone()).collect()
}

/// Parts of attempts that no manifest names and that nobody writes any more.
fn left_over(backup: &Stored, now: Timestamp) -> Vec<Path> {
    let named = match &backup.manifest {
        Some(Ok(manifest)) => Some(&manifest.attempt),
        Some(Err(_)) | None => None,
    };
    let mut attempts: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for object in &backup.objects {
        if let Kind::Part { attempt, .. } = &object.kind
            && Some(attempt) != named
        {
            attempts.entry(attempt).or_default().push(object);
        }
    }
    let is_old = |at: Timestamp| now.duration_since(at).unsigned_abs() > LEFT_OVER && at < now;
    let mut paths = Vec::new();
    for parts in attempts.values() {
        let newest = parts.iter().map(|part| part.modified).max();
        if newest.is_some_and(is_old) {
            paths.extend(parts.iter().map(|part| part.path.clone()));
        }
    }
    paths
}
