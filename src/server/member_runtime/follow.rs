//! `quorate.v1.Follow` on the peer port: the writes of a followed cluster, as whoever reads its watch brings them. Every
//! call was authenticated before it arrives here. Never reads the followed cluster, and never decides when it is left.

use std::sync::Arc;
use std::time::Instant;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::MemberRuntime;
use crate::server::core::handle::{Published, QUOTA_IS_USED_UP, RequestError};
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::server::operator_api::follow_client::STEP;
use crate::store::{self, Error as StoreError, Follow as Step, Operation, Overview, Revision};
use crate::wire::member as proto;
use crate::wire::member::follow_server::{Follow, FollowServer};

/// Longest text that is kept of what is told, in bytes.
const MOST_PROBLEM: usize = 1024;

/// The service, for callers with the key of a following.
pub(super) fn service(
    local: Arc<MemberRuntime>,
    verifier: &Verifier,
) -> Verified<FollowServer<Service>> {
    let service = FollowServer::new(Service { local });
    // The verifier bounds the call before this does.
    let service = service.max_decoding_message_size(2 * STEP);
    Verified::new(service, verifier.for_follow())
}

pub(super) struct Service {
    local: Arc<MemberRuntime>,
}

#[tonic::async_trait]
impl Follow for Service {
    async fn position(
        &self,
        request: Request<proto::PositionRequest>,
    ) -> Result<Response<proto::PositionResponse>, Status> {
        let asked = request.into_inner();
        let published = self.local.handle.linearizable().await;
        let published = published.map_err(|error| status(&error))?;
        let hash = match asked.hash_revision {
            0 => 0,
            revision => hash(&published, revision).await?,
        };
        let view = &published.view;
        let who = self.local.handle.status();
        Ok(Response::new(proto::PositionResponse {
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            following: described(&self.local, &view.overview()),
            revision: view.revision(),
            compact_revision: view.compacted(),
            leases: view.leases().iter().map(|lease| lease.id).collect(),
            auth_revision: view.auth().revision(),
            hash,
        }))
    }

    async fn advance(
        &self,
        request: Request<proto::AdvanceRequest>,
    ) -> Result<Response<proto::AdvanceResponse>, Status> {
        let proto::AdvanceRequest { step, told } = request.into_inner();
        if let Some(told) = told {
            self.note(told)?;
        }
        if step.is_empty() {
            let revision = self.local.handle.latest().overview.revision();
            return Ok(Response::new(proto::AdvanceResponse { revision }));
        }
        let step = Step::decode(&step[..])
            .map_err(|error| Status::invalid_argument(format!("this is no step: {error}")))?;
        let revision = self.propose(step).await?;
        Ok(Response::new(proto::AdvanceResponse { revision }))
    }
}

impl Service {
    fn note(&self, told: proto::Following) -> Result<(), Status> {
        if told.problem.len() > MOST_PROBLEM {
            return Err(Status::out_of_range("the text is too long"));
        }
        let shared = &self.local.shared;
        let told = Arc::new((told, Instant::now()));
        shared.following.store(Some(told));
        Ok(())
    }

    async fn propose(&self, step: Step) -> Result<Revision, Status> {
        let (handle, limits) = (&self.local.handle, &self.local.config.limits);
        let cluster = step.source;
        let command = store::Command::from(Operation::Follow(step));
        let limits = store::Limits {
            quota_bytes: limits.quota_bytes.unwrap_or(0),
            ..store::Limits::default()
        };
        let latest = handle.latest();
        // Nothing of it gets into the log of a cluster that follows none, or another one.
        if latest.overview.following().map(|it| it.source) != Some(cluster) {
            return Err(status(&StoreError::NotFollowed { cluster }.into()));
        }
        if let Err(error) = store::check(&command, &limits, &latest.overview) {
            if error == StoreError::NoSpace {
                handle.raise_no_space(QUOTA_IS_USED_UP).await;
            }
            return Err(status(&error.into()));
        }
        match handle.propose(command).await {
            Ok((response, _)) => Ok(response.revision()),
            Err(error) => Err(status(&error)),
        }
    }
}

/// What this cluster follows, and what this member was told of it.
pub(super) fn described(local: &MemberRuntime, overview: &Overview) -> Option<proto::Following> {
    let following = overview.following()?;
    let told = local.shared.following.load();
    let (told, told_ms) = match told.as_deref() {
        Some((told, at)) => (told.clone(), at.elapsed().as_millis().max(1)),
        None => (proto::Following::default(), 0),
    };
    Some(proto::Following {
        source_cluster: following.source,
        frozen_unix_ms: following.frozen_unix_ms,
        attempt: following.attempt,
        told_ms: u64::try_from(told_ms).unwrap_or(u64::MAX),
        ..told
    })
}

/// etcd's HashKV, on a thread that may take its time.
async fn hash(published: &Published, revision: Revision) -> Result<u32, Status> {
    let view = Arc::clone(&published.view);
    let hashed = tokio::task::spawn_blocking(move || view.hash_kv(revision)).await;
    let hashed = hashed.map_err(|error| Status::internal(error.to_string()))?;
    let hashed = hashed.map_err(|error| match error {
        StoreError::Value(_) => Status::unavailable(error.to_string()),
        error => Status::out_of_range(error.to_string()),
    })?;
    Ok(hashed.hash)
}

/// DATA_LOSS is for good, RESOURCE_EXHAUSTED until there is space; after anything else the position says how to go on.
fn status(error: &RequestError) -> Status {
    let text = error.to_string();
    match error {
        RequestError::Store(StoreError::NoSpace) => Status::resource_exhausted(text),
        RequestError::Store(
            StoreError::FollowGap { .. }
            | StoreError::NotFollowed { .. }
            | StoreError::FollowSuperseded
            | StoreError::FollowIncomplete,
        ) => Status::aborted(text),
        RequestError::Store(StoreError::Corrupt) => Status::unavailable(text),
        RequestError::Store(_) => Status::data_loss(text),
        RequestError::TooLarge => Status::data_loss(
            "a step is larger than one entry may be here, because of a large key or of a low --max-request-bytes: raise that, to 1 MiB at least",
        ),
        _ => Status::unavailable(text),
    }
}
