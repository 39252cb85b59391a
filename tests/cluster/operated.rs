//! Servers under an operator: standbys are bootstrapped, added, promoted and removed through the `quorate.v1` API.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::fixture::{SECRET, Server, until};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::server::operator_api::held_call::{Answer, HeldCall};
use quorate::wire::etcd::MemberListRequest;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::member::{AddLearnerRequest, BootstrapRequest, DescribeResponse, Fence, Phase};
use tonic::Code;
use tonic::transport::Channel;

const UID: &str = "11111111-2222-3333-4444-555555555555";

pub(super) fn standbys(home: &Path, names: &[&str]) -> Vec<Server> {
    let servers: Vec<Server> = names.iter().map(|name| Server::new(home, name)).collect();
    awaiting(home, servers)
}

/// Configures these servers as standbys of one cluster.
pub(super) fn awaiting(home: &Path, mut servers: Vec<Server>) -> Vec<Server> {
    let secret = home.join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let from: Vec<String> = servers.iter().map(Server::peer_address).collect();
    for server in &mut servers {
        server.arguments.extend([
            "--await-membership".to_owned(),
            format!("--join-from={}", from.join(",")),
            format!("--cluster-uid={UID}"),
            format!("--operator-secret-file={}", secret.display()),
            format!("--pod-uid=pod-{}", server.name),
        ]);
    }
    servers
}

pub(super) fn call(description: &DescribeResponse) -> BootstrapRequest {
    BootstrapRequest {
        cluster_uid: UID.to_owned(),
        incarnation: 1,
        nonce: "nonce".to_owned(),
        claim_uid: "claim".to_owned(),
        disk_uuid: description.disk_uuid.clone(),
        snapshot: None,
    }
}

pub(super) fn fence(description: &DescribeResponse) -> Fence {
    Fence {
        configuration_index: description.configuration_index,
        epoch: 1,
    }
}

pub(super) fn add(
    server: &Server,
    standby: &DescribeResponse,
    leader: &DescribeResponse,
) -> AddLearnerRequest {
    AddLearnerRequest {
        fence: Some(fence(leader)),
        name: server.name.clone(),
        peer_urls: vec![server.peer_url()],
        disk_uuid: standby.disk_uuid.clone(),
    }
}

/// The standby becomes a learner, receives the data, is promoted and serves.
pub(super) async fn joins(seed: &Server, server: &Server, standby: &DescribeResponse) {
    let added = until("it is added", seed, async || {
        let leader = seed.operator().describe(true).await.ok()?;
        let request = add(server, standby, &leader);
        seed.operator().add_learner(request).await.ok()
    })
    .await;
    server
        .describes("a member", |description| {
            description.phase() == Phase::Member
        })
        .await;
    server.holds("key", "1").await;
    until("it is promoted", seed, async || {
        let leader = seed.operator().describe(true).await.ok()?;
        seed.operator().promote(fence(&leader), added.id).await.ok()
    })
    .await;
    server.serves(&format!("through-{}", server.name)).await;
}

#[tokio::test]
async fn standbys_join_and_leave() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = standbys(home.path(), &["demo-1", "demo-2", "demo-3"]);
    for server in &mut servers {
        server.start();
    }
    let seed = &servers[0];
    let description = seed
        .describes("a standby", |description| {
            description.phase() == Phase::Standby
        })
        .await;
    assert!(description.disk_empty && description.awaiting && !description.ready);
    assert_eq!(
        (description.member_id, description.pod_uid.as_str()),
        (0, "pod-demo-1")
    );

    // Bootstrap requires the UUID of the described disk, happens once, and is idempotent.
    let mut wrong = call(&description);
    wrong.disk_uuid = "another".to_owned();
    let refused = seed.operator().bootstrap(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let founded = seed.operator().bootstrap(call(&description)).await.unwrap();
    let again = seed.operator().bootstrap(call(&description)).await.unwrap();
    assert!(!founded.already && again.already);
    assert_eq!(founded.cluster_id, again.cluster_id);
    let mut other = call(&description);
    other.nonce = "other".to_owned();
    let refused = seed.operator().bootstrap(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    seed.serves("key").await;

    // Standbys join as learners by themselves once they are in the member list.
    for server in &servers[1..] {
        let standby = server
            .describes("a standby", |description| {
                description.phase() == Phase::Standby
            })
            .await;
        let leader = seed
            .describes("leads", |description| description.leader_with_quorum)
            .await;
        let mut stale = add(server, &standby, &leader);
        stale.fence = Some(Fence {
            configuration_index: 99_999,
            epoch: 1,
        });
        let refused = seed.operator().add_learner(stale).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        joins(seed, server, &standby).await;
    }
    let description = seed.describes("all are in sync", |description| {
        description.members.len() == 3 && description.members.iter().all(|member| member.in_sync)
    });
    let description = description.await;
    let kinds: Vec<&str> = description
        .changes
        .iter()
        .map(|change| change.kind.as_str())
        .collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "AddLearner").count(),
        2
    );
    assert_eq!(kinds.iter().filter(|kind| **kind == "Promote").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == "AddVoter").count(), 0);

    // An epoch older than the newest that the cluster has seen is refused.
    let last = description
        .members
        .iter()
        .find(|member| member.name == "demo-3")
        .unwrap()
        .id;
    let late = Fence {
        epoch: 0,
        ..fence(&description)
    };
    let refused = seed.operator().remove(late, last).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    overtaken(&servers[2], &description).await;

    // A removed member stays idle, reports its phase, and stays removed across a restart.
    until("it is removed", seed, async || {
        let leader = seed.operator().describe(true).await.ok()?;
        seed.operator().remove(fence(&leader), last).await.ok()
    })
    .await;
    never_a_learner(&servers[2]).await;
    servers[2].kill();
    servers[2].start();
    servers[2]
        .describes("still removed", |description| {
            description.phase() == Phase::Removed
        })
        .await;
    let description = servers[0]
        .describes("a tombstone", |description| {
            !description.tombstones.is_empty()
        })
        .await;
    assert_eq!(description.tombstones[0].name, "demo-3");

    // Retiring transfers leadership and makes the member unready; it still follows the leader. Connected clients are
    // disconnected: otherwise their requests would fail when the member is removed.
    let mut connected = connection(&servers[0]);
    let kept = servers[0].channel();
    served_over(&kept).await.unwrap();
    let retired = servers[0]
        .operator()
        .retire(fence(&description))
        .await
        .unwrap();
    assert_ne!(retired.leader, founded.member_id);
    servers[0]
        .describes("unready", |description| {
            !description.ready && description.leader_id == retired.leader
        })
        .await;
    servers[1].serves("led-by-the-other").await;
    servers[0].holds("led-by-the-other", "1").await;
    let ended = tokio::task::spawn_blocking(move || connected.read(&mut [0; 8]));
    assert_eq!(
        ended.await.unwrap().unwrap(),
        0,
        "the end of the stream, not a timeout"
    );
    // New connections are still served, as is the client's old channel, which reconnects.
    connection(&servers[0]);
    until("the old channel serves", &servers[0], async || {
        served_over(&kept).await.ok()
    })
    .await;
}

/// A connection that served one HTTP request and stays open.
fn connection(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect((server.address.as_str(), 2379)).unwrap();
    stream
        .set_read_timeout(Some(super::fixture::PATIENCE))
        .unwrap();
    stream
        .write_all(b"GET /version HTTP/1.1\r\nhost: h\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    while !answer.ends_with('}') {
        let mut some = [0; 512];
        let length = stream.read(&mut some).unwrap();
        assert_ne!(length, 0, "closed before its answer: {answer}");
        answer += &String::from_utf8_lossy(&some[..length]);
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stream
}

async fn served_over(channel: &Channel) -> Result<(), tonic::Status> {
    let request = MemberListRequest::default();
    let mut cluster = ClusterClient::new(channel.clone());
    cluster.member_list(request).await.map(drop)
}

/// A removed voter refuses clients as unavailable, so that they try another endpoint. For one election timeout, while
/// the others may still need its vote, it used to report that it is a learner ("rpc not supported for learner"), which
/// no client retries: in an end-to-end run this failed a request of a client that was still connected to a member
/// during its removal.
async fn never_a_learner(server: &Server) {
    until("it reports that it is removed", server, async || {
        let description = server.operator().describe(false).await.ok()?;
        // A success: it has not applied its removal yet.
        let refused = server.put("late", "1").await.err()?;
        assert!(!refused.message().contains("learner"), "{refused}");
        let outside = description.phase() == Phase::Removed;
        assert!(!outside || refused.code() == Code::Unavailable, "{refused}");
        outside.then_some(())
    })
    .await;
}

/// An operator with an older epoch could still transfer leadership and retire a member, because those two calls
/// carried no epoch. A description requested with the newer epoch is enough to refuse the older one.
async fn overtaken(server: &Server, description: &DescribeResponse) {
    let newer = server.operator().describe_for(false, 2).await;
    assert_eq!(newer.unwrap().phase(), Phase::Member);
    let refused = server.operator().transfer(fence(description), 0).await;
    assert_eq!(refused.unwrap_err().code(), Code::Aborted);
    let refused = server.operator().retire(fence(description)).await;
    assert_eq!(refused.unwrap_err().code(), Code::Aborted);
    let refused = server.operator().remove(fence(description), 1).await;
    assert_eq!(refused.unwrap_err().code(), Code::Aborted);
    // No caller can lock out all later operators by an epoch that none of them will reach.
    let beyond = Fence {
        epoch: u64::MAX,
        ..fence(description)
    };
    let refused = server.operator().retire(beyond).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let elsewhere = Fence {
        configuration_index: description.configuration_index + 1,
        epoch: 2,
    };
    let refused = server.operator().transfer(elsewhere, 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
}

#[tokio::test]
async fn down_member_learns_of_its_removal() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = standbys(home.path(), &["demo-1", "demo-2"]);
    for server in &mut servers {
        server.start();
    }
    let description = servers[0].describes("a standby", |_| true).await;
    servers[0]
        .operator()
        .bootstrap(call(&description))
        .await
        .unwrap();
    servers[0].serves("key").await;
    let standby = servers[1].describes("a standby", |_| true).await;
    let added = until("it is added", &servers[0], async || {
        let leader = servers[0].operator().describe(true).await.ok()?;
        let request = add(&servers[1], &standby, &leader);
        servers[0].operator().add_learner(request).await.ok()
    })
    .await;
    servers[1].holds("key", "1").await;
    servers[1].kill();
    let leader = servers[0].operator().describe(true).await.unwrap();
    let removed = servers[0]
        .operator()
        .remove(fence(&leader), added.id)
        .await
        .unwrap();
    assert!(removed.configuration_index > leader.configuration_index);
    servers[1].start();
    servers[1]
        .describes("removed", |description| {
            description.phase() == Phase::Removed
        })
        .await;
}

#[tokio::test]
async fn calls_without_the_key_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = standbys(home.path(), &["demo-1"]);
    servers[0].start();
    let description = servers[0].describes("a standby", |_| true).await;
    let address = format!("{}:2380", servers[0].address);
    let stranger = Key::new(b"ffffffffffffffffffffffffffffffff");
    let patience = super::fixture::PATIENCE;
    let mut stranger = MemberClient::new(&address, stranger, patience, None).unwrap();
    let refused = stranger.bootstrap(call(&description)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    servers[0].kill();
    servers[0].start();
    let again = servers[0]
        .describes("a standby", |description| {
            description.phase() == Phase::Standby
        })
        .await;
    assert_eq!(again.disk_uuid, description.disk_uuid);
    servers[0]
        .operator()
        .bootstrap(call(&description))
        .await
        .unwrap();
    servers[0].kill();
    servers[0].start();
    servers[0].serves("after-the-restart").await;
    let repeated = servers[0]
        .operator()
        .bootstrap(call(&description))
        .await
        .unwrap();
    assert!(repeated.already);
}

/// A caller that has a description is answered when there is another one, whatever is written meanwhile, and without a
/// change after the time that it waits: longer than any other call may take.
#[tokio::test]
async fn descriptions_are_held_until_they_change() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = standbys(home.path(), &["demo-1"]);
    servers[0].start();
    let server = &servers[0];
    let description = server.describes("a standby", |_| true).await;
    let founded = server.operator().bootstrap(call(&description)).await;
    founded.unwrap();
    server.serves("key").await;
    let known = held(server, Duration::from_secs(7)).await;
    // One who has no description, or an older one, does not wait.
    let began = Instant::now();
    let again = server.operator().describe(false).await.unwrap();
    assert_eq!(again.digest, known.digest);
    let wait = Duration::from_secs(50);
    let other = held_call(server, known.digest ^ 1, wait).answer().await;
    assert_eq!(other.unwrap(), Answer::Digest(known.digest));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );

    let digest = known.digest;
    // Callers that are gone take no place of others.
    for _ in 0..40 {
        let gone = held_call(server, digest, wait);
        let gone = tokio::time::timeout(Duration::from_millis(50), async { gone.answer().await });
        assert!(gone.await.is_err(), "it is held");
    }
    let call = held_call(server, digest, wait);
    let waiting = tokio::spawn(async move { call.answer().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "nothing has changed");
    let began = Instant::now();
    server.operator().retire(fence(&known)).await.unwrap();
    let changed = waiting.await.unwrap().unwrap();
    assert_ne!(changed, Answer::Digest(digest));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

fn held_call(server: &Server, digest: u64, wait: Duration) -> HeldCall {
    HeldCall {
        address: server.peer_address(),
        key: Key::new(SECRET.as_bytes()),
        secure: None,
        digest,
        wait,
    }
}

/// A description that did not change for so long while keys were written. What else changes on a busy machine is no matter of
/// this test: then it waits once more.
async fn held(server: &Server, wait: Duration) -> DescribeResponse {
    let mut known = server.operator().describe(false).await.unwrap();
    for turn in 0..6 {
        let began = Instant::now();
        let digest = known.digest;
        let call = held_call(server, digest, wait);
        let waiting = tokio::spawn(async move { call.answer().await });
        while !waiting.is_finished() && began.elapsed() < wait {
            server.put("written", &turn.to_string()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let told = waiting.await.unwrap().unwrap();
        let answer = server.operator().describe(false).await.unwrap();
        if told == Answer::Digest(digest) {
            assert!(began.elapsed() >= wait, "after {:?}", began.elapsed());
            assert!(answer.revision > known.revision, "keys were written");
            return answer;
        }
        known = answer;
    }
    panic!("it changes all the time: {known:?}");
}
