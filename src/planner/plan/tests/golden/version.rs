//! Situations of versions that follow each other, and of those that cannot.

use crate::plan::tests::script::{Script, rested};
use crate::plan::tests::world::World;

/// The spec asks for another version: other inputs, from which such a server comes.
fn wanted(world: &mut World, version: &str) {
    world.cluster.spec.version = version.into();
    world.api.wanted_inputs = format!("spec-{version}");
    let inputs = world.api.wanted_inputs.clone();
    world.versions.insert(inputs, version.into());
}

#[test]
fn one_minor_version_at_a_time() {
    let mut script = Script::new(
        "version",
        "0.1.0 -> 0.3.0 is refused before a pod is touched, also with a dead member; 0.2.0 is given to one after the other; back to 0.1.0 for as long as the disks can be read by it.",
    );
    let mut world = rested(3);
    wanted(&mut world, "0.3.0");
    script.observe("Two minor versions at once", &world);
    world.lose_disk("demo-3");
    script.settle("No member is replaced by such a version either", &mut world);
    wanted(&mut world, "0.2.0");
    script.settle("The next minor version", &mut world);
    wanted(&mut world, "0.1.9");
    script.settle("Back", &mut world);
    wanted(&mut world, "0.2.0");
    world.settle(1000);
    world.readable_since = Some("0.2.0".into());
    wanted(&mut world, "0.1.9");
    script.observe("The disks were written anew", &world);
    wanted(&mut world, "1.0.0");
    script.observe("A new major version follows", &world);
    script.compare();
}

#[test]
fn hibernated() {
    let mut script = Script::new(
        "version-hibernated",
        "Of a cluster that sleeps the version that ran last counts: it wakes with that one or the next.",
    );
    let mut world = rested(3);
    wanted(&mut world, "0.2.0");
    world.settle(1000);
    world.cluster.spec.replicas = 0;
    world.settle(100);
    world.cluster.spec.replicas = 3;
    wanted(&mut world, "0.1.0");
    script.observe(
        "Woken with an older version: whether it reads the disks is unknown",
        &world,
    );
    wanted(&mut world, "0.3.0");
    script.settle("Woken with the next one", &mut world);
    script.compare();
}

/// A tag that was given to another build was trusted: 0.3.0 came to members beside those of 0.1.0, one by one.
#[test]
fn image_contains_another_version_than_asked_for() {
    let mut script = Script::new(
        "version-content",
        "The image of 0.2.0 contains 0.3.0: one member shows it and stays the only one, until the version is set back. Where the next patch is in it, nobody minds.",
    );
    let mut world = rested(3);
    wanted(&mut world, "0.2.0");
    let inputs = world.api.wanted_inputs.clone();
    world.versions.insert(inputs, "0.3.0".into());
    script.settle("One runs it", &mut world);
    script.observe("It is refused", &world);
    wanted(&mut world, "0.1.0");
    script.settle("Back", &mut world);
    wanted(&mut world, "0.2.0");
    let inputs = world.api.wanted_inputs.clone();
    world.versions.insert(inputs, "0.2.1".into());
    script.settle("Another patch", &mut world);
    script.compare();
}

#[test]
fn image_of_a_distant_version_is_taken_back() {
    let mut script = Script::new(
        "version-image",
        "What an image holds is seen when it runs, also by a digest: one member shows a version too far away, stays the only one, and goes back with the previous image.",
    );
    let mut world = rested(3);
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    world.cluster.spec.image = Some(format!("registry.example/quorate@sha256:{digest}"));
    world.api.wanted_inputs = "spec-image".into();
    world.versions.insert("spec-image".into(), "0.5.0".into());
    script.settle("One runs it", &mut world);
    script.observe("It is refused", &world);
    world.cluster.spec.image = Some("registry.example/quorate:old".into());
    world.api.wanted_inputs = "spec-old".into();
    script.settle("The previous image", &mut world);
    script.compare();
}

/// A tag that came to mean another minor version stopped everything for a cluster that nobody had changed: the first member
/// that started again ran other content, and from then on no lost member was replaced. So did one whose members had all
/// started again, once their disks could not be read by the version of the spec any more.
#[test]
fn a_tag_was_moved() {
    let mut script = Script::new(
        "version-moved",
        "A tag was moved to 0.2.0, and a member that started again runs it: that is told, and a lost member is replaced all the same, also when all run it. Moved to 0.3.0 it gives no member at all until the spec names an image.",
    );
    for version in ["0.2.0", "0.3.0"] {
        let mut world = rested(3);
        let now = world.version.clone();
        let pods = world.api.pods.values();
        let uids: Vec<String> = pods.map(|pod| pod.uid.clone()).collect();
        world
            .versions
            .extend(uids.into_iter().map(|uid| (uid, now.clone())));
        world.version = version.into();
        world.api.pods.remove("demo-3");
        script.settle(&format!("demo-3 has come to {version}"), &mut world);
        script.observe("Seen", &world);
        world.lose_disk("demo-2");
        script.settle("The disk of demo-2 is lost", &mut world);
        if version == "0.2.0" {
            world.readable_since = Some(version.into());
            world.versions.clear();
            world.lose_disk("demo-3");
            script.settle("All run it, and the disk of demo-3 is lost", &mut world);
            script.observe("At rest", &world);
        } else {
            world.cluster.spec.image = Some("registry.example/quorate@sha256:0".into());
            world.api.wanted_inputs = "spec-digest".into();
            world.versions.insert("spec-digest".into(), now);
            script.settle("The spec names the image", &mut world);
        }
    }
    script.compare();
}
