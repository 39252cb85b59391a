//! The peer port of a simulated server, as far as the operator uses it: the generated service over
//! the shipped check of the operator's proof, without a network.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::{Request, Response, Status};
use tower::ServiceExt as _;

use crate::server::member_client::{Way, WayError};
use crate::server::member_secure::Secure;
use crate::server::operator_auth::{Key, Recipient, Verified, Verifier};
use crate::wire::member as proto;

use super::Servers;

/// The way to whoever answers at this address.
pub(crate) fn way(servers: &Arc<Mutex<Servers>>, address: &str, secure: Option<&Secure>) -> Way {
    let (servers, secure) = (servers.clone(), secure.cloned());
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    let ip = ip.trim_matches(['[', ']']).to_owned();
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let (servers, ip, secure) = (servers.clone(), ip.clone(), secure.clone());
        async move {
            let port = Port::open(servers, &ip, secure.as_ref())?;
            let verifier = Verifier::new(port.key.clone(), None, &port.own);
            let member = proto::member_server::MemberServer::new(port);
            let answer = Verified::new(member, verifier).oneshot(request).await;
            answer.map_err(|never| match never {})
        }
    });
    service.boxed_clone()
}

/// One server that answers now.
struct Port {
    servers: Arc<Mutex<Servers>>,
    pod: String,
    key: Option<Key>,
    own: Recipient,
}

impl Port {
    fn open(
        servers: Arc<Mutex<Servers>>,
        ip: &str,
        secure: Option<&Secure>,
    ) -> Result<Self, WayError> {
        let found = {
            let held = servers.lock().unwrap_or_else(PoisonError::into_inner);
            let at = held.processes.values().find(|p| p.container.ip == ip);
            let process = at.ok_or_else(|| WayError::new("no route to host"))?;
            let apart = !process.container.connected;
            if apart || held.unseen.contains(&process.container.node) {
                return Err(WayError::new("timed out"));
            }
            if process.exit.is_some() || held.now_ms < process.serves_from_ms {
                return Err(WayError::new("connection refused"));
            }
            if !held.answers(process) {
                return Err(WayError::new("no answer in time"));
            }
            if let Some(why) = process.refuses(secure) {
                return Err(WayError::new(why));
            }
            let key = held.keys.get(&process.container.cluster_uid);
            let container = &process.container;
            let disk = held.disks.get(&container.volume);
            let own = Recipient {
                disk_uuid: disk.map(|disk| disk.uuid.clone()).unwrap_or_default(),
                boot: format!("{}-{}", container.pod_uid, container.starts),
            };
            (container.pod_uid.clone(), key.map(|key| Key::new(key)), own)
        };
        let (pod, key, own) = found;
        Ok(Self {
            servers,
            pod,
            key,
            own,
        })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut Servers, &str) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if !servers.processes.contains_key(&self.pod) {
            return Err(Status::unavailable("the server is stopping"));
        }
        act(&mut servers, &self.pod).map(Response::new)
    }
}

#[tonic::async_trait]
impl proto::member_server::Member for Port {
    async fn describe(
        &self,
        request: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        let linearizable = request.into_inner().linearizable;
        self.with(|servers, pod| servers.describe(pod, linearizable))
    }

    async fn bootstrap(
        &self,
        request: Request<proto::BootstrapRequest>,
    ) -> Result<Response<proto::BootstrapResponse>, Status> {
        let request = request.into_inner();
        self.with(|servers, pod| servers.bootstrap(pod, &request))
    }

    async fn add_learner(
        &self,
        request: Request<proto::AddLearnerRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.with(|servers, pod| servers.add_learner(pod, request))
    }

    async fn promote(
        &self,
        request: Request<proto::PromoteRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.with(|servers, pod| servers.promote(pod, &request))
    }

    async fn remove(
        &self,
        request: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.with(|servers, pod| servers.remove(pod, &request))
    }

    async fn update_peer_urls(
        &self,
        request: Request<proto::UpdatePeerUrlsRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.with(|servers, pod| servers.update_peer_urls(pod, request))
    }

    async fn transfer(
        &self,
        request: Request<proto::TransferRequest>,
    ) -> Result<Response<proto::TransferResponse>, Status> {
        let to = request.into_inner().to;
        self.with(|servers, pod| {
            let leader = servers.transfer(pod, to)?;
            Ok(proto::TransferResponse { leader })
        })
    }

    async fn retire(
        &self,
        _: Request<proto::RetireRequest>,
    ) -> Result<Response<proto::RetireResponse>, Status> {
        self.with(|servers, pod| {
            let leader = servers.retire(pod);
            Ok(proto::RetireResponse { leader })
        })
    }
}
