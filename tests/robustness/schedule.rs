//! Which faults occur, in which order, at which member and for how long: a function of the seed. The effects differ
//! from run to run, because the processes are real; the schedule does not. Each deck contains every kind once, so that
//! every kind occurs.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Faults of members or of something that they need; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hard {
    KillOne,
    KillLeader,
    KillMost,
    KillAll,
    PowerOne,
    PowerAll,
    StopOne,
    StopLeader,
    IsolateLeader,
    IsolateFollower,
    MuteLeader,
    DeafLeader,
    CutLink,
    CutOneWay,
    FailSyncs,
    FailWrites,
    FillDisk,
    HangDisk,
    LoseDisk,
    ReplaceMember,
    RestartAll,
    MoveLeader,
}

/// Background faults, in addition to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Soft {
    Delay,
    DelayOneWay,
    Lose,
    SlowDisk,
    SlowDisks,
    JumpClock,
    JumpClocks,
}

pub(crate) const HARD: &[Hard] = &[
    Hard::KillOne,
    Hard::KillLeader,
    Hard::KillMost,
    Hard::KillAll,
    Hard::PowerOne,
    Hard::PowerAll,
    Hard::StopOne,
    Hard::StopLeader,
    Hard::IsolateLeader,
    Hard::IsolateFollower,
    Hard::MuteLeader,
    Hard::DeafLeader,
    Hard::CutLink,
    Hard::CutOneWay,
    Hard::FailSyncs,
    Hard::FailWrites,
    Hard::FillDisk,
    Hard::HangDisk,
    Hard::LoseDisk,
    Hard::ReplaceMember,
    Hard::RestartAll,
    Hard::MoveLeader,
];

pub(crate) const SOFT: &[Soft] = &[
    Soft::Delay,
    Soft::DelayOneWay,
    Soft::Lose,
    Soft::SlowDisk,
    Soft::SlowDisks,
    Soft::JumpClock,
    Soft::JumpClocks,
];

/// One fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike<F> {
    pub(crate) fault: F,
    /// Selects a member, modulo their number.
    pub(crate) target: usize,
    /// Selects another member.
    pub(crate) other: usize,
    pub(crate) lasts: Duration,
    /// The pause before it.
    pub(crate) after: Duration,
}

/// An endless schedule.
pub(crate) struct Schedule<F: 'static> {
    kinds: &'static [F],
    random: Xoshiro256PlusPlus,
    deck: Vec<F>,
    lasts: (u64, u64),
}

impl<F: Copy> Schedule<F> {
    /// `lasts`: the minimum and maximum duration of a fault, in milliseconds.
    pub(crate) fn new(kinds: &'static [F], seed: u64, lasts: (u64, u64)) -> Schedule<F> {
        Schedule {
            kinds,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            deck: Vec::new(),
            lasts,
        }
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.random.next_u64() % (high - low + 1)
    }
}

impl<F: Copy> Iterator for Schedule<F> {
    type Item = Strike<F>;

    fn next(&mut self) -> Option<Strike<F>> {
        if self.deck.is_empty() {
            self.deck = self.kinds.to_vec();
            for at in (1..self.deck.len()).rev() {
                let with = self.between(0, at as u64);
                self.deck.swap(at, usize::try_from(with).expect("a place"));
            }
        }
        let fault = self.deck.pop()?;
        let small = |number: u64| usize::try_from(number).expect("small");
        let (low, high) = self.lasts;
        Some(Strike {
            fault,
            target: small(self.between(0, 59)),
            other: small(self.between(0, 59)),
            lasts: Duration::from_millis(self.between(low, high)),
            after: Duration::from_millis(self.between(200, 1500)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{HARD, Schedule};

    #[test]
    fn a_seed_gives_one_schedule() {
        let take = |seed| -> Vec<_> { Schedule::new(HARD, seed, (100, 200)).take(100).collect() };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        let first: BTreeSet<_> = take(7)[..HARD.len()].iter().map(|one| one.fault).collect();
        assert_eq!(first.len(), HARD.len());
    }
}
