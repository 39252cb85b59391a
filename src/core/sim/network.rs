//! The network between members: delays, losses, duplicates, reordering, and links cut one way or
//! both ways. Decides when (and whether) what arrives; carries nothing itself.

use std::collections::BTreeSet;

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::clock::{MILLISECOND, Micros};

/// A server of the simulation: a disk and the processes that ran on it.
pub(super) type HostId = usize;

/// How unkind the network is.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkFaults {
    /// Messages lost, in per mille.
    pub(super) loss: u32,
    /// Messages delivered twice, in per mille.
    pub(super) duplicates: u32,
    /// The longest delay of a message on a good day.
    pub(super) delay: Micros,
    /// Messages that are delayed much longer, and so overtaken, in per mille.
    pub(super) stragglers: u32,
}

impl NetworkFaults {
    /// Nothing is lost and everything is quick.
    pub(super) const CALM: Self = Self {
        loss: 0,
        duplicates: 0,
        delay: 2 * MILLISECOND,
        stragglers: 0,
    };

    /// Some network_faults, by the seed.
    pub(super) fn draw(random: &mut Xoshiro256PlusPlus) -> Self {
        Self {
            loss: [0, 5, 20, 100][random.random_range(0..4)],
            duplicates: [0, 5, 50][random.random_range(0..3)],
            delay: [1, 5, 30][random.random_range(0..3)] * MILLISECOND,
            stragglers: [0, 10, 50][random.random_range(0..3)],
        }
    }
}

/// When a message arrives: not at all, once, or twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) arrivals: Vec<Micros>,
}

/// The state of all links.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) network_faults: NetworkFaults,
    cut: BTreeSet<(HostId, HostId)>,
}

impl Network {
    pub(super) fn new(network_faults: NetworkFaults) -> Self {
        Self {
            network_faults,
            cut: BTreeSet::new(),
        }
    }

    /// Cuts the link in one direction.
    pub(super) fn cut(&mut self, from: HostId, to: HostId) {
        self.cut.insert((from, to));
    }

    /// Restores one of the links that are cut, if any.
    pub(super) fn restore_one(&mut self, random: &mut Xoshiro256PlusPlus) {
        if !self.cut.is_empty() {
            let at = random.random_range(0..self.cut.len());
            let link = self.cut.iter().nth(at).copied();
            link.map(|link| self.cut.remove(&link));
        }
    }

    /// Restores every link.
    pub(super) fn restore_all(&mut self) {
        self.cut.clear();
    }

    /// Whether messages pass in this direction.
    pub(super) fn passes(&self, from: HostId, to: HostId) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// What becomes of one message sent now.
    pub(super) fn send(
        &self,
        from: HostId,
        to: HostId,
        random: &mut Xoshiro256PlusPlus,
    ) -> Delivery {
        // The same draws whatever happens, so that a cut does not shift the rest of the run.
        let (loss, twice) = (random.random_range(0..1000), random.random_range(0..1000));
        let (first, second) = (self.delay(random), self.delay(random));
        if !self.passes(from, to) || loss < self.network_faults.loss {
            return Delivery::default();
        }
        let mut arrivals = vec![first];
        if twice < self.network_faults.duplicates {
            arrivals.push(second);
        }
        Delivery { arrivals }
    }

    fn delay(&self, random: &mut Xoshiro256PlusPlus) -> Micros {
        let usual = random.random_range(50..=self.network_faults.delay.max(51));
        if random.random_range(0..1000) < self.network_faults.stragglers {
            usual + random.random_range(0..500 * MILLISECOND)
        } else {
            usual
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn random() -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(7)
    }

    #[test]
    fn a_cut_is_one_way() {
        let mut network = Network::new(NetworkFaults::CALM);
        network.cut(0, 1);
        assert!(network.send(0, 1, &mut random()).arrivals.is_empty());
        assert_eq!(network.send(1, 0, &mut random()).arrivals.len(), 1);
        network.restore_all();
        assert_eq!(network.send(0, 1, &mut random()).arrivals.len(), 1);
    }

    #[test]
    fn network_drops_duplicates_and_reorders() {
        let network_faults = NetworkFaults {
            loss: 100,
            duplicates: 100,
            delay: MILLISECOND,
            stragglers: 100,
        };
        let (network, mut random) = (Network::new(network_faults), random());
        let fates: Vec<Delivery> = (0..1000).map(|_| network.send(0, 1, &mut random)).collect();
        let count = |n: usize| fates.iter().filter(|fate| fate.arrivals.len() == n).count();
        assert!(count(0) > 50 && count(0) < 200, "{} lost", count(0));
        assert!(count(2) > 50 && count(2) < 200, "{} doubled", count(2));
        let late = fates.iter().flat_map(|fate| &fate.arrivals);
        assert!(late.filter(|after| **after > 10 * MILLISECOND).count() > 30);
    }
}
