//! Reaching a peer: resolve, connect, TLS, hello.
//!
//! Keeps the last good address of each name, so that a slow or absent DNS does not cut a
//! running cluster; the hello makes that safe, for whoever answers has to prove who it is.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frame::{self, HELLO_LIMIT};
use super::hello::{Hello, Refusal, Reply};
use super::{Io, PREFACE};
use crate::server::config::Config;
use crate::server::tls::{self, Reloaded, TlsError};
use crate::server::url::Endpoint;

/// Time for each of resolving, connecting, TLS and hello.
const STEP: Duration = Duration::from_secs(2);

/// What the peer port speaks: plain TCP, or TLS with certificates that may change.
pub(crate) struct Security {
    server: Option<Reloaded<rustls::ServerConfig>>,
    client: Option<Reloaded<rustls::ClientConfig>>,
}

impl Security {
    /// Reads the certificates.
    pub(crate) fn new(config: &Config) -> Result<Security, TlsError> {
        let Some(files) = &config.peer_tls else {
            return Ok(Security {
                server: None,
                client: None,
            });
        };
        Ok(Security {
            server: Some(tls::server(files, &config.tls_policy, &[b"h2"])?),
            client: Some(tls::client(files, &config.tls_policy, &[])?),
        })
    }

    /// No TLS at all.
    #[cfg(test)]
    pub(crate) fn plain() -> Security {
        Security {
            server: None,
            client: None,
        }
    }

    /// The accepting side of TLS, or nothing where the port is plain.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> Result<Io, Error> {
        tcp.set_nodelay(true)?;
        let Some(server) = &self.server else {
            return Ok(Box::new(tcp));
        };
        let acceptor = tokio_rustls::TlsAcceptor::from(server.current());
        let stream = within("the TLS handshake", acceptor.accept(tcp)).await?;
        Ok(Box::new(stream))
    }

    async fn dial(&self, tcp: TcpStream, endpoint: &Endpoint) -> Result<Io, Error> {
        if !endpoint.tls {
            return Ok(Box::new(tcp));
        }
        let Some(client) = &self.client else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the peer URL begins with https:// and this server has no --peer-cert-file",
            ));
        };
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
        let connector = tokio_rustls::TlsConnector::from(client.current());
        let stream = within("the TLS handshake", connector.connect(name, tcp)).await?;
        Ok(Box::new(stream))
    }
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The address cannot be reached, or what answers is no member.
    #[error("{0}")]
    Io(#[from] Error),
    /// The peer said no.
    #[error("refused by {name} ({member:x}): {reason}")]
    Refused {
        /// Its name.
        name: String,
        /// Its ID, 0 where it has none.
        member: u64,
        /// Why, for programs.
        refusal: Refusal,
        /// Why, in words.
        reason: String,
    },
}

/// Reaches peers.
pub(crate) struct Dialler {
    security: Security,
    good: Mutex<BTreeMap<String, SocketAddr>>,
}

impl Dialler {
    /// A dialler that knows no addresses yet.
    pub(crate) fn new(security: Security) -> Dialler {
        Dialler {
            security,
            good: Mutex::default(),
        }
    }

    /// The accepting side of the same certificates.
    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    /// Connects and says hello; gives the connection and the answer, which is a welcome.
    pub(crate) async fn greet(
        &self,
        endpoint: &Endpoint,
        hello: &Hello,
    ) -> Result<(Io, Reply), DialError> {
        let mut io = self.connect(endpoint).await?;
        let mut first = BytesMut::from(&PREFACE[..]);
        frame::encode(hello, &mut first);
        within("the hello", async {
            io.write_all(&first).await?;
            io.flush().await
        })
        .await?;
        let reply: Option<Reply> = within("the answer", frame::read(&mut io, HELLO_LIMIT)).await?;
        let reply = reply.ok_or_else(|| {
            Error::new(
                ErrorKind::UnexpectedEof,
                "the other side closed without an answer: is it a peer port of Quorate?",
            )
        })?;
        match reply.refusal() {
            Refusal::Welcome => Ok((io, reply)),
            refusal => Err(DialError::Refused {
                name: reply.name,
                member: reply.member_id,
                refusal,
                reason: reply.reason,
            }),
        }
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Io, Error> {
        let authority = endpoint.authority();
        let mut failure = Error::new(ErrorKind::NotFound, format!("{authority} has no address"));
        for address in self.addresses(&authority).await? {
            match within("connecting", TcpStream::connect(address)).await {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    self.lock().insert(authority.clone(), address);
                    return self.security.dial(tcp, endpoint).await;
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// What the name resolves to, or the last good address when it resolves to nothing.
    async fn addresses(&self, authority: &str) -> Result<Vec<SocketAddr>, Error> {
        let resolved = within("resolving", tokio::net::lookup_host(authority)).await;
        let good = self.lock().get(authority).copied();
        match (resolved, good) {
            (Ok(found), _) => Ok(found.collect()),
            (Err(_), Some(address)) => Ok(vec![address]),
            (Err(error), None) => Err(Error::new(
                error.kind(),
                format!("cannot resolve {authority}: {error}"),
            )),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, SocketAddr>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a step its time.
pub(crate) async fn within<T>(
    what: &str,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(STEP, step).await.unwrap_or_else(|_| {
        let text = format!("{what} took longer than {} s", STEP.as_secs());
        Err(Error::new(ErrorKind::TimedOut, text))
    })
}
