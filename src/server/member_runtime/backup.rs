//! `quorate.v1.Backup` on the peer port: this member's state as a file that a backup reads. Every call was
//! authenticated before it arrives here. Never changes the member.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::backup_entries::Entries;
use super::backup_file::{self, Abandoned, Slot};
use super::{MemberRuntime, backup_tail, lock};
use crate::server::core::handle::{Health, Phase, Published, Role};
use crate::server::etcd::VERSION;
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::server::operator_api::backup_client::READ;
use crate::wire::member as proto;
use crate::wire::member::backup_server::{Backup, BackupServer};

/// How long a quorum is waited for: by a question about this member, and before its state is written.
const ASKED: Duration = Duration::from_secs(2);
const CONFIRMED: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
/// A member that has run for so long and knows no leader has lost its quorum.
const SETTLE: Duration = Duration::from_secs(10);
/// How long a call waits for a file that grows, and for one that is written as fast as the disk can.
const POLL: Duration = Duration::from_secs(20);
const UNPACED: Duration = Duration::from_secs(12 * 3600);
/// Calls that read at the same time: each holds a piece in memory until it is sent.
const READERS: usize = 4;

/// The service, for callers with the key of backups.
pub(super) fn service(
    local: Arc<MemberRuntime>,
    verifier: &Verifier,
) -> Verified<BackupServer<Service>> {
    let settle = SETTLE.max(10 * local.config.election);
    let service = Service {
        local,
        held: Arc::default(),
        opening: Arc::new(Semaphore::new(1)),
        reading: Semaphore::new(READERS),
        entries: Entries::default(),
        started: Instant::now(),
        settle,
    };
    Verified::new(BackupServer::new(service), verifier.for_backups())
}

pub(super) struct Service {
    local: Arc<MemberRuntime>,
    held: Slot,
    opening: Arc<Semaphore>,
    reading: Semaphore,
    entries: Entries,
    started: Instant,
    settle: Duration,
}

#[tonic::async_trait]
impl Backup for Service {
    async fn standing(
        &self,
        _: Request<proto::StandingRequest>,
    ) -> Result<Response<proto::StandingResponse>, Status> {
        let (refused, confirmed) = match self.state(ASKED).await {
            Ok((_, confirmed)) => (String::new(), confirmed),
            Err(why) => (why, false),
        };
        let status = self.local.shared.status();
        Ok(Response::new(proto::StandingResponse {
            version: VERSION.to_owned(),
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            // A leader that answers nobody is none.
            leader_id: status.leader * u64::from(confirmed),
            commit: status.commit,
            applied: status.applied,
            learner: status.role == Role::Learner,
            refused,
        }))
    }

    async fn open(
        &self,
        request: Request<proto::OpenRequest>,
    ) -> Result<Response<proto::OpenResponse>, Status> {
        let asked = request.into_inner();
        if let Some(tail) = &asked.tail {
            // Sooner than a quorum can be missed.
            backup_tail::described(&self.local, tail)?;
        }
        let busy = "another backup is reading this member: try another one, or later";
        // First: two would each apply the end of the log.
        let one = Arc::clone(&self.opening).try_acquire_owned();
        let mut one = one.map_err(|_| Status::resource_exhausted(busy))?;
        let state = self.state(CONFIRMED).await;
        let (mut published, confirmed) = state.map_err(Status::failed_precondition)?;
        if let Some(tail) = &asked.tail {
            if confirmed || backup_tail::leads(&self.local) {
                return Err(backup_tail::quorum());
            }
            (published, one) = backup_tail::state(&self.local, tail, (published, one)).await?;
        }
        if lock(&self.held).is_some() {
            return Err(Status::resource_exhausted(busy));
        }
        let about = proto::OpenResponse {
            file: self.local.handle.unique(),
            tail: asked.tail.is_some(),
            last_term: published.term,
            last_index: published.applied,
            ..proto::OpenResponse::default()
        };
        let (number, rate) = (about.file, asked.rate);
        let directory = self.local.config.data_dir.clone();
        backup_file::begin(&self.held, published, (about.clone(), rate), directory, one);
        tracing::info!(
            last_index = about.last_index,
            tail = about.tail,
            rate,
            "a backup reads this member"
        );
        if rate > 0 {
            let growing = true;
            return Ok(Response::new(proto::OpenResponse { growing, ..about }));
        }
        let mut abandoned = Abandoned {
            slot: Arc::clone(&self.held),
            number,
            done: false,
        };
        let opened = backup_file::wait(&self.held, number, UNPACED).await?;
        abandoned.done = true;
        Ok(Response::new(opened))
    }

    async fn wait(
        &self,
        request: Request<proto::WaitRequest>,
    ) -> Result<Response<proto::OpenResponse>, Status> {
        let number = request.into_inner().file;
        let opened = backup_file::wait(&self.held, number, POLL).await?;
        Ok(Response::new(opened))
    }

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<proto::ReadResponse>, Status> {
        let asked = request.into_inner();
        let _one = self.reading.acquire().await;
        let file = {
            let mut held = lock(&self.held);
            let held = held.as_mut().filter(|held| held.number == asked.file);
            let held = held.ok_or_else(backup_file::given_up)?;
            let whole = held.whole().ok_or_else(|| {
                Status::failed_precondition("the file is still being written: Wait for it")
            })??;
            let end = asked.offset.checked_add(asked.length);
            let some = (1..=READ).contains(&asked.length);
            if !some || end.is_none_or(|end| end > whole.length) {
                return Err(Status::out_of_range(
                    "not in the file, nothing, or more than 1 MiB",
                ));
            }
            held.used = Instant::now();
            whole.file
        };
        let read = tokio::task::spawn_blocking(move || {
            // At most `READ`.
            let mut data = vec![0; asked.length as usize];
            file.read_exact_at(&mut data, asked.offset)?;
            Ok::<_, std::io::Error>(data)
        });
        let read = read
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        let data = read.map_err(|error| Status::internal(format!("cannot read back: {error}")))?;
        Ok(Response::new(proto::ReadResponse {
            data: Bytes::from(data),
        }))
    }

    async fn close(
        &self,
        request: Request<proto::CloseRequest>,
    ) -> Result<Response<proto::CloseResponse>, Status> {
        let number = request.into_inner().file;
        backup_file::close(&self.held, number).await;
        Ok(Response::new(proto::CloseResponse {}))
    }

    async fn entries(
        &self,
        request: Request<proto::EntriesRequest>,
    ) -> Result<Response<proto::EntriesResponse>, Status> {
        let local = &self.local;
        let refused = || match refusal(local, &local.handle.published()) {
            Some(why) => Err(Status::failed_precondition(why)),
            None => Ok(()),
        };
        refused()?;
        let answer = self.entries.read(local, request.into_inner()).await?;
        // It may have been removed, or found corrupt, meanwhile.
        refused()?;
        Ok(Response::new(answer))
    }
}

impl Service {
    /// The state to give, and whether a quorum has confirmed that it holds everything that was committed before. Without
    /// a quorum it is the last one that this member has: the one that is left, when the others are lost.
    async fn state(&self, patience: Duration) -> Result<(Arc<Published>, bool), String> {
        let known = self.local.handle.published();
        if let Some(why) = refusal(&self.local, &known) {
            return Err(why);
        }
        // A leader that changes, or a queue that is full, is no lost quorum.
        let confirmed = tokio::time::timeout(patience, async {
            loop {
                match self.local.handle.linearizable().await {
                    Ok(state) => return state,
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            }
        });
        let (state, confirmed) = match confirmed.await {
            Ok(state) => (state, true),
            // Committed entries of its own log, which no leader has confirmed yet, would be missing.
            _ if self.started.elapsed() < self.settle => {
                return Err(
                    "this member has just started, and no leader has confirmed its data yet"
                        .to_owned(),
                );
            }
            _ => (self.local.handle.published(), false),
        };
        // It may have been removed, or found corrupt, meanwhile.
        match refusal(&self.local, &state) {
            Some(why) => Err(why),
            None => Ok((state, confirmed)),
        }
    }
}

/// Why a snapshot of this member would be none of its cluster's data.
fn refusal(local: &MemberRuntime, published: &Published) -> Option<String> {
    let status = local.shared.status();
    let membership = &published.membership;
    let outside = membership.is_removed(status.member_id);
    if status.phase != Phase::Member || outside {
        return Some("this server is not a member yet, or no more".to_owned());
    }
    // Its store is empty until its checkpoint is read, and must not pass for the cluster's.
    if membership.cluster_id == 0 {
        return Some("this member has just started and has not read its data yet".to_owned());
    }
    if local.handle.held() {
        return Some("this member's data have not been compared with the others' yet".to_owned());
    }
    let corrupt = local.shared.is_corrupt(status.member_id);
    match (corrupt, local.handle.live()) {
        (true, _) => Some("the alarm CORRUPT is raised for this member".to_owned()),
        (false, Health::Not(why)) => Some(why),
        (false, Health::Ok) => None,
    }
}
