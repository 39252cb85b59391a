//! The traffic with each peer, under etcd's names: messages, their links, checkpoints in either direction, and what waits to be sent.
//!
//! Under one lock that is held for an addition: it is taken once for a write of many messages, and never by a client's request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Histogram, Text};

/// Upper bounds of the buckets for the round trip to a peer, in seconds; etcd's.
const TRIP_BUCKETS: &[f64] = &[
    0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025_6, 0.051_2,
    0.102_4, 0.204_8, 0.409_6, 0.819_2, 1.638_4, 3.276_8,
];

/// The same for a checkpoint to or from a peer; etcd's.
const CHECKPOINT_BUCKETS: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2];

/// Where a checkpoint goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the peer.
    Send,
    /// From it.
    Receive,
}

/// The peers, by ID: those to which this member has a link or dials one, which are the other members and a bounded number of
/// unknown peers. What comes about others, such as the end of a link to one that was forgotten, is not counted.
#[derive(Debug, Default)]
pub struct PeerMetrics(Mutex<BTreeMap<u64, Traffic>>);

/// The traffic of the links with one peer.
#[derive(Debug)]
struct Traffic {
    sent_bytes: u64,
    received_bytes: u64,
    failures: u64,
    /// Links that are established: for a moment two, where a peer's address has changed.
    links: u64,
    /// Links that were established, and ended.
    ended: u64,
    round_trip: Histogram,
    /// Bytes of messages that wait to be sent.
    waiting: Option<Arc<AtomicUsize>>,
    checkpoints: [Checkpoints; 2],
}

#[derive(Debug)]
struct Checkpoints {
    under_way: u64,
    succeeded: u64,
    failed: u64,
    seconds: Histogram,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints {
            under_way: 0,
            succeeded: 0,
            failed: 0,
            seconds: Histogram::new(CHECKPOINT_BUCKETS),
        }
    }
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            sent_bytes: 0,
            received_bytes: 0,
            failures: 0,
            links: 0,
            ended: 0,
            round_trip: Histogram::new(TRIP_BUCKETS),
            waiting: None,
            checkpoints: Default::default(),
        }
    }
}

/// A checkpoint that is under way; has failed if it is dropped before it is [done](Self::done).
#[derive(Debug)]
pub struct Sending<'a> {
    peers: &'a PeerMetrics,
    peer: u64,
    way: Way,
    began: Instant,
    succeeded: bool,
}

impl Sending<'_> {
    /// It arrived.
    pub fn done(mut self) {
        self.succeeded = true;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let (succeeded, took) = (self.succeeded, self.began.elapsed());
        self.peers.of(self.peer, |peer| {
            let checkpoints = &mut peer.checkpoints[self.way as usize];
            // The peer may have been forgotten, and met again, in the meantime.
            checkpoints.under_way = checkpoints.under_way.saturating_sub(1);
            checkpoints.succeeded += u64::from(succeeded);
            checkpoints.failed += u64::from(!succeeded);
            // As in etcd, of those that arrived.
            if succeeded {
                checkpoints.seconds.observe(took);
            }
        });
    }
}

impl PeerMetrics {
    fn of(&self, id: u64, change: impl FnOnce(&mut Traffic)) {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get_mut(&id) {
            change(peer);
        }
    }

    /// These are the peers from now on; others are forgotten.
    pub fn keep(&self, ids: impl Iterator<Item = u64>) {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: BTreeSet<u64> = ids.collect();
        peers.retain(|id, _| ids.contains(id));
        for id in ids {
            peers.entry(id).or_default();
        }
    }

    /// Bytes were sent to a peer.
    pub fn sent(&self, id: u64, bytes: usize) {
        self.of(id, |peer| peer.sent_bytes += bytes as u64);
    }

    /// Bytes were received from a peer.
    pub fn received(&self, id: u64, bytes: usize) {
        self.of(id, |peer| peer.received_bytes += bytes as u64);
    }

    /// A peer answered a heartbeat.
    pub fn round_trip(&self, id: u64, took: Duration) {
        self.of(id, |peer| peer.round_trip.observe(took));
    }

    /// A link to a peer broke, or could not be made.
    pub fn failed(&self, id: u64) {
        self.of(id, |peer| peer.failures += 1);
    }

    /// A link to a peer is established.
    pub fn linked(&self, id: u64) {
        self.of(id, |peer| peer.links += 1);
    }

    /// It has ended, for whatever reason.
    pub fn parted(&self, id: u64) {
        self.of(id, |peer| {
            peer.ended += peer.links.min(1);
            peer.links = peer.links.saturating_sub(1);
        });
    }

    /// What waits to be sent to a peer, in bytes.
    pub fn waits(&self, id: u64, waiting: Arc<AtomicUsize>) {
        self.of(id, |peer| peer.waiting = Some(waiting));
    }

    /// A checkpoint begins to be sent or received.
    pub fn checkpoint(&self, id: u64, way: Way) -> Sending<'_> {
        self.of(id, |peer| peer.checkpoints[way as usize].under_way += 1);
        Sending {
            peers: self,
            peer: id,
            way,
            began: Instant::now(),
            succeeded: false,
        }
    }

    /// Writes the metrics of `own`, the ID of this member, and its peers. `known` are those of the membership.
    pub fn write(&self, text: &mut Text, own: u64, known: impl Iterator<Item = u64>) {
        let local = format!("Local=\"{own:x}\",Remote=");
        let name = "etcd_network_known_peers";
        text.head(name, "gauge", "The other members of the cluster.");
        for id in known.filter(|id| *id != own) {
            text.sample(name, &format!("{local}\"{id:x}\""), 1);
        }
        let peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_links: [(&str, &str, &str, Of); 2] = [
            (
                "etcd_network_active_peers",
                "gauge",
                "Links to a peer that are established.",
                |peer| peer.links,
            ),
            (
                "etcd_network_disconnected_peers_total",
                "counter",
                "Established links to a peer that ended.",
                |peer| peer.ended,
            ),
        ];
        for (name, kind, help, of) in of_links {
            text.head(name, kind, help);
            for (id, peer) in &*peers {
                text.sample(name, &format!("{local}\"{id:x}\""), of(peer));
            }
        }
        write_trips(text, &peers);
        for (name, kind, label, help, of) in OF_PEERS {
            text.head(name, kind, help);
            for (id, peer) in &*peers {
                text.sample(name, &format!("{label}=\"{id:x}\""), of(peer));
            }
        }
        write_checkpoints(text, &peers);
    }
}

fn write_trips(text: &mut Text, peers: &BTreeMap<u64, Traffic>) {
    let name = "etcd_network_peer_round_trip_time_seconds";
    text.head(
        name,
        "histogram",
        "Seconds between a sign of life to a peer and its answer, once a second.",
    );
    for (id, peer) in peers {
        peer.round_trip.write(text, name, &format!("To=\"{id:x}\""));
    }
}

type Of = fn(&Traffic) -> u64;

/// Name, type, label, meaning.
const OF_PEERS: [(&str, &str, &str, &str, Of); 10] = [
    (
        "etcd_network_peer_sent_bytes_total",
        "counter",
        "To",
        "Bytes of messages sent to a peer.",
        |peer| peer.sent_bytes,
    ),
    (
        "etcd_network_peer_received_bytes_total",
        "counter",
        "From",
        "Bytes of messages received from a peer.",
        |peer| peer.received_bytes,
    ),
    (
        "etcd_network_peer_sent_failures_total",
        "counter",
        "To",
        "Links to a peer that broke or were refused.",
        |peer| peer.failures,
    ),
    (
        "quorate_peer_queue_bytes",
        "gauge",
        "To",
        "Bytes of messages that wait to be sent to a peer.",
        |peer| {
            let waiting = peer.waiting.as_ref();
            waiting.map_or(0, |bytes| bytes.load(Relaxed) as u64)
        },
    ),
    (
        "etcd_network_snapshot_send_success",
        "counter",
        "To",
        "Checkpoints that arrived at a peer.",
        |peer| peer.checkpoints[Way::Send as usize].succeeded,
    ),
    (
        "etcd_network_snapshot_send_failures",
        "counter",
        "To",
        "Checkpoints that did not arrive at a peer.",
        |peer| peer.checkpoints[Way::Send as usize].failed,
    ),
    (
        "etcd_network_snapshot_send_inflights_total",
        "gauge",
        "To",
        "Checkpoints that are being sent to a peer, or wait for their turn.",
        |peer| peer.checkpoints[Way::Send as usize].under_way,
    ),
    (
        "etcd_network_snapshot_receive_success",
        "counter",
        "From",
        "Checkpoints that arrived from a peer.",
        |peer| peer.checkpoints[Way::Receive as usize].succeeded,
    ),
    (
        "etcd_network_snapshot_receive_failures",
        "counter",
        "From",
        "Checkpoints of a peer that were refused, or did not arrive as a whole.",
        |peer| peer.checkpoints[Way::Receive as usize].failed,
    ),
    (
        "etcd_network_snapshot_receive_inflights_total",
        "gauge",
        "From",
        "Checkpoints that are being received from a peer.",
        |peer| peer.checkpoints[Way::Receive as usize].under_way,
    ),
];

/// How long they took; of a peer to or from which none went, nothing.
fn write_checkpoints(text: &mut Text, peers: &BTreeMap<u64, Traffic>) {
    for (name, label, help, way) in [
        (
            "etcd_network_snapshot_send_total_duration_seconds",
            "To",
            "Seconds that a checkpoint to a peer took, the wait for its turn included.",
            Way::Send,
        ),
        (
            "etcd_network_snapshot_receive_total_duration_seconds",
            "From",
            "Seconds that a checkpoint from a peer took.",
            Way::Receive,
        ),
    ] {
        text.head(name, "histogram", help);
        for (id, peer) in peers {
            let seconds = &peer.checkpoints[way as usize].seconds;
            if !seconds.is_empty() {
                seconds.write(text, name, &format!("{label}=\"{id:x}\""));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[u64]) -> PeerMetrics {
        let peers = PeerMetrics::default();
        peers.keep(ids.iter().copied());
        peers
    }

    fn written(peers: &PeerMetrics) -> String {
        let mut text = Text::default();
        peers.write(&mut text, 0xa, [0xa, 0xb].into_iter());
        text.finish()
    }

    #[track_caller]
    fn has(text: &str, wanted: &str) {
        let there = text.lines().any(|line| line == wanted);
        assert!(there, "{wanted} is not in\n{text}");
    }

    #[test]
    fn peers_are_distinguished_by_id() {
        let peers = of(&[0xab, 0xcd]);
        peers.sent(0xab, 10);
        peers.sent(0xab, 5);
        peers.received(0xcd, 7);
        peers.failed(0xcd);
        peers.round_trip(0xcd, Duration::from_millis(1));
        let text = written(&peers);
        for line in [
            "etcd_network_peer_sent_bytes_total{To=\"ab\"} 15",
            "etcd_network_peer_received_bytes_total{From=\"cd\"} 7",
            "etcd_network_peer_sent_failures_total{To=\"cd\"} 1",
            "etcd_network_peer_round_trip_time_seconds_bucket{To=\"cd\",le=\"0.0008\"} 0",
            "etcd_network_peer_round_trip_time_seconds_bucket{To=\"cd\",le=\"0.0016\"} 1",
        ] {
            has(&text, line);
        }
    }

    #[test]
    fn links_are_told_while_they_are_there_and_after() {
        let peers = of(&[0xb]);
        peers.failed(0xb);
        // The end of a link that never was.
        peers.parted(0xb);
        peers.linked(0xb);
        let text = written(&peers);
        has(&text, r#"etcd_network_known_peers{Local="a",Remote="b"} 1"#);
        assert!(!text.contains(r#"Remote="a""#), "{text}");
        has(
            &text,
            r#"etcd_network_active_peers{Local="a",Remote="b"} 1"#,
        );
        let ended = |number| {
            format!(r#"etcd_network_disconnected_peers_total{{Local="a",Remote="b"}} {number}"#)
        };
        has(&text, &ended(0));
        peers.parted(0xb);
        let text = written(&peers);
        has(
            &text,
            r#"etcd_network_active_peers{Local="a",Remote="b"} 0"#,
        );
        has(&text, &ended(1));
        has(&text, r#"etcd_network_peer_sent_failures_total{To="b"} 1"#);
    }

    #[test]
    fn queue_of_a_peer_is_the_present_one() {
        let peers = of(&[0xb]);
        let waiting = Arc::new(AtomicUsize::new(7));
        peers.waits(0xb, Arc::clone(&waiting));
        has(&written(&peers), r#"quorate_peer_queue_bytes{To="b"} 7"#);
        waiting.store(0, Relaxed);
        has(&written(&peers), r#"quorate_peer_queue_bytes{To="b"} 0"#);
    }

    /// Whoever reached the peer port with one ID after the other left an entry for each, for the life of the server; and so did
    /// members that were replaced.
    #[test]
    fn only_present_peers_are_kept() {
        let peers = of(&[0xb]);
        peers.sent(0xb, 3);
        for id in 0x100..0x1100 {
            peers.keep([0xb, id].into_iter());
            peers.linked(id);
            // What is under way when the peer is forgotten.
            let sending = peers.checkpoint(id, Way::Send);
            peers.keep([0xb].into_iter());
            drop(sending);
            peers.parted(id);
            peers.received(id, 1);
            peers.failed(id);
            drop(peers.checkpoint(id, Way::Receive));
        }
        let kept: Vec<u64> = peers.0.lock().expect("unharmed").keys().copied().collect();
        assert_eq!(kept, [0xb]);
        let sending = peers.checkpoint(0xb, Way::Send);
        peers.keep([0xc].into_iter());
        peers.keep([0xb].into_iter());
        drop(sending);
        let text = written(&peers);
        for line in [
            r#"etcd_network_peer_sent_bytes_total{To="b"} 0"#,
            r#"etcd_network_snapshot_send_inflights_total{To="b"} 0"#,
        ] {
            has(&text, line);
        }
    }

    #[test]
    fn checkpoints_arrive_or_fail() {
        let peers = of(&[0xb]);
        let first = peers.checkpoint(0xb, Way::Send);
        let second = peers.checkpoint(0xb, Way::Receive);
        let text = written(&peers);
        has(
            &text,
            r#"etcd_network_snapshot_send_inflights_total{To="b"} 1"#,
        );
        assert!(
            !text.contains("send_total_duration_seconds_count"),
            "{text}"
        );
        first.done();
        drop(second);
        let text = written(&peers);
        for line in [
            r#"etcd_network_snapshot_send_inflights_total{To="b"} 0"#,
            r#"etcd_network_snapshot_send_success{To="b"} 1"#,
            r#"etcd_network_snapshot_send_failures{To="b"} 0"#,
            r#"etcd_network_snapshot_send_total_duration_seconds_count{To="b"} 1"#,
            r#"etcd_network_snapshot_receive_success{From="b"} 0"#,
            r#"etcd_network_snapshot_receive_failures{From="b"} 1"#,
            r#"etcd_network_snapshot_receive_inflights_total{From="b"} 0"#,
        ] {
            has(&text, line);
        }
    }
}
