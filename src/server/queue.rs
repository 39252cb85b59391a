//! A queue between threads that is bounded in bytes and hands over everything at once.
//!
//! The receiver takes all that has gathered in one step, so a busy core thread wakes once a
//! batch. Never blocks a sender: what does not fit is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The bytes that wait already reach the bound.
    Full,
    /// The receiver is gone.
    Closed,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
}

#[derive(Debug)]
struct Inner<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    limit: usize,
}

impl<T> Inner<T> {
    /// A panic while the lock is held aborts the release binary; in tests the state is a plain
    /// list that is whole between statements.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end or the other of a queue; clones share it.
#[derive(Debug)]
pub(crate) struct Queue<T>(Arc<Inner<T>>);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue(Arc::clone(&self.0))
    }
}

impl<T> Queue<T> {
    /// A queue that refuses items once `limit` bytes wait.
    pub(crate) fn new(limit: usize) -> Queue<T> {
        Queue(Arc::new(Inner {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            arrived: Condvar::new(),
            limit,
        }))
    }

    /// Adds an item of `bytes`, unless the queue is full. An item larger than the bound is
    /// taken when nothing else waits.
    pub(crate) fn push(&self, bytes: usize, item: T) -> Result<(), Refused> {
        let mut state = self.0.lock();
        if !state.closed && state.bytes > 0 && state.bytes + bytes > self.0.limit {
            return Err(Refused::Full);
        }
        self.insert(&mut state, bytes, item)
    }

    /// Adds an item whatever waits: for answers of one core thread to another, whose number is
    /// bounded by what was asked.
    pub(crate) fn push_always(&self, bytes: usize, item: T) -> Result<(), Refused> {
        self.insert(&mut self.0.lock(), bytes, item)
    }

    fn insert(&self, state: &mut State<T>, bytes: usize, item: T) -> Result<(), Refused> {
        if state.closed {
            return Err(Refused::Closed);
        }
        state.bytes += bytes;
        state.items.push_back((bytes, item));
        if state.items.len() == 1 {
            self.0.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes everything that waits; waits up to `timeout` for something. Empty after the
    /// time-out; `None` once the queue is closed and drained.
    pub(crate) fn take(&self, timeout: Duration) -> Option<Vec<T>> {
        let mut state = self.0.lock();
        if state.items.is_empty() && !state.closed && !timeout.is_zero() {
            let waited = self.0.arrived.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.items.is_empty() && state.closed {
            return None;
        }
        state.bytes = 0;
        Some(state.items.drain(..).map(|(_, item)| item).collect())
    }

    /// Refuses further items; what waits is still taken.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_answers_still_pass() {
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
    fn a_closed_queue_is_drained_first() {
        let queue = Queue::new(10);
        queue.push(1, 1).expect("room");
        queue.close();
        assert_eq!(queue.push(1, 2), Err(Refused::Closed));
        assert_eq!(queue.take(Duration::from_secs(60)), Some(vec![1]));
        assert_eq!(queue.take(Duration::from_secs(60)), None);
    }
}
