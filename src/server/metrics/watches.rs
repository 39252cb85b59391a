//! The metrics of watch streams and their watchers: how many are open, how many are behind, what they were sent, and why the
//! server ended some. Those that clients end are not among these.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Text;

/// Why the server ends watchers, or refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// What it was to be sent next is compacted.
    Compacted,
    /// A value that it was to be sent cannot be read.
    Damaged,
    /// No leader was known for too long, and its client had asked to be told; one for each stream.
    NoLeader,
    /// Its client may not read these keys.
    Denied,
    /// The member has as many as it takes.
    TooMany,
}

const CAUSES: [(Cause, &str); 5] = [
    (Cause::Compacted, "compacted"),
    (Cause::Damaged, "damaged"),
    (Cause::NoLeader, "no_leader"),
    (Cause::Denied, "denied"),
    (Cause::TooMany, "too_many"),
];

/// The counters.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    /// Open watch streams.
    pub streams: AtomicU64,
    /// Watchers on them.
    pub watchers: AtomicU64,
    /// Of these, those that are being sent what is older.
    pub behind: AtomicU64,
    /// Events sent.
    pub events: AtomicU64,
    ended: [AtomicU64; CAUSES.len()],
}

impl WatchMetrics {
    /// A watcher was ended or refused.
    pub fn ended(&self, cause: Cause) {
        self.ended[cause as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text) {
        for (name, kind, help, value) in [
            (
                "etcd_debugging_mvcc_watch_stream_total",
                "gauge",
                "Watch streams that are open.",
                &self.streams,
            ),
            (
                "etcd_debugging_mvcc_watcher_total",
                "gauge",
                "Watchers on open streams.",
                &self.watchers,
            ),
            (
                "etcd_debugging_mvcc_slow_watcher_total",
                "gauge",
                "Watchers that are behind, and are sent what is older; not those whose clients do not read.",
                &self.behind,
            ),
            (
                "etcd_debugging_mvcc_events_total",
                "counter",
                "Events sent to watchers.",
                &self.events,
            ),
        ] {
            text.single(name, kind, help, value.load(Relaxed));
        }
        let name = "quorate_server_watches_ended_total";
        let help = "Watchers that the server ended or refused, by cause.";
        text.head(name, "counter", help);
        for (cause, label) in CAUSES {
            let ended = self.ended[cause as usize].load(Relaxed);
            text.sample(name, &format!("cause=\"{label}\""), ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_by_cause() {
        for (index, (cause, _)) in CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, index);
        }
        let metrics = WatchMetrics::default();
        metrics.ended(Cause::Denied);
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for line in [
            "quorate_server_watches_ended_total{cause=\"compacted\"} 0",
            "quorate_server_watches_ended_total{cause=\"denied\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{text}");
        }
    }
}
