//! The plan of backups and schedules over a small world: Jobs that run, fail, lose their result or are never started,
//! status writes that are lost, and an operator that starts again at any step.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::result::LIMIT;
use super::*;
use crate::crd::backups::{
    BackupPhase, EtcdBackupScheduleSpec, EtcdBackupSpec, EtcdBackupStoreStatus, LocalRef,
    ScheduleRetention, VerificationStatus,
};

const LOCATION: &str = "s3://bucket/default/demo";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn start() -> Timestamp {
    at("2026-03-01T00:00:00Z")
}

fn local(name: &str) -> LocalRef {
    LocalRef {
        name: name.to_owned(),
    }
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        version: Some("0.1.0".to_owned()),
        invalid: None,
        hibernated: false,
        has_key: true,
    }
}

fn observed(verify: bool) -> ObservedBackup {
    ObservedBackup {
        spec: EtcdBackupSpec {
            cluster_ref: local("demo"),
            store_ref: local("store"),
            verify,
            rate_mib_per_second: None,
            deadline_seconds: EtcdBackupSpec::DEADLINE_SECONDS,
        },
        status: EtcdBackupStatus::default(),
        created: start(),
        verification_requested: None,
        gone: false,
        id: "b-1".to_owned(),
        cluster: Some(cluster()),
        store: Some(LOCATION.to_owned()),
        jobs: Vec::new(),
        now: start(),
    }
}

fn saved(at: Timestamp) -> JobResult {
    JobResult::Saved(Box::new(Saved {
        id: "b-1".to_owned(),
        started: at,
        completed: at + SignedDuration::from_secs(3),
        cluster_id: "abc".to_owned(),
        member_id: "def".to_owned(),
        revision: 42,
        raft_index: 50,
        raft_term: 2,
        hash: 7,
        keys: 12,
        size: 3 << 20,
        stored: 1 << 20,
        key_id: None,
    }))
}

fn verified(at: Timestamp, failure: Option<&str>) -> JobResult {
    JobResult::Verified(Verified {
        id: "b-1".to_owned(),
        at,
        seconds: 1.2,
        version: "0.1.0".to_owned(),
        failure: failure.map(str::to_owned),
    })
}

fn failed(class: FailureClass) -> JobResult {
    JobResult::Failed {
        class,
        message: "no".to_owned(),
    }
}

/// Carries a plan out as the operator and Kubernetes would; Jobs end as `ends` says.
struct World {
    observed: ObservedBackup,
    created: u32,
    /// The operator ends between the status and the step.
    ends: bool,
}

impl World {
    fn new(verify: bool) -> World {
        World {
            observed: observed(verify),
            created: 0,
            ends: false,
        }
    }

    /// One reconcile; `lost`: the status is not written.
    fn reconcile(&mut self, lost: bool) -> BackupPlan {
        let plan = plan_backup(&self.observed);
        if !lost {
            self.observed.status = plan.status.clone();
        }
        match &plan.step {
            _ if lost || self.ends => {}
            Some(BackupStep::CreateJob { kind, attempt }) => {
                let name = format!("b-{}-{attempt}", kind.as_str());
                let running = |job: &JobFacts| !matches!(job.state, JobState::Ended { .. });
                assert!(
                    !self.observed.jobs.iter().any(running),
                    "two Jobs at once: {:?}",
                    self.observed.jobs
                );
                assert!(
                    self.observed.jobs.iter().all(|job| job.name != name),
                    "{name} exists"
                );
                self.created += 1;
                self.observed.jobs.push(JobFacts {
                    name,
                    kind: *kind,
                    attempt: *attempt,
                    created: self.observed.now,
                    location: LOCATION.to_owned(),
                    state: JobState::Waiting(None),
                });
            }
            Some(BackupStep::DeleteJob { name }) => {
                self.observed.jobs.retain(|job| job.name != *name);
            }
            _ => {}
        }
        plan
    }

    fn end_job(&mut self, result: Option<JobResult>) {
        let now = self.observed.now;
        for job in &mut self.observed.jobs {
            if !matches!(job.state, JobState::Ended { .. }) {
                job.state = JobState::Ended {
                    at: now,
                    succeeded: matches!(result, Some(JobResult::Saved(_))),
                    result: result.clone(),
                    reason: "BackoffLimitExceeded".to_owned(),
                };
            }
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.observed.now += SignedDuration::from_secs(seconds);
    }

    fn phase(&self) -> BackupPhase {
        self.observed.status.phase
    }

    fn message(&self) -> &str {
        self.observed.status.message.as_deref().unwrap_or_default()
    }
}

#[test]
fn backup_is_saved_verified_and_tidied_up() {
    let mut world = World::new(true);
    world.reconcile(false);
    world.observed.jobs[0].state = JobState::Running;
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Streaming);
    world.pass(10);
    world.end_job(Some(saved(start())));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Uploaded);
    assert_eq!(world.observed.status.revision, Some(42));
    assert_eq!(world.observed.status.size.as_deref(), Some("3.0 MiB"));
    world.pass(10);
    world.end_job(Some(verified(world.observed.now, None)));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Verified);
    for _ in 0..3 {
        world.reconcile(false);
    }
    assert!(world.observed.jobs.is_empty(), "{:?}", world.observed.jobs);
    assert_eq!(world.created, 2);
    let ready = &world.observed.status.conditions[0];
    assert_eq!((&*ready.status, &*ready.reason), ("True", "Verified"));
}

/// plugin-barman-cloud#941: a store that had once refused its credentials stayed failed after they were renewed.
#[test]
fn renewed_credentials_heal_a_backup_and_its_store() {
    let mut world = World::new(false);
    let mut store = EtcdBackupStoreStatus::default();
    for _ in 0..4 {
        // The one before the last goes first.
        world.reconcile(false);
        world.reconcile(false);
        world.pass(5);
        let refused = failed(FailureClass::Credentials);
        let finding = StoreFinding {
            at: world.observed.now,
            result: refused.clone(),
        };
        store = plan_store(&store, &finding, Some(1));
        assert_eq!(store.conditions[0].reason, "CredentialsRejected");
        world.end_job(Some(refused));
        world.reconcile(false);
        assert!(
            world.message().contains("repeated at"),
            "{}",
            world.message()
        );
        world.pass(300);
    }
    assert_eq!(world.created, 4);
    assert!(world.observed.jobs.len() <= 2, "{:?}", world.observed.jobs);
    world.reconcile(false);
    world.reconcile(false);
    let end = saved(world.observed.now);
    world.end_job(Some(end.clone()));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Uploaded);
    let finding = StoreFinding {
        at: world.observed.now,
        result: end,
    };
    let healed = plan_store(&store, &finding, Some(1));
    assert_eq!(healed.conditions[0].status, "True");
    // An older one that is seen late changes nothing.
    let late = StoreFinding {
        at: start(),
        result: failed(FailureClass::Store),
    };
    assert_eq!(plan_store(&healed, &late, Some(1)), healed);
    // A member that gave no data says nothing about the store.
    let other = StoreFinding {
        at: world.observed.now + SignedDuration::from_secs(1),
        result: failed(FailureClass::Source),
    };
    assert_eq!(plan_store(&healed, &other, Some(1)), healed);
}

#[test]
fn backup_is_given_up_at_its_deadline_with_the_last_reason() {
    let mut world = World::new(false);
    for _ in 0..200 {
        world.reconcile(false);
        world.pass(150);
        world.end_job(Some(failed(FailureClass::Store)));
    }
    assert_eq!(world.phase(), BackupPhase::Failed);
    assert!(
        world.message().starts_with("given up after"),
        "{}",
        world.message()
    );
    let attempts = world.created;
    world.reconcile(false);
    assert_eq!(world.created, attempts);
    assert!(!world.observed.jobs.is_empty(), "their logs are kept");
}

#[test]
fn missing_things_are_named_and_waited_for() {
    let mut world = World::new(false);
    world.observed.store = None;
    world.reconcile(false);
    assert_eq!(world.message(), "there is no EtcdBackupStore store");
    world.observed.store = Some("file:///backups".to_owned());
    world.observed.cluster = None;
    world.reconcile(false);
    assert_eq!(world.message(), "there is no EtcdCluster demo");
    let hibernated = ClusterFacts {
        hibernated: true,
        ..cluster()
    };
    world.observed.cluster = Some(hibernated);
    world.reconcile(false);
    assert!(
        world.message().contains("hibernated"),
        "{}",
        world.message()
    );
    assert_eq!(world.created, 0);
    world.observed.cluster = Some(cluster());
    world.reconcile(false);
    assert_eq!(world.created, 1);
}

/// A pod that is killed reports nothing; the next attempt finds what the first one has finished.
#[test]
fn lost_result_is_repeated() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.end_job(None);
    world.reconcile(false);
    assert!(
        world.message().contains("without a result"),
        "{}",
        world.message()
    );
    world.pass(20);
    world.reconcile(false);
    assert_eq!(world.created, 2);
}

#[test]
fn backup_that_cannot_be_restored_has_failed() {
    let mut world = World::new(true);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    world.reconcile(false);
    world.end_job(Some(verified(start(), Some("hash"))));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Failed);
    assert_eq!(world.message(), "it cannot be restored: hash");
    assert_eq!(world.observed.status.revision, Some(42));
}

#[test]
fn backup_whose_objects_are_gone_says_so() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    world.reconcile(false);
    world.observed.gone = true;
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Failed);
    assert!(world.message().contains("any more"), "{}", world.message());
    // The same where a verification notices it.
    let mut world = World::new(true);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    world.reconcile(false);
    world.end_job(Some(failed(FailureClass::NotFound)));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Failed);
}

/// The clock of whoever asked was ahead of the Job's node, and the verification was repeated without end.
#[test]
fn verification_that_ends_before_it_was_asked_for_counts() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    for _ in 0..3 {
        world.reconcile(false);
    }
    let asked = start() + SignedDuration::from_secs(240);
    world.observed.verification_requested = Some(asked);
    world.reconcile(false);
    world.end_job(Some(verified(start(), None)));
    for _ in 0..5 {
        world.reconcile(false);
    }
    assert_eq!(world.created, 2);
    assert_eq!(world.phase(), BackupPhase::Verified);
}

/// A node that lost power left a Job that never ended, and with it a schedule that never saved again.
#[test]
fn job_that_does_not_end_is_given_up_at_the_deadline() {
    for state in [
        JobState::Running,
        JobState::Waiting(Some("ErrImagePull".to_owned())),
    ] {
        let mut world = World::new(false);
        world.reconcile(false);
        world.observed.jobs[0].state = state;
        world.pass(3_600);
        world.reconcile(false);
        assert_eq!(world.observed.jobs.len(), 1);
        world.pass(6 * 3_600);
        world.reconcile(false);
        assert_eq!(world.phase(), BackupPhase::Failed);
        assert!(world.message().starts_with("given up: Job b-save-1"));
        assert!(world.observed.jobs.is_empty(), "{:?}", world.observed.jobs);
    }
}

/// Deleted and created again under its name, a backup found the first one's Job, and called its data its own.
#[test]
fn result_of_another_backup_is_not_taken() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.observed.id = "b-2".to_owned();
    world.end_job(Some(saved(start())));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Pending);
    world.pass(20);
    world.reconcile(false);
    assert_eq!(world.created, 2);
}

/// What is not found where the store is now says nothing about a backup that was saved where it was before.
#[test]
fn store_that_was_edited_makes_no_backup_gone() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    for _ in 0..3 {
        world.reconcile(false);
    }
    world.observed.store = Some("s3://other/default/demo".to_owned());
    world.observed.verification_requested = Some(start());
    world.reconcile(false);
    assert_eq!((world.phase(), world.created), (BackupPhase::Uploaded, 1));
    assert!(
        world.message().contains("cannot be verified"),
        "{}",
        world.message()
    );
    // A Job that began there, before the edit was undone.
    world.observed.store = Some(LOCATION.to_owned());
    world.reconcile(false);
    world.observed.jobs[0].location = "s3://other/default/demo".to_owned();
    world.end_job(Some(failed(FailureClass::NotFound)));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Uploaded);
}

/// Whatever is lost on the way, a backup comes to rest: stored, or given up with a reason; and it is only ever called
/// verified if a Job has said so of what is stored.
#[test]
fn random_faults_come_to_rest() {
    for seed in 0..2_000 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = |sides: u64| random.next_u64() % sides;
        let mut world = World::new(below(2) == 0);
        world.observed.spec.deadline_seconds = 3_600;
        let (mut stored, mut proved) = (false, false);
        for _ in 0..600 {
            if below(20) == 0 {
                world.observed.cluster = (below(2) == 0).then(cluster);
            }
            world.ends = below(4) == 0;
            world.reconcile(below(4) == 0);
            world.pass(1 + below(60) as i64);
            let job = world
                .observed
                .jobs
                .iter()
                .find(|job| !matches!(job.state, JobState::Ended { .. }));
            let kind = job.map(|job| job.kind);
            let now = world.observed.now;
            match (kind, below(6)) {
                (Some(JobKind::Save), 0) => {
                    stored = true;
                    world.end_job(Some(saved(now)));
                }
                (Some(JobKind::Verify), 0) => {
                    proved = true;
                    world.end_job(Some(verified(now, None)));
                }
                (Some(_), 1) => world.end_job(None),
                (Some(_), 2) => world.end_job(Some(failed(FailureClass::Store))),
                (Some(_), 3) => world.observed.jobs.clear(),
                _ => {}
            }
            let phase = world.phase();
            assert!(stored || phase != BackupPhase::Uploaded, "seed {seed}");
            assert!(proved || phase != BackupPhase::Verified, "seed {seed}");
        }
        world.observed.cluster = Some(cluster());
        world.ends = false;
        for _ in 0..20 {
            world.pass(600);
            world.reconcile(false);
            world.end_job(Some(failed(FailureClass::Store)));
        }
        let phase = world.phase();
        let rests = plan_backup(&world.observed);
        assert!(rests.step.is_none(), "seed {seed}: {rests:?}");
        let pending = matches!(phase, BackupPhase::Pending | BackupPhase::Streaming);
        assert!(!pending, "seed {seed}: {:?}", world.observed.status);
        assert!(phase != BackupPhase::Failed || !world.message().is_empty());
    }
}

fn schedule(pattern: &str) -> ObservedSchedule {
    ObservedSchedule {
        name: "nightly".to_owned(),
        uid: "uid".to_owned(),
        generation: Some(1),
        spec: EtcdBackupScheduleSpec {
            cluster_ref: local("demo"),
            store_ref: local("store"),
            schedule: pattern.to_owned(),
            time_zone: "UTC".to_owned(),
            suspend: false,
            jitter_seconds: 0,
            retention: ScheduleRetention::default(),
            verify_every_seconds: 604_800,
            rate_mib_per_second: None,
        },
        status: EtcdBackupScheduleStatus::default(),
        created: start(),
        zone: Some(TimeZone::UTC),
        cluster: Some(cluster()),
        store: Some(LOCATION.to_owned()),
        rival: None,
        backups: Vec::new(),
        jobs: Vec::new(),
        now: start(),
    }
}

fn backup(name: &str, taken: Timestamp, phase: BackupPhase) -> BackupFacts {
    BackupFacts {
        name: name.to_owned(),
        of_schedule: true,
        created: taken,
        status: EtcdBackupStatus {
            phase,
            id: Some(format!("{name}-id")),
            url: Some(LOCATION.to_owned()),
            start_time: Some(Time(taken)),
            completion_time: Some(Time(taken)),
            revision: Some(5),
            ..EtcdBackupStatus::default()
        },
        verification_requested: None,
        gone: false,
    }
}

fn prune_job(state: JobState) -> JobFacts {
    JobFacts {
        name: "nightly-prune-1".to_owned(),
        kind: JobKind::Prune,
        attempt: 1,
        created: start(),
        location: LOCATION.to_owned(),
        state,
    }
}

#[test]
fn schedule_creates_one_backup_for_the_newest_time_that_is_over() {
    let mut observed = schedule("0 2 * * *");
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(
        plan.status.next_schedule_time,
        Some(Time(at("2026-03-01T02:00:00Z")))
    );
    // The operator was away for four days: one backup, not four.
    observed.now = at("2026-03-05T09:00:00Z");
    let plan = plan_schedule(&observed);
    let name = "nightly-202603050200".to_owned();
    assert_eq!(plan.step, Some(BackupStep::CreateBackup { name }));
    observed.status = plan.status;
    assert_eq!(plan_schedule(&observed).step, None);
}

#[test]
fn schedule_waits_for_a_backup_that_is_under_way() {
    let mut observed = schedule("@hourly");
    let unfinished = backup("nightly-0", start(), BackupPhase::Streaming);
    observed.backups.push(unfinished);
    observed.now = at("2026-03-01T01:00:01Z");
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    let message = plan.status.message.unwrap_or_default();
    assert!(message.contains("waits: EtcdBackup nightly-0"), "{message}");
    observed.backups[0].status.phase = BackupPhase::Failed;
    let plan = plan_schedule(&observed);
    assert!(matches!(plan.step, Some(BackupStep::CreateBackup { .. })));
    let ready = &plan.status.conditions[0];
    assert_eq!(ready.reason, "BackupFailed", "{ready:?}");
}

#[test]
fn daylight_saving_time_skips_and_repeats_no_backup() {
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    let calendar = Calendar::new("30 2 * * *", zone, 0, "").expect("a pattern");
    let mut after = at("2026-03-27T12:00:00Z");
    let mut times = Vec::new();
    for _ in 0..3 {
        after = calendar.next(after).expect("a time");
        times.push(after.to_string());
    }
    // On the 29th the hour from 2 to 3 does not exist.
    assert_eq!(times[0], "2026-03-28T01:30:00Z");
    assert!(times[1].starts_with("2026-03-29T01:"), "{times:?}");
    assert_eq!(times[2], "2026-03-30T00:30:00Z");
    let first = calendar.next(at("2026-10-24T12:00:00Z")).expect("a time");
    let second = calendar.next(first).expect("a time");
    assert_eq!(second.to_string(), "2026-10-26T01:30:00Z", "after {first}");
}

#[test]
fn jitter_is_the_same_each_time_and_within_its_bound() {
    let exact = Calendar::new("0 * * * *", TimeZone::UTC, 0, "").expect("a pattern");
    let mut delays = std::collections::BTreeSet::new();
    for uid in 0..50 {
        let uid = uid.to_string();
        let delayed = Calendar::new("0 * * * *", TimeZone::UTC, 600, &uid).expect("a pattern");
        let after = at("2026-03-01T00:30:00Z");
        let (first, planned) = (delayed.next(after), exact.next(after));
        let delay = first
            .expect("a time")
            .duration_since(planned.expect("a time"));
        assert!((0..=600).contains(&delay.as_secs()), "{delay:?}");
        let later = delayed
            .next(after + SignedDuration::from_hours(1))
            .expect("a time");
        assert_eq!(later.as_second() % 3600, delay.as_secs());
        // Due with the delay, and under the time of the pattern.
        let due = delayed.due(after, later).expect("a time");
        assert_eq!(due, Some(at("2026-03-01T02:00:00Z")));
        delays.insert(delay.as_secs());
    }
    assert!(delays.len() > 30, "{delays:?}");
}

#[test]
fn wrong_patterns_and_zones_are_said() {
    for (pattern, zone, text) in [
        ("61 * * * *", Some(TimeZone::UTC), "no pattern of cron"),
        ("0 0 30 2 *", Some(TimeZone::UTC), "no time in the coming"),
        ("@hourly", None, "no time zone"),
        ("* * * * * *", Some(TimeZone::UTC), "no pattern of cron"),
    ] {
        let mut observed = schedule(pattern);
        observed.zone = zone;
        let plan = plan_schedule(&observed);
        let ready = &plan.status.conditions[0];
        assert_eq!(
            (&*ready.status, &*ready.reason),
            ("False", "InvalidSchedule")
        );
        assert!(ready.message.contains(text), "{pattern}: {}", ready.message);
    }
}

#[test]
fn suspended_schedule_does_nothing() {
    let mut observed = schedule("@hourly");
    observed.spec.suspend = true;
    observed.now = at("2026-03-02T00:00:00Z");
    let good = backup("nightly-0", start(), BackupPhase::Uploaded);
    observed.backups.push(good);
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(plan.status.message.as_deref(), Some("suspended"));
    assert!(plan.status.last_success.is_some());
}

/// The resources follow the store: what the retention deleted goes, and what somebody else deleted is marked, unless
/// the list was too long to say so.
#[test]
fn prune_is_accounted_for() {
    let mut observed = schedule("@yearly");
    let names = ["a", "b", "c"];
    observed.backups = names
        .map(|name| backup(name, start(), BackupPhase::Uploaded))
        .into();
    let plan = plan_schedule(&observed);
    let create = BackupStep::CreateJob {
        kind: JobKind::Prune,
        attempt: 1,
    };
    assert_eq!(plan.step, Some(create));
    let end = start() + SignedDuration::from_hours(1);
    observed.now = end;
    let pruned = |shortened| JobState::Ended {
        at: end,
        succeeded: true,
        result: Some(JobResult::Pruned(Pruned {
            deleted: vec!["a-id".to_owned()],
            kept: vec!["b-id".to_owned()],
            listed: Some(end),
            shortened,
        })),
        reason: String::new(),
    };
    observed.jobs = vec![prune_job(pruned(false))];
    let delete = BackupStep::DeleteBackup {
        backup: "a".to_owned(),
    };
    assert_eq!(plan_schedule(&observed).step, Some(delete));
    observed.backups.remove(0);
    let gone = BackupStep::MarkGone {
        backup: "c".to_owned(),
    };
    assert_eq!(plan_schedule(&observed).step, Some(gone.clone()));
    observed.jobs = vec![prune_job(pruned(true))];
    assert_ne!(plan_schedule(&observed).step, Some(gone.clone()));
    // The store was edited: what was saved elsewhere is not expected here.
    observed.jobs = vec![prune_job(pruned(false))];
    observed.backups[1].status.url = Some("s3://before/default/demo".to_owned());
    assert_ne!(plan_schedule(&observed).step, Some(gone));
    observed.backups[1].status.url = observed.store.clone();
    observed.jobs = vec![prune_job(pruned(false))];
    observed.backups[1].gone = true;
    let plan = plan_schedule(&observed);
    assert!(matches!(plan.step, Some(BackupStep::DeleteJob { .. })));
    assert_eq!(plan.status.last_prune_time, Some(Time(end)));
    observed.status = plan.status;
    observed.jobs.clear();
    // The next one follows the next backup.
    assert!(!matches!(
        plan_schedule(&observed).step,
        Some(BackupStep::CreateJob { .. })
    ));
}

#[test]
fn newest_backup_is_verified_once_a_week_and_after_each_version() {
    let mut observed = schedule("@yearly");
    observed.status.last_prune_time = Some(Time(start()));
    observed.backups = vec![
        backup(
            "old",
            start() - SignedDuration::from_hours(5),
            BackupPhase::Uploaded,
        ),
        backup("new", start(), BackupPhase::Uploaded),
        backup(
            "bad",
            start() + SignedDuration::from_hours(1),
            BackupPhase::Failed,
        ),
    ];
    let ask = BackupStep::RequestVerification {
        backup: "new".to_owned(),
    };
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, Some(ask.clone()));
    let last = plan.status.last_success.map(|last| last.name);
    assert_eq!(last.as_deref(), Some("new"));
    observed.backups[1].verification_requested = Some(start());
    assert_eq!(plan_schedule(&observed).step, None, "it was asked for");
    observed.backups[1].status.verification = Some(VerificationStatus {
        time: Time(start() + SignedDuration::from_secs(9)),
        seconds: 4,
        version: "0.1.0".to_owned(),
    });
    observed.backups[1].status.phase = BackupPhase::Verified;
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(plan.status.recovery_seconds, Some(4));
    observed.now = start() + SignedDuration::from_hours(24 * 7 + 1);
    assert_eq!(plan_schedule(&observed).step, Some(ask.clone()));
    // Not again and again while the members are of two versions.
    observed.now = start() + SignedDuration::from_mins(50);
    observed.cluster = Some(ClusterFacts {
        version: Some("0.2.0".to_owned()),
        ..cluster()
    });
    assert_eq!(plan_schedule(&observed).step, None);
    observed.now = start() + SignedDuration::from_mins(70);
    assert_eq!(plan_schedule(&observed).step, Some(ask.clone()));
    // One that was given up is said, and asked for again.
    observed.backups.remove(2);
    let asked = observed.now;
    observed.backups[1].verification_requested = Some(asked);
    assert_eq!(plan_schedule(&observed).step, None);
    observed.now = asked + SignedDuration::from_hours(7);
    let plan = plan_schedule(&observed);
    assert_eq!(plan.status.conditions[0].reason, "VerificationFailed");
    assert_eq!(plan.step, Some(ask));
    observed.spec.verify_every_seconds = 0;
    assert_eq!(plan_schedule(&observed).step, None);
}

/// Ready was True while every backup failed: the next one was always under way already.
#[test]
fn failed_backup_is_said_while_the_next_one_is_under_way() {
    let mut observed = schedule("@hourly");
    observed.backups = vec![
        backup("first", start(), BackupPhase::Failed),
        backup(
            "second",
            start() + SignedDuration::from_hours(1),
            BackupPhase::Pending,
        ),
    ];
    observed.backups[0].status.message = Some("no store".to_owned());
    observed.now = start() + SignedDuration::from_mins(70);
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    let ready = &plan.status.conditions[0];
    assert_eq!((&*ready.status, &*ready.reason), ("False", "BackupFailed"));
    assert_eq!(ready.message, "EtcdBackup first: no store");
}

/// Backups that take as long as their interval left no moment for the retention.
#[test]
fn retention_comes_before_the_next_backup() {
    let mut observed = schedule("@hourly");
    observed.backups = vec![backup("first", start(), BackupPhase::Uploaded)];
    observed.now = start() + SignedDuration::from_mins(90);
    let create = BackupStep::CreateJob {
        kind: JobKind::Prune,
        attempt: 1,
    };
    assert_eq!(plan_schedule(&observed).step, Some(create));
    let job = JobFacts {
        created: observed.now,
        ..prune_job(JobState::Running)
    };
    observed.jobs = vec![job];
    observed.backups[0].verification_requested = Some(observed.now);
    let plan = plan_schedule(&observed);
    assert!(
        matches!(plan.step, Some(BackupStep::CreateBackup { .. })),
        "{plan:?}"
    );
}

/// It was False for the moment in which the next attempt was asked for.
#[test]
fn failed_verification_is_said_until_one_succeeds() {
    let mut observed = schedule("@yearly");
    observed.status.last_prune_time = Some(Time(start()));
    observed.backups = vec![backup("a", start(), BackupPhase::Uploaded)];
    observed.backups[0].verification_requested = Some(start());
    observed.now = start() + SignedDuration::from_hours(7);
    let plan = plan_schedule(&observed);
    assert_eq!(plan.status.conditions[0].reason, "VerificationFailed");
    observed.status = plan.status;
    observed.backups[0].verification_requested = Some(observed.now);
    observed.now += SignedDuration::from_mins(5);
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(plan.status.conditions[0].reason, "VerificationFailed");
    observed.backups[0].status.phase = BackupPhase::Verified;
    observed.backups[0].status.verification = Some(VerificationStatus {
        time: Time(observed.now),
        seconds: 1,
        version: "0.1.0".to_owned(),
    });
    let plan = plan_schedule(&observed);
    assert_eq!(plan.status.conditions[0].status, "True");
}

/// A request with a time of last year, as in a manifest, or that is no time, was given up without one attempt.
#[test]
fn old_request_for_a_verification_is_tried() {
    let mut world = World::new(false);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    for _ in 0..3 {
        world.reconcile(false);
    }
    world.pass(24 * 3_600);
    world.observed.verification_requested = Some(Timestamp::UNIX_EPOCH);
    world.reconcile(false);
    assert_eq!(world.created, 2);
    world.end_job(Some(verified(world.observed.now, None)));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Verified);
}

/// A schedule every hour that keeps three would delete the weekly backups of another one.
#[test]
fn two_schedules_of_one_store_delete_nothing() {
    let mut observed = schedule("@yearly");
    observed.backups = vec![backup("a", start(), BackupPhase::Uploaded)];
    observed.backups[0].verification_requested = Some(start());
    observed.rival = Some("weekly".to_owned());
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    let ready = &plan.status.conditions[0];
    assert_eq!(ready.reason, "SharedStore");
    assert!(ready.message.contains("weekly"), "{}", ready.message);
}

/// A store that was away for a night left a resource an hour behind, for ever.
#[test]
fn failed_backups_do_not_pile_up() {
    let mut observed = schedule("@yearly");
    let failed = |hour: i64| {
        let at = start() + SignedDuration::from_hours(hour);
        let mut failed = backup(&format!("b{hour}"), at, BackupPhase::Failed);
        failed.status.completion_time = None;
        failed
    };
    observed.backups = (0..5).map(failed).collect();
    // This one is stored, and damaged: the retention decides about it.
    observed
        .backups
        .push(backup("damaged", start(), BackupPhase::Failed));
    let delete = |name: &str| BackupStep::DeleteBackup {
        backup: name.to_owned(),
    };
    assert_eq!(plan_schedule(&observed).step, Some(delete("b1")));
    observed.backups.remove(1);
    assert_eq!(plan_schedule(&observed).step, Some(delete("b0")));
    observed.backups.remove(0);
    assert_eq!(plan_schedule(&observed).step, None);
}

#[test]
fn results_survive_the_way_and_fit() {
    let all = [
        saved(start()),
        verified(start(), Some("why")),
        failed(FailureClass::Credentials),
    ];
    for result in all {
        assert_eq!(JobResult::read(&result.line()), Some(result));
    }
    let name = |number: usize| format!("nightly-2026030102{number:04}-0123abcd");
    let many = JobResult::Pruned(Pruned {
        deleted: (0..90).map(name).collect(),
        kept: (90..400).map(name).collect(),
        listed: Some(start()),
        shortened: false,
    });
    let line = many.line();
    assert!(line.len() <= LIMIT, "{}", line.len());
    let Some(JobResult::Pruned(read)) = JobResult::read(&line) else {
        panic!("{line}");
    };
    assert!(read.shortened && read.deleted.len() > 50, "{read:?}");
    let long = JobResult::Failed {
        class: FailureClass::Other,
        message: "\u{1}".repeat(9000),
    };
    assert!(long.line().len() <= LIMIT);
    // A class of a newer version.
    let newer = r#"{"result":"failed","class":"fullMoon","message":"?"}"#;
    let other = JobResult::Failed {
        class: FailureClass::Other,
        message: "?".to_owned(),
    };
    assert_eq!(JobResult::read(newer), Some(other));
    assert_eq!(JobResult::read("Killed"), None);
}
