//! Seeded simulation of whole members: `node::Member`, `node::StateMachine` and `disk` as shipped, on
//! one thread, under a virtual clock, a faulty network and faulty disks, with clients, membership
//! churn and oracles that look at every step. One seed derives everything, so a failure is
//! replayed by its number.
//!
//! Never replaces shipped logic by a model: what is simulated is only what lies outside of the
//! pure rooms (time, network, disk, the threads' scheduling).

mod answers;
mod applying;
mod auth_workload;
mod churn;
mod client;
mod clients;
mod clock;
mod counters;
mod disk_corruption;
mod effects;
mod exits;
mod faults;
mod healing;
mod host;
mod leases;
mod network;
mod options;
mod oracles;
mod process_faults;
mod run;
mod set_back;
mod streams;
mod trace;
mod watchers;
mod world;

pub use counters::Counters;
pub use options::Options;
pub use oracles::Violation;
pub use run::{Failure, Report, run};
pub use trace::Trace;
