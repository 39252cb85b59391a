//! Checks what clients depend on: equal protobuf descriptors, and third-party client libraries, each at a pinned
//! version, which run the same story against three members of ours and three of real etcd. In the story the leader is
//! killed during a watch.
//!
//! Each client is a separate program in a folder here. Its prerequisites (Go, Python, Node) are checked; a test
//! without them reports that it was skipped, and fails instead with `QUORATE_REQUIRE_INTEROP=1`.

// Helpers fail a test by panicking, and other processes have to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

mod clients;
#[path = "../etcdctl/cluster.rs"]
#[allow(dead_code)]
mod cluster;
mod conversation;
mod descriptors;
#[path = "../etcdctl/process.rs"]
#[allow(dead_code)]
mod process;
mod programs;
