//! Whose turn it is among those that are due: the one that has been due longest, of those of the tenants with the fewest
//! reconciles under way. Knows no clock; what is not due yet is not in here.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::Tenant;

/// All that are due, by tenant: to choose among ten thousand takes no look at each.
#[derive(Debug)]
pub(super) struct Turns<K> {
    of: BTreeMap<String, BTreeSet<(u64, K)>>,
    /// Since when the first of each tenant has been due.
    first: BTreeSet<(u64, String)>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            first: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone + Tenant> Turns<K> {
    /// It has been due since then.
    pub(super) fn add(&mut self, due_ms: u64, key: K) {
        let tenant = key.tenant().to_owned();
        let of_tenant = self.of.entry(tenant.clone()).or_default();
        let before = of_tenant.first().map(|(first, _)| *first);
        of_tenant.insert((due_ms, key));
        if before.is_none_or(|before| due_ms < before) {
            if let Some(before) = before {
                self.first.remove(&(before, tenant.clone()));
            }
            self.first.insert((due_ms, tenant));
        }
    }

    /// Since when the first has been due.
    pub(super) fn first_due(&self) -> Option<u64> {
        self.first.first().map(|(due_ms, _)| *due_ms)
    }

    /// Takes the one whose turn it is, with so many reconciles of each tenant under way.
    pub(super) fn take(&mut self, under_way: &BTreeMap<String, usize>) -> Option<K> {
        let mut next: Option<(usize, &(u64, String))> = None;
        for first in &self.first {
            let many = under_way.get(&first.1).copied().unwrap_or(0);
            if next.is_none_or(|(fewest, _)| many < fewest) {
                next = Some((many, first));
            }
            if many == 0 {
                break;
            }
        }
        let (due_ms, tenant) = next?.1.clone();
        let of_tenant = self.of.get_mut(&tenant)?;
        let (_, key) = of_tenant.pop_first()?;
        let after = of_tenant.first().map(|(due_ms, _)| *due_ms);
        self.first.remove(&(due_ms, tenant.clone()));
        match after {
            Some(after) => drop(self.first.insert((after, tenant))),
            None => drop(self.of.remove(&tenant)),
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    type Key = (String, String);

    /// The rule itself, over all that are due.
    fn whose(
        all: &BTreeSet<(u64, Key)>,
        under_way: &BTreeMap<String, usize>,
    ) -> Option<(u64, Key)> {
        let many = |key: &Key| under_way.get(key.tenant()).copied().unwrap_or(0);
        let next = all.iter().min_by_key(|(due_ms, key)| (many(key), *due_ms));
        next.cloned()
    }

    /// Each choice was a look at all that were due: where ten thousand had been, an operator's start or a change of all of them
    /// took as many looks at as many.
    #[test]
    fn turns_are_those_of_the_rule() {
        for seed in 0..50 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut turns, mut all) = (Turns::default(), BTreeSet::new());
            for number in 0..200 {
                let tenant = format!("tenant-{}", random.random_range(0..6));
                let due = (random.random_range(0..20), (tenant, format!("c{number}")));
                turns.add(due.0, due.1.clone());
                all.insert(due);
                let busy = (0..6).map(|tenant| {
                    let many = random.random_range(0..3);
                    (format!("tenant-{tenant}"), many)
                });
                let under_way = busy.collect();
                assert_eq!(turns.first_due(), all.first().map(|(due_ms, _)| *due_ms));
                while random.random_bool(0.5) {
                    let expected = whose(&all, &under_way);
                    if let Some(expected) = &expected {
                        all.remove(expected);
                    }
                    assert_eq!(turns.take(&under_way), expected.map(|(_, key)| key));
                }
            }
            while let Some(key) = turns.take(&BTreeMap::new()) {
                assert_eq!(whose(&all, &BTreeMap::new()).map(|it| it.1), Some(key));
                all.pop_first();
            }
            assert!(all.is_empty() && turns.first_due().is_none());
            assert!(turns.of.is_empty());
        }
    }
}
