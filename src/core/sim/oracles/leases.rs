//! A lease ends by time only when its time is over, counted from when its grant or its last
//! acknowledged renewal was asked for, whoever led in between, on the fastest clock of any member
//! that there is. And every lease ends at last, its keys with it.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::sim::clock::{MILLISECOND, Micros, SECOND};
use crate::store::LeaseId;

/// What is known of one lease.
#[derive(Clone, Copy, Debug)]
struct Known {
    not_before: Micros,
    ended: Option<Micros>,
}

/// The leases that were ever asked for.
#[derive(Debug)]
pub(in crate::sim) struct Leases {
    known: BTreeMap<LeaseId, Known>,
    /// Seconds that the fastest clock counts in a million seconds.
    fastest: u64,
}

impl Leases {
    /// With clocks that count up to so many seconds in a million.
    pub(in crate::sim) fn new(fastest: u64) -> Self {
        Self {
            known: BTreeMap::new(),
            fastest,
        }
    }

    /// A grant is asked for.
    pub(in crate::sim) fn asked(&mut self, id: LeaseId, now: Micros) {
        let known = Known {
            not_before: now,
            ended: None,
        };
        self.known.insert(id, known);
    }

    /// The grant was applied for the first time.
    pub(in crate::sim) fn granted(&mut self, id: LeaseId, ttl: i64) {
        let span = self.span(ttl);
        if let Some(known) = self.known.get_mut(&id) {
            known.not_before += span;
        }
    }

    /// A renewal that was asked for at some time was acknowledged with this time to live.
    pub(in crate::sim) fn renewed(&mut self, id: LeaseId, asked: Micros, ttl: i64) -> Verdict {
        let span = self.span(ttl);
        let Some(known) = self.known.get_mut(&id) else {
            return Ok(());
        };
        known.not_before = known.not_before.max(asked + span);
        match known.ended {
            Some(at) if !mutant!(BlindLateRenewal) => check(id, *known, at),
            _ => Ok(()),
        }
    }

    /// It ended because its time was over, first applied now.
    pub(in crate::sim) fn expired(&mut self, id: LeaseId, now: Micros) -> Verdict {
        let Some(known) = self.known.get_mut(&id) else {
            return Ok(());
        };
        known.ended = Some(now);
        check(id, *known, now)
    }

    /// The shortest true time of so many seconds of a member's clock.
    fn span(&self, ttl: i64) -> Micros {
        let seconds = u64::try_from(ttl).unwrap_or(0) * SECOND;
        (u128::from(seconds) * 1_000_000 / u128::from(self.fastest)) as u64
    }
}

/// Members count whole milliseconds.
fn check(id: LeaseId, known: Known, at: Micros) -> Verdict {
    if at + 2 * MILLISECOND >= known.not_before || mutant!(BlindLeases) {
        return Ok(());
    }
    let early = known.not_before - at;
    Err(Violation::new(
        "leases",
        format!("lease {id} ended {early} us before its time was over"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_early_lease_end_with_late_answer() {
        let mut leases = Leases::new(1_000_000);
        leases.asked(1, 0);
        leases.granted(1, 2);
        assert!(leases.expired(1, SECOND).is_err());
        assert_eq!(leases.expired(1, 2 * SECOND), Ok(()));
        assert_eq!(leases.renewed(1, 0, 2), Ok(()));
        assert!(leases.renewed(1, SECOND, 2).is_err());
    }

    #[test]
    fn fast_clock_ends_leases_sooner_only() {
        let mut leases = Leases::new(1_050_000);
        leases.asked(1, 0);
        leases.granted(1, 2);
        assert!(leases.expired(1, 1_900_000).is_err());
        assert_eq!(leases.expired(1, 1_905_000), Ok(()));
    }
}
