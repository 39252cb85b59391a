//! Hosts whose calls fail again and again: their refusals come late.
//!
//! Whoever is refused asks again at once where he means harm: a thousand connections that do nothing
//! but that take what a core has. One answer in a while is never late, so whoever logs in anew or has
//! lost a right does not notice. Never refuses anything itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::hosts::Host;

/// What is counted is counted for so long.
const WHILE: Duration = Duration::from_secs(1);
/// Refusals of a host in that time that are not late.
const PROMPT: u32 = 200;
/// By how much each one beyond them is later than the one before.
const STEP: Duration = Duration::from_millis(1);
/// None is later than this.
const LATEST: Duration = Duration::from_millis(500);
/// Hosts that are known at a time.
const HOSTS: usize = 4096;

/// Who was refused lately.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<BTreeMap<Host, Refused>>);

#[derive(Debug)]
struct Refused {
    since: Instant,
    times: u32,
}

impl Failing {
    /// By how much the refusal of a call of this host is to be late.
    pub(crate) fn late_by(&self, host: Host, now: Instant) -> Duration {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |refused: &Refused| now.duration_since(refused.since) >= WHILE;
        if hosts.len() >= HOSTS && !hosts.contains_key(&host) {
            hosts.retain(|_, refused| !over(refused));
            if hosts.len() >= HOSTS {
                // Thousands of hosts are refused: this one is of them.
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

    /// A thousand connections that were refused and asked again at once took the whole core: puts at a
    /// quarter of what the server can do took ten times as long.
    #[test]
    fn repeated_refusals_come_late() {
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
    fn a_crowd_of_hosts_fills_no_memory() {
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
