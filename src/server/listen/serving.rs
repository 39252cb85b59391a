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
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower::{Service, ServiceExt as _};

use super::bodies::{Bodies, Metered};
use super::heard::{Count, Heard};
use super::seats::{Call, Handle};
use super::{ConnectionError, HANDSHAKE, Serve, raised, until};
use crate::server::auth::certificate::CommonName;
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
pub(crate) trait Direct: Send + Sync {
    /// Whether a request may be one of those.
    fn takes(&self, parts: &Parts) -> bool;

    /// Answers such a request, or gives it back.
    fn answer(
        self: Arc<Self>,
        request: Request<Metered<Incoming>>,
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
    pub(crate) fn new(router: axum::Router, direct: Option<Arc<dyn Direct>>) -> Front {
        Front { router, direct }
    }

    async fn answer(
        self,
        request: Request<Metered<Incoming>>,
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
    let service = TowerToHyperService::new(service(serve.front, known, count));
    let connection = builder.serve_connection_with_upgrades(stream, service);
    let mut connection = std::pin::pin!(connection);
    let (mut draining, mut hang_ups) = (serve.draining, serve.hang_ups);
    // Earlier calls to hang up do not concern this connection.
    hang_ups.mark_unchanged();
    tokio::select! {
        result = connection.as_mut() => result,
        () = until(&mut draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = raised(&mut hang_ups) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        // The connection that needs the seat waits no longer than a GOAWAY takes.
        _ = seat.asked_to_leave() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = unused(&seat, serve.unused) => {
            connection.as_mut().graceful_shutdown();
            timeout(serve.handshake, connection).await.map_err(|_| "it asked nothing")?
        }
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

/// The front as the service of this connection, which has received `heard` bytes.
pub(crate) fn service(
    front: Front,
    connection: Connection,
    heard: Count,
) -> impl Service<
    Request<Incoming>,
    Response = Response<ResponseBody>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send,
> + Clone {
    tower::service_fn(move |mut request: Request<Incoming>| {
        let Connection {
            seat,
            bodies,
            from,
            name,
            by,
        } = &connection;
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
    })
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
