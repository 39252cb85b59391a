//! Calls of unknown methods and paths: gRPC gets the status for an unknown method, plain HTTP a
//! plain 404.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tonic::Code;

/// Answers requests that match no route.
pub(in crate::server) async fn answer(headers: HeaderMap) -> Response<Body> {
    let grpc = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        return refusal();
    }
    let mut response = Response::new(Body::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn refusal() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from(Code::Unimplemented as i32));
    headers.insert(
        "grpc-message",
        HeaderValue::from_static("etcdserver: unknown method"),
    );
    response
}

/// A message above the port's limit, with the text and code of gRPC for Go: tonic's code for it is
/// the one by which clients recognise a compacted revision.
pub(super) fn too_large(mut response: Response<Body>) -> Response<Body> {
    let code = response
        .headers()
        .get("grpc-status")
        .map(HeaderValue::as_bytes);
    if code != Some(b"11") {
        return response;
    }
    let text = response
        .headers()
        .get("grpc-message")
        .map_or(&b""[..], HeaderValue::as_bytes);
    let text = String::from_utf8_lossy(text);
    if !text.contains("decoded%20message%20length%20too%20large") {
        return response;
    }
    let numbers: Vec<&str> = text
        .split("%20")
        .filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    let message = match numbers[..] {
        [found, limit] => format!("grpc: received message larger than max ({found} vs. {limit})"),
        _ => "grpc: received message larger than max".to_owned(),
    };
    let headers = response.headers_mut();
    headers.insert(
        "grpc-status",
        HeaderValue::from(Code::ResourceExhausted as i32),
    );
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn unknown_methods_are_unimplemented() {
        let response = refusal();
        assert_eq!(response.headers()["grpc-status"], "12");
        assert_eq!(
            response.headers()["grpc-message"],
            "etcdserver: unknown method"
        );
    }
}
