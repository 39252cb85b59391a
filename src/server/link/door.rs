//! Who may keep a connection to the peer port open: members always, others for as long as there is
//! room.
//!
//! A connection is nobody's until it has shown whose it is: by a certificate, by the hello of a
//! member, by a call with the operator's proof. Those that have not are few at a time; when there
//! are more, the oldest of the address with the most of them ends, so that a stranger who connects
//! again and again takes nobody's place but its own. Never reads a byte of a connection.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

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
    links: Mutex<BTreeMap<u64, VecDeque<Arc<Ended>>>>,
}

#[derive(Debug, Default)]
struct Unproven {
    next: u64,
    open: BTreeMap<u64, (IpAddr, Arc<Ended>)>,
}

/// Whether a connection is to end.
#[derive(Debug, Default)]
struct Ended {
    told: Notify,
    over: AtomicBool,
}

impl Ended {
    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    async fn ended(&self) {
        let told = self.told.notified();
        let mut told = std::pin::pin!(told);
        // Whoever ends it after this line is heard; whoever did before has said so.
        told.as_mut().enable();
        if !self.over.load(Ordering::Acquire) {
            told.await;
        }
    }
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
        let ended = Arc::new(Ended::default());
        let mut unproven = lock(&self.unproven);
        if unproven.open.len() >= self.most {
            unproven.make_room();
        }
        let number = unproven.next;
        unproven.next += 1;
        unproven.open.insert(number, (from, Arc::clone(&ended)));
        drop(unproven);
        Pass {
            door: Arc::clone(self),
            number,
            ended,
            proven: AtomicBool::new(false),
        }
    }

    /// A member links for messages: the oldest of too many ends.
    pub(crate) fn link(self: &Arc<Self>, id: u64) -> LinkPass {
        let ended = Arc::new(Ended::default());
        let mut links = lock(&self.links);
        let own = links.entry(id).or_default();
        own.push_back(Arc::clone(&ended));
        if own.len() > LINKS
            && let Some(oldest) = own.pop_front()
        {
            oldest.end();
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
    fn make_room(&mut self) {
        let mut of = BTreeMap::new();
        for (from, _) in self.open.values() {
            *of.entry(*from).or_insert(0_usize) += 1;
        }
        let most = of.into_iter().max_by_key(|(_, count)| *count);
        let Some((address, _)) = most else { return };
        let oldest = self.open.iter().find(|(_, (from, _))| *from == address);
        let oldest = oldest.map(|(number, _)| *number);
        if let Some((_, ended)) = oldest.and_then(|number| self.open.remove(&number)) {
            ended.end();
        }
    }
}

/// One connection at the door.
#[derive(Debug)]
pub(crate) struct Pass {
    door: Arc<Door>,
    number: u64,
    ended: Arc<Ended>,
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
        self.ended.ended().await;
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
    ended: Arc<Ended>,
}

impl LinkPass {
    /// Returns when newer links of the same member took its place.
    pub(crate) async fn superseded(&self) {
        self.ended.ended().await;
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
    async fn whoever_waits_is_told() {
        let door = Arc::new(Door::default());
        let first = Arc::new(door.enter(address(9)));
        let waiting = Arc::clone(&first);
        let waits = tokio::spawn(async move { waiting.turned_away().await });
        tokio::task::yield_now().await;
        let _flood: Vec<Pass> = (0..UNPROVEN).map(|_| door.enter(address(9))).collect();
        waits.await.expect("told");
    }
}
