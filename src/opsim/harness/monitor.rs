//! Looks at what is really so and has it judged.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::opsim::api;
use crate::opsim::oracles::Oracles;
use crate::opsim::servers::Servers;
use crate::opsim::work::Work;

use super::backup_truth::BackupTruth;
use super::ground_truth::{GroundTruth, Read};
use super::request_faults::lock;

/// Clones look at the same world.
#[derive(Clone)]
pub(crate) struct InvariantMonitor {
    pub(crate) api: api::SharedApiServer,
    pub(crate) servers: Arc<Mutex<Servers>>,
    pub(crate) work: Arc<Mutex<Work>>,
    pub(crate) oracles: Arc<Mutex<Oracles>>,
    /// Operators that act now.
    pub(crate) acting: Arc<AtomicUsize>,
    /// Writes are not judged: with very many clusters each would be a look at all of them.
    pub(crate) looks_away: Arc<AtomicBool>,
    pub(crate) read: Arc<Mutex<Read>>,
}

impl InvariantMonitor {
    pub(crate) fn ground_truth(&self) -> GroundTruth {
        let (api, servers) = (self.api.lock(), lock(&self.servers));
        let acting = self.acting.load(Ordering::SeqCst);
        let mut truth = GroundTruth::of(&api, &servers, acting, &mut lock(&self.read));
        truth.backups = BackupTruth::of(&api, &servers, &lock(&self.work));
        truth
    }

    /// What is so before a write that is to be judged.
    pub(crate) fn before_write(&self) -> Option<GroundTruth> {
        let judges = !self.looks_away.load(Ordering::SeqCst);
        judges.then(|| self.ground_truth())
    }

    /// Judges a write in these words, before which this was so.
    pub(crate) fn judge(&self, before: GroundTruth, words: &str) {
        let ground_truth = self.ground_truth();
        let mut oracles = lock(&self.oracles);
        oracles.before(before);
        oracles.after(words, &ground_truth);
    }

    /// Judges this moment.
    pub(crate) fn moment(&self) -> GroundTruth {
        let ground_truth = self.ground_truth();
        lock(&self.oracles).moment(&ground_truth);
        ground_truth
    }
}
