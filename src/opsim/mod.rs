//! Simulation of the operator: its reconciles and its executor as shipped, over a simulated Kubernetes.
//!
//! Never replaces shipped logic by a model: what is simulated is only what lies outside of the
//! operator (the API server, the controllers and nodes behind it, and the members' processes).

pub mod api;
mod edits;
mod faults;
mod harness;
pub mod kube;
mod oracles;
mod rolled;
mod run;
mod scale;
mod scenarios;
mod servers;
mod user;
mod user_certificates;
mod work;

pub use api::Kind;
pub use edits::{EditCounts, describe_edits, edit_paths, edited_fields, edits};
pub use harness::{CACHED, CACHED_OF_BACKUPS, Crash, Failure, Options};
pub use oracles::Violation;
pub use rolled::{Rolled, rolled};
pub use run::{Counts, Outcome, Scenario, Wrong, compare, crash_points, difference, explain, run};
pub use scale::{Rested, ScaleTest};
pub use scenarios::all as scenarios;
