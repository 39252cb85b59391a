//! Clients and watchers: they send requests, watch, and record the responses. They contain no checks.

pub(crate) mod client;
pub(crate) mod load;
pub(crate) mod watcher;
