//! When a leader compacts automatically (`--auto-compaction-mode`, `--auto-compaction-retention`),
//! to the second as etcd does. Takes the time as an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::server::flags::config::AutoCompaction;
use crate::store::Revision;

/// How often the current revision is checked in revision mode (etcd's interval).
const BY_REVISION: Duration = Duration::from_secs(5 * 60);
/// The longest interval between two compactions in periodic mode, for longer retentions.
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Checks of the revision between two compactions.
const CHECKS: u32 = 10;
/// Shortest interval between two checks, so that a tiny retention does not keep a core busy.
const SHORTEST: Duration = Duration::from_millis(1);

/// Decides when to compact, and at which revision.
#[derive(Debug)]
pub(crate) struct Compactor {
    mode: AutoCompaction,
    /// The revisions at the last checks, oldest first: those of one retention period, so that the
    /// oldest is at least that old when it is compacted at.
    seen: VecDeque<Revision>,
    last: Revision,
    last_success: Duration,
    /// In periodic mode: the interval between compactions. The first one waits the whole retention
    /// period.
    wait: Duration,
}

impl Compactor {
    /// A compactor that starts at this time.
    pub(crate) fn new(mode: AutoCompaction, now: Duration) -> Compactor {
        let wait = match mode {
            AutoCompaction::Periodic(period) => period,
            AutoCompaction::Revisions(_) => Duration::ZERO,
        };
        Compactor {
            mode,
            seen: VecDeque::new(),
            last: 0,
            last_success: now,
            wait,
        }
    }

    /// The interval between two checks.
    pub(crate) fn interval(&self) -> Duration {
        match self.mode {
            AutoCompaction::Periodic(period) => (period.min(HOUR) / CHECKS).max(SHORTEST),
            AutoCompaction::Revisions(_) => BY_REVISION,
        }
    }

    /// Records the current revision, an [`interval`](Self::interval) before [`due`](Self::due).
    pub(crate) fn record(&mut self, revision: Revision) {
        let AutoCompaction::Periodic(period) = self.mode else {
            return;
        };
        let kept = period.as_nanos() / self.interval().as_nanos().max(1) + 1;
        self.seen.push_back(revision);
        if self.seen.len() as u128 > kept {
            self.seen.pop_front();
        }
    }

    /// The revision to compact at, if it is time. `leads`: only leaders compact.
    pub(crate) fn due(
        &mut self,
        now: Duration,
        revision: Revision,
        leads: bool,
    ) -> Option<Revision> {
        if !leads {
            return None;
        }
        let at = match self.mode {
            AutoCompaction::Periodic(period) => {
                let at = *self.seen.front()?;
                if now.saturating_sub(self.last_success) < self.wait || at == self.last {
                    return None;
                }
                self.wait = period.min(HOUR);
                at
            }
            AutoCompaction::Revisions(kept) => {
                let at = revision.saturating_sub(kept);
                if at <= 0 {
                    return None;
                }
                at
            }
        };
        (at != self.last).then_some(at)
    }

    /// The store is compacted at this revision, now or already before.
    pub(crate) fn done(&mut self, now: Duration, at: Revision) {
        self.last = at;
        self.last_success = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    /// Runs a compactor for so many checks; the revision grows by one a minute. Returns the minute
    /// and the revision of each compaction.
    fn run(mode: AutoCompaction, checks: u64, leads: impl Fn(u64) -> bool) -> Vec<(u64, Revision)> {
        let mut compactor = Compactor::new(mode, Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut compacted = Vec::new();
        for _ in 0..checks {
            let revision = |now: Duration| 1 + (now.as_secs() / 60) as Revision;
            compactor.record(revision(now));
            now += compactor.interval();
            let minute = now.as_secs() / 60;
            if let Some(at) = compactor.due(now, revision(now), leads(minute)) {
                compactor.done(now, at);
                compacted.push((minute, at));
            }
        }
        compacted
    }

    #[test]
    fn one_hour_retention_compacts_hourly() {
        let compacted = run(AutoCompaction::Periodic(minutes(60)), 31, |_| true);
        assert_eq!(compacted, [(60, 1), (120, 55), (180, 115)]);
    }

    #[test]
    fn one_day_retention_compacts_hourly() {
        let compacted = run(AutoCompaction::Periodic(minutes(24 * 60)), 261, |_| true);
        assert_eq!(compacted, [(1440, 1), (1500, 55), (1560, 115)]);
    }

    #[test]
    fn short_period_is_checked_ten_times() {
        let mode = AutoCompaction::Periodic(Duration::from_secs(5));
        let compactor = Compactor::new(mode, Duration::ZERO);
        assert_eq!(compactor.interval(), Duration::from_millis(500));
        let tiny = AutoCompaction::Periodic(Duration::from_nanos(3));
        assert_eq!(Compactor::new(tiny, Duration::ZERO).interval(), SHORTEST);
    }

    #[test]
    fn configured_revisions_are_kept() {
        let compacted = run(AutoCompaction::Revisions(12), 5, |_| true);
        // Checked every five minutes; 13 is the first revision with 12 behind it.
        assert_eq!(compacted, [(15, 4), (20, 9), (25, 14)]);
    }

    #[test]
    fn new_leader_continues_compactions() {
        let mode = AutoCompaction::Periodic(minutes(60));
        assert!(run(mode, 40, |_| false).is_empty());
        let compacted = run(mode, 21, |minute| minute >= 90);
        assert_eq!(compacted.first(), Some(&(90, 25)));
    }

    #[test]
    fn failed_compaction_is_retried() {
        let mut compactor = Compactor::new(AutoCompaction::Periodic(minutes(60)), Duration::ZERO);
        (0..10).for_each(|at| compactor.record(at + 1));
        assert_eq!(compactor.due(minutes(60), 11, true), Some(1));
        compactor.record(11);
        assert_eq!(compactor.due(minutes(66), 12, true), Some(1));
        compactor.done(minutes(66), 1);
        compactor.record(12);
        assert_eq!(compactor.due(minutes(72), 13, true), None);
    }
}
