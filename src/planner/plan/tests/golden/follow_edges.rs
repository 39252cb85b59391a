//! The edges of a cutover: what is asked of a cluster while the one that it follows is closed to writes. Nobody but its
//! members and their Job can open that one again.

use super::super::script::{Script, wait};
use super::super::world::World;
use super::follow::{follower, phase, told};
use crate::crd::{Bootstrap, Cutover, FollowPhase};
use crate::plan::{FollowFacts, LastBackupFacts, lint, plan};

/// One that is in the middle of its cutover, as its leader says.
fn frozen() -> World {
    let mut world = follower(3);
    let Some(Bootstrap { follow, .. }) = &mut world.cluster.spec.bootstrap else {
        panic!("it follows");
    };
    let follow = follow.as_mut().expect("it follows");
    follow.cutover = Cutover::WhenCaughtUp;
    world.settle(1000);
    freeze(&mut world);
    world
}

fn freeze(world: &mut World) {
    world.raft.revision = 190;
    told(world, 200, 1_000);
    let now_ms = world.api.now_ms;
    let following = world.raft.following.as_mut().expect("it follows");
    following.frozen_ms = Some(now_ms);
    world.reconcile();
    assert_eq!(phase(world), Some(FollowPhase::Frozen));
}

fn open(world: &mut World) {
    let following = world.raft.following.as_mut().expect("it follows");
    following.frozen_ms = None;
    world.reconcile();
}

/// No Job is there that may close it, since now.
fn quiet(world: &mut World) {
    world.api.follow = Some(FollowFacts {
        quiet_since_ms: Some(world.api.now_ms),
        ..FollowFacts::default()
    });
}

fn no_leader(world: &mut World) {
    for n in 1..=3 {
        world.faults.unseen.insert(format!("demo-{n}"));
    }
    wait(world, 20);
    world.reconcile();
}

/// Somebody sets replicas to 0 in that second.
#[test]
fn hibernation_waits_for_the_followed_cluster() {
    let mut script = Script::new(
        "follow-hibernate",
        "replicas 0 while the followed cluster is closed to writes: the members go on until it is open and no Job is left that would close it.",
    );
    let mut world = frozen();
    world.cluster.spec.replicas = 0;
    let seen = script.observe("It is closed", &world);
    assert!(seen.steps.is_empty());
    open(&mut world);
    let seen = script.observe("It is open, and a Job may close it again", &world);
    assert!(seen.steps.is_empty());
    freeze(&mut world);
    quiet(&mut world);
    world.tick();
    assert!(
        plan(&world.observe()).steps.is_empty(),
        "the leader decides"
    );
    open(&mut world);
    // What is described is older than that the last Job has ended.
    quiet(&mut world);
    assert!(plan(&world.observe()).steps.is_empty());
    script.settle("It is open, and stays so", &mut world);
    assert_eq!(phase(&world), Some(FollowPhase::Following));
    script.compare();
}

/// Whichever rule wants it.
#[test]
fn no_member_is_told_to_stop_while_it_is_closed() {
    let mut world = frozen();
    let observed = world.observe();
    let mut open = world.clone();
    open.cluster.spec.replicas = 0;
    self::open(&mut open);
    quiet(&mut open);
    open.tick();
    let stops = plan(&open.observe());
    assert!(!stops.steps.is_empty() && lint(&open.observe(), &stops).is_empty());
    world.cluster.spec.replicas = 0;
    let refused = lint(&world.observe(), &stops).join("; ");
    assert!(refused.contains("would stay so"), "{refused}");
    assert!(lint(&observed, &plan(&observed)).is_empty());
}

/// The place of the followed cluster was taken meanwhile: then it stops as any other.
#[test]
fn hibernation_goes_on_after_the_cutover() {
    let mut world = frozen();
    world.cluster.spec.replicas = 0;
    world.reconcile();
    world.raft.following = None;
    world.settle(1000);
    assert!(world.api.sets.values().all(|set| set.hibernated));
}

/// The followed cluster is gone for good in that second, so nobody can open it: replicas 0 was without effect for ever. The
/// annotation of a deletion holds for a hibernation too, with a leader and without.
#[test]
fn who_does_not_care_stops_its_members() {
    let mut world = frozen();
    world.cluster.spec.replicas = 0;
    world.api.follow = Some(FollowFacts {
        message: "no endpoint answers".into(),
        needs_user: true,
        ..FollowFacts::default()
    });
    let waits = format!("{:?}", plan(&world.observe()));
    assert!(
        waits.contains("kubectl annotate etcdcluster demo quorate.dev/leave-source-closed=true"),
        "{waits}"
    );
    let mut lost = world.clone();
    no_leader(&mut lost);
    let stalled = format!("{:?}", plan(&lost.observe()));
    assert!(stalled.contains("leave-source-closed=true"), "{stalled}");
    for world in [&mut world, &mut lost] {
        world.api.source_waived = true;
        world.settle(1000);
        assert!(world.api.sets.values().all(|set| set.hibernated));
    }
}

/// Nobody says any more how far it is: what is known of the followed cluster is said, and nothing stops.
#[test]
fn closed_cluster_is_not_forgotten_without_a_leader() {
    let mut script = Script::new(
        "follow-lost-quorum",
        "No leader is seen while the followed cluster is closed to writes: the status says so, and how it is opened by hand, and nothing stops.",
    );
    let mut world = frozen();
    no_leader(&mut world);
    script.observe("No leader", &world);
    script.followed("The status meanwhile", &world);
    world.cluster.spec.replicas = 0;
    let seen = script.observe("And replicas 0", &world);
    assert!(seen.steps.is_empty());
    assert_eq!(phase(&world), Some(FollowPhase::Frozen));
    // A status that was lost says nothing, and holds nothing up.
    world.status.follow = None;
    assert!(!plan(&world.observe()).steps.is_empty());
    script.compare();
}

/// A cutover takes less time than passes between two looks, and the quorum is lost in that second.
#[test]
fn cutover_that_was_not_seen_is_not_forgotten_either() {
    let mut world = frozen();
    open(&mut world);
    assert_eq!(phase(&world), Some(FollowPhase::Following));
    no_leader(&mut world);
    let seen = plan(&world.observe());
    let stalled = format!("{seen:?}");
    assert!(
        stalled.contains("may be closed to writes by an attempt"),
        "{stalled}"
    );
    let status = world.status.follow.clone().expect("it follows");
    let message = status.message.unwrap_or_default();
    assert!(message.contains("may be closed"), "{message}");
    world.cluster.spec.replicas = 0;
    assert!(plan(&world.observe()).steps.is_empty());
    // With Manual nothing closes it, and nothing is held up.
    let Some(Bootstrap { follow, .. }) = &mut world.cluster.spec.bootstrap else {
        panic!("it follows");
    };
    follow.as_mut().expect("it follows").cutover = Cutover::Manual;
    assert!(!plan(&world.observe()).steps.is_empty());
}

/// Whoever makes a follower a cluster of its own is told what may be left there.
#[test]
fn recovery_says_what_it_leaves() {
    let condition = |world: &World| {
        let mut world = world.clone();
        no_leader(&mut world);
        let mut observed = world.observe();
        let identity = observed.identity_secret.as_mut().expect("an identity");
        identity.incarnation = 2;
        observed.status_incarnation = Some(2);
        let plan = plan(&observed);
        let mut all = plan.conditions.into_iter();
        let of_it = all.find(|it| it.reason == "Recovered").expect("recovered");
        (of_it.message, plan.status.follow)
    };
    let mut world = frozen();
    let (message, follow) = condition(&world);
    assert!(message.contains("was closed to writes"), "{message}");
    let follow = follow.expect("it is kept");
    assert_eq!(follow.phase, FollowPhase::Frozen);
    assert!(follow.frozen_time.is_some() && follow.lag_revisions.is_none());
    open(&mut world);
    let (message, follow) = condition(&world);
    assert!(message.contains("may go on taking writes"), "{message}");
    assert_eq!(follow, None);
}

/// What keeps the Job from opening it is said with what that means.
#[test]
fn job_that_cannot_open_it_is_reported() {
    let mut world = frozen();
    world.api.follow = Some(FollowFacts {
        message: "there is no Secret root: create it".into(),
        needs_user: true,
        ..FollowFacts::default()
    });
    let plan = plan(&world.observe());
    assert!(plan.summary.starts_with("SourceClosed: "), "{plan}");
    assert!(plan.summary.contains("create it"), "{plan}");
}

/// The resource is deleted in that second, and held by its finalizer.
#[test]
fn deletion_waits_for_the_followed_cluster() {
    let mut script = Script::new(
        "follow-delete",
        "A cluster is deleted while the one that it follows is closed to writes: it goes on until that one is open and no Job is left that would close it.",
    );
    let mut world = frozen();
    (world.api.deleting, world.api.held) = (true, true);
    world.api.last_backup = Some(LastBackupFacts {
        message: "its Job to end or to show that the cluster at https://etcd-0.etcd:2379 is not closed to writes".into(),
        of_source: true,
        ..LastBackupFacts::default()
    });
    script.observe("It is closed", &world);
    open(&mut world);
    script.followed("It is open, and a Job may close it again", &world);
    quiet(&mut world);
    world.tick();
    world.reconcile();
    script.followed("It stays open", &world);
    script.compare();
}
