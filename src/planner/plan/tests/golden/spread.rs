//! Situations of volumes that cannot leave their node: no member ever joins another one's.

use crate::plan::ObjectAction;
use std::collections::BTreeSet;

use crate::crd::{Spread, VolumeMobility};
use crate::plan::tests::script::{Script, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, Plan, plan};

/// Which StatefulSets of a growing cluster have the anti-affinity.
fn one_per_node(world: &mut World) -> Vec<bool> {
    let sets = |plan: &Plan| match &plan.first()?.action {
        Action::Object(ObjectAction::ApplySet { one_per_node, .. }) => Some(*one_per_node),
        _ => None,
    };
    world.settle(1000).iter().filter_map(sets).collect()
}

#[test]
fn a_successor_waits_for_a_node_of_its_own() {
    let mut script = Script::new(
        "node-bound",
        "Volumes stay on their nodes, and there are as many nodes as members. One node is lost for good: the successor joins no sound member's node, from where it could never move on, but waits for a new node.",
    );
    let mut world = World::new(3);
    world.pace.node_bound = true;
    world.api.nodes.retain(|name, _| name.as_str() <= "node-c");
    script.settle("The first volume shows that they are bound", &mut world);
    let node = world.api.pods["demo-2"].node.clone().expect("a node");
    world.api.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 601);
    for _ in 0..10 {
        world.reconcile();
    }
    script.observe("The successor waits", &world);
    let nodes: BTreeSet<_> = world
        .api
        .pods
        .values()
        .filter_map(|p| p.node.clone())
        .collect();
    assert_eq!(
        nodes.len(),
        world.api.pods.len() - 1,
        "only the successor waits"
    );
    let fresh = world.api.nodes["node-a"].clone();
    let fresh = crate::plan::NodeFacts {
        ready: true,
        ..fresh
    };
    world.api.nodes.insert("node-d".into(), fresh);
    world.api.nodes.remove(&node);
    script.settle("A new node comes, the lost one is deleted", &mut world);
    script.compare();
}

#[test]
fn bound_volumes_need_one_member_per_node() {
    let made = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(3);
        change(&mut world);
        one_per_node(&mut world)
    };
    assert_eq!(made(&|_| {}), [false; 3], "movable volumes");
    // When the first StatefulSet is created, neither its volume nor another member exists yet.
    let bound = made(&|world| world.pace.node_bound = true);
    assert_eq!(bound, [false, true, true]);
    let class = made(&|world| {
        world.pace.node_bound = true;
        world.api.class_node_bound = Some(true);
    });
    assert_eq!(class, [true; 3], "the class counts before any volume");
    let class = made(&|world| world.api.class_node_bound = Some(true));
    assert_eq!(class, [true, false, false], "the volumes know better");
    let relaxed = made(&|world| {
        world.pace.node_bound = true;
        world.cluster.spec.scheduling.spread = Spread::Preferred;
    });
    assert_eq!(relaxed, [false; 3], "spread: Preferred relaxes it");
    let explicit = made(&|world| {
        world.cluster.spec.scheduling.volumes = VolumeMobility::NodeBound;
    });
    assert_eq!(explicit, [true; 3], "the spec sets NodeBound");
    let explicit = made(&|world| {
        world.pace.node_bound = true;
        world.cluster.spec.scheduling.volumes = VolumeMobility::Movable;
    });
    assert_eq!(explicit, [false; 3], "the spec sets Movable");
}

#[test]
fn missing_permissions_are_reported() {
    let mut script = Script::new(
        "rights",
        "The operator may not read what is of the whole Kubernetes cluster: it goes on, and reports what follows.",
    );
    let mut world = World::new(3);
    world.api.denied = ["persistentvolumes", "storageclasses"]
        .map(str::to_owned)
        .into();
    world.settle(1000);
    script.observe("Neither volumes nor classes", &world);
    world.cluster.spec.scheduling.volumes = VolumeMobility::NodeBound;
    world.api.denied = ["nodes".to_owned(), "persistentvolumes".to_owned()].into();
    let plan = script.observe(
        "Nodes and volumes, and the spec sets what the volumes are",
        &world,
    );
    assert!(plan.steps.is_empty(), "{plan}");
    world.api.denied = ["endpointslices".to_owned()].into();
    script.observe("A role of before EndpointSlices were asked for", &world);
    world.api.denied.clear();
    let plan = plan_of(&world);
    assert!(!plan.to_string().contains("RightsMissing"), "{plan}");
    script.compare();
}

fn plan_of(world: &World) -> Plan {
    plan(&world.observe())
}
