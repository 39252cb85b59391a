//! The server as a process: its start and end, signals, exit codes, log lines, and facts about the
//! machine. Knows nothing of keys, and of Raft only when to begin and to end.

pub(in crate::server) mod allocator;
pub(in crate::server) mod clock;
pub(in crate::server) mod descriptors;
pub mod exit;
pub mod host_facts;
pub(in crate::server) mod log_file;
pub(in crate::server) mod log_lines;
pub(in crate::server) mod log_outputs;
pub(crate) mod log_pipe;
pub(in crate::server) mod ready;
pub(in crate::server) mod start;
pub(in crate::server) mod stop_signals;
