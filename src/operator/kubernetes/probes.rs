//! The operator's own HTTP endpoint: `/livez` and `/readyz` for everyone, `/metrics` for callers that the API server
//! authorises, and `/forecast` if enabled. Ready means that the caches are filled; it does not need the Lease, so that
//! a standby replica is ready too. Alive means that no reconcile has been stuck. Nothing here changes anything.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use prometheus_client::registry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::callers::{Callers, Refusal, Wish};
use crate::operator::endpoint::{self, Limits, bearer};
use crate::server::listen::listen_at;

/// A reconcile that takes longer than this is stuck: each of its calls is bounded far below.
const STUCK: Duration = Duration::from_secs(300);
/// Kubelets and scrapers make new connections.
const LIMITS: Limits = Limits {
    name: "probes",
    connections: 64,
    lifetime: Duration::from_secs(60),
    keep_alive: true,
};
/// Answers to scrapes that are made or sent at the same time: with ten thousand clusters one is some 70 MB.
const SCRAPES: usize = 2;
/// How long a scrape waits for its turn.
const TURN: Duration = Duration::from_secs(5);
/// An answer is sent in parts of so many bytes.
const PART: usize = 64 << 10;

/// What the probes answer from.
#[derive(Debug, Default)]
pub struct Health {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: bool,
    /// Passes under way, by cluster.
    reconciles: BTreeMap<String, Instant>,
}

impl Health {
    /// The caches are filled.
    pub fn set_ready(&self) {
        self.lock().ready = true;
    }

    /// A reconcile of this cluster begins.
    pub fn begin(&self, cluster: &str) {
        self.lock()
            .reconciles
            .insert(cluster.to_owned(), Instant::now());
    }

    /// The reconcile ended.
    pub fn end(&self, cluster: &str) {
        self.lock().reconciles.remove(cluster);
    }

    fn stuck(&self, now: Instant) -> Option<String> {
        let inner = self.lock();
        let stuck = inner
            .reconciles
            .iter()
            .find(|(_, begun)| now.duration_since(**begun) > STUCK);
        stuck.map(|(cluster, _)| cluster.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who may read the metrics, which name the clusters, and the Secrets with certificates, of every
/// namespace.
#[derive(Clone)]
pub(super) enum Metered {
    /// No one.
    Nobody,
    /// Anyone who reaches the port.
    Everybody,
    /// Bearer tokens that the API server authenticates, and whose subject may read `/metrics`.
    Known(Arc<Callers>),
}

#[derive(Clone)]
struct ProbeState {
    health: Arc<Health>,
    registry: Arc<Registry>,
    metered: Metered,
    scrapes: Arc<Semaphore>,
    /// Bytes of the last answer: of the next one about as many.
    scraped: Arc<AtomicUsize>,
}

/// Binds the endpoint; the returned future serves it, with these further routes. Fails at once if the port is in use.
pub(super) fn bind(
    address: SocketAddr,
    health: Arc<Health>,
    (registry, metered): (Arc<Registry>, Metered),
    further: Router,
) -> std::io::Result<impl Future<Output = ()>> {
    let listener = tokio::net::TcpListener::from_std(listen_at(address)?)?;
    let routes = further.merge(own(ProbeState {
        health,
        registry,
        metered,
        scrapes: Arc::new(Semaphore::new(SCRAPES)),
        scraped: Arc::default(),
    }));
    Ok(endpoint::serve(listener, routes, LIMITS))
}

fn own(shared: ProbeState) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

async fn livez(State(shared): State<ProbeState>) -> (StatusCode, String) {
    match shared.health.stuck(Instant::now()) {
        None => (StatusCode::OK, "ok\n".into()),
        Some(cluster) => {
            let text = format!(
                "the reconcile of {cluster} has been stuck for {} s\n",
                STUCK.as_secs()
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn readyz(State(shared): State<ProbeState>) -> (StatusCode, &'static str) {
    if shared.health.lock().ready {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the caches are not filled yet\n",
        )
    }
}

async fn metrics(State(shared): State<ProbeState>, headers: HeaderMap) -> Response {
    let refused = |status: StatusCode, why: String| {
        let how = [(header::WWW_AUTHENTICATE, "Bearer")];
        (status, how, format!("{why}\n")).into_response()
    };
    match &shared.metered {
        Metered::Everybody => {}
        Metered::Nobody => {
            let why = "metrics are off (--metrics)".to_owned();
            return refused(StatusCode::NOT_FOUND, why);
        }
        Metered::Known(callers) => {
            let Some(token) = bearer(&headers) else {
                let why = "give a bearer token that the API server knows".to_owned();
                return refused(StatusCode::UNAUTHORIZED, why);
            };
            let may = callers.may(token, None, &Wish::Path("/metrics")).await;
            if let Err(refusal) = may {
                let status = match refusal {
                    Refusal::Unknown(_) => StatusCode::UNAUTHORIZED,
                    Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
                    Refusal::Unclear(_) => StatusCode::SERVICE_UNAVAILABLE,
                };
                return refused(status, refusal.to_string());
            }
        }
    }
    let turn = tokio::time::timeout(TURN, shared.scrapes.clone().acquire_owned());
    let Ok(Ok(turn)) = turn.await else {
        let why = "other scrapes take too long: try again".to_owned();
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    match encoded(&shared, turn).await {
        Ok((text, turn)) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], in_parts(text, turn)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

/// The text of a scrape. With many clusters it takes long, in which nothing else would run on the same thread. It keeps its turn also
/// if the caller goes away, as it does not end then: one who asks and leaves in a loop had the memory of hundreds of answers taken.
async fn encoded(
    shared: &ProbeState,
    turn: OwnedSemaphorePermit,
) -> Result<(String, OwnedSemaphorePermit), String> {
    let registry = shared.registry.clone();
    let about = shared.scraped.load(Ordering::Relaxed);
    let encoding = tokio::task::spawn_blocking(move || {
        let mut text = String::with_capacity(about + about / 16);
        let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
        encoded.map(|()| (text, turn))
    });
    let encoded = encoding.await.map_err(|error| error.to_string())?;
    let (text, turn) = encoded.map_err(|error| error.to_string())?;
    shared.scraped.store(text.len(), Ordering::Relaxed);
    Ok((text, turn))
}

/// A body that keeps its turn until all of it is taken: one that is read slowly holds one text, and others no more.
fn in_parts(text: String, turn: OwnedSemaphorePermit) -> Body {
    let rest = (Bytes::from(text), turn);
    Body::from_stream(stream::unfold(rest, |(mut text, turn)| async move {
        if text.is_empty() {
            return None;
        }
        let part = text.split_to(text.len().min(PART));
        Some((Ok::<_, Infallible>(part), (text, turn)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::metrics::Metrics;

    #[tokio::test]
    async fn probes_and_metrics_answer() {
        let health = Arc::new(Health::default());
        let mut registry = Registry::default();
        let figures = Metrics::new(&mut registry);
        figures.step("Promote", "done");
        let shared = ProbeState {
            health: health.clone(),
            registry: Arc::new(registry),
            metered: Metered::Everybody,
            scrapes: Arc::new(Semaphore::new(SCRAPES)),
            scraped: Arc::default(),
        };

        assert_eq!(
            readyz(State(shared.clone())).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        health.set_ready();
        assert_eq!(readyz(State(shared.clone())).await.0, StatusCode::OK);

        health.begin("default/demo");
        assert_eq!(livez(State(shared.clone())).await.0, StatusCode::OK);
        let later = Instant::now() + STUCK + Duration::from_secs(1);
        assert_eq!(health.stuck(later).as_deref(), Some("default/demo"));
        health.end("default/demo");
        assert_eq!(health.stuck(later), None);

        let response = metrics(State(shared), HeaderMap::new()).await;
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .expect("a body");
        let text = String::from_utf8_lossy(&body);
        let line = "quorate_operator_steps_total{step=\"Promote\",outcome=\"done\"} 1";
        assert!(text.contains(line), "{text}");
    }

    /// Whoever reads slowly would keep a text of all clusters for each of its connections.
    #[tokio::test]
    async fn an_answer_keeps_its_turn_until_it_is_sent() {
        use futures::StreamExt as _;
        let turns = Arc::new(Semaphore::new(1));
        let turn = turns.clone().try_acquire_owned().expect("free");
        let length = 2 * PART + 1;
        let mut parts = in_parts("x".repeat(length), turn).into_data_stream();
        let mut sizes = Vec::new();
        while let Some(part) = parts.next().await {
            assert_eq!(turns.available_permits(), 0);
            sizes.push(part.expect("a part").len());
        }
        assert_eq!(sizes, [PART, PART, 1]);
        assert_eq!(turns.available_permits(), 1);
    }
}
