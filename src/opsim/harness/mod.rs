//! The world around the operator: who asks whom, who dies when, what time it is, what is really so.

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

pub use operator::CACHED;
pub use request_faults::Crash;
pub use world::{Failure, Options};
