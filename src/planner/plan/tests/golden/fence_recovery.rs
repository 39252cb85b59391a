//! A quorum is lost for good beside a voter that is fenced, and the cluster goes on as its next incarnation.

use super::recovery::asks;
use crate::crd::RecoveryPhase;
use crate::plan::plan;
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;

/// One of three is fenced.
fn fenced(member: &str) -> World {
    let mut world = rested(3);
    world.api.fenced = [member.to_owned()].into();
    for _ in 0..60 {
        world.reconcile();
    }
    assert!(!world.api.pods.contains_key(member));
    world
}

/// Whoever is fenced is not the one whose data are kept: it stays stopped, as every former member does, and its name means nobody
/// afterwards.
#[test]
fn another_one_is_fenced() {
    let mut script = Script::new(
        "fence-recovery",
        "demo-3 is fenced, and the volume of demo-1 is lost: no quorum is left. An EtcdRecovery names demo-2: demo-3 stays stopped with its volume, and the cluster goes on.",
    );
    let mut world = fenced("demo-3");
    world.lose_pvc("demo-1");
    wait(&mut world, 15);
    world.reconcile();
    script.observe("The quorum is lost beside it", &world);
    let asked = asks(&world, Some("demo-2"));
    world.api.recoveries = vec![asked];
    script.settle("An EtcdRecovery names demo-2", &mut world);
    let last = script.observe("In the end", &world);
    let phase = last.recoveries.first().map(|it| it.phase);
    assert_eq!(phase, Some(RecoveryPhase::Recovered), "{last}");
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    assert!(!world.api.pods.contains_key("demo-3"));
    assert!(last.notes.iter().any(|note| note.reason == "FencedUnknown"));
    script.compare();
}

/// The one whose data are to be kept is fenced: its set was applied again and again, without a pod, and nothing said why.
#[test]
fn survivor_is_fenced() {
    let mut script = Script::new(
        "fence-survivor",
        "demo-2 is fenced, and the volumes of both others are lost. An EtcdRecovery names demo-2: it waits until the fence is taken away, and goes on with its data then.",
    );
    let mut world = rested(3);
    let asked = asks(&world, Some("demo-2"));
    world.api.fenced = ["demo-2".to_owned()].into();
    for _ in 0..60 {
        world.reconcile();
    }
    world.lose_pvc("demo-1");
    world.lose_pvc("demo-3");
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asked];
    for _ in 0..30 {
        let planned = world.reconcile();
        assert!(planned.steps.is_empty(), "{planned}");
    }
    assert!(!world.api.pods.contains_key("demo-2"));
    script.observe("An EtcdRecovery names it", &world);
    world.api.fenced.clear();
    script.settle("Named no more", &mut world);
    let last = plan(&world.observe());
    let phase = last.recoveries.first().map(|it| it.phase);
    assert_eq!(phase, Some(RecoveryPhase::Recovered), "{last}");
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    script.compare();
}
