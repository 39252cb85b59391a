//! The sockets of the client port and the metrics port, and Unix sockets: bound before anything
//! else happens, then distributed round-robin to one single-threaded runtime per core.
//!
//! gRPC and HTTP/1 share a socket; TLS is chosen by the URL's scheme. Never looks into a request:
//! that belongs to the service.

pub(in crate::server) mod all_seats;
pub(in crate::server) mod bodies;
pub(in crate::server) mod heard;
pub(in crate::server) mod prefixed;
pub(in crate::server) mod quiet;
pub(in crate::server) mod received;
pub(in crate::server) mod seats;
pub(in crate::server) mod serving;
pub(in crate::server) mod socket;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use self::bodies::Bodies;
use self::prefixed::{Prefixed, TLS_HANDSHAKE};
use self::seats::{Handle as Seat, Leave, Occupied, Seats};
use self::serving::{Connection, Front, converse};
use self::socket::{Accepted, Listener, Socket};
use crate::server::auth::certificate::common_name;
use crate::server::core::queue::Oldest;
use crate::server::flags::config::{ClientPort, Config};
use crate::server::flags::url::{ClientUrl, Endpoint};
use crate::server::metrics::client::ClientMetrics;
use crate::server::process::host_facts;
use crate::server::scheduling::hosts::Host;
use crate::server::scheduling::in_turn::ByHost;
use crate::server::scheduling::rounds::Line;
use crate::server::scheduling::turns;
use crate::server::tls::{self, Reloaded, Served};

/// Time for a TLS handshake, and for the headers of an HTTP/1 request: without it, idle sockets
/// would hold memory for ever.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for the first request of a connection to begin: until then it only occupies a seat. Its
/// client is notified, and connects again when it has a request.
pub(in crate::server) const UNUSED: Duration = Duration::from_secs(60);
/// Time for a client to be notified that its idle connection is closed for a new one.
const FAREWELL: Duration = Duration::from_millis(250);
/// Time for pending requests on a connection that is to be closed: enough for a response, but not
/// for an endless stream.
pub(in crate::server) const GRACE: Duration = Duration::from_secs(1);
/// Length of the accept queue. The standard library uses 128: of a thousand clients that connect at
/// once the kernel would silently drop the rest, and they would retry after one second, then after
/// three.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept: the usual cause, no free file descriptors, is temporary.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often refused connections and failed accepts are logged.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Threads for slow work beside each client thread; the amount of such work is limited where it
/// begins.
const BESIDE: usize = 64;

/// Why a URL cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The port is taken, or a server answers on the Unix socket.
    #[error("--{flag}: {url} is in use by another process: stop that process or give another {}", if url.starts_with("unix") { "path" } else { "port" })]
    InUse {
        /// The flag.
        flag: &'static str,
        /// The URL.
        url: String,
    },
    /// Any other reason.
    #[error("--{flag}: cannot listen on {url}: {source}")]
    Bind {
        /// The flag.
        flag: &'static str,
        /// The URL.
        url: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Certificates that cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
}

/// A bound socket that accepts no connections yet.
pub struct Bound {
    /// Its actual address, also when port 0 was requested; a path for a Unix socket.
    pub address: String,
    listener: socket::Bound,
    tls: Option<Arc<Reloaded<Served>>>,
}

/// Every socket for clients and probes.
pub struct AllBound {
    /// gRPC, and HTTP if it has no sockets of its own.
    pub clients: Vec<Bound>,
    /// HTTP alone.
    pub http: Vec<Bound>,
    /// Metrics and probes alone.
    pub probes: Vec<Bound>,
    /// The certificates of the sockets that use TLS.
    pub tls: Option<Arc<Reloaded<Served>>>,
}

impl Bound {
    /// Whether it uses TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

/// Binds every URL for clients and probes.
pub fn bind(config: &Config) -> Result<AllBound, ListenError> {
    let tls = match &config.client_tls {
        Some(files) => Some(Arc::new(tls::server(
            files,
            &config.tls_policy,
            tls::CLIENT_ALPN,
        )?)),
        None => None,
    };
    let all = |flag, urls: &[ClientUrl]| -> Result<Vec<Bound>, ListenError> {
        urls.iter()
            .map(|url| bind_one(flag, url, tls.as_ref()))
            .collect()
    };
    Ok(AllBound {
        clients: all("listen-client-urls", &config.listen_client_urls)?,
        http: all("listen-client-http-urls", &config.listen_client_http_urls)?,
        probes: all("listen-metrics-urls", &config.listen_metrics_urls)?,
        tls,
    })
}

fn bind_one(
    flag: &'static str,
    url: &ClientUrl,
    tls: Option<&Arc<Reloaded<Served>>>,
) -> Result<Bound, ListenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse {
            flag,
            url: url.to_string(),
        },
        _ => ListenError::Bind {
            flag,
            url: url.to_string(),
            source,
        },
    };
    let (address, listener) = match url {
        ClientUrl::Port(endpoint) => {
            let listener = listen(endpoint).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            (address.to_string(), socket::Bound::Port(listener))
        }
        ClientUrl::File(file) => {
            let listener = socket::listen_on_file(&file.path, BACKLOG).map_err(failed)?;
            (file.path.display().to_string(), listener)
        }
    };
    Ok(Bound {
        address,
        listener,
        tls: tls.filter(|_| url.tls()).cloned(),
    })
}

/// Binds one port; an empty host means all addresses, `localhost` its first one.
pub fn listen(url: &Endpoint) -> io::Result<StdListener> {
    let host = match url.host.as_str() {
        "" => "0.0.0.0",
        host => host,
    };
    let mut addresses: Vec<SocketAddr> = (host, url.port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let first = addresses.first().copied();
    listen_at(first.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?)
}

/// Binds one port. All addresses means those of IPv6 and IPv4, whether written as `0.0.0.0` or
/// `::`, as in etcd; on a machine without IPv6, those of IPv4.
pub fn listen_at(address: SocketAddr) -> io::Result<StdListener> {
    if !address.ip().is_unspecified() {
        return bound_to(address);
    }
    let every = |ip: IpAddr| SocketAddr::new(ip, address.port());
    match bound_to(every(Ipv6Addr::UNSPECIFIED.into())) {
        // Only these errors mean that the machine has no IPv6; a port in use is an error.
        Err(error) if has_no_ipv6(&error) => bound_to(every(Ipv4Addr::UNSPECIFIED.into())),
        bound => bound,
    }
}

fn has_no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT: booted without IPv6, or a seccomp filter refuses it.
    let refused = error.raw_os_error() == Some(libc::EAFNOSUPPORT);
    refused || error.kind() == io::ErrorKind::AddrNotAvailable
}

fn bound_to(address: SocketAddr) -> io::Result<StdListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // As the standard library does: a port with connections in TIME_WAIT can be bound.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Regardless of the machine's setting.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Single-threaded runtimes to which connections are distributed.
pub struct ClientRuntimes {
    handles: Vec<Handle>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl ClientRuntimes {
    /// Starts this many threads.
    pub fn start(count: usize) -> io::Result<ClientRuntimes> {
        let (stop, stopped) = watch::channel(false);
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        for number in 0..count.max(1) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                // How often, in tasks, the runtime looks for sockets and for tasks woken by another
                // thread: responses from the core do not wait for a thousand connections.
                .global_queue_interval(2)
                .event_interval(8)
                // Threads beside it, for passwords, hashes and sorting: a request that needs them
                // is expensive and may wait, others may not.
                .max_blocking_threads(BESIDE)
                .on_thread_start(host_facts::step_back)
                .build()?;
            handles.push(runtime.handle().clone());
            let mut stopped = stopped.clone();
            let thread = std::thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn(move || {
                    runtime.block_on(async move {
                        // An error means that the owner is gone, which counts as a stop.
                        let _ = stopped.wait_for(|stop| *stop).await;
                    });
                    runtime.shutdown_background();
                })?;
            threads.push(thread);
        }
        Ok(ClientRuntimes {
            handles,
            threads,
            stop,
        })
    }

    /// The runtimes, for tasks besides connections.
    #[must_use]
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Ends every task and every thread.
    pub fn shutdown(self) {
        let _ = self.stop.send(true);
        for thread in self.threads {
            // A thread that panicked has reported that already.
            let _ = thread.join();
        }
    }
}

/// How connections are served.
#[derive(Clone)]
pub struct Serve {
    /// What answers: gRPC and HTTP.
    pub front: Front,
    /// The same for plaintext connections to a TLS socket; `None`: refused.
    pub plain: Option<Front>,
    /// Settings of HTTP/2.
    pub port: ClientPort,
    /// Time for a handshake, and for a request's headers: [`HANDSHAKE`] except in tests.
    pub handshake: Duration,
    /// Time for the first request: `UNUSED` except in tests.
    pub unused: Duration,
    /// The limit on connections.
    pub(in crate::server) seats: Arc<Seats>,
    /// The limits on request bodies.
    pub(in crate::server) bodies: Arc<Bodies>,
    /// Counts bytes; `None` on the metrics port, whose traffic does not count as client traffic.
    pub metrics: Option<Arc<ClientMetrics>>,
    /// Becomes true when connections should finish their pending requests and close.
    pub draining: watch::Receiver<bool>,
    /// Increases when the connections that are open should finish their pending requests and close,
    /// while new ones are served.
    pub hang_ups: watch::Receiver<u64>,
    /// Open connections.
    pub open: Arc<AtomicU64>,
    /// For the metrics port: its probes have their own reserve.
    pub(in crate::server) probes: bool,
    /// How long the raft thread's inbox has not been taken.
    pub(in crate::server) inbox: Oldest,
}

impl Serve {
    /// The identity, for scheduling, of the tasks of a connection from this address.
    pub(in crate::server) fn by(&self, from: Option<IpAddr>) -> ByHost {
        ByHost {
            line: Line {
                probes: self.probes,
                host: from.map(Host::of),
            },
            inbox: self.inbox.clone(),
        }
    }
}

/// Accepts on one socket for ever, distributing connections to the runtimes.
pub fn accept(bound: Bound, runtimes: &[Handle], serve: Serve) {
    let Some(first) = runtimes.first().cloned() else {
        return;
    };
    let runtimes = runtimes.to_vec();
    first.spawn(async move {
        let listener = match Listener::from_bound(bound.listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, address = %bound.address, "cannot accept connections");
                return;
            }
        };
        let mut draining = serve.draining.clone();
        let mut log = Seldom::default();
        for runtime in runtimes.iter().cycle() {
            let accepted = tokio::select! {
                biased;
                () = until(&mut draining) => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    if let Some(times) = log.due() {
                        tracing::warn!(%error, times, address = %bound.address, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let from = stream.from();
            match serve.seats.admit(from).await {
                Some(seat) => {
                    let served = connection(stream, from, seat, bound.tls.clone(), serve.clone());
                    runtime.spawn(served);
                }
                None => {
                    if let Some(times) = log.due() {
                        let most = serve.seats.most();
                        tracing::warn!(?from, times, most, address = %bound.address, "refused a connection: every other one is in use; raise the limit of open files (LimitNOFILE=), or the memory's");
                    }
                }
            }
        }
    });
}

/// Limits the logging of what may happen thousands of times a second.
#[derive(Default)]
pub(in crate::server) struct Seldom {
    last: Option<std::time::Instant>,
    times: u64,
}

impl Seldom {
    /// The number of occurrences since the last line, if it is time for another one.
    pub(in crate::server) fn due(&mut self) -> Option<u64> {
        self.times += 1;
        let now = std::time::Instant::now();
        if self.last.is_some_and(|last| now < last + LOGGED_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.times))
    }
}

async fn connection(
    stream: Accepted,
    from: Option<IpAddr>,
    seat: Occupied,
    tls: Option<Arc<Reloaded<Served>>>,
    serve: Serve,
) {
    let open = serve.open.clone();
    open.fetch_add(1, Relaxed);
    let handle = seat.handle();
    let by = serve.by(from);
    // A connection that has to close does so without waiting for its host's turn.
    let talked = tokio::select! {
        talked = by.task(talk(stream, from, seat, tls, serve)) => talked,
        () = gone(&handle) => Err("its seat was needed".into()),
    };
    if let Err(error) = talked {
        // Clients disconnect in many ways; none is an error of the server.
        tracing::debug!(error = %error, "connection ended");
    }
    open.fetch_sub(1, Relaxed);
}

/// Waits until the connection has to be closed. Its client is notified at the same time, and may
/// begin no new requests. Pending ones are answered, unless that takes long, or so many connections
/// are being closed that new ones would have to wait for this one.
pub(in crate::server) async fn gone(seat: &Seat) {
    if seat.asked_to_leave().await == Leave::AtOnce {
        return;
    }
    // Requests that take longer are cut off.
    let _ = timeout(GRACE, seat.idle()).await;
    // For the GOAWAY frame, and for the last response to be sent.
    tokio::time::sleep(FAREWELL).await;
}

async fn talk(
    stream: Accepted,
    from: Option<IpAddr>,
    seat: Occupied,
    tls: Option<Arc<Reloaded<Served>>>,
    mut serve: Serve,
) -> Result<(), ConnectionError> {
    let stream = Socket::from_accepted(stream)?;
    tokio::select! {
        () = until(&mut serve.draining) => return Ok(()),
        first = timeout(serve.handshake, stream.readable()) => {
            first.map_err(|_| "no data was received in time")??;
        }
    }
    let connection = Connection {
        seat: seat.handle(),
        bodies: serve.bodies.clone(),
        from,
        name: None,
        by: serve.by(from),
    };
    let mut stream = Counted {
        stream,
        metrics: serve.metrics.clone(),
        _seat: seat,
    };
    let Some(tls) = tls else {
        return converse(stream, connection, serve).await;
    };
    let Some(plain) = serve.plain.take() else {
        return secured(stream, &tls, connection, serve).await;
    };
    let mut first = [0];
    let read = timeout(serve.handshake, stream.read_exact(&mut first));
    read.await.map_err(|_| "no data was received in time")??;
    let stream = Prefixed::new(&first, stream);
    if first[0] == TLS_HANDSHAKE {
        return secured(stream, &tls, connection, serve).await;
    }
    serve.front = plain;
    converse(stream, connection, serve).await
}

pub(in crate::server) type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn secured<S>(
    stream: S,
    tls: &Reloaded<Served>,
    mut connection: Connection,
    serve: Serve,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let acceptor = TlsAcceptor::from(tls.current().config.clone());
    let handshake = turns::paced(acceptor.accept(stream));
    let done = timeout(serve.handshake, handshake).await;
    // Whoever connects and closes, as health checks do, has begun none.
    let failed = match &done {
        Ok(Ok(_)) => false,
        Ok(Err(error)) => error.kind() != io::ErrorKind::UnexpectedEof,
        Err(_) => true,
    };
    if let Some(metrics) = serve.metrics.as_ref().filter(|_| failed) {
        metrics.handshakes_failed.fetch_add(1, Relaxed);
    }
    let stream = done.map_err(|_| "no TLS handshake in time")??;
    let certificates = stream.get_ref().1.peer_certificates();
    connection.name = certificates.and_then(|chain| common_name(chain.first()?));
    converse(stream, connection, serve).await
}

/// Waits until the number increases; for ever if its owner is gone.
pub(in crate::server) async fn raised(number: &mut watch::Receiver<u64>) {
    if number.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the flag is set, or its owner is gone, which is equivalent here.
pub(in crate::server) async fn until(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|raised| *raised).await;
}

/// A socket that counts its bytes.
struct Counted {
    stream: Socket,
    metrics: Option<Arc<ClientMetrics>>,
    /// Held for as long as the socket is open, also after an upgrade.
    _seat: Occupied,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(metrics) = &self.metrics {
            metrics
                .received_bytes
                .fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        }
        polled
    }
}

impl Counted {
    fn sent(&self, polled: &Poll<io::Result<usize>>) {
        if let (Some(metrics), Poll::Ready(Ok(bytes))) = (&self.metrics, polled) {
            metrics.sent_bytes.fetch_add(*bytes as u64, Relaxed);
        }
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "listen_test.rs"]
mod tests;
