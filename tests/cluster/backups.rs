//! Backups of operated members over their peer ports: with the key of backups and no other, from a follower, without a
//! user, without a quorum, and under NOSPACE.

use std::path::Path;
use std::process::{Command, Output};

use super::fixture::{SECRET, Server, until};
use super::operated::{call, joins, standbys};
use quorate::backup_plan::{FailureClass, JobResult};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{AlarmRequest, SnapshotRequest};
use quorate::wire::member::{Fence, OpenRequest, Phase};
use std::time::Duration;

struct World {
    home: tempfile::TempDir,
    servers: Vec<Server>,
}

impl World {
    /// Two members; the first one leads.
    async fn new() -> World {
        let home = tempfile::tempdir().expect("a folder");
        let mut servers = standbys(home.path(), &["demo-1", "demo-2"]);
        for server in &mut servers {
            server.start();
        }
        let seed = &servers[0];
        let first = seed
            .describes("a standby", |it| it.phase() == Phase::Standby)
            .await;
        seed.operator()
            .bootstrap(call(&first))
            .await
            .expect("a cluster");
        seed.serves("key").await;
        let second = servers[1]
            .describes("a standby", |it| it.phase() == Phase::Standby)
            .await;
        joins(seed, &servers[1], &second).await;
        std::fs::create_dir(home.path().join("store")).expect("a directory");
        let key = Key::new(SECRET.as_bytes()).for_backups();
        std::fs::write(home.path().join("key"), key.bytes()).expect("a file");
        World { home, servers }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn save(&self, id: &str, key: &str) -> (Output, Option<JobResult>) {
        self.save_as(id, key, &[])
    }

    fn save_as(&self, id: &str, key: &str, more: &[&str]) -> (Output, Option<JobResult>) {
        let members: Vec<String> = self.servers.iter().map(Server::peer_address).collect();
        let result = self.path("result");
        let _ = std::fs::remove_file(&result);
        let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["backup", "save", "--prefix=default/demo"])
            .arg(format!("--to=file://{}", self.path("store")))
            .arg(format!("--members={}", members.join(",")))
            .arg(format!("--member-key-file={}", self.path(key)))
            .arg(format!("--scratch={}", self.path("scratch")))
            .arg(format!("--result-file={result}"))
            .arg(format!("--id={id}"))
            .args(more)
            .output();
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        (output.expect("runs"), JobResult::read(&text))
    }

    fn saved(&self, id: &str) -> quorate::backup_plan::Saved {
        match self.save(id, "key") {
            (output, Some(JobResult::Saved(saved))) if output.status.success() => *saved,
            (output, _) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    fn verified(&self, id: &str) {
        let result = self.path("result");
        let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["backup", "verify", "--prefix=default/demo", id])
            .arg(format!("--to=file://{}", self.path("store")))
            .arg(format!("--scratch={}", self.path("scratch")))
            .arg(format!("--result-file={result}"))
            .output();
        let output = output.expect("runs");
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        let Some(JobResult::Verified(verified)) = JobResult::read(&text) else {
            panic!("{text}{}", String::from_utf8_lossy(&output.stderr));
        };
        assert_eq!(verified.failure, None);
    }
}

#[tokio::test]
async fn key_of_backups_reads_a_follower_and_changes_nothing() {
    let mut world = World::new().await;
    let leader = world.servers[0]
        .describes("leads", |it| it.leader_with_quorum)
        .await;
    let saved = world.saved("one");
    let follower = leader.members.iter().find(|it| it.id != leader.member_id);
    let follower = follower.expect("two members").id;
    assert_eq!(saved.member_id, format!("{follower:x}"));
    assert_eq!(saved.cluster_id, format!("{:x}", leader.cluster_id));
    world.verified("one");
    // A second one of the name is the first one.
    assert_eq!(world.saved("one"), saved);

    // The operator's own key is for other calls, and this one is not for those.
    std::fs::write(world.home.path().join("operator"), SECRET).expect("a file");
    for (wrong, expected) in [
        ("operator", FailureClass::Source),
        ("missing", FailureClass::Key),
    ] {
        let (output, result) = world.save("two", wrong);
        assert!(!output.status.success());
        let Some(JobResult::Failed { class, message }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(class, expected, "{message}");
    }
    let derived = Key::new(SECRET.as_bytes()).for_backups();
    let address = world.servers[0].peer_address();
    let patience = Duration::from_secs(5);
    let mut client = MemberClient::new(&address, derived, patience, None).expect("an address");
    let fence = Fence {
        configuration_index: leader.configuration_index,
        epoch: 1,
    };
    let refused = client.remove(fence, follower).await;
    refused.expect_err("it may only read");

    // NOSPACE, then no quorum: the data are what is needed most.
    let mut maintenance = MaintenanceClient::new(world.servers[0].channel());
    let raised = maintenance.alarm(AlarmRequest {
        action: 1,
        member_id: leader.member_id,
        alarm: 1,
    });
    raised.await.expect("an alarm");
    world.saved("no-space");
    world.servers[0].kill();
    until("no leader is known", &world.servers[1], async || {
        let it = world.servers[1].operator().describe(false).await.ok()?;
        (it.leader_id == 0).then_some(())
    })
    .await;
    let saved = until(
        "it has waited for a leader",
        &world.servers[1],
        async || match world.save("no-quorum", "key").1 {
            Some(JobResult::Saved(saved)) => Some(saved),
            _ => None,
        },
    )
    .await;
    assert_eq!(saved.member_id, format!("{follower:x}"));
    world.verified("no-quorum");
}

/// A Job that is killed leaves a file that keeps the next one away for a minute; one that ends with an error does not.
#[tokio::test]
async fn one_backup_reads_a_member_at_a_time() {
    use quorate::server::operator_api::backup_client::BackupClient;
    let world = World::new().await;
    let key = Key::new(SECRET.as_bytes()).for_backups();
    let patience = Duration::from_secs(20);
    let mut clients = Vec::new();
    for server in &world.servers {
        let address = server.peer_address();
        let client = BackupClient::new(&address, key.clone(), patience, None);
        clients.push(client.expect("an address"));
    }
    let opened = clients[1]
        .open(OpenRequest::default())
        .await
        .expect("a file");
    let read = clients[1].read(opened.file, 0, 16).await.expect("bytes");
    assert_eq!(read.len(), 16);
    let far = clients[1].read(opened.file, opened.length, 1).await;
    assert_eq!(
        far.expect_err("behind its end").code(),
        tonic::Code::OutOfRange
    );
    let unknown = clients[1].read(opened.file + 1, 0, 1).await;
    assert_eq!(unknown.expect_err("no file").code(), tonic::Code::NotFound);
    let second = clients[1]
        .open(OpenRequest::default())
        .await
        .expect_err("it is taken");
    assert_eq!(second.code(), tonic::Code::ResourceExhausted);
    // The other member gives its data meanwhile.
    let leader = world.servers[0].describes("leads", |it| it.leader_with_quorum);
    let leader = leader.await.member_id;
    assert_eq!(world.saved("meanwhile").member_id, format!("{leader:x}"));
    clients[1].close(opened.file).await.expect("closed");
    let again = clients[1]
        .open(OpenRequest::default())
        .await
        .expect("a file");
    clients[1].close(again.file).await.expect("closed");
    assert!(
        Path::new(&world.path("store"))
            .join("default/demo")
            .is_dir()
    );
}

/// A member that has just started has an empty store until its checkpoint is read. It gave that as a backup, which every
/// later check confirmed, since each compared it with itself.
#[tokio::test]
async fn member_that_has_just_started_gives_all_or_nothing() {
    use quorate::server::operator_api::backup_client::BackupClient;
    let mut world = World::new().await;
    let saved = world.saved("before");
    let key = Key::new(SECRET.as_bytes()).for_backups();
    let address = world.servers[1].peer_address();
    for _ in 0..5 {
        world.servers[1].kill();
        world.servers[1].start();
        let began = std::time::Instant::now();
        let mut asked = 0;
        loop {
            let late = began.elapsed() > Duration::from_secs(60);
            assert!(!late, "no answer: {}", world.servers[1].log());
            let patience = Duration::from_secs(5);
            let client = BackupClient::new(&address, key.clone(), patience, None);
            let standing = client.expect("an address").standing().await;
            let Ok(standing) = standing else {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            };
            asked += 1;
            if standing.refused.is_empty() {
                assert!(
                    standing.applied >= saved.raft_index,
                    "at its answer {asked}, it has applied {} of {}",
                    standing.applied,
                    saved.raft_index
                );
                break;
            }
        }
    }
}

/// A member that wrote its state as fast as its disk could delayed the writes of its clients twenty-fold.
#[tokio::test]
async fn member_writes_its_state_at_the_pace_that_is_asked_for() {
    use quorate::server::operator_api::backup_client::BackupClient;
    const RATE: u64 = 1 << 20;
    let world = World::new().await;
    let value = "v".repeat(512 << 10);
    for number in 0..6 {
        let key = format!("large-{number}");
        let put = world.servers[0].put(&key, &value);
        put.await.expect("a write");
    }
    world.servers[1].holds("large-5", &value).await;
    let key = Key::new(SECRET.as_bytes()).for_backups();
    let address = world.servers[1].peer_address();
    let client = BackupClient::new(&address, key, Duration::from_secs(60), None);
    let mut client = client.expect("an address");
    let paced = |rate| OpenRequest { tail: None, rate };

    let began = std::time::Instant::now();
    let opened = client.open(paced(RATE)).await.expect("it begins");
    assert!(opened.growing && opened.length == 0);
    assert!(began.elapsed() < Duration::from_secs(2), "at once");
    let early = client.read(opened.file, 0, 1).await;
    let early = early.expect_err("it is not there yet");
    assert_eq!(early.code(), tonic::Code::FailedPrecondition);
    let second = client.open(paced(0)).await.expect_err("it is taken");
    assert_eq!(second.code(), tonic::Code::ResourceExhausted);
    // Clients' own snapshots do not wait for it.
    let mut maintenance = MaintenanceClient::new(world.servers[1].channel());
    let snapshot = maintenance.snapshot(SnapshotRequest {}).await;
    drop(snapshot.expect("a snapshot"));
    let now = client.wait(opened.file).await.expect("an answer");
    let took = began.elapsed();
    assert!(!now.growing && now.length > 3 * RATE, "{now:?}");
    assert_eq!(now.last_index, opened.last_index);
    let due = Duration::from_secs_f64(now.length as f64 / RATE as f64);
    assert!(took >= due.mul_f64(0.9), "{took:?} instead of {due:?}");
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < now.length {
        let at = bytes.len() as u64;
        let piece = client.read(now.file, at, (now.length - at).min(1 << 20));
        bytes.extend_from_slice(&piece.await.expect("bytes"));
    }
    let digest: String = now
        .sha256
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(super::restores::sha256(&bytes), digest);
    client.close(now.file).await.expect("closed");

    // One that is given up ends, however slow it is.
    let slow = client.open(paced(1 << 10)).await.expect("it begins");
    client.close(slow.file).await.expect("closed");
    let gone = client.wait(slow.file).await.expect_err("it is gone");
    assert_eq!(gone.code(), tonic::Code::NotFound);
    let next = until("there is room", &world.servers[1], async || {
        client.open(paced(0)).await.ok()
    })
    .await;
    assert!(!next.growing && next.length > 0);
    client.close(next.file).await.expect("closed");

    // Three MiB, which are written and then read.
    let began = std::time::Instant::now();
    let (output, result) = world.save_as("slow", "key", &["--rate=1"]);
    assert!(output.status.success(), "{result:?}");
    assert!(began.elapsed() > Duration::from_secs(5));
    world.verified("slow");
}
