//! A cluster that follows a living one, etcd's or ours, and takes its place: seeded from a snapshot, then fed from the
//! watch, whatever is killed meanwhile. Clients write to the followed one throughout; every revision is compared.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::address::address;
use super::fixture::{SECRET, Server, by_hand, leader, until};
use super::operated::{add, call, fence, standbys};
use super::out::tools;
use futures::StreamExt as _;
use quorate::backup_plan::{FailureClass, Followed, JobResult, Restored};
use quorate::server::operator_api::auth::Key;
use quorate::wire::etcd::alarm_request::AlarmAction;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::request_op::Request as Op;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{
    AlarmRequest, AlarmType, AuthEnableRequest, AuthRoleAddRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, CompactionRequest, DeleteRangeRequest,
    HashKvRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, RequestOp, TxnRequest, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use quorate::wire::member::{BootstrapSnapshot, DescribeResponse, Phase};
use quorate::wire::mvccpb::Event;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

const FOLLOWS: &str =
    "etcdserver: this cluster follows another one and takes no writes before the cutover";
pub(super) const LEASE: i64 = 77;
const NEGATIVE: i64 = -5;

/// The followed cluster.
pub(super) struct Source {
    endpoint: String,
    _etcd: Option<Etcd>,
    ours: Option<Server>,
}

/// A member of etcd that runs; killed when it is dropped.
pub(super) struct Etcd(pub(super) Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Source {
    pub(super) fn ours(home: &Path) -> Source {
        let mut server = by_hand(home, &["source"]).remove(0);
        server.start();
        Source {
            endpoint: format!("http://{}:2379", server.address),
            _etcd: None,
            ours: Some(server),
        }
    }

    /// Real etcd; `None`, with a message, if it is not built.
    fn etcd(home: &Path) -> Option<Source> {
        let binary = tools("follow::etcd")?.join("etcd");
        let address = address();
        let (client, peer) = (
            format!("http://{address}:2379"),
            format!("http://{address}:2380"),
        );
        let log = std::fs::File::create(home.join("etcd.log")).expect("a file");
        let child = Command::new(binary)
            .arg(format!("--data-dir={}", home.join("etcd").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        Some(Source {
            endpoint: client,
            _etcd: Some(Etcd(child)),
            ours: None,
        })
    }

    pub(super) fn channel(&self) -> Channel {
        channel(&self.endpoint)
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel())
    }

    pub(super) async fn put(
        &self,
        key: &str,
        value: &str,
        lease: i64,
    ) -> Result<i64, tonic::Status> {
        put(&mut self.kv(), key, value, lease).await
    }

    async fn serves(&self) {
        let began = Instant::now();
        while self.put("key", "1", 0).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "no source");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn lease(&self, id: i64, ttl: i64) {
        let mut leases = LeaseClient::new(self.channel());
        let granted = leases.lease_grant(LeaseGrantRequest { id, ttl }).await;
        granted.expect("granted");
    }

    /// A history with everything in it that a cluster can have.
    pub(super) async fn lives(&self) {
        self.serves().await;
        let mut kv = self.kv();
        self.lease(LEASE, 600).await;
        self.put("leased", "1", LEASE).await.expect("put");
        // A client may choose any number but 0.
        self.lease(NEGATIVE, 600).await;
        self.put("negative", "1", NEGATIVE).await.expect("put");
        for number in 0..20 {
            self.put(&format!("old/{number}"), "1", 0)
                .await
                .expect("put");
        }
        let revision = self.put("old/1", "2", 0).await.expect("put");
        kv.delete_range(range("old/5", "old/7"))
            .await
            .expect("deleted");
        kv.compact(CompactionRequest {
            revision,
            physical: false,
        })
        .await
        .expect("compacted");
    }

    /// A deletion that takes several entries to follow, and a value that nearly fills one.
    async fn writes_much(&self) {
        let mut kv = self.kv();
        for at in 0..120 {
            let put = |key: u32| RequestOp {
                request: Some(Op::RequestPut(PutRequest {
                    key: format!("many/{}/{at}/{key}", "x".repeat(150)).into(),
                    ..PutRequest::default()
                })),
            };
            let txn = TxnRequest {
                success: (0..128).map(put).collect(),
                ..TxnRequest::default()
            };
            kv.txn(txn).await.expect("a transaction");
        }
        kv.delete_range(range("many/", "many0"))
            .await
            .expect("deleted");
        self.put("large", &"x".repeat(1_400_000), 0)
            .await
            .expect("put");
    }

    pub(super) fn kills(&mut self) {
        self.ours.as_mut().expect("it is ours").kill();
    }

    async fn hash(&self, revision: i64) -> (u32, i64, i64) {
        hash(self.channel(), revision).await
    }
}

fn channel(endpoint: &str) -> Channel {
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).expect("a URL");
    endpoint.timeout(Duration::from_secs(10)).connect_lazy()
}

async fn put(
    kv: &mut KvClient<Channel>,
    key: &str,
    value: &str,
    lease: i64,
) -> Result<i64, tonic::Status> {
    let request = PutRequest {
        key: key.as_bytes().to_vec().into(),
        value: value.as_bytes().to_vec().into(),
        lease,
        ..PutRequest::default()
    };
    let answer = kv.put(request).await?.into_inner();
    Ok(answer.header.unwrap_or_default().revision)
}

fn range(key: &str, end: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.as_bytes().to_vec().into(),
        range_end: end.as_bytes().to_vec().into(),
        ..DeleteRangeRequest::default()
    }
}

/// Hash, revision of the compaction, and the newest revision.
async fn hash(channel: Channel, revision: i64) -> (u32, i64, i64) {
    let mut client = MaintenanceClient::new(channel);
    let answer = client.hash_kv(HashKvRequest { revision }).await;
    let answer = answer.expect("a hash").into_inner();
    let now = answer.header.unwrap_or_default().revision;
    (answer.hash, answer.compact_revision, now)
}

/// Writes of every kind, as fast as they are answered, until they are refused or stopped.
async fn writes(mut kv: KvClient<Channel>, stop: Arc<AtomicBool>) -> (i64, Option<tonic::Status>) {
    let mut last = 0;
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("new/{}", number % 50);
        let written = match number % 10 {
            3 => {
                let deleted = kv.delete_range(range(&key, "")).await;
                deleted.map(|it| it.into_inner().header)
            }
            7 => {
                // Four keys in one revision, one of them deleted.
                let put = |at: u64| RequestOp {
                    request: Some(Op::RequestPut(PutRequest {
                        key: format!("txn/{at}").into(),
                        value: number.to_string().into(),
                        ..PutRequest::default()
                    })),
                };
                let delete = RequestOp {
                    request: Some(Op::RequestDeleteRange(range(&key, ""))),
                };
                let txn = TxnRequest {
                    success: vec![put(2), delete, put(1), put(3)],
                    ..TxnRequest::default()
                };
                kv.txn(txn).await.map(|it| it.into_inner().header)
            }
            _ => {
                let request = PutRequest {
                    key: key.into(),
                    value: number.to_string().into(),
                    ..PutRequest::default()
                };
                kv.put(request).await.map(|it| it.into_inner().header)
            }
        };
        match written {
            Ok(header) => last = header.unwrap_or_default().revision,
            Err(status) => return (last, Some(status)),
        }
    }
    (last, None)
}

/// Every event from a revision to another one.
pub(super) async fn events(channel: Channel, from: i64, to: i64) -> Vec<Event> {
    let mut watch = watches(channel, from).await;
    let mut all: Vec<Event> = Vec::new();
    let revision = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    while all.last().is_none_or(|last| revision(last) < to) {
        let response = next(&mut watch).await;
        assert_eq!(response.compact_revision, 0, "compacted");
        all.extend(response.events);
    }
    all
}

/// The revision at which a watch from a revision on is cancelled, which gets no event before that.
pub(super) async fn cancelled(channel: Channel, from: i64) -> i64 {
    let mut watch = watches(channel, from).await;
    loop {
        let response = next(&mut watch).await;
        assert!(response.events.is_empty(), "{response:?}");
        if response.canceled {
            return response.compact_revision;
        }
    }
}

async fn next(watch: &mut Streaming<WatchResponse>) -> WatchResponse {
    let next = tokio::time::timeout(Duration::from_secs(60), watch.message()).await;
    let next = next.expect("in time").expect("an answer");
    next.expect("one more")
}

async fn watches(channel: Channel, from: i64) -> Streaming<WatchResponse> {
    let create = WatchCreateRequest {
        key: b"\0".to_vec().into(),
        range_end: b"\0".to_vec().into(),
        start_revision: from,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut client = WatchClient::new(channel).max_decoding_message_size(64 << 20);
    let watch = client.watch(requests).await;
    watch.expect("a watch").into_inner()
}

/// A followed cluster and standbys.
pub(super) struct World {
    home: tempfile::TempDir,
    pub(super) source: Source,
    pub(super) servers: Vec<Server>,
    /// Flags for the followed cluster's user.
    user: Vec<String>,
}

impl World {
    pub(super) async fn new(home: tempfile::TempDir, source: Source, names: &[&str]) -> World {
        let key = Key::new(SECRET.as_bytes());
        std::fs::write(home.path().join("seed-key"), key.for_restores().bytes()).expect("a file");
        std::fs::write(home.path().join("run-key"), key.for_follow().bytes()).expect("a file");
        let mut servers = standbys(home.path(), names);
        for server in &mut servers {
            server.start();
        }
        World {
            home,
            source,
            servers,
            user: Vec::new(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        let _ = std::fs::remove_file(self.file("result"));
        command
            .args(["follow", what])
            .arg(format!("--from={}", self.source.endpoint))
            .args(&self.user)
            .arg(format!(
                "--member-key-file={}",
                self.file(&format!("{what}-key")).display()
            ))
            .arg(format!("--scratch={}", self.file("scratch").display()))
            .arg(format!("--result-file={}", self.file("result").display()))
            .stdout(Stdio::null())
            .stderr(
                std::fs::File::options()
                    .append(true)
                    .create(true)
                    .open(self.file("job.log"))
                    .expect("a log"),
            );
        command
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.file("job.log")).unwrap_or_default()
    }

    fn result(&self) -> Option<JobResult> {
        JobResult::read(&std::fs::read_to_string(self.file("result")).unwrap_or_default())
    }

    /// `quorate follow seed`, to the first server.
    fn seed(&self) -> Restored {
        let mut command = self.command("seed");
        command.arg(format!("--member={}", self.servers[0].peer_address()));
        assert!(command.status().expect("runs").success(), "{}", self.log());
        match self.result() {
            Some(JobResult::Restored(restored)) => restored,
            other => panic!("{other:?}"),
        }
    }

    async fn standby(&self, at: usize) -> DescribeResponse {
        let server = &self.servers[at];
        server
            .describes("a standby", |it| it.phase() == Phase::Standby)
            .await
    }

    /// A cluster of all servers that follows.
    pub(super) async fn founds(&self) -> Restored {
        let seeded = self.seed();
        let standby = self.standby(0).await;
        let mut request = call(&standby);
        request.snapshot = Some(BootstrapSnapshot {
            sha256: seeded.sha256.clone(),
            bump_revision: 0,
            follow: true,
        });
        self.servers[0]
            .operator()
            .bootstrap(request)
            .await
            .expect("founded");
        for at in 1..self.servers.len() {
            self.joins(at).await;
        }
        seeded
    }

    async fn joins(&self, at: usize) {
        let (seed, server) = (&self.servers[0], &self.servers[at]);
        let standby = self.standby(at).await;
        let added = until("it is added", seed, async || {
            let leader = seed.operator().describe(true).await.ok()?;
            seed.operator()
                .add_learner(add(server, &standby, &leader))
                .await
                .ok()
        })
        .await;
        until("it is promoted", seed, async || {
            let leader = seed.operator().describe(true).await.ok()?;
            seed.operator().promote(fence(&leader), added.id).await.ok()
        })
        .await;
    }

    /// `quorate follow run` with these flags.
    pub(super) fn runs(&self, flags: &str) -> Child {
        let members: Vec<String> = self.servers.iter().map(Server::peer_address).collect();
        let mut command = self.command("run");
        command
            .arg(format!("--members={}", members.join(",")))
            .args(flags.split(' ').map(|it| format!("--{it}")));
        command.spawn().expect("runs")
    }

    /// Until a server has a revision.
    pub(super) async fn reaches(&self, revision: i64) {
        for server in &self.servers {
            server
                .describes("the revision", |it| it.revision >= revision)
                .await;
        }
    }

    async fn cuts_over(&self) -> Followed {
        self.ends(self.runs("cutover=when-caught-up")).await
    }

    /// What a Job reports that ends the following.
    pub(super) async fn ends(&self, mut job: Child) -> Followed {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = job.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                job.kill().expect("it runs");
                panic!("no cutover: {}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        match self.result() {
            Some(JobResult::Followed(followed)) if status.success() => followed,
            other => panic!("{other:?}: {}", self.log()),
        }
    }

    fn fails(&self, job: Child) -> String {
        self.fails_as(job, FailureClass::Damaged)
    }

    pub(super) fn fails_as(&self, mut job: Child, wanted: FailureClass) -> String {
        assert!(!job.wait().expect("it ends").success());
        match self.result() {
            Some(JobResult::Failed { class, message }) if class == wanted => message,
            other => panic!("{other:?}: {}", self.log()),
        }
    }
}

pub(super) fn killed(mut job: Child) {
    job.kill().expect("it runs");
    job.wait().expect("it ends");
}

/// Whoever is killed, at the followed cluster's side or at this one's: no revision is lost and none is doubled.
async fn takes_the_place(home: tempfile::TempDir, source: Source) {
    source.lives().await;
    let mut world = World::new(home, source, &["demo-1", "demo-2", "demo-3"]).await;
    let seeded = world.founds().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(writes(world.source.kv(), Arc::clone(&stop)));

    // A Job that is killed, a leader that is killed, and Jobs that go on.
    let job = world.runs("cutover=manual");
    world.reaches(seeded.revision + 200).await;
    killed(job);
    let job = world.runs("cutover=manual");
    let led = leader(&world.servers).await;
    let revision = world.servers[led]
        .describes("a revision", |_| true)
        .await
        .revision;
    world.reaches(revision + 200).await;
    world.servers[led].kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.servers[led].start();
    world.reaches(revision + 400).await;

    // What clients may do meanwhile.
    let refused = world.servers[0]
        .put("own", "1")
        .await
        .expect_err("it follows");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, FOLLOWS)
    );
    assert_eq!(
        world.servers[1]
            .get("leased", false)
            .await
            .expect("read")
            .as_deref(),
        Some("1")
    );
    let described = world.servers[1]
        .operator()
        .describe(false)
        .await
        .expect("described");
    assert_eq!(described.following.expect("it follows").frozen_unix_ms, 0);

    // Leases that begin and end there, and one that lasts; a compaction.
    world.source.lease(78, 600).await;
    world.source.lease(79, 900).await;
    world.source.put("short", "1", 78).await.expect("put");
    world.source.put("long", "1", 79).await.expect("put");
    world.source.writes_much().await;
    let (_, _, now) = world.source.hash(0).await;
    world.reaches(now).await;
    let compaction = CompactionRequest {
        revision: now - 100,
        physical: true,
    };
    world
        .source
        .kv()
        .compact(compaction)
        .await
        .expect("compacted");
    world.servers[0].holds("short", "1").await;
    let mut leases = LeaseClient::new(world.source.channel());
    let revoked = leases.lease_revoke(LeaseRevokeRequest { id: 78 }).await;
    revoked.expect("revoked");
    until("its key is gone", &world.servers[0], async || {
        let found = world.servers[0].get("short", false).await.ok()?;
        found.is_none().then_some(())
    })
    .await;
    killed(job);

    // The cutover, under the writer's load.
    let done = world.cuts_over().await;
    let (written, refused) = writer.await.expect("no panic");
    let refused = refused.expect("it was refused at last");
    let closed = [Code::ResourceExhausted, Code::DataLoss];
    assert!(closed.contains(&refused.code()), "{refused}");
    assert!(written <= done.revision);
    eprintln!(
        "{} ms without writes",
        done.writable_unix_ms - done.frozen_unix_ms
    );

    // Every revision is the same: the hash has all of them, the watch shows their order.
    let here = || world.servers[0].channel();
    let there = world.source.hash(done.revision).await;
    assert_eq!(there.2, done.revision, "it has gone on");
    assert_eq!(there, hash(here(), done.revision).await);
    let from = there.1 + 1;
    assert!(from > seeded.revision, "{from}: the compaction came over");
    let (one, other) = (
        events(world.source.channel(), from, done.revision).await,
        events(here(), from, done.revision).await,
    );
    assert!(one.len() > 50);
    assert_eq!(one, other);

    // Clients go on here, at the next revision, with their leases.
    let next = world.servers[0]
        .put("own", "1")
        .await
        .expect("it takes writes");
    assert_eq!(next, done.revision + 1);
    for (id, granted) in [(LEASE, 600), (NEGATIVE, 600), (79, 900), (78, 0)] {
        let times = LeaseTimeToLiveRequest { id, keys: true };
        let times = LeaseClient::new(here()).lease_time_to_live(times).await;
        let times = times.expect("times").into_inner();
        assert_eq!(times.granted_ttl, granted, "lease {id}");
        assert_eq!(times.keys.len(), usize::from(granted > 0), "lease {id}");
        if granted > 0 {
            assert!(times.ttl > granted - 60, "{times:?}");
        }
    }
    let described = world.servers[1]
        .operator()
        .describe(false)
        .await
        .expect("described");
    assert!(described.following.is_none());
    // A Job that comes late is told so.
    let again = world.cuts_over().await;
    assert_eq!(again, Followed::default());
    stop.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_the_place_of_etcd() {
    let home = tempfile::tempdir().expect("a folder");
    if let Some(source) = Source::etcd(home.path()) {
        takes_the_place(home, source).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_the_place_of_another_of_ours() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    takes_the_place(home, source).await;
}

/// Users that change there change here, as of the moment at which the followed cluster is closed.
async fn users_come_over(home: tempfile::TempDir, source: Source) {
    source.serves().await;
    let mut auth = AuthClient::new(source.channel());
    user(&mut auth, None, "root", "secret").await;
    auth.role_add(AuthRoleAddRequest {
        name: "root".to_owned(),
    })
    .await
    .expect("added");
    grant(&mut auth, None, "root", "root").await;
    auth.auth_enable(AuthEnableRequest {})
        .await
        .expect("enabled");
    let mut world = World::new(home, source, &["demo-1"]).await;
    std::fs::write(world.file("user"), "root\n").expect("a file");
    std::fs::write(world.file("password"), "secret\n").expect("a file");
    world.user = vec![
        format!("--from-user-file={}", world.file("user").display()),
        format!("--from-password-file={}", world.file("password").display()),
    ];
    world.founds().await;
    let token = token(&mut auth, "root", "secret").await.expect("root");
    user(&mut auth, Some(&token), "ann", "hers").await;
    grant(&mut auth, Some(&token), "ann", "root").await;
    world.cuts_over().await;
    let mut here = AuthClient::new(world.servers[0].channel());
    let ann = until("ann is known", &world.servers[0], async || {
        self::token(&mut here, "ann", "hers").await
    })
    .await;
    // With her rights.
    let mut request = tonic::Request::new(PutRequest {
        key: "hers".into(),
        ..PutRequest::default()
    });
    request
        .metadata_mut()
        .insert("token", ann.parse().expect("a header"));
    world.servers[0].kv().put(request).await.expect("put");
    let nobody = world.servers[0].put("own", "1").await;
    nobody.expect_err("authentication is enabled");
}

async fn user(auth: &mut AuthClient<Channel>, token: Option<&str>, name: &str, password: &str) {
    let user = AuthUserAddRequest {
        name: name.to_owned(),
        password: password.to_owned(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(signed(user, token)).await.expect("added");
}

async fn grant(auth: &mut AuthClient<Channel>, token: Option<&str>, user: &str, role: &str) {
    let grant = AuthUserGrantRoleRequest {
        user: user.to_owned(),
        role: role.to_owned(),
    };
    auth.user_grant_role(signed(grant, token))
        .await
        .expect("granted");
}

async fn token(auth: &mut AuthClient<Channel>, name: &str, password: &str) -> Option<String> {
    let who = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    Some(auth.authenticate(who).await.ok()?.into_inner().token)
}

fn signed<T>(message: T, token: Option<&str>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Some(token) = token {
        let token = token.parse().expect("a header");
        request.metadata_mut().insert("token", token);
    }
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_etcd_come_over() {
    let home = tempfile::tempdir().expect("a folder");
    if let Some(source) = Source::etcd(home.path()) {
        users_come_over(home, source).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_another_cluster_of_ours_come_over() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    users_come_over(home, source).await;
}

/// What cannot go on says why and what to do, in the Job's result and in the members' descriptions, and the followed
/// cluster takes writes as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_compacted_away_is_not_guessed() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    world.founds().await;
    let mut last = 0;
    for number in 0..5 {
        last = world
            .source
            .put("more", &number.to_string(), 0)
            .await
            .expect("put");
    }
    let compaction = CompactionRequest {
        revision: last,
        physical: true,
    };
    world
        .source
        .kv()
        .compact(compaction)
        .await
        .expect("compacted");
    let message = world.fails(world.runs("cutover=when-caught-up"));
    assert!(
        message.contains(&format!("was compacted at revision {last}")),
        "{message}"
    );
    let described = world.servers[0]
        .operator()
        .describe(false)
        .await
        .expect("described");
    let following = described.following.expect("it follows");
    assert!(following.problem.contains("was compacted"), "{following:?}");
    world
        .source
        .put("more", "5", 0)
        .await
        .expect("it takes writes");
}

/// An alarm that is there for a reason of its own stops the cutover before anything is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_cluster_is_not_taken_over() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    world.founds().await;
    let alarm = AlarmRequest {
        action: AlarmAction::Activate.into(),
        member_id: 0,
        alarm: AlarmType::Corrupt.into(),
    };
    let mut client = MaintenanceClient::new(world.source.channel());
    client.alarm(alarm).await.expect("raised");
    let message = world.fails(world.runs("cutover=when-caught-up"));
    assert!(message.contains("the alarm CORRUPT is raised"), "{message}");
    let described = world.servers[0]
        .operator()
        .describe(false)
        .await
        .expect("described");
    assert_eq!(described.following.expect("it follows").frozen_unix_ms, 0);
}

async fn is_closed(source: &Source) -> bool {
    let mut client = MaintenanceClient::new(source.channel());
    let alarms = client.alarm(AlarmRequest::default()).await;
    !alarms.expect("alarms").into_inner().alarms.is_empty()
}

/// A closed cluster is opened by a Job that only follows, and followed again.
async fn is_opened_again(world: &World) {
    let refused = world.source.put("closed", "1", 0).await;
    refused.expect_err("it is closed");
    let job = world.runs("cutover=manual");
    until("it takes writes", &world.servers[0], async || {
        world.source.put("again", "1", 0).await.ok()
    })
    .await;
    assert!(!is_closed(&world.source).await);
    world.servers[0].holds("again", "1").await;
    killed(job);
}

/// Whoever is killed in the middle of a cutover leaves a closed cluster. The next one opens it again, and begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_cutover_is_begun_again() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    world.founds().await;
    let mut job = world.runs("cutover=when-caught-up");
    while !is_closed(&world.source).await {
        assert!(
            job.try_wait().expect("a child").is_none(),
            "{}",
            world.log()
        );
    }
    // Nothing is applied any more.
    world.servers[0].signal("STOP");
    killed(job);
    world.servers[0].signal("CONT");
    let described = world.servers[0].describes("it is there", |_| true).await;
    eprintln!("killed at {:?}", described.following);
    if described.following.is_none() {
        // It was too late: what follows holds all the same.
        let refused = world.source.put("late", "1", 0).await;
        refused.expect_err("it was left");
        return;
    }
    assert_ne!(described.following.expect("it follows").attempt, 0);
    is_opened_again(&world).await;
    let done = world.cuts_over().await;
    assert_eq!(world.source.hash(0).await.2, done.revision);
    world
        .source
        .put("closed", "1", 0)
        .await
        .expect_err("it was left");
    let next = world.servers[0]
        .put("own", "1")
        .await
        .expect("it takes writes");
    assert_eq!(next, done.revision + 1);
}

/// A call to close the followed cluster that was given up may still arrive. Nobody else would open it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_that_no_attempt_has_raised_goes() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    world.founds().await;
    let mut client = MaintenanceClient::new(world.source.channel());
    for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
        let late = AlarmRequest {
            action: AlarmAction::Activate.into(),
            member_id: (0x666f_6c6c << 32) | 3,
            alarm: alarm.into(),
        };
        client.alarm(late).await.expect("raised");
    }
    is_opened_again(&world).await;
}

/// Two at once take turns, and what one of them has done the other one does not undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_jobs_leave_a_cluster_once() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    world.founds().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(writes_through(world.source.kv(), Arc::clone(&stop)));
    let mut jobs = [
        world.runs("cutover=when-caught-up"),
        world.runs("cutover=when-caught-up"),
    ];
    let began = Instant::now();
    while jobs
        .iter_mut()
        .any(|job| job.try_wait().expect("a child").is_none())
    {
        assert!(began.elapsed() < Duration::from_secs(90), "{}", world.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for job in &mut jobs {
        assert!(job.wait().expect("it ends").success(), "{}", world.log());
    }
    // The writer still tries: nothing of it is taken where nobody reads.
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    let written = writer.await.expect("no panic");
    let (_, _, last) = world.source.hash(0).await;
    assert_eq!(written, last);
    let here = world.servers[0].channel();
    assert_eq!(world.source.hash(last).await, hash(here, last).await);
    assert!(is_closed(&world.source).await);
    let next = world.servers[0]
        .put("own", "1")
        .await
        .expect("it takes writes");
    assert_eq!(next, last + 1);
}

/// Writes until it is stopped, whatever is refused. Returns the last revision that was acknowledged.
async fn writes_through(mut kv: KvClient<Channel>, stop: Arc<AtomicBool>) -> i64 {
    let mut last = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Ok(revision) = put(&mut kv, "new", "1", 0).await {
            last = revision;
        }
    }
    last
}

/// A snapshot that was taken to follow its cluster founds no other kind of cluster, and no backup founds one that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seed_and_call_agree_or_nothing_is_founded() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let world = World::new(home, source, &["demo-1"]).await;
    let seeded = world.seed();
    let standby = world.standby(0).await;
    let staged = standby.staged.clone().expect("it is staged");
    assert_ne!(staged.source_cluster, 0);
    let refused = async |follow: bool, bump_revision: u64, words: &str| {
        let mut request = call(&standby);
        request.snapshot = Some(BootstrapSnapshot {
            sha256: seeded.sha256.clone(),
            bump_revision,
            follow,
        });
        let refused = world.servers[0].operator().bootstrap(request).await;
        let refused = refused.expect_err("nothing is founded");
        assert!(refused.message().contains(words), "{refused}");
    };
    refused(false, 0, "was taken to follow").await;
    refused(false, 1000, "was taken to follow").await;
    refused(true, 1000, "none can be raised").await;
    // Sent again, it is what is there: what was written meanwhile comes by the watch.
    world.source.put("more", "1", 0).await.expect("put");
    assert_eq!(world.seed().sha256, seeded.sha256);
    world.founds().await;
    // Nor does a client keep alive there what only the followed cluster can.
    let mut leases = LeaseClient::new(world.servers[0].channel());
    let renewal = futures::stream::iter([LeaseKeepAliveRequest { id: LEASE }]);
    let mut renewed = leases
        .lease_keep_alive(renewal)
        .await
        .expect("a stream")
        .into_inner();
    let refused = renewed.message().await.expect_err("it follows");
    assert_eq!(refused.message(), FOLLOWS);
    // Keys of other calls open nothing.
    let job = {
        std::fs::copy(world.file("seed-key"), world.file("run-key")).expect("copied");
        world.runs("cutover=manual")
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut job = job;
    assert!(job.try_wait().expect("a child").is_none(), "it is patient");
    killed(job);
    assert!(
        world.log().contains("the cluster that follows"),
        "{}",
        world.log()
    );
}
