//! Golden texts: for each situation what is seen and what the plan says about it, as a person
//! would read it. `UPDATE_GOLDEN=1` rewrites them; they live in `tests/plan/`.

use std::fmt::Write as _;
use std::path::Path;

use super::world::{CLUSTER_UID, World};
use crate::crd::{EtcdClusterStatus, RetentionPolicy, StepState, claim_name};
use crate::plan::{
    ClaimFacts, ClaimState, MemberView, ObjectFacts, ObjectKey, ObjectKind, Observed, Owner, Phase,
    Plan, SetFacts, plan,
};

/// A script that is compared with its file as a whole.
struct Script {
    name: &'static str,
    text: String,
}

impl Script {
    fn new(name: &'static str, story: &str) -> Script {
        Script {
            name,
            text: format!("# {story}\n"),
        }
    }

    /// What is seen now, and the plan.
    fn look(&mut self, title: &str, world: &World) -> Plan {
        let observed = world.observe();
        let plan = plan(&observed);
        let _ = write!(self.text, "\n## {title}\n{}---\n{plan}", seen(&observed));
        plan
    }

    /// Passes until rest: a line for each step, and for each new thing that is waited for.
    fn settle(&mut self, title: &str, world: &mut World) {
        let _ = write!(self.text, "\n## {title}\n");
        let start = world.now;
        let mut last = String::new();
        let plans = world.settle(4000);
        for (i, plan) in plans.iter().enumerate() {
            let line = match (plan.first(), &plan.progress) {
                (Some(step), _) => format!("{} (rule {}: {})", step.action, step.rule, step.reason),
                (None, Some(p)) if p.state == StepState::Waiting => format!("... {}", plan.summary),
                _ => format!("at rest: {}", plan.summary),
            };
            // What is waited for changes its numbers; the words tell it apart.
            let words: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
            if plan.first().is_some() || words != last {
                let _ = writeln!(self.text, "{:>5} s  {line}", i);
            }
            last = words;
        }
        let seconds = (world.now - start) / 1000;
        assert!(
            plans.last().is_some_and(|p| p.steps.is_empty()),
            "no rest in {seconds} s"
        );
    }

    fn compare(self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan");
        let path = folder.join(format!("{}.txt", self.name));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &self.text).expect("written");
            return;
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            golden == self.text,
            "{} differs; if this is meant, run with UPDATE_GOLDEN=1\n{}",
            path.display(),
            self.text
        );
    }
}

/// The facts, compactly.
fn seen(o: &Observed) -> String {
    let mut text = String::new();
    let leader = o.descriptions.values().find(|d| d.leads);
    if let Ok(cluster) = &o.cluster {
        let paused = if cluster.spec.paused { " paused" } else { "" };
        let _ = writeln!(
            text,
            "wanted: {} of {}{paused}",
            cluster.spec.replicas, o.wanted_inputs
        );
    }
    let mut names: Vec<&String> = o.sets.keys().chain(o.pods.keys()).collect();
    let claimed = o.claims.values().filter_map(|claim| claim.member.as_ref());
    names.extend(claimed);
    names.extend(
        leader
            .into_iter()
            .flat_map(|d| d.members.iter().map(|m| &m.name)),
    );
    names.sort();
    names.dedup();
    for name in names {
        let _ = writeln!(text, "{name}: {}", member(o, name));
    }
    for (name, node) in o.nodes.iter().filter(|(_, n)| !n.ready || n.unschedulable) {
        let ready = if node.ready { "ready" } else { "not ready" };
        let _ = writeln!(
            text,
            "{name}: {ready}{}",
            if node.unschedulable { ", cordoned" } else { "" }
        );
    }
    text
}

fn member(o: &Observed, name: &str) -> String {
    let mut parts = Vec::new();
    let leader = o.descriptions.values().find(|d| d.leads);
    if let Some(view) = leader.and_then(|d| d.members.iter().find(|m| m.name == *name)) {
        let contact = match view.last_contact_ms {
            Some(ms) => format!("contact {} s ago", ms / 1000),
            None => "no contact".to_owned(),
        };
        parts.push(format!(
            "{}, {contact}",
            if view.learner { "learner" } else { "voter" }
        ));
    }
    parts.push(match o.descriptions.get(name) {
        None => "no answer".to_owned(),
        Some(d) if d.leads => "says it leads".to_owned(),
        Some(d) if d.phase == Phase::Standby => "says it is an empty standby".to_owned(),
        Some(d) => format!("says {:?}{}", d.phase, if d.ready { ", ready" } else { "" }),
    });
    match o.pods.get(name) {
        None => parts.push("no pod".to_owned()),
        Some(pod) => parts.push(format!(
            "pod {:?}{}{}",
            pod.phase,
            pod.node
                .as_ref()
                .map(|node| format!(" on {node}"))
                .unwrap_or_default(),
            pod.waiting
                .as_ref()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default()
        )),
    }
    match o.sets.get(name) {
        None => parts.push("no set".to_owned()),
        Some(set) => parts.push(format!("set of {}", set.inputs.as_deref().unwrap_or("?"))),
    }
    match o.claims.get(&claim_name(name, CLUSTER_UID)) {
        None => parts.push("no claim".to_owned()),
        Some(claim) if claim.terminating => parts.push("claim going".to_owned()),
        Some(claim) => parts.push(format!("claim {:?}", claim.state)),
    }
    parts.join("; ")
}

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

fn wait(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.tick();
    }
}

#[test]
fn bootstrap_and_growth() {
    let mut script = Script::new(
        "bootstrap",
        "From nothing to three voters: identity, one seed, then two learners promoted back to back.",
    );
    let mut world = World::new(3);
    script.look("Nothing exists", &world);
    script.settle("Until rest", &mut world);
    script.look("At rest: three voters", &world);
    script.compare();
}

#[test]
fn growth_and_shrinking() {
    let mut script = Script::new(
        "resize",
        "1 -> 3 -> 5 -> 3 -> 1, and an even size on the way.",
    );
    let mut world = rested(1);
    for (size, title) in [
        (3, "1 -> 3: no two voters alone for longer than a moment"),
        (5, "3 -> 5: one learner at a time"),
        (4, "5 -> 4"),
    ] {
        world.cluster.spec.replicas = size;
        script.settle(title, &mut world);
    }
    script.look("An even size says why odd is better", &world);
    world.cluster.spec.replicas = 3;
    script.settle("4 -> 3", &mut world);
    world.cluster.spec.replicas = 1;
    script.settle("3 -> 1", &mut world);
    script.compare();
}

#[test]
fn leader_is_the_victim() {
    let mut script = Script::new(
        "leader-victim",
        "Shrinking 3 -> 2 while the leader's node is cordoned: its leadership is moved first.",
    );
    let mut world = rested(3);
    let leader = world.leader.clone().expect("a leader");
    let node = world.pods[&leader].node.clone().expect("a node");
    world.nodes.get_mut(&node).expect("the node").unschedulable = true;
    world.cluster.spec.replicas = 2;
    script.look("The leader goes first, because its node goes", &world);
    script.settle("Until rest", &mut world);
    script.compare();
}

#[test]
fn learner_catches_up() {
    let mut script = Script::new(
        "learner",
        "A learner catches up slowly; nothing else is done meanwhile.",
    );
    let mut world = rested(3);
    world.commit += 1000;
    world.catch_up = 100;
    world.cluster.spec.replicas = 5;
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    world.pass();
    world.pass();
    script.look("Catching up", &world);
    world.cluster.spec.replicas = 3;
    script.look("The size goes back: the learner goes, nobody else", &world);
    world.cluster.spec.replicas = 5;
    script.settle("The size is raised again", &mut world);
    script.compare();
}

#[test]
fn never_starts() {
    let mut script = Script::new(
        "never-starts",
        "A bad image: the standby never starts, the membership is never touched; after its deadline it goes, with longer pauses; a corrected spec is tried at once.",
    );
    let mut world = rested(3);
    world.inputs = "spec-2".into();
    world.bad_inputs.insert("spec-2".into());
    world.cluster.spec.replicas = 5;
    for _ in 0..10 {
        world.pass();
    }
    script.look("The standby cannot pull its image", &world);
    wait(&mut world, 900);
    script.look("After its deadline", &world);
    for _ in 0..10 {
        world.pass();
    }
    script.look("A pause before the next attempt", &world);
    assert_eq!(world.configuration_index, 5, "the membership was touched");
    world.inputs = "spec-3".into();
    script.settle("The spec is corrected", &mut world);
    script.compare();
}

#[test]
fn stuck_standby_gets_a_corrected_spec() {
    let mut script = Script::new(
        "bad-image",
        "A bad image from the start: the seed waits, and a corrected spec frees it at once.",
    );
    let mut world = World::new(1);
    world.bad_inputs.insert("spec-1".into());
    for _ in 0..20 {
        world.pass();
    }
    script.look("The seed cannot start", &world);
    world.inputs = "spec-2".into();
    script.settle("The spec is corrected", &mut world);
    script.compare();
}

#[test]
fn disk_lost() {
    let mut script = Script::new(
        "disk-lost",
        "A voter's disk comes back empty, and another's volume claim is gone: removed at once, then replaced under a new name.",
    );
    let mut world = rested(3);
    world.lose_disk("demo-2");
    wait(&mut world, 2);
    script.look("The disk of demo-2 is empty", &world);
    script.settle("Until rest", &mut world);
    world.lose_claim("demo-3");
    wait(&mut world, 2);
    script.look(
        "Pod and claim of demo-3 are gone, the leader still remembers it",
        &world,
    );
    script.settle("Until rest again", &mut world);
    script.compare();
}

#[test]
fn pod_gone_for_good() {
    let mut script = Script::new(
        "pod-gone",
        "A voter's pod runs and has no contact: it is replaced a few times, then the voter is removed.",
    );
    let mut world = rested(3);
    world.side.insert("demo-3".into(), 1);
    world.unseen.insert("demo-3".into());
    wait(&mut world, 30);
    script.look("No contact for half a minute", &world);
    script.settle("Until rest: demo-3 stays cut off", &mut world);
    script.compare();
}

#[test]
fn node_not_ready() {
    let mut script = Script::new(
        "node-not-ready",
        "A node stops reporting. A reboot is waited for; after unhealthySeconds the voter is removed, its pod and claim stay until the node says or is said to be gone.",
    );
    let mut world = rested(3);
    let node = world.pods["demo-2"].node.clone().expect("a node");
    world.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 60);
    script.look("A minute later", &world);
    world.nodes.get_mut(&node).expect("the node").ready = true;
    wait(&mut world, 2);
    script.look("It was a reboot", &world);
    world.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 601);
    script.settle("It does not come back", &mut world);
    script.look("What is left on the dead node stays", &world);
    world.nodes.get_mut(&node).expect("the node").out_of_service = true;
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
    world.catch_up = 1;
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    let learner = world
        .members
        .iter()
        .find(|m| m.learner)
        .expect("a learner")
        .name
        .clone();
    world.pass();
    world.pass();
    world.side.insert(learner.clone(), 1);
    wait(&mut world, 10);
    script.look("3 + 1: the learner is cut off from the voters", &world);
    world.side.clear();
    world.catch_up = 1_000_000;
    script.settle("The cut heals", &mut world);
    world.side = [("demo-1".into(), 1)].into();
    wait(&mut world, 10);
    script.look(
        "3 + 1: one voter of four is cut off, the operator sees all",
        &world,
    );
    for name in ["demo-2", "demo-3"] {
        world.unseen.insert(name.into());
    }
    world.unseen.insert(learner.clone());
    script.look("3 + 1: the operator is on the side of the one", &world);
    world.unseen.clear();
    world.side = [("demo-1".into(), 1), ("demo-2".into(), 1)].into();
    wait(&mut world, 10);
    script.look(
        "2 - 2: no side has a quorum, the operator sees both",
        &world,
    );
    world.unseen = [("demo-1".into()), ("demo-2".into())].into();
    wait(&mut world, 3600);
    script.look("2 - 2: an hour later, the operator sees one side", &world);
    world.unseen.clear();
    world.side.clear();
    script.settle("The cut heals", &mut world);
    assert!(world.tombstones.is_empty(), "somebody was removed");
    script.compare();
}

#[test]
fn two_are_sick() {
    let mut script = Script::new(
        "two-sick",
        "Of five voters two are sick: the dead one goes first, and nobody is added before.",
    );
    let mut world = rested(5);
    let node = world.pods["demo-5"].node.clone().expect("a node");
    world.nodes.get_mut(&node).expect("the node").ready = false;
    world.lose_disk("demo-4");
    wait(&mut world, 30);
    script.look(
        "demo-4 lost its disk, the node of demo-5 does not report",
        &world,
    );
    for _ in 0..5 {
        world.pass();
    }
    script.look("demo-4 is out; demo-5 is waited for", &world);
    world.nodes.get_mut(&node).expect("the node").ready = true;
    script.settle("The node is back", &mut world);
    script.compare();
}

#[test]
fn paused() {
    let mut script = Script::new(
        "paused",
        "Paused: the status and the disruption budget only.",
    );
    let mut world = rested(3);
    world.cluster.spec.paused = true;
    world.cluster.spec.replicas = 5;
    world.objects.clear();
    script.look(
        "Paused, a size that is not reached, all objects gone",
        &world,
    );
    script.compare();
}

#[test]
fn conflicts_and_earlier_lives() {
    let mut script = Script::new(
        "names",
        "Names that belong to somebody else, and the objects of a deleted cluster of the same name.",
    );
    let foreign = |owner| SetFacts {
        uid: "x".into(),
        owner,
        terminating: false,
        inputs: None,
        created_ms: 0,
    };
    let mut world = World::new(3);
    world.sets.insert(
        "demo-2".into(),
        foreign(Owner::Other("StatefulSet web".into())),
    );
    script.look("A set of somebody else has our name", &world);
    world
        .sets
        .insert("demo-2".into(), foreign(Owner::EarlierLife));
    script.look("A set of an earlier life of this name", &world);
    world.sets.clear();
    let key = ObjectKey {
        kind: ObjectKind::Service,
        name: "demo-client".into(),
    };
    let service = ObjectFacts {
        owner: Owner::Nobody,
        terminating: false,
        inputs: None,
    };
    world.objects.insert(key.clone(), service);
    script.look("A Service of nobody has our name", &world);
    world.objects.clear();
    let old = ClaimFacts {
        uid: "old".into(),
        cluster_uid: Some("0ld-life".into()),
        member: Some("demo-1".into()),
        state: ClaimState::Joined,
        terminating: false,
        bound: true,
        volume_gone: None,
        requested_bytes: 1 << 30,
        owned: false,
    };
    world.claims.insert("data-demo-1-0ldli".into(), old);
    script.settle("Disks of an earlier life are never adopted", &mut world);
    let plan = script.look("They are reported", &world);
    assert_eq!(plan.status.leftovers.len(), 1);
    let leftover = &plan.status.leftovers[0];
    let _ = writeln!(
        script.text,
        "leftover {} {}: {}",
        leftover.kind, leftover.name, leftover.reason
    );
    script.compare();
}

#[test]
fn data_lost() {
    let mut script = Script::new(
        "data-lost",
        "Where data may have existed, no second cluster is ever formed.",
    );
    let mut world = rested(1);
    world.lose_claim("demo-1");
    wait(&mut world, 3);
    script.look("The only voter's claim is gone", &world);
    let mut world = rested(3);
    world.lose_disk("demo-1");
    world.lose_disk("demo-2");
    wait(&mut world, 3);
    script.look("Two disks of three come back empty", &world);
    let mut world = rested(1);
    world.latch = None;
    script.look("The identity latch is gone", &world);
    let mut world = World::new(1);
    while world.disks.is_empty() {
        world.pass();
    }
    world.lose_claim("demo-1");
    world.tick();
    script.look("The seed's claim goes before the cluster is formed", &world);
    script.compare();
}

#[test]
fn edits_in_the_middle() {
    let mut script = Script::new(
        "edits",
        "Edits in the middle of things: the step in hand is finished or safely abandoned, then the newest spec counts.",
    );
    let mut world = rested(1);
    world.cluster.spec.replicas = 5;
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    world.cluster.spec.replicas = 1;
    script.settle("1 -> 5, and back to 1 with a learner", &mut world);
    world.cluster.spec.replicas = 3;
    for _ in 0..4 {
        world.pass();
    }
    world.cluster.spec.replicas = 1;
    world.cluster.spec.storage.retention.when_removed = RetentionPolicy::Retain;
    script.settle("1 -> 3, and back to 1 with a standby", &mut world);
    world.cluster.spec.replicas = 3;
    world.settle(1000);
    world.cluster.spec.replicas = 1;
    script.settle("3 -> 1, keeping the volumes of removed members", &mut world);
    script.look("Kept volumes are reported", &world);
    world.cluster.storage_bytes = 2 << 30;
    script.settle("The volumes grow", &mut world);
    script.compare();
}

#[test]
fn a_changed_template() {
    let mut script = Script::new(
        "template",
        "A changed pod template reaches one set at a time and restarts nothing by itself.",
    );
    let mut world = rested(3);
    world.inputs = "spec-2".into();
    script.settle("The spec changes", &mut world);
    script.look("The next one waits for the first", &world);
    world.pods.remove("demo-3");
    wait(&mut world, 2);
    script.settle("Somebody deletes the pod of demo-3", &mut world);
    script.compare();
}

#[test]
fn operator_is_cut_off_from_one() {
    let mut script = Script::new(
        "unknown",
        "The leader has contact with a member that the operator cannot dial: Unknown, and nothing follows.",
    );
    let mut world = rested(3);
    world.unseen.insert("demo-2".into());
    wait(&mut world, 3600);
    script.look("An hour without an answer from demo-2", &world);
    world.cluster.spec.replicas = 5;
    script.look("Not even growth", &world);
    world
        .unseen
        .extend(["demo-1".to_owned(), "demo-3".to_owned()]);
    script.look("Nobody answers", &world);
    script.compare();
}

#[test]
fn members_are_replaced() {
    let mut script = Script::new(
        "replace",
        "Members named in replaceMembers go one at a time, each after its successor serves; the leader hands over first.",
    );
    let mut world = rested(3);
    world.cluster.spec.replace_members =
        ["demo-1", "demo-3", "demo-77"].map(str::to_owned).to_vec();
    script.settle("Two of three, and a name that nobody has", &mut world);
    let mut world = rested(1);
    world.cluster.spec.replace_members = vec!["demo-1".into()];
    script.settle("The only one", &mut world);
    let mut world = rested(3);
    world.cluster.spec.replace_members = vec!["demo-2".into()];
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    world.cluster.spec.replace_members.clear();
    script.settle(
        "Thought better of it while the successor is a learner",
        &mut world,
    );
    script.compare();
}

#[test]
fn guards_hold() {
    let mut script = Script::new(
        "guards",
        "What is ready to be done waits while it would not be safe: a standby answers, a learner has caught up, a voter is too many, and another voter is sick.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    while !world
        .observe()
        .descriptions
        .values()
        .any(|d| d.phase == Phase::Standby)
    {
        world.pass();
    }
    let node = world.pods["demo-3"].node.clone().expect("a node");
    world.nodes.get_mut(&node).expect("the node").ready = false;
    wait(&mut world, 5);
    script.look("A standby answers and a voter is sick", &world);
    world.nodes.get_mut(&node).expect("the node").ready = true;
    wait(&mut world, 1);
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    world.pass();
    world.nodes.get_mut(&node).expect("the node").ready = false;
    world.cluster.spec.replicas = 4;
    for _ in 0..5 {
        world.tick();
    }
    script.look(
        "A learner has caught up and a voter is sick: two of four would be no quorum",
        &world,
    );
    world.nodes.get_mut(&node).expect("the node").ready = true;
    world.settle(1000);
    world.nodes.get_mut(&node).expect("the node").ready = false;
    world.cluster.spec.replicas = 3;
    wait(&mut world, 5);
    script.look("Four voters are one too many: the sick one goes", &world);
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    while !world
        .observe()
        .descriptions
        .values()
        .any(|d| d.phase == Phase::Standby)
    {
        world.pass();
    }
    let foreign = MemberView {
        id: 999,
        name: "other".into(),
        learner: true,
        ..MemberView::default()
    };
    world.members.push(foreign);
    script.look("Somebody added a learner by hand", &world);
    let mut world = rested(2);
    world.cluster.spec.replicas = 1;
    world.unseen.insert("demo-1".into());
    script.look(
        "Two voters, one too many, and the leader is not seen",
        &world,
    );
    script.compare();
}

#[test]
fn descriptions_of_another_pod_or_too_old_say_nothing() {
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
fn a_seed_that_may_have_formed_the_cluster_is_left_alone() {
    let mut script = Script::new(
        "seed-unknown",
        "The bootstrap call was carried out, but its answer and the status were lost, the seed cannot be dialled, and the spec changes: its pod is not replaced, nothing is formed again.",
    );
    let mut world = World::new(1);
    while world.members.is_empty() {
        world.pass();
    }
    world.status = EtcdClusterStatus::default();
    world.unseen.insert("demo-1".into());
    world.inputs = "spec-2".into();
    script.look(
        "The set gets the new template, which restarts nothing",
        &world,
    );
    world.pass();
    script.look("The pod is left alone", &world);
    world.unseen.clear();
    script.settle("It answers", &mut world);
    script.compare();
}

#[test]
fn a_learner_whose_claim_is_being_deleted_is_not_promoted() {
    let mut script = Script::new(
        "claim-going",
        "Somebody deletes claims that are in use: they go when their pods go.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    while !world.members.iter().any(|m| m.learner) {
        world.pass();
    }
    wait(&mut world, 2);
    world
        .claims
        .get_mut(&claim_name("demo-4", CLUSTER_UID))
        .expect("a claim")
        .terminating = true;
    script.look("A learner's", &world);
    script.settle("Until rest", &mut world);
    world
        .claims
        .get_mut(&claim_name("demo-1", CLUSTER_UID))
        .expect("a claim")
        .terminating = true;
    script.look("A voter's: it serves as long as its pod lives", &world);
    script.compare();
}
