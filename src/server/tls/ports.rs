//! How the two ports are secured at the moment, for whoever asks: an operator, or metrics.
//!
//! Each look reads changed files again, so that what is said is what the next connection meets.
//! Never holds a socket or a key.

use std::sync::{Arc, OnceLock};

use super::certificates::Certificate;
use super::{Reloaded, Served, Shown};
use crate::server::flags::config::Config;
use crate::server::listen::all_seats::AllSeats;

/// How one port is secured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSecurity {
    /// It takes TLS.
    pub(crate) tls: bool,
    /// It takes connections without TLS.
    pub(crate) plaintext: bool,
    /// The leaf that it shows.
    pub(crate) certificate: Option<Certificate>,
    /// SHA-256 of each root that the other side's certificate may lead to; sorted.
    pub(crate) trusted: Vec<String>,
}

impl PortSecurity {
    /// With what was read from files; nothing: a port without TLS.
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

/// Looks at a port.
pub(crate) type Look = Box<dyn Fn() -> PortSecurity + Send + Sync>;

/// Both ports, as soon as they are there.
#[derive(Default)]
pub(crate) struct Ports {
    pub(crate) peer: OnceLock<Look>,
    pub(crate) client: OnceLock<Look>,
    /// Who is connected to them.
    pub(crate) seats: OnceLock<AllSeats>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

impl Ports {
    /// The ports that are there, by their names.
    pub(crate) fn look(&self) -> impl Iterator<Item = (&'static str, PortSecurity)> {
        [("peer", &self.peer), ("client", &self.client)]
            .into_iter()
            .filter_map(|(name, look)| Some((name, look.get()?())))
    }
}

/// The client port of these settings.
pub(crate) fn client(config: &Config, tls: Option<Arc<Reloaded<Served>>>) -> Look {
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
