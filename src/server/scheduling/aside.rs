//! Slow work, on threads other than those that serve clients: a limited number at a time, and a
//! limited number of waiting callers.
//!
//! Waiting callers take turns by host, and within a host by name; when too many wait, the last one
//! of the host with the most is refused. So a client with a thousand requests at once waits only
//! for itself, and a client with a single request is next. Never knows the work.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::Status;

use super::hosts::Host;
use crate::server::traces::marks::{self, Wait};
use crate::wire::error::EtcdError;

/// A kind of work.
#[derive(Debug)]
pub(crate) struct Aside {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    most_waiting: usize,
    /// How long a caller waits for its turn, at most.
    patience: Duration,
    line: Mutex<Line>,
    /// How many callers were refused.
    pub(crate) refused: AtomicU64,
}

/// The caller, for its turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    /// `None` for a Unix socket.
    pub(crate) host: Option<Host>,
    /// The name within this host; may be empty.
    pub(crate) name: String,
}

#[derive(Debug)]
struct Line {
    free: usize,
    waiting: usize,
    /// The number of callers that ever waited.
    came: u64,
    hosts: BTreeMap<Option<Host>, Waiting>,
    /// The hosts in the order of their turns, each once.
    order: VecDeque<Option<Host>>,
}

/// The waiting callers of one host.
#[derive(Debug, Default)]
struct Waiting {
    names: BTreeMap<String, VecDeque<Waiter>>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Waiter {
    /// Its number among all callers that ever waited.
    number: u64,
    sender: oneshot::Sender<Place>,
}

/// A place in the line; given up when dropped, whether its turn came or not.
struct InLine<'a> {
    aside: &'a Aside,
    who: Who,
    number: u64,
}

/// The right to work; passed on when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Aside>);

impl From<Option<Host>> for Who {
    fn from(host: Option<Host>) -> Who {
        Who {
            host,
            name: String::new(),
        }
    }
}

impl Aside {
    /// Allows `at_a_time` at work, and `most_waiting` callers that wait for `patience` at most.
    pub(crate) fn new(
        name: &'static str,
        at_a_time: usize,
        most_waiting: usize,
        patience: Duration,
    ) -> Arc<Aside> {
        Arc::new(Aside {
            name,
            most_waiting,
            patience,
            line: Mutex::new(Line {
                free: at_a_time.max(1),
                waiting: 0,
                came: 0,
                hosts: BTreeMap::new(),
                order: VecDeque::new(),
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// Does the work on another thread when it is the turn of `who`; etcd's "too many requests" if
    /// too many wait, or for too long. A caller that is dropped gives up its place in the line;
    /// work that has begun continues and counts until it ends.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        who: impl Into<Who>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let place = self.place(who).await?;
        let working = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        working
            .await
            .map_err(|error| Status::internal(error.to_string()))
    }

    /// Waits for the right to work.
    pub(crate) async fn place(self: &Arc<Self>, who: impl Into<Who>) -> Result<Place, Status> {
        let who = who.into();
        let (waits, _in_line) = {
            let mut line = self.lock();
            if line.free > 0 {
                line.free -= 1;
                return Ok(Place(Arc::clone(self)));
            }
            let (sender, waits) = oneshot::channel();
            let number = line.join(&who, sender);
            if line.waiting > self.most_waiting {
                line.turn_away();
            }
            let in_line = InLine {
                aside: self,
                who,
                number,
            };
            (waits, in_line)
        };
        marks::note(|marks| marks.begin(Wait::Turn, 0, Instant::now()));
        let waited = timeout(self.patience, waits).await;
        marks::note(|marks| marks.end(Instant::now()));
        match waited {
            Ok(Ok(place)) => Ok(place),
            // It was turned away, or has waited for too long: nothing was begun in either case.
            _ => {
                self.refused.fetch_add(1, Relaxed);
                Err(EtcdError::TooManyRequests.into())
            }
        }
    }

    /// The number of waiting callers.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // Plain data: a panic in another thread leaves it consistent.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn join(&mut self, who: &Who, sender: oneshot::Sender<Place>) -> u64 {
        self.waiting += 1;
        self.came += 1;
        let waiter = Waiter {
            number: self.came,
            sender,
        };
        if !self.hosts.contains_key(&who.host) {
            self.order.push_back(who.host);
        }
        let host = self.hosts.entry(who.host).or_default();
        match host.names.get_mut(&who.name) {
            Some(queue) => queue.push_back(waiter),
            None => {
                host.order.push_back(who.name.clone());
                host.names
                    .insert(who.name.clone(), VecDeque::from([waiter]));
            }
        }
        self.came
    }

    /// The next in line.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let host = self.order.pop_front()?;
        let waiting = self.hosts.get_mut(&host)?;
        let next = waiting.next();
        self.waiting -= usize::from(next.is_some());
        if waiting.names.is_empty() {
            self.hosts.remove(&host);
        } else {
            self.order.push_back(host);
        }
        next.map(|waiter| waiter.sender)
    }

    /// Removes a caller that was dropped, if it is still in the line.
    fn leave(&mut self, who: &Who, number: u64) {
        let Some(waiting) = self.hosts.get_mut(&who.host) else {
            return;
        };
        self.waiting -= usize::from(waiting.leave(&who.name, number));
        if waiting.names.is_empty() {
            self.hosts.remove(&who.host);
            self.order.retain(|other| *other != who.host);
        }
    }

    /// Refuses the last caller of the host with the most in the line; among several such hosts, the
    /// one whose last caller came last: otherwise it would be the same host each time.
    fn turn_away(&mut self) {
        let longest = self
            .hosts
            .iter()
            .max_by_key(|(_, waiting)| (waiting.count(), waiting.newest()));
        let Some(host) = longest.map(|(host, _)| *host) else {
            return;
        };
        let Some(waiting) = self.hosts.get_mut(&host) else {
            return;
        };
        // Dropping the sender is the refusal.
        self.waiting -= usize::from(waiting.turn_away().is_some());
        if waiting.names.is_empty() {
            self.hosts.remove(&host);
            self.order.retain(|other| *other != host);
        }
    }
}

impl Waiting {
    fn count(&self) -> usize {
        self.names.values().map(VecDeque::len).sum()
    }

    fn newest(&self) -> Option<u64> {
        let last = |queue: &VecDeque<Waiter>| queue.back().map(|waiter| waiter.number);
        self.names.values().filter_map(last).max()
    }

    fn next(&mut self) -> Option<Waiter> {
        let name = self.order.pop_front()?;
        let queue = self.names.get_mut(&name)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.names.remove(&name);
        } else {
            self.order.push_back(name);
        }
        next
    }

    /// Whether it was in the line.
    fn leave(&mut self, name: &str, number: u64) -> bool {
        let Some(queue) = self.names.get_mut(name) else {
            return false;
        };
        // The queue is in the order of arrival.
        let at = queue.binary_search_by_key(&number, |waiter| waiter.number);
        let gone = at.ok().and_then(|at| queue.remove(at));
        if queue.is_empty() {
            self.names.remove(name);
            self.order.retain(|other| other != name);
        }
        gone.is_some()
    }

    fn turn_away(&mut self) -> Option<Waiter> {
        let most = |queue: &VecDeque<Waiter>| (queue.len(), queue.back().map(|last| last.number));
        let longest = self.names.iter().max_by_key(|(_, queue)| most(queue));
        let name = longest.map(|(name, _)| name.clone())?;
        let queue = self.names.get_mut(&name)?;
        let last = queue.pop_back();
        if queue.is_empty() {
            self.names.remove(&name);
            self.order.retain(|other| *other != name);
        }
        last
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.aside.lock().leave(&self.who, self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let aside = Arc::clone(&self.0);
        let next = {
            let mut line = aside.lock();
            loop {
                match line.next() {
                    Some(sender) if sender.is_closed() => {}
                    Some(sender) => break Some(sender),
                    None if line.hosts.is_empty() => {
                        line.free += 1;
                        break None;
                    }
                    None => {}
                }
            }
        };
        if let Some(sender) = next {
            // If the caller is dropped at this moment, the place comes back and is dropped again.
            drop(sender.send(Place(aside)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures::FutureExt as _;
    use tonic::Code;

    use super::{Aside, Duration, Host, Who};

    /// Longer than any test.
    const PATIENCE: Duration = Duration::from_secs(600);

    fn host(last: u8) -> Who {
        Some(Host::of([10, 0, 0, last].into())).into()
    }

    fn named(last: u8, name: &str) -> Who {
        Who {
            name: name.to_owned(),
            ..host(last)
        }
    }

    #[tokio::test]
    async fn turns_alternate_between_callers() {
        let aside = Aside::new("test", 1, 10, PATIENCE);
        let place = aside.place(host(1)).await.expect("free");
        let mut crowd: Vec<_> = (0..4).map(|_| Box::pin(aside.place(host(1)))).collect();
        for waits in &mut crowd {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let mut one = Box::pin(aside.place(host(2)));
        assert!(one.as_mut().now_or_never().is_none());
        drop(place);
        let first = crowd.remove(0).await.expect("next");
        drop(crowd.remove(0));
        drop(first);
        let one = one.await.expect("before the rest of the crowd");
        drop(one);
        for waits in crowd {
            drop(waits.await.expect("after it"));
        }
        assert_eq!(aside.waiting(), 0);
        aside.place(host(2)).await.expect("free");
    }

    /// Every call could request a hash or a comparison of passwords, and all of them waited: a
    /// legitimate request waited behind a thousand others.
    #[tokio::test]
    async fn host_with_most_waiting_is_refused() {
        let aside = Aside::new("test", 1, 4, PATIENCE);
        let place = aside.place(host(1)).await.expect("free");
        let mut crowd: Vec<_> = (0..4).map(|_| Box::pin(aside.place(host(1)))).collect();
        for waits in &mut crowd {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let refused = aside.place(host(1)).now_or_never().expect("at once");
        assert_eq!(refused.expect_err("full").code(), Code::ResourceExhausted);
        let mut one = Box::pin(aside.place(host(2)));
        assert!(one.as_mut().now_or_never().is_none(), "it has a place");
        let last = crowd.pop().expect("four").now_or_never().expect("at once");
        assert!(last.is_err(), "in the last one's place");
        // A dropped caller makes room, and no other is refused.
        drop(crowd.pop());
        let mut two = Box::pin(aside.place(host(3)));
        assert!(two.as_mut().now_or_never().is_none());
        assert!(crowd[1].as_mut().now_or_never().is_none());
        drop(place);
        drop(crowd.remove(0).await.expect("its turn"));
        drop(one.await.expect("its turn"));
        drop(two.await.expect("its turn"));
    }

    /// The limit was on callers and not on the work: a client that requested a comparison of
    /// passwords and disconnected left it running, and requested the next one.
    #[tokio::test]
    async fn work_of_dropped_callers_still_counts() {
        let aside = Aside::new("test", 1, 100, PATIENCE);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        for _ in 0..20 {
            let (running, most, ends) = (running.clone(), most.clone(), ends.clone());
            let work = move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                let _ = ends.lock().expect("whole").recv();
                running.fetch_sub(1, SeqCst);
            };
            let mut asked = Box::pin(aside.run(host(2), work));
            assert!(asked.as_mut().now_or_never().is_none());
        }
        drop(end);
        aside.run(host(3), || ()).await.expect("its turn");
        assert_eq!(most.load(SeqCst), 1);
    }

    /// If all hosts had the same number in the line, the one with the largest address was always
    /// refused, whichever came last.
    #[tokio::test]
    async fn last_of_the_largest_hosts_is_refused() {
        let aside = Aside::new("test", 1, 3, PATIENCE);
        let place = aside.place(host(9)).await.expect("free");
        let mut all: Vec<_> = [4, 3, 2]
            .map(|last| Box::pin(aside.place(host(last))))
            .into();
        for waits in &mut all {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        for last in [1, 5] {
            let refused = aside.place(host(last)).now_or_never().expect("at once");
            assert!(refused.is_err(), "{last}");
        }
        drop(place);
        for waits in all {
            drop(waits.await.expect("its turn"));
        }
    }

    /// Dropped callers were removed once per sixteenth of the line: until then new callers of the
    /// host with most of the places were refused although these places were unused.
    #[tokio::test]
    async fn dropped_callers_make_room_at_once() {
        let aside = Aside::new("test", 1, 100, PATIENCE);
        let place = aside.place(host(1)).await.expect("free");
        let wait = |name: &str| {
            let mut waits = Box::pin(aside.place(named(1, name)));
            assert!(waits.as_mut().now_or_never().is_none(), "it has a place");
            waits
        };
        let mut crowd: Vec<_> = (0..100).map(|_| wait("a")).collect();
        let refused = aside.place(named(1, "a")).now_or_never().expect("at once");
        refused.expect_err("full");
        crowd.drain(10..90);
        assert_eq!(aside.waiting(), 20);
        crowd.extend((0..80).map(|number| wait(if number % 2 == 0 { "a" } else { "b" })));
        assert_eq!(aside.waiting(), 100);
        drop(place);
        let turns = crowd.into_iter();
        let turns = turns.map(|waits| async { drop(waits.await.expect("its turn")) });
        futures::future::join_all(turns).await;
        assert_eq!(aside.waiting(), 0);
        drop(aside.place(host(2)).await.expect("its turn"));
    }

    /// Turns were given to each pair of host and name: a client with a thousand names had a
    /// thousand turns.
    #[tokio::test]
    async fn names_share_the_turns_of_their_host() {
        let aside = Aside::new("test", 1, 10, PATIENCE);
        let place = aside.place(host(9)).await.expect("free");
        let turns = std::sync::Mutex::new(Vec::new());
        let wait = async |who: Who, sign: char| {
            let _place = aside.place(who).await.expect("its turn");
            turns.lock().expect("whole").push(sign);
        };
        let asked = futures::future::join_all([
            wait(named(1, "a"), 'a'),
            wait(named(1, "a"), 'A'),
            wait(named(1, "b"), 'b'),
            wait(named(1, "c"), 'c'),
            wait(host(2), '2'),
        ]);
        let _ = tokio::join!(asked, async { drop(place) });
        let turns: String = turns.lock().expect("whole").iter().collect();
        assert_eq!(turns, "a2bcA");
    }

    /// A lease grant could wait in the line for as long as its whole call might take, and had no
    /// time left when it was its turn: an error that leaves open whether the lease exists.
    #[tokio::test]
    async fn every_wait_is_bounded() {
        let aside = Aside::new("test", 1, 10, Duration::from_millis(20));
        let place = aside.place(host(1)).await.expect("free");
        let refused = aside.place(host(2)).await.expect_err("too long");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(place);
        aside.place(host(2)).await.expect("free");
        assert_eq!(aside.waiting(), 0);
    }
}
