//! One call that a member holds until its description changes, over a connection of its own. It is HTTP/1.1, so that hardly
//! more than the socket is kept while it is held: an operator may hold thirty thousand. What the answer tells is news and
//! never a fact. It is not signed, and nothing of it is believed: whoever wants to know asks anew.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::auth::Key;
use super::proof::{Call, DESCRIBE, NONCE, PROOF, TIME, text};
use super::secure::{self, Connector, Secure};
use super::signed::{nonce, time};
use crate::server::link::Io;
use crate::wire::member as proto;

/// The header of an answer with the digest of the description.
pub(in crate::server) const DIGEST: &str = "quorate-digest";
/// Time to connect and to send the call, and for the rest of an answer once it begins.
const BRIEF: Duration = Duration::from_secs(10);
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

impl HeldCall {
    /// The digest of the member's description once it is another one, or the same when the wait is over or the member holds
    /// no more calls.
    ///
    /// # Errors
    /// The connection was not made or has ended, or the answer has no digest.
    pub async fn answer(&self) -> Result<u64, Error> {
        // Boxed: what connecting takes is freed before the wait.
        let mut io = brief(Box::pin(self.begin())).await?;
        let mut first = [0];
        let held = timeout(self.wait + BRIEF, io.read_exact(&mut first)).await;
        held.map_err(|_| Error::from(ErrorKind::TimedOut))??;
        brief(Box::pin(digest_of_answer(io, first[0]))).await
    }

    async fn begin(&self) -> Result<Io, Error> {
        let mut io: Io = match &self.secure {
            None => Box::new(secure::reach(&self.address).await?),
            Some(secure) => {
                let connector = Connector::new(&self.address, secure).map_err(Error::other)?;
                connector.connect().await?.into_inner()
            }
        };
        io.write_all(&self.request()).await?;
        io.flush().await?;
        Ok(io)
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

async fn digest_of_answer(mut io: Io, first: u8) -> Result<u64, Error> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        head.push(io.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    digest_in(&head).ok_or_else(|| Error::new(ErrorKind::InvalidData, "the answer has no digest"))
}

fn digest_in(head: &str) -> Option<u64> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut digests = fields.filter(|(name, _)| name.eq_ignore_ascii_case(DIGEST));
    digests.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
