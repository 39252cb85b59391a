//! A closed loop from random states: every step is allowed, and once the faults stop the cluster
//! becomes what the spec asks for and stays so without a step. `SEEDS=n` runs n seeds.

use std::collections::BTreeSet;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::world::World;
use crate::crd::NodeReplacement::{AddFirst, Auto, Move, RemoveFirst};
use crate::crd::{
    Bootstrap, ConditionType, DisruptionPolicy, EtcdClusterStatus, Follow, Tls, TlsPort,
};
use crate::plan::{ClassFacts, PvcFacts, plan};

fn one_in(rng: &mut Xoshiro256PlusPlus, n: u64) -> bool {
    rng.next_u64().is_multiple_of(n)
}

fn pick<T: Clone>(rng: &mut Xoshiro256PlusPlus, from: &[T]) -> Option<T> {
    let n = u64::try_from(from.len()).ok().filter(|n| *n > 0)?;
    from.get(usize::try_from(rng.next_u64() % n).ok()?).cloned()
}

/// A fault, or a change of the spec. Disks are lost by one voter at a time and only while the others serve: a plan
/// cannot repair a lost quorum of disks.
pub(super) fn disturb(world: &mut World, rng: &mut Xoshiro256PlusPlus) {
    let pods: Vec<String> = world.api.pods.keys().cloned().collect();
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    let Some(pod) = pick(rng, &pods) else { return };
    let Some(node) = pick(rng, &nodes) else {
        return;
    };
    let down = world.api.nodes.values().filter(|n| !n.ready).count();
    match rng.next_u64() % 21 {
        0 | 1 if world.observe().descriptions.values().any(|d| d.leads) => {
            let voters: Vec<_> = world.raft.members.iter().filter(|m| !m.learner).collect();
            let all = voters.iter().all(|m| world.lives(m));
            let spare = all && voters.len() >= 3 && world.faults.side.is_empty();
            let learner = world
                .raft
                .members
                .iter()
                .any(|m| m.learner && m.name == pod);
            let member = world.raft.members.iter().any(|m| m.name == pod);
            if spare && member || learner {
                if one_in(rng, 2) {
                    world.lose_pvc(&pod)
                } else {
                    world.lose_disk(&pod)
                }
            }
        }
        2 => {
            world.api.pods.remove(&pod);
        }
        3 if down == 0 => world.api.nodes.get_mut(&node).expect("a node").ready = false,
        4 => world
            .api
            .nodes
            .values_mut()
            .for_each(|node| node.ready = true),
        5 => {
            world.faults.unseen.insert(pod);
        }
        6 => world.faults.unseen.clear(),
        7 => {
            world.faults.side.insert(pod, 1);
        }
        8 => world.faults.side.clear(),
        9 => {
            // A new spec, half of the time one that cannot start.
            world.api.wanted_inputs = format!("spec-{}", rng.next_u64() % 1000);
            world.faults.resizes = one_in(rng, 3);
            world.faults.confined = pick(rng, &pods)
                .filter(|_| one_in(rng, 2))
                .into_iter()
                .collect();
            if one_in(rng, 2) {
                let inputs = world.api.wanted_inputs.clone();
                world.faults.bad_inputs.insert(inputs);
            }
        }
        12 => {
            let named: Vec<_> = pick(rng, &pods).into_iter().collect();
            world.cluster.spec.replace_members = named;
        }
        13 | 14 if world.api.nodes.values().filter(|n| n.closed).count() < 2 => {
            world.cordon(&node, true);
            // Rarely so that new pods still come.
            world.api.nodes.get_mut(&node).expect("a node").closed = !one_in(rng, 8);
        }
        15 => uncordon(world),
        19 | 20 => certificates(world, rng),
        16 => {
            let ways = [Auto, Auto, Move, AddFirst, RemoveFirst];
            world.cluster.spec.disruption.node_replacement = pick(rng, &ways).unwrap_or_default();
        }
        10 => world.status = EtcdClusterStatus::default(),
        11 => {
            let mut members = world.raft.members.iter();
            let learner = members.any(|m| m.learner && m.name == pod);
            let mut pvcs = world.api.pvcs.values_mut();
            // A PVC in use is deleted: it is gone once its pod is.
            if let Some(pvc) = pvcs.find(|c| c.member.as_ref() == Some(&pod))
                && learner
            {
                pvc.terminating = true;
            }
        }
        // Half of the time for longer than any patience.
        17 => {
            world.cluster.spec.replicas = 0;
            if one_in(rng, 2) {
                (0..20).for_each(|_| drop(world.reconcile()));
                world.api.now_ms += 100_000_000;
            }
        }
        _ => world.cluster.spec.replicas = 1 + i32::try_from(rng.next_u64() % 5).unwrap_or(0),
    }
}

/// TLS is enabled, a CA rotation is requested, or a certificate or CA is deleted.
fn certificates(world: &mut World, rng: &mut Xoshiro256PlusPlus) {
    if world.cluster.spec.tls.is_none() {
        world.cluster.spec.tls = Some(Tls::default());
        world.api.wanted_inputs = format!("spec-tls-{}", rng.next_u64() % 1000);
        return;
    }
    let number = rng.next_u64() % 1000;
    match rng.next_u64() % 4 {
        0 => drop(
            world
                .api
                .tls
                .rotate
                .insert(TlsPort::Peer, number.to_string()),
        ),
        1 => drop((world.api.tls.rotate).insert(TlsPort::Client, format!("{number} now"))),
        2 => world.names = format!("names-{number}"),
        _ => {
            let names: Vec<String> = world.api.tls.secrets.keys().cloned().collect();
            if let Some(name) = pick(rng, &names) {
                world.api.tls.secrets.remove(&name);
            }
        }
    }
}

/// Another class, one that does not exist, another size, or nodes that the pod template selects no more.
fn ask_for_volumes(world: &mut World, rng: &mut Xoshiro256PlusPlus) {
    match rng.next_u64() % 4 {
        0 => {
            let classes = [None, Some("standard"), Some("fast"), Some("missing")];
            let class = pick(rng, &classes).flatten().map(str::to_owned);
            world.cluster.spec.storage.storage_class_name = class;
        }
        1 | 2 => {
            let mebibytes = pick(rng, &[512, 768, 1024, 2048]).unwrap_or(1024);
            world.cluster.spec.storage.size = format!("{mebibytes}Mi");
            world.cluster.storage_bytes = mebibytes << 20;
        }
        _ => {
            select_all(world);
            let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
            for node in nodes.iter().filter(|_| one_in(rng, 3)) {
                let facts = world.api.nodes.get_mut(node).expect("a node");
                (facts.unselected, facts.closed) = (true, true);
            }
            world.api.wanted_inputs = format!("spec-zone-{}", rng.next_u64() % 1000);
        }
    }
}

fn select_all(world: &mut World) {
    for facts in world.api.nodes.values_mut() {
        facts.closed = facts.closed && !facts.unselected || facts.drain_reason.is_some();
        facts.unselected = false;
    }
}

pub(super) fn uncordon(world: &mut World) {
    let nodes: Vec<String> = world.api.nodes.keys().cloned().collect();
    nodes.iter().for_each(|node| world.cordon(node, false));
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
    let mut world = World::new(1 + i32::try_from(rng.next_u64() % 5).unwrap_or(0));
    if one_in(&mut rng, 3) {
        world = world.with_tls();
    }
    world.pace.catch_up = 1 + rng.next_u64() % 100;
    // Evictions are counted in every third life, and held now and then: by a number of their own, so
    // that the other lives stay what they were.
    let mut policies = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let counts = one_in(&mut policies, 3);
    let mut adoptions = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5555);
    if one_in(&mut rng, 3) {
        world.pace.node_bound = true;
        for name in ["node-f", "node-g"] {
            let node = world.api.nodes["node-a"].clone();
            world.api.nodes.insert(name.into(), node);
        }
    }
    // Every fifth cluster follows another one, up to some moment; likewise by a number of their own.
    let mut followers = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xf011);
    if one_in(&mut followers, 5) {
        world.cluster.spec.bootstrap = Some(Bootstrap {
            follow: Some(Follow::default()),
            ..Bootstrap::default()
        });
    }
    // In every other life volumes are asked for that there are not; likewise by a number of their own.
    let mut volumes = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0701);
    let changes = one_in(&mut volumes, 2);
    if changes {
        for name in ["standard", "fast"] {
            let class = ClassFacts {
                expands: true,
                is_default: name == "standard",
            };
            world.api.classes.insert(name.into(), class);
        }
    }
    for _ in 0..(20 + rng.next_u64() % 150) {
        if changes && one_in(&mut volumes, 20) {
            ask_for_volumes(&mut world, &mut volumes);
        }
        if counts && one_in(&mut policies, 20) {
            use DisruptionPolicy::{Auto, Budget, Gate};
            let all = [Gate, Budget, Auto];
            world.cluster.spec.disruption.policy = pick(&mut policies, &all).unwrap_or_default();
        }
        if one_in(&mut followers, 100) {
            world.raft.following = None;
        }
        let plan = world.reconcile();
        if std::env::var("TRACE").is_ok() {
            println!(
                "{} {:?}\n{plan}",
                world.api.now_ms / 1000,
                world.raft.leader
            );
        }
        // The resource is deleted with its volumes kept, at any moment at which members have used them.
        if one_in(&mut adoptions, 120) && world.may_adopt() {
            world.adopt();
        }
        // Drains ask for whatever there is.
        let pods: Vec<String> = world.api.pods.keys().cloned().collect();
        for pod in pods {
            if one_in(&mut rng, 4) {
                world.evict(&pod);
            }
        }
        if one_in(&mut rng, 8) {
            disturb(&mut world, &mut rng);
            // The freshness bound: what happened within it cannot be known.
            (0..4).for_each(|_| world.tick());
        }
    }
    world
        .api
        .nodes
        .values_mut()
        .for_each(|node| node.ready = true);
    uncordon(&mut world);
    world.faults.unseen.clear();
    world.faults.side.clear();
    world.faults.confined.clear();
    world.pace.catch_up = 1000;
    world.api.wanted_inputs = "spec-good".into();
    if changes {
        let class = world.cluster.spec.storage.storage_class_name.as_mut();
        class.into_iter().for_each(|class| *class = "fast".into());
        select_all(&mut world);
    }
    world.cluster.spec.replicas = world.cluster.spec.replicas.max(1);
    let mut plans = world.settle(6000);
    if world.cluster.spec.disruption.policy == DisruptionPolicy::Auto {
        // The PDB is opened once all have been ready for a while.
        (0..12).for_each(|_| world.tick());
        plans = world.settle(100);
    }
    let last = plans.last().expect("a plan");
    let target = world.cluster.target();
    if std::env::var("TRACE").is_ok() {
        println!("{world:#?}");
    }
    if changes {
        let wanted = world.cluster.spec.storage.storage_class_name.as_deref();
        let wanted = wanted.unwrap_or("standard");
        let bytes = world.cluster.storage_bytes;
        let fits = |pvc: &PvcFacts| {
            pvc.storage.class.as_deref() == Some(wanted) && pvc.requested_bytes == bytes
        };
        let all = world.api.pvcs.values().all(fits);
        assert!(all, "seed {seed}: volumes {:?}\n{last}", world.api.pvcs);
    }
    assert!(
        world.voters() == target && world.raft.members.len() == target,
        "seed {seed}: {} voters of {target}\n{last}",
        world.voters()
    );
    assert!(
        last.steps.is_empty() && last.progress.is_none(),
        "seed {seed}: not at rest\n{last}"
    );
    assert_eq!(
        world.api.sets.len(),
        target,
        "seed {seed}: sets left over\n{last}"
    );
    // Every slot that is wanted is there, in front of a voter of its own.
    let held: BTreeSet<_> = (world.api.slots.values())
        .filter_map(|slot| slot.member.as_ref())
        .collect();
    assert!(
        world.api.slots.len() == target && held.len() == target,
        "seed {seed}: slots {:?}",
        world.api.slots
    );
    assert_eq!(
        world.api.pvcs.len(),
        target,
        "seed {seed}: PVCs left over\n{last}"
    );
    if world.cluster.spec.tls.is_some() {
        let secure = |url: &String| url.starts_with("https://");
        let mut urls = world
            .raft
            .members
            .iter()
            .flat_map(|member| &member.peer_urls);
        assert!(urls.all(secure), "seed {seed}: {:?}", world.raft.members);
        // Two authorities, two certificates a member, and that of clients.
        let secrets = world.api.tls.secrets.len();
        assert_eq!(secrets, 2 * target + 3, "seed {seed}: certificates\n{last}");
    }
    assert!(
        world.api.pods.values().all(|pod| pod.released_ms.is_none()),
        "seed {seed}: an eviction may still take a pod\n{last}"
    );
    let least = match world.cluster.spec.disruption.policy {
        DisruptionPolicy::Gate => None,
        DisruptionPolicy::Budget => Some(target / 2 + 1),
        DisruptionPolicy::Auto => {
            let condition = last
                .conditions
                .iter()
                .find(|it| it.type_ == ConditionType::DisruptionAllowed);
            let reason = condition.map_or("", |it| it.reason);
            let lasts = [
                "FewVoters",
                "MembersReplaced",
                "VolumesStay",
                "VolumesUnknown",
            ];
            let opens = target >= 3 && !lasts.contains(&reason);
            assert!(!opens || reason == "OneAtATime", "seed {seed}: {last}");
            opens.then_some(target - 1)
        }
    };
    let min_available = least.map(|least| u32::try_from(least).expect("few"));
    assert_eq!(
        world.min_available(),
        min_available,
        "seed {seed}: the PDB\n{last}"
    );
    // At rest, the same facts give the same plan and the same status: nothing is written.
    let again = plan(&world.observe());
    assert_eq!(
        without_age(again.status),
        without_age(last.status.clone()),
        "seed {seed}: the status changes at rest"
    );
}

/// How long nobody has told of the followed cluster grows with the time.
fn without_age(mut status: EtcdClusterStatus) -> EtcdClusterStatus {
    if let Some(follow) = &mut status.follow {
        follow.lag_seconds = None;
    }
    status
}

#[test]
fn every_seed_converges_by_allowed_steps_alone() {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(150);
    let only = std::env::var("SEED").ok().and_then(|n| n.parse().ok());
    match only {
        Some(seed) => run(seed),
        None => (0..seeds).for_each(run),
    }
}
