//! The peer port of a simulated server, as far as the operator uses it: the generated service over
//! the shipped check of the operator's proof, without a network.

use std::io::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tonic::{Request, Response, Status};
use tower::ServiceExt as _;

use crate::server::operator_api::auth::{Key, Recipient, Verified, Verifier};
use crate::server::operator_api::client::{Way, WayError};
use crate::server::operator_api::held_call::{Answer, HeldCall};
use crate::server::operator_api::secure::Secure;
use crate::wire::member as proto;

use super::{Liar, Servers};

/// An answer over TLS that comes within this is read, as shipped.
const SESSION_MS: u64 = 2_000;

/// The way to whoever answers at this address.
pub(crate) fn way(servers: &Arc<Mutex<Servers>>, address: &str, secure: Option<&Secure>) -> Way {
    let (servers, secure) = (servers.clone(), secure.cloned());
    let ip = ip_of(address).to_owned();
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let (servers, ip, secure) = (servers.clone(), ip.clone(), secure.clone());
        async move {
            let liar = {
                let held = servers.lock().unwrap_or_else(PoisonError::into_inner);
                let liar = held.liars.get(&ip).cloned();
                liar.map(|liar| (held.keys.get(&liar.cluster_uid).cloned(), liar))
            };
            if let Some((key, liar)) = liar {
                let verifier = Verifier::new(key.map(|key| Key::new(&key)), None, &Lies::own());
                let member = proto::member_server::MemberServer::new(Lies { servers, liar });
                let answer = Verified::new(member, verifier).oneshot(request).await;
                return answer.map_err(|never| match never {});
            }
            let port = Port::open(servers, &ip, secure.as_ref())?;
            let verifier = Verifier::new(port.key.clone(), None, &port.own);
            let member = proto::member_server::MemberServer::new(port);
            let answer = Verified::new(member, verifier).oneshot(request).await;
            answer.map_err(|never| match never {})
        }
    });
    service.boxed_clone()
}

/// A call that whoever answers there holds; liars hold none.
pub(crate) async fn hold(
    servers: Arc<Mutex<Servers>>,
    call: Arc<HeldCall>,
) -> Result<Answer, Error> {
    let ip = ip_of(&call.address).to_owned();
    let lies = {
        let servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.liars.contains_key(&ip)
    };
    let port = Port::open(servers, &ip, call.secure.as_ref()).map_err(Error::other)?;
    if lies || port.key.as_ref() != Some(&call.key) {
        return Err(Error::other("the answer has no digest"));
    }
    let wait_ms = u64::try_from(call.wait.as_millis()).unwrap_or(u64::MAX);
    let begun_ms = port.now_ms();
    port.changed(call.digest, wait_ms).await;
    let description = port.with(|servers, pod| servers.describe(pod, false));
    let description = description.map_err(Error::other)?;
    // As shipped, over TLS it is not read if it has been held.
    if call.secure.is_some() && port.now_ms() > begun_ms + SESSION_MS {
        return Ok(Answer::Unread);
    }
    Ok(Answer::Digest(description.get_ref().digest))
}

fn ip_of(address: &str) -> &str {
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    ip.trim_matches(['[', ']'])
}

/// One server that answers now.
struct Port {
    servers: Arc<Mutex<Servers>>,
    pod: String,
    key: Option<Key>,
    own: Recipient,
    /// The namespace for which it stands here.
    instead_of: Option<String>,
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
            let moved = secure.and_then(|secure| held.stands_for(secure));
            let secure = moved.as_ref().map_or(secure, |(_, here)| Some(here));
            if let Some(why) = process.refuses(secure) {
                return Err(WayError::new(why));
            }
            let instead_of = moved.map(|(namespace, _)| namespace);
            let key = held.keys.get(&process.container.cluster_uid);
            let container = &process.container;
            let disk = held.disks.get(&container.volume);
            let own = Recipient {
                disk_uuid: disk.map(|disk| disk.uuid.clone()).unwrap_or_default(),
                boot: format!("{}-{}", container.pod_uid, container.starts),
            };
            let key = key.map(|key| Key::new(key));
            (container.pod_uid.clone(), key, own, instead_of)
        };
        let (pod, key, own, instead_of) = found;
        Ok(Self {
            servers,
            pod,
            key,
            own,
            instead_of,
        })
    }

    fn now_ms(&self) -> u64 {
        let servers = self.servers.lock();
        servers.unwrap_or_else(PoisonError::into_inner).now_ms
    }

    /// Waits until the description has another digest, or for so long.
    async fn changed(&self, known: u64, wait_ms: u64) {
        let mut until_ms = None;
        std::future::poll_fn(|context| {
            let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            let until_ms = *until_ms.get_or_insert(servers.now_ms + wait_ms);
            if servers.holds(&self.pod, known, until_ms) {
                servers.wake_then(&self.pod, known, until_ms, context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// What a caller orders is refused once a newer one has spoken to this server.
    fn ordered<T>(
        &self,
        fence: Option<proto::Fence>,
        act: impl FnOnce(&mut Servers, &str) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let fence = fence.ok_or_else(|| Status::invalid_argument("no fence"))?;
        self.with(|servers, pod| {
            servers.heard(pod, fence.epoch)?;
            act(servers, pod)
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
        if !servers.is_reached(&self.pod) {
            return Err(Status::unavailable("the answer does not arrive"));
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
        let request = request.into_inner();
        self.with(|servers, pod| {
            if request.epoch > 0 {
                drop(servers.heard(pod, request.epoch));
            }
            let mut told = servers.describe(pod, request.linearizable)?;
            if let Some(namespace) = &self.instead_of {
                servers.in_place(pod, namespace, &mut told);
            }
            Ok(told)
        })
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
        self.ordered(request.fence, |servers, pod| {
            servers.add_learner(pod, request)
        })
    }

    async fn promote(
        &self,
        request: Request<proto::PromoteRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.ordered(request.fence, |servers, pod| servers.promote(pod, &request))
    }

    async fn remove(
        &self,
        request: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.ordered(request.fence, |servers, pod| servers.remove(pod, &request))
    }

    async fn update_peer_urls(
        &self,
        request: Request<proto::UpdatePeerUrlsRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        let request = request.into_inner();
        self.ordered(request.fence, |servers, pod| {
            servers.update_peer_urls(pod, request)
        })
    }

    async fn transfer(
        &self,
        request: Request<proto::TransferRequest>,
    ) -> Result<Response<proto::TransferResponse>, Status> {
        let request = request.into_inner();
        self.ordered(request.fence, |servers, pod| {
            let leader = servers.transfer(pod, request.to)?;
            Ok(proto::TransferResponse { leader })
        })
    }

    async fn retire(
        &self,
        request: Request<proto::RetireRequest>,
    ) -> Result<Response<proto::RetireResponse>, Status> {
        self.ordered(request.into_inner().fence, |servers, pod| {
            let leader = servers.retire(pod);
            Ok(proto::RetireResponse { leader })
        })
    }

    async fn disarm(
        &self,
        request: Request<proto::DisarmRequest>,
    ) -> Result<Response<proto::DisarmResponse>, Status> {
        let request = request.into_inner();
        self.ordered(request.fence, |servers, pod| servers.disarm(pod, &request))
    }
}

/// A stranger's pod: it leads, of a later term than anybody, with an epoch that no Lease reaches, and
/// it is the only member.
struct Lies {
    servers: Arc<Mutex<Servers>>,
    liar: Liar,
}

impl Lies {
    fn own() -> Recipient {
        Recipient {
            disk_uuid: "of-nobody".to_owned(),
            boot: "of-nobody".to_owned(),
        }
    }

    fn asked<T>(&self, what: &str) -> Result<Response<T>, Status> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.deceived.push(what.to_owned());
        Err(Status::internal("this is no cluster's member"))
    }
}

#[tonic::async_trait]
impl proto::member_server::Member for Lies {
    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        drop(self.asked::<()>("Describe"));
        Ok(Response::new(proto::DescribeResponse {
            version: crate::opsim::user::VERSION.to_owned(),
            pod_uid: self.liar.pod_uid.clone(),
            cluster_uid: self.liar.cluster_uid.clone(),
            disk_uuid: "of-nobody".to_owned(),
            phase: proto::Phase::Member.into(),
            cluster_id: 66,
            member_id: 66,
            term: u64::MAX,
            epoch: u64::MAX,
            configuration_index: u64::MAX,
            leader_with_quorum: true,
            ready: true,
            ..proto::DescribeResponse::default()
        }))
    }

    async fn bootstrap(
        &self,
        _: Request<proto::BootstrapRequest>,
    ) -> Result<Response<proto::BootstrapResponse>, Status> {
        self.asked("Bootstrap")
    }

    async fn add_learner(
        &self,
        _: Request<proto::AddLearnerRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.asked("AddLearner")
    }

    async fn promote(
        &self,
        _: Request<proto::PromoteRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.asked("Promote")
    }

    async fn remove(
        &self,
        _: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.asked("Remove")
    }

    async fn update_peer_urls(
        &self,
        _: Request<proto::UpdatePeerUrlsRequest>,
    ) -> Result<Response<proto::ChangeResponse>, Status> {
        self.asked("UpdatePeerUrls")
    }

    async fn transfer(
        &self,
        _: Request<proto::TransferRequest>,
    ) -> Result<Response<proto::TransferResponse>, Status> {
        self.asked("Transfer")
    }

    async fn retire(
        &self,
        _: Request<proto::RetireRequest>,
    ) -> Result<Response<proto::RetireResponse>, Status> {
        self.asked("Retire")
    }

    async fn disarm(
        &self,
        _: Request<proto::DisarmRequest>,
    ) -> Result<Response<proto::DisarmResponse>, Status> {
        self.asked("Disarm")
    }
}
