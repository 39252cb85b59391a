//! Settings of the members' servers: `spec.server`. Unset fields have the server's own defaults. Flags and their values
//! are defined by the server: only those that have a field, or that the operator sets itself, are listed here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Settings of the members' servers. New values reach the members one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "(has(self.electionTimeoutMilliseconds) ? self.electionTimeoutMilliseconds : 1000) >= 5 * (has(self.heartbeatIntervalMilliseconds) ? self.heartbeatIntervalMilliseconds : 100)",
    "server.electionTimeoutMilliseconds (default 1000) must be at least five times server.heartbeatIntervalMilliseconds (default 100): raise the one or lower the other",
)])))]
pub struct Server {
    /// Maximum data size, such as 2Gi: at most a quarter of `storage.size`, and two fifths of the memory limit. When it
    /// is used up, writes are refused until space is freed. Default: 2Gi, or two fifths of the memory limit where that
    /// is less. With the feature gate ValuesOnDisk=true the memory limit does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0", "server.quota must be a quantity of at least 1Mi, such as 2Gi: leave the field out for the server's own")])))]
    pub quota: Option<String>,
    /// Automatic compaction of the history. Off by default: kube-apiserver and many other clients compact themselves.
    #[serde(skip_serializing_if = "AutoCompaction::is_default")]
    pub auto_compaction: AutoCompaction,
    /// Milliseconds between the leader's heartbeats, 10 to 1000. Default: 100. About the round-trip time between the
    /// members that are farthest apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 10 && self <= 1000", "server.heartbeatIntervalMilliseconds must be 10 to 1000: a member that is not heard for three seconds counts as unhealthy")])))]
    pub heartbeat_interval_milliseconds: Option<i32>,
    /// Milliseconds without a leader after which a member starts an election, 50 to 10000. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 50 && self <= 10000", "server.electionTimeoutMilliseconds must be 50 to 10000: members stay ready for ten seconds without a leader")])))]
    pub election_timeout_milliseconds: Option<i32>,
    /// Further flags of the server (`quorate server --help`), without dashes. Those with a field here or in `tls`, and
    /// those that the operator sets itself, are refused; so are unknown flags and those without effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "extra_args")]
    pub extra_args: Vec<ExtraArg>,
}

/// Automatic compaction of the history.

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("self.mode != 'Periodic' || self.retention == '0' || self.retention.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$')", "server.autoCompaction.retention must be a duration with its unit, such as 1h or 30m, with mode Periodic; 0 for off"),
    ("self.mode != 'Revision' || self.retention.matches('^[0-9]{1,9}$')", "server.autoCompaction.retention must be a number of revisions, such as 10000, with mode Revision; 0 for off"),
])))]
pub struct AutoCompaction {
    /// The unit of `retention`.
    pub mode: CompactionMode,
    /// History to keep: a duration such as `1h`, or a number of revisions. 0: everything.
    #[schemars(length(min = 1, max = 32))]
    pub retention: String,
}

impl Default for AutoCompaction {
    fn default() -> Self {
        AutoCompaction {
            mode: CompactionMode::Periodic,
            retention: "0".to_owned(),
        }
    }
}

impl AutoCompaction {
    fn is_default(&self) -> bool {
        *self == AutoCompaction::default()
    }

    /// Nothing is compacted.
    pub fn is_off(&self) -> bool {
        // `0h` is as much as `0`: no digit but zeros.
        !self.retention.contains(|c: char| ('1'..='9').contains(&c))
    }
}

/// The unit of the retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CompactionMode {
    /// Time.
    #[default]
    Periodic,
    /// Revisions.
    Revision,
}

/// A flag of the server and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraArg {
    /// Its name, without dashes.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Flags that the operator sets itself, or that would override what it sets.
pub const FLAGS_OF_OPERATOR: &[&str] = &[
    "name",
    "data-dir",
    "wal-dir",
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
    "advertise-client-urls",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "await-membership",
    "join-from",
    "cluster-uid",
    "pod-uid",
    "expected-hostname",
    "operator-secret-file",
    "termination-message-file",
    "config-file",
    "version",
    "max-learners",
    "strict-reconfig-check",
    "host-whitelist",
];

/// Flags that have a field in `spec.server`.
pub const FLAGS_OF_SERVER: &[&str] = &[
    "quota-backend-bytes",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "heartbeat-interval",
    "election-timeout",
];

/// Flags for certificates and trusted CAs.
pub const FLAGS_OF_TLS: &[&str] = &[
    "cert-file",
    "key-file",
    "trusted-ca-file",
    "client-cert-auth",
    "client-cert-file",
    "client-key-file",
    "client-crl-file",
    "client-plaintext",
    "auto-tls",
    "self-signed-cert-validity",
    "peer-cert-file",
    "peer-key-file",
    "peer-trusted-ca-file",
    "peer-client-cert-auth",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-crl-file",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-auto-tls",
    "peer-tls-transition",
];

/// `spec.server.extraArgs`.
fn extra_args(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let none_of = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        format!("!(self in [{}])", names.join(", "))
    };
    let (operator, server, tls) = (
        none_of(FLAGS_OF_OPERATOR),
        none_of(FLAGS_OF_SERVER),
        none_of(FLAGS_OF_TLS),
    );
    let rules = schema::rules(&[
        (
            "self.matches('^[a-z][a-z0-9-]*$')",
            "server.extraArgs are names of flags as in `quorate server --help`, without dashes in front, such as max-request-bytes",
        ),
        (
            &operator,
            "server.extraArgs: the operator sets this flag itself, or depends on what it is: take it out",
        ),
        (
            &server,
            "server.extraArgs: this flag has a field of its own (server.quota, server.autoCompaction, server.heartbeatIntervalMilliseconds, server.electionTimeoutMilliseconds): use that",
        ),
        (
            &tls,
            "server.extraArgs: certificates, and who is trusted, are the business of spec.tls: take this flag out",
        ),
    ]);
    schemars::json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name", "value"],
            "properties": {
                "name": {
                    "type": "string", "minLength": 1, "maxLength": 64, "x-kubernetes-validations": rules,
                    "description": "Name of the flag, without dashes in front, such as `max-request-bytes`.",
                },
                "value": {
                    "type": "string", "maxLength": 1024,
                    "description": "Its value, as it would stand after the `=`. Nothing in it is replaced.",
                },
            },
        },
    })
}

/// Timings of a member, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Between two heartbeats of a leader.
    pub heartbeat_ms: u64,
    /// Without a leader, before an election.
    pub election_ms: u64,
}

impl Default for Timings {
    /// The server's defaults.
    fn default() -> Self {
        Timings {
            heartbeat_ms: 100,
            election_ms: 1000,
        }
    }
}

impl Timings {
    /// Whether members with the two timings run without needless elections: the slower heartbeats arrive at least twice
    /// within the shorter election timeout.
    pub fn go_with(self, other: Timings) -> bool {
        2 * self.heartbeat_ms.max(other.heartbeat_ms) <= self.election_ms.min(other.election_ms)
    }
}

impl Server {
    /// The name of the flag that skips every disk sync.
    pub const NO_FSYNC: &'static str = "unsafe-no-fsync";

    /// Whether the members skip every disk sync.
    pub fn leaves_out_syncs(&self) -> bool {
        let mut flags = self.extra_args.iter();
        flags.any(|flag| flag.name == Self::NO_FSYNC && means_true(&flag.value))
    }

    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Server::default()
    }

    /// The members' timings.
    pub fn timings(&self) -> Timings {
        let own = Timings::default();
        let or =
            |asked: Option<i32>, own| asked.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(own);
        Timings {
            heartbeat_ms: or(self.heartbeat_interval_milliseconds, own.heartbeat_ms),
            election_ms: or(self.election_timeout_milliseconds, own.election_ms),
        }
    }
}

/// Go's spellings of true.
pub fn means_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}
