//! The alarm CORRUPT, and what is done about it. NOSPACE is in `space`.

use crate::plan::MemberAction;
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, Comparison, Plan, PvcState, plan};

pub(super) fn does_nothing(plan: &Plan) {
    assert!(plan.steps.is_empty(), "{plan}");
}

#[test]
fn corrupt_follower() {
    let mut script = Script::new(
        "corrupt-follower",
        "The data of a follower differs. Two comparisons prove it; it is removed, another takes its place on a disk of its own, and the alarm goes off once all data is equal.",
    );
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    wait(&mut world, 1);
    does_nothing(&script.observe("Compared once", &world));
    script.settle("Until rest", &mut world);
    replaced(&world, &corrupt);
    script.compare();
}

#[test]
fn corrupt_leader() {
    let mut script = Script::new(
        "corrupt-leader",
        "The data of the leader differs: another one leads at once, and its comparisons count.",
    );
    let mut world = rested(3);
    let corrupt = world.raft.leader.clone().expect("a leader");
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    script.settle("Until rest", &mut world);
    replaced(&world, &corrupt);
    script.compare();
}

#[test]
fn corrupt_two_of_five() {
    let mut script = Script::new(
        "corrupt-two",
        "The data of two of five differs, the leader's among them: one after the other is replaced, and no member leaves before the successor of the one before votes.",
    );
    let mut world = rested(5);
    let leader = world.raft.leader.clone().expect("a leader");
    for corrupt in [leader.clone(), follower(&world)] {
        world.alarm("CORRUPT", &corrupt);
        world.health.differing.insert(corrupt);
    }
    script.settle("Until rest", &mut world);
    replaced(&world, &leader);
    assert_eq!(world.raft.members.len(), 5);
    script.compare();
}

/// Cases in which nothing is done: what is observed, and the message to the user.
#[test]
fn undecided_hashes_replace_no_member() {
    let text_for = |replicas: i32, named: &[&str], differing: &[&str]| {
        let mut world = rested(replicas);
        for member in named {
            world.alarm("CORRUPT", member);
        }
        world.health.differing = differing.iter().map(|name| (*name).to_owned()).collect();
        wait(&mut world, 30);
        let plan = plan(&world.observe());
        does_nothing(&plan);
        plan.to_string()
    };
    let all = ["demo-1", "demo-2", "demo-3"];
    let majority = text_for(3, &all[..2], &all[..1]);
    assert!(
        majority.contains("it names no minority of the voters"),
        "{majority}"
    );
    let equal = text_for(3, &all[1..2], &[]);
    assert!(
        equal.contains("the data of all members is equal by now"),
        "{equal}"
    );
    let other = text_for(3, &all[1..2], &all[2..]);
    assert!(
        other.contains("are not those whose data differs"),
        "{other}"
    );
    let more = text_for(5, &all[1..2], &all[1..]);
    assert!(more.contains("are not those whose data differs"), "{more}");
    let mut unnamed = rested(3);
    unnamed.health.alarms = vec!["CORRUPT".into()];
    wait(&mut unnamed, 30);
    let plan = plan(&unnamed.observe());
    does_nothing(&plan);
    assert!(
        plan.to_string()
            .contains("it names no member, because no majority"),
        "{plan}"
    );
}

/// An operator that disarmed the alarms by which a followed cluster is closed would make two clusters that take writes.
#[test]
fn a_cluster_that_was_left_stays_closed() {
    let mut world = rested(3);
    let closed = ["CORRUPT", "NOSPACE"].map(|alarm| format!("{alarm} 666f6c6c00000001"));
    world.health.alarms = closed.to_vec();
    wait(&mut world, 60);
    let plan = plan(&world.observe());
    does_nothing(&plan);
    let said = plan.to_string();
    assert_eq!(
        said.matches("closed to writes, because").count(),
        2,
        "{said}"
    );
    assert_eq!(world.health.alarms, closed);
}

/// One comparison can be wrong: a member that was restarted a moment later has the data of its disk.
#[test]
fn one_comparison_is_not_enough() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    wait(&mut world, 2);
    assert_eq!(world.leading().comparisons.len(), 1);
    world.health.differing.clear();
    for _ in 0..60 {
        does_nothing(&plan(&world.observe()));
        world.tick();
    }
    assert!(
        !world.health.alarms.is_empty(),
        "an administrator must see it"
    );
}

/// The comparison that CORRUPT waits for was the current step, before the rule for unhealthy members. Only that step
/// records how long a new leader has had no contact with a voter that it never reached, so the old leader was never
/// unhealthy for long enough, and stayed.
#[test]
fn lost_member_is_replaced_under_an_alarm() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    world.cluster.spec.healing.unhealthy_seconds = 60;
    let lost = world.raft.leader.clone().expect("a leader");
    world.faults.side.insert(lost.clone(), 1);
    for _ in 0..300 {
        world.reconcile();
    }
    assert!(world.raft.members.iter().all(|member| member.name != lost));
    replaced(&world, &corrupt);
}

/// Until it was proven wrong, a leader that the alarm named kept replicating its data to learners: growing and healing
/// gave the wrong data the majority. Now leadership is moved first, on the alarm alone, and no member joins while it
/// leads.
#[test]
fn named_leader_seeds_no_member() {
    let mut world = rested(3);
    let corrupt = world.raft.leader.clone().expect("a leader");
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    world.cluster.spec.replicas = 5;
    let first = plan(&world.observe());
    let leads = |step: &crate::plan::Step| {
        matches!(step.action, Action::Member(MemberAction::Transfer { .. }))
    };
    assert!(first.first().is_some_and(leads), "{first}");
    for _ in 0..400 {
        let plan = world.reconcile();
        let adds = |step: &crate::plan::Step| {
            matches!(step.action, Action::Member(MemberAction::AddLearner { .. }))
        };
        let by = world.raft.leader.clone().unwrap_or_default();
        assert!(!plan.first().is_some_and(adds) || by != corrupt, "{plan}");
    }
    assert_eq!(world.voters(), 5);
    let spoiled = |view: &&crate::plan::MemberView| world.health.differing.contains(&view.name);
    assert_eq!(world.raft.members.iter().find(spoiled), None);
    replaced(&world, &corrupt);
}

/// If no voter can take over from the leader, it is asked again after increasing pauses, and the other rules run.
#[test]
fn transfer_of_a_named_leader_is_bounded() {
    let mut world = rested(3);
    let corrupt = world.raft.leader.clone().expect("a leader");
    world.alarm("CORRUPT", &corrupt);
    let mut asked = 0;
    for _ in 0..400 {
        let plan = plan(&world.observe());
        let leads = |step: &crate::plan::Step| {
            matches!(step.action, Action::Member(MemberAction::Transfer { .. }))
        };
        asked += usize::from(plan.first().is_some_and(leads));
        world.status = plan.status.clone();
        world.tick();
    }
    assert!((60..200).contains(&asked), "{asked}");
}

/// A learner that a wrong leader had made before the alarm was raised was promoted by the next one. It is
/// given up, and its successor comes from a leader whose data is right.
#[test]
fn a_learner_with_wrong_data_never_votes() {
    let mut world = rested(3);
    let corrupt = world.raft.leader.clone().expect("a leader");
    world.health.differing.insert(corrupt.clone());
    world.cluster.spec.replicas = 4;
    world.pace.catch_up = 1;
    let mut reconciles = 0;
    while !world.raft.members.iter().any(|view| view.learner) {
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 100, "no learner");
    }
    for _ in 0..3 {
        world.reconcile();
    }
    world.alarm("CORRUPT", &corrupt);
    world.pace.catch_up = 1_000_000;
    let voter = |world: &World| {
        let wrong = |view: &&crate::plan::MemberView| {
            !view.learner && view.name != corrupt && world.health.differing.contains(&view.name)
        };
        world.raft.members.iter().find(wrong).cloned()
    };
    for _ in 0..600 {
        world.reconcile();
        assert_eq!(voter(&world), None);
    }
    assert_eq!(world.voters(), 4);
    replaced(&world, &corrupt);
}

/// If the wrong data is in the majority, the correct copy is proven "wrong", and its volume was deleted once its
/// successor voted. This cannot be detected; so the volume is kept, also if its node does not report until the alarm is
/// disarmed, and the status explains it.
#[test]
fn volume_of_a_named_member_is_kept() {
    let mut world = rested(3);
    let right = follower(&world);
    let all: Vec<String> = world
        .raft
        .members
        .iter()
        .map(|view| view.name.clone())
        .collect();
    world.health.differing = all.into_iter().filter(|name| *name != right).collect();
    world.alarm("CORRUPT", &right);
    let node = world.node_of(&right);
    for _ in 0..120 {
        world.reconcile();
        let there = world.raft.members.iter().any(|view| view.name == right);
        if !there && let Some(node) = world.api.nodes.get_mut(&node) {
            node.ready = false;
        }
    }
    assert!(world.health.alarms.is_empty() && world.api.sets.contains_key(&right));
    world.api.nodes.get_mut(&node).expect("a node").ready = true;
    world.settle(100);
    replaced(&world, &right);
    let leftovers = &world.status.leftovers;
    assert!(
        leftovers.len() == 1
            && leftovers[0]
                .reason
                .contains("left while the alarm CORRUPT was on"),
        "{leftovers:?}"
    );
}

/// If the successor of a named member is named itself, the next one may be as well: voters were replaced without end.
/// Under one alarm no more than a minority is replaced.
#[test]
fn at_most_a_minority_is_replaced_per_alarm() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    let mut reconciles = 0;
    while world.raft.members.iter().any(|view| view.name == corrupt) || world.voters() < 3 {
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 200, "not replaced");
    }
    let next = world.raft.members.last().expect("a successor").name.clone();
    world.health.differing.insert(next.clone());
    world.alarm("CORRUPT", &next);
    world.settle(200);
    assert!(world.raft.members.iter().any(|view| view.name == next));
    let plan = plan(&world.observe());
    does_nothing(&plan);
    assert!(plan.to_string().contains("more than a minority"), "{plan}");
}

/// A cluster of three that was to have five, with nodes for three or four, waited for a fifth voter before any member
/// left or the alarm was disarmed.
#[test]
fn healing_without_room_to_grow() {
    for spare in [0, 1] {
        let mut world = World::new(3);
        world.pace.node_bound = true;
        world.settle(1000);
        let busy: Vec<String> = world
            .api
            .pods
            .values()
            .filter_map(|p| p.node.clone())
            .collect();
        let free = world.api.nodes.keys().filter(|node| !busy.contains(node));
        let free: Vec<String> = free.skip(spare).cloned().collect();
        for node in free {
            world.cordon(&node, true);
        }
        let corrupt = follower(&world);
        world.health.differing.insert(corrupt.clone());
        world.alarm("CORRUPT", &corrupt);
        world.cluster.spec.replicas = 5;
        for _ in 0..600 {
            world.reconcile();
        }
        assert_eq!(world.voters(), 3 + spare);
        replaced(&world, &corrupt);
    }
}

/// While paused, the status reported that a member was being replaced.
#[test]
fn status_reports_paused() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    wait(&mut world, 30);
    let text = "while spec.paused is set the operator does nothing of it";
    assert!(!plan(&world.observe()).to_string().contains(text));
    world.cluster.spec.paused = true;
    let paused = plan(&world.observe());
    does_nothing(&paused);
    assert!(paused.to_string().contains(text), "{paused}");
}

/// A member without a hash is named, and after some minutes what the user can do without it.
#[test]
fn members_without_a_hash_are_named() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.alarm("CORRUPT", &corrupt);
    let ids: Vec<u64> = world.raft.members.iter().map(|view| view.id).collect();
    let compared = Comparison {
        agree: ids[..2].iter().copied().collect(),
        silent: [ids[2]].into(),
        ..Comparison::default()
    };
    world.health.compared = vec![
        (world.api.now_ms, compared.clone()),
        (world.api.now_ms - 60_000, compared),
    ];
    let mut seen = world.observe();
    let soon = plan(&seen).to_string();
    assert!(soon.contains("demo-3 gave no hash in time"), "{soon}");
    assert!(!soon.contains("move-leader"), "{soon}");
    seen.status_memory.step = Some(("Compare".into(), None, world.api.now_ms - 600_000));
    let late = plan(&seen).to_string();
    assert!(late.contains("demo-3 gave no hash in time"), "{late}");
    assert!(late.contains("`etcdctl move-leader`"), "{late}");
}

/// Of three members, the leader's data differed from that of the other two, one of which was lost. The alarm then names
/// no member; the lost one was replaced by a copy of the leader's data, and the two looked like the majority; the
/// volume of the lost one was deleted. Now nothing is done before the user decides, and the decision is carried out
/// with the data of the members that are kept.
#[test]
fn tie_breaker_is_not_replaced() {
    let mut world = rested(3);
    let wrong = world.raft.leader.clone().expect("a leader");
    let others = world.raft.members.iter().map(|view| view.name.clone());
    let others: Vec<String> = others.filter(|name| *name != wrong).collect();
    world.health.differing.insert(wrong.clone());
    world.cluster.spec.healing.unhealthy_seconds = 60;
    world.lose_disk(&others[0]);
    world.health.alarms = vec!["CORRUPT 0".into()];
    for _ in 0..600 {
        let plan = world.reconcile();
        let words = plan.steps.iter().map(|step| step.action.word());
        let harm = ["AddLearner", "Promote", "Remove", "DeletePVC"];
        assert!(
            words.into_iter().all(|word| !harm.contains(&word)),
            "{plan}"
        );
    }
    let text = plan(&world.observe()).to_string();
    assert!(
        text.contains("no majority of the voters is known"),
        "{text}"
    );
    world.cluster.spec.replace_members = vec![wrong.clone()];
    let mut reconciles = 0;
    while world.raft.members.iter().any(|view| view.name == wrong) || world.voters() < 3 {
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 600, "{}", plan(&world.observe()));
    }
    let spoiled = |view: &&crate::plan::MemberView| world.health.differing.contains(&view.name);
    assert_eq!(world.raft.members.iter().find(spoiled), None);
    for name in [&wrong, &others[0]] {
        let mut pvcs = world.api.pvcs.values();
        let pvc = pvcs.find(|pvc| pvc.member.as_ref() == Some(name));
        assert!(
            pvc.is_some_and(|pvc| pvc.state == PvcState::Retired),
            "{name}"
        );
    }
}

/// With two members a new image alone made it so: with replacement as the way of updates, the follower went.
#[test]
fn two_differing_members_are_not_replaced() {
    let mut world = rested(2);
    let wrong = world.raft.leader.clone().expect("a leader");
    world.health.differing.insert(wrong.clone());
    world.health.alarms = vec!["CORRUPT 0".into()];
    world.cluster.spec.replicas = 3;
    for _ in 0..200 {
        let plan = world.reconcile();
        let words = plan.steps.iter().map(|step| step.action.word());
        let harm = ["AddLearner", "Promote", "Remove", "DeletePVC", "DeletePod"];
        assert!(
            words.into_iter().all(|word| !harm.contains(&word)),
            "{plan}"
        );
    }
}

/// Two of three had wrong data, and the alarm named the right one. The user knew, and named the others; the next
/// comparison proved the right one "wrong", and it was replaced.
#[test]
fn comparison_does_not_overrule_the_user() {
    let mut world = rested(3);
    let right = follower(&world);
    let wrong = world.raft.members.iter().map(|view| view.name.clone());
    let wrong: Vec<String> = wrong.filter(|name| *name != right).collect();
    world.health.differing = wrong.iter().cloned().collect();
    world.alarm("CORRUPT", &right);
    world.cluster.spec.replace_members = wrong.clone();
    let mut reconciles = 0;
    while world
        .raft
        .members
        .iter()
        .any(|view| wrong.contains(&view.name))
    {
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 600, "{}", plan(&world.observe()));
        assert!(world.raft.members.iter().any(|view| view.name == right));
    }
    let spoiled = |view: &&crate::plan::MemberView| world.health.differing.contains(&view.name);
    assert_eq!(world.raft.members.iter().find(spoiled), None);
}

/// The volume was marked one step after the removal: if the alarm was disarmed in between, it was deleted.
#[test]
fn a_volume_is_marked_before_its_member_leaves() {
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    let mut reconciles = 0;
    while world.raft.members.iter().any(|view| view.name == corrupt) {
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 200, "not replaced");
    }
    world.health.alarms.clear();
    world.settle(200);
    replaced(&world, &corrupt);
    // Before the removal: the member stays, and its volume is one like any other again.
    let mut world = rested(3);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    let retired = |world: &World| {
        let mut pvcs = world.api.pvcs.values();
        pvcs.any(|pvc| pvc.state == PvcState::Retired)
    };
    while !retired(&world) {
        world.reconcile();
    }
    assert!(world.raft.members.iter().any(|view| view.name == corrupt));
    world.health.alarms.clear();
    world.settle(200);
    assert!(!retired(&world) && world.raft.members.len() == 3);
}

/// A leader of 0.1.0 compares nothing and can switch nothing off.
#[test]
fn leader_without_comparisons_is_reported() {
    let mut world = rested(3);
    let leader = world.raft.leader.clone().expect("a leader");
    let corrupt = follower(&world);
    world.faults.unsigned.insert(leader);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    wait(&mut world, 30);
    let plan = plan(&world.observe());
    does_nothing(&plan);
    assert!(
        plan.to_string()
            .contains("the leader's version does not report comparisons"),
        "{plan}"
    );
}

/// Unhealthy members are healed first, by their own rules.
#[test]
fn unhealthy_voter_blocks_removals() {
    let mut world = rested(5);
    let corrupt = follower(&world);
    world.health.differing.insert(corrupt.clone());
    world.alarm("CORRUPT", &corrupt);
    wait(&mut world, 20);
    let removes = |world: &World| {
        let plan = plan(&world.observe());
        let steps = plan.steps.iter().map(|step| step.action.to_string());
        steps.collect::<Vec<_>>().join("; ").contains(&corrupt)
    };
    assert!(removes(&world), "the control");
    let others = ["demo-1", "demo-2", "demo-3", "demo-4", "demo-5"];
    let leader = world.raft.leader.clone();
    let other = others
        .iter()
        .find(|name| **name != corrupt && Some(**name) != leader.as_deref());
    world
        .faults
        .unseen
        .insert((*other.expect("another")).to_owned());
    assert!(!removes(&world));
}

pub(super) fn follower(world: &World) -> String {
    let all = world.raft.members.iter().map(|view| view.name.clone());
    let mut others = all.filter(|name| Some(name) != world.raft.leader.as_ref());
    others.next().expect("a follower")
}

fn replaced(world: &World, corrupt: &str) {
    assert!(world.health.alarms.is_empty(), "{:?}", world.health.alarms);
    assert!(
        world
            .raft
            .members
            .iter()
            .all(|view| view.name != corrupt && !view.learner)
    );
    assert!(!world.api.sets.contains_key(corrupt));
    let mut pvcs = world.api.pvcs.values();
    let pvc = pvcs.find(|pvc| pvc.member.as_deref() == Some(corrupt));
    let pvc = pvc.expect("its volume may be the only right copy");
    assert!(pvc.state == PvcState::Retired && !pvc.owned && !pvc.terminating);
}
