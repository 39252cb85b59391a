//! The core of Quorate: the Raft algorithm, the store, the member that joins them, the disk below them, and the
//! simulator that tests them together.
//!
//! Knows no server, operator or Kubernetes. The main package re-exports its rooms, so `crate::raft` there is
//! [`raft`] here.

pub mod bolt;
pub mod disk;
pub mod node;
pub mod persist;
pub mod raft;
#[cfg(feature = "simulators")]
pub mod sim;
pub mod snapshot;
pub mod store;

use quorate_mutants as mutants;
