//! The server's settings, parsed and validated: no later code reads a raw flag.
//!
//! Never reads a file, a socket or the environment; `flags` reads them and [`Config::from_flags`]
//! validates.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::feature_gates::Gates;
use super::log::Log;
use super::tracing::Tracing;
use super::url::{ClientUrl, Endpoint};
use crate::server::auth::settings::AuthSettings;
use crate::server::http::access::Access;

/// The settings for start-up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name (`--name`).
    pub name: String,
    /// The directory of log, checkpoints and identity (`--data-dir`).
    pub data_dir: PathBuf,
    /// Where peers connect.
    pub listen_peer_urls: Vec<Endpoint>,
    /// Where clients connect.
    pub listen_client_urls: Vec<ClientUrl>,
    /// Where clients find HTTP only; if given, `listen_client_urls` serves only gRPC.
    pub listen_client_http_urls: Vec<ClientUrl>,
    /// Additional sockets for metrics and probes only; may be empty.
    pub listen_metrics_urls: Vec<ClientUrl>,
    /// Peer URLs as published in the membership, sorted; at least one.
    pub advertise_peer_urls: Vec<String>,
    /// Client URLs as published in the membership, sorted.
    pub advertise_client_urls: Vec<String>,
    /// How this member joins or founds a cluster.
    pub formation: Formation,
    /// Settings of a server that is run by an operator.
    pub operated: Operated,
    /// Heartbeat interval of a leader, one tick of the core.
    pub heartbeat: Duration,
    /// Time without a leader after which a member campaigns.
    pub election: Duration,
    /// The sole voter of a cluster campaigns at once when it starts, several as soon as all are connected.
    pub hurry_first_election: bool,
    /// Pre-vote before campaigning, so that a returning member does not depose a leader.
    pub pre_vote: bool,
    /// Refuse membership changes that would endanger the quorum.
    pub strict_reconfig_check: bool,
    /// The least number of entries between two checkpoints.
    pub snapshot_count: u64,
    /// Skip every sync of the disk.
    pub unsafe_no_fsync: bool,
    /// Limits that are checked before a request is proposed.
    pub limits: Limits,
    /// How users authenticate.
    pub auth: AuthSettings,
    /// Background maintenance.
    pub maintenance: Maintenance,
    /// Certificates of the client port; `None`: plain text.
    pub client_tls: Option<TlsFiles>,
    /// Certificates of the peer port; `None`: plain text.
    pub peer_tls: Option<TlsFiles>,
    /// The peer port accepts plain text too, until every member is dialled by TLS.
    pub peer_tls_transition: bool,
    /// The client port's TLS sockets accept plain text too.
    pub client_plaintext: bool,
    /// TLS versions and cipher suites of both ports.
    pub tls_policy: TlsPolicy,
    /// Settings of the client port.
    pub client: ClientPort,
    /// The log's level, format and output.
    pub log: Log,
    /// Where spans of requests go; `None`: nowhere.
    pub tracing: Option<Tracing>,
    /// A file for one JSON line with the reason for which the server stopped.
    pub termination_message_file: Option<PathBuf>,
    /// The only hostname on which the server may start.
    pub expected_hostname: Option<String>,
    /// Warnings for the user, logged once a log exists.
    pub warnings: Vec<String>,
}

/// How a member with an empty disk joins or founds a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formation {
    /// etcd's own flags.
    InitialCluster {
        /// Peer URLs by member name, each list sorted.
        members: BTreeMap<String, Vec<String>>,
        /// Whether to found the cluster or to join it.
        state: ClusterState,
        /// Part of the identity of cluster and members.
        token: String,
    },
    /// A standby: it founds a cluster only on an explicit call, and otherwise waits to be added.
    AwaitMembership {
        /// `host:port` or DNS names of servers that know the cluster; may be empty.
        join_from: Vec<String>,
    },
}

/// `--initial-cluster-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Every member of `--initial-cluster` starts with an empty disk.
    New,
    /// The member has been added to a running cluster.
    Existing,
}

/// Settings of a server that is run by an operator; all `None` when run by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// File with the key that authorises membership calls.
    pub secret_file: Option<PathBuf>,
    /// UID of the cluster's resource.
    pub cluster_uid: Option<String>,
    /// UID of the pod, included in the member's description.
    pub pod_uid: Option<String>,
}

/// Limits that are checked before a request is proposed, never at apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request, as its entry in the log, in bytes.
    pub max_request_bytes: u64,
    /// Most operations in one list of a transaction.
    pub max_txn_ops: u64,
    /// Most learners at a time.
    pub max_learners: u64,
    /// Largest store in bytes; `None`: unlimited.
    pub quota_bytes: Option<u64>,
    /// With values in files: the most bytes of the store that stay in memory; `None`: unlimited.
    pub in_memory_bytes: Option<u64>,
}

/// Background maintenance; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// The leader compacts automatically.
    pub auto_compaction: Option<AutoCompaction>,
    /// A restarted member compares its data with the others' before it serves clients.
    pub initial_check: bool,
    /// Interval between two comparisons of all members' data by the leader.
    pub check: Option<Duration>,
    /// Interval between two comparisons of what the last compaction left, by the leader.
    pub compact_check: Option<Duration>,
    /// The leader checkpoints the remaining TTL of long leases.
    pub lease_checkpoints: bool,
    /// Whether checkpoints move values to files.
    pub values_on_disk: ValuesOnDisk,
}

/// Whether checkpoints move values to files, which 0.1.0 cannot read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValuesOnDisk {
    /// Never.
    Never,
    /// Once every member is of a release that can read them. The quota follows the memory limit.
    #[default]
    OnceAllCan,
    /// From the start. Data may be larger than memory.
    Always,
}

/// The history that automatic compaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// History of this duration.
    Periodic(Duration),
    /// This number of revisions.
    Revisions(i64),
}

/// Files of one port's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM chain that the port presents.
    pub certificate: PathBuf,
    /// PEM key of the chain.
    pub key: PathBuf,
    /// The certificates are self-signed, valid for this many years, and created if they are
    /// missing.
    pub self_signed_years: Option<u32>,
    /// Names that the other side's certificate must carry.
    pub allowed: AllowedNames,
    /// PEM CA certificates that verify the other side's certificate.
    pub trusted_ca: Option<PathBuf>,
    /// Refuse clients without a certificate.
    pub client_auth: bool,
    /// Clients without a certificate may make calls with another proof, but may not link as a
    /// member.
    pub calls_without: bool,
    /// PEM or DER list of revoked certificates.
    pub revoked: Option<PathBuf>,
    /// Chain to present when dialling, if it differs.
    pub client_certificate: Option<PathBuf>,
    /// Key of that chain.
    pub client_key: Option<PathBuf>,
}

/// Names of which a certificate must contain one; none: any name is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedNames {
    /// Common names.
    pub common_names: Vec<String>,
    /// Alternative names: host names and addresses.
    pub hosts: Vec<String>,
}

impl AllowedNames {
    /// Whether any name is accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common_names.is_empty() && self.hosts.is_empty()
    }
}

/// TLS versions and cipher suites of both ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// IANA names of the suites to offer; empty: all that the library considers secure.
    pub cipher_suites: Vec<String>,
    /// Refuse TLS 1.2.
    pub only_tls13: bool,
    /// Refuse TLS 1.3.
    pub only_tls12: bool,
}

/// Settings of the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPort {
    /// Concurrent streams of one connection; `None`: no limit.
    pub max_concurrent_streams: Option<u32>,
    /// Idle time after which the server pings, and time to wait for the response; `None`: never.
    pub keepalive: Option<(Duration, Duration)>,
    /// Idle time after which a watcher that requested it gets a progress notification.
    pub watch_progress_interval: Duration,
    /// Unary requests that take longer are logged.
    pub warn_unary: Duration,
    /// Serve JSON below `/v3/`.
    pub json_gateway: bool,
    /// Access control for plain HTTP.
    pub access: Access,
    /// Also measure the duration of requests, by method.
    pub extensive_metrics: bool,
    /// HTTP/2 by this server's own code.
    pub own_http2: bool,
    /// The feature gates, to be told.
    pub gates: Gates,
}

impl Config {
    /// Ticks of the core in one election timeout.
    #[must_use]
    pub fn election_ticks(&self) -> u32 {
        let ticks = self.election.as_millis() / self.heartbeat.as_millis().max(1);
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    }

    /// Timeout of one request: etcd's 5 s and two election timeouts.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election
    }
}
