//! Situations of nodes that go away, by a cordon, a drain or a loss.

use crate::crd::{NodeReplacement, Spread};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Plan, plan};

/// A point of what is under way.
type Point = fn(&World) -> bool;

/// Passes until this holds, at most so many.
fn until(world: &mut World, what: &str, mut holds: impl FnMut(&World) -> bool) {
    for _ in 0..400 {
        if holds(world) {
            return;
        }
        world.reconcile();
    }
    panic!("never: {what}\n{}", plan(&world.observe()));
}

fn released(world: &World) -> Vec<String> {
    let open = world
        .api
        .pods
        .iter()
        .filter(|(_, p)| p.released_ms.is_some());
    open.map(|(name, _)| name.clone()).collect()
}

fn names(world: &World) -> Vec<String> {
    world.raft.members.iter().map(|m| m.name.clone()).collect()
}

/// The reason of the wait in hand.
fn reason(plan: &Plan) -> &'static str {
    plan.progress
        .as_ref()
        .map_or("", |progress| progress.reason)
}

fn bound(replicas: i32, nodes: &str) -> World {
    let mut world = World::new(replicas);
    world.pace.node_bound = true;
    world.api.nodes.retain(|name, _| name.as_str() <= nodes);
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// A retired member was let go after seven seconds, whether or not its kubelet had looked by then: with a
/// slow one its Services still sent clients to a pod that was gone.
#[test]
fn retired_member_stays_until_unready() {
    let waited = |probed: bool| {
        let mut world = rested(3);
        world.api.wanted_inputs = "spec-2".into();
        if !probed {
            world.faults.unprobed.insert("demo-3".into());
        }
        let retires = |world: &World| {
            let descriptions = world.observe().descriptions;
            descriptions
                .get("demo-3")
                .is_some_and(|d| d.retiring_ms.is_some())
        };
        until(&mut world, "demo-3 retires", retires);
        let (begun, uid) = (world.api.now_ms, world.api.pods["demo-3"].uid.clone());
        until(&mut world, "its pod goes", |world| {
            world
                .api
                .pods
                .get("demo-3")
                .is_none_or(|pod| pod.uid != uid)
        });
        (world.api.now_ms - begun) / 1000
    };
    let (soon, late) = (waited(true), waited(false));
    assert!((6..=9).contains(&soon), "{soon} s");
    assert!((29..=32).contains(&late), "{late} s: and not for ever");
}

/// A retired member whose kubelet had looked was let go after seven seconds, whether or not Kubernetes had
/// written down by then that its Services lead elsewhere.
#[test]
fn retired_member_stays_while_services_list_it() {
    let waited = |seconds: u64, denied: bool| {
        let mut world = rested(3);
        world.api.wanted_inputs = "spec-2".into();
        if denied {
            world.api.denied.insert("endpointslices".into());
        }
        let retires = |world: &World| {
            let descriptions = world.observe().descriptions;
            descriptions
                .get("demo-3")
                .is_some_and(|d| d.retiring_ms.is_some())
        };
        until(&mut world, "demo-3 retires", retires);
        let (begun, uid) = (world.api.now_ms, world.api.pods["demo-3"].uid.clone());
        world.api.routed.insert("demo-3".into());
        let stays = |world: &World| {
            world
                .api
                .pods
                .get("demo-3")
                .is_some_and(|pod| pod.uid == uid)
        };
        for _ in 0..60 {
            if (world.api.now_ms - begun) / 1000 >= seconds {
                world.api.routed.clear();
            }
            if !stays(&world) {
                break;
            }
            world.reconcile();
        }
        assert!(!stays(&world), "it goes");
        (world.api.now_ms - begun) / 1000
    };
    let at_once = waited(0, false);
    assert!((6..=9).contains(&at_once), "{at_once} s");
    let seen = waited(15, false);
    assert!((15..=18).contains(&seen), "{seen} s");
    let never = waited(1000, false);
    assert!((29..=32).contains(&never), "{never} s: and not for ever");
    let unseen = waited(0, true);
    assert!((29..=32).contains(&unseen), "{unseen} s: unknown");
}

#[test]
fn movable_volume_moves_with_its_member() {
    let mut script = Script::new(
        "drain-move",
        "The leader's node is cordoned, its volume can follow: the same member moves. First there is no drain, and the operator deletes the pod itself; then a drain asks every 5 s and takes the pod as soon as it may.",
    );
    let mut world = rested(3);
    let leader = world.raft.leader.clone().expect("a leader");
    let (before, node) = (names(&world), world.node_of(&leader));
    wait(&mut world, 10);
    world.cordon(&node, true);
    script.observe("Cordoned", &world);
    script.settle("There is no drain", &mut world);
    assert_ne!(world.node_of(&leader), node);
    let next = world.raft.leader.clone().expect("a leader");
    let node = world.node_of(&next);
    world.cordon(&node, true);
    assert!(!world.evict(&next), "the gate is closed");
    until(&mut world, "released", |world| !released(world).is_empty());
    script.observe("Prepared", &world);
    assert_eq!(released(&world), std::slice::from_ref(&next));
    wait(&mut world, 5);
    assert!(world.evict(&next), "the gate is open");
    script.settle("The drain takes the pod", &mut world);
    assert_ne!(world.node_of(&next), node);
    assert_eq!(names(&world), before);
    assert_eq!(released(&world), [""; 0]);
    script.compare();
}

#[test]
fn member_with_bound_volume_is_replaced_first() {
    let mut script = Script::new(
        "drain-replace",
        "A node is cordoned whose volume cannot leave it: a successor is added on the spare node and promoted, then the old member leaves.",
    );
    let mut world = bound(3, "node-d");
    world.cordon("node-b", true);
    script.observe("Cordoned", &world);
    let mut least = 3;
    for _ in 0..200 {
        world.reconcile();
        least = least.min(world.reachable_voters().0);
    }
    assert_eq!(least, 3, "full redundancy all the way");
    script.settle("At rest by now", &mut world);
    script.observe("The node is empty", &world);
    assert!(
        world
            .api
            .pods
            .keys()
            .all(|pod| world.node_of(pod) != "node-b")
    );
    script.compare();
}

#[test]
fn without_a_spare_node_the_drain_is_held() {
    let mut script = Script::new(
        "drain-no-spare",
        "As many nodes as members, and one of them is cordoned: nothing is done but to report what would help. Each remedy is then tried.",
    );
    for world in [&mut bound(3, "node-c"), &mut rested_on(3, "node-c")] {
        world.cordon("node-b", true);
        for _ in 0..60 {
            let plan = world.reconcile();
            assert!(
                plan.steps.is_empty() && reason(&plan) == "NoSpareNode",
                "{plan}"
            );
        }
        script.observe("Held", world);
        let mut uncordoned = world.clone();
        uncordoned.cordon("node-b", false);
        script.settle("Uncordoned", &mut uncordoned);
        let mut removed = world.clone();
        removed.cluster.spec.disruption.node_replacement = NodeReplacement::RemoveFirst;
        until(&mut removed, "removed", |world| world.voters() == 2);
        until(&mut removed, "its pod is gone", |world| {
            world
                .api
                .pods
                .keys()
                .all(|pod| world.node_of(pod) != "node-b")
        });
        let fresh = removed.api.nodes["node-a"].clone();
        removed.api.nodes.insert("node-d".into(), fresh);
        script.settle("Removed first, because the spec sets it", &mut removed);
        assert_eq!(removed.voters(), 3);
        let fresh = world.api.nodes["node-a"].clone();
        world.api.nodes.insert("node-d".into(), fresh);
        script.settle("A node is added", world);
        assert!(
            world
                .api
                .pods
                .keys()
                .all(|pod| world.node_of(pod) != "node-b")
        );
    }
    script.compare();
}

fn rested_on(replicas: i32, nodes: &str) -> World {
    let mut world = World::new(replicas);
    world.api.nodes.retain(|name, _| name.as_str() <= nodes);
    world.settle(1000);
    world
}

#[test]
fn nodes_are_shared_only_where_allowed() {
    let mut world = rested_on(3, "node-c");
    world.cluster.spec.scheduling.spread = Spread::Preferred;
    world.cordon("node-b", true);
    world.settle(400);
    assert!(
        world
            .api
            .pods
            .keys()
            .all(|pod| world.node_of(pod) != "node-b")
    );
    // Two and one: the failure of a node takes two as before, so that one of the two may go
    // anywhere. Then there is one on each, and no room any more.
    world.cordon("node-b", false);
    world.cluster.spec.scheduling.spread = Spread::Required;
    let here = |world: &World, node: &str| {
        let pods = world.api.pods.keys();
        pods.filter(|pod| world.node_of(pod) == node).count()
    };
    let crowded = if here(&world, "node-a") == 2 {
        "node-a"
    } else {
        "node-c"
    };
    world.cordon(crowded, true);
    for _ in 0..100 {
        world.reconcile();
    }
    let nodes = ["node-a", "node-b", "node-c"];
    assert_eq!(nodes.map(|node| here(&world, node)), [1, 1, 1]);
    assert_eq!(reason(&world.reconcile()), "NoSpareNode");
}

#[test]
fn an_uncordon_half_way_stops_at_the_next_step() {
    let mut script = Script::new(
        "drain-uncordoned",
        "The cordon is taken back at each point of a move and of a replacement: what was begun is ended, nothing more.",
    );
    let points: [(&str, Point); 2] = [
        ("asked to retire", |world| {
            world
                .observe()
                .descriptions
                .values()
                .any(|d| d.retiring_ms.is_some())
        }),
        ("released", |world| !released(world).is_empty()),
    ];
    for (what, point) in points {
        let mut world = rested(3);
        let before = names(&world);
        world.cordon("node-b", true);
        until(&mut world, what, point);
        world.cordon("node-b", false);
        script.settle(&format!("A move, uncordoned when {what}"), &mut world);
        assert_eq!((names(&world), released(&world).len()), (before, 0));
    }
    let points: [(&str, Point); 3] = [
        ("a volume is there", |world| world.api.pvcs.len() == 4),
        ("there is a learner", |world| {
            world.raft.members.iter().any(|m| m.learner)
        }),
        ("there are four voters", |world| world.voters() == 4),
    ];
    for (what, point) in points {
        let mut world = bound(3, "node-d");
        world.cordon("node-b", true);
        until(&mut world, what, point);
        world.cordon("node-b", false);
        script.settle(
            &format!("A replacement, uncordoned when {what}"),
            &mut world,
        );
        assert_eq!((world.voters(), world.api.pvcs.len()), (3, 3));
    }
    script.compare();
}

#[test]
fn two_nodes_at_once_take_turns() {
    for mut world in [bound(3, "node-e"), rested(3)] {
        world.cordon("node-a", true);
        world.cordon("node-b", true);
        let mut least = 3;
        for _ in 0..300 {
            world.reconcile();
            assert!(released(&world).len() <= 1);
            for pod in ["demo-1", "demo-2", "demo-3"] {
                world.evict(pod);
            }
            least = least.min(world.reachable_voters().0);
        }
        assert!(least >= 2, "{least} of 3");
        let left = ["node-a", "node-b"];
        let mut nodes = world.api.pods.keys().map(|pod| world.node_of(pod));
        assert!(nodes.all(|node| !left.contains(&node.as_str())));
        assert_eq!((world.voters(), world.api.pods.len()), (3, 3));
    }
}

#[test]
fn the_gate_closes_when_another_member_fails() {
    let mut script = Script::new(
        "drain-gate",
        "While an eviction may take a pod, another member fails: the gate closes at once, and the move goes on when everybody is back.",
    );
    let mut world = rested(3);
    wait(&mut world, 10);
    world.cordon("node-b", true);
    until(&mut world, "released", |world| !released(world).is_empty());
    let leaver = released(&world).remove(0);
    let other = names(&world).into_iter().find(|name| *name != leaver);
    let other = world.node_of(&other.expect("another"));
    world.api.nodes.get_mut(&other).expect("a node").ready = false;
    wait(&mut world, 4);
    script.observe("Another one is down", &world);
    world.reconcile();
    assert!(released(&world).is_empty() && !world.evict(&leaver));
    world.api.nodes.get_mut(&other).expect("a node").ready = true;
    script.settle("It is back", &mut world);
    assert_ne!(world.node_of(&leaver), "node-b");
    script.compare();
}

#[test]
fn new_members_leave_a_drained_node() {
    let mut script = Script::new(
        "drain-newcomers",
        "The node of a member is cordoned that is on its way in: a standby and a learner that could not leave with their volumes make room for another one, a learner that can is promoted and moves.",
    );
    let grown = |world: &mut World, learner: bool| {
        world.raft.commit += 1000;
        world.pace.catch_up = 100;
        world.cluster.spec.replicas = 4;
        until(world, "a newcomer runs", |world| {
            let pod = world.api.pods.get("demo-4");
            let joined = world.raft.members.iter().any(|m| m.name == "demo-4");
            pod.is_some_and(|pod| pod.started_ms.is_some()) && joined == learner
        });
        let node = world.node_of("demo-4");
        world.cordon(&node, true);
        node
    };
    for (what, learner, mut world) in [
        ("A standby", false, bound(3, "node-e")),
        ("A learner whose volume stays", true, bound(3, "node-e")),
        ("A learner whose volume can follow", true, rested(3)),
    ] {
        let node = grown(&mut world, learner);
        script.settle(what, &mut world);
        assert_eq!(world.voters(), 4);
        assert!(world.api.pods.keys().all(|pod| world.node_of(pod) != node));
    }
    script.compare();
}

/// A node lost without a drain is handled by the rules for unhealthy members: the operator waits for a reboot, also if
/// the node was cordoned before.
#[test]
fn a_node_that_is_off_is_no_drain() {
    for cordoned in [false, true] {
        let mut world = bound(3, "node-d");
        let before = names(&world);
        world.cordon("node-b", cordoned);
        world.api.nodes.get_mut("node-b").expect("a node").ready = false;
        wait(&mut world, 5);
        for _ in 0..60 {
            let plan = world.reconcile();
            assert!(plan.steps.is_empty(), "{plan}");
        }
        world.cordon("node-b", false);
        world.api.nodes.get_mut("node-b").expect("a node").ready = true;
        world.settle(400);
        assert_eq!(names(&world), before);
    }
}

#[test]
fn node_bound_member_stays() {
    let mut world = rested(3);
    world.cordon("node-b", true);
    world.api.nodes.get_mut("node-b").expect("a node").closed = false;
    let plan = world.reconcile();
    assert!(
        plan.steps.is_empty() && reason(&plan) == "NotCordoned",
        "{plan}"
    );
    // It is unknown where an unobserved volume can be used: another member comes first.
    let mut world = rested(3);
    world
        .api
        .pvcs
        .values_mut()
        .for_each(|pvc| pvc.node_bound = None);
    world.cordon("node-b", true);
    let plan = world.reconcile();
    let first = plan.first().map(|step| step.action.word());
    assert_eq!(first, Some("CreatePVC"), "{plan}");
}

#[test]
fn one_member_alone_is_replaced_and_never_moved() {
    let mut world = rested(1);
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    for _ in 0..100 {
        world.reconcile();
        assert!(world.reachable_voters().0 >= 1);
    }
    assert_eq!(names(&world), ["demo-2"]);
    // With `Move`, the reason for not moving is reported.
    let mut world = rested(1);
    world.cluster.spec.disruption.node_replacement = NodeReplacement::Move;
    world.cordon(&node, true);
    wait(&mut world, 10);
    let plan = world.reconcile();
    assert!(plan.steps.is_empty() && reason(&plan) == "Guard", "{plan}");
}

/// A changed spec does not recreate a pod that would find no node, and reaches it when it moves.
#[test]
fn roll_skips_members_on_a_drained_node() {
    let mut world = rested_on(3, "node-c");
    world.cordon("node-b", true);
    world.api.wanted_inputs = "spec-2".into();
    for _ in 0..300 {
        world.reconcile();
    }
    let outdated: Vec<_> = (world.api.pods.iter())
        .filter(|(_, pod)| pod.inputs.as_deref() != Some("spec-2"))
        .map(|(name, _)| world.node_of(name))
        .collect();
    assert_eq!(outdated, ["node-b"]);
    let fresh = world.api.nodes["node-a"].clone();
    world.api.nodes.insert("node-d".into(), fresh);
    let plans = world.settle(400);
    assert!(plans.last().is_some_and(|plan| plan.progress.is_none()));
    assert!(
        world
            .api
            .pods
            .values()
            .all(|pod| pod.inputs.as_deref() == Some("spec-2"))
    );
}

/// A step is planned twice, on what is cached and then on a live observation, and is executed if both want
/// the same. The time of a release was part of its step, which therefore never was the same one: no
/// member ever moved.
#[test]
fn plan_a_moment_later_has_the_same_step() {
    let mut world = rested(3);
    wait(&mut world, 10);
    world.cordon("node-b", true);
    for _ in 0..60 {
        let mut later = world.observe();
        later.now_ms += 1;
        let first = |plan: &Plan| plan.first().map(|step| step.action.clone());
        assert_eq!(first(&plan(&world.observe())), first(&plan(&later)));
        world.reconcile();
    }
    assert_ne!(world.node_of("demo-2"), "node-b");
}
