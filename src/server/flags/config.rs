//! What the server was told, parsed and checked: nothing later looks at a raw flag.
//!
//! Never reads a file, a socket or the environment; `flags` does the reading and
//! [`Config::from_flags`] the judging.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::url::{ClientUrl, Endpoint};
use crate::server::auth::settings::AuthSettings;
use crate::server::http::access::Access;

/// Everything that start-up needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name (`--name`).
    pub name: String,
    /// Where log, checkpoints and identity live (`--data-dir`).
    pub data_dir: PathBuf,
    /// Where peers connect to.
    pub listen_peer_urls: Vec<Endpoint>,
    /// Where clients connect to.
    pub listen_client_urls: Vec<ClientUrl>,
    /// Where clients find HTTP alone; where given, it leaves `listen_client_urls` to gRPC.
    pub listen_client_http_urls: Vec<ClientUrl>,
    /// Additional sockets for metrics and probes alone; may be empty.
    pub listen_metrics_urls: Vec<ClientUrl>,
    /// Peer URLs as the membership shows them, sorted; at least one.
    pub advertise_peer_urls: Vec<String>,
    /// Client URLs as the membership shows them, sorted.
    pub advertise_client_urls: Vec<String>,
    /// How this member comes to belong to a cluster.
    pub formation: Formation,
    /// What ties the server to an operator.
    pub operated: Operated,
    /// Time between heartbeats of a leader, one tick of the core.
    pub heartbeat: Duration,
    /// Time without a leader after which a member campaigns.
    pub election: Duration,
    /// A cluster of one elects itself at once when it starts.
    pub hurry_first_election: bool,
    /// Ask before campaigning, so that a returning member disturbs no leader.
    pub pre_vote: bool,
    /// Refuse membership changes that would endanger the quorum.
    pub strict_reconfig_check: bool,
    /// Entries after which a checkpoint may be taken: a lower bound.
    pub snapshot_count: u64,
    /// Leave out every sync of the disk.
    pub unsafe_no_fsync: bool,
    /// Limits that are checked before a request is proposed.
    pub limits: Limits,
    /// How users are known.
    pub auth: AuthSettings,
    /// What is done in the background.
    pub maintenance: Maintenance,
    /// Certificates of the client port; absent: plain text.
    pub client_tls: Option<TlsFiles>,
    /// Certificates of the peer port; absent: plain text.
    pub peer_tls: Option<TlsFiles>,
    /// The peer port takes plain text too, until every member is dialled by TLS.
    pub peer_tls_transition: bool,
    /// The client port's TLS sockets take plain text too.
    pub client_plaintext: bool,
    /// Versions and suites for both.
    pub tls_policy: TlsPolicy,
    /// The client port's manners.
    pub client: ClientPort,
    /// What is logged and how.
    pub log: Log,
    /// A file for one JSON line that says why the server stopped.
    pub termination_message_file: Option<PathBuf>,
    /// The only hostname under which the server may start.
    pub expected_hostname: Option<String>,
    /// What to tell the user once a log exists.
    pub warnings: Vec<String>,
}

/// How a member with an empty disk comes to belong to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formation {
    /// etcd's own flags.
    InitialCluster {
        /// Peer URLs by member name, each list sorted.
        members: BTreeMap<String, Vec<String>>,
        /// Found it or join it.
        state: ClusterState,
        /// Part of the identity of cluster and members.
        token: String,
    },
    /// A standby: it founds a cluster only by an explicit call and else waits to be added.
    AwaitMembership {
        /// `host:port` or DNS names whose members know the cluster; may be empty.
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

/// What ties the server to an operator; all absent when run by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// File with the key that authorises membership calls.
    pub secret_file: Option<PathBuf>,
    /// UID of the cluster's resource.
    pub cluster_uid: Option<String>,
    /// UID of the pod, shown in the member's description.
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
    /// Largest store in bytes; absent: unlimited.
    pub quota_bytes: Option<u64>,
}

/// What is done in the background; all off unless asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// The leader compacts by itself.
    pub auto_compaction: Option<AutoCompaction>,
    /// A member that starts again compares its data with the others' before it serves clients.
    pub initial_check: bool,
    /// Time between two comparisons of all members' data by the leader.
    pub check: Option<Duration>,
    /// Time between two comparisons of what the last compaction left, by the leader.
    pub compact_check: Option<Duration>,
    /// The leader notes what remains of long leases.
    pub lease_checkpoints: bool,
}

/// What is kept by a leader that compacts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// History of so long.
    Periodic(Duration),
    /// So many revisions.
    Revisions(i64),
}

/// Files of one port's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM chain that the port shows.
    pub certificate: PathBuf,
    /// PEM key of the chain.
    pub key: PathBuf,
    /// They vouch for themselves for this many years, and are made where they are missing.
    pub self_signed_years: Option<u32>,
    /// Names that the other side's certificate must carry.
    pub allowed: AllowedNames,
    /// PEM roots that the other side's certificate must lead to.
    pub trusted_ca: Option<PathBuf>,
    /// Refuse whoever shows no certificate.
    pub client_auth: bool,
    /// Whoever shows no certificate may make calls that prove themselves otherwise, and have no
    /// link of members.
    pub calls_without: bool,
    /// PEM or DER list of revoked certificates.
    pub revoked: Option<PathBuf>,
    /// Chain to show when dialling, where it differs.
    pub client_certificate: Option<PathBuf>,
    /// Key of that chain.
    pub client_key: Option<PathBuf>,
}

/// Names of which a certificate must carry one; none: any will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedNames {
    /// Common names.
    pub common_names: Vec<String>,
    /// Alternative names: host names and addresses.
    pub hosts: Vec<String>,
}

impl AllowedNames {
    /// Whether any name will do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common_names.is_empty() && self.hosts.is_empty()
    }
}

/// Versions and suites of both ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// IANA names of the suites to offer; empty: all that the library holds safe.
    pub cipher_suites: Vec<String>,
    /// Refuse TLS 1.2.
    pub only_tls13: bool,
    /// Refuse TLS 1.3.
    pub only_tls12: bool,
}

/// The client port's manners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPort {
    /// Streams that one connection may have open; absent: no limit.
    pub max_concurrent_streams: Option<u32>,
    /// Idle time after which the server pings, and time to wait for the answer; absent: never.
    pub keepalive: Option<(Duration, Duration)>,
    /// Idle time after which a watcher that asked for it gets a sign of life.
    pub watch_progress_interval: Duration,
    /// Unary requests that take longer are logged.
    pub warn_unary: Duration,
    /// Serve JSON below `/v3/`.
    pub json_gateway: bool,
    /// Who may call over plain HTTP.
    pub access: Access,
    /// Also measure how long requests take, by method.
    pub extensive_metrics: bool,
}

/// What is logged and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least important level that is written.
    pub level: tracing::Level,
    /// JSON, one object a line; else text for people.
    pub json: bool,
    /// Write to standard output instead of standard error.
    pub stdout: bool,
}

impl Config {
    /// Ticks of the core in one election timeout.
    #[must_use]
    pub fn election_ticks(&self) -> u32 {
        let ticks = self.election.as_millis() / self.heartbeat.as_millis().max(1);
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    }

    /// How long one request may take before it is answered with a time-out: etcd's 5 s and two
    /// elections.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election
    }
}
