//! The published state. Readers share it; the applier takes it back for a short batch if nobody reads it, so that the
//! batch changes the store in place instead of copying what a view would keep
//! ([decision 80](../../../docs/decisions/080-a-short-batch-takes-the-view-back.md)).
//!
//! Never has the applier wait for a reader that keeps a view. Has a reader wait for a short batch and for what it wakes, and for
//! nothing else. Whoever holds on to what is small of a state (`Latest`) must not ask for a view meanwhile: the applier replaces both at once.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};

use super::handle::Published;

/// The newest published state; there is none only while it is taken back.
#[derive(Debug)]
pub(crate) struct Views(RwLock<Option<Arc<Published>>>);

/// Readers wait for the next state. The one before is there still, or was dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(RwLockWriteGuard<'a, Option<Arc<Published>>>);

impl Views {
    pub(super) fn new(published: Arc<Published>) -> Self {
        Views(RwLock::new(Some(published)))
    }

    /// The newest one. Waits while it is taken back.
    pub(crate) fn latest(&self) -> Arc<Published> {
        let published = self.0.read();
        let published = published.as_ref();
        // Whoever takes it back keeps the lock until there is another, unless it panics, which ends the process.
        Arc::clone(published.expect("a state is published"))
    }

    /// Has readers wait until it is replaced.
    pub(super) fn hold(&self) -> Held<'_> {
        Held(self.0.write())
    }

    /// The same, and drops it: if nobody else has it or its view, or is about to.
    pub(super) fn take_back(&self) -> Option<Held<'_>> {
        let mut latest = self.0.try_write()?;
        let published = Arc::get_mut(latest.as_mut()?)?;
        Arc::get_mut(&mut published.view)?;
        *latest = None;
        Some(Held(latest))
    }
}

impl Held<'_> {
    /// Readers go on with this one, and before the next batch. Returns the one before, if it is there still.
    pub(super) fn give(mut self, published: Arc<Published>) -> Option<Arc<Published>> {
        let replaced = self.0.replace(published);
        RwLockWriteGuard::unlock_fair(self.0);
        replaced
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::node::StateMachine;

    fn published(applied: u64) -> Arc<Published> {
        let machine = StateMachine::default();
        Arc::new(Published {
            view: machine.view(),
            membership: Arc::clone(machine.membership()),
            applied,
            term: 1,
        })
    }

    #[test]
    fn state_is_dropped_when_it_is_taken_back() {
        let first = published(1);
        // Not a weak reference to the state: whoever has one has it.
        let part = Arc::clone(&first.membership);
        let owners = Arc::strong_count(&part);
        let views = Views::new(first);
        let taken = views.take_back().expect("nobody has it");
        assert_eq!(Arc::strong_count(&part), owners - 1);
        assert!(taken.give(published(2)).is_none());
        assert_eq!(views.latest().applied, 2);
    }

    #[test]
    fn what_is_read_is_not_taken_back() {
        let views = Views::new(published(1));
        let state = views.latest();
        assert!(views.take_back().is_none(), "it is read");
        let view = Arc::clone(&state.view);
        drop(state);
        assert!(views.take_back().is_none(), "a part of it is");
        assert_eq!(views.latest().applied, 1, "and it stays");
        let kept: Weak<_> = Arc::downgrade(&view);
        drop(views.hold().give(published(2)));
        assert_eq!(kept.strong_count(), 1, "the reader has it still");
        assert!(views.take_back().is_some(), "nobody has the next one");
    }

    #[test]
    fn reader_waits_for_the_next_one() {
        let views = Arc::new(Views::new(published(1)));
        let taken = views.take_back().expect("nobody has it");
        let (sender, receiver) = mpsc::channel();
        let reads = Arc::clone(&views);
        let reader = std::thread::spawn(move || sender.send(reads.latest().applied));
        let early = receiver.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
        assert!(taken.give(published(2)).is_none());
        assert_eq!(receiver.recv(), Ok(2));
        reader.join().unwrap().unwrap();
    }
}
