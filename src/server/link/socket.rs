//! A TCP stream that can change the runtime that watches it: accepted and authenticated on one, used on another.
//! Never copies what it passes on.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// The stream, which is gone after a failed move.
#[derive(Debug)]
pub(crate) struct Socket(Option<TcpStream>);

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Socket {
        Socket(Some(tcp))
    }

    /// Lets this runtime watch the socket from now on.
    pub(crate) fn move_to(&mut self, runtime: &Handle) -> Result<(), Error> {
        let tcp = self.0.take().ok_or_else(gone)?.into_std()?;
        let _context = runtime.enter();
        self.0 = Some(TcpStream::from_std(tcp)?);
        Ok(())
    }

    fn tcp(self: Pin<&mut Self>) -> Result<Pin<&mut TcpStream>, Error> {
        self.get_mut().0.as_mut().map(Pin::new).ok_or_else(gone)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::NotConnected, "the socket was not moved")
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        self.tcp()?.poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        self.tcp()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        self.tcp()?.poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.tcp()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.tcp()?.poll_shutdown(context)
    }
}
