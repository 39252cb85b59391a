//! What Quorate has in common with etcd for others: the same protobuf descriptors, and client
//! libraries that we did not write, each at a pinned version, telling one story to three members
//! of ours and to three of real etcd. In the story the leader is killed under a watch.
//!
//! Each client is a separate program in a folder here. Its prerequisites (Go, Python, Node) are checked; a test without
//! them reports that it was skipped, and fails instead with `QUORATE_REQUIRE_INTEROP=1`.

// Helpers of tests end a test by panicking, and what runs in other processes has to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

mod clients;
#[path = "../etcdctl/cluster.rs"]
#[allow(dead_code)]
mod cluster;
mod descriptors;
#[path = "../etcdctl/process.rs"]
#[allow(dead_code)]
mod process;
