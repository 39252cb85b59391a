//! The page of a server's metrics, `docs/server-metrics.md`, says of each what the server says of it. `METRICS_WRITE=1` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::fixture::Server;

const PAGE: &str = "docs/server-metrics.md";

/// Metrics that are there only when there is something to tell: name, type, labels, and meaning. Whether they are there may differ
/// from one server to the next.
const SOMETIMES: &[(&str, &str, &str, &str)] = &[
    (
        "quorate_archived_index",
        "gauge",
        "",
        "Index of the last entry of the log that an archiver has stored; after it has told this member.",
    ),
    (
        "quorate_archived_timestamp_seconds",
        "gauge",
        "",
        "Everything that was committed at this time is archived, in Unix seconds; the same.",
    ),
    (
        "quorate_checkpoint_bytes",
        "gauge",
        "",
        "Bytes of the last checkpoint of this start, without files of values; after the first one.",
    ),
    (
        "quorate_checkpoint_timestamp_seconds",
        "gauge",
        "",
        "When the last checkpoint of this start was done, in Unix seconds; after the first one.",
    ),
    (
        "quorate_log_bytes",
        "gauge",
        "",
        "Bytes of the log's segments, those written ahead included; after the first write.",
    ),
    (
        "quorate_server_spans_dropped_total",
        "counter",
        "",
        "Spans that no collector has taken: too many waited, or it refused them; with --enable-distributed-tracing.",
    ),
    (
        "quorate_server_spans_exported_total",
        "counter",
        "",
        "Spans that the collector of traces has taken; the same.",
    ),
    (
        "quorate_volume_free_bytes",
        "gauge",
        "",
        "Free bytes on the volume of the data directory; if it could be measured lately.",
    ),
    (
        "quorate_volume_needed_bytes",
        "gauge",
        "",
        "With fewer bytes free the alarm NOSPACE is raised: room for two segments of the log and a checkpoint; the same.",
    ),
    (
        "etcd_server_quota_backend_bytes",
        "gauge",
        "",
        "Largest size of the store; if it is limited.",
    ),
];

/// Labels of samples that a server alone does not have: names begin so, and the label.
const OF_OTHERS: &[(&str, &str)] = &[
    ("etcd_debugging_server_alarms", "alarm_type"),
    ("etcd_debugging_server_alarms", "server_id"),
    ("etcd_network_active_peers", "Local"),
    ("etcd_network_active_peers", "Remote"),
    ("etcd_network_disconnected_peers_total", "Local"),
    ("etcd_network_disconnected_peers_total", "Remote"),
    ("etcd_network_known_peers", "Local"),
    ("etcd_network_known_peers", "Remote"),
    ("etcd_network_snapshot_receive_", "From"),
    ("etcd_network_snapshot_send_", "To"),
    ("etcd_server_apply_", "op"),
    ("etcd_server_apply_", "success"),
    ("etcd_server_apply_", "version"),
    ("etcd_server_healthcheck", "name"),
    ("etcd_server_healthcheck", "type"),
    ("etcd_server_healthchecks_total", "status"),
    ("etcd_server_learner_promote_failures", "Reason"),
    ("etcd_server_range_", "success"),
    ("quorate_peer_queue_bytes", "To"),
    ("etcd_network_peer_received_", "From"),
    ("etcd_network_peer_round_", "To"),
    ("etcd_network_peer_sent_", "To"),
    ("etcd_server_request_", "success"),
    ("etcd_server_request_", "type"),
    ("quorate_certificate_", "port"),
];

#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// What a scrape says, by name. A histogram's samples have other names than it.
fn described(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::<String, Metric>::new();
    let mut last = String::new();
    // After the head of the answer.
    let lines = text.lines().skip_while(|line| !line.starts_with('#'));
    for line in lines {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            last = name.to_owned();
            assert!(!metrics.contains_key(name), "{name} is described twice");
            let metric = metrics.entry(last.clone()).or_default();
            metric.help = help.to_owned();
            let others = OF_OTHERS
                .iter()
                .filter(|(start, _)| name.starts_with(start));
            metric
                .labels
                .extend(others.map(|(_, label)| (*label).to_owned()));
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            assert_eq!(name, last);
            metrics.entry(last.clone()).or_default().kind = kind.to_owned();
        } else {
            let known = !last.is_empty() && line.starts_with(&last);
            assert!(known, "{line} is not of {last:?}");
            let metric = metrics.entry(last.clone()).or_default();
            metric.labels.extend(labels(line));
        }
    }
    metrics
}

/// The labels of a sample, `le` excepted, which every histogram has.
fn labels(line: &str) -> impl Iterator<Item = String> {
    let within = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'))
        .map_or("", |(within, _)| within);
    let names = within.split("\",").filter_map(|one| one.split_once('='));
    names
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "le")
}

fn row(name: &str, kind: &str, labels: &str, help: &str) -> String {
    format!("| `{name}` | {kind} | {labels} | {help} |\n")
}

fn page(metrics: &BTreeMap<String, Metric>) -> String {
    let mut page = String::from(
        "# Metrics of a member\n\nWritten by `METRICS_WRITE=1 cargo test --test server metrics::` from what a server serves at `/metrics`, on its client port and on port 2381. How\nmembers are scraped, and what to look at first: [Monitoring](tasks/monitor.md#members).\n\nMetrics whose names begin with `etcd`, `grpc`, `os` or `process` have etcd's names; where a meaning differs from etcd's, it says so.\n`grpc_server_handling_seconds` is there with `--metrics=extensive` alone, as in etcd.\n\n",
    );
    let head = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n";
    page += head;
    for (name, metric) in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
        page += &row(name, &metric.kind, &labels.join(", "), &metric.help);
    }
    let _ = write!(
        page,
        "\nThese are absent while there is nothing to tell:\n\n{head}"
    );
    for (name, kind, labels, help) in SOMETIMES {
        page += &row(name, kind, labels, help);
    }
    page
}

/// A dashboard for etcd asks for any of its metrics: each is served, or said to be missing with the reason.
#[test]
fn metrics_of_etcd_are_served_or_said_to_be_missing() {
    let read = |path| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(&path).expect("a file")
    };
    let (page, differences) = (read(PAGE), read("docs/differences.md"));
    let missing: Vec<&str> = differences.split('`').skip(1).step_by(2).collect();
    let is_missing = |name: &str| {
        let all_that_begin_so = |word: &&str| {
            word.strip_suffix('*')
                .is_some_and(|start| name.starts_with(start))
        };
        let rows = differences
            .lines()
            .filter(|line| line.starts_with("| `etcd_"));
        let named = rows.clone().any(|row| {
            row.split(" | ")
                .next()
                .is_some_and(|it| it.contains(&format!("`{name}`")))
        });
        named || missing.iter().any(all_that_begin_so)
    };
    let listed = read("tests/metrics/etcd.txt");
    let names: Vec<&str> = listed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(names.len() > 100, "{}", names.len());
    for name in names {
        let served = page.contains(&format!("| `{name}` |"));
        assert!(served != is_missing(name), "{name}: served {served}");
    }
}

#[test]
fn every_metric_is_in_its_page() {
    let server = Server::start(&["--metrics=extensive"]);
    let mut metrics = described(&server.get("/metrics"));
    for (name, kind, ..) in SOMETIMES {
        let there = metrics.remove(*name);
        assert!(there.is_none_or(|it| it.kind == *kind), "{name}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let wanted = page(&metrics);
    if std::env::var("METRICS_WRITE").is_ok_and(|value| value == "1") {
        fs::write(&path, &wanted).expect("written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "{PAGE} differs from what the server serves: METRICS_WRITE=1 cargo test --test server metrics::"
    );
}
