//! Who gets how much of the threads that serve clients, and when: each host its share, long work in
//! slices, dear work on threads beside, and the core to Raft's thread where that one waits for it.
//!
//! Never knows what a request asks for.

pub(in crate::server) mod aside;
pub(in crate::server) mod failing;
pub(in crate::server) mod hosts;
pub(in crate::server) mod in_turn;
pub(in crate::server) mod rounds;
pub(in crate::server) mod turns;
