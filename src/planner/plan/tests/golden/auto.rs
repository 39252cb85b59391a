//! Situations under `disruption.policy: Auto`: when the PDB lets an eviction take one member, and for which reasons it
//! does not.

use crate::crd::{ConditionType, DisruptionPolicy, NodeReplacement, UpdateType, VolumeMobility};
use crate::plan::tests::script::{Script, wait};
use crate::plan::tests::world::World;
use crate::plan::{PdbLimit, Plan, plan};

fn with_auto_policy(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.cluster.spec.disruption.policy = DisruptionPolicy::Auto;
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// All have been ready for a while.
fn rested(replicas: i32) -> World {
    let mut world = with_auto_policy(replicas);
    rest(&mut world);
    world
}

fn rest(world: &mut World) {
    wait(world, 12);
    world.settle(1000);
}

fn limit(world: &World) -> Option<PdbLimit> {
    world.api.pdb.and_then(|pdb| pdb.limit)
}

fn is_open(world: &World) -> bool {
    limit(world) != Some(PdbLimit::CLOSED)
}

/// The condition, in a line.
fn allowed(plan: &Plan) -> String {
    let mut all = plan.conditions.iter();
    let one = all.find(|it| it.type_ == ConditionType::DisruptionAllowed);
    one.map_or("none".to_owned(), |it| {
        format!("{} {}: {}", it.status.as_str(), it.reason, it.message)
    })
}

/// What closes the PDB of a cluster at rest: it is closed by the first step, and then nothing can be evicted.
fn closes(script: &mut Script, title: &str, change: impl FnOnce(&mut World)) {
    let mut world = rested(3);
    assert!(is_open(&world));
    change(&mut world);
    let first = plan(&world.observe());
    let step = first.first();
    let step = step.map(|step| format!("{} ({})", step.action, step.reason));
    world.reconcile();
    assert!(!is_open(&world), "{title}: {first}");
    let names: Vec<String> = world.api.pods.keys().cloned().collect();
    let evicted = names.iter().any(|name| world.clone().evict(name));
    assert!(!evicted, "{title}: an eviction goes through");
    let then = plan(&world.observe());
    script.text += &format!(
        "\n## {title}\nfirst: {}\n{}\nthen: {}\n",
        step.unwrap_or_default(),
        allowed(&first),
        then.summary
    );
}

/// What keeps the PDB closed from the beginning and for good.
fn stays_closed(script: &mut Script, title: &str, world: &mut World) {
    rest(world);
    assert!(!is_open(world), "{title}");
    let names: Vec<String> = world.api.pods.keys().cloned().collect();
    assert!(!names.iter().any(|name| world.clone().evict(name)));
    let now = plan(&world.observe());
    assert!(now.steps.is_empty(), "{title}: {now}");
    script.text += &format!("\n## {title}\n{}\n", allowed(&now));
}

fn node(world: &mut World, member: &str, change: impl FnOnce(&mut crate::plan::NodeFacts)) {
    let name = world.node_of(member);
    change(world.api.nodes.get_mut(&name).expect("a node"));
}

#[test]
fn pdb_opens_at_rest_and_closes_for_a_drain() {
    let mut script = Script::new(
        "auto-drain",
        "The PDB lets one member go while nothing is under way. A node is cordoned: it is closed first, the member is prepared to leave, and only its pod may be evicted.",
    );
    let mut world = with_auto_policy(3);
    assert!(!is_open(&world), "all are ready, and not for long");
    script.observe("Three members vote since a moment ago", &world);
    wait(&mut world, 12);
    script.settle("They were ready for 10 s", &mut world);
    assert_eq!(limit(&world), Some(PdbLimit::MinAvailable(2)));
    script.observe("At rest", &world);
    assert!(world.clone().evict("demo-1"), "one may go");
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    script.observe("The node of demo-1 is cordoned", &world);
    script.settle("The drain waits", &mut world);
    assert_ne!(world.node_of("demo-1"), node);
    assert!(
        !is_open(&world),
        "the node is empty now, and all are to be ready for a while"
    );
    rest(&mut world);
    assert!(
        is_open(&world),
        "a cordoned node without a member is no matter"
    );
    script.compare();
}

/// An autoscaler may evict in the same moment in which it taints the node.
#[test]
fn eviction_that_came_first_is_one_member_down() {
    let mut script = Script::new(
        "auto-evicted",
        "An eviction comes in the moment in which the node is tainted, before the PDB is closed: one member goes, no second one, and it comes back elsewhere.",
    );
    let mut world = rested(3);
    let node = world.node_of("demo-1");
    world.cordon(&node, true);
    assert!(world.evict("demo-1"), "one may go");
    assert!(!world.evict("demo-2"), "and no second one");
    script.settle("It comes back elsewhere", &mut world);
    assert_ne!(world.node_of("demo-1"), node);
    rest(&mut world);
    assert_eq!(limit(&world), Some(PdbLimit::MinAvailable(2)));
    script.compare();
}

/// Kubernetes knows how many pods there should be by the StatefulSets of those that are there: with maxUnavailable 1
/// it lets a second member go between the end of one's pod and its next one.
#[test]
fn pod_that_is_not_there_counts() {
    let mut world = rested(5);
    assert_eq!(limit(&world), Some(PdbLimit::MinAvailable(4)));
    assert!(world.evict("demo-1"));
    assert!(!world.api.pods.contains_key("demo-1"));
    for other in ["demo-2", "demo-3", "demo-4", "demo-5"] {
        assert!(!world.clone().evict(other), "{other}");
    }
}

#[test]
fn each_reason_closes_the_pdb() {
    let mut script = Script::new(
        "auto-closed",
        "What closes the PDB of three members that it was open for, and what keeps it closed for good.",
    );
    let it = &mut script;
    closes(it, "A node is tainted for a drain", |world| {
        node(world, "demo-2", |node| {
            node.drain_reason = Some("has the taint karpenter.sh/disrupted".into());
            node.closed = true;
        });
    });
    closes(it, "A node is not ready", |world| {
        node(world, "demo-2", |node| node.ready = false)
    });
    closes(it, "Nodes cannot be read", |world| world.api.nodes.clear());
    closes(it, "Paused", |world| world.cluster.spec.paused = true);
    closes(it, "Hibernating", |world| world.cluster.spec.replicas = 0);
    closes(it, "More members are wanted", |world| {
        world.cluster.spec.replicas = 5
    });
    closes(it, "Two members are wanted", |world| {
        world.cluster.spec.replicas = 2
    });
    closes(it, "A member is replaced", |world| {
        world.cluster.spec.replace_members = vec!["demo-1".into()];
    });
    closes(it, "The spec changed", |world| {
        world.api.wanted_inputs = "spec-2".into()
    });
    closes(it, "A member does not answer", |world| {
        world.faults.unseen.insert("demo-3".into());
    });
    closes(it, "No leader is seen", |world| {
        world.faults.unseen = ["demo-1", "demo-2", "demo-3"].map(String::from).into();
    });
    closes(it, "A member is not ready", |world| {
        let pod = world.api.pods.get_mut("demo-3").expect("a pod");
        pod.ready_since_ms = None;
    });
    closes(it, "An alarm is on", |world| {
        let id = world.raft.members[0].id;
        world.health.alarms.push(format!("NOSPACE {id:x}"));
    });
    closes(it, "Members are replaced instead of moved", |world| {
        world.cluster.spec.disruption.node_replacement = NodeReplacement::AddFirst;
    });
    closes(it, "A member is named to be fenced", |world| {
        world.api.fenced.insert("demo-2".to_owned());
    });
    closes(it, "Volumes are said to stay", |world| {
        world.cluster.spec.scheduling.volumes = VolumeMobility::NodeBound;
    });
    stays_closed(it, "One member", &mut with_auto_policy(1));
    stays_closed(it, "Two members", &mut with_auto_policy(2));
    let mut bound = World::new(3);
    bound.pace.node_bound = true;
    bound.cluster.spec.disruption.policy = DisruptionPolicy::Auto;
    bound.settle(1000);
    stays_closed(it, "Volumes stay on their nodes", &mut bound);
    let mut replaced = with_auto_policy(3);
    replaced.cluster.spec.update_strategy.type_ = UpdateType::Replace;
    stays_closed(it, "Members are replaced by updateStrategy", &mut replaced);
    script.compare();
}

/// The number is written only over the limit that it was decided on, and a policy that is changed is one write.
#[test]
fn policy_change_is_one_write() {
    let mut script = Script::new(
        "auto-switch",
        "A cluster that was created with another policy gets the new one, and back: one write of one object, and no member is restarted.",
    );
    let mut world = World::new(3);
    world.settle(1000);
    wait(&mut world, 12);
    let uids = |world: &World| -> Vec<String> {
        world.api.pods.values().map(|pod| pod.uid.clone()).collect()
    };
    let before = uids(&world);
    for (policy, least) in [
        (DisruptionPolicy::Auto, Some(PdbLimit::MinAvailable(2))),
        (DisruptionPolicy::Budget, Some(PdbLimit::MinAvailable(2))),
        (DisruptionPolicy::Auto, Some(PdbLimit::MinAvailable(2))),
        (DisruptionPolicy::Gate, Some(PdbLimit::CLOSED)),
    ] {
        world.cluster.spec.disruption.policy = policy;
        script.settle(&format!("{policy:?}"), &mut world);
        assert_eq!(limit(&world), least, "{policy:?}");
    }
    assert_eq!(uids(&world), before);
    script.compare();
}

/// The PDB is made again with the limit that fits, and an edited one is corrected.
#[test]
fn lost_or_edited_pdb_is_made_again() {
    let mut world = rested(3);
    world.lose_objects();
    world.settle(100);
    assert_eq!(limit(&world), Some(PdbLimit::MinAvailable(2)));
    for wrong in [
        Some(PdbLimit::MinAvailable(1)),
        Some(PdbLimit::MaxUnavailable(3)),
        None,
    ] {
        world.api.pdb.as_mut().expect("a PDB").limit = wrong;
        world.settle(100);
        assert_eq!(limit(&world), Some(PdbLimit::MinAvailable(2)), "{wrong:?}");
    }
}

#[test]
fn a_second_drain_waits_for_the_first() {
    let mut world = rested(3);
    let nodes = ["demo-1", "demo-2"].map(|member| world.node_of(member));
    for node in &nodes {
        world.cordon(node, true);
    }
    let mut gone = 0;
    for _ in 0..400 {
        let names: Vec<String> = world.api.pods.keys().cloned().collect();
        let on_them = |name: &&String| nodes.contains(&world.node_of(name));
        let there: Vec<String> = names.iter().filter(on_them).cloned().collect();
        for name in &there {
            // The world fails if the eviction leaves no quorum.
            gone += usize::from(world.evict(name));
        }
        world.reconcile();
    }
    rest(&mut world);
    assert!(is_open(&world));
    let left = world
        .api
        .pods
        .keys()
        .any(|name| nodes.contains(&world.node_of(name)));
    assert!(
        !left && gone == 2,
        "both nodes are empty, by {gone} evictions"
    );
}
