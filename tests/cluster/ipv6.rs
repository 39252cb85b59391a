//! Members of an operated cluster with IPv6 addresses only: listeners, advertised URLs, and the addresses that members
//! and the operator dial. `tests/topology` covers hosts without an operator, with TLS and DNS names; here the
//! addresses are those of pods, which the operator writes in brackets.

use std::io::Write as _;
use std::net::TcpListener;

use quorate::wire::member::Phase;

use super::fixture::Server;
use super::operated::{awaiting, call, joins};

/// Two ports of `::1` for each server, because the IPv6 loopback is a single address, unlike 127.0.0.0/8. All are held
/// until the last is found. An error on a machine without IPv6.
fn ports(servers: usize) -> std::io::Result<Vec<(u16, u16)>> {
    let held = (0..2 * servers).map(|_| TcpListener::bind("[::1]:0"));
    let held: Vec<TcpListener> = held.collect::<Result<_, _>>()?;
    let ports = held.iter().map(|one| Ok(one.local_addr()?.port()));
    let ports: Vec<u16> = ports.collect::<std::io::Result<_>>()?;
    Ok(ports.chunks(2).map(|two| (two[0], two[1])).collect())
}

#[tokio::test]
async fn standbys_with_ipv6_alone_become_a_cluster() {
    let ports = match ports(3) {
        Ok(ports) => ports,
        Err(error) => {
            let test = "members::ipv6::standbys_with_ipv6_alone_become_a_cluster";
            let why = format!("skipped: {test} (this machine has no IPv6: ::1: {error})\n");
            // Written to the handle directly: the test harness captures the macros' output of a passing test.
            let _ = std::io::stderr().write_all(why.as_bytes());
            return;
        }
    };
    let home = tempfile::tempdir().unwrap();
    let servers = ports.iter().zip(1..);
    let servers = servers
        .map(|(ports, n)| Server::on(home.path(), &format!("demo-{n}"), "[::1]", *ports))
        .collect();
    let mut servers = awaiting(home.path(), servers);
    for server in &mut servers {
        server.start();
    }
    let seed = &servers[0];
    let description = seed.describes("a standby", |description| {
        description.phase() == Phase::Standby
    });
    let description = description.await;
    seed.operator().bootstrap(call(&description)).await.unwrap();
    seed.serves("key").await;
    for server in &servers[1..] {
        let standby = server.describes("a standby", |description| {
            description.phase() == Phase::Standby
        });
        let standby = standby.await;
        joins(seed, server, &standby).await;
    }
    let description = seed.describes("all are in sync", |description| {
        description.members.len() == 3 && description.members.iter().all(|member| member.in_sync)
    });
    for member in description.await.members {
        let mut servers = servers.iter().filter(|one| one.name == member.name);
        let given = servers.next().map(|one| vec![one.peer_url()]);
        assert_eq!(Some(member.peer_urls), given, "with brackets");
    }

    // A restarted member reconnects to the others at these addresses.
    servers[0].kill();
    servers[1].serves("without-the-seed").await;
    servers[0].start();
    servers[0].holds("without-the-seed", "1").await;
}
