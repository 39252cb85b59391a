//! Checkpoints between members, each on its own connection: chunk by chunk, with bounded memory, at
//! a bounded rate, one at a time in either direction.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::MemberRuntime;
use crate::disk::{self, CheckpointInfo, Checkpoints, Class, Position};
use crate::node::{CheckpointMeta, Input};
use crate::persist::{self, ReceivedCheckpoint, WholeCheckpoint};
use crate::server::core::{open, persist_stop};
use crate::server::link::Io;
use crate::server::link::dial::{DialError, within};
use crate::server::link::frame::{self, FRAME_LIMIT, HELLO_LIMIT};
use crate::server::link::hello::{CheckpointDone, CheckpointHead, CheckpointPart, Purpose};
use crate::server::link::outbound::{Listener, check_reply};
use crate::server::listen::quiet::Quiet;
use crate::server::metrics::peers::Way;

/// Bytes a second at most, so that a joiner does not slow down all others.
const RATE: f64 = 128.0 * 1024.0 * 1024.0;
/// Time for one frame, and for the receiver's last sync.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limits the log lines about refused checkpoints.
static REFUSED: Quiet = Quiet::new();

/// Sends the checkpoint of `index` to a member.
pub(super) async fn send(
    local: &MemberRuntime,
    to: u64,
    term: u64,
    index: u64,
) -> Result<(), DialError> {
    let _one = local.sending.acquire().await.map_err(Error::other)?;
    let saver = local.saver.get().cloned().ok_or_else(not_running)?;
    let mut reader = blocking(move || {
        let position = find(saver.checkpoints(), index)?;
        WholeCheckpoint::open(saver.checkpoints(), position)
    })
    .await?;
    let endpoints = local.endpoints(to);
    let endpoint = endpoints
        .first()
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "it has no peer URL"))?;
    let hello = local.hello(to, Purpose::Checkpoint);
    let (mut io, reply) = local.dialler.greet(endpoint, &hello).await?;
    check_reply(&local.known(), to, &reply)?;
    let position = reader.info().position;
    let head = CheckpointHead {
        leader_term: term,
        index: position.index,
        term: position.term,
        meta: reader.meta().clone(),
    };
    patiently(frame::write(&mut io, &head)).await?;
    let bytes = reader.info().bytes;
    tracing::info!(to = %format!("{to:x}"), index, bytes, "sending a checkpoint");
    let (begun, mut sent, mut chunks) = (Instant::now(), 0_usize, 0_u64);
    loop {
        let (back, chunk) = blocking(move || {
            let chunk = reader.next_chunk()?;
            Ok((reader, chunk))
        })
        .await?;
        reader = back;
        let Some(chunk) = chunk else { break };
        (sent, chunks) = (sent + chunk.len(), chunks + 1);
        let part = CheckpointPart { chunk, end: 0 };
        patiently(frame::write(&mut io, &part)).await?;
        // The precision of a float suffices for a rate.
        let due = Duration::from_secs_f64(sent as f64 / RATE);
        sleep(due.saturating_sub(begun.elapsed())).await;
    }
    let end = CheckpointPart {
        chunk: Bytes::new(),
        end: chunks + 1,
    };
    patiently(frame::write(&mut io, &end)).await?;
    let done: Option<CheckpointDone> = patiently(frame::read(&mut io, HELLO_LIMIT)).await?;
    match done {
        Some(done) if done.ok => {
            tracing::info!(to = %format!("{to:x}"), index, chunks, "the checkpoint arrived");
            Ok(())
        }
        Some(done) => Err(Error::other(format!("the receiver reports: {}", done.error)).into()),
        None => Err(Error::from(ErrorKind::UnexpectedEof).into()),
    }
}

/// Receives a checkpoint and notifies the raft thread once it is durable.
pub(super) async fn receive(local: &MemberRuntime, from: u64, mut io: Io) -> Result<(), Error> {
    let result = Box::pin(take(local, from, &mut io)).await;
    let done = CheckpointDone {
        ok: result.is_ok(),
        error: result
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default(),
    };
    within("the answer", frame::write(&mut io, &done)).await?;
    if let Err(error) = result {
        let from = format!("{from:x}");
        match REFUSED.line(std::time::Instant::now()) {
            None => tracing::debug!(%from, "cannot receive a checkpoint: {error}"),
            Some(more) => tracing::warn!(%from, more, "cannot receive a checkpoint: {error}"),
        }
    }
    Ok(())
}

/// Only the leader that this member follows may send a checkpoint, since it fills the disk. This
/// member may learn only at the next tick that the sender leads.
async fn is_from_the_leader(local: &MemberRuntime, from: u64) -> Result<(), Error> {
    let follows = async {
        loop {
            let consensus = local.shared.consensus.load().as_ref().clone();
            if consensus.is_some_and(|it| it.raft.leader == Some(from)) {
                return Ok(());
            }
            sleep(local.config.heartbeat / 2).await;
        }
    };
    // Its first message of this term is on its way: at most a heartbeat behind.
    timeout(local.config.election, follows)
        .await
        .unwrap_or_else(|_| {
            let text = "whoever sends it is not the leader that this member follows";
            Err(Error::new(ErrorKind::PermissionDenied, text))
        })
}

async fn take(local: &MemberRuntime, from: u64, io: &mut Io) -> Result<(), Error> {
    is_from_the_leader(local, from).await?;
    // Others are refused, and count for nothing.
    let told = local.shared.metrics.peers.checkpoint(from, Way::Receive);
    let only = Arc::clone(&local.receiving)
        .try_acquire_owned()
        .map_err(|_| Error::other("another checkpoint is being received"))?;
    let saver = local.saver.get().cloned().ok_or_else(not_running)?;
    let head: Option<CheckpointHead> = patiently(frame::read(io, FRAME_LIMIT)).await?;
    let head = head.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?;
    let meta = CheckpointMeta::read(&head.meta)
        .map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    let cluster = local.who().cluster_id;
    if meta.membership.cluster_id != cluster || (meta.index, meta.term) != (head.index, head.term) {
        let text = format!(
            "a checkpoint of cluster {:x} at {}, where one of {cluster:x} at {} was announced",
            meta.membership.cluster_id, meta.index, head.index
        );
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    tracing::info!(from = %format!("{from:x}"), index = head.index, "receiving a checkpoint");
    let position = Position {
        index: head.index,
        term: head.term,
    };
    let description = head.meta.clone();
    // Writes in the meantime need the next segments of the log.
    let spare = 2 * local.log_options().segment_bytes;
    let received = disk_act(local, move || {
        let checkpoint = saver.receive(position, &description, spare)?;
        Ok(Receiving { checkpoint, only })
    })
    .await?;
    let received = parts(local, io, received).await?;
    let info = disk_act(local, move || received.finish()).await?;
    local.shared.report(Input::SnapshotReceived {
        from,
        term: head.leader_term,
        checkpoint: open::info(info),
        meta: meta.snapshot(),
    });
    told.done();
    Ok(())
}

/// A checkpoint that is being received, and the right to be the only one. A connection that ends does not end what is
/// written for it at that moment: the next one, which may have the same name, begins after that.
struct Receiving {
    checkpoint: ReceivedCheckpoint,
    /// Released after what was received is removed: fields are dropped in their order.
    only: OwnedSemaphorePermit,
}

impl Receiving {
    fn finish(self) -> Result<CheckpointInfo, persist::Error> {
        let Self { checkpoint, only } = self;
        let info = checkpoint.finish();
        drop(only);
        info
    }
}

async fn parts(
    local: &MemberRuntime,
    io: &mut Io,
    mut received: Receiving,
) -> Result<Receiving, Error> {
    loop {
        let part: Option<CheckpointPart> = patiently(frame::read(io, FRAME_LIMIT)).await?;
        let part = part.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?;
        if part.end > 0 {
            if part.end != received.checkpoint.chunks() + 1 {
                return Err(Error::new(ErrorKind::InvalidData, "chunks are missing"));
            }
            return Ok(received);
        }
        received = disk_act(local, move || {
            received.checkpoint.chunk(&part.chunk)?;
            Ok(received)
        })
        .await?;
    }
}

fn find(checkpoints: &Checkpoints, index: u64) -> disk::Result<Position> {
    let all = checkpoints.list()?;
    let wanted = all.iter().copied().find(|position| position.index == index);
    wanted.ok_or_else(|| disk::Error::Misuse(format!("there is no checkpoint of {index} any more")))
}

/// Writes to this disk: a failure of it ends the server, unless the disk is full. The data on disk stays
/// intact then, and the sender retries, as it does if it sent what is no checkpoint.
async fn disk_act<T: Send + 'static>(
    local: &MemberRuntime,
    act: impl FnOnce() -> Result<T, persist::Error> + Send + 'static,
) -> Result<T, Error> {
    let error = match spawn_blocking(act).await.map_err(Error::other)? {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let text = error.to_string();
    let stop = match (error, local.saver.get().cloned()) {
        (error @ persist::Error::Disk(_), Some(saver)) if error.class() == Class::DiskFull => {
            // How large it is, only its sender knows.
            let room = spawn_blocking(move || saver.checkpoints().make_room(0)).await;
            room.map_err(Error::other)?.err().map(Into::into)
        }
        // A part that is longer than any.
        (error, _) if error.class() == Class::Bug => None,
        (error @ persist::Error::Disk(_), _) => Some(error),
        (persist::Error::Restore { .. } | persist::Error::Value(_), _) => None,
    };
    if let Some(error) = stop {
        local.shared.stop(persist_stop(&error));
    }
    Err(Error::other(text))
}

/// Reads from this disk: a failure is returned.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, persist::Error> + Send + 'static,
) -> Result<T, Error> {
    let result = spawn_blocking(act).await.map_err(Error::other)?;
    result.map_err(|error| Error::other(error.to_string()))
}

async fn patiently<T>(step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(PATIENCE, step)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "no progress for 60 s")))
}

fn not_running() -> Error {
    Error::new(ErrorKind::NotConnected, "this member does not run yet")
}

#[cfg(test)]
#[path = "checkpoint_test.rs"]
mod tests;
