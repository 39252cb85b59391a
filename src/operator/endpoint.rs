//! What the operator's HTTP endpoints share: connections that are bounded in number and time, and the bearer token of a
//! request. Knows no path, and answers nothing itself.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, Request, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// After an accept that failed: the usual cause, no free descriptors, passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one endpoint allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The endpoint's name in the log.
    pub(crate) name: &'static str,
    /// Connections at the same time.
    pub(crate) connections: usize,
    /// The longest that a connection is kept.
    pub(crate) lifetime: Duration,
    /// Whether a connection may carry another request after the first.
    pub(crate) keep_alive: bool,
}

/// Ends the connection that a request came by; in the extensions of each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(CancellationToken);

impl Cut {
    /// Closes it, whatever of an answer has not been sent yet.
    pub(crate) fn now(&self) {
        self.0.cancel();
    }

    /// Whether it was closed so.
    #[cfg(test)]
    pub(crate) fn is_cut(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Accepts connections forever. One that does not send a complete header in time is closed, and beyond a maximum number
/// the next ones wait: an attacker delays others for seconds, and uses no memory.
pub(crate) async fn serve(listener: TcpListener, routes: Router, limits: Limits) {
    let open = Arc::new(Semaphore::new(limits.connections));
    loop {
        let turn = open.clone().acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, endpoint = limits.name, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let routes = routes.clone();
        tokio::spawn(async move {
            let _turn = turn;
            connection(stream, routes, limits).await;
        });
    }
}

async fn connection(stream: TcpStream, routes: Router, limits: Limits) {
    let cut = Cut::default();
    let given = cut.clone();
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(given.clone());
        routes.clone().call(request)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(limits.keep_alive);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    // A failed connection does not affect the others.
    tokio::select! {
        _ = tokio::time::timeout(limits.lifetime, served) => {}
        () = cut.0.cancelled() => {}
    }
}

/// The token of `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    Some(given.strip_prefix("Bearer ")?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_is_one() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer a.b ").as_deref(), Some("a.b"));
        assert_eq!(of("Basic YTpi"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
