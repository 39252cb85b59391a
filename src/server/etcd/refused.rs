//! Calls that no service takes: etcd's services that are not built say so, and plain HTTP gets
//! a plain 404.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use tonic::Code;

/// Services of etcd that this version does not offer, and what to do without them.
const NOT_BUILT: &[(&str, &str)] = &[
    (
        "/v3electionpb.Election/",
        "etcdserver: the election service is not offered by this version; use a client library's own election over leases",
    ),
    (
        "/v3lockpb.Lock/",
        "etcdserver: the lock service is not offered by this version; use a client library's own lock over leases",
    ),
];

/// Answers what nothing else does.
pub(super) async fn answer(uri: Uri, headers: HeaderMap) -> Response<Body> {
    let grpc = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        return refusal(uri.path());
    }
    let mut response = Response::new(Body::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn refusal(path: &str) -> Response<Body> {
    let known = NOT_BUILT
        .iter()
        .find(|(prefix, _)| path.starts_with(prefix));
    let text = known.map_or("etcdserver: unknown method", |(_, text)| text);
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from(Code::Unimplemented as i32));
    // The texts are plain ASCII, which needs no escaping in this header.
    headers.insert("grpc-message", HeaderValue::from_static(text));
    response
}

/// A message above the port's limit, in the words and with the code of gRPC for Go: tonic's code
/// for it is the one by which clients know a compacted revision.
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
    use super::{NOT_BUILT, refusal};

    #[test]
    fn services_that_are_not_built_say_so() {
        let response = refusal("/v3lockpb.Lock/Lock");
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(
            response.headers()["grpc-message"]
                .to_str()
                .expect("text")
                .contains("lock service")
        );
        assert_eq!(
            refusal("/x.Y/Z").headers()["grpc-message"],
            "etcdserver: unknown method"
        );
        assert!(
            NOT_BUILT
                .iter()
                .all(|(_, text)| text.is_ascii() && !text.contains('%'))
        );
    }
}
