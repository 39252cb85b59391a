//! A member that the user has fenced: stopped, kept as it is, and started again.

use crate::crd::{ConditionType, DisruptionPolicy, MemberHealth};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, ObjectAction, Plan, lint, plan};

fn name(world: &mut World, names: &[&str]) {
    world.api.fenced = names.iter().map(|name| (*name).to_owned()).collect();
}

fn reason(plan: &Plan, type_: ConditionType) -> &'static str {
    let mut all = plan.conditions.iter();
    let found = all.find(|it| it.type_ == type_);
    found.map_or("none", |it| it.reason)
}

fn is_stopped(world: &World, member: &str) -> bool {
    world.api.sets[member].hibernated && !world.api.pods.contains_key(member)
}

/// Passes; in none of them a member is added or removed, and no pod is deleted.
fn pass(world: &mut World, times: u32) -> Plan {
    let mut last = plan(&world.observe());
    for _ in 0..times {
        last = world.reconcile();
        let changes = |action: &Action| {
            use crate::plan::MemberAction::{AddLearner, Promote, Remove};
            matches!(
                action,
                Action::Object(ObjectAction::DeletePod { .. })
                    | Action::Member(AddLearner { .. } | Promote { .. } | Remove { .. })
            )
        };
        assert!(
            !last.steps.iter().any(|step| changes(&step.action)),
            "{last}"
        );
    }
    last
}

#[test]
fn leader_is_fenced_and_comes_back() {
    let mut script = Script::new(
        "fence",
        "The user names the leader: it hands over, its set gets no pod, and its member and its volume stay, for longer than any deadline and while the spec changes. Named no more, it starts on its disk, and the change goes on.",
    );
    let mut world = rested(3);
    name(&mut world, &["demo-1"]);
    script.observe("It leads", &world);
    for _ in 0..60 {
        world.reconcile();
    }
    assert!(is_stopped(&world, "demo-1"));
    script.observe("A minute later", &world);
    world.api.wanted_inputs = "spec-2".into();
    world.cluster.spec.replicas = 5;
    let last = pass(&mut world, 1500);
    assert!(is_stopped(&world, "demo-1"));
    assert_eq!(reason(&last, ConditionType::Degraded), "Fenced", "{last}");
    assert_eq!(
        reason(&last, ConditionType::Stalled),
        "NotStalled",
        "{last}"
    );
    let row = last.status.members.iter().find(|row| row.name == "demo-1");
    assert_eq!(row.map(|row| row.health), Some(MemberHealth::Unhealthy));
    script.observe("Much later, with another spec and another size", &world);
    name(&mut world, &[]);
    script.settle("Named no more", &mut world);
    script.compare();
}

/// Another member fails beside it: what heals it goes as far as the quorum allows, and the fenced one stays as it is.
#[test]
fn others_are_healed_beside_it() {
    let mut script = Script::new(
        "fence-beside-a-loss",
        "Of five voters one is fenced, and another one loses its disk: that one is removed, and its successor comes when nobody is fenced.",
    );
    let mut world = rested(5);
    name(&mut world, &["demo-4"]);
    for _ in 0..60 {
        world.reconcile();
    }
    assert!(is_stopped(&world, "demo-4"));
    world.lose_pvc("demo-5");
    wait(&mut world, 5);
    script.observe("demo-5 has lost its PVC", &world);
    for _ in 0..120 {
        world.reconcile();
    }
    assert!(is_stopped(&world, "demo-4"));
    assert_eq!(world.voters(), 4);
    script.observe("Two minutes later", &world);
    name(&mut world, &[]);
    script.settle("Named no more", &mut world);
    script.compare();
}

/// Without it there would be no quorum: nothing is stopped, however long it is named.
#[test]
fn no_quorum_is_fenced() {
    for (size, named, stopped) in [
        (1, &["demo-1"][..], 0),
        (2, &["demo-2"], 0),
        (3, &["demo-1", "demo-2", "demo-3"], 1),
        (5, &["demo-1", "demo-2", "demo-3"], 2),
    ] {
        let mut world = rested(size);
        name(&mut world, named);
        let mut last = plan(&world.observe());
        for _ in 0..200 {
            last = world.reconcile();
        }
        let off = named.iter().filter(|name| is_stopped(&world, name)).count();
        assert_eq!(off, stopped, "{size}: {last}");
        assert!(last.status.leader.is_some(), "{last}");
        let stalled = reason(&last, ConditionType::Stalled);
        assert_eq!(stalled == "FenceRefused", size < 3, "{size}: {last}");
        let waits = last.progress.as_ref().map(|it| it.action);
        assert_eq!(waits == Some("Fence"), size > 2, "{size}: {last}");
    }
}

/// Who is named beside a member that is down waits, and the one that is down may be looked at.
#[test]
fn one_that_is_down_may_be_fenced() {
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    wait(&mut world, 30);
    name(&mut world, &["demo-2"]);
    let last = pass(&mut world, 10);
    assert_eq!(
        last.progress.as_ref().map(|it| it.reason),
        Some("Guard"),
        "{last}"
    );
    assert!(!is_stopped(&world, "demo-2"));
    name(&mut world, &["demo-3"]);
    pass(&mut world, 1500);
    assert!(is_stopped(&world, "demo-3"));
    assert_eq!(world.voters(), 3);
}

/// A sleep in between: more may be named then than can be spared.
#[test]
fn wakes_with_a_quorum() {
    let mut world = rested(3);
    world.cluster.spec.replicas = 0;
    world.settle(100);
    name(&mut world, &["demo-1", "demo-2"]);
    world.cluster.spec.replicas = 3;
    for _ in 0..120 {
        world.reconcile();
    }
    assert!(is_stopped(&world, "demo-1"));
    assert!(!is_stopped(&world, "demo-2"));
    assert!(plan(&world.observe()).status.leader.is_some());
    name(&mut world, &[]);
    world.settle(500);
    assert!(!is_stopped(&world, "demo-1"));
}

/// Its set is gone: it is made again, and starts nothing.
#[test]
fn set_that_is_gone_stays_stopped() {
    let mut world = rested(3);
    name(&mut world, &["demo-2"]);
    pass(&mut world, 60);
    world.api.sets.remove("demo-2");
    pass(&mut world, 60);
    assert!(is_stopped(&world, "demo-2"));
}

/// A voter's set is gone, and nothing has stopped the voter. The missing set counted as stopped, so one without a pod was made for it, and
/// its server ended without a hand-over; of two that were named the one that was stopped for certain was started meanwhile, and three
/// voters were without a quorum.
#[test]
fn missing_set_is_no_fence() {
    let mut world = rested(3);
    name(&mut world, &["demo-2"]);
    pass(&mut world, 60);
    assert!(is_stopped(&world, "demo-2"));
    name(&mut world, &["demo-1", "demo-2"]);
    world.api.sets.remove("demo-1");
    for _ in 0..120 {
        let last = pass(&mut world, 1);
        assert!(last.status.leader.is_some(), "{last}");
        assert!(world.api.pods.contains_key("demo-1"), "{last}");
        assert!(is_stopped(&world, "demo-2"), "{last}");
    }
}

/// The set of a named voter is gone, with its pod, while another one is down: it was made again without a pod, and the quorum stayed lost
/// until somebody took the name back. It was never stopped for the sake of its name.
#[test]
fn missing_set_beside_a_loss_starts() {
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    wait(&mut world, 30);
    name(&mut world, &["demo-2"]);
    pass(&mut world, 10);
    assert!(!is_stopped(&world, "demo-2"), "no safe moment");
    world.api.sets.remove("demo-2");
    world.api.pods.remove("demo-2");
    wait(&mut world, 10);
    let last = pass(&mut world, 60);
    assert!(!is_stopped(&world, "demo-2"), "{last}");
    assert!(last.status.leader.is_some(), "{last}");
}

/// Evictions are counted, and nobody counts what a set ends: a drain that asked in the moment in which the named voter was stopped took a
/// second one.
#[test]
fn no_eviction_goes_through_beside_it() {
    for probed in [true, false] {
        let mut world = World::new(3);
        world.cluster.spec.disruption.policy = DisruptionPolicy::Budget;
        world.settle(1000);
        if !probed {
            // The kubelet does not see that it has retired.
            world.faults.unprobed.insert("demo-2".into());
        }
        name(&mut world, &["demo-2"]);
        let mut stopped = false;
        for _ in 0..120 {
            let planned = plan(&world.observe());
            let first = planned.first().map(|step| step.action.clone());
            let stops = matches!(
                &first,
                Some(Action::Object(ObjectAction::ApplySet {
                    hibernated: true,
                    ..
                }))
            );
            if stops {
                let refused = !world.clone().evict("demo-3");
                assert!(refused, "{probed}: {planned}");
            }
            stopped |= stops;
            world.reconcile();
        }
        assert!(stopped && is_stopped(&world, "demo-2"));
        assert_eq!(world.min_available(), Some(2), "{probed}");
    }
}

/// A name of nobody, of a member that is to come, or of another cluster.
#[test]
fn strangers_are_told() {
    let mut world = rested(3);
    name(&mut world, &["demo-4", "nobody"]);
    let last = pass(&mut world, 5);
    let told = last
        .notes
        .iter()
        .filter(|note| note.reason == "FencedUnknown");
    assert_eq!(told.count(), 2, "{last}");
    world.cluster.spec.replicas = 4;
    world.settle(200);
    assert_eq!(world.voters(), 4);
}

/// A plan that stops a member without a quorum beside it, or one that nobody names, is refused.
#[test]
fn lints_know_the_guard() {
    let mut world = rested(3);
    name(&mut world, &["demo-2"]);
    let stops = |plan: &Plan| {
        let first = plan.first().map(|step| &step.action);
        matches!(first, Some(Action::Object(ObjectAction::ApplySet { .. })))
    };
    while !stops(&plan(&world.observe())) {
        world.reconcile();
        assert!(!is_stopped(&world, "demo-2"), "it was not seen");
    }
    let planned = plan(&world.observe());
    let seen = world.observe();
    assert!(lint(&seen, &planned).is_empty());
    let mut unnamed = seen.clone();
    unnamed.fenced.clear();
    assert!(!lint(&unnamed, &planned).is_empty());
    // Without a set it runs all the same.
    let mut orphaned = seen.clone();
    orphaned.sets.remove("demo-2");
    assert!(!lint(&orphaned, &planned).is_empty());
    orphaned.pods.remove("demo-2");
    assert!(!lint(&orphaned, &planned).is_empty());
    let mut alone = seen;
    alone.descriptions.remove("demo-3");
    alone.descriptions.remove("demo-2");
    assert!(!lint(&alone, &planned).is_empty());
}

/// A fenced member is not healthy, so it was the first to go of a cluster that was to shrink, and its volume with it.
#[test]
fn smaller_size_waits_for_the_fenced_one() {
    let mut world = rested(5);
    name(&mut world, &["demo-2"]);
    for _ in 0..60 {
        world.reconcile();
    }
    assert!(is_stopped(&world, "demo-2"));
    world.cluster.spec.replicas = 3;
    let last = pass(&mut world, 300);
    assert_eq!(world.voters(), 5, "{last}");
    assert!(is_stopped(&world, "demo-2"));
    name(&mut world, &[]);
    world.settle(1000);
    assert_eq!(world.voters(), 3);
    assert!(world.api.pods.contains_key("demo-2"), "it serves again");
}
