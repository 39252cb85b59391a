//! Clients and watchers: they ask, watch, and record what they are told. They judge nothing.

pub(crate) mod client;
pub(crate) mod load;
pub(crate) mod watcher;
