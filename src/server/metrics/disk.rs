//! What the log and the checkpoints take: bytes, seconds and when. Of the volume itself nothing is told here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{DISK_BUCKETS, Histogram, Text};

/// Upper bounds of the buckets for checkpoints, in seconds.
const CHECKPOINT_BUCKETS: &[f64] = &[
    0.015_625, 0.031_25, 0.062_5, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0,
    256.0,
];

/// The measurements. Those of files are absent until there was something to measure.
#[derive(Debug)]
pub struct DiskMetrics {
    /// One batch handed to the kernel.
    pub log_write: Histogram,
    /// The same until the disk has it.
    pub log_sync: Histogram,
    written_bytes: AtomicU64,
    log_bytes: AtomicU64,
    checkpoints: Histogram,
    checkpoint_bytes: AtomicU64,
    checkpoint_unix_ms: AtomicU64,
}

impl Default for DiskMetrics {
    fn default() -> DiskMetrics {
        DiskMetrics {
            log_write: Histogram::new(DISK_BUCKETS),
            log_sync: Histogram::new(DISK_BUCKETS),
            written_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            checkpoints: Histogram::new(CHECKPOINT_BUCKETS),
            checkpoint_bytes: AtomicU64::new(0),
            checkpoint_unix_ms: AtomicU64::new(0),
        }
    }
}

impl DiskMetrics {
    /// So many bytes were written to the log since the start.
    pub fn log_written(&self, bytes: u64) {
        self.written_bytes.store(bytes, Relaxed);
    }

    /// The log's segments take so many bytes, zeros ahead of its end included.
    pub fn log_measured(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }

    /// A checkpoint was written.
    pub fn checkpoint_done(&self, bytes: u64, took: Duration, unix_ms: u64) {
        self.checkpoints.observe(took);
        self.checkpoint_bytes.store(bytes, Relaxed);
        self.checkpoint_unix_ms.store(unix_ms, Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text) {
        for (name, help, times) in [
            (
                "etcd_disk_wal_write_duration_seconds",
                "Seconds that writing a batch to the log took, until the kernel had it.",
                &self.log_write,
            ),
            (
                "etcd_disk_wal_fsync_duration_seconds",
                "Seconds that syncing a batch of the log took, after it was written.",
                &self.log_sync,
            ),
        ] {
            text.head(name, "histogram", help);
            times.write(text, name, "");
        }
        text.single(
            "etcd_disk_wal_write_bytes_total",
            "counter",
            "Bytes written to the log since the start.",
            self.written_bytes.load(Relaxed),
        );
        let measured = |text: &mut Text, name, help, value: u64| {
            if value > 0 {
                text.single(name, "gauge", help, value);
            }
        };
        measured(
            text,
            "quorate_log_bytes",
            "Bytes of the log's segments, those written ahead included.",
            self.log_bytes.load(Relaxed),
        );
        let name = "quorate_checkpoint_duration_seconds";
        let help = "Seconds that a checkpoint took, beside everything else.";
        text.head(name, "histogram", help);
        self.checkpoints.write(text, name, "");
        measured(
            text,
            "quorate_checkpoint_bytes",
            "Bytes of the last checkpoint of this start, without files of values.",
            self.checkpoint_bytes.load(Relaxed),
        );
        let unix_ms = self.checkpoint_unix_ms.load(Relaxed);
        if unix_ms > 0 {
            text.single(
                "quorate_checkpoint_timestamp_seconds",
                "gauge",
                "When the last checkpoint of this start was done, in Unix seconds.",
                Duration::from_millis(unix_ms).as_secs_f64(),
            );
        }
    }
}
