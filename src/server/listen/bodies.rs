//! Incomplete request bodies: how long one may take, and how many bytes of all of them may be held
//! in memory.
//!
//! A client that sends a byte now and then would otherwise hold its request, and all bytes received
//! so far, for ever, before it is even authenticated. Only incomplete messages count: a complete
//! one belongs to its service. For JSON, the gateway reports what it has consumed. Never looks into
//! a message beyond gRPC's five-byte prefix.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, header};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tonic::Status;

use crate::server::scheduling::hosts::Host;
use crate::server::scheduling::within::Deadline;
use crate::wire::error::EtcdError;

/// Time for a message to be complete once it has begun; a unary call begins with its headers.
pub(crate) const WHOLE_WITHIN: Duration = Duration::from_secs(30);
/// Calls on which clients may send for as long as they like; each of their messages has to be
/// complete in time like any other.
const ENDLESS: [&str; 2] = [
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseKeepAlive",
];
/// The paths on which the gateway serves JSON; it meters what it reads there itself.
const GATEWAY: [&str; 2] = ["/v3/", "/v3beta/"];
/// Each gRPC message is preceded by a flag and a length.
const HEAD: usize = 5;

/// The state of all bodies that are being received.
#[derive(Debug)]
pub(crate) struct Bodies {
    most: usize,
    within: Duration,
    held: Mutex<Held>,
    /// Requests that were not complete in time.
    pub(crate) late: AtomicU64,
    /// Requests that were refused because too many bytes were incomplete.
    pub(crate) refused: AtomicU64,
}

/// Bytes of incomplete messages.
#[derive(Debug, Default)]
struct Held {
    all: usize,
    /// Bytes by host; a Unix socket belongs to no host.
    hosts: BTreeMap<Option<Host>, usize>,
}

impl Bodies {
    /// Limits incomplete messages to `most` bytes and each to the time `within`.
    pub(crate) fn new(most: usize, within: Duration) -> Arc<Bodies> {
        Arc::new(Bodies {
            most,
            within,
            held: Mutex::default(),
            late: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// An eighth of the memory, and no more than 256 MiB.
    pub(crate) fn share(memory: Option<u64>) -> usize {
        let most = 256 << 20;
        let share = memory.map_or(most, |bytes| (bytes / 8).clamp(16 << 20, most));
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// Bytes of incomplete messages.
    pub(crate) fn held(&self) -> usize {
        self.lock().all
    }

    /// A body with these limits; `path` and `headers` are its request's.
    pub(crate) fn meter<B>(
        self: &Arc<Self>,
        path: &str,
        headers: &HeaderMap,
        from: Option<Host>,
        body: B,
    ) -> Metered<B> {
        if GATEWAY.iter().any(|gateway| path.starts_with(gateway)) {
            return self.metered(Kind::Elsewhere, true, from, body);
        }
        let grpc = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let kind = match grpc {
            true => Kind::Messages(Message::default()),
            false => Kind::Bytes,
        };
        self.metered(kind, ENDLESS.contains(&path), from, body)
    }

    /// A JSON body with these limits, whose reader reports what it [keeps](Metered::keeps) of it;
    /// `endless` if more may follow for as long as the client likes.
    pub(crate) fn meter_json<B>(
        self: &Arc<Self>,
        endless: bool,
        from: Option<Host>,
        body: B,
    ) -> Metered<B> {
        self.metered(Kind::Bytes, endless, from, body)
    }

    /// The messages of a websocket with these limits: the reader reports how many bytes of an
    /// incomplete message it has received.
    pub(crate) fn meter_messages(self: &Arc<Self>, from: Option<Host>) -> Metered<()> {
        self.metered(Kind::Elsewhere, true, from, ())
    }

    fn metered<B>(
        self: &Arc<Self>,
        kind: Kind,
        endless: bool,
        from: Option<Host>,
        body: B,
    ) -> Metered<B> {
        Metered {
            body,
            bodies: Arc::clone(self),
            kind,
            from,
            endless,
            until: (!endless).then(|| Instant::now() + self.within),
            alarm: None,
            held: 0,
        }
    }

    /// Records that a body of this host holds `now` bytes instead of `was`; false if that is too
    /// much.
    ///
    /// A single body is accepted whatever its size: its service has a limit for that. All bodies
    /// share the total, and beyond half of it each host has an equal share of that half: a host
    /// that fills its share does not keep others from sending a large request.
    fn change(&self, from: Option<Host>, was: usize, now: usize) -> bool {
        if was == now {
            return true;
        }
        let mut held = self.lock();
        let all = held.all + now - was;
        held.all = all;
        let own = held.hosts.entry(from).or_default();
        *own = *own + now - was;
        let own = *own;
        if own == 0 {
            held.hosts.remove(&from);
        }
        if now < was || all == now {
            return true;
        }
        let half = self.most / 2;
        all <= self.most && (all <= half || own <= half / held.hosts.len().max(1))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Plain data: a panic in another thread leaves it consistent.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a body is counted.
#[derive(Debug)]
enum Kind {
    /// gRPC: the bytes of a message that is incomplete.
    Messages(Message),
    /// All bytes received, less those that its reader has consumed.
    Bytes,
    /// Not counted here: its reader meters it.
    Elsewhere,
}

/// The position of a gRPC body in its messages.
#[derive(Debug, Default)]
struct Message {
    head: [u8; HEAD],
    /// Bytes of the prefix received.
    have: usize,
    /// Bytes of the message that are still missing.
    left: usize,
    /// Bytes received since the last complete message.
    came: usize,
    /// Complete messages.
    ended: u64,
}

impl Message {
    /// Counts received data; returns the bytes that wait for the rest of their message.
    fn take(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            if self.have < HEAD {
                let length = data.len().min(HEAD - self.have);
                self.head[self.have..self.have + length].copy_from_slice(&data[..length]);
                self.have += length;
                self.came += length;
                data.advance(length);
                if self.have == HEAD {
                    let [_, length @ ..] = self.head;
                    self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                }
            } else {
                let length = data.len().min(self.left);
                self.left -= length;
                self.came += length;
                data.advance(length);
            }
            if self.have == HEAD && self.left == 0 {
                (self.have, self.came) = (0, 0);
                self.ended += 1;
            }
        }
        self.came
    }
}

/// A metered body.
pub(crate) struct Metered<B> {
    body: B,
    bodies: Arc<Bodies>,
    kind: Kind,
    from: Option<Host>,
    endless: bool,
    until: Option<Instant>,
    /// Created when there is something to wait for: most bodies arrive together with their headers.
    alarm: Option<Deadline>,
    held: usize,
}

impl<B> Metered<B> {
    /// Counts received data; false if too much is incomplete.
    fn count(&mut self, data: &[u8]) -> bool {
        let was = self.held;
        // A message that follows a complete one directly has its own time.
        let (held, ended) = match &mut self.kind {
            Kind::Messages(message) => {
                let ended = message.ended;
                (message.take(data), message.ended > ended)
            }
            Kind::Bytes => (was + data.len(), false),
            Kind::Elsewhere => return true,
        };
        self.holds(held, ended || was == 0)
    }

    /// Its reader has consumed what was complete, and keeps so many bytes: those of a value that is
    /// still incomplete.
    pub(crate) fn keeps(&mut self, bytes: usize) {
        // A reduction is never refused.
        let _ = self.holds(bytes, true);
    }

    fn holds(&mut self, held: usize, restarts: bool) -> bool {
        let was = std::mem::replace(&mut self.held, held);
        if self.endless && (held == 0 || restarts) {
            self.until = (held > 0).then(|| Instant::now() + self.bodies.within);
            self.alarm = None;
        }
        self.bodies.change(self.from, was, held)
    }

    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(until) = self.until else {
            return false;
        };
        let alarm = self.alarm.get_or_insert_with(|| Deadline::new(until));
        alarm.is_over(context)
    }
}

impl Metered<()> {
    /// So many bytes wait for the rest of their message; false if that is too much, or lasts too
    /// long. Wakes the task of `context` when the time is over.
    pub(crate) fn waits_with(&mut self, bytes: usize, context: &mut Context<'_>) -> bool {
        let begins = self.held == 0;
        if !self.holds(bytes, begins) {
            self.bodies.refused.fetch_add(1, Relaxed);
            return false;
        }
        let late = self.late(context);
        self.bodies.late.fetch_add(u64::from(late), Relaxed);
        !late
    }
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && !this.count(data)
                {
                    this.bodies.refused.fetch_add(1, Relaxed);
                    let refused = Status::from(EtcdError::TooManyRequests);
                    return Poll::Ready(Some(Err(refused.into())));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|end| end.map_err(Into::into))),
            Poll::Pending if this.late(context) => {
                this.bodies.late.fetch_add(1, Relaxed);
                let late = Status::from(EtcdError::Timeout);
                Poll::Ready(Some(Err(late.into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Metered<B> {
    fn drop(&mut self) {
        self.bodies.change(self.from, self.held, 0);
    }
}

/// The error that ended a body, for the client; `None` if the client ended it.
pub(crate) fn ended(error: &(dyn std::error::Error + 'static)) -> Option<Status> {
    let mut error = Some(error);
    while let Some(cause) = error {
        if let Some(status) = cause.downcast_ref::<Status>() {
            return Some(status.clone());
        }
        error = cause.source();
    }
    None
}

#[cfg(test)]
#[path = "bodies_test.rs"]
mod tests;
