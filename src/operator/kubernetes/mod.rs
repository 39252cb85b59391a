//! The operator's platform on Kubernetes: caches and live reads, server-side apply, the Lease,
//! events and probes. It carries out requests; what to do is the plan's alone.

mod act;
pub(crate) mod ahead;
mod beside;
pub mod cache;
pub(crate) mod callers;
mod certificates;
mod drift;
mod edits;
mod facts;
mod given;
pub(crate) mod indexed;
mod issued;
pub mod lease;
mod nodes;
pub mod objects;
mod ours;
pub mod passes;
pub(crate) mod platform;
pub mod probes;
mod revisions;
mod routes;
mod run;
pub(crate) mod triggers;

pub use run::{Error, MemberUser, MetricsFor, Options, run};
