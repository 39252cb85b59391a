//! The seats of the client ports and the probe ports, and their metrics. Never assigns one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::seats::Seats;
use crate::server::metrics::Text;
use crate::server::process::descriptors::Shares;

/// The seats of the client ports and the probe ports.
#[derive(Clone, Debug)]
pub(crate) struct AllSeats {
    /// The limit on open files from which their numbers are derived.
    pub(crate) limit: u64,
    /// The client ports.
    pub(crate) clients: Arc<Seats>,
    /// The ports of metrics and probes.
    pub(crate) probes: Arc<Seats>,
}

impl AllSeats {
    /// The seats of these shares, with at most `calls` concurrent client requests.
    pub(crate) fn of(shares: Shares, calls: usize) -> AllSeats {
        AllSeats {
            limit: shares.limit,
            clients: Seats::new("client", shares.clients, calls),
            probes: Seats::new("metrics", shares.probes, calls),
        }
    }

    /// Writes their metrics.
    pub(crate) fn write(&self, text: &mut Text) {
        type Value = fn(&Seats) -> u64;
        for name in ["process_max_fds", "os_fd_limit"] {
            let help = "Files and connections that the process may have open.";
            text.single(name, "gauge", help, self.limit);
        }
        let all = [&self.clients, &self.probes];
        let metrics: [(&str, &str, &str, Value); 6] = [
            (
                "quorate_server_connections",
                "gauge",
                "Connections that are open, by port.",
                |seats| seats.taken() as u64,
            ),
            (
                "quorate_server_connections_limit",
                "gauge",
                "Connections that may be open, by port.",
                |seats| seats.most() as u64,
            ),
            (
                "quorate_server_connections_refused_total",
                "counter",
                "Connections refused because every other one was in use.",
                |seats| seats.refused.load(Relaxed),
            ),
            (
                "quorate_server_connections_evicted_total",
                "counter",
                "Idle connections closed to make room for new ones.",
                |seats| seats.evicted.load(Relaxed),
            ),
            (
                "quorate_server_requests_in_flight",
                "gauge",
                "Requests and streams under way, by port.",
                |seats| seats.calls() as u64,
            ),
            (
                "quorate_server_requests_refused_total",
                "counter",
                "Requests refused because too many were under way.",
                |seats| seats.refused_calls.load(Relaxed),
            ),
        ];
        for (name, kind, help, value) in metrics {
            text.head(name, kind, help);
            for seats in all {
                text.sample(name, &format!("port=\"{}\"", seats.name), value(seats));
            }
        }
    }
}
