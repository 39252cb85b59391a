//! Situations in which something is lost, unreachable or unhealthy.

use crate::crd::{EtcdClusterStatus, pvc_name};
use crate::plan::observed::{Exit, Observed};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::{CLUSTER_UID, World};
use crate::plan::{Action, plan, plan_after};
use crate::plan::{MemberAction, ObjectAction};

#[test]
fn disk_lost() {
    let mut script = Script::new(
        "disk-lost",
        "A voter's disk comes back empty, and another's PVC is gone: removed at once, then replaced under a new name.",
    );
    let mut world = rested(3);
    world.lose_disk("demo-2");
    wait(&mut world, 2);
    script.observe("The disk of demo-2 is empty", &world);
    script.settle("Until rest", &mut world);
    world.lose_pvc("demo-3");
    wait(&mut world, 2);
    script.observe(
        "Pod and PVC of demo-3 are gone, the leader still remembers it",
        &world,
    );
    script.settle("Until rest again", &mut world);
    script.compare();
}

/// A member of version 0.1.0 signs nothing, so an attacker in front of it could report an empty disk: that removed a
/// healthy member at once, and one after another the whole cluster. Without a signature such a report is ignored: the
/// member's contact with its leader, and time, decide.
#[test]
fn unsigned_empty_disk_is_no_evidence() {
    for unsigned in [false, true] {
        let mut world = rested(3);
        world.lose_disk("demo-2");
        if unsigned {
            world.faults.unsigned.insert("demo-2".into());
        }
        wait(&mut world, 2);
        let plan = plan(&world.observe());
        let removed = plan.steps.iter().any(
            |step| matches!(&step.action, Action::Member(MemberAction::Remove { member, .. }) if member == "demo-2"),
        );
        assert_eq!(removed, !unsigned, "{:?}", plan.steps);
    }
}

/// A pod that could not be deleted counted as replaced each time: the member was given up, and its pod had
/// never been replaced once. The same with a learner that could not be given up.
#[test]
fn only_executed_steps_count() {
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    world.faults.unseen.insert("demo-3".into());
    wait(&mut world, 120);
    let seen = world.observe();
    let planned = plan(&seen);
    let first = planned.first().expect("a step").action.clone();
    assert!(
        matches!(first, Action::Object(ObjectAction::DeletePod { .. })),
        "{planned}"
    );
    let restarts = |done: Option<&Action>| {
        let status = plan_after(&seen, done).status;
        let mut rows = status.members.into_iter();
        rows.find(|row| row.name == "demo-3")
            .and_then(|row| row.restarts)
    };
    assert_eq!(restarts(Some(&first)), Some(1));
    assert_eq!(restarts(None), None);
    let mut world = rested(3);
    world.cluster.spec.replicas = 4;
    world.pace.catch_up = 0;
    let mut reconciles = 0;
    let (seen, gives_up) = loop {
        let seen = world.observe();
        let given_up = plan(&seen).status.join_failures.is_some();
        if given_up {
            break (
                seen.clone(),
                plan(&seen).first().expect("a step").action.clone(),
            );
        }
        world.reconcile();
        reconciles += 1;
        assert!(reconciles < 10_000, "it is never given up");
    };
    let failures = |done| {
        plan_after(&seen, done)
            .status
            .join_failures
            .map(|f| f.count)
    };
    assert_eq!(failures(Some(&gives_up)), Some(1));
    assert_eq!(failures(None), None);
}

#[test]
fn pod_gone_for_good() {
    let mut script = Script::new(
        "pod-gone",
        "A voter's pod runs and has no contact: it is replaced a few times, then the voter is removed.",
    );
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    world.faults.unseen.insert("demo-3".into());
    wait(&mut world, 30);
    script.observe("No contact for half a minute", &world);
    script.settle("Until rest: demo-3 stays cut off", &mut world);
    script.compare();
}

#[test]
fn disk_full() {
    let mut script = Script::new(
        "disk-full",
        "A voter's disk is full: its server ends at each start. The status reports what helps; volumes grow while it is unhealthy, and it is the same member afterwards.",
    );
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    world.faults.unseen.insert("demo-3".into());
    wait(&mut world, 30);
    let pod = world.api.pods.get_mut("demo-3").expect("a pod");
    let started = pod.started_ms.take();
    pod.last_exit = Some(Exit::DiskFull);
    pod.waiting = Some("CrashLoopBackOff: back-off".into());
    script.observe("Half a minute later", &world);
    world.cluster.storage_bytes *= 2;
    script.observe("storage.size is doubled", &world);
    for _ in 0..3 {
        world.reconcile();
    }
    let pod = world.api.pods.get_mut("demo-3").expect("a pod");
    pod.started_ms = started;
    pod.waiting = None;
    world.faults.side.clear();
    world.faults.unseen.clear();
    script.settle("Its volume has grown, and it starts", &mut world);
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

#[test]
fn node_not_ready() {
    let mut script = Script::new(
        "node-not-ready",
        "A node stops reporting. A reboot is waited for; after unhealthySeconds the voter is removed, its pod and PVC stay until the node reports again or is gone.",
    );
    let mut world = rested(3);
    let node = world.api.pods["demo-2"].node.clone().expect("a node");
    world.api.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 60);
    script.observe("A minute later", &world);
    world.api.nodes.get_mut(&node).expect("the node").ready = true;
    wait(&mut world, 2);
    script.observe("It was a reboot", &world);
    world.api.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 601);
    script.settle("It does not come back", &mut world);
    script.observe("What is left on the dead node stays", &world);
    world
        .api
        .nodes
        .get_mut(&node)
        .expect("the node")
        .out_of_service = true;
    script.settle("The node is tainted out-of-service", &mut world);
    script.compare();
}

#[test]
fn partitions() {
    let mut script = Script::new(
        "partitions",
        "Unreachable is unknown, not dead; nothing is removed from a minority view.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 4;
    world.pace.catch_up = 1;
    while !world.raft.members.iter().any(|m| m.learner) {
        world.reconcile();
    }
    let learner = world
        .raft
        .members
        .iter()
        .find(|m| m.learner)
        .expect("a learner")
        .name
        .clone();
    world.reconcile();
    world.reconcile();
    world.faults.side.insert(learner.clone(), 1);
    wait(&mut world, 10);
    script.observe("3 + 1: the learner is cut off from the voters", &world);
    world.faults.side.clear();
    world.pace.catch_up = 1_000_000;
    script.settle("The cut heals", &mut world);
    world.faults.side = [("demo-1".into(), 1)].into();
    wait(&mut world, 10);
    script.observe(
        "3 + 1: one voter of four is cut off, the operator sees all",
        &world,
    );
    for name in ["demo-2", "demo-3"] {
        world.faults.unseen.insert(name.into());
    }
    world.faults.unseen.insert(learner.clone());
    script.observe("3 + 1: the operator is on the side of the one", &world);
    world.faults.unseen.clear();
    world.faults.side = [("demo-1".into(), 1), ("demo-2".into(), 1)].into();
    wait(&mut world, 10);
    script.observe(
        "2 - 2: no side has a quorum, the operator sees both",
        &world,
    );
    world.faults.unseen = [("demo-1".into()), ("demo-2".into())].into();
    wait(&mut world, 3600);
    script.observe("2 - 2: an hour later, the operator sees one side", &world);
    world.faults.unseen.clear();
    world.faults.side.clear();
    script.settle("The cut heals", &mut world);
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

#[test]
fn two_voters_are_unhealthy() {
    let mut script = Script::new(
        "two-unhealthy",
        "Of five voters two are unhealthy: the dead one goes first, and no member is added before.",
    );
    let mut world = rested(5);
    let node = world.api.pods["demo-5"].node.clone().expect("a node");
    world.api.nodes.get_mut(&node).expect("the node").ready = false;
    world.lose_disk("demo-4");
    wait(&mut world, 30);
    script.observe(
        "demo-4 lost its disk, the node of demo-5 does not report",
        &world,
    );
    for _ in 0..5 {
        world.reconcile();
    }
    script.observe("demo-4 is out; demo-5 is waited for", &world);
    world.api.nodes.get_mut(&node).expect("the node").ready = true;
    script.settle("The node is back", &mut world);
    script.compare();
}

#[test]
fn data_lost() {
    let mut script = Script::new(
        "data-lost",
        "Where data may have existed, no second cluster is ever formed.",
    );
    let mut world = rested(1);
    world.lose_pvc("demo-1");
    wait(&mut world, 3);
    script.observe("The only voter's PVC is gone", &world);
    let mut world = rested(3);
    world.lose_disk("demo-1");
    world.lose_disk("demo-2");
    wait(&mut world, 3);
    script.observe("Two disks of three come back empty", &world);
    let mut world = World::new(1);
    while world.disks.is_empty() {
        world.reconcile();
    }
    world.lose_pvc("demo-1");
    world.tick();
    script.observe("The seed's PVC goes before the cluster is formed", &world);
    script.compare();
}

/// Deleting the Secret of a cluster that served gave DataLost, and the advice to delete the resource:
/// which would have lost the data that nothing had touched until then.
#[test]
fn identity_of_a_live_cluster_is_recreated() {
    let mut script = Script::new(
        "identity",
        "Somebody deletes the Secret with the cluster's identity: the members know who they are, and nothing waits for it.",
    );
    let mut world = rested(3);
    world.api.identity_secret = None;
    script.observe("A quorum answers", &world);
    script.settle("Until rest", &mut world);
    assert_eq!(
        world.api.identity_secret.as_ref().map(|l| l.seed.as_str()),
        Some("demo-1")
    );
    world.api.identity_secret = None;
    let all: Vec<String> = world.api.pods.keys().cloned().collect();
    world.faults.unseen.extend(all);
    world.api.sets.remove("demo-2");
    world.status = EtcdClusterStatus::default();
    script.observe("No member answers, and a set is gone as well", &world);
    world.faults.unseen.clear();
    script.settle("They answer", &mut world);
    world
        .api
        .identity_secret
        .as_mut()
        .expect("made again")
        .cluster_uid = "another".into();
    world.lose_disk("demo-3");
    wait(&mut world, 2);
    script.observe("A backup of another life's, beside a lost disk", &world);
    let mut world = World::new(3);
    while !world
        .api
        .pvcs
        .contains_key(&pvc_name("demo-1", CLUSTER_UID))
    {
        world.reconcile();
    }
    world.api.identity_secret = None;
    script.observe("Deleted before the seed had a pod", &world);
    script.settle("Its server reports that the disk is empty", &mut world);
    assert_eq!(world.voters(), 3);
    let mut world = World::new(3);
    while world.raft.members.is_empty() {
        world.reconcile();
    }
    world.api.identity_secret = None;
    world.status = EtcdClusterStatus::default();
    world.faults.unseen.insert("demo-1".into());
    script.observe(
        "Deleted as the cluster was formed, and that was not recorded",
        &world,
    );
    world.faults.unseen.clear();
    script.settle("The seed reports it", &mut world);
    script.compare();
}

/// "No node satisfies the affinity of its volume" counted as a loss at once: replacing the only node of a zone lost a
/// good volume, and the member with it.
#[test]
fn a_volume_whose_node_is_away_is_waited_for() {
    let mut script = Script::new(
        "only-node",
        "The only node that can use a voter's volume is gone: it may come back with the data on it, so it is waited for as for any voter that is away. Its volume is kept until somebody else votes.",
    );
    let away = |world: &mut World, away: bool| {
        let pvc = pvc_name("demo-2", CLUSTER_UID);
        let pvc = world.api.pvcs.get_mut(&pvc).expect("the PVC");
        pvc.no_node =
            away.then(|| "no Node that exists satisfies the affinity of volume pv2".into());
    };
    let mut world = rested(3);
    world.pace.node_bound = true;
    let pvc = pvc_name("demo-2", CLUSTER_UID);
    let node = world.node_of("demo-2");
    let facts = world.api.pvcs.get_mut(&pvc).expect("the PVC");
    (facts.node_bound, facts.nodes) = (Some(true), Some([node.clone()].into()));
    let facts = world.api.nodes.remove(&node).expect("the node");
    world.api.pods.remove("demo-2");
    away(&mut world, true);
    wait(&mut world, 60);
    script.observe("A minute later", &world);
    world.api.nodes.insert(node.clone(), facts);
    away(&mut world, false);
    script.settle("Another machine of its name", &mut world);
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    world.api.nodes.remove(&node);
    world.api.pods.remove("demo-2");
    away(&mut world, true);
    wait(&mut world, 601);
    script.settle("It does not come back", &mut world);
    script.compare();
}

/// A pod that was asked to end and does not, on a node that is ready, was waited for without end:
/// the voter counted as one whose pod recovers.
#[test]
fn a_pod_that_does_not_end() {
    let mut script = Script::new(
        "pod-hangs",
        "A voter's pod is asked to end and does not, on a node that is ready: after unhealthySeconds the voter is removed and replaced.",
    );
    let mut world = rested(3);
    world.faults.side.insert("demo-3".into(), 1);
    world.faults.unseen.insert("demo-3".into());
    world.faults.lingering.insert("demo-3".into());
    world.api.pods.get_mut("demo-3").expect("a pod").terminating = true;
    wait(&mut world, 60);
    script.observe("A minute later", &world);
    wait(&mut world, 541);
    script.settle("After unhealthySeconds", &mut world);
    assert!(world.raft.members.iter().all(|m| m.name != "demo-3"));
    script.compare();
}

/// A full node was not seen: the voter was given up after unhealthySeconds with its data, for a newcomer for
/// which there was no room either.
#[test]
fn a_voter_that_no_node_has_room_for() {
    let mut script = Script::new(
        "no-room",
        "A voter's pod is made anew and no node has room for it; its volume could go anywhere. It is waited for, and the status reports what helps: a newcomer would find no room either.",
    );
    let mut world = rested(3);
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    for node in &nodes {
        world.api.nodes.get_mut(node).expect("a node").closed = true;
    }
    world.api.pods.remove("demo-3");
    wait(&mut world, 660);
    script.observe("For longer than unhealthySeconds", &world);
    for node in &nodes {
        world.api.nodes.get_mut(node).expect("a node").closed = false;
    }
    script.settle("There is room", &mut world);
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

#[test]
fn operator_is_cut_off_from_one() {
    let mut script = Script::new(
        "unknown",
        "The leader has contact with a member that the operator cannot dial: Unknown, and nothing follows.",
    );
    let mut world = rested(3);
    world.faults.unseen.insert("demo-2".into());
    wait(&mut world, 3600);
    script.observe("An hour without an answer from demo-2", &world);
    world.cluster.spec.replicas = 5;
    script.observe("Not even growth", &world);
    world
        .faults
        .unseen
        .extend(["demo-1".to_owned(), "demo-3".to_owned()]);
    script.observe("No member answers", &world);
    script.compare();
}

#[test]
fn stale_descriptions_are_ignored() {
    let world = rested(3);
    let sound = world.observe();
    assert!(plan(&sound).status.leader.is_some());
    let mut other_pod = sound.clone();
    let mut old = sound;
    for (name, description) in &mut other_pod.descriptions {
        description.pod_uid = format!("an earlier pod of {name}");
    }
    for description in old.descriptions.values_mut() {
        description.age_ms = crate::plan::FRESH_MS + 1;
    }
    for observed in [other_pod, old] {
        let plan = plan(&observed);
        assert_eq!(plan.status.leader, None);
        assert!(plan.steps.is_empty(), "{plan}");
    }
}

#[test]
fn possible_seed_is_left_alone() {
    let mut script = Script::new(
        "seed-unknown",
        "The bootstrap call was carried out, but its answer and the status were lost, the seed cannot be dialled, and the spec changes: its pod is not replaced, nothing is formed again.",
    );
    let mut world = World::new(1);
    while world.raft.members.is_empty() {
        world.reconcile();
    }
    world.status = EtcdClusterStatus::default();
    world.faults.unseen.insert("demo-1".into());
    world.api.wanted_inputs = "spec-2".into();
    script.observe(
        "The set gets the new template, which restarts nothing",
        &world,
    );
    world.reconcile();
    script.observe("The pod is left alone", &world);
    world.faults.unseen.clear();
    script.settle("It answers", &mut world);
    script.compare();
}

#[test]
fn learner_with_a_deleted_pvc_is_not_promoted() {
    let mut script = Script::new(
        "pvc-terminating",
        "Somebody deletes PVCs that are in use: they go when their pods go.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    while !world.raft.members.iter().any(|m| m.learner) {
        world.reconcile();
    }
    wait(&mut world, 2);
    world
        .api
        .pvcs
        .get_mut(&pvc_name("demo-4", CLUSTER_UID))
        .expect("a PVC")
        .terminating = true;
    script.observe("A learner's", &world);
    script.settle("Until rest", &mut world);
    world
        .api
        .pvcs
        .get_mut(&pvc_name("demo-1", CLUSTER_UID))
        .expect("a PVC")
        .terminating = true;
    script.observe("A voter's: it serves as long as its pod lives", &world);
    script.compare();
}

/// Found on a busy machine: with `unhealthySeconds: 20` a pod was replaced five seconds after it was
/// made, before its server had started, and again; each put the end off by another start.
#[test]
fn a_pod_that_was_just_made_has_time_to_start() {
    let mut world = rested(3);
    world.cluster.spec.healing.unhealthy_seconds = 20;
    let leader = world.raft.leader.clone();
    let mut names = world.api.pods.keys();
    let victim = names.find(|name| leader.as_ref() != Some(name)).cloned();
    let victim = victim.expect("a follower");
    world.faults.side.insert(victim.clone(), 1);
    let mut ages = Vec::new();
    while world
        .raft
        .members
        .iter()
        .any(|member| member.name == victim)
    {
        let next = plan(&world.observe());
        if let Some(Action::Object(ObjectAction::DeletePod { member, .. })) =
            next.first().map(|step| &step.action)
        {
            assert_eq!(*member, victim);
            ages.push(world.api.now_ms - world.api.pods[&victim].created_ms);
        }
        world.reconcile();
        assert!(ages.len() <= 3, "{ages:?}");
    }
    assert_eq!(
        ages.len(),
        3,
        "restarted as often as the spec allows, then removed"
    );
    assert!(ages.iter().all(|age| *age >= 20_000), "{ages:?}");
}

/// A rollback by `spec.image` showed the plan a server that ends on a newer release's disk. That was
/// taken for damage: the member was removed and its disk deleted, while the handbook promised that
/// the image before takes the member back.
#[test]
fn a_disk_of_a_newer_version_is_kept() {
    let mut script = Script::new(
        "disk-too-new",
        "An image is set back to a version that cannot read the disks: the first member that runs it is held, however long, and the image before takes it back. So is one with a strange file in its data directory.",
    );
    let mut world = rested(3);
    world.api.wanted_inputs = "spec-old".into();
    while world
        .api
        .pods
        .values()
        .all(|pod| pod.inputs.as_deref() != Some("spec-old"))
    {
        world.reconcile();
    }
    let mut names = world.api.pods.iter();
    let first = names.find(|(_, pod)| pod.inputs.as_deref() == Some("spec-old"));
    let first = first.expect("the first of the roll").0.clone();
    ends(&mut world, &first, Exit::TooNew, 30);
    script.observe("The first member ends on its disk", &world);
    ends(&mut world, &first, Exit::TooNew, 3600);
    script.observe("An hour later", &world);
    let now_ms = world.api.now_ms;
    let pod = world.api.pods.get_mut(&first).expect("a pod");
    pod.started_ms = Some(now_ms);
    script.observe("Its container is just being started again", &world);
    world.api.wanted_inputs = "spec-1".into();
    for _ in 0..3 {
        world.reconcile();
    }
    world.faults.side.clear();
    world.faults.unseen.clear();
    script.settle("The image before is set again", &mut world);
    ends(&mut world, "demo-2", Exit::Stray, 3600);
    script.observe("A strange file lies in the log of demo-2", &world);
    assert!(world.raft.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

/// A volume that was set back was taken for its member's until a leader missed entries in it. Now the
/// others refuse it before it votes, and its server ends: it is replaced, like one that lost its disk.
#[test]
fn a_member_whose_disk_was_set_back_is_replaced() {
    let mut script = Script::new(
        "disk-copied",
        "The volume of a member was set back to an older state, and the others refuse it: it is removed, another one takes its place, and its volume is kept until that one votes.",
    );
    let mut world = rested(3);
    ends(&mut world, "demo-2", Exit::Copied, 30);
    script.observe("The others refuse demo-2", &world);
    world.api.pods.get_mut("demo-2").expect("a pod").started_ms = Some(world.api.now_ms);
    script.observe("Its container is just being started again", &world);
    script.compare();
}

/// A server that has ended at each start for so many seconds.
fn ends(world: &mut World, name: &str, how: Exit, seconds: u32) {
    world.faults.side.insert(name.into(), 1);
    world.faults.unseen.insert(name.into());
    wait(world, seconds);
    let pod = world.api.pods.get_mut(name).expect("a pod");
    pod.started_ms = None;
    pod.last_exit = Some(how);
    pod.waiting = Some("CrashLoopBackOff: back-off".into());
}

/// An image that no other member runs may be wrong about a disk: one that reports intact disks as damaged would have
/// had them deleted one after another.
#[test]
fn damage_seen_by_a_new_image_is_no_evidence() {
    let mut world = rested(3);
    world.api.wanted_inputs = "spec-2".into();
    while world
        .api
        .pods
        .values()
        .all(|pod| pod.inputs.as_deref() != Some("spec-2"))
    {
        world.reconcile();
    }
    let mut names = world.api.pods.iter();
    let first = names.find(|(_, pod)| pod.inputs.as_deref() == Some("spec-2"));
    let first = first.expect("the first of the roll").0.clone();
    for _ in 0..30 {
        ends(&mut world, &first, Exit::Corrupt, 60);
        let next = plan(&world.observe());
        let removes =
            |action: &Action| matches!(action, Action::Member(MemberAction::Remove { .. }));
        assert!(
            !next.steps.iter().any(|step| removes(&step.action)),
            "{next}"
        );
    }
    let stalled = plan(&world.observe()).to_string();
    assert!(stalled.contains("Stalled=True UpdateFailed"), "{stalled}");
    // From an image that the others run, the same report counts.
    let mut world = rested(3);
    ends(&mut world, "demo-2", Exit::Corrupt, 10);
    let next = plan(&world.observe());
    let first = next.first().map(|step| &step.action);
    assert!(
        matches!(first, Some(Action::Member(MemberAction::Remove { member, .. })) if member == "demo-2"),
        "{next}"
    );
}

/// A voter whose syncs hang answers heartbeats and its description: the projection of the worst case
/// counted it, and a restart of another took the quorum away.
#[test]
fn a_voter_whose_disk_hangs_does_not_count() {
    let mut world = rested(3);
    world.api.wanted_inputs = "spec-2".into();
    let restarts = |observed: &Observed, name: &str| {
        let next = plan(observed);
        let deletes = |action: &Action| matches!(action, Action::Object(ObjectAction::DeletePod { member, .. }) if member == name);
        next.steps.iter().any(|step| deletes(&step.action))
    };
    let mut observed = world.observe();
    while !restarts(&observed, "demo-3") {
        assert!(
            world.api.now_ms < rested(3).api.now_ms + 60_000,
            "{}",
            plan(&observed)
        );
        world.reconcile();
        observed = world.observe();
    }
    let hangs = |observed: &mut Observed, for_ms| {
        let descriptions = observed.descriptions.values_mut();
        let members = descriptions.flat_map(|described| &mut described.members);
        for member in members.filter(|member| member.name == "demo-2") {
            member.unsynced_ms = for_ms;
        }
    };
    hangs(&mut observed, 5_000);
    let text = plan(&observed).to_string();
    assert!(!restarts(&observed, "demo-3"), "{text}");
    assert!(text.contains("2 of 3 voters are healthy"), "{text}");
    let why = "demo-2: it answers, but its disk has synced nothing of what it was sent";
    assert!(text.contains(why), "{text}");
    // One that was sent something a moment ago is none of these.
    hangs(&mut observed, 4_999);
    assert!(restarts(&observed, "demo-3"));
}
