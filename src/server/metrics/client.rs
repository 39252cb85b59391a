//! The metrics of the client port: calls by method and code, bytes, handshakes.
//!
//! Atomics without locks: a call must never wait for its own counter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::health::HealthChecks;
use super::requests::RequestTimes;
use super::watches::WatchMetrics;
use super::{Histogram, Text};

/// gRPC's codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Upper bounds of the buckets for requests, in seconds; Prometheus' usual ones.
const REQUEST_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// A method of the client port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Method {
    Range,
    RangeStream,
    Put,
    DeleteRange,
    Txn,
    Compact,
    Watch,
    LeaseGrant,
    LeaseRevoke,
    LeaseKeepAlive,
    LeaseTimeToLive,
    LeaseLeases,
    MemberAdd,
    MemberRemove,
    MemberUpdate,
    MemberList,
    MemberPromote,
    Alarm,
    Status,
    Defragment,
    Hash,
    HashKv,
    Snapshot,
    MoveLeader,
    Downgrade,
    AuthEnable,
    AuthDisable,
    AuthStatus,
    Authenticate,
    UserAdd,
    UserGet,
    UserList,
    UserDelete,
    UserChangePassword,
    UserGrantRole,
    UserRevokeRole,
    RoleAdd,
    RoleGet,
    RoleList,
    RoleDelete,
    RoleGrantPermission,
    RoleRevokePermission,
    Campaign,
    Proclaim,
    Leader,
    Observe,
    Resign,
    Lock,
    Unlock,
    HealthCheck,
    HealthWatch,
}

/// Every method with its labels, in the order of [`Method`].
const METHODS: [(Method, &str, &str, &str); 51] = [
    (Method::Range, "etcdserverpb.KV", "Range", "unary"),
    (
        Method::RangeStream,
        "etcdserverpb.KV",
        "RangeStream",
        "server_stream",
    ),
    (Method::Put, "etcdserverpb.KV", "Put", "unary"),
    (
        Method::DeleteRange,
        "etcdserverpb.KV",
        "DeleteRange",
        "unary",
    ),
    (Method::Txn, "etcdserverpb.KV", "Txn", "unary"),
    (Method::Compact, "etcdserverpb.KV", "Compact", "unary"),
    (Method::Watch, "etcdserverpb.Watch", "Watch", "bidi_stream"),
    (
        Method::LeaseGrant,
        "etcdserverpb.Lease",
        "LeaseGrant",
        "unary",
    ),
    (
        Method::LeaseRevoke,
        "etcdserverpb.Lease",
        "LeaseRevoke",
        "unary",
    ),
    (
        Method::LeaseKeepAlive,
        "etcdserverpb.Lease",
        "LeaseKeepAlive",
        "bidi_stream",
    ),
    (
        Method::LeaseTimeToLive,
        "etcdserverpb.Lease",
        "LeaseTimeToLive",
        "unary",
    ),
    (
        Method::LeaseLeases,
        "etcdserverpb.Lease",
        "LeaseLeases",
        "unary",
    ),
    (
        Method::MemberAdd,
        "etcdserverpb.Cluster",
        "MemberAdd",
        "unary",
    ),
    (
        Method::MemberRemove,
        "etcdserverpb.Cluster",
        "MemberRemove",
        "unary",
    ),
    (
        Method::MemberUpdate,
        "etcdserverpb.Cluster",
        "MemberUpdate",
        "unary",
    ),
    (
        Method::MemberList,
        "etcdserverpb.Cluster",
        "MemberList",
        "unary",
    ),
    (
        Method::MemberPromote,
        "etcdserverpb.Cluster",
        "MemberPromote",
        "unary",
    ),
    (Method::Alarm, "etcdserverpb.Maintenance", "Alarm", "unary"),
    (
        Method::Status,
        "etcdserverpb.Maintenance",
        "Status",
        "unary",
    ),
    (
        Method::Defragment,
        "etcdserverpb.Maintenance",
        "Defragment",
        "unary",
    ),
    (Method::Hash, "etcdserverpb.Maintenance", "Hash", "unary"),
    (
        Method::HashKv,
        "etcdserverpb.Maintenance",
        "HashKV",
        "unary",
    ),
    (
        Method::Snapshot,
        "etcdserverpb.Maintenance",
        "Snapshot",
        "server_stream",
    ),
    (
        Method::MoveLeader,
        "etcdserverpb.Maintenance",
        "MoveLeader",
        "unary",
    ),
    (
        Method::Downgrade,
        "etcdserverpb.Maintenance",
        "Downgrade",
        "unary",
    ),
    (
        Method::AuthEnable,
        "etcdserverpb.Auth",
        "AuthEnable",
        "unary",
    ),
    (
        Method::AuthDisable,
        "etcdserverpb.Auth",
        "AuthDisable",
        "unary",
    ),
    (
        Method::AuthStatus,
        "etcdserverpb.Auth",
        "AuthStatus",
        "unary",
    ),
    (
        Method::Authenticate,
        "etcdserverpb.Auth",
        "Authenticate",
        "unary",
    ),
    (Method::UserAdd, "etcdserverpb.Auth", "UserAdd", "unary"),
    (Method::UserGet, "etcdserverpb.Auth", "UserGet", "unary"),
    (Method::UserList, "etcdserverpb.Auth", "UserList", "unary"),
    (
        Method::UserDelete,
        "etcdserverpb.Auth",
        "UserDelete",
        "unary",
    ),
    (
        Method::UserChangePassword,
        "etcdserverpb.Auth",
        "UserChangePassword",
        "unary",
    ),
    (
        Method::UserGrantRole,
        "etcdserverpb.Auth",
        "UserGrantRole",
        "unary",
    ),
    (
        Method::UserRevokeRole,
        "etcdserverpb.Auth",
        "UserRevokeRole",
        "unary",
    ),
    (Method::RoleAdd, "etcdserverpb.Auth", "RoleAdd", "unary"),
    (Method::RoleGet, "etcdserverpb.Auth", "RoleGet", "unary"),
    (Method::RoleList, "etcdserverpb.Auth", "RoleList", "unary"),
    (
        Method::RoleDelete,
        "etcdserverpb.Auth",
        "RoleDelete",
        "unary",
    ),
    (
        Method::RoleGrantPermission,
        "etcdserverpb.Auth",
        "RoleGrantPermission",
        "unary",
    ),
    (
        Method::RoleRevokePermission,
        "etcdserverpb.Auth",
        "RoleRevokePermission",
        "unary",
    ),
    (
        Method::Campaign,
        "v3electionpb.Election",
        "Campaign",
        "unary",
    ),
    (
        Method::Proclaim,
        "v3electionpb.Election",
        "Proclaim",
        "unary",
    ),
    (Method::Leader, "v3electionpb.Election", "Leader", "unary"),
    (
        Method::Observe,
        "v3electionpb.Election",
        "Observe",
        "server_stream",
    ),
    (Method::Resign, "v3electionpb.Election", "Resign", "unary"),
    (Method::Lock, "v3lockpb.Lock", "Lock", "unary"),
    (Method::Unlock, "v3lockpb.Lock", "Unlock", "unary"),
    (
        Method::HealthCheck,
        "grpc.health.v1.Health",
        "Check",
        "unary",
    ),
    (
        Method::HealthWatch,
        "grpc.health.v1.Health",
        "Watch",
        "server_stream",
    ),
];

/// The labels of a method, in the order of their names.
fn labels((_, service, name, kind): (Method, &str, &str, &str)) -> String {
    format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

impl Method {
    /// The method's name only, for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS[self as usize].2
    }

    /// The service that it belongs to, with its package.
    #[must_use]
    pub fn service(self) -> &'static str {
        METHODS[self as usize].1
    }
}

/// The metrics of the client port.
#[derive(Debug)]
pub struct ClientMetrics {
    started: Vec<AtomicU64>,
    handled: Vec<[AtomicU64; CODES.len()]>,
    /// Messages received and sent, where a call has more of them than one.
    messages: Vec<[AtomicU64; 2]>,
    seconds: Option<Vec<Histogram>>,
    times: RequestTimes,
    /// Bytes received from clients, including HTTP/2's own.
    pub received_bytes: AtomicU64,
    /// Bytes sent to clients, including HTTP/2's own.
    pub sent_bytes: AtomicU64,
    /// Watch streams and watchers.
    pub watches: WatchMetrics,
    /// TLS handshakes that failed.
    pub handshakes_failed: AtomicU64,
    /// Unary requests that took longer than the limit for a warning.
    pub slow_requests: AtomicU64,
    /// The checks of `/livez` and `/readyz`.
    pub checks: HealthChecks,
    /// `/health` answered with success.
    pub health_success: AtomicU64,
    /// `/health` answered with failure.
    pub health_failures: AtomicU64,
}

impl ClientMetrics {
    /// With `extensive`, also measures the duration of requests by method.
    #[must_use]
    pub fn new(extensive: bool) -> ClientMetrics {
        let seconds = extensive.then(|| {
            METHODS
                .iter()
                .map(|_| Histogram::new(REQUEST_BUCKETS))
                .collect()
        });
        ClientMetrics {
            started: METHODS.iter().map(|_| AtomicU64::new(0)).collect(),
            handled: METHODS
                .iter()
                .map(|_| std::array::from_fn(|_| AtomicU64::new(0)))
                .collect(),
            messages: METHODS.iter().map(|_| Default::default()).collect(),
            seconds,
            times: RequestTimes::default(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            watches: WatchMetrics::default(),
            handshakes_failed: AtomicU64::new(0),
            slow_requests: AtomicU64::new(0),
            checks: HealthChecks::default(),
            health_success: AtomicU64::new(0),
            health_failures: AtomicU64::new(0),
        }
    }

    /// A call begins.
    pub fn started(&self, method: Method) {
        self.started[method as usize].fetch_add(1, Relaxed);
    }

    /// A message of a stream was received.
    pub fn received(&self, method: Method) {
        self.messages[method as usize][0].fetch_add(1, Relaxed);
    }

    /// A message of a stream was sent.
    pub fn sent(&self, method: Method) {
        self.messages[method as usize][1].fetch_add(1, Relaxed);
    }

    /// A call ended with this code after this time.
    pub fn handled(&self, method: Method, code: tonic::Code, took: Duration) {
        let code = usize::try_from(code as i32)
            .unwrap_or(2)
            .min(CODES.len() - 1);
        self.handled[method as usize][code].fetch_add(1, Relaxed);
        if let Some(seconds) = &self.seconds {
            seconds[method as usize].observe(took);
        }
        self.times.handled(method, code == 0, took);
    }

    /// The message of a unary call is counted with the call, and its answer if it succeeded; that of a call that is answered
    /// by a stream with the call.
    fn write_messages(&self, text: &mut Text) {
        let name = "grpc_server_msg_received_total";
        text.head(name, "counter", "Messages received.");
        for row in METHODS {
            let of_stream = &self.messages[row.0 as usize][0];
            let received = match row.3 {
                "bidi_stream" => of_stream,
                _ => &self.started[row.0 as usize],
            };
            text.sample(name, &labels(row), received.load(Relaxed));
        }
        let name = "grpc_server_msg_sent_total";
        text.head(name, "counter", "Messages sent.");
        for row in METHODS {
            let of_stream = &self.messages[row.0 as usize][1];
            let sent = match row.3 {
                "unary" => &self.handled[row.0 as usize][0],
                _ => of_stream,
            };
            text.sample(name, &labels(row), sent.load(Relaxed));
        }
    }

    /// Writes all metrics.
    pub fn write(&self, text: &mut Text) {
        let name = "grpc_server_started_total";
        text.head(name, "counter", "RPCs started.");
        for (method, started) in METHODS.into_iter().zip(&self.started) {
            text.sample(name, &labels(method), started.load(Relaxed));
        }
        let name = "grpc_server_handled_total";
        text.head(name, "counter", "RPCs completed, by code.");
        for (method, codes) in METHODS.into_iter().zip(&self.handled) {
            for (code, count) in CODES.iter().zip(codes) {
                let count = count.load(Relaxed);
                if count > 0 || *code == "OK" {
                    text.sample(
                        name,
                        &format!("grpc_code=\"{code}\",{}", labels(method)),
                        count,
                    );
                }
            }
        }
        self.write_messages(text);
        if let Some(seconds) = &self.seconds {
            let name = "grpc_server_handling_seconds";
            text.head(name, "histogram", "Seconds that RPCs took.");
            for (method, seconds) in METHODS.into_iter().zip(seconds) {
                seconds.write(text, name, &labels(method));
            }
        }
        for (name, kind, help, value) in [
            (
                "etcd_network_client_grpc_received_bytes_total",
                "counter",
                "Bytes received from clients, with HTTP/2's own.",
                &self.received_bytes,
            ),
            (
                "etcd_network_client_grpc_sent_bytes_total",
                "counter",
                "Bytes sent to clients, with HTTP/2's own.",
                &self.sent_bytes,
            ),
            (
                "quorate_server_tls_handshakes_failed_total",
                "counter",
                "TLS handshakes on the client port that failed.",
                &self.handshakes_failed,
            ),
            (
                "quorate_server_slow_requests_total",
                "counter",
                "Unary requests above --warning-unary-request-duration.",
                &self.slow_requests,
            ),
            (
                "etcd_server_health_success",
                "counter",
                "Health checks answered with success.",
                &self.health_success,
            ),
            (
                "etcd_server_health_failures",
                "counter",
                "Health checks answered with failure.",
                &self.health_failures,
            ),
        ] {
            text.head(name, kind, help);
            text.sample(name, "", value.load(Relaxed));
        }
        self.checks.write(text);
        self.times.write(text);
        self.watches.write(text);
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientMetrics, METHODS, Method};
    use crate::server::metrics::Text;
    use std::time::Duration;

    #[test]
    fn metrics_table_matches_the_enum() {
        for (index, (method, ..)) in METHODS.iter().enumerate() {
            assert_eq!(*method as usize, index);
        }
        assert_eq!(Method::HashKv.name(), "HashKV");
    }

    /// A unary call has one message each way, and none back if it failed; of a stream each message counts.
    #[test]
    fn messages_are_counted_with_unary_calls_and_one_by_one_of_streams() {
        let metrics = ClientMetrics::new(false);
        for (method, code) in [
            (Method::Put, tonic::Code::Ok),
            (Method::Put, tonic::Code::NotFound),
            (Method::Watch, tonic::Code::Ok),
            (Method::Snapshot, tonic::Code::Ok),
        ] {
            metrics.started(method);
            metrics.handled(method, code, Duration::ZERO);
        }
        metrics.received(Method::Watch);
        metrics.received(Method::Watch);
        for _ in 0..3 {
            metrics.sent(Method::Watch);
            metrics.sent(Method::Snapshot);
        }
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        let number = |way, method| {
            let start = format!("grpc_server_msg_{way}_total{{grpc_method=\"{method}\"");
            let mut lines = text.lines().filter(|line| line.starts_with(&start));
            let line = lines.next().expect("a sample");
            line.rsplit(' ')
                .next()
                .and_then(|it| it.parse::<u64>().ok())
        };
        for (method, received, sent) in [("Put", 2, 1), ("Watch", 2, 3), ("Snapshot", 1, 3)] {
            assert_eq!(number("received", method), Some(received), "{method}");
            assert_eq!(number("sent", method), Some(sent), "{method}");
        }
    }

    #[test]
    fn calls_are_counted_by_method_and_code() {
        let metrics = ClientMetrics::new(true);
        metrics.started(Method::Put);
        metrics.handled(Method::Put, tonic::Code::NotFound, Duration::from_millis(7));
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for line in [
            "grpc_server_started_total{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1",
            "grpc_server_handled_total{grpc_code=\"NotFound\",grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1",
            "grpc_server_handling_seconds_bucket{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\",le=\"0.005\"} 0",
            "grpc_server_handling_seconds_bucket{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\",le=\"0.01\"} 1",
            "etcd_network_client_grpc_sent_bytes_total 0",
        ] {
            assert!(
                text.lines().any(|have| have == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
