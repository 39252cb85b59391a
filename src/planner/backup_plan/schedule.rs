//! The plan of one `EtcdBackupSchedule`: after a backup the retention and, once in a while, a verification of the newest
//! one, the next backup when it is due, and an archive of the log (`archive`). One backup of a schedule at a time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::archive::plan_archive;
use super::cron::Calendar;
use super::last::last_backups;
use super::observed::{
    BackupFacts, ClusterFacts, JobFacts, JobKind, JobState, ObservedSchedule, follows, newest_job,
};
use super::result::{JobResult, Pruned};
use super::{BackupStep, SchedulePlan};
use crate::crd::backups::{BackupPhase, EtcdBackupScheduleStatus, EtcdBackupSpec};
use crate::crd::ready_condition;
use crate::mutants::mutant;

/// Between two observations while something is under way.
const WATCHED_MS: u64 = 30_000;
/// The longest wait: the clock of a machine may be set.
const LONGEST_MS: u64 = 600_000;
/// The version of the cluster may be another one than that of the Jobs for as long as it is changed.
const VERIFY_AGAIN: SignedDuration = SignedDuration::from_hours(1);
/// After this, a verification that was asked for has been given up.
const GIVEN_UP: SignedDuration =
    SignedDuration::from_secs(EtcdBackupSpec::DEADLINE_SECONDS as i64 + 600);
/// A prune that has not ended after this is given up.
const LONGEST_PRUNE: SignedDuration = SignedDuration::from_hours(2);
/// Backups that were never stored, or are gone, of which the resources are kept.
const FAILURES: usize = 3;
/// A prune that failed is repeated after this.
const PRUNE_AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// The next step of a schedule, and its status.
#[must_use]
pub fn plan_schedule(observed: &ObservedSchedule) -> SchedulePlan {
    let mut draft = Draft::new(observed);
    // What a Job did is accounted for whatever else is wrong.
    if let Some(step) = draft.ended_prune() {
        return draft.finish_as_before(step);
    }
    let archive = draft.archive();
    let step = match draft.calendar() {
        Ok(calendar) => draft.step(&calendar),
        Err(why) => {
            draft.problem = Some(("InvalidSchedule", why));
            draft.status.next_schedule_time = None;
            None
        }
    };
    // The archive's step may be the same for minutes, those of the schedule are over once they were carried out.
    draft.finish(step.or(archive))
}

struct Draft<'a> {
    observed: &'a ObservedSchedule,
    status: EtcdBackupScheduleStatus,
    /// What goes on.
    message: Option<String>,
    /// Why the condition Ready is False: a reason and a text.
    problem: Option<(&'static str, String)>,
    again_ms: Option<u64>,
}

impl<'a> Draft<'a> {
    fn new(observed: &'a ObservedSchedule) -> Draft<'a> {
        let mut status = observed.status.clone();
        status.observed_generation = observed.generation;
        let last = last_backups(&observed.backups);
        status.last_success = last.last_success;
        status.last_verified = last.last_verified;
        status.recovery_seconds = last.recovery_seconds;
        Draft {
            observed,
            status,
            message: None,
            problem: None,
            again_ms: None,
        }
    }

    /// The step of the archive, whose status and problem are noted.
    fn archive(&mut self) -> Option<BackupStep> {
        let plan = plan_archive(self.observed);
        self.status.archive = plan.status;
        self.problem = plan.problem;
        if let Some(ms) = plan.again_ms {
            self.look_again(ms);
        }
        plan.step
    }

    fn calendar(&self) -> Result<Calendar, String> {
        let spec = &self.observed.spec;
        let zone = self.observed.zone.clone().ok_or_else(|| {
            format!(
                "there is no time zone {:?}: give a name such as Europe/Berlin",
                spec.time_zone
            )
        })?;
        let calendar = Calendar::new(
            &spec.schedule,
            zone,
            spec.jitter_seconds,
            &self.observed.uid,
        );
        let calendar = calendar.map_err(|error| error.to_string())?;
        calendar
            .next(self.observed.now)
            .map_err(|error| error.to_string())?;
        Ok(calendar)
    }

    fn step(&mut self, calendar: &Calendar) -> Option<BackupStep> {
        let observed = self.observed;
        if observed.spec.suspend {
            self.status.next_schedule_time = None;
            self.message = Some("suspended".to_owned());
            return None;
        }
        let next = calendar.next(observed.now).ok()?;
        self.status.next_schedule_time = Some(Time(next));
        let left = next.duration_since(observed.now).as_millis();
        self.look_again(u64::try_from(left).unwrap_or(LONGEST_MS));
        if observed.store.is_none() {
            let store = &observed.spec.store_ref.name;
            self.problem = Some((
                "StoreNotFound",
                format!("there is no EtcdBackupStore {store}: create it"),
            ));
        } else if observed.cluster.is_none() {
            let cluster = &observed.spec.cluster_ref.name;
            self.problem = Some((
                "ClusterNotFound",
                format!("there is no EtcdCluster {cluster}"),
            ));
        } else if let Some(rival) = &observed.rival {
            self.problem = Some((
                "SharedStore",
                format!(
                    "the schedule {rival} saves the same cluster in the same store, and each would delete what the other one keeps: no retention is applied until one of them has an EtcdBackupStore with another prefix"
                ),
            ));
        }
        self.message = self.held();
        if self.message.is_some() {
            self.look_again(WATCHED_MS);
        }
        self.report_newest();
        self.keep_problem();
        // What the last backup asks for comes before the next one, or a slow store would never be pruned.
        let step = match self.unfinished().is_some() {
            true => None,
            false => self.after_a_backup(),
        };
        if let Some(step) = step.or_else(|| self.backup(calendar)) {
            return Some(step);
        }
        if let Some(unfinished) = self.unfinished() {
            let text = format!("EtcdBackup {} is under way", unfinished.name);
            self.message.get_or_insert(text);
            self.look_again(WATCHED_MS);
        }
        None
    }

    /// Tidies up, applies the retention, and asks for a verification, as far as there is a store and a cluster.
    fn after_a_backup(&mut self) -> Option<BackupStep> {
        let observed = self.observed;
        let usable = |cluster: &ClusterFacts| cluster.invalid.is_none();
        if observed.store.is_none() || !observed.cluster.as_ref().is_some_and(usable) {
            return None;
        }
        let tidy = self.tidy();
        tidy.or_else(|| self.prune()).or_else(|| self.verify())
    }

    /// The backup that is due.
    fn backup(&mut self, calendar: &Calendar) -> Option<BackupStep> {
        let observed = self.observed;
        let since = self.status.last_schedule_time.as_ref();
        let since = since.map_or(observed.created, |time| time.0);
        let due = calendar.due(since, observed.now).ok()??;
        let missing = observed.cluster.is_none() || observed.store.is_none();
        if missing || self.held().is_some() {
            // The condition says why, and the newest time that is over is made up for.
            return None;
        }
        if let Some(unfinished) = self.unfinished() {
            let text = format!(
                "the backup of {due} waits: EtcdBackup {} is under way",
                unfinished.name
            );
            self.message = Some(text);
            self.look_again(WATCHED_MS);
            return None;
        }
        self.status.last_schedule_time = Some(Time(due));
        let name = format!("{}-{}", observed.name, due.strftime("%Y%m%d%H%M"));
        self.message = Some(format!("EtcdBackup {name} was created"));
        Some(BackupStep::CreateBackup { name })
    }

    /// Why the cluster is not saved although everything is there.
    fn held(&self) -> Option<String> {
        let cluster = self.observed.cluster.as_ref();
        let held = cluster.filter(|cluster| cluster.follows);
        held.map(|cluster| follows(&self.observed.spec.cluster_ref.name, cluster))
    }

    fn unfinished(&self) -> Option<&BackupFacts> {
        let mut backups = self.observed.backups.iter();
        backups.find(|backup| backup.of_schedule && backup.unfinished())
    }

    /// Whether the newest backup of this schedule is a good one.
    fn report_newest(&mut self) {
        let mut of_schedule: Vec<&BackupFacts> = self
            .observed
            .backups
            .iter()
            .filter(|backup| backup.of_schedule && !backup.unfinished())
            .collect();
        of_schedule.sort_by_key(|backup| backup.created);
        let Some(newest) = of_schedule.last() else {
            return;
        };
        if newest.status.phase == BackupPhase::Failed && self.problem.is_none() {
            let why = newest.status.message.clone().unwrap_or_default();
            self.problem = Some(("BackupFailed", format!("EtcdBackup {}: {why}", newest.name)));
        }
    }

    /// A verification or a prune that failed has failed until one succeeds, also while the next one runs.
    fn keep_problem(&mut self) {
        let before = self.observed.status.conditions.first();
        let Some(before) = before.filter(|before| before.status == "False") else {
            return;
        };
        let since = before.last_transition_time.0;
        let verified = self.observed.backups.iter().filter_map(|backup| {
            let last = backup.status.verification.as_ref()?;
            Some(last.time.0)
        });
        let pruned = self.status.last_prune_time.as_ref().map(|time| time.0);
        let (reason, done) = match before.reason.as_str() {
            "VerificationFailed" => ("VerificationFailed", verified.max()),
            "PruneFailed" => ("PruneFailed", pruned),
            _ => return,
        };
        if done.is_none_or(|done| done <= since) {
            self.problem.get_or_insert((reason, before.message.clone()));
        }
    }

    /// The resource of an old backup that is nowhere: the retention deletes no such one.
    fn tidy(&self) -> Option<BackupStep> {
        let mut nowhere: Vec<&BackupFacts> = self
            .observed
            .backups
            .iter()
            .filter(|backup| {
                let failed = backup.status.phase == BackupPhase::Failed;
                let stored = backup.status.completion_time.is_some();
                backup.of_schedule && failed && (!stored || backup.gone)
            })
            .collect();
        nowhere.sort_by_key(|backup| std::cmp::Reverse(backup.created));
        nowhere
            .get(FAILURES)
            .map(|backup| BackupStep::DeleteBackup {
                backup: backup.name.clone(),
            })
    }

    /// After each backup.
    fn prune(&mut self) -> Option<BackupStep> {
        let newest = self.newest_prune();
        let attempt = newest.map_or(0, |job| job.attempt) + 1;
        let step = BackupStep::CreateJob {
            kind: JobKind::Prune,
            attempt,
        };
        match newest {
            Some(job) => self.unfinished_prune(job),
            None if self.observed.rival.is_some() => None,
            None => self.prune_is_due().then_some(step),
        }
    }

    fn newest_prune(&self) -> Option<&'a JobFacts> {
        newest_job(&self.observed.jobs, JobKind::Prune)
    }

    fn unfinished_prune(&mut self, job: &JobFacts) -> Option<BackupStep> {
        self.look_again(WATCHED_MS);
        let waits = match &job.state {
            JobState::Waiting(Some(why)) => why.clone(),
            _ => "it has not ended".to_owned(),
        };
        match job.state {
            // One that has failed is repeated later: the condition says why.
            JobState::Ended { .. } | JobState::Deleting => None,
            _ if self.observed.now > job.created + LONGEST_PRUNE => {
                let text = format!("the retention was not applied: Job {}: {waits}", job.name);
                self.problem.get_or_insert(("PruneFailed", text));
                Some(BackupStep::DeleteJob {
                    name: job.name.clone(),
                })
            }
            _ => {
                let text = format!("Job {} applies the retention", job.name);
                self.message.get_or_insert(text);
                None
            }
        }
    }

    /// A good backup is newer than the last prune.
    fn prune_is_due(&self) -> bool {
        let last = self.status.last_prune_time.as_ref().map(|time| time.0);
        let mut good = self.observed.backups.iter().filter(|backup| backup.good());
        good.any(|backup| {
            let stored = backup.status.completion_time.as_ref();
            stored.is_some_and(|stored| last.is_none_or(|last| stored.0 > last))
        })
    }

    /// What follows from the newest prune, if it has ended.
    fn ended_prune(&mut self) -> Option<BackupStep> {
        let job = self.newest_prune()?;
        let JobState::Ended { at, result, reason } = &job.state else {
            return None;
        };
        let remove = BackupStep::DeleteJob {
            name: job.name.clone(),
        };
        // The store was somewhere else.
        if self.observed.store.as_deref() != Some(&*job.location) {
            self.look_again(0);
            return Some(remove);
        }
        if let Some(JobResult::Pruned(pruned)) = result {
            self.look_again(0);
            if let Some(step) = self.account(pruned, *at) {
                return Some(step);
            }
            // The clock of a node may be ahead: each backup is followed by one prune all the same.
            let backups = self.observed.backups.iter();
            let stored = backups.filter_map(|backup| backup.status.completion_time.as_ref());
            let newest = stored.map(|stored| stored.0).fold(*at, Timestamp::max);
            self.status.last_prune_time = Some(Time(newest));
            return Some(remove);
        }
        let why = match result {
            Some(JobResult::Failed { message, .. }) => message,
            _ => reason,
        };
        let text = format!("the retention was not applied: {why}");
        self.problem.get_or_insert(("PruneFailed", text));
        self.look_again(WATCHED_MS);
        (self.observed.now > *at + PRUNE_AGAIN).then_some(remove)
    }

    /// One resource of a backup that was deleted, or that somebody else has deleted.
    fn account(&self, pruned: &Pruned, at: Timestamp) -> Option<BackupStep> {
        self.observed.backups.iter().find_map(|backup| {
            let id = backup.status.id.as_ref()?;
            // The store was somewhere else when it was saved.
            if backup.status.url != self.observed.store {
                return None;
            }
            let backup_name = backup.name.clone();
            if pruned.deleted.contains(id) || mutant!(KeptForgotten) {
                return Some(BackupStep::DeleteBackup {
                    backup: backup_name,
                });
            }
            let before = backup.status.completion_time.as_ref();
            // Stored long before the listing, or the listing may not have had it yet.
            let listed = pruned.listed.unwrap_or(at);
            let before = before.is_some_and(|time| time.0 + SignedDuration::from_mins(30) < listed);
            let missing = before && !pruned.shortened && !pruned.kept.contains(id);
            (missing && backup.good()).then_some(BackupStep::MarkGone {
                backup: backup_name,
            })
        })
    }

    /// The newest good backup, once a while and after each change of version.
    fn verify(&mut self) -> Option<BackupStep> {
        let every = i64::from(self.observed.spec.verify_every_seconds);
        if every == 0 {
            return None;
        }
        // What was saved where the store was before cannot be verified.
        let here =
            |backup: &&BackupFacts| backup.good() && backup.status.url == self.observed.store;
        let good: Vec<&BackupFacts> = self.observed.backups.iter().filter(here).collect();
        let newest = *good.iter().max_by_key(|backup| backup.taken())?;
        let verifications = good.iter().filter_map(|it| it.status.verification.as_ref());
        let last = verifications.max_by_key(|last| last.time.0);
        let version = self
            .observed
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.version.clone());
        let due = match last {
            None => true,
            Some(last) => {
                let age = self.observed.now.duration_since(last.time.0);
                let another = version.is_some_and(|version| version != last.version);
                age.as_secs() >= every || (another && age >= VERIFY_AGAIN)
            }
        };
        let newest_asked = good.iter().filter_map(|backup| waits_since(backup)).max();
        if newest_asked.is_some_and(|asked| self.observed.now < asked + GIVEN_UP) {
            self.message
                .get_or_insert_with(|| "a backup is being verified".to_owned());
            return None;
        }
        if newest_asked.is_some() {
            let why = newest.status.message.clone().unwrap_or_default();
            let text = format!("no backup could be verified: {why}");
            self.problem.get_or_insert(("VerificationFailed", text));
        }
        if !due {
            return None;
        }
        Some(BackupStep::RequestVerification {
            backup: newest.name.clone(),
        })
    }

    fn look_again(&mut self, ms: u64) {
        let ms = ms.clamp(1_000, LONGEST_MS);
        self.again_ms = Some(self.again_ms.map_or(ms, |known| known.min(ms)));
    }

    /// For a step of a Job that has ended: what else is right or wrong is said by the next plan.
    fn finish_as_before(self, step: BackupStep) -> SchedulePlan {
        let known = &self.observed.status;
        SchedulePlan {
            status: EtcdBackupScheduleStatus {
                message: known.message.clone(),
                conditions: known.conditions.clone(),
                ..self.status
            },
            step: Some(step),
            again_ms: self.again_ms,
        }
    }

    fn finish(mut self, step: Option<BackupStep>) -> SchedulePlan {
        let ready = match &self.problem {
            Some((reason, text)) => ("False", *reason, text.clone()),
            None if self.observed.spec.suspend => ("True", "Suspended", "suspended".to_owned()),
            None => match self.held() {
                Some(why) => ("True", "ClusterFollows", why),
                None => ("True", "Scheduled", String::new()),
            },
        };
        self.status.message = self
            .problem
            .as_ref()
            .map(|(_, text)| text.clone())
            .or(self.message.take());
        self.status.conditions = vec![ready_condition(
            &self.observed.status.conditions,
            ready,
            self.observed.generation,
            self.observed.now,
        )];
        SchedulePlan {
            status: self.status,
            step,
            again_ms: self.again_ms,
        }
    }
}

/// Since when a verification is asked for that has not ended.
fn waits_since(backup: &BackupFacts) -> Option<Timestamp> {
    let done = backup.status.verification.as_ref().map(|done| done.time.0);
    let asked = backup.verification_requested?;
    done.is_none_or(|done| asked > done).then_some(asked)
}
