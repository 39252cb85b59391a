//! Who may hold a connection to a port open, and who has to go when there is no seat left.
//!
//! A port has so many seats. When all are taken, a newcomer gets the seat of whoever uses it
//! least: first a connection that has carried no request yet, the oldest first; then one between
//! two requests, the one that has been idle longest; and where every seat is in use, one of a
//! host that holds more than half of them. So connections that say nothing keep nobody out,
//! however many they are. Never looks at what is said: the port tells when a request begins.

// Nobody sees the order of hosts.
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

/// How long a newcomer waits for the seat of whoever was told to go.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that may be on their way out with a goaway, beyond the seats of every port: a client
/// that is told so sends its next request elsewhere. Whoever is told when so many are, is cut off.
pub(crate) const LEAST_GOAWAYS: u64 = 16;
/// A port of many seats has more: one for each so many seats, and never more than this.
const SEATS_A_FAREWELL: u64 = 16;
const MOST_FAREWELLS: u64 = 1024;
/// A look for those to go takes time in proportion to the number of seats, and a flood of
/// newcomers must not have one each: of this much time, one part goes into looks.
const SHARE: u32 = 20;
/// A look chooses those to go next for so many newcomers at most.
const CHOSEN: usize = 1024;
/// The same where somebody goes who has been served: whoever comes meanwhile may have to go first.
const FEW: usize = 16;

/// Probes that may be under way beyond the bound of requests, and on one connection beyond its
/// share: a server that has much to do is not a dead one.
const PROBES: usize = 1024;
const PROBES_EACH: usize = 8;

/// The seats of one port, or of several that share them.
#[derive(Debug)]
pub(crate) struct Seats {
    /// What the port is called in metrics.
    pub(crate) name: &'static str,
    most: usize,
    most_calls: usize,
    started: Instant,
    taken: Mutex<Taken>,
    freed: Notify,
    leaving: AtomicUsize,
    most_leaving: usize,
    calls: AtomicUsize,
    /// Newcomers that got no seat.
    pub(crate) refused: AtomicU64,
    /// Connections that had to go for a newcomer.
    pub(crate) evicted: AtomicU64,
    /// Requests that were too many at a time.
    pub(crate) refused_calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    seats: BTreeMap<u64, Arc<Seat>>,
    next: u64,
    /// Those to go next, as the last look found them.
    chosen: VecDeque<Chosen>,
    /// Whether that look found any.
    found: bool,
    /// When the next look may be.
    look_again: Option<Instant>,
    /// Newcomers that are being seated.
    coming: usize,
    /// Seats whose connections were told to go at once and have not yet gone.
    going: usize,
}

/// A newcomer; seated or refused when dropped.
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

/// Connections that may be on their way out beside so many seats.
pub(crate) fn goaways(most: u64) -> u64 {
    (most / SEATS_A_FAREWELL).clamp(LEAST_GOAWAYS, MOST_FAREWELLS)
}

#[derive(Debug)]
struct Chosen {
    number: u64,
    /// It had carried a request when it was chosen.
    carried: bool,
    /// Requests were under way when it was chosen: it goes for its host's share.
    busy: Option<Host>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Seat {
    host: Option<Host>,
    calls: AtomicU32,
    carried: AtomicBool,
    /// Milliseconds since the start when it was last in use.
    last_ms: AtomicU64,
    /// It has to go.
    go: Latch,
    goaway: AtomicBool,
    /// Called when no request is under way any more, of those that were told to go.
    idle: Notify,
}

/// A seat that is taken; free again when dropped. It belongs to the socket, wherever that goes.
#[derive(Debug)]
pub(crate) struct Occupied {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
    number: u64,
}

/// A request that is under way; over when dropped.
#[derive(Debug)]
pub(crate) struct Call {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
}

/// How a connection has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Its socket is needed now.
    AtOnce,
    /// There is time to tell the client.
    WithFarewell,
}

impl Seats {
    /// So many seats, and so many requests under way on all of them.
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

    /// How many there are.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().seats.len()
    }

    /// Requests under way.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// A seat for a newcomer; nothing where each is in use.
    pub(crate) async fn admit(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Occupied> {
        let from = from.map(Host::of);
        let began = Instant::now();
        let _coming = Coming::of(self);
        while began.elapsed() < PATIENCE {
            // Before the look, so that no seat that is freed in between is missed.
            let freed = self.freed.notified();
            match self.take(from) {
                Took::Seat(occupied) => return Some(occupied),
                Took::Asked => {
                    if timeout(PATIENCE, freed).await.is_err() {
                        // Whoever comes next does not wait for the same ones.
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
            // There is one for each newcomer: whoever is woken because somebody else left, and finds
            // that seat taken, has nobody else go.
            if taken.going >= taken.coming {
                return Took::Asked;
            }
            let number = match self.choose(&mut taken, from) {
                Choice::Goes(number) => number,
                Choice::Later(wait) => return Took::Later(wait),
                Choice::Nobody => return Took::Nothing,
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

    /// Who goes for a newcomer from this host.
    fn choose(&self, taken: &mut Taken, from: Option<Host>) -> Choice {
        for look in [false, true] {
            if look {
                let began = Instant::now();
                let wait = taken.look_again.map(|again| again.duration_since(began));
                match wait.filter(|wait| !wait.is_zero()) {
                    Some(wait) if taken.found => return Choice::Later(wait),
                    Some(_) => return Choice::Nobody,
                    None => {}
                }
                taken.chosen = self.look(&taken.seats);
                taken.found = !taken.chosen.is_empty();
                taken.look_again = Some(began + began.elapsed() * SHARE);
            }
            while let Some(chosen) = taken.chosen.front() {
                let fits = taken.seats.get(&chosen.number).is_some_and(|seat| {
                    let idle = seat.calls.load(Relaxed) == 0
                        && seat.carried.load(Relaxed) == chosen.carried;
                    (idle || chosen.busy.is_some()) && !seat.go.is_set()
                });
                // Its own share is used up; the newcomer of another host may still come.
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
        Choice::Nobody
    }

    /// Those to go next, in order.
    fn look(&self, seats: &BTreeMap<u64, Arc<Seat>>) -> VecDeque<Chosen> {
        let still = || seats.iter().filter(|(_, seat)| !seat.go.is_set());
        let mut idle: Vec<(bool, u64, u64)> = still()
            .filter(|(_, seat)| seat.calls.load(Relaxed) == 0)
            .map(|(number, seat)| {
                let (carried, last) = (seat.carried.load(Relaxed), seat.last_ms.load(Relaxed));
                (carried, last, *number)
            })
            .collect();
        idle.sort_unstable();
        // Of one kind alone: those who come meanwhile may be of the kind that goes first.
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
            // Its seat was somebody else's since it was told: none is free.
            self.leaving.fetch_sub(1, Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Plain data: a panic elsewhere leaves it usable.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Choice {
    Goes(u64),
    /// There may be somebody after this time.
    Later(Duration),
    Nobody,
}

enum Took {
    Seat(Occupied),
    /// Somebody was told to go.
    Asked,
    /// There may be somebody to tell after this time.
    Later(Duration),
    Nothing,
}

impl Occupied {
    /// The seat without its being taken, for whoever serves the connection.
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

/// What serves a connection knows of its seat.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    seats: Arc<Seats>,
    seat: Arc<Seat>,
}

impl Handle {
    /// Counts a request until it is dropped; nothing where too many are under way. One
    /// connection may have half of what there is.
    pub(crate) fn begin(&self) -> Option<Call> {
        self.begin_within(0, 0)
    }

    /// The same for a probe, for which there is room where there is none for other requests.
    pub(crate) fn begin_probe(&self) -> Option<Call> {
        self.begin_within(PROBES, PROBES_EACH)
    }

    fn begin_within(&self, beyond: usize, beyond_own: usize) -> Option<Call> {
        let under_way = self.seats.calls.fetch_add(1, Relaxed);
        let own = self.seat.calls.fetch_add(1, Relaxed);
        // Counted from here on, so that a refusal takes it back.
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

    /// Waits until that is so, of a connection that was told to go.
    pub(crate) async fn idle(&self) {
        loop {
            // Before the look, so that no end is missed in between.
            let idle = self.seat.idle.notified();
            if self.is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Connections that are open beside it.
    pub(crate) fn crowd(&self) -> usize {
        self.seats.taken()
    }

    /// Waits until the connection has to go.
    pub(crate) async fn asked_to_leave(&self) -> Leave {
        self.seat.go.wait().await;
        match self.seat.goaway.load(Relaxed) {
            true => Leave::WithFarewell,
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
