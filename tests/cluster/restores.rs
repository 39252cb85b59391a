//! A new cluster from the backup of another one: a Job gives the standby that is to found it a snapshot, and a Bootstrap
//! names it. Whatever is killed meanwhile, the cluster has all the data or does not exist; it is never empty.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::faults::Faults;
use super::fixture::{SECRET, Server, by_hand, until};
use super::operated::{add, call, standbys};
use super::secured::{Certificates, hours};
use quorate::backup_plan::{FailureClass, JobResult, Restored};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::server::operator_api::restore_client::RestoreClient;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::{
    AuthRoleAddRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthUserListRequest,
    LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, WatchCreateRequest, WatchRequest,
    watch_request::RequestUnion,
};
use quorate::wire::member::{
    BootstrapRequest, BootstrapSnapshot, DescribeResponse, Expected, Phase, StagedSnapshot,
};
use tonic::Code;

pub(super) const BUMP: u64 = 1_000_000;
pub(super) const LEASE: i64 = 77;
/// 32 bytes in base64.
const BACKUP_KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with the backups `default/demo/one` and `sealed` of a cluster that is gone, the second one encrypted, and a
/// standby.
struct World {
    home: tempfile::TempDir,
    seed: Server,
    /// Of the cluster that was saved.
    revision: i64,
}

impl World {
    /// The values have so many KiB together.
    async fn new(kib: usize) -> World {
        let home = tempfile::tempdir().expect("a folder");
        let old = by_hand(home.path(), &["old"]).remove(0);
        let revision = saved(home.path(), old, kib).await;
        let key = Key::new(SECRET.as_bytes()).for_restores();
        std::fs::write(home.path().join("key"), key.bytes()).expect("a file");
        let seed = standbys(home.path(), &["demo-1"]).remove(0);
        World {
            home,
            seed,
            revision,
        }
    }

    async fn started(kib: usize) -> World {
        let mut world = World::new(kib).await;
        world.seed.start();
        world.standby().await;
        world
    }

    async fn standby(&self) -> DescribeResponse {
        let standby = self
            .seed
            .describes("a standby", |it| it.phase() == Phase::Standby);
        standby.await
    }

    async fn staged(&self) -> Option<StagedSnapshot> {
        self.standby().await.staged
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `quorate backup restore`, of a path below the store's own.
    fn command(&self, path: &str, more: &[&str]) -> Command {
        let _ = std::fs::remove_file(self.file("result"));
        let mut command = quorate("restore");
        command
            .arg(format!("--to=file://{}", self.file("store").display()))
            .arg(format!("--member={}", self.seed.peer_address()))
            .arg(format!("--member-key-file={}", self.file("key").display()))
            .arg(format!("--scratch={}", self.file("scratch").display()))
            .arg(format!("--result-file={}", self.file("result").display()))
            .args(more)
            .arg(path);
        command
    }

    fn result(&self) -> Option<JobResult> {
        JobResult::read(&std::fs::read_to_string(self.file("result")).unwrap_or_default())
    }

    fn restored(&self, path: &str) -> Restored {
        let output = self.command(path, &[]).output().expect("runs");
        self.sent(&output)
    }

    fn sent(&self, output: &Output) -> Restored {
        match self.result() {
            Some(JobResult::Restored(restored)) if output.status.success() => restored,
            _ => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    fn fails(&self, path: &str, more: &[&str]) -> (FailureClass, String) {
        let output = self.command(path, more).output().expect("runs");
        assert!(!output.status.success());
        match self.result() {
            Some(JobResult::Failed { class, message }) => (class, message),
            other => panic!("{other:?}"),
        }
    }

    /// The backup in one file.
    fn fetched(&self) -> Vec<u8> {
        let file = self.file("fetched.db");
        if !file.exists() {
            let output = quorate("fetch")
                .arg(format!("--to=file://{}", self.file("store").display()))
                .args(["--prefix=default/demo", "one"])
                .arg(&file)
                .output();
            let output = output.expect("runs");
            assert!(output.status.success(), "{output:?}");
        }
        std::fs::read(file).expect("a file")
    }

    fn client(&self) -> RestoreClient {
        client(&self.seed, &Key::new(SECRET.as_bytes()).for_restores())
    }

    /// Founds the cluster, and reads everything.
    async fn founds(&self, sha256: &str) {
        let standby = self.standby().await;
        let founded = until("it is founded", &self.seed, async || {
            match self.seed.operator().bootstrap(from(&standby, sha256)).await {
                Ok(founded) => Some(founded),
                Err(status) if status.code() == Code::Unavailable => None,
                Err(status) => panic!("{status}"),
            }
        });
        let founded = founded.await;
        assert_ne!(founded.member_id, 0);
        self.holds().await;
    }

    async fn holds(&self) {
        let seed = &self.seed;
        seed.describes("leads", |it| it.leader_with_quorum).await;
        seed.holds("first", "1").await;
        for (key, value) in [("last", "1"), ("leased", "1")] {
            let found = seed.get(key, false).await.expect("an answer");
            assert_eq!(found.as_deref(), Some(value), "{key}");
        }
    }
}

pub(super) fn quorate(subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["backup", subcommand]);
    command
}

pub(super) fn client(server: &Server, key: &Key) -> RestoreClient {
    let client = RestoreClient::new(&server.peer_address(), key.clone(), PATIENCE, None);
    client.expect("an address")
}

/// A Bootstrap from a snapshot.
fn from(standby: &DescribeResponse, sha256: &str) -> BootstrapRequest {
    BootstrapRequest {
        snapshot: Some(BootstrapSnapshot {
            sha256: sha256.to_owned(),
            bump_revision: BUMP,
            follow: false,
        }),
        ..call(standby)
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gives a standby the whole snapshot.
async fn stage(client: &mut RestoreClient, bytes: &[u8]) {
    let name = sha256(bytes);
    let mut at = client
        .begin(&name, bytes.len() as u64, 0)
        .await
        .expect("it takes one");
    while at < bytes.len() as u64 {
        let rest = &bytes[usize::try_from(at).expect("short")..];
        let piece = rest[..rest.len().min(1 << 20)].to_vec();
        at = client.write(&name, at, piece.into()).await.expect("stored");
    }
    client.finish(&name, None).await.expect("whole");
}

/// Writes into a cluster of one, saves it, and ends it.
async fn saved(home: &Path, mut old: Server, kib: usize) -> i64 {
    old.start();
    old.serves("first").await;
    let value = "v".repeat(512 << 10);
    for number in 0..kib.div_ceil(512) {
        let put = old.put(&format!("large-{number}"), &value).await;
        put.expect("a write");
    }
    let revision = writes(&old).await;
    std::fs::create_dir_all(home.join("store")).expect("a directory");
    std::fs::write(home.join("backup-key"), BACKUP_KEY).expect("a file");
    let sealed = format!("--key-file={}", home.join("backup-key").display());
    for more in [&["--id=one"][..], &["--id=sealed", &sealed]] {
        let output = quorate("save")
            .arg(format!("--endpoints=http://{}:2379", old.address))
            .arg(format!("--to=file://{}", home.join("store").display()))
            .arg(format!("--scratch={}", home.join("scratch").display()))
            .arg("--prefix=default/demo")
            .args(more)
            .output();
        let output = output.expect("runs");
        assert!(output.status.success(), "{output:?}");
    }
    old.kill();
    revision
}

/// Writes of every kind; returns the last revision.
pub(super) async fn writes(old: &Server) -> i64 {
    let lease = LeaseGrantRequest {
        ttl: 3600,
        id: LEASE,
    };
    LeaseClient::new(old.channel())
        .lease_grant(lease)
        .await
        .expect("a lease");
    let leased = PutRequest {
        key: "leased".into(),
        value: "1".into(),
        lease: LEASE,
        ..PutRequest::default()
    };
    old.kv().put(leased).await.expect("a write");
    let mut auth = AuthClient::new(old.channel());
    let role = AuthRoleAddRequest {
        name: "reader".into(),
    };
    auth.role_add(role).await.expect("a role");
    let user = AuthUserAddRequest {
        name: "ann".into(),
        password: "secret".into(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(user).await.expect("a user");
    let grant = AuthUserGrantRoleRequest {
        user: "ann".into(),
        role: "reader".into(),
    };
    auth.user_grant_role(grant).await.expect("granted");
    old.put("last", "1").await.expect("a write")
}

#[tokio::test]
async fn new_cluster_has_the_data_of_the_backup() {
    let mut world = World::started(0).await;
    assert_eq!(world.staged().await, None);
    let restored = world.restored("default/demo/one");
    assert_eq!(restored.revision, world.revision);
    assert_eq!(restored.path, "default/demo/one");
    assert_eq!(restored.sha256, sha256(&world.fetched()));
    let standby = world.standby().await;
    let staged = standby.staged.as_ref().expect("it is described");
    assert!(staged.complete && standby.disk_empty);
    assert_eq!(
        (staged.received, staged.revision, staged.keys),
        (restored.size, restored.revision, restored.keys)
    );
    // A Job that is repeated sends nothing again, and reports the same; with the prefix as a flag it is the same one.
    let output = world.command("one", &["--prefix=default/demo"]).output();
    let again = world.sent(&output.expect("runs"));
    assert_eq!(again.sha256, restored.sha256);
    // It is not even downloaded.
    let backup = world.file("store/default/demo/one");
    let entries = std::fs::read_dir(backup).expect("a folder");
    let paths = entries.map(|entry| entry.expect("readable").path());
    for (number, parts) in paths.filter(|path| path.is_dir()).enumerate() {
        let away = world.file(&format!("parts-{number}"));
        std::fs::rename(parts, away).expect("moved");
    }
    assert_eq!(world.restored("default/demo/one").sha256, restored.sha256);

    world.founds(&restored.sha256).await;
    for _ in 0..2 {
        let seed = &world.seed;
        world.holds().await;
        let lease = LeaseTimeToLiveRequest {
            id: LEASE,
            keys: true,
        };
        let mut leases = LeaseClient::new(seed.channel());
        let lease = leases.lease_time_to_live(lease).await.expect("an answer");
        let lease = lease.into_inner();
        assert!(lease.ttl > 3000, "{lease:?}");
        assert_eq!(lease.keys, ["leased"]);
        let mut auth = AuthClient::new(seed.channel());
        let users = auth.user_list(AuthUserListRequest {}).await.expect("users");
        assert_eq!(users.into_inner().users, ["ann"]);
        world.seed.kill();
        world.seed.start();
    }
    world.seed.serves("after").await;
    let revision = world.seed.put("after", "2").await.expect("a write");
    assert!(revision > world.revision + BUMP.cast_signed(), "{revision}");
    assert!(compacted(&world.seed, world.revision).await > world.revision);
    let described = world
        .seed
        .describes("a member", |it| it.phase() == Phase::Member);
    assert_eq!(described.await.staged, None);
    assert!(!world.seed.data.join("staged").exists());
    // The Job that comes late is told so.
    let (class, message) = world.fails("default/demo/one", &["--member-wait=1"]);
    assert_eq!(class, FailureClass::Target, "{message}");
    assert!(message.contains("is a member of the cluster"), "{message}");
}

/// The revision of the compaction by which a watch from `revision` is refused.
async fn compacted(server: &Server, revision: i64) -> i64 {
    let create = WatchCreateRequest {
        key: "last".into(),
        start_revision: revision,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests = futures::stream::iter([request]);
    let requests = futures::StreamExt::chain(requests, futures::stream::pending());
    let watch = WatchClient::new(server.channel()).watch(requests).await;
    let mut watch = watch.expect("a watch").into_inner();
    loop {
        let response = watch.message().await.expect("an answer").expect("one more");
        if response.canceled {
            return response.compact_revision;
        }
    }
}

#[tokio::test]
async fn killed_standby_goes_on_where_it_was() {
    let mut world = World::started(16 << 10).await;
    let mut job = world.command("default/demo/one", &["--rate=1"]);
    let mut job: Child = job.stderr(Stdio::piped()).spawn().expect("runs");
    let before = until("some of it is there", &world.seed, async || {
        let staged = world.seed.operator().describe(false).await.ok()?.staged?;
        (staged.received > 1 << 20).then_some(staged.received)
    })
    .await;
    world.seed.kill();
    world.seed.start();
    // The same Job goes on.
    let resumed = until("it goes on", &world.seed, async || {
        let staged = world.seed.operator().describe(false).await.ok()?.staged?;
        (staged.elapsed_ms > 0).then_some(staged)
    })
    .await;
    assert!(resumed.resumed_at >= before, "{resumed:?}");
    // The next Job as well.
    job.kill().expect("it runs");
    job.wait().expect("it ends");
    let before = world.staged().await.expect("something").received;
    assert!(before > 0);
    let restored = world.restored("default/demo/one");
    let staged = world.staged().await.expect("something");
    assert!(staged.complete && staged.resumed_at > 0, "{staged:?}");
    world.founds(&restored.sha256).await;
}

#[tokio::test]
async fn bootstrap_and_snapshot_fit_or_nothing_is_founded() {
    let world = World::started(0).await;
    let standby = world.standby().await;
    let bytes = world.fetched();
    let name = sha256(&bytes);
    let refused = async |request: BootstrapRequest, words: &str| {
        let refused = world.seed.operator().bootstrap(request).await;
        let refused = refused.expect_err("nothing is founded");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
        assert_eq!(world.standby().await.nonce, "");
    };
    refused(from(&standby, &name), "holds none").await;
    let mut client = world.client();
    client
        .begin(&name, bytes.len() as u64, 0)
        .await
        .expect("begun");
    refused(from(&standby, &name), "not complete").await;
    refused(call(&standby), "names no snapshot").await;
    stage(&mut client, &bytes).await;
    // What is not what was saved is not kept, though it can be restored.
    let other = Expected {
        revision: world.revision,
        keys: 1,
        hash: 1,
    };
    let dropped = client.finish(&name, Some(other)).await;
    let dropped = dropped.expect_err("another was saved");
    assert_eq!(dropped.code(), Code::DataLoss, "{dropped}");
    refused(from(&standby, &name), "holds none").await;
    stage(&mut client, &bytes).await;
    refused(from(&standby, &sha256(b"other")), "and this standby holds").await;
    refused(call(&standby), "names no snapshot").await;
    world.founds(&name).await;
    let again = world.seed.operator().bootstrap(from(&standby, &name)).await;
    assert!(again.expect("the same call").already);
}

/// The first one is killed after the answer; the others earlier and earlier, in parts of the time that it took.
#[tokio::test]
async fn crash_while_founding_never_leaves_less() {
    let world = World::new(1).await;
    let bytes = world.fetched();
    let name = sha256(&bytes);
    let mut took: Option<Duration> = None;
    for tenths in [10, 9, 8, 6, 4, 2, 0] {
        let home = tempfile::tempdir().expect("a folder");
        let mut world = World {
            seed: standbys(home.path(), &["demo-1"]).remove(0),
            home,
            revision: world.revision,
        };
        world.seed.start();
        let standby = world.standby().await;
        stage(&mut world.client(), &bytes).await;
        let mut operator: MemberClient = world.seed.operator();
        let request = from(&standby, &name);
        let began = Instant::now();
        let asked = tokio::spawn(async move { operator.bootstrap(request).await });
        match took {
            Some(took) => {
                tokio::time::sleep_until((began + took * tenths / 10).into()).await;
                world.seed.kill();
                let _ = asked.await.expect("no panic");
            }
            None => {
                let founded = asked.await.expect("no panic");
                assert!(!founded.expect("founded").already);
                took = Some(began.elapsed());
                world.seed.kill();
            }
        }
        world.seed.start();
        let after = world.seed.describes("it is there", |_| true).await;
        eprintln!("killed after {tenths} tenths: {:?}", after.phase());
        if after.phase() == Phase::Standby {
            assert!(tenths < 10, "its founding was acknowledged");
            assert!(after.staged.is_some_and(|staged| staged.complete));
            assert_eq!(after.cluster_id, 0);
            world.founds(&name).await;
        } else {
            assert_eq!(after.phase(), Phase::Member);
            world.holds().await;
            let again = world.seed.operator().bootstrap(from(&standby, &name)).await;
            assert!(again.expect("the same call").already);
        }
        assert!(!world.seed.data.join("staged").exists());
    }
}

#[tokio::test]
async fn only_an_empty_standby_takes_a_snapshot() {
    let mut world = World::started(0).await;
    let bytes = world.fetched();
    let name = sha256(&bytes);
    // Keys of other calls open nothing, and this one opens no others.
    let operators = Key::new(SECRET.as_bytes());
    for wrong in [operators.clone(), operators.for_backups()] {
        let refused = client(&world.seed, &wrong).prospect().await;
        refused.expect_err("another key");
    }
    let address = world.seed.peer_address();
    let wrong = MemberClient::new(&address, operators.for_restores(), PATIENCE, None);
    let refused = wrong.expect("an address").describe(false).await;
    refused.expect_err("it is for snapshots alone");
    // What is not what was announced is dropped.
    let mut restores = world.client();
    let length = bytes.len() as u64;
    let other = sha256(b"other");
    restores.begin(&other, length, 0).await.expect("begun");
    let mut at = 0;
    while at < length {
        let rest = &bytes[usize::try_from(at).expect("short")..];
        let piece = rest[..rest.len().min(1 << 20)].to_vec();
        at = restores
            .write(&other, at, piece.into())
            .await
            .expect("stored");
    }
    let refused = restores
        .finish(&other, None)
        .await
        .expect_err("another content");
    assert_eq!(refused.code(), Code::DataLoss, "{refused}");
    let dropped = world.staged().await.expect("it is told why");
    assert!(dropped.problem.contains("was announced"), "{dropped:?}");
    assert_eq!((dropped.sha256, dropped.received), (String::new(), 0));

    // A member, and a standby that had received something and was added as a learner.
    stage(&mut restores, &bytes).await;
    world.founds(&name).await;
    let key = operators.for_restores();
    let mut second = standbys(world.home.path(), &["demo-2"]).remove(0);
    let join = format!("--join-from={}", world.seed.peer_address());
    second
        .arguments
        .retain(|it| !it.starts_with("--join-from="));
    second.arguments.push(join);
    second.start();
    let standby = second
        .describes("a standby", |it| it.phase() == Phase::Standby)
        .await;
    let mut restores = client(&second, &key);
    restores.begin(&name, length, 0).await.expect("begun");
    until("it is added", &world.seed, async || {
        let leader = world.seed.operator().describe(true).await.ok()?;
        let request = add(&second, &standby, &leader);
        world.seed.operator().add_learner(request).await.ok()
    })
    .await;
    second
        .describes("a member", |it| it.phase() == Phase::Member)
        .await;
    second.holds("last", "1").await;
    assert!(!second.data.join("staged").exists());
    for server in [&world.seed, &second] {
        let mut client = client(server, &key);
        let why = client.prospect().await.expect("an answer").refused;
        assert!(why.contains("a snapshot is for an empty standby"), "{why}");
        let refused = [
            client.begin(&name, length, 0).await.err(),
            client.write(&name, 0, vec![1].into()).await.err(),
            client.finish(&name, None).await.err(),
        ];
        for refused in refused {
            let refused = refused.expect("refused");
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        }
        assert!(!server.data.join("staged").exists());
    }
    world.seed.kill();
    second.kill();
}

#[tokio::test]
async fn encrypted_backup_needs_its_key() {
    let world = World::started(0).await;
    let (class, message) = world.fails("default/demo/sealed", &[]);
    assert_eq!(class, FailureClass::Key, "{message}");
    assert_eq!(world.staged().await, None, "nothing was sent");
    let key = format!("--key-file={}", world.file("backup-key").display());
    let sealed = world.command("default/demo/sealed", &[&key]).output();
    let restored = world.sent(&sealed.expect("runs"));
    assert_eq!(restored.revision, world.revision);
    // What is sent is the snapshot itself.
    assert_eq!(restored.sha256, sha256(&world.fetched()));
    world.founds(&restored.sha256).await;
}

#[tokio::test]
async fn snapshot_is_sent_over_tls() {
    let mut world = World::new(0).await;
    let certificates = Certificates::new(world.home.path(), "root");
    certificates.issue(&world.seed, hours(-1, 1000));
    certificates.trust(&[&certificates.root]);
    certificates.give(&mut world.seed);
    world.seed.start();
    let seed = &world.seed;
    let standby = certificates.describes("a standby", seed, |it| it.phase() == Phase::Standby);
    let standby = standby.await;
    // Without roots, and with another's.
    let other = Certificates::new(world.home.path(), "other");
    std::fs::write(world.file("other.crt"), &other.root).expect("a file");
    let roots = |file: &str| format!("--member-cacert={}", world.file(file).display());
    let wrong = roots("other.crt");
    for more in [&["--member-wait=1"][..], &["--member-wait=1", &wrong]] {
        let (class, message) = world.fails("default/demo/one", more);
        assert_eq!(class, FailureClass::Target, "{message}");
    }
    let output = world
        .command("default/demo/one", &[&roots("ca.crt")])
        .output();
    let restored = world.sent(&output.expect("runs"));
    let mut operator = certificates.operator(seed, false);
    let founded = operator.bootstrap(from(&standby, &restored.sha256)).await;
    assert_ne!(founded.expect("founded").member_id, 0);
    let leads = certificates.describes("leads", seed, |it| it.leader_with_quorum);
    leads.await;
    seed.holds("last", "1").await;
}

/// Each discards what the other has sent: one of them has to give up.
#[tokio::test]
async fn job_gives_way_to_another_snapshot() {
    let world = World::started(16 << 10).await;
    let mut job = world.command("default/demo/one", &["--rate=1"]);
    let mut job: Child = job.stderr(Stdio::piped()).spawn().expect("runs");
    let mut other = world.client();
    let name = sha256(b"other");
    let began = Instant::now();
    while job.try_wait().expect("its state").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
        let here = world.staged().await;
        if here.is_some_and(|here| here.sha256 != name && here.received > 0) {
            // Refused while a piece of the other one is written.
            let _ = other.begin(&name, 1 << 20, 0).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let Some(JobResult::Failed { class, message }) = world.result() else {
        panic!("{:?}", world.result());
    };
    assert_eq!(class, FailureClass::Target, "{message}");
    assert!(message.contains("at the same time"), "{message}");
}

#[tokio::test]
async fn any_snapshot_of_etcds_is_restored_and_nothing_else() {
    let world = World::started(0).await;
    let bytes = world.fetched();
    let put = |name: &str, bytes: &[u8]| {
        let file = world.file("store").join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a directory");
        std::fs::write(file, bytes).expect("a file");
    };
    put("old/snapshot.db", &bytes);
    put("bare.db", &bytes[..bytes.len() - 32]);
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    put("damaged.db", &damaged);
    put("notes", b"no snapshot");

    for (path, class, words) in [
        (
            "nowhere/one",
            FailureClass::NotFound,
            "nowhere/one/manifest",
        ),
        (
            "default/demo",
            FailureClass::NotFound,
            "no object default/demo",
        ),
        ("damaged.db", FailureClass::Damaged, "that of its data is"),
        ("notes", FailureClass::Damaged, "cannot be restored"),
        (
            "../store/bare.db",
            FailureClass::Settings,
            "is no path in a store",
        ),
    ] {
        let (found, message) = world.fails(path, &[]);
        assert_eq!(found, class, "{path}: {message}");
        assert!(message.contains(words), "{path}: {message}");
    }
    assert_eq!(world.staged().await, None, "nothing was sent");
    // Of etcd itself, with a user, an alarm and a learner of the cluster that was saved.
    for version in ["3.4.13", "3.5.35", "3.6.16", "3.7.3"] {
        let file = format!("tests/data/etcd-snapshots/{version}.db");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        put("etcd.db", &std::fs::read(file).expect("a snapshot"));
        let restored = world.restored("etcd.db");
        let staged = world.staged().await.expect("it is here");
        assert!(
            staged.complete && restored.keys > 0,
            "{version}: {staged:?}"
        );
    }
    let bare = world.restored("bare.db");
    assert_eq!(bare.size, bytes.len() as u64 - 32);
    // Another one takes its place.
    let restored = world.restored("old/snapshot.db");
    assert_eq!(restored.sha256, sha256(&bytes));
    assert_eq!(
        (restored.revision, restored.keys),
        (bare.revision, bare.keys)
    );
    world.founds(&restored.sha256).await;
}

#[tokio::test]
async fn full_disk_is_waited_for() {
    let mut world = World::new(1 << 10).await;
    let faults = Faults::of(world.home.path(), &mut world.seed);
    world.seed.start();
    world.standby().await;
    faults.on("full");
    let (class, message) = world.fails("default/demo/one", &["--member-wait=1"]);
    assert_eq!(class, FailureClass::TargetFull, "{message}");
    for words in ["bytes free", "enlarge the volume", "--member-wait"] {
        assert!(message.contains(words), "{message}");
    }
    let mut job = world.command("default/demo/one", &[]);
    let job: Child = job.stderr(Stdio::piped()).spawn().expect("runs");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.staged().await.is_some_and(|staged| !staged.complete));
    faults.off("full");
    let output = job.wait_with_output().expect("it ends");
    let restored = world.sent(&output);
    // Nor does a cluster begin without space: the standby stays one.
    faults.on("full");
    let standby = world.standby().await;
    let mut operator = world.seed.operator();
    let refused = operator.bootstrap(from(&standby, &restored.sha256));
    let refused = refused.await.expect_err("no space");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(world.staged().await.is_some_and(|staged| staged.complete));
    faults.off("full");
    world.founds(&restored.sha256).await;
}
