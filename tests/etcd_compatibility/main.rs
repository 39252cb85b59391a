//! The parts of etcd's interface around the gRPC calls: flags, HTTP paths, the JSON gateway, and the services built on
//! keys and leases. Each test sends the same requests to real etcd and to Quorate and compares the responses.
//!
//! Needs the tools that `tests/interop/build.sh` builds. Without them each test that compares reports that it was
//! skipped; with `QUORATE_REQUIRE_INTEROP=1` it fails instead.

// Helpers fail a test by panicking, and other processes have to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

mod access;
mod backups;
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
