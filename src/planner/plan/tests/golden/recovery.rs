//! A quorum is lost for good, and the cluster goes on as its next incarnation.

use crate::crd::{EtcdRecoverySpec, ExpectedDisk, RecoveryPhase, Restore, Survivor};
use crate::plan::observed::{Description, RecoveryFacts};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::{CLUSTER_UID, World};
use crate::plan::{Action, ObjectAction, Plan, plan};

/// What is asked for: the data of this member, or a backup.
pub(in crate::plan::tests) fn asks(world: &World, survivor: Option<&str>) -> RecoveryFacts {
    let mut spec = EtcdRecoverySpec {
        cluster_uid: CLUSTER_UID.into(),
        incarnation: 1,
        accept_loss: true,
        ..EtcdRecoverySpec::default()
    };
    spec.cluster_ref.name = "demo".into();
    match survivor {
        None => {
            spec.restore = Some(Restore {
                path: Some("default/demo/one".into()),
                ..Restore::default()
            });
        }
        Some(member) => {
            let described = &world.observe().descriptions[member];
            spec.survivor = Some(Survivor {
                member: member.into(),
                expect: expected(described),
                revision_bump: 1_000,
            });
        }
    }
    RecoveryFacts {
        name: "demo-again".into(),
        spec,
        refused: None,
        begun: false,
        recovered: false,
    }
}

fn expected(described: &Description) -> ExpectedDisk {
    ExpectedDisk {
        disk_uuid: described.disk_uuid.clone(),
        term: i64::try_from(described.last_term).expect("a term"),
        index: i64::try_from(described.last_index).expect("an index"),
    }
}

fn phase(plan: &Plan) -> Option<RecoveryPhase> {
    plan.recoveries.first().map(|report| report.phase)
}

/// Two of three volumes are gone.
fn lost() -> World {
    let mut world = rested(3);
    world.lose_pvc("demo-1");
    world.lose_pvc("demo-3");
    wait(&mut world, 15);
    world
}

#[test]
fn quorum_lost() {
    let mut script = Script::new(
        "quorum-lost",
        "Two of three volumes are gone. An EtcdRecovery names the third: the others stop, a new member gets its data and forms the next incarnation, two more join, and what was before stays as leftovers.",
    );
    let mut world = lost();
    world.reconcile();
    script.observe("Two of three disks are lost", &world);
    let asked = asks(&world, Some("demo-2"));
    world.api.recoveries = vec![asked];
    script.observe("An EtcdRecovery names demo-2", &world);
    script.settle("Until rest", &mut world);
    let last = script.observe("In the end", &world);
    assert_eq!(phase(&last), Some(RecoveryPhase::Recovered));
    assert_eq!(world.voters(), 3);
    assert_eq!(world.raft.incarnation, 2);
    script.compare();
}

#[test]
fn every_disk_lost() {
    let mut script = Script::new(
        "quorum-lost-backup",
        "All volumes are gone: the cluster goes on with a backup, under its name.",
    );
    let mut world = rested(3);
    for member in ["demo-1", "demo-2", "demo-3"] {
        world.lose_pvc(member);
    }
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, None)];
    script.settle("Until rest", &mut world);
    assert_eq!(
        phase(&plan(&world.observe())),
        Some(RecoveryPhase::Recovered)
    );
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    script.compare();
}

/// What does not fit the cluster is refused before anything is stopped, and no plan acts on it.
#[test]
fn refused_before_anything_stops() {
    let untouched = |world: &World| {
        let plan = plan(&world.observe());
        let acts = plan.steps.iter().any(|step| {
            let identity = matches!(
                step.action,
                Action::Object(
                    ObjectAction::DeleteIdentitySecret { .. }
                        | ObjectAction::ApplySet {
                            hibernated: true,
                            ..
                        }
                )
            );
            identity || matches!(step.action, Action::Member(_))
        });
        assert!(!acts, "{plan}");
        (phase(&plan), plan.recoveries[0].message.clone())
    };
    let mut world = rested(3);
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    let (refused, why) = untouched(&world);
    assert_eq!(refused, Some(RecoveryPhase::Refused));
    assert!(why.contains("a leader with a quorum answers"), "{why}");

    // Nobody leads as far as the operator sees, and enough voters answer.
    for (side, member) in (0_u8..).zip(["demo-1", "demo-2", "demo-3"]) {
        world.faults.side.insert(member.into(), side);
    }
    wait(&mut world, 15);
    let (refused, why) = untouched(&world);
    assert_eq!(refused, Some(RecoveryPhase::Refused));
    assert!(why.contains("which is a quorum"), "{why}");

    let world = lost();
    let with = |change: &dyn Fn(&mut RecoveryFacts), words: &str| {
        let mut world = world.clone();
        let mut asked = asks(&world, Some("demo-2"));
        change(&mut asked);
        world.api.recoveries = vec![asked];
        let (refused, why) = untouched(&world);
        assert_eq!(refused, Some(RecoveryPhase::Refused), "{why}");
        assert!(why.contains(words), "{why}");
    };
    with(
        &|it| it.spec.cluster_uid = "other".into(),
        "it names the cluster with UID",
    );
    with(
        &|it| it.spec.incarnation = 2,
        "the cluster is incarnation 1",
    );
    with(&|it| it.spec.accept_loss = false, "its own rules");
    with(&|it| it.refused = Some("earlier".into()), "earlier");
    let survivor = |change: fn(&mut Survivor)| {
        move |it: &mut RecoveryFacts| change(it.spec.survivor.as_mut().expect("a survivor"))
    };
    with(
        &survivor(|it| it.expect.disk_uuid = "another".into()),
        "was reviewed",
    );
    with(&survivor(|it| it.expect.index += 1), "was reviewed");
    with(&survivor(|it| it.member = "demo-1".into()), "has no volume");
}

/// Whoever writes a label or a Secret does not make members former ones: a leader with a quorum says which incarnation it
/// is.
#[test]
fn forged_incarnations_stop_nobody() {
    let mut labelled = rested(3);
    labelled.api.identity_secret = None;
    let mut pvcs = labelled.api.pvcs.values_mut();
    pvcs.next_back().expect("a PVC").incarnation = 2;
    let mut another = rested(3);
    let secret = another.api.identity_secret.as_mut().expect("a Secret");
    (secret.incarnation, secret.seed) = (2, "demo-9".into());
    for mut world in [labelled, another] {
        for _ in 0..100 {
            world.reconcile();
        }
        // Nor while no leader is seen.
        let leader = world.raft.leader.clone().expect("a leader");
        world.faults.unseen.insert(leader);
        for _ in 0..30 {
            world.reconcile();
        }
        world.faults.unseen.clear();
        world.settle(100);
        assert_eq!((world.voters(), world.raft.incarnation), (3, 1));
        assert!(world.api.sets.values().all(|set| !set.hibernated));
        assert_eq!(world.raft.formed, 1);
    }
}

/// Nobody answers the operator, and Kubernetes calls the members ready: only the way to them is broken.
#[test]
fn members_that_are_ready_are_not_fenced() {
    let mut world = rested(3);
    for member in ["demo-1", "demo-2", "demo-3"] {
        world.faults.unseen.insert(member.into());
    }
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, None)];
    for _ in 0..100 {
        world.reconcile();
    }
    assert!(world.api.sets.values().all(|set| !set.hibernated));
    let held = plan(&world.observe());
    assert!(held.summary.contains("calls it ready"), "{}", held.summary);
}

/// Every volume of the recovered cluster is lost as well: nothing but the status and what was done before tells which
/// incarnation it was, once the identity Secret is gone. The second recovery was refused for good in its middle, as of
/// incarnation 1 (found on a real Kubernetes).
#[test]
fn every_disk_of_the_next_incarnation_lost() {
    for (status_lost, backup_first) in [(false, false), (true, false), (false, true)] {
        let mut world = lost();
        world.reconcile();
        let survivor = (!backup_first).then_some("demo-2");
        world.api.recoveries = vec![asks(&world, survivor)];
        world.settle(2_000);
        let voters: Vec<String> = world.raft.voters().map(|view| view.name.clone()).collect();
        for member in &voters {
            world.lose_pvc(member);
        }
        wait(&mut world, 15);
        world.reconcile();
        let mut again = asks(&world, None);
        again.name = "demo-again-2".into();
        again.spec.incarnation = 2;
        world.api.recoveries.push(again);
        for _ in 0..60 {
            world.reconcile();
            if status_lost {
                world.status = Default::default();
            }
        }
        world.settle(2_000);
        assert_eq!((world.voters(), world.raft.incarnation), (3, 3));
        assert_eq!(world.raft.formed, 3);
    }
}

/// The next incarnation has its identity and no volume yet, and the Secret is lost: the former members are not taken for
/// its own, from whichever source it gets its data.
#[test]
fn identity_lost_before_the_seed_has_a_volume() {
    for survivor in [Some("demo-2"), None] {
        let mut world = lost();
        world.reconcile();
        world.api.recoveries = vec![asks(&world, survivor)];
        let begun = |world: &World| {
            let identity = world.api.identity_secret.as_ref();
            identity.is_some_and(|identity| identity.incarnation == 2)
        };
        while !begun(&world) {
            world.reconcile();
        }
        // The status says which incarnation it is.
        world.status = plan(&world.observe()).status;
        world.api.identity_secret = None;
        world.settle(2_000);
        assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
        assert_eq!(world.raft.formed, 2);
    }
}

/// The volumes had grown by storage.autogrow, and the data do not fit storage.size any more: the new seed's volume was of
/// that size, and the recovery ended with a full volume.
#[test]
fn seed_of_a_recovery_gets_a_volume_as_large_as_the_former_ones() {
    let mut world = lost();
    let grown = 5 * world.cluster.storage_bytes;
    for pvc in world.api.pvcs.values_mut() {
        (pvc.requested_bytes, pvc.storage.capacity_bytes) = (grown, grown);
    }
    // One that was requested and never given says nothing.
    let mut pending = world.api.pvcs.values().next().expect("a volume").clone();
    (pending.bound, pending.storage.capacity_bytes) = (false, 0);
    pending.requested_bytes = 100 * grown;
    pending.member = Some("demo-1".into());
    world.api.pvcs.insert("data-demo-1-again".into(), pending);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    world.settle(2_000);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    let live = world.api.pvcs.values().filter(|pvc| pvc.incarnation == 2);
    let sizes: Vec<u64> = live.map(|pvc| pvc.requested_bytes).collect();
    assert_eq!(sizes, [grown; 3]);
}

/// It is deleted after the volumes were marked as kept, and the lost nodes come back: the cluster is what it was.
#[test]
fn recovery_that_is_given_up_leaves_the_cluster_as_it_was() {
    let mut world = rested(3);
    for member in ["demo-1", "demo-3"] {
        world.faults.unseen.insert(member.into());
        world.faults.side.insert(member.into(), 1);
        let node = world.node_of(member);
        world.api.nodes.get_mut(&node).expect("a node").ready = false;
    }
    world.faults.side.insert("demo-3".into(), 2);
    world
        .api
        .pods
        .values_mut()
        .for_each(|pod| pod.ready_since_ms = None);
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    for node in &nodes {
        let facts = world.api.nodes.get_mut(node).expect("a node");
        facts.out_of_service = !facts.ready;
    }
    let retired = |world: &World| {
        let mut pvcs = world.api.pvcs.values();
        pvcs.all(|pvc| pvc.state == crate::plan::PvcState::Retired)
    };
    for _ in 0..100 {
        if retired(&world) {
            break;
        }
        world.reconcile();
    }
    assert!(retired(&world), "the volumes are not marked as kept");
    world.api.recoveries.clear();
    for node in &nodes {
        let facts = world.api.nodes.get_mut(node).expect("a node");
        (facts.ready, facts.out_of_service) = (true, false);
    }
    world.faults.unseen.clear();
    world.faults.side.clear();
    world.settle(1_000);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 1));
    assert!(
        !world
            .api
            .pvcs
            .values()
            .any(|pvc| pvc.state == crate::plan::PvcState::Retired)
    );
    assert_eq!(world.raft.formed, 1);
}

/// A learner does not campaign, and remembers its leader for good.
#[test]
fn learner_that_is_left_holds_nothing_up() {
    let mut world = rested(1);
    world.cluster.spec.replicas = 3;
    world.pace.catch_up = 0;
    while !world.raft.members.iter().any(|view| view.learner) {
        world.reconcile();
    }
    (0..5).for_each(|_| drop(world.reconcile()));
    world.lose_pvc("demo-1");
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, None)];
    let mut seen = world.observe();
    for description in seen.descriptions.values_mut() {
        description.leader_id = 1;
    }
    let planned = plan(&seen);
    assert_eq!(phase(&planned), Some(RecoveryPhase::Fencing), "{planned}");
    assert!(
        !planned.summary.contains("follows one"),
        "{}",
        planned.summary
    );
}

/// What was carried out is not carried out again, whatever is lost later.
#[test]
fn carried_out_once() {
    let mut world = lost();
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    world.settle(2_000);
    let voters: Vec<String> = world.raft.voters().map(|view| view.name.clone()).collect();
    for member in &voters {
        world.lose_pvc(member);
    }
    world.api.identity_secret = None;
    wait(&mut world, 15);
    for _ in 0..100 {
        world.reconcile();
    }
    assert_eq!(world.raft.formed, 2);
}

/// Two that ask for the same are both refused: nobody knows which one was meant.
#[test]
fn two_recoveries_are_none() {
    let mut world = lost();
    let one = asks(&world, Some("demo-2"));
    let mut other = asks(&world, None);
    other.name = "demo-other".into();
    world.api.recoveries = vec![one, other];
    let plan = plan(&world.observe());
    let phases: Vec<_> = plan.recoveries.iter().map(|it| it.phase).collect();
    assert_eq!(phases, [RecoveryPhase::Refused; 2]);
}

/// A pod on a node that does not report may still run: nothing is formed before it is gone, or its node is out of
/// service.
#[test]
fn fencing_waits_for_nodes() {
    let mut world = rested(3);
    let node = world.node_of("demo-3");
    world.lose_pvc("demo-1");
    world.api.nodes.get_mut(&node).expect("a node").ready = false;
    world.faults.unseen.insert("demo-3".into());
    world.faults.side.insert("demo-3".into(), 1);
    wait(&mut world, 15);
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    for _ in 0..60 {
        world.reconcile();
    }
    let held = plan(&world.observe());
    assert_eq!(phase(&held), Some(RecoveryPhase::Fencing));
    assert!(held.summary.contains("does not report"), "{}", held.summary);
    assert_eq!(world.raft.incarnation, 1);
    let facts = world.api.nodes.get_mut(&node).expect("a node");
    facts.out_of_service = true;
    world.settle(2_000);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
}

/// The operator may end after each step, and the identity Secret or the status be lost: the cluster goes on once.
#[test]
fn every_step_may_be_the_last_of_an_operator() {
    let mut world = lost();
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    let mut steps = 0;
    for at in 0..2_000 {
        // Whoever comes next knows nothing but the objects.
        if at % 7 == 3 {
            world.status = Default::default();
        }
        let plan = world.reconcile();
        steps += plan.steps.len().min(1);
        if phase(&plan) == Some(RecoveryPhase::Recovered) && world.voters() == 3 {
            break;
        }
    }
    assert!(steps > 10, "{steps}");
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    assert_eq!(world.raft.formed, 2);
}

/// It is deleted before the cluster is formed: nothing starts empty, and another one says how to go on.
#[test]
fn deleted_recovery_leaves_no_empty_cluster() {
    let mut world = lost();
    world.reconcile();
    let asked = asks(&world, Some("demo-2"));
    world.api.recoveries = vec![asked];
    while world
        .api
        .identity_secret
        .as_ref()
        .is_none_or(|it| it.incarnation == 1)
    {
        world.reconcile();
    }
    world.api.recoveries.clear();
    let plans = world.settle(300);
    let last = plans.last().expect("a plan");
    assert!(last.summary.contains("EtcdRecovery"), "{}", last.summary);
    assert_eq!(world.raft.formed, 1);
    world.api.recoveries = vec![asks_again()];
    world.settle(2_000);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
}

/// With a backup, since the survivor is not to be read any more.
fn asks_again() -> RecoveryFacts {
    let mut again = asks(&World::new(3), None);
    again.name = "demo-again-2".into();
    again
}

/// The next loss is recovered by the next EtcdRecovery; the one before is over.
#[test]
fn recovered_twice() {
    let mut world = lost();
    world.reconcile();
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    world.settle(2_000);
    let voters: Vec<String> = world.raft.voters().map(|view| view.name.clone()).collect();
    for member in &voters[1..] {
        world.lose_pvc(member);
    }
    wait(&mut world, 15);
    world.reconcile();
    let mut again = asks(&world, Some(&voters[0]));
    again.name = "demo-again-2".into();
    again.spec.incarnation = 2;
    world.api.recoveries.push(again);
    world.settle(2_000);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 3));
    let last = plan(&world.observe());
    assert_eq!(last.recoveries[1].phase, RecoveryPhase::Recovered);
}
