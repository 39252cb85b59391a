//! The scheduling of the threads that serve clients: each host gets its share, long work runs in
//! slices, expensive work on other threads, and the core goes to the raft thread while that one
//! waits for it.
//!
//! Never knows the requests.

pub(in crate::server) mod aside;
pub(in crate::server) mod failing;
pub(in crate::server) mod hosts;
pub(in crate::server) mod in_turn;
pub(in crate::server) mod rounds;
pub(in crate::server) mod turns;
pub(in crate::server) mod within;
