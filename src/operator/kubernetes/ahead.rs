//! `POST /forecast`: what would be done about a cluster if its resource were the one in the body.
//! Asked by `kubectl quorate plan` through the API server, which so decides who may. It looks, and
//! changes nothing; only the operator that acts answers, for it alone has talked to the members.
//!
//! A refusal is an answer like any other (200): kubectl shows nothing of the body of an error.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::platform::Shared;
use crate::crd::EtcdCluster;
use crate::operator::admission::admit;
use crate::operator::forecast::Forecast;

/// Forecasts at the same time: each is some milliseconds of work and a look at every member.
const AT_ONCE: usize = 2;
/// The longest resource, in bytes: more than the API server takes.
const LONGEST: usize = 2 << 20;

/// Where the operator is put once it acts.
pub(super) type Acting = Arc<OnceLock<Arc<Shared>>>;

#[derive(Clone)]
struct Asked {
    acting: Acting,
    turns: Arc<Semaphore>,
}

/// The route.
pub(super) fn route(acting: Acting) -> Router {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    Router::new()
        .route("/forecast", post(answer))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Asked { acting, turns })
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    /// What would be done.
    Forecast(Forecast),
    /// Why nothing can be said, and what to do about it.
    Refused(String),
}

async fn answer(State(asked): State<Asked>, body: axum::body::Bytes) -> Response {
    let answer = look_ahead(&asked, &body).await;
    let answer = answer.map_or_else(Answer::Refused, Answer::Forecast);
    match serde_json::to_string(&answer) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn look_ahead(asked: &Asked, body: &[u8]) -> Result<Forecast, String> {
    let wanted = readable(body)?;
    let shared = asked.acting.get();
    let shared = shared.ok_or("this operator stands by: ask the one that holds the Lease")?;
    let turn = asked.turns.acquire().await;
    let _turn = turn.map_err(|_| "the operator is stopping: ask the next one")?;
    let key = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let mut cluster = shared.cluster(&key);
    let ahead = Box::pin(cluster.forecast(wanted)).await;
    let ahead = ahead.map_err(|failure| failure.to_string())?;
    ahead.ok_or_else(|| {
        format!(
            "this operator does not look after {}/{}, or the cluster was made anew meanwhile",
            key.0, key.1
        )
    })
}

/// The resource in the body, checked as the operator checks it before it acts.
fn readable(body: &[u8]) -> Result<EtcdCluster, String> {
    let wanted: EtcdCluster =
        serde_json::from_slice(body).map_err(|error| format!("no EtcdCluster: {error}"))?;
    admit(&wanted).map_err(|invalid| invalid.to_string())?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(body: &str) -> String {
        let asked = Asked {
            acting: Acting::default(),
            turns: Arc::new(Semaphore::new(1)),
        };
        let response = answer(State(asked), body.to_owned().into()).await;
        let body = axum::body::to_bytes(response.into_body(), LONGEST).await;
        match serde_json::from_slice(&body.expect("a body")).expect("an answer") {
            Answer::Refused(why) => why,
            Answer::Forecast(forecast) => panic!("{forecast:?}"),
        }
    }

    #[tokio::test]
    async fn what_cannot_be_planned_for_is_refused_with_a_reason() {
        let cluster = |replicas: i32| {
            serde_json::json!({
                "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": {"name": "demo", "namespace": "default", "uid": "u"},
                "spec": {"replicas": replicas},
            })
            .to_string()
        };
        let why = refused("{}").await;
        assert!(why.starts_with("no EtcdCluster: "), "{why}");
        let why = refused(&cluster(11)).await;
        assert!(why.contains("replicas"), "{why}");
        let why = refused(&cluster(3)).await;
        assert!(why.contains("stands by"), "{why}");
    }
}
