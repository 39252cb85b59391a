//! Situations under `disruption.policy: Budget`: how many members have to stay available, when that
//! changes, and how pods are let go.

use crate::crd::DisruptionPolicy::{self, Budget, Gate};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Plan, plan};

fn with_budget_policy(replicas: i32) -> World {
    let mut world = World::new(replicas);
    set(&mut world, Budget);
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

fn set(world: &mut World, policy: DisruptionPolicy) {
    world.cluster.spec.disruption.policy = policy;
}

fn until(world: &mut World, what: &str, mut holds: impl FnMut(&World) -> bool) {
    for _ in 0..400 {
        if holds(world) {
            return;
        }
        world.reconcile();
    }
    panic!("never: {what}\n{}", plan(&world.observe()));
}

/// Whether the PDB would refuse the eviction of every member.
fn refuses_all(world: &World) -> bool {
    let mut names = world.api.pods.keys();
    names.all(|name| !world.clone().evict(name))
}

fn reason(plan: &Plan) -> &'static str {
    let progress = plan.progress.as_ref();
    progress.map_or("", |progress| progress.reason)
}

fn retires(world: &World) -> bool {
    let descriptions = world.observe().descriptions;
    descriptions.values().any(|d| d.retiring_ms.is_some())
}

#[test]
fn drain_takes_what_the_pdb_allows() {
    let mut script = Script::new(
        "pdb-drain",
        "Evictions are counted. A drain takes a pod at once, and its member comes back elsewhere; a second one waits. A node that is only cordoned is left by the operator's own eviction. Another member that is not available holds that.",
    );
    let mut world = with_budget_policy(3);
    script.observe("Three members, two of them stay available", &world);
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    assert!(world.evict("demo-1"), "one may go");
    assert!(!world.evict("demo-2"), "two may not");
    script.settle("A drain took the pod of demo-1 at once", &mut world);
    assert_ne!(world.node_of("demo-1"), node);
    world.cordon(&node, false);
    let node = world.node_of("demo-2");
    wait(&mut world, 10);
    world.cordon(&node, true);
    let mut held = world.clone();
    script.settle(
        "The node of demo-2 is cordoned, and there is no drain",
        &mut world,
    );
    assert_ne!(world.node_of("demo-2"), node);
    assert!(world.api.pods.values().all(|pod| pod.released_ms.is_none()));
    until(&mut held, "it retires", retires);
    wait(&mut held, 12);
    // Ready for the plan, and not for Kubernetes, as after a probe that failed once.
    let other = held.api.pods.get_mut("demo-3").expect("a pod");
    other.ready_since_ms = None;
    let plan = script.observe("Another member is not available", &held);
    assert_eq!((reason(&plan), plan.steps.len()), ("Settling", 0));
    script.compare();
}

/// Kubernetes' count may lag behind what members report: then no eviction is requested.
#[test]
fn refused_evictions_are_not_requested() {
    let mut script = Script::new(
        "pdb-refused",
        "A member has retired and its node is cordoned, and Kubernetes counts too few of the others as available: the plan reports who waits for what, and asks for nothing.",
    );
    let mut world = with_budget_policy(3);
    wait(&mut world, 10);
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    until(&mut world, "it retires", retires);
    wait(&mut world, 12);
    let mut observed = world.observe();
    let pdb = observed.pdb.as_mut().expect("a PDB");
    assert_eq!((pdb.min_available(), pdb.available), (Some(2), Some(2)));
    pdb.available = Some(1);
    let planned = plan(&observed);
    assert_eq!(
        (reason(&planned), planned.steps.len()),
        ("Budget", 0),
        "{planned}"
    );
    script.text += &format!("\n## One of two others is available\n{planned}");
    observed.pdb = observed.pdb.map(|pdb| crate::plan::PdbFacts {
        available: None,
        ..pdb
    });
    let planned = plan(&observed);
    assert_eq!(
        (reason(&planned), planned.steps.len()),
        ("Budget", 0),
        "{planned}"
    );
    script.text += &format!("\n## Kubernetes has not counted yet\n{planned}");
    script.observe("Enough are available", &world);
    script.compare();
}

#[test]
fn min_available_rises_first_and_falls_last() {
    let mut script = Script::new(
        "pdb-number",
        "How many stay available: raised before a learner is promoted, lowered when the pod of who was removed is gone.",
    );
    let mut world = with_budget_policy(3);
    world.cluster.spec.replicas = 5;
    script.settle("Five are wanted", &mut world);
    assert_eq!(world.min_available(), Some(3));
    world.cluster.spec.replicas = 3;
    script.settle("Three are wanted again", &mut world);
    assert_eq!(world.min_available(), Some(2));
    world.cluster.spec.replace_members = vec!["demo-1".into()];
    script.settle("One is replaced", &mut world);
    assert_eq!(world.min_available(), Some(2));
    script.compare();
}

/// The pod of a removed member can be there for long, on a node that does not report.
#[test]
fn pdb_waits_for_the_pod_of_a_removed_member() {
    let mut world = with_budget_policy(5);
    assert_eq!(world.min_available(), Some(3));
    world.cluster.spec.replicas = 3;
    until(&mut world, "two were removed", |world| world.voters() == 3);
    let pods = world.api.pods.len();
    assert!(pods > 3, "the last pod is still there: {pods}");
    assert_eq!(world.min_available(), Some(3), "four may be counted");
    until(&mut world, "its pod is gone", |world| {
        world.api.pods.len() == 3
    });
    assert_eq!(world.min_available(), Some(3), "not observed since");
    world.settle(100);
    assert_eq!(world.min_available(), Some(2));
}

/// Two members leave. The pod of one is gone at once, that of the other stays on a node that does not
/// report: the number is lowered for both together, and nothing else waits for that.
#[test]
fn pdb_waits_for_the_last_pod_of_several() {
    let mut world = with_budget_policy(4);
    let node = world.node_of("demo-4");
    world.api.nodes.get_mut(&node).expect("a node").ready = false;
    wait(&mut world, 5);
    world.cluster.spec.replicas = 2;
    until(&mut world, "one pod is left over", |world| {
        world.voters() == 2 && world.api.pods.len() == 3
    });
    for _ in 0..20 {
        world.reconcile();
    }
    assert_eq!(world.min_available(), Some(3), "demo-4 may be counted");
    world.api.nodes.get_mut(&node).expect("a node").ready = true;
    world.settle(200);
    assert_eq!((world.voters(), world.min_available()), (2, Some(2)));
}

#[test]
fn policy_change_is_always_protected() {
    let mut script = Script::new(
        "pdb-switch",
        "The policy is changed while a pod is let go by its label, and back while a member retires: one object, one write each time.",
    );
    let mut world = rested(3);
    assert_eq!(world.min_available(), None);
    wait(&mut world, 10);
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    until(&mut world, "let go", |world| {
        world.api.pods.values().any(|pod| pod.released_ms.is_some())
    });
    set(&mut world, Budget);
    script.observe("To Budget, while the pod of demo-1 is let go", &world);
    world.reconcile();
    assert!(refuses_all(&world), "its gate is closed first");
    script.settle("On to the end", &mut world);
    assert_eq!(world.min_available(), Some(2));
    assert_ne!(world.node_of("demo-1"), node);
    world.cordon(&node, false);
    let node = world.node_of("demo-2");
    world.settle(100);
    wait(&mut world, 10);
    world.cordon(&node, true);
    until(&mut world, "it retires", retires);
    set(&mut world, Gate);
    script.observe("To Gate, while demo-2 retires", &world);
    world.reconcile();
    assert!(world.min_available().is_none() && refuses_all(&world));
    script.settle("On to the end", &mut world);
    assert_ne!(world.node_of("demo-2"), node);
    script.compare();
}

#[test]
fn small_clusters_grow_before_they_release() {
    let mut script = Script::new(
        "pdb-few",
        "A cluster of one, its node cordoned: the PDB refuses every eviction until a second member votes, and then that of the first until it has left.",
    );
    let mut world = with_budget_policy(1);
    assert!(refuses_all(&world));
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    while world.voters() == 1 && world.raft.members.len() < 2 {
        assert!(!world.evict("demo-1"));
        world.reconcile();
    }
    script.observe("A second member learns", &world);
    while world.voters() == 1 {
        assert!(!world.evict("demo-1"));
        world.reconcile();
    }
    assert!(refuses_all(&world), "both vote, and both are needed");
    script.settle("On to the end", &mut world);
    assert_eq!((world.voters(), world.min_available()), (1, Some(1)));
    assert!(world.api.pods.keys().all(|pod| world.node_of(pod) != node));
    let two = with_budget_policy(2);
    assert!(two.min_available() == Some(2) && refuses_all(&two));
    script.compare();
}

#[test]
fn a_changed_spec_evicts_one_after_the_other() {
    let mut script = Script::new(
        "pdb-roll",
        "A changed spec reaches three members: each is evicted, not deleted.",
    );
    let mut world = with_budget_policy(3);
    wait(&mut world, 10);
    world.api.wanted_inputs = "spec-2".into();
    script.settle("It rolls", &mut world);
    let current = |pod: &crate::plan::PodFacts| pod.inputs.as_deref() == Some("spec-2");
    assert!(world.api.pods.values().all(current));
    script.compare();
}

#[test]
fn hibernation_ignores_the_pdb() {
    let mut world = with_budget_policy(3);
    world.cluster.spec.paused = true;
    world.lose_objects();
    world.settle(20);
    assert_eq!(world.min_available(), Some(2), "made again while paused");
    world.cluster.spec.paused = false;
    world.cluster.spec.replicas = 0;
    world.settle(200);
    assert!(world.api.pods.is_empty(), "all sleep");
    assert_eq!(world.min_available(), Some(2), "it stays as it is");
    // Without a quorum the voters are unknown: the PDB is created for as many as any source indicates.
    world.lose_objects();
    world.cluster.spec.replicas = 1;
    world.reconcile();
    until(&mut world, "it is there", |world| {
        world.min_available().is_some()
    });
    assert_eq!(world.min_available(), Some(2));
    world.settle(1000);
    assert_eq!((world.voters(), world.min_available()), (1, Some(1)));
}
