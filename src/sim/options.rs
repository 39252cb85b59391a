//! What a run is made of.

use super::clock::{Micros, SECOND};

/// The options of a run. What is not here is drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Microseconds of virtual time with faults.
    pub stormy: Micros,
    /// Microseconds of virtual time within which the cluster must recover once faults stop.
    pub calm: Micros,
    /// Print every step.
    pub trace: bool,
    /// Disks whose syncs do nothing: a run with them must fail, or the oracles are blind.
    pub lying_disks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stormy: 20 * SECOND,
            calm: 60 * SECOND,
            trace: false,
            lying_disks: false,
        }
    }
}
