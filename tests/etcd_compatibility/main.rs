//! What surrounds etcd's gRPC calls: its flags, its HTTP paths, its JSON gateway and the services
//! built over keys and leases. The same questions go to real etcd and to Quorate.
//!
//! Needs the tools that `tests/interop/build.sh` builds. Without them each test that compares reports that it was
//! skipped; with `QUORATE_REQUIRE_INTEROP=1` it fails instead.

// Helpers of tests end a test by panicking, and what runs in other processes has to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

mod access;
mod flags;
mod gateway;
mod health;
mod http;
mod metrics;
mod node;
mod recipes;
mod tls;
mod unix;
mod websockets;
