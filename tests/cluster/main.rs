//! Clusters of real server processes: they are bootstrapped, replicate, lose and gain members, and refuse connections
//! from outside the cluster. Tests poll for a state and never wait a fixed time.

#![allow(clippy::unwrap_used, clippy::panic)]

mod access;
mod address;
mod archives;
mod backups;
mod copies;
mod corruption;
mod faults;
mod fixture;
mod follow;
mod full;
mod held;
mod ipv6;
mod killed_leader;
mod operated;
mod out;
mod recovered_hosts;
mod recoveries;
mod refused;
mod release;
mod restores;
mod secured;
mod standby;
mod strangers;
mod tls;
mod values;
mod waiting;

use std::path::Path;

use fixture::{Server, by_hand, initial_cluster, leader, serving, until};
use quorate::wire::etcd::{MemberAddRequest, MemberPromoteRequest, MemberRemoveRequest};

#[tokio::test]
async fn one_member_keeps_acknowledged_writes() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    servers[0].start();
    servers[0].serves("key").await;
    let revision = servers[0].put("key", "2").await.unwrap();
    servers[0].kill();
    servers[0].start();
    servers[0].serves("other").await;
    assert_eq!(servers[0].get("key", false).await.unwrap().unwrap(), "2");
    assert!(servers[0].put("key", "3").await.unwrap() > revision);
}

#[tokio::test]
async fn three_members_survive_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    for server in &mut servers {
        server.start();
    }
    for (at, server) in servers.iter().enumerate() {
        server.serves(&format!("through-{at}")).await;
    }
    for server in &servers {
        server.holds("through-2", "1").await;
        assert_eq!(server.get("through-0", false).await.unwrap().unwrap(), "1");
    }
    let led = leader(&servers).await;
    servers[led].kill();
    let next = (led + 1) % 3;
    servers[next].serves("without-the-leader").await;
    servers[led].start();
    servers[led].holds("without-the-leader", "1").await;
    servers[led].serves("back-again").await;
}

#[tokio::test]
async fn member_catches_up_after_all_were_replaced() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    for server in &mut servers {
        server
            .arguments
            .push("--strict-reconfig-check=false".to_owned());
        server.start();
    }
    for server in &servers {
        server.serves("key").await;
    }
    let mut absent = servers.pop().unwrap();
    absent.kill();
    let mut known = format!("{},c={}", initial_cluster(&servers), absent.peer_url());
    for name in ["d", "e"] {
        let mut joiner = Server::new(home.path(), name);
        known = format!("{known},{name}={}", joiner.peer_url());
        let id = until("it is added", &servers[0], async || {
            let add = MemberAddRequest {
                peer_ur_ls: vec![joiner.peer_url()],
                is_learner: true,
            };
            let added = servers[0].cluster().member_add(add).await.ok()?;
            Some(added.into_inner().member?.id)
        })
        .await;
        joiner.arguments.extend([
            format!("--initial-cluster={known}"),
            "--initial-cluster-state=existing".to_owned(),
            "--strict-reconfig-check=false".to_owned(),
        ]);
        joiner.start();
        until("it is promoted", &servers[0], async || {
            let promote = MemberPromoteRequest { id };
            servers[0].cluster().member_promote(promote).await.ok()
        })
        .await;
        servers.push(joiner);
    }
    for name in ["a", "b"] {
        until("it is removed", &servers[3], async || {
            let members = servers[3].members().await.ok()?;
            let Some((id, _, _)) = members.into_iter().find(|member| member.1 == name) else {
                return Some(());
            };
            let remove = MemberRemoveRequest { id };
            servers[3]
                .cluster()
                .member_remove(remove)
                .await
                .ok()
                .map(|_| ())
        })
        .await;
    }
    for server in &mut servers[..2] {
        server.kill();
    }
    servers[3].serves("without-the-first-ones").await;
    absent.start();
    absent.holds("without-the-first-ones", "1").await;
    absent.serves("through-the-one-that-was-down").await;
}

#[tokio::test]
async fn paused_leader_serves_nothing_stale() {
    let home = tempfile::tempdir().unwrap();
    let servers = serving(home.path(), &["a", "b", "c"], "key").await;
    let led = leader(&servers).await;
    servers[led].signal("STOP");
    let other = &servers[(led + 1) % 3];
    until("the others serve", other, async || {
        other.put("key", "new").await.ok()
    })
    .await;
    servers[led].signal("CONT");
    let found = until("it answers again", &servers[led], async || {
        servers[led].get("key", false).await.ok()
    })
    .await;
    assert_eq!(found.unwrap(), "new");
}

/// A member that is unreachable while it is removed detects it when it comes back.
#[tokio::test]
async fn paused_member_learns_of_its_removal() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = serving(home.path(), &["a", "b", "c"], "key").await;
    let led = leader(&servers).await;
    let (leads, paused) = (&servers[led], (led + 1) % 3);
    servers[paused].signal("STOP");
    // From here on no message of the leader reaches it or waits in a socket.
    until("the leader closes its link", leads, async || {
        leads.log().contains("the peer is silent").then_some(())
    })
    .await;
    until("it is removed", leads, async || {
        let members = leads.members().await.ok()?;
        let name = &servers[paused].name;
        let Some((id, _, _)) = members.into_iter().find(|member| member.1 == *name) else {
            return Some(());
        };
        let remove = MemberRemoveRequest { id };
        let removed = leads.cluster().member_remove(remove).await;
        removed.ok().map(|_| ())
    })
    .await;
    servers[paused].signal("CONT");
    let ended = servers[paused].ended().await;
    assert!(ended.success(), "{ended:?}: {}", servers[paused].log());
    servers[led].serves("without-it").await;
}

/// Configures links over TLS, with certificates signed by this CA; for servers that are not started yet.
fn link_over_tls(home: &Path, servers: &mut [Server], authority: &tls::Authority) {
    let addresses: Vec<String> = servers
        .iter()
        .map(|server| server.address.clone())
        .collect();
    for server in servers {
        for argument in &mut server.arguments {
            for address in &addresses {
                let plain = format!("http://{address}:2380");
                *argument = argument.replace(&plain, &format!("https://{address}:2380"));
            }
        }
        let files = authority.certificate(home, &server.name, &server.address);
        server.arguments.extend(files);
    }
}

#[tokio::test]
async fn members_link_over_tls_and_refuse_strangers() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b"]);
    let [one, stranger] = ["one", "stranger"].map(|name| tls::authority(home.path(), name));
    link_over_tls(home.path(), &mut servers, &one);
    servers.iter_mut().for_each(Server::start);
    servers[0].serves("key").await;
    servers[1].holds("key", "1").await;
    // With a certificate of another CA, each side refuses the other.
    servers[1].kill();
    let wrong = stranger.certificate(home.path(), "b", &servers[1].address);
    servers[1]
        .arguments
        .retain(|argument| !argument.starts_with("--peer-"));
    servers[1].arguments.extend(wrong);
    servers[1].start();
    until("the stranger is refused", &servers[0], async || {
        servers[0]
            .log()
            .contains("invalid peer certificate")
            .then_some(())
    })
    .await;
    assert!(servers[1].get("key", false).await.is_err());
}

/// A TLS handshake that a client begins on the peer port and does not complete is closed, and delays no other
/// connection.
#[tokio::test]
async fn a_handshake_with_a_member_has_an_end() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b"]);
    let authority = tls::authority(home.path(), "one");
    link_over_tls(home.path(), &mut servers, &authority);
    servers[0].start();
    let port = format!("{}:2380", servers[0].address);
    until("the peer port is open", &servers[0], async || {
        tokio::net::TcpStream::connect(&port).await.ok()
    })
    .await;
    let mut stalled = Vec::new();
    // Nothing at all, and the first bytes of a ClientHello.
    for first in [&b""[..], &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]] {
        for _ in 0..50 {
            let mut stream = tokio::net::TcpStream::connect(&port).await.unwrap();
            stream.write_all(first).await.unwrap();
            stalled.push(stream);
        }
    }
    // Meanwhile the other member can connect.
    servers[1].start();
    servers[0].serves("key").await;
    servers[1].holds("key", "1").await;
    for mut stream in stalled {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(fixture::PATIENCE, stream.read_to_end(&mut rest)).await;
        // End of stream or a reset: the connection is closed either way.
        let _ = end.expect("closed in time");
    }
}

#[tokio::test]
async fn learner_is_added_promoted_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    servers[0].start();
    servers[0].serves("before").await;
    let mut joiner = Server::new(home.path(), "b");
    let add = MemberAddRequest {
        peer_ur_ls: vec![joiner.peer_url()],
        is_learner: true,
    };
    let added = servers[0].cluster().member_add(add).await.unwrap();
    let id = added.into_inner().member.unwrap().id;
    let urls = initial_cluster(&servers);
    joiner
        .arguments
        .push(format!("--initial-cluster={urls},b={}", joiner.peer_url()));
    joiner
        .arguments
        .push("--initial-cluster-state=existing".to_owned());
    joiner.start();
    joiner.holds("before", "1").await;
    until("it is promoted", &servers[0], async || {
        let promote = MemberPromoteRequest { id };
        servers[0].cluster().member_promote(promote).await.ok()
    })
    .await;
    joiner.serves("through-the-new-one").await;
    let members = joiner.members().await.unwrap();
    assert_eq!(members.len(), 2);
    assert!(members.contains(&(id, "b".to_owned(), false)));
    until("it is removed", &servers[0], async || {
        let remove = MemberRemoveRequest { id };
        servers[0].cluster().member_remove(remove).await.ok()
    })
    .await;
    assert!(joiner.ended().await.success(), "{}", joiner.log());
    servers[0].serves("alone-again").await;
    // The data directory stays marked as that of a removed member.
    joiner.start();
    assert_eq!(joiner.ended().await.code(), Some(24));
    assert!(
        joiner.log().contains("was removed from cluster"),
        "{}",
        joiner.log()
    );
}

#[tokio::test]
async fn graceful_stop_loses_no_acknowledged_write() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = serving(home.path(), &["a", "b", "c"], "begin").await;
    let led = leader(&servers).await;
    let (one, other) = ((led + 1) % 3, (led + 2) % 3);
    let mut writers = Vec::new();
    for (writer, at) in [led, one, other, led].into_iter().enumerate() {
        let client = servers[at].kv();
        writers.push(tokio::spawn(write(client, writer)));
    }
    until("some writes were acknowledged", &servers[one], async || {
        servers[one].get("w0-20", true).await.ok()?
    })
    .await;
    let ended = servers[led].terminate().await;
    assert!(ended.success(), "{}", servers[led].log());
    servers[one].serves("after").await;
    let mut acknowledged = 0;
    for (writer, task) in writers.into_iter().enumerate() {
        let last = task.await.unwrap();
        acknowledged += last;
        for number in 0..last {
            let key = format!("w{writer}-{number}");
            let found = servers[other].get(&key, false).await.unwrap();
            assert!(found.is_some(), "{key} was acknowledged and is lost");
        }
    }
    assert!(acknowledged > 40);
}

/// Puts keys in order until one fails or all are acknowledged; returns how many were.
async fn write(
    mut client: quorate::wire::etcd::kv_client::KvClient<tonic::transport::Channel>,
    writer: usize,
) -> usize {
    for number in 0..300 {
        let request = quorate::wire::etcd::PutRequest {
            key: format!("w{writer}-{number}").into_bytes().into(),
            value: vec![b'x'; 100].into(),
            ..Default::default()
        };
        if client.put(request).await.is_err() {
            return number;
        }
    }
    300
}
