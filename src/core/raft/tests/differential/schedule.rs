//! Generates the events of a schedule from the state of the cluster.

use super::Pair;
use super::event::Event;
use super::ours::ELECTION;
use crate::raft::tests::random::Generator;
use crate::raft::*;

/// A schedule under way.
pub(super) struct Schedule<'a> {
    generator: Generator,
    pub(super) pair: Pair<'a>,
    proposals: u64,
    spare: MemberId,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(generator: Generator, pair: Pair<'a>) -> Self {
        let spare = pair.ours.ids().len() as u64 + 1;
        Self {
            generator,
            pair,
            proposals: 0,
            spare,
        }
    }

    fn anyone(&mut self) -> MemberId {
        let ids = self.pair.ours.ids();
        self.generator.pick(&ids)
    }

    /// A member that leads, if any does.
    fn leader(&mut self) -> Option<MemberId> {
        let leaders = self.pair.ours.leaders();
        (!leaders.is_empty()).then(|| self.generator.pick(&leaders))
    }

    fn stop_the_gone(&mut self) {
        for id in self.pair.gone.clone() {
            if self.pair.ours.up(id) {
                self.pair.act(&Event::Crash(id));
            }
        }
    }

    /// One thing happens, in one event or a few.
    pub(super) fn step(&mut self) {
        self.stop_the_gone();
        let id = self.anyone();
        let up = self.pair.ours.up(id);
        match self.generator.below(100) {
            0..=19 if up => self.time_passes(id),
            20..=29 if up => {
                self.pair.act(&Event::Campaign(id));
            }
            30..=49 => self.propose(id),
            50..=59 => self.change(),
            60..=66 => self.transfer(),
            67..=75 => self.cut(id),
            76..=81 => {
                self.pair.act(&Event::Heal);
            }
            82..=87 if up => self.compact(id),
            88..=92 if up => {
                self.pair.act(&Event::Crash(id));
            }
            _ if !up && !self.pair.gone.contains(&id) => self.restart(id),
            _ => {}
        }
    }

    /// A leader's clock runs for an election timeout; that of another may stop earlier, and does
    /// when it comes to lead.
    fn time_passes(&mut self, id: MemberId) {
        let leads = self.pair.ours.raft(id).role() == Role::Leader;
        let ticks = if leads {
            ELECTION as usize
        } else {
            1 + self.generator.below(2 * ELECTION as usize)
        };
        for _ in 0..ticks {
            self.pair.act(&Event::Tick(id));
            if (self.pair.ours.raft(id).role() == Role::Leader) != leads {
                return;
            }
        }
    }

    fn propose(&mut self, id: MemberId) {
        let at = match self.leader() {
            Some(leader) if self.generator.chance(90) => leader,
            _ if self.pair.ours.up(id) => id,
            _ => return,
        };
        let count = 1 + self.generator.below(4) as u64;
        let items = (1..=count).map(|n| format!("p{}", self.proposals + n));
        let items = items.collect();
        self.proposals += count;
        self.pair.act(&Event::Propose(at, items));
    }

    fn change(&mut self) {
        let Some(leader) = self.leader() else { return };
        let conf = self.pair.ours.raft(leader).configuration().clone();
        let members: Vec<MemberId> = conf.members().into_iter().collect();
        let change = match self.generator.below(10) {
            0..=3 if members.len() < 6 && self.spare < 12 => {
                // A member that left never comes back under its old id.
                let new = self.spare;
                self.spare += 1;
                self.pair.act(&Event::New(new));
                if self.generator.chance(70) {
                    ConfigurationChange::AddLearner(new)
                } else {
                    ConfigurationChange::AddVoter(new)
                }
            }
            4..=6 => match conf.learners.first() {
                Some(learner) => ConfigurationChange::Promote(*learner),
                None => return,
            },
            _ => match self.generator.pick(&members) {
                id if id == leader => return,
                id => ConfigurationChange::Remove(id),
            },
        };
        self.pair.act(&Event::Change(leader, change));
    }

    fn transfer(&mut self) {
        let Some(leader) = self.leader() else { return };
        if self.pair.ours.change_pending(leader) {
            return;
        }
        let to = self.anyone();
        let raft = self.pair.ours.raft(to);
        let listens = raft.role() == Role::Follower && raft.leader() == Some(leader);
        if self.pair.ours.up(to) && !listens {
            return;
        }
        let taken = self.pair.act(&Event::Transfer(leader, to));
        if taken && self.pair.ours.raft(leader).role() == Role::Leader {
            self.time_passes(leader);
        }
    }

    fn cut(&mut self, id: MemberId) {
        let others: Vec<MemberId> = self.pair.ours.ids();
        if self.generator.chance(50) {
            let to = self.generator.pick(&others);
            self.pair.act(&Event::Cut(id, to));
            return;
        }
        let (in_, out) = [(true, true), (true, false), (false, true)][self.generator.below(3)];
        for other in others.into_iter().filter(|other| *other != id) {
            if in_ {
                self.pair.act(&Event::Cut(other, id));
            }
            if out {
                self.pair.act(&Event::Cut(id, other));
            }
        }
    }

    fn compact(&mut self, id: MemberId) {
        let status = self.pair.ours.raft(id).status();
        let (floor, applied) = (status.floor_index, status.applied);
        if floor < applied {
            let through = floor + 1 + self.generator.below((applied - floor) as usize) as u64;
            self.pair.act(&Event::Compact(id, through));
        }
    }

    fn restart(&mut self, id: MemberId) {
        let node = &self.pair.ours.cluster.nodes[&id];
        let commit = if self.generator.chance(50) {
            node.raft.commit()
        } else {
            // Two changes in a log mean that the first is committed, which our core concludes.
            let above = node.image.snapshot.index;
            let changes = node.image.entries.iter().filter(|entry| {
                entry.kind == EntryKind::Configuration as i32 && entry.index > above
            });
            changes.rev().nth(1).map_or(above, |entry| entry.index)
        };
        self.pair.act(&Event::Restart(id, commit));
    }

    /// Faults stop and clocks run: both must come to the same end.
    pub(super) fn converge(&mut self) {
        self.pair.act(&Event::Heal);
        for id in self.pair.ours.ids() {
            if !self.pair.ours.up(id) && !self.pair.gone.contains(&id) {
                self.restart(id);
            }
        }
        for _ in 0..4 {
            for id in self.pair.ours.ids() {
                self.stop_the_gone();
                if self.pair.ours.up(id) {
                    self.time_passes(id);
                }
            }
        }
    }
}
