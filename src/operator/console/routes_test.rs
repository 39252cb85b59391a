//! Who gets a stream, and what every answer carries.

use axum::body::Body;
use axum::http::{Method, Request as HttpRequest, StatusCode};
use futures::StreamExt as _;
use tower::ServiceExt as _;

use super::super::testing::Told;
use super::*;

async fn answer(routes: &Router, method: Method, path: &str, token: Option<&str>) -> Response {
    let mut request = HttpRequest::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).expect("a request");
    let answer = routes.clone().oneshot(request).await;
    answer.expect("an answer")
}

async fn fetch(routes: &Router, path: &str, token: Option<&str>) -> Response {
    answer(routes, Method::GET, path, token).await
}

async fn text(response: Response) -> String {
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
    String::from_utf8_lossy(&body.expect("a body")).into_owned()
}

#[tokio::test]
async fn the_page_needs_no_token_and_every_answer_has_the_policy() {
    let routes = routes(Arc::new(Told::new()));
    for (path, token) in [
        ("/", None),
        ("/console.js", None),
        ("/show.js", None),
        ("/console.css", None),
        ("/icon.svg", None),
        ("/stream", None),
        ("/stream", Some("good")),
        ("/nothing", None),
    ] {
        let response = fetch(&routes, path, token).await;
        let header = |name: &str| {
            let value = response.headers().get(name).map(|it| it.to_str());
            value.and_then(Result::ok).unwrap_or_default().to_owned()
        };
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
        let allowed = response
            .headers()
            .contains_key("access-control-allow-origin");
        assert!(!allowed, "{path}");
        let wanted = match (path, token) {
            ("/stream", None) => StatusCode::UNAUTHORIZED,
            ("/nothing", _) => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        assert_eq!(response.status(), wanted, "{path}");
    }
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let told = Arc::new(Told::new());
    let routes = routes(told.clone());
    let response = fetch(&routes, "/stream", None).await;
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    let why = text(response).await;
    assert!(
        why.contains("kubectl create token NAME --audience quorate.dev"),
        "{why}"
    );
    let response = fetch(&routes, "/stream", Some("stolen")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(text(response).await.contains("it is not valid here"));
    let forbidden = Error::Forbidden("alice may not list etcdclusters".into());
    *told.sight.lock().expect("unpoisoned") = Err(forbidden);
    let response = fetch(&routes, "/stream", Some("good")).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(text(response).await, "alice may not list etcdclusters\n");
    for query in ["namespace=../a", "namespace=A", "cluster=a%20b", "of=a/b"] {
        let response = fetch(&routes, &format!("/stream?{query}"), Some("good")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
    }
}

/// Nothing can be changed, by whatever method.
#[tokio::test]
async fn only_get_is_answered() {
    let routes = routes(Arc::new(Told::new()));
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in ["/", "/stream"] {
            let response = answer(&routes, method.clone(), path, Some("good")).await;
            assert_eq!(
                response.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_come_back() {
    let routes = routes(Arc::new(Told::new()));
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let mut parts = fetch(&routes, "/stream", Some("good"))
            .await
            .into_body()
            .into_data_stream();
        let first = parts.next().await.expect("a part").expect("it is read");
        assert!(first.starts_with(b"event: document\ndata: {\"version\":\"1\""));
        open.push(parts);
    }
    let response = fetch(&routes, "/stream", Some("good")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(response).await.contains("pages are open already"));
    // A stranger is told that he is one, and nothing of the others.
    let response = fetch(&routes, "/stream", Some("stolen")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    drop(open.pop());
    for _ in 0..500 {
        if fetch(&routes, "/stream", Some("good")).await.status() == StatusCode::OK {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the place of a viewer who left stays taken");
}

#[test]
fn a_query_names_a_namespace_and_a_cluster() {
    let headers = HeaderMap::new();
    let of = |query: &str| request(query, &headers).expect("a query");
    let asked = of("namespace=a&of=b-c&cluster=d.e&other=%00");
    assert_eq!(asked.namespace.as_deref(), Some("a"));
    assert_eq!(asked.cluster, Some(("b-c".into(), "d.e".into())));
    assert_eq!(of("namespace=&cluster=d").namespace, None);
    assert_eq!(of("cluster=d").cluster, None);
    let long = format!("namespace={}", "a".repeat(LONGEST_NAME + 1));
    assert!(request(&long, &headers).is_err());
}
