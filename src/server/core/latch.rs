//! A flag that is set once, and that tasks can wait for before or after that.
//!
//! Never resets, and carries no value.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    set: AtomicBool,
    waiting: Notify,
}

impl Latch {
    /// Sets it. What was written before is visible to every task that finds it set.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Whether it is set.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits until it is set.
    pub(crate) async fn wait(&self) {
        let notified = self.waiting.notified();
        let mut notified = std::pin::pin!(notified);
        // From here on a notification is received; if it came before, the flag is set.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}
