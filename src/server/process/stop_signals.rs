//! The signals that end a server, heard from its first moment on. The first process of a container
//! never gets a signal that it has not asked for, and nobody sends it twice: one that came while the
//! disk was being opened would be lost, and the pod would stand until it is killed.

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, and what they are waited for on.
pub(in crate::server) struct StopSignals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on they are kept until they are asked for.
    pub(in crate::server) fn hear() -> std::io::Result<StopSignals> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
        Ok(StopSignals {
            runtime,
            terminate,
            interrupt,
        })
    }

    /// The runtime, and the wait for whichever signal comes first, by its name.
    pub(in crate::server) fn split(self) -> (Runtime, impl Future<Output = &'static str>) {
        let (mut terminate, mut interrupt) = (self.terminate, self.interrupt);
        let came = async move {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        (self.runtime, came)
    }
}
