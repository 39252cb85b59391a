//! The shell that carries out the node's effects: listeners, services, peer links, threads.

pub mod config;
pub mod url;
