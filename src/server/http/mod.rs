//! Plain HTTP beside gRPC: probes, metrics and the version, with etcd's paths, bodies and codes.
//!
//! Never changes anything: every path is read-only.

pub(super) mod access;
mod state;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use crate::server::core::handle::{Health, Phase, Role};
use crate::server::etcd::{STORAGE_VERSION, Services, VERSION, alarms_of};
use crate::server::metrics::health::HealthChecks;
use crate::server::metrics::{Text, write_process};
use crate::store::AlarmKind;

/// All routes of this file, for the client port and the metrics port.
pub(crate) fn router(services: Services) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/livez", get(live))
        .route("/livez/{check}", get(live_check))
        .route("/readyz", get(ready))
        .route("/readyz/{check}", get(ready_check))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(only_get)
        .with_state(services)
}

async fn only_get() -> Response {
    let allow = [(header::ALLOW, "GET")];
    (
        StatusCode::METHOD_NOT_ALLOWED,
        allow,
        "Method Not Allowed\n",
    )
        .into_response()
}

/// Values of one key of the query; other keys are ignored, as in etcd.
fn query<'a>(text: Option<&'a str>, key: &'static str) -> impl Iterator<Item = &'a str> {
    text.unwrap_or_default().split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == key).then_some(value)
    })
}

async fn health(State(services): State<Services>, RawQuery(text): RawQuery) -> Response {
    let serializable = query(text.as_deref(), "serializable").next() == Some("true");
    let excluded: BTreeSet<&str> = query(text.as_deref(), "exclude").collect();
    let reason = unhealthy(&services, serializable, &excluded).await;
    let metrics = services.metrics();
    let (code, counter) = match reason {
        None => (StatusCode::OK, &metrics.health_success),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, &metrics.health_failures),
    };
    counter.fetch_add(1, Relaxed);
    let body = serde_json::json!({
        "health": if reason.is_none() { "true" } else { "false" },
        "reason": reason.unwrap_or_default(),
    });
    (
        code,
        // Not the content type of JSON: etcd's clients look into the body.
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        body.to_string(),
    )
        .into_response()
}

async fn unhealthy(
    services: &Services,
    serializable: bool,
    excluded: &BTreeSet<&str>,
) -> Option<String> {
    let member = services.member();
    let status = member.status();
    if status.phase != Phase::Member || member.latest().membership.cluster_id == 0 {
        return Some("NOT A MEMBER YET".to_owned());
    }
    if !services.is_settled() {
        return Some("STARTING".to_owned());
    }
    let alarms = alarms_of(&member.latest().overview);
    let active = alarms.iter().map(|alarm| alarm.alarm().as_str_name());
    if let Some(alarm) = active.clone().find(|name| !excluded.contains(name)) {
        return Some(format!("ALARM {alarm}"));
    }
    if serializable {
        return None;
    }
    if status.leader == 0 {
        return Some("RAFT NO LEADER".to_owned());
    }
    member
        .linearizable()
        .await
        .err()
        .map(|error| format!("RANGE ERROR:etcdserver: {error}"))
}

/// Names of checks with their results, in the order in which they are printed.
type Checks = Vec<(&'static str, Result<(), String>)>;

fn live_checks(services: &Services) -> Checks {
    vec![("serializable_read", found(services.member().live()))]
}

fn ready_checks(services: &Services) -> Checks {
    let member = services.member();
    let status = member.status();
    let learner = match (status.phase, status.role) {
        (Phase::Member, Role::Learner) => Err("not supported for learner".to_owned()),
        (Phase::Member, _) => Ok(()),
        _ => Err("not a member yet".to_owned()),
    };
    let corrupt = match member.latest().overview.alarmed(AlarmKind::Corrupt) {
        true => Err("alarm activated: CORRUPT".to_owned()),
        false => Ok(()),
    };
    vec![
        ("data_corruption", corrupt),
        ("serializable_read", found(member.live())),
        ("linearizable_read", found(member.ready())),
        ("non_learner", learner),
    ]
}

fn found(health: Health) -> Result<(), String> {
    match health {
        Health::Ok => Ok(()),
        Health::Not(why) => Err(why),
    }
}

async fn live(State(services): State<Services>, RawQuery(text): RawQuery) -> Response {
    let checks = live_checks(&services);
    checked(Told::of(&services, "livez"), checks, text.as_deref())
}

async fn ready(State(services): State<Services>, RawQuery(text): RawQuery) -> Response {
    let checks = ready_checks(&services);
    checked(Told::of(&services, "readyz"), checks, text.as_deref())
}

async fn live_check(
    State(services): State<Services>,
    Path(check): Path<String>,
    RawQuery(text): RawQuery,
) -> Response {
    let (told, checks) = (Told::of(&services, "livez"), live_checks(&services));
    one(told, checks, &check, text.as_deref())
}

async fn ready_check(
    State(services): State<Services>,
    Path(check): Path<String>,
    RawQuery(text): RawQuery,
) -> Response {
    let (told, checks) = (Told::of(&services, "readyz"), ready_checks(&services));
    one(told, checks, &check, text.as_deref())
}

/// Where the results of checks are counted.
#[derive(Clone, Copy)]
struct Told<'a> {
    kind: &'static str,
    counters: &'a HealthChecks,
}

impl<'a> Told<'a> {
    fn of(services: &'a Services, kind: &'static str) -> Told<'a> {
        let counters = &services.metrics().checks;
        Told { kind, counters }
    }
}

fn one(told: Told<'_>, mut checks: Checks, name: &str, query: Option<&str>) -> Response {
    checks.retain(|(known, _)| *known == name);
    if checks.is_empty() {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    checked(told, checks, query)
}

fn checked(told: Told<'_>, checks: Checks, text: Option<&str>) -> Response {
    let excluded: BTreeSet<&str> = query(text, "exclude").collect();
    let verbose = query(text, "verbose").next().is_some();
    let mut report = String::new();
    let mut good = true;
    for (name, result) in checks.iter().filter(|(name, _)| !excluded.contains(name)) {
        let _ = match result {
            Ok(()) => writeln!(report, "[+]{name} ok"),
            Err(why) => writeln!(report, "[-]{name} failed: {why}"),
        };
        told.counters.checked(told.kind, name, result.is_ok());
        good &= result.is_ok();
    }
    if !good {
        return (StatusCode::SERVICE_UNAVAILABLE, report).into_response();
    }
    let body = if verbose {
        report + "ok\n"
    } else {
        "ok\n".to_owned()
    };
    body.into_response()
}

async fn version() -> Response {
    let body = serde_json::json!({
        "etcdserver": VERSION,
        "etcdcluster": STORAGE_VERSION,
        "storage": STORAGE_VERSION,
        "quorate": env!("CARGO_PKG_VERSION"),
    });
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

async fn metrics(State(services): State<Services>) -> Response {
    let mut text = Text::default();
    write_member(&mut text, &services);
    services.member().metrics().write(&mut text);
    state::write(&mut text, &services);
    services.metrics().write(&mut text);
    services.write_bounds(&mut text);
    write_process(&mut text);
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, text.finish()).into_response()
}

/// The member's status, under etcd's metric names.
fn write_member(text: &mut Text, services: &Services) {
    let member = services.member();
    let status = member.status();
    let state = member.published();
    let size = state.view.db_size();
    let flag = |condition: bool| u64::from(condition);
    let leads = status.role == Role::Leader;
    for (name, kind, help, value) in [
        (
            "etcd_server_has_leader",
            "gauge",
            "Whether a leader is known.",
            flag(status.leader != 0),
        ),
        (
            "etcd_server_is_leader",
            "gauge",
            "Whether this member leads.",
            flag(leads),
        ),
        (
            "etcd_server_is_learner",
            "gauge",
            "Whether this member is a learner.",
            flag(status.role == Role::Learner),
        ),
        (
            "etcd_server_leader_changes_seen_total",
            "counter",
            "Changes of leader seen.",
            status.leader_changes,
        ),
        (
            "etcd_server_proposals_committed_total",
            "gauge",
            "Index of the last committed entry.",
            status.commit,
        ),
        (
            "etcd_server_proposals_applied_total",
            "gauge",
            "Index of the last applied entry.",
            status.applied,
        ),
        (
            "etcd_server_proposals_pending",
            "gauge",
            "Proposals that wait for an answer.",
            member.proposals_pending(),
        ),
        (
            "etcd_server_proposals_failed_total",
            "counter",
            "Proposals that failed.",
            status.proposals_failed,
        ),
        (
            "etcd_mvcc_db_total_size_in_bytes",
            "gauge",
            "Logical size of the store.",
            size,
        ),
        (
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "gauge",
            "Logical size of the store; nothing is ever unused.",
            size,
        ),
        (
            "etcd_debugging_mvcc_keys_total",
            "gauge",
            "Keys.",
            state.view.key_count(),
        ),
    ] {
        text.single(name, kind, help, value);
    }
    let revision = state.view.revision();
    text.single(
        "etcd_debugging_mvcc_current_revision",
        "gauge",
        "Current revision.",
        revision,
    );
    let compacted = state.view.compacted();
    text.single(
        "etcd_debugging_mvcc_compact_revision",
        "gauge",
        "Revision of the last compaction.",
        compacted,
    );
    // With 0 for no quota etcd's alerts about it would fire always.
    if let Some(quota) = services.quota_bytes() {
        text.single(
            "etcd_server_quota_backend_bytes",
            "gauge",
            "Largest size of the store; absent if it is unlimited.",
            quota,
        );
    }
    if let Some(volume) = member.volume() {
        text.single(
            "quorate_volume_free_bytes",
            "gauge",
            "Free bytes on the volume of the data directory.",
            volume.free,
        );
        text.single(
            "quorate_volume_needed_bytes",
            "gauge",
            "With fewer bytes free the alarm NOSPACE is raised: room for two segments of the log and a checkpoint.",
            volume.needed,
        );
    }
    write_archive(text, member.archived());
    let name = "quorate_certificate_expiry_timestamp_seconds";
    text.head(
        name,
        "gauge",
        "End of the validity of the certificate that a port shows, in Unix seconds.",
    );
    for (port, security) in member.ports().security() {
        if let Some(leaf) = &security.certificate {
            let label = format!("port=\"{port}\"");
            text.sample(name, &label, leaf.not_after_ms / 1000);
        }
    }
    let name = "etcd_server_id";
    text.head(name, "gauge", "This member's ID, as a label.");
    text.sample(name, &format!("server_id=\"{:x}\"", status.member_id), 1);
    for (name, help, label, version) in [
        (
            "etcd_server_version",
            "The etcd level, as a label.",
            "server_version",
            VERSION,
        ),
        (
            "etcd_cluster_version",
            "The cluster's etcd level, as a label.",
            "cluster_version",
            "3.7",
        ),
        (
            "quorate_build_info",
            "Quorate's version, as a label.",
            "version",
            env!("CARGO_PKG_VERSION"),
        ),
    ] {
        text.head(name, "gauge", help);
        text.sample(name, &format!("{label}=\"{version}\""), 1);
    }
}

/// How far the log is archived, if an archiver has told this member since its start.
fn write_archive(text: &mut Text, archived: Option<(u64, i64)>) {
    let Some((index, as_of_ms)) = archived else {
        return;
    };
    text.single(
        "quorate_archived_index",
        "gauge",
        "Index of the last entry of the log that an archiver has stored.",
        index,
    );
    if as_of_ms > 0 {
        text.single(
            "quorate_archived_timestamp_seconds",
            "gauge",
            "Everything that was committed at this time is archived, in Unix seconds.",
            as_of_ms as f64 / 1000.0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{HealthChecks, Text, Told, checked, one, query, write_archive};
    use http::StatusCode;

    /// A time that nobody has told must not be shown as 1970.
    #[test]
    fn archive_is_shown_once_it_is_told() {
        let written = |archived| {
            let mut text = Text::default();
            write_archive(&mut text, archived);
            text.finish()
        };
        assert_eq!(written(None), "");
        let index = written(Some((7, 0)));
        assert!(index.contains("quorate_archived_index 7\n"), "{index}");
        assert!(!index.contains("timestamp"), "{index}");
        let both = written(Some((7, 1_500)));
        let time = "quorate_archived_timestamp_seconds 1.5\n";
        assert!(both.contains(time), "{both}");
    }

    async fn body(response: axum::response::Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .expect("body");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn queries_are_read_as_etcd_reads_them() {
        let values = |text, key| query(text, key).collect::<Vec<_>>();
        assert_eq!(
            values(Some("exclude=a&x=1&exclude=b&verbose"), "exclude"),
            ["a", "b"]
        );
        assert_eq!(values(Some("verbose"), "verbose"), [""]);
        assert!(values(None, "verbose").is_empty());
    }

    #[tokio::test]
    async fn checks_print_as_etcd_prints_them() {
        let counters = HealthChecks::default();
        let told = Told {
            kind: "readyz",
            counters: &counters,
        };
        let checks = || vec![("a", Ok(())), ("b", Err("broken".to_owned()))];
        let failed = checked(told, checks(), None);
        assert_eq!(failed.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body(failed).await, "[+]a ok\n[-]b failed: broken\n");
        let excluded = checked(told, checks(), Some("exclude=b&verbose"));
        assert_eq!(excluded.status(), StatusCode::OK);
        assert_eq!(body(excluded).await, "[+]a ok\nok\n");
        assert_eq!(body(one(told, checks(), "a", None)).await, "ok\n");
        assert_eq!(
            one(told, checks(), "c", None).status(),
            StatusCode::NOT_FOUND
        );
    }
}
