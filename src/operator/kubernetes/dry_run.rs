//! `POST /forecast`: what would be done for a cluster if its resource were the one in the body. Requested by `kubectl
//! quorate plan`, with a token that was created for this: the API server authenticates it, and authorises reading the
//! cluster, and the Secrets that the resource names. It observes, and changes and keeps nothing; only the active
//! operator answers, because only it has contact with the members.
//!
//! The token is in the body, because the API server does not forward headers of a caller. A refusal is returned with
//! status 200: kubectl does not print the body of an error.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use kube::ResourceExt as _;
use tokio::sync::Semaphore;

use super::callers::{Callers, Wish};
use super::context::Context;
use crate::crd::{EtcdCluster, GROUP, TlsPort};
use crate::model::call::{AUDIENCE, ForecastRequest, ForecastResponse};
use crate::model::forecast::Forecast;
use crate::operator::admission::admit;

/// Forecasts at the same time: each is some milliseconds of work and a call to every member.
const AT_ONCE: usize = 2;
/// Maximum number of requests whose body is read at the same time, before authentication.
const READ_AT_ONCE: usize = 4;
/// Maximum size of a resource with its token, in bytes: the limit of the API server.
const LONGEST: usize = 1536 << 10;
/// How long a body may take to come.
const READ: Duration = Duration::from_secs(5);

/// Where the operator is put once it acts.
pub(super) type Acting = Arc<OnceLock<Arc<Context>>>;

#[derive(Clone)]
struct Asked {
    acting: Acting,
    callers: Arc<Callers>,
    reads: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// The route.
pub(super) fn route(acting: Acting, callers: Arc<Callers>) -> Router {
    let asked = Asked {
        acting,
        callers,
        reads: Arc::new(Semaphore::new(READ_AT_ONCE)),
        turns: Arc::new(Semaphore::new(AT_ONCE)),
    };
    Router::new()
        .route("/forecast", post(respond))
        .with_state(asked)
}

async fn respond(State(asked): State<Asked>, body: Body) -> Response {
    let answer = forecast(&asked, body).await;
    let answer = answer.map_or_else(ForecastResponse::Refused, ForecastResponse::Forecast);
    match serde_json::to_string(&answer) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn forecast(asked: &Asked, body: Body) -> Result<Forecast, String> {
    const BUSY: &str = "too many ask at this moment: try again in a few seconds";
    let request: ForecastRequest = {
        let _read = asked.reads.try_acquire().map_err(|_| BUSY)?;
        let body = tokio::time::timeout(READ, axum::body::to_bytes(body, LONGEST)).await;
        let body = body.map_err(|_| "the request did not arrive in time")?;
        let body = body.map_err(|_| format!("no EtcdCluster: more than {LONGEST} bytes"))?;
        // A plugin of 0.1.0 sends a resource alone.
        serde_json::from_slice(&body).map_err(|error| {
            format!("no EtcdCluster with a token, as a plugin of this version sends it: {error}")
        })?
    };
    let ForecastRequest {
        token,
        cluster: wanted,
    } = request;
    // Before any error about the resource.
    for wish in wishes(&wanted) {
        let may = asked.callers.may(&token, Some(AUDIENCE), &wish).await;
        may.map_err(|refusal| refusal.to_string())?;
    }
    admit(&wanted).map_err(|invalid| invalid.to_string())?;
    let shared = asked.acting.get();
    let shared = shared.ok_or("this operator stands by: ask the one that holds the Lease")?;
    let _turn = asked.turns.try_acquire().map_err(|_| BUSY)?;
    let key = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let mut cluster = shared.cluster_aside(&key);
    let ahead = Box::pin(cluster.forecast(wanted)).await;
    let ahead = ahead.map_err(|failure| failure.to_string())?;
    ahead.ok_or_else(|| {
        format!(
            "this operator does not manage {}/{}, or the cluster was recreated meanwhile",
            key.0, key.1
        )
    })
}

/// What the caller must be allowed to read: a forecast contains what a cluster's status contains, and whether the
/// Secrets that a resource names exist and are usable.
fn wishes(wanted: &EtcdCluster) -> Vec<Wish> {
    let namespace = wanted.namespace().unwrap_or_default();
    let read = |group, plural, name| Wish::Read {
        group,
        plural,
        namespace: namespace.clone(),
        name,
    };
    let mut wishes = vec![read(GROUP, "etcdclusters", Some(wanted.name_any()))];
    let tls = wanted.spec.tls.iter();
    let secrets =
        tls.flat_map(|tls| TlsPort::ALL.map(|port| tls.user_secrets(&wanted.name_any(), port)));
    if secrets.flatten().next().is_some() {
        wishes.push(read("", "secrets", None));
    }
    wishes
}

#[cfg(test)]
mod tests {
    use super::super::callers::tests::api_server;
    use super::*;
    use crate::operator::clock::Clock;

    fn asked() -> Asked {
        let callers = Callers::new(api_server(true).0, Clock::machine());
        Asked {
            acting: Acting::default(),
            callers: Arc::new(callers),
            reads: Arc::new(Semaphore::new(1)),
            turns: Arc::new(Semaphore::new(1)),
        }
    }

    async fn refused(asked: &Asked, body: serde_json::Value) -> String {
        let response = respond(State(asked.clone()), body.to_string().into()).await;
        let body = axum::body::to_bytes(response.into_body(), LONGEST).await;
        match serde_json::from_slice(&body.expect("a body")).expect("an answer") {
            ForecastResponse::Refused(why) => why,
            ForecastResponse::Forecast(forecast) => panic!("{forecast:?}"),
        }
    }

    fn request(token: &str, namespace: &str, spec: serde_json::Value) -> serde_json::Value {
        serde_json::json!({"token": token, "cluster": {
            "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "demo", "namespace": namespace, "uid": "u"},
            "spec": spec}})
    }

    const MINE: &str = "for-the-operator";

    #[tokio::test]
    async fn dry_run_refusals_give_a_reason() {
        use serde_json::json;
        let asked = asked();
        let why = refused(&asked, json!({})).await;
        assert!(
            why.contains("plugin of this version") && why.contains("`token`"),
            "{why}"
        );
        let why = refused(&asked, request(MINE, "team-a", json!({"replicas": 11}))).await;
        assert!(why.contains("replicas"), "{why}");
        let why = refused(&asked, request(MINE, "team-a", json!({"replicas": 3}))).await;
        assert!(why.contains("stands by"), "{why}");
    }

    /// Anyone who reached the pod could find out which Secrets exist in any namespace, by a resource that names them.
    #[tokio::test]
    async fn a_forecast_needs_the_right_to_read() {
        use serde_json::json;
        let asked = asked();
        let plain = json!({"replicas": 3});
        for token in ["", "made up", "good"] {
            let why = refused(&asked, request(token, "team-a", plain.clone())).await;
            assert!(why.contains("token"), "{why}");
        }
        let why = refused(&asked, request(MINE, "team-b", plain)).await;
        assert!(
            why.contains("may not get etcdclusters in namespace team-b"),
            "{why}"
        );
        let port = json!({"source": "Secret", "certificateSecretRef": {"name": "is-it-there"}});
        let spec = json!({"replicas": 3, "tls": {"client": port, "peer": port}});
        let why = refused(&asked, request(MINE, "team-a", spec)).await;
        assert!(
            why.contains("may not get secrets in namespace team-a"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn excess_scans_are_refused_at_once() {
        let asked = asked();
        let _busy = asked.reads.clone().try_acquire_owned().expect("free");
        let why = refused(&asked, serde_json::json!({})).await;
        assert!(why.contains("too many"), "{why}");
    }
}
