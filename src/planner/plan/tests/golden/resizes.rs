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
