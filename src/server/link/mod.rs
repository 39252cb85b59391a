//! Links between members: framed protobuf over TCP or TLS on the peer port.
//!
//! A link carries messages in one direction, from the member that dialled. It begins with a preface
//! and a hello, in which both sides send their identity and the UUID of their disk; an unexpected
//! peer is refused with a reason that both sides log. Never decides anything about consensus:
//! messages may be lost here at any time, and Raft tolerates that.

pub(crate) mod accept;
pub(crate) mod dial;
pub(crate) mod door;
pub(crate) mod frame;
pub(crate) mod hello;
#[cfg(test)]
mod link_test;
pub(crate) mod outbound;
pub(crate) mod socket;

use std::io::Error;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;

use self::socket::Socket;

/// A byte stream, plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Lets this runtime watch the socket instead of the one that did so far. The stream is of no
    /// use after an error.
    fn move_to(&mut self, runtime: &Handle) -> Result<(), Error>;
}

impl Stream for Socket {
    fn move_to(&mut self, runtime: &Handle) -> Result<(), Error> {
        Socket::move_to(self, runtime)
    }
}

impl Stream for tokio_rustls::client::TlsStream<Socket> {
    fn move_to(&mut self, runtime: &Handle) -> Result<(), Error> {
        self.get_mut().0.move_to(runtime)
    }
}

impl Stream for tokio_rustls::server::TlsStream<Socket> {
    fn move_to(&mut self, runtime: &Handle) -> Result<(), Error> {
        self.get_mut().0.move_to(runtime)
    }
}

/// A connection to or from a peer.
pub(crate) type Io = Box<dyn Stream>;

/// The first bytes of every link; gRPC's HTTP/2 begins with `PRI * HTTP/2.0` instead.
pub(crate) const PREFACE: &[u8; 8] = b"QUORATE\n";
