//! When leases end. The store knows which leases there are; only the leader, here, knows how
//! long each still lasts, in milliseconds of its own monotonic clock.
//!
//! A new leader gives every lease its whole time to live again and an election timeout on top,
//! so that no lease ends early because leadership moved. Never ends a lease by itself: what is
//! over becomes a proposal.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{LeaseId, LeaseInfo};

use super::api::LeaseEvent;
use super::peer::LeaseTimes;

/// The most leases that may end in a second, as in etcd.
const ENDS_A_SECOND: u64 = 1000;

/// The leases and, at a leader, their deadlines.
#[derive(Debug, Default)]
pub(super) struct Lessor {
    granted: BTreeMap<LeaseId, Granted>,
    /// Present at a leader only.
    clock: Option<Clock>,
}

/// What is replicated of a lease, in seconds.
#[derive(Clone, Copy, Debug)]
struct Granted {
    ttl: i64,
    /// As last noted; 0: the whole time to live.
    remaining: i64,
}

impl Granted {
    /// What a new leader gives it.
    fn left(self) -> i64 {
        if self.remaining > 0 {
            self.remaining
        } else {
            self.ttl
        }
    }
}

#[derive(Debug)]
struct Clock {
    deadlines: BTreeMap<LeaseId, u64>,
    /// The same, by deadline.
    queue: BTreeSet<(u64, LeaseId)>,
    /// Proposed to end; back in the queue at the given time unless they have ended.
    ending: BTreeMap<LeaseId, u64>,
    /// Leases that may end now, in thousandths.
    budget: u64,
    filled_at: u64,
}

impl Lessor {
    /// What applying brought.
    pub(super) fn note(&mut self, now: u64, event: &LeaseEvent) {
        match event {
            LeaseEvent::Reset(all) => {
                let granted = |lease: &LeaseInfo| Granted {
                    ttl: lease.ttl,
                    remaining: lease.remaining,
                };
                let leases = all.iter().map(|lease| (lease.id, granted(lease)));
                self.granted = leases.collect();
                if self.clock.is_some() {
                    self.lead(now, 0);
                }
            }
            LeaseEvent::Granted(id, ttl) => {
                let (ttl, remaining) = (*ttl, 0);
                self.granted.insert(*id, Granted { ttl, remaining });
                if let Some(clock) = &mut self.clock {
                    clock.arm(*id, deadline(now, ttl));
                }
            }
            LeaseEvent::Noted(id, remaining) => {
                if let Some(granted) = self.granted.get_mut(id) {
                    granted.remaining = *remaining;
                }
            }
            LeaseEvent::Ended(id) => {
                self.granted.remove(id);
                if let Some(clock) = &mut self.clock {
                    clock.forget(*id);
                }
            }
        }
    }

    /// This member leads from now on: arms every lease anew, `extra` milliseconds longer.
    pub(super) fn lead(&mut self, now: u64, extra: u64) {
        let mut clock = Clock {
            deadlines: BTreeMap::new(),
            queue: BTreeSet::new(),
            ending: BTreeMap::new(),
            budget: 0,
            filled_at: now,
        };
        for (id, granted) in &self.granted {
            clock.arm(*id, deadline(now, granted.left()).saturating_add(extra));
        }
        self.clock = Some(clock);
    }

    /// This member does not lead any more.
    pub(super) fn follow(&mut self) {
        self.clock = None;
    }

    /// Renews a lease: it lasts its whole time to live from now. `None` when there is no such
    /// lease, it is ending already, or this member does not lead.
    pub(super) fn renew(&mut self, now: u64, id: LeaseId) -> Option<LeaseTimes> {
        let granted = self.granted.get(&id)?.ttl;
        let clock = self.clock.as_mut()?;
        if clock.ending.contains_key(&id) {
            return None;
        }
        clock.arm(id, deadline(now, granted));
        Some(LeaseTimes {
            granted,
            remaining: granted,
        })
    }

    /// What remains of a lease; `None` when there is no such lease or this member does not lead.
    pub(super) fn times(&self, now: u64, id: LeaseId) -> Option<LeaseTimes> {
        let granted = self.granted.get(&id)?.ttl;
        let deadline = *self.clock.as_ref()?.deadlines.get(&id)?;
        let remaining = deadline.saturating_sub(now) / 1000;
        Some(LeaseTimes {
            granted,
            remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        })
    }

    /// Leases whose time is over and that may end now. Each is given again after `retry`
    /// milliseconds unless it has ended by then.
    pub(super) fn expired(&mut self, now: u64, retry: u64) -> Vec<LeaseId> {
        let Some(clock) = &mut self.clock else {
            return Vec::new();
        };
        clock.fill(now);
        clock.bring_back(now);
        let mut over = Vec::new();
        while clock.budget >= 1000 {
            match clock.queue.first() {
                Some((deadline, _)) if *deadline <= now => {}
                _ => break,
            }
            let Some((_, id)) = clock.queue.pop_first() else {
                break;
            };
            clock.ending.insert(id, now.saturating_add(retry));
            clock.budget -= 1000;
            over.push(id);
        }
        over
    }
}

impl Clock {
    fn arm(&mut self, id: LeaseId, deadline: u64) {
        self.forget(id);
        self.deadlines.insert(id, deadline);
        self.queue.insert((deadline, id));
    }

    fn forget(&mut self, id: LeaseId) {
        if let Some(deadline) = self.deadlines.remove(&id) {
            self.queue.remove(&(deadline, id));
        }
        self.ending.remove(&id);
    }

    fn fill(&mut self, now: u64) {
        let gained = now
            .saturating_sub(self.filled_at)
            .saturating_mul(ENDS_A_SECOND);
        self.budget = self.budget.saturating_add(gained).min(ENDS_A_SECOND * 1000);
        self.filled_at = now;
    }

    fn bring_back(&mut self, now: u64) {
        let back = self.ending.iter().filter(|(_, at)| **at <= now);
        let back: Vec<LeaseId> = back.map(|(id, _)| *id).collect();
        for id in back {
            self.ending.remove(&id);
            if let Some(deadline) = self.deadlines.get(&id) {
                self.queue.insert((*deadline, id));
            }
        }
    }
}

fn deadline(now: u64, ttl: i64) -> u64 {
    let ttl = u64::try_from(ttl).unwrap_or(0);
    now.saturating_add(ttl.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lessor(leases: &[(LeaseId, i64)]) -> Lessor {
        let mut lessor = Lessor::default();
        let all = leases.iter().map(|(id, ttl)| LeaseInfo {
            id: *id,
            ttl: *ttl,
            remaining: 0,
        });
        lessor.note(0, &LeaseEvent::Reset(all.collect()));
        lessor
    }

    #[test]
    fn a_new_leader_gives_the_whole_time_and_an_election_timeout() {
        let mut lessor = lessor(&[(1, 2)]);
        assert_eq!(lessor.times(0, 1), None, "a follower does not know");
        lessor.lead(10_000, 1000);
        assert!(lessor.expired(12_999, 1000).is_empty());
        assert_eq!(lessor.expired(13_000, 1000), [1]);
    }

    #[test]
    fn a_renewed_lease_lasts_again() {
        let mut lessor = lessor(&[(1, 2)]);
        lessor.lead(0, 0);
        let times = lessor.renew(1500, 1).unwrap();
        assert_eq!((times.granted, times.remaining), (2, 2));
        assert!(lessor.expired(2000, 1000).is_empty());
        assert_eq!(lessor.times(2600, 1).unwrap().remaining, 0);
        assert_eq!(lessor.expired(3500, 1000), [1]);
        assert_eq!(lessor.renew(3500, 1), None, "it is ending");
        assert_eq!(lessor.renew(3500, 2), None, "there is none");
    }

    #[test]
    fn an_end_that_does_not_come_about_is_proposed_again() {
        let mut lessor = lessor(&[(1, 1)]);
        lessor.lead(0, 0);
        assert_eq!(lessor.expired(1000, 500), [1]);
        assert!(lessor.expired(1400, 500).is_empty());
        assert_eq!(lessor.expired(1500, 500), [1]);
        lessor.note(1600, &LeaseEvent::Ended(1));
        assert!(lessor.expired(9000, 500).is_empty());
        assert_eq!(lessor.times(9000, 1), None);
    }

    #[test]
    fn no_more_than_a_thousand_end_in_a_second() {
        let leases: Vec<(LeaseId, i64)> = (1..=2500).map(|id| (id, 1)).collect();
        let mut lessor = lessor(&leases);
        lessor.lead(0, 0);
        let mut ended = 0;
        for now in (1000..2000).step_by(100) {
            ended += lessor.expired(now, 60_000).len();
        }
        assert_eq!(
            ended,
            1000 + 900,
            "a second's worth at once, then a tenth each time"
        );
        for now in (2000..3000).step_by(100) {
            ended += lessor.expired(now, 60_000).len();
        }
        assert_eq!(ended, 2500);
    }

    #[test]
    fn a_lease_granted_under_a_leader_is_armed_at_once() {
        let mut lessor = lessor(&[]);
        lessor.lead(0, 1000);
        lessor.note(500, &LeaseEvent::Granted(7, 3));
        assert_eq!(lessor.times(500, 7).unwrap().remaining, 3);
        assert_eq!(lessor.expired(3500, 1000), [7]);
        lessor.follow();
        assert!(lessor.expired(9500, 1000).is_empty());
    }
}
