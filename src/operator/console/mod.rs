//! The console: a page that shows clusters, members, the step in hand, events and backups, and follows them as they
//! change. Served by the operator behind TokenReview and SubjectAccessReview, and by `quorate local` on loopback. It never
//! changes anything, reads no Secret and shows none, and makes no request of its own: a platform gives what it has anyway.
//!
//! The page itself holds no data. It reads one stream of server-sent events (`stream`), whose documents (`view`) are
//! functions of the resources.

mod events;
mod page;
mod positions;
mod routes;
mod stream;
#[cfg(test)]
mod testing;
mod view;

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::net::TcpListener;

pub(crate) use events::{Event, Recent};
pub(crate) use positions::{Position, positions};
pub(crate) use routes::routes;
pub(crate) use view::{Backup, Cluster, Document, Observed, Part, Row, backups, cluster, row};

use super::endpoint::Limits;
use crate::server::listen::listen_at;

/// Streams at the same time.
const STREAMS: usize = 32;
/// Of the console's own port: streams, and the page's files beside them. A page opens another stream when one ends.
pub(crate) const LIMITS: Limits = Limits {
    name: "console",
    connections: 2 * STREAMS,
    lifetime: Duration::from_secs(15 * 60),
    keep_alive: false,
};

/// A cluster: its namespace and name.
pub(crate) type Key = (String, String);

/// Who asks, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The bearer token.
    pub(crate) token: Option<String>,
    /// The namespace that is asked for; `None`: all of them.
    pub(crate) namespace: Option<String>,
    /// The cluster of which everything is shown.
    pub(crate) cluster: Option<Key>,
    /// The header `Host`.
    pub(crate) host: Option<String>,
    /// The header `Sec-Fetch-Site`: whose page asks, as browsers say it.
    pub(crate) site: Option<String>,
}

/// What somebody may see: the clusters of a namespace or of all, and what else of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// `None`: all of them.
    pub(crate) namespace: Option<String>,
    /// Why there are no backups, if there are none.
    pub(crate) backups: Result<(), String>,
    /// Why there are no events, if there are none.
    pub(crate) events: Result<(), String>,
}

impl Sight {
    /// Whether it covers this cluster.
    pub(crate) fn covers(&self, key: &Key) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == key.0)
    }
}

/// Where clusters are known: the caches of an operator, or this machine.
pub(crate) trait Source: Send + Sync + 'static {
    /// The time between two looks for a change.
    const PAUSE: Duration;

    /// What the caller may see. Asked again and again while his stream is open.
    fn sight(&self, request: &Request) -> impl Future<Output = Result<Sight, Error>> + Send;

    /// What is so now, as far as he may see it.
    fn document(
        &self,
        sight: &Sight,
        cluster: Option<&Key>,
    ) -> impl Future<Output = Document> + Send;
}

/// Why there is no console, or no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("cannot listen on {address} for the console: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// Others would reach a console that asks for no token.
    #[error(
        "the console of `quorate local` asks for no token, so it is served on loopback alone: give 127.0.0.1:PORT or [::1]:PORT instead of {0}"
    )]
    NotLoopback(SocketAddr),
    /// There is no bearer token.
    #[error(
        "give a token: `kubectl create token NAME --audience quorate.dev` prints one of a ServiceAccount that may list etcdclusters"
    )]
    NoToken,
    /// The token authenticates nobody.
    #[error(
        "{0}: create another with `kubectl create token NAME --audience quorate.dev`; one without that audience is not accepted"
    )]
    Unknown(String),
    /// He may not.
    #[error("{0}")]
    Forbidden(String),
    /// Whether he may cannot be found out.
    #[error("{0}")]
    Unclear(String),
    /// There are enough streams.
    #[error("{STREAMS} pages are open already: close one, or try again later")]
    TooMany,
    /// A name in the query is none.
    #[error("{0:?} is no name of a namespace or a cluster")]
    Name(String),
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::Unknown(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Name(_) => StatusCode::BAD_REQUEST,
            Self::Unclear(_) | Self::TooMany | Self::Listen { .. } | Self::NotLoopback(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

/// Binds the console's port, and says which it is.
pub(crate) fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let bound = || {
        let listener = TcpListener::from_std(listen_at(address)?)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound().map_err(|error: std::io::Error| Error::Listen {
        address,
        why: error.to_string(),
    })
}

/// An address that nobody else reaches.
pub(crate) fn loopback(address: SocketAddr) -> Result<SocketAddr, Error> {
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(Error::NotLoopback(address)),
    }
}
