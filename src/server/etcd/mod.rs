//! etcd's client API over a `MemberHandle`: one file per service.
//!
//! Translates, waits and answers. Never decides what is stored and never touches a disk or a peer.

mod auth;
mod call;
mod caller;
mod chunked_range;
mod cluster;
mod concurrency;
pub(super) mod convert;
mod direct;
mod election;
mod ended;
mod framing;
mod health;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod snapshot;
mod sorted;
mod unimplemented;
mod watch;

pub(crate) use call::{Services, VERSION};
pub(crate) use direct::DirectCalls;
pub(super) use maintenance::{STORAGE_VERSION, alarms_of};
pub(super) use unimplemented::answer as not_found;

use crate::wire::election::election_server::ElectionServer;
use crate::wire::etcd::auth_server::AuthServer;
use crate::wire::etcd::cluster_server::ClusterServer;
use crate::wire::etcd::kv_server::KvServer;
use crate::wire::etcd::lease_server::LeaseServer;
use crate::wire::etcd::maintenance_server::MaintenanceServer;
use crate::wire::etcd::watch_server::WatchServer;
use crate::wire::health::health_server::HealthServer;
use crate::wire::lock::lock_server::LockServer;

/// gRPC adds this much to a request of the largest size (etcd's allowance).
const OVERHEAD: usize = 512 << 10;

/// The largest message in bytes that gRPC takes.
pub(crate) fn message_limit(services: &Services) -> usize {
    services.max_request_bytes() + OVERHEAD
}

/// Every gRPC service.
pub(crate) fn router(services: &Services) -> axum::Router {
    let limit = message_limit(services);
    let mut routes = tonic::service::Routes::builder();
    routes
        .add_service(KvServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(WatchServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(LeaseServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(ClusterServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(MaintenanceServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(AuthServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(ElectionServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(LockServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(HealthServer::new(services.clone()));
    // In one layer, since the router boxes each.
    let around = tower::ServiceBuilder::new()
        .map_request(chunked_range::mark)
        .map_response(|response| unimplemented::too_large(chunked_range::send(response)));
    routes
        .routes()
        .into_axum_router()
        .fallback(unimplemented::answer)
        .layer(around)
}
