//! The signals that end a server, handled from its start. The first process of a container receives
//! no signal without a handler, and the signal is sent only once: one that arrived while the disk
//! was being opened would be lost, and the pod would run until it is killed.

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, and the runtime on which they are awaited.
pub(in crate::server) struct StopSignals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers: signals are kept from now on.
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

    /// The runtime, and a future that returns the name of the first signal.
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
