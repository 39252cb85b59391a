//! Delays the refusals of hosts whose calls fail again and again.
//!
//! A malicious client repeats a refused call at once: a thousand connections that do only that use
//! up a core. A low rate of refusals is never delayed, so a client that logs in again or has lost a
//! permission does not notice. Never refuses anything itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::hosts::Host;

/// Refusals are counted over this interval.
const WHILE: Duration = Duration::from_secs(1);
/// Refusals of a host in that interval that are not delayed.
const PROMPT: u32 = 200;
/// Additional delay of each further one.
const STEP: Duration = Duration::from_millis(1);
/// The longest delay.
const LATEST: Duration = Duration::from_millis(500);
/// Hosts that are known at a time.
const HOSTS: usize = 4096;

/// Hosts with recent refusals.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<BTreeMap<Host, Refused>>);

#[derive(Debug)]
struct Refused {
    since: Instant,
    times: u32,
}

impl Failing {
    /// The delay of the refusal of a call of this host.
    pub(crate) fn late_by(&self, host: Host, now: Instant) -> Duration {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |refused: &Refused| now.duration_since(refused.since) >= WHILE;
        if hosts.len() >= HOSTS && !hosts.contains_key(&host) {
            hosts.retain(|_, refused| !over(refused));
            if hosts.len() >= HOSTS {
                // Thousands of hosts are being refused: this one counts as one of them.
                return LATEST;
            }
        }
        let refused = hosts.entry(host).or_insert(Refused {
            since: now,
            times: 0,
        });
        if over(refused) {
            *refused = Refused {
                since: now,
                times: 0,
            };
        }
        refused.times = refused.times.saturating_add(1);
        (STEP * refused.times.saturating_sub(PROMPT)).min(LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand connections whose refused calls were repeated at once used the whole core: puts
    /// at a quarter of the server's capacity took ten times as long.
    #[test]
    fn repeated_refusals_are_delayed() {
        let (failing, start) = (Failing::default(), Instant::now());
        let of = |last: u8| Host::of([10, 0, 0, last].into());
        for _ in 0..PROMPT {
            assert_eq!(failing.late_by(of(1), start), Duration::ZERO);
        }
        assert_eq!(failing.late_by(of(1), start), STEP);
        for _ in 0..1000 {
            failing.late_by(of(1), start);
        }
        assert_eq!(failing.late_by(of(1), start), LATEST);
        assert_eq!(
            failing.late_by(of(2), start),
            Duration::ZERO,
            "another host"
        );
        assert_eq!(
            failing.late_by(of(1), start + WHILE),
            Duration::ZERO,
            "later"
        );
    }

    #[test]
    fn many_hosts_use_bounded_memory() {
        let (failing, start) = (Failing::default(), Instant::now());
        for number in 0..2 * HOSTS as u32 {
            failing.late_by(Host::of(std::net::Ipv4Addr::from(number).into()), start);
        }
        assert_eq!(failing.0.lock().expect("whole").len(), HOSTS);
        let one = Host::of([10, 0, 0, 1].into());
        assert_eq!(failing.late_by(one, start), LATEST);
        assert_eq!(failing.late_by(one, start + WHILE), Duration::ZERO);
    }
}
