//! Standbys of a cluster elsewhere: followed, behind, promoted with and without their source.

use super::super::script::{Script, wait};
use super::super::world::World;
use super::follow::{phase, told};
use crate::crd::{FollowPhase, Promote, PromoteMode, ReplicaOf};
use crate::plan::{CutOverFacts, FollowFacts, Staged, plan};

fn standby(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.cluster.spec.replica_of = Some(ReplicaOf {
        endpoints: vec!["https://etcd-0.east:2379".into()],
        ..ReplicaOf::default()
    });
    world
}

fn promote(world: &mut World, promote: Promote) {
    let replica = world.cluster.spec.replica_of.as_mut();
    replica.expect("a standby").promote = Some(promote);
}

fn failover(revision: i64) -> Promote {
    Promote {
        mode: PromoteMode::Failover,
        accept_loss: Some(true),
        revision: Some(revision),
    }
}

/// It has followed for a while, and is this far behind.
fn behind(source_revision: i64, behind_ms: u64) -> World {
    let mut world = standby(3);
    world.settle(1000);
    world.raft.revision = 180;
    told(&mut world, source_revision, behind_ms);
    world.reconcile();
    world
}

#[test]
fn standby_that_is_switched_over() {
    let mut script = Script::new(
        "standby",
        "A standby of a cluster elsewhere: seeded from its snapshot, then behind it, too far behind, and promoted by a switchover.",
    );
    let mut world = standby(3);
    world.faults.staged = Some(Staged::default());
    for _ in 0..5 {
        world.reconcile();
    }
    world.reconcile();
    script.followed("It receives a snapshot", &world);
    promote(&mut world, failover(1));
    script.followed("It is not formed yet, and is to be promoted", &world);
    let replica = world.cluster.spec.replica_of.as_mut();
    replica.expect("a standby").promote = None;
    world.faults.staged = None;
    script.settle("The seed has all data", &mut world);
    world.raft.revision = 180;
    told(&mut world, 200, 179_000);
    world.reconcile();
    script.followed("It is behind", &world);
    told(&mut world, 200, 181_000);
    script.observe("It is behind for more than three minutes", &world);
    promote(
        &mut world,
        Promote {
            mode: PromoteMode::Switchover,
            ..Promote::default()
        },
    );
    told(&mut world, 200, 1_000);
    world.reconcile();
    script.followed("A switchover is asked for", &world);
    let now_ms = world.api.now_ms;
    let following = world.raft.following.as_mut().expect("it follows");
    following.frozen_ms = Some(now_ms);
    world.reconcile();
    script.followed("The source is closed", &world);
    world.raft.revision = 200;
    world.raft.following = None;
    world.reconcile();
    script.followed("It is promoted", &world);
    script.compare();
}

#[test]
fn standby_whose_source_is_lost() {
    let mut script = Script::new(
        "standby-failover",
        "The source of a standby is lost: refused while less is here than was reviewed, and while the source answers; then promoted with what is here.",
    );
    let mut world = behind(200, 240_000);
    promote(&mut world, failover(181));
    script.observe("Less is here than what was reviewed", &world);
    promote(&mut world, failover(180));
    world.api.follow = Some(FollowFacts {
        message: "https://etcd-0.east:2379 answers, and knows a leader: use Switchover".into(),
        needs_user: true,
        ..FollowFacts::default()
    });
    script.observe("The source answers", &world);
    world.api.follow = Some(FollowFacts::default());
    script.observe("Its Job works", &world);
    world.raft.following = None;
    world.api.follow = Some(FollowFacts {
        cut_over: Some(CutOverFacts {
            revision: 180,
            frozen_ms: 0,
            writable_ms: world.api.now_ms - 500,
        }),
        ..FollowFacts::default()
    });
    world.raft.revision = 190;
    world.reconcile();
    script.followed("It is promoted, and was written to", &world);
    script.compare();
}

/// The mode is changed in the second between the promotion and the status that says so: the API server does not refuse it
/// yet. A source that was lost was then said to be closed, and one that was closed to be lost.
#[test]
fn what_became_of_the_source_is_as_its_job_reports() {
    let switchover = Promote {
        mode: PromoteMode::Switchover,
        ..Promote::default()
    };
    for (asked, changed, frozen_ms, wanted) in [
        (failover(180), switchover.clone(), 0, "which was lost"),
        (switchover, failover(180), 7, "stays closed to writes"),
    ] {
        let mut world = behind(200, 1_000);
        promote(&mut world, asked);
        world.reconcile();
        world.raft.following = None;
        promote(&mut world, changed);
        world.api.follow = Some(FollowFacts {
            cut_over: Some(CutOverFacts {
                revision: 180,
                frozen_ms,
                writable_ms: world.api.now_ms - 500,
            }),
            ..FollowFacts::default()
        });
        let said = |world: &World| {
            let mut all = plan(&world.observe()).conditions.into_iter();
            all.find(|it| it.reason == "CutOver").map(|it| it.message)
        };
        let first = said(&world).unwrap_or_default();
        assert!(first.contains(wanted), "{first}");
        world.reconcile();
        world.api.follow = None;
        let later = said(&world).unwrap_or_default();
        let unknown = later.contains("is not known: keep its clients from it");
        assert!(unknown || later.contains("stays closed"), "{later}");
        assert_eq!(unknown, frozen_ms == 0, "{later}");
    }
}

/// After switchovers in vain a Job follows, and nobody is told that it does not.
#[test]
fn switchover_in_vain_is_said_as_one() {
    let mut world = behind(200, 1_000);
    promote(
        &mut world,
        Promote {
            mode: PromoteMode::Switchover,
            ..Promote::default()
        },
    );
    world.api.follow = Some(FollowFacts {
        needs_user: true,
        message: "before that, it failed: the hashes differ".into(),
        failure: Some("the hashes differ".into()),
        cutover_after_ms: Some(world.api.now_ms + 500_000),
        ..FollowFacts::default()
    });
    let said = plan(&world.observe()).summary;
    for words in [
        "is followed, and the switchover came to nothing: the hashes differ",
        "tried again at",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("not followed"), "{said}");
}

/// Members that were started again were told of nothing yet: the lag is not forgotten.
#[test]
fn lag_is_remembered() {
    let mut world = behind(200, 100_000);
    let following = world.raft.following.as_mut().expect("it follows");
    (following.told_ms, following.as_of_ms) = (None, None);
    assert!(!plan(&world.observe()).summary.contains("StandbyBehind"));
    wait(&mut world, 90);
    world.reconcile();
    assert!(plan(&world.observe()).summary.starts_with("StandbyBehind"));
    assert_eq!(phase(&world), Some(FollowPhase::Following));
    // One that moves is watched by whoever moves it.
    world.cluster.spec.bootstrap = super::follow::follower(3).cluster.spec.bootstrap;
    world.cluster.spec.replica_of = None;
    assert!(!plan(&world.observe()).summary.contains("StandbyBehind"));
}

/// The promotion of a standby may be taken back, so its field says nothing about the Jobs that are there.
#[test]
fn standby_stops_once_no_job_is_there() {
    let mut world = behind(180, 1_000);
    world.cluster.spec.replicas = 0;
    let seen = plan(&world.observe());
    assert!(seen.steps.is_empty());
    assert!(seen.summary.contains("may close the source"), "{seen}");
    world.api.follow = Some(FollowFacts {
        quiet_since_ms: Some(world.api.now_ms),
        ..FollowFacts::default()
    });
    world.tick();
    assert!(!plan(&world.observe()).steps.is_empty());
}
