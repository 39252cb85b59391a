//! Quorate: a Kubernetes operator and the replicated etcd-style server that it runs.
//!
//! Divided into rooms (see `docs/ARCHITECTURE.md`), of which packages below `src` contain some; this one
//! re-exports them. The pure rooms know no socket, file, clock, thread or thread-local randomness: time and
//! randomness are arguments. `tests/layering.rs` checks that.

#[cfg(feature = "simulators")]
pub use quorate_core::sim;
pub use quorate_core::{bolt, disk, node, persist, raft, snapshot, store};
pub use quorate_mutants as mutants;
pub use quorate_planner::{access_plan, backup_plan, build, crd, model, plan};
pub use quorate_plugin as plugin;

pub mod backup;
pub mod cli;
#[cfg(all(test, feature = "mutants", feature = "simulators"))]
mod mutants_test;
pub mod operator;
#[cfg(feature = "simulators")]
pub mod opsim;
pub mod server;
pub mod wire;
