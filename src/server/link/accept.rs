//! The accepting end of the peer port: gRPC's `quorate.v1` and links on one socket.
//!
//! Reads eight bytes to tell them apart, answers a link's hello with a welcome or a reason,
//! and then pumps. A connection that says nothing is closed.

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{interval, sleep, timeout};

use super::dial::{Dialler, Proof, within};
use super::frame::{self, FRAME_LIMIT, HELLO_LIMIT};
use super::hello::{Answer, Ask, Hello, Purpose, Question, Refusal, Reply};
use super::outbound::{ALIVE, HEARD, PULSE, SILENCE};
use super::{Io, PREFACE};
use crate::server::prefixed::Prefixed;

/// What the accepting end asks of the member that owns the port.
pub(crate) trait Host: Send + Sync + 'static {
    /// Whether a port of TLS takes connections without it as well, at this moment.
    fn takes_plaintext(&self) -> bool;
    /// Our side of the introduction to whoever may have no link whatever it says.
    fn refuse(&self, refusal: Refusal, reason: String) -> Reply;
    /// Judges a hello; an unknown disk of an initial member is pinned durably first. Gives our
    /// side of the introduction, welcome or not.
    fn admit(&self, hello: Hello) -> BoxFuture<'_, Reply>;
    /// Whether a member that was let in is out of the cluster by now. Nobody sends to it any more, so
    /// that only a link that ends tells it: it comes again, and is refused with the reason.
    fn is_out(&self, from: u64) -> bool;
    /// Takes a message; false when too much waits, and the link then waits a moment.
    fn deliver(&self, from: u64, body: &Bytes) -> Result<bool, Error>;
    /// Answers a server that is not a member yet.
    fn answer(&self, ask: Ask) -> BoxFuture<'_, Answer>;
    /// Receives a checkpoint.
    fn receive(&self, from: u64, io: Io) -> BoxFuture<'_, Result<(), Error>>;
}

/// Serves one listening socket until it is dropped; `tls`: its URL says so.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: bool,
    dialler: Arc<Dialler>,
    host: Arc<dyn Host>,
    grpc: axum::Router,
) {
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                let connection = Connection {
                    tls,
                    dialler: Arc::clone(&dialler),
                    host: Arc::clone(&host),
                    grpc: grpc.clone(),
                };
                tokio::spawn(async move {
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

struct Connection {
    tls: bool,
    dialler: Arc<Dialler>,
    host: Arc<dyn Host>,
    grpc: axum::Router,
}

impl Connection {
    async fn run(self, tcp: TcpStream) -> Result<(), Error> {
        let plaintext = !self.tls || self.host.takes_plaintext();
        let security = self.dialler.security();
        let (io, proof) = security.accept(tcp, self.tls, plaintext).await?;
        if !self.tls || proof != Proof::Plain {
            return self.talk(io, proof).await;
        }
        // Once every member is dialled by TLS, nobody has a reason to go on without.
        let host = Arc::clone(&self.host);
        let ended = async {
            while host.takes_plaintext() {
                sleep(PULSE).await;
            }
        };
        tokio::select! {
            talked = self.talk(io, proof) => talked,
            () = ended => Err(Error::new(
                ErrorKind::ConnectionAborted,
                "it speaks without TLS, which this port no longer takes",
            )),
        }
    }

    async fn talk(self, mut io: Io, proof: Proof) -> Result<(), Error> {
        let mut first = [0_u8; PREFACE.len()];
        within("the preface", async { io.read_exact(&mut first).await }).await?;
        if &first == PREFACE {
            return self.link(io, proof).await;
        }
        if first.starts_with(b"PRI * HT") {
            return self.grpc(Prefixed::new(&first, io)).await;
        }
        let text = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        io.write_all(text.as_bytes()).await
    }

    async fn grpc(self, io: Prefixed<Io>) -> Result<(), Error> {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(io), TowerToHyperService::new(self.grpc))
            .await
            .map_err(Error::other)
    }

    async fn link(self, mut io: Io, proof: Proof) -> Result<(), Error> {
        let hello: Option<Hello> = within("the hello", frame::read(&mut io, HELLO_LIMIT)).await?;
        let hello = hello.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?;
        let (from, name, purpose) = (hello.member_id, hello.name.clone(), hello.purpose());
        let reply = match self.dialler.security().judge(proof) {
            Ok(()) => self.host.admit(hello).await,
            Err(reason) => self.host.refuse(Refusal::Certificate, reason),
        };
        within("the answer", frame::write(&mut io, &reply)).await?;
        if reply.refusal() != Refusal::Welcome {
            let (peer, reason) = (format!("{from:x}"), &reply.reason);
            match reply.refusal() {
                // They try again, and it passes by itself.
                Refusal::NotYet | Refusal::Busy => {
                    tracing::debug!(%peer, name, "refused a link: {reason}");
                }
                _ => tracing::warn!(%peer, name, "refused a link: {reason}"),
            }
            return io.shutdown().await;
        }
        match purpose {
            Purpose::Messages => self.messages(from, io).await,
            Purpose::Checkpoint => self.host.receive(from, io).await,
            Purpose::Questions => self.questions(io).await,
            Purpose::Introduction | Purpose::Unknown => Ok(()),
        }
    }

    async fn messages(&self, from: u64, io: Io) -> Result<(), Error> {
        let (mut reader, mut writer) = tokio::io::split(io);
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
                let body = timeout(SILENCE * 4, frame::read_bytes(&mut reader, FRAME_LIMIT)).await;
                let body = body.map_err(|_| Error::new(ErrorKind::TimedOut, "silent peer"))??;
                let Some(body) = body else { return Ok(()) };
                if self.host.is_out(from) {
                    return Err(Error::new(ErrorKind::PermissionDenied, "a removed member"));
                }
                if body.is_empty() {
                    heard.notify_one();
                }
                // A full inbox slows the sender down through TCP.
                while !body.is_empty() && !self.host.deliver(from, &body)? {
                    sleep(PULSE / 1000).await;
                }
            }
        };
        tokio::select! {
            ended = pulse => ended,
            ended = read => ended,
        }
    }

    async fn questions(&self, mut io: Io) -> Result<(), Error> {
        loop {
            let question: Option<Question> =
                within("a question", frame::read(&mut io, HELLO_LIMIT)).await?;
            let Some(question) = question else {
                return Ok(());
            };
            let answer = match question.ask {
                Some(ask) => self.host.answer(ask).await,
                None => Answer {
                    error: "this version does not know the question".to_owned(),
                    ..Answer::default()
                },
            };
            within("the answer", frame::write(&mut io, &answer)).await?;
        }
    }
}
