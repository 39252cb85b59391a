//! Limits the connections of a port, and selects those to close when no seat is left.
//!
//! A port has a fixed number of seats. When all are taken, a new connection gets the seat of the
//! one that uses it least: first one that has carried no request yet, the oldest first; then one
//! between two requests, the one idle for longest; and if every seat is in use, one of a host that
//! holds more than half of them. So connections without requests, however many, keep no client out.
//! Never looks at the data: the port reports when a request begins.

// The order of hosts is never observed.
#![allow(clippy::disallowed_types)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::server::core::latch::Latch;
use crate::server::scheduling::hosts::Host;

/// How long a new connection waits for the seat of one that was asked to close.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that may be closing with a GOAWAY, beyond the seats of every port: a client that
/// receives it sends its next request elsewhere. While so many are closing, further ones are cut
/// off.
pub(crate) const LEAST_GOAWAYS: u64 = 16;
/// A port with many seats has more: one per this many seats, at most [`MOST_FAREWELLS`].
const SEATS_A_FAREWELL: u64 = 16;
const MOST_FAREWELLS: u64 = 1024;
/// A search for connections to close takes time in proportion to the number of seats, and a flood
/// of new connections must not cause one each: searches get one part in this many of the time.
const SHARE: u32 = 20;
/// A search selects connections to close for at most this many new ones.
const CHOSEN: usize = 1024;
/// The same where connections that have carried requests are closed: later ones without requests
/// may have to go first.
const FEW: usize = 16;

/// Probes that may be pending beyond the limit on requests, and on one connection beyond its share:
/// a busy server must not fail its probes.
const PROBES: usize = 1024;
const PROBES_EACH: usize = 8;

/// The seats of one port, or of several that share them.
#[derive(Debug)]
pub(crate) struct Seats {
    /// The port's name in metrics.
    pub(crate) name: &'static str,
    most: usize,
    most_calls: usize,
    started: Instant,
    taken: Mutex<Taken>,
    freed: Notify,
    leaving: AtomicUsize,
    most_leaving: usize,
    calls: AtomicUsize,
    /// New connections that got no seat.
    pub(crate) refused: AtomicU64,
    /// Connections that were closed for a new one.
    pub(crate) evicted: AtomicU64,
    /// Requests above the limit.
    pub(crate) refused_calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    seats: BTreeMap<u64, Arc<Seat>>,
    next: u64,
    /// The connections to close next, as the last search selected them.
    chosen: VecDeque<Chosen>,
    /// Whether that search found any.
    found: bool,
    /// When the next search may run.
    next_search: Option<Instant>,
    /// New connections that wait for a seat.
    coming: usize,
    /// Seats whose connections were asked to close at once and are not closed yet.
    going: usize,
}

/// A new connection; seated or refused when dropped.
struct Coming<'a>(&'a Seats);

impl<'a> Coming<'a> {
    fn of(seats: &'a Seats) -> Coming<'a> {
        seats.lock().coming += 1;
        Coming(seats)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
    }
}

/// The number of connections that may be closing, for so many seats.
pub(crate) fn goaways(most: u64) -> u64 {
    (most / SEATS_A_FAREWELL).clamp(LEAST_GOAWAYS, MOST_FAREWELLS)
}

#[derive(Debug)]
struct Chosen {
    number: u64,
    /// It had carried a request when it was selected.
    carried: bool,
    /// Requests were pending when it was selected: it is closed because of its host's share.
    busy: Option<Host>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Seat {
    host: Option<Host>,
    calls: AtomicU32,
    carried: AtomicBool,
    /// Milliseconds since the start when it was last used.
    last_ms: AtomicU64,
    /// Set when it has to close.
    go: Latch,
    goaway: AtomicBool,
    /// Notified when no request is pending any more, on a connection that was asked to close.
    idle: Notify,
}

/// A seat that is taken; free again when dropped. It is held by the socket, also after an upgrade.
#[derive(Debug)]
pub(crate) struct Occupied {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
    number: u64,
}

/// A pending request; ended when dropped.
#[derive(Debug)]
pub(crate) struct Call {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
}

/// How a connection has to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Its socket is needed now.
    AtOnce,
    /// There is time to notify the client.
    Gracefully,
}

impl Seats {
    /// So many seats, and so many pending requests on all of them.
    pub(crate) fn new(name: &'static str, most: u64, most_calls: usize) -> Arc<Seats> {
        Arc::new(Seats {
            name,
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            most_calls: most_calls.max(1),
            started: Instant::now(),
            taken: Mutex::default(),
            freed: Notify::new(),
            leaving: AtomicUsize::new(0),
            most_leaving: usize::try_from(goaways(most)).unwrap_or(usize::MAX),
            calls: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            refused_calls: AtomicU64::new(0),
        })
    }

    /// The number of seats.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The number of seats taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().seats.len()
    }

    /// The number of pending requests.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// A seat for a new connection; `None` if each is in use.
    pub(crate) async fn admit(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Occupied> {
        let from = from.map(Host::of);
        let began = Instant::now();
        let _coming = Coming::of(self);
        while began.elapsed() < PATIENCE {
            // Before `take`, so that no seat that is freed in between is missed.
            let freed = self.freed.notified();
            match self.take(from) {
                Took::Seat(occupied) => return Some(occupied),
                Took::Asked => {
                    if timeout(PATIENCE, freed).await.is_err() {
                        // The next new connection does not wait for the same ones.
                        self.lock().going = 0;
                        break;
                    }
                }
                Took::Later(wait) => sleep(wait).await,
                Took::Nothing => break,
            }
        }
        self.refused.fetch_add(1, Relaxed);
        None
    }

    fn take(self: &Arc<Self>, from: Option<Host>) -> Took {
        let mut taken = self.lock();
        if taken.seats.len() >= self.most {
            // There is one closing connection for each waiting one: a task that is woken because
            // another connection ended, and finds that seat taken, closes no further one.
            if taken.going >= taken.coming {
                return Took::Asked;
            }
            let number = match self.choose(&mut taken, from) {
                Choice::Goes(number) => number,
                Choice::Later(wait) => return Took::Later(wait),
                Choice::None => return Took::Nothing,
            };
            let Some(seat) = taken.seats.get(&number).cloned() else {
                return Took::Nothing;
            };
            self.evicted.fetch_add(1, Relaxed);
            let goaway =
                seat.carried.load(Relaxed) && self.leaving.load(Relaxed) < self.most_leaving;
            if goaway {
                self.leaving.fetch_add(1, Relaxed);
                taken.seats.remove(&number);
            }
            seat.goaway.store(goaway, Relaxed);
            seat.go.set();
            if !goaway {
                taken.going += 1;
                return Took::Asked;
            }
        }
        let number = taken.next;
        taken.next += 1;
        let seat = Arc::new(Seat {
            host: from,
            calls: AtomicU32::new(0),
            carried: AtomicBool::new(false),
            last_ms: AtomicU64::new(self.now_ms()),
            go: Latch::default(),
            goaway: AtomicBool::new(false),
            idle: Notify::new(),
        });
        taken.seats.insert(number, Arc::clone(&seat));
        Took::Seat(Occupied {
            seats: Arc::clone(self),
            seat,
            number,
        })
    }

    /// The connection to close for a new one from this host.
    fn choose(&self, taken: &mut Taken, from: Option<Host>) -> Choice {
        for search in [false, true] {
            if search {
                let began = Instant::now();
                let wait = taken.next_search.map(|again| again.duration_since(began));
                match wait.filter(|wait| !wait.is_zero()) {
                    Some(wait) if taken.found => return Choice::Later(wait),
                    Some(_) => return Choice::None,
                    None => {}
                }
                taken.chosen = self.candidates(&taken.seats);
                taken.found = !taken.chosen.is_empty();
                taken.next_search = Some(began + began.elapsed() * SHARE);
            }
            while let Some(chosen) = taken.chosen.front() {
                let fits = taken.seats.get(&chosen.number).is_some_and(|seat| {
                    let idle = seat.calls.load(Relaxed) == 0
                        && seat.carried.load(Relaxed) == chosen.carried;
                    (idle || chosen.busy.is_some()) && !seat.go.is_set()
                });
                // Its host's own share is used up; a new connection of another host may still come.
                let own = chosen.busy.is_some() && chosen.busy == from;
                if fits && own {
                    break;
                }
                let number = chosen.number;
                taken.chosen.pop_front();
                if fits {
                    return Choice::Goes(number);
                }
            }
        }
        Choice::None
    }

    /// The connections to close next, in order.
    fn candidates(&self, seats: &BTreeMap<u64, Arc<Seat>>) -> VecDeque<Chosen> {
        let still = || seats.iter().filter(|(_, seat)| !seat.go.is_set());
        let mut idle: Vec<(bool, u64, u64)> = still()
            .filter(|(_, seat)| seat.calls.load(Relaxed) == 0)
            .map(|(number, seat)| {
                let (carried, last) = (seat.carried.load(Relaxed), seat.last_ms.load(Relaxed));
                (carried, last, *number)
            })
            .collect();
        idle.sort_unstable();
        // Of one kind only: connections that come meanwhile may be of the kind that is closed
        // first.
        let kind = idle.first().map(|(carried, ..)| *carried);
        let most = if kind == Some(false) { CHOSEN } else { FEW };
        let mut chosen: VecDeque<Chosen> = idle
            .into_iter()
            .filter(|(carried, ..)| Some(*carried) == kind)
            .take(most)
            .map(|(carried, _, number)| Chosen {
                number,
                carried,
                busy: None,
            })
            .collect();
        if !chosen.is_empty() {
            return chosen;
        }
        let mut held: HashMap<Host, usize> = HashMap::new();
        for host in still().filter_map(|(_, seat)| seat.host) {
            *held.entry(host).or_default() += 1;
        }
        let Some((greedy, many)) = held.into_iter().max_by_key(|(_, many)| *many) else {
            return chosen;
        };
        let surplus = many.saturating_sub(self.most / 2);
        let of_greedy = still().filter(|(_, seat)| seat.host == Some(greedy));
        chosen.extend(of_greedy.take(surplus.min(FEW)).map(|(number, _)| Chosen {
            number: *number,
            carried: true,
            busy: Some(greedy),
        }));
        chosen
    }

    fn release(&self, number: u64, seat: &Seat) {
        let mut taken = self.lock();
        if taken.seats.remove(&number).is_some() {
            if seat.go.is_set() {
                taken.going = taken.going.saturating_sub(1);
            }
            drop(taken);
            self.freed.notify_waiters();
        } else if seat.goaway.load(Relaxed) {
            // Its seat was given to another when it was asked to close: none becomes free.
            self.leaving.fetch_sub(1, Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Plain data: a panic in another thread leaves it consistent.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Choice {
    Goes(u64),
    /// There may be one after this time.
    Later(Duration),
    None,
}

enum Took {
    Seat(Occupied),
    /// A connection was asked to close.
    Asked,
    /// There may be one to ask after this time.
    Later(Duration),
    Nothing,
}

impl Occupied {
    /// Access to the seat without holding it, for the code that serves the connection.
    pub(crate) fn handle(&self) -> Handle {
        Handle {
            seats: Arc::clone(&self.seats),
            seat: Arc::clone(&self.seat),
        }
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.seats.release(self.number, &self.seat);
    }
}

/// The seat, as seen by the code that serves its connection.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
}

impl Handle {
    /// Counts a request until it is dropped; `None` if too many are pending. One connection may
    /// have half of the limit.
    pub(crate) fn begin(&self) -> Option<Call> {
        self.begin_within(0, 0)
    }

    /// The same for a probe, which has a reserve beyond the limit on other requests.
    pub(crate) fn begin_probe(&self) -> Option<Call> {
        self.begin_within(PROBES, PROBES_EACH)
    }

    fn begin_within(&self, beyond: usize, beyond_own: usize) -> Option<Call> {
        let under_way = self.seats.calls.fetch_add(1, Relaxed);
        let own = self.seat.calls.fetch_add(1, Relaxed);
        // Counted from here on, so that a refusal undoes it.
        let call = Call {
            seats: Arc::clone(&self.seats),
            seat: Arc::clone(&self.seat),
        };
        let most = self.seats.most_calls;
        let most_own = most.div_ceil(2) + beyond_own;
        if under_way >= most + beyond || own as usize >= most_own {
            self.seats.refused_calls.fetch_add(1, Relaxed);
            return None;
        }
        if !self.seat.carried.load(Relaxed) {
            self.seat.carried.store(true, Relaxed);
        }
        Some(call)
    }

    /// Whether it has carried a request.
    pub(crate) fn carried(&self) -> bool {
        self.seat.carried.load(Relaxed)
    }

    /// Whether no request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.seat.calls.load(Relaxed) == 0
    }

    /// Waits until no request is pending, on a connection that was asked to close.
    pub(crate) async fn idle(&self) {
        loop {
            // Before the check, so that no end is missed in between.
            let idle = self.seat.idle.notified();
            if self.is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// The number of open connections of the port.
    pub(crate) fn crowd(&self) -> usize {
        self.seats.taken()
    }

    /// The limit on pending requests of the port.
    pub(crate) fn most_calls(&self) -> u32 {
        u32::try_from(self.seats.most_calls).unwrap_or(u32::MAX)
    }

    /// Waits until the connection has to close.
    pub(crate) async fn asked_to_leave(&self) -> Leave {
        self.seat.go.wait().await;
        match self.seat.goaway.load(Relaxed) {
            true => Leave::Gracefully,
            false => Leave::AtOnce,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.seats.calls.fetch_sub(1, Relaxed);
        self.seat.last_ms.store(self.seats.now_ms(), Relaxed);
        let last = self.seat.calls.fetch_sub(1, Relaxed) == 1;
        if last && self.seat.go.is_set() {
            self.seat.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
#[path = "seats_test.rs"]
mod tests;
