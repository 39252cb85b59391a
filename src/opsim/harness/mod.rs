//! The world around the operator: requests between components, failures, the time, the true state.

pub(crate) mod backup_truth;
mod backups;
pub(crate) mod containers;
mod end;
mod feed;
mod final_checks;
pub(crate) mod ground_truth;
pub(crate) mod intruder;
mod monitor;
pub(crate) mod operator;
mod pdbs;
pub(crate) mod request_faults;
mod rights;
mod second_leader;
pub(crate) mod world;

pub use backups::CACHED_OF_BACKUPS;
pub use operator::CACHED;
pub use request_faults::Crash;
pub use world::{Failure, Options};
