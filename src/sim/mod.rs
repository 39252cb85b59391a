//! Seeded simulation of whole members: `node::Member`, `node::Machine` and `disk` as shipped, on
//! one thread, under a virtual clock, a faulty network and faulty disks, with clients, membership
//! churn and oracles that look at every step. One seed derives everything, so a failure is
//! replayed by its number.
//!
//! Never replaces shipped logic by a model: what is simulated is only what lies outside of the
//! pure rooms (time, network, disk, the threads' scheduling).

mod answers;
mod applying;
mod churn;
mod client;
mod clients;
mod clock;
mod counters;
mod effects;
mod faults;
mod host;
mod leases;
mod mishaps;
mod network;
mod options;
mod oracles;
mod rot;
mod run;
mod set_back;
mod streams;
mod trace;
mod warden;
mod watchers;
mod world;

pub use counters::Counters;
pub use options::Options;
pub use oracles::Violation;
pub use run::{Failure, Report, run};
pub use trace::Trace;
