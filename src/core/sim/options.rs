//! What a run is made of.

use super::clock::{Micros, SECOND};

/// The options of a run. What is not here is drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Microseconds of virtual time with faults, at least.
    pub stormy: Micros,
    /// The storm goes on until clients have had so many answers,
    pub operations: u64,
    /// and until so much has gone wrong.
    pub faults: u64,
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
            stormy: 60 * SECOND,
            operations: 2_000,
            faults: 20,
            calm: 60 * SECOND,
            trace: false,
            lying_disks: false,
        }
    }
}
