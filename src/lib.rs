//! Quorate: a Kubernetes operator and the replicated etcd-style server that it runs.
//!
//! The crate is divided into rooms (see `docs/ARCHITECTURE.md`). The pure rooms know no
//! socket, file, clock, thread or thread-local randomness: time and randomness are arguments.
//! `tests/layering.rs` holds that line.

pub mod backup;
pub mod bolt;
pub mod build;
pub mod cli;
pub mod crd;
pub mod disk;
pub mod model;
pub mod mutants;
pub mod node;
pub mod operator;
#[cfg(feature = "simulators")]
pub mod opsim;
pub mod plan;
pub mod raft;
pub mod server;
#[cfg(feature = "simulators")]
pub mod sim;
pub mod store;
pub mod wire;
