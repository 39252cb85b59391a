//! `quorate.v1.Restore` on the peer port: the snapshot that a standby founds a cluster from. Every call was
//! authenticated before it arrives here. Never founds a cluster: only the operator's Bootstrap does.

use std::sync::Arc;
use std::time::Instant;

use tonic::{Request, Response, Status};

use super::staging::{Checked, Known, Staging, StagingError};
use super::{MemberRuntime, lock};
use crate::server::core::handle::Phase;
use crate::server::flags::config::Formation;
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::wire::member as proto;
use crate::wire::member::restore_server::{Restore, RestoreServer};

/// The service, for callers with the key of restores.
pub(super) fn service(
    local: Arc<MemberRuntime>,
    verifier: &Verifier,
) -> Verified<RestoreServer<Service>> {
    let service = RestoreServer::new(Service { local });
    Verified::new(service, verifier.for_restores())
}

pub(super) struct Service {
    local: Arc<MemberRuntime>,
}

#[tonic::async_trait]
impl Restore for Service {
    async fn prospect(
        &self,
        _: Request<proto::ProspectRequest>,
    ) -> Result<Response<proto::ProspectResponse>, Status> {
        let refused = refusal(&self.local).unwrap_or_default();
        let staged = described(&self.local);
        Ok(Response::new(proto::ProspectResponse { refused, staged }))
    }

    async fn begin(
        &self,
        request: Request<proto::BeginRequest>,
    ) -> Result<Response<proto::BeginResponse>, Status> {
        let proto::BeginRequest {
            sha256,
            length,
            source_cluster,
        } = request.into_inner();
        let begun = self.alone(move |staging| {
            let received = staging.begin(&sha256, length, source_cluster)?;
            tracing::info!(%sha256, length, received, "a snapshot is received");
            Ok(received)
        });
        let received = begun.await?;
        Ok(Response::new(proto::BeginResponse { received }))
    }

    async fn write(
        &self,
        request: Request<proto::WriteRequest>,
    ) -> Result<Response<proto::WriteResponse>, Status> {
        let asked = request.into_inner();
        let written =
            self.alone(move |staging| staging.write(&asked.sha256, asked.offset, &asked.data));
        let received = written.await?;
        Ok(Response::new(proto::WriteResponse { received }))
    }

    async fn finish(
        &self,
        request: Request<proto::FinishRequest>,
    ) -> Result<Response<proto::FinishResponse>, Status> {
        let proto::FinishRequest { sha256, expected } = request.into_inner();
        let expected = expected.map(|expected| Checked {
            revision: expected.revision,
            keys: expected.keys,
            hash: expected.hash,
        });
        let finished = self.alone(move |staging| {
            let checked = staging.finish(&sha256, expected)?;
            let (revision, keys) = (checked.revision, checked.keys);
            tracing::info!(%sha256, revision, keys, "a snapshot is complete");
            Ok(checked)
        });
        let checked = finished.await?;
        Ok(Response::new(proto::FinishResponse {
            revision: checked.revision,
            keys: checked.keys,
            hash: checked.hash,
        }))
    }
}

impl Service {
    /// Does something with the staged snapshot, on a thread that may wait for the disk. The snapshot stays locked until
    /// that ends, whether or not the caller still waits.
    async fn alone<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Staging) -> Result<T, StagingError> + Send + 'static,
    ) -> Result<T, Status> {
        let staging = Arc::clone(&self.local.staging).try_lock_owned();
        let mut staging = staging.map_err(|_| busy())?;
        // Whoever makes this server a member holds the lock until it is one.
        if let Some(why) = refusal(&self.local) {
            return Err(Status::failed_precondition(why));
        }
        let done = tokio::task::spawn_blocking(move || act(&mut staging)).await;
        let done = done.map_err(|error| Status::internal(error.to_string()))?;
        done.map_err(|error| status(&error))
    }
}

/// Another call uses the staged snapshot.
pub(super) fn busy() -> Status {
    Status::unavailable(
        "this server writes or checks a snapshot for another call, or founds a cluster: repeat the call",
    )
}

/// Why this server takes no snapshot.
fn refusal(local: &MemberRuntime) -> Option<String> {
    if !matches!(local.config.formation, Formation::AwaitMembership { .. }) {
        return Some(
            "this server forms its cluster by its flags: `quorate restore` makes its data directory from a snapshot".to_owned(),
        );
    }
    let empty = "a snapshot is for an empty standby";
    let identity = local.identity();
    let cluster = identity.cluster_id;
    match local.phase() {
        Phase::Standby if cluster == 0 && !local.is_founding() => None,
        Phase::Standby => Some(format!(
            "this server founds a cluster or joins one: {empty}"
        )),
        Phase::Joining => Some(format!(
            "this server joins the cluster {cluster:x}: {empty}"
        )),
        Phase::Member => Some(format!(
            "this server is a member of the cluster {cluster:x}: {empty}"
        )),
        Phase::Removed => Some(format!(
            "this server was removed from the cluster {cluster:x}: {empty}"
        )),
    }
}

/// The gRPC status of an error.
pub(super) fn status(error: &StagingError) -> Status {
    let text = error.to_string();
    match error {
        StagingError::Invalid(_) => Status::invalid_argument(text),
        // Another code than that of a server that takes none.
        StagingError::Other(_) => Status::aborted(text),
        StagingError::Range { .. } => Status::out_of_range(text),
        StagingError::Space { .. } => Status::resource_exhausted(text),
        StagingError::Unusable(_) => Status::data_loss(text),
        StagingError::Disk { .. } | StagingError::Closed => Status::internal(text),
    }
}

/// The staged snapshot, as a standby describes it.
pub(super) fn described(local: &MemberRuntime) -> Option<proto::StagedSnapshot> {
    if local.phase() != Phase::Standby {
        return None;
    }
    let Known { staged, problem } = lock(&local.staged).clone();
    let Some(staged) = staged else {
        // What was here was dropped, and nobody else may have been told why.
        let told = !problem.is_empty();
        let nothing = proto::StagedSnapshot {
            problem,
            ..proto::StagedSnapshot::default()
        };
        return told.then_some(nothing);
    };
    let (elapsed_ms, resumed_at) = staged.progress(Instant::now());
    let checked = staged.checked();
    Some(proto::StagedSnapshot {
        sha256: staged.sha256().to_owned(),
        length: staged.length(),
        received: staged.received(),
        complete: checked.is_some(),
        revision: checked.map_or(0, |checked| checked.revision),
        keys: checked.map_or(0, |checked| checked.keys),
        elapsed_ms,
        resumed_at,
        problem,
        hash: checked.map_or(0, |checked| checked.hash),
        source_cluster: staged.source(),
    })
}
