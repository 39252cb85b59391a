//! The present security of the two ports, for an operator and for metrics.
//!
//! Each query reloads changed files, so that the result matches the next connection. Never holds a
//! socket or a key.

use std::sync::{Arc, OnceLock};

use super::certificates::Certificate;
use super::{Reloaded, Served, Shown};
use crate::server::flags::config::Config;
use crate::server::listen::all_seats::AllSeats;

/// The security of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSecurity {
    /// It accepts TLS.
    pub(crate) tls: bool,
    /// It accepts plain text.
    pub(crate) plaintext: bool,
    /// The leaf that it presents.
    pub(crate) certificate: Option<Certificate>,
    /// SHA-256 of each CA that may verify the other side; sorted.
    pub(crate) trusted: Vec<String>,
}

impl PortSecurity {
    /// From the content of files; `None`: a port without TLS.
    pub(crate) fn new(shown: Option<&Shown>, plaintext: bool) -> PortSecurity {
        let Some(shown) = shown else {
            return PortSecurity {
                plaintext: true,
                ..PortSecurity::default()
            };
        };
        PortSecurity {
            tls: true,
            plaintext,
            certificate: shown.certificate.clone(),
            trusted: shown.trusted.clone(),
        }
    }
}

/// Reads the security of a port.
pub(crate) type SecurityReader = Box<dyn Fn() -> PortSecurity + Send + Sync>;

/// Both ports, once they are open.
#[derive(Default)]
pub(crate) struct Ports {
    pub(crate) peer: OnceLock<SecurityReader>,
    pub(crate) client: OnceLock<SecurityReader>,
    /// Their connections.
    pub(crate) seats: OnceLock<AllSeats>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

impl Ports {
    /// The open ports, by name.
    pub(crate) fn security(&self) -> impl Iterator<Item = (&'static str, PortSecurity)> {
        [("peer", &self.peer), ("client", &self.client)]
            .into_iter()
            .filter_map(|(name, read)| Some((name, read.get()?())))
    }
}

/// The client port of these settings.
pub(crate) fn client(config: &Config, tls: Option<Arc<Reloaded<Served>>>) -> SecurityReader {
    let urls = || {
        let http = config.listen_client_http_urls.iter();
        config.listen_client_urls.iter().chain(http)
    };
    let plaintext = config.client_plaintext || urls().any(|url| !url.tls());
    let tls = tls.filter(|_| urls().any(|url| url.tls()));
    Box::new(move || {
        let served = tls.as_ref().map(|tls| tls.current());
        PortSecurity::new(served.as_ref().map(|served| &served.shown), plaintext)
    })
}
