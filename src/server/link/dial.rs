//! Reaching a peer: resolve, connect, TLS, hello.
//!
//! Keeps the last good address of each name, so that a slow or absent DNS does not cut a
//! running cluster; the hello makes that safe, for whoever answers has to prove who it is.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
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
use crate::server::flags::config::{Config, TlsFiles, TlsPolicy};
use crate::server::flags::url::Endpoint;
use crate::server::listen::prefixed::TLS_HANDSHAKE;
use crate::server::listen::quiet::printable;
use crate::server::tls::{self, Peers, Reloaded, Shown, TlsError};

/// Time for each of resolving, connecting, TLS and hello.
const STEP: Duration = Duration::from_secs(2);
/// Characters of a name or a disk that are shown to people.
const NAME: usize = 128;
/// Characters of a reason that are shown to people.
const REASON: usize = 512;

/// What the peer port speaks: plain TCP, or TLS with certificates that may change.
pub(crate) struct Security {
    tls: Option<Reloaded<Peers>>,
    /// Who shows no certificate may call, and have no link.
    calls_without: bool,
}

/// What a connection to the peer port has shown of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It speaks without TLS.
    Plain,
    /// It speaks TLS and showed no certificate.
    Hidden,
    /// It showed a certificate that leads to our roots.
    Certified,
}

impl Security {
    /// Reads the certificates.
    pub(crate) fn new(config: &Config) -> Result<Security, TlsError> {
        match &config.peer_tls {
            Some(files) => Security::of(files, &config.tls_policy),
            None => Ok(Security::plain()),
        }
    }

    /// TLS with these files.
    pub(super) fn of(files: &TlsFiles, policy: &TlsPolicy) -> Result<Security, TlsError> {
        Ok(Security {
            tls: Some(tls::peers(files, policy)?),
            calls_without: files.client_auth && files.calls_without,
        })
    }

    /// No TLS at all.
    pub(crate) fn plain() -> Security {
        Security {
            tls: None,
            calls_without: false,
        }
    }

    /// What the files hold now; nothing where there are none.
    pub(crate) fn shown(&self) -> Option<Shown> {
        let tls = self.tls.as_ref()?;
        Some(tls.current().served.shown.clone())
    }

    /// The accepting side: TLS where the port's URL says so. With `plaintext` such a port takes
    /// connections without TLS too; the first byte tells them apart.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        tls: bool,
        plaintext: bool,
    ) -> Result<(Io, Proof), Error> {
        tcp.set_nodelay(true)?;
        let Some(served) = self.tls.as_ref().filter(|_| tls) else {
            return Ok((Box::new(tcp), Proof::Plain));
        };
        let mut first = [0];
        let length = within("the first byte", tcp.peek(&mut first)).await?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if first[0] != TLS_HANDSHAKE {
            if plaintext {
                return Ok((Box::new(tcp), Proof::Plain));
            }
            let text = "it speaks without TLS, and this port takes TLS alone";
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        let acceptor = tokio_rustls::TlsAcceptor::from(served.current().served.config.clone());
        let stream = within("the TLS handshake", acceptor.accept(tcp)).await?;
        let proof = match stream.get_ref().1.peer_certificates() {
            Some(_) => Proof::Certified,
            None => Proof::Hidden,
        };
        Ok((Box::new(stream), proof))
    }

    /// Whether whoever has shown this may have a link.
    pub(crate) fn judge(&self, proof: Proof) -> Result<(), String> {
        if proof == Proof::Hidden && self.calls_without {
            return Err(
                "a link between members needs a certificate, and none was shown: start the member \
                 with --peer-cert-file and --peer-key-file"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The dialling side; whoever is there has to show a certificate with this name.
    async fn dial(&self, tcp: TcpStream, endpoint: &Endpoint, name: &str) -> Result<Io, Error> {
        if !endpoint.tls {
            return Ok(Box::new(tcp));
        }
        let Some(tls) = &self.tls else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the peer URL begins with https:// and this server has no --peer-cert-file",
            ));
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
        let connector = tokio_rustls::TlsConnector::from(tls.current().dialled.clone());
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
        /// Its cluster, 0 where it has none.
        cluster: u64,
        /// Its disk.
        disk: String,
        /// Why, for programs.
        refusal: Refusal,
        /// Why, in words.
        reason: String,
    },
}

impl DialError {
    /// No, in these words; whatever the other side wrote is cut to what a log can hold.
    pub(crate) fn refused(reply: &Reply, refusal: Refusal, reason: &str) -> DialError {
        DialError::Refused {
            name: printable(&reply.name, NAME),
            member: reply.member_id,
            cluster: reply.cluster_id,
            disk: printable(&reply.disk_uuid, NAME),
            refusal,
            reason: printable(reason, REASON),
        }
    }

    /// No of our own, about whoever answered: that its disk is a copy says nothing of ours.
    pub(crate) fn ours(reply: &Reply, refusal: Refusal, reason: &str) -> DialError {
        let refusal = match refusal {
            Refusal::Copy => Refusal::Disk,
            other => other,
        };
        DialError::refused(reply, refusal, reason)
    }
}

/// Where a peer is dialled, and the name that its certificate carries there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Where.
    pub at: Endpoint,
    /// The name; by default the host of the above.
    pub name: String,
}

impl From<Endpoint> for Target {
    fn from(at: Endpoint) -> Target {
        let name = at.host.clone();
        Target { at, name }
    }
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
    pub(crate) async fn greet(&self, to: &Target, hello: &Hello) -> Result<(Io, Reply), DialError> {
        let mut io = self.connect(&to.at, &to.name).await?;
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
                "the other side closed without an answer: is it a peer port of Quorate, and does it \
                 speak TLS as the URL says?",
            )
        })?;
        match reply.refusal() {
            Refusal::Welcome => Ok((io, reply)),
            refusal => Err(DialError::refused(&reply, refusal, &reply.reason)),
        }
    }

    async fn connect(&self, endpoint: &Endpoint, name: &str) -> Result<Io, Error> {
        let authority = endpoint.authority();
        let mut failure = Error::new(ErrorKind::NotFound, format!("{authority} has no address"));
        for address in self.addresses(&authority).await? {
            match within("connecting", TcpStream::connect(address)).await {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    // An address needs no DNS: only names are worth remembering.
                    if endpoint.host.parse::<IpAddr>().is_err() {
                        self.lock().insert(authority.clone(), address);
                    }
                    return self.security.dial(tcp, endpoint, name).await;
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

    /// The address at which a peer was reached last, as far as that is known without asking DNS.
    pub(crate) fn address(&self, to: &Target) -> Option<IpAddr> {
        let good = || Some(self.lock().get(&to.at.authority())?.ip());
        to.at.host.parse().ok().or_else(good)
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
