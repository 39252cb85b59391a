//! The operator's own HTTP endpoint: `/livez`, `/readyz`, `/metrics`, and `/forecast` where that is
//! offered. Ready means that the caches are filled; it does not need the Lease, so that a standby
//! replica is ready too. Alive means that no pass has been stuck. Nothing here changes anything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;

/// A pass that takes longer than this is stuck: each of its calls is bounded far below.
const STUCK: Duration = Duration::from_secs(300);

/// What the probes answer from.
#[derive(Debug, Default)]
pub struct Health {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: bool,
    /// Passes under way, by cluster.
    passes: BTreeMap<String, Instant>,
}

impl Health {
    /// The caches are filled.
    pub fn set_ready(&self) {
        self.lock().ready = true;
    }

    /// A pass over this cluster begins.
    pub fn begin(&self, cluster: &str) {
        self.lock()
            .passes
            .insert(cluster.to_owned(), Instant::now());
    }

    /// The pass ended.
    pub fn end(&self, cluster: &str) {
        self.lock().passes.remove(cluster);
    }

    fn stuck(&self, now: Instant) -> Option<String> {
        let inner = self.lock();
        let stuck = inner
            .passes
            .iter()
            .find(|(_, begun)| now.duration_since(**begun) > STUCK);
        stuck.map(|(cluster, _)| cluster.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Shared {
    health: Arc<Health>,
    registry: Arc<Registry>,
}

/// Binds the endpoint; the returned future serves it, with these further routes. Fails at once
/// where the port is taken.
pub async fn bind(
    address: SocketAddr,
    health: Arc<Health>,
    registry: Arc<Registry>,
    further: Router,
) -> std::io::Result<impl Future<Output = std::io::Result<()>>> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    let routes = further.merge(own(Shared { health, registry }));
    Ok(async move { axum::serve(listener, routes).await })
}

fn own(shared: Shared) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

async fn livez(State(shared): State<Shared>) -> (StatusCode, String) {
    match shared.health.stuck(Instant::now()) {
        None => (StatusCode::OK, "ok\n".into()),
        Some(cluster) => {
            let text = format!(
                "the pass over {cluster} has been stuck for {} s\n",
                STUCK.as_secs()
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn readyz(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    if shared.health.lock().ready {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the caches are not filled yet\n",
        )
    }
}

async fn metrics(State(shared): State<Shared>) -> axum::response::Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &shared.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
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
        let shared = Shared {
            health: health.clone(),
            registry: Arc::new(registry),
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

        let response = metrics(State(shared)).await;
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .expect("a body");
        let text = String::from_utf8_lossy(&body);
        let line = "quorate_operator_steps_total{step=\"Promote\",outcome=\"done\"} 1";
        assert!(text.contains(line), "{text}");
    }
}
