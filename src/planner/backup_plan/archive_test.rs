//! The plan of an archive, alone and over a small world: Jobs that are killed, lose a gap's result or never start, and an
//! operator that looks at any time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::archive::plan_archive;
use super::schedule_test::{backup, schedule};
use super::tests::{LOCATION, cluster, local, start};
use super::*;
use crate::crd::backups::{ArchivePhase, BackupPhase, ScheduleArchive};
use crate::crd::ready_condition;

fn observed() -> ObservedSchedule {
    let mut observed = schedule("0 2 * * *");
    observed.spec.archive = Some(ScheduleArchive::default());
    observed.backups = vec![backup("first", start(), BackupPhase::Uploaded)];
    observed.now = start() + SignedDuration::from_mins(30);
    observed
}

fn job(attempt: u32, state: JobState) -> JobFacts {
    JobFacts {
        name: format!("nightly-archive-{attempt}"),
        kind: JobKind::Archive,
        attempt,
        recovery: None,
        created: start() + SignedDuration::from_mins(29),
        location: LOCATION.to_owned(),
        interval: Some(5),
        made_from: None,
        state,
    }
}

fn ended(at: Timestamp, result: Option<JobResult>) -> JobState {
    JobState::Ended {
        at,
        result,
        reason: "BackoffLimitExceeded".to_owned(),
    }
}

fn archived(gap: bool) -> JobResult {
    JobResult::Archived(Archived {
        cluster_id: "9f".to_owned(),
        first: 3,
        last: 900,
        as_of: None,
        objects: 12,
        gap,
        message: String::new(),
    })
}

fn creates(step: Option<&BackupStep>) -> Option<u32> {
    match step {
        Some(BackupStep::CreateJob {
            kind: JobKind::Archive,
            attempt,
        }) => Some(*attempt),
        _ => None,
    }
}

fn deletes(step: Option<&BackupStep>) -> Option<&str> {
    match step {
        Some(BackupStep::DeleteJob { name }) => Some(name),
        _ => None,
    }
}

#[test]
fn archive_begins_behind_a_backup() {
    let mut observed = observed();
    assert_eq!(creates(plan_archive(&observed).step.as_ref()), Some(1));
    // One that is somewhere else is none that it could begin behind.
    observed.backups[0].status.url = Some("s3://elsewhere".to_owned());
    let plan = plan_archive(&observed);
    let name = "nightly-202603010030".to_owned();
    assert_eq!(plan.step, Some(BackupStep::CreateBackup { name }));
    let unfinished = backup("second", observed.now, BackupPhase::Streaming);
    observed.backups.push(unfinished);
    let plan = plan_archive(&observed);
    assert_eq!(plan.step, None);
    let message = plan.status.and_then(|it| it.message).unwrap_or_default();
    assert!(
        message.contains("EtcdBackup second is under way"),
        "{message}"
    );
}

#[test]
fn archive_that_runs_reports_what_the_members_were_told() {
    let mut observed = observed();
    observed.jobs = vec![job(1, JobState::Running)];
    let through = observed.now - SignedDuration::from_secs(20);
    let mut facts = cluster();
    facts.archived = Some(ArchivedFacts {
        location: "s3://elsewhere".to_owned(),
        through,
        index: 900,
    });
    observed.cluster = Some(facts.clone());
    let elsewhere = plan_archive(&observed).status.expect("a status");
    assert_eq!(elsewhere.through, None, "that is another store's");
    facts.archived.as_mut().expect("one").location = LOCATION.to_owned();
    observed.cluster = Some(facts);
    let plan = plan_archive(&observed);
    assert_eq!((plan.step, plan.problem), (None, None));
    let status = plan.status.expect("a status");
    assert_eq!(status.phase, ArchivePhase::Archiving);
    assert_eq!(status.through, Some(Time(through)));
    assert_eq!(status.raft_index, Some(900));
    observed.now += SignedDuration::from_mins(10);
    let plan = plan_archive(&observed);
    assert_eq!(plan.problem.map(|it| it.0), Some("ArchiveBehind"));
}

/// What a schedule says of its archive reaches its own condition, and costs it none of its own steps.
#[test]
fn schedule_goes_on_beside_its_archive() {
    let mut observed = observed();
    let create = plan_schedule(&observed);
    // The retention comes first, once.
    let prune = BackupStep::CreateJob {
        kind: JobKind::Prune,
        attempt: 1,
    };
    assert_eq!(create.step, Some(prune));
    observed.status.last_prune_time = Some(Time(observed.now));
    observed.spec.verify_every_seconds = 0;
    assert_eq!(creates(plan_schedule(&observed).step.as_ref()), Some(1));
    let waiting = JobState::Waiting(Some("ErrImagePull".to_owned()));
    observed.jobs = vec![job(1, waiting)];
    let apply = plan_schedule(&observed).step;
    assert!(
        matches!(apply, Some(BackupStep::ApplyKey { .. })),
        "{apply:?}"
    );
    // A backup that is due is not kept waiting by a pod that does not start.
    observed.now = start() + SignedDuration::from_hours(3);
    observed.jobs[0].created = observed.now;
    let plan = plan_schedule(&observed);
    assert!(matches!(plan.step, Some(BackupStep::CreateBackup { .. })));
    assert!(plan.status.last_schedule_time.is_some());
    observed.jobs[0].created = start();
    observed.status = plan.status;
    let plan = plan_schedule(&observed);
    assert_eq!(plan.status.conditions[0].reason, "ArchiveFailed");
    assert!(deletes(plan.step.as_ref()).is_some(), "{plan:?}");
}

#[test]
fn job_goes_where_no_archive_is_wanted() {
    type Break = fn(&mut ObservedSchedule);
    let cases: [(Break, &str); 8] = [
        (
            |it| it.archiver = Some("older".to_owned()),
            "the schedule older archives",
        ),
        (|it| it.spec.archive = None, ""),
        (|it| it.spec.suspend = true, "suspended"),
        (|it| it.store = None, "no EtcdBackupStore store"),
        (|it| it.cluster = None, "no EtcdCluster demo"),
        (
            |it| it.cluster.as_mut().expect("one").hibernated = true,
            "hibernated",
        ),
        (
            |it| it.cluster.as_mut().expect("one").has_key = false,
            "not set up",
        ),
        (|it| it.rival = Some("other".to_owned()), "schedule other"),
    ];
    for (change, why) in cases {
        let mut observed = observed();
        observed.jobs = vec![job(3, JobState::Running)];
        change(&mut observed);
        let plan = plan_archive(&observed);
        assert_eq!(deletes(plan.step.as_ref()), Some("nightly-archive-3"));
        let message = plan.status.and_then(|it| it.message);
        assert!(message.unwrap_or_default().contains(why), "{why}");
        observed.jobs.clear();
        let plan = plan_archive(&observed);
        assert_eq!(plan.step, None, "{why}");
        // A cluster that was set up was found five minutes later: no event of a cluster comes here.
        let looks_again = plan.again_ms.is_some_and(|ms| ms <= 10_000);
        assert_eq!(looks_again, !["", "suspended"].contains(&why), "{why}");
    }
}

#[test]
fn job_of_other_settings_is_replaced() {
    type Change = fn(&mut ObservedSchedule);
    let changes: [Change; 2] = [
        |it| it.spec.archive.as_mut().expect("one").interval_seconds = 1,
        |it| it.store = Some("s3://moved".to_owned()),
    ];
    for change in changes {
        let mut observed = observed();
        observed.jobs = vec![job(1, JobState::Running)];
        change(&mut observed);
        let step = plan_archive(&observed).step;
        assert_eq!(deletes(step.as_ref()), Some("nightly-archive-1"));
        observed.jobs[0].state = JobState::Deleting;
        assert_eq!(plan_archive(&observed).step, None);
    }
}

/// A gap is closed by a backup, not by one Job after the other; and not by a backup a minute.
#[test]
fn gap_asks_for_a_backup_once() {
    let mut observed = observed();
    let at = observed.now - SignedDuration::from_secs(10);
    observed.jobs = vec![job(1, ended(at, Some(archived(true))))];
    let plan = plan_archive(&observed);
    assert!(matches!(plan.step, Some(BackupStep::CreateBackup { .. })));
    assert_eq!(plan.problem.map(|it| it.0), Some("ArchiveGap"));
    let second = backup("second", observed.now, BackupPhase::Uploaded);
    observed.backups.push(second);
    let plan = plan_archive(&observed);
    assert_eq!(deletes(plan.step.as_ref()), Some("nightly-archive-1"));
    // The next one, right after.
    observed.now += SignedDuration::from_mins(2);
    observed.jobs = vec![JobFacts {
        created: observed.now,
        ..job(2, ended(observed.now, Some(archived(true))))
    }];
    observed.now += SignedDuration::from_secs(1);
    let plan = plan_archive(&observed);
    assert_eq!(plan.step, None);
    let message = plan.status.and_then(|it| it.message).unwrap_or_default();
    assert!(message.contains("at 00:45:00Z"), "{message}");
    // A cluster that goes on as its next incarnation has none, and waits for nothing.
    for backup in &mut observed.backups {
        backup.status.cluster_id = Some("8a".to_owned());
    }
    let plan = plan_archive(&observed);
    assert!(matches!(plan.step, Some(BackupStep::CreateBackup { .. })));
}

/// The end of a Job is first that of its container. A second later the Job controller calls the Job complete, and its end
/// is then: the backup that was created in between counted as one from before the gap, and nothing was archived for a
/// quarter of an hour, until the next one was due. The scenario point-in-time found it, on a busy machine.
#[test]
fn backup_closes_the_gap_whenever_the_job_was_called_complete() {
    let mut observed = observed();
    let end = observed.now;
    observed.jobs = vec![job(1, ended(end, Some(archived(true))))];
    let plan = plan_archive(&observed);
    assert!(matches!(plan.step, Some(BackupStep::CreateBackup { .. })));
    let second = backup("second", end, BackupPhase::Uploaded);
    observed.backups.push(second);
    let later = end + SignedDuration::from_secs(2);
    observed.jobs = vec![job(1, ended(later, Some(archived(true))))];
    let plan = plan_archive(&observed);
    assert_eq!(deletes(plan.step.as_ref()), Some("nightly-archive-1"));
}

/// After a recovery from the loss of every volume nothing was archived for a minute, because a Job had failed while there
/// was no member.
#[test]
fn members_that_come_back_are_archived_soon() {
    let mut observed = observed();
    let failed = JobResult::Failed {
        class: FailureClass::Source,
        message: "no member answers".to_owned(),
    };
    observed.jobs = vec![job(1, ended(observed.now, Some(failed)))];
    observed.now += SignedDuration::from_secs(9);
    assert_eq!(plan_archive(&observed).step, None);
    observed.now += SignedDuration::from_secs(1);
    assert!(deletes(plan_archive(&observed).step.as_ref()).is_some());
}

/// A backup that is under way when the archive meets its gap may be the one behind which it goes on: another full one was
/// asked for, although the first had only to be waited for.
#[test]
fn gap_waits_for_the_backup_that_is_under_way() {
    let mut observed = observed();
    let began = observed.now - SignedDuration::from_mins(20);
    observed.jobs = vec![job(1, ended(observed.now, Some(archived(true))))];
    observed.jobs[0].created = began;
    let created = observed.now - SignedDuration::from_mins(22);
    observed
        .backups
        .push(backup("second", created, BackupPhase::Streaming));
    // Also one that somebody else asked for.
    for of_schedule in [true, false] {
        observed.backups[1].of_schedule = of_schedule;
        let plan = plan_archive(&observed);
        assert_eq!(plan.step, None);
        let message = plan.status.and_then(|it| it.message).unwrap_or_default();
        assert!(
            message.contains("EtcdBackup second is under way"),
            "{message}"
        );
    }

    observed.now += SignedDuration::from_mins(1);
    let stored = |observed: &mut ObservedSchedule, index: i64, at: Timestamp| {
        let status = &mut observed.backups[1].status;
        status.phase = BackupPhase::Uploaded;
        status.cluster_id = Some("9f".to_owned());
        status.raft_index = Some(index);
        let ready = ("True", "Uploaded", String::new());
        status.conditions = vec![ready_condition(&[], ready, None, at)];
    };
    let at = observed.now;
    // It ends before the archive does: nothing would be closed.
    stored(&mut observed, 900, at);
    let plan = plan_archive(&observed);
    assert!(
        matches!(plan.step, Some(BackupStep::CreateBackup { .. })),
        "{plan:?}"
    );
    // The Job has seen it, and met the gap all the same.
    stored(&mut observed, 2_000, began - SignedDuration::from_secs(1));
    let plan = plan_archive(&observed);
    assert!(
        matches!(plan.step, Some(BackupStep::CreateBackup { .. })),
        "{plan:?}"
    );
    stored(&mut observed, 2_000, at);
    let plan = plan_archive(&observed);
    assert_eq!(deletes(plan.step.as_ref()), Some("nightly-archive-1"));
    // Once: the next Job, created behind it, meets the gap as well.
    let next = at + SignedDuration::from_secs(30);
    observed.jobs = vec![job(2, ended(next, Some(archived(true))))];
    observed.jobs[0].created = at + SignedDuration::from_secs(10);
    observed.now = next;
    let plan = plan_archive(&observed);
    assert!(
        matches!(plan.step, Some(BackupStep::CreateBackup { .. })),
        "{plan:?}"
    );
}

#[test]
fn failed_job_is_repeated_after_a_minute() {
    let mut observed = observed();
    let failed = JobResult::Failed {
        class: FailureClass::Credentials,
        message: "its credentials have expired".to_owned(),
    };
    observed.jobs = vec![job(1, ended(observed.now, Some(failed)))];
    let plan = plan_archive(&observed);
    assert_eq!(plan.step, None);
    let (reason, text) = plan.problem.expect("a problem");
    assert_eq!(reason, "ArchiveFailed");
    assert!(text.contains("its credentials have expired"), "{text}");
    observed.now += SignedDuration::from_secs(60);
    assert!(deletes(plan_archive(&observed).step.as_ref()).is_some());
    // One whose time is over at once.
    observed.jobs = vec![job(1, ended(observed.now, Some(archived(false))))];
    let plan = plan_archive(&observed);
    assert!(deletes(plan.step.as_ref()).is_some());
    assert_eq!(plan.problem, None);
}

/// Whatever happens to its Jobs, in the end one runs that stores what is committed, and never more than one is created
/// at a time.
#[test]
fn archive_always_runs_in_the_end() {
    for seed in 0..300 {
        Sim::new(seed).run();
    }
}

struct Sim {
    observed: ObservedSchedule,
    random: Xoshiro256PlusPlus,
    /// The log still has what follows the newest backup or the archive.
    gap: bool,
    quiet: bool,
    trace: Vec<String>,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let mut observed = observed();
        observed.backups.clear();
        observed.spec.store_ref = local("store");
        Sim {
            observed,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            gap: false,
            quiet: false,
            trace: Vec::new(),
        }
    }

    fn run(mut self) {
        for _ in 0..60 {
            self.happens();
            self.looks();
        }
        self.quiet = true;
        for _ in 0..400 {
            self.happens();
            self.looks();
        }
        let running = |job: &&JobFacts| job.state == JobState::Running;
        let count = self.observed.jobs.iter().filter(running).count();
        assert_eq!(count, 1, "{:#?}", self.trace);
        assert!(!self.gap, "{:#?}", self.trace);
    }

    fn one_of(&mut self, of: u64) -> bool {
        self.random.next_u64().is_multiple_of(of)
    }

    fn happens(&mut self) {
        self.observed.now += SignedDuration::from_secs(20);
        let now = self.observed.now;
        for backup in &mut self.observed.backups {
            if backup.unfinished() {
                backup.status.phase = BackupPhase::Uploaded;
            }
        }
        if !self.quiet && self.one_of(9) {
            self.gap = true;
        }
        let mut jobs = std::mem::take(&mut self.observed.jobs);
        jobs.retain(|job| job.state != JobState::Deleting);
        for job in &mut jobs {
            let fails = !self.quiet && self.one_of(4);
            job.state = match &job.state {
                JobState::Waiting(_) if fails => continue,
                JobState::Waiting(_) => JobState::Running,
                // It finds a gap where it is, and one that a backup has closed is none.
                JobState::Running if self.gap && self.has_newer(job.created) => {
                    self.gap = false;
                    JobState::Running
                }
                JobState::Running if self.gap => ended(now, Some(archived(true))),
                JobState::Running if fails => ended(now, None),
                other => other.clone(),
            };
        }
        self.observed.jobs = jobs;
    }

    /// Whether a Job began behind a backup that is newer than the one before it.
    fn has_newer(&self, created: Timestamp) -> bool {
        let mut backups = self.observed.backups.iter();
        backups.any(|it| it.good() && it.created + SignedDuration::from_mins(2) > created)
    }

    fn looks(&mut self) {
        let plan = plan_archive(&self.observed);
        self.trace
            .push(format!("{} {:?}", self.observed.now, plan.step));
        self.observed.status.archive = plan.status;
        let now = self.observed.now;
        match plan.step {
            Some(BackupStep::CreateJob { attempt, .. }) => {
                let others = self.observed.jobs.iter();
                let living = others.filter(|it| it.state != JobState::Deleting).count();
                assert_eq!(living, 0, "{:#?}", self.trace);
                let mut job = job(attempt, JobState::Waiting(None));
                job.created = now;
                self.observed.jobs.push(job);
            }
            Some(BackupStep::DeleteJob { name }) => {
                let job = self.observed.jobs.iter_mut().find(|job| job.name == name);
                job.expect("it is there").state = JobState::Deleting;
            }
            Some(BackupStep::CreateBackup { name }) => {
                let known = self.observed.backups.iter().any(|it| it.name == name);
                if !known {
                    let created = backup(&name, now, BackupPhase::Pending);
                    self.observed.backups.push(created);
                }
            }
            Some(BackupStep::ApplyKey { .. }) | None => {}
            Some(other) => panic!("{other:?} is no step of an archive"),
        }
    }
}
