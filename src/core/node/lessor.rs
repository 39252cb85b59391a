//! When leases expire. The store holds the leases; only the leader, here, knows the remaining TTL
//! of each, in milliseconds of its own monotonic clock.
//!
//! A new leader gives every lease its full TTL again and one election timeout on top, so that no
//! lease expires early because of a change of leader. Where the leader checkpoints the remaining
//! TTL of long leases, a new leader starts from that instead; a renewal is then answered only after
//! such a checkpoint has been cleared. That clearing may be committed and not applied yet where the
//! next leader is elected: it starts once all that was there before is applied. Never revokes a
//! lease by itself: an expired lease becomes a proposal.

use std::collections::{BTreeMap, BTreeSet};

use crate::mutants::mutant;
use crate::store::{LeaseId, LeaseInfo, LeaseRemains};

use super::api::LeaseEvent;
use super::peer::LeaseTimes;

/// The most leases that expire in a second, as in etcd.
const ENDS_A_SECOND: u64 = 1000;
/// The most leases in one checkpoint of remaining TTLs, as in etcd.
const NOTED_AT_ONCE: usize = 1000;

/// The leases and, at a leader, their deadlines.
#[derive(Debug, Default)]
pub(super) struct Lessor {
    granted: BTreeMap<LeaseId, Granted>,
    /// None expires, and none is checkpointed.
    held: bool,
    /// Milliseconds between two checkpoints of the remaining TTL of a long lease; 0: none.
    note_every: u64,
    /// Present at a leader only.
    clock: Option<Clock>,
}

/// The replicated part of a lease, in seconds.
#[derive(Clone, Copy, Debug)]
struct Granted {
    ttl: i64,
    /// As last checkpointed; 0: the full TTL.
    remaining: i64,
}

impl Granted {
    /// The TTL that a new leader gives it.
    fn left(self) -> i64 {
        if self.remaining > 0 {
            self.remaining
        } else {
            self.ttl
        }
    }
}

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It lasts its full TTL from now.
    Renewed(LeaseTimes),
    /// There is no such lease, it is expiring already, or this member does not lead.
    Gone,
    /// Its checkpointed TTL must be cleared first, or the next leader would let it expire early.
    /// Retry when that has been applied.
    Wait,
}

#[derive(Debug, Default)]
struct Clock {
    deadlines: BTreeMap<LeaseId, u64>,
    /// The same, by deadline.
    queue: BTreeSet<(u64, LeaseId)>,
    /// Proposed to be revoked; back in the queue at the given time if the lease still exists then.
    ending: BTreeMap<LeaseId, u64>,
    /// How many leases may still expire now, in thousandths.
    budget: u64,
    filled_at: u64,
    /// When the remaining TTL of each long lease is to be checkpointed next.
    notes: BTreeMap<LeaseId, u64>,
    /// The same, by time.
    note_queue: BTreeSet<(u64, LeaseId)>,
    /// Checkpoints that are proposed and not applied yet.
    noting: BTreeSet<LeaseId>,
    /// Checkpoints to be cleared, where that is not applied yet.
    clearing: BTreeSet<LeaseId>,
    /// Those of them that are not proposed yet.
    to_clear: Vec<LeaseId>,
}

impl Lessor {
    /// A lessor that checkpoints long leases every so many milliseconds; 0: never.
    pub(super) fn new(note_every: u64) -> Self {
        Self {
            note_every,
            ..Self::default()
        }
    }

    /// Takes over an event of the applied log.
    pub(super) fn note(&mut self, now: u64, event: &LeaseEvent) {
        match event {
            LeaseEvent::Reset(all) => {
                let granted = |lease: &LeaseInfo| Granted {
                    ttl: lease.ttl,
                    remaining: lease.remaining,
                };
                let leases = all.iter().map(|lease| (lease.id, granted(lease)));
                self.granted = leases.collect();
                self.held = false;
                if self.clock.is_some() {
                    self.lead(now, 0);
                }
            }
            LeaseEvent::Granted(id, ttl) => {
                let (ttl, remaining) = (*ttl, 0);
                self.granted.insert(*id, Granted { ttl, remaining });
                if let Some(clock) = &mut self.clock {
                    clock.arm(*id, deadline(now, ttl));
                    clock.schedule(now, self.note_every, *id, ttl);
                }
            }
            LeaseEvent::Noted(id, remaining) => self.noted(now, *id, *remaining),
            LeaseEvent::Held => self.held = true,
            LeaseEvent::Ended(id) => {
                self.granted.remove(id);
                if let Some(clock) = &mut self.clock {
                    clock.forget(*id);
                }
            }
        }
    }

    fn noted(&mut self, now: u64, id: LeaseId, remaining: i64) {
        let Some(granted) = self.granted.get_mut(&id) else {
            return;
        };
        granted.remaining = remaining;
        let left = granted.left();
        if let Some(clock) = &mut self.clock {
            match remaining {
                0 => clock.clearing.remove(&id),
                _ => clock.noting.remove(&id),
            };
            clock.schedule(now, self.note_every, id, left);
        }
    }

    /// This member leads, and has applied all that was there when it began to: rearms every lease, `extra` milliseconds
    /// longer.
    pub(super) fn lead(&mut self, now: u64, extra: u64) {
        let mut clock = Clock {
            filled_at: now,
            ..Clock::default()
        };
        for (id, granted) in &self.granted {
            let left = granted.left();
            let extra = mutant!(LeaseEarly => 0, else extra);
            let given = mutant!(LeaseEarly => left / 2, else left);
            clock.arm(*id, deadline(now, given).saturating_add(extra));
            clock.schedule(now, self.note_every, *id, left);
        }
        self.clock = Some(clock);
    }

    /// Whether the deadlines are known here.
    pub(super) fn leads(&self) -> bool {
        self.clock.is_some()
    }

    /// This member does not lead any more, or not yet.
    pub(super) fn follow(&mut self) {
        self.clock = None;
    }

    /// Renews a lease: it lasts its full TTL from now.
    pub(super) fn renew(&mut self, now: u64, id: LeaseId) -> Renewal {
        let (Some(granted), Some(clock)) = (self.granted.get(&id), self.clock.as_mut()) else {
            return Renewal::Gone;
        };
        if clock.ending.contains_key(&id) {
            return Renewal::Gone;
        }
        // A checkpoint that is proposed counts as well: it will be applied after this renewal.
        let noted = granted.remaining > 0 || clock.noting.contains(&id);
        if noted || clock.clearing.contains(&id) {
            if clock.clearing.insert(id) {
                clock.to_clear.push(id);
            }
            return Renewal::Wait;
        }
        clock.arm(id, deadline(now, granted.ttl));
        Renewal::Renewed(LeaseTimes {
            granted: granted.ttl,
            remaining: granted.ttl,
        })
    }

    /// The remaining TTL of a lease; `None` when there is no such lease or this member does not
    /// lead.
    pub(super) fn times(&self, now: u64, id: LeaseId) -> Option<LeaseTimes> {
        let granted = self.granted.get(&id)?.ttl;
        let deadline = *self.clock.as_ref()?.deadlines.get(&id)?;
        let remaining = deadline.saturating_sub(now) / 1000;
        Some(LeaseTimes {
            granted,
            remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        })
    }

    /// Leases that have expired and may be revoked now. Each is returned again after `retry`
    /// milliseconds if it still exists then.
    pub(super) fn expired(&mut self, now: u64, retry: u64) -> Vec<LeaseId> {
        let held = self.held;
        let Some(clock) = self.clock.as_mut().filter(|_| !held) else {
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

    /// The remaining TTLs of long leases that are due to be checkpointed. If they could not be
    /// proposed, call [`unproposed`](Self::unproposed).
    pub(super) fn notes(&mut self, now: u64) -> Vec<LeaseRemains> {
        let held = self.held;
        let Some(clock) = self.clock.as_mut().filter(|_| !held) else {
            return Vec::new();
        };
        let mut notes = Vec::new();
        while notes.len() < NOTED_AT_ONCE {
            match clock.note_queue.first() {
                Some((due, _)) if *due <= now => {}
                _ => break,
            }
            let Some((_, id)) = clock.note_queue.pop_first() else {
                break;
            };
            clock.notes.remove(&id);
            let (Some(granted), Some(deadline)) =
                (self.granted.get(&id), clock.deadlines.get(&id).copied())
            else {
                continue;
            };
            let left = deadline.saturating_sub(now).div_ceil(1000);
            let remaining = i64::try_from(left).unwrap_or(i64::MAX);
            // The next checkpoint is scheduled whatever becomes of this one.
            clock.schedule(now, self.note_every, id, granted.ttl);
            let fresh = remaining >= granted.ttl;
            if remaining == 0 || fresh || clock.clearing.contains(&id) {
                continue;
            }
            clock.noting.insert(id);
            notes.push(LeaseRemains { id, remaining });
        }
        notes
    }

    /// Leases whose checkpoint is to be cleared, to be proposed with a remaining TTL of zero.
    pub(super) fn take_clearings(&mut self) -> Vec<LeaseRemains> {
        let waiting = self.clock.as_mut().map(|clock| &mut clock.to_clear);
        let ids = waiting.map(std::mem::take).unwrap_or_default();
        let clear = |id| LeaseRemains { id, remaining: 0 };
        ids.into_iter().map(clear).collect()
    }

    /// These checkpoints could not be proposed.
    pub(super) fn unproposed(&mut self, notes: &[LeaseRemains]) {
        if let Some(clock) = &mut self.clock {
            for note in notes {
                match note.remaining {
                    0 => clock.clearing.remove(&note.id),
                    _ => clock.noting.remove(&note.id),
                };
            }
        }
    }
}

impl Clock {
    fn arm(&mut self, id: LeaseId, deadline: u64) {
        self.disarm(id);
        self.deadlines.insert(id, deadline);
        self.queue.insert((deadline, id));
    }

    fn disarm(&mut self, id: LeaseId) {
        if let Some(deadline) = self.deadlines.remove(&id) {
            self.queue.remove(&(deadline, id));
        }
        self.ending.remove(&id);
    }

    /// Forgets a lease.
    fn forget(&mut self, id: LeaseId) {
        self.disarm(id);
        if let Some(due) = self.notes.remove(&id) {
            self.note_queue.remove(&(due, id));
        }
        self.noting.remove(&id);
        self.clearing.remove(&id);
    }

    /// Schedules the next checkpoint of a lease with `left` remaining seconds, if that is long.
    fn schedule(&mut self, now: u64, every: u64, id: LeaseId, left: i64) {
        if let Some(due) = self.notes.remove(&id) {
            self.note_queue.remove(&(due, id));
        }
        let long = u64::try_from(left).unwrap_or(0) > every / 1000;
        if every > 0 && long {
            let due = now.saturating_add(every);
            self.notes.insert(id, due);
            self.note_queue.insert((due, id));
        }
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
#[path = "lessor_test.rs"]
mod tests;
