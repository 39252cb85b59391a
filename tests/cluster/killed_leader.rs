//! The leader is killed under writers that go through a follower, with etcd's default timeouts: the others take its place
//! long before an election timeout, and no write fails. `KILLS=10` repeats it, `--nocapture` prints how long each took.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::{PutRequest, RangeRequest};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::fixture::{Server, by_hand, leader};

/// The longest write of a kill takes a tenth to a fifth of a second on an idle machine. This leaves room for a busy one, and
/// is below the shortest election timeout, 1 s.
const BOUND: Duration = Duration::from_millis(700);
/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(5);

/// One write.
#[derive(Debug)]
struct Write {
    took: Duration,
    failed: Option<String>,
}

/// Writes at a steady rate, also while earlier ones wait.
struct Writer {
    client: KvClient<Channel>,
    writes: JoinSet<Write>,
    acknowledged: Arc<AtomicUsize>,
}

impl Writer {
    fn through(server: &Server) -> Self {
        Self {
            client: server.kv(),
            writes: JoinSet::new(),
            acknowledged: Arc::default(),
        }
    }

    /// Begins writes until `count` of those begun here are acknowledged.
    async fn write(&mut self, count: usize) {
        self.acknowledged = Arc::default();
        while self.acknowledged.load(Ordering::Relaxed) < count {
            let (mut client, acknowledged) = (self.client.clone(), Arc::clone(&self.acknowledged));
            self.writes.spawn(async move {
                let begun = Instant::now();
                let request = PutRequest {
                    key: b"key".as_slice().into(),
                    value: b"value".as_slice().into(),
                    ..PutRequest::default()
                };
                let outcome = client.put(request).await;
                acknowledged.fetch_add(usize::from(outcome.is_ok()), Ordering::Relaxed);
                Write {
                    took: begun.elapsed(),
                    failed: outcome.err().map(|error| error.message().to_owned()),
                }
            });
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// How often the key of the writes was written.
async fn version(server: &Server) -> i64 {
    let range = RangeRequest {
        key: b"key".as_slice().into(),
        ..RangeRequest::default()
    };
    let found = server.kv().range(range).await.expect("a read");
    found.into_inner().kvs.first().map_or(0, |kv| kv.version)
}

/// Servers with the default timeouts, which the fixture shortens.
fn patient(home: &std::path::Path) -> Vec<Server> {
    let mut servers = by_hand(home, &["a", "b", "c"]);
    for server in &mut servers {
        let timeouts = ["--heartbeat-interval=", "--election-timeout="];
        let is_timeout = |flag: &String| timeouts.iter().any(|name| flag.starts_with(name));
        server.arguments.retain(|flag| !is_timeout(flag));
        server.start();
    }
    servers
}

/// Each follower waited for the rest of its election timeout, 1 to 2 s, although the leader's host had closed its
/// connections and refused new ones. In one kill of five a write failed after seven seconds: it was on its way to the
/// leader.
#[tokio::test]
async fn closed_connections_of_a_killed_leader_start_an_election() {
    let kills = std::env::var("KILLS").map_or(3, |text| text.parse().expect("a number"));
    let home = tempfile::tempdir().unwrap();
    let mut servers = patient(home.path());
    for server in &servers {
        server.serves("key").await;
    }
    let mut longest = Vec::new();
    for kill in 1..=kills {
        let led = leader(&servers).await;
        let follower = (led + 1) % 3;
        let before = version(&servers[follower]).await;
        let mut writer = Writer::through(&servers[follower]);
        writer.write(40).await;
        servers[led].kill();
        writer.write(40).await;
        let writes = writer.writes.join_all().await;
        let failed: Vec<&Write> = writes.iter().filter(|it| it.failed.is_some()).collect();
        let served = writes.iter().filter(|it| it.failed.is_none());
        let took = served.map(|it| it.took).max().unwrap();
        println!("kill {kill}: {} writes, longest {took:?}", writes.len());
        assert!(
            failed.is_empty(),
            "{failed:?}:\n{}",
            servers[follower].log()
        );
        longest.push(took);
        let after = version(&servers[follower]).await;
        assert_eq!(after - before, writes.len() as i64, "each is there once");
        servers[led].start();
        for server in &servers {
            server.serves("back-again").await;
        }
    }
    longest.sort();
    let median = longest[longest.len() / 2];
    assert!(median < BOUND, "{longest:?}:\n{}", servers[0].log());
}
