//! Situations of a cluster that sleeps and wakes.

use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{lint, plan};

#[test]
fn hibernate_and_resume() {
    let mut script = Script::new(
        "hibernate",
        "replicas 0: every set sleeps, the leader's last, and members and PVCs stay; then all wake together, and only a quorum grows.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 0;
    script.observe("The followers go first", &world);
    script.settle("Until nothing runs", &mut world);
    wait(&mut world, 3 * 24 * 3600);
    script.observe("Three days later", &world);
    world.cluster.spec.paused = true;
    world.cluster.spec.replicas = 3;
    script.observe("Paused: it sleeps on", &world);
    world.cluster.spec.paused = false;
    world.cluster.spec.replicas = 5;
    world.api.wanted_inputs = "spec-2".into();
    script.settle("Woken by a larger size and with another spec", &mut world);
    script.compare();
}

#[test]
fn created_with_zero_replicas() {
    let mut script = Script::new(
        "hibernate-unborn",
        "A cluster that is made with replicas 0: nothing is made before it is to run; and one that was put to sleep while its seed was on the way.",
    );
    let mut world = World::new(0);
    script.observe("Nothing is made", &world);
    world.cluster.spec.replicas = 1;
    while world.api.sets.is_empty() {
        world.reconcile();
    }
    world.cluster.spec.replicas = 0;
    script.settle("The seed has a set, and formed nothing", &mut world);
    world.cluster.spec.replicas = 3;
    script.settle("Woken", &mut world);
    script.compare();
}

#[test]
fn hibernated_during_other_changes() {
    let mut script = Script::new(
        "hibernate-half-way",
        "Put to sleep with a learner in hand, another size on the way and a node that is drained; the learner, and whoever sleeps, gets its time again after waking.",
    );
    let mut world = rested(3);
    world.raft.commit += 100_000;
    world.pace.catch_up = 100;
    world.cluster.spec.replicas = 5;
    while !world.raft.members.iter().any(|m| m.learner) {
        world.reconcile();
    }
    let node = world.node_of("demo-2");
    world.cordon(&node, true);
    world.cluster.spec.replicas = 0;
    script.settle("A learner sleeps like everybody", &mut world);
    wait(&mut world, 24 * 3600);
    world.cluster.spec.replicas = 3;
    script.settle(
        "Woken with the old size: the learner is not needed",
        &mut world,
    );
    world.cluster.spec.replicas = 0;
    for _ in 0..2 {
        world.reconcile();
    }
    world.cluster.spec.replicas = 3;
    script.settle("Changed their mind half-way", &mut world);
    script.compare();
}

/// Woken with a spec of which the API server lets no pod be created, such as an unknown priority class: once that is
/// corrected, every set gets the current one, though there is no quorum and no pod.
#[test]
fn corrected_spec_reaches_sets_without_pods() {
    let mut world = rested(3);
    wait(&mut world, 1);
    let mut observed = world.observe();
    observed.pods.clear();
    observed.descriptions.clear();
    assert!(plan(&observed).steps.is_empty(), "nothing was corrected");
    observed.wanted_inputs = "spec-2".into();
    // One that is only away comes back as it was.
    let mut away = world.observe();
    away.wanted_inputs.clone_from(&observed.wanted_inputs);
    away.pods.remove("demo-2");
    away.descriptions.clear();
    assert!(crate::plan::plan(&away).steps.is_empty());
    let plan = plan(&observed);
    let steps: Vec<String> = plan.steps.iter().map(|it| it.action.to_string()).collect();
    let applied = steps.iter().filter(|it| it.starts_with("apply set"));
    assert_eq!(applied.count(), 1, "one at a time: {steps:?}");
    assert!(lint(&observed, &plan).is_empty());
}

#[test]
fn disks_lost_while_hibernated() {
    let mut script = Script::new(
        "hibernate-disks",
        "Volumes are lost while the cluster sleeps: one is replaced after waking; for two of three it is reported at once that the data may be lost, and nothing is formed anew.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 0;
    world.settle(100);
    world.lose_pvc("demo-2");
    script.observe("One is lost", &world);
    world.cluster.spec.replicas = 3;
    script.settle("The others wake, and it is replaced", &mut world);
    world.cluster.spec.replicas = 0;
    world.settle(100);
    world.lose_pvc("demo-1");
    world.lose_pvc("demo-3");
    script.observe("Two of three are lost", &world);
    world.cluster.spec.replicas = 3;
    for _ in 0..5 {
        world.reconcile();
    }
    script.observe("After waking", &world);
    script.compare();
}
