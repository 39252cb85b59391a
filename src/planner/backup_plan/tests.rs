//! The plan of backups and schedules over a small world: Jobs that run, fail, lose their result or are never started,
//! status writes that are lost, and an operator that starts again at any step.

use jiff::{SignedDuration, Timestamp};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::result::LIMIT;
use super::*;
use crate::crd::backups::{BackupPhase, EtcdBackupSpec, EtcdBackupStoreStatus, LocalRef};

pub(super) const LOCATION: &str = "s3://bucket/default/demo";

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(super) fn start() -> Timestamp {
    at("2026-03-01T00:00:00Z")
}

pub(super) fn local(name: &str) -> LocalRef {
    LocalRef {
        name: name.to_owned(),
    }
}

pub(super) fn cluster() -> ClusterFacts {
    ClusterFacts {
        version: Some("0.1.0".to_owned()),
        invalid: None,
        hibernated: false,
        follows: false,
        standby: false,
        own_since: None,
        has_key: true,
        archived: None,
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
                    recovery: None,
                    created: self.observed.now,
                    location: LOCATION.to_owned(),
                    interval: None,
                    made_from: None,
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
    let follows = ClusterFacts {
        follows: true,
        ..cluster()
    };
    world.observed.cluster = Some(follows);
    world.reconcile(false);
    assert!(
        world.message().contains("once it has cut over"),
        "{}",
        world.message()
    );
    world.observed.cluster = Some(ClusterFacts {
        follows: true,
        standby: true,
        ..cluster()
    });
    world.reconcile(false);
    assert!(
        world.message().contains("once it is promoted"),
        "{}",
        world.message()
    );
    assert_eq!(world.created, 0);
    world.observed.cluster = Some(cluster());
    world.reconcile(false);
    assert_eq!(world.created, 1);
}

/// Somebody asks for a backup of a cluster that follows another one for weeks: it waits, and its deadline is counted from
/// when there is something to save.
#[test]
fn backup_of_a_follower_waits_without_a_deadline() {
    let mut world = World::new(false);
    let follows = ClusterFacts {
        follows: true,
        ..cluster()
    };
    world.observed.cluster = Some(follows);
    world.observed.now += SignedDuration::from_hours(24 * 30);
    world.reconcile(false);
    assert_eq!(world.observed.status.phase, BackupPhase::Pending);
    assert!(
        world.message().contains("once it has cut over"),
        "{}",
        world.message()
    );
    let own_since = Some(world.observed.now);
    world.observed.now += SignedDuration::from_secs(10);
    world.observed.cluster = Some(ClusterFacts {
        own_since,
        ..cluster()
    });
    world.reconcile(false);
    assert_eq!(world.created, 1, "{}", world.message());
    // What has been its own for long promises nothing to a younger backup.
    let mut late = World::new(false);
    late.observed.cluster = Some(ClusterFacts {
        own_since: Some(late.observed.created - SignedDuration::from_hours(24)),
        ..cluster()
    });
    late.observed.store = None;
    late.observed.now += SignedDuration::from_hours(24);
    late.reconcile(false);
    assert_eq!(late.observed.status.phase, BackupPhase::Failed);
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

/// Who asked for a verification again before a long one had ended, each time anew, never got one: its result was thrown
/// away. It counts, by its own time, and the one that was asked for follows.
#[test]
fn verification_that_was_asked_for_again_meanwhile_counts() {
    let mut world = World::new(true);
    world.reconcile(false);
    world.end_job(Some(saved(start())));
    for _ in 0..3 {
        world.reconcile(false);
    }
    assert_eq!(world.created, 2, "the verification has begun");
    world.pass(1_200);
    world.observed.verification_requested = Some(world.observed.now);
    world.pass(60);
    world.end_job(Some(verified(
        world.observed.now - SignedDuration::from_secs(120),
        None,
    )));
    world.reconcile(false);
    assert_eq!(world.phase(), BackupPhase::Verified);
    for _ in 0..3 {
        world.reconcile(false);
    }
    assert_eq!(world.created, 3, "the one that was asked for");
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
