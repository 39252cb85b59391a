//! Committed entries of the log for an archive: waits for new ones without a thread, and reads them from the disk on a
//! thread that may wait for it, a small piece at a time. Never returns what is not committed, and keeps nothing from being
//! dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tonic::Status;

use super::MemberRuntime;
use crate::disk::{self, LogReader};
use crate::node::without_tokens;
use crate::raft::Entry;
use crate::server::operator_api::backup_client::{ENTRY, READ};
use crate::wire::member as proto;

/// Calls at the same time, waiting ones included.
const CALLS: usize = 16;
/// Calls that read the disk at the same time.
const READERS: usize = 2;
/// Longest wait for a new entry.
const MOST_WAIT_MS: u64 = 10_000;
/// How long a quorum is waited for.
const CONFIRMED: Duration = Duration::from_secs(2);
/// Longest name of a place that is kept, in bytes.
const MOST_LOCATION: usize = 1024;

/// Bounds what the calls take.
pub(super) struct Entries {
    calls: Semaphore,
    reading: Arc<Semaphore>,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries {
            calls: Semaphore::new(CALLS),
            reading: Arc::new(Semaphore::new(READERS)),
        }
    }
}

impl Entries {
    /// Answers a call.
    pub(super) async fn read(
        &self,
        local: &MemberRuntime,
        asked: proto::EntriesRequest,
    ) -> Result<proto::EntriesResponse, Status> {
        check(&asked)?;
        let busy = "too many archives are reading this member: try another one, or later";
        let one = self.calls.try_acquire();
        let _one = one.map_err(|_| Status::resource_exhausted(busy))?;
        if local.handle.latest().overview.following().is_some() {
            return Err(Status::failed_precondition(
                "this cluster follows another one, which has the archive: its own begins after the cutover",
            ));
        }
        let log = local.log.get().ok_or_else(|| {
            Status::failed_precondition("this member has just started and has not read its log yet")
        })?;
        if let Some(archived) = &asked.archived {
            let archived = Arc::new(archived.clone());
            local.shared.archived.store(Some(archived));
        }
        continues(log, &asked)?;
        wait(local, &asked).await;
        let confirmed = tokio::time::timeout(CONFIRMED, local.handle.linearizable()).await;
        let (applied, confirmed) = match confirmed {
            Ok(Ok(state)) => (state.applied, true),
            _ => (local.handle.latest().applied, false),
        };
        let entries = self.entries(log, &asked, applied).await?;
        continues(log, &asked)?;
        Ok(proto::EntriesResponse {
            entries,
            committed: applied,
            confirmed,
            first: log.first_index(),
        })
    }

    /// Entries up to `applied`, as far as the log has them: what a checkpoint brought is in no log.
    async fn entries(
        &self,
        log: &LogReader,
        asked: &proto::EntriesRequest,
        applied: u64,
    ) -> Result<Vec<proto::LogEntry>, Status> {
        let last = applied.min(log.last_index());
        if asked.from < log.first_index() || asked.from > last {
            return Ok(Vec::new());
        }
        let failed = |why: String| Status::internal(why);
        let permit = Arc::clone(&self.reading).acquire_owned().await;
        let permit = permit.map_err(|error| failed(error.to_string()))?;
        let (log, from, most) = (log.clone(), asked.from, asked.max_bytes);
        let read = tokio::task::spawn_blocking(move || {
            let read = log.read(from, last + 1, most);
            drop(permit);
            read
        });
        match read.await.map_err(|error| failed(error.to_string()))? {
            Ok(entries) => entries.into_iter().map(sent).collect(),
            // It was dropped meanwhile: `first` says so.
            Err(disk::Error::NotInLog { .. }) => Ok(Vec::new()),
            Err(error) => Err(failed(format!("cannot read the log: {error}"))),
        }
    }
}

fn check(asked: &proto::EntriesRequest) -> Result<(), Status> {
    let fits = asked.from > 0
        && asked.from < u64::MAX
        && (1..=READ).contains(&asked.max_bytes)
        && asked.wait_ms <= MOST_WAIT_MS;
    if !fits {
        return Err(Status::out_of_range(
            "from entry 0, no bytes or more than 1 MiB, or a wait of more than 10 s",
        ));
    }
    let location = asked.archived.as_ref().map_or(0, |it| it.location.len());
    match location <= MOST_LOCATION {
        true => Ok(()),
        false => Err(Status::out_of_range("the location is too long")),
    }
}

/// Whether the log goes on from what the caller has.
fn continues(log: &LogReader, asked: &proto::EntriesRequest) -> Result<(), Status> {
    let before = asked.from - 1;
    match log.shape().term(before) {
        Some(term) if asked.term_before != 0 && term != asked.term_before => {
            Err(Status::failed_precondition(format!(
                "entry {before} of this log is of term {term}, and of term {} where it was read before: that was the log of another cluster, or this one has lost its end",
                asked.term_before
            )))
        }
        _ => Ok(()),
    }
}

/// Until there is something new, or the caller has waited for long enough.
async fn wait(local: &MemberRuntime, asked: &proto::EntriesRequest) {
    let mut latest = local.shared.latest.subscribe();
    let new = latest.wait_for(|state| state.applied >= asked.from);
    let patience = Duration::from_millis(asked.wait_ms);
    // Also when the server ends meanwhile.
    let _ = tokio::time::timeout(patience, new).await;
}

/// As it leaves the member: a token that it would make known is still valid.
fn sent(entry: Entry) -> Result<proto::LogEntry, Status> {
    let entry = without_tokens(entry);
    if entry.data.len() as u64 > ENTRY {
        return Err(Status::out_of_range(format!(
            "entry {} has {} bytes, and an archive takes entries of at most {ENTRY}: lower --max-request-bytes, and take a backup",
            entry.index,
            entry.data.len()
        )));
    }
    Ok(proto::LogEntry {
        index: entry.index,
        term: entry.term,
        kind: entry.kind,
        payload: entry.data,
    })
}
