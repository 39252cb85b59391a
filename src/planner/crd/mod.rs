//! Custom resource types, defaults, CEL rules, printer columns and the condition vocabulary.
//!
//! A field is in the schema only when it has an effect. The API server refuses any other one (`kubectl apply` validates
//! strictly), and [`parse()`] refuses it for files that are not sent to an API server. Types and rules only: nothing
//! here talks to Kubernetes.

pub mod access;
mod autogrow;
pub mod backups;
mod bootstrap;
mod condition;
mod deletion;
mod fence;
mod follow;
mod image;
mod labels;
mod network;
mod parse;
mod pod;
mod quantity;
mod ready;
mod recovery;
#[cfg(test)]
mod recovery_test;
mod replica;
mod schema;
mod server;
mod service;
mod spec;
mod status;
mod tls;
mod validate;

#[cfg(test)]
mod server_test;
#[cfg(test)]
mod service_test;
#[cfg(test)]
mod tests;

pub use autogrow::{Autogrow, Growth};
pub use bootstrap::{Adopt, Bootstrap, Moment, Restore};
pub use condition::{ConditionStatus, ConditionType};
pub use deletion::BackupBeforeDeletion;
pub use fence::fenced_members;
pub use follow::{
    Cutover, Follow, FollowPhase, FollowStatus, FollowTls, FollowUser, FollowedCluster, Until,
};
pub use image::{ImageError, ImageReference};
pub use labels::*;
pub use network::NetworkAccess;
pub use parse::{ParseError, definition_yaml, definitions, parse};
pub use pod::{PodMetadata, PodSpecSubset, PodTemplate};
pub use quantity::{Quantity, QuantityError, bytes_of, thousandths_of};
pub use ready::{READY, ready_condition};
pub use recovery::{
    DataSource, EtcdRecovery, EtcdRecoverySpec, EtcdRecoveryStatus, ExpectedDisk, RecoveryPhase,
    Survivor,
};
pub use replica::{Promote, PromoteMode, ReplicaOf};
pub use server::{
    AutoCompaction, CompactionMode, ExtraArg, FLAGS_OF_OPERATOR, FLAGS_OF_SERVER, FLAGS_OF_TLS,
    Server, Timings, means_true,
};
pub use service::{IpFamily, IpFamilyPolicy, ServiceOptions, ServiceType};
pub use spec::{
    Disruption, DisruptionPolicy, EtcdCluster, EtcdClusterSpec, Healing, NodeReplacement,
    Resources, Retention, RetentionPolicy, Scheduling, Spread, Storage, StorageType,
    UpdateStrategy, UpdateType, VolumeMobility,
};
pub use status::{
    ArchivedPoint, CertificateStatus, ClusterBackups, Disarms, Endpoints, EtcdClusterStatus,
    FailingAct, JoinFailures, Leftover, MemberDisk, MemberHealth, MemberRole, MemberStatus,
    NoteStatus, RestorePhase, RestoreStatus, SecretReference, StepState, StepStatus,
};
pub use tls::{
    ANNOTATION_REQUEST_PORT, CertificateSource, ClientAuth, IssuerRef, MEMBER_SIGNER, Plaintext,
    PortTls, PublishCas, Tls, TlsPort, UserSecretRef, authority_secret_name,
    cert_manager_certificate_name, client_certificate_name, is_named, member_certificate_name,
    signer_name, trust_bundle_name,
};
pub use validate::{Invalid, ValidatedCluster, validate};
