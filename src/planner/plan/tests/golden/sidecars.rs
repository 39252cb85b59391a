//! Another container of a member's pod does not do its work: it is named, and no member is removed for it.

use std::collections::BTreeSet;

use crate::crd::{ConditionStatus, ConditionType};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, Beside, MemberAction, Plan, plan};

fn fails(world: &mut World, member: &str, why: &str, goes_first: bool) {
    let why = why.to_owned();
    let beside = Beside { why, goes_first };
    world.faults.beside.insert(member.to_owned(), beside);
}

/// Passes; the operator removes nobody in any of them.
fn pass(world: &mut World, times: u32) -> Plan {
    let mut last = plan(&world.observe());
    for _ in 0..times {
        last = world.reconcile();
        let removes =
            |action: &Action| matches!(action, Action::Member(MemberAction::Remove { .. }));
        assert!(
            !last.steps.iter().any(|step| removes(&step.action)),
            "{last}"
        );
    }
    last
}

fn reason(plan: &Plan, type_: ConditionType) -> Option<&'static str> {
    let mut all = plan.conditions.iter();
    let one = all.find(|it| it.type_ == type_ && it.status == ConditionStatus::True);
    one.map(|it| it.reason)
}

/// A mesh whose init container hung had a member removed after ten minutes and three new pods, and the next one, which hung as
/// well, given up again and again: none of it was the member's doing, and its volume went with it.
#[test]
fn one_that_goes_first_hangs() {
    let mut script = Script::new(
        "sidecar-hangs",
        "The pod of demo-2 is made anew, and a container that starts before the server does not end: the pod is replaced as often as any, the member never. The containers work again, and it comes back with its disk.",
    );
    let mut world = rested(3);
    fails(
        &mut world,
        "demo-2",
        "init container mesh-init is still at work",
        true,
    );
    world.api.pods.remove("demo-2");
    wait(&mut world, 30);
    script.observe("Its server does not start", &world);
    let last = pass(&mut world, 900);
    assert_eq!(
        reason(&last, ConditionType::Stalled),
        Some("SidecarFailing"),
        "{last}"
    );
    script.observe("A quarter of an hour later", &world);
    world.faults.beside.clear();
    script.settle("It works", &mut world);
    script.compare();
}

/// The server runs, and whoever is to pass its packets on does not.
#[test]
fn one_beside_cuts_the_server_off() {
    let mut world = rested(3);
    fails(
        &mut world,
        "demo-3",
        "container mesh-proxy waits (CrashLoopBackOff)",
        false,
    );
    world.faults.side.insert("demo-3".into(), 1);
    let last = pass(&mut world, 900);
    assert_eq!(
        reason(&last, ConditionType::Stalled),
        Some("SidecarFailing"),
        "{last}"
    );
    // Without it the same member is removed.
    world.faults.beside.clear();
    let mut removed = false;
    for _ in 0..900 {
        let plan = world.reconcile();
        let mut steps = plan.steps.iter();
        removed |=
            steps.any(|step| matches!(step.action, Action::Member(MemberAction::Remove { .. })));
    }
    assert!(
        removed,
        "it is cut off for good, and nobody else is to blame"
    );
}

/// The member serves, and no Service leads to it. A change of the spec waited for it to be ready, also where the change was to repair
/// what kept it unready.
#[test]
fn one_beside_is_not_ready() {
    let mut script = Script::new(
        "sidecar-not-ready",
        "The container beside the server of demo-1 is not ready, and the spec changes: demo-1 is restarted first, since the change may repair it. It does not: the others wait, and the status names it. Another change does.",
    );
    let mut world = rested(3);
    fails(
        &mut world,
        "demo-1",
        "container mesh-proxy is not ready",
        false,
    );
    wait(&mut world, 30);
    let seen = plan(&world.observe());
    assert_eq!(
        reason(&seen, ConditionType::Degraded),
        Some("SidecarFailing"),
        "{seen}"
    );
    assert_eq!(reason(&seen, ConditionType::Stalled), None, "{seen}");
    world.api.wanted_inputs = "spec-2".into();
    script.observe("The spec has changed", &world);
    pass(&mut world, 60);
    script.observe("A minute later", &world);
    let specs = |world: &World| {
        let specs = world.api.pods.values();
        let specs: Vec<String> = specs.filter_map(|pod| pod.inputs.clone()).collect();
        specs.join(" ")
    };
    assert_eq!(specs(&world), "spec-2 spec-1 spec-1");
    world.api.wanted_inputs = "spec-3".into();
    pass(&mut world, 60);
    assert_eq!(specs(&world), "spec-3 spec-1 spec-1");
    world.faults.beside.clear();
    script.settle("It is ready with another change", &mut world);
    script.compare();
}

/// A mesh is broken for all: each one is restarted with the spec that repairs it, one at a time, although nobody else is ready.
#[test]
fn all_are_repaired_one_at_a_time() {
    for broken in [&["demo-1", "demo-3"][..], &["demo-1", "demo-2", "demo-3"]] {
        let mut world = rested(3);
        for member in broken {
            fails(
                &mut world,
                member,
                "container mesh-proxy is not ready",
                false,
            );
        }
        wait(&mut world, 30);
        world.api.wanted_inputs = "spec-2".into();
        let mut order = Vec::new();
        for _ in 0..300 {
            pass(&mut world, 1);
            assert!(world.api.pods.len() >= 2, "two at once");
            let pods = world.api.pods.iter();
            let changed = pods.filter(|(_, pod)| pod.inputs.as_deref() == Some("spec-2"));
            let changed: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
            for member in changed {
                world.faults.beside.remove(&member);
                if !order.contains(&member) {
                    order.push(member);
                }
            }
        }
        assert_eq!(order.len(), 3, "{order:?}");
        // Whoever is ready goes last.
        let first = &order[..broken.len()];
        assert!(
            broken.iter().all(|one| first.iter().any(|it| it == one)),
            "{order:?}"
        );
    }
}

/// The change repairs nothing: it costs no second member, whoever is unready already.
#[test]
fn one_that_is_not_repaired_holds_the_others() {
    let mut world = rested(3);
    for member in ["demo-1", "demo-3"] {
        fails(
            &mut world,
            member,
            "container mesh-proxy is not ready",
            false,
        );
    }
    wait(&mut world, 30);
    world.api.wanted_inputs = "spec-2".into();
    let last = pass(&mut world, 300);
    let pods = world.api.pods.values();
    let changed = pods.filter(|pod| pod.inputs.as_deref() == Some("spec-2"));
    assert_eq!(changed.count(), 1, "{last}");
    assert_eq!(
        last.progress.as_ref().map(|it| it.reason),
        Some("Settling"),
        "{last}"
    );
}

/// One that was cut off while another one retired for its restart came before that one, so that both had handed over, and then both
/// were restarted: a server answers until the end of its grace period, and counted as one that stays.
#[test]
fn nobody_goes_beside_one_that_retires() {
    let mut world = rested(3);
    world
        .faults
        .lingering
        .extend(["demo-1", "demo-2", "demo-3"].map(String::from));
    world.api.wanted_inputs = "spec-2".into();
    // Those whose servers have handed over, or whose pods end.
    let leave = |world: &World| {
        let observed = world.observe();
        let retire = observed.descriptions.iter();
        let retire = retire.filter(|(_, it)| it.retiring_ms.is_some());
        let end = observed.pods.iter().filter(|(_, pod)| pod.terminating);
        let all = retire
            .map(|(name, _)| name)
            .chain(end.map(|(name, _)| name));
        all.cloned().collect::<BTreeSet<String>>()
    };
    for _ in 0..120 {
        if leave(&world).contains("demo-3") {
            break;
        }
        pass(&mut world, 1);
    }
    assert!(leave(&world).contains("demo-3"), "it hands over first");
    fails(
        &mut world,
        "demo-2",
        "container mesh-proxy is not ready",
        false,
    );
    let before = world.api.pods["demo-3"].uid.clone();
    for second in 0..360 {
        if second == 60 {
            // The pods end.
            world.faults.lingering.clear();
        }
        let last = pass(&mut world, 1);
        let gone = leave(&world);
        assert!(gone.len() <= 1, "{gone:?}\n{last}");
    }
    assert_ne!(world.api.pods["demo-3"].uid, before, "it was restarted");
}
