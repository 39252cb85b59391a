//! Volumes that the specification does not ask for any more: of another class, too large, in another zone.

use std::collections::BTreeSet;

use crate::crd::Autogrow;
use crate::plan::tests::script::{Script, rested};
use crate::plan::tests::world::{World, roomy};
use crate::plan::{ClassFacts, NodeFacts, Plan, PvcFacts, Space, plan};

const GIB: u64 = 1 << 30;

/// A cluster at rest, where there are two classes; the default one is `standard`.
fn with_classes(replicas: i32) -> World {
    let mut world = World::new(replicas);
    for (name, is_default) in [("standard", true), ("fast", false)] {
        let class = ClassFacts {
            expands: true,
            is_default,
        };
        world.api.classes.insert(name.into(), class);
    }
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

fn ask_for_class(world: &mut World, class: Option<&str>) {
    world.cluster.spec.storage.storage_class_name = class.map(str::to_owned);
}

fn ask_for_size(world: &mut World, text: &str, bytes: u64) {
    world.cluster.spec.storage.size = text.into();
    world.cluster.storage_bytes = bytes;
}

fn names(world: &World) -> BTreeSet<String> {
    world.raft.voters().map(|view| view.name.clone()).collect()
}

/// What differs from three at rest on volumes like this.
fn rests_on(world: &World, fits: impl Fn(&PvcFacts) -> bool) -> Option<String> {
    let target = world.cluster.target();
    let strays = world.api.pvcs.values().filter(|pvc| !fits(pvc)).count();
    let (voters, members, pvcs) = (
        world.voters(),
        world.raft.members.len(),
        world.api.pvcs.len(),
    );
    let wrong = strays > 0 || [voters, members, pvcs] != [target; 3];
    wrong.then(|| format!("{voters} voters, {members} members, {pvcs} PVCs, {strays} of them not"))
}

fn of_class(class: &'static str) -> impl Fn(&PvcFacts) -> bool {
    move |pvc| pvc.storage.class.as_deref() == Some(class)
}

fn is_stalled(plan: &Plan, reason: &str) -> bool {
    let mut conditions = plan.conditions.iter();
    conditions.any(|it| it.type_.as_str() == "Stalled" && it.reason == reason)
}

#[test]
fn another_class_replaces_members() {
    let mut script = Script::new(
        "storage-class",
        "Another storage class is asked for: a new member with a volume of it votes before each of the old ones leaves. Without a class in the spec it is the default one again.",
    );
    let mut world = with_classes(3);
    let before = names(&world);
    ask_for_class(&mut world, Some("fast"));
    script.observe("Another class", &world);
    script.settle("Until rest", &mut world);
    assert_eq!(rests_on(&world, of_class("fast")), None);
    assert!(before.is_disjoint(&names(&world)));
    ask_for_class(&mut world, None);
    script.settle("None in the spec", &mut world);
    assert_eq!(rests_on(&world, of_class("standard")), None);
    script.compare();
    for replicas in [1, 2, 4] {
        let mut world = with_classes(replicas);
        ask_for_class(&mut world, Some("fast"));
        world.settle(4000);
        assert_eq!(rests_on(&world, of_class("fast")), None, "{replicas}");
    }
}

/// The name of the default class, one that an admission webhook wrote, another default class: none of these was asked
/// for by the user of the cluster.
#[test]
fn only_the_users_change_of_the_class_counts() {
    let stays = |what: &str, change: &dyn Fn(&mut World)| {
        let mut world = with_classes(3);
        let before = names(&world);
        change(&mut world);
        world.settle(1000);
        assert_eq!(names(&world), before, "{what}");
        assert_eq!(rests_on(&world, |_| true), None, "{what}");
    };
    stays("the default class by its name", &|world| {
        ask_for_class(world, Some("standard"))
    });
    stays("by its name, and not", &|world| {
        ask_for_class(world, Some("standard"));
        world.settle(100);
        ask_for_class(world, None);
    });
    stays("another default class", &|world| {
        for (name, class) in &mut world.api.classes {
            class.is_default = name == "fast";
        }
    });
    stays("a webhook", &|world| {
        for pvc in world.api.pvcs.values_mut() {
            pvc.storage.class = Some("enforced".into());
        }
    });
    stays("made by an operator that recorded nothing", &|world| {
        for pvc in world.api.pvcs.values_mut() {
            pvc.storage.asked = None;
            pvc.storage.class = Some("enforced".into());
            pvc.requested_bytes = 3 * GIB;
        }
        let words: Vec<_> = plan(&world.observe()).steps;
        let words: BTreeSet<_> = words.iter().map(|step| step.action.word()).collect();
        assert_eq!(words, ["RecordStorage"].into());
    });
    // From then on it counts.
    let mut world = with_classes(3);
    for pvc in world.api.pvcs.values_mut() {
        pvc.storage.asked = None;
    }
    world.settle(100);
    ask_for_class(&mut world, Some("fast"));
    world.settle(4000);
    assert_eq!(rests_on(&world, of_class("fast")), None);
}

#[test]
fn a_class_that_does_not_exist_tears_nothing_down() {
    let mut script = Script::new(
        "storage-class-missing",
        "A storage class is asked for that does not exist: the new member waits for its volume, nobody leaves, and the status reports it. It is set back.",
    );
    let mut world = with_classes(3);
    let before = names(&world);
    ask_for_class(&mut world, Some("fats"));
    for _ in 0..60 {
        world.reconcile();
    }
    let plan = script.observe("A minute later", &world);
    assert!(is_stalled(&plan, "NoStorageClass"), "{plan}");
    for _ in 0..4000 {
        let plan = world.reconcile();
        assert_eq!(names(&world), before, "{plan}");
    }
    let plan = script.observe("More than an hour later", &world);
    assert!(is_stalled(&plan, "NoStorageClass"), "{plan}");
    ask_for_class(&mut world, None);
    script.settle("It is set back", &mut world);
    assert_eq!(names(&world), before);
    assert_eq!(rests_on(&world, of_class("standard")), None);
    script.compare();
}

/// After any number of steps.
#[test]
fn a_class_is_set_back_half_way() {
    for replicas in [1, 2, 3] {
        for steps in (0..90).step_by(4).map(|step| step + replicas) {
            let mut world = with_classes(replicas);
            world.pace.catch_up = 1;
            ask_for_class(&mut world, Some("fast"));
            for _ in 0..steps {
                world.reconcile();
            }
            world.pace.catch_up = 1_000_000;
            ask_for_class(&mut world, None);
            let plans = world.settle(4000);
            let last = plans.last().expect("a plan");
            assert!(last.steps.is_empty(), "{steps}: {last}");
            let wrong = rests_on(&world, of_class("standard"));
            assert_eq!(wrong, None, "{replicas} {steps}: {last}");
        }
    }
}

#[test]
fn a_lowered_size_replaces_members() {
    let mut script = Script::new(
        "storage-shrunk",
        "storage.size is lowered, and raised again when one member is replaced: the smaller volume grows.",
    );
    let mut world = rested(3);
    ask_for_size(&mut world, "512Mi", GIB / 2);
    script.settle("Half of the size", &mut world);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2), None);
    ask_for_size(&mut world, "256Mi", GIB / 4);
    while world.raft.tombstones.len() < 4 {
        world.reconcile();
    }
    ask_for_size(&mut world, "512Mi", GIB / 2);
    script.settle("A quarter, and back again half way", &mut world);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2), None);
    script.compare();
    for replicas in [1, 2, 4] {
        let mut world = rested(replicas);
        ask_for_size(&mut world, "512Mi", GIB / 2);
        world.settle(4000);
        let wrong = rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2);
        assert_eq!(wrong, None, "{replicas}");
    }
}

/// What is on a volume needs up to four times the data. A member that is lost meanwhile gets a volume as large as
/// before.
#[test]
fn data_that_do_not_fit_keep_their_volumes() {
    let mut script = Script::new(
        "storage-too-small",
        "storage.size is lowered below what the data need: nothing is started, and the status reports it. After a compaction it is carried out.",
    );
    let mut world = rested(3);
    let before = names(&world);
    let large = Space {
        used: 120 << 20,
        ..roomy()
    };
    world.health.space = large;
    ask_for_size(&mut world, "512Mi", GIB / 2);
    for _ in 0..100 {
        let plan = world.reconcile();
        assert!(plan.steps.is_empty(), "{plan}");
        assert!(is_stalled(&plan, "VolumeTooSmall"), "{plan}");
    }
    script.observe("It is refused", &world);
    assert_eq!(names(&world), before);
    world.lose_pvc("demo-2");
    world.settle(1000);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == GIB), None);
    world.health.space = roomy();
    script.settle("After a compaction", &mut world);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2), None);
    script.compare();
    // Nobody reports how much data there is.
    let mut world = rested(3);
    for member in ["demo-1", "demo-2", "demo-3"] {
        world.health.spaces.insert(member.into(), None);
    }
    ask_for_size(&mut world, "512Mi", GIB / 2);
    let plan = plan(&world.observe());
    assert!(is_stalled(&plan, "VolumeTooSmall") && plan.steps.is_empty());
}

/// Five nodes of which two are in another zone, and a volume that is bound to its node.
fn in_zones(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.pace.node_bound = true;
    for name in ["node-f", "node-g"] {
        let node = world.api.nodes["node-a"].clone();
        world.api.nodes.insert(name.into(), node);
    }
    select(&mut world, |name| name <= "node-c");
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// The pod template selects these nodes and no others.
fn select(world: &mut World, selects: impl Fn(&str) -> bool) {
    let each = |(name, facts): (&String, &mut NodeFacts)| {
        facts.unselected = !selects(name);
        facts.closed = facts.unselected;
    };
    world.api.nodes.iter_mut().for_each(each);
}

/// A changed node selector restarted members whose volumes could not follow: their pods stayed Pending until they were
/// removed as dead.
#[test]
fn another_zone_replaces_members() {
    let mut script = Script::new(
        "zone-changed",
        "The pod template selects the nodes of another zone, which the volumes cannot go to: members are replaced, not restarted.",
    );
    let mut world = in_zones(3);
    let before = names(&world);
    select(&mut world, |name| name > "node-c");
    script.observe("Labels of nodes alone are no reason", &world);
    world.api.wanted_inputs = "spec-2".into();
    script.observe("Another zone", &world);
    let mut pending = 0;
    for _ in 0..400 {
        world.reconcile();
        let voter = |name: &String| world.raft.voters().any(|view| view.name == *name);
        let pods = world.api.pods.iter();
        pending += pods
            .filter(|(name, pod)| voter(name) && pod.node.is_none())
            .count();
    }
    assert_eq!(pending, 0, "a voter waits for a node");
    assert!(before.is_disjoint(&names(&world)));
    assert_eq!(rests_on(&world, |_| true), None);
    let moved = |pod: &crate::plan::PodFacts| pod.node.as_deref() > Some("node-c");
    assert!(world.api.pods.values().all(moved));
    script.compare();
    // No node of that zone has room: nobody leaves.
    let mut world = in_zones(3);
    let before = names(&world);
    select(&mut world, |name| name == "node-g");
    world.api.nodes.get_mut("node-g").expect("a node").closed = true;
    world.api.wanted_inputs = "spec-2".into();
    for _ in 0..3000 {
        world.reconcile();
    }
    assert_eq!(names(&world), before);
    // It is set back.
    select(&mut world, |name| name <= "node-c");
    world.api.wanted_inputs = "spec-1".into();
    world.settle(1000);
    assert_eq!(names(&world), before);
    assert_eq!(rests_on(&world, |_| true), None);
}

/// A misspelt class: nothing is formed, and it is corrected.
#[test]
fn a_cluster_that_is_not_formed_gets_its_class() {
    let mut world = World::new(3);
    let class = ClassFacts {
        expands: true,
        is_default: true,
    };
    world.api.classes.insert("standard".into(), class);
    ask_for_class(&mut world, Some("standrad"));
    for _ in 0..30 {
        world.reconcile();
    }
    assert_eq!(world.voters(), 0);
    ask_for_class(&mut world, Some("standard"));
    world.settle(1000);
    assert_eq!(rests_on(&world, of_class("standard")), None);
}

/// A cluster at rest on volumes of 1 GiB, which grow.
fn growing(replicas: i32) -> World {
    let mut world = with_classes(replicas);
    world.cluster.spec.storage.autogrow = Some(Autogrow {
        at: 80,
        by: "50%".into(),
        max: "2Gi".into(),
    });
    world
}

/// So many bytes are on each volume.
fn fill(world: &mut World, bytes: u64) {
    let sizes = world.api.pvcs.values();
    let sizes: Vec<_> = sizes
        .filter_map(|pvc| Some((pvc.member.clone()?, pvc.storage.capacity_bytes)))
        .collect();
    for (member, size) in sizes {
        let space = Space {
            free: size.saturating_sub(bytes),
            ..roomy()
        };
        world.health.spaces.insert(member, Some(space));
    }
}

/// Until rest, with so many bytes on each volume all the time.
fn settle_filled(world: &mut World, bytes: u64) -> Vec<String> {
    let mut steps = Vec::new();
    let mut quiet = 0;
    for _ in 0..2000 {
        fill(world, bytes);
        let plan = world.reconcile();
        let first = plan.first().map(|step| step.action.to_string());
        quiet = if first.is_some() { 0 } else { quiet + 1 };
        steps.extend(first);
        if quiet > 20 {
            return steps;
        }
    }
    panic!("no rest: {steps:?}");
}

#[test]
fn volumes_grow_before_they_are_full() {
    let mut script = Script::new(
        "autogrow",
        "Volumes are fuller than 80 %: one grows, then the others. A new member gets one of that size. At the maximum there is a note.",
    );
    let mut world = growing(3);
    let before = names(&world);
    assert_eq!(settle_filled(&mut world, GIB / 10 * 7), [""; 0]);
    fill(&mut world, GIB / 10 * 9);
    let plan = script.observe("Nine tenths are used", &world);
    assert_eq!(plan.steps.len(), 1, "one at a time: {plan}");
    let steps = settle_filled(&mut world, GIB / 10 * 9);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(
        rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2 * 3),
        None
    );
    world.cluster.spec.replicas = 5;
    settle_filled(&mut world, GIB / 10 * 9);
    assert_eq!(
        rests_on(&world, |pvc| pvc.requested_bytes == GIB / 2 * 3),
        None
    );
    settle_filled(&mut world, 3 * GIB);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == 2 * GIB), None);
    let plan = script.observe("At the maximum, and full", &world);
    assert!(plan.steps.is_empty(), "{plan}");
    let note = plan.notes.iter().any(|note| note.reason == "VolumeAtMax");
    assert!(note, "{plan}");
    assert!(before.is_subset(&names(&world)));
    script.compare();
}

/// What has grown is not larger than what is asked for until the user lowers `storage.size`.
#[test]
fn a_grown_volume_stays_until_the_size_is_lowered() {
    let mut world = growing(3);
    settle_filled(&mut world, GIB / 10 * 9);
    let before = names(&world);
    let grown = GIB / 2 * 3;
    world.cluster.spec.storage.autogrow = None;
    settle_filled(&mut world, GIB / 10);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == grown), None);
    // A raised size below what was reached changes nothing, and then it is what counts.
    ask_for_size(&mut world, "1200Mi", 1200 << 20);
    settle_filled(&mut world, GIB / 10);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == grown), None);
    ask_for_size(&mut world, "2Gi", 2 * GIB);
    settle_filled(&mut world, GIB / 10);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == 2 * GIB), None);
    assert_eq!(names(&world), before);
    ask_for_size(&mut world, "1Gi", GIB);
    settle_filled(&mut world, GIB / 10);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == GIB), None);
    assert!(before.is_disjoint(&names(&world)));
}

#[test]
fn a_volume_that_cannot_grow_is_reported() {
    let mut world = growing(3);
    for class in world.api.classes.values_mut() {
        class.expands = false;
    }
    fill(&mut world, GIB / 10 * 9);
    let plan = plan(&world.observe());
    assert!(
        plan.steps.is_empty() && is_stalled(&plan, "VolumeNotGrown"),
        "{plan}"
    );
    assert!(plan.summary.contains("allowVolumeExpansion"), "{plan}");
    // A resize that the storage refuses; the others wait, as the first one shows it.
    let mut world = growing(3);
    fill(&mut world, GIB / 10 * 9);
    world.reconcile();
    let pvc = world
        .api
        .pvcs
        .values_mut()
        .find(|pvc| pvc.requested_bytes > GIB);
    let pvc = pvc.expect("one has grown");
    pvc.storage.capacity_bytes = GIB;
    pvc.storage.resize_problem = Some("ControllerResizeError: out of space".into());
    let plan = crate::plan::plan(&world.observe());
    assert!(
        plan.steps.is_empty() && is_stalled(&plan, "VolumeNotGrown"),
        "{plan}"
    );
    assert!(plan.summary.contains("out of space"), "{plan}");
}

/// A file system that is not the volume's own has more free bytes than the volume is large.
#[test]
fn volumes_without_a_size_do_not_grow() {
    let mut world = growing(1);
    let space = Space {
        free: 50 * GIB,
        ..roomy()
    };
    world.health.spaces.insert("demo-1".into(), Some(space));
    assert!(plan(&world.observe()).steps.is_empty());
}

/// Growth recorded the class that was asked for as well, and the volumes kept their old one.
#[test]
fn a_larger_size_and_another_class_at_once() {
    let mut world = with_classes(3);
    ask_for_size(&mut world, "2Gi", 2 * GIB);
    ask_for_class(&mut world, Some("fast"));
    world.settle(4000);
    assert_eq!(rests_on(&world, of_class("fast")), None);
    assert_eq!(rests_on(&world, |pvc| pvc.requested_bytes == 2 * GIB), None);
}
