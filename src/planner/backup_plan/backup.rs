//! The plan of one `EtcdBackup`: saved by a Job, repeated until it is stored or its deadline is over, and verified by
//! another Job where that was asked for.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::observed::{JobFacts, JobKind, JobState, ObservedBackup, missing, newest_job};
use super::result::{FailureClass, JobResult, Saved, Verified};
use super::{BackupPlan, BackupStep};
use crate::crd::backups::{BackupPhase, EtcdBackupStatus, VerificationStatus};
use crate::crd::ready_condition;
use crate::mutants::mutant;

/// Before the second attempt; doubled for each further one.
const PAUSE: SignedDuration = SignedDuration::from_secs(20);
/// The longest pause: so long after credentials were renewed a backup is repeated.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// A verification that was asked for so long after its Job was created is another one's: clocks differ by less.
const ANOTHER: SignedDuration = SignedDuration::from_mins(5);
/// Between two observations while a Job runs.
const WATCHED_MS: u64 = 30_000;
/// Between two observations while something is missing.
const MISSING_MS: u64 = 10_000;

/// The next step of a backup, and its status.
#[must_use]
pub fn plan_backup(observed: &ObservedBackup) -> BackupPlan {
    let mut plan = Draft::new(observed).plan();
    let conditions = conditions(observed, &plan.status);
    plan.status.conditions = conditions;
    plan
}

struct Draft<'a> {
    observed: &'a ObservedBackup,
    status: EtcdBackupStatus,
}

impl Draft<'_> {
    fn new(observed: &ObservedBackup) -> Draft<'_> {
        Draft {
            observed,
            status: observed.status.clone(),
        }
    }

    fn plan(mut self) -> BackupPlan {
        if self.observed.gone && self.stored() {
            self.status.phase = BackupPhase::Failed;
            return self.rest("the store does not have it any more");
        }
        match self.status.phase {
            BackupPhase::Failed => self.end(),
            BackupPhase::Pending | BackupPhase::Streaming => self.save(),
            BackupPhase::Uploaded | BackupPhase::Verified => match self.verification_due() {
                true => self.verify(),
                false => self.end(),
            },
        }
    }

    fn stored(&self) -> bool {
        matches!(
            self.status.phase,
            BackupPhase::Uploaded | BackupPhase::Verified
        )
    }

    fn save(mut self) -> BackupPlan {
        let Some(job) = self.newest(JobKind::Save) else {
            return self.begin(JobKind::Save);
        };
        match &job.state {
            JobState::Ended {
                result: Some(JobResult::Saved(saved)),
                ..
            } if saved.id == self.observed.id => {
                self.record_saved(saved, &job.location);
                match self.verification_due() {
                    true => self.verify(),
                    false => self.end(),
                }
            }
            _ => self.follow(&job),
        }
    }

    fn verify(mut self) -> BackupPlan {
        let Some(job) = self.newest(JobKind::Verify) else {
            return self.begin(JobKind::Verify);
        };
        let asked = self.observed.verification_requested;
        let ended = matches!(job.state, JobState::Ended { .. });
        if ended && asked.is_some_and(|asked| job.created + ANOTHER < asked) {
            self.status.attempts = None;
            // It answers an earlier question, and is known by its own time. What failed is looked at again.
            if let Some(verified) = self.verified(&job).filter(|it| it.failure.is_none()) {
                self.record_verified(&verified.clone(), None);
            }
            return self.step(BackupStep::DeleteJob { name: job.name }, MISSING_MS);
        }
        match self.verified(&job).cloned() {
            Some(verified) => {
                self.record_verified(&verified, asked);
                self.end()
            }
            None => self.follow(&job),
        }
    }

    /// What a Job has found out of this backup.
    fn verified<'a>(&self, job: &'a JobFacts) -> Option<&'a Verified> {
        match &job.state {
            JobState::Ended {
                result: Some(JobResult::Verified(verified)),
                ..
            } if verified.id == self.observed.id && self.is_there(job) => Some(verified),
            _ => None,
        }
    }

    fn verification_due(&self) -> bool {
        let last = self.status.verification.as_ref().map(|last| last.time.0);
        match (self.observed.verification_requested, last) {
            (Some(requested), Some(last)) => requested > last,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.observed.spec.verify,
        }
    }

    /// A Job that has not come to a good end.
    fn follow(mut self, job: &JobFacts) -> BackupPlan {
        let ended = matches!(job.state, JobState::Ended { .. } | JobState::Deleting);
        if !ended && self.observed.now >= self.deadline() {
            let why = match &job.state {
                JobState::Waiting(Some(why)) => why.clone(),
                JobState::Running => "it has not ended".to_owned(),
                _ => "its pod did not start".to_owned(),
            };
            self.status.message = Some(format!("given up: Job {}: {why}", job.name));
            if job.kind == JobKind::Save {
                self.status.phase = BackupPhase::Failed;
            }
            let name = job.name.clone();
            return self.step(BackupStep::DeleteJob { name }, MISSING_MS);
        }
        match &job.state {
            JobState::Waiting(why) => {
                let why = why.clone().unwrap_or_else(|| "its pod starts".to_owned());
                self.status.message = Some(format!("Job {}: {why}", job.name));
                let name = job.name.clone();
                match job.kind {
                    JobKind::Save => self.step(BackupStep::ApplyKey { job: name }, WATCHED_MS),
                    _ => self.ends_with(None, Some(WATCHED_MS)),
                }
            }
            JobState::Running if mutant!(SavedAtOnce) && job.attempt < 2 => self.begin(job.kind),
            JobState::Running => {
                if job.kind == JobKind::Save {
                    self.status.phase = BackupPhase::Streaming;
                }
                let what = match job.kind {
                    JobKind::Save => "the data are read and stored",
                    _ => "it is restored into a member that is thrown away",
                };
                self.wait(format!("{what} by Job {}", job.name), WATCHED_MS)
            }
            JobState::Deleting => {
                self.wait(format!("Job {} is being deleted", job.name), MISSING_MS)
            }
            JobState::Ended { at, result, reason } => {
                let why = match result {
                    Some(JobResult::Failed { message, .. }) => message.clone(),
                    _ => format!("it ended without a result: {reason}"),
                };
                self.again(job, *at, &why, result.as_ref())
            }
        }
    }

    /// Whether and when a failed Job is repeated.
    fn again(
        mut self,
        job: &JobFacts,
        ended: Timestamp,
        why: &str,
        result: Option<&JobResult>,
    ) -> BackupPlan {
        let attempts = i32::try_from(job.attempt).unwrap_or(i32::MAX);
        self.status.attempts = Some(attempts);
        if job.kind == JobKind::Save {
            self.status.phase = BackupPhase::Pending;
        }
        let class = match result {
            Some(JobResult::Failed { class, .. }) => Some(*class),
            _ => None,
        };
        if mutant!(FailsInSilence) {
            self.status.phase = BackupPhase::Failed;
            return self.ends_with(None, None);
        }
        let there = self.is_there(job);
        let verdict = match class {
            Some(FailureClass::NotFound) if there => "the store does not have it any more",
            Some(FailureClass::Damaged) if there => "it cannot be restored",
            _ => "",
        };
        if job.kind == JobKind::Verify && !verdict.is_empty() {
            self.status.phase = BackupPhase::Failed;
            return self.rest(&format!("{verdict}: {why}"));
        }
        if self.observed.now >= self.deadline() {
            if job.kind == JobKind::Save {
                self.status.phase = BackupPhase::Failed;
            }
            let tries = job.attempt;
            return self.rest(&format!(
                "given up after {tries} attempts, the last one: {why}"
            ));
        }
        let due = ended + pause(job.attempt, PAUSE, LONGEST_PAUSE);
        if self.observed.now < due {
            let left = due.duration_since(self.observed.now).as_millis().max(1_000);
            let at = due.strftime("%H:%M:%SZ");
            let text = format!("attempt {attempts} failed, repeated at {at}: {why}");
            return self.wait(text, u64::try_from(left).unwrap_or(MISSING_MS));
        }
        self.begin(job.kind)
    }

    /// For a save, counted from the backup's creation, and not before its cluster has data of its own; for a verification,
    /// from the request for it.
    fn deadline(&self) -> Timestamp {
        let stored = self.status.completion_time.as_ref().map(|time| time.0);
        let own = self.observed.cluster.as_ref().and_then(|it| it.own_since);
        let from = match self.stored() {
            false => own.map_or(self.observed.created, |own| own.max(self.observed.created)),
            true => {
                let asked = self.observed.verification_requested;
                asked.max(stored).unwrap_or(self.observed.created)
            }
        };
        from + SignedDuration::from_secs(self.observed.spec.deadline_seconds.into())
    }

    /// Creates the next Job, if what it needs is there.
    fn begin(mut self, kind: JobKind) -> BackupPlan {
        let newest = self.newest(kind).map_or(0, |job| job.attempt);
        let counted = u32::try_from(self.status.attempts.unwrap_or(0)).unwrap_or(0);
        let spec = &self.observed.spec;
        let missing = missing(
            (&spec.store_ref, self.observed.store.as_ref()),
            (&spec.cluster_ref, self.observed.cluster.as_ref()),
            kind == JobKind::Save,
        );
        let missing = missing.or_else(|| self.moved());
        // What was asked for long ago is tried once all the same.
        let tried = kind == JobKind::Save || newest.max(counted) > 0;
        // How long another cluster is followed, nobody has promised.
        let cluster = self.observed.cluster.as_ref();
        let held = kind == JobKind::Save && cluster.is_some_and(|it| it.follows);
        if tried && !held && self.observed.now >= self.deadline() {
            if kind == JobKind::Save {
                self.status.phase = BackupPhase::Failed;
            }
            let known = self.status.message.clone();
            let why = missing.or(known.filter(|known| known.starts_with("given up")));
            let why = why.unwrap_or_else(|| "its Jobs were deleted".to_owned());
            let why = why.trim_start_matches("given up: ").to_owned();
            return self.rest(&format!("given up: {why}"));
        }
        if let Some(missing) = missing {
            return self.wait(missing, MISSING_MS);
        }
        // Only the newest is kept, for its log.
        let mut earlier = self.observed.jobs.iter().filter(|job| job.kind == kind);
        let earlier = earlier.find(|job| job.attempt < newest);
        if let Some(job) = earlier.filter(|job| matches!(job.state, JobState::Ended { .. })) {
            let name = job.name.clone();
            return self.step(BackupStep::DeleteJob { name }, MISSING_MS);
        }
        let attempt = newest.max(counted) + 1;
        self.step(BackupStep::CreateJob { kind, attempt }, WATCHED_MS)
    }

    /// Nothing is left to do, but for Jobs of earlier steps.
    fn end(mut self) -> BackupPlan {
        if self.status.phase != BackupPhase::Failed {
            self.status.message = None;
        }
        let done = self.observed.jobs.iter().find(|job| {
            // Its pods have the only log of a failure.
            let kept = self.status.phase == BackupPhase::Failed;
            !kept && matches!(job.state, JobState::Ended { .. })
        });
        match done {
            Some(job) => {
                let name = job.name.clone();
                self.step(BackupStep::DeleteJob { name }, MISSING_MS)
            }
            None => self.ends_with(None, None),
        }
    }

    /// Whether a Job read the place where the backup was saved.
    fn is_there(&self, job: &JobFacts) -> bool {
        self.status.url.as_deref() == Some(job.location.as_str())
    }

    /// The store was edited after the backup was saved: what is there says nothing about it.
    fn moved(&self) -> Option<String> {
        let (saved, now) = (self.status.url.as_ref()?, self.observed.store.as_ref()?);
        (saved != now).then(|| {
            let store = &self.observed.spec.store_ref.name;
            format!("it was saved in {saved}, and EtcdBackupStore {store} is {now} now: it cannot be verified")
        })
    }

    fn newest(&self, kind: JobKind) -> Option<JobFacts> {
        newest_job(&self.observed.jobs, kind).cloned()
    }

    fn record_saved(&mut self, saved: &Saved, location: &str) {
        let number = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
        let seconds = saved.completed.duration_since(saved.started).as_secs();
        let verification = self.status.verification.take();
        self.status = EtcdBackupStatus {
            phase: BackupPhase::Uploaded,
            message: None,
            attempts: None,
            id: Some(saved.id.clone()),
            url: Some(location.to_owned()),
            start_time: Some(Time(saved.started)),
            completion_time: Some(Time(saved.completed)),
            duration_seconds: Some(seconds.max(0)),
            cluster_id: Some(saved.cluster_id.clone()),
            member_id: Some(saved.member_id.clone()),
            revision: Some(saved.revision),
            raft_index: number(saved.raft_index),
            raft_term: number(saved.raft_term),
            hash: number(saved.hash.into()),
            keys: number(saved.keys),
            size_bytes: number(saved.size),
            size: Some(size(saved.size)),
            stored_bytes: number(saved.stored),
            encryption_key_id: saved.key_id.clone(),
            verification,
            conditions: std::mem::take(&mut self.status.conditions),
        };
    }

    /// `asked`: when it was asked for.
    fn record_verified(&mut self, verified: &Verified, asked: Option<Timestamp>) {
        self.status.attempts = None;
        match &verified.failure {
            Some(failure) if !mutant!(DamageUnread) => {
                self.status.phase = BackupPhase::Failed;
                self.status.message = Some(format!("it cannot be restored: {failure}"));
            }
            _ => {
                self.status.phase = BackupPhase::Verified;
                self.status.message = None;
                // The clock of whoever asked may be ahead of the Job's.
                self.status.verification = Some(VerificationStatus {
                    time: Time(asked.map_or(verified.at, |asked| asked.max(verified.at))),
                    seconds: (verified.seconds.ceil() as i64).max(1),
                    version: verified.version.clone(),
                });
            }
        }
    }

    fn wait(mut self, message: String, again_ms: u64) -> BackupPlan {
        self.status.message = Some(message);
        self.ends_with(None, Some(again_ms))
    }

    fn rest(mut self, message: &str) -> BackupPlan {
        self.status.message = Some(message.to_owned());
        self.ends_with(None, None)
    }

    fn step(self, step: BackupStep, again_ms: u64) -> BackupPlan {
        self.ends_with(Some(step), Some(again_ms))
    }

    fn ends_with(self, step: Option<BackupStep>, again_ms: Option<u64>) -> BackupPlan {
        BackupPlan {
            status: self.status,
            step,
            again_ms,
        }
    }
}

/// The pause after this attempt: doubled each time, up to the longest.
pub(super) fn pause(
    attempt: u32,
    first: SignedDuration,
    longest: SignedDuration,
) -> SignedDuration {
    let factor = 1 << attempt.saturating_sub(1).min(8);
    (first * factor).min(longest)
}

/// Ready, with the time of its last change.
fn conditions(observed: &ObservedBackup, status: &EtcdBackupStatus) -> Vec<Condition> {
    let (holds, reason) = match status.phase {
        BackupPhase::Pending => ("False", "Pending"),
        BackupPhase::Streaming => ("False", "Streaming"),
        BackupPhase::Uploaded => ("True", "Uploaded"),
        BackupPhase::Verified => ("True", "Verified"),
        BackupPhase::Failed => ("False", "Failed"),
    };
    let message = status.message.clone().unwrap_or_default();
    vec![ready_condition(
        &status.conditions,
        (holds, reason, message),
        None,
        observed.now,
    )]
}

/// A number of bytes for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
