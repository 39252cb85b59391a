//! `spec.server`: what is refused, and with which message; what is omitted; which timings are compatible.

use super::*;

fn text(spec: &str) -> String {
    format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: demo, namespace: d}}\nspec: {spec}\n"
    )
}

fn taken(server: &str) -> Server {
    let cluster = parse(&text(&format!("{{server: {server}}}")));
    cluster.expect("valid").spec.server
}

#[test]
fn server_setting_errors_name_the_remedy() {
    for (server, words) in [
        (
            "{quota: lots}",
            "server.quota must be a quantity of at least 1Mi",
        ),
        (
            "{quota: 1Ki}",
            "server.quota must be a quantity of at least 1Mi",
        ),
        ("{quota: 2049Mi}", "at most a quarter of storage.size"),
        ("{quotas: 1Gi}", "spec.server.quotas: unknown field"),
        (
            "{autoCompaction: {retention: '1'}}",
            "must be a duration with its unit, such as 1h",
        ),
        (
            "{autoCompaction: {mode: Revision, retention: 1h}}",
            "must be a number of revisions",
        ),
        ("{heartbeatIntervalMilliseconds: 9}", "must be 10 to 1000"),
        (
            "{electionTimeoutMilliseconds: 10001}",
            "must be 50 to 10000",
        ),
        ("{electionTimeoutMilliseconds: 499}", "at least five times"),
        (
            "{heartbeatIntervalMilliseconds: 201}",
            "at least five times",
        ),
        (
            "{extraArgs: [{name: --log-level, value: debug}]}",
            "without dashes in front",
        ),
        (
            "{extraArgs: [{name: data-dir, value: /}]}",
            "the operator sets this flag itself",
        ),
        (
            "{extraArgs: [{name: heartbeat-interval, value: '7'}]}",
            "this flag has a field of its own",
        ),
        (
            "{extraArgs: [{name: cert-file, value: /c}]}",
            "are the business of spec.tls",
        ),
        ("{extraArgs: [{name: log-level}]}", "value: missing"),
    ] {
        let refusal = parse(&text(&format!("{{server: {server}}}")));
        let refusal = refusal.expect_err(server).to_string();
        assert!(refusal.contains(words), "{server}: {refusal}");
    }
}

#[test]
fn a_quota_fits_a_volume_of_four_times_its_size() {
    assert_eq!(taken("{quota: 2Gi}").quota.as_deref(), Some("2Gi"));
    let larger = "{storage: {size: 32Gi}, server: {quota: 8Gi}}";
    assert!(parse(&text(larger)).is_ok());
    let smaller = "{storage: {size: 4Gi}, server: {quota: 2Gi}}";
    assert!(parse(&text(smaller)).is_err());
}

#[test]
fn both_timings_may_be_slow_and_fast() {
    for server in [
        "{heartbeatIntervalMilliseconds: 1000, electionTimeoutMilliseconds: 10000}",
        "{heartbeatIntervalMilliseconds: 10, electionTimeoutMilliseconds: 50}",
        "{heartbeatIntervalMilliseconds: 200}",
        "{electionTimeoutMilliseconds: 500}",
    ] {
        taken(server);
    }
}

/// If nothing is set, nothing is stored: existing resources do not change.
#[test]
fn default_server_settings_are_left_out() {
    let cluster = parse(&text("{server: {autoCompaction: {}}}")).expect("valid");
    assert!(cluster.spec.server.is_default());
    let json = serde_json::to_value(&cluster.spec).expect("JSON");
    assert_eq!(json.get("server"), None);
    assert!(
        taken("{autoCompaction: {retention: 0h}}")
            .auto_compaction
            .is_off()
    );
    assert!(
        !taken("{autoCompaction: {retention: 10m}}")
            .auto_compaction
            .is_off()
    );
}

#[test]
fn compatible_timings_change_together() {
    let of = |heartbeat_ms, election_ms| Timings {
        heartbeat_ms,
        election_ms,
    };
    let own = Timings::default();
    assert!(own.go_with(own));
    assert!(own.go_with(of(500, 5000)) && of(500, 5000).go_with(own));
    assert!(!own.go_with(of(501, 5000)) && !of(501, 5000).go_with(own));
    assert!(of(500, 5000).go_with(of(1000, 10_000)));
    assert!(!own.go_with(of(10, 199)));
}

#[test]
fn leaving_out_syncs_is_known_in_every_spelling() {
    for (value, yes) in [("true", true), ("T", true), ("1", true), ("false", false)] {
        let flags = format!("{{extraArgs: [{{name: unsafe-no-fsync, value: '{value}'}}]}}");
        assert_eq!(taken(&flags).leaves_out_syncs(), yes, "{value}");
    }
    assert!(!Server::default().leaves_out_syncs());
}
