//! `quorate.v1.Backup` on the peer port: this member's state as a file that a backup reads. Every call was
//! authenticated before it arrives here. Never changes the member.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::{MemberRuntime, lock};
use crate::server::core::handle::{Health, Phase};
use crate::server::core::spool::{SpoolError, spool};
use crate::server::etcd::VERSION;
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::store::AlarmKind;
use crate::wire::member as proto;
use crate::wire::member::backup_server::{Backup, BackupServer};

/// A file that nobody has read for so long is given up.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an answer at most.
const READ: u64 = 1 << 20;

/// The service, for callers with the key of backups.
pub(super) fn service(
    local: Arc<MemberRuntime>,
    verifier: &Verifier,
) -> Verified<BackupServer<Service>> {
    let service = Service {
        local,
        held: Arc::default(),
        opening: Semaphore::new(1),
    };
    Verified::new(BackupServer::new(service), verifier.for_backups())
}

pub(super) struct Service {
    local: Arc<MemberRuntime>,
    held: Arc<Mutex<Option<Held>>>,
    opening: Semaphore,
}

/// The file that a backup reads.
struct Held {
    number: u64,
    file: Arc<File>,
    length: u64,
    used: Instant,
}

#[tonic::async_trait]
impl Backup for Service {
    async fn standing(
        &self,
        _: Request<proto::StandingRequest>,
    ) -> Result<Response<proto::StandingResponse>, Status> {
        let local = &self.local;
        let (status, published) = (local.shared.status(), local.handle.published());
        let own = published.membership.member(status.member_id);
        Ok(Response::new(proto::StandingResponse {
            name: local.config.name.clone(),
            version: VERSION.to_owned(),
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            leader_id: status.leader,
            commit: status.commit,
            applied: status.applied,
            learner: own.is_some_and(|own| own.learner),
            refused: self.refusal().unwrap_or_default(),
        }))
    }

    async fn open(
        &self,
        _: Request<proto::OpenRequest>,
    ) -> Result<Response<proto::OpenResponse>, Status> {
        if let Some(why) = self.refusal() {
            return Err(Status::failed_precondition(why));
        }
        let busy = "another backup is reading this member: try another one, or later";
        let _one = self
            .opening
            .try_acquire()
            .map_err(|_| Status::resource_exhausted(busy))?;
        if lock(&self.held).is_some() {
            return Err(Status::resource_exhausted(busy));
        }
        let spooled = spool(&self.local.handle, self.local.config.data_dir.clone()).await;
        let spooled = spooled.map_err(|error| match error {
            SpoolError::Space { .. } => Status::resource_exhausted(error.to_string()),
            SpoolError::Failed(_) => Status::internal(error.to_string()),
        })?;
        let file = Arc::new(spooled.file);
        let sha256 = digest(Arc::clone(&file), spooled.length).await?;
        let number = self.local.handle.unique();
        *lock(&self.held) = Some(Held {
            number,
            file,
            length: spooled.length,
            used: Instant::now(),
        });
        tokio::spawn(give_up(Arc::downgrade(&self.held), number));
        tracing::info!(bytes = spooled.length, "a backup reads this member");
        Ok(Response::new(proto::OpenResponse {
            file: number,
            length: spooled.length,
            sha256: sha256.into(),
        }))
    }

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<proto::ReadResponse>, Status> {
        let asked = request.into_inner();
        let file = {
            let mut held = lock(&self.held);
            let held = held.as_mut().filter(|held| held.number == asked.file);
            let held = held.ok_or_else(|| {
                Status::not_found("the file was given up: nobody had read it for a minute")
            })?;
            let end = asked.offset.checked_add(asked.length);
            if asked.length > READ || end.is_none_or(|end| end > held.length) {
                return Err(Status::out_of_range("not in the file, or more than 1 MiB"));
            }
            held.used = Instant::now();
            Arc::clone(&held.file)
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
        lock(&self.held).take_if(|held| held.number == number);
        Ok(Response::new(proto::CloseResponse {}))
    }
}

impl Service {
    /// Why a snapshot of this member would be none of its cluster's data.
    fn refusal(&self) -> Option<String> {
        let status = self.local.shared.status();
        if status.phase != Phase::Member {
            return Some("this server is not a member yet, or no more".to_owned());
        }
        let published = self.local.handle.published();
        let corrupt = published.view.alarms().iter().any(|alarm| {
            alarm.kind == AlarmKind::Corrupt
                && (alarm.member == status.member_id || alarm.member == 0)
        });
        match (corrupt, self.local.handle.live()) {
            (true, _) => Some("the alarm CORRUPT is raised for this member".to_owned()),
            (false, Health::Not(why)) => Some(why),
            (false, Health::Ok) => None,
        }
    }
}

/// Drops the file once nobody reads it any more.
async fn give_up(held: Weak<Mutex<Option<Held>>>, number: u64) {
    loop {
        tokio::time::sleep(IDLE / 6).await;
        let Some(held) = held.upgrade() else { return };
        let mut held = lock(&held);
        match held.as_ref().filter(|held| held.number == number) {
            None => return,
            Some(file) if file.used.elapsed() >= IDLE => {
                tracing::warn!("a backup has stopped reading this member");
                *held = None;
                return;
            }
            Some(_) => {}
        }
    }
}

async fn digest(file: Arc<File>, length: u64) -> Result<Vec<u8>, Status> {
    let digest = tokio::task::spawn_blocking(move || {
        let (mut digest, mut offset) = (Sha256::new(), 0);
        let mut buffer = vec![0; READ as usize];
        while offset < length {
            // At most `READ`.
            let piece = (length - offset).min(READ) as usize;
            file.read_exact_at(&mut buffer[..piece], offset)?;
            digest.update(&buffer[..piece]);
            offset += piece as u64;
        }
        Ok::<_, std::io::Error>(digest.finalize().to_vec())
    });
    let digest = digest
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    digest.map_err(|error| Status::internal(format!("cannot read back: {error}")))
}
