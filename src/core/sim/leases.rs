//! Somebody who holds leases: grants them through any server, hangs keys on them, renews them for
//! a while, and lets them end or revokes them.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::RngExt as _;

use crate::node::{Applied, Input, LeaseCall, LeaseTimes, Outcome};
use crate::store::{Error, LeaseGrant, LeaseId, LeaseRevoke, Operation, Put, Range, Response};

use super::clock::{MILLISECOND, Micros};
use super::network::HostId;
use super::oracles::Violation;
use super::world::{Event, Step, World};

/// The most leases held at a time.
const HELD: usize = 4;

/// What the holder knows.
#[derive(Debug, Default)]
pub(super) struct Holder {
    held: Vec<LeaseId>,
    /// Renewals under way: the lease, and when it was asked for.
    renewing: BTreeMap<u64, (LeaseId, Micros)>,
}

impl World {
    /// The holder's turn. Once faults have stopped it lets its leases end.
    pub(super) fn holder_acts(&mut self) -> Step {
        if !self.stormy {
            return Ok(());
        }
        let pause = self
            .random
            .random_range(30 * MILLISECOND..250 * MILLISECOND);
        self.agenda.after(pause, Event::Lease);
        let Some(host) = self.any_running() else {
            return Ok(());
        };
        if self.holder.held.len() < HELD {
            return self.grant(host);
        }
        let at = self.random.random_range(0..HELD);
        let lease = self.holder.held[at];
        match self.random.random_range(0..12) {
            0 => {
                let id = self.holder.held.swap_remove(at);
                self.propose(host, Operation::LeaseRevoke(LeaseRevoke { id }));
                Ok(())
            }
            // Forgotten: it ends by itself.
            1 => {
                self.holder.held.swap_remove(at);
                Ok(())
            }
            2 | 3 => self.hang(host, lease),
            _ => self.renew(host, lease),
        }
    }

    fn grant(&mut self, host: HostId) -> Step {
        let number = self.number();
        let id = i64::try_from(number).unwrap_or(i64::MAX);
        let ttl = self.random.random_range(1..=3);
        self.holder.held.push(id);
        self.leases.asked(id, self.agenda.now());
        self.propose(host, Operation::LeaseGrant(LeaseGrant { id, ttl }));
        Ok(())
    }

    fn hang(&mut self, host: HostId, lease: LeaseId) -> Step {
        let key = format!("leased {}", self.random.random_range(0..4));
        let put = Put {
            key: Bytes::from(key),
            value: Bytes::from(format!("lease {lease}")),
            lease,
            ..Put::default()
        };
        self.propose(host, Operation::Put(put));
        Ok(())
    }

    fn renew(&mut self, host: HostId, lease: LeaseId) -> Step {
        let id = self.number();
        let now = self.agenda.now();
        self.holder.renewing.insert(id, (lease, now));
        let renew = true;
        self.ask(host, Input::Lease(vec![LeaseCall { id, lease, renew }]));
        Ok(())
    }

    /// A renewal was answered.
    pub(super) fn renewed(&mut self, id: u64, times: Option<LeaseTimes>) -> Step {
        let Some((lease, asked)) = self.holder.renewing.remove(&id) else {
            return Ok(());
        };
        match times {
            Some(times) => {
                self.counters.renewals += 1;
                self.leases.renewed(lease, asked, times.granted)
            }
            None => {
                // It has ended, or was never granted.
                self.holder.held.retain(|held| *held != lease);
                Ok(())
            }
        }
    }

    /// What the first application of an entry does to leases.
    pub(super) fn learn_leases(&mut self, applied: &Applied) -> Step {
        match &applied.outcome {
            Outcome::Store(Ok(Response::LeaseGrant(grant))) => {
                self.leases.granted(grant.id, grant.ttl);
            }
            Outcome::Store(Ok(Response::LeaseExpire(expire))) => {
                let now = self.agenda.now();
                for id in &expire.expired {
                    self.counters.expired_leases += 1;
                    self.leases.expired(*id, now)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// No key outlives its lease, whichever way that ended.
    pub(super) fn keys_have_their_leases(&mut self, host: HostId) -> Step {
        let leased = Range {
            key: Bytes::from_static(b"leased "),
            range_end: Bytes::from_static(b"leased!"),
            ..Range::default()
        };
        let read = self.read_state(host, "a read of leased keys", |process| {
            let view = process.machine.view();
            Ok::<_, Error>((view.range(&leased)?, view))
        });
        let Some((found, view)) = read? else {
            return Ok(());
        };
        match found.kvs.iter().find(|kv| view.lease(kv.lease).is_none()) {
            None => Ok(()),
            Some(kv) => Err(Violation::new(
                "leases",
                format!("{kv:?} is there, its lease is not"),
            )),
        }
    }
}
