//! Measures how much an attacker with a thousand connections slows the clients of a server: `make attack`.
//!
//! A measurement, not a test: it takes minutes and an idle machine with two cores. The server has one core; the
//! clients and the attacker share the other one, where the clients have a real-time priority (`chrt`): otherwise a
//! kernel with lazy preemption lets the attacker run until the next tick, and the measurement would include up to 9 ms
//! in which a client waits for its own core. The clients put at a quarter of the server's capacity; each attack is
//! measured in turn with a control without it, and the table shows the median of the rounds. `ROUNDS`, `SECONDS`,
//! `ONLY=name`.
//!
//! The attacker has source addresses of its own, because some limits are shares per host: one address, or `HOSTS=n` of
//! them.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::range_request::{SortOrder, SortTarget};
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{self, request_op};
use socket2::{Domain, Socket, Type};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use super::fixture::{Server, everything, put};
use super::limits;

/// Connections of the attacker.
const CROWD: usize = 1000;
/// The number of keys that can be hashed, sorted and listed.
const KEYS: usize = 50_000;
/// The clients that are measured.
const CLIENTS: u32 = 16;

/// The source address of one of the attacker's connections: a loopback address that no server and no client of a test
/// has.
fn source(connection: usize) -> IpAddr {
    let hosts = number("HOSTS", 1).clamp(1, 250);
    let host = connection as u64 % hosts + 1;
    IpAddr::V4(Ipv4Addr::new(127, 66, 0, host as u8))
}

/// Each attack, its description, and whether the server has authentication enabled.
const ATTACKS: &[(&str, &str, bool)] = &[
    ("passwords", "wrong passwords for a user that exists", true),
    (
        "given-up",
        "wrong passwords, each cancelled after 5 ms and retried",
        true,
    ),
    ("tokens", "made-up tokens that name future entries", true),
    ("hashes", "HashKV", false),
    (
        "sorted",
        "the whole range, sorted by its last change, for one key",
        false,
    ),
    ("lists", "the whole range", false),
    ("trickles", "bodies sent at one byte per second", false),
    (
        "leases",
        "leases, one after the other on each connection",
        false,
    ),
    (
        "watches",
        "watchers of all history, one after the other on each stream",
        false,
    ),
    (
        "idle",
        "connections that send only the preface, reopened when closed",
        false,
    ),
];

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn channel(host: &str, from: Option<IpAddr>) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{host}:2379"));
    let endpoint = endpoint.expect("a URL").local_address(from);
    endpoint.connect_lazy()
}

/// Runs the attack named by the environment until it is killed.
#[test]
#[ignore = "a part of cost_of_an_attacker"]
fn attacker() {
    let (Ok(attack), Ok(host)) = (std::env::var("ATTACK"), std::env::var("HOST")) else {
        return;
    };
    if matches!(&*attack, "trickles" | "idle") {
        return sockets(&host, attack == "trickles");
    }
    runtime().block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for connection in 0..CROWD {
            let (attack, channel) = (attack.clone(), channel(&host, Some(source(connection))));
            all.spawn(async move {
                loop {
                    if !once(&attack, &channel).await {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
        }
        all.join_next().await;
    });
}

/// Sends one request; returns false if it was refused.
async fn once(attack: &str, channel: &Channel) -> bool {
    let channel = channel.clone();
    match attack {
        "passwords" | "given-up" => {
            let who = etcd::AuthenticateRequest {
                name: "root".to_owned(),
                password: "a guess".to_owned(),
            };
            let mut client = AuthClient::new(channel);
            let asked = client.authenticate(who);
            if attack == "given-up" {
                return tokio::time::timeout(Duration::from_millis(5), asked)
                    .await
                    .is_ok();
            }
            asked.await.is_ok()
        }
        "tokens" => {
            let mut request = Request::new(put("k", "v"));
            let token = "abcdefghijklmnop.99999999999".parse().expect("letters");
            request.metadata_mut().insert("token", token);
            KvClient::new(channel).put(request).await.is_ok()
        }
        "hashes" => {
            let hash = etcd::HashKvRequest::default();
            MaintenanceClient::new(channel).hash_kv(hash).await.is_ok()
        }
        "sorted" | "lists" => {
            let mut range = everything();
            if attack == "sorted" {
                range.set_sort_order(SortOrder::Descend);
                range.set_sort_target(SortTarget::Mod);
                range.limit = 1;
            }
            let mut client = KvClient::new(channel).max_decoding_message_size(64 << 20);
            client.range(range).await.is_ok()
        }
        "leases" => {
            let grant = etcd::LeaseGrantRequest { ttl: 60, id: 0 };
            LeaseClient::new(channel).lease_grant(grant).await.is_ok()
        }
        "watches" => watches(channel).await,
        other => unreachable!("no attack is called {other}"),
    }
}

async fn watches(channel: Channel) -> bool {
    let create = || etcd::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(etcd::WatchCreateRequest {
            key: vec![0].into(),
            range_end: vec![0].into(),
            start_revision: 1,
            ..Default::default()
        })),
    };
    let requests = tokio_stream::StreamExt::map(tokio_stream::iter(0..1000), move |_| create());
    let mut client = WatchClient::new(channel).max_decoding_message_size(64 << 20);
    let Ok(answers) = client.watch(requests).await else {
        return false;
    };
    let mut answers = answers.into_inner();
    while let Ok(Some(_)) = answers.message().await {}
    true
}

/// Connections without a library; each is reopened when it has been closed.
fn sockets(host: &str, trickle: bool) {
    let head: &[u8] = match trickle {
        true => b"POST /v3/kv/put HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n{",
        false => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    };
    let mut open: Vec<Option<std::net::TcpStream>> = (0..CROWD).map(|_| None).collect();
    loop {
        let round = Instant::now();
        for (connection, stream) in open.iter_mut().enumerate() {
            let is_open = stream.as_mut().is_some_and(|stream| match trickle {
                true => stream.write_all(b" ").is_ok(),
                false => {
                    use std::io::Read as _;
                    match stream.read(&mut [0; 256]) {
                        Ok(length) => length > 0,
                        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                    }
                }
            });
            if !is_open {
                *stream = connect(host, source(connection));
                if let Some(stream) = stream {
                    let _ = stream.write_all(head);
                    stream.set_nonblocking(true).expect("set");
                }
            }
        }
        let pause = Duration::from_secs(u64::from(trickle));
        std::thread::park_timeout(
            pause
                .saturating_sub(round.elapsed())
                .max(Duration::from_millis(1)),
        );
    }
}

/// A connection from that address, or none if it was refused.
fn connect(host: &str, from: IpAddr) -> Option<std::net::TcpStream> {
    let to: SocketAddr = format!("{host}:2379").parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.bind(&SocketAddr::new(from, 0).into()).ok()?;
    socket.connect(&to.into()).ok()?;
    Some(socket.into())
}

/// The attack as a process on the second core, with a lower priority than the clients there.
struct Attacker(Child);

impl Attacker {
    fn start(attack: &str, host: &str) -> Attacker {
        let child = Command::new("chrt")
            .args(["--other", "0", "taskset", "-c", "1"])
            .arg(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "attacks::attacker", "--nocapture"])
            .env("ATTACK", attack)
            .env("HOST", host)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Attacker(child.expect("starts"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The measurements of the clients.
struct Seen {
    answered: u64,
    failed: u64,
    p99: Duration,
}

/// Puts for this time: at this rate, each measured from the time when it was due, or as fast as responses arrive.
async fn clients(host: &str, token: Option<&str>, rate: Option<f64>, length: Duration) -> Seen {
    let failed = Arc::new(AtomicU64::new(0));
    let mut all = tokio::task::JoinSet::new();
    let begin = Instant::now() + Duration::from_millis(100);
    for client in 0..CLIENTS {
        let mut kv = KvClient::new(channel(host, None));
        let (failed, token) = (Arc::clone(&failed), token.map(str::to_owned));
        all.spawn(async move {
            let mut took = Vec::new();
            for turn in 0_u32.. {
                let due = match rate {
                    Some(rate) => {
                        let number = f64::from(turn * CLIENTS + client);
                        begin + Duration::from_secs_f64(number / rate)
                    }
                    None => Instant::now(),
                };
                if due > begin + length {
                    break;
                }
                tokio::time::sleep_until(due.into()).await;
                let mut request = Request::new(put(&format!("c{client}"), "v"));
                if let Some(token) = &token {
                    let token = token.parse().expect("letters");
                    request.metadata_mut().insert("token", token);
                }
                match kv.put(request).await {
                    Ok(_) => took.push(due.elapsed()),
                    Err(_) => {
                        failed.fetch_add(1, Relaxed);
                    }
                }
            }
            took
        });
    }
    let mut took: Vec<Duration> = all.join_all().await.into_iter().flatten().collect();
    took.sort_unstable();
    Seen {
        answered: took.len() as u64,
        failed: failed.load(Relaxed),
        p99: took.get(took.len() * 99 / 100).copied().unwrap_or(length),
    }
}

async fn fill(server: &Server) {
    let mut kv = server.kv().await;
    for block in 0..KEYS / 100 {
        let success = (0..100).map(|number| etcd::RequestOp {
            request: Some(request_op::Request::RequestPut(put(
                &format!("key {:06}", block * 100 + number),
                "a value that is not very long, as values of such keys are",
            ))),
        });
        let txn = etcd::TxnRequest {
            success: success.collect(),
            ..Default::default()
        };
        kv.txn(txn).await.expect("put");
    }
}

/// A server on the first core, a token for the clients, and the server's capacity per second.
async fn prepared(users: bool) -> (Server, Option<String>, f64) {
    let server = Server::pinned(
        &["chrt", "--other", "0", "taskset", "-c", "0"],
        &["--auth-token-ttl=3600"],
    );
    let mut token = None;
    if users {
        let channel = server.channel().await;
        limits::guard(&channel).await;
        token = Some(limits::token(&channel).await);
    } else {
        fill(&server).await;
    }
    let seen = clients(&server.host, token.as_deref(), None, Duration::from_secs(3)).await;
    let capacity = seen.answered as f64 / 3.0;
    println!("<!-- users: {users}, capacity: {capacity:.0} puts a second of {CLIENTS} clients -->");
    (server, token, capacity)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "a measurement of minutes: make attack"]
fn cost_of_an_attacker() {
    let (rounds, seconds) = (number("ROUNDS", 5), number("SECONDS", 4));
    let only = std::env::var("ONLY").ok();
    let length = Duration::from_secs(seconds);
    println!(
        "| attack | p99 without, ms | p99 with, ms | ratio, median of {rounds} | worst ratio | failed puts |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, words, users) in ATTACKS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        runtime().block_on(async {
            let (server, token, capacity) = prepared(*users).await;
            let (mut without, mut with, mut ratios, mut failed) = (vec![], vec![], vec![], 0);
            for _ in 0..rounds {
                let rate = Some(capacity / 4.0);
                let control = clients(&server.host, token.as_deref(), rate, length).await;
                let attacker = Attacker::start(name, &server.host);
                tokio::time::sleep(Duration::from_secs(2)).await;
                let attacked = clients(&server.host, token.as_deref(), rate, length).await;
                drop(attacker);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let ms = |seen: &Seen| seen.p99.as_secs_f64() * 1000.0;
                without.push(ms(&control));
                with.push(ms(&attacked));
                ratios.push(ms(&attacked) / ms(&control).max(0.001));
                failed += attacked.failed;
            }
            let worst = ratios.iter().copied().fold(0.0, f64::max);
            println!(
                "| {words} | {:.1} | {:.1} | {:.2} | {worst:.2} | {failed} |",
                median(without),
                median(with),
                median(ratios),
            );
        });
    }
}
