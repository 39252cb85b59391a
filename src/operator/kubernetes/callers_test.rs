//! Which callers get an answer, with a small API server that reviews tokens and access.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::model::call::AUDIENCE;

/// An API server that authenticates the token `good` as `alice`, who may only read `/metrics`. Counts requests;
/// `right`: whether the operator may create reviews.
pub(in crate::operator::kubernetes) fn api_server(right: bool) -> (Client, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let counted = counted.clone();
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let (code, answer) = answer(&path, &body, right);
            let answer = kube::client::Body::from(answer.to_string().into_bytes());
            http::Response::builder().status(code).body(answer)
        }
    });
    (Client::new(service, "default"), asked)
}

fn answer(path: &str, body: &Value, right: bool) -> (u16, Value) {
    if !right {
        let status = json!({"kind": "Status", "apiVersion": "v1", "code": 403,
            "status": "Failure", "reason": "Forbidden", "message": "no"});
        return (403, status);
    }
    let spec = &body["spec"];
    let status = if path.ends_with("tokenreviews") {
        let audiences = spec["audiences"].as_array().cloned().unwrap_or_default();
        let known = match spec["token"].as_str() {
            Some("good") => audiences.is_empty(),
            Some("for-the-operator") => audiences == [json!(AUDIENCE)],
            _ => false,
        };
        if known {
            json!({"authenticated": true, "user": {"username": "alice"}, "audiences": audiences})
        } else {
            json!({"error": "no such token"})
        }
    } else {
        let path = spec["nonResourceAttributes"]["path"] == "/metrics";
        let one = &spec["resourceAttributes"];
        let cluster = one["resource"] == "etcdclusters" && one["namespace"] == "team-a";
        json!({"allowed": spec["user"] == "alice" && (path || cluster)})
    };
    (201, json!({"metadata": {}, "spec": spec, "status": status}))
}

fn callers(client: Client) -> (Callers, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(1_000));
    (Callers::new(client, Clock::simulated(time.clone())), time)
}

fn clusters(namespace: &str) -> Wish {
    Wish::Read {
        group: "quorate.dev",
        plural: "etcdclusters",
        namespace: namespace.to_owned(),
        name: None,
    }
}

#[tokio::test]
async fn callers_are_authorised_once() {
    let (client, asked) = api_server(true);
    let (callers, time) = callers(client);
    let metrics = Wish::Path("/metrics");
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "remembered");
    time.fetch_add(60_000, Ordering::SeqCst);
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    assert_eq!(asked.load(Ordering::SeqCst), 4, "for a while");

    let refused = callers.may("stolen", None, &metrics).await;
    assert!(matches!(refused, Err(Refusal::Unknown(_))), "{refused:?}");
    let refused = callers.may("", None, &metrics).await;
    assert!(matches!(refused, Err(Refusal::Unknown(_))), "{refused:?}");
    let mine = ("for-the-operator", Some(AUDIENCE));
    assert_eq!(
        callers.may(mine.0, mine.1, &clusters("team-a")).await,
        Ok(())
    );
    let refused = callers.may(mine.0, mine.1, &clusters("team-b")).await;
    assert!(
        matches!(&refused, Err(Refusal::Forbidden(why)) if why.contains("team-b")),
        "{refused:?}"
    );
    // A token for the API server is none for the operator: it would be worth stealing on the way.
    let refused = callers
        .may("good", Some(AUDIENCE), &clusters("team-a"))
        .await;
    assert!(matches!(refused, Err(Refusal::Unknown(_))), "{refused:?}");
}

#[tokio::test]
async fn dry_run_is_off_without_token_reviews() {
    let (client, _) = api_server(false);
    let (callers, _) = callers(client);
    let refused = callers.may("good", None, &Wish::Path("/metrics")).await;
    let why = refused.expect_err("unknown").to_string();
    assert!(
        why.contains("may not create TokenReviews") && why.contains("clusterRead"),
        "{why}"
    );
}

/// Each name that a stranger made up cost a question, and something was kept of it for good.
#[tokio::test]
async fn made_up_ids_cost_bounded_questions() {
    let (client, asked) = api_server(true);
    let (callers, time) = callers(client);
    for number in 0..1_000 {
        let token = format!("made up {number}");
        let refused = callers.may(&token, None, &Wish::Path("/metrics")).await;
        assert!(refused.is_err());
    }
    assert_eq!(asked.load(Ordering::SeqCst), QUESTIONS);
    for _ in 0..100 {
        time.fetch_add(1_001, Ordering::SeqCst);
        for number in 0..20 {
            let token = format!("{number} at {}", time.load(Ordering::SeqCst));
            drop(callers.may(&token, None, &Wish::Path("/metrics")).await);
        }
    }
    let inner = callers.inner.lock().expect("unpoisoned");
    assert!(inner.known.len() <= REMEMBERED, "{}", inner.known.len());
}

/// Strangers with made-up tokens used the questions and the memory of those who are let in: every viewer lost the stream.
#[tokio::test]
async fn strangers_keep_nobody_out_who_was_let_in() {
    let (client, asked) = api_server(true);
    let (callers, time) = callers(client);
    let metrics = Wish::Path("/metrics");
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    // Longer than an answer holds, with as many refusals as are remembered.
    for moment in 0..40 {
        time.fetch_add(1_000, Ordering::SeqCst);
        for number in 0..=QUESTIONS {
            let token = format!("made up {moment} {number}");
            let refused = callers.may(&token, None, &metrics).await;
            assert!(refused.is_err(), "{token}");
        }
    }
    let before = asked.load(Ordering::SeqCst);
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    assert_eq!(callers.may("good", None, &metrics).await, Ok(()));
    assert_eq!(asked.load(Ordering::SeqCst), before + 2, "it is remembered");
}
