//! Reaching a peer: resolve, connect, TLS, hello.
//!
//! Keeps the last good address of each name, so that a slow or absent DNS does not partition a
//! running cluster. The hello makes that safe, for the peer has to prove its identity. It is the first that is tried: a
//! name may have addresses of both IP families, of which one leads nowhere.

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
use super::socket::Socket;
use super::{Io, PREFACE};
use crate::server::flags::config::{Config, TlsFiles, TlsPolicy};
use crate::server::flags::url::Endpoint;
use crate::server::listen::prefixed::TLS_HANDSHAKE;
use crate::server::listen::quiet::printable;
use crate::server::tls::{self, Peers, Reloaded, Shown, TlsError};

/// Time for each of resolving, connecting, TLS and hello.
const STEP: Duration = Duration::from_secs(2);
/// Characters of a name or a disk that are logged.
const NAME: usize = 128;
/// Characters of a reason that are logged.
const REASON: usize = 512;

/// The security of the peer port: plain TCP, or TLS with certificates that may change.
pub(crate) struct Security {
    tls: Option<Reloaded<Peers>>,
    /// A client without a certificate may make calls, but not link.
    calls_without: bool,
}

/// How a connection to the peer port has authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Plaintext.
    Plain,
    /// TLS without a certificate.
    Hidden,
    /// TLS with a certificate that our CA verifies.
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

    /// The certificates presently in the files; `None` without TLS.
    pub(crate) fn shown(&self) -> Option<Shown> {
        let tls = self.tls.as_ref()?;
        Some(tls.current().served.shown.clone())
    }

    /// The accepting side: TLS if the port's URL uses it. With `plaintext` such a port accepts
    /// plaintext connections too; the first byte distinguishes them.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        tls: bool,
        plaintext: bool,
    ) -> Result<(Io, Proof), Error> {
        tcp.set_nodelay(true)?;
        let Some(served) = self.tls.as_ref().filter(|_| tls) else {
            return Ok((Box::new(Socket::new(tcp)), Proof::Plain));
        };
        let mut first = [0];
        let length = within("the first byte", tcp.peek(&mut first)).await?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if first[0] != TLS_HANDSHAKE {
            if plaintext {
                return Ok((Box::new(Socket::new(tcp)), Proof::Plain));
            }
            let text = "the connection is plaintext, and this port accepts only TLS";
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        let acceptor = tokio_rustls::TlsAcceptor::from(served.current().served.config.clone());
        let stream = within("the TLS handshake", acceptor.accept(Socket::new(tcp))).await?;
        let proof = match stream.get_ref().1.peer_certificates() {
            Some(_) => Proof::Certified,
            None => Proof::Hidden,
        };
        Ok((Box::new(stream), proof))
    }

    /// Whether a connection that authenticated this way may have a link.
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

    /// The dialling side; the peer has to present a certificate with this name.
    async fn dial(&self, tcp: TcpStream, endpoint: &Endpoint, name: &str) -> Result<Io, Error> {
        if !endpoint.tls {
            return Ok(Box::new(Socket::new(tcp)));
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
        let stream = within(
            "the TLS handshake",
            connector.connect(name, Socket::new(tcp)),
        )
        .await?;
        Ok(Box::new(stream))
    }
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The address cannot be reached, or the server there is no member.
    #[error("{0}")]
    Io(#[from] Error),
    /// The peer refused the link.
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
        /// The reason, for programs.
        refusal: Refusal,
        /// The reason, as text.
        reason: String,
    },
}

impl DialError {
    /// No process listens there.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, DialError::Io(error) if error.kind() == ErrorKind::ConnectionRefused)
    }

    /// A refusal by the other side; its texts are cut to a length that is fit for the log.
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

    /// A refusal by this side of the server that answered. If its disk is a copy, that does not
    /// concern ours.
    pub(crate) fn ours(reply: &Reply, refusal: Refusal, reason: &str) -> DialError {
        let refusal = match refusal {
            Refusal::Copy => Refusal::Disk,
            other => other,
        };
        DialError::refused(reply, refusal, reason)
    }
}

/// Where a peer is dialled, and the name in the certificate that it presents there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address.
    pub at: Endpoint,
    /// The name; by default the host of the address.
    pub name: String,
}

impl From<Endpoint> for Target {
    fn from(at: Endpoint) -> Target {
        let name = at.host.clone();
        Target { at, name }
    }
}

/// What is known of a name that led to a peer.
#[derive(Clone, Debug)]
struct Good {
    /// The address by which it was reached last.
    last: SocketAddr,
    /// All that the name had then: from any of them the peer may come.
    all: Vec<IpAddr>,
}

/// Where a connection was made to.
struct Reached {
    at: SocketAddr,
    /// All addresses of the name, if it resolved.
    all: Option<Vec<IpAddr>>,
}

/// Reaches peers.
pub(crate) struct Dialler {
    security: Security,
    good: Mutex<BTreeMap<String, Good>>,
}

impl Dialler {
    /// A dialler without known addresses.
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

    /// Connects and sends the hello; returns the connection and the reply, which is a welcome.
    pub(crate) async fn greet(&self, to: &Target, hello: &Hello) -> Result<(Io, Reply), DialError> {
        let (mut io, reached) = self.connect(&to.at, &to.name).await?;
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
                 use TLS as the URL does?",
            )
        })?;
        match reply.refusal() {
            Refusal::Welcome => {
                self.remember(&to.at, reached);
                Ok((io, reply))
            }
            refusal => Err(DialError::refused(&reply, refusal, &reply.reason)),
        }
    }

    /// Notes where the peer was found, which it has proven by now. An IP address needs no DNS, so only names are cached.
    fn remember(&self, endpoint: &Endpoint, reached: Reached) {
        if endpoint.host.parse::<IpAddr>().is_ok() {
            return;
        }
        let mut known = self.lock();
        let last = reached.at;
        match (known.get_mut(&endpoint.authority()), reached.all) {
            // The name did not resolve: what is known of it stays.
            (Some(good), None) => good.last = last,
            (_, all) => {
                let all = all.unwrap_or_else(|| vec![last.ip()]);
                known.insert(endpoint.authority(), Good { last, all });
            }
        }
    }

    async fn connect(&self, endpoint: &Endpoint, name: &str) -> Result<(Io, Reached), Error> {
        let authority = endpoint.authority();
        let mut failure = None;
        let (addresses, resolved) = self.addresses(&authority).await?;
        for address in addresses.iter().copied() {
            match within("connecting", TcpStream::connect(address)).await {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    let io = self.security.dial(tcp, endpoint, name).await?;
                    let all = || addresses.iter().map(SocketAddr::ip).collect();
                    let reached = Reached {
                        at: address,
                        all: resolved.then(all),
                    };
                    return Ok((io, reached));
                }
                // A host where nothing listens refuses. It is not known to be one while another address fails otherwise.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && failure.is_some() => {
                }
                Err(error) => failure = Some(error),
            }
        }
        let none = || Error::new(ErrorKind::NotFound, format!("{authority} has no address"));
        Err(failure.unwrap_or_else(none))
    }

    /// The addresses of the name, the last good one first, and whether it resolved; if not, those that are known.
    async fn addresses(&self, authority: &str) -> Result<(Vec<SocketAddr>, bool), Error> {
        let resolved = within("resolving", tokio::net::lookup_host(authority)).await;
        let known = self.lock().get(authority).cloned();
        match (resolved, known) {
            (Ok(found), good) => {
                let found = found.collect();
                Ok((in_order(found, good.map(|good| good.last)), true))
            }
            (Err(_), Some(Good { last, all })) => {
                let port = last.port();
                let all = all
                    .into_iter()
                    .map(|address| SocketAddr::new(address, port));
                Ok((in_order(all.collect(), Some(last)), false))
            }
            (Err(error), None) => Err(Error::new(
                error.kind(),
                format!("cannot resolve {authority}: {error}"),
            )),
        }
    }

    /// The addresses of a peer, as far as they are known without DNS.
    pub(crate) fn known_addresses(&self, to: &Target) -> Vec<IpAddr> {
        if let Ok(address) = to.at.host.parse() {
            return vec![address];
        }
        let known = self.lock();
        let good = known.get(&to.at.authority());
        good.map(|good| good.all.clone()).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Good>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// These addresses, the good one first if it is still one of them.
fn in_order(mut found: Vec<SocketAddr>, good: Option<SocketAddr>) -> Vec<SocketAddr> {
    found.sort_by_key(|address| Some(*address) != good);
    found
}

/// Bounds a step in time.
pub(crate) async fn within<T>(
    what: &str,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(STEP, step).await.unwrap_or_else(|_| {
        let text = format!("{what} took longer than {} s", STEP.as_secs());
        Err(Error::new(ErrorKind::TimedOut, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::from(Endpoint::parse("http://demo-1-0.demo-peers:2380").expect("a URL"))
    }

    /// Only the address by which a peer was dialled counted as its own. With both IP families it may come from the other
    /// one, and its connections were then closed like a stranger's.
    #[test]
    fn peer_is_known_by_the_addresses_of_both_families() {
        let dialler = Dialler::new(Security::plain());
        assert_eq!(dialler.known_addresses(&target()), [] as [IpAddr; 0]);
        let all: [IpAddr; 2] = ["fd00::7".parse().expect("v6"), [10, 0, 0, 7].into()];
        let good = Good {
            last: (all[1], 2380).into(),
            all: all.to_vec(),
        };
        dialler.lock().insert(target().at.authority(), good);
        assert_eq!(dialler.known_addresses(&target()), all);
        let literal = Target::from(Endpoint::parse("http://[fd00::8]:2380").expect("a URL"));
        let literal = dialler.known_addresses(&literal);
        assert_eq!(literal, ["fd00::8".parse::<IpAddr>().expect("v6")]);
    }

    /// A family that leads nowhere cost the time of a step with each new link.
    #[test]
    fn last_good_address_is_tried_first() {
        let [six, four, other]: [SocketAddr; 3] =
            ["[fd00::7]:2380", "10.0.0.7:2380", "10.0.0.9:2380"]
                .map(|text| text.parse().expect("an address"));
        assert_eq!(in_order(vec![six, four], Some(four)), [four, six]);
        assert_eq!(in_order(vec![six, four], None), [six, four]);
        assert_eq!(
            in_order(vec![six, four], Some(other)),
            [six, four],
            "it has moved"
        );
    }
}
