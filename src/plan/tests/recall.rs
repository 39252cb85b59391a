//! A model that is made from what was observed shows the same again, and behaves the same: else a
//! forecast would be about another cluster.

use super::random::{disturb, uncordon};
use super::world::World;
use crate::model::Model;
use crate::plan::{Observed, plan};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What a recalled cluster shows right away.
fn again(seen: &Observed) -> Observed {
    let mut again = Model::of(seen).observe();
    for (name, description) in &mut again.descriptions {
        // Contact with a learner has to be new for it to be promotable: see below.
        let before = seen.descriptions.get(name);
        for view in &mut description.members {
            let views = before
                .into_iter()
                .flat_map(|description| &description.members);
            if let Some(known) = views.into_iter().find(|known| known.id == view.id) {
                view.promotable = known.promotable;
                view.not_promotable.clone_from(&known.not_promotable);
            }
        }
    }
    again
}

#[test]
fn what_was_observed_is_observed_again() {
    let mut looks = 0;
    for seed in 0..60 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = World::new(1 + i32::try_from(seed % 5).unwrap_or(0));
        if seed % 3 == 0 {
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
            let again = again(&seen);
            for (name, description) in &seen.descriptions {
                let recalled = again.descriptions.get(name);
                assert_eq!(
                    recalled,
                    Some(description),
                    "seed {seed}, turn {turn}: {name}"
                );
            }
            assert_eq!(again, seen, "seed {seed}, turn {turn}");
            looks += 1;
        }
    }
    assert!(looks > 4_000, "{looks} looks");
}

/// The summaries at which the two come to rest are the same, although one of them was seen and the
/// other one is so.
#[test]
fn a_recalled_cluster_ends_where_the_cluster_ends() {
    for seed in 0..40 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = World::new(3);
        world.settle(400);
        for _ in 0..3 {
            disturb(&mut world, &mut rng);
            (0..5).for_each(|_| drop(world.reconcile()));
        }
        world
            .api
            .nodes
            .values_mut()
            .for_each(|node| node.ready = true);
        uncordon(&mut world);
        world.faults.unseen.clear();
        world.faults.side.clear();
        world.faults.bad_inputs.clear();
        (0..4).for_each(|_| world.tick());
        let seen = world.observe();
        let end = ahead(&seen);
        world.settle(4_000);
        assert_eq!(end, plan(&world.observe()).summary, "seed {seed}");
    }
}

fn ahead(seen: &Observed) -> String {
    let mut model = Model::of(seen);
    let (mut last, mut quiet) = (plan(seen), 0);
    for _ in 0..4_000 {
        let rests = last.steps.is_empty() && last.progress.is_none();
        quiet = if rests { quiet + 1 } else { 0 };
        if quiet > 3 {
            break;
        }
        if let Some(step) = last.first() {
            assert_eq!(model.act(&step.action), Ok(()), "{}", step.action);
        }
        let hints = crate::operator::status_memory::of_status(&last.status);
        model.remember(last.status.cluster_id.clone(), hints);
        model.advance(1000);
        last = plan(&model.observe());
    }
    last.summary
}
