//! gRPC clients of one member; responses become text, without the fields that identify the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::{
    DefragmentRequest, HashRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest, MoveLeaderRequest, RangeRequest, RangeResponse, ResponseHeader,
    SnapshotRequest, StatusRequest,
};
use quorate::wire::health::HealthCheckRequest;
use quorate::wire::health::health_client::HealthClient;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::cluster::Cluster;
use crate::process::PATIENCE;
use crate::question::{LEARNER, OWN_ID, OWN_PEER, Question, SHORT_LEASE};
use crate::{snapshot, users};

/// Greater than any response in these tests.
const LARGEST: usize = 64 << 20;

/// The token that is sent with every request, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<Mutex<Option<AsciiMetadataValue>>>);

impl Token {
    fn set(&self, token: Option<AsciiMetadataValue>) {
        *self.0.lock().expect("no panic") = token;
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = self.0.lock().expect("no panic").clone() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }
}

/// The transport of the clients.
pub(crate) type Wire = InterceptedService<Channel, Token>;

/// A response: its revision, if any, and the whole response as text.
pub(crate) type Reply = (Option<i64>, String);

/// Clients of one member.
#[derive(Debug)]
pub(crate) struct Server {
    kv: KvClient<Wire>,
    lease: LeaseClient<Wire>,
    maintenance: MaintenanceClient<Wire>,
    cluster: ClusterClient<Wire>,
    health: HealthClient<Wire>,
    auth: AuthClient<Wire>,
    pub(crate) watch: WatchClient<Wire>,
    token: Token,
    /// The newest token of each user.
    tokens: BTreeMap<String, AsciiMetadataValue>,
    id: u64,
    /// The ID of the member that was added last.
    learner: u64,
    peer: String,
    /// The directory of etcd's tools.
    peers: PathBuf,
}

impl Server {
    pub(crate) async fn new(cluster: &Cluster, member: usize, peers: &Path) -> Server {
        let member = &cluster.members[member];
        let endpoint = Endpoint::from_shared(format!("http://{}", member.client));
        let token = Token::default();
        let channel = endpoint.expect("an address").connect_lazy();
        let wire = InterceptedService::new(channel, token.clone());
        let mut server = Server {
            kv: KvClient::new(wire.clone()).max_decoding_message_size(LARGEST),
            lease: LeaseClient::new(wire.clone()),
            maintenance: MaintenanceClient::new(wire.clone()).max_decoding_message_size(LARGEST),
            cluster: ClusterClient::new(wire.clone()),
            health: HealthClient::new(wire.clone()),
            auth: AuthClient::new(wire.clone()),
            watch: WatchClient::new(wire).max_decoding_message_size(LARGEST),
            token,
            tokens: BTreeMap::new(),
            id: 0,
            learner: 0,
            peer: format!("http://{}", member.peer),
            peers: peers.to_owned(),
        };
        server.id = server.settled().await;
        assert_ne!(server.id, 0);
        server
    }

    /// Waits until the member reports the storage version of this release, and returns its ID. etcd sets it some
    /// seconds after the start (on a busy machine, the first responses contained 3.5.0).
    async fn settled(&mut self) -> u64 {
        for _ in 0..600 {
            let status = self.maintenance.status(StatusRequest {}).await;
            let status = status.expect("a status").into_inner();
            if status.storage_version == "3.7.0" {
                return status.header.map_or(0, |header| header.member_id);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the storage version was not updated");
    }

    /// Waits until the member has applied everything that any member has acknowledged, including leases, and returns
    /// its revision: a serializable read at any member must see all of it.
    pub(crate) async fn catch_up(&mut self) -> i64 {
        let range = RangeRequest {
            key: "a".into(),
            count_only: true,
            ..RangeRequest::default()
        };
        let reply = self.kv.range(range).await.expect("a linearizable read");
        reply.into_inner().header.expect("a header").revision
    }

    /// Sends the request as its user, and returns the response as text.
    pub(crate) async fn ask(&mut self, question: &Question) -> Reply {
        let (user, question) = match question {
            Question::As(user, question) => (*user, &**question),
            question => ("", question),
        };
        self.token.set(self.tokens.get(user).cloned());
        let answer = self.answer(question).await;
        self.token.set(None);
        let (revision, text) = match answer {
            Ok(reply) => reply,
            Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
        };
        let names = [(self.id, "OWN"), (self.learner, "LEARNER")];
        let named = names.iter().filter(|(id, _)| *id != 0);
        let text = named.fold(text, |text, (id, name)| text.replace(&id.to_string(), name));
        (revision, text)
    }

    async fn answer(&mut self, question: &Question) -> Result<Reply, Status> {
        macro_rules! plain {
            ($reply:expr) => {{
                let mut reply = $reply.await?.into_inner();
                let revision = reply.header.as_mut().map(anonymous);
                Ok((revision, format!("{reply:?}")))
            }};
        }
        match question.clone() {
            Question::Put(put) => plain!(self.kv.put(put)),
            Question::Delete(delete) => plain!(self.kv.delete_range(delete)),
            Question::Range(range) => plain!(self.kv.range(range)),
            Question::Stream(range) => self.stream(range).await,
            Question::Compact(compact) => plain!(self.kv.compact(compact)),
            Question::Txn(txn) => {
                let mut reply = self.kv.txn(txn).await?.into_inner();
                let revision = reply.header.as_ref().map(|header| header.revision);
                // Headers inside the response contain a revision only.
                reply.header.as_mut().map(anonymous);
                Ok((revision, format!("{reply:?}")))
            }
            Question::Grant(_)
            | Question::Revoke(_)
            | Question::TimeToLive(_)
            | Question::Leases
            | Question::KeepAlive(_)
            | Question::Expire => self.leases(question).await,
            Question::Hash(hash) => plain!(self.maintenance.hash_kv(hash)),
            Question::Alarm(mut alarm) => {
                alarm.member_id = self.id(alarm.member_id);
                let mut reply = self.maintenance.alarm(alarm).await?.into_inner();
                // etcd returns them in no order.
                reply
                    .alarms
                    .sort_by_key(|alarm| (alarm.alarm, alarm.member_id));
                let revision = reply.header.as_mut().map(anonymous);
                Ok((revision, format!("{reply:?}")))
            }
            Question::Downgrade(downgrade) => plain!(self.maintenance.downgrade(downgrade)),
            Question::Defragment => {
                // etcd returns no header here.
                let reply = self.maintenance.defragment(DefragmentRequest {}).await?;
                Ok((None, format!("{:?}", reply.into_inner())))
            }
            Question::MoveLeader(id) => {
                let target_id = self.id(id);
                plain!(
                    self.maintenance
                        .move_leader(MoveLeaderRequest { target_id })
                )
            }
            Question::Status => self.status().await,
            Question::Health(service) => {
                let reply = self.health.check(HealthCheckRequest { service }).await?;
                Ok((None, format!("{:?}", reply.into_inner())))
            }
            Question::HealthWatch(service) => {
                let stream = self.health.watch(HealthCheckRequest { service }).await?;
                let first = stream.into_inner().message().await?;
                Ok((None, format!("{first:?}")))
            }
            Question::WholeHash => {
                let mut reply = self.maintenance.hash(HashRequest {}).await?.into_inner();
                assert_ne!(reply.hash, 0);
                let revision = reply.header.as_mut().map(anonymous);
                Ok((revision, String::new()))
            }
            Question::Members
            | Question::MemberAdd(_)
            | Question::MemberRemove(_)
            | Question::MemberUpdate(..)
            | Question::MemberPromote(_) => self.members(question).await,
            Question::Auth(auth) => users::ask(&mut self.auth, &mut self.tokens, &auth).await,
            Question::WatchOnce(create) => users::watch_once(&mut self.watch, create).await,
            Question::Snapshot => {
                let stream = self.maintenance.snapshot(SnapshotRequest {}).await?;
                snapshot::read(stream.into_inner(), &self.peers).await
            }
            Question::Watch(..) | Question::Cancel(..) | Question::Settle | Question::As(..) => {
                unreachable!("sent on a stream, or as its user")
            }
        }
    }

    /// Joins the pieces of a streamed range, and notes where they were split.
    async fn stream(&mut self, range: RangeRequest) -> Result<Reply, Status> {
        let mut stream = self.kv.range_stream(range).await?.into_inner();
        let mut whole = RangeResponse::default();
        let mut cuts = Vec::new();
        while let Some(piece) = stream.message().await? {
            let piece = piece.range_response.unwrap_or_default();
            cuts.push(piece.kvs.len());
            let kvs = std::mem::take(&mut whole.kvs);
            whole = RangeResponse {
                kvs: kvs.into_iter().chain(piece.kvs).collect(),
                ..piece
            };
        }
        let revision = whole.header.as_mut().map(anonymous);
        Ok((revision, format!("{cuts:?} {whole:?}")))
    }

    async fn leases(&mut self, question: &Question) -> Result<Reply, Status> {
        match question {
            Question::Grant(grant) => {
                let mut reply = self.lease.lease_grant(*grant).await?.into_inner();
                let revision = reply.header.as_mut().map(anonymous);
                if grant.id == 0 {
                    // The server chose the ID, so it differs: the lease is revoked again.
                    assert!(reply.id > 0, "{reply:?}");
                    let revoke = LeaseRevokeRequest { id: reply.id };
                    self.lease.lease_revoke(revoke).await?;
                    reply.id = 0;
                }
                Ok((revision, format!("{reply:?}")))
            }
            Question::Revoke(id) => {
                let reply = self
                    .lease
                    .lease_revoke(LeaseRevokeRequest { id: *id })
                    .await?;
                let revision = reply.into_inner().header.map(|header| header.revision);
                Ok((revision, format!("revoked at {revision:?}")))
            }
            Question::TimeToLive(id) => {
                let request = LeaseTimeToLiveRequest {
                    id: *id,
                    keys: true,
                };
                let mut reply = self.lease.lease_time_to_live(request).await?.into_inner();
                // etcd returns the keys in no order, and the remaining TTL depends on time.
                reply.keys.sort();
                reply.header.as_mut().map(anonymous);
                if reply.ttl > 0 {
                    assert!(reply.ttl <= reply.granted_ttl, "{reply:?}");
                    reply.ttl = 1;
                }
                Ok((None, format!("{reply:?}")))
            }
            Question::KeepAlive(id) => {
                let request = LeaseKeepAliveRequest { id: *id };
                let stream = self.lease.lease_keep_alive(tokio_stream::once(request));
                let mut stream = stream.await?.into_inner();
                let mut text = String::new();
                while let Some(mut reply) = stream.message().await? {
                    reply.header.as_mut().map(anonymous);
                    text.push_str(&format!("{reply:?}"));
                }
                Ok((None, text))
            }
            Question::Expire => {
                let start = tokio::time::Instant::now();
                while self.held().await?.contains(&SHORT_LEASE) {
                    assert!(start.elapsed() < PATIENCE, "a lease does not expire");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                // Its keys are deleted with it, at a revision of their own.
                Ok((Some(self.catch_up().await), "expired".to_owned()))
            }
            _ => {
                let mut held = self.held().await?;
                held.sort_unstable();
                Ok((None, format!("{held:?}")))
            }
        }
    }

    async fn held(&mut self) -> Result<Vec<i64>, Status> {
        let reply = self.lease.lease_leases(LeaseLeasesRequest {}).await?;
        let leases = reply.into_inner().leases;
        Ok(leases.into_iter().map(|lease| lease.id).collect())
    }

    async fn members(&mut self, question: &Question) -> Result<Reply, Status> {
        let url = |url: &String| {
            if url == OWN_PEER {
                self.peer.clone()
            } else {
                url.clone()
            }
        };
        let members = match question {
            Question::MemberAdd(add) => {
                let mut add = add.clone();
                add.peer_ur_ls = add.peer_ur_ls.iter().map(url).collect();
                let reply = self.cluster.member_add(add).await?.into_inner();
                self.learner = reply.member.map_or(0, |member| member.id);
                reply.members
            }
            Question::MemberRemove(id) => {
                let remove = MemberRemoveRequest { id: self.id(*id) };
                let reply = self.cluster.member_remove(remove).await?;
                reply.into_inner().members
            }
            Question::MemberUpdate(id, peer) => {
                let update = MemberUpdateRequest {
                    id: self.id(*id),
                    peer_ur_ls: vec![url(peer)],
                };
                let reply = self.cluster.member_update(update).await?;
                reply.into_inner().members
            }
            Question::MemberPromote(id) => {
                let promote = MemberPromoteRequest { id: self.id(*id) };
                let reply = self.cluster.member_promote(promote).await?;
                reply.into_inner().members
            }
            _ => {
                let list = MemberListRequest { linearizable: true };
                let reply = self.cluster.member_list(list).await?.into_inner();
                let header = reply.header.unwrap_or_default();
                assert_eq!(
                    header.member_id, self.id,
                    "the header contains the responding member's ID"
                );
                assert_eq!(header.revision, 0, "the membership has no revision");
                assert!(reply.members.iter().any(|member| member.id == self.id));
                reply.members
            }
        };
        // etcd lists them in the order of their IDs, which are random.
        let mut members: Vec<String> = members
            .iter()
            .map(|member| match member.id == self.id {
                true => "this".to_owned(),
                false => format!(
                    "{} {:?} {}",
                    member.name, member.peer_ur_ls, member.is_learner
                ),
            })
            .collect();
        members.sort();
        Ok((None, format!("{members:?}")))
    }

    async fn status(&mut self) -> Result<Reply, Status> {
        let reply = self
            .maintenance
            .status(StatusRequest {})
            .await?
            .into_inner();
        let header = reply.header.unwrap_or_default();
        assert!(reply.db_size > 0 && reply.leader != 0 && reply.raft_term > 0);
        assert!(reply.raft_applied_index <= reply.raft_index);
        // Active alarms are listed among the errors, in no order.
        let own = self.id.to_string();
        // The number of blanks in an error depends on the build of etcd.
        let plain = |error: &String| error.replace(&own, "OWN").replace("  ", " ");
        let errors = reply.errors.iter().map(plain);
        let mut errors: Vec<String> = errors.collect();
        errors.sort();
        let text = format!(
            "{} {:?} {} {} {:?}",
            reply.version, errors, reply.is_learner, reply.storage_version, reply.downgrade_info
        );
        Ok((Some(header.revision), text))
    }

    fn id(&self, id: u64) -> u64 {
        match id {
            OWN_ID => self.id,
            LEARNER => self.learner,
            other => other,
        }
    }
}

/// Reduces a header to its revision, after checking that it contains cluster, member and term.
fn anonymous(header: &mut ResponseHeader) -> i64 {
    assert!(
        header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0,
        "{header:?}"
    );
    *header = ResponseHeader {
        revision: header.revision,
        ..ResponseHeader::default()
    };
    header.revision
}
