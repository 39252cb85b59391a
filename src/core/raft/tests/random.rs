//! Random runs of a small cluster: loss, delay, reordering, doubling, one-way cuts, slow disks,
//! slow appliers, crashes, log drops, snapshots, transfers, reads and changes of membership. After each step
//! the paper's figure 3 is checked: election safety, log matching, leader completeness and
//! state-machine safety, and reads against the state they may miss. Once faults stop, the cluster must come to agree.
//!
//! `RAFT_SEEDS=n` runs more seeds, `RAFT_SEED=x` one of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::harness::{Cluster, Parcel};
use crate::raft::*;

pub(super) struct Generator(pub(super) Xoshiro256PlusPlus);

impl Generator {
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What has been seen of the whole run, by a spectator that forgets nothing.
#[derive(Default)]
struct Spectator {
    leaders: BTreeMap<Term, MemberId>,
    /// The entry applied at each index, by any member.
    applied: BTreeMap<Index, Entry>,
    /// The highest index committed by any member when a read began, by request.
    reads: BTreeMap<u64, Index>,
    answered: BTreeMap<u64, usize>,
    committed: Index,
}

struct Run {
    seed: u64,
    generator: Generator,
    cluster: Cluster,
    seen: Spectator,
    next: u64,
    /// One-way cuts: (from, to).
    cuts: Vec<(MemberId, MemberId)>,
    spare: MemberId,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut generator = Generator(Xoshiro256PlusPlus::seed_from_u64(seed));
        let size = 1 + generator.below(5) as u64;
        let conf = Configuration::new(1..=size, []);
        let mut cluster = Cluster::default();
        let (pre_vote, check_quorum) = (generator.chance(70), generator.chance(70));
        for id in 1..=size {
            cluster.add(id, conf.clone(), |config| {
                tune(config, seed, pre_vote, check_quorum)
            });
        }
        let (seen, cuts) = (Spectator::default(), Vec::new());
        Self {
            seed,
            generator,
            cluster,
            seen,
            next: 0,
            cuts,
            spare: size + 1,
        }
    }

    fn ids(&self) -> Vec<MemberId> {
        self.cluster.nodes.keys().copied().collect()
    }

    fn fail(&self, what: &str) -> ! {
        panic!("seed {}: {what} (RAFT_SEED={0} replays)", self.seed)
    }

    /// One random thing happens.
    fn step(&mut self) -> Result<(), Error> {
        let id = {
            let ids = self.ids();
            self.generator.pick(&ids)
        };
        let crashed = self.cluster.node(id).crashed;
        match self.generator.below(100) {
            0..=19 if !crashed => self.cluster.raft(id).tick()?,
            20..=44 => {
                self.cluster.ready(id)?;
            }
            45..=69 => self.deliver()?,
            70..=75 if !crashed => {
                self.cluster.persist(id)?;
                self.cluster.answer_reads(id)?;
            }
            76..=79 if !crashed => {
                let count = 1 + self.generator.below(4);
                self.cluster.apply(id, count)?;
            }
            80..=86 if !crashed => self.propose(id),
            87..=90 if !crashed => self.read(id),
            91 if !crashed => self.change(id),
            92 if !crashed => {
                let ids = self.ids();
                let to = self.generator.pick(&ids);
                let _ = self.cluster.raft(id).transfer_leadership(to);
            }
            93 if !crashed => self.compact(id)?,
            94 if !crashed && self.generator.chance(40) => self.cluster.crash(id),
            95..=96 if crashed => self.cluster.restart(id)?,
            97 if self.generator.chance(30) => {
                let ids = self.ids();
                let pair = (id, self.generator.pick(&ids));
                self.cuts.push(pair);
            }
            98 if self.generator.chance(50) => self.cuts.clear(),
            99 if !crashed && self.generator.chance(50) => {
                self.cluster.raft(id).report_unreachable(id % 3 + 1);
            }
            // True or not: a wrong report may cost an election, never more.
            99 if !crashed => {
                let leader = self.cluster.raft(id).leader().unwrap_or(id % 3 + 1);
                self.cluster.raft(id).report_gone(leader)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Error> {
        if self.cluster.network.is_empty() {
            return Ok(());
        }
        // Mostly in order, sometimes not.
        let len = self.cluster.network.len();
        let at = if self.generator.chance(80) {
            0
        } else {
            self.generator.below(len)
        };
        let parcel = self.cluster.network.remove(at);
        let cut = self.cuts.contains(&(parcel.from(), parcel.to()));
        if cut || self.generator.chance(5) {
            self.cluster.stream_failed(&parcel);
            return Ok(());
        }
        if self.generator.chance(5) && matches!(parcel, Parcel::Message(_)) {
            self.cluster.network.push(parcel.clone());
        }
        self.cluster.receive(parcel)
    }

    fn propose(&mut self, id: MemberId) {
        self.next += 1;
        let data = Bytes::from(format!("{}-{id}", self.next));
        let _ = self.cluster.raft(id).propose(vec![data]);
    }

    fn read(&mut self, id: MemberId) {
        self.next += 1;
        let request = self.next;
        self.seen.reads.insert(request, self.seen.committed);
        self.cluster.raft(id).read_index(request);
    }

    fn change(&mut self, id: MemberId) {
        let conf = self.cluster.raft(id).configuration().clone();
        let members: Vec<MemberId> = conf.members().into_iter().collect();
        if members.is_empty() {
            return;
        }
        let change = match self.generator.below(4) {
            0 if members.len() < 7 => {
                // A member that left never comes back under its old id.
                let new = self.spare;
                if self.cluster.raft(id).role() != Role::Leader {
                    return;
                }
                self.spare += 1;
                let seed = self.seed;
                self.cluster
                    .add(new, Configuration::default(), |c| tune(c, seed, true, true));
                if self.generator.chance(70) {
                    ConfigurationChange::AddLearner(new)
                } else {
                    ConfigurationChange::AddVoter(new)
                }
            }
            1 => ConfigurationChange::Promote(self.generator.pick(&members)),
            2 => ConfigurationChange::Remove(self.generator.pick(&members)),
            _ => return,
        };
        let _ = self
            .cluster
            .raft(id)
            .propose_configuration(change, Bytes::new());
    }

    fn compact(&mut self, id: MemberId) -> Result<(), Error> {
        let node = self.cluster.node(id);
        let status = node.raft.status();
        // The state and the log on disk must agree: nothing is being written or installed.
        let last = node.image.floor.0 + node.image.entries.len() as u64;
        if node.writing.is_some() || status.applied != node.state_index() || status.applied > last {
            return Ok(());
        }
        let floor = status.floor_index;
        if floor > status.applied {
            // A snapshot waits to be installed.
            return Ok(());
        }
        let through = floor + self.generator.below((status.applied - floor + 1) as usize) as u64;
        self.cluster.compact(id, through)
    }

    /// Figure 3 of the paper, after every step.
    fn check(&mut self) {
        self.cluster.trace.clear();
        let mut wrong = None;
        for (id, node) in &self.cluster.nodes {
            if node.raft.role() == Role::Leader && !node.crashed {
                let leader = *self.seen.leaders.entry(node.raft.term()).or_insert(*id);
                if leader != *id {
                    wrong = Some("election safety: two leaders in a term");
                }
                // Leader completeness: it has every entry that any member has applied.
                let floor = node.raft.status().floor_index;
                for (index, entry) in self.seen.applied.range(floor + 1..).rev().take(20) {
                    let term = node.raft.term_at(*index);
                    let newer = self.seen.leaders.keys().next_back() == Some(&node.raft.term());
                    if newer && term != Some(entry.term) {
                        wrong = Some("leader completeness: it lacks what was applied");
                    }
                }
            }
            let status = node.raft.status();
            if status.commit > status.last_index || status.applied > status.commit {
                wrong = Some("indexes are out of order");
            }
            self.seen.committed = self.seen.committed.max(node.raft.commit());
            // State-machine safety: all apply the same at the same index.
            for entry in node.state.iter().rev().take(8) {
                if self
                    .seen
                    .applied
                    .entry(entry.index)
                    .or_insert_with(|| entry.clone())
                    != entry
                {
                    wrong = Some("state-machine safety: members applied different entries");
                }
            }
            for (request, answer) in &node.answers {
                *self.seen.answered.entry(*request).or_default() += 1;
                if answer.is_ok_and(|index| index < self.seen.reads[request]) {
                    wrong = Some("a read would miss what was committed before it began");
                }
            }
        }
        for node in self.cluster.nodes.values_mut() {
            node.answers.clear();
        }
        if self.seen.answered.values().any(|count| *count > 1) {
            wrong = Some("a read was answered twice");
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// Log matching: the same term at the same index means the same log up to there. Slower,
    /// so done now and then.
    fn check_logs(&self) {
        let images: Vec<_> = self
            .cluster
            .nodes
            .values()
            .map(|node| &node.image)
            .collect();
        for (at, one) in images.iter().enumerate() {
            for other in &images[at + 1..] {
                let other: BTreeMap<Index, &Entry> = other
                    .entries
                    .iter()
                    .map(|entry| (entry.index, entry))
                    .collect();
                let mut agreed = false;
                for entry in one.entries.iter().rev() {
                    let Some(their) = other.get(&entry.index) else {
                        continue;
                    };
                    agreed |= their.term == entry.term;
                    if agreed && *their != entry {
                        self.fail("log matching: logs agree at an index and not before it");
                    }
                }
            }
        }
    }

    /// Faults stop: all members restart, all messages arrive, and the cluster must agree.
    fn converge(&mut self) -> Result<(), Error> {
        self.cuts.clear();
        for id in self.ids() {
            let node = self.cluster.node(id);
            (node.lazy_disk, node.lazy_apply) = (false, false);
            if node.crashed {
                self.cluster.restart(id)?;
            } else {
                self.cluster.persist(id)?;
                self.cluster.answer_reads(id)?;
                self.cluster.apply(id, usize::MAX)?;
            }
        }
        for round in 0..400 {
            self.cluster.stabilize(&[])?;
            self.check();
            for id in self.ids() {
                self.cluster.raft(id).tick()?;
            }
            let leader = self.ids().into_iter().find(|id| {
                let raft = &self.cluster.nodes[id].raft;
                raft.role() == Role::Leader && raft.status().reads_ready
            });
            if round > 30 {
                self.stop_removed()?;
            }
            if let Some(leader) = leader.filter(|_| round > 60) {
                let before = self.cluster.raft(leader).status().configuration;
                self.cluster.stabilize(&[])?;
                let now = self.cluster.raft(leader).status();
                if now.role == Role::Leader && now.configuration == before {
                    return self.check_agreement(leader);
                }
            }
        }
        let all = self.cluster.nodes.values();
        let all: Vec<_> = all
            .map(|n| format!("{} {:?}", n.crashed, n.raft.status()))
            .collect();
        self.fail(&format!(
            "no leader comes up after faults stopped\n{}",
            all.join("\n")
        ))
    }

    /// Removed members are stopped by their operator. Without pre-vote and without the lease on votes they would
    /// disturb the others forever (thesis §4.2.3).
    fn stop_removed(&mut self) -> Result<(), Error> {
        let newest = self
            .cluster
            .nodes
            .values()
            .max_by_key(|node| node.raft.applied_index());
        let members = newest
            .map(|node| node.raft.configuration().members())
            .unwrap_or_default();
        for id in self.ids() {
            match (members.contains(&id), self.cluster.node(id).crashed) {
                (false, false) => self.cluster.crash(id),
                (true, true) => self.cluster.restart(id)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn check_agreement(&mut self, leader: MemberId) -> Result<(), Error> {
        let status = self.cluster.raft(leader).status();
        for id in status.configuration.members() {
            let it = self.cluster.raft(id).status();
            let same = it.applied == status.applied && it.configuration == status.configuration;
            if !same || it.leader != Some(leader) {
                let theirs = format!("leader {status:?}\nmember {it:?}");
                self.fail(&format!(
                    "a member does not catch up after faults stopped\n{theirs}"
                ));
            }
        }
        self.next += 1;
        let data = format!("last-{}", self.next);
        if self
            .cluster
            .raft(leader)
            .propose(vec![Bytes::from(data.clone())])
            .is_ok()
        {
            self.cluster.stabilize(&[])?;
            for id in status.configuration.members() {
                if self.cluster.applied(id).last() != Some(&data) {
                    self.fail("a write does not reach a member after faults stopped");
                }
            }
        }
        self.check_logs();
        Ok(())
    }
}

fn tune(config: &mut Config, seed: u64, pre_vote: bool, check_quorum: bool) {
    config.seed = seed;
    config.pre_vote = pre_vote;
    config.check_quorum = check_quorum;
    config.election_ticks = 5;
    config.max_message_bytes = 80;
    config.max_inflight_messages = 3;
    config.max_inflight_bytes = 200;
    config.max_uncommitted_bytes = 400;
    config.max_apply_bytes = 100;
    config.cache_bytes = 120;
    config.matched_cache_bytes = 60;
}

fn run(seed: u64, steps: usize) {
    let mut run = Run::new(seed);
    let result = (|| {
        for at in 0..steps {
            run.step()?;
            run.check();
            if at % 50 == 0 {
                run.check_logs();
                let ids = run.ids();
                let id = run.generator.pick(&ids);
                let (disk, apply) = (run.generator.chance(40), run.generator.chance(40));
                let node = run.cluster.node(id);
                (node.lazy_disk, node.lazy_apply) = (disk, apply);
            }
        }
        run.converge()
    })();
    if let Err(error) = result {
        run.fail(&error.to_string());
    }
}

#[test]
fn random_runs_keep_the_papers_properties() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("RAFT_SEED") {
        return run(seed, 3000);
    }
    for seed in 0..number("RAFT_SEEDS").unwrap_or(20) {
        run(seed, 3000);
    }
}
