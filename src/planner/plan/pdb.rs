//! The PDB as facts, and what it may limit evictions by. Decides nothing.

use std::fmt;

/// What a PDB limits evictions by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdbLimit {
    /// So many pods have to stay available. A pod that is not there counts as unavailable.
    MinAvailable(u32),
    /// So many pods may be unavailable. Only 0 is ever set: how many pods there should be Kubernetes derives from the
    /// StatefulSets of those that are there, one a member, so that with 1 it would let a second member go between the end
    /// of a pod and the next one.
    MaxUnavailable(u32),
}

impl PdbLimit {
    /// No eviction at all.
    pub const CLOSED: Self = Self::MaxUnavailable(0);
}

impl fmt::Display for PdbLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinAvailable(pods) => write!(f, "minAvailable {pods}"),
            Self::MaxUnavailable(pods) => write!(f, "maxUnavailable {pods}"),
        }
    }
}

/// The PDB as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PdbFacts {
    /// What it limits evictions by; `None` if that is nothing that the operator sets, such as a percentage.
    pub limit: Option<PdbLimit>,
    /// How many pods Kubernetes counts as available; `None` while it has not counted for the PDB's current spec.
    pub available: Option<u32>,
}

impl PdbFacts {
    /// One with this limit, which Kubernetes has not counted for yet.
    pub fn of(limit: PdbLimit) -> Self {
        Self {
            limit: Some(limit),
            available: None,
        }
    }

    /// How many pods have to stay available, if it is limited by that.
    pub fn min_available(&self) -> Option<u32> {
        match self.limit? {
            PdbLimit::MinAvailable(pods) => Some(pods),
            PdbLimit::MaxUnavailable(_) => None,
        }
    }

    /// Whether it may let an eviction through.
    pub fn is_open(&self) -> bool {
        self.limit != Some(PdbLimit::CLOSED)
    }
}
