//! The sending end of a link: one task per peer, which dials again whenever the link breaks. An
//! established link runs beside consensus, on its thread.
//!
//! A message that cannot be sent is returned, never kept: Raft sends again what is still needed. An
//! empty frame a second from either side distinguishes a dead connection from an idle one; the
//! other side answers ours at once, which measures the round trip.
//!
//! A peer that closed the link and whose address then refuses each dial has ended: that is reported, once a dial, and
//! nothing else is. A silent peer, a refused hello or an address that does not answer prove nothing.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::Io;
use super::dial::{DialError, Dialler, Target};
use super::frame;
use super::hello::{FORMAT, Hello, Known, Purpose, Refusal, Reply, Verdict};
use crate::server::core::state::random;

/// Bytes that may be queued for one peer.
const QUEUE_BYTES: usize = 64 << 20;
/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Interval of the heartbeats of either side.
pub(crate) const PULSE: Duration = Duration::from_secs(1);
/// A link on which nothing is received for this long is given up.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// Sent by the accepting side once a [`PULSE`].
pub(crate) const ALIVE: u8 = 0;
/// Its answer to each of our heartbeats; older releases do not answer.
pub(crate) const HEARD: u8 = 1;
const BACK_OFF_LEAST: Duration = Duration::from_millis(50);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);

/// The queue of messages for one peer, filled by the core threads.
pub(crate) struct Outbound<M> {
    sender: mpsc::UnboundedSender<M>,
    waiting: Arc<AtomicUsize>,
    linked: Arc<AtomicBool>,
}

/// Takes back a message of which no byte was sent.
pub(crate) type Unsent<M> = Arc<dyn Fn(u64, M) + Send + Sync>;

impl<M: Message> Outbound<M> {
    /// Bytes that wait to be sent, for whoever shows them.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// Queues a message, or returns it when there is no link or too much is queued already.
    pub(crate) fn send(&self, message: M) -> Result<(), M> {
        let bytes = message.encoded_len();
        let waiting = self.waiting.load(Ordering::Relaxed);
        let full = waiting > 0 && waiting + bytes > QUEUE_BYTES;
        if full || !self.linked.load(Ordering::Relaxed) {
            return Err(message);
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.sender.send(message).map_err(|unsent| unsent.0)
    }
}

/// The peer of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its ID.
    pub id: u64,
    /// The addresses at which it is dialled.
    pub urls: Vec<Target>,
    /// It is not in the membership: its errors are not logged as warnings.
    pub unknown: bool,
}

/// Events of a link, for the member that owns it. Must not block: some are called on the thread of
/// consensus.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The present hello of this server.
    fn hello(&self, to: u64, purpose: Purpose) -> Hello;
    /// The state against which hellos and replies are checked.
    fn known(&self) -> Known;
    /// A hello succeeded with this reply of the peer. Checks it again: another disk may have been
    /// accepted as this peer meanwhile.
    fn linked(&self, peer: u64, reply: &Reply) -> Verdict;
    /// The link to this peer has ended.
    fn parted(&self, peer: u64);
    /// Bytes of messages were passed to the system.
    fn sent(&self, peer: u64, bytes: usize);
    /// The round trip to the peer took this long, including the time behind other data on the link.
    fn round_trip(&self, peer: u64, took: Duration);
    /// The peer's process has ended: it closed the link, and each dial since then was refused. Called after each of
    /// them, with a random time between.
    fn gone(&self, peer: u64);
    /// The peer cannot be reached, or no longer.
    fn unreachable(&self, peer: u64);
    /// A peer, which answered at its own URL and on its own disk, reports that this member was
    /// removed from the cluster.
    fn removed(&self, peer: u64, reason: &str);
    /// A peer, which answered at its own URL and on its own disk, reports that this disk is a copy.
    fn copied(&self, peer: u64, reason: &str);
    /// Another server of our cluster answers at the URL of a peer, with this refusal: that peer may
    /// be a member no longer, and this one may not be either.
    fn replaced(&self, peer: u64, reason: &str);
}

/// Starts the sending task of a peer on the current runtime; it ends when the `Outbound` is
/// dropped. `raft` runs the link while there is one.
pub(crate) fn start<M: Message + Send + 'static>(
    peer: Peer,
    dialler: Arc<Dialler>,
    listener: Arc<dyn Listener>,
    unsent: Unsent<M>,
    raft: Handle,
) -> Outbound<M> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let linked = Arc::new(AtomicBool::new(false));
    let task = Task {
        peer,
        dialler,
        listener,
        receiver,
        waiting: Arc::clone(&waiting),
        linked: Arc::clone(&linked),
        unsent,
        raft,
        complaint: String::new(),
    };
    tokio::spawn(task.run());
    Outbound {
        sender,
        waiting,
        linked,
    }
}

struct Task<M> {
    peer: Peer,
    dialler: Arc<Dialler>,
    listener: Arc<dyn Listener>,
    receiver: mpsc::UnboundedReceiver<M>,
    waiting: Arc<AtomicUsize>,
    linked: Arc<AtomicBool>,
    unsent: Unsent<M>,
    raft: Handle,
    /// The last error, so that it is logged once.
    complaint: String,
}

impl<M: Message + Send + 'static> Task<M> {
    async fn run(mut self) {
        let mut pause = BACK_OFF_LEAST;
        let mut turn = 0;
        // Once the peer has closed the link: how many dials were refused since then, if all were.
        let mut refused = None;
        while !self.receiver.is_closed() && !self.peer.urls.is_empty() {
            let target = self.peer.urls[turn % self.peer.urls.len()].clone();
            turn += 1;
            match self.greet(&target).await {
                Ok(io) => {
                    tracing::info!(peer = %self.name(), url = %target.at.authority(), "linked to peer");
                    self.complaint.clear();
                    pause = BACK_OFF_LEAST;
                    self.linked.store(true, Ordering::Relaxed);
                    let Some((back, ended)) = self.pump_beside_consensus(io).await else {
                        return;
                    };
                    self = back;
                    self.linked.store(false, Ordering::Relaxed);
                    self.listener.parted(self.peer.id);
                    match ended {
                        Ok(()) => return,
                        Err(error) => {
                            refused = was_closed(&error).then_some(0);
                            self.complain(&format!("link broke: {error}"));
                        }
                    }
                }
                Err(error) => {
                    let known = self.listener.known();
                    let refusal = |refused| refusal_of(&known, self.peer.id, refused, &error);
                    if let Some(reason) = refusal(Refusal::Removed) {
                        self.listener.removed(self.peer.id, reason);
                    } else if let Some(reason) = refusal(Refusal::Copy) {
                        self.listener.copied(self.peer.id, reason);
                    } else if let Some(reason) = self.is_replaced(&error) {
                        self.listener.replaced(self.peer.id, reason);
                    }
                    self.complain(&format!(
                        "cannot link to {}: {error}",
                        target.at.authority()
                    ));
                    refused = refused
                        .filter(|_| error.is_refused())
                        .map(|times| times + 1);
                }
            }
            self.listener.unreachable(self.peer.id);
            // No process listens if all its addresses refuse.
            if refused.is_some_and(|times| times >= self.peer.urls.len()) {
                self.listener.gone(self.peer.id);
            }
            self.give_back();
            sleep(random_part(pause)).await;
            pause = (pause * 2).min(BACK_OFF_MOST);
        }
    }

    async fn greet(&self, target: &Target) -> Result<Io, DialError> {
        let hello = self.listener.hello(self.peer.id, Purpose::Messages);
        let (io, reply) = self.dialler.greet(target, &hello).await?;
        check_reply(&self.listener.known(), self.peer.id, &reply)?;
        self.listener
            .linked(self.peer.id, &reply)
            .map_err(|(refusal, reason)| DialError::ours(&reply, refusal, &reason))?;
        Ok(io)
    }

    /// The refusal of another server of our cluster that answers in the peer's place.
    fn is_replaced<'a>(&self, error: &'a DialError) -> Option<&'a str> {
        let DialError::Refused {
            refusal: Refusal::Removed | Refusal::Member,
            member,
            cluster,
            reason,
            ..
        } = error
        else {
            return None;
        };
        let known = self.listener.known();
        let another = ![self.peer.id, known.member_id].contains(member);
        (another && *cluster == known.cluster_id).then_some(reason)
    }

    /// As [`Task::pump`], on the thread of consensus; `None` when that has ended, with the server.
    async fn pump_beside_consensus(mut self, mut io: Io) -> Option<(Self, Result<(), Error>)> {
        let raft = self.raft.clone();
        let pumped = raft.clone().spawn(async move {
            let ended = match io.move_to(&raft) {
                Ok(()) => self.pump(io).await,
                Err(error) => Err(error),
            };
            (self, ended)
        });
        pumped.await.ok()
    }

    /// Sends until the link breaks; `Ok` when the `Outbound` is dropped.
    async fn pump(&mut self, io: Io) -> Result<(), Error> {
        let (mut reader, mut writer) = tokio::io::split(io);
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut asked = None;
        let mut answer = [0_u8; 64];
        let mut buffer = BytesMut::new();
        loop {
            tokio::select! {
                biased;
                read = reader.read(&mut answer) => match read? {
                    0 => return Err(Error::new(ErrorKind::UnexpectedEof, "the peer closed it")),
                    length => {
                        heard = Instant::now();
                        if answer[..length].contains(&HEARD)
                            && let Some(asked) = asked.take()
                        {
                            self.listener.round_trip(self.peer.id, heard.duration_since(asked));
                        }
                    }
                },
                message = self.receiver.recv() => {
                    let Some(message) = message else { return Ok(()) };
                    self.gather(message, &mut buffer);
                    let bytes = buffer.split().freeze();
                    write_alive(&mut writer, &bytes).await?;
                    self.listener.sent(self.peer.id, bytes.len());
                }
                _ = pulse.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Err(Error::new(ErrorKind::TimedOut, "the peer is silent"));
                    }
                    frame::encode(&(), &mut buffer);
                    // Only one round trip is measured at a time: a late answer belongs to the first
                    // heartbeat.
                    asked.get_or_insert_with(Instant::now);
                    write_alive(&mut writer, &buffer.split().freeze()).await?;
                }
            }
        }
    }

    /// Encodes this message and those queued behind it.
    fn gather(&mut self, first: M, buffer: &mut BytesMut) {
        let mut next = Some(first);
        while let Some(message) = next {
            let before = buffer.len();
            frame::encode(&message, buffer);
            let bytes = message.encoded_len();
            debug_assert!(buffer.len() > before);
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            next = if buffer.len() < WRITE_BYTES {
                self.receiver.try_recv().ok()
            } else {
                None
            };
        }
    }

    /// Returns the queued messages, which were never sent, so that the sender can react.
    fn give_back(&mut self) {
        while let Ok(message) = self.receiver.try_recv() {
            self.waiting
                .fetch_sub(message.encoded_len(), Ordering::Relaxed);
            (self.unsent)(self.peer.id, message);
        }
    }

    fn name(&self) -> String {
        format!("{:x}", self.peer.id)
    }

    fn complain(&mut self, text: &str) {
        if self.complaint != text {
            match self.peer.unknown {
                true => tracing::debug!(peer = %self.name(), "{text}"),
                false => tracing::warn!(peer = %self.name(), "{text}"),
            }
            text.clone_into(&mut self.complaint);
        }
    }
}

/// Whether a link ended because the other side closed or reset the connection.
fn was_closed(error: &Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe
    )
}

/// Between half of it and all: members that lost the same leader do not campaign in the same moment.
fn random_part(pause: Duration) -> Duration {
    let half = pause / 2;
    half + half.mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64)
}

/// A write that makes no progress for long means a dead link.
async fn write_alive(
    writer: &mut (impl AsyncWriteExt + Unpin),
    bytes: &Bytes,
) -> Result<(), Error> {
    let write = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    };
    timeout(SILENCE * 4, write)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "the peer takes no bytes")))
}

/// The reason with which this peer itself refused us for good; another server that answers in its
/// place does not know.
pub(crate) fn refusal_of<'a>(
    known: &Known,
    peer: u64,
    refused: Refusal,
    error: &'a DialError,
) -> Option<&'a str> {
    let DialError::Refused {
        refusal,
        name,
        member,
        cluster,
        disk,
        reason,
    } = error
    else {
        return None;
    };
    let itself = *refusal == refused
        && *member == peer
        && *cluster == known.cluster_id
        && known.judge_disk(*member, name, disk).is_ok();
    itself.then_some(reason)
}

/// Whether the server that answered is the dialled one, on its own disk.
pub(crate) fn check_reply(known: &Known, to: u64, reply: &Reply) -> Result<(), DialError> {
    let refused = |refusal, reason: String| DialError::ours(reply, refusal, &reason);
    if reply.format != FORMAT {
        let reason = format!("it speaks links of format {}", reply.format);
        return Err(refused(Refusal::Format, reason));
    }
    if reply.cluster_id != known.cluster_id {
        let reason = format!(
            "cluster ID mismatch: it belongs to cluster {:x}, this server to {:x}",
            reply.cluster_id, known.cluster_id
        );
        return Err(refused(Refusal::Cluster, reason));
    }
    if reply.member_id != to {
        let reason = format!("member {to:x} was expected at this address");
        return Err(refused(Refusal::Member, reason));
    }
    known
        .judge_disk(to, &reply.name, &reply.disk_uuid)
        .and_then(|()| {
            let shown = reply.starts.as_ref();
            known.judge_start(to, &reply.name, &reply.disk_uuid, shown)
        })
        .map_err(|(refusal, reason)| refused(refusal, reason))
}
