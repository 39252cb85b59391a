//! One stream of server-sent events: a document when it has changed, a comment where it has not for a while, and a last
//! word when the viewer may not look any more. Who reads too slowly is disconnected. Knows no HTTP request, and no caller.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Document, Error, Request, Sight, Source};
use crate::operator::endpoint::Cut;

/// Whether the viewer may still look is asked so often. With how long an answer of the API server holds, 30 seconds, and
/// with the two times below, it stays below a minute.
const AGAIN: Duration = match cfg!(test) {
    true => Duration::from_millis(50),
    false => Duration::from_secs(15),
};
/// For so long it is asked again where that cannot be found out.
const UNCLEAR: Duration = match cfg!(test) {
    true => Duration::from_secs(5),
    false => Duration::from_secs(10),
};
/// For so long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(5);
/// At least so often something is sent, so that both sides know that the connection is there.
const KEEP_ALIVE: Duration = match cfg!(test) {
    true => Duration::from_millis(100),
    false => Duration::from_secs(15),
};
/// How long a viewer may take to read what was sent before.
const SLOW: Duration = match cfg!(test) {
    true => Duration::from_millis(200),
    false => Duration::from_secs(30),
};

/// Who reads a stream.
pub(super) struct Viewer {
    pub(super) request: Request,
    pub(super) sight: Sight,
    /// One of the bounded number of streams.
    pub(super) place: OwnedSemaphorePermit,
    /// Its connection.
    pub(super) cut: Cut,
}

/// The body of the answer.
pub(super) fn body<S: Source>(source: Arc<S>, viewer: Viewer) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(follow(source, viewer, sender));
    let parts = stream::unfold(receiver, |mut receiver| async move {
        let part: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(part), receiver))
    });
    Body::from_stream(parts)
}

async fn follow<S: Source>(source: Arc<S>, viewer: Viewer, sender: mpsc::Sender<Bytes>) {
    let Viewer {
        request,
        mut sight,
        place: _place,
        cut,
    } = viewer;
    let (mut last, mut verified, mut sent) = (String::new(), Instant::now(), Instant::now());
    loop {
        if verified.elapsed() >= AGAIN {
            match again(&*source, &request).await {
                Ok(now) => (sight, verified) = (now, Instant::now()),
                Err(Error::Unclear(_)) if verified.elapsed() < AGAIN + UNCLEAR => {}
                // The page tries again with the same token.
                Err(Error::Unclear(_)) => return,
                Err(error) => {
                    let _ = tokio::time::timeout(SLOW, sender.send(refusal(&error))).await;
                    return;
                }
            }
        }
        let document = source.document(&sight, request.cluster.as_ref()).await;
        let text = encoded(&document);
        let part = if text != last {
            last = text;
            Some(event("document", &last))
        } else {
            let due = sent.elapsed() >= KEEP_ALIVE;
            due.then(|| Bytes::from_static(b": nothing has changed\n\n"))
        };
        if let Some(part) = part {
            match tokio::time::timeout(SLOW, sender.send(part)).await {
                Ok(Ok(())) => sent = Instant::now(),
                Ok(Err(_)) => return,
                Err(_) => return cut.now(),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(S::PAUSE) => {}
            () = sender.closed() => return,
        }
    }
}

/// What the viewer may still see.
async fn again<S: Source>(source: &S, request: &Request) -> Result<Sight, Error> {
    let answer = tokio::time::timeout(ANSWER, source.sight(request)).await;
    answer.unwrap_or_else(|_| Err(Error::Unclear("there is no answer in time".to_owned())))
}

fn encoded(document: &Document) -> String {
    // Nothing in it can fail: its keys are strings, and its numbers are whole.
    serde_json::to_string(document).unwrap_or_default()
}

/// JSON has no line break, so that it is one line of data.
fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn refusal(error: &Error) -> Bytes {
    let text = serde_json::Value::from(error.to_string());
    event("refused", &text.to_string())
}

#[cfg(test)]
#[path = "stream_test.rs"]
mod tests;
