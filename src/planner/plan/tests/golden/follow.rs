//! Clusters that follow another one: from the snapshot to the cutover, and what is refused.

use super::super::script::{Script, wait};
use super::super::world::World;
use crate::crd::{Bootstrap, Cutover, Follow, FollowPhase, Restore};
use crate::plan::{CutOverFacts, FollowFacts, Following, RestoreFacts, Staged};

/// A cluster that is to follow another one.
pub(super) fn follower(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.cluster.spec.bootstrap = Some(Bootstrap {
        follow: Some(Follow {
            endpoints: vec!["https://etcd-0.etcd:2379".into()],
            ..Follow::default()
        }),
        ..Bootstrap::default()
    });
    world
}

/// A Job has told the members this.
pub(super) fn told(world: &mut World, source_revision: i64, behind_ms: u64) {
    let as_of_ms = world.api.now_ms - behind_ms;
    let following = world.raft.following.as_mut().expect("it follows");
    following.source_revision = source_revision;
    following.as_of_ms = Some(as_of_ms);
    following.told_ms = Some(500);
}

pub(super) fn phase(world: &World) -> Option<FollowPhase> {
    world.status.follow.as_ref().map(|it| it.phase)
}

#[test]
fn cluster_that_follows() {
    let mut script = Script::new(
        "follow",
        "A cluster that follows another one: seeded from its snapshot, then behind it, until it takes its place.",
    );
    let mut world = follower(3);
    world.faults.staged = Some(Staged::default());
    for _ in 0..5 {
        world.reconcile();
    }
    world.api.restore = Some(RestoreFacts {
        message: "attempt 1 failed: https://etcd-0.etcd:2379 asks for a user".into(),
        needs_user: true,
    });
    script.observe("Its Job fails until the user does something", &world);
    world.api.restore = Some(RestoreFacts {
        message: "Job demo-restore-2 reads the data and sends them".into(),
        needs_user: false,
    });
    world.reconcile();
    script.followed("The status meanwhile", &world);
    world.faults.staged = None;
    script.settle("The seed has all data", &mut world);
    script.followed("Nothing was told yet", &world);
    world.raft.revision = 180;
    told(&mut world, 200, 40_000);
    world.reconcile();
    script.observe("It is behind", &world);
    script.followed("The status of one that is behind", &world);
    let following = world.raft.following.as_mut().expect("it follows");
    following.problem =
        Some("revision 181 was compacted in the followed cluster: delete this EtcdCluster and create it again".into());
    script.observe("It cannot go on", &world);
    let now_ms = world.api.now_ms;
    let following = world.raft.following.as_mut().expect("it follows");
    following.problem = None;
    following.frozen_ms = Some(now_ms);
    told(&mut world, 200, 1_000);
    world.reconcile();
    script.followed("The followed cluster is frozen", &world);
    world.raft.revision = 200;
    world.raft.following = None;
    world.reconcile();
    script.followed("Clients write here", &world);
    world.api.follow = Some(FollowFacts {
        cut_over: Some(CutOverFacts {
            revision: 200,
            frozen_ms: world.api.now_ms - 2_000,
            writable_ms: world.api.now_ms - 1_450,
        }),
        ..FollowFacts::default()
    });
    world.reconcile();
    script.followed("Its Job has reported the cutover", &world);
    script.compare();
}

#[test]
fn snapshot_of_no_living_cluster_founds_none_that_follows() {
    let mut script = Script::new(
        "follow-wrong-snapshot",
        "A cluster that is to follow another one, whose seed has a snapshot of none.",
    );
    let mut world = follower(1);
    let staged = Staged {
        sha256: "snapshot".into(),
        length: 1 << 20,
        received: 1 << 20,
        complete: true,
        ..Staged::default()
    };
    world.faults.staged = Some(staged.clone());
    for _ in 0..5 {
        world.reconcile();
    }
    let plan = script.observe("A backup was sent", &world);
    assert!(plan.steps.is_empty());
    world.cluster.spec.bootstrap = Some(Bootstrap {
        restore: Some(Restore::default()),
        ..Bootstrap::default()
    });
    world.faults.staged = Some(Staged {
        source_cluster: 7,
        ..staged
    });
    world.tick();
    let plan = script.observe("The other way round", &world);
    assert!(plan.steps.is_empty());
    script.compare();
}

/// The newest told member counts, whoever that is, and a time that nobody can know does not.
#[test]
fn newest_word_counts() {
    let mut world = follower(3);
    world.settle(1000);
    world.raft.revision = 100;
    told(&mut world, 150, 5_000);
    let mut observed = world.observe();
    let following = |told_ms: u64, source_revision: i64, as_of_ms: u64| {
        Some(Following {
            source_cluster: 7,
            source_revision,
            as_of_ms: Some(as_of_ms),
            told_ms: Some(told_ms),
            ..Following::default()
        })
    };
    let now_ms = observed.now_ms;
    let mut members = observed.descriptions.values_mut();
    let mut next = || members.next().expect("a member");
    next().following = following(900, 160, now_ms - 30_000);
    next().following = following(200, 170, now_ms - 20_000);
    next().following = Some(Following::default());
    let status = crate::plan::plan(&observed)
        .status
        .follow
        .expect("it follows");
    assert_eq!(status.source_revision, Some(170));
    assert_eq!(status.lag_revisions, Some(70));
    assert_eq!(status.lag_seconds, Some(20));
    for description in observed.descriptions.values_mut() {
        let later = description.following.as_mut().expect("it follows");
        later.as_of_ms = Some(now_ms + 3_600_000);
    }
    let status = crate::plan::plan(&observed)
        .status
        .follow
        .expect("it follows");
    assert_eq!(status.as_of, None);
    let made = observed.sets.values().map(|set| set.created_ms).min();
    let since_made = (observed.now_ms - made.expect("sets")) / 30_000 * 30;
    assert_eq!(status.lag_seconds, i64::try_from(since_made).ok());
}

/// The followed cluster is gone, and its Job fails: nobody tells of anything, and the lag grows all the same, whatever was known before. Of
/// one that was gone before a member was told a time there was no lag at all, and no alert.
#[test]
fn lag_grows_without_news() {
    for was_told in [true, false] {
        let mut world = follower(3);
        world.settle(1000);
        if was_told {
            told(&mut world, 200, 1_000);
            world.reconcile();
        }
        let following = world.raft.following.as_mut().expect("it follows");
        (following.as_of_ms, following.source_revision) = (None, 0);
        following.problem = Some("https://etcd-0.etcd:2379 does not answer".into());
        world.api.follow = Some(FollowFacts {
            message: "attempt 3 failed: https://etcd-0.etcd:2379 does not answer".into(),
            needs_user: true,
            failure: Some("https://etcd-0.etcd:2379 does not answer".into()),
            ..FollowFacts::default()
        });
        let lag = |world: &World| {
            let status = world.status.follow.as_ref();
            status.and_then(|it| it.lag_seconds)
        };
        world.reconcile();
        let before = lag(&world).unwrap_or_default();
        for _ in 0..300 {
            world.reconcile();
        }
        let after = lag(&world).unwrap_or_default();
        assert!(after >= before + 270, "told: {was_told}, {before}, {after}");
        // Nor while no leader is seen.
        for n in 1..=3 {
            world.faults.unseen.insert(format!("demo-{n}"));
        }
        for _ in 0..120 {
            world.reconcile();
        }
        assert!(lag(&world) >= Some(after + 90), "told: {was_told}");
    }
}

/// While nothing is written there, the status changes twice a minute.
#[test]
fn idle_follower_rests() {
    let mut world = follower(1);
    world.settle(1000);
    world.raft.revision = 100;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        told(&mut world, 100, 1_000);
        world.reconcile();
        let status = world.status.follow.clone().expect("it follows");
        assert_eq!(
            (status.lag_revisions, status.lag_seconds),
            (Some(0), Some(0))
        );
        seen.insert(status.as_of);
    }
    assert!(seen.len() <= 4, "{seen:?}");
}

/// Without a leader the status has what was known, and a lost status does not invent when the cutover was.
#[test]
fn what_is_not_seen_is_not_said() {
    let mut world = follower(1);
    world.settle(1000);
    assert_eq!(phase(&world), Some(FollowPhase::Following));
    world.faults.unseen.insert("demo-1".into());
    wait(&mut world, 20);
    world.reconcile();
    assert_eq!(phase(&world), Some(FollowPhase::Following));
    let message = world
        .status
        .follow
        .as_ref()
        .and_then(|it| it.message.clone());
    assert_eq!(message.as_deref(), Some("no leader with a quorum was seen"));
    world.faults.unseen.clear();
    world.raft.following = None;
    world.status.follow = None;
    world.reconcile();
    assert_eq!(phase(&world), Some(FollowPhase::CutOver));
    let status = world.status.follow.clone().expect("it has followed");
    assert_eq!(status.cut_over_time, None);
    world.faults.unseen.insert("demo-1".into());
    wait(&mut world, 20);
    world.reconcile();
    assert_eq!(world.status.follow, Some(status));
}

/// What keeps its Job from working is reported, and holds up nothing of the members.
#[test]
fn failing_job_holds_nothing_up() {
    let mut world = follower(3);
    world.settle(1000);
    let Some(Bootstrap {
        follow: Some(follow),
        ..
    }) = &mut world.cluster.spec.bootstrap
    else {
        panic!("it follows");
    };
    follow.cutover = Cutover::WhenCaughtUp;
    world.api.follow = Some(FollowFacts {
        message: "there is no Secret root: create it".into(),
        needs_user: true,
        failure: Some("it was refused".into()),
        ..FollowFacts::default()
    });
    world.cluster.spec.replicas = 5;
    let plans = world.settle(1000);
    assert_eq!(world.voters(), 5);
    let last = plans.last().expect("a plan");
    assert!(
        last.summary.starts_with("FollowFails: "),
        "{}",
        last.summary
    );
    let status = world.status.follow.clone().expect("it follows");
    assert_eq!(status.last_failure.as_deref(), Some("it was refused"));
    world.api.follow = Some(FollowFacts::default());
    world.reconcile();
    let status = world.status.follow.clone().expect("it follows");
    assert_eq!(status.last_failure.as_deref(), Some("it was refused"));
    assert_eq!(status.message, None);
}
