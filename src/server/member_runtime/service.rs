//! `quorate.v1` on the peer port: the calls of an operator to this server, which work without a
//! quorum as well. Every call was authenticated before it arrives here.

use std::sync::Arc;
use std::sync::PoisonError;

use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::epochs::Epochs;
use super::found::Founding;
use super::held::Held;
use super::start::retire;
use super::{Happening, MemberRuntime, access, alarmed, backup, follow, restore};
use crate::disk::{self, LogReader};
use crate::node::{ChangeKind, MemberRecord, MemberStatus, MembershipError};
use crate::server::core::handle::{Fence, Health, MembershipRequest, Phase, RequestError, Role};
use crate::server::flags::url::Endpoint;
use crate::server::operator_api::auth::{Verified, Verifier};
use crate::server::operator_api::held_call::DIGEST;
use crate::server::process::start::endpoints_are_withdrawn;
use crate::server::tls::ports::PortSecurity;
use crate::store::{Alarm, AlarmKind};
use crate::wire::member as proto;

/// The services of `quorate.v1` as a router for the peer port.
pub(super) fn router(local: Arc<MemberRuntime>, verifier: Verifier) -> axum::Router {
    let backup = backup::service(Arc::clone(&local), &verifier);
    let restore = restore::service(Arc::clone(&local), &verifier);
    let follow = follow::service(Arc::clone(&local), &verifier);
    let epochs = Arc::new(Epochs::new(Arc::clone(&local)));
    let access = access::service(Arc::clone(&local), Arc::clone(&epochs), &verifier);
    let service = proto::member_server::MemberServer::new(Service {
        local,
        epochs,
        held: Held::default(),
    });
    let routes = tonic::service::Routes::new(Verified::new(service, verifier));
    routes
        .add_service(backup)
        .add_service(restore)
        .add_service(follow)
        .add_service(access)
        .into_axum_router()
}

struct Service {
    local: Arc<MemberRuntime>,
    epochs: Arc<Epochs>,
    held: Held,
}

#[tonic::async_trait]
impl proto::member_server::Member for Service {
    async fn describe(
        &self,
        request: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        let request = request.into_inner();
        if request.epoch > 0 {
            // The description is returned whatever the epoch; calls that change something with an
            // older epoch are refused from now on.
            drop(self.epochs.heard(request.epoch));
        }
        if request.linearizable {
            self.local.handle.settled().await.map_err(status)?;
        }
        let describe = || {
            let mut description = describe(&self.local);
            description.epoch = description.epoch.max(self.epochs.newest());
            description
        };
        let description = self.held.describe(&request, describe).await;
        let digest = description.digest;
        let mut response = Response::new(description);
        if request.known_digest != 0 {
            response.metadata_mut().insert(DIGEST, digest.into());
        }
        Ok(response)
    }

    async fn bootstrap(
        &self,
        request: Request<proto::BootstrapRequest>,
    ) -> Result<Response<proto::BootstrapResponse>, Status> {
        bootstrap(&self.local, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn add_learner(
        &self,
        request: Request<proto::AddLearnerRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        if request.disk_uuid.is_empty() || request.peer_urls.is_empty() {
            return Err(Status::invalid_argument(
                "a learner needs the disk UUID and the peer URLs that its standby describes",
            ));
        }
        let add = MembershipRequest::Add {
            name: request.name,
            peer_urls: request.peer_urls,
            learner: true,
            disk_uuid: Some(request.disk_uuid),
        };
        self.change(add, request.fence).await
    }

    async fn promote(
        &self,
        request: Request<proto::PromoteRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        let promote = MembershipRequest::Promote { id: request.id };
        self.change(promote, request.fence).await
    }

    async fn remove(
        &self,
        request: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        let remove = MembershipRequest::Remove { id: request.id };
        self.change(remove, request.fence).await
    }

    async fn update_peer_urls(
        &self,
        request: Request<proto::UpdatePeerUrlsRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        for url in &request.peer_urls {
            Endpoint::parse(url).map_err(|error| Status::invalid_argument(error.to_string()))?;
        }
        let update = MembershipRequest::Update {
            id: request.id,
            peer_urls: request.peer_urls,
        };
        self.change(update, request.fence).await
    }

    async fn transfer(
        &self,
        request: Request<proto::TransferRequest>,
    ) -> Result<Response<proto::TransferResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.fence.as_ref(), true)?;
        let to = request.to;
        let leader = self.local.handle.move_leader(to).await.map_err(status)?;
        Ok(Response::new(proto::TransferResponse { leader }))
    }

    async fn retire(
        &self,
        request: Request<proto::RetireRequest>,
    ) -> Result<Response<proto::RetireResponse>, Status> {
        // It may be outdated: retiring does not depend on the configuration.
        self.admit(request.into_inner().fence.as_ref(), false)?;
        let leader = retire(&self.local).await;
        // Clients that stay connected would be affected by the removal.
        let shared = Arc::clone(&self.local.shared);
        tokio::spawn(async move {
            endpoints_are_withdrawn().await;
            shared.hang_up();
        });
        Ok(Response::new(proto::RetireResponse { leader }))
    }

    async fn disarm(
        &self,
        request: Request<proto::DisarmRequest>,
    ) -> Result<Response<proto::DisarmResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.fence.as_ref(), true)?;
        match alarmed::disarm(&self.local, request.kind, request.member).await {
            Ok(was_on) => Ok(Response::new(proto::DisarmResponse { was_on })),
            Err(alarmed::Disarm::Refused(refused)) => Err(refused),
            Err(alarmed::Disarm::Failed(error)) => Err(status(error)),
        }
    }
}

impl Service {
    /// The fence of a call that changes something, if neither its epoch nor its configuration index
    /// is outdated. `indexed`: compare the index here, for calls where nothing else does.
    fn admit(&self, fence: Option<&proto::Fence>, indexed: bool) -> Result<proto::Fence, Status> {
        let fence = fence.ok_or_else(|| {
            Status::invalid_argument(
                "a call that changes something needs a fence: the configuration index that it was \
                 decided on, and the caller's epoch",
            )
        })?;
        self.epochs.heard(fence.epoch)?;
        let current = self.membership().configuration_index;
        if indexed && fence.configuration_index != current {
            let error = MembershipError::ConfigurationChanged {
                expected: fence.configuration_index,
                current,
            };
            return Err(refusal(&error, error.to_string()));
        }
        Ok(*fence)
    }

    fn membership(&self) -> Arc<crate::node::Membership> {
        self.local.handle.latest().membership.clone()
    }

    async fn change(
        &self,
        request: MembershipRequest,
        fence: Option<proto::Fence>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        // The index is compared where changes are ordered.
        let fence = self.admit(fence.as_ref(), false)?;
        let fence = Fence {
            configuration_index: Some(fence.configuration_index),
            epoch: Some(fence.epoch),
        };
        let changed = self.local.handle.change_membership(request, fence).await;
        let (id, membership) = changed.map_err(status)?;
        Ok(Response::new(proto::ChangeResponse {
            id,
            configuration_index: membership.configuration_index,
        }))
    }
}

/// Founds a cluster here, or reports that this very call was carried out before.
async fn bootstrap(
    local: &Arc<MemberRuntime>,
    request: proto::BootstrapRequest,
) -> Result<proto::BootstrapResponse, Status> {
    if request.cluster_uid.is_empty() || request.nonce.is_empty() {
        return Err(Status::invalid_argument(
            "cluster UID and nonce must be given",
        ));
    }
    if request.disk_uuid != local.disk_uuid {
        return Err(Status::failed_precondition(format!(
            "the call is for disk {} and this is disk {}: describe the seed again",
            request.disk_uuid, local.disk_uuid
        )));
    }
    let own = local
        .config
        .operated
        .cluster_uid
        .as_deref()
        .unwrap_or_default();
    if !own.is_empty() && own != request.cluster_uid {
        return Err(Status::failed_precondition(format!(
            "this server was started for cluster {own}, not for {}",
            request.cluster_uid
        )));
    }
    let founding = Founding {
        cluster_uid: request.cluster_uid,
        incarnation: request.incarnation,
        nonce: request.nonce,
        claim_uid: request.claim_uid,
        snapshot: request.snapshot,
    };
    let identity = local.identity();
    if identity.phase() != disk::Phase::Standby {
        return already(&identity, &founding);
    }
    if local.is_founding() {
        return Err(Status::unavailable(
            "a cluster is being founded here on an earlier call: describe this server, and repeat the call",
        ));
    }
    let (answer, answered) = oneshot::channel();
    let asked = Happening::Bootstrap(Box::new(founding.clone()), answer);
    let sent = local.happenings.send(asked);
    sent.map_err(|_| Status::unavailable("the server is stopping"))?;
    let Ok(answered) = answered.await else {
        // It became a member on another call meanwhile, which may have been the same.
        return already(&local.identity(), &founding);
    };
    let who = answered?;
    Ok(proto::BootstrapResponse {
        cluster_id: who.cluster_id,
        member_id: who.member_id,
        already: false,
    })
}

fn already(
    identity: &disk::Identity,
    request: &Founding,
) -> Result<proto::BootstrapResponse, Status> {
    let same = identity.cluster_uid == request.cluster_uid
        && identity.incarnation == request.incarnation
        && identity.bootstrap_nonce == request.nonce
        && identity.claim_uid == request.claim_uid;
    if !same {
        return Err(Status::failed_precondition(format!(
            "this disk belongs to cluster {:x} already and was not founded by this call",
            identity.cluster_id
        )));
    }
    Ok(proto::BootstrapResponse {
        cluster_id: identity.cluster_id,
        member_id: identity.member_id,
        already: true,
    })
}

fn describe(local: &MemberRuntime) -> proto::DescribeResponse {
    let identity = local.identity();
    let status = local.shared.status();
    let latest = local.handle.latest();
    let membership = &latest.membership;
    let consensus = local.shared.consensus.load();
    let consensus = consensus.as_ref().as_ref();
    let operated = &local.config.operated;
    let (ready, unready_reason) = match local.handle.ready() {
        Health::Ok => (true, String::new()),
        Health::Not(reason) => (false, reason),
    };
    let members = membership.members.values();
    let members = members.map(|member| view(member, status.member_id, consensus));
    let awaiting = matches!(
        local.config.formation,
        crate::server::flags::config::Formation::AwaitMembership { .. }
    );
    let cluster_uid = match identity.cluster_uid.is_empty() {
        true => operated.cluster_uid.clone().unwrap_or_default(),
        false => identity.cluster_uid.clone(),
    };
    let activity = local
        .shared
        .activity
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    proto::DescribeResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: local.config.name.clone(),
        pod_uid: operated.pod_uid.clone().unwrap_or_default(),
        disk_uuid: local.disk_uuid.clone(),
        phase: phase(status.phase).into(),
        disk_empty: identity.phase() == disk::Phase::Standby,
        awaiting,
        nonce: identity.bootstrap_nonce,
        cluster_uid,
        incarnation: identity.incarnation,
        cluster_id: status.cluster_id,
        member_id: status.member_id,
        role: match consensus {
            Some(_) => role(status.role).into(),
            None => proto::Role::Unspecified.into(),
        },
        term: status.term,
        leader_id: status.leader,
        leader_with_quorum: consensus.is_some_and(|consensus| consensus.leader_with_quorum),
        commit: status.commit,
        applied: status.applied,
        configuration_index: membership.configuration_index,
        epoch: membership.epoch,
        members: members.collect(),
        tombstones: membership
            .tombstones
            .iter()
            .map(|stone| proto::Tombstone {
                id: stone.id,
                name: stone.name.clone(),
            })
            .collect(),
        changes: membership
            .changes
            .iter()
            .map(|change| proto::Change {
                index: change.index,
                kind: ChangeKind::name(change.kind()).to_owned(),
                id: change.id,
                name: change.name.clone(),
            })
            .collect(),
        ready,
        unready_reason,
        alarms: latest.overview.alarms().iter().map(in_words).collect(),
        claim_uid: identity.claim_uid,
        activity: activity.clone(),
        last_index: status.last_index,
        revision: latest.overview.revision(),
        db_size: i64::try_from(latest.overview.db_size()).unwrap_or(i64::MAX),
        peer_urls: local.config.advertise_peer_urls.clone(),
        retiring_ms: local.shared.retiring_ms(),
        peer_security: local.shared.ports.peer.get().map(|read| secured(read())),
        client_security: local.shared.ports.client.get().map(|read| secured(read())),
        readable_since: readable_since(local).to_owned(),
        space: alarmed::space(local),
        comparisons: match status.role {
            Role::Leader => alarmed::comparisons(local, status.term),
            _ => Vec::new(),
        },
        staged: restore::described(local),
        last_term: status.last_term,
        last_append_ms: local.log.get().and_then(LogReader::grown_ms).unwrap_or(0),
        archived: local.shared.archived.load().as_deref().cloned(),
        following: follow::described(local, &latest.overview),
        digest: 0,
    }
}

/// The oldest version that can read this member's disk as it is now.
fn readable_since(local: &MemberRuntime) -> &'static str {
    match local.saver.get() {
        Some(saver) => saver.checkpoints().readable_since(),
        None => crate::disk::READABLE_SINCE,
    }
}

fn secured(port: PortSecurity) -> proto::PortSecurity {
    let certificate = port.certificate.as_ref();
    proto::PortSecurity {
        tls: port.tls,
        plaintext_accepted: port.plaintext,
        certificate_sha256: certificate
            .map(|leaf| leaf.sha256.clone())
            .unwrap_or_default(),
        not_before_ms: certificate.map_or(0, |leaf| leaf.not_before_ms),
        not_after_ms: certificate.map_or(0, |leaf| leaf.not_after_ms),
        trusted_sha256: port.trusted,
    }
}

/// etcd's name of the alarm, then its member, if it names one.
fn in_words(alarm: &Alarm) -> String {
    let kind = match alarm.kind {
        AlarmKind::None => "NONE",
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    };
    match alarm.member {
        0 => kind.to_owned(),
        member => format!("{kind} {member:x}"),
    }
}

fn view(member: &MemberRecord, own: u64, consensus: Option<&MemberStatus>) -> proto::MemberView {
    let leads = consensus.filter(|status| status.raft.role == crate::raft::Role::Leader);
    let peer = leads.and_then(|status| status.peers.get(&member.id));
    let itself = leads.filter(|_| member.id == own);
    let matched = itself.map(|status| status.raft.durable_index);
    let (in_sync, reason) = match (itself, peer) {
        (Some(_), _) => (true, String::new()),
        (None, Some(peer)) => (
            peer.behind.is_none(),
            peer.behind.clone().unwrap_or_default(),
        ),
        (None, None) => (false, "this server does not lead".to_owned()),
    };
    let age = match (itself, peer) {
        (Some(_), _) => Some(0),
        (None, Some(peer)) => peer.last_ack_age_ms,
        (None, None) => None,
    };
    proto::MemberView {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        learner: member.learner,
        disk_uuid: member.disk_uuid.clone(),
        match_index: matched.or(peer.map(|peer| peer.matched)).unwrap_or(0),
        last_contact_age_ms: age.map_or(-1, |age| i64::try_from(age).unwrap_or(i64::MAX)),
        in_sync,
        not_in_sync_reason: reason,
        snapshot_pending: peer.is_some_and(|peer| peer.snapshot_pending),
        unsynced_ms: match (itself, peer) {
            (Some(leader), _) => leader.unsynced_ms,
            (None, peer) => peer.map_or(0, |peer| peer.unsynced_ms),
        },
    }
}

fn phase(phase: Phase) -> proto::Phase {
    match phase {
        Phase::Standby => proto::Phase::Standby,
        Phase::Joining => proto::Phase::Joining,
        Phase::Member => proto::Phase::Member,
        Phase::Removed => proto::Phase::Removed,
    }
}

fn role(role: Role) -> proto::Role {
    match role {
        Role::Follower => proto::Role::Follower,
        Role::Candidate => proto::Role::Candidate,
        Role::Leader => proto::Role::Leader,
        Role::Learner => proto::Role::Learner,
    }
}

/// A gRPC status with a code for programs and a text.
fn status(error: RequestError) -> Status {
    let text = error.to_string();
    match error {
        RequestError::Membership(error) => refusal(&error, text),
        RequestError::TooManyRequests => Status::resource_exhausted(text),
        RequestError::NotLeader | RequestError::BadTransferee | RequestError::NotAMember => {
            Status::failed_precondition(text)
        }
        _ => Status::unavailable(text),
    }
}

/// The gRPC status of a refused membership change.
pub(crate) fn refusal(error: &MembershipError, text: String) -> Status {
    match error {
        MembershipError::IdExists
        | MembershipError::PeerUrlExists
        | MembershipError::NameExists
        | MembershipError::DiskInUse { .. } => Status::already_exists(text),
        MembershipError::NotFound | MembershipError::Removed => Status::not_found(text),
        MembershipError::NoPeerUrls => Status::invalid_argument(text),
        MembershipError::ConfigurationChanged { .. } | MembershipError::StaleEpoch { .. } => {
            Status::aborted(text)
        }
        _ => Status::failed_precondition(text),
    }
}
