//! Which cluster is due for a reconcile. Each has at most one at a time; a trigger during it
//! causes one more; failures wait longer each time. Knows no clock: time is passed
//! in, in milliseconds.

use std::collections::{BTreeMap, BTreeSet};

use super::held::Told;
use super::turns::Turns;

/// Triggers within this are one reconcile.
const DEBOUNCE_MS: u64 = 30;
/// Between two reconciles because members have changed: one that changes to and fro does not keep the operator busy.
const CHANGED_MS: u64 = 1_000;
/// After a member did not hold a call.
const UNTOLD_MS: u64 = 10_000;
/// The first wait after a failed reconcile; each further one is twice as long.
const BACKOFF_MS: u64 = 1_000;
/// The longest wait after failed reconciles.
const BACKOFF_MAX_MS: u64 = 60_000;

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Come back after so many milliseconds, or sooner when something changes.
    After(u64),
    /// It failed: come back after a growing wait, or sooner when something changes.
    Failed,
    /// The cluster was deleted: drop it.
    Gone,
}

#[derive(Debug, Default)]
struct Entry {
    due_ms: Option<u64>,
    running: bool,
    triggered: bool,
    failures: u32,
    /// A member has changed during the reconcile.
    changed: bool,
    /// A member held no call during the reconcile: perhaps the one that the reconcile had asked for.
    untold: bool,
    /// When the last reconcile that was asked for because of that is or was due.
    changed_ms: Option<u64>,
}

/// The tenant of a cluster: of two tenants with due clusters, the one with fewer reconciles in progress comes first, so
/// that a thousand clusters of one tenant delay no other's for longer than a reconcile.
pub trait Tenant {
    /// The tenant: a cluster's namespace.
    fn tenant(&self) -> &str;
}

impl Tenant for (String, String) {
    fn tenant(&self) -> &str {
        &self.0
    }
}

/// The queue of all clusters.
#[derive(Debug, Default)]
pub struct Queue<K> {
    entries: BTreeMap<K, Entry>,
    /// The entries that are due sometime, by when: with ten thousand clusters at rest, few are due now.
    due: BTreeSet<(u64, K)>,
    /// Those that are due by now.
    turns: Turns<K>,
    /// Reconciles under way, by tenant.
    under_way: BTreeMap<String, usize>,
}

impl<K: Ord + Clone + Tenant> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            turns: Turns::default(),
            under_way: BTreeMap::new(),
        }
    }

    /// Something about this cluster changed.
    pub fn trigger(&mut self, key: K, now_ms: u64) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.triggered = true;
            return;
        }
        self.is_due(key, now_ms + DEBOUNCE_MS);
    }

    /// A call that a member of this cluster held has ended.
    pub(crate) fn told(&mut self, key: K, told: Told, now_ms: u64) {
        match told {
            Told::Changed => self.changed(key, now_ms),
            Told::Nothing => self.untold(key, now_ms),
        }
    }

    /// It is looked at as one is whose members tell nothing.
    fn untold(&mut self, key: K, now_ms: u64) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.untold = true;
            return;
        }
        self.is_due(key, now_ms + UNTOLD_MS);
    }

    fn changed(&mut self, key: K, now_ms: u64) {
        let entry = self.entries.entry(key.clone()).or_default();
        let soon = now_ms + DEBOUNCE_MS;
        let due_ms = match entry.changed_ms {
            // One is asked for already.
            Some(last) if last > now_ms => last,
            Some(last) => soon.max(last + CHANGED_MS),
            None => soon,
        };
        entry.changed_ms = Some(due_ms);
        if entry.running {
            entry.changed = true;
            return;
        }
        self.is_due(key, due_ms);
    }

    /// A cluster without a reconcile is due then, or before.
    fn is_due(&mut self, key: K, at_ms: u64) {
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(before) = entry.due_ms {
            // Whoever is due by now stays so.
            if before <= at_ms || !self.due.remove(&(before, key.clone())) {
                return;
            }
        }
        entry.due_ms = Some(at_ms);
        self.due.insert((at_ms, key));
    }

    /// Takes the cluster that has been due longest, of those of the tenants with the fewest reconciles
    /// under way, if any is due now. Its reconcile runs until [`Queue::ended`].
    pub fn take(&mut self, now_ms: u64) -> Option<K> {
        while self.next_is_due(now_ms)
            && let Some((due_ms, key)) = self.due.pop_first()
        {
            self.turns.add(due_ms, key);
        }
        let key = self.turns.take(&self.under_way)?;
        let tenant = key.tenant().to_owned();
        *self.under_way.entry(tenant).or_default() += 1;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.running = true;
        entry.triggered = false;
        entry.changed = false;
        entry.untold = false;
        entry.due_ms = None;
        Some(key)
    }

    fn next_is_due(&self, now_ms: u64) -> bool {
        let next = self.due.first();
        next.is_some_and(|(due_ms, _)| *due_ms <= now_ms)
    }

    /// When [`Queue::take`] may have something, in the same milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        let later = || self.due.first().map(|(due_ms, _)| *due_ms);
        self.turns.first_due().or_else(later)
    }

    /// Passes under way.
    pub fn running(&self) -> usize {
        self.under_way.values().sum()
    }

    /// A reconcile ended.
    pub fn ended(&mut self, key: &K, ended: Ended, now_ms: u64) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        if let Some(many) = self.under_way.get_mut(key.tenant()) {
            *many -= 1;
            if *many == 0 {
                self.under_way.remove(key.tenant());
            }
        }
        let mut due = match ended {
            Ended::After(wait_ms) => {
                entry.failures = 0;
                now_ms + wait_ms
            }
            Ended::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                let doublings = (entry.failures - 1).min(16);
                now_ms + (BACKOFF_MS << doublings).min(BACKOFF_MAX_MS)
            }
            Ended::Gone if !entry.triggered => {
                self.entries.remove(key);
                return;
            }
            Ended::Gone => now_ms,
        };
        if entry.triggered {
            due = due.min(now_ms + DEBOUNCE_MS);
        }
        if entry.untold {
            due = due.min(now_ms + UNTOLD_MS);
        }
        if let Some(changed_ms) = entry.changed_ms.filter(|_| entry.changed) {
            due = due.min(changed_ms.max(now_ms + DEBOUNCE_MS));
        }
        self.is_due(key.clone(), due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member whose description flaps: a reconcile a second, however often it is told of.
    #[test]
    fn changes_of_members_are_a_reconcile_a_second() {
        let mut queue = Queue::new();
        let mut reconciles = 0;
        for now_ms in 0..10_000 {
            queue.changed("a", now_ms);
            if queue.take(now_ms).is_some() {
                reconciles += 1;
                queue.ended(&"a", Ended::After(60_000), now_ms);
            }
        }
        assert_eq!(reconciles, 10);
        queue.changed("b", 5);
        assert_eq!(
            queue.take(5 + DEBOUNCE_MS),
            Some("b"),
            "the first one at once"
        );
        queue.trigger("a", 10_000);
        assert_eq!(
            queue.take(10_000 + DEBOUNCE_MS),
            Some("a"),
            "events are not delayed"
        );
    }

    /// A member that holds no call: its cluster is looked at every ten seconds, also if that was told while the reconcile
    /// that had asked for the call was still writing its report.
    #[test]
    fn clusters_that_are_not_told_of_are_looked_at() {
        let mut queue = Queue::new();
        queue.trigger("a", 0);
        for begun_ms in [DEBOUNCE_MS, DEBOUNCE_MS + UNTOLD_MS] {
            assert_eq!(queue.take(begun_ms), Some("a"));
            queue.told("a", Told::Nothing, begun_ms);
            queue.ended(&"a", Ended::After(300_000), begun_ms);
            assert_eq!(queue.next_due(), Some(begun_ms + UNTOLD_MS));
        }
        let begun_ms = DEBOUNCE_MS + 2 * UNTOLD_MS;
        assert_eq!(queue.take(begun_ms), Some("a"));
        queue.ended(&"a", Ended::After(300_000), begun_ms);
        assert_eq!(queue.next_due(), Some(begun_ms + 300_000), "it is held");
        queue.told("a", Told::Nothing, begun_ms + 5);
        assert_eq!(queue.next_due(), Some(begun_ms + 5 + UNTOLD_MS));
    }

    impl Tenant for &str {
        fn tenant(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    /// Reconciles were ordered only by their due time: a tenant with a thousand clusters that do not answer took every
    /// slot, and another one's cluster waited for a quarter of an hour.
    #[test]
    fn one_tenants_clusters_delay_no_other_tenant() {
        let mut queue = Queue::new();
        let crowd: Vec<String> = (0..1_000).map(|number| format!("crowd/{number}")).collect();
        let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
        for key in &crowd {
            queue.trigger(*key, 0);
        }
        queue.trigger("quiet/one", 500);
        let begun: Vec<&str> = (0..4).filter_map(|_| queue.take(1_000)).collect();
        assert!(begun.contains(&"quiet/one"), "{begun:?}");
        queue.ended(&"quiet/one", Ended::After(0), 1_000);
        assert_eq!(queue.take(1_100), Some("quiet/one"), "and again");
        assert_eq!(queue.running(), 4);
    }

    #[test]
    fn trigger_during_a_reconcile_causes_one_more() {
        let mut queue = Queue::new();
        queue.trigger("a", 0);
        queue.trigger("a", 10);
        assert_eq!(queue.take(29), None);
        assert_eq!(queue.take(30), Some("a"));
        queue.trigger("a", 40);
        queue.trigger("a", 41);
        assert_eq!(queue.take(1000), None, "one reconcile at a time");
        queue.ended(&"a", Ended::After(60_000), 1000);
        assert_eq!(queue.next_due(), Some(1030));
        assert_eq!(queue.take(1030), Some("a"));
        queue.ended(&"a", Ended::After(60_000), 1031);
        assert_eq!(queue.next_due(), Some(61_031));
    }

    #[test]
    fn failures_back_off_per_cluster() {
        let mut queue = Queue::new();
        queue.trigger("bad", 0);
        queue.trigger("good", 1);
        let mut now = 100;
        let mut waits = vec![];
        for round in 0..8 {
            assert_eq!(queue.take(now), Some("bad"));
            queue.ended(&"bad", Ended::Failed, now);
            if round == 0 {
                assert_eq!(queue.take(now), Some("good"));
                queue.ended(&"good", Ended::After(1 << 40), now);
            }
            let due = queue.next_due().expect("due again");
            waits.push(due - now);
            now = due;
        }
        assert_eq!(
            waits,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(queue.take(now), Some("bad"));
        queue.ended(&"bad", Ended::After(5), now);
        assert_eq!(queue.take(now + 5), Some("bad"));
        queue.ended(&"bad", Ended::Failed, now + 5);
        assert_eq!(
            queue.next_due(),
            Some(now + 5 + 1_000),
            "a success resets the wait"
        );
    }

    #[test]
    fn deleted_cluster_is_forgotten() {
        let mut queue = Queue::new();
        queue.trigger("a", 0);
        assert_eq!(queue.take(50), Some("a"));
        queue.ended(&"a", Ended::Gone, 60);
        assert_eq!((queue.next_due(), queue.running()), (None, 0));
        queue.trigger("a", 100);
        assert_eq!(queue.take(150), Some("a"));
        queue.trigger("a", 151);
        queue.ended(&"a", Ended::Gone, 160);
        assert!(queue.take(300).is_some());
    }
}
