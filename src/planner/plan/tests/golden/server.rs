//! Settings of the servers: incompatible timings, and members without syncs.

use crate::crd::ExtraArg;
use crate::plan::tests::script::{Script, rested};
use crate::plan::tests::world::World;

/// The spec asks for other timings: other inputs.
fn wanted(world: &mut World, heartbeat: i32, election: i32) {
    let server = &mut world.cluster.spec.server;
    server.heartbeat_interval_milliseconds = Some(heartbeat);
    server.election_timeout_milliseconds = Some(election);
    world.api.wanted_inputs = format!("spec-{heartbeat}-{election}");
}

#[test]
fn compatible_timings_roll() {
    let mut script = Script::new(
        "server-timings",
        "100/1000 -> 1000/10000 ms is refused before a pod is touched, because half of the members would not hear the other half in time; 500/5000 is given to one after the other, and 1000/10000 then follows. A cluster that sleeps wakes with any.",
    );
    let mut world = rested(3);
    wanted(&mut world, 1000, 10_000);
    script.observe("Ten times as slow at once", &world);
    wanted(&mut world, 500, 5000);
    script.settle("Half of the way", &mut world);
    wanted(&mut world, 1000, 10_000);
    script.settle("The rest", &mut world);
    world.cluster.spec.replicas = 0;
    world.settle(100);
    world.cluster.spec.replicas = 3;
    wanted(&mut world, 100, 1000);
    script.settle("Woken with what it had first", &mut world);
    script.compare();
}

#[test]
fn members_without_syncs() {
    let mut script = Script::new(
        "server-unsynced",
        "unsafe-no-fsync is asked for, and taken back: what is acknowledged is not called durable until no member runs with it.",
    );
    let mut world = rested(3);
    world.cluster.spec.server.extra_args = vec![ExtraArg {
        name: "unsafe-no-fsync".into(),
        value: "true".into(),
    }];
    world.api.wanted_inputs = "spec-unsynced".into();
    world.settle(1000);
    script.observe("Every member runs with it", &world);
    world.cluster.spec.server.extra_args.clear();
    world.api.wanted_inputs = "spec-synced".into();
    script.observe("It is taken back", &world);
    script.settle("The members are restarted", &mut world);
    script.observe("No member runs with it", &world);
    script.compare();
}
