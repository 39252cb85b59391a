//! How an operator connects to a member whose peer port uses TLS.
//!
//! The member must present a certificate of the cluster's CA with the dialled name. Its expiry is
//! ignored: an expired certificate must not keep the operator from renewing it. The operator itself
//! presents none; its calls are signed. Never sends a call.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use crate::server::link::Io;
use crate::server::link::socket::Socket;
use crate::server::tls::certificates;

/// The TLS requirements for the dialled member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secure {
    /// PEM CA certificates, one of which must verify the member's chain. A cluster's members share them.
    pub roots_pem: Arc<str>,
    /// The name that the member's certificate must contain.
    pub server_name: String,
    /// A member that does not use TLS is called in plain text, while a cluster changes to or from
    /// TLS. Calls and answers stay signed.
    pub plaintext_too: bool,
}

/// Why no member can be dialled with these settings.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// Unusable CA certificates.
    #[error("the roots of the peer port cannot be used: {0}")]
    Roots(String),
    /// A name that no certificate can contain.
    #[error("{0:?} is no name that a certificate can carry")]
    Name(String),
}

/// A connection on which nothing was sent for this long is probed by the kernel: whoever lost its node sends no word of it.
const IDLE: Duration = Duration::from_secs(10);
/// Between two probes.
const PROBE: Duration = Duration::from_secs(5);
/// So many without an answer end it.
const PROBES: u32 = 2;

/// A connection to a member.
pub(super) enum Reached {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// Connects to one address, whatever the URI.
#[derive(Clone)]
pub(in crate::server) struct Connector {
    authority: Arc<str>,
    tls: TlsConnector,
    name: ServerName<'static>,
    plaintext_too: bool,
}

impl Connector {
    pub(in crate::server) fn new(
        authority: &str,
        secure: &Secure,
    ) -> Result<Connector, SecureError> {
        let name = ServerName::try_from(secure.server_name.clone())
            .map_err(|_| SecureError::Name(secure.server_name.clone()))?;
        Ok(Connector {
            authority: authority.into(),
            tls: TlsConnector::from(Arc::new(config(&secure.roots_pem)?)),
            name,
            plaintext_too: secure.plaintext_too,
        })
    }

    pub(super) async fn connect(self) -> Result<TokioIo<Io>, Error> {
        let io: Io = match self.reach().await? {
            Reached::Plain(tcp) => Box::new(tcp),
            Reached::Tls(tls) => tls,
        };
        Ok(TokioIo::new(io))
    }

    pub(super) async fn reach(self) -> Result<Reached, Error> {
        let tcp = reach(&self.authority).await?;
        match self.tls.connect(self.name.clone(), tcp).await {
            Ok(stream) => Ok(Reached::Tls(Box::new(stream))),
            Err(error) if self.plaintext_too && speaks_no_tls(&error) => {
                Ok(Reached::Plain(reach(&self.authority).await?))
            }
            Err(error) => Err(error),
        }
    }
}

/// A connection to `host:port`, which ends once nothing there answers any more.
pub(super) async fn reach(authority: &str) -> Result<Socket, Error> {
    let tcp = TcpStream::connect(authority).await?;
    tcp.set_nodelay(true)?;
    probe(&tcp)?;
    Ok(Socket::new(tcp))
}

fn probe(tcp: &TcpStream) -> Result<(), Error> {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(PROBE)
        .with_retries(PROBES);
    let tcp = socket2::SockRef::from(tcp);
    // What was sent and not acknowledged is repeated for minutes otherwise, and nothing is probed meanwhile. Linux alone has it.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(IDLE + PROBES * PROBE))?;
    tcp.set_tcp_keepalive(&keepalive)
}

/// Whether a failed handshake shows that the other side does not use TLS: it answers in another
/// protocol, or closes the connection.
pub(in crate::server) fn speaks_no_tls(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => true,
        ErrorKind::InvalidData => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            matches!(inner, Some(rustls::Error::InvalidMessage(_)))
        }
        _ => false,
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<TokioIo<Io>, Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

fn config(roots_pem: &str) -> Result<ClientConfig, SecureError> {
    let unusable = |error: &dyn std::fmt::Display| SecureError::Roots(error.to_string());
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(roots_pem.as_bytes()) {
        let root = root.map_err(|error| unusable(&error))?;
        roots.add(root).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| unusable(&error))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyTime(chain)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // There is a configuration for each connection: no other one would use a ticket, and the room for them is 20 KiB.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Verifies chain and name as usual, but ignores expiry.
#[derive(Debug)]
struct AnyTime(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyTime {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |at| {
            self.0
                .verify_server_cert(certificate, between, name, stapled, at)
        };
        match (verify(now), certificates::begins(certificate)) {
            (Ok(verified), _) => Ok(verified),
            // Everything else is verified as of the start of its validity.
            (Err(_), Some(begin)) => verify(begin),
            (Err(error), None) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever lost its node sends no word of it: a held call noticed it after ten minutes.
    #[tokio::test]
    async fn connections_are_probed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("its address");
        let tcp = TcpStream::connect(address).await.expect("it listens");
        assert!(!socket2::SockRef::from(&tcp).keepalive().expect("a socket"));
        probe(&tcp).expect("a socket");
        let socket = socket2::SockRef::from(&tcp);
        assert!(socket.keepalive().expect("a socket"));
        let idle = socket.tcp_keepalive_time().expect("Linux");
        let between = socket.tcp_keepalive_interval().expect("Linux");
        let probes = socket.tcp_keepalive_retries().expect("Linux");
        assert!(idle + between * probes <= Duration::from_secs(30));
        // And where something was sent that nobody acknowledges, the call itself included.
        let unacknowledged = socket.tcp_user_timeout().expect("Linux");
        assert!(unacknowledged.is_some_and(|it| it <= Duration::from_secs(30)));
    }
}
