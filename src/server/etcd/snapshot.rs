//! `Snapshot`: the state as etcd's database, spooled to an unlinked file in the data directory and
//! streamed from there. A client that reads slowly or disconnects holds a file and no part of the
//! store; the view is released before the first byte is sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::Stream;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::call::{Services, StreamCall};
use crate::server::core::spool::{Pace, SpoolError, spool};
use crate::server::listen::quiet::Quiet;
use crate::server::operator_api::backup_client::SNAPSHOT_RATE;
use crate::snapshot::STORAGE_VERSION;
use crate::wire::error::EtcdError;
use crate::wire::etcd::SnapshotResponse;

/// Bytes of a message, as in etcd.
const BLOB: usize = 32 << 10;
/// Bytes read from the spool at once.
const BATCH: u64 = 1 << 20;

/// Limits log lines that clients can cause at any rate.
static SENT: Quiet = Quiet::new();
static FAILED: Quiet = Quiet::new();

/// Messages of a snapshot.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<SnapshotResponse, Status>> + Send>>;

/// A snapshot that is being sent.
pub(super) struct Snapshot {
    spool: Arc<File>,
    length: u64,
    /// The offset of the next batch.
    read: u64,
    sent: u64,
    batch: Bytes,
    /// The digest of everything read; taken by the last message.
    digest: Option<Sha256>,
    _one: OwnedSemaphorePermit,
}

/// Ends the writing when the client has gone.
struct Abandoned(Pace);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Bytes a second at which the state is spooled at most, as a client asks for it: 0 without that, as etcd's clients.
pub(super) fn rate(metadata: &MetadataMap) -> u64 {
    let given = metadata
        .get(SNAPSHOT_RATE)
        .and_then(|value| value.to_str().ok());
    given.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Freezes the state and spools it, at `rate` if that is not 0.
pub(super) async fn begin(services: &Services, rate: u64) -> Result<Snapshot, Status> {
    let shared = &services.shared;
    let one = Arc::clone(&shared.snapshots)
        .try_acquire_owned()
        .map_err(|_| EtcdError::TooManyRequests)?;
    let (state, number) = (shared.member.published(), shared.member.unique());
    let pace = Pace::new(rate);
    let abandoned = Abandoned(pace.clone());
    let spooled = spool(state, number, shared.data_dir.clone(), pace, one).await;
    drop(abandoned);
    let (spooled, one) = spooled.map_err(|error| {
        let text = format!("etcdserver: {error}");
        match error {
            SpoolError::Space { .. } => Status::resource_exhausted(text),
            SpoolError::Failed(_) => Status::internal(text),
        }
    })?;
    let length = spooled.length;
    if let Some(left_out) = SENT.line(Instant::now()) {
        tracing::info!(bytes = length, left_out, "sending a snapshot to a client");
    }
    Ok(Snapshot {
        spool: Arc::new(spooled.file),
        length,
        read: 0,
        sent: 0,
        batch: Bytes::new(),
        digest: Some(Sha256::new()),
        _one: one,
    })
}

/// The messages of a snapshot; `call` ends with them.
pub(super) fn stream(snapshot: Snapshot, call: StreamCall) -> Messages {
    let state = Some((snapshot, call));
    Box::pin(futures::stream::unfold(state, |state| async move {
        let (mut snapshot, call) = state?;
        match snapshot.next().await {
            Some(Ok(message)) => {
                call.sent();
                Some((Ok(message), Some((snapshot, call))))
            }
            Some(Err(error)) => Some((Err(call.refuse(error)), None)),
            None => {
                call.finish();
                None
            }
        }
    }))
}

impl Snapshot {
    async fn next(&mut self) -> Option<Result<SnapshotResponse, Status>> {
        if self.batch.is_empty()
            && self.read < self.length
            && let Err(error) = self.fill().await
        {
            if let Some(left_out) = FAILED.line(Instant::now()) {
                tracing::warn!(left_out, "a snapshot cannot be read back: {error}");
            }
            return Some(Err(Status::internal(format!(
                "etcdserver: the snapshot cannot be read back: {error}"
            ))));
        }
        let blob = match self.batch.is_empty() {
            false => self.batch.split_to(self.batch.len().min(BLOB)),
            true => Bytes::copy_from_slice(&self.digest.take()?.finalize()),
        };
        if self.digest.is_some() {
            self.sent += blob.len() as u64;
        }
        Some(Ok(SnapshotResponse {
            header: None,
            remaining_bytes: self.length - self.sent,
            blob,
            version: STORAGE_VERSION.to_owned(),
        }))
    }

    /// Reads the next batch.
    async fn fill(&mut self) -> io::Result<()> {
        let bytes = BATCH.min(self.length - self.read);
        let (spool, offset) = (Arc::clone(&self.spool), self.read);
        let mut digest = self.digest.take().unwrap_or_default();
        let read = tokio::task::spawn_blocking(move || {
            // At most a batch.
            let mut batch = vec![0; bytes as usize];
            spool.read_exact_at(&mut batch, offset)?;
            digest.update(&batch);
            Ok::<_, io::Error>((batch, digest))
        });
        let (batch, digest) = read.await.map_err(io::Error::other)??;
        self.batch = batch.into();
        self.digest = Some(digest);
        self.read += bytes;
        Ok(())
    }
}
