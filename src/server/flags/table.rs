//! Every flag of the server, etcd's and our own, with its class, in one table.
//!
//! The parser, `--help` and the documentation are derived from this table alone. A flag has the
//! class [`Class::Effect`] only if it changes the server's behaviour.

use super::feature_gates::GATES;

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// Heading in the help.
    pub group: Group,
    /// How its value is parsed.
    pub kind: Kind,
    /// Default value.
    pub default: &'static str,
    /// The effect of giving it.
    pub class: Class,
    /// One line for the help.
    pub help: &'static str,
}

/// Headings of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The member itself.
    Member,
    /// How it joins or founds a cluster.
    Clustering,
    /// Settings for an operator.
    Operator,
    /// Certificates and users.
    Security,
    /// Logs, metrics and traces.
    Observation,
    /// Background maintenance.
    Maintenance,
    /// Flags that may lose data.
    Unsafe,
    /// Names that etcd has removed.
    Removed,
}

/// How a value is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Go's booleans; bare means true.
    Bool,
    /// Any text.
    Text,
    /// A whole number from 0.
    Number,
    /// A whole number.
    Signed,
    /// Go's durations: `100ms`, `1h30m`, `0`, `-1s`.
    Duration,
    /// One of these.
    Choice(&'static [&'static str]),
}

/// The effect of giving a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It changes the server's behaviour.
    Effect,
    /// It is accepted with a warning that explains why it has no effect.
    Accepted(&'static str),
    /// It is refused, unless it asks for the present behaviour; the text is the remedy.
    Refused(&'static str),
}

use Class::{Accepted, Effect, Refused};
use Group::{Clustering, Maintenance, Member, Observation, Operator, Removed, Security, Unsafe};
use Kind::{Bool, Choice, Duration, Number, Signed, Text};

const BBOLT: &str = "there is no bbolt file to tune";
const DISCOVERY: &str = "give --initial-cluster with every member";
const GATE: &str = "etcd removed the name: give --feature-gates";

const fn flag(
    name: &'static str,
    group: Group,
    kind: Kind,
    default: &'static str,
    class: Class,
    help: &'static str,
) -> Flag {
    Flag {
        name,
        group,
        kind,
        default,
        class,
        help,
    }
}

/// The table, by group and then in etcd's order.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    flag("name", Member, Text, "default", Effect, "Name of this member, unique in its cluster."),
    flag("data-dir", Member, Text, "", Effect, "Directory for log, checkpoints and identity; '<name>.etcd' if not given."),
    flag("wal-dir", Member, Text, "", Refused("the log lives in --data-dir: put that directory on the fast volume"), "Directory for the log alone."),
    flag("snapshot-count", Member, Number, "10000", Effect, "Fewest entries between two checkpoints, 10000 if 0; the size of the log decides above that. Unless the feature gate ValuesOnDisk is false, so much log that it should not stay in memory makes one due before that."),
    flag("snapshot-catchup-entries", Member, Number, "5000", Accepted("the log is kept by size, for as long as an active member needs it"), "Entries kept for a slow member."),
    flag("heartbeat-interval", Member, Number, "100", Effect, "Milliseconds between heartbeats."),
    flag("election-timeout", Member, Number, "1000", Effect, "Milliseconds without a leader before an election; at least five heartbeats."),
    flag("initial-election-tick-advance", Member, Bool, "true", Effect, "A cluster of one elects itself at once when it starts, a larger one as soon as all its voters are connected."),
    flag("listen-peer-urls", Member, Text, "http://localhost:2380", Effect, "URLs to listen on for other members."),
    flag("listen-client-urls", Member, Text, "http://localhost:2379", Effect, "URLs to listen on for clients, http, https, unix or unixs: gRPC and HTTP on one socket."),
    flag("listen-client-http-urls", Member, Text, "", Effect, "URLs for HTTP alone: JSON, probes and metrics; --listen-client-urls then serve gRPC alone."),
    flag("max-snapshots", Member, Number, "5", Accepted("two checkpoints are kept"), "Checkpoints to keep."),
    flag("max-wals", Member, Number, "5", Accepted("the log from the older checkpoint on is kept"), "Log segments to keep."),
    flag("memory-mlock", Member, Bool, "false", Accepted("pages are not locked; turn swap off instead"), "Keep memory from being swapped."),
    flag("quota-backend-bytes", Member, Signed, "0", Effect, "Largest store in bytes; 0 is 2 GiB or less where the memory limit is small; negative is unlimited. With the feature gate ValuesOnDisk=true the memory limit does not count."),
    flag("backend-bbolt-freelist-type", Member, Choice(&["map", "array"]), "map", Accepted(BBOLT), "Kind of bbolt's freelist."),
    flag("backend-batch-interval", Member, Duration, "0", Accepted(BBOLT), "Longest time between bbolt's commits."),
    flag("backend-batch-limit", Member, Signed, "0", Accepted(BBOLT), "Most operations between bbolt's commits."),
    flag("max-txn-ops", Member, Number, "128", Effect, "Most operations in one list of a transaction."),
    flag("max-request-bytes", Member, Number, "1572864", Effect, "Largest request in bytes."),
    flag("max-concurrent-streams", Member, Number, "4294967295", Effect, "Most streams that one client connection has open."),
    flag("grpc-keepalive-min-time", Member, Duration, "5s", Accepted("clients that ping more often are not sent away"), "Shortest time between a client's pings."),
    flag("grpc-keepalive-interval", Member, Duration, "2h", Effect, "Time between the server's pings of a client; 0 turns them off."),
    flag("grpc-keepalive-timeout", Member, Duration, "20s", Effect, "Time to wait for the answer to a ping; 0 turns pings off."),
    flag("socket-reuse-port", Member, Bool, "false", Refused("two servers must not share a port: give another port"), "Share the port with another process."),
    flag("socket-reuse-address", Member, Bool, "false", Accepted("a port that waits to be freed is always reused"), "Bind to a port that waits to be freed."),
    flag("enable-grpc-gateway", Member, Bool, "true", Effect, "Serve JSON under /v3/."),
    flag("raft-read-timeout", Member, Duration, "5s", Accepted("links to peers have time-outs of their own"), "Time to wait for a peer's bytes."),
    flag("raft-write-timeout", Member, Duration, "5s", Accepted("links to peers have time-outs of their own"), "Time to wait for a peer to take bytes."),
    flag("feature-gates", Member, Text, "", Effect, "Comma-separated name=true|false; --help lists the gates."),
    flag("config-file", Member, Text, "", Effect, "YAML or JSON file with settings; every other flag and variable is then ignored."),
    flag("version", Member, Bool, "false", Effect, "Print the version and leave."),

    flag("initial-advertise-peer-urls", Clustering, Text, "http://localhost:2380", Effect, "Peer URLs of this member as the others see them."),
    flag("initial-cluster", Clustering, Text, "", Effect, "name=URL of every first member, comma-separated; this member alone if not given."),
    flag("initial-cluster-state", Clustering, Choice(&["new", "existing"]), "new", Effect, "'new' to found a cluster, 'existing' to join one that has added this member."),
    flag("initial-cluster-token", Clustering, Text, "etcd-cluster", Effect, "Part of the cluster's identity: distinguishes clusters with the same URLs."),
    flag("advertise-client-urls", Clustering, Text, "http://localhost:2379", Effect, "Client URLs of this member as clients see them."),
    flag("discovery", Clustering, Text, "", Refused(DISCOVERY), "Address of a v2 discovery service."),
    flag("discovery-token", Clustering, Text, "", Refused(DISCOVERY), "Token of a v3 discovery."),
    flag("discovery-endpoints", Clustering, Text, "", Refused(DISCOVERY), "Addresses of a v3 discovery service."),
    flag("discovery-dial-timeout", Clustering, Duration, "2s", Accepted("there is no discovery"), "Time to connect to discovery."),
    flag("discovery-request-timeout", Clustering, Duration, "5s", Accepted("there is no discovery"), "Time for a discovery request."),
    flag("discovery-keepalive-time", Clustering, Duration, "2s", Accepted("there is no discovery"), "Time between discovery pings."),
    flag("discovery-keepalive-timeout", Clustering, Duration, "6s", Accepted("there is no discovery"), "Time to wait for a discovery ping."),
    flag("discovery-insecure-transport", Clustering, Bool, "true", Accepted("there is no discovery"), "No TLS for discovery."),
    flag("discovery-insecure-skip-tls-verify", Clustering, Bool, "false", Accepted("there is no discovery"), "Trust any discovery service."),
    flag("discovery-cert", Clustering, Text, "", Accepted("there is no discovery"), "Certificate for discovery."),
    flag("discovery-key", Clustering, Text, "", Accepted("there is no discovery"), "Key for discovery."),
    flag("discovery-cacert", Clustering, Text, "", Accepted("there is no discovery"), "Roots for discovery."),
    flag("discovery-user", Clustering, Text, "", Accepted("there is no discovery"), "User for discovery."),
    flag("discovery-password", Clustering, Text, "", Accepted("there is no discovery"), "Password for discovery."),
    flag("discovery-fallback", Clustering, Choice(&["exit", "proxy"]), "exit", Refused(DISCOVERY), "What to do when discovery fails."),
    flag("discovery-proxy", Clustering, Text, "", Refused(DISCOVERY), "HTTP proxy for discovery."),
    flag("discovery-srv", Clustering, Text, "", Refused(DISCOVERY), "DNS domain with SRV records of the members."),
    flag("discovery-srv-name", Clustering, Text, "", Refused(DISCOVERY), "Suffix of the SRV records' name."),
    flag("strict-reconfig-check", Clustering, Bool, "true", Effect, "Refuse membership changes that would endanger the quorum."),
    flag("pre-vote", Clustering, Bool, "true", Effect, "Ask before an election, so that a returning member disturbs no leader."),
    flag("max-learners", Clustering, Signed, "1", Effect, "Most learners at a time; 3 with --await-membership."),
    flag("v2-deprecation", Clustering, Text, "write-only", Accepted("there is no v2 store"), "Phase of the v2 store's end."),

    flag("await-membership", Operator, Bool, "false", Effect, "An empty disk waits as a standby: it founds a cluster by an explicit call only and else joins once it has been added."),
    flag("join-from", Operator, Text, "", Effect, "Comma-separated host:port, resolved again at each try, whose members know the cluster; needs --await-membership."),
    flag("operator-secret-file", Operator, Text, "", Effect, "File with the key that authorises membership calls on the peer port; without it they are refused."),
    flag("cluster-uid", Operator, Text, "", Effect, "UID of the cluster's resource; a disk of another one is refused."),
    flag("pod-uid", Operator, Text, "", Effect, "UID of this pod, shown in the member's description."),
    flag("expected-hostname", Operator, Text, "", Effect, "Refuse to start under another hostname: two pods must never share a disk."),
    flag("termination-message-file", Operator, Text, "", Effect, "File for one JSON line with the reason why the server stopped."),

    flag("cert-file", Security, Text, "", Effect, "Certificate chain of the client port, PEM."),
    flag("key-file", Security, Text, "", Effect, "Key of --cert-file, PEM."),
    flag("client-plaintext", Security, Bool, "false", Effect, "Take plain text as well on client URLs that begin with https or unixs, for the time in which clients change over: no certificate is asked of it."),
    flag("client-cert-file", Security, Text, "", Accepted("the server never dials its own client port"), "Certificate for dialling the client port."),
    flag("client-key-file", Security, Text, "", Accepted("the server never dials its own client port"), "Key of --client-cert-file."),
    flag("client-cert-auth", Security, Bool, "false", Effect, "Refuse clients that show no certificate of --trusted-ca-file."),
    flag("client-crl-file", Security, Text, "", Effect, "Revoked client certificates, PEM."),
    flag("client-cert-allowed-cn", Security, Text, "", Effect, "Comma-separated common names, of which a client's certificate must carry one."),
    flag("client-cert-allowed-hostname", Security, Text, "", Effect, "Comma-separated host names, of which a client's certificate must carry one."),
    flag("trusted-ca-file", Security, Text, "", Effect, "Roots for client certificates, PEM."),
    flag("auto-tls", Security, Bool, "false", Effect, "Make the client port's certificate, in fixtures/client of --data-dir, where none is given."),
    flag("peer-cert-file", Security, Text, "", Effect, "Certificate chain of the peer port, PEM."),
    flag("peer-key-file", Security, Text, "", Effect, "Key of --peer-cert-file, PEM."),
    flag("peer-client-cert-file", Security, Text, "", Effect, "Chain to show to peers, where it differs from --peer-cert-file."),
    flag("peer-client-key-file", Security, Text, "", Effect, "Key of --peer-client-cert-file."),
    flag("peer-client-cert-auth", Security, Bool, "false", Effect, "Refuse peers that show no certificate of --peer-trusted-ca-file; with --operator-secret-file, signed calls are let in without."),
    flag("peer-crl-file", Security, Text, "", Effect, "Revoked peer certificates, PEM."),
    flag("peer-trusted-ca-file", Security, Text, "", Effect, "Roots for peer certificates, PEM."),
    flag("peer-cert-allowed-cn", Security, Text, "", Effect, "Comma-separated common names, of which a peer's certificate must carry one."),
    flag("peer-cert-allowed-hostname", Security, Text, "", Effect, "Comma-separated host names, of which a peer's certificate must carry one."),
    flag("peer-skip-client-san-verification", Security, Bool, "false", Accepted("the address of a dialling peer is never held against its certificate"), "Do not compare a peer's address with its certificate."),
    flag("peer-auto-tls", Security, Bool, "false", Effect, "Make the peer port's certificate, in fixtures/peer of --data-dir; members then hide their traffic and do not prove who they are."),
    flag("peer-tls-transition", Security, Bool, "false", Effect, "Take plain text as well on https peer URLs while this server is no member yet or a member of the cluster has an http peer URL, and try --join-from by TLS first and then without: for a running cluster that changes over to TLS."),
    flag("self-signed-cert-validity", Security, Number, "1", Effect, "Years that certificates made by --auto-tls last."),
    flag("cipher-suites", Security, Text, "", Effect, "Comma-separated IANA names of the TLS 1.2 suites to offer."),
    flag("tls-min-version", Security, Choice(&["TLS1.2", "TLS1.3"]), "TLS1.2", Effect, "Oldest TLS version."),
    flag("tls-max-version", Security, Choice(&["", "TLS1.2", "TLS1.3"]), "", Effect, "Newest TLS version."),
    flag("cors", Security, Text, "*", Effect, "Comma-separated origins that browsers may call from."),
    flag("host-whitelist", Security, Text, "*", Effect, "Comma-separated hostnames that HTTP requests in plain text may name."),
    flag("auth-token", Security, Text, "simple", Effect, "Kind of token for users: 'simple', or 'jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=10m'."),
    flag("auth-token-ttl", Security, Number, "300", Effect, "Seconds that a simple token lives after its last use; 300 if 0."),
    flag("bcrypt-cost", Security, Number, "10", Effect, "Cost of hashing a password, from 4 to 31: the logarithm of its rounds."),

    flag("listen-metrics-urls", Observation, Text, "", Effect, "More URLs for /metrics, /health, /livez, /readyz and /version."),
    flag("metrics", Observation, Choice(&["basic", "extensive"]), "basic", Effect, "'extensive' also measures how long each kind of request takes."),
    flag("enable-pprof", Observation, Bool, "false", Refused("profile the process from outside, with perf"), "Serve Go profiles."),
    flag("logger", Observation, Choice(&["zap"]), "zap", Accepted("there is one logger"), "Kind of logger."),
    flag("log-outputs", Observation, Text, "default", Effect, "Comma-separated list of 'stderr' (the default), 'stdout' and paths of files, to which lines are appended."),
    flag("log-level", Observation, Choice(&["debug", "info", "warn", "error", "panic", "fatal"]), "info", Effect, "Least important level that is logged."),
    flag("log-format", Observation, Choice(&["json", "console"]), "json", Effect, "One JSON object a line, or text."),
    flag("enable-log-rotation", Observation, Bool, "false", Effect, "Rotate the file among --log-outputs, which must be one."),
    flag("log-rotation-config-json", Observation, Text, r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#, Effect, "JSON: MB of a file before it is rotated (100 if 0), days and number of rotated files that are kept (all if 0), and whether their names have local time. 'compress' must be false."),
    flag("warning-unary-request-duration", Observation, Duration, "300ms", Effect, "Requests that take longer are logged; 300ms if 0, every request if negative."),
    flag("warning-apply-duration", Observation, Duration, "100ms", Accepted("applying is not timed one by one; see --warning-unary-request-duration"), "Applied requests that take longer are logged."),
    flag("enable-distributed-tracing", Observation, Bool, "false", Effect, "Send spans of requests and their stages to a collector of OpenTelemetry."),
    flag("distributed-tracing-address", Observation, Text, "localhost:4317", Effect, "host:port of the collector: OTLP by gRPC, without TLS."),
    flag("distributed-tracing-service-name", Observation, Text, "etcd", Effect, "Name of the service in traces, the same for all members."),
    flag("distributed-tracing-instance-id", Observation, Text, "", Effect, "ID of this instance in traces, another for each member."),
    flag("distributed-tracing-sampling-rate", Observation, Signed, "0", Effect, "Samples per million requests, of those whose caller has no span; a caller's span decides for its own. 0 samples only what a caller has sampled."),

    flag("watch-progress-notify-interval", Maintenance, Duration, "10m", Effect, "Idle time after which a watcher that asked for it gets a sign of life, at least 100ms; 10m if 0."),
    flag("auto-compaction-retention", Maintenance, Text, "0", Effect, "History that the leader keeps when it compacts by itself: hours, a duration such as 30m, or a number of revisions; 0 turns it off."),
    flag("auto-compaction-mode", Maintenance, Choice(&["periodic", "revision"]), "periodic", Effect, "What --auto-compaction-retention counts: time, or revisions."),
    flag("corrupt-check-time", Maintenance, Duration, "0s", Effect, "Time between the leader's comparisons of all members' data; 0 turns them off."),
    flag("compact-hash-check-time", Maintenance, Duration, "1m", Effect, "Time between the leader's comparisons of what the last compaction left; needs the feature gate CompactHashCheck."),
    flag("compaction-batch-limit", Maintenance, Signed, "1000", Accepted("space is reclaimed in slices of fixed size"), "Revisions that one step of a compaction deletes."),
    flag("compaction-sleep-interval", Maintenance, Duration, "10ms", Accepted("space is reclaimed in slices of fixed size"), "Pause between the steps of a compaction."),
    flag("downgrade-check-time", Maintenance, Duration, "5s", Accepted("there is no downgrade"), "Time between looks at a downgrade."),
    flag("bootstrap-defrag-threshold-megabytes", Maintenance, Number, "0", Accepted("there is nothing to defragment"), "Defragment at start."),

    flag("force-new-cluster", Unsafe, Bool, "false", Refused("`quorate recover` finds the data directory with the longest log, and makes a new cluster from it"), "Forget every other member."),
    flag("unsafe-no-fsync", Unsafe, Bool, "false", Effect, "Never sync the disk: loses data when the machine stops; a member that was started shortly before may be refused by the others afterwards."),

    flag("experimental-initial-corrupt-check", Removed, Bool, "", Accepted(GATE), ""),
    flag("experimental-corrupt-check-time", Removed, Text, "", Accepted("etcd removed the name: give --corrupt-check-time"), ""),
    flag("experimental-compact-hash-check-enabled", Removed, Bool, "", Accepted(GATE), ""),
    flag("experimental-compact-hash-check-time", Removed, Text, "", Accepted("etcd removed the name: give --compact-hash-check-time"), ""),
    flag("experimental-enable-lease-checkpoint", Removed, Bool, "", Accepted(GATE), ""),
    flag("experimental-enable-lease-checkpoint-persist", Removed, Bool, "", Accepted("what is noted of leases is always kept"), ""),
    flag("experimental-compaction-batch-limit", Removed, Text, "", Accepted("space is reclaimed in slices of fixed size"), ""),
    flag("experimental-compaction-sleep-interval", Removed, Text, "", Accepted("space is reclaimed in slices of fixed size"), ""),
    flag("experimental-peer-skip-client-san-verification", Removed, Bool, "", Accepted("the address of a dialling peer is never held against its certificate"), ""),
    flag("experimental-watch-progress-notify-interval", Removed, Text, "", Accepted("etcd removed the name: give --watch-progress-notify-interval"), ""),
    flag("experimental-warning-apply-duration", Removed, Text, "", Accepted("etcd removed the name: give --warning-unary-request-duration"), ""),
    flag("experimental-warning-unary-request-duration", Removed, Text, "", Accepted("etcd removed the name: give --warning-unary-request-duration"), ""),
    flag("experimental-memory-mlock", Removed, Bool, "", Accepted("pages are not locked; turn swap off instead"), ""),
    flag("experimental-txn-mode-write-with-shared-buffer", Removed, Bool, "", Accepted("transactions need no such mode"), ""),
    flag("experimental-bootstrap-defrag-threshold-megabytes", Removed, Text, "", Accepted("there is nothing to defragment"), ""),
    flag("experimental-stop-grpc-service-on-defrag", Removed, Bool, "", Accepted("defragmentation stops nothing here"), ""),
    flag("experimental-max-learners", Removed, Text, "", Accepted("etcd removed the name: give --max-learners"), ""),
    flag("experimental-wait-cluster-ready-timeout", Removed, Text, "", Accepted("clients are served as soon as they can be"), ""),
    flag("experimental-snapshot-catchup-entries", Removed, Text, "", Accepted("the log is kept by size, for as long as an active member needs it"), ""),
    flag("experimental-enable-distributed-tracing", Removed, Bool, "", Accepted("etcd removed the name: give --enable-distributed-tracing"), ""),
    flag("experimental-distributed-tracing-address", Removed, Text, "", Accepted("etcd removed the name: give --distributed-tracing-address"), ""),
    flag("experimental-distributed-tracing-service-name", Removed, Text, "", Accepted("etcd removed the name: give --distributed-tracing-service-name"), ""),
    flag("experimental-distributed-tracing-instance-id", Removed, Text, "", Accepted("etcd removed the name: give --distributed-tracing-instance-id"), ""),
    flag("experimental-distributed-tracing-sampling-rate", Removed, Text, "", Accepted("etcd removed the name: give --distributed-tracing-sampling-rate"), ""),
    flag("experimental-downgrade-check-time", Removed, Text, "", Accepted("there is no downgrade"), ""),
    flag("experimental-backend-bbolt-freelist-type", Removed, Text, "", Accepted(BBOLT), ""),
    flag("experimental-set-member-localaddr", Removed, Bool, "", Accepted("the system chooses the address to dial from"), ""),
    flag("experimental-enable-v2v3", Removed, Text, "", Accepted("there is no v2 API"), ""),
];

/// The flag with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The known name most similar to a mistyped one, if there is one.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    FLAGS
        .iter()
        .filter(|flag| flag.group != Removed)
        .map(|flag| (distance(name, flag.name), flag.name))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .map(|(_, known)| known)
}

/// Edits (insert, delete, replace) between two names.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let replaced = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[right.len()]
}

/// The text of `--help`.
#[must_use]
pub fn help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "Usage:\n\n  quorate server [flags]\n  etcd [flags]\n    Start a server. Flags are etcd's: one dash or two, '=' or a space before the value.\n    Each is also read from the environment, as ETCD_ and its name in capitals.\n",
    );
    let groups = [
        (Member, "Member"),
        (Clustering, "Clustering"),
        (Operator, "Run by an operator"),
        (Security, "Security"),
        (Observation, "Observation"),
        (Maintenance, "Maintenance"),
        (Unsafe, "Unsafe"),
    ];
    for (group, title) in groups {
        let _ = write!(text, "\n{title}:\n");
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            let _ = writeln!(
                text,
                "  --{} '{}'\n    {}",
                flag.name, flag.default, flag.help
            );
            match flag.class {
                Effect => {}
                Accepted(why) => {
                    let _ = writeln!(text, "    Accepted without effect: {why}.");
                }
                Refused(instead) => {
                    let _ = writeln!(text, "    Refused: {instead}.");
                }
            }
        }
    }
    text.push_str("\nFeature gates:\n");
    for gate in GATES {
        let _ = writeln!(text, "  {}={}\n    {}", gate.name, gate.default, gate.help);
        if let Accepted(why) | Refused(why) = gate.class {
            let _ = writeln!(text, "    Accepted without effect: {why}.");
        }
    }
    text
}
