//! A closed loop over lost quorums: whichever disks are lost, and whatever is disturbed while the cluster is recovered,
//! every step is allowed, the next incarnation is formed once, and no volume of a former member is deleted. `SEEDS=n` runs n
//! seeds.

use std::collections::BTreeSet;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::golden::recovery::asks;
use super::world::World;
use crate::crd::EtcdClusterStatus;
use crate::plan::plan;

fn one_in(rng: &mut Xoshiro256PlusPlus, n: u64) -> bool {
    rng.next_u64().is_multiple_of(n)
}

fn pick(rng: &mut Xoshiro256PlusPlus, from: &[String]) -> Option<String> {
    let n = u64::try_from(from.len()).ok().filter(|n| *n > 0)?;
    from.get(usize::try_from(rng.next_u64() % n).ok()?).cloned()
}

/// A cluster of three or five of which a quorum of disks is lost, and who is left.
fn lost(rng: &mut Xoshiro256PlusPlus) -> (World, Vec<String>) {
    let mut world = World::new(if one_in(rng, 2) { 3 } else { 5 });
    if one_in(rng, 3) {
        world = world.with_tls();
    }
    world.settle(1000);
    let mut left: Vec<String> = world.raft.voters().map(|view| view.name.clone()).collect();
    let fewest = left.len() / 2 + 1;
    let most = u64::try_from(left.len() - fewest + 1).expect("few");
    let lost = fewest + usize::try_from(rng.next_u64() % most).expect("few");
    for _ in 0..lost {
        let member = pick(rng, &left).expect("a member");
        left.retain(|name| *name != member);
        match one_in(rng, 2) {
            true => world.lose_pvc(&member),
            false => world.lose_disk(&member),
        }
    }
    (0..15).for_each(|_| world.tick());
    world.reconcile();
    (world, left)
}

/// A fault, a change of the specification, or an act of somebody who means well. The survivor keeps its disk.
fn disturb(world: &mut World, rng: &mut Xoshiro256PlusPlus) {
    let pods: Vec<String> = world.api.pods.keys().cloned().collect();
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    let sets: Vec<String> = world.api.sets.keys().cloned().collect();
    // Without a volume, the status or the Secret is the only proof that there was a cluster: they are not lost as well.
    let proved = !world.api.pvcs.is_empty();
    match rng.next_u64() % 11 {
        0 => {
            let pod = pick(rng, &pods);
            pod.map(|pod| world.api.pods.remove(&pod));
        }
        1 => {
            let node = pick(rng, &nodes).expect("a node");
            world.api.nodes.get_mut(&node).expect("a node").ready = false;
        }
        2 => heal(world),
        3 => {
            let pod = pick(rng, &pods);
            pod.map(|pod| world.faults.unseen.insert(pod));
        }
        4 if proved => world.status = EtcdClusterStatus::default(),
        // Somebody starts a member that was stopped.
        5 => {
            if let Some(set) = pick(rng, &sets).and_then(|name| world.api.sets.get_mut(&name)) {
                set.hibernated = false;
            }
        }
        6 if proved => drop(world.api.identity_secret.take()),
        7 => world.cluster.spec.paused = !world.cluster.spec.paused,
        8 => world.api.recoveries.clear(),
        9 => world.api.wanted_inputs = format!("spec-{}", rng.next_u64() % 1000),
        _ => world.cluster.spec.replicas = i32::try_from(rng.next_u64() % 6).unwrap_or(3),
    }
}

fn heal(world: &mut World) {
    let nodes = world.api.nodes.values_mut();
    nodes.for_each(|node| node.ready = true);
    world.faults.unseen.clear();
}

/// Prints the seed when an assertion of the world itself fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("SEED={}", self.0);
        }
    }
}

fn run(seed: u64) {
    let _of_it = Seed(seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut world, left) = lost(&mut rng);
    let survivor = pick(&mut rng, &left);
    let described = |name: &String| world.observe().descriptions.contains_key(name);
    let survivor = survivor.filter(described);
    let former: BTreeSet<String> = world.api.pvcs.keys().cloned().collect();
    world.api.recoveries = vec![asks(&world, survivor.as_deref())];
    for _ in 0..(10 + rng.next_u64() % 60) {
        let plan = world.reconcile();
        if std::env::var("TRACE").is_ok() {
            println!("{}\n{plan}", world.api.now_ms / 1000);
        }
        if one_in(&mut rng, 5) {
            disturb(&mut world, &mut rng);
            (0..4).for_each(|_| world.tick());
        }
    }
    heal(&mut world);
    world.cluster.spec.paused = false;
    world.cluster.spec.replicas = world.cluster.spec.replicas.max(1);
    // It may have been refused for good: the cluster was told to sleep meanwhile, or somebody deleted it.
    let asked = world.api.recoveries.first();
    if asked.is_none_or(|it| it.refused.is_some()) && world.raft.incarnation == 1 {
        (0..30).for_each(|_| drop(world.reconcile()));
        let described = |name: &&String| world.observe().descriptions.contains_key(*name);
        let survivor = survivor.as_ref().filter(described);
        world.api.recoveries = vec![asks(&world, survivor.map(String::as_str))];
        world.api.recoveries[0].name = "demo-once-more".into();
    }
    let plans = world.settle(6000);
    let last = plans.last().expect("a plan");
    assert_eq!(
        (world.voters(), world.raft.incarnation, world.raft.formed),
        (world.cluster.target(), 2, 2),
        "seed {seed}: {:?}\n{last}",
        world.api.recoveries
    );
    assert!(last.steps.is_empty(), "seed {seed}: not at rest\n{last}");
    let kept: BTreeSet<String> = world.api.pvcs.keys().cloned().collect();
    assert!(former.is_subset(&kept), "seed {seed}: {former:?} {kept:?}");
    let sets: Vec<&String> = world.api.sets.keys().collect();
    assert_eq!(
        sets.len(),
        world.cluster.target(),
        "seed {seed}: {sets:?}\n{last}"
    );
    let again = plan(&world.observe());
    assert_eq!(again.status, last.status, "seed {seed}: it changes at rest");
}

#[test]
fn every_lost_quorum_is_recovered_by_allowed_steps_alone() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    match number("SEED") {
        Some(seed) => run(seed),
        None => (0..number("SEEDS").unwrap_or(60)).for_each(run),
    }
}
