//! A connection whose first bytes were already read, to detect its protocol.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first byte of TLS: a handshake record. No HTTP request begins with it.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Returns these bytes first, and then those of the connection.
pub(crate) struct Prefixed<S> {
    first: Bytes,
    io: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(first: &[u8], io: S) -> Prefixed<S> {
        Prefixed {
            first: Bytes::copy_from_slice(first),
            io,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..length]);
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

/// Writes go unchanged to the connection below, the field `io`.
macro_rules! writes_below {
    ($name:ident) => {
        impl<S: AsyncWrite + Unpin> AsyncWrite for $name<S> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<Result<usize, Error>> {
                Pin::new(&mut self.io).poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<Result<usize, Error>> {
                Pin::new(&mut self.io).poll_write_vectored(context, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.io.is_write_vectored()
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Result<(), Error>> {
                Pin::new(&mut self.io).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Result<(), Error>> {
                Pin::new(&mut self.io).poll_shutdown(context)
            }
        }
    };
}
pub(crate) use writes_below;

writes_below!(Prefixed);
