//! Counters of the client port and the text of `/metrics`, under etcd's names.
//!
//! Counters are atomics without locks; what other threads know is read at scrape time. Only
//! what is truly measured is written: a dashboard must not be told a made-up zero.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    HealthCheck,
    HealthWatch,
}

/// Every method with its labels, in the order of [`Method`].
const METHODS: [(Method, &str, &str, &str); 27] = [
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

impl Method {
    /// The method's name alone, for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS[self as usize].2
    }
}

/// A histogram whose observers never wait.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    /// Buckets up to each bound, in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Histogram {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram {
            bounds,
            buckets,
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// Writes the samples; `labels` is empty or `a="b"`.
    pub fn write(&self, text: &mut Text, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            match self.bounds.get(index) {
                Some(bound) => text.sample(
                    &format!("{name}_bucket"),
                    &format!("{labels}{comma}le=\"{bound}\""),
                    count,
                ),
                None => text.sample(
                    &format!("{name}_bucket"),
                    &format!("{labels}{comma}le=\"+Inf\""),
                    count,
                ),
            }
        }
        let seconds = Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64();
        text.sample(&format!("{name}_sum"), labels, seconds);
        text.sample(&format!("{name}_count"), labels, count);
    }
}

/// Upper bounds of the buckets for the disk, in seconds; etcd's.
const DISK_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// What the core threads measure.
#[derive(Debug)]
pub struct CoreMetrics {
    /// One write and sync of the log.
    pub log_write: Histogram,
    peers: Mutex<BTreeMap<u64, PeerTraffic>>,
}

/// What went over the links with one peer.
#[derive(Clone, Copy, Debug, Default)]
struct PeerTraffic {
    sent_bytes: u64,
    received_bytes: u64,
    failures: u64,
}

impl Default for CoreMetrics {
    fn default() -> CoreMetrics {
        CoreMetrics {
            log_write: Histogram::new(DISK_BUCKETS),
            peers: Mutex::default(),
        }
    }
}

impl CoreMetrics {
    /// Writes all of it.
    pub fn write(&self, text: &mut Text) {
        let name = "etcd_disk_wal_fsync_duration_seconds";
        text.head(
            name,
            "histogram",
            "Seconds that one write and sync of the log took.",
        );
        self.log_write.write(text, name, "");
        let peers = self
            .peers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        type Of = fn(&PeerTraffic) -> u64;
        let metrics: [(&str, &str, &str, Of); 3] = [
            (
                "sent_bytes_total",
                "To",
                "Bytes of messages sent to a peer.",
                |peer| peer.sent_bytes,
            ),
            (
                "received_bytes_total",
                "From",
                "Bytes of messages received from a peer.",
                |peer| peer.received_bytes,
            ),
            (
                "sent_failures_total",
                "To",
                "Links to a peer that broke or were refused.",
                |peer| peer.failures,
            ),
        ];
        for (name, label, help, of) in metrics {
            let name = format!("etcd_network_peer_{name}");
            text.head(&name, "counter", help);
            for (id, peer) in &peers {
                text.sample(&name, &format!("{label}=\"{id:x}\""), of(peer));
            }
        }
    }

    fn peer(&self, id: u64, change: impl FnOnce(&mut PeerTraffic)) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        change(peers.entry(id).or_default());
    }

    /// Bytes went to a peer.
    pub fn peer_sent(&self, id: u64, bytes: usize) {
        self.peer(id, |peer| peer.sent_bytes += bytes as u64);
    }

    /// Bytes came from a peer.
    pub fn peer_received(&self, id: u64, bytes: usize) {
        self.peer(id, |peer| peer.received_bytes += bytes as u64);
    }

    /// A link to a peer broke, or could not be made.
    pub fn peer_failed(&self, id: u64) {
        self.peer(id, |peer| peer.failures += 1);
    }
}

/// What the client port counts.
#[derive(Debug)]
pub struct ClientMetrics {
    started: Vec<AtomicU64>,
    handled: Vec<[AtomicU64; CODES.len()]>,
    seconds: Option<Vec<Histogram>>,
    /// Bytes that clients sent, with HTTP/2's own.
    pub received_bytes: AtomicU64,
    /// Bytes sent to clients, with HTTP/2's own.
    pub sent_bytes: AtomicU64,
    /// Watch streams that are open.
    pub watch_streams: AtomicU64,
    /// Watchers on them.
    pub watchers: AtomicU64,
    /// Events sent.
    pub watch_events: AtomicU64,
    /// Unary requests that took longer than the limit for a warning.
    pub slow_requests: AtomicU64,
    /// `/health` answered with success.
    pub health_success: AtomicU64,
    /// `/health` answered with failure.
    pub health_failures: AtomicU64,
}

impl ClientMetrics {
    /// With `extensive`, also times requests by method.
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
            seconds,
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            watch_streams: AtomicU64::new(0),
            watchers: AtomicU64::new(0),
            watch_events: AtomicU64::new(0),
            slow_requests: AtomicU64::new(0),
            health_success: AtomicU64::new(0),
            health_failures: AtomicU64::new(0),
        }
    }

    /// A call begins.
    pub fn started(&self, method: Method) {
        self.started[method as usize].fetch_add(1, Relaxed);
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
    }

    /// Writes all of it.
    pub fn write(&self, text: &mut Text) {
        let labels = |(_, service, name, kind): (Method, &str, &str, &str)| {
            format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
        };
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
                "etcd_debugging_mvcc_watch_stream_total",
                "gauge",
                "Watch streams that are open.",
                &self.watch_streams,
            ),
            (
                "etcd_debugging_mvcc_watcher_total",
                "gauge",
                "Watchers on open streams.",
                &self.watchers,
            ),
            (
                "etcd_debugging_mvcc_events_total",
                "counter",
                "Events sent to watchers.",
                &self.watch_events,
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
    }
}

/// Prometheus' text format.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// The two comment lines that introduce a metric.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample; `labels` is empty or `a="b",c="d"`.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// A metric with one sample.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    /// The whole text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// What the kernel knows about this process; nothing where it does not tell.
pub fn write_process(text: &mut Text) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return;
    };
    // The second field is the program's name in brackets and may hold blanks.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return;
    };
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| {
        fields
            .get(number - 3)
            .and_then(|text| text.parse::<u64>().ok())
    };
    // Linux counts in hundredths of a second and pages of 4 KiB wherever this runs.
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let hundredths = user + system;
        let seconds = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        text.single(
            "process_cpu_seconds_total",
            "counter",
            "Seconds of processor time.",
            seconds,
        );
    }
    if let Some(pages) = field(24) {
        let bytes = pages.saturating_mul(4096);
        text.single(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory.",
            bytes,
        );
    }
    if let Some(bytes) = field(23) {
        text.single(
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory.",
            bytes,
        );
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.single(
            "process_open_fds",
            "gauge",
            "Open file descriptors.",
            open.count(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientMetrics, CoreMetrics, Histogram, METHODS, Method, Text, write_process};
    use std::time::Duration;

    #[test]
    fn the_table_follows_the_enum() {
        for (index, (method, ..)) in METHODS.iter().enumerate() {
            assert_eq!(*method as usize, index);
        }
        assert_eq!(Method::HashKv.name(), "HashKV");
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

    #[test]
    fn peers_are_told_apart_by_their_id() {
        let metrics = CoreMetrics::default();
        metrics.peer_sent(0xab, 10);
        metrics.peer_sent(0xab, 5);
        metrics.peer_received(0xcd, 7);
        metrics.peer_failed(0xcd);
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for line in [
            "etcd_network_peer_sent_bytes_total{To=\"ab\"} 15",
            "etcd_network_peer_received_bytes_total{From=\"cd\"} 7",
            "etcd_network_peer_sent_failures_total{To=\"cd\"} 1",
            "etcd_disk_wal_fsync_duration_seconds_count 0",
        ] {
            assert!(
                text.lines().any(|have| have == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn buckets_include_their_bound() {
        let histogram = Histogram::new(&[0.001, 0.002]);
        for milliseconds in [1, 2, 3] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let mut text = Text::default();
        histogram.write(&mut text, "h", "");
        assert_eq!(
            text.finish(),
            "h_bucket{le=\"0.001\"} 1\nh_bucket{le=\"0.002\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 0.006\nh_count 3\n"
        );
    }

    #[test]
    fn the_process_is_measured_on_linux() {
        let mut text = Text::default();
        write_process(&mut text);
        let text = text.finish();
        if cfg!(target_os = "linux") {
            let line = text
                .lines()
                .find(|line| line.starts_with("process_resident_memory_bytes "));
            let bytes: u64 = line
                .and_then(|line| line.split(' ').nth(1)?.parse().ok())
                .unwrap_or(0);
            assert!(bytes > 1 << 20, "{text}");
        }
    }
}
