//! Connections to the peer port that came to nothing: TLS handshakes that failed, and links that were refused, by cause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Text;

/// Why a link was refused, in the order of the protocol's numbers from 1 on.
const CAUSES: [&str; 9] = [
    "format",
    "cluster",
    "member",
    "disk",
    "removed",
    "not_yet",
    "busy",
    "certificate",
    "copy",
];

/// Their counts.
#[derive(Debug, Default)]
pub struct TurnedAway {
    handshakes: AtomicU64,
    links: [AtomicU64; CAUSES.len()],
}

impl TurnedAway {
    /// A TLS handshake failed.
    pub fn handshake(&self) {
        self.handshakes.fetch_add(1, Relaxed);
    }

    /// A link was refused, for the cause of this number in the protocol; 0 is a welcome.
    pub fn link(&self, number: i32) {
        let cause = usize::try_from(number)
            .ok()
            .and_then(|it| it.checked_sub(1));
        if let Some(count) = cause.and_then(|cause| self.links.get(cause)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn write(&self, text: &mut Text) {
        let name = "quorate_server_peer_tls_handshakes_failed_total";
        text.head(
            name,
            "counter",
            "TLS handshakes on the peer port that failed.",
        );
        text.sample(name, "", self.handshakes.load(Relaxed));
        let name = "quorate_server_links_refused_total";
        text.head(
            name,
            "counter",
            "Links of peers that this member refused, by cause.",
        );
        for (cause, count) in CAUSES.iter().zip(&self.links) {
            text.sample(name, &format!("cause=\"{cause}\""), count.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_cause() {
        let away = TurnedAway::default();
        away.handshake();
        for number in [0, 3, 3, 9, 10, -1] {
            away.link(number);
        }
        let mut text = Text::default();
        away.write(&mut text);
        let text = text.finish();
        for line in [
            "quorate_server_peer_tls_handshakes_failed_total 1\n",
            "quorate_server_links_refused_total{cause=\"member\"} 2\n",
            "quorate_server_links_refused_total{cause=\"copy\"} 1\n",
            "quorate_server_links_refused_total{cause=\"format\"} 0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
