//! Who may keep a connection to the peer port open: members always, others for as long as there is
//! room.
//!
//! A connection is nobody's until it has shown whose it is: by a certificate, by the hello of a
//! member, by a call with the operator's proof. Those that have not are few at a time; when there
//! are more, the oldest of the address with the most of them ends, so that a stranger who connects
//! again and again takes nobody's place but its own. Never reads a byte of a connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::core::told::Told;
use crate::server::scheduling::hosts::Host;

/// Connections at once that have not shown whose they are; fewer where open files are few.
const UNPROVEN: usize = 256;
/// Links for messages that one member may have at once. It has one; the rest are those whose end
/// was not noticed yet.
const LINKS: usize = 4;

/// The door of a peer port.
#[derive(Debug)]
pub(crate) struct Door {
    most: usize,
    unproven: Mutex<Unproven>,
    links: Mutex<BTreeMap<u64, VecDeque<Arc<Told>>>>,
}

#[derive(Debug, Default)]
struct Unproven {
    next: u64,
    open: BTreeMap<u64, (Host, Arc<Told>)>,
    /// Where members are.
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
    /// With room for so many that have not shown whose they are, as far as that is room enough.
    pub(crate) fn of(most: usize) -> Door {
        Door {
            most: most.clamp(1, UNPROVEN),
            unproven: Mutex::default(),
            links: Mutex::default(),
        }
    }

    /// A connection came from this address.
    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Pass {
        let ended = Arc::new(Told::default());
        let mut unproven = lock(&self.unproven);
        if unproven.open.len() >= self.most {
            unproven.make_room();
        }
        let number = unproven.next;
        unproven.next += 1;
        let from = Host::of(from);
        unproven.open.insert(number, (from, Arc::clone(&ended)));
        drop(unproven);
        Pass {
            door: Arc::clone(self),
            number,
            ended,
            proven: AtomicBool::new(false),
        }
    }

    /// Members are at these addresses: whoever comes from there makes room after everybody else.
    pub(crate) fn reserve(&self, members: impl Iterator<Item = IpAddr>) {
        let members = members.map(Host::of).collect();
        lock(&self.unproven).reserved = members;
    }

    /// A member links for messages: the oldest of too many ends.
    pub(crate) fn link(self: &Arc<Self>, id: u64) -> LinkPass {
        let ended = Arc::new(Told::default());
        let mut links = lock(&self.links);
        let own = links.entry(id).or_default();
        own.push_back(Arc::clone(&ended));
        if own.len() > LINKS
            && let Some(oldest) = own.pop_front()
        {
            oldest.tell();
        }
        drop(links);
        LinkPass {
            door: Arc::clone(self),
            id,
            ended,
        }
    }
}

impl Unproven {
    /// The oldest connection of one host ends: not of a host of members before all others, then of
    /// the one with the most connections, and of several such the one that came first.
    fn make_room(&mut self) {
        // By host: how many connections, and which is the oldest.
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
            ended.tell();
        }
    }
}

/// One connection at the door.
#[derive(Debug)]
pub(crate) struct Pass {
    door: Arc<Door>,
    number: u64,
    ended: Arc<Told>,
    proven: AtomicBool,
}

impl Pass {
    /// It has shown whose it is: nobody makes it go any more.
    pub(crate) fn prove(&self) {
        if !self.proven.swap(true, Ordering::AcqRel) {
            lock(&self.door.unproven).open.remove(&self.number);
        }
    }

    /// Whether it has.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// Returns when another one needs its place; never once it is proven.
    pub(crate) async fn turned_away(&self) {
        self.ended.told().await;
        if self.is_proven() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        lock(&self.door.unproven).open.remove(&self.number);
    }
}

/// One link of a member.
#[derive(Debug)]
pub(crate) struct LinkPass {
    door: Arc<Door>,
    id: u64,
    ended: Arc<Told>,
}

impl LinkPass {
    /// Returns when newer links of the same member took its place.
    pub(crate) async fn superseded(&self) {
        self.ended.told().await;
    }
}

impl Drop for LinkPass {
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

    fn is_over(pass: &Pass) -> bool {
        pass.turned_away().now_or_never().is_some()
    }

    /// There was no bound: a stranger's connections could take every descriptor, and then no member
    /// got in.
    #[test]
    fn a_stranger_takes_no_place_but_its_own() {
        let door = Arc::new(Door::default());
        let quiet = door.enter(address(1));
        let member = door.enter(address(2));
        member.prove();
        let flood: Vec<Pass> = (0..10_000).map(|_| door.enter(address(9))).collect();
        assert_eq!(lock(&door.unproven).open.len(), UNPROVEN);
        assert!(!is_over(&quiet) && !is_over(&member));
        assert!(is_over(&flood[0]) && !is_over(&flood[9_999]));
        drop(flood);
        assert_eq!(lock(&door.unproven).open.len(), 1);
    }

    /// With one connection from each of many addresses it was the highest address that had to go, the
    /// oldest or not, a member's or not; and a host of IPv6 has more addresses than there are places.
    #[test]
    fn many_hosts_take_no_place_of_a_members_host() {
        let door = Arc::new(Door::default());
        door.reserve([address(250)].into_iter());
        let early = door.enter(address(251));
        let member = door.enter(address(250));
        let crowd: Vec<Pass> = (0..10_000_u32)
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
        let one_host: Vec<Pass> = (0..10_000_u128)
            .map(|number| door.enter(IpAddr::from((network | number).to_be_bytes())))
            .collect();
        assert!(!is_over(&quiet) && is_over(&one_host[0]));
    }

    #[test]
    fn the_newest_links_of_a_member_stay() {
        let door = Arc::new(Door::default());
        let links: Vec<LinkPass> = (0..LINKS + 1).map(|_| door.link(7)).collect();
        let over = |link: &LinkPass| link.superseded().now_or_never().is_some();
        assert!(over(&links[0]) && !over(&links[1]));
        drop(links);
        assert!(lock(&door.links).is_empty());
    }

    #[tokio::test]
    async fn waiters_are_notified() {
        let door = Arc::new(Door::default());
        let first = Arc::new(door.enter(address(9)));
        let waiting = Arc::clone(&first);
        let waits = tokio::spawn(async move { waiting.turned_away().await });
        tokio::task::yield_now().await;
        let _flood: Vec<Pass> = (0..UNPROVEN).map(|_| door.enter(address(9))).collect();
        waits.await.expect("told");
    }
}
