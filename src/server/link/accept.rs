//! The accepting end of the peer port: gRPC's `quorate.v1` and links on one socket.
//!
//! Reads eight bytes to distinguish them, answers a link's hello with a welcome or a refusal, and
//! then pumps. A connection that sends nothing is closed. Everything before a welcome, and all of
//! gRPC, runs on a separate thread: handshakes of unknown hosts delay no heartbeat.

use std::convert::Infallible;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{interval, sleep, timeout};
use tower::{Service, ServiceExt as _};

use super::dial::{Dialler, Proof, within};
use super::door::{Door, Registration};
use super::frame::{self, FRAME_LIMIT, HELLO_LIMIT};
use super::hello::{
    Hello, PeerRequest, PeerResponse, Purpose, Refusal, Reply, RequestKind, ValueAt,
};
use super::outbound::{ALIVE, HEARD, PULSE, SILENCE};
use super::{Io, PREFACE};
use crate::disk::{Lineage, Start};
use crate::server::listen::prefixed::Prefixed;
use crate::server::listen::quiet::{Quiet, printable};
use crate::server::operator_api::auth::OnProof;

/// Time for the first call with the operator's proof on a gRPC connection.
const FIRST_CALL: Duration = Duration::from_secs(5);
/// How a call begins that is held: of gRPC, as HTTP/1.1 carries it.
const HELD: &[u8] = b"POST /qu";
/// Concurrent calls on a connection; an operator makes one or two.
const STREAMS: u32 = 16;
/// Flow-control window of a gRPC connection, in bytes: requests are small.
const WINDOW: u32 = 64 << 10;
/// Largest head of a call, in bytes.
const HEAD: u32 = 16 << 10;
/// Interval of the keepalives of a gRPC connection.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Characters of a name that are logged.
const NAME: usize = 128;
/// Peer URLs of a hello that are considered.
const URLS: usize = 16;
/// The longest key, in bytes, of which a member can ask for the value.
const LONGEST_KEY: usize = 2 << 20;
/// Bytes that are read from a link at once.
const READ_BYTES: usize = 32 << 10;
/// These limit the log lines about refused links and failed handshakes.
static REFUSED: Quiet = Quiet::new();
static UNPROVEN: Quiet = Quiet::new();

/// Facts about the connecting side that do not come from its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedPeer {
    /// Its address.
    pub address: IpAddr,
    /// It has presented a certificate that our CA verifies.
    pub certified: bool,
}

/// The answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The reply to send, a welcome or a refusal.
    pub reply: Reply,
    /// The hello is of a member that was known before.
    pub known: bool,
}

/// What the accepting end needs from the member that owns the port.
pub(crate) trait Host: Send + Sync + 'static {
    /// Whether a TLS port currently accepts plaintext connections as well.
    fn takes_plaintext(&self) -> bool;
    /// The reply that refuses a link regardless of the hello.
    fn refuse(&self, refusal: Refusal, reason: String) -> Reply;
    /// Checks a hello; an unknown disk of an initial member is pinned durably first.
    fn admit(&self, hello: Hello, observed: ObservedPeer) -> BoxFuture<'_, Admitted>;
    /// Why an established link has to end. A removed member receives no messages any more, so it is
    /// notified by the end of its link: it dials again and is refused with the reason. A peer that
    /// was unknown when it linked keeps its link, with the limits for such peers, only while it is
    /// one of the unknown peers.
    fn ends(&self, linked: &Linked) -> Option<&'static str>;
    /// Delivers a message; false if too many are queued, and the link then waits a moment.
    fn deliver(&self, linked: &Linked, body: &Bytes) -> Result<bool, Error>;
    /// Answers a server that is not a member yet, or a member that was known before and may ask for this.
    fn answer(&self, kind: RequestKind, known: bool) -> BoxFuture<'_, PeerResponse>;
    /// Receives a checkpoint.
    fn receive(&self, from: u64, io: Io) -> BoxFuture<'_, Result<(), Error>>;
    /// A TLS handshake failed.
    fn handshake_failed(&self);
    /// A link was refused.
    fn link_refused(&self, refusal: Refusal);
}

/// The threads of a peer port.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    /// Established links between members that carry messages, beside consensus.
    pub raft: Handle,
    /// Other established links between members.
    pub members: Handle,
    /// Everything else.
    pub strangers: Handle,
}

/// One listening socket of a peer port.
#[derive(Clone)]
pub(crate) struct Port {
    /// Whether its URL uses TLS.
    pub tls: bool,
    /// The certificates.
    pub dialler: Arc<Dialler>,
    /// The member that owns it.
    pub host: Arc<dyn Host>,
    /// `quorate.v1`.
    pub grpc: axum::Router,
    /// Largest frame of a member that was not known before, in bytes.
    pub unknown_peer_frame: usize,
    /// Limits the connections; one for all sockets.
    pub door: Arc<Door>,
    /// The threads on which connections run.
    pub threads: Threads,
}

/// Serves one listening socket until it is dropped.
pub(crate) async fn serve(listener: TcpListener, port: Port) {
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                let registration = Arc::new(port.door.enter(from.ip().to_canonical()));
                let connection = Connection {
                    port: port.clone(),
                    registration,
                    from,
                };
                port.threads.strangers.spawn(async move {
                    if let Err(error) = Box::pin(connection.run(tcp)).await {
                        tracing::debug!(%from, %error, "a connection to the peer port ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the peer port");
                sleep(PULSE / 10).await;
            }
        }
    }
}

#[derive(Clone)]
struct Connection {
    port: Port,
    registration: Arc<Registration>,
    from: SocketAddr,
}

/// The purpose of a connection.
enum Begun {
    Grpc(Box<Prefixed<Io>>),
    Held(Box<Prefixed<Io>>),
    Link(Io, Linked),
    Nothing,
}

/// A peer that was welcomed.
#[derive(Clone, Debug)]
pub(crate) struct Linked {
    /// Its ID, by its hello.
    pub from: u64,
    /// Its disk, by its hello.
    pub disk_uuid: String,
    /// It is a member that was known when it linked.
    pub known: bool,
    /// Facts about it that do not come from its hello.
    pub observed: ObservedPeer,
    /// Its present start, by its hello.
    pub start: Option<Start>,
    purpose: Purpose,
}

impl Linked {
    /// Whether it is one of the links that carry consensus.
    fn stands(&self) -> bool {
        self.known && matches!(self.purpose, Purpose::Messages | Purpose::Checkpoint)
    }
}

impl Connection {
    async fn run(self, tcp: TcpStream) -> Result<(), Error> {
        let registration = Arc::clone(&self.registration);
        tokio::select! {
            ran = self.begin(tcp) => ran,
            () = registration.displaced() => Err(displaced()),
        }
    }

    async fn begin(self, tcp: TcpStream) -> Result<(), Error> {
        let plaintext = !self.port.tls || self.port.host.takes_plaintext();
        let security = self.port.dialler.security();
        let accepted = security.accept(tcp, self.port.tls, plaintext).await;
        let (io, proof) = accepted.inspect_err(|error| self.handshake_failed(error))?;
        if proof == Proof::Certified {
            self.registration.prove();
        }
        let exposed = self.port.tls && proof == Proof::Plain;
        match Box::pin(self.introduce(io, proof)).await? {
            Begun::Nothing => Ok(()),
            Begun::Grpc(io) => self.while_taken(exposed, self.grpc(*io)).await,
            Begun::Held(io) => self.while_taken(exposed, self.held(*io)).await,
            // A peer that was not known before stays on the thread for unknown hosts.
            Begun::Link(io, linked) if !linked.stands() => {
                self.while_taken(exposed, self.pump(io, linked)).await
            }
            Begun::Link(mut io, linked) => {
                let thread = match linked.purpose {
                    Purpose::Messages => self.port.threads.raft.clone(),
                    _ => self.port.threads.members.clone(),
                };
                io.move_to(&thread)?;
                let from = self.from;
                thread.spawn(async move {
                    let registration = Arc::clone(&self.registration);
                    let pump = self.while_taken(exposed, self.pump(io, linked));
                    let ended = tokio::select! {
                        ended = Box::pin(pump) => ended,
                        () = registration.displaced() => Err(displaced()),
                    };
                    if let Err(error) = ended {
                        tracing::debug!(%from, %error, "a link to the peer port ended");
                    }
                });
                Ok(())
            }
        }
    }

    /// Who connects and closes, as health checks do, has begun none.
    fn handshake_failed(&self, error: &Error) {
        if !self.port.tls || error.kind() == ErrorKind::UnexpectedEof {
            return;
        }
        self.port.host.handshake_failed();
        let from = self.from;
        match UNPROVEN.line(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!(%from, "a TLS handshake on the peer port failed: {error}"),
            Some(more) => {
                tracing::warn!(%from, more, "a TLS handshake on the peer port failed, and more before: {error}");
            }
        }
    }

    /// Ends a plaintext connection to a TLS port once every member is dialled by TLS.
    async fn while_taken(
        &self,
        exposed: bool,
        talk: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        if !exposed {
            return talk.await;
        }
        let ended = async {
            while self.port.host.takes_plaintext() {
                sleep(PULSE).await;
            }
        };
        tokio::select! {
            talked = talk => talked,
            () = ended => Err(Error::new(
                ErrorKind::ConnectionAborted,
                "the connection is plaintext, which this port no longer accepts",
            )),
        }
    }

    async fn introduce(&self, mut io: Io, proof: Proof) -> Result<Begun, Error> {
        let mut first = [0_u8; PREFACE.len()];
        within("the preface", async { io.read_exact(&mut first).await }).await?;
        if &first == PREFACE {
            return self.hello(io, proof).await;
        }
        if first.starts_with(b"PRI * HT") {
            return Ok(Begun::Grpc(Box::new(Prefixed::new(&first, io))));
        }
        if first.starts_with(HELD) {
            return Ok(Begun::Held(Box::new(Prefixed::new(&first, io))));
        }
        let text = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        within("the answer", io.write_all(text.as_bytes())).await?;
        Ok(Begun::Nothing)
    }

    async fn grpc(&self, io: Prefixed<Io>) -> Result<(), Error> {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEAD)
            .keep_alive_interval(KEEP_ALIVE);
        let served = builder.serve_connection(TokioIo::new(io), self.router());
        self.proven(async { served.await.map_err(Error::other) })
            .await
    }

    /// One call, over HTTP/1.1: of an operator that waits for a change.
    async fn held(&self, io: Prefixed<Io>) -> Result<(), Error> {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(FIRST_CALL)
            .keep_alive(false)
            .max_buf_size(HEAD as usize);
        let served = builder.serve_connection(TokioIo::new(io), self.router());
        self.proven(async { served.await.map_err(Error::other) })
            .await
    }

    /// The services for this connection, which is told of the first proof.
    fn router(
        &self,
    ) -> TowerToHyperService<
        impl Service<
            Request<Incoming>,
            Response = http::Response<axum::body::Body>,
            Error = Infallible,
            Future: Send + 'static,
        >
        + Clone
        + Send
        + 'static
        + use<>,
    > {
        let registration = Arc::clone(&self.registration);
        let proven = OnProof::new(move || registration.prove());
        let router = self.port.grpc.clone();
        TowerToHyperService::new(router.map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(proven.clone());
            request
        }))
    }

    /// Serves until it ends, or no proof has come in time.
    async fn proven(&self, served: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        let unproven = async {
            sleep(FIRST_CALL).await;
            if self.registration.is_proven() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            served = served => served,
            () = unproven => Err(Error::new(
                ErrorKind::TimedOut,
                "no call with the operator's proof arrived",
            )),
        }
    }

    async fn hello(&self, mut io: Io, proof: Proof) -> Result<Begun, Error> {
        let hello: Option<Hello> = within("the hello", frame::read(&mut io, HELLO_LIMIT)).await?;
        let mut hello = hello.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?;
        hello.name = printable(&hello.name, NAME);
        hello.disk_uuid = printable(&hello.disk_uuid, NAME);
        hello.peer_urls.truncate(URLS);
        let (from, name, purpose) = (hello.member_id, hello.name.clone(), hello.purpose());
        let disk_uuid = hello.disk_uuid.clone();
        let start = hello.starts.as_ref().and_then(Lineage::newest);
        let observed = ObservedPeer {
            address: self.from.ip().to_canonical(),
            certified: proof == Proof::Certified,
        };
        let Admitted { reply, known } = match self.port.dialler.security().judge(proof) {
            Ok(()) => self.port.host.admit(hello, observed).await,
            Err(reason) => Admitted {
                reply: self.port.host.refuse(Refusal::Certificate, reason),
                known: false,
            },
        };
        within("the answer", frame::write(&mut io, &reply)).await?;
        if reply.refusal() != Refusal::Welcome {
            self.port.host.link_refused(reply.refusal());
            log_refused(from, &name, &reply);
            within("the end", io.shutdown()).await?;
            return Ok(Begun::Nothing);
        }
        // A member has few links for messages, but any host that can send its hello may open any
        // number of other connections.
        if known && purpose == Purpose::Messages {
            self.registration.prove();
        }
        let linked = Linked {
            from,
            disk_uuid,
            known,
            observed,
            start,
            purpose,
        };
        Ok(Begun::Link(io, linked))
    }

    async fn pump(&self, io: Io, linked: Linked) -> Result<(), Error> {
        match linked.purpose {
            Purpose::Messages => {
                let place = self.port.door.link(linked.from);
                tokio::select! {
                    ended = self.messages(&linked, io) => ended,
                    () = place.superseded() => Err(Error::new(
                        ErrorKind::ConnectionAborted,
                        "newer links of the same member took its place",
                    )),
                }
            }
            Purpose::Checkpoint => self.port.host.receive(linked.from, io).await,
            Purpose::Requests => self.requests(io, &linked).await,
            Purpose::Introduction | Purpose::Unknown => Ok(()),
        }
    }

    async fn messages(&self, linked: &Linked, io: Io) -> Result<(), Error> {
        let host = &self.port.host;
        let limit = match linked.known {
            true => FRAME_LIMIT,
            false => self.port.unknown_peer_frame.min(FRAME_LIMIT),
        };
        let (reader, mut writer) = tokio::io::split(io);
        // What the kernel has is taken at once: a frame would cost three calls of the system, and under load many wait.
        let mut reader = BufReader::with_capacity(READ_BYTES, reader);
        let heard = Notify::new();
        let pulse = async {
            let mut pulse = interval(PULSE);
            loop {
                let sign = tokio::select! {
                    () = heard.notified() => HEARD,
                    _ = pulse.tick() => ALIVE,
                };
                let beat = async {
                    writer.write_all(&[sign]).await?;
                    writer.flush().await
                };
                within("a sign of life", beat).await?;
            }
        };
        let read = async {
            loop {
                let body = timeout(SILENCE * 4, frame::read_bytes(&mut reader, limit)).await;
                let body = body.map_err(|_| Error::new(ErrorKind::TimedOut, "silent peer"))??;
                let Some(body) = body else { return Ok(()) };
                if let Some(why) = host.ends(linked) {
                    return Err(Error::new(ErrorKind::PermissionDenied, why));
                }
                if body.is_empty() {
                    heard.notify_one();
                }
                // A full inbox slows the sender down through TCP.
                while !body.is_empty() && !host.deliver(linked, &body)? {
                    sleep(PULSE / 1000).await;
                }
            }
        };
        tokio::select! {
            ended = pulse => ended,
            ended = read => ended,
        }
    }

    async fn requests(&self, mut io: Io, linked: &Linked) -> Result<(), Error> {
        // A key is in a request for a value, which may be as long as a client's request.
        let asks_data = RequestKind::Value(ValueAt::default());
        let may_ask_data = linked.known && may_ask(&asks_data, self.port.tls, linked.observed);
        let limit = match may_ask_data {
            true => HELLO_LIMIT + LONGEST_KEY,
            false => HELLO_LIMIT,
        };
        loop {
            let request: Option<PeerRequest> =
                within("a request", frame::read(&mut io, limit)).await?;
            let Some(request) = request else {
                return Ok(());
            };
            if let Some(why) = self.port.host.ends(linked).filter(|_| linked.known) {
                return Err(Error::new(ErrorKind::PermissionDenied, why));
            }
            let answer = match request.kind {
                Some(kind) => {
                    let known = linked.known && may_ask(&kind, self.port.tls, linked.observed);
                    self.port.host.answer(kind, known).await
                }
                None => PeerResponse {
                    error: "this version does not know the request".to_owned(),
                    ..PeerResponse::default()
                },
            };
            within("the answer", frame::write(&mut io, &answer)).await?;
        }
    }
}

/// Whether a member may ask for this. What clients have stored leaves a port with TLS for whoever has shown a certificate, not
/// for whoever knows the names of a member.
pub(super) fn may_ask(kind: &RequestKind, tls: bool, observed: ObservedPeer) -> bool {
    let is_data = matches!(kind, RequestKind::Value(_));
    !is_data || !tls || observed.certified
}

/// Logs a refused link, unless there were many.
fn log_refused(from: u64, name: &str, reply: &Reply) {
    let (peer, reason) = (format!("{from:x}"), &reply.reason);
    match reply.refusal() {
        // The peer retries, and the reason disappears by itself.
        Refusal::NotYet | Refusal::Busy => {
            tracing::debug!(%peer, name, "refused a link: {reason}");
        }
        _ => match REFUSED.line(Instant::now()) {
            None => tracing::debug!(%peer, name, "refused a link: {reason}"),
            Some(0) => tracing::warn!(%peer, name, "refused a link: {reason}"),
            Some(more) => {
                tracing::warn!(%peer, name, more, "refused a link, and more before: {reason}");
            }
        },
    }
}

fn displaced() -> Error {
    Error::new(
        ErrorKind::ConnectionAborted,
        "too many connections that have not authenticated",
    )
}
