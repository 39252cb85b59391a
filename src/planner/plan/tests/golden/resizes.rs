//! Situations in which the specification differs from the members in resources alone.

use crate::plan::plan;
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;

/// A cluster at rest whose resources are changed.
fn changed(replicas: i32) -> World {
    let mut world = rested(replicas);
    world.faults.resizes = true;
    world.api.wanted_inputs = "spec-2".into();
    world.tick();
    world
}

fn pods(world: &World) -> Vec<String> {
    let pods = world.api.pods.values();
    pods.map(|pod| pod.uid.clone()).collect()
}

#[test]
fn running_pods_get_changed_resources() {
    let mut script = Script::new(
        "resize-in-place",
        "Of what the spec asks for, only resources have changed. Each pod gets them while it runs, one member at a time; so does the one of a cluster of one, which gets no successor.",
    );
    let mut world = changed(3);
    let before = pods(&world);
    script.settle("Three members", &mut world);
    assert_eq!(pods(&world), before, "none was restarted");
    let mut world = changed(1);
    let before = pods(&world);
    script.settle("One member", &mut world);
    assert_eq!((pods(&world), world.voters()), (before, 1));
    script.compare();
}

#[test]
fn a_node_without_room_is_left_or_kept() {
    let mut script = Script::new(
        "resize-no-room",
        "The node of a member never has what is asked for. A member whose volume can leave is restarted; one whose volume cannot runs on as it was, and this is reported; where members are replaced, a successor comes.",
    );
    for (title, replicas, node_bound) in [
        ("The volume can leave", 3, false),
        ("The volume cannot leave", 3, true),
        ("A cluster of one", 1, true),
    ] {
        let mut world = changed(replicas);
        for pvc in world.api.pvcs.values_mut() {
            pvc.node_bound = Some(node_bound);
        }
        world.faults.confined.insert("demo-1".into());
        let before = pods(&world);
        script.settle(title, &mut world);
        script.observe("Then", &world);
        let stays = before
            .iter()
            .filter(|uid| pods(&world).contains(uid))
            .count();
        let expected = if node_bound && replicas == 3 {
            3
        } else {
            replicas as usize - 1
        };
        assert_eq!(stays, expected, "{title}");
    }
    script.compare();
}

/// What was asked for was more than any node has. The member that was restarted for it waited for a node without end, and
/// the spec was never said to be at fault: the other voters, which lack the resources alone, passed for members that run
/// with the same spec.
#[test]
fn resources_that_no_node_has_are_the_specs_fault() {
    let mut script = Script::new(
        "resize-nowhere",
        "No node has what is asked for. The member that was restarted for it gets no node, and once the deadline is over the spec is said to be at fault; no other member is restarted. With the spec corrected, it comes back.",
    );
    let mut world = changed(3);
    let before = pods(&world);
    let members: Vec<String> = world.api.pods.keys().cloned().collect();
    for pvc in world.api.pvcs.values_mut() {
        pvc.node_bound = Some(false);
    }
    world.faults.confined.extend(members);
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    let close = |world: &mut World, closed| {
        for node in &nodes {
            world.api.nodes.get_mut(node).expect("a node").closed = closed;
        }
    };
    close(&mut world, true);
    (0..300).for_each(|_| _ = world.reconcile());
    script.observe("Before the deadline", &world);
    (0..600).for_each(|_| _ = world.reconcile());
    script.observe("Behind the deadline", &world);
    let stays = |world: &World| {
        let now = pods(world);
        before.iter().filter(|uid| now.contains(uid)).count()
    };
    assert_eq!(stays(&world), 2);
    close(&mut world, false);
    world.faults.confined.clear();
    world.api.wanted_inputs = "spec-3".into();
    script.settle("The spec is corrected", &mut world);
    assert_eq!(stays(&world), 2, "the others were corrected while they ran");
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

#[test]
fn an_unhealthy_voter_holds_resizes() {
    let mut world = changed(3);
    let node = world.node_of("demo-2");
    world.api.nodes.get_mut(&node).expect("a node").ready = false;
    wait(&mut world, 20);
    let resizes = |world: &World| {
        let steps = plan(&world.observe()).steps;
        steps.iter().any(|step| step.action.word() == "ResizePod")
    };
    assert!(!resizes(&world));
}
