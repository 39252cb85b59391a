//! The metrics of the core threads and the process, and the text format of `/metrics`, under etcd's
//! names.
//!
//! The state of other threads is read at scrape time. Only what is actually measured is written: a
//! dashboard must not show an invented zero.

pub mod applies;
pub mod client;
pub mod disk;
pub mod health;
pub mod operations;
pub mod peers;
pub mod promotions;
mod requests;
pub mod turned_away;
pub mod watches;

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A histogram whose observers never wait.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    /// In nanoseconds, or in whole seconds.
    sum: AtomicU64,
    whole_seconds: bool,
}

impl Histogram {
    /// Buckets up to each bound, in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Histogram {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram {
            bounds,
            buckets,
            sum: AtomicU64::new(0),
            whole_seconds: false,
        }
    }

    /// The same for durations of whole seconds, which may be so long that a sum in nanoseconds would wrap.
    #[must_use]
    pub fn of_whole_seconds(bounds: &'static [f64]) -> Histogram {
        Histogram {
            whole_seconds: true,
            ..Histogram::new(bounds)
        }
    }

    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let units = match self.whole_seconds {
            true => duration.as_secs(),
            false => u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        };
        self.sum.fetch_add(units, Relaxed);
    }

    /// Whether nothing was counted yet.
    fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.load(Relaxed) == 0)
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
        let sum = self.sum.load(Relaxed);
        let sum = match self.whole_seconds {
            true => Duration::from_secs(sum),
            false => Duration::from_nanos(sum),
        };
        let seconds = sum.as_secs_f64();
        text.sample(&format!("{name}_sum"), labels, seconds);
        text.sample(&format!("{name}_count"), labels, count);
    }
}

/// Upper bounds of the buckets for the disk, in seconds; etcd's.
const DISK_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// The same for reads, which are answered within microseconds at a leader that holds its lease or is alone.
const READ_BUCKETS: &[f64] = &[
    0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025_6, 0.051_2,
    0.102_4, 0.204_8, 0.409_6, 0.819_2, 1.638_4, 3.276_8, 6.553_6,
];

/// The same for hashes of the whole store; etcd's.
const HASH_BUCKETS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
];

/// A batch that takes longer to apply is slow; etcd's default for a request.
const SLOW_APPLY: Duration = Duration::from_millis(100);

/// The measurements of the core threads.
#[derive(Debug)]
pub struct CoreMetrics {
    /// The log and the checkpoints.
    pub disk: disk::DiskMetrics,
    /// Ranges that were read for clients.
    pub ranges: applies::Ranges,
    /// Each entry, by what it does.
    pub applies: applies::Applies,
    /// One batch applied and published.
    pub apply: Histogram,
    /// Batches that took longer than 0.1 s.
    pub slow_applies: AtomicU64,
    /// What was applied.
    pub operations: operations::Operations,
    /// Linearizable reads, from the request until the state to read is known.
    pub read_index: Histogram,
    /// Linearizable reads that failed before that.
    pub read_indexes_failed: AtomicU64,
    /// Of these, those that timed out.
    pub slow_read_indexes: AtomicU64,
    /// Hashes of the store at its last revision, by Hash.
    pub hash: Histogram,
    /// The same at any revision, by HashKV.
    pub hash_kv: Histogram,
    /// Renewals of leases that this member has answered.
    pub renewals: AtomicU64,
    /// Learners to promote by a call to this member.
    pub promotions: promotions::Promotions,
    /// A snapshot is being installed.
    pub installing: AtomicBool,
    /// Damaged values that were healed from another member.
    pub healed_values: AtomicU64,
    /// Values that are known as damaged now.
    pub damaged_values: AtomicU64,
    /// What came to the peer port in vain.
    pub turned_away: turned_away::TurnedAway,
    /// The traffic with each peer.
    pub peers: peers::PeerMetrics,
}

impl Default for CoreMetrics {
    fn default() -> CoreMetrics {
        CoreMetrics {
            disk: disk::DiskMetrics::default(),
            ranges: applies::Ranges::default(),
            applies: applies::Applies::default(),
            apply: Histogram::new(DISK_BUCKETS),
            slow_applies: AtomicU64::new(0),
            operations: operations::Operations::default(),
            read_index: Histogram::new(READ_BUCKETS),
            read_indexes_failed: AtomicU64::new(0),
            slow_read_indexes: AtomicU64::new(0),
            hash: Histogram::new(HASH_BUCKETS),
            hash_kv: Histogram::new(HASH_BUCKETS),
            renewals: AtomicU64::new(0),
            promotions: promotions::Promotions::default(),
            installing: AtomicBool::new(false),
            healed_values: AtomicU64::new(0),
            damaged_values: AtomicU64::new(0),
            turned_away: turned_away::TurnedAway::default(),
            peers: peers::PeerMetrics::default(),
        }
    }
}

impl CoreMetrics {
    /// A batch was applied and published.
    pub fn applied(&self, took: Duration) {
        self.apply.observe(took);
        if took > SLOW_APPLY {
            self.slow_applies.fetch_add(1, Relaxed);
        }
    }

    /// Writes all metrics but those of the peers.
    pub fn write(&self, text: &mut Text) {
        for (name, help, histogram) in [
            (
                "etcd_disk_backend_commit_duration_seconds",
                "Seconds that applying and publishing a batch took; no file is written then.",
                &self.apply,
            ),
            (
                "quorate_read_index_duration_seconds",
                "Seconds from a linearizable read until the state to read was known.",
                &self.read_index,
            ),
            (
                "etcd_mvcc_hash_duration_seconds",
                "Seconds that a Hash of the store took, the wait for its turn included.",
                &self.hash,
            ),
            (
                "etcd_mvcc_hash_rev_duration_seconds",
                "Seconds that a HashKV of the store at a revision took, the wait for its turn included.",
                &self.hash_kv,
            ),
        ] {
            text.head(name, "histogram", help);
            histogram.write(text, name, "");
        }
        self.disk.write(text);
        self.applies.write(text);
        self.ranges.write(text);
        self.operations.write(text);
        self.promotions.write(text);
        self.turned_away.write(text);
        for (name, kind, help, value) in [
            (
                "etcd_server_slow_apply_total",
                "counter",
                "Batches that took more than 0.1 s to apply.",
                self.slow_applies.load(Relaxed),
            ),
            (
                "etcd_server_read_indexes_failed_total",
                "counter",
                "Linearizable reads that failed before the state to read was known, the member's own included.",
                self.read_indexes_failed.load(Relaxed),
            ),
            (
                "etcd_server_slow_read_indexes_total",
                "counter",
                "Of these, those that timed out.",
                self.slow_read_indexes.load(Relaxed),
            ),
            (
                "etcd_debugging_lease_renewed_total",
                "counter",
                "Renewals of leases that this member has answered, and not only the leader as in etcd.",
                self.renewals.load(Relaxed),
            ),
            (
                "etcd_server_snapshot_apply_in_progress_total",
                "gauge",
                "Whether a snapshot of the leader's is being installed.",
                self.installing.load(Relaxed).into(),
            ),
            (
                "quorate_healed_values_total",
                "counter",
                "Damaged values of the disk that were healed from another member.",
                self.healed_values.load(Relaxed),
            ),
            (
                "quorate_damaged_values",
                "gauge",
                "Values of the disk that readers found damaged, and that are not healed yet.",
                self.damaged_values.load(Relaxed),
            ),
        ] {
            text.single(name, kind, help, value);
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

    /// The complete text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// The kernel's data about this process; nothing if they are not available.
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
    if let (Some(hundredths), Some(booted)) = (field(22), booted()) {
        text.single(
            "process_start_time_seconds",
            "gauge",
            "When the process started, in Unix seconds.",
            booted.saturating_add(hundredths / 100),
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
        let open = open.count();
        for name in ["process_open_fds", "os_fd_used"] {
            text.single(name, "gauge", "Open file descriptors.", open);
        }
    }
}

/// When the machine started, in Unix seconds.
fn booted() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let mut lines = stat.lines();
    lines.find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{CoreMetrics, Histogram, Text, write_process};
    use std::time::Duration;

    #[test]
    fn what_has_not_happened_is_zero() {
        let mut text = Text::default();
        CoreMetrics::default().write(&mut text);
        let text = text.finish();
        for line in [
            "etcd_disk_wal_write_duration_seconds_count 0",
            "etcd_disk_wal_fsync_duration_seconds_count 0",
            "etcd_server_learner_promote_successes 0",
            "etcd_debugging_mvcc_db_compaction_last 0",
            "quorate_healed_values_total 0",
            "quorate_damaged_values 0",
        ] {
            let there = text.lines().any(|have| have == line);
            assert!(there, "{line} is not in\n{text}");
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
