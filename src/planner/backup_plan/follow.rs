//! The Job of a cluster that follows another one: kept running from the cluster's formation until it has taken the followed
//! one's place, made anew when what it was made from changes. Whether the cluster follows is not decided here: its leader
//! says so. Never leaves the followed cluster closed to writes because the one here is paused, stops or goes.

use jiff::{SignedDuration, Timestamp};

use super::BackupStep;
use super::observed::{JobFacts, JobKind, JobState, NODE_LOST, newest_job};
use super::restore::needs_user;
use super::result::{FailureClass, Followed, JobResult};
use crate::crd::{FollowPhase, FollowedCluster, Until, ValidatedCluster};

/// A Job that failed is created again after this: meanwhile the cluster falls behind.
const AGAIN: SignedDuration = SignedDuration::from_secs(15);
/// A promotion without the followed cluster that was refused: nothing follows meanwhile that could mend it.
const AGAIN_REFUSED: SignedDuration = SignedDuration::from_secs(60);
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
    /// How far it is, by its status; `None`: that says nothing yet. It may be behind its members, and that is harmless: a Job
    /// that is deleted in the middle of a cutover opens the followed cluster within 20 seconds of its SIGTERM, in the 30
    /// that Kubernetes gives it, and where it cannot, the next one does.
    pub phase: Option<FollowPhase>,
    /// The deletion of the cluster was asked for.
    pub deleting: bool,
    /// The user does not care whether the followed cluster stays closed, by an annotation.
    pub waived: bool,
    /// A process runs that may close the followed cluster, whatever became of its Job.
    pub closing: bool,
    /// Its status has what the Job has reported of the cutover.
    pub recorded: bool,
    /// Its revision, by its status.
    pub revision: Option<i64>,
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
    /// A Job is there, or is about to be, that may close the followed cluster.
    pub may_close: bool,
    /// Cutovers came to nothing, a Job follows, and the next cutover is tried then.
    pub cutover_after: Option<Timestamp>,
}

/// The next step, how it is doing, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowPlan {
    /// For the report of the cluster.
    pub report: FollowReport,
    /// When a Job that is created now takes the place of the followed cluster.
    pub until: Until,
    /// At most one write.
    pub step: Option<BackupStep>,
    /// Milliseconds; `None`: only when something changes.
    pub again_ms: Option<u64>,
}

/// What a Job is made from, as one text: another one asks for another Job. Where a standby finds its source may change.
#[must_use]
pub fn made_from(follow: &FollowedCluster, secrets: &[(String, Option<String>)]) -> String {
    let version = |(what, version): &(String, Option<String>)| {
        format!(" {what}={}", version.as_deref().unwrap_or("-"))
    };
    let secrets: String = secrets.iter().map(version).collect();
    let least = match follow.until {
        Until::SourceLost { revision } => format!(" {revision}"),
        Until::Stay | Until::CaughtUp => String::new(),
    };
    let endpoints = match follow.standby {
        true => format!(" {}", follow.endpoints.join(",")),
        false => String::new(),
    };
    format!("{}{least}{secrets}{endpoints}", follow.until.argument())
}

/// The next step about the Job.
#[must_use]
pub fn plan_follow(observed: &ObservedFollow) -> FollowPlan {
    let mut plan = next(observed);
    if let Ok(cluster) = &observed.cluster {
        plan.until = asked(observed, cluster);
    }
    let creates = matches!(plan.step, Some(BackupStep::CreateJob { .. }));
    let mut armed = observed.jobs.iter().filter(|job| {
        job.kind == JobKind::Follow && closes(job) && !matches!(job.state, JobState::Ended { .. })
    });
    plan.report.may_close =
        observed.closing || armed.next().is_some() || creates && plan.until != Until::Stay;
    plan
}

fn next(observed: &ObservedFollow) -> FollowPlan {
    let cluster = match &observed.cluster {
        Ok(cluster) => cluster,
        // Whatever is wrong with the spec, one that is to go closes nothing.
        Err(why) => {
            return match armed(observed).next() {
                Some(job)
                    if observed.deleting && observed.phase == Some(FollowPhase::Following) =>
                {
                    delete(job, "the cluster is being deleted".to_owned())
                }
                _ => waits(why.clone(), MISSING_MS).by_user(),
            };
        }
    };
    // Only a Job opens the followed cluster again, so one works whatever the cluster here is asked for.
    let frozen = observed.phase == Some(FollowPhase::Frozen);
    if cluster.spec.paused && !frozen && !observed.deleting {
        let text = "the cluster is paused".to_owned();
        // What was taken back is not carried out.
        let withdrawn = cluster
            .spec
            .follow()
            .is_some_and(|it| it.until == Until::Stay);
        return match armed(observed).next() {
            Some(job) if withdrawn => delete(job, text),
            _ => waits(text, MISSING_MS),
        };
    }
    // What gave the seed its data.
    if let Some(job) = others(observed).next() {
        return delete(job, "the Job of the snapshot is deleted".to_owned());
    }
    if observed.phase == Some(FollowPhase::CutOver) {
        return end(observed);
    }
    if observed.deleting && !frozen {
        let text = "the cluster is being deleted".to_owned();
        return match armed(observed).next() {
            Some(job) => delete(job, text),
            None => waits(text, MISSING_MS),
        };
    }
    if cluster.target() == 0 && (!frozen || observed.waived) {
        let text = "the cluster hibernates: set spec.replicas".to_owned();
        // What has ended says when the next one may begin.
        return match live(observed).find(|job| !has_ended(job)) {
            Some(job) => delete(job, text),
            None => waits(text, WATCHED_MS),
        };
    }
    match observed.phase {
        Some(FollowPhase::Following | FollowPhase::Frozen) => follow(observed, cluster),
        _ => waits("its members start".to_owned(), MISSING_MS),
    }
}

/// When the followed cluster's place is to be taken, by a Job that is created now. While the cluster here is to stop, and
/// for a while after cutovers in vain, a Job only follows: what is closed it opens, and closes nothing. Nothing is missed
/// meanwhile.
fn asked(observed: &ObservedFollow, cluster: &ValidatedCluster) -> Until {
    let stops = observed.deleting || cluster.target() == 0 || cluster.spec.paused;
    match cluster.spec.follow() {
        Some(follow) if stops || vain(observed).is_some() && !is_lost(&follow) => Until::Stay,
        // Refused for certain: what is missing may still come.
        Some(follow) if is_too_little(observed, &follow) => Until::Stay,
        Some(follow) => follow.until,
        None => Until::Stay,
    }
}

/// The Job whose cutovers came to nothing a moment ago.
fn vain(observed: &ObservedFollow) -> Option<&JobFacts> {
    let mut closing = live(observed).filter(|job| closes(job) && !promotes(job));
    closing.find(|job| pause_left(observed, job).is_some())
}

/// How long nothing is closed after a Job that said that the two clusters do not fit.
fn pause_left(observed: &ObservedFollow, job: &JobFacts) -> Option<SignedDuration> {
    let left = pause_ends(job)?.duration_since(observed.now);
    left.is_positive().then_some(left)
}

fn pause_ends(job: &JobFacts) -> Option<Timestamp> {
    let JobState::Ended { at, result, .. } = &job.state else {
        return None;
    };
    let Some(JobResult::Failed {
        class: FailureClass::Damaged,
        ..
    }) = result
    else {
        return None;
    };
    Some(*at + AGAIN_IN_VAIN)
}

/// Whether a Job may close the followed cluster, or take its place. One that does not say what it was made from may.
fn closes(job: &JobFacts) -> bool {
    let manual = Until::Stay.argument();
    let first = job.made_from.as_deref().and_then(|it| it.split(' ').next());
    first != Some(manual)
}

/// Jobs that may close the followed cluster, or take its place, and go on.
fn armed(observed: &ObservedFollow) -> impl Iterator<Item = &JobFacts> {
    live(observed).filter(|job| closes(job) && !has_ended(job))
}

/// Whether less is here than what was reviewed.
fn is_too_little(observed: &ObservedFollow, follow: &FollowedCluster) -> bool {
    match (follow.until, observed.revision) {
        (Until::SourceLost { revision }, Some(here)) => here < revision,
        _ => false,
    }
}

/// Whether a Job promotes without the followed cluster: it neither closes nor opens that one.
fn promotes(job: &JobFacts) -> bool {
    let lost = Until::SourceLost { revision: 0 }.argument();
    let made_from = job.made_from.as_deref();
    made_from.and_then(|it| it.split(' ').next()) == Some(lost)
}

/// Whether nobody is there that could be opened or closed.
fn is_lost(follow: &FollowedCluster) -> bool {
    matches!(follow.until, Until::SourceLost { .. })
}

fn has_ended(job: &JobFacts) -> bool {
    matches!(job.state, JobState::Ended { .. })
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
            let unrecorded = report.followed.filter(|it| !is_recorded(observed, it));
            unrecorded.is_none().then(|| deletion(job))
        }
        JobState::Waiting(_) => Some(deletion(job)),
        JobState::Deleting => None,
    };
    FollowPlan {
        report,
        step,
        again_ms: Some(MISSING_MS),
        ..FollowPlan::default()
    }
}

/// Whether the status has what a Job has reported. Where the followed cluster was lost, nobody closed it.
fn is_recorded(observed: &ObservedFollow, followed: &Followed) -> bool {
    match followed.frozen_unix_ms {
        0 => observed.revision == Some(followed.revision),
        _ => observed.recorded,
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
    let frozen = observed.phase == Some(FollowPhase::Frozen);
    let lost = cluster.spec.follow().is_some_and(|it| is_lost(&it));
    // A promotion that was taken back closes nothing, and is not carried out.
    let gives_up = lost || promotes(newest) || observed.deleting && closes(newest);
    let mut plan = match &newest.state {
        JobState::Deleting => {
            let text = format!("Job {} is being deleted", newest.name);
            waits(text, MISSING_MS)
        }
        JobState::Ended { at, result, reason } => {
            ended(observed, newest, *at, (result.as_ref(), reason), changed)
        }
        // Nobody writes anywhere now: it is not interrupted, unless the cluster here is to go, or the other one is lost.
        JobState::Running if frozen && !(gives_up && changed) => waits(String::new(), WATCHED_MS),
        _ if changed => delete(newest, "its settings have changed".to_owned()),
        // The members say how far it is.
        JobState::Running => waits(String::new(), WATCHED_MS),
        JobState::Waiting(why) => starts(observed, newest, why.as_deref()),
    };
    // What went wrong before counts until this attempt has shown that it goes on.
    if let Some(before) = failed_before(observed, newest) {
        add_failure(&mut plan.report, before);
    }
    if is_settled(observed, newest) && !closes(newest) {
        plan.report.cutover_after = vain(observed).and_then(pause_ends);
    }
    plan
}

/// An earlier Job that is not needed any more: for its failure, until the newest one goes on.
fn superseded<'a>(observed: &'a ObservedFollow, newest: &JobFacts) -> Option<&'a JobFacts> {
    let settled = is_settled(observed, newest);
    let mut earlier = live(observed).filter(|job| job.attempt < newest.attempt);
    earlier.find(|job| {
        let kept = !settled && job.attempt + 1 == newest.attempt && failure(job).is_some();
        !kept && vain(observed) != Some(job)
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
    before.filter(|_| !is_settled(observed, newest) || vain(observed).is_some())
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

/// What a Job would be made from now.
fn wanted(observed: &ObservedFollow, cluster: &ValidatedCluster) -> Option<String> {
    let follow = FollowedCluster {
        until: asked(observed, cluster),
        ..cluster.spec.follow()?
    };
    Some(made_from(&follow, &observed.secrets))
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
    let text = match observed.phase {
        Some(FollowPhase::Frozen) => "its Job begins, and opens the followed cluster to writes",
        _ => "its Job begins",
    };
    FollowPlan {
        step: Some(step),
        ..waits(text.to_owned(), WATCHED_MS)
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
    let again = match promotes(job) {
        true => AGAIN_REFUSED,
        false => AGAIN,
    };
    let short = (at + again).duration_since(observed.now);
    let left = pause_left(observed, job).unwrap_or(short);
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
        again_ms: Some(again_ms),
        ..FollowPlan::default()
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
