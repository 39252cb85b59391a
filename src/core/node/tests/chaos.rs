//! Random schedules: messages, disks, appliers, ticks, cuts, crashes, transfers and changes of
//! membership in any order, drawn from a seed. Checked throughout: members that applied the same
//! index are equal, no proposal is applied twice, none is applied after it was reported as failed;
//! and once the faults stop, all answered writes are present and new ones are served.
//!
//! `SEEDS=n` runs more of them, `SEED=x` one.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::*;

struct Chaos {
    cluster: Cluster,
    rng: Xoshiro256PlusPlus,
    seed: u64,
    /// Keys by the proposal that wrote them.
    asked: BTreeMap<RequestId, String>,
    answered: Vec<String>,
    /// The hash of the state at each index, and the first member with it.
    hashes: BTreeMap<Index, (MemberId, u64)>,
    /// The identity of each applied proposal and its index.
    applied: BTreeMap<RequestId, Index>,
    next_member: MemberId,
}

fn config(id: MemberId, config: &mut MemberConfig) {
    config.checkpoints = CheckpointPolicy {
        log_bytes: 3 << 10,
        entries: 10,
        hold_bytes: 2 << 10,
        ..CheckpointPolicy::default()
    };
    config.raft.cache_bytes = 1 << 10;
    config.raft.matched_cache_bytes = 1 << 8;
    config.health_ms = 1000;
    // Flags may differ; what is applied must not.
    config.max_learners = 1 + usize::try_from(id % 3).unwrap();
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self {
            cluster: Cluster::tweaked(&[1, 2, 3], config),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            seed,
            asked: BTreeMap::new(),
            answered: Vec::new(),
            hashes: BTreeMap::new(),
            applied: BTreeMap::new(),
            next_member: 4,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn any(&mut self) -> MemberId {
        let ids: Vec<MemberId> = self.cluster.servers.keys().copied().collect();
        let at = self.below(ids.len() as u64);
        ids[usize::try_from(at).unwrap()]
    }

    fn step(&mut self) {
        let id = self.any();
        match self.below(1000) {
            0..=299 => {
                self.cluster.think(id);
            }
            300..=429 => {
                self.cluster.server(id).write();
            }
            430..=549 => {
                if self.cluster.server(id).work() {
                    self.check(id);
                }
            }
            550..=559 => {
                self.cluster.server(id).finish_checkpoint();
            }
            560..=929 => self.network(),
            930..=969 => {
                self.cluster.now += TICK / 3;
                self.cluster.give(id, Input::Tick);
            }
            970..=993 => self.write(id),
            _ => self.disturb(id),
        }
    }

    fn disturb(&mut self, id: MemberId) {
        match self.below(20) {
            0..=3 => {
                let number = self.below(u64::MAX);
                self.cluster.give(
                    id,
                    Input::Transfer {
                        id: number,
                        to: None,
                    },
                );
            }
            4..=7 => self.change(id),
            8 => self.crash(id),
            9..=10 => {
                let other = self.any();
                self.cluster.cuts.insert((id, other));
            }
            _ => self.cluster.heal(),
        }
    }

    fn network(&mut self) {
        let links = self
            .cluster
            .wire
            .iter()
            .filter(|(_, queue)| !queue.is_empty());
        let links: Vec<(MemberId, MemberId)> = links.map(|(link, _)| *link).collect();
        if links.is_empty() {
            return;
        }
        let at = self.below(links.len() as u64);
        let (from, to) = links[usize::try_from(at).unwrap()];
        if self.below(300) == 0 {
            self.cluster.wire.get_mut(&(from, to)).unwrap().pop_front();
        } else {
            self.cluster.deliver(from, to);
        }
    }

    fn write(&mut self, id: MemberId) {
        let server = self.cluster.server(id);
        let request = server.request();
        let key = format!(
            "{:x}-{}-{}",
            request.member, request.boot_nonce, request.counter
        );
        let data = LogPayload::command(Some(request), put(&key, &"v".repeat(60)));
        self.asked.insert(request, key);
        let proposals = vec![Proposal { request, data }];
        self.cluster.give(id, Input::Propose(proposals));
    }

    fn change(&mut self, id: MemberId) {
        let request = self.cluster.server(id).request();
        let membership = Arc::clone(self.cluster.server(id).machine.membership());
        let at = self.below(membership.members.len().max(1) as u64);
        let target = membership
            .members
            .keys()
            .nth(usize::try_from(at).unwrap())
            .copied();
        let command = match (self.below(3), target) {
            (0, _) if membership.members.len() < 6 => {
                let new = self.next_member;
                self.next_member += 1;
                self.cluster.join(new);
                add(new, self.below(4) > 0)
            }
            (1, Some(target)) if membership.voters().count() > 1 => remove(target),
            (_, Some(target)) => promote(target),
            (_, None) => return,
        };
        self.cluster
            .give(id, Input::ChangeMembership { request, command });
    }

    fn crash(&mut self, id: MemberId) {
        self.collect(id);
        if self.gone().contains(&id) {
            self.cluster.stop(id);
        } else {
            self.cluster.restart_quietly(id);
        }
    }

    /// Checks and records what a member has applied and answered since the last check.
    fn check(&mut self, id: MemberId) {
        let seed = self.seed;
        let server = self.cluster.servers.get_mut(&id).unwrap();
        for (index, applied) in server.applied.drain(..) {
            let write = applied
                .request
                .filter(|request| self.asked.contains_key(request));
            if let Some(request) = write {
                let before = self.applied.insert(request, index);
                assert!(
                    before.is_none_or(|at| at == index),
                    "seed {seed}: {request:?} twice"
                );
            }
        }
        let hash = server.machine.hash().expect("every value is in memory");
        let index = server.machine.index();
        let (first, expected) = *self.hashes.entry(index).or_insert((id, hash));
        assert_eq!(
            hash, expected,
            "seed {seed}: {id} and {first} differ at {index}"
        );
    }

    fn collect(&mut self, id: MemberId) {
        let boot_nonce = self.cluster.server(id).boot_nonce;
        for (counter, outcome) in std::mem::take(&mut self.cluster.server(id).answers) {
            let request = RequestId {
                member: id,
                boot_nonce,
                counter,
            };
            if let (Some(key), Outcome::Store(Ok(_))) = (self.asked.get(&request), outcome) {
                self.answered.push(key.clone());
            }
        }
        let failures = std::mem::take(&mut self.cluster.server(id).failures);
        for counter in failures.into_keys() {
            let request = RequestId {
                member: id,
                boot_nonce,
                counter,
            };
            assert!(
                !self.applied.contains_key(&request),
                "seed {}: failed",
                self.seed
            );
        }
    }

    /// Faults stop: the cluster has to settle and serve.
    fn finish(&mut self) {
        println!("seed {}", self.seed);
        self.cluster.heal();
        // Members that do not know of a removal yet still need the removed one.
        for _ in 0..6 {
            self.cluster.ticks(20);
            for id in self.gone() {
                self.cluster.stop(id);
            }
        }
        let leader = self.cluster.leader();
        self.cluster.put(leader, "last", "word");
        self.cluster.ticks(30);
        let members = Arc::clone(self.cluster.server(leader).machine.membership());
        let ids: Vec<MemberId> = self.cluster.servers.keys().copied().collect();
        for id in ids {
            self.check(id);
            self.collect(id);
            if members.member(id).is_some() {
                let view = self.cluster.server(id).machine.view();
                assert_eq!(
                    value(&view, "last").as_deref(),
                    Some("word"),
                    "seed {} {id}",
                    self.seed
                );
                for key in &self.answered {
                    assert!(
                        value(&view, key).is_some(),
                        "seed {}: {key} is lost",
                        self.seed
                    );
                }
            }
        }
    }

    /// Servers that are no longer needed: removed and settled, or never added after all.
    fn gone(&self) -> Vec<MemberId> {
        let servers = &self.cluster.servers;
        let settled = |server: &&Server| server.machine.membership().is_settled();
        let newest = servers
            .values()
            .filter(settled)
            .max_by_key(|server| server.machine.index());
        let Some(members) = newest.map(|server| Arc::clone(server.machine.membership())) else {
            return Vec::new();
        };
        servers
            .keys()
            .copied()
            .filter(|id| members.is_removed(*id))
            .collect()
    }
}

fn live(seed: u64) -> [u64; 5] {
    let mut chaos = Chaos::new(seed);
    for _ in 0..20_000 {
        chaos.step();
    }
    chaos.finish();
    let servers = chaos.cluster.servers.values();
    let last = servers.clone().map(|server| server.machine.index()).max();
    let term = servers.clone().map(|server| server.machine.term()).max();
    let installs: usize = servers.map(|server| server.installs).sum();
    [
        chaos.answered.len() as u64,
        last.unwrap_or(0),
        term.unwrap_or(0),
        installs as u64,
        chaos.next_member - 4,
    ]
}

#[test]
fn random_faults_lose_no_acknowledged_write() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(10),
    };
    let mut sums = [0; 5];
    for seed in seeds {
        for (sum, part) in sums.iter_mut().zip(live(seed)) {
            *sum += part;
        }
    }
    let [answered, entries, terms, installs, joiners] = sums;
    println!(
        "{answered} answered writes in {entries} entries and {terms} terms, {installs} checkpoints \
         installed, {joiners} joiners"
    );
    assert!(answered > 0, "nothing was written at all");
}
