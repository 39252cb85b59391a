//! A request and its answer on a stream: the body as the services read it, and the future that carries a request out and
//! hands its response to the connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use hyper::body::{Body, Frame, SizeHint};

use super::connection::Connection;
use super::frame::Reason;
use super::sending::Gone;
use super::stream::End;
use crate::server::process::clock;

/// A connection, as the tasks of its thread share it.
pub(super) struct Shared(Mutex<State>);

pub(super) struct State {
    pub(super) connection: Connection,
    /// The task that reads and writes; woken when there is something to write.
    pub(super) driver: Option<Waker>,
    /// That task is running now, and looks for what there is to write before it waits.
    pub(super) driving: bool,
}

impl Shared {
    pub(super) fn new(connection: Connection) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(State {
            connection,
            driver: None,
            driving: false,
        })))
    }

    /// For a moment: nothing is awaited meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a service happens outside of the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// There is something to write.
    fn wake(&mut self) {
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.driving) {
            driver.wake_by_ref();
        }
    }
}

/// The body of a request.
pub(in crate::server) struct RequestBody(Kind);

enum Kind {
    /// It came together with its head.
    Whole(Option<Bytes>),
    /// It is still coming, or is more than one piece.
    Coming { shared: Arc<Shared>, stream: u32 },
}

impl RequestBody {
    pub(super) fn whole(data: Option<Bytes>) -> RequestBody {
        RequestBody(Kind::Whole(data))
    }

    pub(super) fn coming(shared: Arc<Shared>, stream: u32) -> RequestBody {
        RequestBody(Kind::Coming { shared, stream })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Whole(data) => Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
            Kind::Coming { shared, stream } => poll_coming(&mut shared.lock(), *stream, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(data) => data.is_none(),
            Kind::Coming { shared, stream } => {
                let state = shared.lock();
                let stream = state.connection.streams.get(stream);
                stream.is_some_and(|it| {
                    let received = &it.received;
                    received.ended && received.pieces.is_empty() && received.trailers.is_none()
                })
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(data) => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Kind::Coming { .. } => SizeHint::default(),
        }
    }
}

fn poll_coming(
    state: &mut State,
    id: u32,
    context: &mut Context<'_>,
) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    let Some(stream) = state.connection.streams.get_mut(&id) else {
        let text = "the client ended the request";
        return Poll::Ready(Some(Err(io::Error::new(
            io::ErrorKind::ConnectionReset,
            text,
        ))));
    };
    let received = &mut stream.received;
    if let Some(piece) = received.pieces.pop_front() {
        let before = state.connection.output.len();
        // A piece is at most one frame.
        state.connection.read(id, piece.len() as u32);
        if state.connection.output.len() > before {
            state.wake();
        }
        return Poll::Ready(Some(Ok(Frame::data(piece))));
    }
    if let Some(trailers) = received.trailers.take() {
        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
    }
    if received.ended {
        return Poll::Ready(None);
    }
    received.reader = Some(context.waker().clone());
    Poll::Pending
}

impl Drop for RequestBody {
    /// What still comes is read by nobody, and must not use up the connection's window.
    fn drop(&mut self) {
        let Kind::Coming { shared, stream: id } = &self.0 else {
            return;
        };
        let mut state = shared.lock();
        let Some(stream) = state.connection.streams.get_mut(id) else {
            return;
        };
        let received = &mut stream.received;
        received.unread = true;
        let waiting = received.waiting();
        received.pieces.clear();
        state.connection.read(*id, waiting);
        if waiting > 0 {
            state.wake();
        }
    }
}

/// Carries a request out and sends its response.
pub(super) struct Exchange<F, B> {
    shared: Arc<Shared>,
    stream: u32,
    is_head: bool,
    step: Step<F, B>,
}

enum Step<F, B> {
    Answering(F),
    Sending(B),
    Done,
}

impl<F, B> Exchange<F, B> {
    pub(super) fn new(shared: Arc<Shared>, stream: u32, method: &Method, answer: F) -> Self {
        let is_head = *method == Method::HEAD;
        let step = Step::Answering(answer);
        Exchange {
            shared,
            stream,
            is_head,
            step,
        }
    }
}

impl<F, B> Future for Exchange<F, B>
where
    F: Future<Output = Response<B>> + Unpin,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let done = ready!(this.poll_steps(context));
        let body = match std::mem::replace(&mut this.step, Step::Done) {
            Step::Sending(body) => Some(body),
            Step::Answering(_) | Step::Done => None,
        };
        if let Err(Gone) = done {
            // Nobody waits for it.
            return Poll::Ready(());
        }
        let mut state = this.shared.lock();
        // Usually all of it can be sent at once. Until it is, the request is pending, and counted.
        state.connection.pump();
        let sent = body.and_then(|body| state.connection.keep(this.stream, body));
        state.wake();
        // The body may have the request's, which locks when it is dropped.
        drop(state);
        drop(sent);
        Poll::Ready(())
    }
}

impl<F, B> Exchange<F, B>
where
    F: Future<Output = Response<B>> + Unpin,
    B: Body<Data = Bytes> + Unpin,
{
    fn poll_steps(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if let Step::Answering(answer) = &mut self.step {
            let Poll::Ready(response) = Pin::new(answer).poll(context) else {
                let state = &mut *self.shared.lock();
                if !state.connection.streams.contains_key(&self.stream) {
                    return Poll::Ready(Err(Gone));
                }
                state.connection.wait_for(self.stream, context);
                return Poll::Pending;
            };
            match self.begin(response)? {
                Some(body) => self.step = Step::Sending(body),
                None => return Poll::Ready(Ok(())),
            }
        }
        match &mut self.step {
            Step::Sending(body) => poll_body(body, &self.shared, self.stream, context),
            Step::Answering(_) | Step::Done => Poll::Ready(Ok(())),
        }
    }

    /// Sends the head of the response; gives its body, if it has one.
    fn begin(&mut self, response: Response<B>) -> Result<Option<B>, Gone> {
        let (mut parts, body) = response.into_parts();
        complete(&mut parts.headers);
        if let Some(length) = body.size_hint().exact()
            && length > 0
        {
            let entry = parts.headers.entry(header::CONTENT_LENGTH);
            entry.or_insert_with(|| HeaderValue::from(length));
        }
        let ends = self.is_head || body.is_end_stream();
        {
            let state = &mut *self.shared.lock();
            let connection = &mut state.connection;
            connection.respond(self.stream, parts.status, &parts.headers, ends)?;
            // Its head is on its way while the body is made.
            state.wake();
        }
        // A body that is dropped here may have the request's, which locks when it is dropped.
        Ok((!ends).then_some(body))
    }
}

impl<F, B> Drop for Exchange<F, B> {
    /// A task that ended in the middle, by a panic or with its runtime: the client need not wait.
    fn drop(&mut self) {
        if matches!(self.step, Step::Done) {
            return;
        }
        let state = &mut *self.shared.lock();
        if state.connection.streams.contains_key(&self.stream) {
            state.connection.reset(self.stream, Reason::Internal);
            state.wake();
        }
    }
}

fn poll_body<B>(
    body: &mut B,
    shared: &Shared,
    stream: u32,
    context: &mut Context<'_>,
) -> Poll<Result<(), Gone>>
where
    B: Body<Data = Bytes> + Unpin,
{
    loop {
        ready!(poll_room(shared, stream, context))?;
        let frame = Pin::new(&mut *body).poll_frame(context);
        let ended = body.is_end_stream();
        let state = &mut *shared.lock();
        let connection = &mut state.connection;
        match frame {
            Poll::Pending => {
                connection.wait_for(stream, context);
                state.wake();
                return Poll::Pending;
            }
            Poll::Ready(None) => connection.finish(stream, End::Data),
            Poll::Ready(Some(Err(_))) => connection.reset(stream, Reason::Internal),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    connection.send(stream, data);
                    if !ended {
                        continue;
                    }
                    connection.finish(stream, End::Data);
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    connection.finish(stream, End::Trailers(trailers));
                }
            },
        }
        return Poll::Ready(Ok(()));
    }
}

/// Whether more of a response may be made; what has been made is sent meanwhile.
fn poll_room(shared: &Shared, stream: u32, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
    let state = &mut *shared.lock();
    let room = state.connection.poll_room(stream, context);
    if room.is_pending() {
        state.wake();
    }
    room
}

/// What HTTP asks of a response that is not gRPC's: a date (RFC 9110, section 6.6.1), and no header of a single
/// connection, which HTTP/2 does not have (RFC 9113, section 8.2.2).
fn complete(headers: &mut HeaderMap) {
    let kind = headers.get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return;
    }
    let now = clock::http_date();
    if let Ok(now) = HeaderValue::try_from(now) {
        headers.entry(header::DATE).or_insert(now);
    }
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
}
