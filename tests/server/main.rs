//! The built binary as a single server: the errors at its start, and its services over gRPC.
//!
//! Each test has its own loopback addresses, so that tests may run in parallel.

mod attacks;
mod backups;
mod descriptors;
mod fixture;
mod framing;
mod limits;
mod maintenance;
mod metrics;
mod other_stores;
mod requests;
mod restored;
mod snapshots;
mod start;
mod stores;
mod traces;
mod watch;
