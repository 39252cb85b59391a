//! A queue between threads that is bounded in bytes and hands over everything at once.
//!
//! The receiver takes everything that is queued in one step, so a busy core thread wakes once a
//! batch; it is a thread that waits here, or a task of a runtime. A task that will look again soon can say how many
//! patient items may come until then without waking it. Never blocks a sender: an item
//! that does not fit is refused.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queued bytes have reached the limit.
    Full,
    /// The receiver is gone.
    Closed,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
    /// The receiver was woken since it last took what is here.
    woken: bool,
    unnoticed: Unnoticed,
}

/// Items that may wait for as long as the receiver wishes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patient {
    /// A client's proposal.
    Proposal,
    /// A client's linearizable read.
    Read,
    /// What was applied.
    Report,
}

/// How many of them may still come without waking the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unnoticed {
    pub(crate) proposals: usize,
    pub(crate) reads: usize,
    pub(crate) reports: usize,
}

impl Unnoticed {
    /// Whether one may come, which then counts.
    fn admits(&mut self, item: Patient) -> bool {
        let left = match item {
            Patient::Proposal => &mut self.proposals,
            Patient::Read => &mut self.reads,
            Patient::Report => &mut self.reports,
        };
        let admitted = *left > 0;
        *left = left.saturating_sub(1);
        admitted
    }
}

/// Wakes the one receiver of a queue.
pub(crate) trait Wake {
    /// Wakes it, or lets its next wait end at once.
    fn wake(&self);
}

impl Wake for Condvar {
    fn wake(&self) {
        self.notify_one();
    }
}

impl Wake for Notify {
    fn wake(&self) {
        self.notify_one();
    }
}

#[derive(Debug)]
struct Inner<T, W> {
    state: Mutex<State<T>>,
    arrived: W,
    limit: usize,
    oldest: Oldest,
}

/// How long the oldest item has waited for a receiver that was woken, readable without a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oldest(Arc<AtomicU64>);

/// What moments are counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Oldest {
    /// Zero if nothing is queued. In microseconds.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        match self.0.load(Relaxed) {
            0 => Duration::ZERO,
            came => Duration::from_micros(micros(now).saturating_sub(came)),
        }
    }

    fn came(&self) {
        self.0.store(micros(Instant::now()), Relaxed);
    }

    fn taken(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Never 0, which stands for an empty queue.
fn micros(at: Instant) -> u64 {
    let since = at.saturating_duration_since(*START).as_micros();
    u64::try_from(since).unwrap_or(u64::MAX).max(1)
}

impl<T, W> Inner<T, W> {
    /// A panic while the lock is held aborts the release binary; in tests the state is a plain
    /// list, which is consistent between statements.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sender or the receiver of a queue; clones share it.
#[derive(Debug)]
pub(crate) struct Queue<T, W = Condvar>(Arc<Inner<T, W>>);

/// A queue whose receiver is a task.
pub(crate) type TaskQueue<T> = Queue<T, Notify>;

impl<T, W> Clone for Queue<T, W> {
    fn clone(&self) -> Self {
        Queue(Arc::clone(&self.0))
    }
}

impl<T> Queue<T> {
    /// A queue that refuses items once `limit` bytes wait.
    pub(crate) fn new(limit: usize) -> Queue<T> {
        Queue::with(limit, Condvar::new())
    }

    /// Waits up to `timeout` until something is queued, without taking it, or the queue is closed; may end earlier.
    pub(crate) fn wait(&self, timeout: Duration) {
        let state = self.0.lock();
        if state.items.is_empty() && !state.closed {
            let _waited = self.0.arrived.wait_timeout(state, timeout);
        }
    }

    /// Whether nothing is queued.
    pub(crate) fn has_none(&self) -> bool {
        self.0.lock().items.is_empty()
    }

    /// Takes everything that is queued; waits up to `timeout` for the first item. Empty after the
    /// timeout; `None` once the queue is closed and drained.
    pub(crate) fn take(&self, timeout: Duration) -> Option<Vec<T>> {
        let mut state = self.0.lock();
        if state.items.is_empty() && !state.closed && !timeout.is_zero() {
            let waited = self.0.arrived.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.drain(&mut state)
    }
}

impl<T> TaskQueue<T> {
    /// A queue for a task, which refuses items once `limit` bytes wait.
    pub(crate) fn for_task(limit: usize) -> TaskQueue<T> {
        Queue::with(limit, Notify::new())
    }

    /// Waits until something is queued or the queue is closed; may end without either.
    pub(crate) async fn arrival(&self) {
        self.0.arrived.notified().await;
    }

    /// Takes everything that is queued, without a wait; `None` once the queue is closed and
    /// drained.
    pub(crate) fn take_now(&self) -> Option<Vec<T>> {
        self.drain(&mut self.0.lock())
    }

    /// Until the receiver takes the next time, so many patient items do not wake it.
    pub(crate) fn allow(&self, unnoticed: Unnoticed) {
        self.0.lock().unnoticed = unnoticed;
    }

    /// As [`Queue::push`], of a patient item.
    pub(crate) fn push_patient(&self, kind: Patient, bytes: usize, item: T) -> Result<(), Refused> {
        let mut state = self.0.lock();
        self.has_room(&mut state, bytes)?;
        self.insert_patient(&mut state, kind, bytes, item)
    }

    /// As [`Queue::push_always`], of a patient item.
    pub(crate) fn push_patient_always(
        &self,
        kind: Patient,
        bytes: usize,
        item: T,
    ) -> Result<(), Refused> {
        self.insert_patient(&mut self.0.lock(), kind, bytes, item)
    }

    fn insert_patient(
        &self,
        state: &mut State<T>,
        kind: Patient,
        bytes: usize,
        item: T,
    ) -> Result<(), Refused> {
        match state.unnoticed.admits(kind) {
            true => self.store(state, bytes, item),
            false => self.insert(state, bytes, item),
        }
    }
}

impl<T, W: Wake> Queue<T, W> {
    fn with(limit: usize, arrived: W) -> Queue<T, W> {
        Queue(Arc::new(Inner {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
                woken: false,
                unnoticed: Unnoticed::default(),
            }),
            arrived,
            limit,
            oldest: Oldest::default(),
        }))
    }

    /// Adds an item of `bytes`, unless the queue is full. An item larger than the limit is accepted
    /// when the queue is empty.
    pub(crate) fn push(&self, bytes: usize, item: T) -> Result<(), Refused> {
        let mut state = self.0.lock();
        self.has_room(&mut state, bytes)?;
        self.insert(&mut state, bytes, item)
    }

    /// Adds an item even to a full queue: for answers of one core thread to another, whose number
    /// is bounded by the number of requests.
    pub(crate) fn push_always(&self, bytes: usize, item: T) -> Result<(), Refused> {
        self.insert(&mut self.0.lock(), bytes, item)
    }

    /// A receiver that has not noticed what fills the queue is woken for it.
    fn has_room(&self, state: &mut State<T>, bytes: usize) -> Result<(), Refused> {
        if state.closed || state.bytes == 0 || state.bytes + bytes <= self.0.limit {
            return Ok(());
        }
        self.wake(state);
        Err(Refused::Full)
    }

    fn insert(&self, state: &mut State<T>, bytes: usize, item: T) -> Result<(), Refused> {
        self.store(state, bytes, item)?;
        self.wake(state);
        Ok(())
    }

    fn wake(&self, state: &mut State<T>) {
        if !std::mem::replace(&mut state.woken, true) {
            self.0.oldest.came();
            self.0.arrived.wake();
        }
    }

    /// Adds an item without waking the receiver.
    fn store(&self, state: &mut State<T>, bytes: usize, item: T) -> Result<(), Refused> {
        if state.closed {
            return Err(Refused::Closed);
        }
        state.bytes += bytes;
        state.items.push_back((bytes, item));
        Ok(())
    }

    fn drain(&self, state: &mut State<T>) -> Option<Vec<T>> {
        if state.items.is_empty() && state.closed {
            return None;
        }
        state.bytes = 0;
        state.woken = false;
        state.unnoticed = Unnoticed::default();
        self.0.oldest.taken();
        Some(state.items.drain(..).map(|(_, item)| item).collect())
    }

    /// Items that wait, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.items.len(), state.bytes)
    }

    /// Whether nothing is queued that wakes the receiver, without a lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.oldest.0.load(Relaxed) == 0
    }

    /// Since when the oldest item has been queued.
    pub(crate) fn oldest(&self) -> Oldest {
        self.0.oldest.clone()
    }

    /// Refuses further items; those already queued are still delivered.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.arrived.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_still_delivers_responses() {
        let queue = Queue::new(10);
        assert_eq!(
            queue.push(50, 'a'),
            Ok(()),
            "larger than the bound, but alone"
        );
        assert_eq!(queue.push(1, 'b'), Err(Refused::Full));
        assert_eq!(queue.push_always(1, 'c'), Ok(()));
        assert_eq!(queue.take(Duration::ZERO), Some(vec!['a', 'c']));
        assert_eq!(queue.push(9, 'd'), Ok(()));
        assert_eq!(queue.push(1, 'e'), Ok(()));
        assert_eq!(queue.push(1, 'f'), Err(Refused::Full));
    }

    #[test]
    fn queue_reports_the_age_of_its_first_item() {
        let queue = Queue::new(10);
        let oldest = queue.oldest();
        let later = Instant::now() + Duration::from_secs(9);
        assert_eq!(oldest.age(later), Duration::ZERO, "nothing waits");
        queue.push(1, 'a').expect("room");
        let age = oldest.age(later);
        assert!(age > Duration::from_secs(8), "{age:?}");
        let first = Instant::now();
        while first.elapsed() < Duration::from_micros(50) {
            std::hint::spin_loop();
        }
        queue.push(1, 'b').expect("room");
        assert_eq!(oldest.age(later), age, "the first counts");
        queue.take(Duration::ZERO);
        assert_eq!(oldest.age(later), Duration::ZERO, "taken");
    }

    #[test]
    fn closed_queue_is_drained_first() {
        let queue = Queue::new(10);
        queue.push(1, 1).expect("room");
        queue.close();
        assert_eq!(queue.push(1, 2), Err(Refused::Closed));
        assert_eq!(queue.take(Duration::from_secs(60)), Some(vec![1]));
        assert_eq!(queue.take(Duration::from_secs(60)), None);
    }

    /// As many as the receiver allows wait for it unnoticed; one more, or any other item, wakes it for all of them.
    #[tokio::test]
    async fn patient_items_do_not_wake() {
        let queue = TaskQueue::for_task(10);
        let woken = async |queue: &TaskQueue<char>| {
            let wait = Duration::from_millis(1);
            tokio::time::timeout(wait, queue.arrival()).await.is_ok()
        };
        let proposals = |proposals| Unnoticed {
            proposals,
            ..Unnoticed::default()
        };
        let propose = |item| queue.push_patient(Patient::Proposal, 1, item);
        for (unnoticed, last) in [(0, 'p'), (2, 'p'), (2, 'r'), (2, 'x'), (0, 'x')] {
            queue.allow(proposals(unnoticed));
            for _ in 0..unnoticed {
                propose('p').expect("room");
            }
            assert!(!woken(&queue).await && queue.is_empty(), "{unnoticed}");
            match last {
                'p' => propose('p').expect("room"),
                'r' => queue.push_patient(Patient::Read, 1, 'r').expect("room"),
                other => queue.push(1, other).expect("room"),
            }
            assert!(woken(&queue).await && !queue.is_empty(), "{unnoticed}");
            let taken = queue.take_now().expect("open");
            assert_eq!(taken.len(), unnoticed + 1);
        }
        queue.allow(proposals(5));
        propose('p').expect("room");
        assert_eq!(queue.take_now(), Some(vec!['p']), "at its own time");
        propose('p').expect("room");
        assert!(woken(&queue).await, "what was allowed ends when it takes");
        queue.take_now();
        queue.allow(proposals(5));
        propose('p').expect("room");
        queue.close();
        assert!(woken(&queue).await, "the end is noticed");
    }

    #[test]
    fn patient_items_are_refused_as_others_are() {
        let queue = TaskQueue::for_task(10);
        queue.allow(Unnoticed {
            reads: usize::MAX,
            ..Unnoticed::default()
        });
        let read = |bytes, item| queue.push_patient(Patient::Read, bytes, item);
        assert_eq!(read(9, 'a'), Ok(()));
        assert!(queue.is_empty(), "unnoticed");
        assert_eq!(read(2, 'b'), Err(Refused::Full));
        assert!(!queue.is_empty(), "the receiver is woken to make room");
        queue.close();
        assert_eq!(read(1, 'c'), Err(Refused::Closed));
    }

    /// A task that finds its queue empty waits for the next item, and misses none that came before it waited.
    #[tokio::test]
    async fn task_is_woken_by_the_first_item_and_by_the_end() {
        let queue = TaskQueue::for_task(10);
        assert_eq!(queue.take_now(), Some(Vec::new()));
        queue.push(1, 'a').expect("room");
        queue.push(1, 'b').expect("room");
        queue.arrival().await;
        assert_eq!(queue.take_now(), Some(vec!['a', 'b']));
        assert!(queue.is_empty());
        let sender = queue.clone();
        let later = tokio::spawn(async move { sender.push(1, 'c') });
        queue.arrival().await;
        assert_eq!(queue.take_now(), Some(vec!['c']));
        assert_eq!(later.await.expect("no panic"), Ok(()));
        queue.close();
        queue.arrival().await;
        assert_eq!(queue.take_now(), None);
    }
}
