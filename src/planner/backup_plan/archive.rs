//! The archive of a schedule's cluster: a Job that stores what is committed is kept running for as long as that is wanted,
//! and a backup is asked for where the archive has none to begin from. Never judges what is in the store: the Job finds
//! where to go on, and reports a gap.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::BackupStep;
use super::observed::{
    BackupFacts, JobFacts, JobKind, JobState, NODE_LOST, ObservedSchedule, missing, newest_job,
};
use super::result::{Archived, FailureClass, JobResult};
use crate::crd::READY;
use crate::crd::backups::{ArchivePhase, ArchiveStatus, BackupPhase, ScheduleArchive};

/// A Job that failed is created again after this.
const AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// One that no member gave its data: the store is not asked in vain, and what is written meanwhile is not archived.
const AGAIN_SOURCE: SignedDuration = SignedDuration::from_secs(10);
/// A pod that has not started after this is created again: what it was created with may have been corrected since.
const START: SignedDuration = SignedDuration::from_mins(5);
/// Between two backups that a gap asks for: a cluster that writes faster than its store takes would be saved without end.
const BETWEEN_BACKUPS: SignedDuration = SignedDuration::from_mins(15);
/// An archive that is this far behind is a problem: the interval is at most a minute, and the status half a minute old.
const BEHIND: SignedDuration = SignedDuration::from_mins(3);
/// Between two observations while it runs.
const WATCHED_MS: u64 = 30_000;
/// Between two observations while nothing can be archived.
const HINDERED_MS: u64 = 10_000;
/// Between two observations while something is missing.
const MISSING_MS: u64 = 5_000;

/// What is done about an archive.
#[derive(Debug, Default)]
pub(super) struct ArchivePlan {
    /// `None` where none is wanted.
    pub(super) status: Option<ArchiveStatus>,
    /// At most one write.
    pub(super) step: Option<BackupStep>,
    /// Why the condition Ready is False.
    pub(super) problem: Option<(&'static str, String)>,
    /// Milliseconds until the next look; `None`: only when something changes.
    pub(super) again_ms: Option<u64>,
}

/// The next step of a schedule's archive.
pub(super) fn plan_archive(observed: &ObservedSchedule) -> ArchivePlan {
    let Some(archive) = &observed.spec.archive else {
        return stop(observed, None);
    };
    if let Some(why) = hindrance(observed) {
        let mut plan = stop(observed, Some(pending(observed, why)));
        if !observed.spec.suspend {
            // Nothing here hears of a cluster that is set up meanwhile.
            plan.again_ms = Some(HINDERED_MS);
        }
        return plan;
    }
    if let Some(step) = superseded(observed) {
        let text = "an earlier Job is deleted".to_owned();
        return ArchivePlan {
            step: Some(step),
            ..waits(observed, text, MISSING_MS)
        };
    }
    match newest(observed) {
        None => begin(observed),
        Some(job) => follow(observed, archive, job),
    }
}

/// Why nothing is archived, although that is wanted.
fn hindrance(observed: &ObservedSchedule) -> Option<String> {
    let spec = &observed.spec;
    if spec.suspend {
        return Some("the schedule is suspended".to_owned());
    }
    let missing = missing(
        (&spec.store_ref, observed.store.as_ref()),
        (&spec.cluster_ref, observed.cluster.as_ref()),
        true,
    );
    if missing.is_some() {
        return missing;
    }
    let name = &spec.cluster_ref.name;
    if let Some(archiver) = &observed.archiver {
        return Some(format!(
            "the schedule {archiver} archives EtcdCluster {name}, and one archive is enough"
        ));
    }
    let rival = observed.rival.as_ref();
    rival.map(|rival| format!("the schedule {rival} is about the same cluster and store"))
}

/// No Job is wanted. It stores what it has read before it ends.
fn stop(observed: &ObservedSchedule, status: Option<ArchiveStatus>) -> ArchivePlan {
    let mut left = jobs(observed).filter(|job| job.state != JobState::Deleting);
    let step = left.next().map(delete);
    ArchivePlan {
        status,
        again_ms: step.as_ref().map(|_| MISSING_MS),
        step,
        problem: None,
    }
}

/// A Job that a newer one has replaced.
fn superseded(observed: &ObservedSchedule) -> Option<BackupStep> {
    let newest = newest(observed)?.attempt;
    let mut earlier =
        jobs(observed).filter(|job| job.attempt < newest && job.state != JobState::Deleting);
    earlier.next().map(delete)
}

fn begin(observed: &ObservedSchedule) -> ArchivePlan {
    if backups_here(observed).next().is_none() {
        return ask_for_backup(observed, None, "the archive begins behind a backup");
    }
    let attempt = jobs(observed).map(|job| job.attempt).max().unwrap_or(0) + 1;
    ArchivePlan {
        step: Some(BackupStep::CreateJob {
            kind: JobKind::Archive,
            attempt,
        }),
        ..waits(observed, "its Job begins".to_owned(), WATCHED_MS)
    }
}

fn follow(observed: &ObservedSchedule, archive: &ScheduleArchive, job: &JobFacts) -> ArchivePlan {
    let changed = job.interval != Some(archive.interval_seconds)
        || observed.store.as_deref() != Some(&*job.location);
    match &job.state {
        JobState::Deleting => {
            let text = format!("Job {} is being deleted", job.name);
            waits(observed, text, MISSING_MS)
        }
        // It is created anew with what is wanted now.
        _ if changed => renew(observed, job, "its settings have changed".to_owned()),
        JobState::Running => runs(observed, job),
        JobState::Waiting(why) => starts(observed, job, why.as_deref()),
        JobState::Ended { at, result, reason } => {
            ended(observed, job, *at, result.as_ref(), reason)
        }
    }
}

fn runs(observed: &ObservedSchedule, job: &JobFacts) -> ArchivePlan {
    let mut status = pending(observed, String::new());
    status.message = None;
    status.phase = ArchivePhase::Archiving;
    let mut plan = ArchivePlan {
        again_ms: Some(WATCHED_MS),
        ..ArchivePlan::default()
    };
    // From its start on: what was before is behind a gap, or was not wanted.
    let through = status.through.as_ref().map_or(job.created, |time| time.0);
    let behind = observed.now.duration_since(through.max(job.created));
    if behind > BEHIND {
        let text = format!(
            "the archive is {} s behind: the log of Job {} says what it waits for",
            behind.as_secs(),
            job.name
        );
        status.message = Some(text.clone());
        plan.problem = Some(("ArchiveBehind", text));
    }
    plan.status = Some(status);
    plan
}

/// A Job whose pod does not run yet: it may lack the Secret with its key.
fn starts(observed: &ObservedSchedule, job: &JobFacts, why: Option<&str>) -> ArchivePlan {
    let text = format!("Job {}: {}", job.name, why.unwrap_or("its pod starts"));
    if observed.now.duration_since(job.created) > START {
        let mut plan = renew(observed, job, text.clone());
        plan.problem = Some(("ArchiveFailed", text));
        return plan;
    }
    ArchivePlan {
        step: Some(BackupStep::ApplyKey {
            job: job.name.clone(),
        }),
        ..waits(observed, text, WATCHED_MS)
    }
}

fn ended(
    observed: &ObservedSchedule,
    job: &JobFacts,
    at: Timestamp,
    result: Option<&JobResult>,
    reason: &str,
) -> ArchivePlan {
    let why = match result {
        Some(JobResult::Archived(archived)) if archived.gap => {
            return after_gap(observed, job, archived);
        }
        // Its time was over: the next one has renewed credentials and the image of today.
        Some(JobResult::Archived(_)) => {
            return renew(observed, job, "its Job is renewed".to_owned());
        }
        // Its pod may run on: two at once store the same.
        None if reason == NODE_LOST => {
            return renew(observed, job, format!("Job {}: {reason}", job.name));
        }
        Some(JobResult::Failed { message, .. }) => message.clone(),
        _ => format!("its Job ended without a result: {reason}"),
    };
    let text = format!("nothing is archived: {why}");
    let left = (at + again(result)).duration_since(observed.now);
    let mut plan = match left.is_positive() {
        true => {
            let ms = u64::try_from(left.as_millis()).unwrap_or(MISSING_MS);
            waits(observed, text.clone(), ms.max(1_000))
        }
        false => renew(observed, job, text.clone()),
    };
    plan.problem = Some(("ArchiveFailed", text));
    plan
}

/// How long after it a Job that failed is created again.
fn again(result: Option<&JobResult>) -> SignedDuration {
    match result {
        Some(JobResult::Failed {
            class: FailureClass::Source,
            ..
        }) => AGAIN_SOURCE,
        _ => AGAIN,
    }
}

/// The log no longer has what follows the archive: it goes on behind a newer backup.
fn after_gap(observed: &ObservedSchedule, job: &JobFacts, archived: &Archived) -> ArchivePlan {
    if has_newer_backup(observed, job, archived) {
        return renew(
            observed,
            job,
            "it goes on behind the newest backup".to_owned(),
        );
    }
    let mut plan = ask_for_backup(
        observed,
        Some(&archived.cluster_id),
        "the archive has a gap, and goes on behind a new backup",
    );
    let text = match &*archived.message {
        "" => "the archive has a gap until the next backup is stored".to_owned(),
        why => format!("the archive has a gap until the next backup is stored: {why}"),
    };
    plan.problem = Some(("ArchiveGap", text));
    plan
}

/// Creates a backup, unless one is under way or there was one a moment ago: of this cluster, for one that goes on as its
/// next incarnation has none yet.
fn ask_for_backup(observed: &ObservedSchedule, cluster_id: Option<&str>, why: &str) -> ArchivePlan {
    let ours = || observed.backups.iter().filter(|backup| backup.of_schedule);
    // Whoever asked for it: it is of this cluster and store, and holds what was committed when it began.
    let streams = |backup: &&BackupFacts| backup.status.phase == BackupPhase::Streaming;
    let under_way = ours().find(|backup| backup.unfinished());
    let under_way = under_way.or_else(|| observed.backups.iter().find(streams));
    if let Some(backup) = under_way {
        let text = format!("{why}: EtcdBackup {} is under way", backup.name);
        return waits(observed, text, MISSING_MS);
    }
    let of_cluster = |backup: &&BackupFacts| match (cluster_id, &backup.status.cluster_id) {
        (Some(wanted), Some(saved)) => wanted == saved,
        _ => true,
    };
    let newest = ours().filter(of_cluster).map(|backup| backup.created).max();
    let due = newest.map_or(observed.now, |newest| newest + BETWEEN_BACKUPS);
    if observed.now < due {
        let text = format!("{why}, at {}", due.strftime("%H:%M:%SZ"));
        return waits(observed, text, WATCHED_MS);
    }
    let name = format!("{}-{}", observed.name, observed.now.strftime("%Y%m%d%H%M"));
    ArchivePlan {
        step: Some(BackupStep::CreateBackup { name }),
        ..waits(observed, why.to_owned(), MISSING_MS)
    }
}

/// The good backups where the archive goes.
fn backups_here(observed: &ObservedSchedule) -> impl Iterator<Item = &BackupFacts> {
    let all = observed.backups.iter();
    all.filter(|backup| backup.good() && backup.status.url == observed.store)
}

/// Whether the archive may go on behind a backup that the Job which met the gap may not have found: one that holds more than
/// the archive, and was created, or seen stored by the operator, since that Job was created. The next Job is created behind
/// both, so it is tried once. Not by the time of the Job's end: that is first its container's, then the Job controller's a
/// second or more later, and the backup that its gap asked for may have been created between the two.
fn has_newer_backup(observed: &ObservedSchedule, job: &JobFacts, archived: &Archived) -> bool {
    backups_here(observed).any(|backup| {
        let status = &backup.status;
        let id = status.cluster_id.as_ref();
        let index = status.raft_index.and_then(|it| u64::try_from(it).ok());
        let ready = status.conditions.iter().find(|it| it.type_ == READY);
        let stored = ready.filter(|it| it.status == "True");
        let since = backup.created >= job.created
            || stored.is_some_and(|it| it.last_transition_time.0 > job.created);
        since
            && id.is_none_or(|id| *id == archived.cluster_id)
            && index.is_none_or(|index| index > archived.last)
    })
}

fn renew(observed: &ObservedSchedule, job: &JobFacts, message: String) -> ArchivePlan {
    ArchivePlan {
        step: Some(delete(job)),
        ..waits(observed, message, MISSING_MS)
    }
}

fn waits(observed: &ObservedSchedule, message: String, again_ms: u64) -> ArchivePlan {
    ArchivePlan {
        status: Some(pending(observed, message)),
        again_ms: Some(again_ms),
        ..ArchivePlan::default()
    }
}

/// The status of an archive that no Job runs for, with what is stored already.
fn pending(observed: &ObservedSchedule, message: String) -> ArchiveStatus {
    let known = observed.status.archive.as_ref();
    let archived = observed
        .cluster
        .as_ref()
        .and_then(|it| it.archived.as_ref());
    let archived = archived.filter(|it| observed.store.as_ref() == Some(&it.location));
    ArchiveStatus {
        phase: ArchivePhase::Pending,
        message: Some(message),
        through: archived
            .map(|archived| Time(archived.through))
            .or_else(|| known.and_then(|known| known.through.clone())),
        raft_index: archived
            .map(|archived| archived.index)
            .or_else(|| known.and_then(|known| known.raft_index)),
    }
}

fn delete(job: &JobFacts) -> BackupStep {
    BackupStep::DeleteJob {
        name: job.name.clone(),
    }
}

fn newest(observed: &ObservedSchedule) -> Option<&JobFacts> {
    newest_job(&observed.jobs, JobKind::Archive)
}

fn jobs(observed: &ObservedSchedule) -> impl Iterator<Item = &JobFacts> {
    let all = observed.jobs.iter();
    all.filter(|job| job.kind == JobKind::Archive)
}
