//! The plan of schedules: when a backup is due, what the retention did, and what is verified.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tests::{LOCATION, at, cluster, local, start};
use super::*;
use crate::crd::backups::{
    BackupPhase, EtcdBackupScheduleSpec, EtcdBackupStatus, ScheduleArchive, ScheduleRetention,
    VerificationStatus,
};

pub(super) fn schedule(pattern: &str) -> ObservedSchedule {
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
            archive: None,
        },
        status: EtcdBackupScheduleStatus::default(),
        created: start(),
        zone: Some(TimeZone::UTC),
        cluster: Some(cluster()),
        store: Some(LOCATION.to_owned()),
        rival: None,
        archiver: None,
        backups: Vec::new(),
        jobs: Vec::new(),
        now: start(),
    }
}

pub(super) fn backup(name: &str, taken: Timestamp, phase: BackupPhase) -> BackupFacts {
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
        recovery: None,
        created: start(),
        location: LOCATION.to_owned(),
        interval: None,
        made_from: None,
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

/// The data of a cluster that follows another one are that one's: it is saved, and archived, once it has cut over.
#[test]
fn follower_is_held_until_it_has_cut_over() {
    let mut observed = schedule("0 2 * * *");
    observed.spec.archive = Some(ScheduleArchive::default());
    observed.now = start() + SignedDuration::from_hours(3);
    observed.cluster = Some(ClusterFacts {
        follows: true,
        ..cluster()
    });
    let plan = plan_schedule(&observed);
    assert_eq!(plan.step, None);
    assert!(plan.again_ms.is_some_and(|ms| ms <= 30_000));
    let message = plan.status.message.expect("a reason");
    assert!(message.contains("follows another cluster"), "{message}");
    let condition = &plan.status.conditions[0];
    let ready = (condition.status.as_str(), condition.reason.as_str());
    assert_eq!(ready, ("True", "ClusterFollows"));
    let archive = plan.status.archive.and_then(|it| it.message);
    assert_eq!(archive.as_ref(), Some(&message));
    observed.cluster = Some(cluster());
    let step = plan_schedule(&observed).step;
    assert!(
        matches!(step, Some(BackupStep::CreateBackup { .. })),
        "{step:?}"
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
