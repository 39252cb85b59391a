//! Looks at what is really so and has it judged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::opsim::api;
use crate::opsim::oracles::Oracles;
use crate::opsim::servers::Servers;

use super::gate::lock;
use super::truth::{Read, Truth};

/// Clones look at the same world.
#[derive(Clone)]
pub(crate) struct Eyes {
    pub(crate) api: api::Shared,
    pub(crate) servers: Arc<Mutex<Servers>>,
    pub(crate) oracles: Arc<Mutex<Oracles>>,
    /// Operators that act now.
    pub(crate) acting: Arc<AtomicUsize>,
    pub(crate) read: Arc<Mutex<Read>>,
}

impl Eyes {
    pub(crate) fn look(&self) -> Truth {
        let (api, servers) = (self.api.lock(), lock(&self.servers));
        let acting = self.acting.load(Ordering::SeqCst);
        Truth::of(&api, &servers, acting, &mut lock(&self.read))
    }

    /// Judges a write in these words, before which this was so.
    pub(crate) fn judge(&self, before: Truth, words: &str) {
        let truth = self.look();
        let mut oracles = lock(&self.oracles);
        oracles.before(before);
        oracles.after(words, &truth);
    }

    /// Judges this moment.
    pub(crate) fn moment(&self) -> Truth {
        let truth = self.look();
        lock(&self.oracles).moment(&truth);
        truth
    }
}
