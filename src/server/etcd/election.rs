//! The Election service: the oldest key by creation leads, and the next one waits for it.
//!
//! Never keeps a lease alive: that is the client's duty, as in etcd.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::call::{Services, StreamCall};
use super::concurrency::{self, Behalf, Undo};
use super::convert;
use crate::server::core::handle::{Latest, MemberHandle};
use crate::server::metrics::client::Method;
use crate::store::{CatchUp, Event, EventKind, Slice, WatchSpec, Watchers};
use crate::wire::election::election_server::Election;
use crate::wire::election::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse,
};
use crate::wire::etcd;
use crate::wire::etcd::range_request::SortOrder;

#[tonic::async_trait]
impl Election for Services {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        self.wrapped(Method::Campaign, request, campaign).await
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let work = |caller: Behalf, request: ProclaimRequest| async move {
            let leader = request.leader.ok_or_else(no_leader_given)?;
            let header = proclaim(&caller, &leader, request.value).await?;
            Ok(ProclaimResponse { header })
        };
        self.wrapped(Method::Proclaim, request, work).await
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        let work = |caller: Behalf, request: LeaderRequest| async move {
            let first = concurrency::edge(&concurrency::prefix(&request.name), SortOrder::Ascend);
            let response = caller.range(first).await?;
            let header = response.header;
            match response.kvs.into_iter().next() {
                None => Err(Status::unknown("election: no leader")),
                kv => Ok(LeaderResponse { header, kv }),
            }
        };
        self.wrapped(Method::Leader, request, work).await
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<LeaderResponse, Status>> + Send>>;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let call = self.begin(Method::Observe, request.metadata()).await?;
        let (caller, request) = Behalf::of(self, request);
        let observer = Observer {
            prefix: concurrency::prefix(&request.name),
            caller,
            followed: None,
        };
        let stream = futures::stream::unfold(Some((observer, call)), |state| async move {
            let (mut observer, call): (Observer, StreamCall) = state?;
            match observer.next().await {
                Some(answer) => {
                    call.sent();
                    Some((Ok(answer), Some((observer, call))))
                }
                None => {
                    call.finish();
                    None
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let work = |caller: Behalf, request: ResignRequest| async move {
            let leader = request.leader.ok_or_else(no_leader_given)?;
            let header = caller.txn(resignation(&leader)).await?.header;
            Ok(ResignResponse { header })
        };
        self.wrapped(Method::Resign, request, work).await
    }
}

fn no_leader_given() -> Status {
    Status::unknown("\"leader\" field must be provided")
}

async fn campaign(caller: Behalf, request: CampaignRequest) -> Result<CampaignResponse, Status> {
    let lease = caller.lease(request.lease).await?;
    let prefix = concurrency::prefix(&request.name);
    let key = concurrency::key(&prefix, lease);
    let response = caller
        .txn(etcd::TxnRequest {
            compare: vec![concurrency::created(&key, 0)],
            success: vec![concurrency::put(&key, request.value.clone(), lease)],
            // The lease may belong to a candidate already.
            failure: vec![concurrency::get_key(&key)],
        })
        .await?;
    let mut leader = LeaderKey {
        name: request.name,
        key,
        rev: concurrency::revision(response.header.as_ref()),
        lease,
    };
    let known = concurrency::found(&response, 0).first();
    if let Some(kv) = known.filter(|_| !response.succeeded) {
        leader.rev = kv.create_revision;
    }
    let undo = Undo::new(&caller, resignation(&leader));
    let other_value = known.is_some_and(|kv| !response.succeeded && kv.value != request.value);
    if other_value && let Err(error) = proclaim(&caller, &leader, request.value).await {
        undo.now().await;
        return Err(error);
    }
    if let Err(error) = caller.wait_for_earlier(&prefix, leader.rev - 1).await {
        // As in etcd, it remains a candidate: its lease or its next campaign decides.
        undo.forget();
        return Err(error);
    }
    undo.forget();
    Ok(CampaignResponse {
        header: response.header,
        leader: Some(leader),
    })
}

async fn proclaim(
    caller: &Behalf,
    leader: &LeaderKey,
    value: Bytes,
) -> Result<Option<etcd::ResponseHeader>, Status> {
    let response = caller
        .txn(etcd::TxnRequest {
            compare: vec![concurrency::created(&leader.key, leader.rev)],
            success: vec![concurrency::put(&leader.key, value, leader.lease)],
            failure: Vec::new(),
        })
        .await?;
    if response.succeeded {
        Ok(response.header)
    } else {
        Err(Status::unknown("election: not leader"))
    }
}

fn resignation(leader: &LeaderKey) -> etcd::TxnRequest {
    etcd::TxnRequest {
        compare: vec![concurrency::created(&leader.key, leader.rev)],
        success: vec![concurrency::remove(&leader.key)],
        failure: Vec::new(),
    }
}

/// Returns each leader, and each of its values, in order.
struct Observer {
    caller: Behalf,
    prefix: Bytes,
    /// The leader's key, once it has been returned.
    followed: Option<Follow>,
}

impl Observer {
    /// The next value; `None` at the end.
    async fn next(&mut self) -> Option<LeaderResponse> {
        loop {
            let Some(follow) = &mut self.followed else {
                return self.first().await;
            };
            let event = follow.next().await?;
            if event.kind == EventKind::Delete {
                self.followed = None;
                continue;
            }
            let header = self.caller.services.header(follow.watchers.revision());
            let kv = Some(convert::key_value(event.kv));
            return Some(LeaderResponse { header, kv });
        }
    }

    /// The present leader, or the first one to be elected; its key is followed from there.
    async fn first(&mut self) -> Option<LeaderResponse> {
        let first = concurrency::edge(&self.prefix, SortOrder::Ascend);
        let response = self.caller.range(first).await.ok()?;
        let mut header = response.header;
        let kv = match response.kvs.into_iter().next() {
            Some(kv) => kv,
            None => {
                let revision = concurrency::revision(header.as_ref());
                let spec = WatchSpec {
                    key: self.prefix.clone(),
                    range_end: concurrency::end(&self.prefix),
                    start_revision: revision,
                    no_delete: true,
                    ..Default::default()
                };
                let event = Follow::new(&self.caller.services, spec)?.next().await?;
                header = self.caller.services.header(event.kv.mod_revision);
                convert::key_value(event.kv)
            }
        };
        let spec = WatchSpec {
            key: kv.key.clone(),
            start_revision: concurrency::revision(header.as_ref()) + 1,
            ..Default::default()
        };
        self.followed = Some(Follow::new(&self.caller.services, spec)?);
        let kv = Some(kv);
        Some(LeaderResponse { header, kv })
    }
}

/// One watcher, pulled event by event.
struct Follow {
    watchers: Watchers,
    member: MemberHandle,
    latest: watch::Receiver<Arc<Latest>>,
    stopping: watch::Receiver<bool>,
    events: VecDeque<Event>,
}

impl Follow {
    fn new(services: &Services, spec: WatchSpec) -> Option<Follow> {
        let member = services.shared.member.clone();
        let latest = member.subscribe();
        let mut watchers = Watchers::new(&member.published().view);
        watchers.create(0, spec).ok()?;
        Some(Follow {
            watchers,
            member,
            latest,
            stopping: services.shared.stopping.clone(),
            events: VecDeque::new(),
        })
    }

    /// The next event; `None` when the server stops or the history is compacted.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            self.latest.mark_unchanged();
            let state = self.member.published();
            let events = &mut self.events;
            self.watchers.advance(&state.view, &mut |_, shown| {
                events.extend(shown.iter().cloned());
                true
            });
            match self.watchers.catch_up(0, &state.view, Slice::default()) {
                CatchUp::Behind(events) => {
                    self.events.extend(events);
                    tokio::task::yield_now().await;
                    continue;
                }
                CatchUp::Synced(events) => self.events.extend(events),
                CatchUp::Compacted(_) | CatchUp::Unreadable(_) => return None,
                CatchUp::NotBehind => {}
            }
            if !self.events.is_empty() {
                continue;
            }
            // Not kept while waiting: the applier takes back what nobody has.
            drop(state);
            tokio::select! {
                biased;
                () = crate::server::listen::until(&mut self.stopping) => return None,
                changed = self.latest.changed() => changed.ok()?,
            }
        }
    }
}
