//! The operator's platform on Kubernetes: caches and live reads, server-side apply, the Lease,
//! events and probes. It carries out requests; what to do is the plan's alone.

mod access;
mod act;
mod backup_notes;
pub(crate) mod backups;
mod beside;
mod bundles;
pub mod cache;
pub(crate) mod callers;
mod cert_manager;
mod certificates;
mod console;
pub(crate) mod context;
mod deletion_policy;
mod drift;
pub(crate) mod dry_run;
mod edits;
mod facts;
pub(crate) mod indexed;
mod judged;
mod kept_image;
pub(crate) mod kept_secret;
pub mod lease;
mod nodes;
pub mod objects;
mod observe;
mod ours;
mod packed;
pub(crate) mod platform;
pub mod probes;
pub mod pruned;
mod recoveries;
mod related_objects;
mod report;
mod resize;
mod revisions;
mod routes;
mod run;
mod scrape;
pub(crate) mod triggers;
pub(crate) mod trust_bundle;
mod user_certificates;
pub mod workers;

pub use lease::LeaseTimes;
pub use run::{Error, MemberUser, MetricsFor, Options, run};
