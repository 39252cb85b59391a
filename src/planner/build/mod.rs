//! Pure: a validated cluster to Kubernetes objects, one file a kind. The same cluster and settings
//! give the same objects; nothing is read, and nothing that another room decides is decided here.
//!
//! Drift is a difference of *inputs* (the part of the spec from which an object is rendered), stored as a hash on the
//! object next to the builder's number. A newer builder that would render differently therefore changes nothing until
//! the inputs change or the member is recreated.

mod backup_job;
mod cert_manager;
mod certificates;
mod common;
mod connection;
mod earlier;
mod follow_job;
mod image;
mod member;
mod network;
mod pdb;
mod pod;
mod pvc;
mod rbac;
mod resize;
mod revision;
mod secret;
mod server;
mod service;
mod trust_bundle;

#[cfg(test)]
mod backup_test;
#[cfg(test)]
mod connection_test;
#[cfg(test)]
mod release_test;
#[cfg(test)]
mod server_test;
#[cfg(test)]
mod service_test;
#[cfg(test)]
mod tests;

pub use backup_job::{
    BACKUP_CONTAINER, BackupOwner, BackupWork, KEY_OF_MEMBER, KEY_OF_SURVIVOR, Recovers,
    backup_job, backup_job_name, backup_key_name, backup_key_secret, backup_location, store_url,
};
pub use cert_manager::{
    Certificate, CertificateCondition, CertificateSpec, CertificateStatus, Issue,
    cert_manager_certificate, cert_manager_names, issue_of,
};
pub use certificates::{
    ANNOTATION_ROTATED, AuthorityContent, CA_CERTIFICATES, CA_KEY, CERTIFICATE,
    CERTIFICATE_COMPONENT, CERTIFICATE_KEY, NEXT_CERTIFICATE, NEXT_KEY, POD_CERTIFICATE_SECONDS,
    POD_KEY, TRANSITION, authority_secret, certificate_names, certificate_secret,
    mounted_user_secrets, pod_key_secret, ports_with_pod_keys, secret_text, speaks_tls,
    takes_plain_peers, wanted_certificates,
};
pub use common::{
    BUILDER, CLIENT_PORT, METRICS_PORT, PEER_PORT, Settings, USER, owner, resource_objects,
    wanted_inputs, wanted_objects, wanted_slot_inputs,
};
pub use connection::{
    CONNECTION_KEYS, ConnectionContent, ENDPOINTS, KAMAJI_DATASTORE, KUBE_APISERVER_FLAGS,
    PASSWORD, USERNAME, connection_data, connection_secret,
};
pub use earlier::stateful_set_by;
pub use image::OwnImage;
pub use member::{client_endpoint, client_url, host, peer_url, server_arguments, slot_endpoints};
pub use network::network_policy;
pub use pdb::{pdb, pdb_without_evictions};
pub use pod::{CONTAINER, SetOptions, stateful_set};
pub use pvc::{PvcSize, asked_storage, pvc, read_asked_storage, size_in_words};
pub use rbac::{
    cluster_role_yaml, every_rule, lease_rules, pod_certificate_rules, rules, rules_yaml,
    signer_rules, trust_bundle_rules,
};
pub use resize::{
    lacks_room, resize_asked, resize_change, resize_done, resize_infeasible, resize_is_asked,
    resize_of, resize_refused,
};
pub use revision::{hash_of_spec, revision, spec_hash, spec_of};
pub use secret::{
    identity_secret, is_kept_secret_data, operator_key, operator_secret, read_identity_secret,
};
pub use server::{container_arguments, container_image, server_facts, server_flags};
pub use service::{
    client_service, families_of, peers_service, service, slot_member, slot_service,
    with_added_family, without_families,
};
pub use trust_bundle::{TRUST_BUNDLES, owner_of_trust_bundle, trust_bundle, trust_bundle_of};
