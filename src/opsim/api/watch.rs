//! Watches: what happened to a collection since a version, as a stream of lines.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::kinds::{Kind, Target};
use super::refusal::Refusal;
use super::selector::{Selector, field_selector_fits};
use super::server::{ApiServer, Change, Key, Version, key};
use super::service::{Broken, Query, Reply, SharedApiServer};

/// Begins a watch. It lasts until its reader drops it.
pub(super) fn start(
    shared: &SharedApiServer,
    target: &Target,
    query: &Query,
) -> Result<Reply, Refusal> {
    let mut server = shared.lock();
    if query.get("sendInitialEvents") == "true" {
        let refusal = Refusal::not_modelled("a list that is streamed by a watch");
        return Err(server.note(refusal));
    }
    let selector = Selector::parse(query.get("labelSelector"));
    let selector = selector.map_err(|refusal| server.note(refusal))?;
    let from = match query.get("resourceVersion") {
        "" | "0" => None,
        version => match version.parse::<u64>() {
            Ok(version) => Some(version),
            Err(_) => return Err(Refusal::bad_request("resourceVersion: not a number")),
        },
    };
    if from.is_some_and(|from| from < server.compacted()) {
        return Err(Refusal::expired());
    }
    let mut watch = Watch {
        shared: shared.clone(),
        kind: target.kind,
        namespace: target.namespace.clone(),
        selector,
        fields: query.get("fieldSelector").to_owned(),
        after: from.unwrap_or_else(|| server.revision()),
        known: BTreeSet::new(),
        first: Vec::new(),
    };
    match from {
        // Only what is known to have fitted can be seen to go.
        Some(from) => {
            for version in server.versions(target.kind, 0, from) {
                watch.turn(version);
            }
        }
        None => watch.begin(&server),
    }
    drop(server);
    Ok(StreamBody::new(watch).boxed_unsync())
}

struct Watch {
    shared: SharedApiServer,
    kind: Kind,
    namespace: String,
    selector: Selector,
    fields: String,
    after: u64,
    /// The objects that its reader knows.
    known: BTreeSet<Key>,
    /// What it sends before anything happens, last first.
    first: Vec<Bytes>,
}

impl Watch {
    fn fits(&self, object: &Value) -> bool {
        let namespace = super::object::namespace(object);
        (self.namespace.is_empty() || self.namespace == namespace)
            && self.selector.fits(object)
            && field_selector_fits(&self.fields, object).unwrap_or(false)
    }

    /// Begins without a version: with everything that is there.
    fn begin(&mut self, server: &ApiServer) {
        for object in server.all(self.kind) {
            if self.fits(object) {
                self.known.insert(key(object));
                self.first.push(line("ADDED", object));
            }
        }
        self.first.reverse();
    }

    /// What a version means to the reader.
    fn turn(&mut self, version: &Version) -> Option<Bytes> {
        let object = &version.object;
        let fits = version.change != Change::Deleted && self.fits(object);
        let key = key(object);
        let word = match (self.known.contains(&key), fits) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if fits {
            self.known.insert(key);
        } else {
            self.known.remove(&key);
        }
        Some(line(word, object))
    }
}

fn line(word: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": word, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}

impl futures::Stream for Watch {
    type Item = Result<Frame<Bytes>, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(line) = self.first.pop() {
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
        let shared = self.shared.clone();
        let mut server = shared.lock();
        if self.after < server.compacted() {
            let status = Refusal::expired().status();
            let gone = self.after;
            self.after = u64::MAX;
            let end = (gone != u64::MAX).then(|| Ok(Frame::data(line("ERROR", &status))));
            return Poll::Ready(end);
        }
        if self.after == u64::MAX {
            return Poll::Ready(None);
        }
        let newest = server.revision();
        for version in server.versions(self.kind, self.after, newest) {
            self.after = version.revision;
            if let Some(line) = self.turn(version) {
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
        }
        server.wake_me(context.waker());
        Poll::Pending
    }
}
