//! Runs real etcdctl against Quorate's server and, with the same commands, against real etcd: the transcripts must be
//! equal except for names, ports and times.
//!
//! Needs the tools that `tests/interop/build.sh` builds. Without them each test reports that it was skipped; with
//! `QUORATE_REQUIRE_INTEROP=1` it fails instead.

// Helpers fail a test by panicking, and other processes have to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

mod alarms;
mod auth;
mod auth_certificates;
mod auth_requests;
mod cluster;
mod differences;
mod hashes;
mod keys;
mod leases;
mod maintenance;
mod members;
mod process;
mod restores;
mod snapshots;
mod story;
mod watches;
