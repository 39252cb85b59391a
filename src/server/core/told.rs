//! A word that is said once, and heard by whoever waits for it then or later.
//!
//! Says nothing about what it means.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether it was said.
#[derive(Debug, Default)]
pub(crate) struct Told {
    said: AtomicBool,
    waiting: Notify,
}

impl Told {
    /// Says it. What was written before is seen by whoever hears it.
    pub(crate) fn tell(&self) {
        self.said.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Whether it was said.
    pub(crate) fn is_told(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    /// Waits until it is said.
    pub(crate) async fn told(&self) {
        let word = self.waiting.notified();
        let mut word = std::pin::pin!(word);
        // Whoever says it after this line is heard; whoever did before has said so.
        word.as_mut().enable();
        if !self.is_told() {
            word.await;
        }
    }
}
