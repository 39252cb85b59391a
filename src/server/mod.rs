//! The shell that carries out the node's effects: listeners, services, peer links, threads.

pub mod access;
mod all_seats;
mod aside;
mod auth;
mod bodies;
pub mod certificates;
pub mod client_metrics;
mod clock;
mod compaction_hashes;
pub mod config;
pub mod config_file;
mod config_flags;
mod core;
#[doc(hidden)]
pub mod decoders;
mod descriptors;
mod etcd;
pub mod exit;
mod failing;
pub mod feature_gates;
pub mod flag_table;
pub mod flags;
mod gateway;
mod gateway_pieces;
mod gateway_routes;
mod gateway_socket;
pub mod handle;
mod heard;
pub mod host_facts;
mod hosts;
mod http;
mod in_turn;
mod link;
pub mod listen;
mod log_lines;
pub(crate) mod log_pipe;
pub mod member_client;
pub mod member_secure;
pub mod metrics;
pub mod operator_auth;
mod operator_proof;
mod operator_signed;
/// Members of now and of 0.1.0, for the tests of those that ask them.
#[cfg(test)]
pub(crate) use operator_signed::tests as answering;
mod maintenance;
mod maintenance_flags;
mod member_runtime;
mod ports;
mod prefixed;
mod queue;
mod quiet;
mod ready;
pub mod restore;
mod rounds;
mod runtime_state;
mod seats;
mod serving;
mod socket;
mod start;
mod stop_signals;
pub mod tls;
mod tls_auto;
mod tls_files;
#[cfg(test)]
mod tls_fixture;
pub mod tls_issue;
mod tls_names;
mod told;
mod turns;
pub mod url;

pub use config_flags::{ConfigError, HostFacts};
pub(crate) use member_runtime::refusal;
pub use start::{Core, run};
