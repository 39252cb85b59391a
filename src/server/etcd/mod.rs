//! etcd's client API over a `MemberHandle`: one file a service.
//!
//! Translates, waits and answers. Never decides what is stored and never touches a disk or a
//! peer.

mod auth;
mod call;
mod caller;
mod cluster;
mod convert;
mod health;
mod kv;
mod lease;
mod long;
mod maintenance;
mod refused;
mod snapshot;
mod watch;

pub(crate) use call::{Services, VERSION};
pub(super) use maintenance::{STORAGE_VERSION, alarms_of};

use crate::wire::etcd::auth_server::AuthServer;
use crate::wire::etcd::cluster_server::ClusterServer;
use crate::wire::etcd::kv_server::KvServer;
use crate::wire::etcd::lease_server::LeaseServer;
use crate::wire::etcd::maintenance_server::MaintenanceServer;
use crate::wire::etcd::watch_server::WatchServer;
use crate::wire::health::health_server::HealthServer;

/// gRPC adds this much to a request of the largest size (etcd's allowance).
const OVERHEAD: usize = 512 << 10;

/// Every gRPC service, and a clear refusal for those of etcd's that are not built.
pub(crate) fn router(services: &Services) -> axum::Router {
    let limit = services.max_request_bytes() + OVERHEAD;
    let mut routes = tonic::service::Routes::builder();
    routes
        .add_service(KvServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(WatchServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(LeaseServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(ClusterServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(MaintenanceServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(AuthServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(HealthServer::new(services.clone()));
    routes
        .routes()
        .into_axum_router()
        .fallback(refused::answer)
        .layer(tower::util::MapResponseLayer::new(refused::too_large))
        .layer(tower::util::MapResponseLayer::new(long::send))
        .layer(tower::util::MapRequestLayer::new(long::mark))
}
