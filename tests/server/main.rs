//! The built binary as one server: what it refuses at start, and its services over gRPC.
//!
//! Each test has loopback addresses of its own, so that tests may run side by side.

mod attacks;
mod descriptors;
mod fixture;
mod limits;
mod maintenance;
mod requests;
mod restored;
mod snapshots;
mod start;
mod watch;
