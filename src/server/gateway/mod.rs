//! The JSON gateway: every RPC of etcd's services as a POST below `/v3/`, or as a websocket.
//!
//! A request is transcoded with the services' descriptors and passed to the gRPC router of this
//! process, so that a call has the same limits, permissions and metrics either way. Never carries
//! out a call itself, and never uses the name in the client's TLS certificate: as in etcd, only a
//! token authenticates a client here.

mod pieces;
pub(in crate::server) mod routes;
pub(in crate::server) mod websocket;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor,
    SerializeOptions,
};
use serde::de::IgnoredAny;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use self::pieces::Pieces;
use self::routes::ROUTES;
use self::websocket::Websocket;
use crate::server::listen::bodies::{self, Bodies, Metered};
use crate::server::listen::serving::From;
use crate::server::process::host_facts;
use crate::server::scheduling::aside::Aside;
use crate::server::scheduling::hosts::Host;

/// Larger messages are transcoded on another thread, so that other connections on this one get
/// their turn.
const LARGE: usize = 256 << 10;
/// Each gRPC message is preceded by a compressed flag and a length.
const FRAME_HEAD: usize = 5;

/// Large messages that may wait to be transcoded.
const WAITING: usize = 256;
/// The hosts with a large message.
static LARGE_ONES: LazyLock<Arc<Aside>> =
    LazyLock::new(|| Aside::new("json", host_facts::cores(), WAITING, PATIENCE));
/// How long they may wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// Descriptors of every message and service.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(crate::wire::DESCRIPTORS).expect("the build has checked the descriptors")
});

/// Serves `/v3/`, and `/v3beta/` as etcd rewrites it, over the process's own gRPC router.
///
/// `limit` is the largest gRPC message in bytes, `bodies` the limits on incomplete ones.
pub(in crate::server) fn router(grpc: Router, limit: usize, bodies: Arc<Bodies>) -> Router {
    let gateway = Gateway {
        grpc,
        limit,
        bodies,
    };
    Router::new()
        .route("/v3/{*rest}", axum::routing::any(answer))
        .route("/v3beta/{*rest}", axum::routing::any(answer))
        .with_state(gateway)
}

#[derive(Clone)]
struct Gateway {
    grpc: Router,
    limit: usize,
    bodies: Arc<Bodies>,
}

async fn answer(State(gateway): State<Gateway>, request: Request<Body>) -> Response<Body> {
    if websocket::is_asked_for(request.headers()) {
        let limit = gateway.text_limit();
        let host = request
            .extensions()
            .get::<From>()
            .map(|from| Host::of(from.0));
        let meter = gateway.bodies.meter_messages(host);
        let posted = |call| async move { gateway.answer(call).await };
        return websocket::upgrade(request, limit, meter, posted).await;
    }
    gateway.answer(request).await
}

/// The method of a gRPC path.
fn descriptor(path: &str) -> Option<MethodDescriptor> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let service = POOL.get_service_by_name(service)?;
    service.methods().find(|method| method.name() == name)
}

impl Gateway {
    /// The limit in bytes of JSON: base64 and field names make it larger than the message.
    fn text_limit(&self) -> usize {
        2 * self.limit + LARGE
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let path = path.strip_prefix("/v3beta").or(path.strip_prefix("/v3"));
        let Some((_, method)) = ROUTES.iter().find(|(route, _)| Some(*route) == path) else {
            return refusal(StatusCode::NOT_FOUND, Code::NotFound, "Not Found");
        };
        if request.method() != Method::POST {
            return refusal(
                StatusCode::NOT_IMPLEMENTED,
                Code::Unimplemented,
                "Method Not Allowed",
            );
        }
        let Some(method) = descriptor(method) else {
            return refused(&Status::unimplemented("unknown method"), false);
        };
        match self.call(&method, request).await {
            Ok(response) => response,
            Err(status) => refused(&status, method.is_server_streaming()),
        }
    }

    async fn call(
        &self,
        method: &MethodDescriptor,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let host = parts.extensions.get::<From>().map(|from| Host::of(from.0));
        // A websocket may be idle for as long as its client likes before its first message, too.
        let endless = method.is_client_streaming() || parts.extensions.get::<Websocket>().is_some();
        let mut objects = Objects {
            body: self.bodies.meter_json(endless, host, body),
            buffer: BytesMut::new(),
            pieces: Pieces::default(),
            limit: self.text_limit(),
            input: method.input(),
            host,
        };
        let first = objects.next().await?;
        let body = if method.is_client_streaming() {
            Body::from_stream(frames(first, objects))
        } else {
            objects.end();
            // As in etcd, an empty body is an empty message, and of several objects the first one
            // counts.
            Body::from(first.unwrap_or_else(|| frame(&[])))
        };
        let mut call = Request::new(body);
        *call.method_mut() = Method::POST;
        *call.uri_mut() = format!("/{}/{}", method.parent_service().full_name(), method.name())
            .parse()
            .map_err(|_| Status::internal("a method without a path"))?;
        *call.version_mut() = http::Version::HTTP_2;
        *call.headers_mut() = metadata(&parts.headers);
        if let Some(from) = parts.extensions.get::<From>() {
            call.extensions_mut().insert(*from);
        }
        let response = match self.grpc.clone().oneshot(call).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let mut answers = Answers {
            status: status_of(response.headers()),
            body: response.into_body(),
            buffer: BytesMut::new(),
            output: method.output(),
            host,
        };
        let first = answers.next().await?;
        let body = if method.is_server_streaming() {
            Body::from_stream(lines(first, answers))
        } else {
            let only = first.ok_or_else(|| Status::internal("an answer without a message"))?;
            // The status comes after the message, and may still be an error.
            answers.next().await?;
            Body::from(only)
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(
            "grpc-metadata-content-type",
            HeaderValue::from_static("application/grpc"),
        );
        Ok(response)
    }
}

/// The call's metadata from an HTTP request's headers, by grpc-gateway's rules.
fn metadata(headers: &HeaderMap) -> HeaderMap {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        let name = match name.as_str() {
            "authorization" | "grpc-timeout" => Some(name.clone()),
            other => other
                .strip_prefix("grpc-metadata-")
                .and_then(|rest| HeaderName::from_bytes(rest.as_bytes()).ok()),
        };
        if let Some(name) = name {
            metadata.append(name, value.clone());
        }
    }
    metadata.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    metadata.insert(header::TE, HeaderValue::from_static("trailers"));
    metadata
}

/// The JSON objects of a request, one after the other, as gRPC frames.
struct Objects {
    body: Metered<Body>,
    buffer: BytesMut,
    pieces: Pieces,
    limit: usize,
    input: MessageDescriptor,
    host: Option<Host>,
}

impl Objects {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let mut ended = false;
        loop {
            self.pass_blanks();
            let worth = self.pieces.worth_reading(&self.buffer);
            if worth || ended {
                let mut values =
                    serde_json::Deserializer::from_slice(&self.buffer).into_iter::<IgnoredAny>();
                match values.next() {
                    Some(Ok(_)) => {
                        let text = self.buffer.split_to(values.byte_offset()).freeze();
                        self.pieces = Pieces::default();
                        let input = self.input.clone();
                        // It counts while it waits for its turn.
                        let work = move |text| encode(input, text);
                        let frame = transcode(text, self.host, work).await?;
                        self.body.keeps(self.buffer.len());
                        return Ok(Some(frame));
                    }
                    None if ended => return Ok(None),
                    Some(Err(error)) if ended || !may_go_on(&error, &self.buffer) => {
                        return Err(Status::invalid_argument(error.to_string()));
                    }
                    _ => {}
                }
            }
            if self.pieces.more(&self.buffer) {
                continue;
            }
            match self.body.frame().await {
                None => ended = true,
                Some(Err(error)) => {
                    let ours = bodies::ended(&*error);
                    return Err(ours.unwrap_or_else(|| Status::invalid_argument(error.to_string())));
                }
                Some(Ok(piece)) => {
                    if let Ok(data) = piece.into_data() {
                        self.buffer.put(data);
                    }
                }
            }
            if self.buffer.len() > self.limit {
                return Err(Status::resource_exhausted(format!(
                    "grpc: received message larger than max ({} vs. {})",
                    self.buffer.len(),
                    self.limit
                )));
            }
        }
    }
}

impl Objects {
    /// Whitespace before a value is skipped, so that a client that ends its lines is not in the
    /// middle of a value.
    fn pass_blanks(&mut self) {
        if self.pieces.are_scanned() {
            return;
        }
        let blank = |byte: &&u8| byte.is_ascii_whitespace();
        let blanks = self.buffer.iter().take_while(blank).count();
        if blanks > 0 {
            self.buffer.advance(blanks);
            self.body.keeps(self.buffer.len());
        }
    }

    /// Nothing more is read from it.
    fn end(&mut self) {
        self.buffer.clear();
        self.body.keeps(0);
    }
}

/// Whether further input may still make the text a valid value. The parser reports a number that is
/// cut after its sign or decimal point as invalid, so an error at the very end is not final.
fn may_go_on(error: &serde_json::Error, text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n');
    let (count, last) = lines.fold((0, 0), |(count, _), line| (count + 1, line.len()));
    error.is_eof() || (error.line() == count && error.column() >= last)
}

/// The first frame and those that follow; invalid input ends the client's side, as in etcd.
fn frames(
    first: Option<Bytes>,
    objects: Objects,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let rest = futures::stream::unfold(objects, |mut objects| async move {
        let frame = objects.next().await.ok()??;
        Some((Ok(frame), objects))
    });
    futures::stream::iter(first.map(Ok)).chain(rest)
}

/// The messages of a response, one after the other, as JSON; its status at the end.
struct Answers {
    body: Body,
    buffer: BytesMut,
    status: Option<Status>,
    output: MessageDescriptor,
    host: Option<Host>,
}

impl Answers {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = unframe(&mut self.buffer) {
                let output = self.output.clone();
                let work = move |message| decode(output, message);
                return transcode(message, self.host, work).await.map(Some);
            }
            if let Some(status) = &self.status {
                return match status.code() {
                    Code::Ok => Ok(None),
                    _ => Err(status.clone()),
                };
            }
            match self.body.frame().await {
                None => {
                    let text = "the answer ended without a status";
                    self.status = Some(Status::unavailable(text));
                }
                Some(Err(error)) => self.status = Some(Status::unavailable(error.to_string())),
                Some(Ok(piece)) => match piece.into_data() {
                    Ok(data) => self.buffer.put(data),
                    Err(piece) => {
                        self.status = piece.trailers_ref().and_then(status_of);
                    }
                },
            }
        }
    }
}

/// A stream's messages as lines of JSON, and its error, if any, as the last one.
fn lines(
    first: Option<Bytes>,
    answers: Answers,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let rest = futures::stream::unfold(Some(answers), |answers| async move {
        let mut answers = answers?;
        match answers.next().await {
            Ok(Some(message)) => Some((Ok(line(&message)), Some(answers))),
            Ok(None) => None,
            Err(status) => Some((Ok(error_line(&status)), None)),
        }
    });
    let first = first.map(|message| Ok(line(&message)));
    futures::stream::iter(first).chain(rest)
}

fn line(message: &[u8]) -> Bytes {
    [b"{\"result\":", message, b"}\n"].concat().into()
}

fn error_line(status: &Status) -> Bytes {
    format!("{{\"error\":{}}}\n", error_object(status)).into()
}

fn error_object(status: &Status) -> serde_json::Value {
    serde_json::json!({"code": status.code() as i32, "message": status.message()})
}

/// An error as grpc-gateway writes it; in a stream it is a line of the stream.
fn refused(status: &Status, stream: bool) -> Response<Body> {
    let body = if stream {
        Body::from(error_line(status))
    } else {
        Body::from(error_object(status).to_string())
    };
    let mut response = Response::new(body);
    *response.status_mut() = http_status(status.code());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn refusal(http: StatusCode, code: Code, text: &str) -> Response<Body> {
    let mut response = refused(&Status::new(code, text), false);
    *response.status_mut() = http;
    response
}

/// grpc-gateway's table.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // "Client closed request": not a standard status.
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The gRPC status in headers or trailers.
fn status_of(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers)
}

async fn transcode(
    from: Bytes,
    host: Option<Host>,
    work: impl FnOnce(Bytes) -> Result<Bytes, Status> + Send + 'static,
) -> Result<Bytes, Status> {
    if from.len() < LARGE {
        return work(from);
    }
    LARGE_ONES.run(host, move || work(from)).await?
}

/// Converts JSON to a gRPC frame.
fn encode(input: MessageDescriptor, text: Bytes) -> Result<Bytes, Status> {
    let mut json = serde_json::Deserializer::from_slice(&text);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(input, &mut json, &options)
        .map_err(|error| Status::invalid_argument(format!("proto: {error}")))?;
    Ok(frame(&message.encode_to_vec()))
}

/// For [`crate::server::decoders`]: converts JSON to a message of a method's request, and back.
pub(in crate::server) fn there_and_back(method: &str, text: Bytes) -> Option<(Bytes, Bytes)> {
    let input = descriptor(method)?.input();
    let message = encode(input.clone(), text).ok()?.slice(FRAME_HEAD..);
    let text = decode(input, message.clone()).ok()?;
    Some((message, text))
}

/// For [`crate::server::decoders`]: the messages of a method's request that arrives in these
/// pieces, up to the first invalid one.
pub(in crate::server) async fn messages(method: &str, pieces: Vec<Bytes>) -> Vec<Bytes> {
    let Some(method) = descriptor(method) else {
        return Vec::new();
    };
    let pieces = futures::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
    let bodies = Bodies::new(LARGE, bodies::WHOLE_WITHIN);
    let objects = Objects {
        body: bodies.meter_json(true, None, Body::from_stream(pieces)),
        buffer: BytesMut::new(),
        pieces: Pieces::default(),
        limit: LARGE,
        input: method.input(),
        host: None,
    };
    frames(None, objects)
        .filter_map(|frame| async { frame.ok() })
        .collect()
        .await
}

/// Converts a message to JSON: proto names, 64-bit numbers as strings, defaults left out.
fn decode(output: MessageDescriptor, bytes: Bytes) -> Result<Bytes, Status> {
    let failed = |error: String| Status::internal(error);
    let message =
        DynamicMessage::decode(output, bytes).map_err(|error| failed(error.to_string()))?;
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(true)
        .skip_default_fields(true);
    let mut text = Vec::new();
    let mut json = serde_json::Serializer::new(&mut text);
    message
        .serialize_with_options(&mut json, &options)
        .map_err(|error| failed(error.to_string()))?;
    Ok(text.into())
}

fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + message.len());
    frame.put_u8(0);
    // A message beyond 4 GiB exceeds every limit, and is refused for its length.
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// The next complete message.
fn unframe(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = buffer.get(1..FRAME_HEAD)?.try_into().ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    if buffer.len() - FRAME_HEAD < length {
        return None;
    }
    buffer.advance(FRAME_HEAD);
    Some(buffer.split_to(length).freeze())
}

#[cfg(test)]
#[path = "gateway_test.rs"]
mod tests;
