//! Dashboards for Grafana, generated from a table of panels: one of clusters, by what the operator serves, and one of members,
//! by what they serve. Which metrics there are is said elsewhere; a test compares.

use serde_json::{Value, json};

/// A panel of one or more queries.
struct Panel {
    title: &'static str,
    /// Grafana's name of the unit.
    unit: &'static str,
    /// What it tells, shown beside the title.
    help: &'static str,
    /// Queries and the names of their series.
    queries: &'static [(&'static str, &'static str)],
}

/// A dashboard.
struct Dashboard {
    file: &'static str,
    uid: &'static str,
    title: &'static str,
    /// The metric whose labels `namespace` and `name` can be selected.
    labels_of: &'static str,
    panels: &'static [Panel],
}

/// Each path in the repository, and the text.
pub(super) fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for dashboard in [CLUSTERS, MEMBERS] {
        let text = format!("{:#}\n", dashboard.json());
        for folder in [
            "deploy/monitoring/dashboards",
            "charts/quorate/files/dashboards",
        ] {
            files.push((format!("{folder}/{}.json", dashboard.file), text.clone()));
        }
    }
    files
}

/// Width of a panel, of 24 columns.
const WIDTH: usize = 12;
/// Height of a panel.
const HEIGHT: usize = 8;

impl Dashboard {
    fn json(&self) -> Value {
        let panels: Vec<Value> = self.panels.iter().enumerate().map(Panel::json).collect();
        json!({
            "uid": self.uid,
            "title": self.title,
            "tags": ["quorate", "etcd"],
            "schemaVersion": 39,
            "editable": true,
            "refresh": "1m",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                variable("namespace", &format!("label_values({}, namespace)", self.labels_of)),
                variable("name", &format!("label_values({}{{namespace=~\"$namespace\"}}, name)", self.labels_of)),
            ]},
            "panels": panels,
        })
    }
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name,
        "type": "query",
        "datasource": source(),
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "includeAll": true,
        "multi": true,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    })
}

impl Panel {
    fn json((index, panel): (usize, &Panel)) -> Value {
        let queries = panel.queries.iter().zip('A'..='Z');
        let targets: Vec<Value> = queries
            .map(|((query, legend), id)| {
                json!({
                    "refId": id.to_string(),
                    "datasource": source(),
                    "expr": query,
                    "legendFormat": legend,
                })
            })
            .collect();
        let column = index % (24 / WIDTH);
        let row = index / (24 / WIDTH);
        json!({
            "id": index + 1,
            "type": "timeseries",
            "title": panel.title,
            "description": panel.help,
            "datasource": source(),
            "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {
                "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "spanNulls": false}},
                "overrides": [],
            },
            "options": {
                "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
            "targets": targets,
        })
    }
}

const CLUSTERS: Dashboard = Dashboard {
    file: "clusters",
    uid: "quorate-clusters",
    title: "Quorate: clusters",
    labels_of: "quorate_cluster_spec_replicas",
    panels: &[
        Panel {
            title: "Conditions that ask for attention",
            unit: "short",
            help: "Clusters that are not Available, not Quorate, Degraded or Stalled; nothing where all is well.",
            queries: &[
                (
                    r#"max by (namespace, name, type) (quorate_cluster_status_condition{namespace=~"$namespace", name=~"$name", type=~"Available|Quorate|Durable", status="False"} == 1)"#,
                    "{{namespace}}/{{name}} not {{type}}",
                ),
                (
                    r#"max by (namespace, name, type) (quorate_cluster_status_condition{namespace=~"$namespace", name=~"$name", type=~"Degraded|Stalled", status="True"} == 1)"#,
                    "{{namespace}}/{{name}} {{type}}",
                ),
            ],
        },
        Panel {
            title: "Voters, wanted and ready",
            unit: "short",
            help: "spec.replicas, and how many voters answer linearizable reads.",
            queries: &[
                (
                    r#"max by (namespace, name) (quorate_cluster_spec_replicas{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} wanted",
                ),
                (
                    r#"max by (namespace, name) (quorate_cluster_status_replicas_ready{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} ready",
                ),
            ],
        },
        Panel {
            title: "Failures tolerated",
            unit: "short",
            help: "How many more voters may fail before the quorum is lost; a gap where no leader with a quorum is seen.",
            queries: &[(
                r#"max by (namespace, name) (quorate_cluster_failures_tolerated{namespace=~"$namespace", name=~"$name"})"#,
                "{{namespace}}/{{name}}",
            )],
        },
        Panel {
            title: "Members by role and health",
            unit: "short",
            help: "Voters, learners, standbys and members that leave.",
            queries: &[(
                r#"sum by (role, health) (max by (namespace, name, role, health) (quorate_cluster_members{namespace=~"$namespace", name=~"$name"}))"#,
                "{{role}} {{health}}",
            )],
        },
        Panel {
            title: "Step in hand, since",
            unit: "s",
            help: "What the operator is doing or waiting for, and for how long; nothing at rest.",
            queries: &[(
                r#"time() - max by (namespace, name, step, state) (quorate_cluster_step_started_timestamp_seconds{namespace=~"$namespace", name=~"$name"})"#,
                "{{namespace}}/{{name}} {{step}} {{state}}",
            )],
        },
        Panel {
            title: "Entries that learners lack",
            unit: "short",
            help: "Log entries that a learner has not received yet.",
            queries: &[(
                r#"max by (namespace, name, member) (quorate_cluster_member_lag_entries{namespace=~"$namespace", name=~"$name"})"#,
                "{{namespace}}/{{name}} {{member}}",
            )],
        },
        Panel {
            title: "Age of the newest good backup, and of the archive",
            unit: "s",
            help: "Of clusters that have backups, or an archive of their log.",
            queries: &[
                (
                    r#"time() - max by (namespace, name) (quorate_cluster_backup_last_success_timestamp_seconds{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} backup",
                ),
                (
                    r#"time() - max by (namespace, name) (quorate_cluster_backup_archived_timestamp_seconds{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} archive",
                ),
            ],
        },
        Panel {
            title: "Certificates end in",
            unit: "s",
            help: "The first one of each cluster to end.",
            queries: &[(
                r#"min by (namespace, name) (quorate_cluster_certificate_not_after_timestamp_seconds{namespace=~"$namespace", name=~"$name"}) - time()"#,
                "{{namespace}}/{{name}}",
            )],
        },
        Panel {
            title: "The operator: reconciles and errors",
            unit: "reqps",
            help: "A second, of the active replica.",
            queries: &[
                (
                    "sum by (controller) (rate(quorate_reconcile_duration_seconds_count[$__rate_interval]))",
                    "{{controller}}",
                ),
                (
                    "sum by (controller) (rate(quorate_reconcile_errors_total[$__rate_interval]))",
                    "{{controller}} errors",
                ),
            ],
        },
        Panel {
            title: "Users and roles that are not as specified",
            unit: "short",
            help: "EtcdUsers and EtcdRoles that are not Ready.",
            queries: &[(
                r#"count by (namespace, kind) (max without (instance, pod) (quorate_access_ready{namespace=~"$namespace"}) == 0)"#,
                "{{namespace}} {{kind}}",
            )],
        },
        Panel {
            title: "The operator: seconds of a reconcile, 99th percentile",
            unit: "s",
            help: "With calls of members and of the API server.",
            queries: &[(
                "histogram_quantile(0.99, sum by (controller, le) (rate(quorate_reconcile_duration_seconds_bucket[$__rate_interval])))",
                "{{controller}}",
            )],
        },
        Panel {
            title: "The operator: steps by outcome",
            unit: "short",
            help: "Steps that were executed in a minute: done, overtaken, refused or failed.",
            queries: &[(
                "sum by (step, outcome) (60 * rate(quorate_operator_steps_total[$__rate_interval]))",
                "{{step}} {{outcome}}",
            )],
        },
        Panel {
            title: "The operator: replicas that lead",
            unit: "short",
            help: "One; none while the Lease changes hands.",
            queries: &[("sum(quorate_operator_leading)", "leading")],
        },
    ],
};

const MEMBERS: Dashboard = Dashboard {
    file: "members",
    uid: "quorate-members",
    title: "Quorate: members",
    labels_of: "etcd_server_has_leader",
    panels: &[
        Panel {
            title: "Who leads",
            unit: "short",
            help: "One member of each cluster. Every change is an election.",
            queries: &[
                (
                    r#"max by (namespace, name, pod) (etcd_server_is_leader{namespace=~"$namespace", name=~"$name"}) == 1"#,
                    "{{namespace}}/{{pod}}",
                ),
                (
                    r#"sum by (namespace, name) (changes(etcd_server_leader_changes_seen_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{name}} changes seen",
                ),
            ],
        },
        Panel {
            title: "Requests by method",
            unit: "reqps",
            help: "Completed a second, whatever their outcome.",
            queries: &[(
                r#"sum by (grpc_method) (rate(grpc_server_handled_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval])) > 0"#,
                "{{grpc_method}}",
            )],
        },
        Panel {
            title: "Requests that failed, by code",
            unit: "reqps",
            help: "A second. NotFound and the like are answers; Unavailable and DeadlineExceeded are not.",
            queries: &[(
                r#"sum by (grpc_code) (rate(grpc_server_handled_total{namespace=~"$namespace", name=~"$name", grpc_code!="OK"}[$__rate_interval]))"#,
                "{{grpc_code}}",
            )],
        },
        Panel {
            title: "Syncs of the log, 99th percentile",
            unit: "s",
            help: "What every write waits for, on a quorum.",
            queries: &[(
                r#"histogram_quantile(0.99, sum by (namespace, pod, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{namespace=~"$namespace", name=~"$name"}[$__rate_interval])))"#,
                "{{namespace}}/{{pod}}",
            )],
        },
        Panel {
            title: "Linearizable reads: until the state is known, 99th percentile",
            unit: "s",
            help: "A round to a quorum, and applying what was committed.",
            queries: &[(
                r#"histogram_quantile(0.99, sum by (namespace, pod, le) (rate(quorate_read_index_duration_seconds_bucket{namespace=~"$namespace", name=~"$name"}[$__rate_interval])))"#,
                "{{namespace}}/{{pod}}",
            )],
        },
        Panel {
            title: "Round trips to peers, 99th percentile",
            unit: "s",
            help: "Once a second.",
            queries: &[(
                r#"histogram_quantile(0.99, sum by (namespace, pod, le) (rate(etcd_network_peer_round_trip_time_seconds_bucket{namespace=~"$namespace", name=~"$name"}[$__rate_interval])))"#,
                "{{namespace}}/{{pod}}",
            )],
        },
        Panel {
            title: "Applying an entry, 99th percentile",
            unit: "s",
            help: "By operation, on the slowest member.",
            queries: &[(
                r#"max by (op) (histogram_quantile(0.99, sum by (namespace, pod, op, le) (rate(etcd_server_apply_duration_seconds_bucket{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))))"#,
                "{{op}}",
            )],
        },
        Panel {
            title: "Queues: of threads, and to peers",
            unit: "bytes",
            help: "What waits for a thread of a member, and for the network to another one.",
            queries: &[
                (
                    r#"max by (namespace, pod, thread) (quorate_server_queue_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} {{thread}}",
                ),
                (
                    r#"max by (namespace, pod) (quorate_peer_queue_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} to peers",
                ),
            ],
        },
        Panel {
            title: "Committed and not applied",
            unit: "short",
            help: "Entries that a member still has to apply.",
            queries: &[(
                r#"max by (namespace, pod) (etcd_server_proposals_committed_total{namespace=~"$namespace", name=~"$name"} - etcd_server_proposals_applied_total)"#,
                "{{namespace}}/{{pod}}",
            )],
        },
        Panel {
            title: "Proposals: pending and failed",
            unit: "short",
            help: "Writes that wait for their outcome, and those that failed in a minute.",
            queries: &[
                (
                    r#"max by (namespace, pod) (etcd_server_proposals_pending{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} pending",
                ),
                (
                    r#"60 * sum by (namespace, pod) (rate(etcd_server_proposals_failed_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{pod}} failed",
                ),
            ],
        },
        Panel {
            title: "Size of the store, and its quota",
            unit: "bytes",
            help: "The quota is absent where none is set.",
            queries: &[
                (
                    r#"max by (namespace, name) (etcd_mvcc_db_total_size_in_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}}",
                ),
                (
                    r#"max by (namespace, name) (etcd_server_quota_backend_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} quota",
                ),
            ],
        },
        Panel {
            title: "Volumes: free, and needed",
            unit: "bytes",
            help: "With less than the second free, writes are refused.",
            queries: &[
                (
                    r#"min by (namespace, pod) (quorate_volume_free_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} free",
                ),
                (
                    r#"max by (namespace, pod) (quorate_volume_needed_bytes{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} needed",
                ),
            ],
        },
        Panel {
            title: "Memory and processor",
            unit: "short",
            help: "Resident memory in GiB, and cores.",
            queries: &[
                (
                    r#"max by (namespace, pod) (process_resident_memory_bytes{namespace=~"$namespace", name=~"$name"}) / 1073741824"#,
                    "{{namespace}}/{{pod}} GiB",
                ),
                (
                    r#"max by (namespace, pod) (rate(process_cpu_seconds_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{pod}} cores",
                ),
            ],
        },
        Panel {
            title: "Watchers: open and behind",
            unit: "short",
            help: "Those that are behind are sent what is older.",
            queries: &[
                (
                    r#"max by (namespace, pod) (etcd_debugging_mvcc_watcher_total{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}}",
                ),
                (
                    r#"max by (namespace, pod) (etcd_debugging_mvcc_slow_watcher_total{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{pod}} behind",
                ),
            ],
        },
        Panel {
            title: "Keys and leases",
            unit: "short",
            help: "Keys, and leases that ended in a minute.",
            queries: &[
                (
                    r#"max by (namespace, name) (etcd_debugging_mvcc_keys_total{namespace=~"$namespace", name=~"$name"})"#,
                    "{{namespace}}/{{name}} keys",
                ),
                (
                    r#"60 * max by (namespace, name) (rate(etcd_debugging_lease_revoked_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{name}} leases ended",
                ),
            ],
        },
        Panel {
            title: "Connections, and those refused",
            unit: "short",
            help: "Of the client port; refused ones and failed TLS handshakes in a minute.",
            queries: &[
                (
                    r#"max by (namespace, pod) (quorate_server_connections{namespace=~"$namespace", name=~"$name", port="client"})"#,
                    "{{namespace}}/{{pod}}",
                ),
                (
                    r#"60 * sum by (namespace, pod) (rate(quorate_server_connections_refused_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{pod}} refused",
                ),
                (
                    r#"60 * sum by (namespace, pod) (rate(quorate_server_tls_handshakes_failed_total{namespace=~"$namespace", name=~"$name"}[$__rate_interval]))"#,
                    "{{namespace}}/{{pod}} handshakes failed",
                ),
            ],
        },
    ],
};
