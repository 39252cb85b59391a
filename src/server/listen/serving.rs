//! Serves HTTP on a connection with a router: until it ends or has to close, with each request
//! counted in its seat, its body metered, and with the connection's facts about the client
//! attached. Never looks into a message.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::rt::Executor as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::bodies::{Bodies, Metered};
use super::heard::{Count, Heard};
use super::prefixed::Prefixed;
use super::received::Received;
use super::seats::{Call, Handle};
use super::{ConnectionError, HANDSHAKE, Serve, raised, until};
use crate::server::auth::certificate::CommonName;
use crate::server::http2::{self, Http2, PREFACE, RequestBody};
use crate::server::scheduling::hosts::Host;
use crate::server::scheduling::in_turn::ByHost;
use crate::wire::error::EtcdError;

/// Flow-control window of a stream, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// Flow-control window of a connection, in bytes: what a client has sent and no service has read
/// yet is in memory.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// The windows of all open connections together should stay near this many bytes.
const ALL_WINDOWS: usize = 256 << 20;
/// Bytes of one response that are encoded ahead of its reader.
const SEND_BUFFER: usize = 128 << 10;
/// Bytes of a request's headers: tokens and a few names.
const HEADERS: u32 = 16 << 10;

/// A request that was not answered, for the router.
pub(crate) type GivenBack = Box<Request<Body>>;

/// Answers some requests without the router.
pub(in crate::server) trait Direct: Send + Sync {
    /// Whether a request may be one of those.
    fn takes(&self, parts: &Parts) -> bool;

    /// Answers such a request, or gives it back.
    fn answer(
        self: Arc<Self>,
        request: Request<Metered<Received>>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Body>, GivenBack>> + Send>>;
}

/// What requests are answered by.
#[derive(Clone)]
pub struct Front {
    router: axum::Router,
    direct: Option<Arc<dyn Direct>>,
}

impl Front {
    /// A router that answers everything but what `direct` takes.
    pub(in crate::server) fn new(router: axum::Router, direct: Option<Arc<dyn Direct>>) -> Front {
        Front { router, direct }
    }

    async fn answer(
        self,
        request: Request<Metered<Received>>,
    ) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let direct = self.direct.filter(|direct| direct.takes(&parts));
        let request = Request::from_parts(parts, body);
        let Some(direct) = direct else {
            return self.router.oneshot(request).await;
        };
        match direct.answer(request).await {
            Ok(response) => Ok(response),
            Err(request) => self.router.oneshot(*request).await,
        }
    }
}

/// The address from which a request came; an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From(pub(crate) IpAddr);

/// The facts about a connection.
#[derive(Clone)]
pub(crate) struct Connection {
    /// Its seat.
    pub(crate) seat: Handle,
    /// The limits on bodies.
    pub(crate) bodies: Arc<Bodies>,
    /// The address of the client.
    pub(crate) from: Option<IpAddr>,
    /// The name in its certificate.
    pub(crate) name: Option<CommonName>,
    /// The identity of its tasks for scheduling.
    pub(crate) by: ByHost,
}

/// Serves a connection until it ends, or has to.
pub(in crate::server) async fn converse<S>(
    stream: S,
    known: Connection,
    serve: Serve,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if !serve.port.own_http2 {
        return by_library(stream, known, serve).await;
    }
    let mut stream = stream;
    let mut draining = serve.draining.clone();
    let first = tokio::select! {
        () = until(&mut draining) => return Ok(()),
        first = timeout(serve.handshake, preface(&mut stream)) => {
            first.map_err(|_| "no request was received in time")??
        }
    };
    match first {
        Preface::Http2 => by_ourselves(stream, known, serve).await,
        Preface::Other(first) => by_library(Prefixed::new(&first, stream), known, serve).await,
    }
}

/// What a connection begins with.
enum Preface {
    Http2,
    /// Something else: the bytes so far.
    Other(Vec<u8>),
}

/// Reads as much as it takes to tell.
async fn preface(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Preface> {
    let mut first = Vec::with_capacity(PREFACE.len());
    while PREFACE.starts_with(&first) {
        if first.len() == PREFACE.len() {
            return Ok(Preface::Http2);
        }
        let mut rest = [0; PREFACE.len()];
        let rest = &mut rest[..PREFACE.len() - first.len()];
        match stream.read(rest).await? {
            0 => break,
            read => first.extend_from_slice(&rest[..read]),
        }
    }
    Ok(Preface::Other(first))
}

/// HTTP/2 by `super::super::http2`.
async fn by_ourselves<S>(stream: S, known: Connection, serve: Serve) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seat = known.seat.clone();
    let window = window(seat.crowd());
    let settings = http2::Settings {
        // Those beyond the limit on requests are refused one by one, and there is a limit to that too.
        streams: serve
            .port
            .max_concurrent_streams
            .unwrap_or(u32::MAX)
            .min(seat.most_calls()),
        stream_window: window.min(STREAM_WINDOW),
        connection_window: window,
        headers: HEADERS,
        keepalive: serve.port.keepalive,
    };
    let handler = Handler {
        front: serve.front.clone(),
        known,
    };
    let connection = Http2::new(stream, settings, handler);
    until_over(connection, &seat, serve).await
}

/// Carries out the requests of a connection of our own HTTP/2.
struct Handler {
    front: Front,
    known: Connection,
}

impl http2::Handler for Handler {
    type Body = ResponseBody;
    type Answer = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

    fn is_brief(&self, parts: &Parts) -> bool {
        let direct = self.front.direct.as_ref();
        direct.is_some_and(|direct| direct.takes(parts))
    }

    fn answer(&mut self, request: Request<RequestBody>) -> Self::Answer {
        // Only an upgrade from HTTP/1 asks what was received.
        let heard = Count::default();
        let request = request.map(Received::Own);
        let answer = begin(&self.front, &self.known, &heard, request);
        Box::pin(async move {
            match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.known.by.execute(task);
    }
}

/// HTTP/1 and HTTP/2 by hyper.
async fn by_library<S>(stream: S, known: Connection, serve: Serve) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(known.by.clone());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(serve.handshake);
    let keepalive = serve.port.keepalive;
    let seat = known.seat.clone();
    let window = window(seat.crowd());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(window.min(STREAM_WINDOW))
        .initial_connection_window_size(window)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS)
        .max_concurrent_streams(serve.port.max_concurrent_streams)
        .keep_alive_interval(keepalive.map(|(interval, _)| interval))
        .keep_alive_timeout(keepalive.map_or(HANDSHAKE, |(_, timeout)| timeout));
    let count = Count::default();
    let stream = TokioIo::new(Heard::new(stream, count.clone()));
    let front = serve.front.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        begin(&front, &known, &count, request.map(Received::Library))
    });
    let connection = builder.serve_connection_with_upgrades(stream, service);
    until_over(Box::pin(connection), &seat, serve).await
}

/// A connection that can be asked to finish.
trait Serving {
    /// Serves until it ends; called again after it was asked to finish.
    async fn run(&mut self) -> Result<(), ConnectionError>;
    /// Answers what was asked, and nothing that begins later.
    fn finish(&mut self);
}

impl<S, H> Serving for Http2<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: http2::Handler,
{
    async fn run(&mut self) -> Result<(), ConnectionError> {
        Http2::run(self).await.map_err(Into::into)
    }

    fn finish(&mut self) {
        self.close_gracefully();
    }
}

impl<I, S, E> Serving for Pin<Box<auto::UpgradeableConnection<'_, I, S, E>>>
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<ResponseBody>>,
    S::Future: 'static,
    S::Error: Into<ConnectionError>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, ResponseBody>,
{
    async fn run(&mut self) -> Result<(), ConnectionError> {
        self.as_mut().await
    }

    fn finish(&mut self) {
        self.as_mut().graceful_shutdown();
    }
}

/// Serves a connection until it ends, or has to.
async fn until_over(
    mut connection: impl Serving,
    seat: &Handle,
    serve: Serve,
) -> Result<(), ConnectionError> {
    let (mut draining, mut hang_ups) = (serve.draining, serve.hang_ups);
    // Earlier calls to hang up do not concern this connection.
    hang_ups.mark_unchanged();
    let within = tokio::select! {
        result = connection.run() => return result,
        () = until(&mut draining) => None,
        () = raised(&mut hang_ups) => None,
        // The connection that needs the seat waits no longer than a GOAWAY takes.
        _ = seat.asked_to_leave() => None,
        () = unused(seat, serve.unused) => Some(serve.handshake),
    };
    connection.finish();
    match within {
        None => connection.run().await,
        Some(within) => timeout(within, connection.run())
            .await
            .map_err(|_| "it asked nothing")?,
    }
}

/// Waits until a connection has been open for this long and has carried no request.
async fn unused(seat: &Handle, limit: Duration) {
    tokio::time::sleep(limit).await;
    if seat.carried() {
        std::future::pending::<()>().await;
    }
}

/// The flow-control window of a connection, while so many are open.
fn window(open: usize) -> u32 {
    let share = u32::try_from(ALL_WINDOWS / open.max(1)).unwrap_or(u32::MAX);
    // HTTP/2's default is the least that every client supports.
    share.clamp(64 << 10, CONNECTION_WINDOW)
}

/// Begins to answer a request of a connection, which has received `heard` bytes.
fn begin(
    front: &Front,
    known: &Connection,
    heard: &Count,
    mut request: Request<Received>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send + use<> {
    let Connection {
        seat,
        bodies,
        from,
        name,
        by,
    } = known;
    let call = match is_probe(request.uri().path()) {
        true => seat.begin_probe(),
        false => seat.begin(),
    };
    let extensions = request.extensions_mut();
    if let Some(name) = name {
        extensions.insert(name.clone());
    }
    if let Some(from) = from {
        extensions.insert(From(*from));
    }
    if request.headers().contains_key(header::UPGRADE) {
        request.extensions_mut().insert(seat.clone());
        request.extensions_mut().insert(by.clone());
        request.extensions_mut().insert(heard.clone());
    }
    let (parts, body) = request.into_parts();
    let host = from.map(Host::of);
    let body = bodies.meter(parts.uri.path(), &parts.headers, host, body);
    let request = Request::from_parts(parts, body);
    let front = front.clone();
    async move {
        let response = match &call {
            Some(_) => front.answer(request).await?,
            None => too_many(&request),
        };
        Ok(response.map(|body| ResponseBody { body, _call: call }))
    }
}

/// The body of a response that is being sent; its request is pending until then.
pub(crate) struct ResponseBody {
    body: Body,
    _call: Option<Call>,
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether it is a health probe; an expensive request (metrics) is none.
fn is_probe(path: &str) -> bool {
    let check = |kind| {
        path.strip_prefix(kind)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path == "/health"
        || path == "/grpc.health.v1.Health/Check"
        || check("/livez")
        || check("/readyz")
}

fn too_many<B>(request: &Request<B>) -> Response<Body> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return tonic::Status::from(EtcdError::TooManyRequests).into_http();
    }
    let mut response = Response::new(Body::from("too many requests\n"));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
}

#[cfg(test)]
mod tests {
    use super::is_probe;

    #[test]
    fn probe_is_recognized_by_its_path() {
        for path in [
            "/health",
            "/livez",
            "/readyz/data_corruption",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(is_probe(path), "{path}");
        }
        for path in [
            "/metrics",
            "/livezy",
            "/v3/kv/put",
            "/grpc.health.v1.Health/Watch",
            "/",
        ] {
            assert!(!is_probe(path), "{path}");
        }
    }
}
