//! Websockets on the JSON gateway: each message of the client is a piece of the request's body, and
//! each line of the response is a message, so that a browser can watch.
//!
//! Never looks at the call: the gateway answers as it answers a POST.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::IntoResponse as _;
use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use crate::server::listen::bodies::Metered;
use crate::server::listen::heard::Count;
use crate::server::listen::seats::{Handle, Leave};
use crate::server::listen::serving::From;
use crate::server::listen::{GRACE, gone};
use crate::server::scheduling::in_turn::ByHost;

/// Time for the client to receive the close frame.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes that are read ahead of a message, in addition to those counted.
const AHEAD: usize = 8 << 10;
/// Bytes of a control frame beside its payload: a header of two and the client's mask of four.
const FRAME: u64 = 6;
/// The subprotocol in which a browser, which cannot set other headers, sends its token.
const BEARER: &str = "Bearer";

/// Marks a call whose body arrives over a websocket.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Websocket;

/// Whether a request asks for an upgrade to a websocket.
pub(in crate::server) fn is_asked_for(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Upgrades a request to a websocket; `answer` is the gateway's handler for a POST, `limit` the
/// most bytes of one message, and `meter` limits incomplete messages.
pub(in crate::server) async fn upgrade<A, F>(
    request: Request<Body>,
    limit: usize,
    meter: Metered<()>,
    answer: A,
) -> Response<Body>
where
    A: FnOnce(Request<Body>) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (mut parts, _) = request.into_parts();
    let seat = parts.extensions.remove::<Handle>();
    let by = parts.extensions.remove::<ByHost>();
    let heard = parts.extensions.remove::<Count>().unwrap_or_default();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    let mut call = Request::new(());
    *call.method_mut() = Method::POST;
    *call.uri_mut() = parts.uri;
    if let Some(token) = token(&parts.headers) {
        call.headers_mut().insert(header::AUTHORIZATION, token);
    }
    call.extensions_mut().insert(Websocket);
    if let Some(from) = parts.extensions.remove::<From>() {
        call.extensions_mut().insert(from);
    }
    upgrade
        .protocols([BEARER])
        .max_message_size(limit)
        .max_frame_size(limit)
        .read_buffer_size(AHEAD)
        .on_upgrade(move |socket| {
            let (sink, stream) = socket.split();
            let stream = Messages {
                stream,
                meter,
                whole: heard.bytes(),
                heard,
            };
            let conversation = converse((sink, stream), call, seat.clone(), answer);
            in_turn(conversation, by, seat)
        })
}

/// Runs the connection in its host's turns; when it has to close, it does so without waiting for
/// one.
async fn in_turn(conversation: impl Future<Output = ()>, by: Option<ByHost>, seat: Option<Handle>) {
    let Some(by) = by else {
        return conversation.await;
    };
    let gone = async {
        match &seat {
            Some(seat) => gone(seat).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = by.task(conversation) => {}
        () = gone => {}
    }
}

/// The client's messages.
struct Messages {
    stream: SplitStream<WebSocket>,
    heard: Count,
    /// The number of bytes received when the last message was complete.
    whole: u64,
    /// Meters the bytes received since.
    meter: Metered<()>,
}

impl Messages {
    /// The next message; `None` if the client is gone, or an incomplete message has become too
    /// large or has taken too long.
    async fn next(&mut self) -> Option<Message> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let polled = self.stream.poll_next_unpin(context);
        match &polled {
            // Control frames may come between the fragments of a message, which stays incomplete.
            Poll::Ready(Some(Ok(Message::Ping(payload) | Message::Pong(payload)))) => {
                self.whole += FRAME + payload.len() as u64;
            }
            Poll::Ready(_) => self.whole = self.heard.bytes(),
            Poll::Pending => {}
        }
        let waits = self.heard.bytes().saturating_sub(self.whole);
        let waits = usize::try_from(waits).unwrap_or(usize::MAX);
        match self.meter.waits_with(waits, context) {
            true => polled.map(|message| message.and_then(Result::ok)),
            false => Poll::Ready(None),
        }
    }
}

/// The token: in a cookie, or after the name of the subprotocol.
fn token(headers: &HeaderMap) -> Option<HeaderValue> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let mut cookies = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    let cookie = cookies.find_map(|cookie| cookie.trim().strip_prefix("token="));
    let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
    let protocol = protocols
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split_once("Bearer,"))
        .map(|(_, token)| token.trim());
    HeaderValue::from_str(&format!("{BEARER} {}", cookie.or(protocol)?)).ok()
}

/// Passes pieces in both directions until one side has ended.
async fn converse<A, F>(
    (mut sink, stream): (SplitSink<WebSocket, Message>, Messages),
    call: Request<()>,
    seat: Option<Handle>,
    answer: A,
) where
    A: FnOnce(Request<Body>) -> F + Send,
    F: Future<Output = Response<Body>> + Send,
{
    // One piece at a time: a client that sends faster than the call reads has to wait.
    let (pieces, body) = mpsc::channel(1);
    let body = tokio_stream::wrappers::ReceiverStream::new(body);
    let call = call.map(|()| Body::from_stream(body.map(Ok::<Bytes, Infallible>)));
    let speak = async {
        let answered = answer(call).await.into_body();
        // An error means that the client is gone.
        let _ = speak(answered, &mut sink).await;
    };
    let needed = || async {
        match &seat {
            Some(seat) => seat.asked_to_leave().await,
            None => std::future::pending().await,
        }
    };
    let leave = tokio::select! {
        () = listen(stream, pieces, seat.as_ref()) => None,
        () = speak => None,
        leave = needed() => Some(leave),
    };
    let closed = sink.close();
    match leave {
        None => tokio::select! {
            _ = tokio::time::timeout(FAREWELL, closed) => {}
            _ = needed() => {}
        },
        // Another connection needs its seat: its client is notified, without waiting any longer.
        Some(leave) => {
            let patience = match leave {
                Leave::Gracefully => GRACE,
                Leave::AtOnce => Duration::ZERO,
            };
            let _ = tokio::time::timeout(patience, closed).await;
        }
    }
}

/// Receives the client's messages until it disconnects.
async fn listen(mut messages: Messages, pieces: mpsc::Sender<Bytes>, seat: Option<&Handle>) {
    // The seat is in use from the first message on: before it, the connection counts as idle.
    let mut call = None;
    while let Some(message) = messages.next().await {
        let piece = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return,
        };
        if call.is_none() {
            call = seat.and_then(Handle::begin);
        }
        // A call that reads no more may still be answering.
        let _ = pieces.send([&piece[..], b"\n"].concat().into()).await;
    }
}

/// Sends a response line by line, without empty lines.
async fn speak(
    mut body: Body,
    sink: &mut SplitSink<WebSocket, Message>,
) -> Result<(), axum::Error> {
    let mut rest = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = rest.split_to(end + 1).split_to(end);
            send_line(&line, sink).await?;
        }
    }
    send_line(&rest, sink).await
}

async fn send_line(
    line: &[u8],
    sink: &mut SplitSink<WebSocket, Message>,
) -> Result<(), axum::Error> {
    if line.is_empty() {
        return Ok(());
    }
    // The gateway writes JSON, which is UTF-8.
    let text = String::from_utf8_lossy(line).into_owned();
    sink.send(Message::Text(text.into())).await
}

#[cfg(test)]
mod tests {
    use super::token;
    use http::{HeaderMap, HeaderValue};

    #[test]
    fn websocket_token_is_read() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            token(&map).map(|token| token.to_str().expect("text").to_owned())
        };
        let protocol = "sec-websocket-protocol";
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(protocol, "json")]), None);
        assert_eq!(
            of(&[(protocol, "Bearer, a.5")]).as_deref(),
            Some("Bearer a.5")
        );
        assert_eq!(
            of(&[(protocol, "Bearer,a.5")]).as_deref(),
            Some("Bearer a.5")
        );
        let both = [(protocol, "Bearer,a"), ("cookie", "x=1; token=b.6")];
        assert_eq!(of(&both).as_deref(), Some("Bearer b.6"));
    }
}
