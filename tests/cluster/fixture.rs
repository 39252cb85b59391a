//! Server processes on loopback, for tests that kill, stop and pause them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::address::address;
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::{MemberListRequest, PutRequest, RangeRequest};
use quorate::wire::member::DescribeResponse;
use tonic::transport::{Channel, Endpoint};

/// The operator's key in these tests.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Longer than any step takes on a slow machine; reached only if something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A server, running or not.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) data: PathBuf,
    pub(crate) address: String,
    /// The client port and the peer port.
    ports: (u16, u16),
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The program that starts the server, with its first arguments; empty for a direct start.
    pub(crate) wrapper: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// A server that is not started yet; the arguments that make it part of a cluster are added later.
    pub(crate) fn new(home: &Path, name: &str) -> Server {
        Server::at(home, name, &address())
    }

    /// The same at an address that its data already names.
    pub(crate) fn at(home: &Path, name: &str, address: &str) -> Server {
        Server::on(home, name, address, (2379, 2380))
    }

    /// The same on other ports, for several servers at one address.
    pub(crate) fn on(home: &Path, name: &str, address: &str, ports: (u16, u16)) -> Server {
        let data = home.join(name);
        let client = format!("http://{address}:{}", ports.0);
        let peer = format!("http://{address}:{}", ports.1);
        let arguments = vec![
            "server".to_owned(),
            format!("--name={name}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            "--heartbeat-interval=50".to_owned(),
            "--election-timeout=500".to_owned(),
            "--log-level=debug".to_owned(),
        ];
        Server {
            name: name.to_owned(),
            data,
            address: address.to_owned(),
            ports,
            arguments,
            environment: Vec::new(),
            wrapper: Vec::new(),
            log: home.join(format!("{name}.log")),
            child: None,
        }
    }

    /// `host:port` of the peer port.
    pub(crate) fn peer_address(&self) -> String {
        format!("{}:{}", self.address, self.ports.1)
    }

    pub(crate) fn peer_url(&self) -> String {
        format!("http://{}", self.peer_address())
    }

    pub(crate) fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("a log file");
        let mut words = self.wrapper.clone();
        words.push(env!("CARGO_BIN_EXE_quorate").to_owned());
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        self.child = Some(child);
    }

    /// SIGKILL: nothing is flushed, no peer is notified.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("started").id();
        let done = Command::new("kill")
            .args(["-s", name, &id.to_string()])
            .status();
        assert!(done.expect("kill runs").success());
    }

    /// Sends SIGTERM and returns the exit status.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// Waits until the process exits by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("started");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child process") {
                return status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill().expect("it runs");
                panic!("{} did not end:\n{}", self.name, self.log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}:{}", self.address, self.ports.0))
            .expect("a URL")
            .timeout(Duration::from_secs(10))
            .connect_lazy()
    }

    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel())
    }

    pub(crate) fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel())
    }

    pub(crate) fn operator(&self) -> MemberClient {
        let address = self.peer_address();
        let key = Key::new(SECRET.as_bytes());
        MemberClient::new(&address, key, Duration::from_secs(10), None).expect("an address")
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Result<i64, tonic::Status> {
        let request = PutRequest {
            key: key.as_bytes().to_vec().into(),
            value: value.as_bytes().to_vec().into(),
            ..PutRequest::default()
        };
        let response = self.kv().put(request).await?.into_inner();
        Ok(response.header.map_or(0, |header| header.revision))
    }

    pub(crate) async fn get(
        &self,
        key: &str,
        serializable: bool,
    ) -> Result<Option<String>, tonic::Status> {
        let request = RangeRequest {
            key: key.as_bytes().to_vec().into(),
            serializable,
            ..RangeRequest::default()
        };
        let response = self.kv().range(request).await?.into_inner();
        let kv = response.kvs.into_iter().next();
        Ok(kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
    }

    /// Waits until a write through this server succeeds.
    pub(crate) async fn serves(&self, key: &str) {
        until(&format!("{} serves", self.name), self, async || {
            self.put(key, "1").await.ok()
        })
        .await;
    }

    /// Waits until a serializable read from the server returns the value.
    pub(crate) async fn holds(&self, key: &str, value: &str) {
        until(&format!("{} holds {key}", self.name), self, async || {
            let found = self.get(key, true).await.ok()??;
            (found == value).then_some(())
        })
        .await;
    }

    /// Waits until the server's description satisfies the condition, and returns it.
    pub(crate) async fn describes(
        &self,
        what: &str,
        wanted: impl Fn(&DescribeResponse) -> bool,
    ) -> DescribeResponse {
        until(&format!("{}: {what}", self.name), self, async || {
            let description = self.operator().describe(false).await.ok()?;
            wanted(&description).then_some(description)
        })
        .await
    }

    /// The member list of this server: (id, name, learner).
    pub(crate) async fn members(&self) -> Result<Vec<(u64, String, bool)>, tonic::Status> {
        let request = MemberListRequest { linearizable: true };
        let response = self.cluster().member_list(request).await?.into_inner();
        let members = response.members.into_iter();
        Ok(members
            .map(|member| (member.id, member.name, member.is_learner))
            .collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until there is a result; fails with the server's log.
pub(crate) async fn until<T>(
    what: &str,
    server: &Server,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "timed out waiting until {what}:\n{}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Servers that form a cluster by their flags, not started yet.
pub(crate) fn by_hand(home: &Path, names: &[&str]) -> Vec<Server> {
    let mut servers: Vec<Server> = names.iter().map(|name| Server::new(home, name)).collect();
    let initial = initial_cluster(&servers);
    for server in &mut servers {
        server
            .arguments
            .push(format!("--initial-cluster={initial}"));
        server
            .arguments
            .push("--initial-cluster-token=test".to_owned());
    }
    servers
}

/// The same, started; every member has acknowledged a write of this key.
pub(crate) async fn serving(home: &Path, names: &[&str], key: &str) -> Vec<Server> {
    let mut servers = by_hand(home, names);
    for server in &mut servers {
        server.start();
    }
    for server in &servers {
        server.serves(key).await;
    }
    servers
}

/// `--initial-cluster` of these servers.
pub(crate) fn initial_cluster(servers: &[Server]) -> String {
    let one = |server: &Server| format!("{}={}", server.name, server.peer_url());
    servers.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The index of the leader, as the servers describe themselves.
pub(crate) async fn leader(servers: &[Server]) -> usize {
    until("there is a leader", &servers[0], async || {
        for (at, server) in servers.iter().enumerate() {
            let status = quorate::wire::etcd::StatusRequest {};
            let mut client =
                quorate::wire::etcd::maintenance_client::MaintenanceClient::new(server.channel());
            if let Ok(answer) = client.status(status).await {
                let answer = answer.into_inner();
                let own = answer.header.map_or(0, |header| header.member_id);
                if answer.leader != 0 && answer.leader == own {
                    return Some(at);
                }
            }
        }
        None
    })
    .await
}
