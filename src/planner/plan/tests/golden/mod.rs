//! Golden texts of whole situations, each compared with its file.

mod adopt;
mod alarms;
mod auto;
mod deletion;
mod faults;
mod fence;
mod follow;
mod follow_edges;
mod growth;
mod hibernate;
mod nodes;
mod objects;
mod pdb;
pub(super) mod recovery;
mod resizes;
mod server;
mod sidecars;
mod slots;
mod space;
mod spread;
mod standby;
mod tls;
mod tls_missing;
mod tls_user_certificates;
mod trust_bundle;
mod version;
mod volumes;
