//! The thread of consensus: a runtime for the task that steps the member, and for the links between members, which
//! give it its messages and take its own. On one thread a message wakes one thread, and those that have come together are
//! handled together. Never runs what blocks, nor what an unknown host can make long.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread; tasks are started on it by its handle.
pub(crate) struct RaftThread {
    handle: Handle,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl RaftThread {
    /// Starts it.
    pub(crate) fn start() -> io::Result<RaftThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || {
                // An error means that the owner is gone, which counts as a stop.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        Ok(RaftThread {
            handle,
            running: Some((stop, thread)),
        })
    }

    /// Starts tasks on it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drops its tasks and ends it.
    pub(crate) fn end(&mut self) {
        let Some((stop, thread)) = self.running.take() else {
            return;
        };
        drop(stop);
        // A panic of one of its tasks has been reported, and one outside of them cannot be.
        let _ = thread.join();
    }
}

impl Drop for RaftThread {
    fn drop(&mut self) {
        self.end();
    }
}
