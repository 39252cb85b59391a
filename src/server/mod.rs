//! The server around the node: it carries out effects with listeners, services, peer links and
//! threads.
//!
//! | folder | what it is for |
//! |---|---|
//! | `process` | start and end of the server as a process, its log and its exit codes |
//! | `flags` | etcd's flags, environment and configuration file, validated and converted to one `Config` |
//! | `core` | the threads of a member and the handle that services use |
//! | `member_runtime` | the server among its peers: its identity, joining, checkpoints |
//! | `link` | framed messages between members on the peer port |
//! | `http2` | HTTP/2 of the client port: frames, header blocks, the state of a connection |
//! | `listen` | sockets of the client port and of the metrics port, connections and bodies |
//! | `scheduling` | fair shares of the threads that serve clients |
//! | `tls` | certificates of both ports |
//! | `auth` | how clients authenticate |
//! | `etcd` | etcd's client API, one file per service |
//! | `gateway` | the same as JSON over HTTP |
//! | `http`, `metrics` | probes, `/version`, `/metrics` |
//! | `traces` | where the time of single requests went: for slow-request lines, and spans for a collector |
//! | `operator_api` | `quorate.v1` between the operator and members |
//! | `recover` | what is left of a cluster without a quorum, read from the directories of stopped servers |
//! | `maintenance` | compaction and comparison in the background: the decisions |

mod auth;
mod core;
#[doc(hidden)]
pub mod decoders;
mod etcd;
pub mod flags;
mod gateway;
mod http;
mod http2;
mod link;
pub mod listen;
mod maintenance;
mod member_runtime;
pub mod metrics;
pub mod operator_api;
pub mod process;
pub mod recover;
pub mod restore;
mod scheduling;
pub(crate) mod snapshot_file;
pub mod tls;
mod traces;

pub use flags::from_flags::{ConfigError, HostFacts};
#[cfg(feature = "simulators")]
pub(crate) use member_runtime::refusal;
/// Simulated members of this version and of 0.1.0, for tests of their callers.
#[cfg(test)]
pub(crate) use operator_api::signed::tests as answering;
pub use process::start::run;
