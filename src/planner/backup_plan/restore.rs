//! The Job that gives the seed of a new cluster, or of a recovered one, its first data, from a store, from a member that
//! is left, or from a living cluster: created once the cluster has its identity, repeated until the seed has all of them, deleted once the cluster is
//! formed. Whether the cluster is formed is not decided here.

use jiff::{SignedDuration, Timestamp};

use super::backup::pause;
use super::observed::{JobFacts, JobKind, JobState, NODE_LOST};
use super::result::{FailureClass, JobResult};
use super::{BackupStep, size};
use crate::crd::backups::{BackupPhase, EtcdBackupStatus};
use crate::crd::{DataSource, FollowedCluster, Moment, Restore, Survivor, ValidatedCluster};
use crate::mutants::mutant;

/// Before the second attempt; doubled for each further one.
const PAUSE: SignedDuration = SignedDuration::from_secs(5);
/// The longest pause: so long after the user has corrected something it is tried again.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(2);
/// A Job whose pod has not started for so long needs the user: a Secret or an image is missing, or no node takes it.
const START: SignedDuration = SignedDuration::from_mins(2);
/// It is created anew after this.
const START_ANEW: SignedDuration = SignedDuration::from_mins(5);
/// A seed that has all data forms the cluster; if it has not after this, it is asked again what it has.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// What keeps a recovered cluster from its data once nothing names them any more.
const NO_SOURCE: &str = "the EtcdRecovery of this incarnation is gone, or there is more than one: create the one that is meant";
/// Between two observations while a Job runs.
const WATCHED_MS: u64 = 10_000;
/// Between two observations while something is missing.
const MISSING_MS: u64 = 5_000;

/// A cluster that does not start empty, and what belongs to its first data.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRestore {
    /// The cluster, or why its spec cannot be used.
    pub cluster: Result<ValidatedCluster, String>,
    /// Where the data come from; `None`: the one EtcdRecovery that names that is gone.
    pub source: Option<DataSource>,
    /// UID of the EtcdRecovery; `None`: the cluster's own spec names the source.
    pub recovery: Option<String>,
    /// It was formed: nothing is restored any more.
    pub formed: bool,
    /// The member that forms it, once the identity Secret names one and the operator's key exists.
    pub seed: Option<String>,
    /// The EtcdBackup that is named, if it exists.
    pub backup: Option<NamedBackup>,
    /// The store that is read, if it exists.
    pub store: Option<StorePlace>,
    /// Its Jobs.
    pub jobs: Vec<JobFacts>,
    /// Now.
    pub now: Timestamp,
}

/// An EtcdBackup that is to be restored.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBackup {
    /// The cluster that was saved.
    pub cluster: String,
    /// The store that it was saved in.
    pub store: String,
    /// Its status.
    pub status: EtcdBackupStatus,
}

/// The store of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// Its name.
    pub name: String,
    /// Where the backups of the saved cluster are in it now; of a store that is named without a backup, empty.
    pub location: String,
}

/// What a Job of a restore reads, and who receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreTarget {
    /// What is read.
    pub from: RestoreFrom,
    /// The member that receives it.
    pub seed: String,
}

/// What a Job of a restore reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreFrom {
    /// A path in a store.
    Store {
        /// The EtcdBackupStore.
        store: String,
        /// The path below its prefix.
        path: String,
        /// The moment behind it that is restored, as `--at` takes it.
        at: Option<String>,
    },
    /// A member of the incarnation before.
    Survivor(Survivor),
    /// A living cluster.
    Followed(FollowedCluster),
}

/// How a restore is doing, for the report of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// What its Job does or waits for, or why it failed.
    pub message: String,
    /// It fails, and goes on failing until the user does something.
    pub needs_user: bool,
}

/// The next step of a restore, how it is doing, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct RestorePlan {
    /// `None` once nothing is left to do.
    pub report: Option<RestoreReport>,
    /// What the Job is to read, for [`BackupStep::CreateJob`].
    pub target: Option<RestoreTarget>,
    /// At most one write.
    pub step: Option<BackupStep>,
    /// Milliseconds; `None`: only when something changes.
    pub again_ms: Option<u64>,
}

/// The name of the store that a restore reads, if it is known.
#[must_use]
pub fn store_of_restore<'a>(
    restore: &'a Restore,
    backup: Option<&'a NamedBackup>,
) -> Option<&'a str> {
    let named = restore.store_ref.as_ref().map(|store| store.name.as_str());
    named.or_else(|| backup.map(|backup| backup.store.as_str()))
}

/// The next step of a restore.
#[must_use]
pub fn plan_restore(observed: &ObservedRestore) -> RestorePlan {
    if observed.formed && !mutant!(RestoredAgain) {
        return end(observed);
    }
    if let Some(plan) = clear(observed) {
        return plan;
    }
    let newest = observed.jobs.iter().max_by_key(|job| job.attempt);
    let mut plan = match newest {
        None => begin(observed, 1),
        Some(job) => follow(observed, job),
    };
    // What went wrong before is known until this attempt has ended.
    let before = newest.and_then(|newest| failed_before(observed, newest.attempt));
    if let (Some(report), Some(before)) = (&mut plan.report, before)
        && !report.needs_user
    {
        report.message = format!("{}; before that, {}", report.message, before.message);
        report.needs_user = before.needs_user;
    }
    plan
}

/// The cluster has its data: its Jobs are not needed any more.
fn end(observed: &ObservedRestore) -> RestorePlan {
    let mut left = observed.jobs.iter();
    let left = left.find(|job| job.state != JobState::Deleting && !is_paused(observed));
    let step = left.map(|job| BackupStep::DeleteJob {
        name: job.name.clone(),
    });
    RestorePlan {
        report: None,
        target: None,
        again_ms: step.as_ref().map(|_| MISSING_MS),
        step,
    }
}

/// Jobs of an earlier incarnation, or of a recovery that was deleted, go before another one begins: their names are used
/// again, and what they have sent does not count.
fn clear(observed: &ObservedRestore) -> Option<RestorePlan> {
    let others = observed.jobs.iter();
    let mut foreign = others.filter(|job| is_foreign(observed, job)).peekable();
    let first = foreign.peek()?;
    let text = format!("Job {} of an earlier source is deleted", first.name);
    let left = foreign.find(|job| job.state != JobState::Deleting && !is_paused(observed));
    let step = left.map(|job| BackupStep::DeleteJob {
        name: job.name.clone(),
    });
    Some(wait(text, step, MISSING_MS))
}

/// Whether a Job was made for another source. While the source is not known, only those of the cluster's own spec.
fn is_foreign(observed: &ObservedRestore, job: &JobFacts) -> bool {
    match &observed.source {
        Some(_) => job.recovery != observed.recovery,
        None => job.recovery.is_none(),
    }
}

fn is_paused(observed: &ObservedRestore) -> bool {
    matches!(&observed.cluster, Ok(cluster) if cluster.spec.paused)
}

fn follow(observed: &ObservedRestore, job: &JobFacts) -> RestorePlan {
    let sleeps = matches!(&observed.cluster, Ok(cluster) if cluster.target() == 0);
    let ended = matches!(job.state, JobState::Ended { .. } | JobState::Deleting);
    if sleeps && !ended {
        return delete(job, "the cluster hibernates: set spec.replicas".to_owned());
    }
    match &job.state {
        JobState::Waiting(why) => starts(observed, job, why.as_deref()),
        JobState::Running => {
            let text = format!("Job {} reads the data and sends them", job.name);
            wait(text, None, WATCHED_MS)
        }
        JobState::Deleting => {
            let text = format!("Job {} is being deleted", job.name);
            wait(text, None, MISSING_MS)
        }
        JobState::Ended {
            at,
            result: Some(JobResult::Restored(restored)),
            ..
        } => {
            // The seed lost its volume since: it needs them once more.
            if observed.now > *at + AGAIN_AFTER {
                return begin(observed, job.attempt + 1);
            }
            let text = format!(
                "{} of revision {} were sent in {} s",
                size(restored.size),
                restored.revision,
                restored.seconds
            );
            wait(text, None, WATCHED_MS)
        }
        // Its pod may still send.
        JobState::Ended { reason, .. } if reason == NODE_LOST => {
            delete(job, format!("Job {}: {reason}", job.name))
        }
        JobState::Ended { at, .. } => {
            let due = *at + pause(job.attempt, PAUSE, LONGEST_PAUSE);
            if observed.now >= due {
                return begin(observed, job.attempt + 1);
            }
            let left = due.duration_since(observed.now).as_millis().max(1_000);
            RestorePlan {
                report: failure(job),
                target: None,
                step: None,
                again_ms: Some(u64::try_from(left).unwrap_or(MISSING_MS)),
            }
        }
    }
}

/// A Job whose pod does not run. What it was created with is not changed by correcting a store or a Secret's name: after
/// some time it is created anew.
fn starts(observed: &ObservedRestore, job: &JobFacts, why: Option<&str>) -> RestorePlan {
    let text = format!("Job {}: {}", job.name, why.unwrap_or("its pod starts"));
    let waited = observed.now.duration_since(job.created);
    if waited > START_ANEW {
        return delete(job, text);
    }
    let step = BackupStep::ApplyKey {
        job: job.name.clone(),
    };
    let mut plan = wait(text, Some(step), WATCHED_MS);
    if let Some(report) = &mut plan.report {
        report.needs_user = waited > START;
    }
    plan
}

/// The failure of the attempt before this one.
fn failed_before(observed: &ObservedRestore, attempt: u32) -> Option<RestoreReport> {
    let earlier = observed.jobs.iter().filter(|job| job.attempt < attempt);
    earlier.max_by_key(|job| job.attempt).and_then(failure)
}

/// Why an attempt failed, if it did.
fn failure(job: &JobFacts) -> Option<RestoreReport> {
    let (class, why) = match &job.state {
        JobState::Ended {
            result: Some(JobResult::Restored(_)),
            ..
        } => return None,
        JobState::Ended {
            result: Some(JobResult::Failed { class, message }),
            ..
        } => (Some(*class), message.clone()),
        JobState::Ended { reason, .. } => (None, format!("it ended without a result: {reason}")),
        JobState::Waiting(_) | JobState::Running | JobState::Deleting => return None,
    };
    Some(RestoreReport {
        message: format!("attempt {} failed: {why}", job.attempt),
        needs_user: class.is_some_and(needs_user),
    })
}

/// Whether a failure goes on until the user changes something.
pub(super) fn needs_user(class: FailureClass) -> bool {
    match class {
        FailureClass::Credentials
        | FailureClass::Key
        | FailureClass::NotFound
        | FailureClass::Damaged
        | FailureClass::Settings
        | FailureClass::TargetFull => true,
        FailureClass::Store | FailureClass::Source | FailureClass::Target | FailureClass::Other => {
            false
        }
    }
}

/// Creates a Job, if what it needs is there.
fn begin(observed: &ObservedRestore, attempt: u32) -> RestorePlan {
    let target = match target(observed) {
        Ok(target) => target,
        Err((message, needs_user)) => {
            let report = RestoreReport {
                message,
                needs_user,
            };
            return RestorePlan {
                report: Some(report),
                target: None,
                step: None,
                again_ms: Some(MISSING_MS),
            };
        }
    };
    // Only the newest is kept, for its log.
    let mut earlier = observed.jobs.iter().filter(|job| job.attempt + 1 < attempt);
    if let Some(job) = earlier.find(|job| job.state != JobState::Deleting) {
        let step = BackupStep::DeleteJob {
            name: job.name.clone(),
        };
        return wait("its Job begins".to_owned(), Some(step), MISSING_MS);
    }
    let kind = JobKind::Restore;
    RestorePlan {
        target: Some(target),
        ..wait(
            "its Job begins".to_owned(),
            Some(BackupStep::CreateJob { kind, attempt }),
            WATCHED_MS,
        )
    }
}

/// What a Job is to read and to whom it gives that; else what is missing, and whether the user has to act.
fn target(observed: &ObservedRestore) -> Result<RestoreTarget, (String, bool)> {
    let cluster = observed
        .cluster
        .as_ref()
        .map_err(|why| (why.clone(), true))?;
    if cluster.spec.paused {
        return Err(("the cluster is paused".to_owned(), false));
    }
    if cluster.target() == 0 {
        return Err((
            "the cluster hibernates: set spec.replicas".to_owned(),
            false,
        ));
    }
    let seed = observed.seed.clone();
    let seed = seed.ok_or_else(|| ("the cluster is not set up yet".to_owned(), false))?;
    let from = match &observed.source {
        None => return Err((NO_SOURCE.to_owned(), true)),
        Some(DataSource::Survivor(survivor)) => RestoreFrom::Survivor(survivor.clone()),
        Some(DataSource::Stored(restore)) => stored(observed, restore, &cluster.namespace)?,
        Some(DataSource::Followed(follow)) => RestoreFrom::Followed(follow.clone()),
    };
    Ok(RestoreTarget { from, seed })
}

/// Where in a store the data are.
fn stored(
    observed: &ObservedRestore,
    restore: &Restore,
    namespace: &str,
) -> Result<RestoreFrom, (String, bool)> {
    let missing = |what: String| (format!("there is no {what}"), true);
    let backup = match &restore.backup_ref {
        None => None,
        Some(named) => {
            let found = observed.backup.as_ref();
            Some(found.ok_or_else(|| missing(format!("EtcdBackup {}", named.name)))?)
        }
    };
    let store = store_of_restore(restore, backup).unwrap_or_default();
    let place = observed.store.as_ref();
    let place = place.ok_or_else(|| missing(format!("EtcdBackupStore {store}")))?;
    let path = match (backup, &restore.path) {
        (Some(backup), _) => path_of(backup, place, namespace)?,
        (None, path) => path.clone().unwrap_or_default(),
    };
    Ok(RestoreFrom::Store {
        store: store.to_owned(),
        path,
        at: restore.at.as_ref().map(Moment::argument),
    })
}

/// Where a backup is below the prefix of its store.
fn path_of(
    backup: &NamedBackup,
    place: &StorePlace,
    namespace: &str,
) -> Result<String, (String, bool)> {
    let status = &backup.status;
    let stored = match status.phase {
        BackupPhase::Uploaded | BackupPhase::Verified => status.id.as_ref(),
        BackupPhase::Pending | BackupPhase::Streaming => {
            return Err(("the backup is not stored yet".to_owned(), false));
        }
        BackupPhase::Failed => None,
    };
    let why = status
        .message
        .as_deref()
        .unwrap_or("it has no name in its store");
    let id = stored.ok_or_else(|| (format!("the backup has failed: {why}"), true))?;
    match status.url.as_deref() {
        Some(url) if url != place.location => Err((
            format!(
                "the backup was saved in {url}, and EtcdBackupStore {} is {} now: set it back, or restore by storeRef and path",
                place.name, place.location
            ),
            true,
        )),
        _ => Ok(format!("{namespace}/{}/{id}", backup.cluster)),
    }
}

fn delete(job: &JobFacts, message: String) -> RestorePlan {
    let name = job.name.clone();
    wait(message, Some(BackupStep::DeleteJob { name }), MISSING_MS)
}

fn wait(message: String, step: Option<BackupStep>, again_ms: u64) -> RestorePlan {
    RestorePlan {
        report: Some(RestoreReport {
            message,
            needs_user: false,
        }),
        target: None,
        step,
        again_ms: Some(again_ms),
    }
}
