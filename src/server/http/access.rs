//! Access control for plain HTTP: host names that requests may use (`--host-whitelist`, against DNS
//! rebinding) and origins of browsers (`--cors`). gRPC is exempt: no browser speaks it.
//!
//! Never looks into a body.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use crate::server::gateway::websocket;
use crate::server::listen::quiet::{self, Quiet};

/// A web page may send any number of requests, so the log is limited.
static MISDIRECTED: Quiet = Quiet::new();

/// What is allowed; an empty set or one with `*` allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Host names that plain-text requests may use.
    pub hosts: BTreeSet<String>,
    /// Origins that may read responses.
    pub origins: BTreeSet<String>,
}

impl Access {
    fn allows_host(&self, host: &str) -> bool {
        everything(&self.hosts) || self.hosts.contains(host)
    }

    /// The origin to name in the response.
    fn origin<'a>(&self, asked: Option<&'a str>) -> Option<&'a str> {
        if everything(&self.origins) {
            return Some("*");
        }
        asked.filter(|origin| self.origins.contains(*origin))
    }
}

fn everything(set: &BTreeSet<String>) -> bool {
    set.is_empty() || set.contains("*")
}

/// Puts the rules in front of a router; `tls` is whether its port uses TLS, where the certificate
/// proves the host's name.
pub(in crate::server) fn guarded(router: Router, access: &Access, tls: bool) -> Router {
    let state = (Arc::new(access.clone()), tls);
    router.layer(middleware::from_fn_with_state(state, guard))
}

async fn guard(
    State((access, tls)): State<(Arc<Access>, bool)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    if is_grpc(request.headers()) {
        return next.run(request).await;
    }
    let host = named_host(&request);
    if !tls && !access.allows_host(&host) {
        if let Some(left_out) = MISDIRECTED.line(Instant::now()) {
            let host = quiet::printable(&host, 256);
            tracing::warn!(host, left_out, "refused a request that names another host");
        }
        return misdirected(&host);
    }
    let asked = request.headers().get(header::ORIGIN).cloned();
    let asked = asked.as_ref().and_then(|origin| origin.to_str().ok());
    let origin = access
        .origin(asked)
        .and_then(|origin| HeaderValue::from_str(origin).ok());
    if asked.is_some() && origin.is_none() && websocket::is_asked_for(request.headers()) {
        // A browser opens a websocket without a preflight request.
        return forbidden();
    }
    let mut response = if request.method() == Method::OPTIONS {
        Response::new(Body::empty())
    } else {
        next.run(request).await
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        for (name, value) in [
            (
                header::ACCESS_CONTROL_ALLOW_METHODS,
                "POST, GET, OPTIONS, PUT, DELETE",
            ),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "accept, content-type, authorization",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The host without its port and brackets.
fn named_host(request: &Request) -> String {
    let header = request.headers().get(header::HOST);
    let header = header.and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let host = header.or(authority).unwrap_or_default();
    match host.parse::<http::uri::Authority>() {
        Ok(authority) => authority.host().trim_matches(['[', ']']).to_owned(),
        Err(_) => host.to_owned(),
    }
}

fn forbidden() -> Response<Body> {
    let text = "This server opens websockets for the origins of --cors alone.\n";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

fn misdirected(host: &str) -> Response<Body> {
    let text = format!(
        "This server does not answer to the host name {host:?}.\n\nGive the name with --host-whitelist={host}, or serve clients by https, where any name may be used.\nWithout this, a web page could rebind its own name to this server (CVE-2018-5702).\n"
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::{Access, guarded};
    use axum::Router;
    use axum::body::Body;
    use http::{Request, Response, StatusCode};
    use tower::ServiceExt as _;

    async fn ask(access: &Access, tls: bool, request: http::request::Builder) -> Response<Body> {
        let router = Router::new().fallback(|| async { "here" });
        let request = request.body(Body::empty()).expect("request");
        let answer = guarded(router, access, tls).oneshot(request).await;
        answer.expect("infallible")
    }

    fn set(names: &[&str]) -> std::collections::BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn plaintext_is_served_to_allowed_hosts_only() {
        let access = Access {
            hosts: set(&["here.test", "::1"]),
            ..Access::default()
        };
        let get = |host: &str| Request::get("/x").header("host", host);
        for (host, tls, status) in [
            ("here.test", false, StatusCode::OK),
            ("here.test:2379", false, StatusCode::OK),
            ("[::1]:2379", false, StatusCode::OK),
            ("evil.test:2379", false, StatusCode::MISDIRECTED_REQUEST),
            ("evil.test:2379", true, StatusCode::OK),
        ] {
            assert_eq!(
                ask(&access, tls, get(host)).await.status(),
                status,
                "{host}"
            );
        }
        let grpc = get("evil.test").header("content-type", "application/grpc");
        assert_eq!(ask(&access, false, grpc).await.status(), StatusCode::OK);
        let open = Access {
            hosts: set(&["*"]),
            ..Access::default()
        };
        assert_eq!(ask(&open, false, get("any")).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn origins_are_named_where_they_are_allowed() {
        let some = Access {
            origins: set(&["http://a.test"]),
            ..Access::default()
        };
        let from = |origin: &str| Request::options("/x").header("origin", origin);
        let named = async |access: &Access, origin: &str| {
            let response = ask(access, false, from(origin)).await;
            assert_eq!(response.status(), StatusCode::OK);
            let header = response.headers().get("access-control-allow-origin");
            header.map(|origin| origin.to_str().expect("text").to_owned())
        };
        assert_eq!(
            named(&some, "http://a.test").await.as_deref(),
            Some("http://a.test")
        );
        assert_eq!(named(&some, "http://b.test").await, None);
        let all = named(&Access::default(), "http://b.test").await;
        assert_eq!(all.as_deref(), Some("*"));
    }
}
