//! A model created from an observation returns the same observation, and continues in the same way: otherwise a
//! forecast would be about another cluster.

use super::random::{disturb, uncordon};
use super::world::World;
use crate::crd::DisruptionPolicy;
use crate::model::Model;
use crate::model::forecast::{End, forecast};
use crate::plan::plan;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

#[test]
fn observation_survives_a_round_trip() {
    let mut observations = 0;
    for seed in 0..60 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = World::new(1 + i32::try_from(seed % 5).unwrap_or(0));
        if seed.is_multiple_of(3) {
            world = world.with_tls();
        }
        for turn in 0..80 {
            world.reconcile();
            if turn % 8 == 7 && rng.next_u64().is_multiple_of(2) {
                disturb(&mut world, &mut rng);
                (0..4).for_each(|_| world.tick());
            }
            if !world.faults.side.is_empty() {
                continue; // A cut is taken to be over.
            }
            let seen = world.observe();
            let again = Model::of(&seen).observe();
            for (name, description) in &seen.descriptions {
                let recalled = again.descriptions.get(name);
                assert_eq!(
                    recalled,
                    Some(description),
                    "seed {seed}, turn {turn}: {name}"
                );
            }
            assert_eq!(again, seen, "seed {seed}, turn {turn}");
            observations += 1;
        }
    }
    assert!(observations > 4_000, "{observations} observations");
}

/// Disturbed clusters with nodes, PDBs, certificates and volumes: a forecast from what is seen of them
/// names what is then done, in its order, and how it ends.
#[test]
fn forecast_matches_the_executed_steps() {
    let mut steps = 0;
    for seed in 0..100 {
        let mut world = disturbed(seed);
        let ahead = forecast(&world.observe());
        let named: Vec<&str> = ahead.steps.iter().map(|step| step.what.as_str()).collect();
        let plans = world.settle(4_000);
        let done = plans.iter().filter_map(|plan| plan.first());
        let done: Vec<String> = done.map(|step| step.action.to_string()).collect();
        assert_eq!(named, done, "seed {seed}");
        let end = End::Rest(plan(&world.observe()).summary);
        assert_eq!(ahead.end, end, "seed {seed}");
        steps += done.len();
    }
    assert!(steps > 500, "{steps} steps");
}

/// Three members, three disturbances, and then everything works again. Secrets are updated in pods at once: half a
/// minute of waiting would let other steps come first, which no forecast predicts.
fn disturbed(seed: u64) -> World {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut world = World::new(3);
    if seed.is_multiple_of(4) {
        world = world.with_tls();
    }
    if seed.is_multiple_of(3) {
        world.cluster.spec.disruption.policy = DisruptionPolicy::Budget;
    }
    world.pace.node_bound = seed.is_multiple_of(5);
    world.pace.carried_ms = 0;
    world.settle(400);
    for _ in 0..3 {
        disturb(&mut world, &mut rng);
        (0..4).for_each(|_| world.tick());
        (0..5).for_each(|_| drop(world.reconcile()));
    }
    let nodes = world.api.nodes.values_mut();
    nodes.for_each(|node| node.ready = true);
    uncordon(&mut world);
    world.faults.unseen.clear();
    world.faults.side.clear();
    world.faults.bad_inputs.clear();
    world.faults.confined.clear();
    (0..4).for_each(|_| world.tick());
    world
}
