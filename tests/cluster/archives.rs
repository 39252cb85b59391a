//! The archive of a living cluster's log, and what is restored from it: for each of several moments exactly what the
//! cluster held then. Archivers are killed, run twice and come too late meanwhile.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use quorate::backup_plan::{Archived, JobResult, Restored};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::backup_client::BackupClient;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::*;
use quorate::wire::member::{EntriesRequest, Phase};
use tonic::Code;

use super::fixture::{PATIENCE, SECRET, Server, by_hand, until};
use super::full::Volume;
use super::held::{Client, Truth};
use super::operated::{call, joins, standbys};

/// Of archivers, where nothing else is said.
const FAST: &str = "--interval=200ms";
/// 32 bytes in base64.
const BACKUP_KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n";
const FOLDER: &str = "default/demo";

struct World {
    home: tempfile::TempDir,
    servers: Vec<Server>,
    /// What is stored is encrypted.
    sealed: bool,
}

/// An archiver that runs; killed when it is dropped.
struct Archiver {
    child: Child,
    result: String,
}

impl Drop for Archiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Archiver {
    async fn end(mut self) -> (Option<i32>, Archived) {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let text = std::fs::read_to_string(&self.result).unwrap_or_default();
        match JobResult::read(&text) {
            Some(JobResult::Archived(archived)) => (code, archived),
            other => panic!("{code:?}: {other:?} {text}"),
        }
    }

    /// SIGTERM: it stores what it has.
    async fn terminate(self) -> Archived {
        let id = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(done.expect("kill runs").success());
        let (code, archived) = self.end().await;
        assert_eq!((code, archived.gap), (Some(0), false), "{archived:?}");
        archived
    }
}

impl World {
    /// So many members; the first one leads.
    async fn new(names: &[&str], arguments: &[&str]) -> World {
        let home = tempfile::tempdir().expect("a folder");
        let mut servers = standbys(home.path(), names);
        for server in &mut servers {
            server
                .arguments
                .extend(arguments.iter().map(|it| (*it).to_owned()));
        }
        World::of(home, servers).await
    }

    async fn of(home: tempfile::TempDir, mut servers: Vec<Server>) -> World {
        for server in &mut servers {
            server.start();
        }
        let seed = &servers[0];
        let first = seed.describes("a standby", |it| it.phase() == Phase::Standby);
        let founded = seed.operator().bootstrap(call(&first.await)).await;
        founded.expect("a cluster");
        seed.serves("key").await;
        for server in &servers[1..] {
            let standby = server.describes("a standby", |it| it.phase() == Phase::Standby);
            joins(seed, server, &standby.await).await;
        }
        std::fs::create_dir(home.path().join("store")).expect("a directory");
        let key = Key::new(SECRET.as_bytes()).for_backups();
        std::fs::write(home.path().join("key"), key.bytes()).expect("a file");
        World {
            home,
            servers,
            sealed: false,
        }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn quorate(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command
            .args(["backup", subcommand])
            .arg(format!("--to=file://{}", self.path("store")))
            .stdin(Stdio::null());
        if self.sealed {
            command.arg(format!("--key-file={}", self.path("backup-key")));
        }
        command
    }

    fn of_members(&self, subcommand: &str) -> Command {
        let members: Vec<String> = self.servers.iter().map(Server::peer_address).collect();
        let mut command = self.quorate(subcommand);
        command
            .arg(format!("--prefix={FOLDER}"))
            .arg(format!("--members={}", members.join(",")))
            .arg(format!("--member-key-file={}", self.path("key")));
        command
    }

    fn save(&self, id: &str) -> u64 {
        let result = self.path("saved");
        let output = self
            .of_members("save")
            .arg(format!("--id={id}"))
            .arg(format!("--scratch={}", self.path("scratch")))
            .arg(format!("--result-file={result}"))
            .output();
        let output = output.expect("runs");
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        let Some(JobResult::Saved(saved)) = JobResult::read(&text) else {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        };
        saved.raft_index
    }

    fn archiver(&self, interval: &str) -> Archiver {
        let result = self.path(&format!("archived-{}", uuid::Uuid::new_v4().simple()));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("archiver.log"));
        let child = self
            .of_members("archive")
            .arg(interval)
            .arg(format!("--result-file={result}"))
            .stdout(Stdio::null())
            .stderr(log.expect("a file"))
            .spawn();
        Archiver {
            child: child.expect("runs"),
            result,
        }
    }

    fn fetch(&self, at: &str) -> Output {
        let file = self.path("fetched.db");
        let _ = std::fs::remove_file(&file);
        self.quorate("fetch")
            .arg(format!("--prefix={FOLDER}"))
            .arg(format!("--at={at}"))
            .arg(format!("--scratch={}", self.path("scratch")))
            .arg(file)
            .output()
            .expect("runs")
    }

    fn fetched(&self, at: &str) -> Vec<u8> {
        let output = self.fetch(at);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{at}: {errors}");
        std::fs::read(self.path("fetched.db")).expect("a file")
    }

    /// The error of a moment that is not there.
    fn refused(&self, at: &str) -> String {
        let output = self.fetch(at);
        assert_eq!(output.status.code(), Some(1), "{at}");
        assert!(!Path::new(&self.path("fetched.db")).exists());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The last entry that the first member has applied.
    async fn applied(&self) -> u64 {
        let described = self.servers[0].operator().describe(false).await;
        described.expect("an answer").applied
    }

    /// A time at which everything up to an entry is archived and known to be.
    async fn archived(&self, index: u64) -> Timestamp {
        let since = Timestamp::now().as_millisecond();
        until("it is archived", &self.servers[0], async || {
            for server in &self.servers {
                let described = server.operator().describe(false).await.ok()?;
                let archived = described.archived.unwrap_or_default();
                if archived.index >= index && archived.as_of_unix_ms > since {
                    let here = archived.location.starts_with("file://");
                    assert!(here && archived.location.contains("/archive/"));
                    return Some(Timestamp::now());
                }
            }
            None
        })
        .await
    }
}

/// What was done, and what the cluster held afterwards.
struct Step {
    what: &'static str,
    index: u64,
    at: Timestamp,
    /// Whether it was a write of keys.
    wrote: bool,
    truth: Truth,
}

async fn step(world: &World, client: &Client<'_>, what: &'static str, wrote: bool) -> Step {
    let truth = client.truth().await;
    let index = world.applied().await;
    let at = world.archived(index).await;
    assert_eq!(world.applied().await, index, "{what}: nothing else happens");
    Step {
        what,
        index,
        at,
        wrote,
        truth,
    }
}

#[tokio::test]
async fn every_moment_has_what_the_cluster_had_then() {
    let world = World::new(&["demo-1", "demo-2"], &[]).await;
    let mut client = Client {
        server: &world.servers[0],
        token: None,
    };
    for number in 0..20 {
        client
            .put(&format!("before-{}", number % 7), "old", 0)
            .await;
    }
    let saved = world.save("one");
    let first = world.archiver(FAST);
    let mut steps = Vec::new();

    txn(&client).await;
    steps.push(step(&world, &client, "a transaction", true).await);
    client.grant(100, 1000).await;
    client.put("leased-a", "1", 100).await;
    client.put("leased-b", "1", 100).await;
    steps.push(step(&world, &client, "keys of a lease", true).await);
    client.grant(200, 900).await;
    steps.push(step(&world, &client, "a lease", false).await);
    client.revoke(100).await;
    steps.push(step(&world, &client, "a revoked lease", true).await);
    // Killed, and followed by two.
    drop(first);
    let (one, two) = (world.archiver(FAST), world.archiver(FAST));
    client.grant(300, 1).await;
    client.put("short-a", "1", 300).await;
    client.put("short-b", "1", 300).await;
    until("it expires", client.server, async || {
        let found = client.server.get("short-b", false).await.ok()?;
        found.is_none().then_some(())
    })
    .await;
    steps.push(step(&world, &client, "an expired lease", true).await);
    client.grant(400, 5).await;
    client.put("kept", "1", 400).await;
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.keep_alive(400).await;
    }
    steps.push(step(&world, &client, "a lease that is kept alive", true).await);
    client.revoke(400).await;

    let compacted = steps[1].truth.revision;
    let compact = CompactionRequest {
        revision: compacted,
        physical: true,
    };
    client
        .server
        .kv()
        .compact(compact)
        .await
        .expect("compacted");
    steps.push(step(&world, &client, "a compaction", false).await);
    move_leader(&world).await;
    client.put("under-the-next-leader", "1", 0).await;
    steps.push(step(&world, &client, "another leader", true).await);
    users(&client).await;
    steps.push(step(&world, &client, "users and roles", false).await);
    let open = steps.last().expect("a step");
    let events = client.events(compacted + 1, open.truth.revision).await;
    let (index, revision) = (open.index, open.truth.revision);

    let mut auth = AuthClient::new(client.server.channel());
    auth.auth_enable(AuthEnableRequest {})
        .await
        .expect("enabled");
    let login = AuthenticateRequest {
        name: "root".to_owned(),
        password: "secret".to_owned(),
    };
    let token = auth.authenticate(login).await.expect("a token");
    client.token = Some(token.into_inner().token);
    client.put("as-root", "1", 0).await;
    steps.push(step(&world, &client, "authentication", true).await);
    client.put("the-end", "1", 0).await;
    let last = step(&world, &client, "the end", true).await;
    let mut idle = Timestamp::UNIX_EPOCH;
    for archiver in [one, two] {
        let archived = archiver.terminate().await;
        assert!(archived.first == saved + 1 && archived.last >= last.index);
        idle = archived.as_of.expect("a time is known");
        assert!(idle <= Timestamp::now());
    }

    for step in &steps {
        let mut moments = vec![format!("index:{}", step.index), step.at.to_string()];
        if step.wrote {
            moments.push(format!("revision:{}", step.truth.revision));
        }
        for moment in moments {
            let found = Truth::in_file(&world.fetched(&moment));
            assert_eq!(found, step.truth, "{} at {moment}", step.what);
        }
    }
    // The last archiver has recorded until when nothing was written.
    for moment in ["latest".to_owned(), idle.to_string()] {
        assert_eq!(Truth::in_file(&world.fetched(&moment)), last.truth);
    }

    names_what_is_there(&world, saved, &last);
    restored_server_tells_the_same(&world, index, (compacted, revision), &events).await;
    restores_to_a_standby(&world, &steps[2]).await;
    listed_and_pruned(&world, saved, &last);
}

async fn txn(client: &Client<'_>) {
    let put = |key: &'static str| RequestOp {
        request: Some(request_op::Request::RequestPut(PutRequest {
            key: key.as_bytes().into(),
            value: b"of a transaction".as_slice().into(),
            ..PutRequest::default()
        })),
    };
    let delete = RequestOp {
        request: Some(request_op::Request::RequestDeleteRange(
            DeleteRangeRequest {
                key: b"before-3".as_slice().into(),
                range_end: b"before-6".as_slice().into(),
                ..DeleteRangeRequest::default()
            },
        )),
    };
    let txn = TxnRequest {
        success: vec![put("a"), put("b"), delete],
        ..TxnRequest::default()
    };
    client.server.kv().txn(txn).await.expect("a transaction");
}

async fn move_leader(world: &World) {
    let id = |at: usize| async move {
        let described = world.servers[at].operator().describe(false).await;
        described.expect("an answer").member_id
    };
    let other = id(1).await;
    let mut maintenance = MaintenanceClient::new(world.servers[0].channel());
    let moved = maintenance.move_leader(MoveLeaderRequest { target_id: other });
    moved.await.expect("moved");
    let leads = world.servers[1].describes("it leads", |it| it.leader_with_quorum);
    leads.await;
}

async fn users(client: &Client<'_>) {
    let mut auth = AuthClient::new(client.server.channel());
    for name in ["root", "reader"] {
        let user = AuthUserAddRequest {
            name: name.to_owned(),
            password: "secret".to_owned(),
            ..AuthUserAddRequest::default()
        };
        auth.user_add(user).await.expect("a user");
        let role = AuthRoleAddRequest {
            name: name.to_owned(),
        };
        auth.role_add(role).await.expect("a role");
        let grant = AuthUserGrantRoleRequest {
            user: name.to_owned(),
            role: name.to_owned(),
        };
        auth.user_grant_role(grant).await.expect("granted");
    }
}

/// A moment that is not there is an error that says what is.
fn names_what_is_there(world: &World, saved: u64, last: &Step) {
    let end = last.truth.revision;
    let behind = world.refused(&format!("revision:{}", end + 1));
    for words in [
        format!("(entry {saved}, "),
        format!("entries {} to ", saved + 1),
        format!("revision {end};"),
        "give latest".to_owned(),
    ] {
        assert!(behind.contains(&words), "{words}: {behind}");
    }
    let before = world.refused(&format!("index:{}", saved - 1));
    assert!(before.contains("before the oldest good backup"), "{before}");
    let later = world.refused("2100-01-01T00:00:00Z");
    assert!(
        later.contains("the archive holds") && later.contains(", of 20"),
        "{later}"
    );
    let earlier = world.refused("2020-01-01T00:00:00Z");
    assert!(
        earlier.contains("before the oldest good backup"),
        "{earlier}"
    );
}

/// The history of watches is that of the living cluster.
async fn restored_server_tells_the_same(
    world: &World,
    index: u64,
    (compacted, revision): (i64, i64),
    events: &[(i32, Vec<u8>, Vec<u8>, i64)],
) {
    assert!(events.len() >= 9, "{events:?}");
    std::fs::write(
        world.path("moment.db"),
        world.fetched(&format!("index:{index}")),
    )
    .unwrap();
    let mut server = by_hand(world.home.path(), &["restored"]).remove(0);
    let restored = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["restore", &world.path("moment.db"), "--name=restored"])
        .arg(format!("--data-dir={}", server.data.display()))
        .arg(format!("--initial-cluster=restored={}", server.peer_url()))
        .arg("--initial-cluster-token=test")
        .arg(format!(
            "--initial-advertise-peer-urls={}",
            server.peer_url()
        ))
        .output();
    let restored = restored.expect("runs");
    let errors = String::from_utf8_lossy(&restored.stderr);
    assert!(restored.status.success(), "{errors}");
    server.start();
    until("it serves", &server, async || {
        server.get("a", false).await.ok()
    })
    .await;
    let client = Client {
        server: &server,
        token: None,
    };
    let found = client.events(compacted + 1, revision).await;
    assert_eq!(found, events);
    assert_eq!(client.hash(revision).await.hash_revision, revision);
    let next = client.put("goes-on", "1", 200).await;
    assert_eq!(next, revision + 1);
}

/// What the Job of a new cluster does: the folder, and a backup in it.
async fn restores_to_a_standby(world: &World, step: &Step) {
    let mut standby = standbys(world.home.path(), &["new"]).remove(0);
    standby.start();
    standby
        .describes("a standby", |it| it.phase() == Phase::Standby)
        .await;
    let key = Key::new(SECRET.as_bytes()).for_restores();
    std::fs::write(world.path("restore-key"), key.bytes()).expect("a file");
    let result = world.path("restore-result");
    let run = |path: &str, moment: &str| -> Restored {
        let output = world
            .quorate("restore")
            .args([path, &format!("--at={moment}")])
            .arg(format!("--member={}", standby.peer_address()))
            .arg(format!("--member-key-file={}", world.path("restore-key")))
            .arg(format!("--scratch={}", world.path("scratch")))
            .arg(format!("--result-file={result}"))
            .output();
        let output = output.expect("runs");
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        match JobResult::read(&text) {
            Some(JobResult::Restored(restored)) => restored,
            other => panic!("{other:?} {}", String::from_utf8_lossy(&output.stderr)),
        }
    };
    let by_index = run(FOLDER, &format!("index:{}", step.index));
    assert_eq!(by_index.raft_index, Some(step.index));
    assert_eq!(by_index.revision, step.truth.revision);
    let by_time = run(&format!("{FOLDER}/one"), &step.at.to_string());
    assert_eq!(by_time.raft_index, Some(step.index));
    // The same moment is the same snapshot.
    assert_eq!(by_time.sha256, by_index.sha256);
    assert!(by_time.as_of.is_some_and(|as_of| as_of <= step.at));
    let staged = standby.describes("it is there", |it| {
        it.staged.as_ref().is_some_and(|staged| staged.complete)
    });
    assert_eq!(staged.await.staged.expect("here").hash, step.truth.hash);
}

fn listed_and_pruned(world: &World, saved: u64, last: &Step) {
    let list = || {
        let output = world
            .quorate("list")
            .arg(format!("--prefix={FOLDER}"))
            .output();
        String::from_utf8_lossy(&output.expect("runs").stdout).into_owned()
    };
    let text = list();
    let entries = format!("entries {} to ", saved + 1);
    assert!(
        text.contains("archive of the cluster") && text.contains(&entries),
        "{text}"
    );
    assert!(!text.contains("Incomplete"), "{text}");
    let prune = |window: &str| {
        let output = world
            .quorate("prune")
            .arg(format!("--prefix={FOLDER}"))
            .args(["--keep-last=1", window])
            .output();
        let output = output.expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    };
    // All of it is behind the one backup.
    prune("--archive-window=0");
    assert_eq!(list(), text);
    let newer = world.save("two");
    assert!(newer >= last.index);
    prune("--archive-window=7d");
    let rest = list();
    assert!(!rest.contains("archive of"), "{rest}");
}

/// Writes meanwhile; gives the revision of the last write.
async fn writes(server: &Server, name: usize, until: Instant) -> i64 {
    let mut revision = 0;
    let mut number = 0;
    while Instant::now() < until {
        let key = format!("w{name}-{}", number % 50);
        if let Ok(at) = server.put(&key, &format!("value {number}")).await {
            revision = at;
        }
        number += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    revision
}

/// Whatever is killed, and whoever else writes the same, each revision is there once and as it was.
#[tokio::test]
async fn killed_archivers_lose_and_double_nothing() {
    let mut world = World::new(&["demo-1", "demo-2"], &[]).await;
    std::fs::write(world.path("backup-key"), BACKUP_KEY).expect("a file");
    world.sealed = true;
    world.save("one");
    let began = world.servers[0].put("first", "1").await.expect("a write");
    let end = Instant::now() + Duration::from_secs(12);
    let archive = async {
        let mut moves = 0;
        let mut kept: Option<Archiver> = None;
        while Instant::now() < end {
            let archiver = world.archiver(FAST);
            let millis = 150 + u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * 5;
            tokio::time::sleep(Duration::from_millis(millis)).await;
            // SIGKILL, of this one or of the one before it.
            moves += 1;
            kept = match moves % 3 {
                0 => None,
                1 => Some(archiver),
                _ => kept,
            };
        }
        drop(kept);
    };
    let (one, two, ()) = tokio::join!(
        writes(&world.servers[0], 0, end),
        writes(&world.servers[1], 1, end),
        archive
    );
    let last = one.max(two);
    let archiver = world.archiver(FAST);
    world.archived(world.applied().await).await;
    let archived = archiver.terminate().await;
    assert!(archived.last > 200, "{archived:?}");
    let client = Client {
        server: &world.servers[0],
        token: None,
    };
    for revision in [began, began + 1, (began + last) / 2, last - 1, last] {
        let found = Truth::in_file(&world.fetched(&format!("revision:{revision}")));
        let hash = client.hash(revision).await;
        assert_eq!((found.revision, found.hash), (revision, hash.hash));
    }
    leave_a_staged_object(&world);
    let latest = Truth::in_file(&world.fetched("latest"));
    assert_eq!(latest, client.truth().await);

    // Nobody reads it without the key.
    world.sealed = false;
    let error = world.refused("latest");
    assert!(error.contains("is encrypted with the key"), "{error}");
    world.sealed = true;
    // A damaged object, and one that is gone, are named.
    let mut objects: Vec<_> = std::fs::read_dir(archive_folder(&world))
        .expect("objects")
        .map(|object| object.expect("an object").path())
        .filter(|path| is_of_entries(&path.to_string_lossy()))
        .collect();
    let name = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a name");
        name.to_string_lossy().into_owned()
    };
    let last = |path: &std::path::PathBuf| name(path).split_off(21);
    let newest = objects.iter().map(last).max().expect("an object");
    objects.retain(|object| last(object) == newest);
    for object in &objects {
        let mut bytes = std::fs::read(object).expect("bytes");
        *bytes.last_mut().expect("a byte") ^= 1;
        std::fs::write(object, &bytes).expect("written");
    }
    let error = world.refused("latest");
    let named = objects.iter().any(|object| error.contains(&name(object)));
    assert!(named && error.contains("SHA-256 differs"), "{error}");
    // What is before it can still be reached.
    let early = Truth::in_file(&world.fetched(&format!("revision:{began}")));
    assert_eq!(early.revision, began);
}

/// Whether a name, or a path, is that of an object with entries: neither that of the mark of an idle archive, nor one under
/// which an object was written.
fn is_of_entries(name: &str) -> bool {
    !name.ends_with("/idle") && name != "idle" && !name.contains('#')
}

/// Where the archive's objects are.
fn archive_folder(world: &World) -> std::path::PathBuf {
    let folders = std::fs::read_dir(world.path(&format!("store/{FOLDER}/archive")));
    let mut folders = folders.expect("a folder");
    folders.next().expect("one").expect("one").path()
}

/// A killed archiver may leave its newest object under two names: the object's own, and the one under which the store
/// of files had written it (with `#1` behind it). The second is no object. Such a file once made this test damage, and
/// name, the wrong one.
fn leave_a_staged_object(world: &World) {
    let folder = archive_folder(world);
    let names = std::fs::read_dir(&folder).expect("objects");
    let names = names.map(|it| it.expect("an object").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8"));
    let newest = names.filter(|name| is_of_entries(name)).max();
    let newest = newest.expect("an object");
    let staged = folder.join(format!("{newest}#1"));
    if !staged.exists() {
        std::fs::hard_link(folder.join(&newest), staged).expect("a link");
    }
}

/// Writes so much that is kept: `DATA_MIB`, or nothing. It compresses badly.
async fn fill(server: &Server) {
    let given = std::env::var("DATA_MIB").unwrap_or_default();
    let mib: usize = match given.as_str() {
        "" => 0,
        given => given.parse().expect("DATA_MIB is a number of MiB"),
    };
    for number in 0..mib * 2 {
        let ids = std::iter::repeat_with(|| uuid::Uuid::new_v4().simple().to_string());
        let value: String = ids.take((512 << 10) / 32).collect();
        let put = server.put(&format!("data/{number}"), &value).await;
        put.expect("a write");
    }
}

/// The last writes that would be lost, at the default interval: measured at every moment. And how long it takes until they
/// are read back, `DATA_MIB` of other data with them.
#[tokio::test]
async fn recovery_point_stays_under_ten_seconds() {
    let world = World::new(&["demo-1"], &[]).await;
    let server = &world.servers[0];
    fill(server).await;
    world.save("one");
    let archiver = world.archiver("--interval=5s");
    let end = Instant::now() + Duration::from_secs(25);
    let measure = async {
        let mut ages = Vec::new();
        while Instant::now() < end {
            let described = server.operator().describe(false).await.expect("an answer");
            let as_of = described.archived.map_or(0, |it| it.as_of_unix_ms);
            if as_of > 0 {
                ages.push(Timestamp::now().as_millisecond() - as_of);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ages
    };
    let (revision, ages) = tokio::join!(writes(server, 0, end), measure);
    let worst = ages.iter().max().copied().expect("it was described");
    eprintln!(
        "recovery point: at most {worst} ms, of {} measurements",
        ages.len()
    );
    assert!(ages.len() > 100, "{}", ages.len());
    assert!(worst < 10_000, "{worst} ms");
    let metrics = metrics(server).await;
    assert!(
        metrics.contains("quorate_archived_timestamp_seconds 1"),
        "{metrics}"
    );
    world.archived(world.applied().await).await;
    archiver.terminate().await;
    let began = Instant::now();
    let latest = world.fetched("latest");
    let (took, mib) = (began.elapsed(), latest.len() >> 20);
    eprintln!("the newest moment was fetched in {took:.1?}: {mib} MiB");
    assert_eq!(Truth::in_file(&latest).revision, revision);

    // Idle: nothing is written, and the archive is still known to be whole.
    let archiver = world.archiver("--interval=5s");
    let index = world.applied().await;
    world.archived(index).await;
    let archived = archiver.terminate().await;
    assert_eq!((archived.objects, archived.last), (0, index));
    let idle = archived.as_of.expect("a time is known").to_string();
    assert_eq!(Truth::in_file(&world.fetched(&idle)).revision, revision);
    damaged_backup_is_passed_over(&world, revision);
}

/// The nearest backup of a moment is damaged where only reading it shows that: the archive leads there from the one before.
fn damaged_backup_is_passed_over(world: &World, revision: i64) {
    world.save("two");
    let two = std::fs::read_dir(world.path(&format!("store/{FOLDER}/two"))).expect("a folder");
    let mut attempts = two.filter_map(|it| it.ok().filter(|it| it.path().is_dir()));
    let part = attempts.next().expect("an attempt").path().join("00000001");
    let mut bytes = std::fs::read(&part).expect("a part");
    bytes[40] ^= 1;
    std::fs::write(&part, bytes).expect("written");
    let output = world.fetch("latest");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("note: the backup two was passed over: part 1"),
        "{said}"
    );
    let found = Truth::in_file(&std::fs::read(world.path("fetched.db")).expect("a file"));
    assert_eq!(found.revision, revision);
}

async fn metrics(server: &Server) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = format!("{}:2379", server.address);
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("a connection");
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    text
}

/// The log of a member on a small volume is dropped soon. The archive never keeps it, and goes on behind a new backup.
#[tokio::test]
async fn a_gap_needs_a_backup_and_is_named() {
    let home = tempfile::tempdir().expect("a folder");
    let mount = home.path().join("volume");
    let Some(volume) = Volume::mount(&mount, 160 << 20).await else {
        eprintln!("NOT RUN: a_gap_needs_a_backup_and_is_named: a tmpfs cannot be mounted here");
        return;
    };
    let mut servers = standbys(home.path(), &["demo-1"]);
    let server = &mut servers[0];
    server.wrapper.clone_from(&volume.wrapper);
    for argument in &mut server.arguments {
        if argument.starts_with("--data-dir=") {
            *argument = format!("--data-dir={}", mount.join("data").display());
        }
    }
    server.arguments.push("--snapshot-count=10".to_owned());
    let world = World::of(home, servers).await;
    let server = &world.servers[0];

    // Nothing to go on behind yet.
    let (code, archived) = world.archiver(FAST).end().await;
    assert_eq!((code, archived.gap, archived.last), (Some(3), true, 0));
    assert!(archived.message.contains("take a backup"), "{archived:?}");

    let saved = world.save("one");
    let archiver = world.archiver(FAST);
    let inside = server.put("archived", "1").await.expect("a write");
    world.archived(world.applied().await).await;
    let before = archiver.terminate().await;
    assert_eq!(before.first, saved + 1);
    let first = drop_log(server, before.last).await;
    let (code, gap) = world.archiver(FAST).end().await;
    assert_eq!((code, gap.gap), (Some(3), true), "{gap:?}");
    assert_eq!((gap.first, gap.last), (before.first, before.last));
    assert!(gap.message.contains("log begins with entry"), "{gap:?}");
    assert!(first > before.last + 1);

    let newer = world.save("two");
    let archiver = world.archiver(FAST);
    let after = server.put("archived", "2").await.expect("a write");
    world.archived(world.applied().await).await;
    let again = archiver.terminate().await;
    assert_eq!((again.gap, again.first), (false, newer + 1));
    for revision in [inside, after] {
        let found = Truth::in_file(&world.fetched(&format!("revision:{revision}")));
        assert_eq!(found.revision, revision);
    }
    let inside_the_hole = world.refused(&format!("revision:{}", inside + 5));
    let hole = format!("entries {} to {newer} are missing", before.last + 1);
    assert!(inside_the_hole.contains(&hole), "{hole}: {inside_the_hole}");
}

/// Writes until the log begins behind an entry; with which one it does.
async fn drop_log(server: &Server, index: u64) -> u64 {
    let key = Key::new(SECRET.as_bytes()).for_backups();
    let address = server.peer_address();
    let client = BackupClient::new(&address, key, Duration::from_secs(10), None);
    let mut client = client.expect("an address");
    let value = "v".repeat(512 << 10);
    let asked = |from, term_before, max_bytes| EntriesRequest {
        from,
        term_before,
        max_bytes,
        ..EntriesRequest::default()
    };
    let mut revision = 0;
    for number in 0..400 {
        let put = server.put(&format!("large-{}", number % 4), &value).await;
        revision = put.unwrap_or(revision);
        if number % 8 == 0 && revision > 1 {
            let compact = CompactionRequest {
                revision: revision - 1,
                physical: false,
            };
            let _ = server.kv().compact(compact).await;
        }
        let answer = client
            .entries(asked(index + 1, 0, 1))
            .await
            .expect("an answer");
        // Some may have been read before they were dropped.
        if answer.first > index + 1 && answer.entries.is_empty() {
            assert!(answer.confirmed);
            entries_are_bounded(&mut client, &answer, asked).await;
            return answer.first;
        }
        assert!(answer.entries.len() == 1 || answer.first > index + 1);
    }
    panic!("the log is kept: {}", server.log());
}

async fn entries_are_bounded(
    client: &mut BackupClient,
    now: &quorate::wire::member::EntriesResponse,
    asked: impl Fn(u64, u64, u64) -> EntriesRequest,
) {
    let some = client
        .entries(asked(now.first, 0, 1 << 20))
        .await
        .expect("entries");
    let bytes: usize = some.entries.iter().map(|it| it.payload.len()).sum();
    assert!((1..=1 << 20).contains(&bytes), "{bytes}");
    assert_eq!(some.entries[0].index, now.first);
    // Of another log.
    let term = some.entries[0].term;
    let other = client.entries(asked(now.first + 1, term + 1, 1)).await;
    let other = other.expect_err("another log");
    assert_eq!(other.code(), Code::FailedPrecondition, "{other}");
    client
        .entries(asked(now.first + 1, term, 1))
        .await
        .expect("this log");
    for wrong in [asked(0, 0, 1), asked(1, 0, 0), asked(1, 0, (1 << 20) + 1)] {
        let refused = client.entries(wrong).await.expect_err("out of bounds");
        assert_eq!(refused.code(), Code::OutOfRange);
    }
    // With nothing new, the answer waits.
    let began = Instant::now();
    let request = EntriesRequest {
        wait_ms: 700,
        ..asked(some.committed + 100, 0, 1)
    };
    let nothing = client.entries(request).await.expect("an answer");
    assert!(nothing.entries.is_empty() && began.elapsed() >= Duration::from_millis(700));
}
