//! Seeded simulation of whole members: `node::Member`, `node::Machine` and `disk` as shipped, on
//! one thread, under a virtual clock, a faulty network and faulty disks, with clients, membership
//! churn and oracles that look at every step. One seed derives everything, so a failure is
//! replayed by its number.
//!
//! Never replaces shipped logic by a model: what is simulated is only what lies outside of the
//! pure rooms (time, network, disk, the threads' scheduling).

mod clock;
mod counters;
mod network;
mod oracles;
mod trace;

pub use counters::Counters;
pub use trace::Trace;
