//! The Lease service. Any member answers; renewals and remaining TTLs come from the leader.

use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::call::{Learner, Services, failed, wants_leader};
use super::caller::{Caller, permitted};
use super::kv::mismatched;
use super::watch::Leaderless;
use crate::server::metrics::client::Method;
use crate::server::scheduling::turns;
use crate::store::{self, Operation};
use crate::wire::error::EtcdError;
use crate::wire::etcd::{self, lease_server::Lease};

/// Leases, or keys of one, that are listed without waiting for a turn.
const FEW: u64 = 1000;

#[tonic::async_trait]
impl Lease for Services {
    async fn lease_grant(
        &self,
        request: Request<etcd::LeaseGrantRequest>,
    ) -> Result<Response<etcd::LeaseGrantResponse>, Status> {
        self.unary(
            Method::LeaseGrant,
            Learner::Refused,
            request,
            |request| async move {
                let grant = store::LeaseGrant {
                    id: self.lease_id(request.id),
                    // Chosen values are part of the entry: members must not differ in them.
                    ttl: request.ttl.max(self.shared.least_ttl),
                };
                // One per round of the thread: otherwise the grants of many clients form a batch of
                // their own before each put. Before the place is taken, since no request may hold
                // one while it waits for a turn.
                turns::pass().await;
                // Each waits for the log: limited, so that puts are not behind all of them. The
                // wait gets half of the call's time: the log needs some of it as well.
                let place = self.shared.grants.place(Caller::current().host()).await?;
                let answer = self.propose(Operation::LeaseGrant(grant)).await;
                drop(place);
                // Those of one batch are answered at once, and each client requests the next one: a
                // put waited for all of these twice, to be read and to be answered: 9 ms instead of
                // 0.3.
                turns::pass().await;
                match answer? {
                    store::Response::LeaseGrant(response) => Ok(etcd::LeaseGrantResponse {
                        header: self.header(response.revision),
                        id: response.id,
                        ttl: response.ttl,
                        error: String::new(),
                    }),
                    other => Err(mismatched(&other)),
                }
            },
        )
        .await
    }

    async fn lease_revoke(
        &self,
        request: Request<etcd::LeaseRevokeRequest>,
    ) -> Result<Response<etcd::LeaseRevokeResponse>, Status> {
        self.unary(
            Method::LeaseRevoke,
            Learner::Refused,
            request,
            |request| async move {
                let revoke = store::LeaseRevoke { id: request.id };
                match self.propose(Operation::LeaseRevoke(revoke)).await? {
                    store::Response::LeaseRevoke(response) => Ok(etcd::LeaseRevokeResponse {
                        header: self.header(response.revision),
                    }),
                    other => Err(mismatched(&other)),
                }
            },
        )
        .await
    }

    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<etcd::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<etcd::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let call = self
            .begin(Method::LeaseKeepAlive, request.metadata())
            .await?;
        let leaderless =
            wants_leader(request.metadata()).then(|| Leaderless::new(self.shared.leaderless));
        let caller = Caller::of(request.metadata(), request.extensions());
        let requests = request.into_inner();
        let state = (self.clone(), caller, requests, leaderless, call);
        let stream = futures::stream::unfold(Some(state), |state| async move {
            let (services, caller, mut requests, mut leaderless, call) = state?;
            let renewed = services.renewed(&caller, &mut requests, leaderless.as_mut());
            match renewed.await {
                Some(Ok(answer)) => {
                    call.sent();
                    let state = (services, caller, requests, leaderless, call);
                    Some((Ok(answer), Some(state)))
                }
                Some(Err(error)) => Some((Err(call.refuse(error)), None)),
                None => {
                    call.finish();
                    None
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<etcd::LeaseTimeToLiveRequest>,
    ) -> Result<Response<etcd::LeaseTimeToLiveResponse>, Status> {
        self.unary(
            Method::LeaseTimeToLive,
            Learner::Refused,
            request,
            |request| async move {
                let times = self
                    .shared
                    .member
                    .lease_times(request.id)
                    .await
                    .map_err(failed)?;
                let state = if request.keys && times.is_some() {
                    self.state(false).await?
                } else {
                    self.shared.member.published()
                };
                let actor = self.actor().await?;
                let revision = state.view.revision();
                let keys = match request.keys {
                    false => Vec::new(),
                    true => {
                        let many = state.view.lease_key_count(request.id);
                        let list = move || {
                            permitted(state.view.permit_lease_keys(actor.as_ref(), request.id))?;
                            Ok(state.view.lease_keys(request.id))
                        };
                        self.aside_if(many > FEW, list).await?
                    }
                };
                let (ttl, granted_ttl) =
                    times.map_or((-1, 0), |times| (times.remaining, times.granted));
                Ok(etcd::LeaseTimeToLiveResponse {
                    header: self.header(revision),
                    id: request.id,
                    ttl,
                    granted_ttl,
                    keys,
                })
            },
        )
        .await
    }

    async fn lease_leases(
        &self,
        request: Request<etcd::LeaseLeasesRequest>,
    ) -> Result<Response<etcd::LeaseLeasesResponse>, Status> {
        self.unary(
            Method::LeaseLeases,
            Learner::Refused,
            request,
            |_| async move {
                let actor = self.actor().await?;
                let state = self.shared.member.published();
                let (revision, many) = (state.view.revision(), state.view.lease_count());
                let list = move || {
                    permitted(state.view.permit_leases(actor.as_ref()))?;
                    let leases = state.view.leases().into_iter();
                    Ok(leases
                        .map(|lease| etcd::LeaseStatus { id: lease.id })
                        .collect())
                };
                Ok(etcd::LeaseLeasesResponse {
                    header: self.header(revision),
                    leases: self.aside_if(many > FEW, list).await?,
                })
            },
        )
        .await
    }
}

impl Services {
    /// Runs slow work in its turn on another thread, and fast work here.
    async fn aside_if<T: Send + 'static>(
        &self,
        long: bool,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        match long {
            true => self.aside(work).await?,
            false => work(),
        }
    }

    /// The requested ID, or a generated one: positive and not 0.
    fn lease_id(&self, asked: i64) -> i64 {
        if asked != 0 {
            return asked;
        }
        loop {
            let id = self.shared.member.unique() & (u64::MAX >> 1);
            if let Some(id) = i64::try_from(id).ok().filter(|id| *id != 0) {
                return id;
            }
        }
    }

    /// The next response of a keepalive stream; `None` when the client is done.
    async fn renewed(
        &self,
        caller: &Caller,
        requests: &mut Streaming<etcd::LeaseKeepAliveRequest>,
        leaderless: Option<&mut Leaderless>,
    ) -> Option<Result<etcd::LeaseKeepAliveResponse, Status>> {
        let request = tokio::select! {
            biased;
            request = requests.next() => request?,
            () = Leaderless::over(leaderless, &self.shared.member) => {
                return Some(Err(EtcdError::NoLeader.into()));
            }
        };
        let id = match request {
            Ok(request) => {
                self.shared.metrics.received(Method::LeaseKeepAlive);
                request.id
            }
            Err(error) => return Some(Err(error)),
        };
        let actor = match self.actor_of(caller).await {
            Ok(actor) => actor,
            Err(error) => return Some(Err(error)),
        };
        let latest = self.shared.member.latest();
        if latest.overview.following().is_some() {
            // A client would take for alive what only the followed cluster keeps alive.
            return Some(Err(EtcdError::Following.into()));
        }
        if latest.overview.auth().is_enabled() {
            let view = &self.shared.member.published().view;
            if let Err(error) = permitted(view.permit_renewal(actor.as_ref(), id)) {
                return Some(Err(error));
            }
        }
        // The header is from before the renewal, so that a client never sees the lease alive at a
        // revision at which it was revoked.
        let header = self.header(latest.overview.revision());
        let renewed = self.shared.member.lease_keepalive(id).await;
        Some(
            renewed
                .map_err(failed)
                .map(|ttl| etcd::LeaseKeepAliveResponse {
                    header,
                    id,
                    ttl: ttl.unwrap_or(0),
                }),
        )
    }
}
