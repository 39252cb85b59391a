//! Every metric that etcd's dashboards and alerts use exists under its name, and changes under load.

use std::collections::BTreeMap;
use std::path::Path;

use crate::http::{get, post};
use crate::node::{Kind, Node, PATIENCE, peers};

/// Names, and whether the load must raise them above zero.
const NAMES: &[(&str, bool)] = &[
    ("grpc_server_started_total", true),
    ("grpc_server_handled_total", true),
    ("grpc_server_handling_seconds_bucket", true),
    ("etcd_server_has_leader", true),
    ("etcd_server_leader_changes_seen_total", true),
    ("etcd_server_is_leader", true),
    ("etcd_server_is_learner", false),
    ("etcd_server_proposals_committed_total", true),
    ("etcd_server_proposals_applied_total", true),
    ("etcd_server_proposals_pending", false),
    ("etcd_server_proposals_failed_total", false),
    ("etcd_mvcc_db_total_size_in_bytes", true),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", true),
    ("etcd_server_quota_backend_bytes", true),
    ("etcd_disk_wal_fsync_duration_seconds_bucket", true),
    ("etcd_disk_backend_commit_duration_seconds_bucket", false),
    ("etcd_network_peer_round_trip_time_seconds_bucket", true),
    ("etcd_network_peer_sent_bytes_total", true),
    ("etcd_network_peer_received_bytes_total", true),
    ("etcd_network_client_grpc_sent_bytes_total", true),
    ("etcd_network_client_grpc_received_bytes_total", true),
    ("process_resident_memory_bytes", true),
    ("etcd_mvcc_put_total", true),
    ("etcd_mvcc_delete_total", true),
    ("etcd_mvcc_range_total", true),
    ("etcd_mvcc_txn_total", true),
    ("etcd_debugging_lease_granted_total", true),
    ("etcd_debugging_lease_revoked_total", true),
    ("etcd_debugging_server_lease_expired_total", false),
    ("etcd_debugging_mvcc_slow_watcher_total", false),
    ("etcd_debugging_lease_renewed_total", true),
    ("etcd_mvcc_hash_duration_seconds_bucket", false),
    ("etcd_mvcc_hash_rev_duration_seconds_bucket", true),
    ("etcd_server_learner_promote_successes", false),
    ("etcd_server_apply_duration_seconds_bucket", true),
    ("etcd_server_range_duration_seconds_bucket", true),
    ("etcd_disk_wal_write_duration_seconds_bucket", false),
    ("etcd_debugging_lease_ttl_total_bucket", true),
    ("etcd_debugging_auth_revision", true),
    ("etcd_network_known_peers", true),
    ("etcd_network_active_peers", true),
    ("etcd_server_feature_enabled", true),
    ("grpc_server_msg_received_total", true),
    ("grpc_server_msg_sent_total", true),
    ("etcd_disk_wal_write_bytes_total", true),
    ("etcd_server_slow_apply_total", false),
    ("etcd_server_slow_read_indexes_total", false),
    ("etcd_server_read_indexes_failed_total", false),
    ("etcd_server_snapshot_apply_in_progress_total", false),
    ("etcd_server_request_duration_seconds_bucket", true),
    ("process_start_time_seconds", true),
    ("os_fd_used", true),
    ("os_fd_limit", true),
];

/// One request of each kind that is counted; "foo" and "7".
const LOAD: &[(&str, &str)] = &[
    ("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#),
    ("/v3/kv/range", r#"{"key":"Zm9v"}"#),
    (
        "/v3/kv/txn",
        r#"{"success":[{"requestPut":{"key":"Zm9v","value":"YmFy"}},{"requestRange":{"key":"Zm9v"}}]}"#,
    ),
    ("/v3/kv/deleterange", r#"{"key":"Zm9v"}"#),
    ("/v3/lease/grant", r#"{"TTL":"60","ID":"7"}"#),
    ("/v3/lease/keepalive", r#"{"ID":"7"}"#),
    ("/v3/lease/revoke", r#"{"ID":"7"}"#),
    ("/v3/maintenance/hashkv", r#"{"revision":"0"}"#),
];

/// The greatest value of each metric over its labels.
fn read(address: &str) -> BTreeMap<String, f64> {
    let mut greatest = BTreeMap::new();
    let text = get(address, "/metrics").body;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).expect("a name");
        let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
        let value: f64 = value.unwrap_or_else(|| panic!("no value: {line}"));
        let known = greatest.entry(line[..end].to_owned()).or_insert(value);
        *known = known.max(value);
    }
    greatest
}

fn missing(nodes: &[Node]) -> Vec<&'static str> {
    let mut greatest: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes {
        for (name, value) in read(&node.client) {
            let known = greatest.entry(name).or_insert(value);
            *known = known.max(value);
        }
    }
    let stands = |(name, moves): &&(&str, bool)| {
        let value = greatest.get(*name);
        value.is_none_or(|value| *moves && *value <= 0.0)
    };
    NAMES.iter().filter(stands).map(|(name, _)| *name).collect()
}

fn all_move(kind: Kind, peers: &Path) {
    let nodes = Node::cluster(kind, peers, 3, &["--metrics=extensive"]);
    let start = std::time::Instant::now();
    loop {
        let mut refused = None;
        for node in &nodes {
            for (path, body) in LOAD {
                let answer = post(&node.client, path, body);
                // On a busy machine the leader may lose an election, and writes fail for a while.
                if answer.status != 200 {
                    refused = Some(answer.body);
                }
            }
        }
        let missing = missing(&nodes);
        if missing.is_empty() && refused.is_none() {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{kind:?} has metrics that are missing or do not change: {missing:?} {refused:?}"
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn our_metrics_exist_and_change() {
    all_move(Kind::Quorate, Path::new(""));
}

#[test]
fn metric_names_equal_etcds() {
    if let Some(peers) = peers("metrics::metric_names_equal_etcds") {
        all_move(Kind::Etcd, &peers);
    }
}
