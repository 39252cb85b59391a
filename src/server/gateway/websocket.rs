//! Websockets on the JSON gateway: each message of the client is a piece of the request's body,
//! and each line of the answer is a message, so that a browser can watch.
//!
//! Never knows what a call is: the gateway answers as it answers a POST.

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

/// Time for the other side to take our farewell.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes that are read ahead of a message, beside those that are counted.
const AHEAD: usize = 8 << 10;
/// Bytes of a frame of control beside its payload: two of head, four of the client's mask.
const FRAME: u64 = 6;
/// The subprotocol in whose name a browser, which may set no other header, sends its token.
const BEARER: &str = "Bearer";

/// Says that a call's body comes by a websocket.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Websocket;

/// Whether a request wants to become a websocket.
pub(in crate::server) fn is_asked_for(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Makes a websocket of a request; `answer` is how the gateway answers a POST, `limit` the most bytes
/// of one message, and `meter` has rules for those of which a part has come.
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

/// Carries on the conversation as its host may; it goes without waiting for that where it has to.
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

/// What the client says, message by message.
struct Messages {
    stream: SplitStream<WebSocket>,
    heard: Count,
    /// How much had been heard when the last message was whole.
    whole: u64,
    /// What has been heard since.
    meter: Metered<()>,
}

impl Messages {
    /// The next message; nothing where the client is gone, or has kept too much of one waiting for its
    /// rest, or for too long.
    async fn next(&mut self) -> Option<Message> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let polled = self.stream.poll_next_unpin(context);
        match &polled {
            // They may come between the pieces of a message, which is no more whole for that.
            Poll::Ready(Some(Ok(Message::Ping(said) | Message::Pong(said)))) => {
                self.whole += FRAME + said.len() as u64;
            }
            Poll::Ready(_) => self.whole = self.heard.bytes(),
            Poll::Pending => {}
        }
        let waits = self.heard.bytes().saturating_sub(self.whole);
        let waits = usize::try_from(waits).unwrap_or(usize::MAX);
        match self.meter.waits_with(waits, context) {
            true => polled.map(|said| said.and_then(Result::ok)),
            false => Poll::Ready(None),
        }
    }
}

/// The token: in a cookie, or behind the name of the subprotocol.
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

/// Carries pieces both ways until one side has nothing more to say.
async fn converse<A, F>(
    (mut sink, stream): (SplitSink<WebSocket, Message>, Messages),
    call: Request<()>,
    seat: Option<Handle>,
    answer: A,
) where
    A: FnOnce(Request<Body>) -> F + Send,
    F: Future<Output = Response<Body>> + Send,
{
    // One piece at a time: who sends faster than the call listens has to wait.
    let (pieces, body) = mpsc::channel(1);
    let body = tokio_stream::wrappers::ReceiverStream::new(body);
    let call = call.map(|()| Body::from_stream(body.map(Ok::<Bytes, Infallible>)));
    let speak = async {
        let answered = answer(call).await.into_body();
        // An error means that nobody hears us any more.
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
        // Somebody else needs its seat: its client is told, and that takes no longer than it must.
        Some(leave) => {
            let farewell = match leave {
                Leave::WithFarewell => GRACE,
                Leave::AtOnce => Duration::ZERO,
            };
            let _ = tokio::time::timeout(farewell, closed).await;
        }
    }
}

/// Takes the client's messages until it goes.
async fn listen(mut messages: Messages, pieces: mpsc::Sender<Bytes>, seat: Option<&Handle>) {
    // In use from its first message on: before it, the seat is one of an idle connection.
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
        // A call that needs no more is still answering.
        let _ = pieces.send([&piece[..], b"\n"].concat().into()).await;
    }
}

/// Sends an answer line by line; empty lines are none.
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
            say(&line, sink).await?;
        }
    }
    say(&rest, sink).await
}

async fn say(line: &[u8], sink: &mut SplitSink<WebSocket, Message>) -> Result<(), axum::Error> {
    if line.is_empty() {
        return Ok(());
    }
    // What the gateway writes is JSON, and so UTF-8.
    let text = String::from_utf8_lossy(line).into_owned();
    sink.send(Message::Text(text.into())).await
}

#[cfg(test)]
mod tests {
    use super::token;
    use http::{HeaderMap, HeaderValue};

    #[test]
    fn a_token_comes_by_cookie_or_by_protocol() {
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
