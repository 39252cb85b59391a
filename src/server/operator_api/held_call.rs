//! One call that a member holds until its description changes, over a connection of its own. It is HTTP/1.1, so that hardly
//! more than the socket is kept while it is held: an operator may hold thirty thousand. A session of TLS would be ten times as much,
//! so it is given up once the member holds the call: of what comes then it is only noticed that it comes. What the answer tells is
//! news and never a fact. It is not signed, and nothing of it is believed: whoever wants to know asks anew.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::auth::Key;
use super::proof::{Call, DESCRIBE, NONCE, PROOF, TIME, text};
use super::secure::{self, Connector, Reached, Secure};
use super::signed::{nonce, time};
use crate::server::link::socket::Socket;
use crate::wire::member as proto;

/// The header of an answer with the digest of the description.
pub(in crate::server) const DIGEST: &str = "quorate-digest";
/// Time to connect and to send the call, and for the rest of an answer once it begins.
const BRIEF: Duration = Duration::from_secs(10);
/// An answer that comes within this is read also over TLS: of a member that has changed since it was asked, or holds no call.
const SESSION: Duration = Duration::from_secs(2);
/// Largest head of an answer, in bytes.
const HEAD: usize = 16 << 10;

/// A call that is to be held.
#[derive(Clone, Debug)]
pub struct HeldCall {
    /// Where the member is, `host:port`.
    pub address: String,
    /// The key that it shares with its operator.
    pub key: Key,
    /// What it has to prove, if it is dialled by TLS.
    pub secure: Option<Secure>,
    /// Of the description that the caller has.
    pub digest: u64,
    /// How long it is held at most.
    pub wait: Duration,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The digest of the member's description: another one, or the same when the wait was over or the member holds no more
    /// calls.
    Digest(u64),
    /// It came after the session of TLS was given up, and was not read.
    Unread,
}

impl HeldCall {
    /// What the member answers, at the latest when the wait is over.
    ///
    /// # Errors
    /// The connection was not made or has ended, or the answer has no digest.
    pub async fn answer(&self) -> Result<Answer, Error> {
        self.answer_within(SESSION).await
    }

    /// The same, with so much time in which an answer over TLS is read.
    async fn answer_within(&self, session: Duration) -> Result<Answer, Error> {
        // Boxed: what connecting takes is freed before the wait.
        let mut socket = match brief(Box::pin(self.begin())).await? {
            Reached::Plain(socket) => socket,
            Reached::Tls(mut tls) => {
                let early = timeout(session, Box::pin(answered(&mut tls))).await;
                match early {
                    Ok(answer) => return answer,
                    Err(_) => without_session(tls),
                }
            }
        };
        let secured = self.secure.is_some();
        let mut first = [0];
        let held = timeout(self.wait + BRIEF, socket.read_exact(&mut first)).await;
        held.map_err(|_| Error::from(ErrorKind::TimedOut))??;
        if secured {
            return Ok(Answer::Unread);
        }
        brief(Box::pin(digest_of_answer(socket, first[0]))).await
    }

    async fn begin(&self) -> Result<Reached, Error> {
        let mut reached = match &self.secure {
            None => Reached::Plain(secure::reach(&self.address).await?),
            Some(secure) => {
                let connector = Connector::new(&self.address, secure).map_err(Error::other)?;
                connector.reach().await?
            }
        };
        match &mut reached {
            Reached::Plain(socket) => self.send(socket).await?,
            Reached::Tls(tls) => self.send(tls).await?,
        }
        Ok(reached)
    }

    async fn send(&self, io: &mut (impl AsyncWrite + Unpin)) -> Result<(), Error> {
        io.write_all(&self.request()).await?;
        io.flush().await
    }

    /// The call as it is sent, signed as any other.
    fn request(&self) -> Vec<u8> {
        let call = proto::DescribeRequest {
            known_digest: self.digest,
            wait_ms: u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX),
            ..proto::DescribeRequest::default()
        };
        let call = call.encode_to_vec();
        // As gRPC frames it: not compressed, and so long.
        let mut body = vec![0];
        body.extend(u32::try_from(call.len()).unwrap_or(0).to_be_bytes());
        body.extend(call);
        let (time, nonce) = (time(), nonce());
        let signed = Call {
            path: DESCRIBE,
            to: "",
            time: &time,
            nonce: &nonce,
            body: &body,
        };
        let proof = text(self.key.of_call(signed));
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "POST {DESCRIBE} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/grpc\r\nte: trailers\r\n\
             content-length: {length}\r\n{TIME}: {time}\r\n{NONCE}: {nonce}\r\n{PROOF}: {proof}\r\nconnection: close\r\n\r\n"
        );
        [head.into_bytes(), body].concat()
    }
}

async fn brief<T>(act: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Err(Error::from(ErrorKind::TimedOut));
    timeout(BRIEF, act).await.unwrap_or_else(late)
}

/// The socket alone. Nothing of an answer has come: it would have been read.
fn without_session(tls: Box<TlsStream<Socket>>) -> Socket {
    let (socket, _session) = tls.into_inner();
    socket
}

async fn answered(io: &mut (impl AsyncRead + Unpin)) -> Result<Answer, Error> {
    let first = io.read_u8().await?;
    digest_of_answer(io, first).await
}

async fn digest_of_answer(mut io: impl AsyncRead + Unpin, first: u8) -> Result<Answer, Error> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        head.push(io.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let digest = digest_in(&head).map(Answer::Digest);
    digest.ok_or_else(|| Error::new(ErrorKind::InvalidData, "the answer has no digest"))
}

fn digest_in(head: &str) -> Option<u64> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut digests = fields.filter(|(name, _)| name.eq_ignore_ascii_case(DIGEST));
    digests.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::server::tls::issue::{Authority, Purpose, Validity};

    #[test]
    fn answers_have_their_digest_in_the_head() {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nQuorate-Digest: 17\r\n\r\n";
        assert_eq!(digest_in(head), Some(17));
        assert_eq!(digest_in("HTTP/1.1 404 Not Found\r\n\r\n"), None);
        assert_eq!(
            digest_in("HTTP/1.1 200 OK\r\nquorate-digest: x\r\n\r\n"),
            None
        );
    }

    /// A member that is there and says nothing: the call ends by itself, a little after its wait. One that ends, ends it.
    #[tokio::test]
    async fn silence_ends_with_the_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let call = HeldCall {
            address: listener.local_addr().expect("its address").to_string(),
            key: Key::new(b"0123456789abcdef"),
            secure: None,
            digest: 1,
            wait: Duration::from_secs(600),
        };
        let waiting = call.clone();
        let waiting = tokio::spawn(async move { waiting.answer().await });
        let (mut member, _) = listener.accept().await.expect("it dials");
        let mut received = vec![0; 4096];
        let many = member.read(&mut received).await.expect("the call");
        assert!(received[..many].starts_with(b"POST /quorate.v1.Member/Describe HTTP/1.1\r\n"));
        assert!(!waiting.is_finished());
        drop(member);
        let ended = waiting.await.expect("no panic");
        assert_eq!(
            ended.map_err(|error| error.kind()),
            Err(ErrorKind::UnexpectedEof)
        );
    }

    /// A member that accepts TLS with this certificate, and what is to be proven by it.
    fn secured(name: &str) -> (TlsAcceptor, Secure) {
        let now = jiff::Timestamp::now();
        let hour = jiff::SignedDuration::from_hours(1);
        let validity = Validity {
            not_before: now - hour,
            not_after: now + hour,
        };
        let authority = Authority::new("peers", validity, None).expect("a CA");
        let roots_pem = authority.issued().expect("its certificate").certificate;
        let names = [name.to_owned()];
        let issued = authority.issue(name, &names, Purpose::Member, validity);
        let issued = issued.expect("a certificate");
        let chain = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain.expect("PEM")], key.expect("PEM"))
            .expect("they fit");
        let secure = Secure {
            roots_pem: roots_pem.into(),
            server_name: name.to_owned(),
            plaintext_too: false,
        };
        (TlsAcceptor::from(Arc::new(config)), secure)
    }

    /// The operator kept a session of TLS for each call, 10 KiB: of ten thousand clusters more than of everything else. Within
    /// the first seconds an answer is read, and later it is only noticed.
    #[tokio::test]
    async fn no_session_is_kept_of_a_held_call() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nquorate-digest: 17\r\n\r\n";
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let (acceptor, secure) = secured("demo-1.example");
        let call = HeldCall {
            address: listener.local_addr().expect("its address").to_string(),
            key: Key::new(b"0123456789abcdef"),
            secure: Some(secure),
            digest: 1,
            wait: Duration::from_secs(600),
        };
        // What comes of a call with a session for so long, to which a member does this once it has received it.
        let came = async |session: Duration, answers: bool, pause: Duration| {
            let call = call.clone();
            let waiting = tokio::spawn(async move { call.answer_within(session).await });
            let (tcp, _) = listener.accept().await.expect("it dials");
            let mut member = acceptor.accept(tcp).await.expect("a session");
            let mut received = vec![0; 4096];
            let many = member.read(&mut received).await.expect("the call");
            assert!(received[..many].starts_with(b"POST /quorate.v1.Member/Describe HTTP/1.1\r\n"));
            tokio::time::sleep(pause).await;
            assert!(!waiting.is_finished(), "it is held");
            if answers {
                member.write_all(ANSWER).await.expect("it is there");
                member.flush().await.expect("it is there");
            }
            drop(member);
            let came = waiting.await.expect("no panic");
            came.map_err(|error| error.kind())
        };
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(20));
        assert_eq!(came(long, true, 4 * short).await, Ok(Answer::Digest(17)));
        assert_eq!(came(short, true, 20 * short).await, Ok(Answer::Unread));
        let ended = Err(ErrorKind::UnexpectedEof);
        assert_eq!(came(short, false, 20 * short).await, ended);
    }

    /// What an operator of many members keeps of each while it is held, beside the socket and the session of TLS.
    #[test]
    fn little_is_kept_of_a_held_call() {
        let call = HeldCall {
            address: "10.0.0.1:2380".into(),
            key: Key::new(b"0123456789abcdef"),
            secure: None,
            digest: 1,
            wait: Duration::from_secs(1),
        };
        assert!(
            size_of_val(&call.answer()) <= 512,
            "{}",
            size_of_val(&call.answer())
        );
    }
}
