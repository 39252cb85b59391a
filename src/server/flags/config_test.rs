//! Defaults, conflicts and limits of the settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{Config, ConfigError, HostFacts};
use crate::server::flags::Flags;
use crate::server::flags::config::{ClusterState, Formation};

fn config_on(machine: HostFacts, arguments: &[&str]) -> Result<Config, ConfigError> {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("flags parse");
    Config::from_flags(&flags, machine)
}

fn config(arguments: &[&str]) -> Result<Config, ConfigError> {
    config_on(HostFacts::default(), arguments)
}

fn refusal(arguments: &[&str]) -> String {
    config(arguments)
        .and_then(|config| config.check_initial_cluster())
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn no_flags_make_etcd_s_single_member() {
    let config = config(&[]).expect("valid");
    config.check_initial_cluster().expect("names itself");
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir, Path::new("default.etcd"));
    assert_eq!(
        config.listen_client_urls[0].to_string(),
        "http://localhost:2379"
    );
    assert_eq!(config.advertise_peer_urls, ["http://localhost:2380"]);
    assert_eq!(
        (config.heartbeat, config.election_ticks()),
        (Duration::from_millis(100), 10)
    );
    assert_eq!(config.request_timeout(), Duration::from_secs(7));
    assert_eq!(config.limits.quota_bytes, Some(2 << 30));
    assert_eq!(config.limits.max_learners, 1);
    assert_eq!(config.client.max_concurrent_streams, None);
    let members = BTreeMap::from([(
        "default".to_owned(),
        vec!["http://localhost:2380".to_owned()],
    )]);
    let token = "etcd-cluster".to_owned();
    assert_eq!(
        config.formation,
        Formation::InitialCluster {
            members,
            state: ClusterState::New,
            token
        }
    );
}

#[test]
fn static_three_member_cluster_is_configured() {
    let config = config(&[
        "--name=b",
        "--initial-advertise-peer-urls=http://h2:2380",
        "--initial-cluster=a=http://h1:2380,b=http://h2:2380,c=http://h3:2380,c=http://h3:2382",
        "--initial-cluster-state=existing",
    ])
    .expect("valid");
    config.check_initial_cluster().expect("agrees");
    let Formation::InitialCluster { members, state, .. } = config.formation else {
        panic!("by hand")
    };
    assert_eq!(state, ClusterState::Existing);
    assert_eq!(members["c"], ["http://h3:2380", "http://h3:2382"]);
}

#[test]
fn standby_is_configured() {
    let config =
        config(&["--await-membership", "--name=a", "--join-from=x:1, y:2"]).expect("valid");
    assert_eq!(
        config.formation,
        Formation::AwaitMembership {
            join_from: vec!["x:1".to_owned(), "y:2".to_owned()]
        }
    );
    assert_eq!(config.limits.max_learners, 3);
}

#[test]
fn each_refusal_states_what_to_do() {
    for (arguments, text) in [
        (
            &[
                "--listen-client-urls=http://example.com:1",
                "--advertise-client-urls=http://h:1",
            ][..],
            "names a host; give an IP address",
        ),
        (
            &["--listen-client-urls=http://127.0.0.1:1"],
            "--advertise-client-urls is required",
        ),
        (
            &["--listen-peer-urls=127.0.0.1:1"],
            "--listen-peer-urls: \"127.0.0.1:1\" must begin with http://",
        ),
        (
            &["--initial-advertise-peer-urls=http://:2380"],
            "has no host",
        ),
        (
            &["--listen-peer-urls=unix:///run/peer"],
            "members meet over TCP alone",
        ),
        (
            &[
                "--listen-client-urls=unixs:///run/quorate",
                "--advertise-client-urls=unixs:///run/quorate",
            ],
            "give --cert-file and --key-file",
        ),
        (
            &["--listen-metrics-urls=unix:name"],
            "--listen-metrics-urls: \"unix:name\" must have the form unix:///path",
        ),
        (
            &["--election-timeout=400"],
            "at least five times --heartbeat-interval",
        ),
        (
            &["--election-timeout=60000", "--heartbeat-interval=1000"],
            "the longest is 50000 ms",
        ),
        (&["--heartbeat-interval=0"], "must be greater than 0"),
        (
            &["--name=a", "--initial-cluster=b=http://localhost:2380"],
            "does not name this member",
        ),
        (
            &["--name=a", "--initial-cluster=a=http://localhost:1"],
            "they must be the same",
        ),
        (
            &["--initial-cluster=a=http://h:1,b=http://h:1"],
            "URLs of its own",
        ),
        (
            &["--initial-cluster=http://h:1"],
            "must have the form name=http://host:port",
        ),
        (&["--await-membership"], "--await-membership needs --name"),
        (
            &[
                "--await-membership",
                "--name=a",
                "--initial-cluster=a=http://h:1",
            ],
            "exclude each other",
        ),
        (&["--join-from=x:1"], "--join-from needs --await-membership"),
        (
            &["--cluster-uid=x"],
            "--cluster-uid needs --await-membership",
        ),
        (
            &["--listen-peer-urls=https://127.0.0.1:1"],
            "give --peer-cert-file and --peer-key-file",
        ),
        (
            &["--cert-file=/c"],
            "--cert-file is given without --key-file",
        ),
        (&["--client-cert-auth"], "--client-cert-auth needs TLS"),
        (
            &["--peer-tls-transition"],
            "--peer-tls-transition is for a port that speaks TLS, and --listen-peer-urls has http://",
        ),
        (
            &["--client-plaintext"],
            "--client-plaintext is for ports that speak TLS",
        ),
        (
            &["--cert-file=/c", "--key-file=/k", "--client-cert-auth"],
            "needs --trusted-ca-file",
        ),
        (
            &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
            "no version is left",
        ),
        (
            &["--max-learners=-1"],
            "--max-learners must not be negative",
        ),
        (&["--max-request-bytes=0"], "--max-request-bytes is 0"),
        (
            &["--enable-log-rotation"],
            "exactly one file among --log-outputs",
        ),
        (&["--name="], "--name must not be empty"),
    ] {
        let refusal = refusal(arguments);
        assert!(refusal.contains(text), "{arguments:?}: {refusal}");
    }
}

#[test]
fn unix_socket_client_urls_are_accepted() {
    let config = config(&[
        "--listen-client-urls=unix://localhost:1,http://127.0.0.1:1",
        "--advertise-client-urls=unix:///run/q,http://h:1",
    ]);
    let config = config.expect("valid");
    let listened: Vec<String> = config
        .listen_client_urls
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(listened, ["http://127.0.0.1:1", "unix://localhost:1"]);
    assert_eq!(
        config.advertise_client_urls,
        ["http://h:1", "unix:///run/q"]
    );
}

#[test]
fn quota_follows_the_memory_limit() {
    let machine = HostFacts {
        memory_limit: Some(1 << 30),
    };
    let quota = |arguments: &[&str]| config_on(machine, arguments).map(|c| c.limits.quota_bytes);
    let fits = (1 << 30) / 5 * 2;
    assert_eq!(quota(&[]), Ok(Some(fits)));
    assert_eq!(quota(&["--quota-backend-bytes=1000"]), Ok(Some(1000)));
    assert_eq!(quota(&["--quota-backend-bytes=-1"]), Ok(None));
    let text = quota(&["--quota-backend-bytes=1073741824"])
        .expect_err("too large")
        .to_string();
    assert!(
        text.contains("give at most 429496728, or raise the memory limit to 2684354560"),
        "{text}"
    );
}

/// With values in files a quota far above the memory limit is what they are for; what stays in memory has a limit.
#[test]
fn quota_of_values_in_files_does_not_follow_the_memory_limit() {
    let machine = HostFacts {
        memory_limit: Some(1 << 30),
    };
    let limits = |quota: &str| {
        let config = config_on(machine, &["--feature-gates=ValuesOnDisk=true", quota]);
        let limits = config.expect("valid").limits;
        (limits.quota_bytes, limits.in_memory_bytes)
    };
    let in_memory = Some((1 << 30) / 10 * 3);
    assert_eq!(
        limits("--quota-backend-bytes=8589934592"),
        (Some(8 << 30), in_memory)
    );
    assert_eq!(
        limits("--quota-backend-bytes=0"),
        (Some(2 << 30), in_memory)
    );
    assert_eq!(limits("--quota-backend-bytes=-1"), (None, in_memory));
}

#[test]
fn roots_alone_require_a_certificate() {
    let config =
        config(&["--cert-file=/c", "--key-file=/k", "--trusted-ca-file=/r"]).expect("valid");
    assert!(config.client_tls.expect("files").client_auth);
    assert!(
        config
            .warnings
            .iter()
            .any(|text| text.contains("is plain text although"))
    );
}

/// An operator's calls come without a certificate; without an operator no such calls are accepted.
#[test]
fn signed_calls_need_no_certificate() {
    let tls = [
        "--listen-peer-urls=https://127.0.0.1:1",
        "--initial-advertise-peer-urls=http://127.0.0.1:1",
        "--initial-cluster=default=http://127.0.0.1:1",
        "--peer-cert-file=/c",
        "--peer-key-file=/k",
        "--peer-trusted-ca-file=/r",
        "--peer-tls-transition",
    ];
    let asked = |more: &[&str]| {
        let config = config(&[&tls[..], more].concat()).expect("valid");
        assert!(config.peer_tls_transition);
        config.peer_tls.expect("files").calls_without
    };
    assert!(!asked(&[]));
    assert!(asked(&["--operator-secret-file=/s"]));
}

/// The value that a numeric flag or a duration results in, as text; a flag that is missing here has
/// no row below.
fn shown(config: &Config, flag: &str) -> String {
    let (limits, client, maintenance) = (&config.limits, &config.client, &config.maintenance);
    match flag {
        "snapshot-count" => config.snapshot_count.to_string(),
        "heartbeat-interval" => format!("{:?}", config.heartbeat),
        "election-timeout" => format!("{:?}", config.election),
        "quota-backend-bytes" => format!("{:?}", limits.quota_bytes),
        "max-txn-ops" => limits.max_txn_ops.to_string(),
        "max-request-bytes" => limits.max_request_bytes.to_string(),
        "max-learners" => limits.max_learners.to_string(),
        "max-concurrent-streams" => format!("{:?}", client.max_concurrent_streams),
        "grpc-keepalive-interval" | "grpc-keepalive-timeout" => format!("{:?}", client.keepalive),
        "watch-progress-notify-interval" => format!("{:?}", client.watch_progress_interval),
        "warning-unary-request-duration" => format!("{:?}", client.warn_unary),
        "auth-token-ttl" => format!("{:?}", config.auth.token_ttl),
        "bcrypt-cost" => config.auth.bcrypt_cost.to_string(),
        "self-signed-cert-validity" => format!("{:?}", config.client_tls.is_some()),
        "corrupt-check-time" => format!("{:?}", maintenance.check),
        "compact-hash-check-time" => format!("{:?}", maintenance.compact_check),
        "distributed-tracing-sampling-rate" => {
            format!("{:?}", config.tracing.as_ref().map(|it| it.per_million))
        }
        _ => {
            panic!("--{flag} is a number or a duration: state here, and in the table, what 0 means")
        }
    }
}

/// The meaning of 0, a negative and the largest number for each flag: a value, or words of the
/// refusal.
type Row = (&'static str, [Result<&'static str, &'static str>; 3]);

/// `Err` with the words for a flag's kind: the value is not parsed at all.
const NUMBER: Result<&str, &str> = Err("give a whole number from 0");

#[rustfmt::skip]
const EXTREMES: &[Row] = &[
    ("snapshot-count", [Ok("10000"), NUMBER, Ok("18446744073709551615")]),
    ("heartbeat-interval", [Err("greater than 0"), NUMBER, Err("at least five times")]),
    ("election-timeout", [Err("greater than 0"), NUMBER, Err("the longest is 50000 ms")]),
    ("quota-backend-bytes", [Ok("Some(2147483648)"), Ok("None"), Ok("Some(9223372036854775807)")]),
    ("max-txn-ops", [Ok("0"), NUMBER, Ok("18446744073709551615")]),
    ("max-request-bytes", [Err("give 1 to 2147483647"), NUMBER, Err("give 1 to 2147483647")]),
    ("max-learners", [Ok("0"), Err("must not be negative"), Ok("9223372036854775807")]),
    ("max-concurrent-streams", [Ok("None"), NUMBER, Err("give at most 4294967295")]),
    ("grpc-keepalive-interval", [Ok("None"), Ok("None"), Ok("Some((9223372036.854775807s, 20s))")]),
    ("grpc-keepalive-timeout", [Ok("None"), Ok("None"), Ok("Some((7200s, 9223372036.854775807s))")]),
    ("watch-progress-notify-interval", [Ok("600s"), Ok("600s"), Ok("9223372036.854775807s")]),
    ("warning-unary-request-duration", [Ok("300ms"), Ok("0ns"), Ok("9223372036.854775807s")]),
    ("auth-token-ttl", [Ok("300s"), NUMBER, Err("give at most 9223372036 seconds")]),
    ("bcrypt-cost", [Ok("10"), NUMBER, Ok("10")]),
    ("self-signed-cert-validity", [Ok("false"), NUMBER, Ok("false")]),
    ("corrupt-check-time", [Ok("None"), Err("must not be negative"), Ok("Some(9223372036.854775807s)")]),
    // It counts with --enable-distributed-tracing alone, as in etcd: `tracing` has its limits.
    ("distributed-tracing-sampling-rate", [Ok("None"), Ok("None"), Ok("None")]),
    ("compact-hash-check-time", [Err("must be more than 0"), Err("must be more than 0"), Ok("None")]),
];

/// Found by testing 0: `--watch-progress-notify-interval=0s` sent progress every 100 ms, where etcd
/// uses its default; `--warning-unary-request-duration=0` disabled what etcd sets to its default; a
/// number too large for its flag was treated as none. Now each such flag has a row, and one without
/// fails here. `tests/etcd_compatibility/flags.rs` tests etcd in the same way.
#[test]
fn flag_extremes_mean_what_they_mean_to_etcd() {
    use crate::server::flags::table::{Class, FLAGS, Group, Kind};
    let numeric = |kind| matches!(kind, Kind::Number | Kind::Signed | Kind::Duration);
    let ours = FLAGS.iter().filter(|flag| {
        numeric(flag.kind) && flag.class == Class::Effect && flag.group != Group::Removed
    });
    for flag in ours {
        let row = EXTREMES.iter().find(|(name, _)| *name == flag.name);
        let (_, wanted) = row.unwrap_or_else(|| panic!("--{} has no row", flag.name));
        let values = match flag.kind {
            Kind::Duration => ["0s", "-1s", "9223372036854775807ns"],
            Kind::Signed => ["0", "-1", "9223372036854775807"],
            _ => ["0", "-1", "18446744073709551615"],
        };
        for (value, wanted) in values.into_iter().zip(wanted) {
            let argument = format!("--{}={value}", flag.name);
            let parsed = Flags::parse(std::slice::from_ref(&argument), &BTreeMap::new());
            let judged = parsed.map_err(|error| error.to_string()).and_then(|flags| {
                Config::from_flags(&flags, HostFacts::default()).map_err(|error| error.to_string())
            });
            match (judged, wanted) {
                (Ok(config), Ok(wanted)) => {
                    assert_eq!(shown(&config, flag.name), *wanted, "{argument}");
                }
                (Err(refusal), Err(words)) => {
                    assert!(
                        refusal.contains(words) && refusal.contains(flag.name),
                        "{argument}: {refusal}"
                    );
                }
                (judged, _) => panic!("{argument}: {judged:?}, not {wanted:?}"),
            }
        }
    }
    let made = |years: &str| {
        config(&[
            "--auto-tls",
            &format!("--self-signed-cert-validity={years}"),
        ])
    };
    for years in ["0", "1001"] {
        let refusal = made(years).expect_err("refused").to_string();
        assert!(refusal.contains("must be 1 to 1000 years"), "{refusal}");
    }
    assert!(config(&["--auto-compaction-retention=-1h"]).is_err());
}
