//! The body of a request, by whichever HTTP/2 (or HTTP/1) its connection is served.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::server::http2::RequestBody;

/// The body.
pub(in crate::server) enum Received {
    /// hyper's.
    Library(Incoming),
    /// Our own.
    Own(RequestBody),
}

impl Body for Received {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Received::Library(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Received::Own(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Received::Library(body) => body.is_end_stream(),
            Received::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Received::Library(body) => body.size_hint(),
            Received::Own(body) => body.size_hint(),
        }
    }
}
