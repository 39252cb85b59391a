//! A cluster that has lost its quorum for good: the member that is left gives all of its log, and a new incarnation is
//! founded from it. Nothing that was acknowledged is missing, the old member is not changed, and no member of the earlier
//! incarnation has a part in the new one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fixture::{SECRET, Server, until};
use super::operated::{awaiting, call, joins, standbys};
use super::restores::{BUMP, LEASE, quorate, writes};
use quorate::backup_plan::{FailureClass, JobResult, Restored};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::backup_client::BackupClient;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::{AuthUserListRequest, LeaseTimeToLiveRequest};
use quorate::wire::member::{
    BootstrapRequest, BootstrapSnapshot, DescribeResponse, OpenRequest, OpenResponse, Phase, Tail,
};
use tonic::{Code, Status};

/// As long as a member may write its state.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    home: tempfile::TempDir,
    /// The first one leads.
    servers: Vec<Server>,
    revision: i64,
}

impl World {
    async fn new() -> World {
        let home = tempfile::tempdir().expect("a folder");
        let mut servers = standbys(home.path(), &["demo-1", "demo-2", "demo-3"]);
        for server in &mut servers {
            server.start();
        }
        let seed = &servers[0];
        let first = seed
            .describes("a standby", |it| it.phase() == Phase::Standby)
            .await;
        let founded = seed.operator().bootstrap(call(&first)).await;
        founded.expect("a cluster");
        seed.serves("key").await;
        for server in &servers[1..] {
            let next = server
                .describes("a standby", |it| it.phase() == Phase::Standby)
                .await;
            joins(seed, server, &next).await;
        }
        let revision = writes(seed).await;
        let key = Key::new(SECRET.as_bytes());
        for (name, key) in [
            ("restores", key.for_restores()),
            ("backups", key.for_backups()),
        ] {
            std::fs::write(home.path().join(name), key.bytes()).expect("a file");
        }
        World {
            home,
            servers,
            revision,
        }
    }

    /// The other two are killed, and the disk of the second one is lost. The first one has an entry more than it could
    /// commit.
    async fn lost(&mut self) -> DescribeResponse {
        let committed = self.servers[0].describes("leads", |it| it.leader_with_quorum);
        let committed = committed.await;
        for server in &mut self.servers[1..] {
            server.kill();
        }
        let gone = &self.servers[1].data;
        std::fs::remove_dir_all(gone).expect("its disk is gone");
        let unknown = self.servers[0].put("unacknowledged", "1").await;
        unknown.expect_err("there is no quorum");
        let left = self.servers[0].describes("alone", |it| !it.leader_with_quorum);
        let left = left.await;
        assert!(left.last_index > left.commit, "{left:?}");
        assert!(left.last_term >= committed.last_term);
        assert_ne!(left.last_append_ms, 0);
        left
    }

    fn backups(&self, server: &Server) -> BackupClient {
        let key = Key::new(SECRET.as_bytes()).for_backups();
        let client = BackupClient::new(&server.peer_address(), key, PATIENCE, None);
        client.expect("an address")
    }

    async fn open(&self, tail: Option<Tail>) -> Result<OpenResponse, Status> {
        let request = OpenRequest { tail, rate: 0 };
        self.backups(&self.servers[0]).open(request).await
    }

    /// Once the member has run for long enough to miss its quorum.
    async fn opened(&self, tail: Option<Tail>) -> OpenResponse {
        until("it gives its data", &self.servers[0], async || {
            match self.open(tail.clone()).await {
                Ok(opened) => Some(opened),
                Err(status) if status.message().contains("just started") => None,
                Err(status) => panic!("{status}"),
            }
        })
        .await
    }

    async fn close(&self, opened: &OpenResponse) {
        let closed = self.backups(&self.servers[0]).close(opened.file).await;
        closed.expect("an answer");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `quorate backup restore --survivor`.
    fn recover(&self, seed: &Server, left: &DescribeResponse, more: &[&str]) -> Option<JobResult> {
        let result = self.file("result");
        let output = quorate("restore")
            .arg(format!("--member={}", seed.peer_address()))
            .arg(format!(
                "--member-key-file={}",
                self.file("restores").display()
            ))
            .arg(format!("--survivor={}", self.servers[0].peer_address()))
            .arg(format!(
                "--survivor-key-file={}",
                self.file("backups").display()
            ))
            .arg(format!("--survivor-disk={}", left.disk_uuid))
            .arg(format!("--survivor-term={}", left.last_term))
            .arg(format!("--survivor-index={}", left.last_index))
            .arg(format!("--scratch={}", self.file("scratch").display()))
            .arg(format!("--result-file={}", result.display()))
            .args(more)
            .output();
        let output = output.expect("runs");
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        let read = JobResult::read(&text);
        if read.is_none() {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        read
    }

    fn recovered(&self, seed: &Server, left: &DescribeResponse) -> Restored {
        match self.recover(seed, left, &[]) {
            Some(JobResult::Restored(restored)) => restored,
            other => panic!("{other:?}"),
        }
    }
}

fn tail(left: &DescribeResponse) -> Tail {
    Tail {
        disk_uuid: left.disk_uuid.clone(),
        term: left.last_term,
        index: left.last_index,
    }
}

/// The files of a data directory, but those that only say that a server runs.
pub(super) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).expect("a file"))),
        }
    }
    found
}

#[tokio::test]
async fn end_of_the_log_is_given_by_the_member_that_was_chosen_alone() {
    let mut world = World::new().await;
    let led = world.servers[0].describes("leads", |it| it.leader_with_quorum);
    let refused = world.open(Some(tail(&led.await))).await;
    let refused = refused.expect_err("there is a quorum");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("a quorum"), "{refused}");

    let left = world.lost().await;
    let before = files(&world.servers[0].data);
    let higher = Tail {
        index: left.last_index + 1,
        ..tail(&left)
    };
    let newer = Tail {
        term: left.last_term + 1,
        index: 1,
        ..tail(&left)
    };
    let other = Tail {
        disk_uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
        ..tail(&left)
    };
    for (wrong, text) in [
        (higher, "describe the members again"),
        (newer, "describe the members again"),
        (other, "this is disk"),
    ] {
        let refused = world.open(Some(wrong)).await.expect_err("it is not here");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(text), "{refused}");
    }

    let committed = world.opened(None).await;
    world.close(&committed).await;
    assert!(!committed.tail && committed.last_index <= left.commit);
    let all = world.opened(Some(tail(&left))).await;
    world.close(&all).await;
    assert!(all.tail && all.sha256 != committed.sha256);
    assert_eq!(
        (all.last_term, all.last_index),
        (left.last_term, left.last_index)
    );
    // What it holds is what it held: the same bytes again, and nothing has changed on its disk or in its state.
    let again = world.opened(Some(tail(&left))).await;
    world.close(&again).await;
    assert_eq!(again.sha256, all.sha256);
    let after = world.servers[0].describes("alone", |it| !it.leader_with_quorum);
    let after = after.await;
    assert_eq!(
        (
            after.commit,
            after.applied,
            after.last_index,
            after.last_append_ms
        ),
        (
            left.commit,
            left.applied,
            left.last_index,
            left.last_append_ms
        )
    );
    assert_eq!(after.revision, left.revision);
    assert_eq!(files(&world.servers[0].data), before);
    let unapplied = world.servers[0].get("unacknowledged", true).await;
    assert_eq!(unapplied.expect("an answer"), None);
}

#[tokio::test]
async fn new_incarnation_holds_what_the_member_that_is_left_held() {
    let mut world = World::new().await;
    let left = world.lost().await;
    // The others of its cluster know the new seed's address.
    let address = world.servers[1].address.clone();
    let seed = Server::at(world.home.path(), "next", &address);
    let mut seed = awaiting(world.home.path(), vec![seed]).remove(0);
    seed.start();
    seed.describes("a standby", |it| it.phase() == Phase::Standby)
        .await;
    let mut other = left.clone();
    other.disk_uuid = "00000000-0000-0000-0000-000000000000".to_owned();
    match world.recover(&seed, &other, &[]) {
        Some(JobResult::Failed { class, message }) => {
            assert_eq!(class, FailureClass::Source, "{message}");
            assert!(message.contains("the member that is left"), "{message}");
            assert!(message.contains("this is disk"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    let restored = world.recovered(&seed, &left);
    assert_eq!(restored.path, format!("member {}", left.disk_uuid));
    assert!(restored.revision > world.revision);
    // A Job that is repeated finds it there.
    let again = world.recovered(&seed, &left);
    assert_eq!(again.sha256, restored.sha256);

    let standby = seed.describes("complete", |it| {
        it.staged.as_ref().is_some_and(|staged| staged.complete)
    });
    let founding = BootstrapRequest {
        incarnation: 2,
        nonce: "second".to_owned(),
        snapshot: Some(BootstrapSnapshot {
            sha256: restored.sha256,
            bump_revision: BUMP,
            follow: false,
        }),
        ..call(&standby.await)
    };
    until("it is founded", &seed, async || {
        seed.operator().bootstrap(founding.clone()).await.ok()
    })
    .await;
    let new = seed.describes("leads", |it| it.leader_with_quorum).await;
    assert_eq!(new.incarnation, 2);
    assert_ne!(new.cluster_id, left.cluster_id);
    holds_everything(&seed).await;
    let revision = seed.put("after", "1").await.expect("a write");
    assert!(revision > world.revision + BUMP.cast_signed(), "{revision}");

    // One whose disk was not lost after all has no part in it, and nothing of it is taken.
    world.servers[0].kill();
    let returned = &mut world.servers[2];
    returned.start();
    until("it is refused", returned, async || {
        let log = format!("{}{}", returned.log(), seed.log());
        log.contains("cluster ID mismatch").then_some(())
    })
    .await;
    let returned = returned.describes("alone", |it| it.leader_id == 0).await;
    assert_eq!(returned.cluster_id, left.cluster_id);
    let still = seed.describes("leads", |it| it.leader_with_quorum).await;
    assert_eq!(still.members.len(), 1);
    seed.serves("still").await;
}

pub(super) async fn holds_everything(seed: &Server) {
    for key in ["key", "last", "leased", "unacknowledged"] {
        let found = seed.get(key, false).await.expect("an answer");
        assert_eq!(found.as_deref(), Some("1"), "{key}");
    }
    let lease = LeaseTimeToLiveRequest {
        id: LEASE,
        keys: true,
    };
    let lease = LeaseClient::new(seed.channel())
        .lease_time_to_live(lease)
        .await;
    assert_eq!(lease.expect("an answer").into_inner().keys, ["leased"]);
    let mut auth = AuthClient::new(seed.channel());
    let users = auth.user_list(AuthUserListRequest {}).await;
    assert_eq!(users.expect("users").into_inner().users, ["ann"]);
}
