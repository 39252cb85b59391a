//! Limits the connections to the peer port: members may always keep theirs, other hosts while there
//! is room.
//!
//! A connection is unproven until it authenticates: by a certificate, by the hello of a member, or
//! by a call with the operator's proof. Unproven connections are few at a time; if there are more,
//! the oldest one of the address with the most of them is closed, so that a host that connects
//! again and again displaces only its own. Never reads a byte of a connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::core::latch::Latch;
use crate::server::scheduling::hosts::Host;

/// Concurrent unproven connections; fewer if the limit on open files is low.
const UNPROVEN: usize = 256;
/// Links for messages that one member may have at once. It needs one; the others are links whose
/// end was not noticed yet.
const LINKS: usize = 4;

/// The connection limits of a peer port.
#[derive(Debug)]
pub(crate) struct Door {
    most: usize,
    unproven: Mutex<Unproven>,
    links: Mutex<BTreeMap<u64, VecDeque<Arc<Latch>>>>,
}

#[derive(Debug, Default)]
struct Unproven {
    next: u64,
    open: BTreeMap<u64, (Host, Arc<Latch>)>,
    /// The hosts of members.
    reserved: BTreeSet<Host>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Door {
    fn default() -> Door {
        Door::of(UNPROVEN)
    }
}

impl Door {
    /// With room for `most` unproven connections, within the limit of [`UNPROVEN`].
    pub(crate) fn of(most: usize) -> Door {
        Door {
            most: most.clamp(1, UNPROVEN),
            unproven: Mutex::default(),
            links: Mutex::default(),
        }
    }

    /// Registers a connection from this address.
    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Registration {
        let ended = Arc::new(Latch::default());
        let mut unproven = lock(&self.unproven);
        if unproven.open.len() >= self.most {
            unproven.make_room();
        }
        let number = unproven.next;
        unproven.next += 1;
        let from = Host::of(from);
        unproven.open.insert(number, (from, Arc::clone(&ended)));
        drop(unproven);
        Registration {
            door: Arc::clone(self),
            number,
            ended,
            proven: AtomicBool::new(false),
        }
    }

    /// Members are at these addresses: their connections are closed only after all others.
    pub(crate) fn reserve(&self, members: impl Iterator<Item = IpAddr>) {
        let members = members.map(Host::of).collect();
        lock(&self.unproven).reserved = members;
    }

    /// Registers a member's link for messages: if it has too many, the oldest one is closed.
    pub(crate) fn link(self: &Arc<Self>, id: u64) -> LinkRegistration {
        let ended = Arc::new(Latch::default());
        let mut links = lock(&self.links);
        let own = links.entry(id).or_default();
        own.push_back(Arc::clone(&ended));
        if own.len() > LINKS
            && let Some(oldest) = own.pop_front()
        {
            oldest.set();
        }
        drop(links);
        LinkRegistration {
            door: Arc::clone(self),
            id,
            ended,
        }
    }
}

impl Unproven {
    /// Closes the oldest connection of one host: hosts other than those of members come first, then
    /// the host with the most connections, and among several such the one with the oldest.
    fn make_room(&mut self) {
        // By host: the number of connections, and the oldest one.
        let mut of: BTreeMap<Host, (usize, u64)> = BTreeMap::new();
        for (number, (from, _)) in &self.open {
            of.entry(*from).or_insert((0, *number)).0 += 1;
        }
        let leaves = of.into_iter().max_by_key(|(host, (count, oldest))| {
            let stranger = !self.reserved.contains(host);
            (stranger, *count, Reverse(*oldest))
        });
        let Some((_, (_, oldest))) = leaves else {
            return;
        };
        if let Some((_, ended)) = self.open.remove(&oldest) {
            ended.set();
        }
    }
}

/// A registered connection.
#[derive(Debug)]
pub(crate) struct Registration {
    door: Arc<Door>,
    number: u64,
    ended: Arc<Latch>,
    proven: AtomicBool,
}

impl Registration {
    /// It has authenticated: it is no longer closed to make room.
    pub(crate) fn prove(&self) {
        if !self.proven.swap(true, Ordering::AcqRel) {
            lock(&self.door.unproven).open.remove(&self.number);
        }
    }

    /// Whether it has authenticated.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// Returns when it has to make room for another; never once it has authenticated.
    pub(crate) async fn displaced(&self) {
        self.ended.wait().await;
        if self.is_proven() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.door.unproven).open.remove(&self.number);
    }
}

/// A registered link of a member.
#[derive(Debug)]
pub(crate) struct LinkRegistration {
    door: Arc<Door>,
    id: u64,
    ended: Arc<Latch>,
}

impl LinkRegistration {
    /// Returns when newer links of the same member replaced it.
    pub(crate) async fn superseded(&self) {
        self.ended.wait().await;
    }
}

impl Drop for LinkRegistration {
    fn drop(&mut self) {
        let mut links = lock(&self.door.links);
        if let Some(own) = links.get_mut(&self.id) {
            own.retain(|link| !Arc::ptr_eq(link, &self.ended));
            if own.is_empty() {
                links.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_over(registration: &Registration) -> bool {
        registration.displaced().now_or_never().is_some()
    }

    /// There was no limit: an unknown host's connections could use up all file descriptors, and
    /// then no member could connect.
    #[test]
    fn unknown_host_displaces_only_its_own() {
        let door = Arc::new(Door::default());
        let quiet = door.enter(address(1));
        let member = door.enter(address(2));
        member.prove();
        let flood: Vec<Registration> = (0..10_000).map(|_| door.enter(address(9))).collect();
        assert_eq!(lock(&door.unproven).open.len(), UNPROVEN);
        assert!(!is_over(&quiet) && !is_over(&member));
        assert!(is_over(&flood[0]) && !is_over(&flood[9_999]));
        drop(flood);
        assert_eq!(lock(&door.unproven).open.len(), 1);
    }

    /// With one connection from each of many addresses, the one of the highest address was closed,
    /// whether or not it was the oldest or a member's; and an IPv6 host has more addresses than
    /// there are places.
    #[test]
    fn member_hosts_keep_their_place_in_a_flood() {
        let door = Arc::new(Door::default());
        door.reserve([address(250)].into_iter());
        let early = door.enter(address(251));
        let member = door.enter(address(250));
        let crowd: Vec<Registration> = (0..10_000_u32)
            .map(|number| {
                let [_, _, high, low] = number.to_be_bytes();
                door.enter(IpAddr::from([11, 0, high, low]))
            })
            .collect();
        assert!(!is_over(&member), "a member's host");
        assert!(is_over(&early), "whoever came first");
        assert!(is_over(&crowd[0]) && !is_over(&crowd[9_999]));
        drop(crowd);

        let quiet = door.enter(address(1));
        let network = 0x2001_0db8_u128 << 96;
        let one_host: Vec<Registration> = (0..10_000_u128)
            .map(|number| door.enter(IpAddr::from((network | number).to_be_bytes())))
            .collect();
        assert!(!is_over(&quiet) && is_over(&one_host[0]));
    }

    #[test]
    fn newest_links_of_a_member_stay() {
        let door = Arc::new(Door::default());
        let links: Vec<LinkRegistration> = (0..LINKS + 1).map(|_| door.link(7)).collect();
        let over = |link: &LinkRegistration| link.superseded().now_or_never().is_some();
        assert!(over(&links[0]) && !over(&links[1]));
        drop(links);
        assert!(lock(&door.links).is_empty());
    }

    #[tokio::test]
    async fn waiters_are_notified() {
        let door = Arc::new(Door::default());
        let first = Arc::new(door.enter(address(9)));
        let waiting = Arc::clone(&first);
        let waits = tokio::spawn(async move { waiting.displaced().await });
        tokio::task::yield_now().await;
        let _flood: Vec<Registration> = (0..UNPROVEN).map(|_| door.enter(address(9))).collect();
        waits.await.expect("notified");
    }
}
