//! The task of a connection: reads its socket, has its requests carried out, and writes what they answer. Requests that
//! are answered briefly are carried out in this task, so that those of one read are answered with one write; all others
//! have a task each.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::request::Parts;
use http::{Request, Response, Version};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connection::{Connection, Fatal, Limits, Opened};
use super::exchange::{Exchange, RequestBody, Shared, State};
use super::output::places;

/// Bytes of one read.
const READ: usize = 64 << 10;
/// Requests that are answered in one turn of this task: others of its host, and other hosts, have theirs in between.
const IN_A_TURN: usize = 16;
/// Nothing more is read while so many bytes wait for the client to read them.
const UNREAD: usize = 256 << 10;

thread_local! {
    /// What is read, until it has been taken in: a connection that waits has no buffer.
    static CAME: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Settings {
    /// Streams at once.
    pub(in crate::server) streams: u32,
    /// Bytes of one request that wait here.
    pub(in crate::server) stream_window: u32,
    /// Bytes of all requests that wait here.
    pub(in crate::server) connection_window: u32,
    /// Bytes of a request's headers.
    pub(in crate::server) headers: u32,
    /// How long a client may be silent, and how long it then has for an answer.
    pub(in crate::server) keepalive: Option<(Duration, Duration)>,
}

/// What requests are answered by.
pub(in crate::server) trait Handler {
    /// The body of a response.
    type Body: Body<Data = Bytes> + Unpin + Send + 'static;
    /// Carries a request out.
    type Answer: Future<Output = Response<Self::Body>> + Unpin + Send + 'static;

    /// Whether a request is answered briefly.
    fn is_brief(&self, parts: &Parts) -> bool;
    /// Begins to answer a request.
    fn answer(&mut self, request: Request<RequestBody>) -> Self::Answer;
    /// Starts a task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// Why a connection ended that did not end well.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum Http2Error {
    /// The client broke the protocol, or used too much.
    #[error(transparent)]
    Fatal(#[from] FatalError),
    /// The socket's.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client is silent.
    #[error("the client does not answer")]
    Silent,
}

/// An error that the client was told about.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(in crate::server) struct FatalError(#[from] Fatal);

/// A connection whose preface was read.
pub(in crate::server) struct Http2<S, H: Handler> {
    io: S,
    shared: Arc<Shared>,
    handler: H,
    brief: FuturesUnordered<Exchange<H::Answer, H::Body>>,
    keepalive: Option<Keepalive>,
}

impl<S, H: Handler> Http2<S, H> {
    pub(in crate::server) fn new(io: S, settings: Settings, handler: H) -> Http2<S, H> {
        let connection = Connection::new(Limits {
            streams: settings.streams,
            stream_window: settings.stream_window,
            connection_window: settings.connection_window,
            headers: settings.headers,
        });
        Http2 {
            io,
            shared: Shared::new(connection),
            handler,
            brief: FuturesUnordered::new(),
            keepalive: settings.keepalive.map(Keepalive::new),
        }
    }

    /// Asks the client to begin no more requests; the connection ends once those it has begun are answered.
    pub(in crate::server) fn close_gracefully(&mut self) {
        self.shared.lock().connection.ask_to_close();
    }
}

impl<S, H> Http2<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Handler,
{
    /// Serves until the connection ends. May be left and called again.
    pub(in crate::server) async fn run(&mut self) -> Result<(), Http2Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http2Error>> {
        self.drives(Some(context));
        let polled = self.poll_all(context);
        self.drives(None);
        polled
    }

    /// This task runs from now on, in a context, or no more.
    fn drives(&self, context: Option<&Context<'_>>) {
        let State {
            driver, driving, ..
        } = &mut *self.shared.lock();
        *driving = context.is_some();
        let Some(waker) = context.map(Context::waker) else {
            return;
        };
        match driver {
            Some(driver) => driver.clone_from(waker),
            None => *driver = Some(waker.clone()),
        }
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http2Error>> {
        let mut left = IN_A_TURN;
        loop {
            while left > 0
                && let Poll::Ready(Some(())) = self.brief.poll_next_unpin(context)
            {
                left -= 1;
            }
            let written = self.poll_write(context)?;
            if written.is_ready() && self.shared.lock().connection.is_over() {
                return Pin::new(&mut self.io)
                    .poll_shutdown(context)
                    .map_err(Into::into);
            }
            let released = std::mem::take(&mut self.shared.lock().connection.released);
            drop(released);
            if left == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.poll_read(context) {
                Poll::Ready(Ok(Some(opened))) => {
                    self.carry_out(opened);
                    left -= 1;
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => {
                    // As much of the reason as the socket takes at once.
                    let _ = self.poll_write(context);
                    let _ = Pin::new(&mut self.io).poll_shutdown(context);
                    return Poll::Ready(Err(error));
                }
                Poll::Pending if self.poll_keepalive(context)? => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Writes what there is; ready when nothing is left.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State { connection, .. } = &mut *self.shared.lock();
        let mut io = Pin::new(&mut self.io);
        loop {
            connection.pump();
            let mut places = places();
            let polled = match connection.output.slices(&mut places) {
                0 => return io.poll_flush(context),
                1 => io.as_mut().poll_write(context, &places[0]),
                count => io.as_mut().poll_write_vectored(context, &places[..count]),
            };
            match polled {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => connection.output.written(bytes),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Takes in what the client has sent: the requests that began with it, or `None` at its end.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<Opened>>, Http2Error>> {
        if self.shared.lock().connection.output.len() > UNREAD {
            // The socket wakes this task when it takes more.
            return Poll::Pending;
        }
        CAME.with_borrow_mut(|came| {
            let mut buffer = ReadBuf::new(came);
            match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Ok(None)),
                Poll::Ready(Ok(())) => {
                    if let Some(keepalive) = &mut self.keepalive {
                        keepalive.heard = true;
                    }
                    let connection = &mut self.shared.lock().connection;
                    connection.receive(buffer.filled()).map_err(FatalError)?;
                    Poll::Ready(Ok(Some(connection.opened())))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
                Poll::Pending => Poll::Pending,
            }
        })
    }

    /// Whether there is something to write.
    fn poll_keepalive(&mut self, context: &mut Context<'_>) -> Result<bool, Http2Error> {
        match self.keepalive.as_mut().map(|it| it.poll(context)) {
            Some(Poll::Ready(Due::Ask)) => {
                self.shared.lock().connection.ask_whether_alive();
                Ok(true)
            }
            Some(Poll::Ready(Due::End)) => Err(Http2Error::Silent),
            Some(Poll::Pending) | None => Ok(false),
        }
    }

    fn carry_out(&mut self, opened: Vec<Opened>) {
        for Opened { stream, head } in opened {
            let body = self.body(stream);
            let mut request = Request::new(body);
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = head.uri.clone();
            *request.version_mut() = Version::HTTP_2;
            *request.headers_mut() = head.headers.clone();
            let (parts, body) = request.into_parts();
            let brief = self.handler.is_brief(&parts);
            let answer = self.handler.answer(Request::from_parts(parts, body));
            let shared = Arc::clone(&self.shared);
            let exchange = Exchange::new(shared, stream, &head.method, answer);
            match brief {
                true => self.brief.push(exchange),
                false => self.handler.spawn(exchange),
            }
        }
    }

    /// The body of a request, without a way back to the connection if all of it is here.
    fn body(&self, id: u32) -> RequestBody {
        let connection = &mut self.shared.lock().connection;
        let whole = connection.streams.get_mut(&id).and_then(|stream| {
            let received = &mut stream.received;
            let few = received.pieces.len() <= 1 && received.trailers.is_none();
            (received.ended && few).then(|| received.pieces.pop_front())
        });
        let Some(data) = whole else {
            return RequestBody::coming(Arc::clone(&self.shared), id);
        };
        if let Some(data) = &data {
            // At most one frame.
            connection.read(id, data.len() as u32);
        }
        RequestBody::whole(data)
    }
}

impl<S, H: Handler> Drop for Http2<S, H> {
    /// Whoever still answers, or reads a request, learns that the client is gone.
    fn drop(&mut self) {
        let (streams, released) = {
            let State {
                connection, driver, ..
            } = &mut *self.shared.lock();
            *driver = None;
            let released = std::mem::take(&mut connection.released);
            (std::mem::take(&mut connection.streams), released)
        };
        drop(released);
        for mut stream in streams.into_values() {
            stream.wake_all();
        }
    }
}

/// Asks a silent client whether it is there.
struct Keepalive {
    interval: Duration,
    timeout: Duration,
    alarm: Pin<Box<Sleep>>,
    /// Something came since the alarm was set.
    heard: bool,
    asked: bool,
}

enum Due {
    Ask,
    End,
}

impl Keepalive {
    fn new((interval, timeout): (Duration, Duration)) -> Keepalive {
        Keepalive {
            interval,
            timeout,
            alarm: Box::pin(sleep(interval)),
            heard: false,
            asked: false,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Due> {
        while self.alarm.as_mut().poll(context).is_ready() {
            let heard = std::mem::take(&mut self.heard);
            if !heard && self.asked {
                return Poll::Ready(Due::End);
            }
            self.asked = !heard;
            let pause = if heard { self.interval } else { self.timeout };
            self.alarm.as_mut().reset(Instant::now() + pause);
            if self.asked {
                return Poll::Ready(Due::Ask);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "drive_test.rs"]
mod tests;
