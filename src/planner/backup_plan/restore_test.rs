//! The plan of a restore: each thing that can be missing, and a small world in which Jobs end in any way.

use jiff::{SignedDuration, Timestamp};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::observed::{JobFacts, JobKind, JobState, NODE_LOST};
use super::restore::{
    NamedBackup, ObservedRestore, RestoreFrom, RestoreTarget, StorePlace, plan_restore,
};
use super::result::{FailureClass, JobResult, Restored};
use super::{BackupStep, RestorePlan};
use crate::crd::backups::{BackupPhase, EtcdBackupStatus, LocalRef};
use crate::crd::{DataSource, EtcdClusterSpec, Restore, Survivor, ValidatedCluster};

fn now() -> Timestamp {
    "2026-03-01T00:00:00Z".parse().expect("a time")
}

fn named(name: &str) -> Option<LocalRef> {
    Some(LocalRef { name: name.into() })
}

/// A cluster that waits for the data of a backup which is stored.
pub(super) fn observed() -> ObservedRestore {
    ObservedRestore {
        cluster: Ok(ValidatedCluster {
            namespace: "prod".into(),
            name: "second".into(),
            uid: "uid".into(),
            life: "uid".into(),
            generation: 1,
            spec: EtcdClusterSpec::default(),
            storage_bytes: 1 << 30,
        }),
        source: Some(DataSource::Stored(Restore {
            backup_ref: named("nightly-1"),
            ..Restore::default()
        })),
        recovery: None,
        formed: false,
        seed: Some("second-1".into()),
        backup: Some(NamedBackup {
            cluster: "main".into(),
            store: "bucket".into(),
            status: EtcdBackupStatus {
                phase: BackupPhase::Verified,
                id: Some("nightly-1-abcd".into()),
                url: Some("s3://b/prod/main".into()),
                ..EtcdBackupStatus::default()
            },
        }),
        store: Some(StorePlace {
            name: "bucket".into(),
            location: "s3://b/prod/main".into(),
        }),
        jobs: vec![],
        now: now(),
    }
}

fn job(attempt: u32, state: JobState) -> JobFacts {
    JobFacts {
        name: format!("second-restore-{attempt}"),
        kind: JobKind::Restore,
        attempt,
        recovery: None,
        created: now(),
        location: String::new(),
        interval: None,
        made_from: None,
        state,
    }
}

fn failed(class: FailureClass) -> JobState {
    JobState::Ended {
        at: now(),
        result: Some(JobResult::Failed {
            class,
            message: "why".into(),
        }),
        reason: String::new(),
    }
}

fn sent(at: Timestamp) -> JobState {
    JobState::Ended {
        at,
        result: Some(JobResult::Restored(Restored {
            path: "prod/main/nightly-1-abcd".into(),
            at,
            seconds: 3,
            sha256: "abc".into(),
            revision: 7,
            keys: 1,
            size: 4096,
            raft_index: None,
            as_of: None,
        })),
        reason: String::new(),
    }
}

fn creates(plan: &RestorePlan) -> Option<u32> {
    match plan.step {
        Some(BackupStep::CreateJob { attempt, .. }) => Some(attempt),
        _ => None,
    }
}

fn message(plan: &RestorePlan) -> (&str, bool) {
    let report = plan.report.as_ref().expect("it is not over");
    (&report.message, report.needs_user)
}

#[test]
fn job_reads_the_backup_where_it_was_saved() {
    let plan = plan_restore(&observed());
    assert_eq!(creates(&plan), Some(1));
    let target = |path: &str| {
        let from = RestoreFrom::Store {
            store: "bucket".into(),
            path: path.into(),
            at: None,
        };
        let seed = "second-1".into();
        Some(RestoreTarget { from, seed })
    };
    assert_eq!(plan.target, target("prod/main/nightly-1-abcd"));
    let mut of_store = observed();
    of_store.source = Some(DataSource::Stored(Restore {
        store_ref: named("bucket"),
        path: Some("old/etcd.db".into()),
        ..Restore::default()
    }));
    of_store.backup = None;
    assert_eq!(plan_restore(&of_store).target, target("old/etcd.db"));
}

#[test]
fn what_is_missing_is_said() {
    type Break = fn(&mut ObservedRestore);
    let status = |it: &mut ObservedRestore, change: fn(&mut EtcdBackupStatus)| {
        change(&mut it.backup.as_mut().expect("a backup").status);
    };
    let cases: [(Break, &str, bool); 9] = [
        (|it| it.seed = None, "the cluster is not set up yet", false),
        (
            |it| it.store = None,
            "there is no EtcdBackupStore bucket",
            true,
        ),
        (
            |it| it.backup = None,
            "there is no EtcdBackup nightly-1",
            true,
        ),
        (|it| it.cluster = Err("bad".into()), "bad", true),
        (
            |it| it.cluster.as_mut().expect("valid").spec.paused = true,
            "the cluster is paused",
            false,
        ),
        (
            |it| it.cluster.as_mut().expect("valid").spec.replicas = 0,
            "the cluster hibernates",
            false,
        ),
        (
            |it| {
                it.store.as_mut().expect("a store").location = "s3://c/prod/main".into();
            },
            "was saved in s3://b/prod/main, and EtcdBackupStore bucket is s3://c/prod/main now",
            true,
        ),
        (
            |it| it.backup.as_mut().expect("a backup").status = EtcdBackupStatus::default(),
            "the backup is not stored yet",
            false,
        ),
        (|_| {}, "the backup has failed: it is gone", true),
    ];
    for (breaks, words, needs_user) in cases {
        let mut observed = observed();
        breaks(&mut observed);
        if words.contains("has failed") {
            status(&mut observed, |it| {
                it.phase = BackupPhase::Failed;
                it.message = Some("it is gone".into());
            });
        }
        let plan = plan_restore(&observed);
        assert_eq!(plan.step, None, "{words}");
        let (text, needs) = message(&plan);
        assert!(text.contains(words), "{text}");
        assert_eq!(needs, needs_user, "{words}");
        assert!(plan.again_ms.is_some(), "{words}");
    }
}

#[test]
fn failed_job_is_repeated_after_a_pause() {
    let mut observed = observed();
    observed.jobs = vec![job(1, failed(FailureClass::NotFound))];
    let plan = plan_restore(&observed);
    assert_eq!(message(&plan), ("attempt 1 failed: why", true));
    assert_eq!((plan.step, plan.again_ms), (None, Some(5_000)));
    observed.now = now() + SignedDuration::from_secs(5);
    assert_eq!(creates(&plan_restore(&observed)), Some(2));
    observed.jobs.push(job(2, failed(FailureClass::Store)));
    observed.now = now() + SignedDuration::from_secs(10);
    let oldest = BackupStep::DeleteJob {
        name: "second-restore-1".into(),
    };
    assert_eq!(plan_restore(&observed).step, Some(oldest));
    observed.jobs.remove(0);
    assert_eq!(creates(&plan_restore(&observed)), Some(3));
}

/// The seed's volume was exchanged after the Job had sent everything.
#[test]
fn data_are_sent_again_if_the_seed_does_not_form_the_cluster() {
    let mut observed = observed();
    observed.jobs = vec![job(1, sent(now()))];
    let plan = plan_restore(&observed);
    assert_eq!(
        message(&plan),
        ("4.0 KiB of revision 7 were sent in 3 s", false)
    );
    observed.now = now() + SignedDuration::from_mins(16);
    assert_eq!(creates(&plan_restore(&observed)), Some(2));
}

/// While the next attempt ran, the reason of the last one was gone, and Stalled came and went.
#[test]
fn last_failure_is_known_while_the_next_job_runs() {
    let mut observed = observed();
    observed.jobs = vec![job(1, failed(FailureClass::Key)), job(2, JobState::Running)];
    let plan = plan_restore(&observed);
    let (text, needs_user) = message(&plan);
    assert!(needs_user);
    assert!(
        text.ends_with("; before that, attempt 1 failed: why"),
        "{text}"
    );
    observed.jobs[0] = job(1, failed(FailureClass::Store));
    assert!(!message(&plan_restore(&observed)).1);
}

/// It would keep the references of the store as it was, for as long as a Job may last.
#[test]
fn job_that_does_not_start_is_created_anew() {
    let mut observed = observed();
    let why = JobState::Waiting(Some("CreateContainerConfigError: no Secret".into()));
    observed.jobs = vec![job(1, why)];
    let plan = plan_restore(&observed);
    assert!(matches!(plan.step, Some(BackupStep::ApplyKey { .. })));
    assert!(!message(&plan).1);
    observed.now = now() + SignedDuration::from_mins(3);
    assert!(message(&plan_restore(&observed)).1);
    observed.now = now() + SignedDuration::from_mins(6);
    let plan = plan_restore(&observed);
    assert!(matches!(plan.step, Some(BackupStep::DeleteJob { .. })));
    assert!(message(&plan).0.contains("no Secret"));
}

#[test]
fn hibernating_cluster_has_no_running_job() {
    let mut observed = observed();
    observed.cluster.as_mut().expect("valid").spec.replicas = 0;
    observed.jobs = vec![job(1, JobState::Running)];
    let plan = plan_restore(&observed);
    assert!(matches!(plan.step, Some(BackupStep::DeleteJob { .. })));
}

#[test]
fn jobs_go_once_the_cluster_is_formed() {
    let mut observed = observed();
    observed.formed = true;
    observed.jobs = vec![job(1, sent(now())), job(2, JobState::Running)];
    for left in [1, 0] {
        let plan = plan_restore(&observed);
        assert_eq!(plan.report, None);
        assert!(matches!(plan.step, Some(BackupStep::DeleteJob { .. })));
        observed.jobs.truncate(left);
        observed.jobs.iter_mut().for_each(|job| job.attempt = 9);
    }
    assert_eq!(plan_restore(&observed).step, None);
}

/// A cluster whose next incarnation gets the data of a member of the last one.
fn recovered() -> ObservedRestore {
    let survivor = Survivor {
        member: "second-3".into(),
        ..Survivor::default()
    };
    ObservedRestore {
        source: Some(DataSource::Survivor(survivor)),
        recovery: Some("recovery-1".into()),
        seed: Some("second-4".into()),
        backup: None,
        store: None,
        ..observed()
    }
}

fn job_for(recovery: Option<&str>, name: &str, state: JobState) -> JobFacts {
    JobFacts {
        name: name.into(),
        recovery: recovery.map(str::to_owned),
        ..job(1, state)
    }
}

#[test]
fn survivor_needs_no_store() {
    let plan = plan_restore(&recovered());
    assert_eq!(creates(&plan), Some(1));
    let target = plan.target.expect("a target");
    assert_eq!(target.seed, "second-4");
    assert!(matches!(target.from, RestoreFrom::Survivor(it) if it.member == "second-3"));
}

/// The Job that gave the first incarnation its data, or that of a recovery that was deleted, has sent nothing that counts.
#[test]
fn jobs_of_another_source_go_first() {
    for earlier in [None, Some("recovery-0")] {
        let mut observed = recovered();
        observed.jobs = vec![job_for(earlier, "old", sent(now()))];
        let old = BackupStep::DeleteJob { name: "old".into() };
        assert_eq!(plan_restore(&observed).step, Some(old));
        observed.jobs[0].state = JobState::Deleting;
        let plan = plan_restore(&observed);
        assert_eq!(plan.step, None, "its name may be used again");
        assert!(plan.again_ms.is_some());
        observed.cluster.as_mut().expect("valid").spec.paused = true;
        observed.jobs[0].state = JobState::Running;
        assert_eq!(plan_restore(&observed).step, None, "it is paused");
        observed.cluster.as_mut().expect("valid").spec.paused = false;
        observed.jobs = vec![job_for(Some("recovery-1"), "new", JobState::Running)];
        assert!(
            message(&plan_restore(&observed))
                .0
                .contains("Job new reads")
        );
    }
}

#[test]
fn nothing_is_sent_once_no_recovery_names_the_data() {
    let mut observed = recovered();
    (observed.source, observed.recovery) = (None, None);
    let plan = plan_restore(&observed);
    assert_eq!(plan.step, None);
    let (text, needs_user) = message(&plan);
    assert!(text.contains("the EtcdRecovery of this incarnation is gone"));
    assert!(needs_user);
    observed.jobs = vec![job_for(None, "old", sent(now()))];
    let plan = plan_restore(&observed);
    assert!(matches!(plan.step, Some(BackupStep::DeleteJob { .. })));
}

/// Jobs wait, run, fail in any way, are deleted by somebody and lose their node; the cluster is formed once one has sent
/// everything. Two of them never run at the same time or have the same name, and it comes to an end.
#[test]
fn any_end_of_a_job_leads_to_another() {
    for seed in 0..500 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = observed();
        let mut done = false;
        for turn in 0..400 {
            let plan = plan_restore(&world);
            match plan.step {
                Some(BackupStep::CreateJob { attempt, .. }) => {
                    // On a lost node a pod may run on.
                    let alive = world.jobs.iter().any(|job| match &job.state {
                        JobState::Ended { reason, .. } => reason == NODE_LOST,
                        _ => true,
                    });
                    assert!(!alive, "seed {seed}: two Jobs at the same time");
                    let taken = world.jobs.iter().any(|job| job.attempt == attempt);
                    assert!(!taken, "seed {seed}: a name is used twice");
                    assert!(!world.formed, "seed {seed}: it is formed");
                    world.jobs.push(job(attempt, JobState::Waiting(None)));
                }
                Some(BackupStep::DeleteJob { name }) => world.jobs.retain(|job| job.name != name),
                _ => {}
            }
            world.now += SignedDuration::from_secs(1 + i64::from(turn % 7));
            let quiet = turn > 300;
            let now = world.now;
            let Some(newest) = world.jobs.last_mut() else {
                continue;
            };
            let draw = if quiet { 0 } else { random.next_u64() % 8 };
            let state = std::mem::replace(&mut newest.state, JobState::Deleting);
            newest.state = match (state, draw) {
                (JobState::Waiting(_), 0..4) => JobState::Running,
                (JobState::Running, 0) => sent(now),
                (JobState::Running, 1) => JobState::Ended {
                    at: now,
                    result: None,
                    reason: "evicted".into(),
                },
                (JobState::Running, 2) => failed(FailureClass::Target),
                (JobState::Running, 4) => JobState::Ended {
                    at: now,
                    result: None,
                    reason: NODE_LOST.into(),
                },
                (JobState::Running | JobState::Ended { .. }, 3) => JobState::Deleting,
                (state, _) => state,
            };
            if newest.state == JobState::Deleting {
                world.jobs.pop();
            }
            let arrived = |job: &JobFacts| {
                matches!(
                    &job.state,
                    JobState::Ended {
                        result: Some(JobResult::Restored(_)),
                        ..
                    }
                )
            };
            world.formed |= world.jobs.iter().any(arrived) && (quiet || draw == 5);
            if world.formed && world.jobs.is_empty() {
                done = true;
                break;
            }
        }
        assert!(done || world.formed, "seed {seed}: {world:?}");
    }
}
