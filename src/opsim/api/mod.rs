//! A simulated Kubernetes API server: a plain value in memory, on one thread, without a clock or
//! randomness of its own. [`ApiServer::set_now_ms`] sets its clock; its UIDs come from a seed.
//!
//! Two ways in:
//!
//! - [`SharedApiServer::client`] gives a real `kube::Client` for one named actor. Each of its requests goes
//!   past the [`Interceptor`], which may refuse it, lose its reply or stop its caller for ever.
//! - Methods ([`ApiServer::create`], [`ApiServer::replace`], [`ApiServer::patch`],
//!   [`ApiServer::delete`], [`ApiServer::get`], [`ApiServer::list`]) follow the same rules for a
//!   user or a test, without the interceptor; [`ApiServer::edit`] is for the simulated controllers
//!   and nodes, which write object and status at once and past the rules for users.
//!
//! Every version of every object is kept: [`ApiServer::versions`] is what a harness feeds caches
//! from, as late as it likes, and what watches read.
//!
//! It follows real Kubernetes 1.34: global revisions, optimistic concurrency, UIDs, generations,
//! finalizers, graceful deletion, preconditions, status apart from the specification, server-side
//! apply with owners of fields, defaults and immutable fields of the kinds in [`Kind`]. What it
//! does not model it refuses with 501 `NotModelled` and notes in [`ApiServer::not_modelled`], which
//! a harness must find empty. It differs knowingly in one thing: objects are shown without
//! `managedFields` ([`ApiServer::managed_fields`] shows them).

mod apply;
mod defaults;
mod delete;
mod evict;
mod families;
mod fields;
mod kinds;
pub mod object;
mod refusal;
mod resize;
mod rights;
mod schema;
mod selector;
mod server;
mod service;
mod shape;
mod validate;
mod watch;
mod webhook;
mod write;

#[cfg(test)]
mod families_test;
#[cfg(test)]
mod recorded_test;
#[cfg(test)]
mod tests;

pub(in crate::opsim) use defaults::JOB_UID;
pub use delete::{Delete, Propagation};
pub use kinds::Kind;
pub use refusal::Refusal;
pub use rights::permitted;
pub use selector::{Selector, label_selector_fits, requirement_fits};
pub use server::{ApiServer, Change, Version};
pub use service::{Broken, Call, Connection, Interceptor, Reply, SharedApiServer, Verb, Verdict};
pub(in crate::opsim) use webhook::{SIDECAR, SIDECAR_INIT};
pub use write::Patch;
