//! What the console shows of this machine's cluster: the resource with its status, the members' positions and the last
//! events, as the loop has them. To whoever is on this machine: no token, but only at a loopback address, by a loopback
//! name, and to no page of another site.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::crd::{EtcdCluster, EtcdClusterStatus};
use crate::operator::clock::Clock;
use crate::operator::console::{
    self, Document, Error, Key, Observed, Part, Recent, Request, Sight, Source,
};
use crate::operator::endpoint;
use crate::operator::platform::Event;
use crate::plan::Description;

/// What is shown.
#[derive(Debug)]
pub struct Shown {
    clock: Clock,
    events: Recent,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    cluster: Option<EtcdCluster>,
    observed: Observed,
}

impl Shown {
    /// Serves the console at this loopback address, and returns what it shows and where it is.
    pub(super) fn serve(address: SocketAddr) -> Result<(Arc<Self>, SocketAddr), Error> {
        let (listener, address) = console::bind(console::loopback(address)?)?;
        let shown = Arc::new(Self {
            clock: Clock::machine(),
            events: Recent::default(),
            inner: Mutex::default(),
        });
        let routes = console::routes(shown.clone());
        tokio::spawn(endpoint::serve(listener, routes, console::LIMITS));
        Ok((shown, address))
    }

    /// The cluster as it is now.
    pub(super) fn show(
        &self,
        resource: &EtcdCluster,
        status: &EtcdClusterStatus,
        descriptions: Option<&BTreeMap<String, Description>>,
    ) {
        let mut cluster = resource.clone();
        cluster.status = Some(status.clone());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.cluster = Some(cluster);
        if let Some(descriptions) = descriptions {
            inner.observed.positions = console::positions(descriptions);
        }
    }

    /// An event about it.
    pub(super) fn published(&self, key: &Key, event: &Event) {
        let milliseconds = i64::try_from(self.clock.unix_ms()).unwrap_or(i64::MAX);
        let time = Timestamp::from_second(milliseconds / 1_000).unwrap_or_default();
        self.events.keep(key, event, time);
    }
}

impl Source for Shown {
    const PAUSE: Duration = Duration::from_millis(250);

    async fn sight(&self, request: &Request) -> Result<Sight, Error> {
        let host = request.host.as_deref().unwrap_or_default();
        if !is_loopback(host) {
            return Err(Error::Forbidden(format!(
                "this console is for this machine alone, and asked for as {host:?}: open it as http://localhost or http://127.0.0.1"
            )));
        }
        let site = request.site.as_deref();
        if !matches!(site, None | Some("same-origin" | "none")) {
            let why = "this console answers its own page, and no other site's";
            return Err(Error::Forbidden(why.to_owned()));
        }
        Ok(Sight {
            namespace: request.namespace.clone(),
            backups: Err(
                "There are no EtcdBackups on this machine: save the cluster with quorate backup save."
                    .to_owned(),
            ),
            events: Ok(()),
        })
    }

    async fn document(&self, sight: &Sight, cluster: Option<&Key>) -> Document {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let row = inner.cluster.as_ref().map(console::row);
        let key = |row: &console::Row| (row.namespace.clone(), row.name.clone());
        let row = row.filter(|row| sight.covers(&key(row)));
        let shown = inner.cluster.as_ref().filter(|_| {
            let own = row.as_ref().map(key);
            own.is_some() && own.as_ref() == cluster
        });
        let whole = |shown: &EtcdCluster, key: &Key| {
            let backups = Part::of(&sight.backups, Vec::new);
            let events = Part::of(&sight.events, || self.events.of(key));
            console::cluster(shown, &inner.observed, backups, events)
        };
        Document {
            version: env!("CARGO_PKG_VERSION"),
            active: true,
            namespace: sight.namespace.clone(),
            cluster: shown.zip(cluster).map(|(shown, key)| whole(shown, key)),
            clusters: row.into_iter().collect(),
            omitted: 0,
            unreadable: 0,
        }
    }
}

/// Whether a `Host` names this machine: another name that leads here may be a stranger's, whose page would then read this.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_taken() {
        for host in [
            "localhost",
            "localhost:80",
            "127.0.0.1:9",
            "[::1]:9",
            "[::1]",
            "LOCALHOST:1",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "a.example:80",
            "10.0.0.1:80",
            "localhost.a.example",
            "127.0.0.1.a:1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
