//! Requests that wait, for a leader or for their server to start: each is answered, or refused such that it is never
//! applied, or dropped when its client disconnects.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{LeaseRevokeRequest, MemberRemoveRequest, PutRequest, StatusRequest};
use quorate::wire::health::HealthCheckRequest;
use quorate::wire::health::health_check_response::ServingStatus;
use quorate::wire::health::health_client::HealthClient;

use crate::fixture::{Server, by_hand, leader, serving, until};
use crate::operated::standbys;

/// A metric of `/metrics`.
async fn metric(server: &Server, name: &str) -> Option<u64> {
    let address = format!("{}:2379", server.address);
    let mut stream = TcpStream::connect(&address).await.ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

async fn status_leader(server: &Server) -> Option<u64> {
    let mut client = MaintenanceClient::new(server.channel());
    let answer = client.status(StatusRequest {}).await.ok()?;
    Some(answer.into_inner().leader)
}

/// A client that received "no leader" found its write in the cluster later: the proposal stayed queued in its member,
/// waiting for a leader, without a limit. A write that is refused with this error must never be applied, and one that
/// a leader has received must not be refused with it, even if there is no leader when it times out. A request that the
/// state machine refuses does not count as a failed proposal, and no proposal stays queued.
#[tokio::test]
async fn refused_writes_do_not_reappear() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = serving(home.path(), &["a", "b", "c"], "before").await;
    let led = leader(&servers).await;
    let failed = "etcd_server_proposals_failed_total";
    // Repeated if an election interrupted it.
    let before = until("the state refuses both", &servers[led], async || {
        let before = metric(&servers[led], failed).await?;
        let unknown = LeaseRevokeRequest { id: 99 };
        let mut leases = LeaseClient::new(servers[led].channel());
        let revoked = leases.lease_revoke(unknown).await.unwrap_err();
        let unknown = MemberRemoveRequest { id: 99 };
        let removed = servers[led].cluster().member_remove(unknown).await;
        let codes = (revoked.code(), removed.unwrap_err().code());
        (codes == (Code::NotFound, Code::NotFound)).then_some(before)
    })
    .await;
    assert_eq!(metric(&servers[led], failed).await, Some(before));

    let others: Vec<usize> = (0..3).filter(|at| *at != led).collect();
    for other in &others {
        servers[*other].kill();
    }
    let alone = &servers[led];
    // The first write is in the log of the isolated leader; the second waits for a leader.
    let taken = alone.put("taken", "1");
    let waited = async {
        until("it knows no leader", alone, async || {
            (status_leader(alone).await? == 0).then_some(())
        })
        .await;
        (
            alone.put("waited", "1").await,
            alone.get("before", false).await,
        )
    };
    let (taken, (waited, read)) = tokio::join!(taken, waited);
    let text = |refused: Result<i64, Status>| refused.unwrap_err().message().to_owned();
    let mut stay_away = vec!["waited", "early"];
    match text(taken).as_str() {
        "etcdserver: request timed out" => {}
        // The request arrived after the leader had stepped down: then the write must never be applied.
        "etcdserver: no leader" => stay_away.push("taken"),
        other => panic!("{other}"),
    }
    assert_eq!(text(waited), "etcdserver: no leader");
    assert_eq!(text(read.map(|_| 0)), "etcdserver: request timed out");
    // The client of the third write disconnects while it waits.
    let pending = "etcd_server_proposals_pending";
    assert_eq!(metric(alone, pending).await, Some(0));
    let waits = until("it waits", alone, async || {
        (metric(alone, pending).await == Some(1)).then_some(())
    });
    tokio::select! {
        early = alone.put("early", "1") => panic!("no member can acknowledge it: {early:?}"),
        () = waits => {}
    }
    until("nothing waits", alone, async || {
        (metric(alone, pending).await == Some(0)).then_some(())
    })
    .await;
    assert_eq!(metric(alone, failed).await, Some(before + 3));

    for other in others {
        servers[other].start();
    }
    let alone = &servers[led];
    alone.serves("after").await;
    for key in stay_away {
        assert_eq!(
            alone.get(key, false).await.unwrap(),
            None,
            "{key} came back"
        );
    }
}

fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(format!("http://{}:2379", server.address))
        .unwrap()
        .connect_lazy()
}

/// A put with a deadline of half a minute.
fn patient(key: &str) -> Request<PutRequest> {
    let mut request = Request::new(PutRequest {
        key: key.as_bytes().to_vec().into(),
        ..PutRequest::default()
    });
    request.set_timeout(Duration::from_secs(30));
    request
}

async fn listens(server: &Server) {
    until("it listens", server, async || {
        let address = format!("{}:2379", server.address);
        TcpStream::connect(address).await.ok()
    })
    .await;
}

/// The number of calls of a method that have begun.
async fn begun(server: &Server, method: &str) -> u64 {
    let name = format!(
        "grpc_server_started_total{{grpc_method=\"{method}\",grpc_service=\"etcdserverpb.KV\",\
         grpc_type=\"unary\"}}"
    );
    metric(server, &name).await.unwrap_or(0)
}

/// A request may take five seconds and two election timeouts: with this timeout, longer than any test waits.
fn has_time(server: &mut Server) {
    let slow = |argument: &mut String| {
        if argument.starts_with("--election-timeout=") {
            *argument = "--election-timeout=30000".to_owned();
        }
    };
    server.arguments.iter_mut().for_each(slow);
}

fn is_not_served(refused: &Status) {
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let text = "this server is starting, or no member of a cluster";
    assert!(refused.message().contains(text), "{refused}");
}

/// Clients that connected to a starting member and wrote at once were refused during its first second. etcd's clients
/// never see this: etcd accepts connections only once it serves. A probe does not wait. Once a member has logged that
/// it is ready, its health check must report serving: test frameworks and systemd rely on that line, load balancers on
/// the health check.
#[tokio::test]
async fn a_request_waits_until_its_server_serves() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    has_time(&mut servers[0]);
    servers[0].start();
    listens(&servers[0]).await;
    let mut kv = KvClient::new(channel(&servers[0]));
    let put = tokio::spawn(async move { kv.put(patient("early")).await });
    let check = HealthCheckRequest::default;
    let probe = HealthClient::new(channel(&servers[0])).check(check()).await;
    assert!(
        probe.is_err()
            || probe.is_ok_and(|answer| answer.get_ref().status() != ServingStatus::Serving)
    );
    assert!(!put.is_finished(), "one member of three has no quorum");
    for server in &mut servers[1..] {
        server.start();
    }
    put.await.unwrap().unwrap();
    for server in &servers {
        until("it is ready", server, async || {
            server
                .log()
                .contains("ready to serve client requests")
                .then_some(())
        })
        .await;
        let mut client = HealthClient::new(channel(server));
        let answer = client.check(check()).await.unwrap().into_inner();
        let log = server.log();
        // If electing a leader took longer than five seconds on a slow machine, the server logs this.
        let late = log.contains("no read was answered yet");
        assert!(late || answer.status() == ServingStatus::Serving, "{log}");
    }
}

/// Waiting requests use memory, so their number must be limited before a server has started: requests beyond 512 are
/// refused at once.
#[tokio::test]
async fn waiting_requests_are_bounded() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    has_time(&mut servers[0]);
    servers[0].start();
    listens(&servers[0]).await;
    let channels: Vec<Channel> = (0..6).map(|_| channel(&servers[0])).collect();
    let mut puts: FuturesUnordered<_> = (0..600)
        .map(|number| {
            let mut kv = KvClient::new(channels[number % channels.len()].clone());
            async move { kv.put(patient("early")).await }
        })
        .collect();
    for _ in 512..600 {
        is_not_served(&puts.next().await.unwrap().unwrap_err());
    }
    for server in &mut servers[1..] {
        server.start();
    }
    while let Some(put) = puts.next().await {
        put.unwrap();
    }
}

/// A client with a deadline of a minute waited for all of it, at a standby, which needs an operator to become a
/// member, and at a server that was shutting down: there the wait held a seat and delayed the shutdown.
#[tokio::test]
async fn no_client_waits_for_a_retired_server() {
    let home = tempfile::tempdir().unwrap();
    let mut standby = standbys(home.path(), &["demo-1"]).remove(0);
    has_time(&mut standby);
    standby.start();
    listens(&standby).await;
    let refused = KvClient::new(channel(&standby)).put(patient("early")).await;
    is_not_served(&refused.unwrap_err());

    let mut servers = by_hand(home.path(), &["a", "b"]);
    has_time(&mut servers[0]);
    servers[0].start();
    listens(&servers[0]).await;
    let mut kv = KvClient::new(channel(&servers[0]));
    let put = tokio::spawn(async move { kv.put(patient("early")).await });
    until("it came", &servers[0], async || {
        (begun(&servers[0], "Put").await == 1).then_some(())
    })
    .await;
    servers[0].terminate().await;
    is_not_served(&put.await.unwrap().unwrap_err());
}

/// At a server that does not come up, a request waits for the request timeout at most, not for the client's deadline.
#[tokio::test]
async fn requests_wait_at_most_their_timeout() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b"]);
    servers[0].start();
    listens(&servers[0]).await;
    let refused = KvClient::new(channel(&servers[0]))
        .put(patient("early"))
        .await;
    is_not_served(&refused.unwrap_err());
}
