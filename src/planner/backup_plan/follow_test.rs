//! The plan of the Job of a cluster that follows another one: what can be missing, what asks for another Job, each way in
//! which one ends, and a small world in which Jobs end in any way.

use jiff::{SignedDuration, Timestamp};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::observed::{JobFacts, JobKind, JobState, NODE_LOST};
use super::restore::{RestoreFrom, plan_restore};
use super::restore_test::observed as restored;
use super::result::{FailureClass, Followed, JobResult};
use super::{BackupStep, FollowPlan, ObservedFollow, made_from, plan_follow};
use crate::crd::backups::LocalRef;
use crate::crd::{
    Bootstrap, Cutover, DataSource, EtcdClusterSpec, Follow, FollowPhase, FollowUser,
    FollowedCluster, Until, ValidatedCluster,
};

pub(super) fn now() -> Timestamp {
    "2026-03-01T00:00:00Z".parse().expect("a time")
}

pub(super) fn follow() -> Follow {
    Follow {
        endpoints: vec!["http://etcd-0:2379".into()],
        user: Some(FollowUser {
            secret_ref: LocalRef {
                name: "root".into(),
            },
        }),
        ..Follow::default()
    }
}

/// What a Job is made from.
pub(super) fn text(until: Until, secrets: &[(String, Option<String>)]) -> String {
    let follow = FollowedCluster {
        until,
        ..FollowedCluster::from(&follow())
    };
    made_from(&follow, secrets)
}

pub(super) fn secrets(version: &str) -> Vec<(String, Option<String>)> {
    vec![("root".into(), Some(version.into()))]
}

/// A cluster that follows another one, and has no Job yet.
pub(super) fn observed() -> ObservedFollow {
    let bootstrap = Bootstrap {
        follow: Some(follow()),
        ..Bootstrap::default()
    };
    ObservedFollow {
        cluster: Ok(ValidatedCluster {
            namespace: "prod".into(),
            name: "second".into(),
            uid: "uid".into(),
            life: "uid".into(),
            generation: 1,
            spec: EtcdClusterSpec {
                bootstrap: Some(bootstrap),
                ..EtcdClusterSpec::default()
            },
            storage_bytes: 1 << 30,
        }),
        phase: Some(FollowPhase::Following),
        deleting: false,
        waived: false,
        closing: false,
        recorded: false,
        revision: None,
        has_key: true,
        secrets: secrets("7"),
        jobs: vec![],
        now: now(),
    }
}

pub(super) fn job(attempt: u32, state: JobState) -> JobFacts {
    JobFacts {
        name: format!("second-follow-{attempt}"),
        kind: JobKind::Follow,
        attempt,
        recovery: None,
        created: now(),
        location: String::new(),
        interval: None,
        made_from: Some(text(Until::Stay, &secrets("7"))),
        state,
    }
}

pub(super) fn ended(at: Timestamp, result: Option<JobResult>) -> JobState {
    JobState::Ended {
        at,
        result,
        reason: "BackoffLimitExceeded".into(),
    }
}

pub(super) fn failed(class: FailureClass) -> Option<JobResult> {
    Some(JobResult::Failed {
        class,
        message: "why".into(),
    })
}

pub(super) fn followed() -> Followed {
    Followed {
        revision: 1207,
        frozen_unix_ms: 1_000,
        writable_unix_ms: 1_450,
    }
}

pub(super) fn creates(plan: &FollowPlan) -> Option<u32> {
    match plan.step {
        Some(BackupStep::CreateJob {
            kind: JobKind::Follow,
            attempt,
        }) => Some(attempt),
        _ => None,
    }
}

pub(super) fn deletes(plan: &FollowPlan) -> Option<&str> {
    match &plan.step {
        Some(BackupStep::DeleteJob { name }) => Some(name),
        _ => None,
    }
}

pub(super) fn cluster(observed: &mut ObservedFollow) -> &mut EtcdClusterSpec {
    &mut observed.cluster.as_mut().expect("it is valid").spec
}

/// Before the cluster is formed, its seed gets a snapshot of the living cluster as that of a restore gets a backup.
#[test]
fn seed_gets_a_snapshot_of_the_living_cluster() {
    let mut seeding = restored();
    seeding.source = Some(DataSource::Followed((&follow()).into()));
    (seeding.backup, seeding.store) = (None, None);
    let target = plan_restore(&seeding).target.expect("a Job");
    assert_eq!(target.from, RestoreFrom::Followed((&follow()).into()));
    assert_eq!(target.seed, "second-1");
}

#[test]
fn job_begins_once_everything_is_there() {
    let mut observed = observed();
    assert_eq!(creates(&plan_follow(&observed)), Some(1));
    observed.secrets[0].1 = None;
    let plan = plan_follow(&observed);
    assert_eq!(plan.step, None);
    assert!(plan.report.needs_user);
    assert_eq!(plan.report.message, "there is no Secret root: create it");
    observed.secrets = secrets("7");
    observed.has_key = false;
    assert_eq!(plan_follow(&observed).step, None);
    observed.has_key = true;
    cluster(&mut observed).paused = true;
    assert_eq!(plan_follow(&observed).step, None);
    cluster(&mut observed).paused = false;
    for phase in [None, Some(FollowPhase::Seeding)] {
        observed.phase = phase;
        assert_eq!(plan_follow(&observed).step, None, "{phase:?}");
    }
    observed.cluster = Err("it is invalid".into());
    assert!(plan_follow(&observed).report.needs_user);
}

/// The Job of the snapshot is not needed any more, and a cluster that sleeps has nobody to write to.
#[test]
fn jobs_that_are_not_needed_go() {
    let mut observed = observed();
    let seeding = JobFacts {
        name: "second-restore-1".into(),
        kind: JobKind::Restore,
        ..job(1, JobState::Running)
    };
    observed.jobs = vec![job(1, JobState::Running), seeding];
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-restore-1"));
    observed.jobs.pop();
    assert_eq!(plan_follow(&observed).step, None);
    cluster(&mut observed).replicas = 0;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    // A Job that runs goes on while the cluster is paused.
    cluster(&mut observed).paused = true;
    assert_eq!(plan_follow(&observed).step, None);
}

#[test]
fn other_settings_ask_for_another_job() {
    let mut observed = observed();
    observed.jobs = vec![job(1, JobState::Running)];
    assert_eq!(plan_follow(&observed).step, None);
    observed.secrets = secrets("8");
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    // Not while nobody takes writes.
    observed.phase = Some(FollowPhase::Frozen);
    assert_eq!(plan_follow(&observed).step, None);
    observed.phase = Some(FollowPhase::Following);
    observed.secrets = secrets("7");
    let mut asked = follow();
    asked.cutover = Cutover::WhenCaughtUp;
    cluster(&mut observed).bootstrap = Some(Bootstrap {
        follow: Some(asked),
        ..Bootstrap::default()
    });
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    // One that has failed with the earlier ones is repeated at once.
    observed.jobs = vec![job(1, ended(now(), failed(FailureClass::Credentials)))];
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.report.needs_user), (Some(2), false));
}

#[test]
fn pod_that_does_not_start_is_reported_and_made_anew() {
    let mut observed = observed();
    let why = "ErrImagePull: no such image".to_owned();
    observed.jobs = vec![job(1, JobState::Waiting(Some(why)))];
    let plan = plan_follow(&observed);
    let apply = BackupStep::ApplyKey {
        job: "second-follow-1".into(),
    };
    assert_eq!(plan.step, Some(apply));
    assert!(!plan.report.needs_user);
    observed.now += SignedDuration::from_mins(3);
    let plan = plan_follow(&observed);
    assert!(plan.report.needs_user);
    assert!(plan.report.message.contains("no such image"));
    observed.now += SignedDuration::from_mins(3);
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
}

#[test]
fn failure_is_repeated_and_reported_until_the_next_one_goes_on() {
    let mut observed = observed();
    observed.jobs = vec![job(1, ended(now(), failed(FailureClass::Credentials)))];
    observed.now += SignedDuration::from_secs(5);
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.report.needs_user), (None, true));
    assert_eq!(plan.report.failure.as_deref(), Some("why"));
    observed.now += SignedDuration::from_secs(10);
    assert_eq!(creates(&plan_follow(&observed)), Some(2));
    let begun = observed.now;
    observed.jobs.push(JobFacts {
        created: begun,
        ..job(2, JobState::Running)
    });
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.needs_user), (None, true));
    observed.now = begun + SignedDuration::from_secs(61);
    let plan = plan_follow(&observed);
    assert_eq!(deletes(&plan), Some("second-follow-1"));
    assert_eq!(plan.report.failure, None);
    observed.jobs.remove(0);
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.message.as_str()), (None, ""));
    // After twelve hours the next one has renewed credentials and the image of today.
    let at = begun + SignedDuration::from_hours(12);
    observed.now = at;
    observed.jobs[0].state = ended(at, failed(FailureClass::Other));
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.report.failure), (Some(3), None));
    observed.jobs[0].state = JobState::Ended {
        at,
        result: None,
        reason: NODE_LOST.into(),
    };
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-2"));
}

/// A cutover that comes to nothing closes the followed cluster for a minute each time.
#[test]
fn what_does_not_fit_is_not_tried_again_at_once() {
    let mut observed = observed();
    observed.jobs = vec![job(1, ended(now(), failed(FailureClass::Damaged)))];
    observed.now += SignedDuration::from_mins(9);
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.report.needs_user), (None, true));
    observed.now += SignedDuration::from_mins(1);
    assert_eq!(creates(&plan_follow(&observed)), Some(2));
}

/// What the Job reports of the cutover is in the status before the Job is deleted.
#[test]
fn cutover_is_recorded_before_its_job_goes() {
    let mut observed = observed();
    let done = Some(JobResult::Followed(followed()));
    observed.jobs = vec![job(1, ended(now(), done))];
    let plan = plan_follow(&observed);
    assert_eq!(plan.step, None, "the status says it in a moment");
    assert_eq!(plan.report.followed, Some(followed()));
    observed.phase = Some(FollowPhase::CutOver);
    let plan = plan_follow(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(plan.report.followed, Some(followed()));
    observed.recorded = true;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    observed.jobs.clear();
    assert_eq!(plan_follow(&observed), FollowPlan::default());
    // One that runs is about to say how long nobody took writes.
    observed.jobs = vec![job(1, JobState::Running)];
    assert_eq!(plan_follow(&observed).step, None);
    for result in [None, Some(JobResult::Followed(Followed::default()))] {
        observed.jobs = vec![job(1, ended(now(), result))];
        observed.recorded = false;
        let plan = plan_follow(&observed);
        assert_eq!(deletes(&plan), Some("second-follow-1"));
        assert_eq!(plan.report.followed, None, "an earlier one has done it");
    }
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
}

/// Jobs end in any way and Secrets change at any time: never two that run, and once nothing goes wrong any more, one runs
/// that was made from what is there.
#[test]
fn any_history_comes_to_one_job_that_runs() {
    for seed in 0..200 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut observed = observed();
        for round in 0..200 {
            observed.now += SignedDuration::from_secs(7);
            if round == 150 {
                observed.secrets = secrets("9");
            }
            let plan = plan_follow(&observed);
            carry_out(&mut observed, plan.step);
            let active =
                |job: &&JobFacts| matches!(job.state, JobState::Running | JobState::Waiting(_));
            let running = observed.jobs.iter().filter(active).count();
            assert!(running <= 1, "seed {seed}: {running} run");
            if round < 150 {
                disturb(&mut observed, &mut rng);
            } else {
                for job in &mut observed.jobs {
                    if matches!(job.state, JobState::Waiting(_)) {
                        job.state = JobState::Running;
                    }
                }
                observed.jobs.retain(|job| job.state != JobState::Deleting);
            }
        }
        let [job] = &observed.jobs[..] else {
            panic!("seed {seed}: {:?}", observed.jobs);
        };
        let wanted = text(Until::Stay, &observed.secrets);
        assert_eq!(job.state, JobState::Running, "seed {seed}");
        assert_eq!(job.made_from.as_ref(), Some(&wanted), "seed {seed}");
    }
}

fn carry_out(observed: &mut ObservedFollow, step: Option<BackupStep>) {
    match step {
        Some(BackupStep::CreateJob { attempt, .. }) => {
            assert!(observed.jobs.iter().all(|job| job.attempt != attempt));
            let made = JobFacts {
                created: observed.now,
                made_from: Some(text(Until::Stay, &observed.secrets)),
                ..job(attempt, JobState::Waiting(None))
            };
            observed.jobs.push(made);
        }
        Some(BackupStep::DeleteJob { name }) => {
            let mut jobs = observed.jobs.iter_mut();
            let job = jobs.find(|job| job.name == name).expect("it is there");
            assert_ne!(job.state, JobState::Deleting);
            job.state = JobState::Deleting;
        }
        Some(BackupStep::ApplyKey { .. }) | None => {}
        Some(other) => panic!("{other:?}"),
    }
}

fn disturb(observed: &mut ObservedFollow, rng: &mut Xoshiro256PlusPlus) {
    let now = observed.now;
    let version = rng.next_u64() % 3;
    match rng.next_u64() % 8 {
        0 => observed.secrets = secrets(&version.to_string()),
        1 => observed.secrets[0].1 = None,
        2 => observed.jobs.retain(|job| job.state != JobState::Deleting),
        way => {
            let Some(job) = observed.jobs.last_mut() else {
                return;
            };
            if job.state == JobState::Deleting || matches!(job.state, JobState::Ended { .. }) {
                return;
            }
            job.state = match way {
                3 => ended(now, failed(FailureClass::Source)),
                4 => ended(now, failed(FailureClass::Credentials)),
                5 => ended(now, None),
                _ => JobState::Running,
            };
        }
    }
}
