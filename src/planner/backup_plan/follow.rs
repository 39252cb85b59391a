//! The Job of a cluster that follows another one: kept running from the cluster's formation until it has taken the followed
//! one's place, made anew when what it was made from changes. Whether the cluster follows is not decided here: its leader
//! says so.

use jiff::{SignedDuration, Timestamp};

use super::BackupStep;
use super::observed::{JobFacts, JobKind, JobState, NODE_LOST, newest_job};
use super::restore::needs_user;
use super::result::{FailureClass, Followed, JobResult};
use crate::crd::{Cutover, FollowPhase, ValidatedCluster};

/// A Job that failed is created again after this: meanwhile the cluster falls behind.
const AGAIN: SignedDuration = SignedDuration::from_secs(15);
/// One that says that the two clusters do not fit: a cutover in vain closes the followed one for a while each time.
const AGAIN_IN_VAIN: SignedDuration = SignedDuration::from_mins(10);
/// One that has run for so long has ended because its time was over.
const RENEWED: SignedDuration = SignedDuration::from_hours(1);
/// One that has run for so long goes on: what failed before is over.
const SETTLED: SignedDuration = SignedDuration::from_secs(60);
/// A pod that has not started after this needs the user: a Secret or an image is missing, or no node takes it.
const START: SignedDuration = SignedDuration::from_mins(2);
/// It is created anew after this: what it was created with may have been corrected since.
const START_ANEW: SignedDuration = SignedDuration::from_mins(5);
/// Between two observations while it runs.
const WATCHED_MS: u64 = 10_000;
/// Between two observations while something is missing.
const MISSING_MS: u64 = 5_000;

/// A formed cluster that is to follow another one, and what belongs to its Job.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedFollow {
    /// The cluster, or why its spec cannot be used.
    pub cluster: Result<ValidatedCluster, String>,
    /// How far it is, by its status; `None`: that says nothing yet.
    pub phase: Option<FollowPhase>,
    /// Its status has what the Job has reported of the cutover.
    pub recorded: bool,
    /// The operator's key exists, from which that of the Job follows.
    pub has_key: bool,
    /// The Secrets that the Job mounts, by what they are for, with their resource version; `None`: there is none of this
    /// name.
    pub secrets: Vec<(String, Option<String>)>,
    /// Its Jobs.
    pub jobs: Vec<JobFacts>,
    /// Now.
    pub now: Timestamp,
}

/// How it is doing, for the report of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowReport {
    /// What the Job does or waits for; empty if there is nothing to say.
    pub message: String,
    /// It fails, and goes on failing until the user does something.
    pub needs_user: bool,
    /// Why the newest Job has failed, if it has.
    pub failure: Option<String>,
    /// What the newest Job reported of the cutover.
    pub followed: Option<Followed>,
}

/// The next step, how it is doing, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowPlan {
    /// For the report of the cluster.
    pub report: FollowReport,
    /// At most one write.
    pub step: Option<BackupStep>,
    /// Milliseconds; `None`: only when something changes.
    pub again_ms: Option<u64>,
}

/// What a Job is made from, as one text: another one asks for another Job.
#[must_use]
pub fn made_from(cutover: Cutover, secrets: &[(String, Option<String>)]) -> String {
    let version = |(what, version): &(String, Option<String>)| {
        format!(" {what}={}", version.as_deref().unwrap_or("-"))
    };
    let secrets: String = secrets.iter().map(version).collect();
    format!("{}{secrets}", cutover.argument())
}

/// The next step about the Job.
#[must_use]
pub fn plan_follow(observed: &ObservedFollow) -> FollowPlan {
    let cluster = match &observed.cluster {
        Ok(cluster) => cluster,
        Err(why) => return waits(why.clone(), MISSING_MS).by_user(),
    };
    if cluster.spec.paused {
        return waits("the cluster is paused".to_owned(), MISSING_MS);
    }
    // What gave the seed its data.
    if let Some(job) = others(observed).next() {
        return delete(job, "the Job of the snapshot is deleted".to_owned());
    }
    if cluster.target() == 0 {
        let text = "the cluster hibernates: set spec.replicas".to_owned();
        return match live(observed).next() {
            Some(job) => delete(job, text),
            None => waits(text, WATCHED_MS),
        };
    }
    match observed.phase {
        None | Some(FollowPhase::Seeding) => waits("its members start".to_owned(), MISSING_MS),
        Some(FollowPhase::CutOver) => end(observed),
        Some(FollowPhase::Following | FollowPhase::Frozen) => follow(observed, cluster),
    }
}

/// Clients write here: the Job is not needed any more, once what it reported is in the status.
fn end(observed: &ObservedFollow) -> FollowPlan {
    let Some(job) = live(observed).next() else {
        return FollowPlan::default();
    };
    let mut report = FollowReport::default();
    let step = match &job.state {
        // It is about to say how long nobody took writes.
        JobState::Running => None,
        JobState::Ended { .. } => {
            report.followed = followed(job);
            let unrecorded = report.followed.is_some() && !observed.recorded;
            (!unrecorded).then(|| deletion(job))
        }
        JobState::Waiting(_) => Some(deletion(job)),
        JobState::Deleting => None,
    };
    FollowPlan {
        report,
        step,
        again_ms: Some(MISSING_MS),
    }
}

/// What a Job reports of the cutover, if it has carried it out itself.
fn followed(job: &JobFacts) -> Option<Followed> {
    match &job.state {
        JobState::Ended {
            result: Some(JobResult::Followed(followed)),
            ..
        } => Some(*followed).filter(|it| it.writable_unix_ms > 0),
        _ => None,
    }
}

fn follow(observed: &ObservedFollow, cluster: &ValidatedCluster) -> FollowPlan {
    let Some(newest) = newest_job(&observed.jobs, JobKind::Follow) else {
        return begin(observed);
    };
    if let Some(job) = superseded(observed, newest) {
        return delete(job, "an earlier Job is deleted".to_owned());
    }
    let changed = newest.made_from != wanted(observed, cluster);
    let mut plan = match &newest.state {
        JobState::Deleting => {
            let text = format!("Job {} is being deleted", newest.name);
            waits(text, MISSING_MS)
        }
        JobState::Ended { at, result, reason } => {
            ended(observed, newest, *at, (result.as_ref(), reason), changed)
        }
        // Nobody writes anywhere now: it is not interrupted.
        JobState::Running if observed.phase == Some(FollowPhase::Frozen) => {
            waits(String::new(), WATCHED_MS)
        }
        _ if changed => delete(newest, "its settings have changed".to_owned()),
        // The members say how far it is.
        JobState::Running => waits(String::new(), WATCHED_MS),
        JobState::Waiting(why) => starts(observed, newest, why.as_deref()),
    };
    // What went wrong before counts until this attempt has shown that it goes on.
    if let Some(before) = failed_before(observed, newest) {
        add_failure(&mut plan.report, before);
    }
    plan
}

/// An earlier Job that is not needed any more: for its failure, until the newest one goes on.
fn superseded<'a>(observed: &'a ObservedFollow, newest: &JobFacts) -> Option<&'a JobFacts> {
    let settled = is_settled(observed, newest);
    let mut earlier = live(observed).filter(|job| job.attempt < newest.attempt);
    earlier.find(|job| {
        let kept = !settled && job.attempt + 1 == newest.attempt && failure(job).is_some();
        !kept
    })
}

/// Whether a Job has run for longer than one does that fails at once.
fn is_settled(observed: &ObservedFollow, job: &JobFacts) -> bool {
    job.state == JobState::Running && observed.now.duration_since(job.created) > SETTLED
}

/// The failure of the attempt before this one.
fn failed_before(observed: &ObservedFollow, newest: &JobFacts) -> Option<(bool, String)> {
    let mut earlier = live(observed).filter(|job| job.attempt < newest.attempt);
    let before = earlier.find_map(failure);
    before.filter(|_| !is_settled(observed, newest))
}

fn add_failure(report: &mut FollowReport, (by_user, why): (bool, String)) {
    if report.failure.is_some() {
        return;
    }
    report.needs_user |= by_user;
    report.message = match report.message.as_str() {
        "" => format!("before that, it failed: {why}"),
        now => format!("{now}; before that, it failed: {why}"),
    };
    report.failure = Some(why);
}

/// Whether a Job has failed: whether the user has to act, and why. One whose time was over has not.
fn failure(job: &JobFacts) -> Option<(bool, String)> {
    let JobState::Ended { at, result, reason } = &job.state else {
        return None;
    };
    let (by_user, why) = match result {
        Some(JobResult::Followed(_)) => return None,
        Some(JobResult::Failed { class, message }) => (needs_user(*class), message.clone()),
        _ => (false, format!("its Job ended without a result: {reason}")),
    };
    let over = at.duration_since(job.created) > RENEWED && !by_user;
    (!over).then_some((by_user, why))
}

/// What a Job would be made from now; `None` while a Secret is missing or nothing asks for one.
fn wanted(observed: &ObservedFollow, cluster: &ValidatedCluster) -> Option<String> {
    let follow = cluster.spec.follow()?;
    Some(made_from(follow.cutover, &observed.secrets))
}

/// Creates a Job, if what it needs is there.
fn begin(observed: &ObservedFollow) -> FollowPlan {
    if !observed.has_key {
        return waits("the cluster is not set up yet".to_owned(), MISSING_MS);
    }
    let mut missing = observed.secrets.iter();
    if let Some((what, _)) = missing.find(|(_, version)| version.is_none()) {
        let text = format!("there is no Secret {what}: create it");
        return waits(text, MISSING_MS).by_user();
    }
    let all = observed.jobs.iter().map(|job| job.attempt);
    let step = BackupStep::CreateJob {
        kind: JobKind::Follow,
        attempt: all.max().unwrap_or(0) + 1,
    };
    FollowPlan {
        step: Some(step),
        ..waits("its Job begins".to_owned(), WATCHED_MS)
    }
}

/// A Job whose pod does not run yet: it may lack the Secret with its key.
fn starts(observed: &ObservedFollow, job: &JobFacts, why: Option<&str>) -> FollowPlan {
    let text = format!("Job {}: {}", job.name, why.unwrap_or("its pod starts"));
    let waited = observed.now.duration_since(job.created);
    if waited > START_ANEW {
        return delete(job, text).by_user();
    }
    let step = BackupStep::ApplyKey {
        job: job.name.clone(),
    };
    let mut plan = waits(text, WATCHED_MS);
    plan.step = Some(step);
    plan.report.needs_user = waited > START;
    plan
}

/// A Job that has ended while the cluster still follows: another one begins, after a pause where it has failed.
fn ended(
    observed: &ObservedFollow,
    job: &JobFacts,
    at: Timestamp,
    (result, reason): (Option<&JobResult>, &str),
    changed: bool,
) -> FollowPlan {
    // Its pod may run on: two at once apply the same.
    if result.is_none() && reason == NODE_LOST {
        return delete(job, format!("Job {}: {reason}", job.name));
    }
    let failed = failure(job);
    // What has cut over is in the status in a moment.
    let over = matches!(result, Some(JobResult::Followed(_)));
    let pauses = !changed && (failed.is_some() || over);
    let pause = match result {
        Some(JobResult::Failed { class, .. }) if *class == FailureClass::Damaged => AGAIN_IN_VAIN,
        _ => AGAIN,
    };
    let left = (at + pause).duration_since(observed.now);
    let mut plan = match pauses && left.is_positive() {
        true => {
            let ms = u64::try_from(left.as_millis()).unwrap_or(MISSING_MS);
            waits(String::new(), ms.max(1_000))
        }
        false => begin(observed),
    };
    plan.report.followed = followed(job);
    if let Some((by_user, why)) = failed.filter(|_| !changed) {
        plan.report.message.clone_from(&why);
        plan.report.needs_user = by_user;
        plan.report.failure = Some(why);
    }
    plan
}

fn delete(job: &JobFacts, message: String) -> FollowPlan {
    FollowPlan {
        step: Some(deletion(job)),
        ..waits(message, MISSING_MS)
    }
}

fn deletion(job: &JobFacts) -> BackupStep {
    BackupStep::DeleteJob {
        name: job.name.clone(),
    }
}

fn waits(message: String, again_ms: u64) -> FollowPlan {
    FollowPlan {
        report: FollowReport {
            message,
            ..FollowReport::default()
        },
        step: None,
        again_ms: Some(again_ms),
    }
}

/// Jobs that follow, and are not being deleted.
fn live(observed: &ObservedFollow) -> impl Iterator<Item = &JobFacts> {
    let all = observed.jobs.iter();
    all.filter(|job| job.kind == JobKind::Follow && job.state != JobState::Deleting)
}

/// The other Jobs of this cluster that are not being deleted.
fn others(observed: &ObservedFollow) -> impl Iterator<Item = &JobFacts> {
    let all = observed.jobs.iter();
    all.filter(|job| job.kind != JobKind::Follow && job.state != JobState::Deleting)
}

impl FollowPlan {
    /// The same, which waits for the user.
    fn by_user(mut self) -> FollowPlan {
        self.report.needs_user = true;
        self
    }
}
