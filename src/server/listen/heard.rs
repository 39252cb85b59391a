//! A connection that counts the bytes received, for a reader that receives only complete messages
//! but has to know how many bytes of an incomplete one have arrived. Keeps no bytes.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::prefixed::writes_below;

/// The number of bytes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicU64>);

impl Count {
    /// All since the connection began.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The connection.
pub(crate) struct Heard<S> {
    io: S,
    count: Count,
}

impl<S> Heard<S> {
    /// Counts from here on.
    pub(crate) fn new(io: S, count: Count) -> Heard<S> {
        Heard { io, count }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        let came = (buffer.filled().len() - before) as u64;
        self.count.0.fetch_add(came, Relaxed);
        polled
    }
}

writes_below!(Heard);
