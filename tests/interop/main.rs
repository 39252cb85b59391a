//! Checks what clients depend on: equal protobuf descriptors, and third-party client libraries, each at a pinned
//! version, which run the same story against three members of ours and three of real etcd. In the story the leader is
//! killed during a watch.
//!
//! Applications that have nothing but a connection Secret do what their users may, in five languages (`connections`).
//!
//! Each client is a separate program in a folder here. Its prerequisites (Go, Python, Node, Java) are checked; a test
//! without them reports that it was skipped, and fails instead with `QUORATE_REQUIRE_INTEROP=1`.

// Helpers fail a test by panicking, and other processes have to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

#[path = "../cluster/address.rs"]
mod address;
mod clients;
#[path = "../etcdctl/cluster.rs"]
#[allow(dead_code)]
mod cluster;
mod connections;
mod conversation;
mod descriptors;
#[path = "../etcdctl/process.rs"]
#[allow(dead_code)]
mod process;
mod programs;
