//! Situations of the slots: endpoints that last while members come and go.

use crate::plan::ObjectAction;
use std::collections::BTreeMap;

use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, ObjectFacts, ObjectKey, ObjectKind, Owner, Plan, plan};

/// Which member each slot leads to.
fn mapped(world: &World) -> BTreeMap<u32, String> {
    let member =
        |(slot, facts): (&u32, &crate::plan::SlotFacts)| Some((*slot, facts.member.clone()?));
    world.api.slots.iter().filter_map(member).collect()
}

fn maps(plans: &[Plan]) -> usize {
    let first = plans.iter().filter_map(Plan::first);
    let map = |step: &&crate::plan::Step| {
        matches!(step.action, Action::Object(ObjectAction::MapSlot { .. }))
    };
    first.filter(map).count()
}

#[test]
fn each_slot_leads_to_one_voter() {
    let mut script = Script::new(
        "slots",
        "Slots: as many endpoints as voters wanted, each in front of one voter; a learner never has one.",
    );
    let mut world = World::new(3);
    script.settle("A cluster is formed", &mut world);
    script.observe("At rest", &world);
    world.cluster.spec.replicas = 5;
    while !world.raft.members.iter().any(|m| m.learner) {
        world.reconcile();
    }
    let plan = script.observe("A learner has none, and no new slot is made for it", &world);
    assert!(
        !plan
            .steps
            .iter()
            .any(|step| step.rule == crate::plan::Rule::Objects),
        "{plan}"
    );
    script.settle("3 -> 5", &mut world);
    world.cluster.spec.replicas = 3;
    script.settle("5 -> 3: the last slots go as the voters do", &mut world);
    world.api.slots.remove(&1);
    script.settle("Somebody deletes a slot's Service", &mut world);
    world.api.slots.get_mut(&0).expect("a slot").inputs = Some("slot-0".into());
    script.settle("A newer operator makes slots of more", &mut world);
    script.compare();
}

#[test]
fn slot_is_handed_over_before_retirement() {
    let mut script = Script::new(
        "slots-replace",
        "A member is replaced on request: its slot leads to its successor before it is retired, the other slots are not touched. A member that died frees its slot when it is removed.",
    );
    let mut world = rested(3);
    let before = mapped(&world);
    world.cluster.spec.replace_members = vec!["demo-2".into()];
    script.settle("demo-2 is replaced", &mut world);
    let after = mapped(&world);
    let changed: Vec<u32> = (before.iter())
        .filter(|(slot, member)| after.get(slot) != Some(member))
        .map(|(slot, _)| *slot)
        .collect();
    assert_eq!(changed.len(), 1, "{before:?} {after:?}");
    world.lose_disk("demo-3");
    script.settle("demo-3 loses its disk", &mut world);
    script.observe("At rest", &world);
    script.compare();
}

#[test]
fn slots_of_others_are_conflicts() {
    let mut script = Script::new(
        "slots-conflict",
        "A slot's Service that somebody else owns stops the cluster; a voter that is merely unseen or unhealthy keeps its slot.",
    );
    let mut world = rested(3);
    let node = world.api.pods["demo-2"].node.clone().expect("a node");
    world.api.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 60);
    let plan_now = plan(&world.observe());
    assert!(plan_now.steps.is_empty(), "{plan_now}");
    world.api.nodes.get_mut(&node).expect("the node").ready = true;
    wait(&mut world, 2);
    world.api.slots.get_mut(&2).expect("a slot").terminating = true;
    script.observe("A slot's Service is on its way out", &world);
    world.api.slots.get_mut(&2).expect("a slot").terminating = false;
    world.api.slots.get_mut(&2).expect("a slot").owner = Owner::Other("Deployment web".into());
    script.observe("A slot's Service belongs to a Deployment", &world);
    script.compare();
}

/// An object that merely has the name of an unneeded slot is not touched, and blocks nothing.
#[test]
fn unwanted_slot_of_others_is_left_alone() {
    let mut world = rested(3);
    let mut other = world.api.slots[&0].clone();
    other.owner = Owner::Unowned;
    world.api.slots.insert(7, other);
    let plan = plan(&world.observe());
    assert!(plan.steps.is_empty(), "{plan}");
    assert!(plan.to_string().contains("Stalled=False"), "{plan}");
}

/// The wait for clients to leave a retired member lives in the record of the step in hand; a slot
/// that is mapped meanwhile must not cut it short.
#[test]
fn a_hand_over_is_not_cut_short_by_a_slot() {
    let mut world = rested(3);
    world.cluster.spec.replicas = 2;
    let word = |plan: &Plan| plan.first().map(|step| step.action.word());
    while word(&world.reconcile()) != Some("Retire") {}
    let retired = world.api.now_ms;
    world.api.slots.remove(&0);
    while word(&world.reconcile()) != Some("Remove") {}
    assert!(
        world.api.now_ms - retired >= 7000,
        "{}",
        world.api.now_ms - retired
    );
    world.settle(1000);
    assert_eq!(mapped(&world).len(), 2);
}

/// However members fail and come back, at rest nothing about the slots is written, and a slot
/// changes its member only when that one leaves.
#[test]
fn nothing_is_mapped_at_rest() {
    let mut world = rested(5);
    let before = mapped(&world);
    assert_eq!(before.len(), 5);
    let plans = world.settle(50);
    assert_eq!(maps(&plans), 0);
    for name in ["demo-1", "demo-4"] {
        world.api.pods.remove(name);
        wait(&mut world, 20);
        assert_eq!(maps(&world.settle(200)), 0);
        assert_eq!(mapped(&world), before);
    }
}

#[test]
fn a_platform_without_slots_gets_none() {
    let mut world = World::new(3);
    world.has_slots = false;
    assert_eq!(maps(&world.settle(1000)), 0);
    let endpoints = plan(&world.observe()).status.endpoints.expect("endpoints");
    assert!(endpoints.slots.is_empty());
}

/// Found by `plan::tests::random`, seed 209: the size goes down, so that the member of slot 1 gets
/// slot 0 as well, and goes up again before slot 1 is dropped. Both slots then led to that member
/// for good, and none to its new companion.
#[test]
fn two_slots_never_keep_one_member() {
    let mut world = rested(2);
    // The member of slot 0 is the one to go.
    let first = world.api.slots[&0].member.clone().expect("a member");
    let node = world.api.pods[&first].node.clone().expect("a node");
    world.cordon(&node, true);
    world.cluster.spec.replicas = 1;
    let both = |world: &World| {
        let held = |slot| {
            world
                .api
                .slots
                .get(&slot)
                .and_then(|facts| facts.member.clone())
        };
        held(0).is_some() && held(0) == held(1)
    };
    for _ in 0..100 {
        if !both(&world) {
            world.reconcile();
        }
    }
    assert!(both(&world), "{:?}", world.api.slots);
    world.cluster.spec.replicas = 2;
    world.settle(1000);
    assert_eq!(world.api.slots.len(), 2);
    assert!(!both(&world), "{:?}", world.api.slots);
}

/// A change of all Services that Kubernetes refuses was refused once for each of them: a reconcile gives up after a few
/// failed writes, and a lost member of a large cluster was not replaced.
#[test]
fn a_change_of_all_services_begins_with_the_client_service() {
    let mut world = rested(3);
    for facts in world.api.slots.values_mut() {
        facts.inputs = Some("slot-0".into());
    }
    let service = |name: &str| ObjectKey {
        kind: ObjectKind::Service,
        name: name.to_owned(),
    };
    let (client, peers) = (service("demo-client"), service("demo-peers"));
    let mut seen = world.observe();
    let older = |inputs: Option<&str>| ObjectFacts {
        owner: Owner::Ours,
        terminating: false,
        inputs: inputs.map(str::to_owned),
    };
    seen.wanted_objects
        .insert(peers.clone(), "objects-1".into());
    let asked = |seen: &crate::plan::Observed| -> Vec<String> {
        let steps = plan(seen).steps.into_iter();
        let of_services = steps.filter_map(|step| match step.action {
            Action::Object(ObjectAction::ApplyObject(key)) => Some(key.name),
            Action::Object(ObjectAction::MapSlot { service, .. }) => Some(service),
            _ => None,
        });
        of_services.collect()
    };
    seen.objects
        .insert(client.clone(), older(Some("objects-0")));
    seen.objects.insert(peers.clone(), older(Some("objects-0")));
    assert_eq!(asked(&seen), ["demo-client"]);
    // What somebody edited or deleted waits for nothing.
    seen.objects.insert(peers.clone(), older(None));
    assert_eq!(asked(&seen), ["demo-client", "demo-peers"]);
    seen.objects.remove(&peers);
    let slot = seen.slots.get_mut(&1).expect("a slot");
    slot.inputs = None;
    let expected = ["demo-client", "demo-peers", "demo-client-1"];
    assert_eq!(asked(&seen), expected);
    // Kubernetes has taken it.
    let wanted = seen.wanted_objects.get(&client).cloned();
    seen.objects.insert(client, older(wanted.as_deref()));
    let expected = [
        "demo-peers",
        "demo-client-0",
        "demo-client-1",
        "demo-client-2",
    ];
    assert_eq!(asked(&seen), expected);
}
