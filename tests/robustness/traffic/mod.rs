//! Clients and watchers: they send requests, watch, and record the answers. They judge nothing.

pub(crate) mod client;
pub(crate) mod load;
pub(crate) mod watcher;
