//! Transcoding by descriptors, the routes, and the format of a stream.

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::{POOL, ROUTES, decode, descriptor, encode, frame, router, unframe};
use crate::server::listen::bodies::Bodies;

/// The only method of a client service that has no path in etcd.
const NO_PATH: &[&str] = &["/etcdserverpb.KV/RangeStream"];

#[test]
fn every_method_has_a_path() {
    for service in POOL.services() {
        let package = service.parent_file().package_name().to_owned();
        if !matches!(&*package, "etcdserverpb" | "v3electionpb" | "v3lockpb") {
            continue;
        }
        for method in service.methods() {
            let path = format!("/{}/{}", service.full_name(), method.name());
            let routed = ROUTES.iter().any(|(_, method)| *method == path);
            assert_eq!(routed, !NO_PATH.contains(&&*path), "{path}");
        }
    }
}

#[test]
fn json_round_trips_through_messages() {
    let method = descriptor("/etcdserverpb.KV/Range").expect("known");
    let text = r#"{"key":"Zm9v","rangeEnd":"Zg==","limit":"5","sort_order":"DESCEND","unknown":[1],"revision":null,"serializable":false}"#;
    let framed = encode(method.input(), Bytes::from_static(text.as_bytes())).expect("valid");
    let message = unframe(&mut BytesMut::from(&framed[..])).expect("whole");
    let json = decode(method.input(), message).expect("valid");
    assert_eq!(
        String::from_utf8_lossy(&json),
        r#"{"key":"Zm9v","range_end":"Zg==","limit":"5","sort_order":"DESCEND"}"#
    );
    for wrong in [r#"{"key":5}"#, r#"{"limit":"x"}"#, "[]", "5"] {
        let error = encode(method.input(), Bytes::from(wrong)).expect_err(wrong);
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{wrong}");
    }
}

/// Found by the fuzzer: a number cut after its decimal point is reported by the parser as invalid
/// and not as incomplete, so a valid body was refused when it arrived in such pieces.
#[test]
fn body_may_be_split_anywhere() {
    let text =
        b"{\"key\":\"Zm9v\",\n\"unknown\":[-32.5e-7,-1,true,{\"a\":null}]}\n {\"limit\":\"5\"}";
    let taken = |pieces: Vec<Bytes>| {
        let messages = super::messages("/etcdserverpb.KV/Range", pieces);
        futures::executor::block_on(messages)
    };
    let whole = taken(vec![Bytes::from_static(text)]);
    assert_eq!(whole.len(), 2);
    for cut in 1..text.len() {
        let (head, tail) = text.split_at(cut);
        let pieces = vec![Bytes::from_static(head), Bytes::from_static(tail)];
        assert_eq!(taken(pieces), whole, "cut at {cut}");
        let bytes = text.chunks(cut).map(Bytes::from_static).collect();
        assert_eq!(taken(bytes), whole, "cut every {cut}");
    }
    // Invalid input is refused as soon as it cannot become valid.
    for wrong in ["{\"key\":x", "{\"key\":-}", "{\"key\":1.}"] {
        assert!(taken(vec![Bytes::from_static(wrong.as_bytes())]).is_empty());
    }
}

#[test]
fn messages_are_read_from_chunks() {
    let whole = frame(b"abc");
    for cut in 0..whole.len() {
        let mut buffer = BytesMut::from(&whole[..cut]);
        assert_eq!(unframe(&mut buffer), None, "{cut}");
        buffer.extend_from_slice(&whole[cut..]);
        assert_eq!(unframe(&mut buffer), Some(Bytes::from_static(b"abc")));
        assert!(buffer.is_empty());
    }
}

async fn ask(grpc: Router, path: &str, body: &'static str) -> (StatusCode, String) {
    let request = Request::post(path)
        .header("authorization", "token")
        .header("Grpc-Metadata-hasleader", "true")
        .body(Body::from(body))
        .expect("request");
    let response = router(
        grpc,
        1 << 20,
        Bodies::new(1 << 20, crate::server::listen::bodies::WHOLE_WITHIN),
    )
    .oneshot(request)
    .await;
    let response = response.expect("infallible");
    let status = response.status();
    let body = response.into_body().collect().await.expect("body");
    (
        status,
        String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    )
}

/// Answers every call with the call's own frames, and reports the metadata received.
fn echo(status: &'static str) -> Router {
    Router::new().fallback(move |request: Request<Body>| async move {
        let headers = request.headers().clone();
        assert_eq!(headers["authorization"], "token");
        assert_eq!(headers["hasleader"], "true");
        assert_eq!(headers["content-type"], "application/grpc");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static(status));
        let reason = http::HeaderValue::from_static("a%20reason");
        trailers.insert("grpc-message", reason);
        let bytes = request
            .into_body()
            .collect()
            .await
            .expect("body")
            .to_bytes();
        let body = http_body_util::Full::new(bytes);
        let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
        http::Response::new(Body::new(body))
    })
}

#[tokio::test]
async fn calls_and_errors_match_grpc_gateway() {
    // A range request is no range response, but field 3 of the response is "more", a boolean.
    let (status, body) = ask(echo("0"), "/v3/kv/range", r#"{"limit":"1"} {"limit":"2"}"#).await;
    assert_eq!((status, &*body), (StatusCode::OK, r#"{"more":true}"#));
    let (status, body) = ask(echo("11"), "/v3beta/kv/range", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body, r#"{"code":11,"message":"a reason"}"#);
    let (status, body) = ask(echo("0"), "/v3/kv/nothing", "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(body, r#"{"code":5,"message":"Not Found"}"#);
    for broken in ["{", "{bad", "{\"limit\":}"] {
        let (status, body) = ask(echo("0"), "/v3/kv/range", broken).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{broken}");
        assert!(body.starts_with(r#"{"code":3,"message":""#), "{body}");
    }
}

#[tokio::test]
async fn streams_are_json_lines() {
    // Field 1 of a keep-alive request is a number and of its response a header: empty ones pass.
    let (status, body) = ask(echo("0"), "/v3/lease/keepalive", "{}{} {}").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, "{\"result\":{}}\n".repeat(3));
    let (status, body) = ask(echo("14"), "/v3/lease/keepalive", "{}").await;
    assert_eq!(status, StatusCode::OK);
    let error = r#"{"error":{"code":14,"message":"a reason"}}"#;
    assert_eq!(body, format!("{{\"result\":{{}}}}\n{error}\n"));
    let (status, body) = ask(echo("14"), "/v3/lease/keepalive", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body, format!("{error}\n"));
}

/// All bytes ever sent on a JSON stream counted as incomplete for as long as it was open, and below
/// `/v3beta/` it was also cut off after 30 s.
#[tokio::test]
async fn idle_stream_counts_no_request() {
    let bodies = Bodies::new(1 << 20, std::time::Duration::from_millis(200));
    let (took, mut taken) = tokio::sync::mpsc::channel(8);
    let grpc = Router::new().fallback(move |request: Request<Body>| {
        let took = took.clone();
        async move {
            let mut body = request.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.into_data().map_or(0, |data| data.len());
                took.send(length).await.expect("the test counts");
            }
            // The stream stayed open for as long as its client held it open.
            took.send(0).await.expect("the test counts");
            http::Response::new(Body::empty())
        }
    });
    let gateway = router(grpc, 1 << 20, bodies.clone());
    for path in ["/v3/watch", "/v3beta/watch"] {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(8);
        let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
        let request = Request::post(path).body(body).expect("a request");
        let asked = tokio::spawn(gateway.clone().oneshot(request));
        let line = format!(
            "{{\"create_request\":{{\"key\":\"{}\"}}}}\n",
            "Zm9v".repeat(1000)
        );
        for _ in 0..2 {
            let (head, tail) = line.split_at(2000);
            for piece in [head, tail] {
                let piece = Bytes::copy_from_slice(piece.as_bytes());
                sender.send(Ok(piece)).await.expect("open");
            }
            assert!(
                taken.recv().await.expect("the call goes on") > 3000,
                "{path}"
            );
        }
        // Longer than a body may be incomplete.
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        assert!(taken.try_recv().is_err(), "{path}: it is still open");
        assert_eq!(bodies.held(), 0, "{path}");
        drop(sender);
        assert_eq!(taken.recv().await, Some(0), "{path}");
        asked.await.expect("ends").expect("answered");
    }
    assert_eq!(bodies.late.load(std::sync::atomic::Ordering::Relaxed), 0);
}
